"""The first minute in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.serving.engine import State, Status
from tests.fake_engine import FakeEngine
from tests.ui.page.conftest import Visit

pytestmark = pytest.mark.browser

LAUNCH = Callable[..., str]
VISIT = Callable[..., Visit]

WHY = "The model could not be downloaded: connect to the network once, then start Greenlight again."


def new_chat(visited: Visit) -> None:
    visited.page.click("[data-action=chat-new]:visible >> nth=0")
    visited.wait_turns(0)
    visited.page.wait_for_selector(".empty .blank", state="visible")


def until_loading_says(page: Any, words: str) -> None:
    page.wait_for_function("(words) => document.querySelector('.loading')?.innerText.includes(words)", arg=words)


def test_two_lines_stand_beside_the_first_reply_until_they_are_known(
    engine: FakeEngine, launch_page: LAUNCH, visit: VISIT
) -> None:
    visited = visit(launch_page(engine))
    visited.send("hello")
    visited.wait_turns(1)
    assert visited.page.inner_text(".first").split("\n")[:2] == [
        "Green the small model guessed it and the big one agreed: almost free.",
        "Red guessed wrong and thrown away. It is no part of the answer.",
    ]
    for colour, kind in (("green", "draft"), ("red", "rejected")):
        assert visited.page.evaluate(
            """([colour, kind]) => { const [a, b] = [document.querySelector(`.first .${colour}`), document.querySelector(`.reply .t.${kind}`)]
                 .map((one) => getComputedStyle(one)); return a.color === b.color && a.backgroundColor === b.backgroundColor
                 && a.textDecorationLine === b.textDecorationLine; }""",
            [colour, kind],
        ), "it looks like what it explains"
    visited.send("again")
    visited.wait_turns(2)
    assert visited.page.locator(".first:visible").count() == 1
    visited.page.click("[data-action=first-done]")
    assert visited.page.locator(".first:visible").count() == 0
    assert visited.page.evaluate("() => document.activeElement.classList.contains('log')")
    visited.page.reload()
    visited.wait_turns(2)
    assert visited.page.locator(".first:visible").count() == 0
    new_chat(visited)
    visited.send("hello")
    visited.wait_turns(1)
    assert visited.page.locator(".first:visible").count() == 0


def test_after_three_chats_they_go_by_themselves(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    visited = visit(launch_page(engine))
    seen = []
    for _ in range(4):
        visited.send("hello")
        visited.wait_turns(1)
        seen.append(visited.page.locator(".first:visible").count())
        new_chat(visited)
    assert seen == [1, 1, 1, 0]


def test_while_the_model_loads_the_page_says_what_is_done_and_can_be_used(
    engine: FakeEngine, launch_page: LAUNCH, visit: VISIT
) -> None:
    engine.state = Status(State.LOADING, "fetch", 0.42)
    early = visit(launch_page(engine)).page
    until_loading_says(early, "downloaded once and kept on this computer")
    assert early.evaluate("() => document.querySelector('.log').scrollTop") == 0, "it begins at its beginning"
    assert early.locator(".loading progress").get_attribute("value") == "0.420"
    assert early.is_enabled("#gl-box textarea") and early.is_enabled("#gl-send")
    engine.state = Status(State.LOADING, "warm_up")
    until_loading_says(early, "A few rounds are timed")
    engine.state = Status(State.READY, "ready", 1.0)
    early.wait_for_function("() => !document.querySelector('.loading').innerText")


def test_a_model_that_failed_says_so_for_as_long_as_it_takes(
    engine: FakeEngine, launch_page: LAUNCH, visit: VISIT
) -> None:
    engine.state = Status(State.FAILED, "fetch", message=WHY)
    failed = visit(launch_page(engine), viewport={"width": 390, "height": 844})
    until_loading_says(failed.page, WHY)
    notice = failed.page.locator(".loading .error")
    assert notice.is_visible() and notice.get_attribute("role") == "alert"
    top = failed.page.evaluate("() => document.querySelector('.loading .error').getBoundingClientRect().top")
    assert 0 <= top < 844, "without scrolling"
    failed.send("hello")
    failed.page.wait_for_function(
        "(why) => document.querySelector('[data-part=notice]').innerText.includes(why)", arg=WHY
    )
    assert failed.page.input_value("#gl-box textarea") == "hello" and failed.page.is_visible("#gl-send")
    assert notice.is_visible() and not engine.asked
    failed.page.hover(".chip-engine")
    assert WHY in failed.page.inner_text(".chip-engine")


@pytest.mark.parametrize("width", [390, 1280])
def test_an_example_is_a_card_that_the_keyboard_can_choose(
    engine: FakeEngine, launch_page: LAUNCH, visit: VISIT, width: int
) -> None:
    visited = visit(launch_page(engine), viewport={"width": width, "height": 844})
    cards = visited.page.locator(".example")
    assert cards.count() == 6
    boxes = [cards.nth(i).bounding_box() for i in range(6)]
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= width and box["height"] >= 44 for box in boxes)
    visited.page.focus(".example >> nth=0")
    visited.page.keyboard.press("Tab")
    visited.page.keyboard.press("Enter")
    visited.wait_turns(1)
    assert engine.asked[0].messages[-1].content.startswith("Explain step by step")
