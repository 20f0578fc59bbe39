"""The race in a real browser, over the scripted engine: from its form to its verdict, and what goes wrong around it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.config import Rule
from engine.serving.engine import State, Status
from tests.fake_engine import DEFAULT_TEXT, FakeEngine, Script
from tests.ui.conftest import until
from tests.ui.page.conftest import PATIENCE_MS, Visit
from ui.controls import Options
from ui.race import handlers as module
from ui.recording.recordings import Recordings

pytestmark = pytest.mark.browser

LAUNCH = Callable[..., str]
VISIT = Callable[..., Visit]
VIEW = "[data-viewer=race]"
PROMPT, WARMTH = "[name=prompt]", "[name=temperature]"
GO, STOP = "[data-action=race-go]", "[data-action=race-stop]"
NOTICE = "[data-slot=race-notice]"
ENDED = ".race-form:not([data-running=yes])"
OVER = f".race:has({ENDED}) {VIEW}[data-state=whole][data-over=yes] .asked"
HOSTILE = "<img src=x onerror=alert(1)> </span><script>alert(2)</script> ${alert(3)} {{alert(4)}}"
PRESS = "(all) => all.forEach((one) => document.querySelector(`[data-viewer=race] [data-action=${one}]`).click())"
ROUND = """([place, before]) => { const slot = document.querySelector(place), words = slot.innerText.trim();
    return slot.querySelector('.pane') && words !== before && words; }"""

SEEN = """(where) => {
  const viewer = document.querySelector(`[data-viewer=${where}]`), words = (node) => node?.innerText.trim() ?? '';
  const slots = ['verdict', 'mode', 'speedup', 'what', 'round'];
  const lane = (one) => ({won: !one.querySelector('.winner').hidden, rounds: one.querySelectorAll('.round').length,
    text: [...one.querySelectorAll('.t:not(.rejected, .discarded, .chip)')].map((t) => t.textContent).join(''),
    ...Object.fromEntries(['speed', 'tokens', 'clock', 'foot'].map((what) => [what, words(one.querySelector(`[data-lane=${what}]`))]))});
  return {state: viewer.dataset.mode, playing: viewer.dataset.playing, over: viewer.dataset.over, lanes: viewer.querySelectorAll('.lane').length,
    ...Object.fromEntries(slots.map((slot) => [slot, words(viewer.querySelector(`[data-slot=${slot}]`))])),
    ...Object.fromEntries([...viewer.querySelectorAll('.lane')].map((one) => [one.classList[1], lane(one)]))};
}"""
"""All of a viewer at one moment, since it may play."""


def seen(page: Visit, where: str = "race") -> Any:
    return json.loads(json.dumps(page.page.evaluate(SEEN, where)), object_hook=lambda one: SimpleNamespace(**one))


def press(page: Visit, *actions: str) -> Any:
    """Buttons of the race at one moment, between which nothing is played; what is seen then."""
    page.page.evaluate(PRESS, actions)
    return seen(page)


def opened(page: Visit, where: str = "race") -> Visit:
    page.page.wait_for_selector(f"[data-viewer={where}] .lane")
    return page


def tab(page: Visit, name: str) -> None:
    page.page.click(f".tabs [data-tab-link={name}]")


def go(page: Visit, prompt: str, temperature: str = "0") -> None:
    page.page.fill(PROMPT, prompt)
    page.page.fill(WARMTH, temperature)
    page.page.press(PROMPT, "Enter")


def over(page: Visit, prompt: str = "") -> Any:
    """What is seen once the race of that prompt is run and shown to its end."""
    page.page.locator(OVER, has_text=prompt).wait_for(state="attached")
    return seen(page)


def run(page: Visit, prompt: str, temperature: str = "0") -> Any:
    go(page, prompt, temperature)
    return over(page, prompt)


def hold(page: Visit, engine: FakeEngine) -> None:
    """A race that is being run, has shown some rounds and waits at its gate."""
    engine.gate.clear()
    engine.hold_after = 12
    go(page, "held")
    page.page.wait_for_selector(f"{VIEW}[data-state=live]:has(.lane.plain .round:nth-of-type(6))")


def notice(page: Visit, words: str = "", where: str = "race") -> None:
    page.page.locator(f"[data-slot={where}-notice]:not(:empty)", has_text=words).wait_for()


def pane(page: Visit, before: str = "", where: str = "race") -> str:
    """What it says of a round, once it says something else than before."""
    place = f"[data-viewer={where}] [data-slot=round]"
    return str(page.page.wait_for_function(ROUND, arg=[place, before]).json_value())


def saved(page: Visit, where: str, action: str) -> str:
    """What is in a file that the page hands out."""
    with page.page.expect_download() as waiting:
        page.page.click(f"[data-viewer={where}] [data-action=save-{action}]")
    return Path(waiting.value.path()).read_text(encoding="utf-8")


def forget() -> None:
    """As a server that was started again: no recording is known."""
    import gc

    for store in gc.get_objects():
        if isinstance(store, Recordings):
            store._store.clear()


def test_a_race_from_its_form_to_its_verdict(page: Visit, engine: FakeEngine) -> None:
    shown = page.page
    tab(page, "race")
    opened(page)
    shown.fill(PROMPT, "one")
    shown.press(PROMPT, "Shift+Enter")
    shown.keyboard.type("two")
    whole = run(page, shown.input_value(PROMPT))
    [raced] = engine.raced
    assert raced.messages[-1].content == "one\ntwo" and raced.params.rule is Rule.SHARED_NOISE
    plain, speculative = whole.plain, whole.speculative
    assert plain.text == speculative.text == DEFAULT_TEXT and speculative.won and not plain.won
    assert "same text" in whole.verdict.lower() and "68 of 68" in whole.verdict
    figures = [(lane.tokens, lane.clock, lane.speed) for lane in (plain, speculative)]
    assert figures == [("68", "0.72 s", "100"), ("68", "0.32 s", "248")] and whole.speedup == "2.48×"

    shown.reload()
    assert "one\ntwo" in over(page).what, "a reload keeps the race"
    shown.focus("[name=gl-speed-race][value=real]")
    for value in ("slower", "slow", "real", "slower"):  # by arrow keys, to those that are offered alone
        shown.keyboard.press("ArrowLeft")
        assert shown.is_checked(f"[name=gl-speed-race][value={value}]")
    begun = press(page, "restart", "play")
    assert begun.state == "paused" and begun.plain.rounds == 0
    for count in (1, 2, 3):
        shown.click(f"{VIEW} [data-action=step]")
        assert seen(page).speculative.rounds == count
    shown.wait_for_selector(f"{VIEW} .lane.speculative .told")
    back = press(page, "back")
    assert back.speculative.rounds == 2 and not back.verdict, "the end is not told before"
    start = press(page, *["back"] * 6)
    assert start.speculative.rounds == start.plain.rounds == 0, "the very start, and no further"
    assert (start.plain.clock, start.plain.speed) == ("0.00 s", "–")
    slow = press(page, "play")
    assert slow.state == "slower" and "Slow motion" in slow.mode
    shown.wait_for_selector(f"{VIEW} .lane.speculative .round", state="attached")
    shown.check("[name=gl-speed-race][value=real]")
    assert (over(page).plain, seen(page).speculative) == (plain, speculative), "slow motion changes no figure"

    forget()
    shown.click(f"{VIEW} .lane.speculative .t.rejected >> nth=0")
    said = pane(page)
    assert seen(page).speculative == speculative and not shown.is_visible(f"{VIEW} [data-slot=lost]")
    shown.focus(f"{VIEW} [data-action=round-next]")
    for _ in range(2):
        shown.keyboard.press("Enter")
        said = pane(page, said)
        assert shown.evaluate("() => document.activeElement.dataset.action") == "round-next"
    shown.focus(f"{VIEW} [data-slot=round] [data-piece] >> nth=-1")
    shown.keyboard.press("Enter")
    shown.wait_for_function("() => document.activeElement.matches('[data-slot=round] [data-piece][aria-current]')")
    forget()
    assert json.loads(saved(page, "race", "trace"))["greenlight_trace"] == 1, "also where the server forgot it"
    assert "Same text: yes" in saved(page, "race", "page")

    shown.select_option("[name=length]", "64")
    assert "64" in run(page, "first", "0.6").plain.foot
    shown.fill(PROMPT, "something else")
    shown.click("[data-action=race-again][data-k='5']")
    until(lambda: len(engine.raced) == 3)
    over(page, "first")
    again = engine.raced[-1]
    assert again.params.num_speculative_tokens == 5 and again.messages[-1].content == "first"
    assert again.params.sampling.temperature == 0.6 and again.params.max_new_tokens == 64

    shown.click("[data-action=race-prompt] >> nth=5")
    assert shown.input_value(PROMPT).startswith("Write a short poem") and float(shown.input_value(WARMTH)) > 0.5
    shown.uncheck("[name=dice]")
    engine.answer = lambda _: Script(pieces=[HOSTILE, " and ", HOSTILE])
    end = run(page, HOSTILE, "0.8")
    assert engine.raced[-1].params.rule is Rule.REJECTION and end.verdict, "texts that may part are explained"
    assert end.plain.text == f"{HOSTILE} and {HOSTILE}" and HOSTILE in end.what
    assert shown.locator("#gl-watch img, #gl-watch .lane script").count() == 0


def test_what_comes_between_a_race_and_its_end(page: Visit, engine: FakeEngine) -> None:
    shown, ready = page.page, engine.state
    engine.state = Status(State.LOADING, "load", 0.5)
    shown.wait_for_selector("[data-viewer=glance][data-over=yes]")
    recorded = seen(page, "glance")
    assert recorded.plain.text == recorded.speculative.text != "", "a recorded one plays before the model is there"
    shown.click(".glance [data-tab-link=race]")
    assert over(page).verdict

    go(page, "   ")
    notice(page)
    shown.wait_for_selector(ENDED)
    go(page, "waits")
    shown.wait_for_selector(f"{NOTICE} progress")
    assert not engine.raced, "nothing is not raced, and a race waits for the model"
    engine.state = ready
    assert over(page, "waits").plain.text == DEFAULT_TEXT
    engine.busy = True
    go(page, "refused")
    notice(page, "Too many")
    shown.wait_for_selector(ENDED)
    assert (seen(page).what, shown.input_value(PROMPT)) == ("waits", "refused"), "what was there stays"
    engine.busy = False
    run(page, "too warm", "5")
    notice(page, "5")
    run(page, "cold")
    assert not shown.inner_text(NOTICE).strip(), "a correction stays said until the next race"

    hold(page, engine)
    held = press(page, "play")
    assert held.state == "held" and "goes on" in held.mode
    other = Visit(shown.context.new_page())
    other.page.set_default_timeout(PATIENCE_MS)
    key = shown.evaluate("() => JSON.stringify(sessionStorage.getItem('greenlight.race'))")
    other.page.add_init_script(f"sessionStorage.setItem('greenlight.race', {key})")
    other.page.goto(f"{shown.url}")
    other.page.wait_for_selector(f"{VIEW}[data-state=live]")
    tab(page, "inspect")
    opened(page, "inspect")
    shown.click("[data-source=race]")
    notice(page, "still being written", "inspect")
    assert shown.get_attribute("[data-viewer=inspect]", "data-state") == "whole", "what was there stays"
    tab(page, "chat")
    page.send("hello")
    shown.wait_for_selector(".turn .t")
    engine.gate.set()
    page.wait_turns(1)
    assert page.reply() == DEFAULT_TEXT, "a chat and a race at once"
    tab(page, "race")
    shown.wait_for_selector(ENDED)
    paused = seen(page)
    assert paused.plain.rounds == held.plain.rounds and not paused.verdict, "a pause holds the picture and not the race"
    press(page, "play")
    assert over(page).plain.text == over(other, "held").plain.text == DEFAULT_TEXT, "another page joins a race"
    assert other.page.is_enabled(GO)
    other.page.close()

    hold(page, engine)
    for value in ("slower", "live"):
        shown.check(f"[name=gl-speed-race][value={value}]")
    begun = press(page, "restart")
    assert (begun.state, begun.plain.clock) == ("real", "0.00 s"), "from the start while it runs"
    shown.click(STOP)
    stopped = over(page)
    assert engine.raced[-1].race.cancelled and DEFAULT_TEXT.startswith(stopped.plain.text) and stopped.plain.text
    assert not stopped.plain.won and not stopped.speculative.won, "a lane that was stopped has not won"
    assert shown.is_enabled(GO) and not shown.is_visible(STOP)

    engine.hold_after, count = 0, len(engine.raced)
    shown.evaluate("(all) => all.forEach((one) => document.querySelector(one).click())", [GO, STOP, GO])
    shown.wait_for_selector(ENDED)
    until(lambda: all(one.race.cancelled for one in engine.raced[count:]))
    assert len(engine.raced) <= count + 1, "stopped before it began"


@pytest.mark.slow
def test_a_server_that_falls_silent(
    engine: FakeEngine, launch_page: LAUNCH, visit: VISIT, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A race of which nothing more comes ends with a sentence, and what there is of it can be played and saved."""
    follow, race = module.Races._follow, module.Races.race

    async def broken(*args: Any) -> AsyncGenerator[Any, None]:
        async for message in follow(*args):
            for lane in message["live"]["lanes"]:
                lane["blocks"], lane["phase"] = lane["blocks"][:6], "running"
            yield message | {"live": message["live"] | {"running": True}}
            await asyncio.sleep(60)

    async def mute(*_: Any) -> AsyncGenerator[Any, None]:
        await asyncio.sleep(60)
        yield {}

    page = opened(visit(launch_page(engine, Options()) + "?tab=race"))  # both are left by this test as they are
    monkeypatch.setattr(module.Races, "race", mute)
    go(page, "into the void")
    notice(page)
    assert over(page).plain.text, "the recorded one"
    monkeypatch.setattr(module.Races, "race", race)
    monkeypatch.setattr(module.Races, "_follow", broken)
    monkeypatch.setattr(module.Races, "_find", lambda *_: None)
    go(page, "half")
    notice(page)
    half = over(page, "half").plain.text
    assert DEFAULT_TEXT.startswith(half) and half
    monkeypatch.setitem(module._ABOUT, "file", lambda *_: {})
    press(page, "save-page")
    page.page.wait_for_selector(f"{VIEW} [data-slot=lost]")


@pytest.mark.slow
def test_on_a_phone_in_chinese_with_reduced_motion(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    phone = {"width": 390, "height": 844}
    page = visit(launch_page(engine) + "?tab=race", viewport=phone, locale="zh-CN", reduced_motion="reduce")
    assert over(page).playing == "no" and seen(page).plain.text, "nothing plays by itself"
    assert run(page, "天空为什么是蓝色的？").verdict
    shown = page.page.inner_text(".view.race")
    assert "普通" in shown and "Speed-up" not in shown
    page.page.click(f"{VIEW} .lane.speculative .t.draft >> nth=2")
    pane(page)
    for view in ("inspect", "race"):
        tab(page, view)
        opened(page, view)
        wide = "() => [document.documentElement, document.querySelector('#gl-watch')].map((n) => n.scrollWidth - n.clientWidth)"
        assert page.page.evaluate(wide) == [0, 0], view
    lanes = "() => [...document.querySelectorAll('[data-viewer=race] .lane')].map((n) => n.getBoundingClientRect())"
    upper, lower = page.page.evaluate(lanes)
    assert upper["bottom"] <= lower["top"], "one lane under the other"
