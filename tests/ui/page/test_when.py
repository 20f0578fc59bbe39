"""The tab "When to use" in a real browser, over the scripted engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from engine.lab import ExperimentName, records
from engine.serving.engine import State, Status
from tests.fake_engine import FakeEngine, measured
from tests.ui.conftest import Standing, until
from tests.ui.page.conftest import Visit
from ui.controls import Options
from ui.when import page as module

pytestmark = pytest.mark.browser

LAUNCH = Callable[..., str]
VISIT = Callable[..., Visit]


@pytest.fixture(scope="module")
def standing() -> Iterator[Standing]:
    """An app for this file alone, which knows a made-up reference machine."""
    known = {
        name: replace(measured(name), machine=(("processor", "Reference CPU"), ("threads", "2")))
        for name in ExperimentName
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "reference", lambda: known)
        made = Standing()
        yield made
        made.close()


@pytest.fixture
def when(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> Visit:
    return opened(visit(launch_page(engine) + "?tab=when"))


def opened(page: Visit) -> Visit:
    page.page.wait_for_selector("[data-experiment=rate] [data-slot=seconds]:not(:empty)")
    return page


def of(name: str, what: str = "") -> str:
    return f"[data-experiment={name}] {what}"


def says(page: Visit, name: str, slot: str = "says") -> str:
    return str(page.page.inner_text(of(name, f"[data-slot={slot}]")))


def start(page: Visit, name: str) -> None:
    page.page.click(of(name, "[data-action=lab-run]"))


def over(page: Visit, name: str) -> None:
    page.page.wait_for_selector(f"[data-experiment={name}][data-running=no]")


def hold(page: Visit, engine: FakeEngine, name: str = "rate", done: int = 7) -> None:
    """Start an experiment, which shows some points and waits."""
    engine.hold_after = done + 1
    start(page, name)
    page.page.wait_for_function(
        "([place, done]) => document.querySelector(place)?.value === done", arg=[of(name, "progress"), done]
    )


def answer(page: Visit, field: str, value: str, decision: str = "yes") -> None:
    page.page.locator(f"[data-part=advise-form] [name={field}][value='{value}']").check(force=True)
    page.page.wait_for_selector(f".decision.{decision}")


def focused(page: Visit) -> str:
    return str(page.page.evaluate("() => document.activeElement.dataset.action"))


def test_advice_and_experiments(when: Visit, engine: FakeEngine, tmp_path: Path) -> None:
    for name in ExperimentName:
        assert all(part in says(when, name, "source") for part in ("Reference machine", "Reference CPU", "2025-01-02"))
        assert says(when, name) and when.page.locator(of(name, "table")).count() >= 1
    assert "about 6.1 users" in says(when, "rate")
    when.page.locator(of("rate", ".plot")).first.scroll_into_view_if_needed()
    when.page.wait_for_selector(of("rate", ".plot .main-svg"), state="attached")
    assert "about 6.1 users" in str(when.page.get_attribute(of("rate", ".plot"), "aria-label"))

    assert "Yes, speculate." in when.page.inner_text("[data-slot=advice]")
    answer(when, "users", "32", "no")
    assert "reference machine" in when.page.inner_text(".reasons")
    assert "--speculative-config" not in when.page.inner_text("[data-slot=advice]")
    answer(when, "users", "1")
    answer(when, "kind", "copy")
    when.page.wait_for_selector(".advice pre:has-text('ngram')")

    before = says(when, "rate"), says(when, "rate", "source"), when.page.inner_text(of("rate", "table"))
    hold(when, engine)
    assert "7 of 18 measurements" in says(when, "rate", "left") and "left" in says(when, "rate", "left")
    assert says(when, "rate") == "" and "No conclusion yet" in says(when, "rate", "source")
    when.page.wait_for_function(
        "(place) => document.querySelectorAll(place).length === 6", arg=of("rate", "figure:first-of-type tbody tr")
    )
    start(when, "k")
    when.page.wait_for_selector(of("k", "[data-slot=notice]:has-text('is running')"))
    assert len(engine.experimented) == 1
    when.page.click(of("rate", "[data-action=lab-stop]"))
    over(when, "rate")
    assert "nothing of it was kept" in says(when, "rate", "notice") and engine.experimented[0].reports.cancelled
    when.page.wait_for_function(
        "([place, was]) => document.querySelector(place).innerText === was", arg=[of("rate", "table"), before[2]]
    )
    assert (says(when, "rate"), says(when, "rate", "source")) == before[:2], "the earlier result is back"

    engine.hold_after = 3
    when.page.focus(of("rate", "[data-action=lab-run]"))
    when.page.keyboard.press("Enter")
    when.page.wait_for_function("() => document.activeElement.dataset.action === 'lab-stop'")
    engine.gate.set()
    over(when, "rate")
    assert focused(when) == "lab-run", "the button that goes leaves the keyboard on the other"
    assert "measured for you" in says(when, "rate", "source") and "FakeCPU" in says(when, "rate", "source")
    assert "about 6.1 users" in says(when, "rate") and when.page.is_hidden(of("rate", "[data-slot=going]"))
    when.page.wait_for_selector(".reasons:has-text('measured here')")
    for form in ("csv", "json"):
        with when.page.expect_download() as download:
            when.page.click(of("rate", f"[data-form={form}]"))
        assert download.value.suggested_filename == f"greenlight rate 2025-01-02.{form}"
        download.value.save_as(tmp_path / form)
    assert records.loads((tmp_path / "json").read_text("utf-8")) == (measured(ExperimentName.RATE),)
    assert (tmp_path / "csv").read_text("utf-8").startswith("experiment,series,x,")

    answer(when, "users", "16", "no")
    when.page.reload()
    opened(when)
    when.page.wait_for_selector(of("rate", "[data-slot=source]:has-text('FakeCPU')"))
    assert when.page.is_checked("[name=users][value='16']")


@pytest.mark.slow
def test_what_goes_wrong_is_said(when: Visit, engine: FakeEngine) -> None:
    engine.state = Status(State.FAILED, "load", message="No model was found.")
    start(when, "rows")
    when.page.wait_for_selector(of("rows", "[data-slot=notice]:has-text('No model was found.')"))
    over(when, "rows")
    engine.state = Status(State.LOADING, "load", 0.5)
    start(when, "rows")
    when.page.wait_for_selector(of("rows", "[data-slot=notice] progress"))
    engine.state = Status(State.READY, "ready")
    over(when, "rows")
    assert "measured for you" in says(when, "rows", "source") and says(when, "rows", "notice") == ""
    engine.experiment_fails = "The memory was used up: close other programs."
    start(when, "rate")
    over(when, "rate")
    assert "The memory was used up" in says(when, "rate", "notice") and "Reference CPU" in says(when, "rate", "source")
    engine.experiment_fails = ""
    hold(when, engine)
    when.page.goto("about:blank")
    until(lambda: engine.experimented[-1].reports.cancelled)


@pytest.mark.slow
def test_by_keyboard_to_a_prompt_of_ones_own_and_a_command(when: Visit, engine: FakeEngine) -> None:
    when.page.focus("[name=users]:checked")
    for _ in range(5):
        when.page.keyboard.press("ArrowRight")
    assert when.page.is_checked("[name=users][value='32']")
    when.page.wait_for_selector(".decision.no")
    when.page.click("[data-slot=rules] [data-lab-link=rows]")
    assert when.page.evaluate("() => document.activeElement.dataset.experiment") == "rows"
    assert when.page.locator(of("rows", "h4")).bounding_box()["y"] < 400
    when.page.keyboard.press("Tab")
    assert focused(when) == "lab-run"
    when.page.fill(of("k", "[data-part=lab-prompt]"), "Write a haiku.")
    start(when, "k")
    over(when, "k")
    assert engine.experimented[0].prompts == ("Write a haiku.",)
    answer(when, "users", "1")
    when.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    when.page.click("[data-action=copy-command] >> nth=0")
    when.page.wait_for_selector("[data-action=copy-command][data-done]")
    copied = str(when.page.evaluate("() => navigator.clipboard.readText()"))
    assert json.loads(copied.partition("'")[2].rpartition("'")[0])["method"] == "eagle3"
    levels = when.page.eval_on_selector_all(
        ".view.when :is(h2,h3,h4,h5)", "(all) => all.map((one) => Number(one.tagName[1]))"
    )
    assert levels[0] == 2 and all(after <= before + 1 for before, after in pairwise(levels))


@pytest.mark.slow
def test_in_chinese_on_a_phone(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    page = opened(visit(launch_page(engine, Options(lang="zh")) + "?tab=when", viewport={"width": 390, "height": 844}))
    start(page, "rate")
    over(page, "rate")
    shown = page.page.inner_text(".view.when")
    assert "大约到 6.1 个用户" in shown and "这台机器，刚为你测的" in shown
    assert "Measure" not in shown and "users" not in shown
    wide = page.page.evaluate(
        """() => [document.documentElement, document.querySelector('#gl-when')].map((n) => n.scrollWidth - n.clientWidth)
             .concat([...document.querySelectorAll('.view.when table')].map(
               (one) => Math.max(0, Math.floor(one.getBoundingClientRect().right - innerWidth))))"""
    )
    assert max(wide) == 0
