"""HTML is made of escaped text only, and reads back as exactly what was put in."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import DecodingParams, Rule
from engine.events import Event, Finished, FinishReason, KReason, Round, RoundKind
from engine.loading.loaded import DEQUANTISED, NF4_NOTE
from engine.serving.engine import State, Status
from engine.serving.load_pair import CROSS_TOKENIZER
from engine.serving.served_pair import Facts
from engine.stats import Baseline, Summary, Tally
from engine.text.tokenizer import NO_SYSTEM, NO_TEMPLATE
from tests.fake_engine import DEFAULT_TEXT, Script, play
from tests.ui.samples import BIG_LIST, NAUGHTY, Reader
from ui.controls import Options
from ui.html import panel, render
from ui.state import LOST_KINDS, About, Block, Conversation, Kind, Phase, Piece, Reply, Turn, advance, begin, progress

ROUND = Round(1, RoundKind.SPECULATIVE, Rule.REJECTION, "ngram", 3, KReason.FIXED, 3, 9, (), (), 0.0, 0.0, 0.0, 0.01)
ICON_TAGS = ("svg", "path", "rect", "circle")
HEAD_TAGS = {"div", "h3", "p", "span", "button", *ICON_TAGS}


@pytest.mark.parametrize("payload", NAUGHTY)
@pytest.mark.parametrize("kind", Kind)
def test_naughty_text_stays_text(payload: str, kind: Kind) -> None:
    for cut in range(1, len(payload)):
        html = render.block(Block(ROUND, (Piece(kind, payload[:cut]), Piece(kind, payload[cut:], prob=0.3))))
        reader = Reader(html)
        assert set(reader.tags) <= {"span", "s"} and set(reader.attributes) <= {"class", "data-i", "style"}
        assert reader.text == payload


@pytest.mark.parametrize("payload", NAUGHTY)
def test_naughty_messages_errors_and_names_stay_text(payload: str) -> None:
    head = Reader(render.turn_head(Turn(2, payload)))
    assert payload in head.text and set(head.tags) <= HEAD_TAGS
    failed = render.turn_foot(Turn(1, "", Reply(Phase.FINISHED, reason=FinishReason.ERROR, message=payload)))
    chip = render.engine_chip(
        Status(State.READY, "ready"), Facts(payload, payload, payload, payload, 2, 10, True, ("none",), 9)
    )
    loading = render.loading_notice(Status(State.FAILED, "load", message=payload))
    special = render.block(Block(ROUND, (Piece(Kind.REJECTED, "", payload),)))
    for html in (failed, chip, loading, special):
        reader = Reader(html)
        assert payload in reader.text
        assert set(reader.tags) <= {"span", "p", "b", "br", "a", *ICON_TAGS, "button"} and not reader.leads_away
        assert not [name for name in reader.attributes if name.startswith("on")]


@pytest.mark.parametrize("line", BIG_LIST)
def test_the_big_list_as_message_and_as_reply(line: str) -> None:
    head = Reader(render.turn_head(Turn(2, line)))
    assert line in head.text and set(head.tags) <= HEAD_TAGS
    pieces = ["a", *line, "z"] * 3
    script = Script(pieces=pieces, wrong=(line, line[: len(line) // 2]), special_end=False)
    reply = advance(Reply(), play(script, DecodingParams(max_new_tokens=4096)))
    everything = Reader("".join(map(render.block, reply.blocks)))
    assert set(everything.tags) <= {"span", "s"} and set(everything.attributes) <= {"class", "data-i", "style"}
    kept = "".join(
        render.piece(piece) for block in reply.blocks for piece in block.pieces if piece.kind not in LOST_KINDS
    )
    assert Reader(kept).text == "".join(pieces) == reply.text


@given(st.lists(st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=8), min_size=1, max_size=30))
def test_spans_joined_are_the_text(pieces: list[str]) -> None:
    reply = advance(Reply(), play(Script(pieces=pieces, special_end=False), DecodingParams()))
    kept = "".join(
        render.piece(piece) for block in reply.blocks for piece in block.pieces if piece.kind not in LOST_KINDS
    )
    assert Reader(kept).text == "".join(pieces)


@pytest.mark.parametrize(
    ("lost", "seen"),
    [("\n", "↵"), (" ", "␣"), ("   ", "␣␣␣"), ("\n  x", "↵  x"), ("\t", "⇥"), (" the", " the"), ("a\u200bb", "a∅b")],
)
def test_invisible_characters_of_lost_tokens_are_marked(lost: str, seen: str) -> None:
    assert Reader(render.piece(Piece(Kind.REJECTED, lost))).text == seen
    assert Reader(render.piece(Piece(Kind.DRAFT, lost))).text == lost


def test_special_tokens_are_labelled_chips_in_both_languages() -> None:
    html = render.piece(Piece(Kind.DRAFT, "", "<|im_end|>"))
    assert "end of turn" in html and "回合结束" in html and "chip" in html and "im_end" not in html
    assert "&lt;|other|&gt;" in render.piece(Piece(Kind.DRAFT, "", "<|other|>"))
    assert Reader(render.piece(Piece(Kind.PLAIN, "<b>", "<|other|>"))).text == "<|other|><b>", (
        "text beside a chip stays"
    )


DEQUANTISED_NOTE = DEQUANTISED.format(name="{m}", origin="GGUF Q4_K_M", here="0.50", there="0.23")
REENCODED_NOTE = CROSS_TOKENIZER.format(drafter="a.b", target="c (d)")


@pytest.mark.parametrize("sentence", [NO_TEMPLATE, NO_SYSTEM, NF4_NOTE, DEQUANTISED_NOTE, REENCODED_NOTE])
def test_what_the_model_lacks_is_said_in_both_languages(sentence: str) -> None:
    html = render.note(Facts("m", "w", "k", "cpu", 2, 10, True, ("none",), 9, note=sentence))
    assert sentence in Reader(html).text and re.search("[\u4e00-\u9fff]", html)


def test_several_notes_stand_on_lines_of_their_own() -> None:
    noted = Facts("m", "w", "k", "cpu", 2, 10, True, ("none",), 9, note=f"{NF4_NOTE}\n{NO_SYSTEM}\n<i>")
    first, second, third = render.note(noted).split("<br>")
    assert NF4_NOTE in Reader(first).text and NO_SYSTEM in Reader(second).text and third == "&lt;i&gt;"


def test_another_note_is_shown_as_it_is_and_none_shows_nothing() -> None:
    noted = Facts("m", "w", "k", "cpu", 2, 10, True, ("none",), 9, note="It <b>hums</b>.")
    assert render.note(noted) == "It &lt;b&gt;hums&lt;/b&gt;."
    assert render.note(replace(noted, note="")) == render.note(None) == ""


def test_a_token_without_text_shows_nothing() -> None:
    assert render.piece(Piece(Kind.DRAFT, "")) == ""


def test_the_pages_frame_holds_nothing_that_gradio_would_evaluate() -> None:
    from ui.layout import _log

    for options in (Options(), Options(lang="zh")):
        assert not re.search(r"\$\{|\{\{|`|\\|@children", _log(options))


def test_figures_before_and_after_measurement() -> None:
    nothing = panel.figures(Reply().tally, Reply().tally)
    assert nothing["spec"] == nothing["plain"] == nothing["speedup"] == nothing["alpha"] == render.DASH
    assert "Nothing measured yet" in nothing["baseline"]
    events = play(Script(text=DEFAULT_TEXT * 3), DecodingParams(probe_every=4))
    early = advance(Reply(), events[:6]).tally
    assert "measuring, 1 of 3" in panel.figures(early, early)["baseline"]
    assert panel.figures(early, early)["plain"] == render.DASH
    done = advance(Reply(), events).tally
    figures = panel.figures(done, done)
    assert (
        figures["plain"] == "100"
        and figures["speedup"].endswith("×")
        and "measured in this reply" in figures["baseline"]
    )
    assert "faster than plain" in figures["verdict"]
    unprobed = advance(Reply(), play(Script(), DecodingParams(probe_every=0))).tally
    assert "switched off" in panel.figures(unprobed, unprobed, probing=False)["baseline"]


@pytest.mark.parametrize(("value", "shown"), [(None, "–"), (0.8, "0.80×"), (1.0, "1.00×"), (2.347, "2.35×")])
def test_speed_ups_are_shown_as_they_are(value: float | None, shown: str) -> None:
    assert render.times(value) == shown


def window(speedup: float, tau: float = 3.0, spread: float = 0.05, n: int = 20) -> Summary:
    return replace(Tally().summary(), speedup=speedup, acceptance_length=tau, baseline=Baseline(n, 100.0, spread))


def test_a_slow_down_is_said_plainly() -> None:
    assert "slower than plain" in panel._verdict(window(0.8))
    assert "same as plain" in panel._verdict(window(1.0))


def test_a_speed_up_that_guessing_cannot_give_is_not_claimed() -> None:
    assert "faster than plain" in panel._verdict(window(2.9))
    assert "machine was busy" in panel._verdict(window(11.8))
    assert "machine was busy" in panel._verdict(window(1.08, tau=1.0)), "no guess was right"
    assert "same as plain" in panel._verdict(window(1.0, tau=0.5))


def test_nothing_is_claimed_within_what_the_samples_scatter() -> None:
    assert "no clear difference" in panel._verdict(window(1.14, spread=0.92, n=8))
    assert "no clear difference" in panel._verdict(window(0.45, spread=0.79, n=4))
    assert "faster than plain" in panel._verdict(window(1.5, spread=0.13, n=35))


def test_bars_share_one_scale() -> None:
    done = advance(Reply(), play(Script(text=DEFAULT_TEXT * 3), DecodingParams(probe_every=4))).tally
    bars = panel.bars(done, done)
    assert max(bars.values()) == 1.0 and 0 < min(bars.values()) < 1.0


@pytest.mark.parametrize("reason", FinishReason)
def test_every_ending_has_its_words(reason: FinishReason) -> None:
    talk = begin(Conversation("c"), "hi")
    reply = progress(talk, 1, play(Script(reason=reason, message="It broke."), DecodingParams())).turns[0].reply
    assert "seed 7" in render.turn_foot(Turn(1, "", reply))


@pytest.mark.parametrize("phase", ["start", "fetch", "unpack", "convert", "load", "warm_up", "ready"])
def test_every_phase_of_loading_has_its_words(phase: str) -> None:
    assert "42 %" in render.loading_notice(Status(State.LOADING, phase, 0.42))
    assert "value" not in render.loading_notice(Status(State.LOADING, phase))


def test_a_drafter_whose_context_is_full_is_named_under_the_reply() -> None:
    events = play(Script(text=DEFAULT_TEXT), DecodingParams())
    last = max(i for i, event in enumerate(events) if isinstance(event, Round))
    words = "outgrew the drafter"
    assert words not in _foot(advance(Reply(), events))
    shortened = replace(events[last], k_reason=KReason.DRAFTER_CONTEXT, k_requested=1)
    assert words not in _foot(advance(Reply(), [*events[:last], shortened, *events[last + 1 :]]))
    full = replace(shortened, k_requested=0)
    assert words in _foot(advance(Reply(), [*events[:last], full, *events[last + 1 :]]))


def _foot(reply: Reply) -> str:
    return render.turn_foot(Turn(1, "hello", reply))


def test_the_figures_of_a_reply_stand_under_it() -> None:
    events = play(Script(text=DEFAULT_TEXT * 3), DecodingParams(probe_every=4))
    reply = advance(Reply(), events)
    about = About("LM", "Q4", "fast <kernel>", "cpu", True, 8192, ("none", "ngram"), DecodingParams())
    said = Reader(render.turn_foot(Turn(1, "hello", reply, about))).text
    own = reply.tally.summary()
    for figure in (f"{own.spec_tok_s:.0f} tokens/s", render.times(own.speedup), f"α {own.alpha:.2f}", "n-gram",
                   f"τ {own.acceptance_length:.2f}", "first token 50 ms", "fast <kernel>", "bit-exact"):  # fmt: skip
        assert figure in said
    plain = Reader(_foot(advance(Reply(), play(Script(), DecodingParams(num_speculative_tokens=0))))).text
    assert "α" not in plain and "plain speed" not in plain and "bit-exact" not in plain, "nothing that was not measured"


def test_a_block_is_one_element_whose_pieces_say_which_they_are() -> None:
    for block in advance(Reply(), play(Script(), DecodingParams(drafter="both"))).blocks:
        html = render.block(block)
        assert html.startswith('<span class="round">') and Reader(html).tags.count("span") >= 1
        assert re.findall(r'data-i="(\d+)"', html) == [
            str(i) for i, piece in enumerate(block.pieces) if render.piece(piece)
        ]
        assert Reader(html).text == Reader("".join(map(render.piece, block.pieces))).text


def test_a_block_that_shows_nothing_keeps_its_place() -> None:
    assert render.block(Block(Finished(FinishReason.STOP, "", ()))) == '<span class="round"></span>'


@pytest.mark.parametrize(
    ("drafters", "asked", "words"),
    [
        (("none", "ngram"), "auto", ["has none yet", "No other model"]),
        (("none", "ngram"), "ngram", ["asked for", "--drafter ngram", "No other model"]),
        (("none", "ngram", "draft_model"), "<b>", ["--drafter <b>"]),
        (("none", "ngram", "head", "both"), "auto", ["No other model"]),
        (("none", "ngram", "head", "both", "draft_model"), "auto", []),
    ],
)
def test_why_a_drafter_is_not_there(drafters: tuple[str, ...], asked: str, words: list[str]) -> None:
    reader = Reader(render.missing_drafters(drafters, asked))
    assert all(part in reader.text for part in words) and bool(words) == bool(reader.text)
    assert ("No other model" in reader.text) == ("draft_model" not in drafters)
    assert ("No trained head" in reader.text) == ("head" not in drafters)
    assert set(reader.tags) <= {"span", "br", "code"}


def shown(events: list[Event]) -> dict[str, str]:
    reply = advance(Reply(), events)
    return panel.figures(reply.tally, reply.tally, course=reply.course)


def test_the_panel_says_that_guessing_is_off_and_stops_saying_so() -> None:
    events = play(Script(text=DEFAULT_TEXT * 2, rests=(10, 20)), DecodingParams())
    at = {event.index: i for i, event in enumerate(events) if isinstance(event, Round)}
    assert shown(events[: at[10]])["rest"] == ""
    resting = shown(events[: at[19] + 1])
    assert "it would be 0.80× here" in resting["rest"] and "只有 0.80×" in resting["rest"]
    assert "guessing off" in resting["line"] and resting["k"] == "0"
    on_again = shown(events[: at[20] + 1])
    assert on_again["rest"] == "" and "guessing off" not in on_again["line"] and on_again["k"] == "3"


@pytest.mark.parametrize(
    ("reason", "predicted", "words"),
    [(KReason.NO_OFFER, None, "nothing here repeats"), (KReason.OFF, None, "it does not pay here")],
)
def test_other_rests_have_their_words(reason: KReason, predicted: float | None, words: str) -> None:
    [first, *_] = [e for e in play(Script(), DecodingParams(num_speculative_tokens=0)) if isinstance(e, Round)]
    idle = replace(first, k_reason=reason, predicted_speedup=predicted)
    assert words in shown([idle] * 5)["rest"]


def test_expected_and_measured_stand_side_by_side() -> None:
    figures = shown(play(Script(text=DEFAULT_TEXT * 3), DecodingParams(probe_every=4)))
    assert figures["expected"] == "1.50×" and figures["speedup"] != render.DASH
    assert float(figures["mean_k"]) > 2 and figures["k"] == "3"
    fixed = shown(play(Script(text=DEFAULT_TEXT * 3), DecodingParams(num_speculative_tokens=3)))
    assert fixed["expected"] == render.DASH, "nothing is expected where nothing is chosen"


def test_acceptance_is_told_apart_where_two_drafters_guessed() -> None:
    two = Reader(shown(play(Script(), DecodingParams(drafter="both")))["by"]).text
    assert "n-gram" in two and "trained head" in two and len(re.findall(r"\d\.\d\d", two)) == 2
    assert shown(play(Script(), DecodingParams(drafter="head")))["by"] == ""
