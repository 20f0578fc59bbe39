"""What goes wrong around races and recordings, in a real browser: silence, haste, files that are none, a server that
forgot."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from tests.fake_engine import FakeEngine, Script
from tests.ui.conftest import until
from tests.ui.page.conftest import Visit
from tests.ui.page.test_inspect import PANE, VIEW, forget, open_file, saved
from tests.ui.page.test_race import go, lane, opened, over, race, rounds, running, won
from ui.controls import Options
from ui.race import handlers as module
from ui.recording import trace_file

pytestmark = pytest.mark.browser

LAUNCH = Callable[..., str]
VISIT = Callable[..., Visit]
__all__ = ["race"]  # the fixture


def notice(page: Visit, where: str = "race") -> str:
    page.page.wait_for_selector(f"[data-slot={where}-notice]:not(:empty)")
    return str(page.page.inner_text(f"[data-slot={where}-notice]"))


def test_from_the_start_while_it_runs(race: Visit, engine: FakeEngine) -> None:
    engine.hold_after = 12
    go(race)
    running(race)
    race.page.check("[name=gl-speed-race][value=slower]")  # so slow that the start can be seen
    race.page.check("[name=gl-speed-race][value=live]")
    began = race.page.evaluate(
        """() => { const viewer = document.querySelector('[data-viewer=race]');
            viewer.querySelector('[data-action=restart]').click();
            return [viewer.dataset.mode, parseFloat(viewer.querySelector('.lane.plain [data-lane=clock]').innerText)]; }"""
    )
    assert began == ["real", 0], "at once: the next moment it has gone on"
    engine.gate.set()
    over(race)


def test_a_race_that_is_stopped_before_it_began(race: Visit, engine: FakeEngine) -> None:
    engine.hold_after = 0
    race.page.fill("[name=prompt]", "hello")
    race.page.evaluate(
        """() => { for (const name of ["go", "stop", "go"]) document.querySelector(`[data-action=race-${name}]`).click(); }"""
    )
    race.page.wait_for_selector(".race-form[data-running=no]")
    until(lambda: not engine.raced or all(one.race.cancelled for one in engine.raced))
    assert len(engine.raced) <= 1


def test_a_lane_that_was_stopped_has_not_won(race: Visit, engine: FakeEngine) -> None:
    engine.hold_after = 12
    go(race)
    running(race)
    race.page.click("[data-action=race-stop]")
    over(race)
    assert not won(race, "plain") and not won(race, "speculative")


def test_what_was_corrected_stays_said(race: Visit) -> None:
    race.page.fill("[name=temperature]", "5")
    race.page.fill("[name=prompt]", "hello")
    race.page.press("[name=prompt]", "Enter")
    over(race)
    assert "5" in notice(race)
    race.page.fill("[name=temperature]", "0")
    race.page.press("[name=prompt]", "Enter")
    over(race)
    assert not race.page.inner_text("[data-slot=race-notice]").strip()


def test_arrow_keys_choose_no_speed_that_is_not_offered(race: Visit) -> None:
    race.page.focus("[name=gl-speed-race][value=real]")
    chosen = []
    for _ in range(3):
        race.page.keyboard.press("ArrowLeft")
        chosen.append(race.page.evaluate("() => document.querySelector('[name=gl-speed-race]:checked').value"))
    assert chosen == ["slower", "slow", "real"]


def test_a_race_of_another_page_is_joined(race: Visit, engine: FakeEngine) -> None:
    engine.hold_after = 12
    go(race, "from the other page")
    running(race)
    other = race.page.context.new_page()
    kept = race.page.evaluate("() => sessionStorage.getItem('greenlight.race')")
    other.add_init_script(f"sessionStorage.setItem('greenlight.race', {json.dumps(kept)})")
    other.goto(race.page.url)
    other.wait_for_selector("[data-viewer=race][data-state=live]")
    engine.gate.set()
    other.wait_for_selector("[data-viewer=race][data-state=whole][data-over=yes]", timeout=60_000)
    over(race)
    assert lane(Visit(other), "plain") == lane(race, "plain") and other.is_enabled("[data-action=race-go]")
    other.close()


@pytest.mark.parametrize("known", [True, False])
def test_a_server_that_falls_silent(
    engine: FakeEngine, launch_page: LAUNCH, visit: VISIT, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """A race of which nothing more comes ends with a sentence, and what there is of it can be played."""
    follow = module.Races._follow

    async def broken(*args: Any) -> AsyncGenerator[Any, None]:
        async for message in follow(*args):
            for shown in message["live"]["lanes"]:
                shown["blocks"], shown["phase"] = shown["blocks"][:6], "running"
            yield message | {"live": message["live"] | {"running": True}}
            await asyncio.sleep(60)

    async def mute(*_: Any) -> AsyncGenerator[Any, None]:
        await asyncio.sleep(60)
        yield {}

    monkeypatch.setattr(module.Races, "_follow" if known else "race", broken if known else mute)
    monkeypatch.setattr(module.Races, "_find", lambda *_: None)
    race = opened(visit(launch_page(engine, Options()) + "?tab=race"))  # both are left by this test as they are
    go(race)
    assert notice(race)
    race.page.wait_for_selector(".race-form[data-running=no]")
    over(race)
    assert race.page.is_visible("[data-viewer=race] [data-action=save-trace]") and lane(race, "plain")


def test_a_race_that_runs_is_looked_into_later(race: Visit, engine: FakeEngine) -> None:
    engine.hold_after = 12
    go(race)
    running(race)
    race.page.click(".tabs [data-tab-link=inspect]")
    opened(race, "inspect")
    race.page.click("[data-source=race]")
    assert "still being written" in notice(race, "inspect")
    assert race.page.get_attribute(VIEW, "data-state") == "whole"
    engine.gate.set()


def test_a_reply_that_is_being_written_is_looked_into_later(
    engine: FakeEngine, launch_page: LAUNCH, visit: VISIT
) -> None:
    engine.hold_after = 12
    page = visit(launch_page(engine))
    page.send("hello")
    page.page.click(".turn .t.draft >> nth=1")
    page.page.click(".token-card [data-action=inspect]")
    assert "still being written" in notice(page, "inspect") and not page.page.locator(f"{VIEW} .lane.reply").count()
    engine.gate.set()


def test_the_focus_stays_on_the_button_that_goes_on(race: Visit) -> None:
    go(race)
    over(race)
    page = race.page
    page.click("[data-viewer=race] .lane.speculative .t.rejected >> nth=0")
    page.wait_for_selector("[data-viewer=race] [data-slot=round] .pane")
    page.focus("[data-viewer=race] [data-action=round-next]")
    for _ in range(2):
        before = page.inner_text("[data-viewer=race] [data-slot=round]")
        page.keyboard.press("Enter")
        page.wait_for_function(
            "(before) => document.querySelector('[data-viewer=race] [data-slot=round]').innerText !== before",
            arg=before,
        )
        assert page.evaluate("() => document.activeElement.dataset.action") == "round-next"
    page.focus("[data-viewer=race] [data-slot=round] [data-piece] >> nth=-1")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.activeElement.matches('[data-slot=round] [data-piece][aria-current]')")


def test_a_server_that_forgot_saves_all_the_same(race: Visit) -> None:
    go(race)
    over(race)
    forget()
    name, text = saved(race, "race", "save-trace")
    assert name.endswith(".json") and json.loads(text)["greenlight_trace"] == 1


def test_a_file_that_does_not_come_is_said(race: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module._ABOUT, "file", lambda *_: {})
    race.page.click("[data-viewer=race] [data-action=end]")
    race.page.click("[data-viewer=race] [data-action=save-page]")
    race.page.wait_for_selector("[data-viewer=race] [data-slot=lost]", state="visible")


DROP = """(folder) => {
  const data = new DataTransfer(), file = new File(["{}"], "a.json");
  if (folder) File.prototype.text = () => Promise.reject(new DOMException("a folder", "NotFoundError"));
  data.items.add(file);
  const drop = new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true});
  document.querySelector("[data-part=log]").dispatchEvent(drop);
  return drop.defaultPrevented;
}"""


def test_a_file_is_dropped_on_the_chat(page: Visit, subtests: pytest.Subtests) -> None:
    for folder in (False, True):  # from the second on files have no text in this page
        with subtests.test(folder=folder):
            page.page.click(".tabs [data-tab-link=chat]")
            page.page.evaluate("() => document.querySelector('[data-slot=inspect-notice]').replaceChildren()")
            assert page.page.evaluate(DROP, folder)
            assert notice(page, "inspect") and page.page.is_visible(".view.inspect")


def test_lanes_that_took_no_time_have_no_speed(race: Visit) -> None:
    go(race)
    over(race)
    trace = json.loads(saved(race, "race", "save-trace")[1])
    for one in trace["lanes"]:
        for row in one["rows"]:
            row["s"] = [0.0] * len(row.get("s", []))
            if not row["s"]:
                del row["s"]
    race.page.click(".tabs [data-tab-link=inspect]")
    opened(race, "inspect")
    race.page.evaluate("() => { document.querySelector('[data-viewer=inspect] .what').textContent = ''; }")
    open_file(race, json.dumps(trace))
    race.page.wait_for_selector(f"{VIEW} .what .asked")
    shown = race.page.inner_text(VIEW)
    assert "NaN" not in shown and "Infinity" not in shown and rounds(race, "plain", "inspect") > 20


def test_what_ends_a_lane_offers_nothing_that_is_not_there(race: Visit, engine: FakeEngine) -> None:
    engine.answer = lambda _: Script(text="one " * 100)
    go(race, length="64")
    over(race)
    foot = race.page.inner_text("[data-viewer=race] .lane.plain .foot")
    assert "64" in foot and "Longest reply" not in foot
    assert not race.page.locator(PANE).locator(".pane").count()


def test_a_large_file_is_read_once(race: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    """The larger it is, the longer the page waits before it asks again; meanwhile it says what it does."""
    go(race)
    over(race)
    trace = saved(race, "race", "save-trace")[1] + " " * 1_000_000
    read, loaded = [], trace_file.load

    def slow(given: object, recording_id: str) -> Any:
        read.append(recording_id)
        time.sleep(4)  # longer than it waits for what takes no time
        return loaded(given, recording_id)

    monkeypatch.setattr(trace_file, "load", slow)
    race.page.click(".tabs [data-tab-link=inspect]")
    opened(race, "inspect")
    race.page.evaluate("() => { document.querySelector('[data-viewer=inspect] .what').textContent = ''; }")
    open_file(race, trace)
    assert "Opening" in notice(race, "inspect")
    race.page.wait_for_selector(f"{VIEW} .what .asked")
    assert len(read) == 1 and not race.page.inner_text("[data-slot=inspect-notice]").strip()
