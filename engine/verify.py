"""Proposal + the target's probabilities + randomness -> Verdict. The papers' algorithms and nothing else.

Both rules emit exactly the target's distribution, whatever the drafter proposes:

rejection     Leviathan et al., arXiv:2211.17192, algorithm 1; Chen et al., arXiv:2302.01318, algorithm 2.
shared_noise  Gumbel-max coupling: Daliri, Musco, Suresh, "Coupling without communication and drafter-invariant
              speculative decoding", arXiv:2408.07978. A draft stands iff it is the token that the target draws itself.

There is no greedy branch: at temperature 0 the rows are one-hot and the same arithmetic decides.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.config import Rule
from engine.drafters.protocol import ProbRows, Proposal
from engine.rng import KeyedRng, Purpose, inverse_cdf


@dataclass(frozen=True, slots=True)
class DraftTest:
    """One tested draft. uniform is the drawn number, None where the rule draws none."""

    accepted: bool
    draft_prob: float
    target_prob: float
    accept_prob: float
    uniform: float | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The first `num_accepted` drafts stand, `next_id` follows them. `tests` covers the tested drafts only.

    last_probs [V]: what next_id was drawn from (the residual after a rejection, else the target's row), and
    last_uniform the number that drew it (None under shared noise).
    """

    num_accepted: int
    next_id: int
    tests: tuple[DraftTest, ...]
    last_probs: Tensor
    last_uniform: float | None


def verify(proposal: Proposal, target_probs: ProbRows, position: int, rng: KeyedRng) -> Verdict:
    """target_probs [k + 1, V]: row i is the target's distribution at absolute position `position` + i, given
    the drafts before it.

    Rows behind the first rejected draft are not read.
    """
    rule = _shared_noise if rng.rule is Rule.SHARED_NOISE else _rejection
    return rule(proposal, target_probs, position, rng)


def _rejection(proposal: Proposal, target_probs: ProbRows, position: int, rng: KeyedRng) -> Verdict:
    tests: list[DraftTest] = []
    for i, token_id in enumerate(proposal.token_ids):
        draft_prob, target_prob = proposal.prob(i), float(target_probs[i][token_id])
        u = rng.uniform(position + i, Purpose.ACCEPT)
        accepted = u * draft_prob < target_prob
        tests.append(DraftTest(accepted, draft_prob, target_prob, _accept_prob(draft_prob, target_prob), u))
        if not accepted:
            return _last(i, residual(proposal, target_probs[i], i), tests, position, rng)
    k = len(proposal.token_ids)
    return _last(k, target_probs[k], tests, position, rng)


def _last(i: int, probs: Tensor, tests: list[DraftTest], position: int, rng: KeyedRng) -> Verdict:
    u = rng.uniform(position + i, Purpose.TARGET)
    return Verdict(i, inverse_cdf(probs, u, rng.native), tuple(tests), probs, u)


def residual(proposal: Proposal, target_row: Tensor, i: int) -> Tensor:
    """max(target - draft, 0) [V], not normalised; the target's row itself where that is all zero."""
    if proposal.probs is None:
        positive_part = target_row.numpy().copy()
        positive_part[proposal.token_ids[i]] = 0.0
    elif proposal.vocabulary is None:
        positive_part = np.maximum(target_row.numpy() - proposal.probs[i].numpy(), np.float32(0.0))
    else:
        positive_part, draft_ids = target_row.numpy().copy(), proposal.vocabulary.numpy()
        positive_part[draft_ids] = np.maximum(positive_part[draft_ids] - proposal.probs[i].numpy(), np.float32(0.0))
    return torch.from_numpy(positive_part) if positive_part.max() > 0.0 else target_row


def _accept_prob(draft_prob: float, target_prob: float) -> float:
    return min(1.0, target_prob / draft_prob) if draft_prob > 0.0 else float(target_prob > 0.0)


def _shared_noise(proposal: Proposal, target_probs: ProbRows, position: int, rng: KeyedRng) -> Verdict:
    tests: list[DraftTest] = []
    for i, token_id in enumerate(proposal.token_ids):
        target_id = rng.draw(target_probs[i], position + i, Purpose.TARGET)
        accepted = target_id == token_id
        tests.append(DraftTest(accepted, proposal.prob(i), float(target_probs[i][token_id]), float(accepted), None))
        if not accepted:
            return Verdict(i, target_id, tuple(tests), target_probs[i], None)
    k = len(proposal.token_ids)
    return Verdict(k, rng.draw(target_probs[k], position + k, Purpose.TARGET), tuple(tests), target_probs[k], None)
