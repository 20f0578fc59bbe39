"""The race in a real browser, over the scripted engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.config import Rule
from engine.errors import ContextFull
from engine.serving.engine import State, Status
from tests.fake_engine import DEFAULT_TEXT, FakeEngine, Script
from tests.ui.conftest import until
from tests.ui.page.conftest import Visit
from ui.controls import Options

pytestmark = pytest.mark.browser

LAUNCH = Callable[..., str]
VISIT = Callable[..., Visit]
REST = ":not(.rejected):not(.discarded):not(.chip)"


@pytest.fixture
def race(engine: FakeEngine, launch_page: LAUNCH, keep: VISIT) -> Visit:
    """The race's view with the recorded race in it, or that of the test before, and its form as it is at first."""
    page = keep(launch_page(engine) + "?tab=race")
    page.page.click(".tabs [data-tab-link=race]")
    opened(page)
    page.page.wait_for_selector(".race-form:not([data-running=yes])")
    page.page.check("[name=gl-speed-race][value=real]")
    page.page.evaluate(
        "() => { const form = document.querySelector('.race-form'); form.reset(); form.temperature.value = 0; }"
    )
    return page


def opened(page: Visit, where: str = "race") -> Visit:
    page.page.wait_for_selector(f"[data-viewer={where}] .lane")
    return page


def go(page: Visit, prompt: str = "hello", **fields: str) -> None:
    page.page.fill("[name=prompt]", prompt)
    for name, value in fields.items():
        if page.page.locator(f"select[name={name}]").count():
            page.page.select_option(f"[name={name}]", value)
        else:
            page.page.fill(f"[name={name}]", value)
    page.page.click("[data-action=race-go]")


def over(page: Visit) -> None:
    """Until the race is run and shown to its end."""
    page.page.wait_for_selector(".race-form[data-running=no]")
    page.page.wait_for_selector("[data-viewer=race][data-state=whole][data-over=yes]")


def lane(page: Visit, name: str, where: str = "race") -> str:
    """The text of a lane, without what was struck out."""
    return "".join(page.texts(f"[data-viewer={where}] .lane.{name} .t{REST}"))


def rounds(page: Visit, name: str, where: str = "race") -> int:
    return int(page.page.locator(f"[data-viewer={where}] .lane.{name} .round").count())


def figure(page: Visit, name: str, what: str) -> str:
    return str(page.page.inner_text(f"[data-viewer=race] .lane.{name} [data-lane={what}]"))


def won(page: Visit, name: str) -> bool:
    return bool(page.page.is_visible(f"[data-viewer=race] .lane.{name} .winner"))


def running(page: Visit) -> None:
    """Until a race that is being run has shown some rounds."""
    page.page.wait_for_selector("[data-viewer=race][data-state=live]")
    page.page.wait_for_function("() => document.querySelectorAll('[data-viewer=race] .lane.plain .round').length > 5")


def mode(page: Visit) -> str:
    return str(page.page.get_attribute("[data-viewer=race]", "data-mode"))


def test_the_same_words_one_finishing_first(race: Visit, engine: FakeEngine) -> None:
    go(race)
    over(race)
    assert lane(race, "plain") == lane(race, "speculative") == DEFAULT_TEXT
    verdict = race.page.inner_text("[data-slot=verdict]")
    assert "same text" in verdict.lower() and "68 of 68" in verdict
    assert won(race, "speculative") and not won(race, "plain")
    assert figure(race, "plain", "tokens") == figure(race, "speculative", "tokens") == "68"
    assert engine.raced[0].params.rule is Rule.SHARED_NOISE


def test_each_clock_is_the_sum_of_its_own_lane(race: Visit, engine: FakeEngine) -> None:
    go(race)
    over(race)
    recorded = [
        sum(_spent(event) for event in stream._script)
        for stream in (engine.raced[0].race.plain, engine.raced[0].race.speculative)
    ]  # type: ignore[attr-defined]
    assert [figure(race, name, "clock") for name in ("plain", "speculative")] == [
        f"{spent:.2f} s" for spent in recorded
    ]
    speeds = [67 / (spent - 0.05) for spent in recorded]
    shown = race.page.inner_text("[data-viewer=race] [data-slot=speedup]")
    assert shown == f"{speeds[1] / speeds[0]:.2f}×"
    told = [f"{rate:.0f}" if rate >= 99.95 else f"{rate:.1f}" for rate in speeds]
    assert [figure(race, name, "speed") for name in ("plain", "speculative")] == told


