"""Logits -> probabilities. The only place where temperature, top-k, top-p, min-p, penalties and bias live.

Drafter and target both go through `probabilities`, so what a draft was drawn from is what it is tested against.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from engine.config import SamplingParams
from engine.errors import NumericalError

if TYPE_CHECKING:
    from engine.kernels.native_sampler import NativeSampler

Array = np.ndarray[Any, Any]

NO_NUMBER = "The model's output is not a number; this reply ends here. Try again or choose another model."

_NEAR = np.float32(8.0)
"""Filters look at the tokens so close to the best first (in units of log-probability), and further
only where needed."""

COLDEST = 1e-30
"""Lower temperatures would be 0 in float32, and 0 / 0 is no probability. At this one nothing but the
best is left already."""


def probabilities(
    logits: Tensor,
    history: Sequence[int],
    prompt_len: int,
    params: SamplingParams,
    native: NativeSampler | None = None,
) -> Tensor:
    """Distribution of the next token for each row, float32 [n, V].

    logits [n, V]: row i follows all but the last n - 1 - i ids of `history` (prompt, reply and the drafts before that
    row), so penalties at row i see exactly the drafts before it. The reply begins at history[prompt_len]. Order:
    penalties, bias, temperature, top-k, top-p, min-p. temperature 0 gives one-hot rows, made from an argmax. native:
    the model's native sampler, if it has one. A row's result does not depend on the others. Raises NumericalError for
    NaN, +inf, or a row with nothing left to draw.
    """
    scores = _apply_biases(_apply_penalties(logits, history, prompt_len, params), params)
    probs = np.zeros(scores.shape, np.float32)
    for row, out in zip(scores.numpy(), probs, strict=True):
        _fill(row, params, native, out)
    return torch.from_numpy(probs)


def likeliest(logits: Tensor) -> tuple[int, float]:
    """The token that softmax(logits [V]) prefers, the first of several, and its probability; NaN
    where logits hold NaN."""
    share, index = torch.softmax(logits, dim=-1).max(dim=-1)
    return int(index), float(share)


def raw_probs(logits: Tensor, rows: Sequence[int], ids: Sequence[int]) -> list[float]:
    """Probabilities at temperature 1 without filters, of token ids[j] in row rows[j] of logits [n, V].

    No number where the row holds NaN or +inf, or nothing above -inf.
    """
    shares = torch.softmax(logits[: max(rows) + 1], dim=-1)
    return [float(shares[row, token_id]) for row, token_id in zip(rows, ids, strict=True)]


class LazyRows:
    """`probabilities`, row by row as they are asked for: what stands behind a rejected draft is never looked at."""

    def __init__(
        self,
        logits: Tensor,
        history: Sequence[int],
        prompt_len: int,
        params: SamplingParams,
        native: NativeSampler | None = None,
    ) -> None:
        self._logits, self._history, self._prompt_len = logits, history, prompt_len
        self._params, self._native = params, native
        self._rows: dict[int, Tensor] = {}

    def __getitem__(self, i: int) -> Tensor:
        """Row i, [V]. Raises NumericalError as `probabilities` does."""
        if i not in self._rows:
            prefix_len = len(self._history) - (len(self._logits) - 1 - i)
            row = self._logits[i : i + 1]
            self._rows[i] = probabilities(
                row, self._history[:prefix_len], self._prompt_len, self._params, self._native
            )[0]
        return self._rows[i]


def _fill(scores: Array, params: SamplingParams, native: NativeSampler | None, out: Array) -> None:
    """The distribution of one row of scores [V] into out [V], which holds zeros.

    By the native sampler, or by its twin in numpy: on a CPU, whatever torch would gain from several threads on rows
    this short it loses on waking them.
    """
    if params.greedy or native is None or not (scores.flags.c_contiguous and scores.dtype == np.float32):
        _fill_in_numpy(scores, params, out)
        return
    temperature = max(params.temperature, COLDEST)
    if not native.distribution(scores, temperature, params.top_k, params.top_p, params.min_p, out):
        raise NumericalError(NO_NUMBER)


def _fill_in_numpy(scores: Array, params: SamplingParams, out: Array) -> None:
    likeliest = scores.argmax()
    best = scores[likeliest]  # a NaN, if there is one
    if not math.isfinite(best):
        raise NumericalError(NO_NUMBER)
    if params.greedy:
        out[likeliest] = 1.0
        return
    # Subtracting the row's best before the division keeps a tiny temperature from overflowing.
    logs = scores - best
    with np.errstate(over="ignore"):
        np.divide(logs, np.float32(max(params.temperature, COLDEST)), out=logs)
    ids = _top_k(logs, params.top_k) if 0 < params.top_k < len(logs) else None
    probs = torch.softmax(torch.from_numpy(logs if ids is None else logs[ids]), dim=-1).numpy()
    if params.top_p < 1.0:
        keep = _top_p(probs, params.top_p)
        ids, probs = (keep if ids is None else ids[keep]), probs[keep]
    if params.min_p > 0.0:
        keep = np.flatnonzero(probs >= np.float32(params.min_p) * probs.max())
        ids, probs = (keep if ids is None else ids[keep]), probs[keep]
    if params.top_p < 1.0 or params.min_p > 0.0:
        probs = probs / probs.sum()
    out[slice(None) if ids is None else ids] = probs


def _top_k(logs: Array, top_k: int) -> Array:
    """Ids of the top_k largest of logs [V], whose largest is 0; those as likely as the last of them are all kept."""
    floor = -_NEAR
    while np.count_nonzero(logs >= floor) < top_k:
        floor = floor * 4 if floor > np.float32(-1e6) else np.float32(-np.inf)
    candidates = logs[logs >= floor]
    return np.flatnonzero(logs >= np.partition(candidates, len(candidates) - top_k)[len(candidates) - top_k])


def _top_p(probs: Array, top_p: float) -> Array:
    """Ids of the smallest set of likeliest tokens of probs [n] whose mass reaches top_p; ties with
    the last are all kept.

    The set depends on the row alone. Only tokens near the best are sorted, more of them where they do not hold the
    mass.
    """
    floor = probs.max() * np.exp(-_NEAR)
    while True:
        ids = np.flatnonzero(probs >= floor)
        candidates = probs[ids]
        falling = np.sort(candidates)[::-1].tolist()
        mass = itertools.accumulate(falling)
        last = next((value for value, reached in zip(falling, mass, strict=True) if reached >= top_p), None)
        if last is not None or len(candidates) == len(probs):
            nucleus: Array = ids[candidates >= (falling[-1] if last is None else last)]
            return nucleus
        floor = floor * np.exp(-_NEAR)


def _apply_penalties(logits: Tensor, history: Sequence[int], prompt_len: int, params: SamplingParams) -> Tensor:
    """Repetition penalty (Keskar et al., arXiv:1909.05858, section 4.1) over prompt and reply; frequency and
    presence over the reply."""
    if params.repetition_penalty == 1.0 and params.frequency_penalty == 0.0 and params.presence_penalty == 0.0:
        return logits
    scores = logits.clone()
    n, vocab_size = scores.shape
    ids = torch.as_tensor(history, dtype=torch.long)
    for i in range(n):
        row, prefix = scores[i], ids[: len(ids) - (n - 1 - i)]
        if params.repetition_penalty != 1.0:
            present = torch.unique(prefix)
            values = row[present]
            row[present] = torch.where(
                values > 0, values / params.repetition_penalty, values * params.repetition_penalty
            )
        if params.frequency_penalty or params.presence_penalty:
            counts = torch.bincount(prefix[prompt_len:], minlength=vocab_size)
            row -= params.frequency_penalty * counts + params.presence_penalty * (counts > 0)
    return scores


def _apply_biases(scores: Tensor, params: SamplingParams) -> Tensor:
    """Add the biases; -100 is a ban."""
    if not params.logit_bias:
        return scores
    ids = torch.tensor([token_id for token_id, _ in params.logit_bias])
    biases = [float("-inf") if bias <= -100.0 else bias for _, bias in params.logit_bias]
    return scores.index_add(-1, ids, torch.tensor(biases).expand(len(scores), -1))
