"""The first minute in a real browser: while the model loads, the first reply, and a model that never comes."""

from __future__ import annotations

import pytest

from engine.serving.engine import State, Status
from engine.text.tokenizer import NO_TEMPLATE
from tests.fake_engine import FakeEngine
from tests.ui.page.conftest import BOX
from tests.ui.page.test_chat import LANGUAGE, LAUNCH, NOTICE, VISIT

WHY = "The model could not be downloaded: connect to the network once, then start Greenlight again."
CHIP = ".chip-engine"
LOOK = """(places) => { const [a, b] = places.map((place) => getComputedStyle(document.querySelector(place)));
    return ['color', 'backgroundColor', 'textDecorationLine'].every((name) => a[name] === b[name]); }"""
BOXES = "(all) => all.map((one) => one.getBoundingClientRect()).map(({left, right, height}) => [left, right, height])"


@pytest.mark.browser
def test_the_first_minute(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    engine.note = NO_TEMPLATE
    engine.state = Status(State.LOADING, "fetch", 0.42)
    page = visit(launch_page(engine))
    page.says(".loading", "42 %", "downloaded once and kept on this computer")
    page.visible(".loading progress[value='0.420']")
    assert page.evaluate("() => document.querySelector('.log').scrollTop") == 0, "it begins at its beginning"
    engine.state = Status(State.LOADING, "warm_up")
    page.says(".loading", "A few rounds are timed")
    page.send("hello")
    page.says(".notice", "Your message is sent")
    page.visible("#gl-stop")
    page.hidden(".loading *")
    engine.state = Status(State.LOADING, "load")
    page.says(CHIP, "Loading")
    assert not engine.asked
    engine.hold_after = 20
    engine.state = Status(State.READY, "ready", 1.0)
    page.begin()
    page.says(CHIP, "bit-exact")  # already while the first reply is written
    page.says("[data-figure=note]", NO_TEMPLATE)
    page.click(LANGUAGE)
    page.says("[data-figure=note]", "对话模板")
    page.click(LANGUAGE)
    engine.gate.set()
    page.wait_turns(1)

    # Two lines beside the first reply say what the colours mean, in the first three chats or until they are done with
    page.says(".first", "the small model guessed it and the big one agreed", "guessed wrong and thrown away")
    for colour, kind in (("green", "draft"), ("red", "rejected")):
        assert page.evaluate(LOOK, [f".first .{colour}", f".reply .t.{kind}"]), "it looks like what it explains"
    page.talk("again")
    seen = []
    for _ in range(4):
        seen.append(page.locator(".first:visible").count())
        page.new()
        page.talk("hello")
    assert seen == [1, 1, 1, 0]
    page.evaluate("() => localStorage.removeItem('greenlight.first')")
    page.new()
    page.talk("hello")
    page.click("[data-action=first-done]")
    page.hidden(".first")
    page.focused(".log")  # the keyboard goes on from here
    page.reload()
    page.wait_turns(1)
    page.new()
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 844})
        boxes = page.eval_on_selector_all(".example", BOXES)
        assert [left >= 0 and right <= width and height >= 44 for left, right, height in boxes] == [True] * 6
    page.focus(".example >> nth=0")
    page.keys("Tab", "Enter")
    page.wait_turns(1)
    page.hidden(".first")
    assert engine.asked[-1].messages[-1].content.startswith("Explain step by step")

    page.new()
    engine.state = Status(State.FAILED, "fetch", message=WHY)
    page.reload()
    error = ".loading .error[role=alert]"
    page.says(error, WHY)
    [[top]] = page.eval_on_selector_all(error, "(all) => all.map((one) => [one.getBoundingClientRect().top])")
    assert 0 <= top < 844, "without scrolling, on a phone"
    page.send("refused")
    page.says(NOTICE, WHY)
    page.says(error, WHY)
    page.holds(BOX, "refused")
    page.visible("#gl-send")
    assert WHY in page.text_content(CHIP) and engine.asked[-1].messages[-1].content != "refused"