def _spent(event: Any) -> float:
    return float(getattr(event, "total_s", 0.0) or getattr(event, "ttft_s", 0.0))


def test_round_by_round_on_and_back(race: Visit) -> None:
    go(race)
    over(race)
    whole = rounds(race, "speculative")
    race.page.check(
        "[name=gl-speed-race][value=slower]"
    )  # at its real speed it is over before a slow machine pauses it
    race.page.click("[data-viewer=race] [data-action=restart]")
    race.page.click("[data-viewer=race] [data-action=play]")
    begun = rounds(race, "speculative")
    assert begun < whole and mode(race) == "paused"
    for more in (1, 2, 3):
        race.page.click("[data-viewer=race] [data-action=step]")
        assert rounds(race, "speculative") == begun + more
    race.page.wait_for_selector("[data-viewer=race] .lane.speculative .told")
    race.page.click("[data-viewer=race] [data-action=back]")
    assert rounds(race, "speculative") == begun + 2
    assert not race.page.inner_text("[data-slot=verdict]").strip()  # how it ends is not told before
    race.page.click("[data-viewer=race] [data-action=end]")
    assert rounds(race, "speculative") == whole and race.page.inner_text("[data-slot=verdict]").strip()


def test_back_to_the_very_start_and_no_further(race: Visit) -> None:
    go(race)
    over(race)
    for _ in range(rounds(race, "speculative") + 3):
        race.page.click("[data-viewer=race] [data-action=back]")
    assert rounds(race, "speculative") == rounds(race, "plain") == 0
    assert figure(race, "plain", "clock") == "0.00 s" and figure(race, "plain", "speed") == "–"


def test_slow_motion_says_that_it_is_and_changes_no_figure(race: Visit) -> None:
    go(race)
    over(race)
    figures = [figure(race, name, what) for name in ("plain", "speculative") for what in ("speed", "tokens", "clock")]
    race.page.check("[name=gl-speed-race][value=slower]")
    race.page.click("[data-viewer=race] [data-action=play]")
    race.page.wait_for_function("() => document.querySelectorAll('[data-viewer=race] .lane.speculative .round').length")
    assert mode(race) == "slower" and "Slow motion" in race.page.inner_text("[data-viewer=race] [data-slot=mode]")
    race.page.check("[name=gl-speed-race][value=real]")
    over(race)
    assert figures == [
        figure(race, name, what) for name in ("plain", "speculative") for what in ("speed", "tokens", "clock")
    ]


def test_a_pause_holds_the_picture_and_not_the_race(race: Visit, engine: FakeEngine) -> None:
    engine.hold_after = 12
    go(race)
    running(race)
    race.page.click("[data-viewer=race] [data-action=play]")
    assert mode(race) == "held" and "goes on" in race.page.inner_text("[data-viewer=race] [data-slot=mode]")
    held = rounds(race, "plain")
    engine.gate.set()
    race.page.wait_for_selector(".race-form[data-running=no]")
    assert rounds(race, "plain") == held and not race.page.inner_text("[data-slot=verdict]").strip()
    race.page.click("[data-viewer=race] [data-action=play]")
    over(race)
    assert lane(race, "plain") == DEFAULT_TEXT


def test_stop_keeps_what_there_is(race: Visit, engine: FakeEngine) -> None:
    engine.hold_after = 12
    go(race)
    running(race)
    race.page.click("[data-action=race-stop]")
    race.page.wait_for_selector(".race-form[data-running=no]")
    assert engine.raced[0].race.cancelled
    assert DEFAULT_TEXT.startswith(lane(race, "plain")) and lane(race, "plain")
    assert race.page.is_enabled("[data-action=race-go]") and not race.page.is_visible("[data-action=race-stop]")


