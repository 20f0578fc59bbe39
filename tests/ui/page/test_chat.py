"""The page in a real browser, over the scripted engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.serving.engine import State, Status
from engine.text.tokenizer import NO_TEMPLATE
from tests.fake_engine import DEFAULT_TEXT, FakeEngine, Script
from tests.ui.page.conftest import Visit
from tests.ui.samples import BIG_LIST, NAUGHTY
from ui.controls import Options

pytestmark = pytest.mark.browser

LAUNCH = Callable[..., str]
VISIT = Callable[..., Visit]


def test_a_reply_streams_in_colours(page: Visit, engine: FakeEngine) -> None:
    engine.hold_after = 30
    page.send("hello")
    page.wait_turns(1, "running")
    page.page.wait_for_selector(".turn .t.draft")
    assert page.page.is_visible("#gl-stop") and not page.page.is_visible("#gl-send")
    assert page.page.input_value("#gl-box textarea") == ""
    engine.gate.set()
    page.wait_turns(1)
    assert page.reply() == DEFAULT_TEXT.rstrip() or page.reply() == DEFAULT_TEXT
    for kind in ("draft", "rejected", "discarded", "recovered", "bonus", "plain", "chip"):
        assert page.texts(f".turn .t.{kind}"), kind
    assert "tokens" in page.page.inner_text(".turn .foot") and "seed 7" in page.page.inner_text(".turn .foot")
    assert page.page.is_visible("#gl-send") and not page.page.is_visible("#gl-stop")


def test_the_figures_show_both_speeds(page: Visit, engine: FakeEngine) -> None:
    engine.answer = lambda _: Script(text=DEFAULT_TEXT * 4)
    assert page.texts("b[data-figure=spec]") == ["–"]
    page.send("hello")
    page.wait_turns(1)
    assert page.page.inner_text("[data-figure=plain]") == "100"
    assert float(page.page.inner_text("[data-figure=spec]")) > 200
    assert page.page.inner_text("[data-figure=speedup]").endswith("×")
    assert "measured in this reply" in page.page.inner_text("[data-figure=baseline]")


def open_settings(page: Visit, group: str) -> None:
    page.page.click("#gl-settings > button")
    page.page.click(f"#gl-group-{group} > button")


def test_nothing_is_lost_at_high_speed(page: Visit, engine: FakeEngine) -> None:
    engine.tok_s = 500
    engine.answer = lambda _: Script(text="".join(f" w{i}" for i in range(2400)))
    open_settings(page, "limits")
    page.page.fill("#gl-set-max_new_tokens input", "2048")
    page.page.keyboard.press("Tab")
    page.send("hello")
    page.wait_turns(1)
    assert page.reply() == "".join(f" w{i}" for i in range(2048))
    struck = [piece.text for block in _conversation_blocks(engine) for piece in block]
    assert page.page.locator(".turn .t.rejected, .turn .t.discarded").count() == len(struck)


def _conversation_blocks(engine: FakeEngine) -> list[list[Any]]:
    from tests.fake_engine import play
    from ui.state import LOST_KINDS, Reply, advance

    asked = engine.asked[-1]
    reply = advance(Reply(), play(engine.answer(asked.messages[-1].content), asked.params))
    return [[piece for piece in block.pieces if piece.kind in LOST_KINDS] for block in reply.blocks]


def test_a_page_that_slept_through_a_reply_catches_up(page: Visit, engine: FakeEngine) -> None:
    engine.tok_s = 200
    engine.answer = lambda _: Script(text=DEFAULT_TEXT * 6)
    page.send("hello")
    page.page.wait_for_selector(".turn .t.draft")
    page.page.evaluate("() => { const end = Date.now() + 2500; while (Date.now() < end); }")  # the browser hangs
    page.wait_turns(1)
    page.page.wait_for_function("() => document.querySelector('.turn .reply').textContent.includes('end of turn')")
    assert page.reply() == (DEFAULT_TEXT * 6).rstrip() or page.reply() == DEFAULT_TEXT * 6


def test_nothing_a_person_or_a_model_says_runs(page: Visit, engine: FakeEngine, subtests: pytest.Subtests) -> None:
    page.page.evaluate("() => { window.alert = () => { throw new Error('a script ran'); }; }")
    for turn, payload in enumerate((one.replace("\x00", "") for one in NAUGHTY), 1):
        with subtests.test(payload):
            before = len(page.errors)
            says_back(page, engine, turn, payload)
            assert page.errors[before:] == []
    assert page.page.locator(".turn img, .turn script, .turn [onmouseover]").count() == 0


def says_back(page: Visit, engine: FakeEngine, turn: int, payload: str) -> None:
    """A turn in which both sides say it, in one piece and in two, and guesses are made of it."""
    half, last = len(payload) // 2, f".turn[data-key='{turn}']"
    engine.answer = lambda message: Script(
        pieces=["a", message[:half], message[half:], "z"] * 4, wrong=(payload, payload[:half])
    )
    page.send(payload)
    page.wait_turns(turn)
    assert page.texts(f"{last} .you .said") == [payload]
    assert page.reply() == f"a{payload}z" * 4
    assert payload in page.texts(f"{last} .t.rejected") + page.texts(f"{last} .t.discarded")
    assert page.page.locator(f"{last} :is(img, script, [onmouseover])").count() == 0


def test_the_big_list_in_one_message_and_one_reply(page: Visit, engine: FakeEngine) -> None:
    everything = " ".join(BIG_LIST).replace("\x00", "")
    engine.answer = lambda message: Script(pieces=[message[:700], message[700:]], wrong=tuple(BIG_LIST))
    page.page.evaluate("() => { window.alert = () => { throw new Error('a script ran'); }; }")
    page.send(everything)
    page.wait_turns(1)
    said = engine.asked[0].messages[-1].content
    assert page.texts(".you .said") == [said] and page.reply() == said
    assert page.page.evaluate("() => [...document.querySelectorAll('.turn *')].every((e) => "
                              "['H3', 'P', 'DIV', 'SPAN', 'S', 'BR', 'BUTTON', 'svg', 'path', 'rect', "
                              "'circle'].includes(e.tagName) || "
                              "e.matches('a.term[href^=\"?tab=learn#glossary-\"]'))")  # fmt: skip


def test_what_the_model_lacks_is_on_the_page(launch_page: LAUNCH, visit: VISIT) -> None:
    page = visit(launch_page(FakeEngine(note=NO_TEMPLATE))).page
    page.wait_for_selector("[data-figure=note]:visible")
    assert page.inner_text("[data-figure=note]") == NO_TEMPLATE
    page.click("[data-action=language]")
    assert "对话模板" in page.inner_text("[data-figure=note]")


def test_enter_sends_and_shift_enter_breaks_the_line(page: Visit, engine: FakeEngine) -> None:
    box = page.page.locator("#gl-box textarea")
    box.click()
    page.page.keyboard.type("one")
    page.page.keyboard.press("Shift+Enter")
    page.page.keyboard.type("two")
    assert box.input_value() == "one\ntwo" and not engine.asked
    page.page.keyboard.press("Enter")
    page.wait_turns(1)
    assert page.texts(".you .said") == ["one\ntwo"] and box.input_value() == ""


def test_enter_while_an_input_method_composes_does_not_send(page: Visit, engine: FakeEngine) -> None:
    box = page.page.locator("#gl-box textarea")
    box.click()
    session = page.page.context.new_cdp_session(page.page)
    session.send("Input.imeSetComposition", {"text": "nihao", "selectionStart": 5, "selectionEnd": 5})
    enter = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 229, "nativeVirtualKeyCode": 229}
    session.send("Input.dispatchKeyEvent", {"type": "rawKeyDown", **enter})
    for event in ("keydown", "keypress"):  # browsers that name the key although it belongs to the input method
        box.dispatch_event(
            event, {"key": "Enter", "code": "Enter", "keyCode": 229, "isComposing": True, "bubbles": True}
        )
    session.send("Input.insertText", {"text": "你好"})
    assert box.input_value() == "你好"
    page.page.keyboard.press("Enter")
    page.wait_turns(1)
    assert page.texts(".you .said") == ["你好"] and len(engine.asked) == 1


def test_an_empty_message_is_a_hint(page: Visit, engine: FakeEngine) -> None:
    for blank in ("", "   ", "\u200b"):
        page.send(blank)
        page.page.wait_for_function(
            "() => document.querySelector('[data-part=notice]').innerText.includes('Write something')"
        )
    assert not engine.asked


def test_a_refused_message_stays_in_the_box(page: Visit, engine: FakeEngine) -> None:
    engine.context_len = 20
    long = "word " * 50
    page.send(long)
    page.page.wait_for_function("() => document.querySelector('[data-part=notice]').innerText.includes('Too long')")
    assert page.page.input_value("#gl-box textarea") == long and not page.texts(".turn")


def test_a_paste_that_is_far_too_long_is_turned_away(page: Visit) -> None:
    # What a browser announces before it pastes. The real clipboard belongs to the machine, and tests share it.
    let_in = """(text) => document.querySelector("#gl-box textarea").dispatchEvent(
        new InputEvent("beforeinput", {data: text, inputType: "insertFromPaste", bubbles: true, cancelable: true}))"""
    page.page.fill("#gl-box textarea", "before " * 10)
    assert page.page.evaluate(let_in, "word " * 10)
    assert not page.page.evaluate(let_in, "x" * 99_999)  # together with what is there already
    assert "Too long to paste" in page.page.inner_text("[data-part=notice]")
    assert page.page.input_value("#gl-box textarea") == "before " * 10


def test_stop_keeps_the_words_and_the_next_message_is_answered(page: Visit, engine: FakeEngine) -> None:
    engine.hold_after = 20
    page.send("hello")
    page.page.wait_for_selector(".turn .t.draft")
    page.page.click("#gl-stop")
    page.wait_turns(1)
    assert "Stopped" in page.page.inner_text(".turn .foot")
    written = page.reply()
    assert written and DEFAULT_TEXT.startswith(written)
    engine.gate.set()
    page.send("again")
    page.wait_turns(2)
    assert page.reply(0) == written and len(page.reply(1)) > len(written)


def test_typing_goes_on_while_a_reply_is_written(page: Visit, engine: FakeEngine) -> None:
    engine.hold_after = 20
    page.send("hello")
    page.page.wait_for_selector(".turn .t.draft")
    page.page.locator("#gl-box textarea").type("my next thought")
    engine.gate.set()
    page.wait_turns(1)
    assert page.page.input_value("#gl-box textarea") == "my next thought"


def test_a_reply_once_more_with_the_same_seed_and_another(page: Visit, engine: FakeEngine) -> None:
    page.send("hello")
    page.wait_turns(1)
    page.page.click(".turn [data-action=again]")
    page.page.wait_for_selector(".turn[data-key='2'][data-phase=finished]")
    page.page.click(".turn [data-action=reseed]")
    page.page.wait_for_selector(".turn[data-key='3'][data-phase=finished]")
    assert len({asked.messages for asked in engine.asked}) == 1
    assert [asked.params.sampling.seed for asked in engine.asked] == [None, 7, None]


def test_a_message_edited_in_its_place(page: Visit, engine: FakeEngine) -> None:
    for message in ("one", "two"):
        page.send(message)
        page.page.wait_for_selector("#gl-send", state="visible")
    page.wait_turns(2)
    page.page.click(".turn[data-key='1'] [data-action=edit]")
    editor = page.page.locator(".turn[data-key='1'] .editor textarea")
    assert editor.input_value() == "one"
    editor.fill("uno")
    editor.press("Control+Enter")
    page.page.wait_for_selector(".turn[data-key='3'][data-phase=finished]")
    assert page.texts(".you .said") == ["uno"]
    page.page.click("#gl-undo")
    page.wait_turns(2)
    assert page.texts(".you .said") == ["one", "two"]
    page.page.click("#gl-redo")
    page.wait_turns(1)
    assert page.texts(".you .said") == ["uno"]
    page.page.click(".turn [data-action=edit]")
    page.page.press(".turn .editor textarea", "Escape")
    assert page.page.is_visible(".you .said") and page.page.locator(".turn .editor").count() == 0


def test_undo_gives_the_message_back(page: Visit, engine: FakeEngine) -> None:
    page.send("hello")
    page.wait_turns(1)
    page.page.click("#gl-undo")
    page.page.wait_for_selector(".empty .blank", state="visible")
    assert page.page.input_value("#gl-box textarea") == "hello"
    assert not page.page.is_visible("#gl-undo")


def test_redo_takes_the_message_out_of_the_box_again(page: Visit, engine: FakeEngine) -> None:
    page.send("hello")
    page.wait_turns(1)
    page.page.click("#gl-undo")
    page.page.wait_for_function("() => document.querySelector('#gl-box textarea').value === 'hello'")
    page.page.click("#gl-redo")
    page.wait_turns(1)
    assert page.page.input_value("#gl-box textarea") == ""


def test_undo_never_writes_over_what_is_typed(page: Visit, engine: FakeEngine) -> None:
    page.send("hello")
    page.wait_turns(1)
    page.page.fill("#gl-box textarea", "my next thought")
    page.page.click("#gl-undo")
    page.page.wait_for_selector(".empty .blank", state="visible")
    assert page.page.input_value("#gl-box textarea") == "my next thought"


@pytest.mark.parametrize("storage", ["localStorage", "sessionStorage"])
def test_a_browser_that_stores_nothing_can_chat(
    engine: FakeEngine, launch_page: LAUNCH, chromium: Any, storage: str
) -> None:
    browser_page = chromium.new_context(locale="en-US").new_page()
    browser_page.set_default_timeout(60_000)
    errors: list[str] = []
    browser_page.on("pageerror", lambda error: errors.append(str(error)))
    script = f"Object.defineProperty(window, '{storage}', {{configurable: true, get() {{ throw new DOMException('no', 'SecurityError'); }}}});"
    browser_page.add_init_script(script)
    browser_page.goto(launch_page(engine))
    browser_page.wait_for_selector(".empty .blank", state="visible")
    page = Visit(browser_page)
    page.send("hello")
    page.wait_turns(1)
    assert page.texts(".you .said") == ["hello"]
    assert not errors  # whether one leaves a part of the page out is a matter of timing, so there must be none
    browser_page.context.close()


def test_a_page_that_is_slow_to_come_up_is_no_fault_of_the_proxy(
    engine: FakeEngine, launch_page: LAUNCH, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gradio.networking.url_ok", lambda url: False)  # so it says of a page that takes three seconds
    assert launch_page(engine, Options()).startswith("http://127.0.0.1:")


def test_a_message_that_another_tab_forestalls_stays_in_the_box(page: Visit, engine: FakeEngine) -> None:
    engine.hold_after = 5
    with page.page.expect_popup() as opened:
        page.page.evaluate("() => { window.open(location.href); }")  # a copy of this tab has its conversation, too
    other = Visit(opened.value)
    other.page.wait_for_function("() => window.greenlight && document.querySelector('#gl-send')")
    page.send("first")
    page.page.wait_for_selector(".turn .t")
    other.page.wait_for_timeout(500)
    other.send("second")
    other.page.wait_for_function("() => document.querySelector('[data-part=notice]').innerText.trim()")
    assert other.page.input_value("#gl-box textarea") == "second"
    engine.gate.set()
    page.wait_turns(1)
    other.page.wait_for_timeout(1500)
    assert other.page.input_value("#gl-box textarea") == "second" and len(engine.asked) == 1


def test_copying_a_reply_gives_its_plain_text(page: Visit, engine: FakeEngine) -> None:
    page.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.send("hello")
    page.wait_turns(1)
    page.page.click(".turn [data-action=copy]")
    page.page.wait_for_selector(".turn [data-action=copy][data-done]")
    assert page.page.evaluate("() => navigator.clipboard.readText()") == DEFAULT_TEXT.rstrip(" ") + (
        " " if page.reply().endswith(" ") else ""
    )
    page.page.evaluate("() => document.getSelection().selectAllChildren(document.querySelector('.turn .reply'))")
    page.page.keyboard.press("Control+c")
    copied = page.page.evaluate("() => navigator.clipboard.readText()")
    assert copied.strip() == page.reply().strip()
    assert page.page.evaluate("async () => (await navigator.clipboard.read()).flatMap((item) => item.types)") == [
        "text/plain"
    ]


def test_a_reload_keeps_the_conversation(page: Visit, engine: FakeEngine) -> None:
    page.send("hello")
    page.wait_turns(1)
    whole = page.reply()
    page.page.reload()
    page.wait_turns(1)
    assert page.reply() == whole and page.texts(".you .said") == ["hello"]
    page.send("again")
    page.wait_turns(2)
    assert len(engine.asked[-1].messages) == 3


def test_a_reload_in_the_middle_stops_the_reply_and_keeps_its_words(page: Visit, engine: FakeEngine) -> None:
    engine.hold_after = 20
    page.send("hello")
    page.page.wait_for_selector(".turn .t.draft")
    page.page.reload()
    assert engine.asked[0].stream._stop.wait(60)
    page.wait_turns(1)
    assert page.reply() and DEFAULT_TEXT.startswith(page.reply())


def test_closing_the_tab_stops_the_reply(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    engine.hold_after = 20
    leaving = visit(launch_page(engine))
    leaving.send("hello")
    leaving.page.wait_for_selector(".turn .t.draft")
    leaving.page.close()
    assert engine.asked[0].stream._stop.wait(60)


def test_two_people_do_not_meet(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    engine.hold_after = 20
    url = launch_page(engine)
    one, two = visit(url), visit(url)
    one.send("mine")
    two.send("theirs")
    for person in (one, two):
        person.page.wait_for_selector(".turn .t.draft")
    one.page.click("#gl-stop")
    one.wait_turns(1)
    theirs = next(asked for asked in engine.asked if asked.messages[-1].content == "theirs")
    assert not theirs.stream.cancelled
    engine.gate.set()
    two.wait_turns(1)
    assert one.texts(".you .said") == ["mine"] and two.texts(".you .said") == ["theirs"]
    assert len(two.reply()) > len(one.reply())


def test_an_example_runs_with_its_temperature(page: Visit, engine: FakeEngine) -> None:
    page.page.click("[data-example='5']")
    page.wait_turns(1)
    assert engine.asked[0].params.sampling.temperature == 1.2
    open_settings(page, "sampling")
    assert page.page.input_value("#gl-set-temperature input[type=number]") == "1.2"


def test_the_temperature_can_be_changed_while_an_example_is_written(page: Visit, engine: FakeEngine) -> None:
    engine.hold_after = 20
    open_settings(page, "sampling")
    page.page.click("[data-example='5']")
    page.wait_turns(1, "running")
    slider = page.page.locator("#gl-set-temperature input[type=number]")
    slider.fill("0.3")
    page.page.keyboard.press("Tab")
    engine.gate.set()
    page.wait_turns(1)
    assert slider.input_value() == "0.3"


def test_k_is_automatic_until_somebody_sets_it(page: Visit, engine: FakeEngine) -> None:
    page.send("one")
    page.wait_turns(1)
    open_settings(page, "decoding")
    page.choose("num_speculative_tokens", "4")
    page.send("two")
    page.wait_turns(2)
    page.choose("num_speculative_tokens", "automatic (by what pays)")
    page.send("three")
    page.wait_turns(3)
    page.choose("num_speculative_tokens", "0 · plain decoding")
    page.send("four")
    page.wait_turns(4)
    assert [asked.params.num_speculative_tokens for asked in engine.asked] == [None, 4, None, 0]


def test_a_drafter_is_chosen_from_what_there_is(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    engine.drafters = ("none", "ngram", "head", "both")
    engine.state = Status(State.LOADING, "load")
    page = visit(launch_page(engine))
    engine.state = Status(State.READY, "ready", 1.0)
    page.page.wait_for_function("() => document.querySelector('.chip-engine').innerText.includes('bit-exact')")
    open_settings(page, "decoding")
    page.page.wait_for_function("() => document.querySelectorAll('#gl-set-drafter input').length === 5")
    assert page.page.eval_on_selector_all("#gl-set-drafter input", "(all) => all.map((one) => one.value)") == [
        "auto", "none", "ngram", "head", "both",
    ]  # fmt: skip
    assert page.page.is_checked("#gl-set-drafter input[value=auto]")
    missing = page.page.inner_text("#gl-missing")
    assert "No other model" in missing and "head" not in missing
    page.page.focus("#gl-set-drafter input[value=auto]")
    for chosen in ("none", "ngram", "head"):
        page.page.keyboard.press("ArrowDown")
        page.page.wait_for_selector(f"#gl-set-drafter input[value={chosen}]:checked")
    page.page.click("[data-action=language]")
    page.page.wait_for_function("() => document.querySelector('#gl-set-drafter').innerText.includes('草稿头')")
    page.send("hello")
    page.wait_turns(1)
    assert engine.asked[0].params.drafter == "head"
    assert "没有另一个模型" in page.page.inner_text("#gl-missing")


def test_the_page_says_while_guessing_is_off(page: Visit, engine: FakeEngine) -> None:
    engine.answer = lambda _: Script(text=DEFAULT_TEXT * 4, rests=(12, 40))
    engine.hold_after = 44
    page.send("hello")
    page.page.wait_for_function(
        "() => document.querySelector('[data-figure=rest]').innerText.includes('it would be 0.80× here')"
    )
    assert page.page.inner_text("[data-figure=k]") == "0"
    page.page.click("[data-action=language]")
    assert "只有 0.80×" in page.page.inner_text("[data-figure=rest]")
    engine.gate.set()
    page.wait_turns(1)
    assert page.page.inner_text("[data-figure=rest]") == ""
    assert page.page.inner_text("[data-figure=expected]").endswith("×")
    assert float(page.page.inner_text("[data-figure=mean_k]")) > 0


def test_wrong_guesses_can_be_hidden(page: Visit) -> None:
    page.send("hello")
    page.wait_turns(1)
    assert page.page.locator(".turn .t.rejected").first.is_visible()
    page.page.check("[data-switch=hide]")
    assert not page.page.locator(".turn .t.rejected").first.is_visible()
    assert page.page.inner_text(".turn .reply").replace("end of turn", "").strip() == DEFAULT_TEXT.strip()
    page.page.reload()
    page.wait_turns(1)
    assert page.page.is_checked("[data-switch=hide]")


def test_no_page_is_wider_than_its_window(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    engine.answer = lambda _: Script(pieces=["x" * 500, " ok"])
    open_page = visit(launch_page(engine), viewport={"width": 390, "height": 844})
    wide = "() => document.documentElement.scrollWidth <= innerWidth"

    def fits(width: int) -> None:
        open_page.page.set_viewport_size({"width": width, "height": 844})
        assert open_page.page.evaluate(wide), width
        assert open_page.page.locator("#gl-send").bounding_box()["x"] < width

    for width in (390, 1280):
        fits(width)
    open_page.send("y" * 500)
    open_page.wait_turns(1)
    for width in (1280, 390):
        fits(width)
    open_page.page.click("#gl-settings button")
    for width in (390, 1280):
        fits(width)


def test_on_a_phone_the_figures_fold_into_a_line(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    engine.answer = lambda _: Script(text=DEFAULT_TEXT * 4)
    phone = visit(launch_page(engine), viewport={"width": 390, "height": 844})
    phone.send("hello")
    phone.wait_turns(1)
    assert "plain 100" in phone.page.inner_text(".fold [data-figure=line]")
    assert not phone.page.is_visible("#gl-figures")
    phone.page.click(".fold")
    assert phone.page.is_visible("#gl-figures") and phone.page.get_attribute(".fold", "aria-expanded") == "true"


def test_the_page_speaks_the_browsers_language_and_can_be_switched(
    engine: FakeEngine, launch_page: LAUNCH, visit: VISIT
) -> None:
    url = launch_page(engine)
    chinese = visit(url, locale="zh-CN")
    chinese.page.wait_for_function("() => document.querySelector('#gl-send')?.innerText.trim() === '发送'")
    assert "问点什么" in chinese.page.inner_text(".blank")
    chinese.page.click("[data-action=language]")
    chinese.page.wait_for_function("() => document.querySelector('#gl-send')?.innerText.trim() === 'Send'")
    assert "Ask something" in chinese.page.inner_text(".blank")
    chinese.page.reload()
    chinese.page.wait_for_function("() => document.querySelector('#gl-send')?.innerText.trim() === 'Send'")


def test_the_command_line_can_fix_the_language(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    fixed = visit(launch_page(engine, Options(lang="zh")))
    fixed.page.wait_for_function("() => document.querySelector('#gl-send')?.innerText.trim() === '发送'")


def test_the_theme_is_remembered(page: Visit) -> None:
    dark = "() => document.body.classList.contains('dark')"
    before = page.page.evaluate(dark)
    page.page.click("[data-action=theme]")
    assert page.page.evaluate(dark) != before
    page.page.reload()
    page.page.wait_for_function(f"() => ({dark})() === {str(not before).lower()}")


def test_loading_is_shown_and_the_message_goes_out_when_it_is_done(
    engine: FakeEngine, launch_page: LAUNCH, visit: VISIT
) -> None:
    engine.state = Status(State.LOADING, "fetch", 0.42)
    early = visit(launch_page(engine))
    early.page.wait_for_function("() => document.querySelector('.loading')?.innerText.includes('42 %')")
    early.send("hello")
    early.page.wait_for_selector("#gl-stop", state="visible")
    early.page.wait_for_function("() => document.querySelector('.notice').innerText.includes('Your message is sent')")
    assert not engine.asked and not early.page.inner_text(".loading")
    engine.state = Status(State.LOADING, "load")
    early.page.wait_for_function("() => document.querySelector('.chip-engine').innerText.includes('Loading')")
    engine.hold_after = 20
    engine.state = Status(State.READY, "ready", 1.0)
    early.wait_turns(1, "running")
    assert "bit-exact" in early.page.inner_text(".chip-engine")  # already while the first reply is written
    engine.gate.set()
    early.wait_turns(1)
    early.page.wait_for_function("() => document.querySelector('.chip-engine')?.innerText.includes('bit-exact')")


def test_a_failed_model_says_what_to_do(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    engine.state = Status(State.FAILED, "fetch", message="Connect once, then start again.")
    failed = visit(launch_page(engine))
    failed.page.wait_for_function("() => document.querySelector('.loading')?.innerText.includes('Connect once')")


def test_nothing_is_loaded_from_elsewhere(page: Visit) -> None:
    page.send("hello")
    page.wait_turns(1)
    page.page.click("#gl-settings button")
    assert page.outside == []


def test_reading_further_up_is_not_disturbed(page: Visit, engine: FakeEngine) -> None:
    engine.answer = lambda _: Script(text=DEFAULT_TEXT * 30)
    engine.hold_after = 500
    page.send("hello")
    page.page.wait_for_function(
        "() => { const log = document.querySelector('.log'); return log.scrollHeight > log.clientHeight + 300; }"
    )
    page.page.wait_for_function(
        "() => { const log = document.querySelector('.log'); return log.scrollHeight - log.scrollTop - "
        "log.clientHeight < 60; }"
    )
    page.page.evaluate("""() => { document.querySelector('.log').scrollTop = 40;
        getSelection().selectAllChildren(document.querySelector('.turn .t.draft')); }""")
    selected = page.page.evaluate("() => getSelection().toString()")
    before = page.page.locator(".turn .t").count()
    engine.gate.set()
    page.page.wait_for_function("(n) => document.querySelectorAll('.turn .t').length > n", arg=before)
    assert page.page.evaluate("() => document.querySelector('.log').scrollTop") == 40
    assert page.page.evaluate("() => getSelection().toString()") == selected != ""


def test_every_control_has_a_name(page: Visit) -> None:
    page.page.click("#gl-settings button")
    nameless = page.page.evaluate(
        """() => [...document.querySelectorAll('button, input, textarea, select')].filter((one) => one.offsetParent &&
             !(one.innerText || '').trim() && !one.getAttribute('aria-label') && !one.labels?.length && !one.title)
             .map((one) => one.outerHTML.slice(0, 200))"""
    )
    assert nameless == []
