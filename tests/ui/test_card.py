"""A token's card says what the event says: the same numbers, the same fate, in both languages, and nothing that
runs."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import DecodingParams, Detail, Rule
from engine.events import (
    Event,
    Finished,
    FinishReason,
    KReason,
    Outcome,
    Prefilled,
    Round,
    RoundKind,
    Source,
    Token,
    TokenDecision,
    TokenDetail,
)
from tests.fake_engine import FakeEngine, Script, play
from tests.ui.samples import BIG_LIST, GREEDY, NAUGHTY, WARM, Reader, decodings, said, texts
from ui.chat.handlers import Handlers
from ui.controls import TABLE, Options
from ui.html.render import show_blanks
from ui.inspect import token_card as module
from ui.inspect.token_card import answer, apart, card, number, subject_of
from ui.state import LOST_KINDS, Block, Kind, Reply, Turn, advance
from ui.strings import LANGS, TEXT, Lang, text

probs = st.floats(0, 1)


def rows(html: str) -> list[list[str]]:
    """The table, cell by cell, without its headings."""
    body = html[html.index("<tbody>") : html.index("</tbody>")] if "<tbody>" in html else ""
    return [
        [said(cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row)]
        for row in re.findall(r"<tr.*?</tr>", body, re.DOTALL)
    ]


def drawn(data: st.DataObject, round_: Round) -> Round:
    """The round with other numbers in its decisions."""

    def other(decision: TokenDecision) -> TokenDecision:
        raw = data.draw(st.none() | st.builds(TokenDetail, st.none() | probs, probs))
        if decision.outcome is Outcome.DISCARDED:
            return replace(decision, draft_prob=data.draw(probs), detail=raw)
        return replace(decision, draft_prob=data.draw(probs), target_prob=data.draw(probs), accept_prob=data.draw(probs),
                       uniform=data.draw(st.none() | probs), detail=raw)  # fmt: skip

    return replace(round_, decisions=tuple(map(other, round_.decisions)))


def a_block(**changed: object) -> Block:
    """A round of two guesses, the second rejected; `changed` applies to the second."""
    first = TokenDecision(1, " sun", 4, Outcome.ACCEPTED, 0.62, 0.48, 0.774, 0.31)
    second = replace(TokenDecision(2, " orange", 5, Outcome.REJECTED, 0.5, 0.1, 0.2, 0.9), **changed)  # type: ignore[arg-type]
    third = TokenDecision(3, ".", 6, Outcome.DISCARDED, 0.7)
    tokens = (Token(1, " sun", 4, Source.DRAFT), Token(9, " yellow", 5, Source.RECOVERED, raw_prob=0.44))
    round_ = Round(7, RoundKind.SPECULATIVE, Rule.REJECTION, "head", 3, KReason.AUTO, 3, 20, (first, second, third), tokens,
                   0.001, 0.008, 0.0005, 0.0123, predicted_speedup=1.5)  # fmt: skip
    return advance(Reply(), [round_]).blocks[0]


def under(rule: Rule) -> Block:
    block = a_block()
    assert isinstance(block.event, Round)
    return replace(block, event=replace(block.event, rule=rule))


# -- numbers -----------------------------------------------------------------------------------------------------------


@given(probs)
def test_a_number_is_near_what_it_stands_for_and_only_nothing_is_0(value: float) -> None:
    shown = number(value)
    assert (shown == "0") == (value == 0) and (shown == "1") == (value == 1)
    assert float(shown.lstrip(">")) == pytest.approx(value, rel=0.06)
    assert len(re.sub(r"e-\d+|\D", "", shown).lstrip("0")) <= 3


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0"), (1.0, "1"), (0.62, "0.62"), (0.048, "0.048"), (0.004, "0.004"), (3.14e-5, "3.1e-5"), (0.9999, ">0.999"),
     (0.997, "0.997"), (0.0996, "0.10"), (1.0000001, "1")],
)  # fmt: skip
def test_numbers_as_they_are_written(value: float, shown: str) -> None:
    assert number(value) == shown


@given(probs, probs)
def test_two_numbers_that_differ_look_different(one: float, other: float) -> None:
    shown = apart(one, other)
    if abs(one - other) > 1e-6:
        assert shown[0] != shown[1]
    assert apart(0.7701, 0.7698) == ("0.7701", "0.7698") and apart(0.31, 0.77) == ("0.31", "0.77")


# -- every piece -------------------------------------------------------------------------------------------------------


@given(texts, decodings, st.data())
def test_every_piece_has_a_card_with_the_numbers_of_its_event(
    pieces: list[str], params: DecodingParams, data: st.DataObject
) -> None:
    events = play(Script(pieces=pieces, wrong=(" no", "\n", "<b>")), replace(params, detail=Detail.PROBS))
    event = data.draw(st.sampled_from([event for event in events if not isinstance(event, Finished)]))
    if isinstance(event, Round):
        event = drawn(data, event)
    block = advance(Reply(), [event]).blocks[0]
    for i in range(len(block.pieces)):
        html = card(block, i, data.draw(st.sampled_from([None, GREEDY, WARM])))
        if isinstance(event, Round) and event.decisions:
            assert_table(html, event, subject_of(block, i))
        else:
            assert "<table" not in html
        if isinstance(event, Prefilled):
            assert "12 tokens" in said(html) and "50 ms" in said(html)


def assert_table(html: str, round_: Round, subject: Token | TokenDecision) -> None:
    table = rows(html)
    last = [token for token in round_.tokens if token.source is not Source.DRAFT]
    assert len(table) == len(round_.decisions) + len(last)
    for decision, (token, draft, target, accept, uniform, outcome) in zip(round_.decisions, table, strict=False):
        assert token.split() == (decision.special or show_blanks(decision.text) or "…").split() or decision.special
        for cell, value in ((draft, decision.draft_prob), (target, decision.target_prob), (accept, decision.accept_prob),
                            (uniform, decision.uniform)):  # fmt: skip
            assert cell.startswith(number(value)) if value is not None else cell.startswith(("–", "raw"))
        assert (
            outcome
            == {"accepted": "accepted", "rejected": "rejected", "discarded": "not checked"}[decision.outcome.value]
        )
        if decision.detail and number(decision.detail.raw_target_prob) != number(decision.target_prob or -1.0):
            assert f"raw {number(decision.detail.raw_target_prob)}" in target
    assert html.count("aria-current") == 1
    marked_row = next(
        i for i, row in enumerate(re.findall(r"<tr.*?</tr>", html[html.index("<tbody>") :])) if "aria-current" in row
    )
    position = subject.position
    if marked_row < len(round_.decisions):
        assert round_.decisions[marked_row].position == position
    else:
        assert isinstance(subject, Token) and subject.source in (Source.RECOVERED, Source.BONUS, Source.PLAIN)


@given(texts, decodings)
def test_each_piece_is_told_as_what_it_is(pieces: list[str], params: DecodingParams) -> None:
    for block in advance(Reply(), play(Script(pieces=pieces), params)).blocks:
        for i, piece in enumerate(block.pieces):
            subject = subject_of(block, i)
            assert (subject.text, subject.special) == (piece.text, piece.special)
            assert isinstance(subject, TokenDecision) == (piece.kind in LOST_KINDS)
            kind = "first" if isinstance(block.event, Prefilled) else piece.kind.value
            for lang in LANGS:
                assert text(f"card.kind.{kind}", lang) in said(card(block, i), lang)


@given(texts, decodings)
def test_both_languages_say_everything(pieces: list[str], params: DecodingParams) -> None:
    for block in advance(Reply(), play(Script(pieces=pieces), params)).blocks:
        for i in range(len(block.pieces)):
            html = card(block, i, WARM)
            assert html.count('<span class="en" lang="en">') == html.count('<span class="zh" lang="zh">') > 1
            assert re.search("[\u4e00-\u9fff]", said(html, "zh")) and not re.search(
                "[\u4e00-\u9fff]", said(card(a_block(), 0))
            )


# -- why ---------------------------------------------------------------------------------------------------------------


def test_rejection_sampling_in_words() -> None:
    kept, lost = said(card(a_block(), 0, WARM)), said(card(a_block(), 1, WARM))
    assert "The drafter gave it 0.62, the model 0.48. So it is kept with probability 0.77." in kept
    assert "The number drawn was 0.31, below that: it stays." in kept
    assert "kept with probability 0.20. The number drawn was 0.90, not below that: it goes." in lost


def test_without_knowing_the_temperature_the_numbers_speak() -> None:
    assert said(card(a_block(), 0)) == said(card(a_block(), 0, WARM))


def test_close_calls_are_told_with_enough_digits() -> None:
    close = said(card(a_block(accept_prob=0.7698, uniform=0.7701), 1, WARM))
    assert "probability 0.7698" in close and "drawn was 0.7701, not below" in close


def test_what_the_model_likes_at_least_as_much_stays_whatever_is_drawn() -> None:
    sure = a_block(outcome=Outcome.ACCEPTED, draft_prob=0.3, target_prob=0.6, accept_prob=1.0)
    sure = advance(
        Reply(), [replace(sure.event, tokens=(Token(1, " sun", 4, Source.DRAFT), Token(2, " orange", 5, Source.DRAFT)))]
    ).blocks[0]  # type: ignore[type-var]
    html = said(card(sure, 1, WARM))
    assert "whatever number is drawn" in html and "kept with probability" not in html


def test_greedy_teaches_with_the_raw_probabilities() -> None:
    block = a_block(draft_prob=1.0, target_prob=0.0, accept_prob=0.0, detail=TokenDetail(0.91, 0.04))
    html = card(block, 1, GREEDY)
    assert "stands only if it is the model's own likeliest token, and it was not." in said(html)
    assert "the drafter gave it 0.91 and the model 0.04" in said(html)
    assert rows(html)[1][1:4] == ["1 raw 0.91", "0 raw 0.04", "0"]
    assert "likeliest token, and it was." in said(card(block, 0, GREEDY))
    assert "model's own likeliest token instead" in said(card(block, 3, GREEDY))


def test_raw_probabilities_stand_beside_only_where_they_differ() -> None:
    same = card(a_block(detail=TokenDetail(0.5, 0.1)), 1, WARM)
    assert rows(same)[1][1:3] == ["0.50", "0.10"] and "Before temperature" not in said(same)
    model = said(card(a_block(detail=TokenDetail(0.5, 0.2)), 1, WARM))
    assert "Before temperature and filters the model gave it 0.20." in model and "raw: before" in model


def test_a_copy_is_certain_of_itself() -> None:
    block = a_block(draft_prob=1.0, target_prob=0.2, detail=TokenDetail(None, 0.3))
    assert isinstance(block.event, Round)
    copied = replace(block, event=replace(block.event, drafter="ngram"))
    assert "copied from earlier in the text, which counts as certain (1); the model gave it 0.20" in said(
        card(copied, 1, WARM)
    )
    assert "It was copied from earlier in the text." in said(card(copied, 1, GREEDY))
    assert "Before temperature and filters the model gave it 0.30." in said(card(copied, 1, WARM))


def test_shared_noise_names_what_the_model_drew() -> None:
    block = under(Rule.SHARED_NOISE)
    assert "the model drew “\u2068yellow\u2069”" in said(card(block, 1, WARM))
    assert "and it was: “\u2068sun\u2069”" in said(card(block, 0, WARM))
    assert "“\u2068orange\u2069” was guessed here, but the model's own draw" in said(card(block, 3, WARM))
    noiseless = replace(block.event, decisions=tuple(replace(d, uniform=None) for d in block.event.decisions))  # type: ignore[union-attr, type-var]
    assert "no number drawn" in rows(card(replace(block, event=noiseless), 0, WARM))[0][4]


def test_an_unchecked_guess_says_what_it_stood_behind() -> None:
    behind = said(card(a_block(), 2, WARM))
    assert "guessed behind “\u2068orange\u2069”, which was rejected" in behind and "The drafter gave it 0.70." in behind
    assert "The drafter gave it" not in said(card(a_block(), 2, GREEDY))  # 1 at temperature 0, whatever it was
    round_ = a_block().event
    assert isinstance(round_, Round)
    ended = replace(
        round_, decisions=(round_.decisions[0], replace(round_.decisions[2], position=5)), tokens=round_.tokens[:1]
    )
    assert "The reply ended before its turn came." in said(card(advance(Reply(), [ended]).blocks[0], 1, WARM))


def test_what_took_the_place_of_a_guess_names_it() -> None:
    html = said(card(a_block(), 3, WARM))
    assert "“\u2068orange\u2069” was guessed here and rejected" in html and "the model gave it 0.44" in html
    assert rows(card(a_block(), 3))[3] == [
        "yellow",
        "– not a guess",
        "raw 0.44",
        "– not a guess",
        "– not a guess",
        "instead",
    ]


def test_a_bonus_counts_the_guesses_that_were_right() -> None:
    round_ = next(
        e
        for e in play(Script(), DecodingParams(num_speculative_tokens=3))
        if isinstance(e, Round) and e.tokens[-1].source is Source.BONUS
    )
    assert "All guesses of this round (3) were right" in said(card(advance(Reply(), [round_]).blocks[0], 3))


@pytest.mark.parametrize(("kind", "words"), [(RoundKind.PROBE, "on purpose"), (RoundKind.PLAIN, "by itself")])
def test_plain_tokens_and_probes(kind: RoundKind, words: str) -> None:
    plain = next(e for e in play(Script(), DecodingParams(num_speculative_tokens=0)) if isinstance(e, Round))
    html = card(advance(Reply(), [replace(plain, kind=kind)]).blocks[0], 0)
    assert words in said(html) and "<table" not in html


def test_control_tokens_fragments_and_white_space_are_named() -> None:
    assert "control token, no text: <|im_end|>" in said(card(a_block(text="", special="<|im_end|>"), 1))
    assert "a part of a character" in said(card(a_block(text="", special="0xE4"), 1))
    blank = card(a_block(text="  "), 1)
    assert "It is white space." in said(blank) and "␣" in said(blank)


def test_a_card_for_events_that_do_not_fit_together_still_speaks() -> None:
    round_ = a_block().event
    assert isinstance(round_, Round)
    for odd in (
        replace(round_, decisions=()),
        replace(round_, decisions=round_.decisions[:1]),
        replace(round_, drafter="none"),
    ):
        block = advance(Reply(), [odd]).blocks[0]
        assert all(card(block, i, about) for i in range(len(block.pieces)) for about in (None, GREEDY, WARM))


# -- the round in one line ---------------------------------------------------------------------------------------------


def line(lang: Lang, **changed: object) -> str:
    round_ = a_block().event
    assert isinstance(round_, Round)
    return module.line(replace(round_, **changed), lang)  # type: ignore[arg-type]


@pytest.mark.parametrize("lang", LANGS)
@pytest.mark.parametrize("reason", KReason)
def test_a_round_says_its_k_why_who_guessed_and_what_was_expected(reason: KReason, lang: Lang) -> None:
    shown = line(lang, k_reason=reason, predicted_speedup=1.42)
    for part in (
        "7",
        "K = 3",
        text(f"round.{reason.value}", lang),
        text("drafter.head", lang),
        "1",
        "3",
        "1.42×",
        "12.3 ms",
    ):
        assert part in shown
    assert len({line(lang, k_reason=other) for other in KReason}) == len(KReason), "no two reasons read alike"


def test_which_drafter_a_guess_came_from_is_in_words() -> None:
    assert len({line("en", drafter=drafter) for drafter in ("ngram", "head", "draft_model")}) == 3
    assert "medusa" in line("zh", drafter="medusa")
    nobody = line("en", k_reason=KReason.OFF, drafter="none", num_drafted=0, decisions=(), predicted_speedup=0.8)
    assert "guessed by" not in nobody and "guessing would give 0.80×" in nobody
    assert "expected" not in line("en", k_reason=KReason.FIXED, predicted_speedup=None)


# -- nothing runs, nothing is made up ----------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", [*NAUGHTY, *BIG_LIST[::7]])
@pytest.mark.parametrize("rule", Rule)
def test_naughty_tokens_stay_text(payload: str, rule: Rule) -> None:
    block = a_block(text=payload)
    assert isinstance(block.event, Round)
    tokens = tuple(replace(token, text=payload) for token in block.event.tokens)
    hostile = replace(block.event, rule=rule, drafter=payload, tokens=tokens,
                      decisions=tuple(replace(d, text=payload, special="<i>" * (d.position == 6)) for d in block.event.decisions))  # fmt: skip
    block = advance(Reply(), [hostile]).blocks[0]
    for i in range(len(block.pieces)):
        for about in (GREEDY, WARM):
            reader = Reader(card(block, i, about))
            assert show_blanks(payload) in reader.text
            assert set(reader.tags) <= {"div", "p", "span", "b", "bdi", "table", "caption", "colgroup", "col", "thead", "tbody", "tr",
                                        "th", "td", "small", "a"} and not reader.leads_away  # fmt: skip
            assert set(reader.attributes) <= {
                "class",
                "lang",
                "scope",
                "colspan",
                "aria-current",
                "aria-hidden",
                "href",
                "data-term",
            }


BAD: list[object] = [None, -1, 10_000, "0", 1.0, [], {}]


@pytest.mark.parametrize("bad", BAD)
def test_asking_for_what_is_not_there_gives_nothing(bad: object) -> None:
    turn = Turn(3, "hi", advance(Reply(), play(Script(), DecodingParams())))
    assert answer(turn, bad, 0) is None and answer(turn, 1, bad) is None
    assert answer(turn, len(turn.reply.blocks) - 1, 0) is None, "the end of a reply has no tokens"
    found = answer(turn, 1, 0)
    assert found is not None and (found["key"], found["block"], found["piece"]) == (3, 1, 0)
    assert found["html"] == card(turn.reply.blocks[1], 0)


def test_the_page_gets_the_card_that_it_asks_for() -> None:
    async def ask() -> None:
        handlers = Handlers(FakeEngine(), Options())
        id_ = handlers.sync("")["conversation"]
        async for _ in handlers.send(id_, "hello", [control.default for control in TABLE]):
            pass
        patch = await handlers.answer(id_, "card", {"key": 1, "block": 1, "piece": 0})
        assert patch is not None and "accepted draft" in patch["card"]["html"] and patch["turns"] == []
        for args in (
            {},
            {"key": 9, "block": 1, "piece": 0},
            {"key": 1, "block": 999, "piece": 0},
            {"key": "1", "block": 1, "piece": 0},
        ):
            assert await handlers.answer(id_, "card", args) is None
        forgotten = await handlers.answer("nobody", "card", {"key": 1, "block": 1, "piece": 0})
        assert forgotten is not None and forgotten["unknown"], "the page gives the chat back"

    asyncio.run(asyncio.wait_for(ask(), 60))


def test_the_kinds_are_all_spoken_for() -> None:
    finished: Event = Finished(FinishReason.STOP, "", ())
    assert advance(Reply(), [finished]).blocks[0].pieces == ()
    assert {kind.value for kind in Kind} | {"first"} == {
        key.removeprefix("card.kind.") for key in TEXT if key.startswith("card.kind.")
    }