def test_again_with_another_k(race: Visit, engine: FakeEngine) -> None:
    go(race, "first", length="64", temperature="0.6")
    over(race)
    race.page.fill("[name=prompt]", "something else")
    race.page.click("[data-action=race-again][data-k='5']")
    until(lambda: len(engine.raced) == 2)
    over(race)
    again = engine.raced[1]
    assert again.params.num_speculative_tokens == 5 and again.messages[-1].content == "first"
    assert again.params.sampling.temperature == 0.6 and again.params.max_new_tokens == 64


def test_texts_that_may_part_are_explained(race: Visit, engine: FakeEngine) -> None:
    race.page.uncheck("[name=dice]")
    go(race, temperature="0.8")
    over(race)
    assert engine.raced[0].params.rule is Rule.REJECTION and race.page.inner_text("[data-slot=verdict]").strip()


def test_enter_races_and_shift_enter_breaks_the_line(race: Visit, engine: FakeEngine) -> None:
    box = "[name=prompt]"
    race.page.fill(box, "one")
    race.page.press(box, "Shift+Enter")
    race.page.keyboard.type("two")
    race.page.press(box, "Enter")
    over(race)
    assert engine.raced[0].messages[-1].content == "one\ntwo"


def test_an_example_fills_the_form(race: Visit) -> None:
    race.page.click("[data-action=race-prompt] >> nth=5")
    assert race.page.input_value("[name=prompt]") == "Write a short poem about a river at night."
    assert float(race.page.input_value("[name=temperature]")) > 0.5


def test_nothing_is_said_to_be_nothing(race: Visit, engine: FakeEngine) -> None:
    go(race, "   ")
    race.page.wait_for_selector("[data-slot=race-notice]:not(:empty)")
    race.page.wait_for_selector(".race-form[data-running=no]")
    assert not engine.raced


