"""A token's card in a real browser: pointer, finger and keys; it disturbs nothing, and nothing in it runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.fake_engine import DEFAULT_TEXT, FakeEngine, Script
from tests.ui.page.conftest import Visit
from tests.ui.page.test_accessibility import violations
from tests.ui.samples import NAUGHTY

pytestmark = pytest.mark.browser

LAUNCH = Callable[..., str]
VISIT = Callable[..., Visit]

CARD = ".token-card:not([hidden])"
SAYS = f"{CARD} .says"


@pytest.fixture
def phone(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> Visit:
    return visit(launch_page(engine), viewport={"width": 390, "height": 844}, has_touch=True, locale="zh-CN")


@pytest.fixture
def open_page(engine: FakeEngine, launch_page: LAUNCH, keep: VISIT) -> Any:
    """A page with a reply, which several tests look at: it has the focus, and nothing is shown, switched on or
    selected."""
    visited = keep(launch_page(engine))
    shown = visited.page
    if not visited.texts(".turn"):
        answered(visited)
    shown.set_viewport_size({"width": 1280, "height": 800})
    if shown.evaluate("() => document.body.classList.contains('dark')"):
        shown.click("[data-action=theme]")
    for switch in ("hide", "shade"):
        shown.uncheck(f"[data-switch={switch}]")
    shown.evaluate("() => { getSelection().removeAllRanges(); document.activeElement.blur(); }")
    shown.fill("#gl-box textarea", "")
    shown.focus(".log")
    shown.keyboard.press("Escape")
    shown.mouse.move(2, 2)
    until_hidden(shown)
    return shown


def answered(visited: Visit, message: str = "hello") -> Any:
    visited.send(message)
    visited.wait_turns(1)
    return visited.page


def until_says(page: Any, words: str) -> None:
    page.wait_for_function(
        "([place, words]) => document.querySelector(place)?.innerText.includes(words)", arg=[SAYS, words]
    )


def until_hidden(page: Any) -> None:
    page.wait_for_selector(".token-card", state="hidden")


def point(page: Any, place: str) -> None:
    """The pointer goes there from outside, so that no card of before is in its way."""
    page.mouse.move(2, 2)
    until_hidden(page)
    page.hover(place)


def told(page: Any) -> str:
    """The token with the outline."""
    return str(page.evaluate("() => document.querySelector('.t.told')?.textContent ?? ''"))


def scrolled(page: Any) -> float:
    return float(page.evaluate("() => document.querySelector('.log').scrollTop"))


def test_the_pointer_shows_the_card_of_every_kind_and_leaving_hides_it(open_page: Any) -> None:
    for kind, words in (("draft", "accepted draft"), ("rejected", "rejected draft"), ("recovered", "in place of a "
                                                                                                   "wrong guess"),
                        ("bonus", "one extra"), ("plain", "first token"), ("chip", "control token"),
                        ("discarded", "never checked")):  # fmt: skip
        point(open_page, f".reply .t.{kind}:not(.ws) >> nth=0")
        until_says(open_page, words)
        assert open_page.locator(".t.told").count() == 1
    open_page.mouse.move(2, 2)
    until_hidden(open_page)
    assert open_page.locator(".t.told").count() == 0


def test_the_card_holds_the_round_with_the_tokens_row_marked(open_page: Any) -> None:
    point(open_page, ".reply .t.rejected >> nth=0")
    until_says(open_page, "rejected draft")
    table = open_page.locator(f"{CARD} tbody tr")
    assert table.count() == 4
    current = open_page.locator(f"{CARD} tr[aria-current]")
    assert current.count() == 1 and re.match(
        r"\s*never\s+0.50.*0.40.*0.80\s+0.30\s+rejected", current.inner_text(), re.DOTALL
    )
    assert "Round 0: K = 3 · automatic" in open_page.inner_text(CARD)


def test_the_pointer_may_go_from_the_token_into_the_card(open_page: Any) -> None:
    point(open_page, ".reply .t.rejected >> nth=0")
    until_says(open_page, "rejected draft")
    open_page.hover(f"{CARD} table")
    open_page.wait_for_timeout(500)  # longer than it would take to go
    assert open_page.is_visible(CARD)


def test_it_stays_inside_the_window_wherever_the_token_is(page: Visit, engine: FakeEngine) -> None:
    engine.answer = lambda _: Script(text=DEFAULT_TEXT * 8)
    open_page = answered(page)
    open_page.set_viewport_size({"width": 900, "height": 500})
    for step in ("End", "Home"):
        open_page.evaluate(
            "(end) => { const log = document.querySelector('.log'); log.scrollTop = end ? 1e6 : 0; }", step == "End"
        )
        seen = open_page.evaluate(
            """() => { const box = document.querySelector('.log').getBoundingClientRect();
                return [...document.querySelectorAll('.reply .t')].map((t, i) => [i, t.getBoundingClientRect()])
                  .filter(([, r]) => r.top >= box.top && r.bottom <= box.bottom && r.width).map(([i]) => i); }"""
        )
        for i in (seen[0], seen[len(seen) // 2], seen[-1]):
            point(open_page, f".reply .t >> nth={i}")
            open_page.wait_for_function("() => document.querySelector('.t.told')")
            open_page.wait_for_selector(CARD)
            box = open_page.locator(CARD).bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= 900 and box["width"] <= 416 + 1
            assert box["y"] >= 0 and box["y"] + box["height"] <= 500


def test_the_keys_go_from_token_to_token_and_the_words_are_spoken(page: Visit) -> None:
    open_page = answered(page)
    open_page.focus(".log")
    pieces = open_page.eval_on_selector_all(".reply .t", "(all) => all.map((one) => one.textContent)")
    seen = []
    for _ in range(12):
        open_page.keyboard.press("ArrowRight")
        seen.append(told(open_page))
    assert seen == pieces[:12], "also over what was struck out"
    open_page.keyboard.press("ArrowLeft")
    assert told(open_page) == pieces[10]
    open_page.wait_for_function(
        "() => document.querySelector('[data-part=card-say]').textContent === document.querySelector('.token-card "
        ".says').innerText"
        " && document.querySelector('[data-part=card-say]').textContent"
    )
    assert open_page.get_attribute("[data-part=card-say]", "aria-live") == "polite"
    assert open_page.evaluate("() => document.activeElement.classList.contains('log')"), "the focus stays where it is"
    outline = open_page.evaluate("() => getComputedStyle(document.querySelector('.t.told')).outline")
    assert "solid" in outline and "0px" not in outline
    open_page.keyboard.press("Escape")
    until_hidden(open_page)
    assert told(open_page) == ""
    open_page.keyboard.press("ArrowRight")
    assert told(open_page) == pieces[11], "it goes on where it was"


def test_the_card_can_take_the_focus_to_be_scrolled_and_gives_it_back(open_page: Any) -> None:
    open_page.keyboard.press("ArrowRight")
    open_page.wait_for_selector(SAYS)
    open_page.focus(".token-card")
    assert open_page.is_visible(CARD)
    open_page.keyboard.press("Escape")
    until_hidden(open_page)
    assert open_page.evaluate("() => document.activeElement.classList.contains('log')")


def test_the_card_and_the_shading_have_no_barriers(open_page: Any) -> None:
    open_page.locator("[data-switch=shade]").evaluate("(box) => box.click()")
    for width in (390, 1280):
        open_page.set_viewport_size({"width": width, "height": 600})
        open_page.focus(".log")
        for _ in range(4):
            open_page.keyboard.press("ArrowRight")
        open_page.wait_for_selector(SAYS)
        assert violations(open_page) == [], width


def test_hidden_guesses_are_stepped_over(open_page: Any) -> None:
    open_page.check("[data-switch=hide]")
    open_page.focus(".log")
    for _ in range(12):
        open_page.keyboard.press("ArrowRight")
        assert told(open_page) and open_page.locator(".t.told:is(.rejected, .discarded)").count() == 0


def test_the_keys_leave_boxes_and_browser_shortcuts_alone(open_page: Any) -> None:
    open_page.fill("#gl-box textarea", "abc")
    open_page.press("#gl-box textarea", "ArrowLeft")
    assert open_page.evaluate("() => document.querySelector('#gl-box textarea').selectionStart") == 2
    open_page.focus(".log")
    open_page.keyboard.press("Shift+ArrowRight")
    open_page.keyboard.press("Control+ArrowRight")
    assert told(open_page) == "" and not open_page.is_visible(CARD)


def test_a_card_while_the_reply_is_written_stays_and_never_scrolls(page: Visit, engine: FakeEngine) -> None:
    engine.answer = lambda _: Script(text=DEFAULT_TEXT * 12)
    engine.hold_after = 500
    page.send("hello")
    open_page = page.page
    open_page.wait_for_function("() => document.querySelectorAll('.reply .t').length > 300")
    assert open_page.evaluate(
        "() => { const log = document.querySelector('.log'); return log.scrollHeight > log.clientHeight + 200; }"
    )
    open_page.evaluate("() => { document.querySelector('.log').scrollTop = 30; }")
    point(open_page, ".reply .t.rejected >> nth=3")
    until_says(open_page, "rejected draft")
    before, word = open_page.locator(".reply .t").count(), open_page.inner_text(CARD)
    engine.gate.set()
    page.wait_turns(1)
    assert open_page.locator(".reply .t").count() > before
    assert scrolled(open_page) == 30 and open_page.inner_text(CARD) == word


def test_a_selection_is_left_alone(open_page: Any) -> None:
    selected = open_page.evaluate(
        "() => { getSelection().selectAllChildren(document.querySelector('.reply .t.draft')); return "
        "getSelection().toString(); }"
    )
    point(open_page, ".reply .t.rejected >> nth=0")
    open_page.wait_for_timeout(400)  # longer than it takes to come
    assert not open_page.is_visible(CARD)
    assert open_page.evaluate("() => getSelection().toString()") == selected != ""
    open_page.evaluate("() => getSelection().removeAllRanges()")
    point(open_page, ".reply .t.recovered >> nth=0")
    until_says(open_page, "in place of a wrong guess")
    open_page.evaluate("() => getSelection().selectAllChildren(document.querySelector('.reply .t.draft'))")
    until_hidden(open_page)


def test_a_card_that_was_seen_is_not_asked_for_again(page: Visit) -> None:
    open_page = answered(page)
    asked: list[str] = []
    open_page.on(
        "request", lambda request: asked.append(request.url) if '"card"' in (request.post_data or "") else None
    )
    kinds = {"rejected": "rejected draft", "recovered": "in place of a wrong guess"}
    for kind, words in kinds.items():
        point(open_page, f".reply .t.{kind} >> nth=0")
        until_says(open_page, words)
    before = len(asked)
    for kind, words in kinds.items():
        point(open_page, f".reply .t.{kind} >> nth=0")
        until_says(open_page, words)
    assert before >= 2 and len(asked) == before


def test_an_answer_that_was_lost_is_asked_for_again(page: Visit) -> None:
    open_page = answered(page)
    dropped: list[str] = []

    def lose(route: Any) -> None:
        if dropped:
            route.continue_()
        else:
            dropped.append(route.request.url)
            route.fulfill(status=200, content_type="application/json", body='{"event_id": null}')

    open_page.route("**/queue/join*", lose)
    open_page.route("**/run/*", lose)
    open_page.route("**/call/*", lose)
    point(open_page, ".reply .t.rejected >> nth=0")
    until_says(open_page, "rejected draft")
    assert dropped


def test_a_tap_shows_a_sheet_in_chinese_and_another_hides_it(phone: Visit) -> None:
    open_page = answered(phone)
    open_page.tap(".reply .t.rejected >> nth=0")
    until_says(open_page, "猜错的草稿")
    assert "第 0 轮：K = 3" in open_page.inner_text(CARD) and "rejected" not in open_page.inner_text(CARD)
    sheet, composer = open_page.locator(CARD).bounding_box(), open_page.locator("#gl-composer").bounding_box()
    assert sheet["x"] == 0 and sheet["width"] == 390
    assert sheet["y"] + sheet["height"] == pytest.approx(composer["y"], abs=1) and sheet["height"] <= 844 / 2 + 1
    assert open_page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    open_page.tap(f"{CARD} .says")
    assert open_page.is_visible(CARD)
    open_page.tap(".reply .t.rejected >> nth=0")
    until_hidden(open_page)
    open_page.tap(".reply .t.rejected >> nth=0")
    until_says(open_page, "猜错的草稿")
    open_page.tap("#gl-meter")
    until_hidden(open_page)


def test_the_card_follows_the_language(page: Visit) -> None:
    open_page = answered(page)
    open_page.focus(".log")
    open_page.keyboard.press("ArrowRight")
    until_says(open_page, "first token of the reply")
    open_page.evaluate("() => document.querySelector('[data-action=language]').dispatchEvent(new Event('x'))")
    open_page.evaluate("() => { document.documentElement.dataset.lang = 'zh'; }")
    until_says(open_page, "回答的第一个")


def test_nothing_in_a_card_runs(page: Visit, engine: FakeEngine, subtests: pytest.Subtests) -> None:
    page.page.evaluate("() => { window.alert = () => { throw new Error('a script ran'); }; }")
    for turn, payload in enumerate((one.replace("\x00", "") for one in NAUGHTY), 1):
        script = Script(pieces=["a", payload, "z"] * 4, wrong=(payload,))
        engine.answer = lambda _, script=script: script
        with subtests.test(payload):
            before = len(page.errors)
            page.send("hello")
            page.wait_turns(turn)
            cards_hold(page.page, turn, payload)
            assert page.errors[before:] == []


def cards_hold(open_page: Any, turn: int, payload: str) -> None:
    """The cards of a turn's tokens show the text and nothing made of it."""
    for kind, words in (("rejected", "rejected draft"), ("draft", "accepted draft"), ("recovered", "in place")):
        point(open_page, f".turn[data-key='{turn}'] .reply .t.{kind} >> nth=0")
        until_says(open_page, words)
        assert open_page.locator(f"{CARD} :is(img, script, [onmouseover])").count() == 0
    assert payload in open_page.evaluate("() => document.querySelector('.token-card').textContent")


