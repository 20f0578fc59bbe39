"""Figures from scripted rounds, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.config import Rule
from engine.events import (
    Event,
    Finished,
    FinishReason,
    KReason,
    Outcome,
    Prefilled,
    Prefilling,
    Round,
    RoundKind,
    Source,
    Token,
    TokenDecision,
)
from engine.stats import Summary, Tally, summarise

OUTCOMES = {"a": Outcome.ACCEPTED, "r": Outcome.REJECTED, "d": Outcome.DISCARDED}


def round_(outcomes: str, total_s: float = 1.0, kind: RoundKind = RoundKind.SPECULATIVE) -> Round:
    """outcomes: a letter for each draft, a(ccepted) r(ejected) d(iscarded)."""
    decisions = tuple(TokenDecision(0, "x", 0, OUTCOMES[o], 0.5) for o in outcomes)
    tokens = (Token(0, "x", 0, Source.DRAFT),) * (outcomes.count("a") + 1)
    return Round(
        1, kind, Rule.REJECTION, "ngram", 4, KReason.FIXED, len(outcomes), 9, decisions, tokens, 0.1, 0.5, 0.1, total_s
    )


PREFILLED = Prefilled(9, 0, Token(0, "x", 0, Source.PLAIN), 1, 0.25)
PROBE = round_("", 0.5, RoundKind.PROBE)
PLAIN = round_("", 0.5, RoundKind.PLAIN)


def figures(*events: Event) -> Summary:
    return summarise([PREFILLED, *events])


def test_alpha_counts_tested_drafts_only_and_the_acceptance_rate_all() -> None:
    """The two rates differ, because what stands behind a rejection was never tested. Drafts are counted by drafter,
    too."""
    head = replace(round_("ard"), drafter="head", predicted_speedup=1.5)
    nobody = replace(round_(""), drafter="none")
    s = figures(round_("aaard"), head, nobody, Finished(FinishReason.STOP, "", ()))
    assert (s.drafted, s.accepted, s.rejected, s.discarded) == (8, 4, 2, 2)
    assert s.alpha == pytest.approx(4 / 6) and s.draft_acceptance_rate == pytest.approx(4 / 8)
    assert s.acceptance_length == pytest.approx((4 + 2 + 1) / 3)
    assert s.acceptance_by_position == ((2, 2), (2, 1), (1, 1), (1, 0), (0, 0))
    assert s.finish_reason is FinishReason.STOP and s.tokens == 8 and s.ttft_s == 0.25
    assert [(d.drafter, d.by_position, d.tested, d.accepted) for d in s.acceptance_by_drafter] == [
        ("ngram", ((1, 1), (1, 1), (1, 1), (1, 0), (0, 0)), 4, 3),
        ("head", ((1, 1), (1, 0), (0, 0)), 2, 1),
    ]
    assert s.predicted_speedup == 1.5 and figures().predicted_speedup is None


def test_the_baseline_is_measuring_below_three_samples_and_then_a_ratio_of_sums() -> None:
    """Also over several replies. A probe that a stop string cut to nothing counts for nothing."""
    tally = Tally().add(PREFILLED).add(replace(PROBE, tokens=()))
    for n in range(3):
        s = tally.summary()
        assert (s.baseline.tok_s, s.speedup, s.baseline.n) == (None, None, n)
        tally = tally.add(round_("aa", 0.75)).add(PROBE)
    s = tally.summary()
    assert s.baseline.tok_s == pytest.approx(2.0) and s.baseline.spread == pytest.approx(0.0)
    assert s.spec_tok_s == pytest.approx(4.0) and s.speedup == pytest.approx(2.0)
    for event in (PREFILLED, round_("a"), PROBE, Finished(FinishReason.STOP, "", ())):
        tally = tally.add(event)
    assert tally.summary().baseline.n == 4 and tally.summary().tokens == 13 + 4


def test_a_slow_drafter_shows_as_a_speedup_below_one() -> None:
    s = figures(*[round_("rd", 2.0), PROBE] * 3)
    assert s.speedup == pytest.approx(0.25) and s.overall_tok_s == pytest.approx(6 / 7.5)
    assert s.tpot_s == pytest.approx(7.5 / 6)


def test_nothing_measured_is_none_and_never_infinite() -> None:
    s = summarise([Prefilling(5, 9), PREFILLED, Finished(FinishReason.LENGTH, "x", (0,))])
    assert (s.tokens, s.alpha, s.overall_tok_s, s.tpot_s, s.now_tok_s) == (1, None, None, None, None)


def test_now_follows_the_latest_rounds() -> None:
    s = figures(*[round_("", 10.0)] * 50, *[round_("aaa", 1.0)] * 16)
    assert s.now_tok_s == pytest.approx(4.0) and s.overall_tok_s is not None and s.overall_tok_s < 0.3


def test_rounds_left_plain_by_choice_count_in_the_speedup_but_not_in_tau() -> None:
    """A controller that rests half of the time has half of the gain, however good the other half was. Replies that were
    asked to be plain are no part of it, but of the baseline."""
    rest = replace(round_("", 1.0, RoundKind.PLAIN), k_reason=KReason.OFF, drafter="none")
    s = figures(*[round_("aa", 1.0), rest] * 4)
    assert s.acceptance_length == pytest.approx(3.0) and s.baseline.n == 4
    assert s.baseline.tok_s == pytest.approx(1.0) and s.speedup == pytest.approx(2.0) == s.spec_tok_s
    assert s.mean_k == pytest.approx(1.0)
    s = figures(*[PLAIN] * 4)
    assert (s.spec_tok_s, s.speedup, s.mean_k) == (None, None, None) and s.now_tok_s == pytest.approx(2.0)
    assert figures(*[PLAIN] * 4, *[round_("aa", 1.0)] * 2).speedup == pytest.approx(1.5)
