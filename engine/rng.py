"""Random numbers that are looked up, not consumed: each is a hash of (seed, position, purpose or token).

So the same seed gives the same reply whatever was computed before, and drafter and target can share noise.
The hash is the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), applied once for each part of the key.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from engine.config import Rule

if TYPE_CHECKING:
    from engine.kernels.native_sampler import NativeSampler

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB

_FEW = 512
"""Up to so many tokens the noise is simply computed for all of them."""


class Purpose(IntEnum):
    """What a uniform number decides; numbers of different purposes are independent."""

    TARGET = 1  # the target's own draw: plain, bonus, recovered
    DRAFT = 2  # the drafter's draw
    ACCEPT = 3  # the test of a draft
    NOISE = 4  # Gumbel noise of the shared-noise rule


def _mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * _MIX_1) & _MASK
    x = ((x ^ (x >> 27)) * _MIX_2) & _MASK
    return x ^ (x >> 31)


def _key(*parts: int) -> int:
    key = 0
    for part in parts:
        key = _mix((key + (part + 1) * _GAMMA) & _MASK)
    return key


def uniform(seed: int, position: int, purpose: Purpose) -> float:
    """A number in [0, 1), 53 bits."""
    return (_key(seed, position, purpose) >> 11) * 2.0**-53


def _token_bits(seed: int, position: int, token_ids: np.ndarray) -> np.ndarray:
    """53 hashed bits for each token id, as uint64."""
    with np.errstate(over="ignore"):
        x = (token_ids.astype(np.uint64) + np.uint64(1)) * np.uint64(_GAMMA)
        x += np.uint64(_key(seed, position, Purpose.NOISE))
        x ^= x >> np.uint64(30)
        x *= np.uint64(_MIX_1)
        x ^= x >> np.uint64(27)
        x *= np.uint64(_MIX_2)
        x ^= x >> np.uint64(31)
    return x >> np.uint64(11)


def _gumbel_of(bits: np.ndarray) -> np.ndarray:
    """-log(-log(u)), u in (0, 1) from 53 bits; the half keeps u off both ends."""
    return -np.log(-np.log((bits.astype(np.float64) + 0.5) * 2.0**-53))


def gumbel(seed: int, position: int, token_ids: np.ndarray) -> np.ndarray:
    """Standard Gumbel noise, float64, one for each token id (int64 array)."""
    return _gumbel_of(_token_bits(seed, position, token_ids))


def gumbel_argmax(probs: Tensor, seed: int, position: int, ids: np.ndarray | None = None) -> int:
    """argmax over the support of log p + noise: a draw from `probs` [V], the same for whoever has the same noise.

    ids int64 [V]: what others call the entries, whose noise then counts; None: the same. Returns the entry.

    Exact, but without a logarithm for every token of a large vocabulary: behind the _FEW likeliest tokens a token can
    only win with noise above a bound, so the hashed integers are compared with that bound first.
    """
    row = probs.numpy()
    support = np.flatnonzero(row > 0)
    logs = np.log(row[support].astype(np.float64))
    names = support if ids is None else ids[support]
    if len(support) > _FEW:
        order = np.argpartition(logs, -_FEW)
        likeliest, unlikely = order[-_FEW:], order[:-_FEW]
        best = float((logs[likeliest] + gumbel(seed, position, names[likeliest])).max())
        bound = np.exp(-np.exp(-(best - float(logs[likeliest].min()))))
        bits = _token_bits(seed, position, names[unlikely])
        # One part in 2^40 of slack outweighs the rounding of the bound itself.
        contenders = unlikely[bits >= np.uint64(max(0.0, bound * (1.0 - 2.0**-40) * 2.0**53 - 2.0))]
        keep = np.sort(np.concatenate([likeliest, contenders]))
        support, logs, names = support[keep], logs[keep], names[keep]
    return int(support[np.argmax(logs + gumbel(seed, position, names))])


@dataclass(frozen=True, slots=True)
class KeyedRng:
    """The randomness of one reply. Positions are absolute: index into prompt + reply.

    begin: where the round begins, for whoever drafts in it. A draft behind a rejection is drawn anew in the next round,
    and how many drafts that round has may depend on what the controller saw of this one: with the same number it would
    depend on the value of the draft. native: the target's native sampler, if it has one.
    """

    seed: int
    rule: Rule
    begin: int = 0
    native: NativeSampler | None = None

    def uniform(self, position: int, purpose: Purpose) -> float:
        seed = self.seed if purpose is not Purpose.DRAFT else _key(self.seed, self.begin)
        return uniform(seed, position, purpose)

    def draw(self, probs: Tensor, position: int, purpose: Purpose, ids: np.ndarray | None = None) -> int:
        """An entry of `probs` [V] for this position. Under shared noise the purpose makes no difference.

        ids int64 [V]: the target's ids of the entries; None: the same.
        """
        if self.rule is Rule.SHARED_NOISE:
            return gumbel_argmax(probs, self.seed, position, ids)
        return inverse_cdf(probs, self.uniform(position, purpose), self.native)


def inverse_cdf(probs: Tensor, u: float, native: NativeSampler | None = None) -> int:
    """The token at which the running sum of `probs` [V] (any positive total) passes u * total; never one
    with probability 0."""
    row = probs.numpy()
    best = int(row.argmax())
    if row[best] == 1.0:  # a point mass, as at temperature 0: no search through the vocabulary
        return best
    if native is not None and row.flags.c_contiguous and row.dtype == np.float32:
        return native.draw(row, u)
    support = np.flatnonzero(row > 0)
    running = row[support].cumsum(dtype=np.float64)
    index = running.searchsorted(u * running[-1], side="right")
    return int(support[min(int(index), len(support) - 1)])
