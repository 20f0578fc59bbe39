"""A round up close says what its event says: every piece has a pane, each number is the event's, nothing that runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import DecodingParams, Detail, Rule
from engine.events import (
    Choice,
    Event,
    Finished,
    KReason,
    Outcome,
    Prefilled,
    RecoveryDetail,
    Round,
    RoundKind,
    Source,
    Token,
    TokenDecision,
    TokenDetail,
)
from engine.stopping import cut_at_stop_strings
from tests.fake_engine import Script, play
from tests.ui.samples import BIG_LIST, GREEDY, NAUGHTY, WARM, Reader, decodings, said, texts
from tests.ui.test_prose import colours, luminance
from tests.ui.test_trace_file import recordings
from ui.examples import ASSETS
from ui.html.render import show_blanks
from ui.inspect import inspector
from ui.inspect import token_card as card
from ui.inspect.explain import number, took
from ui.inspect.inspector import CHARS_BEFORE, pane
from ui.recording.recordings import Lane, LaneName, Recording
from ui.state import About, Reply, advance
from ui.strings import LANGS

REPLY = LaneName.REPLY


def of(events: Sequence[Event], about: About | None = None, user: str = "hi") -> Recording:
    return Recording("r", user, (Lane(REPLY, about, advance(Reply(), events)),))


DRAFT_TOP = (Choice(2, " orange", 0.5), Choice(9, " yellow", 0.3), Choice(11, " big", 0.0004))
TARGET_TOP = (Choice(9, " yellow", 0.62), Choice(11, " big", 0.2), Choice(12, " hot", 0.15))
LEFT = (Choice(9, " yellow", 0.7), Choice(11, " big", 0.25))
RAW = (Choice(9, " yellow", 0.41), Choice(13, " red", 0.4))
DETAIL = TokenDetail(0.5, 0.05, DRAFT_TOP, TARGET_TOP)


def a_round(**more: object) -> Round:
    """Three guesses: accepted, rejected, never checked; the first without lists."""
    decisions = (
        TokenDecision(1, " sun", 1, Outcome.ACCEPTED, 0.62, 0.48, 0.774, 0.31),
        TokenDecision(2, " orange", 2, Outcome.REJECTED, 0.5, 0.1, 0.2, 0.9, detail=DETAIL),
        TokenDecision(3, ".", 3, Outcome.DISCARDED, 0.7),
    )
    tokens = (Token(1, " sun", 1, Source.DRAFT), Token(9, " yellow", 2, Source.RECOVERED, raw_prob=0.44))
    round_ = Round(0, RoundKind.SPECULATIVE, Rule.REJECTION, "head", 3, KReason.AUTO, 3, 13, decisions, tokens, 0.001, 0.008,
                   0.0005, 0.0123, 0.002, RecoveryDetail(LEFT, 0.3456, RAW))  # fmt: skip
    return replace(round_, **more)  # type: ignore[arg-type]


FIRST = Prefilled(12, 4, Token(5, "The", 0, Source.PLAIN), 7, 0.05)
SUN, ORANGE, DOT, YELLOW = range(4)
"""The pieces of that round."""


def shown(piece: int, about: About | None = WARM, **more: object) -> str:
    html = pane(of([FIRST, a_round(**more)], about), REPLY, 1, piece)
    assert html is not None
    return html


class Bars(HTMLParser):
    """The lists of bars: by heading, rows of (token, marks, number, width)."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.lists: dict[str, list[tuple[str, str, str]]] = {}
        for section in re.findall(r"<section>(.*?)</section>", html, re.DOTALL):
            title = said(re.findall(r"<h4>(.*?)</h4>", section)[0])
            self.lists[title] = [
                (said(re.findall(r"<bdi>(.*?)</bdi>", row)[0]), kind, said(re.findall(r'class="prob">(.*)$', row)[0]))
                for kind, row in re.findall(r'<li class="(\w*)">(.*?)</li>', section, re.DOTALL)
            ]


# -- everything has a pane ---------------------------------------------------------------------------------------------


