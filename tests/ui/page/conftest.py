"""Opens the page in a real browser, over any engine."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.conftest import CHROMIUMS
from tests.fake_engine import FakeEngine

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
PATIENCE_MS = 60_000
"""How long a browser test waits for something that must come. Long, because a busy machine is no fault."""

BOX = "#gl-box textarea"
HERE = ("http://127.0.0.1", "http://localhost", "data:", "blob:")
SEEN = "one.checkVisibility({visibilityProperty: true})"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A running Chromium. It ends with its module: while it runs, no test in this process can start an event loop."""
    from playwright.sync_api import sync_playwright

    found = next(filter(None, map(shutil.which, CHROMIUMS)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


@dataclass
class Visit:
    """An open page, with what it did that a test may want to know about."""

    page: Any
    errors: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        """All else is the page's."""
        return getattr(self.page, name)

    def send(self, message: str) -> None:
        self.page.fill(BOX, message)
        self.page.press(BOX, "Enter")

    def talk(self, *messages: str) -> None:
        """Goes on with the chat that is shown, until each is answered."""
        for message in messages:
            before = len(self.texts(".turn"))
            self.send(message)
            self.wait_turns(before + 1)

    def begin(self, message: str = "") -> None:
        """Until words of the answer are there, which an engine that holds goes on with later."""
        if message:
            self.send(message)
        self.visible(".turn[data-phase=running] .t.draft")

    def new(self) -> None:
        self.page.click("[data-action=chat-new]:visible >> nth=0")
        self.shows(".turn")
        self.visible(".empty .blank")

    def choose(self, setting: str, words: str) -> None:
        """One entry of a setting's list, in its group that is open."""
        self.page.click(f"#gl-set-{setting} input")
        self.page.get_by_role("option", name=words, exact=True).click()

    def wait(self, true: str, arg: Any = None) -> None:
        """Asks time and again, and not with each picture: a page that is not in front may draw none. Not for a promise,
        which is true at once."""
        self.page.wait_for_function(true, arg=arg, polling=50)

    def until(self, place: str, true: str, arg: Any = None) -> None:
        """Until it is true of all elements that the selector names; if it never is, says what they hold."""
        from playwright.sync_api import TimeoutError as Late

        try:
            self.wait(f"([place, arg]) => ({true})([...document.querySelectorAll(place)], arg)", [place, arg])
        except Late:
            held = self.page.eval_on_selector_all(place, "(all) => all.map((one) => one.textContent || one.value)")
            raise AssertionError(f"{place}: {arg!r} is not what there is, {held!r}") from None

    def shows(self, place: str, *texts: str) -> None:
        self.until(
            place, "(all, texts) => JSON.stringify(all.map((one) => one.textContent)) === JSON.stringify(texts)", texts
        )

    def says(self, place: str, *words: str) -> None:
        """All of these, in the language that is shown."""
        self.until(
            place,
            f"(all, words) => words.every((some) => all.some((one) => {SEEN} && one.innerText.includes(some)))",
            words,
        )

    def holds(self, place: str, value: str) -> None:
        self.until(place, "(all, value) => all.some((one) => one.value === value)", value)

    def visible(self, *places: str) -> None:
        for place in places:
            self.until(place, f"(all) => all.some((one) => {SEEN})")

    def hidden(self, *places: str) -> None:
        for place in places:
            self.until(place, f"(all) => !all.some((one) => {SEEN})")

    def focused(self, place: str) -> None:
        self.wait("(place) => document.activeElement.matches(place)", place)

    def keys(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def wait_turns(self, count: int, phase: str = "finished") -> None:
        self.until(f".turn[data-phase={phase}]", "(all, count) => all.length === count", count)

    def reply(self, turn: int = -1) -> str:
        """The text of a reply as its coloured spans joined, without what was struck out."""
        return str(
            self.page.evaluate(
                """(turn) => [...[...document.querySelectorAll('.turn')].at(turn)
                     .querySelectorAll('.reply .t:not(.rejected):not(.discarded):not(.chip)')]
                     .map((span) => span.textContent).join('')""",
                turn,
            )
        )

    def texts(self, selector: str) -> list[str]:
        return list(self.page.eval_on_selector_all(selector, "(all) => all.map((one) => one.textContent)"))


DESKTOP = {"viewport": {"width": 1280, "height": 800}, "locale": "en-US"}


@pytest.fixture(scope="module")
def desktop(chromium: Any) -> Iterator[Any]:
    """A browser profile for most tests. It is emptied for each, but keeps the scripts that it has loaded."""
    context = chromium.new_context(**DESKTOP)
    yield context
    context.close()


@pytest.fixture
def visit(chromium: Any, desktop: Any) -> Iterator[Callable[..., Visit]]:
    """`visit(url, **context)` opens the page in a browser profile with nothing in it. A script that fails, and whatever
    is asked of another address, fails the test."""
    visits: list[Visit] = []

    def dialog(opened: Any) -> None:
        visits[-1].errors.append(f"dialog: {opened.message}")
        opened.dismiss()

    def start(url: str, **context: Any) -> Visit:
        other = context or visits
        page = chromium.new_context(**DESKTOP | context).new_page() if other else _emptied(desktop, url)
        page.set_default_timeout(PATIENCE_MS)
        visits.append(visited := Visit(page))
        page.on("pageerror", lambda error: visited.errors.append(str(error)))
        page.on("dialog", dialog)
        page.on("request", lambda one: visited.outside.extend(url for url in [one.url] if not url.startswith(HERE)))
        page.goto(url)
        visited.wait(OPEN)
        return visited

    yield start
    for visited in visits:
        if visited.page.context is not desktop:
            visited.page.context.close()
    for page in desktop.pages:
        page.close()
    assert [(visited.errors, visited.outside) for visited in visits] == [([], []) for _ in visits]


OPEN = "() => window.greenlight && sessionStorage.getItem('greenlight.conversation')"


def _emptied(context: Any, url: str) -> Any:
    """A new page of a profile that has forgotten all that this address had it keep."""
    context.clear_permissions()
    context.clear_cookies()
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Storage.clearDataForOrigin", {"origin": url.partition("?")[0].rstrip("/"), "storageTypes": "all"})
    session.detach()
    return page


@pytest.fixture
def page(engine: FakeEngine, launch_page: Callable[..., str], visit: Callable[..., Visit]) -> Visit:
    """The page over the scripted engine, just opened."""
    return visit(launch_page(engine))
