"""The chats in the sidebar, in a real browser over the scripted engine: what is kept, and that nothing gets lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fake_engine import DEFAULT_TEXT, FakeEngine, Script
from tests.ui.conftest import free_port, until
from tests.ui.page.conftest import Visit
from tests.ui.samples import NAUGHTY
from ui.controls import Options
from ui.recording import saved

pytestmark = pytest.mark.browser

LAUNCH = Callable[..., str]
VISIT = Callable[..., Visit]

LIST = "#gl-chats [data-part=chats]"
TITLES = f"{LIST} .open .title"
READ_ALL = """() => new Promise((done) => { const opening = indexedDB.open("greenlight", 1);
    opening.onsuccess = () => { const all = opening.result.transaction("chats").objectStore("chats").getAll();
        all.onsuccess = () => { opening.result.close(); done(all.result); }; }; })"""


class Server:
    """A server that can be started again under the same address, knowing nothing of before."""

    def __init__(self) -> None:
        self.port = free_port()
        self.app: Any = None

    def start(self, engine: FakeEngine) -> str:
        from ui.layout import build_app, launch

        self.stop()
        self.app = build_app(engine, Options())
        launch(self.app, Options(), server_name="127.0.0.1", server_port=self.port, prevent_thread_lock=True)
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        if self.app is not None:
            self.app.close(verbose=False)
            self.app = None


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.stop()


def chat(page: Visit, *messages: str) -> None:
    """A conversation from the chat shown on, until it is kept."""
    before = page.page.locator(".turn").count()
    for i, message in enumerate(messages, before + 1):
        page.send(message)
        page.wait_turns(i)
    until(lambda: any(kept(one, message) for one in page.page.evaluate(READ_ALL)))


def kept(record: dict[str, Any], message: str) -> bool:
    last = record["turns"][-1]
    return bool(last["user"] == message and last["rows"] and last["rows"][-1]["e"] == "end")


def new(page: Visit) -> None:
    page.page.click("#gl-chats .new")
    page.page.wait_for_selector(".empty .blank", state="visible")
    assert page.texts(".turn") == []


def choose(page: Visit, title: str) -> None:
    page.page.click(f"{TITLES}:text-is('{title}')")


def wait_titles(page: Visit, *titles: str) -> None:
    page.page.wait_for_function(
        "([place, titles]) => JSON.stringify([...document.querySelectorAll(place)].map((e) => e.textContent)) === "
        "titles",
        arg=[TITLES, json.dumps(titles, separators=(",", ":"), ensure_ascii=False)],
    )


def reopen(page: Visit, server: Server, engine: FakeEngine) -> None:
    """The server is started again while the page is elsewhere, so that Gradio does not load it anew at the same
    time."""
    page.page.goto("about:blank")
    page.page.goto(server.start(engine))


def menu(page: Visit, title: str, action: str) -> None:
    entry = page.page.locator(f"{LIST} .chat", has=page.page.locator(f".open .title:text-is('{title}')"))
    entry.hover()
    if entry.locator(".more").get_attribute("aria-expanded") != "true":
        entry.locator(".more").click()
    entry.locator(f"[data-action=chat-{action}]").click()


def test_two_chats_and_back_and_forth(page: Visit, engine: FakeEngine) -> None:
    engine.answer = lambda message: Script(text=f"I heard {message}. " + DEFAULT_TEXT)
    assert page.page.is_visible("#gl-chats .none") and "in this browser only" in page.page.inner_text(".where")
    chat(page, "first thing", "and more")
    new(page)
    chat(page, "second thing")
    wait_titles(page, "second thing", "first thing")
    assert page.page.get_attribute(f"{LIST} .open >> nth=0", "aria-current") == "true"
    choose(page, "first thing")
    page.wait_turns(2)
    assert page.texts(".you .said") == ["first thing", "and more"] and page.reply(0).startswith("I heard first thing.")
    choose(page, "second thing")
    page.wait_turns(1)
    assert page.reply().startswith("I heard second thing.")
    wait_titles(page, "second thing", "first thing")  # to look at a chat does not move it
    choose(page, "first thing")
    page.wait_turns(2)
    chat(page, "once more")
    wait_titles(page, "first thing", "second thing")
    assert [m.content for m in engine.asked[-1].messages if m.role == "user"] == [
        "first thing", "and more", "once more",
    ]  # fmt: skip


def test_a_reply_in_the_background_finishes_and_is_kept(page: Visit, engine: FakeEngine) -> None:
    engine.hold_after = 20
    page.send("slow one")
    page.page.wait_for_selector(".turn .t.draft")
    wait_titles(page, "slow one")
    new(page)
    page.page.wait_for_selector(f"{LIST} .writing", state="visible")
    assert page.page.inner_text(f"{LIST} .writing") == "writing"
    assert page.page.is_visible("#gl-send") and not page.page.is_visible("#gl-stop")
    engine.gate.set()
    page.page.wait_for_selector(f"{LIST} .writing", state="hidden")
    until(lambda: kept(page.page.evaluate(READ_ALL)[0], "slow one"))
    assert page.texts(".turn") == []  # all the while the new chat was shown
    (record,) = page.page.evaluate(READ_ALL)
    whole = saved.conversation(record).turns[0].reply.text
    assert whole.strip() == DEFAULT_TEXT.strip()
    choose(page, "slow one")
    page.wait_turns(1)
    assert page.reply() == whole


def test_two_replies_at_once(page: Visit, engine: FakeEngine) -> None:
    engine.answer = lambda message: Script(text=f"About {message}. " + DEFAULT_TEXT * 3)
    engine.tok_s = 150
    page.send("one")
    page.page.wait_for_selector(".turn .t.draft")
    new(page)
    page.send("two")
    page.page.wait_for_selector(".turn .t.draft")
    choose(page, "one")
    page.page.wait_for_selector(".turn .t.draft")
    page.wait_turns(1)
    assert page.reply().startswith("About one.") and page.reply().rstrip().endswith("for a while.")
    page.page.wait_for_selector(f"{LIST} .writing", state="hidden")
    until(lambda: all(kept(one, one["turns"][0]["user"]) for one in page.page.evaluate(READ_ALL)))
    texts = sorted(saved.conversation(one).turns[0].reply.text.rstrip() for one in page.page.evaluate(READ_ALL))
    assert texts == sorted((f"About {name}. " + DEFAULT_TEXT * 3).rstrip() for name in ("one", "two"))


def test_a_reload_keeps_all(page: Visit, engine: FakeEngine) -> None:
    chat(page, "alpha")
    new(page)
    chat(page, "beta")
    page.page.reload()
    page.wait_turns(1)
    wait_titles(page, "beta", "alpha")
    assert page.texts(".you .said") == ["beta"]
    choose(page, "alpha")
    page.page.wait_for_function("() => document.querySelector('.you .said')?.textContent === 'alpha'")
    assert page.reply().strip() == DEFAULT_TEXT.strip()


def test_what_is_being_written_survives_a_reload(page: Visit) -> None:
    page.page.fill("#gl-box textarea", "half a tho")
    page.page.reload()
    page.page.wait_for_function("() => document.querySelector('#gl-box textarea')?.value === 'half a tho'")
    page.page.press("#gl-box textarea", "Enter")
    page.wait_turns(1)
    assert page.texts(".you .said") == ["half a tho"]
    page.page.reload()
    page.wait_turns(1)
    assert page.page.input_value("#gl-box textarea") == ""


def test_a_message_is_kept_before_its_reply(page: Visit, engine: FakeEngine) -> None:
    engine.hold_after = 0
    page.send("what I wrote")
    until(lambda: page.page.evaluate(READ_ALL))
    (record,) = page.page.evaluate(READ_ALL)
    assert [turn["user"] for turn in record["turns"]] == ["what I wrote"]
    assert saved.conversation(record).turns[0].user == "what I wrote"


def test_a_server_started_again_is_given_the_chat(server: Server, visit: VISIT) -> None:
    page = visit(server.start(FakeEngine()))
    chat(page, "remember this")
    page.page.click(".acts [data-action=again] >> nth=-1")  # turns have other keys from here on
    page.page.wait_for_selector(".turn[data-key='2'][data-phase=finished]")
    chat(page, "and this")
    colours = page.page.eval_on_selector_all(".turn .t", "(all) => all.map((t) => t.className + t.textContent)")
    engine = FakeEngine()
    reopen(page, server, engine)
    page.wait_turns(2)
    assert page.page.eval_on_selector_all(".turn .t", "(all) => all.map((t) => t.className + t.textContent)") == colours
    assert "seed 7" in page.page.inner_text(".turn .foot >> nth=0")
    page.send("what was it?")
    page.wait_turns(3)
    said = [message.content for message in engine.asked[0].messages if message.role == "user"]
    assert said == ["remember this", "and this", "what was it?"]


def test_a_message_to_a_server_started_again_is_not_lost(server: Server, visit: VISIT) -> None:
    page = visit(server.start(FakeEngine()))
    chat(page, "before")
    engine = FakeEngine()
    server.start(engine)
    page.send("after")
    page.wait_turns(2)
    assert page.texts(".you .said") == ["before", "after"]
    page.page.wait_for_timeout(1500)  # for a second time that must not come
    assert [asked.messages[-1].content for asked in engine.asked] == ["after"]
    assert page.page.input_value("#gl-box textarea") == ""
    assert [message.content for message in engine.asked[0].messages if message.role == "user"] == ["before", "after"]


def test_the_first_message_to_a_server_started_again_is_not_lost(server: Server, visit: VISIT) -> None:
    page = visit(server.start(FakeEngine()))
    engine = FakeEngine()
    server.start(engine)
    page.send("hello")
    page.wait_turns(1)
    assert page.texts(".you .said") == ["hello"] and len(engine.asked) == 1


def test_other_wishes_to_a_server_started_again_are_not_lost(server: Server, visit: VISIT) -> None:
    page = visit(server.start(FakeEngine()))
    chat(page, "one", "two")
    engine = FakeEngine()
    server.start(engine)
    page.page.hover(".turn >> nth=0")
    page.page.click(".turn:first-child [data-action=again]")
    page.wait_turns(1)
    assert page.texts(".you .said") == ["one"]
    assert [asked.messages[-1].content for asked in engine.asked] == ["one"]
    server.start(engine)
    page.page.click("[data-action=edit]")
    page.page.fill(".editor textarea", "uno")
    page.page.click("[data-action=edit-send]")
    page.page.wait_for_function("() => document.querySelector('.you .said').textContent === 'uno'")
    page.wait_turns(1)
    new(page)
    server.start(engine)
    page.page.click("[data-example='0']")
    page.wait_turns(1)
    assert [asked.messages[-1].content for asked in engine.asked[:2]] == ["one", "uno"] and len(engine.asked) == 3


def test_a_message_written_while_the_server_is_down_is_not_lost(server: Server, visit: VISIT) -> None:
    page = visit(server.start(FakeEngine()))
    chat(page, "before")
    server.stop()
    page.send("meanwhile")
    page.page.wait_for_timeout(1000)
    engine = FakeEngine()
    server.start(engine)
    page.wait_turns(2)
    assert page.texts(".you .said") == ["before", "meanwhile"] and len(engine.asked) == 1


def test_a_server_that_dies_in_the_middle_of_a_reply(server: Server, visit: VISIT) -> None:
    dying = FakeEngine(hold_after=20)
    page = visit(server.start(dying))
    page.send("hello")
    page.page.wait_for_selector(".turn .t.draft")
    server.start(FakeEngine())
    page.wait_turns(1)  # the page finds the server again by itself
    assert page.texts(".you .said") == ["hello"]
    assert "Stopped" in page.page.inner_text(".turn .foot")
    page.send("go on")
    page.wait_turns(2)


def test_a_record_that_cannot_be_read_is_said_once(server: Server, visit: VISIT) -> None:
    page = visit(server.start(FakeEngine()))
    chat(page, "spoilt")
    page.page.evaluate("""() => new Promise((done) => { const opening = indexedDB.open("greenlight", 1);
        opening.onsuccess = () => { const chats = opening.result.transaction("chats", "readwrite").objectStore("chats");
            chats.getAll().onsuccess = ({target}) => { const [one] = target.result; one.turns[0].rows[1] = {"v": 9};
                chats.put(one).onsuccess = () => { opening.result.close(); done(); }; }; }; })""")
    asked: list[str] = []
    page.page.on("request", lambda request: "restore" in (request.post_data or "") and asked.append(request.url))
    reopen(page, server, FakeEngine())
    page.page.wait_for_function("() => document.querySelector('[data-part=notice]')?.innerText.includes('cannot read')")
    page.page.wait_for_selector(".empty .blank", state="visible")
    wait_titles(page, "spoilt")
    page.page.wait_for_timeout(3000)  # for more questions that must not come
    assert 1 <= len(asked) <= 2
    page.send("a new one")
    page.wait_turns(1)


def test_a_chat_can_be_renamed(page: Visit, engine: FakeEngine) -> None:
    long = "a first line that is much longer than sixty characters, as first lines often are"
    chat(page, f"\n  {long}\nsecond line")
    wait_titles(page, long[:60].rstrip() + "…")
    menu(page, long[:60].rstrip() + "…", "rename")
    field = page.page.locator(f"{LIST} .rename input")
    assert field.input_value() == long[:60].rstrip() + "…"
    field.fill("never mind")
    page.page.keyboard.press("Escape")
    assert page.texts(TITLES) == [long[:60].rstrip() + "…"]
    menu(page, long[:60].rstrip() + "…", "rename")
    field.fill("狐狸 & foxes")
    page.page.keyboard.press("Enter")
    wait_titles(page, "狐狸 & foxes")
    assert not field.is_visible()
    chat(page, "more")
    page.page.reload()
    wait_titles(page, "狐狸 & foxes")
    menu(page, "狐狸 & foxes", "rename")
    field.fill("   ")
    page.page.click("#gl-box textarea")  # to leave the field takes what is in it; nothing: the first line again
    wait_titles(page, long[:60].rstrip() + "…")


def test_a_chat_can_be_deleted_and_the_server_forgets_it(page: Visit, engine: FakeEngine) -> None:
    chat(page, "keep me")
    new(page)
    engine.hold_after = 20
    page.send("delete me")
    page.page.wait_for_selector(".turn .t.draft")
    menu(page, "delete me", "delete")
    page.page.click(f"{LIST} [data-action=chat-keep]:visible")
    assert page.texts(TITLES) == ["delete me", "keep me"]
    menu(page, "delete me", "delete")
    page.page.click(f"{LIST} [data-action=chat-delete-yes]:visible")
    wait_titles(page, "keep me")
    page.page.wait_for_selector(".empty .blank", state="visible")
    assert engine.asked[1].stream._stop.wait(60)
    engine.gate.set()
    page.page.wait_for_timeout(1000)  # for what must not be kept
    assert len(page.page.evaluate(READ_ALL)) == 1
    page.page.reload()
    wait_titles(page, "keep me")


def test_a_deleted_chat_comes_back_with_undo(page: Visit, engine: FakeEngine) -> None:
    chat(page, "precious")
    whole = page.reply()
    menu(page, "precious", "delete")
    page.page.click(f"{LIST} [data-action=chat-delete-yes]:visible")
    page.page.wait_for_selector(".empty .blank", state="visible")
    wait_titles(page)
    page.page.click("[data-part=chats-gone] [data-action=chat-undo]")
    page.wait_turns(1)
    assert page.reply() == whole
    wait_titles(page, "precious")
    chat(page, "go on")
    assert len(engine.asked[-1].messages) == 3


def test_an_undo_of_the_only_message_takes_the_chat_off_the_list(page: Visit) -> None:
    chat(page, "oops")
    wait_titles(page, "oops")
    page.page.click("#gl-undo")
    wait_titles(page)
    page.page.click("#gl-redo")
    wait_titles(page, "oops")


def test_a_chat_is_exported(page: Visit, tmp_path: Path) -> None:
    chat(page, "Was ist 1/2: 狐狸?")
    reply = page.reply()
    new(page)  # the chat need not be the one shown
    for form, name in (("markdown", "Was ist 1 2 狐狸.md"), ("json", "Was ist 1 2 狐狸.json")):
        with page.page.expect_download() as download:
            menu(page, "Was ist 1/2: 狐狸?", form)
        assert download.value.suggested_filename == name
        download.value.save_as(tmp_path / name)
    written = (tmp_path / "Was ist 1 2 狐狸.md").read_text(encoding="utf-8")
    assert written.startswith("# Was ist 1/2: 狐狸?\n") and reply in written and "bit-exact" in written
    record = json.loads((tmp_path / "Was ist 1 2 狐狸.json").read_text(encoding="utf-8"))
    assert record["turns"][0]["reply"] == reply == saved.conversation(record).turns[0].reply.text
    assert record["turns"][0]["figures"]["alpha"] is not None
    assert page.texts(".turn") == []  # the chat shown is as it was


def test_a_chat_is_exported_by_a_server_that_does_not_know_it(server: Server, visit: VISIT, tmp_path: Path) -> None:
    page = visit(server.start(FakeEngine()))
    chat(page, "hello")
    new(page)
    reopen(page, server, FakeEngine())
    wait_titles(page, "hello")
    page.page.wait_for_selector(".empty .blank", state="visible")
    with page.page.expect_download() as download:
        menu(page, "hello", "json")
    download.value.save_as(tmp_path / "chat.json")
    assert saved.conversation(json.loads((tmp_path / "chat.json").read_text(encoding="utf-8"))).turns[0].user == "hello"


def test_two_tabs_keep_their_chats(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    url = launch_page(engine)
    one = visit(url)
    two = Visit(one.page.context.new_page())
    two.page.set_default_timeout(60_000)
    two.page.goto(url)
    two.page.wait_for_function("() => window.greenlight && sessionStorage.getItem('greenlight.conversation')")
    chat(one, "in one")
    wait_titles(two, "in one")  # a tab hears of it
    chat(two, "in two")
    chat(one, "one again")
    for tab in (one, two):
        wait_titles(tab, "in one", "in two")
        tab.page.reload()
        wait_titles(tab, "in one", "in two")
    records = {record["title"]: record for record in one.page.evaluate(READ_ALL)}
    assert [len(records[title]["turns"]) for title in ("in one", "in two")] == [2, 1]
    menu(two, "in one", "delete")
    two.page.click(f"{LIST} [data-action=chat-delete-yes]:visible")
    one.page.wait_for_selector(".empty .blank", state="visible")  # it showed that one
    wait_titles(one, "in two")


def test_a_title_is_text(page: Visit) -> None:
    page.page.evaluate("() => { window.alert = () => { throw new Error('a script ran'); }; }")
    expected: list[str] = []
    for payload in NAUGHTY:
        payload = payload.replace("\x00", "")
        chat(page, payload)
        first = next(line.strip() for line in payload.split("\n") if line.strip())
        expected.insert(0, first if len(first) <= 60 else first[:60].rstrip() + "…")
        wait_titles(page, *expected)
        new(page)
    assert page.page.locator(f"{LIST} img, {LIST} script, {LIST} b").count() == 0


def tab_to(page: Visit, selector: str) -> None:
    for _ in range(60):
        page.page.keyboard.press("Tab")
        if page.page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"Tab never reaches {selector}")


def test_all_of_it_by_keyboard(page: Visit, engine: FakeEngine) -> None:
    chat(page, "one")
    tab_to(page, ".chats .new")
    page.page.keyboard.press("Enter")
    page.page.wait_for_selector(".empty .blank", state="visible")
    assert page.page.evaluate("() => document.activeElement === document.querySelector('#gl-box textarea')")
    chat(page, "two")
    wait_titles(page, "two", "one")
    page.page.focus(".chats .new")
    tab_to(page, ".chat:nth-child(2) .open")
    page.page.keyboard.press("Enter")
    page.page.wait_for_function("() => document.querySelector('.you .said')?.textContent === 'one'")
    tab_to(page, ".chat:nth-child(2) .more")
    page.page.keyboard.press("Enter")
    tab_to(page, "[data-action=chat-rename]")
    page.page.keyboard.press("Escape")
    assert page.page.evaluate("() => document.activeElement.matches('.chat:nth-child(2) .more')")
    page.page.keyboard.press("Enter")
    tab_to(page, "[data-action=chat-rename]")
    page.page.keyboard.press("Enter")
    page.page.keyboard.type("uno")
    page.page.keyboard.press("Enter")
    wait_titles(page, "two", "uno")
    assert page.page.evaluate("() => document.activeElement.matches('.chat:nth-child(2) .open')")
    tab_to(page, ".chat:nth-child(2) .more")
    page.page.keyboard.press("Enter")
    tab_to(page, "[data-action=chat-delete]")
    page.page.keyboard.press("Enter")
    assert page.page.evaluate("() => document.activeElement.matches('[data-action=chat-keep]')")
    page.page.keyboard.press("Shift+Tab")
    page.page.keyboard.press("Enter")
    wait_titles(page, "two")
    page.page.wait_for_function("() => document.activeElement.matches('[data-action=chat-undo]')")
    page.page.keyboard.press("Enter")
    wait_titles(page, "two", "uno")
    page.page.focus(".gl-header [data-action=chats]")
    page.page.keyboard.press("Enter")
    assert not page.page.is_visible("#gl-chats")


def test_the_column_folds_and_remembers(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    url = launch_page(engine)
    wide, laptop = visit(url), visit(url, viewport={"width": 1270, "height": 800})
    button = ".gl-header [data-action=chats]"
    assert wide.page.is_visible("#gl-chats") and wide.page.get_attribute(button, "aria-expanded") == "true"
    chat(wide, "hello")
    rem = "() => parseFloat(getComputedStyle(document.documentElement).fontSize)"
    width = wide.page.locator("[data-part=turns]").bounding_box()["width"]
    assert width >= 40 * wide.page.evaluate(rem) - 0.5  # what is left to read in
    wide.page.click(button)
    assert not wide.page.is_visible("#gl-chats") and wide.page.get_attribute(button, "aria-expanded") == "false"
    wide.page.click(".gl-header [data-action=chat-new]")
    wide.page.wait_for_selector(".empty .blank", state="visible")
    wide.page.reload()
    wide.page.wait_for_selector(".empty .blank", state="visible")
    assert not wide.page.is_visible("#gl-chats")
    assert not laptop.page.is_visible("#gl-chats")
    laptop.page.click(button)
    assert laptop.page.is_visible("#gl-chats")
    laptop.page.reload()
    laptop.page.wait_for_selector("#gl-chats", state="visible")


def test_on_a_phone_the_chats_are_a_drawer(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    phone = visit(launch_page(engine), viewport={"width": 390, "height": 844}, has_touch=True, locale="zh-CN")
    button = ".gl-header [data-action=chats]"
    chat(phone, "一")
    phone.page.tap(".gl-header [data-action=chat-new]")
    phone.page.wait_for_selector(".empty .blank", state="visible")
    chat(phone, "二")
    assert not phone.page.is_visible("#gl-chats")
    phone.page.tap(button)
    wait_titles(phone, "二", "一")
    assert phone.page.is_visible("#gl-chats") and "只保存在这个浏览器里" in phone.page.inner_text(".where")
    assert phone.page.evaluate("() => document.activeElement.matches('.chats .new')")
    for _ in range(12):  # what is behind the drawer cannot be reached
        phone.page.keyboard.press("Tab")
        assert phone.page.evaluate(
            "() => !document.activeElement.closest('#gl-header, #gl-log, #gl-side, #gl-composer')"
        )
    phone.page.keyboard.press("Escape")
    assert not phone.page.is_visible("#gl-chats")
    assert phone.page.evaluate(f"() => document.activeElement.matches('{button}')")
    phone.page.tap(button)
    phone.page.touchscreen.tap(380, 400)  # beside it
    assert not phone.page.is_visible("#gl-chats")
    phone.page.tap(button)
    phone.page.tap(f"{LIST} .open >> nth=1")
    phone.page.wait_for_function("() => document.querySelector('.you .said')?.textContent === '一'")
    assert not phone.page.is_visible("#gl-chats")
    assert phone.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")


def test_where_the_browser_forbids_storage_chats_last_as_long_as_the_page(
    engine: FakeEngine, launch_page: LAUNCH, visit: VISIT
) -> None:
    page = visit(launch_page(engine), locale="en-US")  # a profile of its own, in which the script stays
    page.page.context.add_init_script(
        "Object.defineProperty(window, 'indexedDB', {get() { throw new DOMException('no', 'SecurityError'); }});"
    )
    page.page.reload()
    page.page.wait_for_function("() => document.querySelector('.where')?.innerText.includes('forbids storage')")
    for i, message in enumerate(("one", "two")):
        page.send(message)
        page.wait_turns(1)
        wait_titles(page, *("two", "one")[1 - i :])
        new(page)
    choose(page, "one")
    page.wait_turns(1)
    assert page.texts(".you .said") == ["one"]
    menu(page, "two", "delete")
    page.page.click(f"{LIST} [data-action=chat-delete-yes]:visible")
    wait_titles(page, "one")
