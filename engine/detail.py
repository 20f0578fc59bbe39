"""For the inspector: the numbers behind a decision that decoding itself does not need. Timed apart from decoding."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from engine.events import Choice, RecoveryDetail, TokenDetail
from engine.verify import Proposal, Rows, Verdict

TOP = 5


def token_detail(
    i: int, proposal: Proposal, logits: Tensor, target_probs: Rows, describe: Callable[[int], str]
) -> TokenDetail:
    """Detail of the i-th draft. logits [k + 1, V] are the target's raw rows; raw probabilities are at temperature 1, unfiltered."""
    token_id = proposal.token_ids[i]
    raw_draft = None if proposal.raw_logits is None else _prob(proposal.raw_logits[i], token_id)
    if proposal.probs is None:
        draft_top: tuple[Choice, ...] = (Choice(token_id, describe(token_id), 1.0),)
    else:
        draft_top = top_choices(proposal.probs[i], describe)
    return TokenDetail(raw_draft, _prob(logits[i], token_id), draft_top, top_choices(target_probs[i], describe))


def recovery_detail(logits: Tensor, verdict: Verdict, describe: Callable[[int], str]) -> RecoveryDetail:
    """What the token that ended the round was drawn from. logits [k + 1, V]: the target's raw rows."""
    raw = torch.softmax(logits[verdict.num_accepted].double(), dim=-1)
    return RecoveryDetail(top_choices(verdict.last_probs, describe), verdict.last_uniform, top_choices(raw, describe))


def top_choices(probs: Tensor, describe: Callable[[int], str], n: int = TOP) -> tuple[Choice, ...]:
    """The n likeliest of a row [V] of any positive total, normalised; those with probability 0 left out."""
    values, ids = torch.topk(probs, min(n, len(probs)))
    total = float(probs.double().sum())
    pairs = zip(ids.tolist(), values.tolist(), strict=True)
    return tuple(Choice(i, describe(i), value / total) for i, value in pairs if value > 0)


def _prob(logits: Tensor, token_id: int) -> float:
    return float(torch.softmax(logits.double(), dim=-1)[token_id])