@given(texts, decodings, st.sampled_from(Detail), st.sampled_from([None, GREEDY, WARM]), st.sampled_from(Rule))
@settings(max_examples=60, deadline=None)
def test_every_piece_has_a_pane_and_nothing_else_has(
    pieces: list[str], params: DecodingParams, level: Detail, about: About | None, rule: Rule
) -> None:
    recording = of(play(Script(pieces=pieces), replace(params, detail=level, rule=rule)), about)
    blocks = recording.lanes[0].reply.blocks
    for i, block in enumerate(blocks):
        for j in range(len(block.pieces)):
            html = pane(recording, REPLY, i, j)
            assert html is not None and card.says(block, j, about) in html
            if isinstance(block.event, Round):
                assert card.table(block.event, card.subject_of(block, j)) in html and card.lines(block.event) in html
                assert took(block.event.verify_s) in said(html)
            assert html.count("data-piece=") == len(block.pieces) and html.count(f'data-block="{i}"') == len(
                block.pieces
            )
            assert f'data-piece="{j}" class="{block.pieces[j].kind.value}" aria-current="true"' in html
            assert html.count('<span class="en" lang="en">') == html.count('<span class="zh" lang="zh">') > 5
        assert pane(recording, REPLY, i, len(block.pieces) + 1) is None and pane(recording, REPLY, i, -1) is None
    assert isinstance(blocks[-1].event, Finished) and pane(recording, REPLY, len(blocks) - 1, 0) is None
    assert pane(recording, REPLY, len(blocks), 0) is None and pane(recording, REPLY, -1, 0) is None
    assert pane(recording, LaneName.PLAIN, 0, 0) is None


@given(recordings())
@settings(max_examples=40, deadline=None)
def test_whatever_a_file_may_hold_has_a_pane(recording: Recording) -> None:
    for lane in recording.lanes:
        for i, block in enumerate(lane.reply.blocks):
            for j in range(max(1, len(block.pieces))):
                assert (pane(recording, lane.name, i, j) is None) == isinstance(block.event, Finished)


@given(st.sampled_from(["brown fox", " lazy", "T", ".", "while"]), st.integers(0, 8))
@settings(max_examples=30, deadline=None)
def test_rounds_that_a_stop_cut_have_sensible_panes(stop: str, k: int) -> None:
    told = play(Script(), DecodingParams(num_speculative_tokens=k, detail=Detail.FULL))
    recording = of(list(cut_at_stop_strings(iter(told), (stop,))), WARM)
    for i, block in enumerate(recording.lanes[0].reply.blocks):
        for j in range(max(1, len(block.pieces))):
            html = pane(recording, REPLY, i, j)
            if isinstance(block.event, Finished):
                assert html is None
                continue
            assert html is not None
            assert ("before this round could add anything" in said(html)) == (not block.pieces)
            drafts = isinstance(block.event, Round) and block.event.decisions
            own = isinstance(block.event, Round) and any(t.source is not Source.DRAFT for t in block.event.tokens)
            if block.pieces:
                assert ("ended within this round" in said(html)) == bool(drafts and not own)


# -- where it is -------------------------------------------------------------------------------------------------------


def test_it_begins_with_the_round_and_the_ways_to_its_neighbours() -> None:
    html = shown(ORANGE)
    assert "Round 0: K = 3 · automatic · guessed by trained head · 1 of 3 right" in said(html)
    assert 'data-action="round-prev">' in html and 'data-action="round-next" disabled>' in html
    first = pane(of([FIRST, a_round()]), REPLY, 0, 0)
    assert first is not None
    assert 'data-action="round-prev" disabled>' in first and 'data-action="round-next">' in first


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
def test_the_text_before_is_cut_to_its_end(text: str) -> None:
    html = pane(of([replace(FIRST, token=replace(FIRST.token, text=text)), a_round()], user=""), REPLY, 1, 0)  # type: ignore[type-var]
    assert html is not None
    if not text:
        assert 'class="before"' not in html
        return
    assert (text if len(text) <= CHARS_BEFORE else "…" + text[-CHARS_BEFORE:]) in Reader(html).text.replace("\r", "")[
        :
    ] or "\r" in text


