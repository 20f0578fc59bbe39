"""A token's card in a real browser: pointer, finger and keys; it disturbs nothing, and nothing in it runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from tests.fake_engine import DEFAULT_TEXT, FakeEngine, Script
from tests.ui.page.conftest import Visit

pytestmark = pytest.mark.browser

CARD = ".token-card:not([hidden])"
KINDS = {"draft": "accepted draft", "rejected": "rejected draft", "recovered": "in place of a wrong guess", "bonus": "one extra",
         "plain": "first token", "chip": "control token", "discarded": "never checked"}  # fmt: skip
TOLD = "() => document.querySelector('.t.told')?.textContent ?? ''"
SPOKEN = """() => { const said = document.querySelector('[data-part=card-say][aria-live=polite]').textContent;
    return said && said === document.querySelector('.token-card .says').innerText; }"""
SELECT = "() => getSelection().selectAllChildren(document.querySelector('.reply .t.draft'))"
FOCUS = "() => document.activeElement.classList.contains('log')"
OUTLINED = "() => !/none|0px/.test(getComputedStyle(document.querySelector('.t.told')).outline)"
ASKED = """() => { const before = window.fetch; window.asked = 0; window.fetch = (...args) => {
    if (!`${args[1]?.body}`.includes('"card"') || asked++) return before(...args);
    return Promise.resolve(new Response('{"event_id": null}')); }; }"""
"""Counts how often a card is asked for, and loses the first answer."""

SHADE = "() => getComputedStyle(document.querySelector('.reply .t.plain')).backgroundColor"
TOP = "() => document.querySelector('.log').scrollTop"
INSIDE = """() => { const box = document.querySelector('.token-card').getBoundingClientRect();
    return box.x >= 0 && box.right <= innerWidth && box.width <= 417 && box.y >= 0 && box.bottom <= innerHeight; }"""
UNDO = """() => { document.querySelector('#gl-undo').click();
    document.querySelector('.log').dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true})); }"""
"""The card is there again when its turn goes."""

A_SHEET = """() => { const box = document.querySelector('.token-card').getBoundingClientRect();
    const composer = document.getElementById('gl-composer').getBoundingClientRect();
    return box.x === 0 && box.width === innerWidth && box.height <= innerHeight / 2 + 1 && Math.abs(box.bottom - composer.top) <= 1
        && document.documentElement.scrollWidth <= innerWidth; }"""
HOSTILE = "<img src=x onerror=alert(1)></span><script>alert(2)</script>"


def answered(visited: Visit) -> Any:
    visited.send("hello")
    visited.wait_turns(1)
    return visited.page


def until_says(page: Any, words: str) -> None:
    page.locator(f"{CARD} .says", has_text=words).wait_for()


def point(page: Any, place: str) -> None:
    """The pointer goes there from outside, so that no card of before is in its way."""
    page.mouse.move(2, 2)
    page.wait_for_selector(".token-card", state="hidden")
    page.hover(f".reply .t{place}")


def points(page: Any, *kinds: str) -> None:
    for kind in kinds:
        point(page, f".{kind}:not(.ws) >> nth=0")
        until_says(page, KINDS[kind])


def keys(page: Any, *names: str) -> list[str]:
    """The token with the outline after each key."""
    page.focus(".log")
    return [(page.keyboard.press(name), page.evaluate(TOLD))[1] for name in names]


def test_pointer_and_keys(page: Visit, engine: FakeEngine) -> None:
    engine.answer = lambda _: Script(wrong=(" never", " was", HOSTILE))
    shown = answered(page)
    pieces = page.texts(".reply .t")
    shown.evaluate("() => { document.querySelector('.log').scrollTop = 0; }")  # keys begin with the first in sight
    assert keys(shown, *["ArrowRight"] * 12, "ArrowLeft") == [*pieces[:12], pieces[10]], "also over what was struck out"
    shown.wait_for_function(SPOKEN)
    assert shown.evaluate(FOCUS) and shown.evaluate(OUTLINED), "the focus stays where it is"
    assert keys(shown, "Escape", "ArrowRight") == ["", pieces[11]], "it goes on where it was"
    shown.wait_for_selector(CARD)
    shown.focus(".token-card")
    assert shown.is_visible(CARD), "it takes the focus to be scrolled"
    shown.keyboard.press("Escape")
    assert shown.is_hidden(CARD) and shown.evaluate(FOCUS), "and gives it back"
    assert keys(shown, "Shift+ArrowRight", "Control+ArrowRight") == ["", ""], "these are the browser's"
    shown.fill("#gl-box textarea", "abc")
    shown.press("#gl-box textarea", "ArrowLeft")
    assert shown.evaluate("() => document.querySelector('#gl-box textarea').selectionStart") == 2

    shown.evaluate(ASKED)
    points(shown, "chip")
    assert shown.evaluate("asked") > 1, "an answer that was lost is asked for again"
    shown.clock.install()
    shown.hover(f"{CARD} table")
    shown.clock.run_for(5000)  # much longer than it stays without the pointer
    assert shown.is_visible(CARD), "the pointer may go from the token into the card"
    points(shown, *KINDS)
    assert shown.locator(".t.told").count() == 1
    shown.evaluate("asked = 0")
    points(shown, *KINDS, "rejected")
    assert shown.evaluate("asked") == 0, "a card that was seen is not asked for again"
    assert "Round 0: K = 3 · automatic" in shown.inner_text(CARD) and shown.locator(f"{CARD} tbody tr").count() == 4
    [current] = shown.locator(f"{CARD} tr[aria-current]").all_inner_texts()
    assert re.match(r"\s*never\s+0.50.*0.40.*0.80\s+0.30\s+rejected", current, re.DOTALL)
    points(shown, "discarded")
    assert HOSTILE in shown.inner_text(CARD) and shown.locator(f"{CARD} :is(img, script)").count() == 0

    shown.mouse.move(2, 2)
    shown.evaluate(SELECT)
    point(shown, ".rejected >> nth=0")
    shown.clock.run_for(5000)
    assert shown.is_hidden(CARD) and shown.evaluate("() => `${getSelection()}`") != "", "a selection is left alone"
    shown.evaluate("() => getSelection().removeAllRanges()")
    points(shown, "recovered")
    shown.evaluate(SELECT)
    shown.wait_for_selector(CARD, state="hidden")
    assert shown.evaluate(TOLD) == ""
    shown.evaluate("() => getSelection().removeAllRanges()")

    plain = shown.evaluate(SHADE)
    assert shown.is_hidden(".scale")
    shown.check("[data-switch=shade]")
    assert "surprising" in shown.inner_text(".scale") and shown.evaluate(SHADE) != plain
    assert shown.locator(".reply .t[style*='--p']").count() > 10
    shown.check("[data-switch=hide]")
    kept = page.texts(".reply .t:not(.rejected, .discarded)")
    assert keys(shown, *["ArrowLeft"] * 20, *["ArrowRight"] * 12)[20:] == kept[1:13], "hidden guesses are stepped over"
    shown.click("[data-action=language]")
    keys(shown, *["ArrowLeft"] * 12)
    until_says(shown, "回答的第一个")
    shown.evaluate(UNDO)
    page.wait_turns(0)
    shown.wait_for_selector(CARD, state="hidden")


@pytest.mark.slow
def test_the_card_stays_in_the_window_and_never_scrolls_what_is_written(page: Visit, engine: FakeEngine) -> None:
    engine.answer = lambda _: Script(text=DEFAULT_TEXT * 12)
    engine.hold_after = 500
    shown = page.page
    shown.set_viewport_size({"width": 900, "height": 500})
    page.send("hello")
    shown.wait_for_function("() => document.querySelectorAll('.reply .t').length > 300")
    shown.evaluate("() => { document.querySelector('.log').scrollTop = 30; }")
    point(shown, ".rejected >> nth=3")
    until_says(shown, "rejected draft")
    top, count, words = shown.evaluate(TOP), len(page.texts(".reply .t")), shown.inner_text(CARD)
    engine.gate.set()
    page.wait_turns(1)
    assert len(page.texts(".reply .t")) > count and (shown.evaluate(TOP), shown.inner_text(CARD)) == (top, words)
    for i in range(0, 500, 45):
        point(shown, f" >> nth={i}")
        shown.wait_for_selector(CARD)
        assert shown.evaluate(INSIDE), i


@pytest.mark.slow
def test_a_tap_shows_a_sheet_in_chinese_and_another_hides_it(
    engine: FakeEngine, launch_page: Callable[..., str], visit: Callable[..., Visit]
) -> None:
    phone = {"width": 390, "height": 844}
    shown = answered(visit(launch_page(engine), viewport=phone, has_touch=True, locale="zh-CN"))
    token = ".reply .t.rejected >> nth=0"
    for elsewhere in (token, "#gl-meter"):
        shown.tap(token)
        until_says(shown, "猜错的草稿")
        shown.tap(f"{CARD} .says")
        assert "第 0 轮：K = 3" in shown.inner_text(CARD) and "rejected" not in shown.inner_text(CARD)
        assert shown.evaluate(A_SHEET), "as wide as the screen, above the box, at most half as high"
        shown.tap(elsewhere)
        shown.wait_for_selector(CARD, state="hidden")


CONTRASTS = """([dark, shaded, kinds]) => {
  if (document.body.classList.contains('dark') !== dark) document.querySelector('[data-action=theme]').click();
  const shade = document.querySelector('[data-switch=shade]'), reply = document.querySelector('.reply');
  if (shade.checked !== shaded) shade.click();
  const linear = (c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const parse = (said) => { const parts = said.match(/[\\d.]+(e-?\\d+)?/g).map(Number);
    return said.startsWith('rgb') ? [...parts.slice(0, 3).map((c) => c / 255), parts[3] ?? 1] : [...parts.slice(0, 3), parts[3] ?? 1]; };
  const light = (rgb) => 0.2126 * linear(rgb[0]) + 0.7152 * linear(rgb[1]) + 0.0722 * linear(rgb[2]);
  const ground = parse(getComputedStyle(document.body).backgroundColor);
  const over = (top) => top.slice(0, 3).map((c, i) => c * top[3] + ground[i] * (1 - top[3]));
  return kinds.map((kind) => [1, 0.75, 0.5, 0.25, 0].map((p) => {
    const token = document.createElement('span');
    token.className = `t ${kind}`;
    token.style.setProperty('--p', p);
    token.textContent = 'word';
    reply.append(token);
    const style = getComputedStyle(token);
    const [ink, paper] = [light(over(parse(style.color))), light(over(parse(style.backgroundColor)))];
    token.remove();
    return [(Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05), Math.abs(paper - light(ground))];
  }));
}"""


@pytest.mark.slow
def test_words_are_as_easy_to_read_on_every_ground(page: Visit) -> None:
    shown = answered(page)
    kinds = [*KINDS, "chip plain", "chip draft", "chip rejected"]
    for dark, shaded in product((False, True), (False, True)):
        for kind, rows in zip(kinds, shown.evaluate(CONTRASTS, [dark, shaded, kinds]), strict=True):
            contrasts, grounds = zip(*rows, strict=True)
            assert min(contrasts) >= 4.5, (dark, shaded, kind)
            if shaded and kind != "chip":
                assert sorted(grounds) == [*grounds] and grounds[-1] > grounds[0] + 0.05, (
                    "the less likely, the stronger"
                )
