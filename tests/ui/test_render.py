"""HTML is made of escaped text only, and reads back as exactly what was put in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given

from engine.config import DecodingParams, Rule
from engine.events import Event, Finished, FinishReason, KReason, Round, RoundKind
from engine.loading.loaded import DEQUANTISED, NF4_NOTE
from engine.serving.engine import State, Status
from engine.serving.load_pair import CROSS_TOKENIZER
from engine.serving.served_pair import Facts
from engine.stats import Baseline, Tally
from engine.text.tokenizer import NO_SYSTEM, NO_TEMPLATE
from tests.fake_engine import DEFAULT_TEXT, Script, play
from tests.ui.samples import BIG_LIST, GREEDY, GUESSING, NAUGHTY, PLAIN, Reader, rounds_of, texts
from ui.controls import Options
from ui.html import panel, render
from ui.state import LOST_KINDS, Block, Conversation, Kind, Phase, Piece, Reply, Turn, advance

ROUND = Round(1, RoundKind.SPECULATIVE, Rule.REJECTION, "ngram", 3, KReason.FIXED, 3, 9, (), (), 0.0, 0.0, 0.0, 0.01)
FACTS = Facts("m", "w", "k", "cpu", 2, 10, True, ("none",), 9)
LONG = play(Script(text=DEFAULT_TEXT * 3), DecodingParams(probe_every=4))


def written(events: Sequence[Event]) -> Reply:
    return advance(Reply(), events)


def foot(reply: Reply) -> str:
    return render.turn_foot(Turn(1, "hello", reply, GREEDY))


def shown(events: Sequence[Event], **more: bool) -> dict[str, str]:
    reply = written(events)
    return panel.figures(reply.tally, reply.tally, course=reply.course, **more)


# -- nothing of it runs ------------------------------------------------------------------------------------------------


def test_naughty_text_stays_text() -> None:
    for payload in (*NAUGHTY, *BIG_LIST):
        head = Reader(render.turn_head(Turn(2, payload)))
        assert payload in head.text and head.harmless
        facts = Facts(payload, payload, payload, payload, 2, 10, True, ("none",), 9)
        failed = Reply(Phase.FINISHED, reason=FinishReason.ERROR, message=payload)
        for html in (foot(failed), render.engine_chip(Status(State.READY, "ready"), facts),
                     render.loading_notice(Status(State.FAILED, "load", message=payload)),
                     render.piece(Piece(Kind.REJECTED, "", payload))):  # fmt: skip
            assert payload in Reader(html).text and Reader(html).harmless
        for cut, kind in enumerate(Kind, 1):
            html = render.block(Block(ROUND, (Piece(kind, payload[:cut]), Piece(kind, payload[cut:], prob=0.3))))
            assert Reader(html).text == (
                payload
                if kind not in LOST_KINDS
                else render.show_blanks(payload[:cut]) + render.show_blanks(payload[cut:])
            )
            assert set(Reader(html).tags) <= {"span", "s"} and Reader(html).harmless


@given(texts)
def test_a_block_is_one_element_whose_pieces_say_which_they_are_and_are_the_text(pieces: list[str]) -> None:
    pieces = [piece.encode("utf-8", "replace").decode() for piece in pieces]
    reply = written(play(Script(pieces=pieces, special_end=False), DecodingParams(drafter="both")))
    kept = ""
    for block in reply.blocks:
        html, places = render.block(block), dict(enumerate(block.pieces))
        assert html.startswith('<span class="round">') and html.endswith("</span>")
        assert re.findall(r'data-i="(\d+)"', html) == [str(i) for i in places if render.piece(places[i])]
        kept += "".join(render.piece(piece) for piece in block.pieces if piece.kind not in LOST_KINDS)
    assert Reader(kept).text == "".join(pieces) == reply.text
    assert render.block(Block(Finished(FinishReason.STOP, "", ()))) == '<span class="round"></span>'


def test_invisible_characters_of_lost_tokens_are_marked() -> None:
    lost = {"\n": "↵", " ": "␣", "   ": "␣␣␣", "\n  x": "↵  x", "\t": "⇥", " the": " the", "a\u200bb": "a∅b"}
    assert {text: Reader(render.piece(Piece(Kind.REJECTED, text))).text for text in lost} == lost
    assert {Reader(render.piece(Piece(Kind.DRAFT, text))).text for text in lost} == set(lost)


def test_special_tokens_are_labelled_chips_in_both_languages() -> None:
    html = render.piece(Piece(Kind.DRAFT, "", "<|im_end|>"))
    assert "end of turn" in html and "回合结束" in html and "chip" in html and "im_end" not in html
    assert Reader(render.piece(Piece(Kind.PLAIN, "<b>", "<|other|>"))).text == "<|other|><b>"


def test_the_pages_frame_holds_nothing_that_gradio_would_evaluate() -> None:
    from ui.layout import _log

    assert not re.search(r"\$\{|\{\{|`|\\|@children", _log(Options()) + _log(Options(lang="zh")))


# -- what is said beside and under a reply -----------------------------------------------------------------------------


def test_what_the_model_lacks_is_said_in_both_languages_a_line_each() -> None:
    dequantised = DEQUANTISED.format(name="{m}", origin="GGUF Q4_K_M", here="0.50", there="0.23")
    notes = (NO_TEMPLATE, NO_SYSTEM, NF4_NOTE, dequantised, CROSS_TOKENIZER.format(drafter="a.b", target="c (d)"))
    *lines, unknown = render.note(replace(FACTS, note="\n".join((*notes, "It <b>hums</b>.")))).split("<br>")
    for note, line in zip(notes, lines, strict=True):
        assert note in Reader(line).text and re.search("[\u4e00-\u9fff]", line)
    assert unknown == "It &lt;b&gt;hums&lt;/b&gt;." and render.note(FACTS) == render.note(None) == ""


def test_every_ending_and_every_phase_of_loading_has_its_words() -> None:
    for reason in FinishReason:
        reply = written(play(Script(reason=reason, message="It broke."), GUESSING))
        assert "seed 7" in foot(reply) and ("It broke." in foot(reply)) == (reason is FinishReason.ERROR)
    for phase in ("start", "fetch", "unpack", "convert", "load", "warm_up", "ready"):
        assert "42 %" in render.loading_notice(Status(State.LOADING, phase, 0.42))
        assert "value" not in render.loading_notice(Status(State.LOADING, phase))


def test_a_drafter_whose_context_is_full_is_named_under_the_reply() -> None:
    *_, last = rounds_of(LONG)
    for reason, k, named in (
        (KReason.FIXED, 0, False),
        (KReason.DRAFTER_CONTEXT, 1, False),
        (KReason.DRAFTER_CONTEXT, 0, True),
    ):
        events = [*LONG[:-2], replace(last, k_reason=reason, k_requested=k), LONG[-1]]
        assert ("outgrew the drafter" in foot(written(events))) == named


def test_the_figures_of_a_reply_stand_under_it_and_nothing_that_was_not_measured() -> None:
    reply = written(LONG)
    said, own = Reader(foot(reply)).text, reply.tally.summary()
    for figure in (f"{own.spec_tok_s:.0f} tokens/s", render.times(own.speedup), f"α {own.alpha:.2f}", "n-gram",
                   f"τ {own.acceptance_length:.2f}", "first token 50 ms", " k ", "bit-exact"):  # fmt: skip
        assert figure in said
    plain = Reader(render.turn_foot(Turn(1, "hello", written(play(Script(), PLAIN))))).text
    assert not re.search("α|plain speed|bit-exact", plain)


def test_why_a_drafter_is_not_there() -> None:
    cases: list[tuple[str, str, list[str]]] = [
        ("none ngram", "auto", ["has none yet"]), ("none ngram", "ngram", ["asked for", "--drafter ngram"]),
        ("none draft_model", "<b>", ["--drafter <b>"]), ("head both", "auto", []), ("head draft_model", "auto", []),
    ]  # fmt: skip
    for drafters, asked, words in cases:
        reader = Reader(render.missing_drafters(drafters.split(), asked))
        assert all(part in reader.text for part in words) and reader.harmless
        assert ("No other model" in reader.text) == ("draft_model" not in drafters)
        assert ("No trained head" in reader.text) == ("head" not in drafters)


# -- the live panel ----------------------------------------------------------------------------------------------------


def test_figures_before_and_after_measurement() -> None:
    nothing, early, done = shown([]), shown(LONG[:6]), shown(LONG)
    assert nothing["spec"] == nothing["plain"] == nothing["speedup"] == nothing["alpha"] == render.DASH
    assert "Nothing measured yet" in nothing["baseline"]
    assert "measuring, 1 of 3" in early["baseline"] and early["plain"] == render.DASH
    assert (
        done["plain"] == "100"
        and "measured in this reply" in done["baseline"]
        and "faster than plain" in done["verdict"]
    )
    assert done["speedup"] == render.times(written(LONG).tally.summary().speedup) and done["speedup"].endswith("×")
    assert done["expected"] == "1.50×" and float(done["mean_k"]) > 2 and done["k"] == "3"
    fixed = shown(play(Script(), replace(GUESSING, probe_every=0)), probing=False)
    assert "switched off" in fixed["baseline"] and fixed["expected"] == render.DASH
    tally = written(LONG).tally
    bars = panel.bars(tally, tally)
    assert max(bars.values()) == bars["spec"] == 1.0 and 0 < bars["plain"] < 1.0
    assert [render.times(value) for value in (None, 0.8, 2.347)] == ["–", "0.80×", "2.35×"], "as they are"


def test_a_slow_down_is_said_plainly_and_nothing_is_claimed_that_cannot_be_or_that_scatters() -> None:
    for speedup, tau, spread, samples, words in (
        (0.8, 3.0, 0.05, 20, "slower than plain"), (1.0, 3.0, 0.05, 20, "same as plain"), (2.9, 3.0, 0.05, 20, "faster than plain"),
        (11.8, 3.0, 0.05, 20, "machine was busy"), (1.08, 1.0, 0.05, 20, "machine was busy"), (1.0, 0.5, 0.05, 20, "same as plain"),
        (1.14, 3.0, 0.92, 8, "no clear difference"), (0.45, 3.0, 0.79, 4, "no clear difference"), (1.5, 3.0, 0.13, 35, "faster than plain"),
    ):  # fmt: skip
        baseline = Baseline(samples, 100.0, spread)
        assert words in panel._verdict(
            replace(Tally().summary(), speedup=speedup, acceptance_length=tau, baseline=baseline)
        )


def test_the_panel_says_that_guessing_is_off_and_why_and_stops_saying_so() -> None:
    events = play(Script(text=DEFAULT_TEXT * 2, rests=(10, 20)), DecodingParams())
    at = {event.index: i + 1 for i, event in enumerate(events) if isinstance(event, Round)}
    before, resting, after = (shown(events[: at[i]]) for i in (9, 19, 20))
    assert before["rest"] == after["rest"] == "" and "guessing off" not in after["line"] and after["k"] == "3"
    assert "it would be 0.80× here" in resting["rest"] and "只有 0.80×" in resting["rest"]
    assert "guessing off" in resting["line"] and resting["k"] == "0"
    done = shown(events[: at[19]], writing=False)
    assert done["rest"] == "" and "guessing off" not in done["line"]
    idle = rounds_of(play(Script(), PLAIN))[0]
    for reason, words in ((KReason.NO_OFFER, "nothing here repeats"), (KReason.OFF, "it does not pay here")):
        assert words in shown([replace(idle, k_reason=reason, predicted_speedup=None)] * 5)["rest"]


def test_a_message_that_leaves_no_room_for_a_reply_is_too_long() -> None:
    empty = Conversation("c")
    for asking, full in ((9, False), (10, True), (11, True)):
        assert ('class="full"' in render.meter(empty, 10, asking)) is full, asking


def test_acceptance_is_told_apart_where_two_drafters_guessed() -> None:
    two = Reader(shown(play(Script(), DecodingParams(drafter="both")))["by"]).text
    assert "n-gram" in two and "trained head" in two and len(re.findall(r"\d\.\d\d", two)) == 2
    assert shown(LONG)["by"] == ""
