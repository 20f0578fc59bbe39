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
    """The view with its results and its advice there."""
    return opened(visit(launch_page(engine) + "?tab=when"))


@pytest.fixture
def read(engine: FakeEngine, launch_page: LAUNCH, keep: VISIT) -> Visit:
    """The view with what the tests before this one measured, and the advice for one user."""
    page = opened(keep(launch_page(engine) + "?tab=when"))
    answer(page, "users", "1")
    page.page.wait_for_selector(".decision.yes")
    return page


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


def held(page: Visit, engine: FakeEngine, name: str = "rate", done: int = 7) -> None:
    """Until an experiment has shown some points and waits."""
    engine.hold_after = done + 1
    start(page, name)
    page.page.wait_for_function(
        "([place, done]) => document.querySelector(place)?.value === done", arg=[of(name, "progress"), done]
    )


def answer(page: Visit, field: str, value: str) -> None:
    page.page.locator(f"[data-part=advise-form] [name={field}][value='{value}']").check(force=True)


def test_until_one_is_run_the_reference_machine_speaks(when: Visit) -> None:
    for name in ExperimentName:
        source = says(when, name, "source")
        assert "Reference machine" in source and "Reference CPU" in source and "2025-01-02" in source
        assert says(when, name) and when.page.locator(of(name, "table")).count() >= 1
    assert "about 6.1 users" in says(when, "rate")
    when.page.locator(of("rate", ".plot")).first.scroll_into_view_if_needed()
    when.page.wait_for_selector(of("rate", ".plot .main-svg"), state="attached")
    assert "about 6.1 users" in str(when.page.get_attribute(of("rate", ".plot"), "aria-label"))


def test_an_experiment_from_the_button_to_its_conclusion(when: Visit, engine: FakeEngine) -> None:
    held(when, engine)
    assert "7 of 18 measurements" in says(when, "rate", "left") and "left" in says(when, "rate", "left")
    assert says(when, "rate") == "" and "No conclusion yet" in says(when, "rate", "source")
    assert not when.page.is_visible(of("rate", "[data-slot=saves]"))
    when.page.wait_for_function(
        "(place) => document.querySelectorAll(place).length === 6", arg=of("rate", "figure:first-of-type tbody tr")
    )
    engine.gate.set()
    over(when, "rate")
    assert "measured for you" in says(when, "rate", "source") and "FakeCPU" in says(when, "rate", "source")
    assert "about 6.1 users" in says(when, "rate") and when.page.is_enabled(of("rate", "[data-action=lab-run]"))
    assert when.page.is_hidden(of("rate", "[data-slot=going]"))


def test_cancelled_the_earlier_result_is_back_and_nothing_is_half_said(when: Visit, engine: FakeEngine) -> None:
    before = says(when, "rate"), says(when, "rate", "source"), when.page.inner_text(of("rate", "table"))
    held(when, engine)
    when.page.click(of("rate", "[data-action=lab-stop]"))
    over(when, "rate")
    assert "nothing of it was kept" in says(when, "rate", "notice")
    assert engine.experimented[0].reports.cancelled
    when.page.wait_for_function(
        "([place, was]) => document.querySelector(place).innerText === was", arg=[of("rate", "table"), before[2]]
    )
    assert (says(when, "rate"), says(when, "rate", "source")) == before[:2]


def test_a_second_one_is_refused_in_words(when: Visit, engine: FakeEngine) -> None:
    held(when, engine)
    start(when, "k")
    assert "is running" in says(when, "k", "notice") and when.page.is_visible(of("k", "[data-action=lab-run]"))
    engine.gate.set()
    over(when, "rate")
    assert len(engine.experimented) == 1 and says(when, "k", "notice") == ""
    start(when, "k")
    over(when, "k")
    assert "measured for you" in says(when, "k", "source")


def test_a_closed_page_ends_the_experiment(when: Visit, engine: FakeEngine) -> None:
    held(when, engine)
    when.page.goto("about:blank")
    until(lambda: engine.experimented[0].reports.cancelled)


def test_after_a_reload_the_results_are_still_there(when: Visit, engine: FakeEngine) -> None:
    start(when, "text")
    over(when, "text")
    answer(when, "users", "16")
    when.page.reload()
    opened(when)
    when.page.wait_for_function(
        "(place) => document.querySelector(place).innerText.includes('FakeCPU')", arg=of("text", "[data-slot=source]")
    )
    assert when.page.is_checked("[name=users][value='16']")


def test_a_model_that_is_not_there_is_said(when: Visit, engine: FakeEngine) -> None:
    engine.state = Status(State.FAILED, "load", message="No model was found.")
    start(when, "rows")
    when.page.wait_for_selector(of("rows", "[data-slot=notice]:not(:empty)"))
    over(when, "rows")
    assert "No model was found." in says(when, "rows", "notice") and "Reference CPU" in says(when, "rows", "source")


def test_it_waits_for_a_model_that_is_loading(when: Visit, engine: FakeEngine) -> None:
    engine.state = Status(State.LOADING, "load", 0.5)
    start(when, "rows")
    when.page.wait_for_selector(of("rows", "[data-slot=notice] progress"))
    engine.state = Status(State.READY, "ready")
    over(when, "rows")
    assert "measured for you" in says(when, "rows", "source") and says(when, "rows", "notice") == ""


