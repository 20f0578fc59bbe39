"""A round up close, and the card of a token, say what the event says: every piece has one, each number is the event's, the
same in both languages, and nothing of it runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import DecodingParams, Rule
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
from tests.fake_engine import Script, play
from tests.ui.samples import (
    BIG_LIST,
    GREEDY,
    NAUGHTY,
    WARM,
    Reader,
    bilingual,
    cells,
    few,
    recording,
    recordings,
    said,
)
from tests.ui.test_prose import colours, luminance
from ui.examples import ASSETS
from ui.html.render import both, show_blanks
from ui.inspect import inspector
from ui.inspect import token_card as card
from ui.inspect.explain import apart, number, took
from ui.inspect.inspector import CHARS_BEFORE, pane
from ui.recording.recordings import LaneName, Recording
from ui.state import LOST_KINDS, About, Block, Kind, Reply, Turn, advance
from ui.strings import LANGS, TEXT, text

More = dict[str, Any]
REPLY = LaneName.REPLY
PROBS = st.floats(0, 1)
DRAFT_TOP = (Choice(2, " orange", 0.5), Choice(9, " yellow", 0.3), Choice(11, " big", 0.0004))
TARGET_TOP = (Choice(9, " yellow", 0.62), Choice(11, " big", 0.2), Choice(12, " hot", 0.15))
LEFT = (Choice(9, " yellow", 0.7), Choice(11, " big", 0.25))
DETAIL = TokenDetail(0.5, 0.05, DRAFT_TOP, TARGET_TOP)
RECOVERY = RecoveryDetail(LEFT, 0.3456, (Choice(9, " yellow", 0.41), Choice(13, " red", 0.4)))
FIRST = Prefilled(12, 4, Token(5, "The", 0, Source.PLAIN), 7, 0.05)
KEPT = TokenDecision(1, " sun", 1, Outcome.ACCEPTED, 0.62, 0.48, 0.774, 0.31)
LOST = TokenDecision(2, " orange", 2, Outcome.REJECTED, 0.5, 0.1, 0.2, 0.9, detail=DETAIL)
BEHIND = TokenDecision(3, ".", 3, Outcome.DISCARDED, 0.7)
OWN = Token(9, " yellow", 2, Source.RECOVERED, raw_prob=0.44)
ROUND = Round(
    0, RoundKind.SPECULATIVE, Rule.REJECTION, "head", 3, KReason.AUTO, 3, 13, (KEPT, LOST, BEHIND),
    (Token(1, " sun", 1, Source.DRAFT), OWN), 0.001, 0.008, 0.0005, 0.0123, 0.002, RECOVERY, 1.42,
)  # fmt: skip
SUN, ORANGE, DOT, YELLOW = range(4)
"""The pieces of that round."""

CUT: More = {"decisions": (KEPT, replace(BEHIND, position=2)), "tokens": ROUND.tokens[:1], "num_drafted": 2}
BONUS: More = {
    "decisions": (KEPT,),
    "tokens": (ROUND.tokens[0], replace(OWN, source=Source.BONUS)),
    "num_drafted": 1,
}
ALONE: More = {
    "decisions": (),
    "tokens": (replace(OWN, source=Source.PLAIN, position=1),),
    "num_drafted": 0,
    "drafter": "none",
}


def of(events: Sequence[Event], about: About | None = WARM, user: str = "hi") -> Recording:
    return recording({REPLY: events}, about, user)


def lost(**changed: Any) -> More:
    """The round with another second guess."""
    return {"decisions": (KEPT, replace(LOST, **changed), BEHIND)}


def shown(piece: int, about: About | None = WARM, **more: Any) -> str:
    html = pane(of([FIRST, replace(ROUND, **more)], about), REPLY, 1, piece)
    assert html is not None and bilingual(html)
    return html


def rows(html: str) -> list[list[str]]:
    return cells(html.partition("<tbody>")[2])


def bars(html: str) -> dict[str, list[tuple[str, str, str]]]:
    """The lists of bars: by heading, rows of token, mark and number."""
    lists = {}
    for section in re.findall("(?s)<section>(.*?)</section>", html):
        items = re.findall(r'(?s)<li class="(\w*)">(.*?)</li>', section)
        shares = [(said(re.findall("<bdi>.*?</bdi>", item)[0]), mark, said(item).split()[-1]) for mark, item in items]
        lists[said(re.findall("<h4>.*?</h4>", section)[0])] = shares
    return lists


# -- everything has one ------------------------------------------------------------------------------------------------


@few
@given(recordings())
def test_every_piece_has_a_pane_with_the_numbers_of_its_event_and_nothing_else_has(made: Recording) -> None:
    assert {*Kind, "first"} == {key.removeprefix("card.kind.") for key in TEXT if key.startswith("card.kind.")}
    for lane in made.lanes:
        blocks = lane.reply.blocks
        for i, block in enumerate(blocks):
            count = max(1, len(block.pieces))
            assert pane(made, lane.name, i, count) is None and pane(made, lane.name, i, -1) is None
            for j in range(count):
                html = pane(made, lane.name, i, j)
                assert (html is None) == isinstance(block.event, Finished)
                if html is not None:
                    assert ("before this round could add anything" in html) == (not block.pieces) and bilingual(html)
                    if block.pieces:
                        check_pane(html, block, i, j, lane.about)
        assert pane(made, lane.name, len(blocks), 0) is None and pane(made, lane.name, -1, 0) is None
    assert pane(made, LaneName.REPLY if len(made.lanes) > 1 else LaneName.PLAIN, 0, 0) is None


def check_pane(html: str, block: Block, i: int, j: int, about: About | None) -> None:
    says, event, subject, piece = card.says(block, j, about), block.event, card.subject_of(block, j), block.pieces[j]
    assert (subject.text, subject.special) == (piece.text, piece.special)
    assert isinstance(subject, TokenDecision) == (piece.kind in LOST_KINDS)
    assert both(f"card.kind.{'first' if isinstance(event, Prefilled) else piece.kind.value}") in says
    whole = card.card(block, j, about)
    assert says in html and whole.startswith(says) and html.count(f'data-block="{i}"') == len(block.pieces)
    assert f'data-piece="{j}" class="{piece.kind.value}" aria-current="true"' in html
    if not isinstance(event, Round):
        assert "<table" not in whole
        return
    table = card.table(event, subject)
    assert table in html and card.lines(event) in html and whole == says + table + card.lines(event)
    own = [token for token in event.tokens if token.source is not Source.DRAFT]
    assert ("ended within this round" in html) == bool(event.decisions and not own)
    body = table.partition("<tbody>")[2]
    found = cells(body)
    assert len(found) == (len(event.decisions) + len(own) if event.decisions else 0)
    for decision, (_, *numbers, outcome) in zip(event.decisions, found, strict=False):
        values = (decision.draft_prob, decision.target_prob, decision.accept_prob, decision.uniform)
        for cell, value in zip(numbers, values, strict=True):
            assert cell.startswith(("–", "raw") if value is None else number(value))
        assert outcome == text(f"card.outcome.{decision.outcome.value}", "en")
    if found:
        guessed = [k for k, decision in enumerate(event.decisions) if decision.position == subject.position]
        current = [k for k, row in enumerate(re.findall("(?s)<tr.*?</tr>", body)) if "aria-current" in row]
        assert current == (guessed if piece.kind in {*LOST_KINDS, Kind.DRAFT} else [len(event.decisions)])


def test_asking_for_a_card_that_is_not_there_gives_nothing() -> None:
    turn = Turn(3, "hi", advance(Reply(), play(Script(), DecodingParams())))
    bad: object
    for bad in (None, -1, 10_000, "0", 1.0, [], {}):
        assert card.answer(turn, bad, 0) is None and card.answer(turn, 1, bad) is None
    html = card.card(turn.reply.blocks[1], 0)
    assert card.answer(turn, 1, 0) == {"key": 3, "block": 1, "piece": 0, "html": html}


# -- why ---------------------------------------------------------------------------------------------------------------


def says(words: str, piece: int, about: About | None = WARM, **more: Any) -> None:
    """Sentences that the pane has, or with a ! has not."""
    html = said(shown(piece, about, **more))
    assert [part for part in words.split(" | ") if (part.lstrip("!") in html) == part.startswith("!")] == []


def test_why_in_words() -> None:
    says("The drafter gave it 0.62, the model 0.48. So it is kept with probability 0.77.", SUN)
    says("The number drawn was 0.31, below that: it stays. | !Before temperature", SUN)
    says("kept with probability 0.20. The number drawn was 0.90, not below that: it goes.", ORANGE, None)
    says("probability 0.7698. | drawn was 0.7701, not below", ORANGE, **lost(accept_prob=0.7698, uniform=0.7701))
    says("whatever number is drawn | !kept with probability", ORANGE, **lost(accept_prob=1.0))
    says("it is the model's own likeliest token, and it was not.", ORANGE, GREEDY)
    sure = lost(draft_prob=1.0, detail=TokenDetail(0.91, 0.04))
    says("the drafter gave it 0.91 and the model 0.04", ORANGE, GREEDY, **sure)
    says("likeliest token, and it was.", SUN, GREEDY)
    says("model's own likeliest token instead", YELLOW, GREEDY)
    says("!Before temperature", ORANGE, **lost(detail=TokenDetail(0.5, 0.1)))
    says("Before temperature and filters the model gave it 0.05.", ORANGE)
    copied: More = lost(draft_prob=1.0, detail=TokenDetail(None, 0.3)) | {"drafter": "ngram"}
    says("copied from earlier in the text, which counts as certain (1); the model gave it 0.10", ORANGE, **copied)
    says("It was copied from earlier in the text. | gave it 0.30.", ORANGE, GREEDY, **copied)
    says("the model drew “\u2068yellow\u2069”", ORANGE, rule=Rule.SHARED_NOISE)
    says("and it was: “\u2068sun\u2069”", SUN, rule=Rule.SHARED_NOISE)
    says("“\u2068orange\u2069” was guessed here, but the model's own draw", YELLOW, rule=Rule.SHARED_NOISE)
    says("guessed behind “\u2068orange\u2069”, which was rejected | The drafter gave it 0.70.", DOT)
    says("!The drafter gave it", DOT, GREEDY)  # 1 at temperature 0, whatever it was
    says("The reply ended before its turn came. | not checked: the reply ended | ended within this round", 1, **CUT)
    says("“\u2068orange\u2069” was guessed here and rejected | the model gave it 0.44", YELLOW)
    says("The guess of this round (1) was right", 1, **BONUS)
    says("by itself | What this round wrote | !on purpose | !press one", 0, **ALONE)
    says("on purpose", 0, kind=RoundKind.PROBE, **ALONE)
    says("control token, no text: <|im_end|>", ORANGE, **lost(text="", special="<|im_end|>"))
    says("a part of a character", ORANGE, **lost(text="", special="0xE4"))
    says("It is white space. | ␣", ORANGE, **lost(text="  "))


def test_the_table_in_words() -> None:
    greedy = lost(draft_prob=1.0, target_prob=0.0, accept_prob=0.0, detail=TokenDetail(0.91, 0.04))
    assert rows(shown(ORANGE, GREEDY, **greedy))[1][1:4] == ["1 raw 0.91", "0 raw 0.04", "0"]
    unknown = "– not a guess"
    assert rows(shown(YELLOW))[3] == ["yellow", unknown, "raw 0.44", unknown, unknown, "instead"]
    assert "no number drawn" in rows(shown(ORANGE, **lost(uniform=None)))[1][4]


def test_cards_for_events_that_do_not_fit_together_still_speak() -> None:
    more: More
    for more in ({"decisions": ()}, {"decisions": (KEPT,)}, {"drafter": "none"}):
        for about in (None, GREEDY, WARM):
            assert shown(0, about, **more)


def test_a_round_in_one_line_says_its_k_why_who_guessed_and_what_was_expected() -> None:
    for lang in LANGS:
        lines = {card.line(replace(ROUND, k_reason=reason), lang): reason for reason in KReason}
        assert len(lines) == len(KReason), "no two reasons read alike"
        for line, reason in lines.items():
            for part in ("K = 3", text(f"round.{reason.value}", lang), text("drafter.head", lang), "1.42×", "12.3 ms"):
                assert part in line
    says("Round 0: K = 3 · automatic · guessed by trained head · 1 of 3 right", ORANGE)
    assert "medusa" in card.line(replace(ROUND, drafter="medusa"), "zh")
    idle = replace(ROUND, k_reason=KReason.OFF, drafter="none", num_drafted=0, decisions=(), predicted_speedup=0.8)
    assert "guessed by" not in card.line(idle, "en") and "guessing would give 0.80×" in card.line(idle, "en")
    assert "expected" not in card.line(replace(ROUND, predicted_speedup=None), "en")


@given(PROBS, PROBS)
def test_numbers_are_near_what_they_stand_for_and_those_that_differ_look_different(one: float, other: float) -> None:
    words = number(one)
    assert (words == "0") == (one == 0) and (words == "1") == (one == 1)
    assert float(words.lstrip(">")) == pytest.approx(one, rel=0.06)
    assert len(re.sub(r"e-\d+|\D", "", words).lstrip("0")) <= 3
    first, second = apart(one, other)
    assert first != second or abs(one - other) <= 1e-6
    assert apart(0.7701, 0.7698) == ("0.7701", "0.7698") and apart(0.31, 0.77) == ("0.31", "0.77")
    as_written = {0.048: "0.048", 3.14e-5: "3.1e-5", 0.9999: ">0.999", 0.997: "0.997", 0.0996: "0.10", 1.0000001: "1"}
    assert {value: number(value) for value in as_written} == as_written


# -- where it is -------------------------------------------------------------------------------------------------------


def test_there_are_ways_to_its_neighbours_and_each_token_says_what_became_of_it() -> None:
    html, first = shown(ORANGE), pane(of([FIRST, ROUND]), REPLY, 0, 0) or ""
    assert 'data-action="round-prev">' in html and 'data-action="round-next" disabled>' in html
    assert 'data-action="round-prev" disabled>' in first and 'data-action="round-next">' in first
    fates = [said(fate) for fate in re.findall(r'<span class="fate">(.*?)</span></button>', html)]
    assert fates == ["accepted", "rejected", "not checked: behind a wrong guess", "instead"]


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
def test_the_text_before_is_cut_to_its_end(letters: str) -> None:
    token = Token(5, letters, 0, Source.PLAIN)
    html = pane(of([replace(FIRST, token=token), ROUND], user=""), REPLY, 1, 0) or ""
    end = letters if len(letters) <= CHARS_BEFORE else "…" + letters[-CHARS_BEFORE:]
    assert ('class="before"' in html) == bool(letters) and (end in Reader(html).text or "\r" in letters)


def test_before_the_first_token_stands_the_prompt_and_lost_guesses_are_no_part_of_the_text() -> None:
    html = pane(of([FIRST, ROUND, replace(ROUND, index=1)], user="what colour is the sun?"), REPLY, 0, 0) or ""
    assert "The reply begins here. The prompt ends with what colour is the sun?" in said(html)
    assert "12 tokens, 4 of them known from before, in 50 ms" in said(html) and 'class="took"' not in html
    assert "ends with The sun yellow" in said(pane(of([FIRST, ROUND, replace(ROUND, index=1)]), REPLY, 2, 0) or "")


# -- what was likely ---------------------------------------------------------------------------------------------------

DRAFTERS, MODELS, CHOSEN = (
    "What the drafter found likely here",
    "What the big model found likely here",
    "What the big model chose from",
)


def test_a_rejected_guess_and_what_took_its_place_show_both_views_and_what_was_left() -> None:
    left = [("yellow", "written", "0.70"), ("big", "", "0.25")]
    assert bars(shown(ORANGE)) == bars(shown(YELLOW)) == {
        DRAFTERS: [("orange", "guess", "0.50"), ("yellow", "written", "0.30"), ("big", "", "4.0e-4")],
        MODELS: [("yellow", "written", "0.62"), ("big", "", "0.20"), ("hot", "", "0.15"), ("orange", "guess", "0.10")],
        "What was left to draw from": left,
    }  # fmt: skip
    says("The number drawn was 0.35; it fell on “\u2068yellow\u2069”. | these are what the rule compares", ORANGE)
    says("“\u2068yellow\u2069” is the big model's likeliest token | !number drawn", ORANGE, GREEDY)
    greedy, noise = bars(shown(ORANGE, GREEDY)), bars(shown(ORANGE, rule=Rule.SHARED_NOISE))
    assert list(greedy) == [DRAFTERS, MODELS] and greedy[MODELS][-1] == ("orange", "guess", "0.05")
    says("nothing is taken away | the rule compares no probabilities", ORANGE, rule=Rule.SHARED_NOISE)
    copied = lost(detail=replace(DETAIL, draft_top=(Choice(2, " orange", 1.0),))) | {"drafter": "ngram"}
    certain = bars(shown(ORANGE, **copied))["The guess was copied, which counts as certain"]
    assert noise[CHOSEN] == left and certain == [("orange", "guess", "1")]


def test_an_accepted_guess_shows_both_views_alone_and_a_token_of_the_models_own_what_it_chose_from() -> None:
    html = shown(SUN, decisions=(replace(KEPT, detail=DETAIL), LOST, BEHIND))
    assert list(bars(html)) == [DRAFTERS, MODELS] and bars(html)[MODELS][-1] == ("sun", "guess", "0.48")
    assert {mark for rows in bars(html).values() for _, mark, _ in rows} == {"", "guess"}
    assert 'class="probs kept"' in html and 'class="probs lost"' in shown(ORANGE) and "drawn was 0.35" not in html
    assert bars(shown(1, None, **BONUS)) == {CHOSEN: [("yellow", "written", "0.70"), ("big", "", "0.25")]}
    says("Nothing was guessed for this place: the token was drawn | it fell on", 1, **BONUS)
    says("with the shared noise | !it fell on", 1, rule=Rule.SHARED_NOISE, **BONUS)
    assert bars(shown(0, GREEDY, **ALONE)) == {CHOSEN: [("yellow", "written", "0.41"), ("red", "", "0.40")]}
    says("At temperature 0 chance decides nothing", 0, GREEDY, **ALONE)


def test_what_was_not_recorded_is_said() -> None:
    for recovery in (None, RecoveryDetail((), 0.3456, ())):
        for piece in (SUN, ORANGE, YELLOW):
            assert not bars(shown(piece, recovery=recovery, **lost(detail=None)))
            says("not recorded here. A race records them", piece, recovery=recovery, **lost(detail=None))
    says("It was never checked, so there is nothing to compare.", DOT)


# -- where the time went -----------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 10), min_size=4, max_size=4), PROBS)
def test_bars_are_as_long_as_their_numbers_and_the_parts_of_the_time_fill_one(spent: list[float], prob: float) -> None:
    [width] = re.findall(r"width:([\d.]+)%", inspector._bar(inspector.Row("x", prob)))
    assert float(width) == pytest.approx(prob * 100, abs=0.051)
    draft_s, verify_s, sample_s, _ = spent
    html = shown(SUN, draft_s=draft_s, verify_s=verify_s, sample_s=sample_s, total_s=sum(spent))
    _, _, bar = html.partition('class="parts"')
    widths = [float(width) for width in re.findall(r"width:([\d.]+)%", bar)]
    assert widths == pytest.approx([part / sum(spent) * 100 for part in spent] if sum(spent) else [], abs=0.1)
    assert all(took(part) in said(bar) for part in spent[:3] if widths)


def test_the_time_in_words() -> None:
    says("round went: 12.3 ms guessing 1 ms big model 8 ms sampling 0.5 ms rest 2.8 ms | took 2 ms more", SUN)


# -- nothing runs, and it can be read ----------------------------------------------------------------------------------


def test_naughty_tokens_stay_text() -> None:
    for payload in (*NAUGHTY, *BIG_LIST[::7]):
        top = (Choice(9, payload, 0.5), Choice(2, payload, 0.25))
        decisions = tuple(
            replace(d, text=payload, special="<i>" * (d is BEHIND), detail=TokenDetail(0.1, 0.2, top, top))
            for d in ROUND.decisions
        )
        tokens = tuple(replace(token, text=payload) for token in ROUND.tokens)
        hostile = replace(
            ROUND, decisions=decisions, tokens=tokens, drafter=payload, recovery=RecoveryDetail(top, 0.5, top)
        )
        first = replace(FIRST, token=replace(OWN, text=payload, position=0, source=Source.PLAIN))
        for rule in Rule:
            made = of([first, replace(hostile, rule=rule)], WARM, payload)
            for block, piece in ((0, 0), (1, 0), (1, 1), (1, 2), (1, 3)):
                reader = Reader(pane(made, REPLY, block, piece) or "")
                assert show_blanks(payload) in reader.text and reader.harmless


def test_words_can_be_read_on_their_grounds() -> None:
    for sheet in ("inspector", "verdict", "page_export"):
        css = (ASSETS / "style" / f"{sheet}.css").read_text(encoding="utf-8")
        for theme in (":root", ".dark"):
            known = colours("colours", theme)
            for name in re.findall(r"[{;\s]color: var\((--gl-\w+)\)", css):
                for ground in ("--gl-ground", "--gl-raised"):
                    darker, lighter = sorted(luminance(known[one]) for one in (name, ground))
                    assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (name, ground)
