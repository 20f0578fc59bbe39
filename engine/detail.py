"""The numbers behind a token that decoding itself does not need. Timed apart from decoding."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from engine.config import Detail
from engine.events import Choice, RecoveryDetail, Round, Token, TokenDetail
from engine.verify import Proposal, Rows, Verdict

TOP = 5

LogSumExp = Callable[[Tensor], list[float]]
"""`Model.logsumexp`."""

Describe = Callable[[int], str]
"""How a token of a top list is written."""


def first_with_prob(token: Token, logits: Tensor, logsumexp: LogSumExp) -> Token:
    """The token drawn behind the prompt. logits [1, V]: the target's raw row there."""
    return replace(token, raw_prob=_prob(float(logits[0, token.id]), logsumexp(logits)[0]))


def with_detail(
    round_: Round,
    level: Detail,
    proposal: Proposal,
    verdict: Verdict,
    logits: Tensor,
    target_probs: Rows,
    logsumexp: LogSumExp,
    describe: Describe,
) -> Round:
    """The round with its details, of all that was tested or emitted. logits [k + 1, V]: the target's raw rows.

    Only the rows up to the last emitted token's are read, each of them once.
    """
    rows, totals = logits.numpy(), logsumexp(logits[: verdict.num_accepted + 1])
    tokens = tuple(
        replace(token, raw_prob=_prob(float(rows[i, token.id]), totals[i])) for i, token in enumerate(round_.tokens)
    )
    decisions = list(round_.decisions)
    for i in range(len(verdict.tests)):
        raw_prob = _prob(float(rows[i, proposal.token_ids[i]]), totals[i])
        details = TokenDetail(proposal.raw_prob(i), raw_prob)
        if level == Detail.FULL:
            draft_top = _draft_top(i, proposal, describe)
            details = replace(details, draft_top=draft_top, target_top=top_choices(target_probs[i], describe))
        decisions[i] = replace(decisions[i], detail=details)
    # A stop id among the accepted drafts: the verdict's last token was never emitted, so there is nothing to explain.
    explain = level == Detail.FULL and len(tokens) == verdict.num_accepted + 1
    recovery = recovery_detail(logits, verdict, describe) if explain else None
    return replace(round_, tokens=tokens, decisions=tuple(decisions), recovery=recovery)


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


def _prob(logit: float, total: float) -> float:
    """A token's probability at temperature 1 without filters; total: its row's logsumexp."""
    return min(1.0, math.exp(logit - total))
