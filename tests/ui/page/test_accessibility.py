"""axe-core over every tab and dialog: no serious violation. Once each; other themes, languages and widths with --all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.fake_engine import FakeEngine, Script
from tests.ui.page.conftest import Visit

pytestmark = pytest.mark.browser

MARKDOWN = (
    "# Title\n\nSome *words* and `code`.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n- one\n- two\n\n```python\nx = 1\n```\n"
)
INK = "getComputedStyle(document.querySelector('h1 .en')).color === 'rgb(231, 235, 233)'"


def violations(page: Any) -> list[str]:
    """What axe calls serious or critical, each with the first places where it was found."""
    from axe_playwright_python.sync_playwright import Axe

    return [
        f"{one['id']}: {one['help']} at {node['target']} {node['html'][:200]} {node.get('failureSummary', '')[:300]}"
        for one in Axe().run(page).response["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"][:3]
    ]


def show(page: Any, width: int, theme: str) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.evaluate("""(dark) => { if (document.body.classList.contains('dark') !== dark)
        document.querySelector('[data-action=theme]').click(); }""", theme == "dark")  # fmt: skip
    page.wait_for_function(f"(dark) => ({INK}) === dark", arg=theme == "dark")


def tab(page: Any, name: str, ready: str) -> None:
    page.click(f".tabs [data-tab-link={name}]")
    page.wait_for_selector(ready)


def states(visited: Visit, engine: FakeEngine) -> Iterator[str]:
    """Brings the page into one state after another, and says which."""
    page = visited.page
    yield "empty"
    visited.send("hello")
    visited.wait_turns(1)
    page.click("#gl-settings button >> nth=0")
    for group in ("decoding", "sampling", "limits", "system"):
        page.click(f"#gl-group-{group} > button")
    page.wait_for_selector("#gl-set-system textarea")
    yield "reply and settings"
    page.click("#gl-settings button >> nth=0")
    page.click(".turn .t.rejected >> nth=0")
    page.wait_for_selector(".token-card")
    yield "token card"
    page.keyboard.press("Escape")
    for switch in ("shade", "colours"):
        page.locator(f"[data-switch={switch}]").click()
    page.wait_for_selector(".turn [data-part=prose] pre")
    page.click(".turn [data-action=edit]")
    yield "clean reading, a message edited"
    tab(page, "race", "[data-viewer=race][data-over=yes]")
    page.click("[data-viewer=race] .lane.speculative .t.rejected >> nth=0")
    page.wait_for_selector("[data-viewer=race] [data-slot=round] .pane")
    page.click("[data-viewer=race] .plots summary")
    yield "race"
    tab(page, "inspect", "[data-viewer=inspect] .lane")
    page.click("[data-viewer=inspect] .t.draft >> nth=0")
    page.wait_for_selector("[data-viewer=inspect] [data-slot=round] .pane")
    yield "inspector"
    tab(page, "learn", "[data-lesson=token]")
    for name in ("token", "bound", "verify", "drafters"):
        page.click(f"[data-lesson={name}] [type=submit]")
        page.wait_for_selector(f"[data-lesson={name}][data-running=no]")
    page.check("[name=rule][value=always]")
    page.click("[data-play=rule] [type=submit]")
    page.wait_for_selector("[data-lands=no]")
    yield "learn"
    page.click("#learn-sums [data-term=alpha]")
    page.wait_for_selector("#gl-term[open]")
    yield "glossary entry"
    page.keyboard.press("Escape")
    tab(page, "when", "[data-experiment=rate] [data-slot=seconds]:not(:empty)")
    engine.hold_after = 5
    page.click("[data-experiment=rate] [data-action=lab-run]")
    page.wait_for_function("() => document.querySelector('[data-experiment=rate] progress').value === 4")
    page.click("[data-experiment=k] [data-action=lab-run]")
    page.wait_for_selector("[data-experiment=k] [data-slot=notice]:not(:empty)")
    yield "when, an experiment runs"
    engine.gate.set()
    page.wait_for_selector("[data-experiment=rate][data-running=no]")
    page.locator("[data-part=advise-form] [name=users][value='32']").check(force=True)
    page.wait_for_selector(".decision.no")
    tab(page, "models", "[data-slot=models-presets] td.short")
    page.fill("[data-part=models-form] [name=target]", "no/" + "a-long-name-" * 6)
    page.click("[data-part=models-form] [type=submit]")
    page.wait_for_selector(".report")
    page.click("[data-part=models-form] summary")
    yield "models"


@pytest.fixture
def page(engine: FakeEngine, launch_page: Callable[..., str], visit: Callable[..., Visit]) -> Visit:
    engine.answer = lambda _: Script(text=MARKDOWN)
    return visit(launch_page(engine), reduced_motion="reduce")


MOVES = """() => [...document.querySelectorAll('.gradio-container .contain *')].filter((one) => {
    const style = getComputedStyle(one); return style.transitionDuration !== '0s' || style.animationName !== 'none'; }
).map((one) => one.outerHTML.slice(0, 100))"""


def test_every_tab_and_dialog(page: Visit, engine: FakeEngine) -> None:
    assert page.page.evaluate(MOVES) == [], "less motion is wished"
    assert [(state, one) for state in states(page, engine) for one in violations(page.page)] == []
    page.page.emulate_media(reduced_motion="no-preference")
    assert page.page.evaluate(MOVES) != []


VIEWS = {"en": ((1280, "dark"), (390, "light")), "zh": ((1280, "light"), (390, "dark"))}
"""Every pair of a language, a width and a theme, together with the test above."""


@pytest.mark.slow
@pytest.mark.parametrize("lang", VIEWS)
def test_every_theme_and_width(page: Visit, engine: FakeEngine, lang: str) -> None:
    if lang == "zh":
        page.page.click("[data-action=language]")
    wrong = []
    for state in states(page, engine):
        for width, theme in VIEWS[lang]:
            show(page.page, width, theme)
            wrong += [(state, width, theme, one) for one in violations(page.page)]
        page.page.set_viewport_size({"width": 1280, "height": 800})
    assert wrong == []
