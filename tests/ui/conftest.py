"""Fixtures that put a page up over any engine and open it in a real browser."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from app import prepare_environment
from engine.engine import Engine
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


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def launch_page() -> Iterator[Callable[..., str]]:
    """`launch_page(engine, options)` serves the page over that engine and returns its address."""
    from ui.layout import build_app, launch

    apps: list[Any] = []

    def start(engine: Engine, options: Options | None = None) -> str:
        options = options or Options()
        app = build_app(engine, options)
        apps.append(app)
        _, url, _ = launch(app, options, server_name="127.0.0.1", server_port=free_port(), prevent_thread_lock=True)
        return str(url)

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

    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
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


@pytest.fixture
def visit(chromium: Any) -> Iterator[Callable[..., Visit]]:
    """`visit(url, **context)` opens the page in a fresh browser profile. Any script error fails the test."""
    visits: list[Visit] = []

    def start(url: str, **context: Any) -> Visit:
        options = {"viewport": {"width": 1280, "height": 800}, "locale": "en-US"} | context
        page = chromium.new_context(**options).new_page()
        page.set_default_timeout(PATIENCE_MS)
        visited = Visit(page)
        visits.append(visited)
        page.on("pageerror", lambda error: visited.errors.append(str(error)))
        page.on("dialog", lambda dialog: (visited.errors.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: _is_local(request.url) or visited.outside.append(request.url))
        page.goto(url)
        page.wait_for_function("() => window.greenlight && sessionStorage.getItem('greenlight.conversation')")
        return visited

    yield start
    for visited in visits:
        visited.page.context.close()
    assert not [error for visited in visits for error in visited.errors]


@pytest.fixture
def page(engine: FakeEngine, launch_page: Callable[..., str], visit: Callable[..., Visit]) -> Visit:
    """The page over the scripted engine, just opened."""
    return visit(launch_page(engine))


def _is_local(url: str) -> bool:
    return url.startswith(("http://127.0.0.1", "http://localhost", "data:", "blob:"))