def test_lost_guesses_are_no_part_of_the_text_before() -> None:
    html = pane(of([FIRST, a_round(), a_round(index=1, context_len=15)]), REPLY, 2, 0)
    assert html is not None and "ends with The sun yellow" in said(html)


def test_before_the_first_token_stands_the_prompt() -> None:
    html = pane(of([FIRST], user="what colour is the sun?"), REPLY, 0, 0)
    assert html is not None
    assert "The reply begins here. The prompt ends with what colour is the sun?" in said(html)
    assert "12 tokens, 4 of them known from before, in 50 ms" in said(html) and "the prompt is read" in said(html)
    assert "the likeliest tokens are not recorded" in said(html) and "<table" not in html and 'class="took"' not in html


def test_each_token_says_in_words_what_became_of_it() -> None:
    html = shown(ORANGE)
    fates = [said(fate) for fate in re.findall(r'<span class="fate">(.*?)</span></button>', html)]
    assert fates == ["accepted", "rejected", "not checked: behind a wrong guess", "instead"]
    assert re.findall(r'data-piece="\d" class="(\w+)"', html) == [
        "draft",
        "rejected",
        "discarded",
        "recovered",
    ]
    ended = a_round().decisions[0], replace(a_round().decisions[2], position=2)
    cut = shown(1, decisions=ended, tokens=a_round().tokens[:1], num_drafted=2)
    assert "not checked: the reply ended" in said(cut) and "ended within this round" in said(cut)


# -- what was likely ---------------------------------------------------------------------------------------------------


def test_a_rejected_guess_shows_both_views_and_what_was_left() -> None:
    html = shown(ORANGE)
    assert Bars(html).lists == {
        "What the drafter found likely here": [
            ("orange", "guess", "probability "
                                "0.50"), ("yellow", "written", "probability 0.30"), ("big", "", "probability 4.0e-4"),
        ],
        "What the big model found likely here": [
            ("yellow", "written", "probability 0.62"), ("big", "", "probability 0.20"), ("hot", "", "probability 0.15"),
            ("orange", "guess", "probability 0.10"),
        ],
        "What was left to draw from": [("yellow", "written", "probability 0.70"), ("big", "", "probability 0.25")],
    }  # fmt: skip
    assert "once the drafter's were taken away" in said(html)
    assert "The number drawn was 0.35; it fell on “\u2068yellow\u2069”." in said(html)
    assert "these are what the rule compares" in said(html)
    assert html.count('<small><span class="en" lang="en">guessed') == 2 and "width:62.0%" in html
    assert 'class="probs lost"' in html and 'class="probs kept"' not in html


def test_what_took_its_place_shows_the_same() -> None:
    assert Bars(shown(YELLOW)).lists == Bars(shown(ORANGE)).lists


def test_an_accepted_guess_shows_both_views_alone() -> None:
    decisions = (replace(a_round().decisions[0], detail=DETAIL), *a_round().decisions[1:])
    html = shown(SUN, decisions=decisions)
    assert list(Bars(html).lists) == ["What the drafter found likely here", "What the big model found likely here"]
    assert ("sun", "guess", "probability 0.48") in Bars(html).lists["What the big model found likely here"]
    assert 'class="probs kept"' in html and "taken away" not in said(html) and "number drawn was 0.35" not in said(html)


def test_at_temperature_0_there_is_no_residual() -> None:
    html = shown(ORANGE, GREEDY)
    assert "What the big model chose from" not in Bars(html).lists  # it is the list beside the drafter's
    assert "What the big model found likely here" in Bars(html).lists
    assert "“\u2068yellow\u2069” is the big model's likeliest token" in said(html)
    assert "Probabilities before temperature" in said(html)
    assert "left to draw from" not in said(html) and "number drawn was" not in said(html)


def test_at_temperature_0_a_guess_outside_the_lists_has_its_probability_before_temperature() -> None:
    for about, prob in ((GREEDY, DETAIL.raw_target_prob), (WARM, 0.1)):
        *_, last = Bars(shown(ORANGE, about)).lists["What the big model found likely here"]
        assert last == ("orange", "guess", f"probability {number(prob)}")


