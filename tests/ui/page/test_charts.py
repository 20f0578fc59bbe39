"""The charts in a real browser: drawn from what the server measured, in the page's colours and language, and seldom
asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from tests.fake_engine import FakeEngine, Script
from tests.ui.page.conftest import PATIENCE_MS, Visit
from tests.ui.samples import raced
from ui import bundle
from ui.charts.reply import NAMES, plotly_script
from ui.examples import ASSETS
from ui.race import charts

pytestmark = pytest.mark.browser

SHEET = f'<!doctype html><html data-lang="en"><meta charset="utf-8"><style>{bundle.style()}</style>'
SCRIPT = """(made) => {
  const root = document.documentElement, mount = new AbortController().signal, atStart = () => {};
  const on = (type, listener) => document.addEventListener(type, listener, true);
  const tell = (name) => document.dispatchEvent(new CustomEvent(`greenlight:${name}`));
  %s
  window.made = made;
  for (const where of ["one", "other"]) {
    const state = window[where] = {moment: "first", asked: [], answering: true, section: document.getElementById(`${where}-charts`)};
    Object.assign(state, chartsIn(state.section, {
      moment: () => state.moment ?? String(Date.now()),
      request: () => { state.asked.push(Date.now()); if (state.answering) setTimeout(() => state.give(made)); },
    }));
  }
}"""
"""What charts.js finds in the scope that it shares with the rest of the page's script, and two sections."""

OVERFLOWING = """(place) => [document.documentElement, ...document.querySelectorAll(`${place}, ${place} *:not(svg *)`)]
    .filter((part) => part.scrollWidth > part.clientWidth + 1 && getComputedStyle(part).display !== 'inline')
    .map((part) => part.tagName + '.' + part.className)"""
SMALLEST = """(place) => Math.min(...[...document.querySelectorAll(`${place} .plot text, ${place} td`)]
    .map((one) => parseFloat(getComputedStyle(one).fontSize)))"""
COLOURS = """() => ['path.js-line', '.xtitle'].map((one) => document.querySelector(`[data-chart=speed] ${one}`))
    .map((one, i) => one && getComputedStyle(one)[i ? 'fill' : 'stroke'])"""
LABELS = "() => [...document.querySelectorAll('.charts .plot[role=img]')].map((one) => one.ariaLabel)"
BARE = "() => !document.querySelector('.modebar-btn, .plotlyjsicon') && document.querySelector('.plot')._fullLayout.xaxis.fixedrange"
NO_AXES = """() => [...document.querySelectorAll('#other-charts figure')]
    .every((one) => one.querySelector('.plot').hidden && one.querySelector('.reading').offsetParent)"""
WIDTH = "(figure) => figure.querySelector('.plot-container .main-svg')?.getBoundingClientRect().width"
WITHIN = f"([figure, least, most]) => ((width) => least < width && width <= most)(({WIDTH})(figure))"
PLOTLY = "script[data-plotly]"
TITLE = "[data-chart=speed] .xtitle"


@pytest.fixture
def sheet(chromium: Any) -> Iterator[Any]:
    """A page with two closed sections, as viewers have them."""
    sheet = chromium.new_context(viewport={"width": 360, "height": 800}).new_page()
    sheet.set_default_timeout(PATIENCE_MS)
    errors: list[str] = []
    sheet.on("pageerror", lambda error: errors.append(str(error)))
    html = SHEET + charts.frame("one") + charts.frame("other")
    sheet.route("http://sheet.test/", lambda route: route.fulfill(body=html, content_type="text/html"))
    sheet.route("**/plotly.min.js", lambda route: route.fulfill(path=plotly_script(), content_type="text/javascript"))
    sheet.clock.install()
    sheet.goto("http://sheet.test/")
    source = (ASSETS / "page" / "charts.js").read_text(encoding="utf-8")
    sheet.evaluate(SCRIPT % source, charts.charts(raced(60)))
    yield sheet
    sheet.context.close()
    assert not errors


def drawn(page: Any, section: str, least: float = 0, most: float = 9999) -> None:
    """Each chart is drawn, so wide, once it is in sight."""
    for figure in page.query_selector_all(f"{section} figure"):
        figure.scroll_into_view_if_needed()
        page.wait_for_function(WITHIN, arg=[figure, least, most])


