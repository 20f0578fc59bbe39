"""axe-core over the page in its usual states: no serious violation, in both themes, both languages, wide and narrow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.fake_engine import FakeEngine, Script
from tests.ui.page.conftest import Visit

pytestmark = pytest.mark.browser

MARKDOWN = "# Title\n\nSome *words* and `code`.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n- one\n- two\n\n```python\ndef f(x):\n    return x + 1\n```\n"


def violations(page: Any) -> list[str]:
    """What axe calls serious or critical, each with the first place where it was found."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [
        f"{one['id']}: {one['help']} at {node['target']} {node['html'][:200]} {node.get('failureSummary', '')[:300]}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"][:3]
    ]


INK = "getComputedStyle(document.querySelector('h1 .en')).color === 'rgb(231, 235, 233)'"


def barriers(page: Any, *widths: int) -> list[tuple[str, int, str]]:
    """What is wrong with the page as it stands, in both themes and at each width, or at the one it has."""
    found = []
    for width in widths or (page.viewport_size["width"],):
        page.set_viewport_size({"width": width, "height": 800})
        for theme in ("light", "dark"):
            page.evaluate("""(dark) => { if (document.body.classList.contains('dark') !== dark)
                document.querySelector('[data-action=theme]').click(); }""", theme == "dark")  # fmt: skip
            page.wait_for_function(f"(dark) => ({INK}) === dark", arg=theme == "dark")
            found += [(theme, width, one) for one in violations(page)]
    return found


@pytest.fixture
def page(engine: FakeEngine, launch_page: Callable[..., str], visit: Callable[..., Visit]) -> Visit:
    engine.answer = lambda _: Script(text=MARKDOWN)
    return visit(launch_page(engine), reduced_motion="reduce")


WIDTHS = (1280, 390)


def test_the_page_before_and_after_a_reply(page: Visit, engine: FakeEngine) -> None:
    assert barriers(page.page) == []
    page.send("hello")
    page.wait_turns(1)
    assert barriers(page.page) == []
    page.page.click("[data-action=language]")
    page.page.click(".turn [data-action=edit]")
    assert barriers(page.page) == []


MOVING = """() => [...document.querySelectorAll('.gradio-container .contain *')].filter(
    (one) => { const style = getComputedStyle(one); return style.transitionDuration !== '0s' || style.animationName !== 'none'; }
).map((one) => one.outerHTML.slice(0, 100))"""


def test_nothing_moves_for_whom_less_motion_is_wished(page: Visit, engine: FakeEngine) -> None:
    assert page.page.evaluate(MOVING) == []
    page.page.emulate_media(reduced_motion="no-preference")
    assert page.page.evaluate(MOVING) != []


def test_everything_opened(page: Visit, engine: FakeEngine) -> None:
    page.send("hello")
    page.wait_turns(1)
    for switch in ("shade", "colours"):
        page.page.locator(f"[data-switch={switch}]").click()
    page.page.click("#gl-settings button >> nth=0")
    assert barriers(page.page) == []


def test_a_phone(page: Visit, engine: FakeEngine) -> None:
    page.page.set_viewport_size({"width": 390, "height": 800})
    page.send("hello")
    page.wait_turns(1)
    assert barriers(page.page) == []
    page.page.click("[data-action=fold]")
    assert barriers(page.page) == []


def test_the_race_and_the_inspector(page: Visit, engine: FakeEngine) -> None:
    page.page.click(".tabs [data-tab-link=race]")
    page.page.wait_for_selector("[data-viewer=race][data-over=yes]")
    assert barriers(page.page, *WIDTHS) == []
    page.page.click("[data-viewer=race] .lane.speculative .t.rejected >> nth=0")
    page.page.wait_for_selector("[data-viewer=race] [data-slot=round] .pane")
    page.page.click("[data-viewer=race] .plots summary")
    assert barriers(page.page, *WIDTHS) == []
    page.page.click("[data-action=language]")
    page.page.click(".tabs [data-tab-link=inspect]")
    page.page.wait_for_selector("[data-viewer=inspect] .lane")
    page.page.click("[data-viewer=inspect] .t.draft >> nth=0")
    page.page.wait_for_selector("[data-viewer=inspect] [data-slot=round] .pane")
    assert barriers(page.page, *WIDTHS) == []


def test_the_eight_steps_and_the_glossary(page: Visit, engine: FakeEngine) -> None:
    page.page.click(".tabs [data-tab-link=learn]")
    assert barriers(page.page, *WIDTHS) == []
    for name in ("token", "bound", "verify", "drafters"):
        page.page.click(f"[data-lesson={name}] [type=submit]")
        page.page.wait_for_selector(f"[data-lesson={name}][data-running=no]")
    page.page.check("[name=rule][value=always]")
    page.page.click("[data-play=rule] [type=submit]")
    page.page.wait_for_selector("[data-lands=no]")
    page.page.click("#learn-verify [data-action=story]")
    page.page.click("[data-action=language]")
    assert barriers(page.page, *WIDTHS) == []
    page.page.click("#learn-sums [data-term=alpha]")
    page.page.wait_for_selector("#gl-term[open]")
    assert barriers(page.page, *WIDTHS) == []


def test_when_to_use(page: Visit, engine: FakeEngine) -> None:
    page.page.click(".tabs [data-tab-link=when]")
    page.page.wait_for_selector("[data-experiment=rate] [data-slot=seconds]:not(:empty)")
    assert barriers(page.page, *WIDTHS) == []
    engine.hold_after = 5
    page.page.click("[data-experiment=rate] [data-action=lab-run]")
    page.page.wait_for_function("() => document.querySelector('[data-experiment=rate] progress').value === 4")
    page.page.click("[data-experiment=k] [data-action=lab-run]")
    assert barriers(page.page, *WIDTHS) == []
    engine.gate.set()
    page.page.wait_for_selector("[data-experiment=rate][data-running=no]")
    page.page.locator("[data-part=advise-form] [name=users][value='32']").check(force=True)
    page.page.wait_for_selector(".decision.no")
    page.page.click("[data-action=language]")
    assert barriers(page.page, *WIDTHS) == []