def test_a_refusal_stands_above_the_race_that_was_there(
    race: Visit, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise ContextFull(9000, 8192)

    monkeypatch.setattr(engine, "race", full)
    before = race.page.inner_text("[data-viewer=race] .what")
    go(race, "much too long")
    race.page.wait_for_selector("[data-slot=race-notice]:not(:empty)")
    assert "9000" in race.page.inner_text("[data-slot=race-notice]")
    assert race.page.inner_text("[data-viewer=race] .what") == before
    assert race.page.input_value("[name=prompt]") == "much too long"


def test_before_the_model_is_there_a_recorded_race_plays(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    engine.state = Status(State.LOADING, "load", 0.5)
    page = visit(launch_page(engine))
    opened(page, "glance")
    assert page.page.is_visible("[data-viewer=glance] .lane.plain")
    page.page.wait_for_selector("[data-viewer=glance][data-over=yes]")
    assert lane(page, "plain", "glance") == lane(page, "speculative", "glance") != ""
    page.page.click(".glance [data-tab-link=race]")
    opened(page)
    page.page.wait_for_selector("[data-viewer=race][data-over=yes]")
    assert page.page.inner_text("[data-slot=verdict]").strip()


def test_a_race_waits_for_the_model(race: Visit, engine: FakeEngine) -> None:
    engine.state = Status(State.LOADING, "load", 0.5)
    go(race)
    race.page.wait_for_selector("[data-slot=race-notice] progress")
    engine.state = Status(State.READY, "ready")
    over(race)
    assert lane(race, "plain") == DEFAULT_TEXT and not race.page.inner_text("[data-slot=race-notice]").strip()


def test_views_have_addresses(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    url = launch_page(engine)
    page = visit(url + "?tab=race&lang=en")
    assert page.page.is_visible(".view.race") and not page.page.is_visible("#gl-chat")
    page.page.click(".tabs [data-tab-link=inspect]")
    assert page.page.url.endswith("?tab=inspect&lang=en") and page.page.is_visible(".view.inspect")
    assert page.page.get_attribute(".tabs [data-tab-link=inspect]", "aria-current") == "page"
    page.page.click(".tabs [data-tab-link=chat]")
    assert "tab=" not in page.page.url and page.page.is_visible("#gl-box") and not page.page.is_visible("#gl-watch")
    page.page.go_back()
    page.page.wait_for_selector(".view.inspect", state="visible")
    page.page.go_back()
    page.page.wait_for_selector(".view.race", state="visible")
    other = visit(url + "?tab=nonsense")
    assert other.page.is_visible("#gl-box")


def test_the_chat_stands_where_it_stood(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    engine.answer = lambda _: Script(text="word " * 600)
    page = visit(launch_page(engine))
    page.send("hello")
    page.wait_turns(1)
    for top in (120, 10**6):
        page.page.evaluate("(top) => { document.querySelector('[data-part=log]').scrollTop = top; }", top)
        before = page.page.evaluate("() => document.querySelector('[data-part=log]').scrollTop")
        page.page.click(".tabs [data-tab-link=race]")
        page.page.click(".tabs [data-tab-link=chat]")
        assert page.page.evaluate("() => document.querySelector('[data-part=log]').scrollTop") == before


def test_after_a_reload_the_race_is_still_there(race: Visit) -> None:
    go(race, "keep me")
    over(race)
    race.page.reload()
    opened(race)
    assert "keep me" in race.page.inner_text("[data-viewer=race] .what")


def test_a_chat_and_a_race_at_once(race: Visit, engine: FakeEngine) -> None:
    engine.tok_s = 60
    go(race)
    race.page.click(".tabs [data-tab-link=chat]")
    race.send("hello")
    race.wait_turns(1)
    race.page.click(".tabs [data-tab-link=race]")
    over(race)
    assert race.reply() == lane(race, "plain") == lane(race, "speculative") == DEFAULT_TEXT


def test_nothing_in_a_race_runs(race: Visit, engine: FakeEngine) -> None:
    hostile = "<img src=x onerror=alert(1)> </span><script>alert(2)</script> ${alert(3)} {{alert(4)}}"
    engine.answer = lambda _: Script(pieces=[hostile, " and ", hostile])
    go(race, hostile)
    over(race)
    assert lane(race, "plain") == f"{hostile} and {hostile}"
    assert race.page.locator("#gl-watch img, #gl-watch .lane script").count() == 0


def test_on_a_phone_nothing_is_wider_than_the_screen(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    page = opened(visit(launch_page(engine) + "?tab=race", viewport={"width": 390, "height": 844}, locale="zh-CN"))
    go(page)
    over(page)
    page.page.click("[data-viewer=race] .lane.speculative .t.draft >> nth=2")
    page.page.wait_for_selector("[data-viewer=race] [data-slot=round] table")
    for view in ("race", "inspect"):
        page.page.click(f".tabs [data-tab-link={view}]")
        opened(page, view)
        wide = page.page.evaluate(
            "() => [document.documentElement, document.querySelector('#gl-watch')].map((n) => n.scrollWidth - "
            "n.clientWidth)"
        )
        assert wide == [0, 0], view
    boxes = [page.page.locator(f"[data-viewer=race] .lane.{name}").bounding_box() for name in ("plain", "speculative")]
    assert boxes[0] is None or boxes[1] is None or boxes[0]["y"] + boxes[0]["height"] <= boxes[1]["y"]


def test_with_reduced_motion_nothing_plays_by_itself(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    page = opened(visit(launch_page(engine) + "?tab=race", reduced_motion="reduce"))
    page.page.wait_for_selector("[data-viewer=race][data-over=yes]")
    assert page.page.get_attribute("[data-viewer=race]", "data-playing") == "no" and lane(page, "plain")


def test_a_race_in_chinese(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    page = opened(visit(launch_page(engine, Options(lang="zh")) + "?tab=race"))
    go(page, "天空为什么是蓝色的？")
    over(page)
    shown = page.page.inner_text(".view.race")
    assert "普通" in shown and "Speed-up" not in shown and page.page.inner_text("[data-slot=verdict]").strip()
