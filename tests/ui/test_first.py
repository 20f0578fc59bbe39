"""The first minute: what loading says, the time left only where it is known, examples as cards, green and red in two
lines."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.serving.engine import State, Status
from tests.fake_engine import FakeEngine
from tests.ui.samples import NAUGHTY, Reader, said
from ui import examples
from ui.chat.handlers import Handlers
from ui.controls import TABLE, Options
from ui.eta import ENOUGH, ENOUGH_S, Pace
from ui.examples import EXAMPLES
from ui.html import render
from ui.state import Turn
from ui.strings import LANGS

PHASES = ("start", "compile", "fetch", "unpack", "convert", "load", "warm_up", "ready")


def at(share: float | None, phase: str = "fetch") -> Status:
    return Status(State.LOADING, phase, share)


@given(st.floats(1, 600), st.floats(0, 0.8))
def test_a_steady_phase_ends_when_it_was_said_to(whole_s: float, begun: float) -> None:
    pace = Pace()
    for tenth in range(1, 11):
        share = begun + (1 - begun) * tenth / 10
        left_s = pace.left_s(at(share), whole_s * tenth / 10)
        if left_s is not None:
            assert left_s == pytest.approx(whole_s * (1 - tenth / 10), abs=1e-6 * whole_s)


def test_nothing_is_said_before_it_is_known() -> None:
    pace = Pace()
    assert pace.left_s(at(0.1), 0.0) is None
    assert pace.left_s(at(0.9), ENOUGH_S / 2) is None, "too early"
    assert pace.left_s(at(0.1 + ENOUGH / 2), ENOUGH_S * 2) is None, "it has hardly moved"
    assert pace.left_s(at(0.5), ENOUGH_S * 2) is not None
    assert pace.left_s(at(None), ENOUGH_S * 3) is None, "a phase without shares"
    assert pace.left_s(at(0.6), ENOUGH_S * 4) is None, "it begins anew"
    assert pace.left_s(at(0.1, "convert"), 99.0) is None and pace.left_s(at(0.05, "convert"), 999.0) is None


@pytest.mark.parametrize(
    ("left_s", "words"),
    [(0.2, "about 5 s left"), (31.0, "about 35 s left"), (90.0, "about 90 s left"), (91.0, "about 2 min left")],
)
def test_the_time_left_is_rounded_up(left_s: float, words: str) -> None:
    html = render.loading_notice(at(0.4), left_s=left_s)
    assert words in said(html) and "40 %" in said(html) and "大约还要" in said(html, "zh")
    assert "left" not in said(render.loading_notice(at(0.4)))


@pytest.mark.parametrize("lang", LANGS)
@pytest.mark.parametrize("phase", PHASES)
def test_every_phase_says_what_is_done_and_why(phase: str, lang: str) -> None:
    waiting = said(render.loading_notice(at(None, phase)), lang)  # type: ignore[arg-type]
    others = {said(render.loading_notice(at(None, other)), lang) for other in PHASES if other != phase}  # type: ignore[arg-type]
    assert waiting and waiting not in others


@pytest.mark.parametrize("payload", NAUGHTY)
def test_why_loading_failed_is_in_the_page_and_in_the_header(payload: str) -> None:
    failed = Status(State.FAILED, "fetch", message=payload)
    for html in (render.loading_notice(failed), render.engine_chip(failed, None)):
        assert payload in Reader(html).text and set(Reader(html).tags) <= {"p", "span"}


@pytest.mark.parametrize("waited", [False, True])
def test_a_message_to_a_model_that_failed_is_answered_with_why(waited: bool) -> None:
    engine = FakeEngine()
    failed = Status(State.FAILED, "fetch", message="Connect once, then start again.")
    engine.state = at(0.5) if waited else failed

    async def send() -> list[dict[str, object]]:
        handlers = Handlers(engine, Options())
        patches = []
        async for patch in handlers.send(
            handlers.sync("")["conversation"], "hello", [control.default for control in TABLE]
        ):
            patches.append(patch)
            engine.state = failed
        return patches

    last = asyncio.run(asyncio.wait_for(send(), 60))[-1]
    assert "Connect once, then start again." in str(last["notice"]) and "Your message is kept" in str(last["notice"])
    assert last["running"] is False and not engine.asked


def test_only_the_first_turn_explains_the_colours() -> None:
    first, second = (render.turn_head(Turn(key, "hi")) for key in (1, 2))
    assert 'class="first"' in first and 'class="first"' not in second
    lines = re.search(r'<div class="first"><p>(.*?)</p>', first)
    assert lines and [said(line).split(" ")[0] for line in lines.group(1).split("<br>")] == ["Green", "Red"]
    assert 'data-action="first-done"' in first


def test_an_example_shows_its_name_how_it_begins_and_what_to_expect() -> None:
    html = examples.buttons()
    cards = re.findall(r"<button.*?</button>", html, re.DOTALL)
    assert len(cards) == len(EXAMPLES)
    shown = {int(re.findall(r'data-example="(\d+)"', card)[0]): card for card in cards}
    for index, example in enumerate(EXAMPLES):
        for lang, name, expect in (("en", example.en, example.expect_en), ("zh", example.zh, example.expect_zh)):
            words = said(shown[index], lang)  # type: ignore[arg-type]
            assert name in words and expect in words and " ".join(example.prompt.split())[:25] in words
        assert "!" not in example.expect_en and "！" not in example.expect_zh


def test_the_time_left_reaches_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine(state=at(0.1))
    handlers = Handlers(engine, Options())
    clock: list[float] = [0.0]
    tick: Callable[[], float] = lambda: clock[0]  # noqa: E731
    monkeypatch.setattr("ui.chat.handlers.time.monotonic", tick)
    assert "left in this step" not in handlers.sync("")["loading"]
    engine.state, clock[0] = at(0.2), 10.0
    assert "about 80 s left in this step" in handlers.sync("")["loading"]