def test_no_card_for_a_turn_that_has_gone(page: Visit) -> None:
    open_page = answered(page)
    open_page.focus(".log")
    open_page.keyboard.press("ArrowRight")
    until_says(open_page, "first token")
    open_page.evaluate("() => document.querySelector('#gl-undo').click()")
    page.wait_turns(0)
    until_hidden(open_page)


# -- shading -----------------------------------------------------------------------------------------------------------

MEASURE = """(kinds) => {
  const reply = document.querySelector('.reply');
  const linear = (c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const parse = (said) => { const parts = said.match(/[\\d.]+(e-?\\d+)?/g).map(Number);
    return said.startsWith('rgb') ? [...parts.slice(0, 3).map((c) => c / 255), parts[3] ?? 1] : [...parts.slice(0, 3), parts[3] ?? 1]; };
  const light = (rgb) => 0.2126 * linear(rgb[0]) + 0.7152 * linear(rgb[1]) + 0.0722 * linear(rgb[2]);
  const ground = parse(getComputedStyle(document.body).backgroundColor);
  const over = (top) => top.slice(0, 3).map((c, i) => c * top[3] + ground[i] * (1 - top[3]));
  return kinds.flatMap((kind) => [1, 0.75, 0.5, 0.25, 0].map((p) => {
    const token = document.createElement('span');
    token.className = `t ${kind}`;
    token.style.setProperty('--p', p);
    token.textContent = 'word';
    reply.append(token);
    const style = getComputedStyle(token);
    const [ink, paper] = [light(over(parse(style.color))), light(over(parse(style.backgroundColor)))];
    token.remove();
    return [kind, p, (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05), Math.abs(paper - light(ground))];
  }));
}"""

