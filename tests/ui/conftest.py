"""Fixtures that put a page up over any engine and open it in a real browser."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

import pytest

from app import prepare_environment
from engine.serving.engine import Engine
from tests.conftest import CHROMIUMS
from tests.fake_engine import FakeEngine
from ui.controls import Options

prepare_environment()  # before gradio is imported anywhere

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
PATIENCE_MS = 60_000
"""How long a browser test waits for something that must come. Long, because a busy machine is no fault."""


def until(true: Callable[[], Any]) -> None:
    """Wait for what the server does; of the page Playwright waits itself."""
    pause = threading.Event()
    for _ in range(3000):
        if true():
            return
        pause.wait(0.02)
    raise AssertionError("it never happened")


class Standing:
    """One app for all tests that ask for nothing special of theirs, over one scripted engine that each finds as new.

    To build and start an app takes longer than many a test, and a browser that knows its address already has its
    scripts.
    """

    def __init__(self, make: Callable[[], FakeEngine] = FakeEngine) -> None:
        self._make = make
        self.engine = make()
        self._new = {one.name: getattr(self.engine, one.name) for one in fields(FakeEngine)}
        self._app: Any = None
        self._url = ""

    def begin(self) -> FakeEngine:
        """The engine as it was made, but for what tells an app which engine it is over: that must be the same
        object."""
        fresh = self._make()
        for one in fields(FakeEngine):
            setattr(self.engine, one.name, getattr(fresh, one.name))
        self.engine.state, self.engine.config = self._new["state"], self._new["config"]
        return self.engine

    def end(self) -> None:
        """Work that a test has left is called off. What an app may remember of its engine goes with the app."""
        engine = self.engine
        streams, races = (one.stream for one in engine.asked), (one.race for one in engine.raced)
        for left in (*streams, *races, *(one.reports for one in engine.experimented)):
            left.cancel()
        if not self._is_new():
            self.close()

    def serves(self, engine: Engine, options: Options | None) -> bool:
        """Whether an app built now would be the same as the one that stands."""
        return engine is self.engine and options is None and self._is_new()

    def url(self) -> str:
        if self._app is None:
            self._app, self._url = serve(self.engine, Options())
        return self._url

    def close(self) -> None:
        if self._app is not None:
            self._app.close(verbose=False)
            self._app = None

    def _is_new(self) -> bool:
        same = all(getattr(self.engine, name) == self._new[name] for name in ("drafters", "note", "context_len"))
        still = all(getattr(self.engine, name) is self._new[name] for name in ("state", "config"))
        return same and still and not self.engine.changes


def serve(engine: Engine, options: Options) -> tuple[Any, str]:
    """A new app over that engine, and its address."""
    from ui.layout import build_app, launch

    app = build_app(engine, options, engine if isinstance(engine, FakeEngine) else None)
    _, url, _ = launch(app, options, server_name="127.0.0.1", server_port=free_port(), prevent_thread_lock=True)
    return app, str(url)


@pytest.fixture(scope="session")
def standing() -> Iterator[Standing]:
    made = Standing()
    yield made
    made.close()


@pytest.fixture
def engine(standing: Standing) -> Iterator[FakeEngine]:
    yield standing.begin()
    standing.end()


@pytest.fixture
def launch_page(standing: Standing, request: pytest.FixtureRequest) -> Iterator[Callable[..., str]]:
    """`launch_page(engine, options)` serves the page over that engine and returns its address. With options the app is
    new."""
    apps: list[Any] = []

    def start(engine: Engine, options: Options | None = None) -> str:
        if request.node.get_closest_marker("browser") and standing.serves(engine, options):
            return standing.url()
        app, url = serve(engine, options or Options())
        apps.append(app)
        return url

    yield start
    for app in apps:
        app.close(verbose=False)


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A running Chromium. Tests that use it carry the mark `browser`."""
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


@pytest.fixture(scope="session")
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
