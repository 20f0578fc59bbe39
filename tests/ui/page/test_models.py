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
from ui.controls import Options
from ui.models import handlers as module

pytestmark = pytest.mark.browser

LAUNCH = Callable[..., str]
VISIT = Callable[..., Visit]
FORM = "[data-part=models-form] "
CHANGE = "[data-part=models-change]"
RECENT = "[data-action=models-recent]"


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


def fill(page: Visit, target: str) -> None:
    page.page.fill(f"{FORM}[name=target]", target)


def check(page: Visit, target: str, level: str) -> None:
    fill(page, target)
    page.page.press(f"{FORM}[name=target]", "Enter")
    page.page.wait_for_selector(f".report.{level}")


def load(page: Visit, target: str) -> None:
    fill(page, target)
    page.page.click("[data-action=models-load]")


def change_says(page: Visit, going: str, words: str) -> None:
    page.page.wait_for_function(
        "([place, going, words]) => { const at = document.querySelector(place); "
        "return at?.dataset.going === going && at.innerText.includes(words); }",
        arg=[CHANGE, going, words],
    )


def over(page: Visit, words: str) -> None:
    change_says(page, "no", words)


def notice(page: Visit, words: str) -> None:
    page.page.wait_for_selector(f"[data-slot=models-notice]:has-text('{words}')")


def says(page: Visit, slot: str) -> str:
    return str(page.page.inner_text(f"[data-slot=models-{slot}]"))


def target(page: Visit) -> str:
    return str(page.page.input_value(f"{FORM}[name=target]"))


def focused(page: Visit) -> str:
    return str(page.page.evaluate("() => document.activeElement.dataset.action ?? document.activeElement.name"))


def test_from_a_check_to_another_pair(models: Visit, engine: FakeEngine) -> None:
    for words in ("FakeLM-1M", "GGUF Q4_1", "test kernel", "cpu, 2 threads", "8192 tokens", "Bit-exact", "92 MiB"):
        assert words in says(models, "pair")
    assert target(models) == "embedded"
    assert models.page.is_hidden(CHANGE) and models.page.is_hidden("[data-part=models-recent]")
    fill(models, "  ")
    models.page.click(f"{FORM}[type=submit]")
    notice(models, "Name a target")
    assert focused(models) == "target"
    check(models, "owner/bad", "cannot")
    assert "There is no model owner/bad" in says(models, "card")
    models.page.click("[data-action=models-load]")
    notice(models, "Not loaded")
    fill(models, "owner/new")
    stale = models.page.evaluate(
        """() => { document.querySelector("[data-part=models-form] [type=submit]").click();
            return document.querySelector(".report") !== null; }"""
    )
    assert not stale, "a new question takes the old answer away at once"
    models.page.wait_for_selector(".report.fits")
    for words in ("Fits", "owner/new has no chat template", "Try:", "3.9 GiB needed"):
        assert words in says(models, "card")
    used, whole = models.page.evaluate(
        """() => [[...document.querySelectorAll(".report .parts i")].reduce((sum, one) => sum + one.offsetWidth, 0),
                  document.querySelector(".report .parts").offsetWidth]"""
    )
    assert used == pytest.approx(whole / 2, rel=0.02) and not engine.changes

    engine.hold_change = SwapPhase.LOADING
    models.page.focus("[data-action=models-load]")
    models.page.keyboard.press("Enter")
    change_says(models, "yes", "Loading")
    words = models.page.inner_text(CHANGE)
    assert all(part in words for part in ("Changing to owner/new", "50 %", "s so far", "goes on answering"))
    assert models.page.is_disabled("[data-action=models-load]") and "FakeLM-1M" in says(models, "pair")
    models.page.keyboard.press("Enter")  # once more, meanwhile: nothing is asked for
    engine.gate.set()
    over(models, "owner/new answers from here on")
    assert focused(models) == "models-load" and len(engine.changes) == 1
    models.page.wait_for_selector(".chip-engine:has-text('owner/new')")
    models.page.wait_for_selector("[data-slot=models-pair]:has-text('owner/new')")
    models.page.click("[data-action=models-close]")
    models.page.wait_for_selector(CHANGE, state="hidden")

    models.page.wait_for_selector(f"{RECENT} >> nth=1")
    assert models.texts(RECENT) == ["owner/new", "FakeLM-1M"]
    models.page.click(f"{RECENT} >> nth=1")
    assert target(models) == "embedded"
    models.page.click("[data-action=models-load]")
    over(models, "embedded")
    assert models.texts(RECENT) == ["FakeLM-1M", "owner/new"]


@pytest.mark.slow
def test_a_change_cancelled_failed_reloaded_and_left_alone(models: Visit, engine: FakeEngine) -> None:
    engine.hold_change = SwapPhase.LOADING
    load(models, "owner/first")
    change_says(models, "yes", "Loading")
    models.page.focus("[data-action=models-cancel]")
    models.page.keyboard.press("Enter")
    over(models, "still in use")
    assert "FakeLM-1M" in says(models, "pair") and focused(models) == "models-close"
    engine.hold_change, engine.change_fails = None, "The file is cut short: fetch it again."
    load(models, "owner/second")
    over(models, "The file is cut short: fetch it again. The pair from before is still in use.")
    engine.hold_change, engine.change_fails = SwapPhase.LOADING, ""
    load(models, "owner/new")
    change_says(models, "yes", "owner/new")
    models.page.reload()
    opened(models)
    change_says(models, "yes", "Loading")
    models.page.wait_for_selector(".report.fits")
    assert target(models) == "owner/new"
    models.page.goto("about:blank")
    engine.gate.set()
    until(lambda: engine.changes[-1].status().phase is SwapPhase.DONE)
    assert engine.target == "owner/new", "a closed page does not end the load"


