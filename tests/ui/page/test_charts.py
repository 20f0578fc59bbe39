"""The charts in a real browser: drawn from what the server measured, in the page's colours and language, and seldom
asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import pytest

from tests.fake_engine import FakeEngine, Script
from tests.ui.conftest import Standing
from tests.ui.page.conftest import Visit
from ui.charts.reply import NAMES, plotly_script
from ui.controls import Options

pytestmark = pytest.mark.browser

LAUNCH = Callable[..., str]
VISIT = Callable[..., Visit]

CHARTS_MS = 500
OPEN = "document.querySelector('details.charts').open = true"
LINE = "[data-chart=speed] .scatterlayer path.js-line"
OVERFLOWING = """() => [document.documentElement, ...document.querySelectorAll('.charts, .charts *:not(svg *)')]
    .filter((part) => part.scrollWidth > part.clientWidth + 1 && getComputedStyle(part).display !== 'inline')
    .map((part) => part.tagName + '.' + part.className)"""


@pytest.fixture(scope="module")
def standing() -> Iterator[Standing]:
    """An app for this file alone, whose engine has two drafters that propose in turn."""
    words = Script(text="".join(f" w{i}" for i in range(400)))
    made = Standing(lambda: FakeEngine(drafters=("none", "ngram", "head", "both"), answer=lambda _: words))
    yield made
    made.close()


def written(page: Visit) -> Visit:
    """With a finished reply and its charts drawn."""
    page.send("hello")
    page.wait_turns(1)
    page.page.evaluate(OPEN)
    drawn(page)
    return page


def drawn(page: Visit) -> None:
    """Each chart is drawn once it is in sight."""
    for name in NAMES:
        page.page.locator(f"[data-chart={name}]").scroll_into_view_if_needed()
        page.page.wait_for_selector(f"[data-chart={name}] .plot .plot-container")
    page.page.locator(".charts h3").first.scroll_into_view_if_needed()


def colours(page: Visit) -> list[str]:
    """Of a line and of words in a chart."""
    return list(
        page.page.evaluate(
            f"""() => [getComputedStyle(document.querySelector('{LINE}')).stroke,
                getComputedStyle(document.querySelector('[data-chart=speed] .xtitle')).fill]"""
        )
    )


def until_coloured(page: Visit, before: list[str]) -> None:
    page.page.wait_for_function(
        f"(before) => getComputedStyle(document.querySelector('{LINE}')).stroke !== before", arg=before[0]
    )


def test_four_charts_are_drawn_when_the_section_is_opened(page: Visit) -> None:
    scripts: list[str] = []
    page.page.on(
        "request", lambda request: scripts.append(request.url) if plotly_script().name in request.url else None
    )
    page.send("hello")
    page.wait_turns(1)
    assert not scripts and not page.texts(".charts table"), "nothing is loaded or asked for while it is closed"
    page.page.click(".charts > summary")
    drawn(page)
    assert len(scripts) == 1 and len(page.texts(".charts table")) == len(NAMES)
    assert page.page.locator(".charts [data-chart=speed] .xtitle").text_content() == "tokens written"
    for name in NAMES:
        plot = page.page.locator(f"[data-chart={name}] .plot")
        assert plot.get_attribute("role") == "img" and len(plot.get_attribute("aria-label") or "") > 20
    assert "plain" in (page.page.text_content("[data-chart=speed] .legend") or "")
    assert page.page.locator("[data-chart=acceptance] .legend .traces").count() == 2
    assert not page.page.locator(".modebar-btn, .plotlyjsicon").count()
    assert not page.outside


def test_the_tables_are_there_without_plotly(page: Visit) -> None:
    page.page.route("**/plotly.min.js", lambda route: route.abort())
    page.send("hello")
    page.wait_turns(1)
    page.page.evaluate(OPEN)
    page.page.wait_for_selector(".charts table")
    page.page.wait_for_selector(".charts .failed:not([hidden])")
    assert len(page.texts(".charts table")) == len(NAMES) and not page.page.is_visible(".charts .plot")
    page.page.unroute("**/plotly.min.js")
    page.page.click(".charts > summary")
    page.page.click(".charts > summary")
    drawn(page)
    assert not page.page.is_visible(".charts .failed")


def test_charts_follow_the_theme(page: Visit, engine: FakeEngine) -> None:
    light = colours(written(page))
    page.page.click("[data-action=theme]")
    until_coloured(page, light)
    dark = colours(page)
    assert all(one != other for one, other in zip(light, dark, strict=True))
    page.page.click("[data-action=theme]")
    until_coloured(page, dark)
    assert colours(page) == light


def test_charts_follow_the_language(page: Visit) -> None:
    written(page)
    english = page.page.text_content("[data-chart=speed] .xtitle")
    label = page.page.get_attribute("[data-chart=speed] .plot", "aria-label")
    page.page.click("[data-action=language]")
    page.page.wait_for_function(
        "(before) => document.querySelector('[data-chart=speed] .xtitle').textContent !== before", arg=english
    )
    assert re.search(r"[一-鿿]", page.page.text_content("[data-chart=speed] .xtitle") or "")
    assert page.page.get_attribute("[data-chart=speed] .plot", "aria-label") != label
    shown = page.page.inner_text(".charts")
    assert "charts." not in shown and "drafter." not in shown


@pytest.mark.parametrize("width", [390, 1280])
def test_charts_are_legible_on_a_phone(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT, width: int) -> None:
    page = visit(launch_page(engine), viewport={"width": width, "height": 844})
    page.send("hello")
    page.wait_turns(1)
    if page.page.is_visible("#gl-panel .fold"):
        page.page.click("#gl-panel .fold")
    page.page.evaluate(OPEN)
    drawn(page)
    assert page.page.evaluate(OVERFLOWING) == []
    boxes = page.page.evaluate(
        "() => [...document.querySelectorAll('.plot .main-svg:first-child')].map((svg) => "
        "svg.getBoundingClientRect().width)"
    )
    assert all(240 < box <= width for box in boxes)
    sizes = page.page.evaluate(
        "() => [...document.querySelectorAll('.plot text, .charts td')].map((one) => "
        "parseFloat(getComputedStyle(one).fontSize))"
    )
    assert sizes and min(sizes) >= 12
    assert json.loads(
        page.page.evaluate("JSON.stringify(document.querySelector('.plot')._fullLayout.xaxis.fixedrange)")
    )


def test_charts_take_the_width_that_there_is(page: Visit) -> None:
    written(page)
    width = "document.querySelector('.plot .main-svg').getBoundingClientRect().width"
    before = page.page.evaluate(width)
    page.page.set_viewport_size({"width": 700, "height": 800})
    page.page.click("#gl-panel .fold")
    page.page.locator(".plot").first.scroll_into_view_if_needed()  # charts out of sight are left as they are
    page.page.wait_for_function(f"(before) => {width} > before + 50", arg=before)
    assert page.page.evaluate(OVERFLOWING) == []


def test_a_fast_reply_is_asked_about_twice_a_second_at_most(launch_page: LAUNCH, visit: VISIT) -> None:
    words = Script(text="".join(f" w{i}" for i in range(2000)))
    engine = FakeEngine(tok_s=500, answer=lambda _: words)
    page = visit(launch_page(engine, Options(max_new_tokens=2048)))
    asked = moments(page)
    page.page.evaluate(OPEN)
    page.send("hello")
    page.wait_turns(1, "running")
    drawn(page)
    page.wait_turns(1)
    page.page.wait_for_function(
        f"() => document.querySelector('[data-chart=speed]').innerText.includes('{len(page.reply().split())}')"
    )
    count = len(asked)
    assert count >= 2
    assert count <= 2 + (asked[-1] - asked[0]) / CHARTS_MS, "over all of it: a busy browser sends single ones late"
    page.page.wait_for_timeout(1500)
    assert len(asked) <= count + 1, "a reply that has ended is asked about once more, and then no longer"


def moments(page: Visit) -> list[float]:
    """When the page asks for charts, by its own clock, from now on."""
    asked: list[float] = []
    page.page.expose_function("askedForCharts", lambda at: asked.append(at))
    page.page.evaluate(
        """() => { const before = window.fetch; window.fetch = (...args) => {
            if (typeof args[1]?.body === 'string' && args[1].body.includes('"what":"charts"')) askedForCharts(Date.now());
            return before(...args); }; }"""
    )
    return asked


def test_another_conversation_has_its_own_charts(page: Visit, engine: FakeEngine) -> None:
    written(page)
    first = page.page.inner_text("[data-chart=speed] table")
    engine.answer = lambda _: Script(text=" again" * 40)
    page.send("more")
    page.wait_turns(2)
    page.page.wait_for_function(
        "(before) => document.querySelector('[data-chart=speed] table')?.innerText !== before", arg=first
    )


def test_a_reply_without_guesses_has_sentences_in_place_of_empty_axes(launch_page: LAUNCH, visit: VISIT) -> None:
    page = visit(launch_page(FakeEngine(drafters=("none",)), Options(drafter="none")))
    page.send("hello")
    page.wait_turns(1)
    page.page.evaluate(OPEN)
    page.page.locator("[data-chart=time]").scroll_into_view_if_needed()
    page.page.wait_for_selector("[data-chart=time] .plot-container")
    for name in ("acceptance", "lengths"):
        assert not page.page.is_visible(f"[data-chart={name}] .plot")
        assert page.page.is_visible(f"[data-chart={name}] .reading")