def test_under_shared_noise_nothing_is_taken_away() -> None:
    html = shown(ORANGE, rule=Rule.SHARED_NOISE, recovery=RecoveryDetail(LEFT, None, RAW))
    assert "Under shared noise nothing is taken away" in said(html) and "It drew “\u2068yellow\u2069”." in said(html)
    assert Bars(html).lists["What the big model chose from"][0] == ("yellow", "written", "probability 0.70")
    assert "left to draw from" not in said(html)
    assert "the rule compares no probabilities" in said(html) and "are what the rule compares" not in said(html)


def bonus(**more: object) -> Round:
    kept = TokenDecision(1, " sun", 1, Outcome.ACCEPTED, 0.62, 0.48, 0.774, 0.31)
    tokens = (Token(1, " sun", 1, Source.DRAFT), Token(9, " yellow", 2, Source.BONUS))
    return a_round(decisions=(kept,), tokens=tokens, num_drafted=1, **more)


@pytest.mark.parametrize("about", [WARM, None])
def test_a_bonus_was_drawn_from_the_models_own(about: About | None) -> None:
    html = pane(of([FIRST, bonus()], about), REPLY, 1, 1)
    assert html is not None and Bars(html).lists == {
        "What the big model chose from": [("yellow", "written", "probability 0.70"), ("big", "", "probability 0.25")]
    }
    assert "Nothing was guessed for this place: the token was drawn" in said(html) and "0.35; it fell on" in said(html)
    noise = pane(of([FIRST, bonus(rule=Rule.SHARED_NOISE)], about), REPLY, 1, 1)
    assert noise is not None and "with the shared noise" in said(noise) and "it fell on" not in said(noise)


@pytest.mark.parametrize("kind", [RoundKind.PLAIN, RoundKind.PROBE])
def test_a_plain_round_and_a_probe_say_what_the_model_chose_from(kind: RoundKind) -> None:
    own = Token(9, " yellow", 1, Source.PLAIN, raw_prob=0.41)
    plain = a_round(decisions=(), tokens=(own,), num_drafted=0, drafter="none", kind=kind, k_reason=KReason.PROBE)
    html = pane(of([FIRST, plain], WARM), REPLY, 1, 0)
    assert html is not None and list(Bars(html).lists) == ["What the big model chose from"]
    assert ("on purpose" in said(html)) == (kind is RoundKind.PROBE) and "<table" not in html
    assert "What this round wrote" in said(html) and "press one" not in said(html)
    greedy = pane(of([FIRST, plain], GREEDY), REPLY, 1, 0)
    assert greedy is not None and "At temperature 0 chance decides nothing" in said(greedy)


def test_a_copied_guess_is_called_that() -> None:
    detail = replace(DETAIL, draft_top=(Choice(2, " orange", 1.0),), raw_draft_prob=None)
    first, second, third = a_round().decisions
    html = shown(ORANGE, drafter="ngram", decisions=(first, replace(second, draft_prob=1.0, detail=detail), third))
    assert Bars(html).lists["The guess was copied, which counts as certain"] == [("orange", "guess", "probability 1")]


def test_what_was_not_recorded_is_said() -> None:
    lean = tuple(replace(decision, detail=None) for decision in a_round().decisions)
    for piece in (SUN, ORANGE, YELLOW):
        html = shown(piece, decisions=lean, recovery=None)
        assert "not recorded here. A race records them" in said(html) and not Bars(html).lists
    without = RecoveryDetail((), 0.3456, ())
    assert "not recorded here" in said(shown(YELLOW, decisions=lean, recovery=without))
    unchecked = said(shown(DOT))
    assert "It was never checked, so there is nothing to compare." in unchecked and "guessed behind" in unchecked
    assert "not recorded here" not in said(shown(ORANGE)) and "not recorded here" in said(shown(SUN))


@given(st.floats(0, 1))
def test_a_bar_is_as_long_as_its_number(prob: float) -> None:
    html = inspector._bar(inspector.Row("x", prob))
    [width] = re.findall(r"width:([\d.]+)%", html)
    assert float(width) == pytest.approx(prob * 100, abs=0.051) and number(prob) in said(html)
    assert 'class="track" aria-hidden="true"' in html


