"""Opens the page in a real browser, over any engine."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.conftest import CHROMIUMS
from tests.fake_engine import FakeEngine

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
PATIENCE_MS = 60_000
"""How long a browser test waits for something that must come. Long, because a busy machine is no fault."""


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

    def send(self, message: str) -> None:
        self.page.fill("#gl-box textarea", message)
        self.page.press("#gl-box textarea", "Enter")

    def choose(self, setting: str, words: str) -> None:
        """One entry of a setting's list, in its group that is open."""
        self.page.click(f"#gl-set-{setting} input")
        self.page.get_by_role("option", name=words, exact=True).click()

    def wait_turns(self, count: int, phase: str = "finished") -> None:
        self.page.wait_for_function(
            "([n, phase]) => document.querySelectorAll(`.turn[data-phase=${phase}]`).length === n", arg=[count, phase]
        )

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


@contextmanager
def visiting(chromium: Any, desktop: Any = None) -> Iterator[Callable[..., Visit]]:
    """`visit(url, **context)` opens the page in a browser profile with nothing in it. Any script error fails the
    test."""
    visits: list[Visit] = []
    own: list[Any] = []

    def start(url: str, **context: Any) -> Visit:
        if context or visits or desktop is None:
            own.append(chromium.new_context(**DESKTOP | context))
            page = own[-1].new_page()
        else:
            page = _emptied(desktop, url)
        page.set_default_timeout(PATIENCE_MS)
        visited = Visit(page)
        visits.append(visited)
        page.on("pageerror", lambda error: visited.errors.append(str(error)))
        page.on("dialog", lambda dialog: (visited.errors.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: _is_local(request.url) or visited.outside.append(request.url))
        page.goto(url)
        page.wait_for_function(OPEN)
        return visited

    yield start
    for context in own:
        context.close()
    for page in desktop.pages if desktop else ():
        page.close()
    assert not [error for visited in visits for error in visited.errors]


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
def visit(chromium: Any, desktop: Any) -> Iterator[Callable[..., Visit]]:
    with visiting(chromium, desktop) as start:
        yield start


@pytest.fixture
def page(engine: FakeEngine, launch_page: Callable[..., str], visit: Callable[..., Visit]) -> Visit:
    """The page over the scripted engine, just opened."""
    return visit(launch_page(engine))


class Kept:
    """A page that stays open for several tests of a file, and is opened anew when one has failed or its app has
    gone."""

    def __init__(self, chromium: Any) -> None:
        self._chromium = chromium
        self._open = ExitStack()
        self._visit: Visit | None = None
        self._url = ""

    def at(self, url: str) -> Visit:
        if self._visit is None or url != self._url:
            self.close()
            self._visit, self._url = self._open.enter_context(visiting(self._chromium))(url), url
        return self._visit

    def close(self) -> None:
        """What its scripts say once no test is at it is about a server that has gone."""
        if self._visit is not None:
            self._visit.errors.clear()
        self._visit = None
        self._open.close()


@pytest.fixture(scope="module")
def kept(chromium: Any) -> Iterator[Kept]:
    made = Kept(chromium)
    yield made
    made.close()


@pytest.fixture
def keep(kept: Kept, request: pytest.FixtureRequest) -> Iterator[Callable[[str], Visit]]:
    """`keep(url)` is `visit(url)` for tests that leave the page as they found it, or do not mind what they find.

    An error in its scripts fails the test in which it came.
    """
    failed = request.session.testsfailed
    visits: list[Visit] = []

    def start(url: str) -> Visit:
        visits.append(kept.at(url))
        return visits[-1]

    yield start
    errors = [error for visited in visits for error in visited.errors]
    if errors or request.session.testsfailed > failed:
        kept.close()
    assert not errors


def _is_local(url: str) -> bool:
    return url.startswith(("http://127.0.0.1", "http://localhost", "data:", "blob:"))
