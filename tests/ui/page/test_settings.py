"""The settings pane in a real browser, over the scripted engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from engine.serving.engine import State, Status
from tests.fake_engine import FakeEngine
from tests.ui.conftest import free_port, serve, until
from tests.ui.page.conftest import Visit
from ui.controls import Options

pytestmark = pytest.mark.browser

LAUNCH = Callable[..., str]
VISIT = Callable[..., Visit]
GROUPS = ("decoding", "sampling", "limits", "system")
NOTICE = "[data-part=notice]"
STORED = "() => localStorage.getItem('greenlight.settings')"
K = "#gl-set-num_speculative_tokens input"
SEED = "#gl-set-seed input"
LOCK = "[data-action=lock]"


def opened(page: Visit, *groups: str) -> Visit:
    """The pane and these groups, opened."""
    page.page.click("#gl-settings > button")
    for group in groups:
        page.page.click(f"#gl-group-{group} > button")
    return page


def number(name: str) -> str:
    return f"#gl-set-{name} input[type=number]"


def type_into(page: Visit, name: str, written: str) -> None:
    """Gradio gives a control that was only just put up its value once more, over what a script has typed meanwhile
    (nobody types within those milliseconds): then it is typed again."""
    before = page.page.input_value(number(name))
    for _ in range(3):
        page.page.fill(number(name), written)
        page.page.keyboard.press("Tab")
        page.page.wait_for_timeout(100)
        if page.page.input_value(number(name)) != before:
            return


def value_is(page: Visit, selector: str, value: str) -> None:
    page.page.wait_for_function(
        "([selector, value]) => document.querySelector(selector)?.value === value", arg=[selector, value]
    )


def pressed(page: Visit, name: str | None) -> None:
    """Wait until this preset is marked, and no other."""
    page.page.wait_for_function(
        """(name) => { const marked = [...document.querySelectorAll('[data-preset][aria-pressed=true]')];
             return document.querySelector('[data-preset]') && marked.map((one) => one.dataset.preset).join() === (name ?? ''); }""",
        arg=name,
    )


def preset(page: Visit, name: str) -> None:
    page.page.click(f"[data-preset={name}]")
    pressed(page, name)


def notice(page: Visit, words: str) -> None:
    page.page.wait_for_function(
        "([place, words]) => (words ? document.querySelector(place)?.innerText.includes(words) "
        ": document.querySelector(place)?.innerText === '')",
        arg=[NOTICE, words],
    )


@contextmanager
def remembering(page: Visit) -> Iterator[None]:
    """Waits at its end until the browser has stored the one change made in it; each time it is written anew differs."""
    before = page.page.evaluate(STORED)
    yield
    page.page.wait_for_function(f"(before) => ({STORED})() !== before", arg=before)


def sent(page: Visit, engine: FakeEngine) -> Any:
    """What the engine is asked with the settings of now."""
    before = len(engine.asked)
    page.send("hello")
    until(lambda: len(engine.asked) > before)
    page.page.wait_for_function("() => !document.querySelector('.turn[data-phase=running]')")
    return engine.asked[-1].params


OUT_OF_RANGE = (
    ("temperature", "7", "2", "goes from 0 to 2: 2 is used instead of 7."),
    ("top_p", "", "1", "needs a number from 0.05 to 1: 1 is used."),
    ("top_k", "-4", "0", "whole numbers from 0 to 1000: 0 is used instead of -4."),
    ("probe_every", "2.7", "3", "whole numbers from 0 to 64: 3 is used instead of 2.7."),
    ("max_new_tokens", "99999", "2048", "2048 is used instead of 99999."),
)


def test_presets_corrections_and_what_a_reload_finds(page: Visit, engine: FakeEngine) -> None:
    opened(page)
    pressed(page, "precise")
    assert page.page.locator("#gl-settings [id^=gl-group-] [id^=gl-set-]").count() == 0
    folds = page.page.eval_on_selector_all("#gl-settings .label-wrap", "(all) => all.map((one) => one.ariaExpanded)")
    assert folds == ["true", "false", "false", "false", "false"]
    preset(page, "creative")
    sampling = sent(page, engine).sampling
    assert (sampling.temperature, sampling.min_p, sampling.top_p) == (1.0, 0.05, 1.0)

    for group in GROUPS:
        page.page.click(f"#gl-group-{group} > button")
    value_is(page, number("temperature"), "1")
    type_into(page, "temperature", "0.6")
    pressed(page, None)
    preset(page, "balanced")
    value_is(page, number("temperature"), "0.7")
    value_is(page, number("min_p"), "0")
    page.page.fill("#gl-set-system textarea", "Be brief.")
    type_into(page, "max_new_tokens", "700")
    preset(page, "show_off")
    value_is(page, number("max_new_tokens"), "1024")
    preset(page, "precise")
    value_is(page, number("max_new_tokens"), "512")
    for name, typed, used, words in OUT_OF_RANGE:
        type_into(page, name, typed)
        notice(page, words)
        value_is(page, number(name), used)
        right = "1" if used != "1" else "0.5"
        type_into(page, name, right)
        notice(page, "")
        value_is(page, number(name), right)
    page.page.fill("#gl-set-stop textarea", "\n".join(map(str, range(20))))
    page.page.keyboard.press("Tab")
    notice(page, "takes up to 16 lines")
    page.page.fill("#gl-set-stop textarea", "END\n\n\\n\\nQ:")
    page.page.keyboard.press("Tab")
    with remembering(page):
        type_into(page, "top_k", "40")

    page.page.reload()
    opened(page, "decoding", "sampling", "limits", "system")
    value_is(page, number("top_k"), "40")
    value_is(page, "#gl-set-system textarea", "Be brief.")
    pressed(page, None)
    params = sent(page, engine)
    assert (params.stop, params.sampling.top_k, params.probe_every) == (("END", "\n\nQ:"), 40, 1)
    assert engine.asked[-1].messages[0].content == "Be brief."
    with remembering(page):
        page.choose("num_speculative_tokens", "5")
    assert sent(page, engine).num_speculative_tokens == 5
    preset(page, "show_off")
    value_is(page, K, "automatic (by what pays)")
    with remembering(page):
        page.page.click("[data-action=reset-settings]")
    for name, value in (("top_k", "0"), ("max_new_tokens", "512"), ("probe_every", "12")):
        value_is(page, number(name), value)
    value_is(page, "#gl-set-system textarea", "")
    pressed(page, "precise")
    for broken in ("nonsense", "AAAA:BBBB"):
        page.page.evaluate("(broken) => localStorage.setItem('greenlight.settings', broken)", broken)
        page.page.reload()
        opened(page, "sampling")
        pressed(page, "precise")
        with remembering(page):
            type_into(page, "top_k", "9")
    assert sent(page, engine).sampling.top_k == 9


@pytest.mark.slow
def test_the_seed_and_the_keyboard(page: Visit, engine: FakeEngine) -> None:
    assert sent(page, engine).sampling.seed is None
    keyboard = page.page.keyboard
    page.page.focus("#gl-settings > button")
    keyboard.press("Enter")
    page.page.wait_for_selector("[data-preset]")
    for key in ("Tab", "Tab", "Space"):
        keyboard.press(key)
    pressed(page, "balanced")
    for _ in range(4):
        keyboard.press("Tab")
    assert page.page.evaluate("() => document.activeElement.closest('[id^=gl-group-]')?.id") == "gl-group-sampling"
    keyboard.press("Enter")
    page.page.wait_for_selector(number("temperature"))
    reached = []
    for _ in range(14):
        keyboard.press("Tab")
        reached.append(page.page.evaluate("() => document.activeElement.dataset.action ?? ''"))
    assert [action for action in reached if action] == ["dice", "lock"]

    assert page.page.get_attribute(LOCK, "aria-pressed") == "false"
    page.page.click(LOCK)
    value_is(page, SEED, "7")  # what the scripted engine picks
    page.page.wait_for_selector(f"{LOCK}[aria-pressed=true]")
    assert sent(page, engine).sampling.seed == 7
    page.page.click(LOCK)
    value_is(page, SEED, "")
    page.page.wait_for_selector(f"{LOCK}[aria-pressed=false]")
    drawn = "7"
    for _ in range(2):
        page.page.click("[data-action=dice]")
        page.page.wait_for_function(
            "([line, old]) => { const seed = document.querySelector(line).value; return /^\\d+$/.test(seed) && seed !== old; }",
            arg=[SEED, drawn],
        )
        drawn = page.page.input_value(SEED)
    page.page.wait_for_selector(f"{LOCK}[aria-pressed=true]")
    assert sent(page, engine).sampling.seed == int(drawn)
    for typed, words in (("lucky", "a new one is drawn instead of lucky"), ("<img src=x onerror=alert(1)>", "<img")):
        page.page.fill(SEED, typed)
        keyboard.press("Enter")
        notice(page, words)
        value_is(page, SEED, "")
    page.page.fill(SEED, "77")
    keyboard.press("Enter")
    notice(page, "")
    assert sent(page, engine).sampling.seed == 77


@pytest.fixture
def start() -> Iterator[Callable[..., str]]:
    """`start(port, engine, options)` serves the page there; what was served there before is closed."""
    running: list[Any] = []

    def begin(port: int, engine: FakeEngine, options: Options | None = None) -> str:
        while running:
            running.pop().close(verbose=False)
        app, url = serve(engine, options or Options(), port)
        running.append(app)
        return url

    yield begin
    for app in running:
        app.close(verbose=False)


@pytest.mark.slow
def test_settings_survive_the_server_and_are_checked_by_the_next(start: Callable[..., str], visit: VISIT) -> None:
    port, first = free_port(), FakeEngine(drafters=("none", "ngram", "head"))
    page = opened(visit(start(port, first)), "decoding", "limits")
    page.page.wait_for_selector("#gl-set-drafter input[value=head]")
    with remembering(page):
        page.page.check("#gl-set-drafter input[value=head]")
    with remembering(page):
        type_into(page, "max_new_tokens", "900")
    with remembering(page):
        type_into(page, "probe_every", "20")
    for drafters, chosen in ((("none", "ngram", "head"), "head"), (("none", "ngram"), "auto")):
        first.drafters = drafters
        first.state = Status(State.LOADING, "load")
        page.page.reload()
        page.page.wait_for_selector(".chip-engine:has-text('Loading')")
        opened(page, "decoding")
        first.state = Status(State.READY, "ready", 1.0)
        page.page.wait_for_selector(f"#gl-set-drafter input[value={chosen}]:checked")
        assert sent(page, first).drafter == chosen
    page.page.check("#gl-set-drafter input[value=ngram]")
    page.page.goto("about:blank")

    second = FakeEngine(drafters=("none",))
    page.page.goto(start(port, second, Options(max_new_tokens=300, k=5)))
    notice(page, "300 is used instead of 900.")
    opened(page, "decoding", "limits")
    value_is(page, number("probe_every"), "20")
    value_is(page, number("max_new_tokens"), "300")
    value_is(page, K, "5")
    params = sent(page, second)
    assert (params.drafter, params.max_new_tokens, params.probe_every) == ("auto", 300, 20)
    assert params.num_speculative_tokens == 5, "the command line's, since nobody had chosen another"


@pytest.mark.slow
def test_in_chinese_and_narrow(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    page = opened(visit(launch_page(engine), viewport={"width": 390, "height": 844}), *GROUPS)
    page.page.wait_for_selector("#gl-set-system textarea")
    page.choose("num_speculative_tokens", "0 · plain decoding")
    for width in (390, 1280):
        page.page.set_viewport_size({"width": width, "height": 844})
        outside = page.page.evaluate(
            """() => { const pane = document.querySelector('#gl-settings').getBoundingClientRect();
                 return [...document.querySelectorAll('#gl-settings :is(input, button, textarea, .info-text)')]
                   .filter((one) => { const box = one.getBoundingClientRect();
                     return box.width && (box.right > pane.right + 1 || box.left < pane.left - 1); })
                   .map((one) => one.outerHTML.slice(0, 120)); }"""
        )
        assert outside == [], width
    page.page.click("[data-action=language]")
    page.page.wait_for_selector("#gl-settings:has-text('重复惩罚')")
    shown = page.page.inner_text("#gl-settings")
    assert [
        words
        for words in ("设置", "预设", "均衡", "采样", "系统提示", "遇到就停", "恢复默认设置")
        if words not in shown
    ] == []
    assert "Balanced" not in shown and "penalty" not in shown
    value_is(page, K, "0 · 普通解码")
    assert sent(page, engine).num_speculative_tokens == 0
    page.choose("num_speculative_tokens", "自动（划算才猜）")
    assert sent(page, engine).num_speculative_tokens is None
    type_into(page, "temperature", "7")
    notice(page, "“温度”的范围是 0 到 2：7 改为 2。")
