"""The charts' script in a real browser, with several sections on one page as viewers have them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.ui.page.conftest import PATIENCE_MS
from tests.ui.test_race_charts import race, recording
from ui import bundle as parts
from ui.charts.reply import plotly_script
from ui.examples import ASSETS
from ui.race.charts import NAMES, charts, frame

pytestmark = pytest.mark.browser

CHARTS_MS = 500

SCOPE = """
const root = document.documentElement;
const on = (type, listener) => document.addEventListener(type, listener, true);
const tell = (name) => document.dispatchEvent(new CustomEvent(`greenlight:${name}`));
const mount = new AbortController().signal;
const atStart = () => {};
"""
"""What charts.js finds in the scope that it shares with the rest of the page's script."""

SECTIONS = """
for (const where of ["one", "other"]) {
  const state = window[where] = {moment: "first", asked: [], answering: true};
  const section = document.getElementById(`${where}-charts`);
  Object.assign(state, chartsIn(section, {
    moment: () => state.moment ?? String(Date.now()),
    request: () => { state.asked.push(Date.now()); if (state.answering) setTimeout(() => state.give(made)); },
  }));
}
"""


@pytest.fixture
def sheet(chromium: Any) -> Iterator[Any]:
    """A page with two closed sections; `sheet.scripts` are the requests for Plotly."""
    sheet = chromium.new_context(viewport={"width": 360, "height": 800}).new_page()
    sheet.set_default_timeout(PATIENCE_MS)
    sheet.scripts, errors = [], []
    sheet.on("pageerror", lambda error: errors.append(str(error)))
    head = f'<meta charset="utf-8"><style>{parts.style()}</style>'
    html = f'<!doctype html><html data-lang="en">{head}{frame("one")}{frame("other")}</html>'
    sheet.route("http://sheet.test/", lambda route: route.fulfill(body=html, content_type="text/html"))

    def script(route: Any) -> None:
        sheet.scripts.append(route.request.url)
        route.fulfill(path=plotly_script(), content_type="text/javascript")

    sheet.route("**/plotly.min.js", script)
    sheet.goto("http://sheet.test/")
    source = (ASSETS / "page" / "charts.js").read_text(encoding="utf-8")
    sheet.evaluate("(made) => {" + SCOPE + source + SECTIONS + "}", charts(recording(race(60))))
    yield sheet
    sheet.context.close()
    assert not errors


def open_(sheet: Any, where: str) -> None:
    sheet.evaluate(f"document.getElementById('{where}-charts').open = true")


def drawn(sheet: Any, where: str) -> None:
    for name in NAMES:
        sheet.locator(f"#{where}-{name}").scroll_into_view_if_needed()
        sheet.wait_for_selector(f"#{where}-{name} .plot-container")


def test_sections_share_plotly_and_nothing_else(sheet: Any) -> None:
    sheet.wait_for_timeout(300)
    assert not sheet.scripts and sheet.evaluate("one.asked.length + other.asked.length") == 0, "closed"
    open_(sheet, "one")
    drawn(sheet, "one")
    assert sheet.evaluate("other.asked.length") == 0 and not sheet.locator("#other-charts table").count()
    open_(sheet, "other")
    drawn(sheet, "other")
    assert len(sheet.scripts) == 1
    assert sheet.evaluate("[one.asked.length, other.asked.length]") == [1, 1], (
        "nothing is new, so nothing is asked again"
    )


def test_sections_opened_together_are_both_drawn(sheet: Any) -> None:
    sheet.evaluate("for (const section of document.querySelectorAll('.plots')) section.open = true")
    drawn(sheet, "one")
    drawn(sheet, "other")
    assert len(sheet.scripts) == 1


def test_what_always_changes_is_asked_about_twice_a_second_at_most(sheet: Any) -> None:
    sheet.evaluate("one.moment = null")
    open_(sheet, "one")
    sheet.wait_for_function("one.asked.length >= 4")
    asked = sheet.evaluate("one.asked")
    assert len(asked) <= 2 + (asked[-1] - asked[0]) / CHARTS_MS
    sheet.evaluate("document.getElementById('one-charts').open = false")
    count = sheet.evaluate("one.asked.length")
    sheet.wait_for_timeout(1200)
    assert sheet.evaluate("one.asked.length") == count


def test_nothing_to_ask_about_and_answers_to_others_change_nothing(sheet: Any) -> None:
    sheet.evaluate("one.moment = ''")
    open_(sheet, "one")
    open_(sheet, "other")
    drawn(sheet, "other")
    assert sheet.evaluate("one.asked.length") == 0
    sheet.evaluate("one.give({charts: null})")
    assert not sheet.locator("#one-charts table").count()


def test_a_lost_answer_is_asked_for_again(sheet: Any) -> None:
    sheet.evaluate("one.answering = false")
    open_(sheet, "one")
    sheet.wait_for_function("one.asked.length >= 1")
    sheet.evaluate("one.answering = true")
    drawn(sheet, "one")
    assert sheet.evaluate("one.asked.length") >= 2


USUAL, SPACED = "letter-spacing: normal", "letter-spacing: .12em; word-spacing: .16em"
"""The second is as wide as a reader may set text and still lose nothing (WCAG 2.2, 1.4.12). No usual font is so much
wider than another: what is legible with it is legible in whatever fonts a phone has, or the machine that runs this
test."""


@pytest.mark.parametrize("langs", ["en", "zh", "en zh"])
@pytest.mark.parametrize(("width", "spacing"), [(360, USUAL), (320, SPACED)], ids=["usual", "spaced"])
def test_every_chart_is_legible_on_a_phone(sheet: Any, langs: str, width: int, spacing: str) -> None:
    """Both languages at once are words twice as long as they are."""
    sheet.set_viewport_size({"width": width, "height": 800})
    sheet.add_style_tag(content=f"#one-charts {{ {spacing} }}")
    for hidden in {"en", "zh"} - set(langs.split()):
        sheet.add_style_tag(content=f".{hidden} {{ display: none }}")
    sheet.evaluate("(lang) => document.documentElement.dataset.lang = lang", langs[:2])
    open_(sheet, "one")
    drawn(sheet, "one")
    wide = sheet.evaluate(
        """() => [...document.querySelectorAll('#one-charts, #one-charts *:not(svg *)')]
            .filter((part) => part.scrollWidth > part.clientWidth + 1 && getComputedStyle(part).display !== 'inline')
            .map((part) => part.tagName + '.' + part.className)"""
    )
    assert wide == []
    sizes = sheet.evaluate(
        "() => [...document.querySelectorAll('#one-charts .plot text')].map((one) => "
        "parseFloat(getComputedStyle(one).fontSize))"
    )
    assert sizes and min(sizes) >= 12
