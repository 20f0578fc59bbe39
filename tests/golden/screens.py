"""Pictures of every view, wide and narrow, light and dark, in both languages: for the eye, nothing compares them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from tests.conftest import CHROMIUMS
from tests.fake_engine import FakeEngine, Script
from tests.golden.pages import MIXED
from tests.ui.conftest import serve
from tests.ui.page.conftest import FLAGS, OPEN
from ui.controls import Options
from ui.race.viewer import TABS

WIDTHS = {1440: 900, 390: 844}
PATIENCE_MS = 60_000
CALM_MS = 500
"""For charts to be drawn."""

TALL = "(tab) => document.querySelector(`[data-tab-view=${tab}]`).scrollHeight + 200"
TALLEST = 16_000


def write(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    engine = FakeEngine(drafters=("none", "ngram", "head", "both"), answer=lambda _: Script(MIXED * 2))
    app, url = serve(engine, Options())
    try:
        with _browser() as browser:
            for width, height in WIDTHS.items():
                for scheme in ("light", "dark"):
                    _views(
                        browser,
                        url,
                        folder,
                        f"{width} {scheme}",
                        viewport={"width": width, "height": height},
                        color_scheme=scheme,
                    )
            _views(browser, url, folder, "chinese", viewport={"width": 1440, "height": 900}, locale="zh-CN")
    finally:
        app.close(verbose=False)
    return len(list(folder.glob("*.png")))


@contextmanager
def _browser() -> Iterator[Any]:
    found = next(filter(None, map(shutil.which, CHROMIUMS)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


def _views(browser: Any, url: str, folder: Path, name: str, **how: Any) -> None:
    """Each as tall as what is in it; the chat as tall as a screen, since it goes on at its end."""
    context = browser.new_context(**{"locale": "en-US", "reduced_motion": "reduce"} | how)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(url)
    page.wait_for_function(OPEN)
    page.fill("#gl-box textarea", "Hello!")
    page.press("#gl-box textarea", "Enter")
    page.wait_for_selector(".turn[data-phase=finished]")
    for tab in TABS:
        page.click(f".tabs [data-tab-link={tab}]")
        page.wait_for_timeout(CALM_MS)
        tall = 0 if tab == "chat" else page.evaluate(TALL, tab)
        page.set_viewport_size(how["viewport"] | {"height": max(how["viewport"]["height"], min(tall, TALLEST))})
        page.wait_for_timeout(CALM_MS)
        page.screenshot(path=folder / f"{tab} {name}.png")
    context.close()
