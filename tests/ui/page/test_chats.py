"""The chats in the sidebar, in a real browser over the scripted engine: what is kept, and that nothing gets lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fake_engine import DEFAULT_TEXT, FakeEngine, Script
from tests.ui.conftest import free_port, serve, until
from tests.ui.page.conftest import BOX, PATIENCE_MS, Visit
from tests.ui.page.test_chat import CHATS, NOTICE, SAID, TITLES, VISIT
from tests.ui.samples import BIG_LIST, NAUGHTY
from ui.controls import Options
from ui.examples import EXAMPLES
from ui.recording import saved
from ui.state import Conversation

pytestmark = pytest.mark.browser

KEPT = """([title, message, whole]) => new Promise((done) => { const opening = indexedDB.open("greenlight", 1);
    opening.onsuccess = () => { const all = opening.result.transaction("chats").objectStore("chats").getAll();
        all.onsuccess = () => { opening.result.close();
            const record = all.result.find((one) => one.title === title), last = record?.turns.at(-1);
            done(last?.user === message && (!whole || last.rows.at(-1)?.e === "end") && record); }; }; })"""


def kept(page: Visit, title: str, message: str = "", whole: bool = True) -> Conversation:
    """What the browser keeps of a chat, as soon as that ends with this message and all of its reply."""
    wanted = [title, message or title, whole]
    until(lambda: page.evaluate(KEPT, wanted))
    return saved.conversation(page.evaluate(KEPT, wanted))


def menu(page: Visit, title: str, *actions: str) -> None:
    entry = page.locator("#gl-chats .chat", has=page.locator(".open").get_by_text(title, exact=True))
    for action in actions:
        entry.locator(f"[data-action=chat-{action}]").click()


def choose(page: Visit, title: str, *said: str) -> str:
    menu(page, title, "open")
    page.says("#gl-chats [aria-current=true]", title)
    page.shows(SAID, *said or [title])
    page.wait_turns(len(said) or 1)
    return page.reply()


def rename(page: Visit, title: str, name: str, key: str = "Enter") -> None:
    menu(page, title, "more", "rename")
    field = "#gl-chats .renaming input"
    page.holds(field, title)
    page.fill(field, name)
    page.press(field, key)
    page.hidden(field)


def test_chats_are_kept(page: Visit, engine: FakeEngine) -> None:
    engine.answer = lambda message: Script(f"I heard {message}. " + DEFAULT_TEXT)
    page.visible("#gl-chats .none")
    page.says(".where", "in this browser only")
    page.talk("first", "more")
    page.new()
    engine.hold_after = 20
    page.begin("slow")
    page.shows(TITLES, "slow", "first")
    kept(page, "slow", whole=False)  # before there is a reply, so that no crash loses it
    page.new()
    page.says("#gl-chats .writing", "writing")
    page.visible("#gl-send")
    page.hidden("#gl-stop")
    page.send("third")  # a second reply at the same time
    page.begin()
    engine.gate.set()
    page.wait_turns(1)
    page.hidden("#gl-chats .writing")
    page.shows(SAID, "third")  # all the while
    for title in ("third", "slow"):
        assert kept(page, title).turns[0].reply.text == choose(page, title) == f"I heard {title}. {DEFAULT_TEXT}"
    order = page.texts(TITLES)
    choose(page, "first", "first", "more")
    choose(page, "third")
    page.shows(TITLES, *order)  # to look at a chat does not move it
    choose(page, "first", "first", "more")
    page.talk("again")
    page.shows(TITLES, "first", *order[:2])
    assert [one.content for one in engine.asked[-1].messages if one.role == "user"] == ["first", "more", "again"]

    page.fill(BOX, "half a tho")
    page.reload()
    page.wait_turns(3)
    page.holds(BOX, "half a tho")
    page.press(BOX, "Enter")
    page.wait_turns(4)
    page.reload()
    page.shows(SAID, "first", "more", "again", "half a tho")
    page.holds(BOX, "")
    reply = choose(page, "third")
    rename(page, "third", "1/2: 狐狸?")
    page.new()  # to be written into a file, a chat need not be shown
    for form, ending, begins in (("more", "markdown"), ".md", "# 1/2: 狐狸?\n"), (("json",), ".json", "{"):
        with page.expect_download() as download:
            menu(page, "1/2: 狐狸?", *form)
        written = Path(download.value.path()).read_text(encoding="utf-8")
        assert download.value.suggested_filename == f"1 2 狐狸{ending}"
        assert written.startswith(begins) and reply in written
    page.shows(".turn")  # the chat shown is as it was

    engine.gate.clear()
    page.begin("gone")
    menu(page, "gone", "more", "delete", "keep")
    page.hidden("[data-action=chat-delete-yes]")
    menu(page, "gone", "delete", "delete-yes")
    page.visible(".empty .blank")
    assert engine.asked[-1].stream._stop.wait(60), "the server forgets it"
    engine.gate.set()
    page.talk("precious")
    whole = kept(page, "precious").turns[0].reply.text
    assert "gone" not in page.texts(TITLES)
    menu(page, "precious", "more", "delete", "delete-yes")
    page.visible(".empty .blank")
    assert "precious" not in page.texts(TITLES)
    page.click("[data-action=chat-undo]:visible")
    page.wait_turns(1)
    assert page.reply() == whole
    page.talk("go on")
    assert len(engine.asked[-1].messages) == 3

    page.new()
    page.talk("oops")
    kept(page, "oops")
    titles = page.texts(TITLES)
    for button, shown in (("undo", titles[1:]), ("redo", titles)):  # without its only message there is nothing to keep
        page.click(f"#gl-{button}")
        page.shows(TITLES, *shown)


def test_names_and_that_nothing_anybody_says_runs(page: Visit, engine: FakeEngine) -> None:
    """Neither as a message, a reply, a lost guess or a title, nor as Markdown."""
    page.evaluate("() => { window.alert = () => { throw new Error('a script ran'); }; }")
    naughty = [one.replace("\0", "") for one in NAUGHTY]
    links = "[x](javascript:alert(1))", "![x](x onerror=alert(1))", "<javascript:alert(1)>"
    engine.answer = lambda message: Script(pieces=[*message.split("|||"), "\n\nThe end."], wrong=tuple(naughty))
    page.talk("\n\n|||".join([*naughty, *links, *BIG_LIST]).replace("\0", ""))
    said = engine.asked[0].messages[-1].content
    page.shows(SAID, said)
    assert page.reply() == said.replace("|||", "") + "\n\nThe end."
    assert set(naughty) <= {*page.texts(".turn .t.rejected"), *page.texts(".turn .t.discarded")}
    known = "h3, p, div, span, s, br, button, svg, path, rect, circle, a.term[href^='?tab=learn#glossary-']"
    assert page.texts(f".turn :not({known})") == []
    page.click("[data-switch=colours]")
    page.says(".gl-prose", "The end.")
    strange = """(all) => all.filter((one) => one.matches('script, img, iframe, style, link, object')
        || [...one.attributes].some(({name}) => name.startsWith('on') || name === 'style' || name === 'src')
        || (one.tagName === 'A' && !['http:', 'https:', 'mailto:'].includes(one.protocol))).map((one) => one.outerHTML)"""
    assert page.eval_on_selector_all(".gl-prose *", strange) == []

    page.new()
    long = "a first line that is much longer than sixty characters, as first lines often are"
    page.talk(f"\n  {long}\nsecond line")
    name = first = long[:60].rstrip() + "…"
    rename(page, name, "never mind", "Escape")
    for other in ("x", *naughty[1:]):  # the first is the other chat's already
        rename(page, name, other)
        name = other
    page.shows(TITLES, name, naughty[0])
    assert page.texts("#gl-chats ul :is(img, script, b)") == []
    rename(page, name, "named")
    page.talk("more")
    page.reload()
    page.shows(TITLES, "named", naughty[0])
    rename(page, "named", "   ", "Tab")  # to leave the field takes what is in it; nothing: the first line again
    page.shows(TITLES, first, naughty[0])


def tab_to(page: Visit, selector: str, *then: str) -> None:
    for _ in range(60):
        page.keys("Tab")
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            return page.keys(*then or ["Enter"])
    raise AssertionError(f"Tab never reaches {selector}")


@pytest.mark.slow
def test_all_of_it_by_keyboard(page: Visit, engine: FakeEngine) -> None:
    more = ".chat:nth-child(2) .more"
    page.talk("one")
    tab_to(page, ".chats .new")
    page.visible(".empty .blank")
    page.focused(BOX)
    page.talk("two")
    page.shows(TITLES, "two", "one")
    page.focus(".chats .new")
    tab_to(page, ".chat:nth-child(2) .open")
    page.shows(SAID, "one")
    tab_to(page, more)
    tab_to(page, "[data-action=chat-rename]", "Escape")
    page.focused(more)
    page.keys("Enter")
    tab_to(page, "[data-action=chat-rename]", "Enter", *"uno", "Enter")
    page.shows(TITLES, "two", "uno")
    page.focused(".chat:nth-child(2) .open")
    tab_to(page, more)
    tab_to(page, "[data-action=chat-delete]")
    page.focused("[data-action=chat-keep]")
    page.keys("Shift+Tab", "Enter")
    page.shows(TITLES, "two")
    page.focused("[data-action=chat-undo]")
    page.keys("Enter")
    page.shows(TITLES, "two", "uno")
    page.focus(CHATS)
    page.keys("Enter")
    page.hidden("#gl-chats")


@pytest.mark.slow
def test_two_tabs_of_one_person(page: Visit, engine: FakeEngine) -> None:
    engine.hold_after = 20
    page.begin("mine")
    page.reload()
    assert engine.asked[0].stream._stop.wait(60), "a reply ends with its page"
    page.wait_turns(1)
    assert page.reply() and DEFAULT_TEXT.startswith(page.reply()), "what was written is kept"

    with page.expect_popup() as opened:  # a copy of the tab has its conversation, too
        page.evaluate("() => { window.open(location.href); }")
    copy = Visit(opened.value)
    copy.set_default_timeout(PATIENCE_MS)
    copy.wait_turns(1)
    page.begin("first")
    copy.send("second")
    copy.until(NOTICE, "(all) => all.some((one) => one.innerText.trim())")
    engine.gate.set()
    for tab in (page, copy):
        tab.wait_turns(2)
    copy.holds(BOX, "second")
    assert [asked.messages[-1].content for asked in engine.asked] == ["mine", "first"]

    copy.fill(BOX, "")
    copy.new()
    copy.talk("in two")
    page.shows(TITLES, "in two", "mine")  # a tab hears of it
    page.talk("again")
    for tab in (page, copy):
        tab.reload()
        tab.shows(TITLES, "mine", "in two")
    menu(copy, "mine", "more", "delete", "delete-yes")
    page.visible(".empty .blank")  # it showed that one
    page.shows(TITLES, "in two")
    engine.gate.clear()
    copy.begin("left alone")
    copy.close()
    assert engine.asked[-1].stream._stop.wait(60), "a reply ends with its page"


class Server:
    """A server that can be started again under the same address, knowing nothing of before."""

    port = 0
    app: Any = None

    def start(self, engine: FakeEngine) -> str:
        self.stop()
        self.port = self.port or free_port()
        self.app, url = serve(engine, Options(), self.port)
        return url

    def stop(self) -> None:
        """At once, as when it is killed, whoever is still being answered."""
        if self.app:
            self.app.server.force_exit = True
            self.app.close(verbose=False)
        self.app = None


@pytest.fixture
def server() -> Iterator[Server]:
    yield (made := Server())
    made.stop()


QUIET = """const fetched = window.fetch;
window.asked = 0;
window.fetch = (url, options) => {
    if (String(options?.body).includes('"meter"')) return new Promise(() => {});
    window.asked += 1;
    return fetched(url, options).finally(() => { window.asked -= 1; });
};"""


def unnoticing(page: Visit) -> Visit:
    """It asks nothing by itself while a server is started again (see `quiet`), and meets it with what a person does."""
    page.add_init_script(QUIET)
    page.reload()
    page.visible("[data-ready=yes]")
    return page


def quiet(page: Visit) -> None:
    page.wait("() => window.asked === 0")


COLOURS = "() => [...document.querySelectorAll('.turn .t')].map((t) => t.className + t.textContent)"


def test_a_server_started_again_is_given_the_chat(server: Server, visit: VISIT) -> None:
    page = unnoticing(visit(server.start(FakeEngine())))
    page.talk("remember this")
    page.click(".turn [data-action=again]")  # turns have other keys from here on
    page.visible(".turn[data-key='2'][data-phase=finished]")
    page.talk("and this")
    colours = page.evaluate(COLOURS)

    server.stop()
    page.send("meanwhile")
    page.says(".toast-body", "lost")  # Gradio waits for the server and then loads the page anew
    dying, nobody, last = FakeEngine(hold_after=20), FakeEngine(), FakeEngine()
    server.start(dying)
    page.begin()
    assert page.evaluate(COLOURS)[: len(colours)] == colours
    page.says(".turn:first-child .foot", "seed 7")
    server.stop()
    page.says(".toast-body", "lost")
    server.start(nobody)
    page.wait_turns(3)
    page.says(".turn:last-child .foot", "Stopped")
    quiet(page)
    server.start(last)
    page.talk("unnoticed")
    page.holds(BOX, "")
    page.talk("what was it?")
    page.shows(SAID, *(said := ["remember this", "and this", "meanwhile", "unnoticed", "what was it?"]))
    sent = [[asked.messages[-1].content for asked in engine.asked] for engine in (dying, nobody, last)]
    assert sent == [said[2:3], [], said[3:]], "each message once"
    assert [one.content for one in last.asked[-1].messages if one.role == "user"] == said


SPOIL = """() => new Promise((done) => { const opening = indexedDB.open("greenlight", 1);
    opening.onsuccess = () => { const chats = opening.result.transaction("chats", "readwrite").objectStore("chats");
        chats.getAll().onsuccess = ({target}) => { for (const one of target.result) {
            one.turns[0].rows[1] = {"v": 9};
            chats.put(one).onsuccess = () => { opening.result.close(); done(); }; } }; }; })"""


@pytest.mark.slow
def test_whatever_is_wished_of_a_server_started_again(server: Server, visit: VISIT) -> None:
    page = unnoticing(visit(server.start(FakeEngine())))

    def wish(button: str, *said: str) -> None:
        quiet(page)
        server.start(engine := FakeEngine())
        page.click(button)
        page.shows(SAID, *said)
        page.wait_turns(len(said))
        assert [asked.messages[-1].content for asked in engine.asked] == [said[-1]], button

    page.fill(BOX, "one")
    wish("#gl-send", "one")
    page.fill(BOX, "two")
    wish("#gl-send", "one", "two")
    wish(".turn [data-action=again]", "one")
    page.click("[data-action=edit]")
    page.fill(".turn .editor textarea", "uno")
    wish(".turn [data-action=edit-send]", "uno")
    kept(page, "uno")
    page.new()
    wish("[data-example='0']", EXAMPLES[0].prompt)
    page.until(TITLES, "(all) => all.length === 2")
    titles = page.texts(TITLES)
    kept(page, titles[0], EXAMPLES[0].prompt)

    page.evaluate(SPOIL)
    asked: list[str] = []
    page.on("request", lambda request: asked.extend(['"restore"'] * ('"restore"' in (request.post_data or ""))))
    page.goto("about:blank")  # so that Gradio does not load it anew at the same time
    page.goto(server.start(FakeEngine()))
    page.says(NOTICE, "cannot read")
    page.visible(".empty .blank")
    page.shows(TITLES, *titles)
    page.talk("a new one")
    assert 1 <= len(asked) <= 2, "it is not asked for again and again"
