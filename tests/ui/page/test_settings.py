"""The settings pane in a real browser: presets, the seed's buttons, corrections, what is remembered, keyboard,
languages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from engine.serving.engine import State, Status
from tests.fake_engine import FakeEngine
from tests.ui.conftest import free_port
from tests.ui.page.conftest import Visit
from ui.controls import Options

pytestmark = pytest.mark.browser
LAUNCH = Callable[..., str]
VISIT = Callable[..., Visit]

STORED = "() => (localStorage.getItem('greenlight.settings') ?? '')"
NOTICE = "[data-part=notice]"
K = "#gl-set-num_speculative_tokens input"


@pytest.fixture
def page(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> Visit:
    return visit(launch_page(engine))


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


def said(page: Visit, words: str) -> None:
    page.page.wait_for_function(
        "([place, words]) => document.querySelector(place)?.innerText.includes(words)", arg=[NOTICE, words]
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
    page.wait_turns(before + 1)
    return engine.asked[-1].params


def test_a_newcomer_sees_presets_and_folded_groups(page: Visit) -> None:
    opened(page)
    pressed(page, "precise")
    assert page.page.locator("#gl-settings [id^=gl-group-] [id^=gl-set-]").count() == 0
    folds = page.page.eval_on_selector_all("#gl-settings .label-wrap", "(all) => all.map((one) => one.ariaExpanded)")
    assert folds == ["true", "false", "false", "false", "false"]


def test_a_preset_sets_what_it_says_and_is_marked_while_it_fits(page: Visit, engine: FakeEngine) -> None:
    opened(page)
    page.page.click("[data-preset=creative]")
    pressed(page, "creative")
    sampling = sent(page, engine).sampling
    assert (sampling.temperature, sampling.min_p, sampling.top_p) == (1.0, 0.05, 1.0)
    page.page.click("#gl-group-sampling > button")
    value_is(page, number("temperature"), "1")
    type_into(page, "temperature", "0.6")
    pressed(page, None)
    page.page.click("[data-preset=balanced]")
    pressed(page, "balanced")
    value_is(page, number("temperature"), "0.7")
    value_is(page, number("min_p"), "0")


def test_a_preset_takes_back_what_the_one_before_had_set_and_nothing_else(page: Visit, engine: FakeEngine) -> None:
    opened(page, "limits", "system")
    page.page.fill("#gl-set-system textarea", "Be brief.")
    type_into(page, "max_new_tokens", "700")
    page.page.click("[data-preset=show_off]")
    pressed(page, "show_off")
    value_is(page, number("max_new_tokens"), "1024")
    page.page.click("[data-preset=precise]")
    pressed(page, "precise")
    value_is(page, number("max_new_tokens"), "512")
    type_into(page, "max_new_tokens", "700")
    page.page.click("[data-preset=balanced]")
    pressed(page, "balanced")
    value_is(page, number("max_new_tokens"), "700")
    assert sent(page, engine).max_new_tokens == 700
    assert engine.asked[0].messages[0].content == "Be brief."


OUT_OF_RANGE = (
    ("temperature", "7", "2", "goes from 0 to 2: 2 is used instead of 7."),
    ("top_p", "", "1", "needs a number from 0.05 to 1: 1 is used."),
    ("top_k", "-4", "0", "whole numbers from 0 to 1000: 0 is used instead of -4."),
    ("probe_every", "2.7", "3", "whole numbers from 0 to 64: 3 is used instead of 2.7."),
    ("max_new_tokens", "99999", "2048", "2048 is used instead of 99999."),
)


def test_what_is_out_of_range_is_corrected_with_a_message(page: Visit, subtests: pytest.Subtests) -> None:
    opened(page, "sampling", "decoding", "limits")
    for name, typed, used, words in OUT_OF_RANGE:
        with subtests.test(name):
            type_into(page, name, typed)
            said(page, words)
            value_is(page, number(name), used)
            right = "1" if used != "1" else "0.5"
            type_into(page, name, right)
            page.page.wait_for_function("(place) => !document.querySelector(place).innerText", arg=NOTICE)
            value_is(page, number(name), right)


def test_enter_corrects_too_and_no_message_is_lost_for_a_right_value(page: Visit, engine: FakeEngine) -> None:
    opened(page, "sampling")
    page.page.fill("#gl-set-seed input", "lucky")
    page.page.keyboard.press("Enter")
    said(page, "a new one is drawn instead of lucky")
    value_is(page, "#gl-set-seed input", "")
    page.page.fill("#gl-set-seed input", "<img src=x onerror=alert(1)>")
    page.page.keyboard.press("Enter")
    said(page, "<img")
    page.page.fill("#gl-set-seed input", "77")
    page.page.keyboard.press("Enter")
    page.page.wait_for_function("(place) => !document.querySelector(place).innerText", arg=NOTICE)
    assert sent(page, engine).sampling.seed == 77


def test_stop_strings_reach_the_engine(page: Visit, engine: FakeEngine) -> None:
    opened(page, "limits")
    page.page.fill("#gl-set-stop textarea", "END\n\n\\n\\nQ:")
    page.page.keyboard.press("Tab")
    assert sent(page, engine).stop == ("END", "\n\nQ:")
    page.page.fill("#gl-set-stop textarea", "\n".join(map(str, range(20))))
    page.page.keyboard.press("Tab")
    said(page, "takes up to 16 lines")
    value_is(page, "#gl-set-stop textarea", "\n".join(map(str, range(16))))


def test_the_dice_draw_and_the_lock_keeps_the_last_replys_seed(page: Visit, engine: FakeEngine) -> None:
    line, lock = "#gl-set-seed input", "[data-action=lock]"
    assert sent(page, engine).sampling.seed is None
    opened(page, "sampling")
    assert page.page.get_attribute(lock, "aria-pressed") == "false"
    page.page.click(lock)
    value_is(page, line, "7")  # what the scripted engine picks
    page.page.wait_for_selector(f"{lock}[aria-pressed=true]")
    assert sent(page, engine).sampling.seed == 7
    page.page.click(lock)
    value_is(page, line, "")
    page.page.wait_for_selector(f"{lock}[aria-pressed=false]")
    page.page.click("[data-action=dice]")
    page.page.wait_for_function("(line) => /^\\d+$/.test(document.querySelector(line).value)", arg=line)
    page.page.wait_for_selector(f"{lock}[aria-pressed=true]")
    drawn = page.page.input_value(line)
    page.page.click("[data-action=dice]")
    page.page.wait_for_function("([line, old]) => document.querySelector(line).value !== old", arg=[line, drawn])
    assert sent(page, engine).sampling.seed == int(page.page.input_value(line))


def test_only_what_was_chosen_is_remembered_and_it_survives_a_reload(page: Visit, engine: FakeEngine) -> None:
    opened(page, "sampling", "system")
    with remembering(page):
        page.page.fill("#gl-set-system textarea", "Be brief.")
    with remembering(page):
        type_into(page, "top_k", "40")
    page.page.reload()
    opened(page, "sampling", "system", "limits")
    value_is(page, number("top_k"), "40")
    value_is(page, "#gl-set-system textarea", "Be brief.")
    value_is(page, number("max_new_tokens"), "512")
    pressed(page, None)
    with remembering(page):
        page.page.click("[data-action=reset-settings]")
    value_is(page, number("top_k"), "0")
    value_is(page, "#gl-set-system textarea", "")
    page.page.reload()
    opened(page, "sampling")
    pressed(page, "precise")
    value_is(page, number("top_k"), "0")
    assert sent(page, engine).sampling.top_k == 0


@pytest.fixture
def start() -> Iterator[Callable[..., Any]]:
    """`start(port, engine, options)` serves the page there; what was served there before is closed."""
    from ui.layout import build_app, launch

    running: list[Any] = []

    def serve(port: int, engine: FakeEngine, options: Options | None = None) -> str:
        while running:
            running.pop().close(verbose=False)
        options = options or Options()
        app = build_app(engine, options)
        running.append(app)
        _, url, _ = launch(app, options, server_name="127.0.0.1", server_port=port, prevent_thread_lock=True)
        return str(url)

    yield serve
    for app in running:
        app.close(verbose=False)


def test_settings_survive_the_server_and_are_checked_by_the_next(start: Callable[..., Any], visit: VISIT) -> None:
    port, first = free_port(), FakeEngine(drafters=("none", "ngram", "head"))
    page = opened(visit(start(port, first)), "decoding", "limits")
    page.page.wait_for_selector("#gl-set-drafter input[value=head]")
    with remembering(page):
        page.page.check("#gl-set-drafter input[value=head]")
    with remembering(page):
        type_into(page, "max_new_tokens", "900")
    with remembering(page):
        type_into(page, "probe_every", "20")
    page.page.goto("about:blank")

    second = FakeEngine(drafters=("none", "ngram"))
    url = start(port, second, Options(max_new_tokens=300, k=5))
    page.page.goto(url)
    said(page, "“Drafter”: trained head is not available here, automatic is used instead.")
    said(page, "300 is used instead of 900.")
    opened(page, "decoding", "limits")
    value_is(page, number("probe_every"), "20")
    value_is(page, number("max_new_tokens"), "300")
    value_is(page, K, "5")
    params = sent(page, second)
    assert (params.drafter, params.max_new_tokens, params.probe_every) == ("auto", 300, 20)
    assert params.num_speculative_tokens == 5, "the command line's, since nobody had chosen another"


def test_a_remembered_drafter_waits_for_the_engine_to_say_what_it_has(start: Callable[..., Any], visit: VISIT) -> None:
    port, engine = free_port(), FakeEngine(drafters=("none", "ngram", "head"))
    page = opened(visit(start(port, engine)), "decoding")
    page.page.wait_for_selector("#gl-set-drafter input[value=head]")
    with remembering(page):
        page.page.check("#gl-set-drafter input[value=head]")
    for drafters, chosen in ((("none", "ngram", "head"), "head"), (("none", "ngram"), "auto")):
        engine.drafters = drafters
        engine.state = Status(State.LOADING, "load")
        page.page.reload()
        page.page.wait_for_function("() => document.querySelector('.chip-engine')?.innerText.includes('Loading')")
        opened(page, "decoding")
        engine.state = Status(State.READY, "ready", 1.0)
        page.page.wait_for_selector(f"#gl-set-drafter input[value={chosen}]:checked")
        assert sent(page, engine).drafter == chosen


def test_a_store_that_cannot_be_read_is_as_good_as_none(
    page: Visit, engine: FakeEngine, subtests: pytest.Subtests
) -> None:
    for broken in ("nonsense", "AAAA:BBBB"):
        with subtests.test(broken):
            page.page.evaluate("(broken) => localStorage.setItem('greenlight.settings', broken)", broken)
            page.page.reload()
            opened(page, "sampling")
            pressed(page, "precise")
            value_is(page, number("top_k"), "0")
            with remembering(page):
                type_into(page, "top_k", "9")
            assert sent(page, engine).sampling.top_k == 9


def test_everything_is_reached_by_keyboard_alone(page: Visit, engine: FakeEngine) -> None:
    keyboard = page.page.keyboard
    page.page.focus("#gl-settings > button")
    keyboard.press("Enter")
    page.page.wait_for_selector("[data-preset]")
    keyboard.press("Tab")
    keyboard.press("Tab")
    keyboard.press("Space")
    pressed(page, "balanced")
    for _ in range(4):
        keyboard.press("Tab")
    assert page.page.evaluate("() => document.activeElement.closest('[id^=gl-group-]')?.id") == "gl-group-sampling"
    keyboard.press("Enter")
    page.page.wait_for_selector(number("temperature"))
    keyboard.press("Tab")
    keyboard.type("9")
    keyboard.press("Tab")
    value_is(page, number("temperature"), "2")
    reached = []
    for _ in range(12):
        reached.append(page.page.evaluate("() => document.activeElement.dataset.action ?? ''"))
        keyboard.press("Tab")
    assert [action for action in reached if action] == ["dice", "lock"]
    assert sent(page, engine).sampling.temperature == 2


def test_the_words_switch_to_chinese(page: Visit) -> None:
    opened(page, "decoding", "sampling", "limits", "system")
    page.page.click("[data-action=language]")
    page.page.wait_for_function("() => document.querySelector('#gl-settings').innerText.includes('重复惩罚')")
    shown = page.page.inner_text("#gl-settings")
    for words in ("设置", "预设", "均衡", "解码", "采样", "长度与停止", "系统提示", "遇到就停", "恢复默认设置"):
        assert words in shown
    assert "Balanced" not in shown and "penalty" not in shown
    type_into(page, "temperature", "7")
    said(page, "“温度”的范围是 0 到 2：7 改为 2。")


def test_no_control_is_wider_than_the_pane(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    page = opened(
        visit(launch_page(engine), viewport={"width": 390, "height": 844}), "decoding", "sampling", "limits", "system"
    )
    page.page.wait_for_selector("#gl-set-system textarea")
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


def test_a_chosen_k_is_remembered_until_it_is_automatic_again(page: Visit, engine: FakeEngine) -> None:
    opened(page, "decoding")
    value_is(page, K, "automatic (by what pays)")
    with remembering(page):
        page.choose("num_speculative_tokens", "5")
    page.page.reload()
    opened(page, "decoding")
    value_is(page, K, "5")
    assert sent(page, engine).num_speculative_tokens == 5
    page.page.click("[data-preset=show_off]")
    value_is(page, K, "automatic (by what pays)")
    assert sent(page, engine).num_speculative_tokens is None


def test_k_speaks_chinese_whatever_is_chosen(page: Visit, engine: FakeEngine) -> None:
    opened(page, "decoding")
    page.choose("num_speculative_tokens", "0 · plain decoding")
    page.page.click("[data-action=language]")
    value_is(page, K, "0 · 普通解码")
    assert sent(page, engine).num_speculative_tokens == 0
    page.choose("num_speculative_tokens", "自动（划算才猜）")
    assert sent(page, engine).num_speculative_tokens is None