@pytest.mark.slow
def test_every_open_page_hears_of_it_and_a_reply_is_waited_for(
    engine: FakeEngine, launch_page: LAUNCH, visit: VISIT
) -> None:
    url = launch_page(engine)
    chat, models = visit(url), opened(visit(url + "?tab=models"))
    engine.hold_after, engine.hold_change = 3, SwapPhase.WAITING
    chat.send("hello")
    chat.page.wait_for_selector(".turn[data-phase=running]")
    load(models, "owner/new")
    change_says(models, "yes", "Waiting for 1 reply that is being written")
    assert chat.page.locator(".turn[data-phase=running]").count() == 1
    engine.drafters, engine.context_len = ("none", "ngram", "draft_model"), 4096
    engine.gate.set()
    chat.wait_turns(1)
    over(models, "owner/new")
    chat.page.wait_for_selector("[data-part=notice]:has-text('owner/new answers from here on')")
    chat.page.wait_for_selector(".chip-engine:has-text('owner/new')")
    chat.page.wait_for_selector("[data-part=meter]:has-text('of 4096')")
    chat.page.click("#gl-settings button >> nth=0")
    chat.page.click("#gl-group-decoding button >> nth=0")
    chat.page.wait_for_selector("#gl-set-drafter [value=draft_model]", state="attached")
    chat.send("and now")
    chat.wait_turns(2)
    for _ in range(2):
        assert chat.texts(".turn .between .en") == ["From here on: owner/new (GGUF Q4_1)"]
        chat.page.reload()
        chat.wait_turns(2)


@pytest.mark.slow
def test_what_is_remembered_and_where_the_keyboard_goes(models: Visit) -> None:
    models.page.set_viewport_size({"width": 1280, "height": 600})  # the form alone fills it
    check(models, "owner/new", "fits")
    models.page.wait_for_function(
        """() => { const at = document.querySelector("[data-slot=models-card]").getBoundingClientRect();
            return at.height > 0 && at.top >= 0 && at.bottom <= innerHeight; }"""
    )
    models.page.set_viewport_size({"width": 1280, "height": 800})
    models.page.wait_for_selector("[data-slot=models-presets] td:has-text('GiB of memory')")
    models.page.wait_for_selector("[data-slot=models-presets] td.short")
    models.page.click("[data-action=models-use][data-quant=nf4] >> nth=0")
    values = {
        name: models.page.input_value(f"{FORM}[name={name}]") for name in ("target", "drafter", "quant", "device")
    }
    assert values["target"] and "/" in values["drafter"] and (values["quant"], values["device"]) == ("nf4", "cuda")
    reached = []
    for _ in range(9):
        reached.append(focused(models))
        models.page.keyboard.press("Tab")
    assert reached[:5] == ["target", "drafter", "quant", "drafter_quant", "device"] and "models-load" in reached
    models.page.evaluate(
        """() => localStorage.setItem("greenlight.pairs", JSON.stringify([null, 7, {wish: {}},
             ...[...Array(12).keys()].map((n) => ({title: `<img src=x onerror=alert(1)>${n}`,
                                                   wish: {target: `t${n}`, drafter: "auto"}}))]))"""
    )
    models.page.reload()
    opened(models)
    assert target(models) == values["target"], "what was filled in is still there"
    models.page.wait_for_selector(f"{RECENT} >> nth=7")
    shown = models.texts(RECENT)
    assert len(shown) == 8 and shown[0] == "FakeLM-1M" and shown[1].startswith("<img")
    levels = models.page.eval_on_selector_all(
        ".view.models :is(h2,h3,h4,h5)", "(all) => all.map((one) => Number(one.tagName[1]))"
    )
    assert levels[0] == 2 and all(after <= before + 1 for before, after in pairwise(levels))


@pytest.mark.slow
def test_served_to_others_in_chinese(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT, tmp_path: Path) -> None:
    (tmp_path / "one.gguf").write_bytes(b"GGUF")
    options = Options(served=True, models_folder=str(tmp_path), lang="zh")
    page = opened(visit(launch_page(engine, options) + "?tab=models"))
    assert page.texts(f"{FORM}[name=quant] option")[0] == "自动"
    load(page, "/etc/passwd")
    page.page.wait_for_selector("[data-slot=models-notice]:not(:empty)")
    page.page.wait_for_function("(place) => document.querySelectorAll(place).length === 1",
                                arg="#gl-models-target option[value='one.gguf']")  # fmt: skip
    assert not engine.changes
    load(page, "one.gguf")
    over(page, "换好")
    shown = page.page.inner_text(".view.models")
    assert "正在使用" in shown and "没有对话模板" in shown and "Load" not in shown and "free" not in shown
    assert str(tmp_path) not in page.page.inner_text(CHANGE) and engine.config.target == str(tmp_path / "one.gguf")
    page.page.click("[data-action=language]")
    assert page.texts(f"{FORM}[name=quant] option")[0] == "auto"
    assert "served to others" in page.page.inner_text(".view.models .served")
