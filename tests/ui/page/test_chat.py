"""The chat in a real browser, over the scripted engine. A test is a journey over one page, from its beginning to its
end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fake_engine import DEFAULT_TEXT, FakeEngine, Script
from tests.ui.page.conftest import BOX, Visit
from ui.controls import Options

pytestmark = pytest.mark.browser

LAUNCH = Callable[..., str]
VISIT = Callable[..., Visit]
NOTICE = "[data-part=notice]"
SAID = ".you .said"
TITLES = "#gl-chats [data-part=chats] .open .title"
CHATS = ".gl-header [data-action=chats]"
LANGUAGE = "[data-action=language]"
TEXT = DEFAULT_TEXT * 4
LET_IN = """(text) => document.querySelector("#gl-box textarea").dispatchEvent(
    new InputEvent("beforeinput", {data: text, inputType: "insertFromPaste", bubbles: true, cancelable: true}))"""
"""What a browser announces before it pastes."""


def test_what_is_not_sent(page: Visit, engine: FakeEngine) -> None:
    for blank in ("", "\u200b"):
        page.send(blank)
        page.says(NOTICE, "Write something")
    engine.context_len, long = 20, "word " * 50
    page.send(long)
    page.says(NOTICE, "Too long: ")
    page.holds(BOX, long)
    engine.context_len = FakeEngine.context_len
    assert page.evaluate(LET_IN, "word " * 10), "a short paste is let in"
    assert not page.evaluate(LET_IN, "x" * 99_999), "too long together with what is there already"
    page.says(NOTICE, "Too long to paste")
    page.holds(BOX, long)

    page.fill(BOX, "")
    session = page.context.new_cdp_session(page.page)
    session.send("Input.imeSetComposition", {"text": "nihao", "selectionStart": 5, "selectionEnd": 5})
    key = {"key": "Enter", "code": "Enter"}
    session.send("Input.dispatchKeyEvent", {"type": "rawKeyDown", "windowsVirtualKeyCode": 229, **key})
    for event in ("keydown", "keypress"):  # browsers that name the key although it belongs to the input method
        page.dispatch_event(BOX, event, {"keyCode": 229, "isComposing": True, "bubbles": True, **key})
    session.send("Input.insertText", {"text": "你好"})
    page.holds(BOX, "你好")
    page.keys("Shift+Enter")
    page.keyboard.type("two")
    page.holds(BOX, "你好\ntwo")
    page.press(BOX, "Enter")
    page.wait_turns(1)
    page.holds(BOX, "")
    assert [asked.messages[-1].content for asked in engine.asked] == page.texts(SAID) == ["你好\ntwo"]


def test_a_conversation(page: Visit, engine: FakeEngine) -> None:
    engine.answer, engine.hold_after = lambda _: Script(TEXT), 30
    page.begin("one")
    page.visible("#gl-stop")
    page.hidden("#gl-send")
    page.holds(BOX, "")
    page.locator(BOX).press_sequentially("my next thought")
    page.click("#gl-stop")
    page.says(".turn[data-phase=finished] .foot", "Stopped")
    broken_off = page.reply()
    assert broken_off and TEXT.startswith(broken_off), "a stop keeps what was written"
    page.hidden("#gl-stop")
    page.holds(BOX, "my next thought")
    engine.gate.set()
    page.press(BOX, "Enter")
    page.wait_turns(2)
    page.shows(SAID, "one", "my next thought")
    assert (page.reply(0), page.reply(1)) == (broken_off, TEXT)
    kinds = ("draft", "rejected", "discarded", "recovered", "bonus", "plain", "chip")
    assert [kind for kind in kinds if not page.texts(f".turn .t.{kind}")] == []
    page.says(".turn:last-child .foot", "tokens", "seed 7")
    page.says("[data-figure=speedup]", "×")

    for action, key in (("again", 3), ("reseed", 4)):
        page.click(f".turn:last-child [data-action={action}]")
        page.visible(f".turn[data-key='{key}'][data-phase=finished]")
    _, *others = engine.asked
    assert [asked.params.sampling.seed for asked in others] == [None, 7, None]
    assert len({asked.messages for asked in others}) == 1
    editor = ".turn .editor textarea"
    for way_out, written in (("Escape", "one"), ("Control+Enter", "uno")):
        page.click(".turn[data-key='1'] [data-action=edit]")
        page.holds(editor, "one")
        page.fill(editor, written)
        page.press(editor, way_out)
        page.shows(editor)
    page.wait_turns(1)
    for button, said in (("undo", ["one", "my next thought"]), ("redo", ["uno"])):
        page.click(f"#gl-{button}")
        page.shows(SAID, *said)

    page.new()
    page.talk("hello")
    for typed, after_undo, after_redo in (("", "hello", ""), ("never written over",) * 3):
        page.fill(BOX, typed)
        page.click("#gl-undo")
        page.visible(".empty .blank")
        page.hidden("#gl-undo")
        page.holds(BOX, after_undo)
        page.click("#gl-redo")
        page.wait_turns(1)
        page.holds(BOX, after_redo)

    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click(".turn [data-action=copy]")
    page.visible(".turn [data-action=copy][data-done]")
    clipboard = "() => navigator.clipboard.readText()"
    assert page.evaluate(clipboard) == TEXT
    page.evaluate("() => document.getSelection().selectAllChildren(document.querySelector('.turn .reply'))")
    page.keys("Control+c")
    types = "async () => (await navigator.clipboard.read()).flatMap((item) => item.types)"
    assert page.evaluate(types) == ["text/plain"], "no colours"
    assert page.evaluate(clipboard).strip() == TEXT.strip()

    dark = "() => document.body.classList.contains('dark')"
    was_dark = page.evaluate(dark)
    page.click("[data-action=theme]")
    page.visible(".turn .t.rejected")
    page.check("[data-switch=hide]")
    page.hidden(".turn .t.rejected")
    page.fill(BOX, "")
    page.reload()
    page.wait_turns(1)
    page.hidden(".turn .t.rejected")
    assert page.reply() == TEXT and page.evaluate(dark) is not was_dark, "a reload keeps both"
    page.talk("again")
    assert [one.content for one in engine.asked[-1].messages if one.role == "user"] == ["hello", "again"]


DEAF = """() => { const parse = JSON.parse;
    let patches = 0;
    JSON.parse = (...text) => { const value = parse(...text);
        return value?.turns && patches++ & 4 ? {conversation: "lost"} : value; }; }"""
"""Four patches in a row get lost, time and again, as when a browser hangs: more than each repeats of those before it."""


@pytest.mark.slow
def test_a_fast_reply_of_which_patches_are_lost_and_a_reader_further_up(page: Visit, engine: FakeEngine) -> None:
    script = Script("".join(f" w{i}" for i in range(500)))
    engine.answer, engine.tok_s = lambda _: script, 250
    page.begin("fast")
    page.evaluate(DEAF)
    page.wait_turns(1)
    page.says(".turn .reply", "end of turn")
    assert page.reply() == script.text

    engine.tok_s, engine.hold_after = 0, 250
    page.begin("long")
    log = "document.querySelector('.log')"
    page.wait(f"() => {log}.scrollHeight - {log}.scrollTop - {log}.clientHeight < 60")
    selected = page.evaluate(
        """() => { const log = document.querySelector('.log');
            log.scrollTop = 40;
            getSelection().selectAllChildren(log.querySelector('.turn:last-child .t.draft'));
            return String(getSelection()); }"""
    )
    engine.gate.set()
    page.wait_turns(2)
    assert page.reply() == script.text
    assert selected and page.evaluate(f"() => [{log}.scrollTop, String(getSelection())]") == [40, selected]


@pytest.mark.slow
def test_drafters_by_keyboard_and_an_example_with_its_temperature(page: Visit, engine: FakeEngine) -> None:
    for group in ("settings", "group-decoding", "group-sampling"):
        page.click(f"#gl-{group} > button")
    radio, slider = "#gl-set-drafter input", "#gl-set-temperature input[type=number]"
    page.says("#gl-missing", "No other model")
    page.focus(f"{radio}[value=auto]:checked")
    for chosen in ("none", "ngram"):
        page.keys("ArrowDown")
        page.wait_for_selector(f"{radio}[value={chosen}]:checked")
    page.holds(slider, "0")
    engine.hold_after = 20
    page.click("[data-example='5']")
    page.begin()
    page.holds(slider, "1.2")
    page.fill(slider, "0.3")
    page.keys("Tab")
    engine.gate.set()
    page.wait_turns(1)
    page.holds(slider, "0.3")
    [asked] = engine.asked
    assert (asked.params.drafter, asked.params.sampling.temperature) == ("ngram", 1.2)


WIDE = "word_" * 60
TABLE = "".join("|" + cell * 30 + "\n" for cell in ("column|", "-|", "value|"))
FITS = """(width) => [document.documentElement, document.querySelector('[data-part=log]')].every(
    (one) => one.scrollWidth <= Math.min(one.clientWidth, innerWidth))
    && document.querySelector('#gl-send').getBoundingClientRect().left < width"""


def fits(page: Visit) -> None:
    for width in (1280, 360, 390):
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate(FITS, width), width


@pytest.mark.slow
def test_on_a_phone(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    engine.answer = lambda _: Script(f"{WIDE}\n\n```\n{WIDE}\n```\n\n{TABLE}\n一段很长的中文，没有空格。\n\n{TEXT}")
    page = visit(launch_page(engine), viewport={"width": 390, "height": 844}, has_touch=True, locale="zh-CN")
    page.says("#gl-send", "发送")  # as the browser's language
    page.says(".blank", "问点什么")
    page.talk("y" * 500)
    fits(page)
    page.tap(".gl-header [data-action=chat-new]")
    page.visible(".empty .blank")
    fits(page)
    page.talk("二")
    page.says(".fold [data-figure=line]", "100")
    page.hidden("#gl-figures")
    page.tap(".fold")
    page.visible("#gl-figures")
    page.tap(".fold")
    page.evaluate("() => document.querySelector('[data-switch=colours]').click()")
    page.visible(".gl-prose table")
    fits(page)
    scroll = "(all) => all.length === 2 && all.every((one) => one.scrollWidth > one.clientWidth && one.tabIndex === 0)"
    page.until(".gl-prose :is(pre, .table)", scroll)

    page.hidden("#gl-chats")
    page.tap(CHATS)
    page.shows(TITLES, "二", "y" * 60 + "…")
    page.says(".where", "只保存在这个浏览器里")
    page.focused(".chats .new")
    behind = "() => Boolean(document.activeElement.closest('#gl-header, #gl-log, #gl-side, #gl-composer'))"
    for _ in range(12):
        page.keys("Tab")
        assert not page.evaluate(behind), "what is behind the drawer cannot be reached"
    page.keys("Escape")
    page.hidden("#gl-chats")
    page.focused(CHATS)
    page.tap(CHATS)
    page.visible("#gl-chats")
    page.touchscreen.tap(380, 400)  # beside it
    page.hidden("#gl-chats")
    page.tap(CHATS)
    page.tap(f"{TITLES} >> nth=1")
    page.shows(SAID, "y" * 500)
    page.hidden("#gl-chats")

    page.tap(LANGUAGE)
    page.says("#gl-send", "Send")
    page.click("#gl-settings > button")
    fits(page)
    page.reload()
    page.says("#gl-send", "Send")


@pytest.mark.slow
def test_the_column_of_chats_folds(
    engine: FakeEngine, launch_page: LAUNCH, visit: VISIT, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a page whose language is the command line's, from a server that Gradio finds too slow to be there."""
    monkeypatch.setattr("gradio.networking.url_ok", lambda url: False)  # so it says of a page that takes three seconds
    page = visit(launch_page(engine, Options(lang="zh")))
    page.says("#gl-send", "发送")
    page.talk("hello")
    room = "document.querySelector('[data-part=turns]').getBoundingClientRect().width"
    rem = "parseFloat(getComputedStyle(document.documentElement).fontSize)"
    assert page.evaluate(f"() => {room} / {rem}") >= 39.9, "what is left to read in"
    for width, opened in ((1280, "true"), (1270, "false")):
        page.evaluate("() => localStorage.removeItem('greenlight.chats')")
        page.set_viewport_size({"width": width, "height": 800})
        page.visible(f"{CHATS}[aria-expanded={opened}]")
        page.click(CHATS)
        page.reload()
        page.wait_turns(1)
        (page.hidden if opened == "true" else page.visible)("#gl-chats")
        page.hidden(f"{CHATS}[aria-expanded={opened}]")


FORBIDDEN = """for (const name of ["localStorage", "sessionStorage", "indexedDB"]) Object.defineProperty(
    window, name, {configurable: true, get() { throw new DOMException("no", "SecurityError"); }});"""


@pytest.mark.slow
def test_where_the_browser_forbids_storage_chats_last_as_long_as_the_page(
    engine: FakeEngine, launch_page: LAUNCH, visit: VISIT
) -> None:
    """No script may throw. Whether one that does leaves out a part of the page is chance."""
    page = visit(launch_page(engine), locale="en-US")  # a profile of its own, in which the script stays
    page.context.add_init_script(FORBIDDEN)
    page.reload()
    page.visible("[data-ready=yes]")
    page.says(".where", "forbids storage")
    for message in ("one", "two"):
        page.talk(message)
        page.new()
    page.shows(TITLES, "two", "one")
    page.click(f"{TITLES} >> nth=1")
    page.shows(SAID, "one")
    for action in ("more", "delete", "delete-yes"):
        page.click(f"#gl-chats .chat:first-child [data-action=chat-{action}]")
    page.shows(TITLES, "one")
