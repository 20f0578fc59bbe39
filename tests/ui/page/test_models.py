"""The tab "Models" in a real browser, over the scripted engine."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from engine.config import EngineConfig
from engine.preflight.check import Report
from engine.preflight.diagnostics import diagnose, worst
from engine.serving.swap import SwapPhase
from tests.fake_engine import FakeEngine
from tests.ui.conftest import until
from tests.ui.page.conftest import Visit
from tests.ui.page.test_accessibility import violations
from ui.controls import Options
from ui.models import handlers as module

pytestmark = pytest.mark.browser

LAUNCH = Callable[..., str]
VISIT = Callable[..., Visit]
FORM = "[data-part=models-form] "
CHANGE = "[data-part=models-change]"


@pytest.fixture(autouse=True)
def a_known_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is called "bad" cannot be loaded; all else fits, with a remark, and takes half of what is free."""

    def check(config: EngineConfig, **_: Any) -> Report:
        bad = "bad" in config.target
        remark = diagnose("no_chat_template", name=config.target)
        diagnostics = (diagnose("not_found", name=config.target),) if bad else (remark,)
        parts = () if bad else (("target", 3000.0), ("drafter", 500.0), ("cache", 300.0), ("working", 200.0))
        return Report(worst(diagnostics), diagnostics, None, None, sum(mib for _, mib in parts), 8000.0, parts, "ngram")

    monkeypatch.setattr(module, "check_config", check)


