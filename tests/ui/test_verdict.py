"""The verdict of a race says what its events say: the figures, the speed-up also where it is none, the texts token by
token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import DecodingParams, Detail, Rule, SamplingParams
from engine.events import Choice, Event, Finished, FinishReason, Prefilled, RecoveryDetail, Round, Token
from tests.fake_engine import Script, play
from tests.ui.samples import BIG_LIST, GUESSING, NAUGHTY, PLAIN, Reader, race, said, texts
from ui.race.verdict import KS, Likeness, comparison, verdict
from ui.recording.recordings import Lane, LaneName, Recording, of_turn
from ui.state import About, Reply, Turn, advance
from ui.strings import LANGS

GREEDY, WARM = SamplingParams(), SamplingParams(temperature=0.8)


def of(plain: Sequence[Event], speculative: Sequence[Event], sampling: SamplingParams | None = None,
       rule: Rule = Rule.REJECTION, exact: bool = True) -> Recording:  # fmt: skip
    """A race of these events; sampling None: nothing is known of what wrote it."""
    lanes = []
    for name, params, events in ((LaneName.PLAIN, PLAIN, plain), (LaneName.SPECULATIVE, GUESSING, speculative)):
        about = None
        if sampling is not None:
            params_ = replace(params, sampling=sampling, rule=rule)
            about = About("m", "w", "k", "cpu", exact, 99, ("ngram",), params_)
        lanes.append(Lane(name, about, advance(Reply(), events)))
    return Recording("r", "hi", tuple(lanes))


def slowed(events: Sequence[Event], factor: float) -> list[Event]:
    return [replace(e, total_s=e.total_s * factor) if isinstance(e, Round) else e for e in events]


def parted(
    text: str = "one two three four five six", at: int = 3, other: str = " else"
) -> tuple[list[Event], list[Event]]:
    """A plain reply with what was likely at every place, and one that differs from token `at` on."""
    plain = play(Script(text), replace(PLAIN, detail=Detail.FULL))
    return plain, [changed(event, at, other) for event in plain]


def changed(event: Event, at: int, other: str) -> Event:
    if isinstance(event, Prefilled) and event.token is not None and at == 0:
        return replace(event, token=replace(event.token, id=777, text=other))
    if not isinstance(event, Round) or event.tokens[0].position < at:
        return event
    return replace(event, tokens=tuple(replace(token, id=777, text=other) for token in event.tokens))


def with_margin(events: Sequence[Event], at: int, one: float, other: float) -> list[Event]:
    """The round of token `at` recorded both likely tokens."""

    def known(event: Event) -> Event:
        if not isinstance(event, Round) or event.tokens[0].position != at:
            return event
        top = (Choice(event.tokens[0].id, "a", one), Choice(777, "b", other))
        return replace(event, recovery=RecoveryDetail(top, None, top))

    return list(map(known, events))


# -- figures -----------------------------------------------------------------------------------------------------------


@given(texts, st.integers(1, 8), st.floats(0.2, 5))
@settings(max_examples=60, deadline=None)
def test_the_figures_are_those_of_the_events(pieces: list[str], k: int, factor: float) -> None:
    plain = play(Script(pieces=pieces), PLAIN)
    guessed = slowed(play(Script(pieces=pieces), replace(GUESSING, num_speculative_tokens=k)), factor)
    found = comparison(of(plain, guessed))
    assert found is not None
    for side, events in ((found.plain, plain), (found.speculative, guessed)):
        rounds = [event for event in events if isinstance(event, Round)]
        assert side.passes == 1 + len(rounds)
        assert side.whole_s == pytest.approx(0.05 + sum(round_.total_s for round_ in rounds))
        tokens = sum(len(round_.tokens) for round_ in rounds)
        assert side.tokens_a_pass == (tokens / len(rounds) if rounds else None)
    rates = [
        sum(len(r.tokens) for r in events if isinstance(r, Round))
        / sum(r.total_s for r in events if isinstance(r, Round))
        for events in (plain, guessed)
        if len(events) > 2
    ]
    assert found.speedup == (pytest.approx(rates[1] / rates[0]) if len(rates) == 2 else None)
    assert found.likeness is Likeness.SAME and found.alike == len([*pieces, "end"])


def test_a_fast_lane_in_words() -> None:
    html = verdict(race())
    found = comparison(race())
    assert found is not None and found.speedup is not None and found.speedup > 1.5
    assert f"{found.speedup:.2f}× the plain speed here, counted after the first token." in said(html)
    assert f"Same text: yes, {found.alike} of {found.alike} tokens." in said(html)
    assert f"文字相同：是，{found.alike} 个 token 全部一样。" in said(html, "zh")
    table = said(html)
    assert (
        f"forward passes of the model one reads the prompt, each round is one more {found.plain.passes} "
        f"{found.speculative.passes}" in table
    )
    assert "acceptance α guesses accepted / checked none 0." in table and "tokens/s after it 100 " in table
    assert "until the first token 50 ms 50 ms" in table


@pytest.mark.parametrize(
    ("factor", "words", "kind"),
    [(4.0, "the guesses cost more than they "
           "saved", "slower"), (1.0, "counted after the first token", "faster"), (0.2, "machine was busy", "faster")],
)  # fmt: skip
def test_slower_is_said_as_plainly_as_faster(factor: float, words: str, kind: str) -> None:
    plain, guessed = play(Script(), PLAIN), slowed(play(Script(), replace(GUESSING, probe_every=0)), factor)
    found, html = comparison(of(plain, guessed)), verdict(of(plain, guessed))
    assert found is not None and found.speedup is not None
    assert words in said(html) and f"{found.speedup:.2f}×" in said(html) and f"headline {kind}" in html
    assert ("machine was busy" in said(html)) == (factor < 1)


@pytest.mark.parametrize(("beyond", "doubted"), [(1.0, False), (1.01, False), (1.04, True)])
def test_what_exceeds_its_tokens_a_pass_is_doubted(beyond: float, doubted: bool) -> None:
    plain, guessed = play(Script(), PLAIN), slowed(play(Script(), replace(GUESSING, probe_every=0)), 1 / beyond)
    found = comparison(of(plain, guessed))
    assert found is not None and found.speculative.tokens_a_pass is not None
    assert found.speedup == pytest.approx(beyond * found.speculative.tokens_a_pass)
    assert ("machine was busy" in said(verdict(of(plain, guessed)))) is doubted


def test_speeds_that_hardly_differ_are_called_the_same() -> None:
    plain = play(Script(), PLAIN)
    for factor in (0.985, 1.0, 1.015):
        assert "hardly a difference" in said(verdict(of(plain, slowed(plain, factor))))
    assert "cost more" in said(verdict(of(plain, slowed(plain, 1.1))))


def test_nothing_is_claimed_within_what_single_passes_scatter() -> None:
    plain = play(Script(), PLAIN)
    scattered = [
        replace(e, total_s=e.total_s * (1.5 if e.index % 2 else 0.5)) if isinstance(e, Round) else e for e in plain
    ]
    for factor, claimed in ((1.1, False), (0.91, False), (4.0, True), (0.2, True)):
        assert ("no clear difference" in said(verdict(of(scattered, slowed(plain, factor))))) != claimed
        assert "no clear difference" not in said(verdict(of(plain, slowed(plain, factor))))


def test_nothing_is_said_while_a_lane_runs() -> None:
    for cut in ({"plain": 3}, {"speculative": 0}, {"plain": 0, "speculative": 0}):
        running = race().upto(cut)
        assert running.running and verdict(running) == "" and comparison(running) is None


def test_a_reply_that_did_not_race_has_its_figures_alone() -> None:
    recording = of_turn(Turn(1, "hi", advance(Reply(), play(Script(), GUESSING))), "r")
    html = verdict(recording)
    assert comparison(recording) is None
    assert "this reply" in said(html) and "race-again" not in html and "Same text" not in said(html)


# -- lanes with nothing in them ----------------------------------------------------------------------------------------

ENDS = [
    [Finished(FinishReason.CANCELLED, "", ())],
    [Finished(FinishReason.ERROR, "", (), "broke")],
    [Prefilled(5, 0, None, 1, 0.1), Finished(FinishReason.STOP_STRING, "", ())],
    [Prefilled(5, 0, Token(1, "a", 0, "plain"), 1, 0.1), Finished(FinishReason.LENGTH, "a", (1,))],  # type: ignore[arg-type]
    [Prefilled(5, 0, Token(1, "a", 0, "plain"), 1, 0.0), Finished(FinishReason.CANCELLED, "a", (1,))],  # type: ignore[arg-type]
]


@pytest.mark.parametrize("plain", ENDS)
@pytest.mark.parametrize("speculative", ENDS)
def test_lanes_with_next_to_nothing_have_dashes(plain: list[Event], speculative: list[Event]) -> None:
    found, html = comparison(of(plain, speculative)), verdict(of(plain, speculative))
    assert found is not None and found.speedup is None
    shown = said(html)
    assert "No speed-up to tell" in shown and "tokens/s after it – –" in shown
    assert not {"inf", "nan", "None"} & set(shown.split())
    texts = [event.token for event in (plain[0], speculative[0]) if isinstance(event, Prefilled) and event.token]
    expected = ("neither lane wrote a token", "only one lane wrote", "yes, 1 of 1 tokens")[len(texts)]
    assert expected in shown


def test_one_lane_with_nothing_behind_its_first_token_gives_no_speed_up() -> None:
    for nothing in ENDS:
        found = comparison(of(nothing, play(Script(), GUESSING)))
        other = comparison(of(play(Script(), PLAIN), nothing))
        assert found is not None and other is not None and found.speedup is None and other.speedup is None


def test_rounds_without_time_give_no_speed_up() -> None:
    found = comparison(of(slowed(play(Script(), PLAIN), 0.0), slowed(play(Script(), GUESSING), 0.0)))
    assert found is not None and found.speedup is None


def test_a_lane_that_was_stopped_is_compared_as_far_as_it_went() -> None:
    plain = play(Script(), PLAIN)
    cut = [*plain[:5], Finished(FinishReason.CANCELLED, "", ())]
    html = said(verdict(of(cut, play(Script(), GUESSING))))
    assert (
        "Same text so far: yes, 5 of 5 tokens. The plain lane ended earlier." in html and "stopped or broke off" in html
    )
    other = said(verdict(of(plain, [*plain[:5], Finished(FinishReason.ERROR, "", (), "broke")])))
    assert "yes, 5 of 5 tokens. The speculative lane ended earlier." in other and "stopped or broke off" in other
    assert "stopped or broke off" not in said(verdict(race()))


# -- texts that part ---------------------------------------------------------------------------------------------------


@given(st.integers(0, 5))
def test_where_texts_part_both_tokens_are_named(at: int) -> None:
    plain, other = parted(at=at)
    found, html = comparison(of(plain, other, GREEDY)), said(verdict(of(plain, other, GREEDY)))
    assert found is not None and found.likeness is Likeness.PARTED and found.alike == at
    assert found.parting is not None and found.parting.plain.position == at and found.parting.speculative.id == 777
    assert "Same text: no." in html and "\u2068else\u2069" in html
    assert (f"The first {at} token" in html) == (at > 0) and ("Plain begins with" in html) == (at == 0)


@given(st.floats(0.01, 1), st.floats(0.01, 1))
def test_the_margin_is_the_distance_of_the_logits(one: float, other: float) -> None:
    plain, speculative = parted(at=3)
    plain = with_margin(plain, 3, one, other)
    found = comparison(of(plain, speculative, GREEDY))
    assert found is not None and found.parting is not None and found.parting.probs == (one, other)
    assert f"{abs(math.log(one / other)):.3g} apart in logits" in said(verdict(of(plain, speculative, GREEDY)))


def test_a_margin_that_was_not_recorded_is_not_told() -> None:
    for plain in (
        parted()[0],
        with_margin(parted()[0], 3, 0.5, 0.0),
        play(Script("one two three four five six"), PLAIN),
    ):
        found = comparison(of(plain, parted()[1], GREEDY))
        assert found is not None and found.parting is not None and found.parting.probs is None
        assert "logits" not in said(verdict(of(plain, parted()[1], GREEDY)))


@pytest.mark.parametrize(
    ("sampling", "rule", "exact", "why"),
    [
        (WARM, Rule.REJECTION, True, "at temperature 0.8 every reply is a fresh draw"),
        (WARM, Rule.REJECTION, False, "at temperature 0.8 every reply is a fresh draw"),
        (WARM, Rule.SHARED_NOISE, False, "not proven exact"),
        (WARM, Rule.SHARED_NOISE, True, "should not happen"),
        (GREEDY, Rule.REJECTION, False, "not proven exact"),
        (GREEDY, Rule.REJECTION, True, "should not happen"),
        (None, Rule.REJECTION, True, "was not recorded"),
    ],
)
def test_why_texts_part(sampling: SamplingParams | None, rule: Rule, exact: bool, why: str) -> None:
    html = verdict(of(*parted(), sampling, rule, exact))
    assert why in said(html)
    assert said(html, "zh").count("。") >= 2


def test_one_lane_that_is_not_proven_exact_is_enough() -> None:
    recording = of(*parted(), GREEDY)
    for i, lane in enumerate(recording.lanes):
        assert lane.about is not None
        doubtful = replace(lane, about=replace(lane.about, exact=False))
        lanes = tuple(doubtful if one is lane else one for one in recording.lanes)
        assert "not proven exact" in said(verdict(replace(recording, lanes=lanes))), i


def test_tokens_are_compared_and_not_how_they_look() -> None:
    plain, other = parted("one two three", 2, " three")
    assert [token.text for event in other if isinstance(event, Round) for token in event.tokens][1] == " three"
    found = comparison(of(plain, other, GREEDY))
    assert found is not None and found.likeness is Likeness.PARTED and found.alike == 2


def test_lanes_of_other_settings_or_seeds_need_not_agree() -> None:
    recording = of(*parted(), WARM, Rule.SHARED_NOISE)
    plain, speculative = recording.lanes
    reseeded = replace(speculative, reply=replace(speculative.reply, seed=8))
    assert "same settings and seed" in said(verdict(replace(recording, lanes=(plain, reseeded))))
    assert speculative.about is not None
    colder = replace(speculative, about=replace(speculative.about, params=replace(GUESSING, sampling=GREEDY)))
    assert "same settings and seed" in said(verdict(replace(recording, lanes=(plain, colder))))


# -- once more ---------------------------------------------------------------------------------------------------------


def test_it_offers_other_numbers_of_guesses() -> None:
    html = verdict(of(play(Script(), PLAIN), play(Script(), GUESSING), GREEDY))
    for k in KS:
        assert f'data-action="race-again" data-k="{k}"' in html
    assert html.count("aria-current") == 1 and 'data-k="3" aria-current="true"' in html
    assert KS == ("1", "2", "3", "5", "8", "auto") and "K chosen automatically" in said(html)
    auto = of(play(Script(), PLAIN), play(Script(), DecodingParams()), GREEDY)
    lanes = (auto.lanes[0], replace(auto.lanes[1], about=replace(auto.lanes[0].about, params=DecodingParams())))  # type: ignore[type-var]
    assert 'data-k="auto" aria-current="true"' in verdict(replace(auto, lanes=lanes))


@pytest.mark.parametrize("payload", [*NAUGHTY, *BIG_LIST[::7]])
def test_naughty_tokens_stay_text(payload: str) -> None:
    reader = Reader(verdict(of(*parted(other=payload), GREEDY)))
    assert set(reader.tags) <= {
        "section",
        "p",
        "b",
        "span",
        "small",
        "table",
        "caption",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "button",
        "a",
    }
    assert not reader.leads_away
    assert set(reader.attributes) <= {
        "class",
        "lang",
        "scope",
        "type",
        "aria-label",
        "aria-current",
        "data-action",
        "data-k",
        "href",
        "data-term",
    }


@given(texts, st.booleans())
@settings(max_examples=20, deadline=None)
def test_both_languages_say_everything(pieces: list[str], part: bool) -> None:
    plain = play(Script(pieces=pieces), PLAIN)
    html = verdict(of(plain, [changed(event, 0, "x") for event in plain] if part else plain, WARM))
    assert html.count('<span class="en" lang="en">') == html.count('<span class="zh" lang="zh">') > 10
    assert all(said(html, lang) for lang in LANGS)
