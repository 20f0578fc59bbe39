"""Chooses what the next round does: how many drafts, or none. K = 0 is one of its choices."""

from __future__ import annotations

from dataclasses import dataclass

from engine.config import DecodingParams
from engine.events import KReason, RoundKind

AUTO_K = 3
"""K where it is left open."""

FIRST_PROBE = 2
"""The first live baseline sample is round 2: early, but not the first round, which is cold."""


@dataclass(frozen=True, slots=True)
class Plan:
    """k drafts at most in the coming round, and why."""

    kind: RoundKind
    k: int
    reason: KReason


def plan(index: int, params: DecodingParams, budget_left: int, context_left: int, drafter_left: int | None) -> Plan:
    """The coming round's plan.

    index: the round's number, from 1. budget_left, context_left: tokens that may still be emitted, at least 1; a round
    of k drafts emits up to k + 1. drafter_left: drafts that the drafter's own context has room for, None if unlimited.
    """
    wanted, why = params.num_speculative_tokens, KReason.FIXED
    if wanted is None:
        wanted, why = AUTO_K, KReason.AUTO
    if wanted == 0 or params.drafter == "none":
        return Plan(RoundKind.PLAIN, 0, KReason.FIXED)
    if params.probe_every and index >= FIRST_PROBE and (index - FIRST_PROBE) % params.probe_every == 0:
        return Plan(RoundKind.PROBE, 0, KReason.PROBE)
    limits = [
        (wanted, why),
        (budget_left - 1, KReason.BUDGET),
        (context_left - 1, KReason.CONTEXT),
    ]
    if drafter_left is not None:
        limits.append((max(0, drafter_left), KReason.DRAFTER_CONTEXT))
    k, reason = min(limits, key=lambda limit: limit[0])
    return Plan(RoundKind.SPECULATIVE, k, reason)