@pytest.fixture
def models(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> Visit:
    return opened(visit(launch_page(engine) + "?tab=models"))


def opened(page: Visit) -> Visit:
    page.page.wait_for_selector("[data-slot=models-pair] dl")
    return page


def fill(page: Visit, target: str, drafter: str = "auto") -> None:
    page.page.fill(f"{FORM}[name=target]", target)
    page.page.fill(f"{FORM}[name=drafter]", drafter)


def check(page: Visit) -> None:
    page.page.click(f"{FORM}[type=submit]")


def load(page: Visit, target: str) -> None:
    fill(page, target)
    page.page.click("[data-action=models-load]")


def over(page: Visit, said: str) -> None:
    page.page.wait_for_function(
        "([place, said]) => document.querySelector(place).dataset.going === 'no' && "
        "document.querySelector(place).innerText.includes(said)",
        arg=[CHANGE, said],
    )


def going(page: Visit, phase: str = "Loading") -> None:
    page.page.wait_for_function(
        "([place, phase]) => document.querySelector(place).dataset.going === 'yes' && "
        "document.querySelector(place).innerText.includes(phase)",
        arg=[CHANGE, phase],
    )


def says(page: Visit, slot: str) -> str:
    return str(page.page.inner_text(f"[data-slot=models-{slot}]"))


def focused(page: Visit) -> str:
    return str(page.page.evaluate("() => document.activeElement.dataset.action ?? document.activeElement.name"))


# -- the pair in use, a check


def test_the_pair_in_use_and_the_known_pairs_are_there(models: Visit) -> None:
    shown = says(models, "pair")
    for said in ("FakeLM-1M", "GGUF Q4_1", "test kernel", "cpu, 2 threads", "8192 tokens", "Bit-exact", "92 MiB"):
        assert said in shown
    assert models.page.input_value(f"{FORM}[name=target]") == "embedded"
    models.page.wait_for_selector("[data-slot=models-presets] td:has-text('GiB of memory')")
    assert models.page.is_hidden(CHANGE) and models.page.is_hidden("[data-part=models-recent]")


def test_a_check_shows_a_card_and_nothing_changes(models: Visit, engine: FakeEngine) -> None:
    fill(models, "owner/new")
    models.page.press(f"{FORM}[name=target]", "Enter")
    models.page.wait_for_selector(".report.fits")
    card = says(models, "card")
    assert "Fits" in card and "owner/new has no chat template" in card and "Try:" in card and "3.9 GiB needed" in card
    widths = models.page.eval_on_selector_all(
        ".report .parts i", "(all) => all.map((one) => one.getBoundingClientRect().width)"
    )
    whole = models.page.locator(".report .parts").bounding_box()["width"]
    assert sum(widths) == pytest.approx(whole / 2, rel=0.02)
    assert not engine.changes and models.page.is_hidden(CHANGE)


def test_without_a_target_nothing_is_asked(models: Visit, engine: FakeEngine) -> None:
    fill(models, "  ")
    check(models)
    assert "Name a target" in says(models, "notice") and focused(models) == "target"


def test_what_cannot_run_is_refused_with_the_card(models: Visit, engine: FakeEngine) -> None:
    load(models, "owner/bad")
    models.page.wait_for_selector(".report.cannot")
    models.page.wait_for_function(
        "() => document.querySelector('[data-slot=models-notice]').innerText.includes('Not loaded')"
    )
    assert "There is no model owner/bad" in says(models, "card") and not engine.changes


def test_a_known_pair_fills_in_the_form(models: Visit) -> None:
    models.page.wait_for_selector("[data-slot=models-presets] td.short")
    models.page.click("[data-action=models-use][data-quant=nf4] >> nth=0")
    values = {
        name: models.page.input_value(f"{FORM}[name={name}]") for name in ("target", "drafter", "quant", "device")
    }
    assert values["target"] and values["quant"] == "nf4" and values["device"] == "cuda" and "/" in values["drafter"]
    assert focused(models) == "target"
    models.page.reload()
    opened(models)
    assert models.page.input_value(f"{FORM}[name=target]") == values["target"]  # what was filled in is still there


# -- a change


def test_a_load_from_the_button_to_the_new_pair(models: Visit, engine: FakeEngine) -> None:
    engine.hold_change = SwapPhase.LOADING
    load(models, "owner/new")
    going(models)
    shown = models.page.inner_text(CHANGE)
    assert "Changing to owner/new" in shown and "50 %" in shown and "s so far" in shown and "goes on answering" in shown
    assert models.page.is_disabled("[data-action=models-load]") and "FakeLM-1M" in says(models, "pair")
    engine.gate.set()
    over(models, "owner/new answers from here on")
    models.page.wait_for_selector(".chip-engine:has-text('owner/new')")
    assert "owner/new" in says(models, "pair") and models.page.is_enabled("[data-action=models-load]")
    models.page.click("[data-action=models-close]")
    models.page.wait_for_selector(CHANGE, state="hidden")


def test_cancelled_the_old_pair_is_still_there(models: Visit, engine: FakeEngine) -> None:
    engine.hold_change = SwapPhase.LOADING
    load(models, "owner/new")
    going(models)
    models.page.focus("[data-action=models-cancel]")
    models.page.keyboard.press("Enter")
    over(models, "still in use")
    assert "FakeLM-1M" in says(models, "pair") and focused(models) == "models-close"


def test_a_failure_says_what_happened_and_what_was_kept(models: Visit, engine: FakeEngine) -> None:
    engine.change_fails = "The file is cut short: fetch it again."
    load(models, "owner/new")
    over(models, "The file is cut short: fetch it again. The pair from before is still in use.")
    assert "FakeLM-1M" in says(models, "pair")


def test_a_reload_finds_all_as_it_was(models: Visit, engine: FakeEngine) -> None:
    engine.hold_change = SwapPhase.LOADING
    load(models, "owner/new")
    going(models)
    models.page.reload()
    opened(models)
    going(models)
    assert "Fits" in says(models, "card") and models.page.input_value(f"{FORM}[name=target]") == "owner/new"
    engine.gate.set()
    over(models, "owner/new answers from here on")
    models.page.reload()
    opened(models)
    over(models, "owner/new answers from here on")


def test_a_closed_page_does_not_end_the_load(models: Visit, engine: FakeEngine) -> None:
    engine.hold_change = SwapPhase.LOADING
    load(models, "owner/new")
    going(models)
    models.page.goto("about:blank")
    engine.gate.set()
    until(lambda: engine.changes[0].status().phase is SwapPhase.DONE)


def test_pairs_that_were_used_can_be_used_again(models: Visit, engine: FakeEngine) -> None:
    load(models, "owner/new")
    over(models, "owner/new")
    models.page.wait_for_selector("[data-action=models-recent] >> nth=1")
    assert models.texts("[data-action=models-recent]") == ["owner/new", "FakeLM-1M"]
    models.page.click("[data-action=models-recent] >> nth=1")
    assert models.page.input_value(f"{FORM}[name=target]") == "embedded"
    models.page.click("[data-action=models-load]")
    over(models, "embedded")
    assert models.texts("[data-action=models-recent]") == ["FakeLM-1M", "owner/new"]


def test_at_most_eight_pairs_are_remembered_and_nonsense_is_none(models: Visit) -> None:
    models.page.evaluate(
        """() => localStorage.setItem("greenlight.pairs", JSON.stringify([null, 7, {wish: {}}, ...[...Array(12).keys()].map((n) =>
             ({title: `<img src=x onerror=alert(1)>${n}`, wish: {target: `t${n}`, drafter: "auto"}}))]))"""
    )
    models.page.reload()
    opened(models)
    models.page.wait_for_selector("[data-action=models-recent] >> nth=7")
    shown = models.texts("[data-action=models-recent]")
    assert len(shown) == 8 and shown[0] == "FakeLM-1M" and shown[1].startswith("<img")


# -- everybody hears of it


def test_every_open_page_hears_of_it_without_a_reload(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    url = launch_page(engine)
    chat, models = visit(url), opened(visit(url + "?tab=models"))
    chat.send("hello")
    chat.wait_turns(1)
    assert chat.page.locator("#gl-set-drafter [value=draft_model]").count() == 0
    engine.hold_change = SwapPhase.STARTING
    load(models, "owner/new")
    going(models, "Starting")
    engine.drafters, engine.context_len = ("none", "ngram", "draft_model"), 4096
    engine.gate.set()
    chat.page.wait_for_selector("[data-part=notice]:has-text('owner/new answers from here on')")
    chat.page.wait_for_selector(".chip-engine:has-text('owner/new')")
    chat.page.wait_for_function("() => document.querySelector('[data-part=meter]').innerText.includes('of 4096')")
    chat.page.click("#gl-settings button >> nth=0")
    chat.page.click("#gl-group-decoding button >> nth=0")
    chat.page.wait_for_selector("#gl-set-drafter [value=draft_model]", state="attached")
    chat.send("and now")
    chat.wait_turns(2)
    assert chat.texts(".turn .between .en") == ["From here on: owner/new (GGUF Q4_1)"]
    assert chat.reply(0) == chat.reply(1)
    chat.page.reload()
    chat.wait_turns(2)
    assert chat.texts(".turn .between .en") == ["From here on: owner/new (GGUF Q4_1)"]


def test_a_change_waits_for_a_reply_and_says_so(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    url = launch_page(engine)
    chat, models = visit(url), opened(visit(url + "?tab=models"))
    engine.hold_after, engine.hold_change = 3, SwapPhase.WAITING
    chat.send("hello")
    chat.page.wait_for_selector(".turn[data-phase=running]")
    load(models, "owner/new")
    going(models, "Waiting for 1 reply that is being written")
    assert chat.page.locator(".turn[data-phase=running]").count() == 1
    engine.gate.set()
    chat.wait_turns(1)
    over(models, "owner/new")
    chat.page.wait_for_selector("[data-part=notice]:has-text('owner/new answers from here on')")
    assert chat.reply().startswith("The quick brown fox")


# -- served, languages, screens


def test_served_to_others_names_are_limited(
    engine: FakeEngine, launch_page: LAUNCH, visit: VISIT, tmp_path: Path
) -> None:
    (tmp_path / "one.gguf").write_bytes(b"GGUF")
    page = opened(visit(launch_page(engine, Options(served=True, models_folder=str(tmp_path))) + "?tab=models"))
    assert "served to others" in page.page.inner_text(".view.models .served")
    load(page, "/etc/passwd")
    page.page.wait_for_function(
        "() => document.querySelector('[data-slot=models-notice]').innerText.includes('may not be loaded')"
    )
    assert not engine.changes
    assert page.page.locator("#gl-models-target option[value='one.gguf']").count() == 1
    load(page, "one.gguf")
    over(page, "one.gguf")
    assert str(tmp_path) not in page.page.inner_text(CHANGE) and engine.config.target == str(tmp_path / "one.gguf")


def test_in_chinese(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    page = opened(visit(launch_page(engine, Options(lang="zh")) + "?tab=models"))
    assert page.texts(f"{FORM}[name=quant] option")[0] == "自动"
    load(page, "owner/new")
    over(page, "换好")
    shown = page.page.inner_text(".view.models")
    assert "正在使用" in shown and "没有对话模板" in shown and "Load" not in shown and "free" not in shown
    page.page.click("[data-action=language]")
    assert page.texts(f"{FORM}[name=quant] option")[0] == "auto"


def test_headings_are_in_order(models: Visit) -> None:
    levels = models.page.eval_on_selector_all(
        ".view.models :is(h2,h3,h4,h5)", "(all) => all.map((one) => Number(one.tagName[1]))"
    )
    assert levels[0] == 2 and all(after <= before + 1 for before, after in pairwise(levels))


def test_the_keyboard_reaches_everything(models: Visit) -> None:
    models.page.focus(f"{FORM}[name=target]")
    reached = []
    for _ in range(9):
        reached.append(focused(models))
        models.page.keyboard.press("Tab")
    assert reached[:5] == ["target", "drafter", "quant", "drafter_quant", "device"] and "models-load" in reached


def test_what_was_pressed_for_comes_into_view_and_the_focus_stays(models: Visit, engine: FakeEngine) -> None:
    models.page.set_viewport_size({"width": 1280, "height": 600})  # the form alone fills it
    in_view = """(place) => { const at = document.querySelector(place).getBoundingClientRect();
        return at.height > 0 && at.top >= 0 && at.bottom <= innerHeight; }"""
    fill(models, "owner/new")
    check(models)
    models.page.wait_for_function(in_view, arg="[data-slot=models-card]")
    models.page.evaluate("() => (document.querySelector('#gl-models').scrollTop = 0)")
    engine.hold_change = SwapPhase.LOADING
    models.page.focus("[data-action=models-load]")
    models.page.keyboard.press("Enter")
    going(models)
    models.page.wait_for_function(in_view, arg=CHANGE)
    assert focused(models) == "models-load"
    models.page.keyboard.press("Enter")  # once more, meanwhile: nothing is asked for
    engine.gate.set()
    over(models, "owner/new answers from here on")
    assert focused(models) == "models-load" and len(engine.changes) == 1


def test_a_new_question_takes_the_old_answer_away_at_once(models: Visit) -> None:
    fill(models, "owner/bad")
    check(models)
    models.page.wait_for_selector(".report.cannot")
    fill(models, "owner/new")
    left = models.page.evaluate(
        """() => { document.querySelector("[data-part=models-form] [type=submit]").click();
            return document.querySelector(".report") !== null; }"""
    )
    assert not left
    models.page.wait_for_selector(".report.fits")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_hard_to_read_or_wider_than_the_screen(
    engine: FakeEngine, launch_page: LAUNCH, visit: VISIT, width: int, dark: bool
) -> None:
    page = opened(
        visit(launch_page(engine) + "?tab=models", viewport={"width": width, "height": 844}, reduced_motion="reduce")
    )
    if dark:
        page.page.click("[data-action=theme]")
    engine.hold_change = SwapPhase.LOADING
    load(page, "owner/" + "a-long-name-" * 6)
    going(page)
    page.page.wait_for_selector(".report")
    page.page.click(f"{FORM}summary")
    page.page.wait_for_selector("[data-slot=models-presets] td.short")
    assert violations(page.page) == []
    page.page.click("[data-action=language]")
    assert violations(page.page) == []
    wide = page.page.evaluate(
        "() => [document.documentElement, document.querySelector('#gl-models')].map((n) => n.scrollWidth - "
        "n.clientWidth)"
    )
    assert wide == [0, 0]
