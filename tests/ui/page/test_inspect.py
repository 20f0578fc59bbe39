"""The inspector and saved replies in a real browser, over the scripted engine, and without any model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from engine.serving.engine import State, Status
from tests.fake_engine import DEFAULT_TEXT, FakeEngine
from tests.ui.conftest import serve
from tests.ui.page.conftest import Visit
from tests.ui.page.test_race import go, lane, opened, over, rounds
from ui.controls import Options

pytestmark = pytest.mark.browser

LAUNCH = Callable[..., str]
VISIT = Callable[..., Visit]
VIEW = "[data-viewer=inspect]"
PANE = f"{VIEW} [data-slot=round]"
NOTICE = "[data-slot=inspect-notice]"


@pytest.fixture(scope="module")
def without_model() -> Iterator[str]:
    """The address of an app with no model to be had."""
    app, url = serve(FakeEngine(state=Status(State.FAILED, "load", message="There is no model here.")), Options())
    yield url
    app.close(verbose=False)


@pytest.fixture
def inspector(without_model: str, keep: VISIT) -> Visit:
    """The inspector with the recorded chat just opened in it, and no model."""
    page = keep(without_model + "?tab=inspect")
    page.page.click(".tabs [data-tab-link=inspect]")
    opened(page, "inspect")
    page.page.evaluate(f"() => document.querySelector('{VIEW} .what').replaceChildren()")
    page.page.click("[data-source=shipped-chat]")
    page.page.wait_for_selector(f"{VIEW} .what .asked")
    return page


def pane(page: Visit) -> str:
    page.page.wait_for_selector(f"{PANE} .pane")
    return str(page.page.inner_text(PANE))


def told(page: Visit) -> list[Any]:
    """Which token is marked: its lane, its round and its place there."""
    found = page.page.evaluate(
        """() => [...document.querySelectorAll('[data-viewer=inspect] .told')].map((node) => [
             node.closest('.lane').className, [...node.closest('[data-lane=blocks]').children].indexOf(node.closest('.round')),
             Number(node.dataset.i)])"""
    )
    assert len(found) <= 1
    return list(found[0]) if found else []


def source(page: Visit, name: str) -> None:
    before = page.page.inner_text(f"{VIEW} .what")
    page.page.click(f"[data-source={name}]")
    page.page.wait_for_function(
        "(before) => document.querySelector('[data-viewer=inspect] .what').innerText !== before", arg=before
    )


def open_file(page: Visit, content: str | bytes, name: str = "reply.json") -> None:
    data = content.encode() if isinstance(content, str) else content
    page.page.set_input_files("[data-part=trace-file]", {"name": name, "mimeType": "application/json", "buffer": data})


def saved(page: Visit, where: str, action: str) -> tuple[str, str]:
    """A file that the page hands out: its name and its text."""
    with page.page.expect_download() as waiting:
        page.page.click(f"[data-viewer={where}] [data-action={action}]")
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_text(encoding="utf-8")


def test_a_press_on_a_word_opens_its_round(inspector: Visit) -> None:
    inspector.page.click(f"{VIEW} .lane.speculative .t.rejected >> nth=0")
    shown = pane(inspector)
    assert "rejected" in shown and told(inspector)[0] == "lane speculative"
    assert inspector.page.locator(f"{PANE} table tbody tr").count() >= 2
    inspector.page.click(f"{VIEW} .lane.plain .t >> nth=3")
    inspector.page.wait_for_function(
        "(before) => document.querySelector('[data-viewer=inspect] [data-slot=round]').innerText !== before", arg=shown
    )
    assert told(inspector)[0] == "lane plain"


def test_a_token_in_the_pane_is_looked_into_too(inspector: Visit) -> None:
    inspector.page.click(f"{VIEW} .lane.speculative .t.rejected >> nth=0")
    before = pane(inspector)
    chosen = told(inspector)
    inspector.page.click(f"{PANE} [data-piece]:not([data-piece='{chosen[2]}']) >> nth=0")
    inspector.page.wait_for_function(
        "(before) => document.querySelector('[data-viewer=inspect] [data-slot=round]').innerText !== before", arg=before
    )
    assert told(inspector)[:2] == chosen[:2] and told(inspector)[2] != chosen[2]


def test_with_the_keyboard_alone(inspector: Visit) -> None:
    page = inspector.page
    page.focus(f"{VIEW} .lane.speculative .lane-text")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(f"{PANE} .pane")
    assert told(inspector)[1:] == [0, 0]
    page.keyboard.press("ArrowDown")
    assert told(inspector)[1:] == [1, 0]
    page.keyboard.press("ArrowRight")
    second = told(inspector)
    assert second[1:] != [1, 0]
    page.keyboard.press("ArrowLeft")
    assert told(inspector)[1:] == [1, 0]
    page.keyboard.press("ArrowUp")
    assert told(inspector)[1:] == [0, 0]
    page.keyboard.press("ArrowUp")
    assert told(inspector)[1:] == [0, 0]
    page.wait_for_function("() => document.querySelector('[data-viewer=inspect] [data-slot=say]').textContent.trim()")
    page.focus(f"{PANE} [data-action=round-next]")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('[data-viewer=inspect] .told')")
    assert told(inspector)[1] == 1


def test_every_view_is_reached_by_tab_and_enter(inspector: Visit) -> None:
    page = inspector.page
    page.focus(".tabs [data-tab-link=race]")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-viewer=race] .lane")
    page.focus("[data-viewer=race] [data-action=restart]")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")  # to play
    assert page.evaluate("() => document.activeElement.dataset.action") == "play"
    page.keyboard.press("Space")
    assert page.get_attribute("[data-viewer=race]", "data-playing") == "no"
    page.keyboard.press("Tab")
    begun = rounds(inspector, "speculative")
    page.keyboard.press("Enter")
    assert rounds(inspector, "speculative") == begun + 1


def test_a_recording_is_played_without_a_model(inspector: Visit) -> None:
    page = inspector.page
    for name in ("shipped-code", "shipped-bad"):
        source(inspector, name)
        whole = lane(inspector, "speculative", "inspect")
        assert whole == lane(inspector, "plain", "inspect") and len(whole) > 100
        page.click(f"{VIEW} [data-action=restart]")
        page.wait_for_selector(f"{VIEW}[data-over=no]")
        page.wait_for_selector(f"{VIEW}[data-over=yes]")
        assert lane(inspector, "speculative", "inspect") == whole
        assert page.inner_text(f"{VIEW} [data-slot=verdict]").strip()


def test_charts_of_a_recording(inspector: Visit) -> None:
    page = inspector.page
    page.click(f"{VIEW} .plots summary")
    page.wait_for_selector(f"{VIEW} .plots .js-plotly-plot .main-svg")
    page.wait_for_function("() => document.querySelectorAll('[data-viewer=inspect] .plots table').length >= 5")


def test_a_reply_of_the_chat_is_looked_into(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    page = visit(launch_page(engine))
    page.send("hello")
    page.wait_turns(1)
    page.page.click(".turn [data-action=inspect]")
    opened(page, "inspect")
    assert "tab=inspect" in page.page.url and lane(page, "reply", "inspect") == DEFAULT_TEXT == page.reply()
    page.page.click(f"{VIEW} .t.rejected >> nth=0")
    assert "rejected" in pane(page)


def test_from_a_card_to_its_round(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    page = visit(launch_page(engine))
    page.send("hello")
    page.wait_turns(1)
    page.page.click(".turn .t.rejected >> nth=1")
    page.page.click(".token-card [data-action=inspect]")
    opened(page, "inspect")
    assert "rejected" in pane(page) and told(page)[0] == "lane reply"


def test_a_chat_without_a_reply_says_so(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    page = opened(visit(launch_page(engine) + "?tab=inspect"), "inspect")
    page.page.click("[data-source=chat]")
    page.page.wait_for_selector("[data-slot=inspect-notice]:not(:empty)")
    assert page.page.locator(f"{VIEW} .lane").count() == 2  # what was there stays


def test_saved_and_opened_again_on_another_server(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    page = opened(visit(launch_page(engine) + "?tab=race"))
    go(page, "save me: 保存")
    over(page)
    name, text = saved(page, "race", "save-trace")
    assert name.endswith(".json") and json.loads(text)["greenlight_trace"] == 1
    other_engine = FakeEngine(state=Status(State.FAILED, "load", message="no model"))
    other = opened(visit(launch_page(other_engine) + "?tab=inspect"), "inspect")
    open_file(other, text)
    other.page.wait_for_function(
        "() => document.querySelector('[data-viewer=inspect] .what').innerText.includes('保存')"
    )
    assert lane(other, "plain", "inspect") == lane(page, "plain") and lane(other, "speculative", "inspect") == lane(
        page, "speculative"
    )
    other.page.click(f"{VIEW} .lane.speculative .t.rejected >> nth=0")
    assert other.page.locator(f"{PANE} table").count() or pane(other)
    assert not other_engine.asked and not other_engine.raced


class _Page(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data


def test_saved_as_a_page_that_needs_nothing_else(
    engine: FakeEngine, launch_page: LAUNCH, visit: VISIT, chromium: Any
) -> None:
    page = opened(visit(launch_page(engine) + "?tab=race"))
    go(page)
    over(page)
    name, text = saved(page, "race", "save-page")
    read = _Page()
    read.feed(text)
    assert name.endswith(".html") and not [attrs for _, attrs in read.tags if {"src", "href"} & attrs.keys()]
    context = chromium.new_context(offline=True)
    alone = context.new_page()
    asked: list[str] = []
    alone.on("request", lambda request: asked.append(request.url))
    alone.set_content(text)
    assert (
        alone.locator(".t.rejected:not(.legend *)").count()
        == page.page.locator("[data-viewer=race] .lane .t.rejected").count()
    )
    assert not [url for url in asked if not url.startswith(("about:", "data:"))]
    context.close()


NO_FILES = ("", "{", '{"greenlight_trace": 99}', "[1, 2]", b"\xff\xfe\x00\x01", '{"greenlight_trace": 1, "lanes": NaN}')


def test_a_file_that_is_none_is_refused_and_what_was_there_stays(inspector: Visit, subtests: pytest.Subtests) -> None:
    for content in NO_FILES:
        with subtests.test(repr(content)):
            inspector.page.evaluate(f"() => document.querySelector('{NOTICE}').replaceChildren()")
            open_file(inspector, content)
            inspector.page.wait_for_function(
                "(place) => /\\S/.test(document.querySelector(place).innerText.replace('Opening the file …', ''))",
                arg=NOTICE,
            )
            assert inspector.page.locator(f"{VIEW} .lane").count() == 2


def test_a_server_that_forgot_is_given_it_back(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    page = opened(visit(launch_page(engine) + "?tab=race"))
    go(page)
    over(page)
    before = lane(page, "speculative")
    forget()
    page.page.click("[data-viewer=race] .lane.speculative .t.rejected >> nth=0")
    page.page.wait_for_selector("[data-viewer=race] [data-slot=round] .pane")
    assert lane(page, "speculative") == before and not page.page.is_visible("[data-viewer=race] [data-slot=lost]")


def forget() -> None:
    """As a server that was started again: no recording is known."""
    import gc

    from ui.recording.recordings import Recordings

    for store in gc.get_objects():
        if isinstance(store, Recordings):
            store._store.clear()