def test_sections_ask_seldom_and_share_nothing_but_plotly(sheet: Any) -> None:
    sheet.clock.run_for(5000)
    assert sheet.evaluate("one.asked.length + other.asked.length") == sheet.locator(PLOTLY).count() == 0, "closed"
    sheet.evaluate("one.moment = ''; one.section.open = other.section.open = true")
    drawn(sheet, "#other-charts")
    sheet.evaluate("one.give({charts: null})")
    assert sheet.evaluate("one.asked.length") == sheet.locator("#one-charts table").count() == 0, (
        "of others, or nothing"
    )

    sheet.evaluate("one.answering = false; one.moment = 'first'")
    sheet.clock.run_for(5000)
    sheet.evaluate("one.answering = true")
    drawn(sheet, "#one-charts")
    assert sheet.locator(PLOTLY).count() == 1
    assert sheet.evaluate("one.asked.length") > 2, "a lost answer is asked for again"
    assert sheet.evaluate("other.asked.length") == 1, "nothing is new, so nothing is asked again"

    sheet.evaluate("one.asked.length = 0; one.moment = null")
    sheet.clock.run_for(10_000)
    asked = sheet.evaluate("one.section.open = false, one.asked")
    assert len(asked) > 10 and min(later - one for one, later in pairwise(asked)) >= 500, "twice a second at most"
    sheet.clock.run_for(5000)
    assert sheet.evaluate("one.asked.length") == len(asked)

    sheet.evaluate("Object.values(made.charts).forEach((one) => { one.figure = null; }), other.moment = 'second'")
    sheet.wait_for_function(NO_AXES)  # but a sentence


def test_charts_of_a_reply(page: Visit, engine: FakeEngine) -> None:
    engine.answer = lambda _: Script(text=" w" * 400)
    shown = page.page
    shown.route("**/plotly.min.js", lambda route: route.abort())
    page.send("hello")
    page.wait_turns(1)
    assert not page.texts(f".charts table, {PLOTLY}"), "nothing is loaded or asked for while closed"
    shown.click(".charts > summary")
    shown.wait_for_selector(".charts .failed")
    shown.wait_for_selector(".charts table")
    assert len(page.texts(".charts table")) == len(NAMES) and not shown.is_visible(".charts .plot"), "without Plotly"
    shown.unroute("**/plotly.min.js")
    shown.click(".charts > summary")
    shown.click(".charts > summary")
    drawn(shown, ".charts")
    assert not shown.is_visible(".charts .failed") and not page.outside
    labels, light = shown.evaluate(LABELS), shown.evaluate(COLOURS)
    assert shown.text_content(TITLE) == "tokens written" and min(map(len, labels)) > 20
    assert shown.evaluate(BARE), "no buttons, and a finger scrolls the page"

    shown.locator(".charts h3").first.scroll_into_view_if_needed()
    for same in ("!==", "==="):
        shown.click("[data-action=theme]")
        shown.wait_for_function(f"(light) => ({COLOURS})().every((one, i) => one && one {same} light[i])", arg=light)
    shown.click("[data-action=language]")
    shown.locator(TITLE, has_text=re.compile("[一-鿿]")).wait_for()
    assert "charts." not in shown.inner_text(".charts")
    assert not set(labels) & set(shown.evaluate(LABELS))

    shown.set_viewport_size({"width": 700, "height": 844})
    shown.click("#gl-panel .fold")
    drawn(shown, ".charts", 450, 700)
    shown.set_viewport_size({"width": 390, "height": 844})
    drawn(shown, ".charts", 240, 390)
    assert shown.evaluate(OVERFLOWING, ".charts") == [] and shown.evaluate(SMALLEST, ".charts") >= 12

    engine.answer = lambda _: Script(text=" again" * 40)
    engine.hold_after = 20
    page.send("more")
    for last in ("–2[0-3]$", "–41$"):  # while it is written, and when it has ended
        shown.locator("[data-chart=speed] tbody tr :first-child", has_text=re.compile(last)).first.wait_for()
        engine.gate.set()


LANGS = {"en": ".zh { display: none }", "zh": ".en { display: none }", "en zh": ""}
USUAL, SPACED = "letter-spacing: normal", "letter-spacing: .12em; word-spacing: .16em"
"""The second is as wide as a reader may set text and still lose nothing (WCAG 2.2, 1.4.12). No usual font is so much
wider than another: what is legible with it is legible in whatever fonts a phone has, or the machine that runs this
test."""


@pytest.mark.slow
@pytest.mark.parametrize("langs", LANGS)
@pytest.mark.parametrize(("width", "spacing"), [(360, USUAL), (320, SPACED)], ids=["usual", "spaced"])
def test_every_chart_is_legible_on_a_phone(sheet: Any, langs: str, width: int, spacing: str) -> None:
    """Both languages at once are words twice as long as they are."""
    sheet.set_viewport_size({"width": width, "height": 800})
    sheet.add_style_tag(content=f"#one-charts {{ {spacing} }} {LANGS[langs]}")
    sheet.evaluate("(lang) => { document.documentElement.dataset.lang = lang; one.section.open = true; }", langs[:2])
    drawn(sheet, "#one-charts")
    assert sheet.evaluate(OVERFLOWING, "#one-charts") == [] and sheet.evaluate(SMALLEST, "#one-charts") >= 12
