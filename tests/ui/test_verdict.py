"""The verdict of a race says what its events say: the figures, the speed-up also where it is none, the texts token by
token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import DecodingParams, Detail, Rule, SamplingParams
from engine.events import Choice, Event, Finished, FinishReason, Prefilled, RecoveryDetail, Round, Source, Token
from tests.fake_engine import Script, play
from tests.ui.samples import BIG_LIST, GUESSING, NAUGHTY, PLAIN, Reader, bilingual, few, race, rounds_of, said, texts
from ui.html.render import show_blanks
from ui.race.verdict import KS, Comparison, Likeness, comparison, verdict
from ui.recording.recordings import Lane, LaneName, Recording, of_turn
from ui.state import About, Reply, Turn, advance

GREEDY, WARM = SamplingParams(), SamplingParams(temperature=0.8)
PLAINLY, GUESSED = play(Script(), PLAIN), play(Script(), replace(GUESSING, probe_every=0))


def of(plain: Sequence[Event], speculative: Sequence[Event], sampling: SamplingParams | None = GREEDY,
       rule: Rule = Rule.REJECTION, exact: str = "11", seed: int = 7) -> Recording:  # fmt: skip
    """A race of these events; sampling None: nothing is known of what wrote it. exact: each lane; seed: of the second."""
    lanes = []
    for i, (name, params, events) in enumerate(
        ((LaneName.PLAIN, PLAIN, plain), (LaneName.SPECULATIVE, GUESSING, speculative))
    ):
        params = replace(params, sampling=sampling or GREEDY, rule=rule)
        about = About("m", "w", "k", "cpu", exact[i] == "1", 99, ("ngram",), params) if sampling else None
        reply = advance(Reply(), events)
        lanes.append(Lane(name, about, replace(reply, seed=seed) if i else reply))
    return Recording("r", "hi", tuple(lanes))


def told(*race: Any) -> str:
    html = verdict(of(*race))
    assert bilingual(html)
    return said(html)


def compared(plain: Sequence[Event], speculative: Sequence[Event]) -> Comparison:
    result = comparison(of(plain, speculative))
    assert result is not None
    return result


def slowed(events: Sequence[Event], *factors: float) -> list[Event]:
    """Rounds take so many times as long, by turns."""
    return [
        replace(e, total_s=e.total_s * factors[e.index % len(factors)]) if isinstance(e, Round) else e for e in events
    ]


def parted(at: int = 3, other: str = " else", top: Sequence[Choice] = ()) -> tuple[list[Event], list[Event]]:
    """A plain reply, and one that differs from token `at` on. top: what was likely there."""
    plain = play(Script("one two three four five six"), replace(PLAIN, detail=Detail.OFF))
    [first, *_] = plain
    assert isinstance(first, Prefilled) and first.token is not None
    known = [
        replace(e, recovery=RecoveryDetail(tuple(top), None, tuple(top)))
        if isinstance(e, Round) and e.tokens[0].position == at and top else e for e in plain
    ]  # fmt: skip
    others = [
        replace(e, tokens=(replace(e.tokens[0], id=777, text=other),))
        if isinstance(e, Round) and e.tokens[0].position >= at else e for e in plain
    ]  # fmt: skip
    return known, others if at else [replace(first, token=replace(first.token, id=777, text=other)), *others[1:]]


# -- figures -----------------------------------------------------------------------------------------------------------


@few
@given(texts, st.integers(1, 8), st.floats(0.2, 5))
def test_the_figures_are_those_of_the_events(pieces: list[str], k: int, factor: float) -> None:
    plain = play(Script(pieces=pieces), PLAIN)
    guessed = slowed(play(Script(pieces=pieces), replace(GUESSING, num_speculative_tokens=k)), factor)
    outcome, rates = compared(plain, guessed), []
    for side, rounds in ((outcome.plain, rounds_of(plain)), (outcome.speculative, rounds_of(guessed))):
        spent, tokens = sum(r.total_s for r in rounds), sum(len(r.tokens) for r in rounds)
        assert side.passes == 1 + len(rounds) and side.whole_s == pytest.approx(0.05 + spent)
        assert side.tokens_a_pass == (tokens / len(rounds) if rounds else None)
        rates.append(tokens / spent if spent else None)
    expected = rates[1] / rates[0] if rates[0] and rates[1] else None
    assert outcome.speedup == (pytest.approx(expected) if expected else None)
    assert (outcome.likeness, outcome.alike) == (Likeness.SAME, len(pieces) + 1)


def test_a_fast_lane_in_words() -> None:
    outcome, html = compared(PLAINLY, GUESSED), verdict(race())
    words = said(html)
    assert outcome.speedup is not None and outcome.speedup > 1.5 and 'headline faster"' in html
    for part in (
        f"{outcome.speedup:.2f}× the plain speed here, counted after the first token.",
        f"Same text: yes, {outcome.alike} of {outcome.alike} tokens.", f"one more {outcome.plain.passes} {outcome.speculative.passes}",
        "accepted / checked none 0.", "tokens/s after it 100 ", "until the first token 50 ms 50 ms",
    ):  # fmt: skip
        assert part in words
    assert f"文字相同：是，{outcome.alike} 个 token 全部一样。" in said(html, "zh")


def test_slower_is_said_as_plainly_as_faster_and_nothing_that_cannot_be_or_scatters() -> None:
    most = compared(PLAINLY, GUESSED).speculative.tokens_a_pass or 0.0
    busy, scattered = "machine was busy", slowed(PLAINLY, 0.5, 1.5)
    for plain, guessed, words, claimed in (
        (PLAINLY, slowed(GUESSED, 4), "the guesses cost more than they saved", True), (PLAINLY, GUESSED, busy, False),
        (PLAINLY, slowed(GUESSED, 1 / 1.01), busy, False), (PLAINLY, slowed(GUESSED, 1 / 1.04), busy, True),
        (PLAINLY, slowed(PLAINLY, 1.015), "hardly a difference", True), (PLAINLY, slowed(PLAINLY, 0.985), "hardly a difference", True),
        (PLAINLY, slowed(PLAINLY, 1.1), "cost more", True), (PLAINLY, slowed(PLAINLY, 1.1), "no clear difference", False),
        (scattered, slowed(PLAINLY, 1.1), "no clear difference", True), (scattered, slowed(PLAINLY, 0.91), "no clear difference", True),
        (scattered, slowed(PLAINLY, 4), "no clear difference", False), (scattered, slowed(PLAINLY, 0.2), "no clear difference", False),
    ):  # fmt: skip
        assert (words in told(plain, guessed)) == claimed, words
    assert compared(PLAINLY, GUESSED).speedup == pytest.approx(most), "so what was doubted was beyond that"


def test_nothing_is_said_while_a_lane_runs_and_a_reply_that_did_not_race_has_its_figures_alone() -> None:
    for cut in ({"plain": 3}, {"speculative": 0}):
        running = race().upto(cut)
        assert verdict(running) == "" and comparison(running) is None
    alone = of_turn(Turn(1, "hi", advance(Reply(), GUESSED)), "r")
    html = verdict(alone)
    assert comparison(alone) is None and "this reply" in said(html)
    assert "race-again" not in html and "Same text" not in html


def test_lanes_with_next_to_nothing_have_dashes_and_no_speed_up() -> None:
    last = Finished(FinishReason.LENGTH, "a", (1,))
    first = Prefilled(5, 0, Token(1, "a", 0, Source.PLAIN), 1, 0.1)
    ends: list[list[Event]] = [
        [Finished(FinishReason.CANCELLED, "", ())], [Finished(FinishReason.ERROR, "", (), "broke")],
        [Prefilled(5, 0, None, 1, 0.1), Finished(FinishReason.STOP_STRING, "", ())],
        [first, last], [replace(first, ttft_s=0.0), last],
    ]  # fmt: skip
    for i, plain in enumerate(ends):
        for j, speculative in enumerate(ends):
            words = told(plain, speculative)
            assert "No speed-up to tell" in words and "tokens/s after it – –" in words
            assert not {"inf", "nan", "None"} & {*words.split()}
            assert ("neither lane wrote a token", "only one lane wrote", "yes, 1 of 1 tokens")[
                (i > 2) + (j > 2)
            ] in words
        assert compared(plain, GUESSED).speedup is compared(PLAINLY, plain).speedup is None
    assert compared(slowed(PLAINLY, 0), slowed(GUESSED, 0)).speedup is None, "rounds without time"


def test_a_lane_that_was_stopped_is_compared_as_far_as_it_went() -> None:
    cut: list[Event] = [*PLAINLY[:5], Finished(FinishReason.CANCELLED, "", ())]
    for words, name in ((told(cut, GUESSED), "plain"), (told(PLAINLY, cut), "speculative")):
        assert f"Same text so far: yes, 5 of 5 tokens. The {name} lane ended earlier." in words
        assert "stopped or broke off" in words
    assert "stopped or broke off" not in told(PLAINLY, GUESSED)


# -- texts that part ---------------------------------------------------------------------------------------------------


def test_where_texts_part_both_tokens_are_named_and_how_close_they_were() -> None:
    for at in range(6):
        outcome, words = compared(*parted(at)), told(*parted(at))
        assert (outcome.likeness, outcome.alike) == (Likeness.PARTED, at)
        assert outcome.parting and (outcome.parting.plain.position, outcome.parting.speculative.id) == (at, 777)
        assert "Same text: no." in words and "\u2068else\u2069" in words and "logits" not in words
        assert (f"The first {at} token" in words) == (at > 0) == ("Plain begins with" not in words)
    assert compared(*parted(3, " four")).alike == 3, "tokens are compared and not how they look"


@few
@given(st.floats(0.01, 1), st.floats(0, 1))
def test_the_margin_is_the_distance_of_the_logits_where_it_was_recorded(one: float, other: float) -> None:
    replies = parted(top=(Choice(1003, "a", one), Choice(777, "b", other)))
    parting = compared(*replies).parting
    assert parting and parting.probs == ((one, other) if other else None)
    words = told(*replies)
    assert f"{abs(math.log(one / other)):.3g} apart in logits" in words if other else "logits" not in words


def test_why_texts_part() -> None:
    drawn, fault, rounding, otherwise = (
        "at temperature 0.8 every reply is a fresh draw", "should not happen", "not proven exact", "same settings and seed",
    )  # fmt: skip
    for sampling, rule, exact, seed, why in (
        (WARM, Rule.REJECTION, "11", 7, drawn), (WARM, Rule.REJECTION, "00", 7, drawn), (None, Rule.REJECTION, "11", 7, "was not recorded"),
        (WARM, Rule.SHARED_NOISE, "11", 7, fault), (WARM, Rule.SHARED_NOISE, "00", 7, rounding), (WARM, Rule.SHARED_NOISE, "11", 8, otherwise),
        (GREEDY, Rule.REJECTION, "11", 8, fault), (GREEDY, Rule.REJECTION, "01", 7, rounding), (GREEDY, Rule.REJECTION, "10", 7, rounding),
    ):  # fmt: skip
        assert why in told(*parted(), sampling, rule, exact, seed)
    made = of(*parted(), WARM, Rule.SHARED_NOISE)
    colder = replace(made, lanes=(of(*parted()).lanes[0], made.lanes[1]))
    assert otherwise in said(verdict(colder))


# -- once more ---------------------------------------------------------------------------------------------------------


def test_it_offers_other_numbers_of_guesses() -> None:
    made = of(PLAINLY, GUESSED)
    plain, speculative = made.lanes
    assert plain.about and KS == ("1", "2", "3", "5", "8", "auto")
    automatic = replace(made, lanes=(plain, replace(speculative, about=replace(plain.about, params=DecodingParams()))))
    for recording, now in ((made, "3"), (automatic, "auto")):
        html = verdict(recording)
        assert [k for k in KS if f'data-action="race-again" data-k="{k}"' not in html] == []
        assert html.count("aria-current") == 1 and f'data-k="{now}" aria-current="true"' in html


def test_naughty_tokens_stay_text() -> None:
    for payload in (*NAUGHTY, *BIG_LIST[::7]):
        reader = Reader(verdict(of(*parted(other=payload))))
        assert reader.harmless and show_blanks(payload.strip() or payload) in reader.text