def test_what_breaks_is_said(when: Visit, engine: FakeEngine) -> None:
    engine.experiment_fails = "The memory was used up: close other programs."
    start(when, "rate")
    over(when, "rate")
    assert "The memory was used up" in says(when, "rate", "notice") and "Reference CPU" in says(when, "rate", "source")


def test_results_can_be_saved(read: Visit, tmp_path: Path) -> None:
    start(read, "rate")
    over(read, "rate")
    for form in ("csv", "json"):
        with read.page.expect_download() as download:
            read.page.click(of("rate", f"[data-form={form}]"))
        assert download.value.suggested_filename == f"greenlight rate 2025-01-02.{form}"
        download.value.save_as(tmp_path / form)
    assert records.loads((tmp_path / "json").read_text("utf-8")) == (measured(ExperimentName.RATE),)
    assert (tmp_path / "csv").read_text("utf-8").startswith("experiment,series,x,")


def test_the_advisor_answers_while_the_form_is_filled_in(when: Visit) -> None:
    assert "Yes, speculate." in when.page.inner_text("[data-slot=advice]")
    answer(when, "users", "32")
    when.page.wait_for_selector(".decision.no")
    assert "reference machine" in when.page.inner_text(".reasons")
    assert "--speculative-config" not in when.page.inner_text("[data-slot=advice]")
    answer(when, "users", "1")
    answer(when, "kind", "copy")
    when.page.wait_for_selector(".decision.yes")
    when.page.wait_for_function("() => document.querySelector('.advice pre').innerText.includes('ngram')")
    start(when, "rate")
    over(when, "rate")
    when.page.wait_for_function("() => document.querySelector('.reasons').innerText.includes('measured here')")


def test_the_form_is_filled_in_by_keyboard(read: Visit) -> None:
    read.page.focus("[name=users]:checked")
    for _ in range(5):
        read.page.keyboard.press("ArrowRight")
    assert read.page.is_checked("[name=users][value='32']")
    read.page.wait_for_selector(".decision.no")


def test_measure_it_leads_to_the_experiment(read: Visit) -> None:
    read.page.click("[data-slot=rules] [data-lab-link=rows]")
    assert read.page.evaluate("() => document.activeElement.dataset.experiment") == "rows"
    assert read.page.locator(of("rows", "h4")).bounding_box()["y"] < 400
    read.page.keyboard.press("Tab")
    assert read.page.evaluate("() => document.activeElement.dataset.action") == "lab-run"


def test_the_button_that_goes_leaves_the_keyboard_on_the_other(read: Visit, engine: FakeEngine) -> None:
    engine.hold_after = 3
    read.page.focus(of("rate", "[data-action=lab-run]"))
    read.page.keyboard.press("Enter")
    assert read.page.evaluate("() => document.activeElement.dataset.action") == "lab-stop"
    read.page.keyboard.press("Enter")
    over(read, "rate")
    assert read.page.evaluate("() => document.activeElement.dataset.action") == "lab-run"


def test_a_prompt_of_ones_own(read: Visit, engine: FakeEngine) -> None:
    read.page.fill(of("k", "[data-part=lab-prompt]"), "Write a haiku.")
    start(read, "k")
    over(read, "k")
    assert engine.experimented[0].prompts == ("Write a haiku.",)


def test_headings_are_in_order(read: Visit) -> None:
    levels = read.page.eval_on_selector_all(
        ".view.when :is(h2,h3,h4,h5)", "(all) => all.map((one) => Number(one.tagName[1]))"
    )
    assert levels[0] == 2 and all(after <= before + 1 for before, after in pairwise(levels))


def test_the_command_can_be_copied(read: Visit) -> None:
    read.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    read.page.click("[data-action=copy-command] >> nth=0")
    read.page.wait_for_selector("[data-action=copy-command][data-done]")
    copied = str(read.page.evaluate("() => navigator.clipboard.readText()"))
    config = copied.partition("'")[2].rpartition("'")[0]
    assert json.loads(config)["method"] == "eagle3"


def test_in_chinese(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    page = opened(visit(launch_page(engine, Options(lang="zh")) + "?tab=when"))
    start(page, "rate")
    over(page, "rate")
    shown = page.page.inner_text(".view.when")
    assert (
        "大约到 6.1 个用户" in shown
        and "这台机器，刚为你测的" in shown
        and "Measure" not in shown
        and "users" not in shown
    )


def test_on_a_phone_nothing_is_wider_than_the_screen(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    page = opened(visit(launch_page(engine) + "?tab=when", viewport={"width": 390, "height": 844}, locale="zh-CN"))
    wide = page.page.evaluate(
        "() => [document.documentElement, document.querySelector('#gl-when')].map((n) => n.scrollWidth - n.clientWidth)"
    )
    assert wide == [0, 0]
    over_edge = page.page.eval_on_selector_all(
        ".view.when table", "(all) => all.filter((t) => t.getBoundingClientRect().right > innerWidth).length"
    )
    assert over_edge == 0