# -- where the time went -----------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 10), min_size=4, max_size=4))
def test_the_parts_of_the_time_fill_the_bar(spent: list[float]) -> None:
    draft_s, verify_s, sample_s, _ = spent
    total_s = sum(spent)
    html = shown(SUN, draft_s=draft_s, verify_s=verify_s, sample_s=sample_s, total_s=total_s)
    if total_s == 0:
        assert 'class="took"' not in html
        return
    bar = html[html.index('class="parts"') :]
    widths = [float(width) for width in re.findall(r"width:([\d.]+)%", bar)]
    assert len(widths) == 4 and sum(widths) == pytest.approx(100, abs=0.3)
    assert widths == pytest.approx([part / total_s * 100 for part in spent], abs=0.1)
    for part in spent[:3]:
        assert took(part) in said(bar)


def test_the_time_in_words() -> None:
    words = said(shown(SUN))
    assert "Where the time of this round went: 12.3 ms" in words
    assert "guessing 1 ms big model 8 ms sampling 0.5 ms rest 2.8 ms" in words
    assert "Looking up these probabilities took 2 ms more" in words and "more, which" not in said(
        shown(SUN, detail_s=0.0)
    )


# -- nothing runs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", [*NAUGHTY, *BIG_LIST[::7]])
def test_naughty_tokens_stay_text(payload: str) -> None:
    top = (Choice(9, payload, 0.5), Choice(2, payload, 0.25))
    decisions = tuple(
        replace(d, text=payload, special="<i>" * (d.position == 3), detail=TokenDetail(0.1, 0.2, top, top))
        for d in a_round().decisions
    )
    tokens = tuple(replace(token, text=payload) for token in a_round().tokens)
    hostile = a_round(decisions=decisions, tokens=tokens, drafter=payload, recovery=RecoveryDetail(top, 0.5, top))
    recording = of([replace(FIRST, token=replace(FIRST.token, text=payload)), hostile], WARM, payload)  # type: ignore[type-var]
    for block, count in ((0, 1), (1, 4)):
        for piece in range(count):
            html = pane(recording, REPLY, block, piece)
            assert html is not None
            # The links to the glossary, whose targets are the program's own, are not what is looked for here.
            html = re.sub(r'<a class="term" href="\?tab=learn#glossary-(\w+)" data-term="\1">(.*?)</a>', r"\2", html)
            reader = Reader(html)
            assert show_blanks(payload) in reader.text
            assert set(reader.tags) <= {"article", "div", "section", "h4", "p", "span", "b", "bdi", "small", "ol", "ul", "li", "button", "svg", "path",
                                        "table", "caption", "colgroup", "col", "thead", "tbody", "tr", "th", "td"}  # fmt: skip
            assert set(reader.attributes) <= {"class", "lang", "scope", "colspan", "aria-current", "aria-hidden", "aria-label", "type", "style",
                                              "data-action", "data-block", "data-piece", "disabled", "viewbox", "d"}  # fmt: skip


def test_both_languages_say_everything() -> None:
    for piece in range(4):
        html = shown(piece)
        assert re.search("[\u4e00-\u9fff]", said(html, "zh")) and not re.search("[\u4e00-\u9fff]", said(html))
        assert all(said(html, lang) for lang in LANGS)


# -- colours -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theme", [":root", ".dark"])
@pytest.mark.parametrize("sheet", ["inspector", "verdict", "page_export"])
def test_words_can_be_read_on_their_grounds(sheet: str, theme: str) -> None:
    known = colours("colours", theme)
    written = re.findall(
        r"[{;\s]color: var\((--gl-\w+)\)", (ASSETS / "style" / f"{sheet}.css").read_text(encoding="utf-8")
    )
    assert {"--gl-text", "--gl-quiet"} <= set(written)
    for name in written:
        for ground in ("--gl-ground", "--gl-raised"):
            lighter, darker = sorted((luminance(known[name]), luminance(known[ground])), reverse=True)
            assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (name, ground)
