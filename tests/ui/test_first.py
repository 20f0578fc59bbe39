"""The first minute: what loading says, the time left only where it is known, examples as cards, green and red in two
lines."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.serving.engine import State, Status
from tests.fake_engine import FakeEngine
from tests.ui.samples import NAUGHTY, VALUES, Reader, everything, run, said
from ui import examples
from ui.chat.handlers import Handlers
from ui.controls import Options
from ui.eta import ENOUGH_S, Pace
from ui.examples import EXAMPLES
from ui.html import render
from ui.state import Turn
from ui.strings import LANGS

PHASES = ("start", "compile", "fetch", "unpack", "convert", "load", "warm_up", "ready")


def at(share: float | None, phase: str = "fetch") -> Status:
    return Status(State.LOADING, phase, share)


@given(st.floats(1, 600), st.floats(0, 0.8))
def test_a_steady_phase_ends_when_it_was_said_to(whole_s: float, begun: float) -> None:
    pace, said_s = Pace(), []
    for tenth in range(1, 11):
        left_s = pace.left_s(at(begun + (1 - begun) * tenth / 10), whole_s * tenth / 10)
        if left_s is not None:
            said_s.append(left_s)
            assert left_s == pytest.approx(whole_s * (1 - tenth / 10), abs=1e-6 * whole_s)
    assert said_s or whole_s < ENOUGH_S * 2


STEPS = """
0.1 0 ? the beginning
0.9 0.5 ? too early
0.12 2 ? it has hardly moved
0.5 2 ! enough
none 3 ? a phase without shares
0.6 4 ? it begins anew
"""
"""A share done, a time in ENOUGH_S, whether the time left is known, and why."""


def test_nothing_is_said_before_it_is_known() -> None:
    pace = Pace()
    for row in STEPS.strip().splitlines():
        share, at_s, known, why = row.split(maxsplit=3)
        left_s = pace.left_s(at(None if share == "none" else float(share)), float(at_s) * ENOUGH_S)
        assert (left_s is not None) == (known == "!"), why
    assert pace.left_s(at(0.1, "convert"), 99.0) is None and pace.left_s(at(0.05, "convert"), 999.0) is None


def test_each_phase_says_what_is_done_and_the_time_left_is_rounded_up() -> None:
    for left_s, words in ((0.2, "about 5 s left"), (31.0, "about 35 s left"), (90.0, "about 90 s left"), (91.0, "about 2 min left")):  # fmt: skip
        html = render.loading_notice(at(0.4), left_s=left_s)
        assert words in said(html) and "40 %" in said(html) and "大约还要" in said(html, "zh")
    assert "left" not in said(render.loading_notice(at(0.4)))
    for lang in LANGS:
        notices = {said(render.loading_notice(at(None, phase)), lang) for phase in PHASES}
        assert len(notices) == len(PHASES) and all(notices)


def test_the_time_left_reaches_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine(state=at(0.1))
    handlers, clock = Handlers(engine, Options()), [0.0]
    monkeypatch.setattr("ui.chat.handlers.time.monotonic", lambda: clock[0])
    assert "left in this step" not in handlers.sync("")["loading"]
    engine.state, clock[0] = at(0.2), 10.0
    assert "about 80 s left in this step" in handlers.sync("")["loading"]


def test_why_loading_failed_is_in_the_page_and_in_the_header_and_answers_a_message() -> None:
    for payload in NAUGHTY:
        failed = Status(State.FAILED, "fetch", message=payload)
        for html in (render.loading_notice(failed), render.engine_chip(failed, None)):
            assert payload in Reader(html).text and set(Reader(html).tags) <= {"p", "span"}
    engine = FakeEngine(state=Status(State.FAILED, "fetch", message="Connect once, then start again."))
    handlers = Handlers(engine, Options())
    last = run(everything(handlers.send(handlers.sync("")["conversation"], "hello", VALUES)))[-1]
    assert "Connect once, then start again." in last["notice"] and "Your message is kept" in last["notice"]
    assert last["running"] is False and not engine.asked


def test_only_the_first_turn_explains_the_colours() -> None:
    first, second = (render.turn_head(Turn(key, "hi")) for key in (1, 2))
    assert 'class="first"' in first and 'class="first"' not in second and 'data-action="first-done"' in first
    lines = re.search(r'<div class="first"><p>(.*?)</p>', first)
    assert lines and [said(line).split(" ")[0] for line in lines.group(1).split("<br>")] == ["Green", "Red"]


def test_an_example_shows_its_name_how_it_begins_and_what_to_expect() -> None:
    cards = dict(enumerate(re.findall(r"<button.*?</button>", examples.buttons(), re.DOTALL)))
    assert [f'data-example="{index}"' in card for index, card in cards.items()] == [True] * len(EXAMPLES)
    for example, card in zip(EXAMPLES, cards.values(), strict=True):
        for lang, parts in zip(LANGS, ((example.en, example.expect_en), (example.zh, example.expect_zh)), strict=True):
            assert all(part in said(card, lang) for part in (*parts, " ".join(example.prompt.split())[:25]))