KINDS = ("draft", "recovered", "bonus", "plain", "rejected", "discarded", "chip plain", "chip draft", "chip rejected")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("shaded", [True, False])
def test_words_are_as_easy_to_read_on_every_ground(open_page: Any, theme: str, shaded: bool) -> None:
    if open_page.evaluate("() => document.body.classList.contains('dark')") != (theme == "dark"):
        open_page.click("[data-action=theme]")
    if shaded:
        open_page.check("[data-switch=shade]")
    measured = open_page.evaluate(MEASURE, list(KINDS))
    assert len(measured) == 5 * len(KINDS)
    assert [(kind, p, round(contrast, 2)) for kind, p, contrast, _ in measured if contrast < 4.5] == []
    if shaded:
        for kind in KINDS:
            grounds = [away for one, _, _, away in measured if one == kind]
            assert grounds == sorted(grounds) and grounds[-1] > grounds[0] + 0.05, "the less likely, the stronger"


def test_shading_explains_itself_only_while_it_is_on(open_page: Any) -> None:
    assert not open_page.is_visible(".scale")
    before = open_page.evaluate("() => getComputedStyle(document.querySelector('.reply .t.plain')).backgroundColor")
    open_page.check("[data-switch=shade]")
    assert open_page.is_visible(".scale") and "surprising" in open_page.inner_text(".scale")
    known = open_page.locator(".reply .t[style*='--p']")
    assert known.count() > 10
    assert before != open_page.evaluate(
        "() => getComputedStyle(document.querySelector('.reply .t.plain')).backgroundColor"
    )
    open_page.uncheck("[data-switch=shade]")
    assert not open_page.is_visible(".scale")
