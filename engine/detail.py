"""The numbers behind a token that decoding itself does not need. Timed apart from decoding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.config import Detail
from engine.events import Choice, RecoveryDetail, TokenDetail
from engine.model import RawProbs
from engine.verify import Proposal, Rows, Verdict

TOP = 5

Describe = Callable[[int], str]
"""How a token of a top list is written."""


@dataclass(frozen=True, slots=True)
class Behind:
    """What is behind a round. raw_probs: the target's of each token that the verdict emits; details: of each tested draft."""

    raw_probs: tuple[float, ...] = ()
    details: tuple[TokenDetail, ...] = ()
    recovery: RecoveryDetail | None = None


def behind(
    level: Detail,
    proposal: Proposal,
    verdict: Verdict,
    logits: Tensor,
    target_probs: Rows,
    raw_probs: RawProbs,
    describe: Describe,
) -> Behind:
    """All that the level asks for. logits [k + 1, V]: the target's raw rows, of which only those that were needed are read."""
    if level == Detail.OFF:
        return Behind()
    n, tested = verdict.num_accepted, len(verdict.tests)
    probs = raw_probs(logits, (*range(tested), n), (*proposal.token_ids[:tested], verdict.next_id))
    details = tuple(TokenDetail(proposal.raw_prob(i), probs[i]) for i in range(tested))
    emitted = (*probs[:n], probs[-1])
    if level == Detail.PROBS:
        return Behind(emitted, details)
    tops = [(_draft_top(i, proposal, describe), top_choices(target_probs[i], describe)) for i in range(tested)]
    full = tuple(
        replace(known, draft_top=draft_top, target_top=target_top)
        for known, (draft_top, target_top) in zip(details, tops, strict=True)
    )
    return Behind(emitted, full, recovery_detail(logits, verdict, describe))


def _draft_top(i: int, proposal: Proposal, describe: Describe) -> tuple[Choice, ...]:
    if proposal.probs is not None:
        return top_choices(proposal.probs[i], describe)
    token_id = proposal.token_ids[i]
    return (Choice(token_id, describe(token_id), 1.0),)


def recovery_detail(logits: Tensor, verdict: Verdict, describe: Describe) -> RecoveryDetail:
    """What the token that ended the round was drawn from. logits [k + 1, V]: the target's raw rows."""
    raw = torch.softmax(logits[verdict.num_accepted].double(), dim=-1)
    return RecoveryDetail(top_choices(verdict.last_probs, describe), verdict.last_uniform, top_choices(raw, describe))


def top_choices(probs: Tensor, describe: Describe, n: int = TOP) -> tuple[Choice, ...]:
    """The n likeliest of a row [V] of any positive total, normalised; those with probability 0 left out."""
    values, ids = torch.topk(probs, min(n, len(probs)))
    total = float(probs.double().sum())
    pairs = zip(ids.tolist(), values.tolist(), strict=True)
    return tuple(Choice(i, describe(i), value / total) for i, value in pairs if value > 0)
