"""The inspector in a real browser: over the scripted engine."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from tests.fake_engine import DEFAULT_TEXT, FakeEngine, Script
from tests.ui.page.conftest import Visit
from tests.ui.page.test_race import notice, opened, pane, saved, seen, tab
from ui.recording import trace_file

pytestmark = pytest.mark.browser

VIEW = "[data-viewer=inspect]"
PANE = f"{VIEW} [data-slot=round]"
SPOKEN = "() => document.querySelector('[data-viewer=inspect] [data-slot=say]').textContent.trim()"
TOP = "() => document.querySelector('[data-part=log]').scrollTop"
EMPTY = """() => ['[data-viewer=inspect] [data-slot=what]', '[data-viewer=inspect] [data-slot=round]', '[data-slot=inspect-notice]']
    .forEach((place) => document.querySelector(place).replaceChildren())"""
REFUSED = "() => !/^\\s*$|Opening/.test(document.querySelector('[data-slot=inspect-notice]').innerText)"
TOLD = """() => { const node = document.querySelector('[data-viewer=inspect] .told'), round = node.closest('.round');
    return [node.closest('.lane').classList[1], [...round.parentNode.children].indexOf(round), Number(node.dataset.i)]; }"""
WAITS = """() => { const before = window.setTimeout; window.waits = [];
    window.setTimeout = (what, wait, ...more) => { waits.push(wait ?? 0); return before(what, wait, ...more); }; }"""
DROP = """(folder) => {
  const data = new DataTransfer(), file = new File(["{}"], "a.json");
  if (folder) File.prototype.text = () => Promise.reject(new DOMException("a folder", "NotFoundError"));
  data.items.add(file);
  const drop = new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true});
  document.querySelector("[data-part=log]").dispatchEvent(drop);
  return drop.defaultPrevented;
}"""


def look_into(page: Visit, token: str) -> None:
    page.page.evaluate(EMPTY)
    page.page.click(token)
    page.page.click(".token-card [data-action=inspect]")


def source(page: Visit, name: str) -> Any:
    page.page.evaluate(EMPTY)
    page.page.click(f"[data-source={name}]")
    page.page.wait_for_selector(f"{VIEW} .asked")
    return seen(page, "inspect")


def open_file(page: Visit, content: str) -> None:
    page.page.evaluate(EMPTY)
    file: Any = {"name": "reply.json", "mimeType": "application/json", "buffer": content.encode("latin-1")}
    page.page.set_input_files("[data-part=trace-file]", file)


def test_replies_races_and_files_are_looked_into(
    page: Visit, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = page.page
    tab(page, "inspect")
    opened(page, "inspect")
    assert shown.url.endswith("?tab=inspect") and not shown.is_visible("#gl-chat")
    shown.click("[data-source=chat]")
    notice(page, where="inspect")
    assert seen(page, "inspect").lanes == 2, "a chat without a reply says so, and what was there stays"

    shown.click(f"{VIEW} .lane.speculative .t.rejected >> nth=0")
    said = pane(page, where="inspect")
    lane, block, piece = shown.evaluate(TOLD)
    assert lane == "speculative" and "rejected" in said and shown.locator(f"{PANE} tbody tr").count() >= 2
    shown.click(f"{PANE} [data-piece]:not([data-piece='{piece}']) >> nth=0")
    said = pane(page, said, "inspect")
    *place, other = shown.evaluate(TOLD)
    assert place == [lane, block] and other != piece, "a token of the pane"
    shown.click(f"{VIEW} .lane.plain .t >> nth=3")
    pane(page, said, "inspect")
    assert shown.evaluate(TOLD)[0] == "plain"
    shown.focus(f"{VIEW} .lane.speculative .lane-text")
    places = []
    for key in ("ArrowRight", "ArrowDown", "ArrowRight", "ArrowLeft", "ArrowUp", "ArrowUp"):
        shown.keyboard.press(key)
        places.append(shown.evaluate(TOLD)[1:])
    inside = places.pop(2)
    assert places == [[0, 0], [1, 0], [1, 0], [0, 0], [0, 0]] and inside not in places
    shown.wait_for_function(SPOKEN)
    shown.focus(f"{PANE} [data-action=round-next]")
    shown.keyboard.press("Enter")
    assert shown.evaluate(TOLD)[1] == 1
    shown.click(f"{VIEW} .plots summary")
    shown.locator(f"{VIEW} .plots .plot").first.scroll_into_view_if_needed()  # what is out of sight is not drawn
    shown.wait_for_selector(f"{VIEW} .plots .js-plotly-plot .main-svg")
    shown.wait_for_function("() => document.querySelectorAll('[data-viewer=inspect] .plots table').length >= 5")

    tab(page, "chat")
    assert "tab=" not in shown.url and shown.is_visible("#gl-box") and not shown.is_visible("#gl-watch")
    page.send("hello")
    page.wait_turns(1)
    look_into(page, ".turn .t.rejected >> nth=1")
    assert "rejected" in pane(page, where="inspect") and shown.evaluate(TOLD)[0] == "reply", "from a card to its round"
    tab(page, "chat")
    engine.answer = lambda _: Script(text=DEFAULT_TEXT * 9)
    page.send("more")
    page.wait_turns(2)
    for top in (120, 10**6):
        shown.evaluate("(top) => { document.querySelector('[data-part=log]').scrollTop = top; }", top)
        before = shown.evaluate(TOP)
        tab(page, "race")
        tab(page, "chat")
        assert shown.evaluate(TOP) == before > 0, "the chat stands where it stood"
    shown.click(".turn >> nth=1 >> [data-action=inspect]")
    shown.locator(f"{VIEW} .asked", has_text="more").wait_for()
    assert seen(page, "inspect").reply.text == page.reply()
    assert shown.get_attribute(".tabs [data-tab-link=inspect]", "aria-current") == "page"
    for view in ("chat", "race"):
        shown.go_back()
        shown.wait_for_function("(view) => document.documentElement.dataset.tab === view", arg=view)

    tab(page, "inspect")
    whole = source(page, "shipped-code")
    assert whole.plain.text == whole.speculative.text and len(whole.plain.text) > 100
    trace = json.loads(saved(page, "inspect", "trace"))
    assert source(page, "shipped-bad").plain.text != whole.plain.text
    for content in ("{", "\xff\xfe\x00\x01"):
        open_file(page, content)
        shown.wait_for_function(REFUSED)
    assert seen(page, "inspect").lanes == 2
    for row in (row for one in trace["lanes"] for row in one["rows"] if "s" in row):
        row["s"] = [0.0] * len(row["s"])

    read, loaded = threading.Event(), trace_file.load
    monkeypatch.setattr(trace_file, "load", lambda *args: (read.wait(60), loaded(*args))[1])
    shown.evaluate(WAITS)
    open_file(page, json.dumps(trace) + " " * 1_000_000)
    notice(page, "Opening", "inspect")
    assert shown.evaluate("() => Math.max(...waits)") > 6000, "what is asked about twice is read twice"
    read.set()
    shown.wait_for_selector(f"{VIEW} .asked")
    again, words = seen(page, "inspect"), shown.inner_text(VIEW)
    assert not shown.inner_text("[data-slot=inspect-notice]").strip()
    assert (again.plain.text, again.speculative.text) == (whole.plain.text, whole.speculative.text)
    assert "NaN" not in words and "Infinity" not in words, "lanes that took no time have no speed"

    for folder in (False, True):  # from the second on files have no text in this page
        tab(page, "chat")
        shown.evaluate(EMPTY)
        assert shown.evaluate(DROP, folder)
        shown.wait_for_function(REFUSED)
        assert shown.is_visible(".view.inspect")
    tab(page, "chat")
    engine.hold_after = 12
    page.send("held")
    look_into(page, ".turn >> nth=2 >> .t.draft >> nth=1")
    notice(page, "still being written", "inspect")
    engine.gate.set()
