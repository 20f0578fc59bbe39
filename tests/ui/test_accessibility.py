"""axe-core over the page in its usual states: no serious violation, in both themes, both languages, wide and narrow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.fake_engine import FakeEngine, Script
from tests.ui.conftest import Visit

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


@pytest.fixture(params=["light", "dark"])
def page(engine: FakeEngine, launch_page: Callable[..., str], visit: Callable[..., Visit], request: Any) -> Visit:
    engine.answer = lambda _: Script(text=MARKDOWN)
    opened = visit(launch_page(engine), reduced_motion="reduce")
    if request.param == "dark":
        opened.page.click("[data-action=theme]")
        opened.page.wait_for_function(
            "() => getComputedStyle(document.querySelector('h1 .en')).color === 'rgb(231, 235, 233)'"
        )
    return opened


def test_the_page_before_and_after_a_reply(page: Visit, engine: FakeEngine) -> None:
    assert violations(page.page) == []
    page.send("hello")
    page.wait_turns(1)
    assert violations(page.page) == []
    page.page.click("[data-action=language]")
    page.page.click(".turn [data-action=edit]")
    assert violations(page.page) == []


def test_everything_opened(page: Visit, engine: FakeEngine) -> None:
    page.send("hello")
    page.wait_turns(1)
    for switch in ("shade", "colours"):
        page.page.locator(f"[data-switch={switch}]").click()
    page.page.click("#gl-settings button >> nth=0")
    assert violations(page.page) == []


def test_a_phone(page: Visit, engine: FakeEngine) -> None:
    page.page.set_viewport_size({"width": 390, "height": 800})
    page.send("hello")
    page.wait_turns(1)
    assert violations(page.page) == []
    page.page.click("[data-action=fold]")
    assert violations(page.page) == []


@pytest.mark.parametrize("width", [1280, 390])
def test_the_race_and_the_inspector(page: Visit, engine: FakeEngine, width: int) -> None:
    page.page.set_viewport_size({"width": width, "height": 800})
    page.page.click(".tabs [data-tab-link=race]")
    page.page.wait_for_selector("[data-viewer=race][data-over=yes]")
    assert violations(page.page) == []
    page.page.click("[data-viewer=race] .lane.speculative .t.rejected >> nth=0")
    page.page.wait_for_selector("[data-viewer=race] [data-slot=round] .pane")
    page.page.click("[data-viewer=race] .plots summary")
    assert violations(page.page) == []
    page.page.click("[data-action=language]")
    page.page.click(".tabs [data-tab-link=inspect]")
    page.page.wait_for_selector("[data-viewer=inspect] .lane")
    page.page.click("[data-viewer=inspect] .t.draft >> nth=0")
    page.page.wait_for_selector("[data-viewer=inspect] [data-slot=round] .pane")
    assert violations(page.page) == []


@pytest.mark.parametrize("width", [1280, 390])
def test_the_eight_steps_and_the_glossary(page: Visit, engine: FakeEngine, width: int) -> None:
    page.page.set_viewport_size({"width": width, "height": 800})
    page.page.click(".tabs [data-tab-link=learn]")
    assert violations(page.page) == []
    for name in ("token", "bound", "verify", "drafters"):
        page.page.click(f"[data-lesson={name}] [type=submit]")
        page.page.wait_for_selector(f"[data-lesson={name}][data-running=no]")
    page.page.check("[name=rule][value=always]")
    page.page.click("[data-play=rule] [type=submit]")
    page.page.wait_for_selector("[data-lands=no]")
    page.page.click("#learn-verify [data-action=story]")
    page.page.click("[data-action=language]")
    assert violations(page.page) == []
    page.page.click("#learn-sums [data-term=alpha]")
    page.page.wait_for_selector("#gl-term[open]")
    assert violations(page.page) == []


@pytest.mark.parametrize("width", [1280, 390])
def test_when_to_use(page: Visit, engine: FakeEngine, width: int) -> None:
    page.page.set_viewport_size({"width": width, "height": 800})
    page.page.click(".tabs [data-tab-link=when]")
    page.page.wait_for_selector("[data-experiment=rate] [data-slot=seconds]:not(:empty)")
    assert violations(page.page) == []
    engine.hold_after = 5
    page.page.click("[data-experiment=rate] [data-action=lab-run]")
    page.page.wait_for_function("() => document.querySelector('[data-experiment=rate] progress').value === 4")
    page.page.click("[data-experiment=k] [data-action=lab-run]")
    assert violations(page.page) == []
    engine.gate.set()
    page.page.wait_for_selector("[data-experiment=rate][data-running=no]")
    page.page.locator("[data-part=advise-form] [name=users][value='32']").check(force=True)
    page.page.wait_for_selector(".decision.no")
    page.page.click("[data-action=language]")
    assert violations(page.page) == []
