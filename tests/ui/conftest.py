"""Fixtures that put a page up over any engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import pytest

from app import prepare_environment
from engine.serving.engine import Engine
from tests.fake_engine import FakeEngine
from ui.controls import Options

prepare_environment()  # before gradio is imported anywhere


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
        for asked in engine.asked:
            asked.stream.cancel()
        for raced in engine.raced:
            raced.race.cancel()
        for measured in engine.experimented:
            measured.reports.cancel()
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


def serve(engine: Engine, options: Options, port: int = 0) -> tuple[Any, str]:
    """A new app over that engine, and its address; at any free port, or at this one."""
    from ui.layout import build_app, launch

    app = build_app(engine, options, engine if isinstance(engine, FakeEngine) else None)  # type: ignore[arg-type]
    _, url, _ = launch(app, options, server_name="127.0.0.1", server_port=port or free_port(), prevent_thread_lock=True)
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
def launch_page(standing: Standing) -> Iterator[Callable[..., str]]:
    """`launch_page(engine, options)` serves the page over that engine and returns its address. With options the app is
    new."""
    apps: list[Any] = []

    def start(engine: Engine, options: Options | None = None) -> str:
        if standing.serves(engine, options):
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
