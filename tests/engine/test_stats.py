"""Figures from scripted rounds, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.config import Rule
from engine.events import (
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
)  # fmt: skip
from engine.stats import Tally, summarise


def round_(outcomes: str, total_s: float = 1.0, kind: RoundKind = RoundKind.SPECULATIVE) -> Round:
    """outcomes: a letter for each draft, a(ccepted) r(ejected) d(iscarded)."""
    names = {"a": Outcome.ACCEPTED, "r": Outcome.REJECTED, "d": Outcome.DISCARDED}
    decisions = tuple(TokenDecision(0, "x", 0, names[o], 0.5) for o in outcomes)
    tokens = tuple(Token(0, "x", 0, Source.DRAFT) for _ in range(outcomes.count("a") + 1))
    return Round(
        index=1, kind=kind, rule=Rule.REJECTION, drafter="ngram", k_requested=4, k_reason=KReason.FIXED,
        num_drafted=len(outcomes), context_len=9, decisions=decisions, tokens=tokens,
        draft_s=0.1, verify_s=0.5, sample_s=0.1, total_s=total_s,
    )  # fmt: skip


PREFILLED = Prefilled(9, 0, Token(0, "x", 0, Source.PLAIN), 1, 0.25)
PROBE = round_("", 0.5, RoundKind.PROBE)


def test_alpha_counts_tested_drafts_only_and_the_acceptance_rate_all() -> None:
    """The two rates differ, because what stands behind a rejection was never tested."""
    s = summarise([PREFILLED, round_("aaard"), round_("ard"), round_(""), Finished(FinishReason.STOP, "", ())])
    assert (s.drafted, s.accepted, s.rejected, s.discarded) == (8, 4, 2, 2)
    assert s.alpha == pytest.approx(4 / 6) and s.draft_acceptance_rate == pytest.approx(4 / 8)
    assert s.acceptance_length == pytest.approx((4 + 2 + 1) / 3)
    assert s.acceptance_by_position == ((2, 2), (2, 1), (1, 1), (1, 0), (0, 0))
    assert s.finish_reason is FinishReason.STOP and s.tokens == 8 and s.ttft_s == 0.25


def test_the_baseline_is_measuring_below_three_samples_and_then_a_ratio_of_sums() -> None:
    tally = Tally().add(PREFILLED)
    for n in range(3):
        assert tally.summary().baseline.tok_s is None and tally.summary().speedup is None
        assert tally.summary().baseline.n == n
        tally = tally.add(round_("aa", 0.75)).add(PROBE)
    s = tally.summary()
    assert s.baseline.tok_s == pytest.approx(2.0) and s.baseline.spread == pytest.approx(0.0)
    assert s.spec_tok_s == pytest.approx(4.0) and s.speedup == pytest.approx(2.0)
    assert s.overall_tok_s == pytest.approx(12 / 3.75) and s.tpot_s == pytest.approx(3.75 / 12)


def test_a_slow_drafter_shows_as_a_speedup_below_one() -> None:
    s = summarise([PREFILLED, *[round_("rd", 2.0), PROBE] * 3])
    assert s.speedup == pytest.approx(0.25)


def test_nothing_measured_is_none_and_never_infinite() -> None:
    s = summarise([Prefilling(5, 9), PREFILLED, Finished(FinishReason.LENGTH, "x", (0,))])
    assert (s.tokens, s.alpha, s.overall_tok_s, s.tpot_s, s.now_tok_s) == (1, None, None, None, None)


def test_plain_rounds_are_baseline_samples_and_now_follows_the_latest_rounds() -> None:
    plain = round_("", 0.5, RoundKind.PLAIN)
    s = summarise([PREFILLED, *[plain] * 5])
    assert s.baseline.n == 5 and s.baseline.tok_s == pytest.approx(2.0) and s.now_tok_s == pytest.approx(2.0)
    s = summarise([PREFILLED, *[round_("", 10.0)] * 50, *[round_("aaa", 1.0)] * 16])
    assert s.now_tok_s == pytest.approx(4.0) and s.overall_tok_s is not None and s.overall_tok_s < 0.3


def test_a_conversation_adds_up_over_replies() -> None:
    tally = Tally()
    for _ in range(2):
        for event in (PREFILLED, round_("a", 1.0), PROBE, PROBE, Finished(FinishReason.STOP, "", ())):
            tally = tally.add(event)
    assert tally.summary().baseline.n == 4 and tally.summary().tokens == 2 * 5


def test_a_probe_that_a_stop_string_cut_to_nothing_counts_for_nothing() -> None:
    cut = replace(PROBE, tokens=())
    s = summarise([PREFILLED, PROBE, PROBE, PROBE, cut])
    assert s.baseline.n == 3 and s.baseline.tok_s == pytest.approx(2.0)


def test_rounds_left_plain_by_choice_count_in_the_speedup_but_not_in_tau() -> None:
    """A controller that rests half of the time has half of the gain, however good the other half was."""
    rest = replace(round_("", 1.0, RoundKind.PLAIN), k_reason=KReason.OFF, drafter="none")
    s = summarise([PREFILLED, *[round_("aa", 1.0), rest] * 4])
    assert s.acceptance_length == pytest.approx(3.0) and s.baseline.n == 4
    assert s.baseline.tok_s == pytest.approx(1.0) and s.speedup == pytest.approx(2.0) == s.spec_tok_s
    assert s.mean_k == pytest.approx(1.0)


def test_replies_that_were_asked_to_be_plain_are_no_part_of_the_speedup() -> None:
    plain = round_("", 1.0, RoundKind.PLAIN)
    s = summarise([PREFILLED, *[plain] * 4])
    assert (s.spec_tok_s, s.speedup, s.mean_k) == (None, None, None)
    s = summarise([PREFILLED, *[plain] * 4, *[round_("aa", 1.0)] * 2])
    assert s.speedup == pytest.approx(3.0)


def test_drafts_are_counted_by_drafter_and_position() -> None:
    head = replace(round_("ard"), drafter="head", predicted_speedup=1.5)
    nobody = replace(round_(""), drafter="none")
    s = summarise([PREFILLED, round_("aar"), head, nobody, round_("r")])
    by_name = {drafts.drafter: drafts for drafts in s.acceptance_by_drafter}
    assert by_name.keys() == {"ngram", "head"}
    assert by_name["ngram"].by_position == ((2, 1), (1, 1), (1, 0)) and by_name["head"].by_position == (
        (1, 1),
        (1, 0),
        (0, 0),
    )
    assert (by_name["ngram"].tested, by_name["ngram"].accepted) == (4, 2)
    assert sum(drafts.accepted for drafts in by_name.values()) == s.accepted
    assert s.predicted_speedup == 1.5 and summarise([PREFILLED]).predicted_speedup is None
