"""The tab "When to use" without a page: every handler over the scripted engine."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from engine.errors import Busy, InvalidParams
from engine.lab import ExperimentName, Point, Result, records
from engine.serving.engine import State, Status
from tests.fake_engine import FakeEngine, measured
from ui.chat.handlers import Handlers
from ui.controls import Options
from ui.html.render import both
from ui.updates import Patch
from ui.when import handlers as module
from ui.when import page as when
from ui.when.handlers import Labs

WISH = {"session": "s1", "key": "k1", "name": "rate"}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pace is for eyes, and the reference machine's results are made-up ones that the tests know."""
    monkeypatch.setattr(module, "CALM_UPDATE_S", 0.0)
    monkeypatch.setattr(module, "GLANCE_S", 0.001)
    made = {
        name: replace(measured(name), machine=(("processor", "Reference CPU"), ("threads", "2")))
        for name in ExperimentName
    }
    monkeypatch.setattr(when, "reference", lambda: made)


@pytest.fixture
def labs(engine: FakeEngine) -> Labs:
    return Labs(Handlers(engine, Options(), engine))


def run(action: Callable[[], Awaitable[Any]]) -> Any:
    return asyncio.run(asyncio.wait_for(action(), 60))


async def everything(messages: AsyncGenerator[Patch, None]) -> list[dict[str, Any]]:
    return [message["lab"] async for message in messages]


def ran(labs: Labs, **wished: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run(lambda: everything(labs.lab(WISH | wished)))
    return found


def ask(labs: Labs, what: str, **args: object) -> Any:
    message = run(lambda: labs.ask(what, {"session": "s1", "number": 4} | args))
    return None if message is None else next(payload for name, payload in message.items() if name != "v")


def stopping(labs: Labs, done: int) -> Callable[[], Awaitable[list[dict[str, Any]]]]:
    async def running() -> list[dict[str, Any]]:
        found = []
        async for message in labs.lab(WISH):
            found.append(message["lab"])
            if found[-1].get("done", 0) == done:
                await labs.ask("stop", {"session": "s1"})
        return found

    return running


@pytest.mark.parametrize("name", ExperimentName)
def test_an_experiment_tells_how_far_it_is_and_then_what_it_came_to(
    labs: Labs, engine: FakeEngine, name: ExperimentName
) -> None:
    engine.hold_after, engine.pace_s = None, 0.005
    messages = ran(labs, name=name.value)
    assert messages[0]["running"] and both("lab.begins") in messages[0]["progress"]
    done = [message["done"] for message in messages if "done" in message]
    assert done == sorted(done) and {message["total"] for message in messages if "total" in message} == {
        len(measured(name).points)
    }
    for message in messages[:-1]:
        assert message["running"] and not message.get("shown", {}).get("says")  # half is not said
    last = messages[-1]
    assert not last["running"] and last["shown"]["own"] and last["shown"]["says"].count("<p>") == 2
    assert last["shown"]["charts"].keys() == set(when.charts.NAMES[name])


def test_results_are_kept_for_the_visitor_and_for_nobody_else(labs: Labs) -> None:
    before = ask(labs, "results")["experiments"]
    assert (
        "Reference CPU" in before["rate"]["source"] and not before["rate"]["own"] and set(before) == set(ExperimentName)
    )
    ran(labs)
    after = ask(labs, "results")
    assert after["experiments"]["rate"]["own"] and "FakeCPU" in after["experiments"]["rate"]["source"]
    assert not after["experiments"]["k"]["own"] and after["running"] == "" and after["over"] == ["k1"]
    other = ask(labs, "results", session="s2")
    assert other["experiments"] == before and other["over"] == []


def test_the_reference_is_labelled_with_its_machine_and_date(labs: Labs) -> None:
    source = ask(labs, "results")["experiments"]["rate"]["source"]
    assert both("lab.reference") in source and "Reference CPU" in source and "2025-01-02" in source


@pytest.mark.parametrize("done", [0, 3])
def test_cancelled_nothing_is_kept(labs: Labs, engine: FakeEngine, done: int) -> None:
    engine.hold_after = done + 1
    last = run(stopping(labs, done))[-1]
    assert last == {"key": "k1", "name": "rate", "running": False, "notice": both("lab.cancelled")}
    assert all(asked.reports.cancelled for asked in engine.experimented)  # stopped at once it was not even asked for
    assert not ask(labs, "results")["experiments"]["rate"]["own"]


def test_a_cancelled_run_leaves_the_earlier_result(labs: Labs, engine: FakeEngine) -> None:
    ran(labs)
    engine.hold_after = 3
    run(stopping(labs, 2))
    assert ask(labs, "results")["experiments"]["rate"]["own"]


def test_a_page_that_goes_ends_the_experiment(labs: Labs, engine: FakeEngine) -> None:
    engine.hold_after = 3

    async def leaving() -> None:
        running = labs.lab(WISH)
        async for message in running:
            if message["lab"].get("done") == 2:
                await running.aclose()

    run(leaving)
    assert engine.experimented[0].reports.cancelled
    assert not labs._live and not labs.handlers.sessions._line
    assert ask(labs, "results")["over"] == ["k1"]


def test_a_second_experiment_while_one_runs_is_refused_in_words(labs: Labs, engine: FakeEngine) -> None:
    engine.hold_after = 3

    async def twice() -> tuple[list[dict[str, Any]], Patch]:
        first = labs.lab(WISH)
        await anext(first)
        second = await everything(labs.lab(WISH | {"key": "k2", "name": "k"}))
        results = await labs.ask("results", {"session": "s1"})
        await first.aclose()
        assert results is not None
        return second, results

    second, results = run(twice)
    assert second == [{"key": "k2", "name": "k", "running": False, "notice": both("lab.busy")}]
    assert results["results"]["running"] == "k1" and len(engine.experimented) <= 1


def test_refusals_are_said_in_words(labs: Labs, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.busy = True
    assert ran(labs)[-1]["notice"] == both("lab.full")
    for refusal, notice in (
        (InvalidParams("drafter", "no"), both("lab.nobody")),
        (Busy("another"), both("lab.full")),
        (InvalidParams("prompts", "The prompt is too long."), both("lab.failed", message="The prompt is too long.")),
    ):

        def refuse(*_: object, _refusal: Exception = refusal, **__: object) -> None:
            raise _refusal

        monkeypatch.setattr(engine, "experiment", refuse)
        last = ran(labs)[-1]
        assert last["notice"] == notice and not last["running"]


def test_what_breaks_half_way_is_said_and_not_kept(labs: Labs, engine: FakeEngine) -> None:
    engine.experiment_fails = "The memory was used up: close other programs."
    last = ran(labs)[-1]
    assert "The memory was used up" in last["notice"] and not last["running"] and "shown" not in last
    assert not ask(labs, "results")["experiments"]["rate"]["own"]


def test_a_mistake_of_ours_does_not_leave_the_page_waiting(labs: Labs, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> str:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(when, "so_far", broken)
    monkeypatch.setattr(when, "result_patch", broken)
    last = ran(labs)[-1]
    assert last["notice"] == both("lab.bug") and not last["running"]


def test_it_waits_for_the_engine_and_can_be_stopped_while_it_waits(labs: Labs, engine: FakeEngine) -> None:
    engine.state = Status(State.LOADING, "load", 0.5)

    async def waiting() -> list[dict[str, Any]]:
        found = []
        async for message in labs.lab(WISH):
            found.append(message["lab"])
            if "notice" in found[-1]:
                await labs.ask("stop", {"session": "s1"})
        return found

    messages = run(waiting)
    assert "<progress" in messages[1]["notice"] and messages[-1]["notice"] == both("lab.cancelled")
    assert not engine.experimented


def test_an_engine_that_failed_says_why(labs: Labs, engine: FakeEngine) -> None:
    engine.state = Status(State.FAILED, "load", message="No model was found.")
    last = ran(labs)[-1]
    assert "No model was found." in last["notice"] and not last["running"]
    assert ask(labs, "results")["about"] == {} and ask(labs, "results")["experiments"]["rate"]["says"]


def test_a_prompt_of_ones_own_is_measured_where_that_is_offered(labs: Labs, engine: FakeEngine) -> None:
    ran(labs, name="k", prompt=" Write a haiku. ")
    ran(labs, name="k", prompt="   ")
    ran(labs, name="rate", prompt="Write a haiku.")
    assert [asked.prompts for asked in engine.experimented] == [(" Write a haiku. ",), (), ()]


@pytest.mark.parametrize(
    "wished", [{"name": "nonsense"}, {"name": None}, {"session": ""}, {"session": 7}, {"name": ["rate"]}]
)
def test_what_no_page_asks_is_left_alone(labs: Labs, engine: FakeEngine, wished: dict[str, object]) -> None:
    assert ran(labs, **wished) == [] and not engine.experimented
    assert ask(labs, "nonsense", **wished) is None and ask(labs, "stop", **wished) is None


def test_visitors_are_forgotten_one_by_one(labs: Labs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CAPACITY", 2)
    for session in ("s1", "s2", "s1", "s3"):
        ran(labs, session=session)
    own = {
        session: ask(labs, "results", session=session)["experiments"]["rate"]["own"] for session in ("s1", "s2", "s3")
    }
    assert own == {"s1": True, "s2": False, "s3": True}


# -- advice and files --------------------------------------------------------------------------------------------------


def test_advice_goes_by_the_visitors_own_figures_and_says_so(labs: Labs) -> None:
    answers = {"users": "32", "tokens": "256"}
    before = ask(labs, "advise", answers=answers)
    assert both("advise.verdict.no") in before["html"] and both("advise.from.reference") in before["html"]
    assert both("advise.from.own") not in before["html"] + before["rules"]
    ran(labs)
    after = ask(labs, "advise", answers=answers)
    assert (
        after["number"] == 4 and both("advise.from.own") in after["html"] and both("advise.from.own") in after["rules"]
    )
    assert both("advise.from.reference") in after["html"]  # of the experiments that were not run
    assert ask(labs, "advise", answers="nonsense")["html"] == ask(labs, "advise", answers={})["html"]


def test_a_result_as_json_can_be_read_back(labs: Labs) -> None:
    ran(labs)
    file = ask(labs, "file", name="rate", form="json")
    assert file["number"] == 4 and file["name"] == "greenlight rate 2025-01-02.json"
    assert records.loads(file["text"]) == (measured(ExperimentName.RATE),)


@pytest.mark.parametrize("name", ExperimentName)
def test_a_result_as_csv_has_a_line_for_each_point(labs: Labs, name: ExperimentName) -> None:
    file = ask(labs, "file", name=name.value, form="csv")
    assert file["name"].endswith(".csv") and file["mime"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(file["text"])))
    points = measured(name).points
    assert [(float(row["x"]), row["series"], float(row["y"])) for row in rows] == [(p.x, p.series, p.y) for p in points]
    assert rows[0]["x_unit"] and rows[0]["y_unit"] and rows[0]["machine"].startswith("Reference CPU")
    for row, point in zip(rows, points, strict=True):
        assert {key: float(row[key]) for key, _ in point.extra} == dict(point.extra)


def test_what_was_not_measured_is_no_file(labs: Labs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(when, "reference", dict)
    assert ask(labs, "file", name="rate", form="csv") is None and ask(labs, "results")["experiments"] == {}
    assert both("lab.missing") in when.when() and ask(labs, "advise")["html"]


def test_a_comma_in_a_value_breaks_no_line() -> None:
    made = Result(
        ExperimentName.K,
        (Point(1, 'a "quoted", kind', 1.5, 1),),
        (("processor", "x, y"),),
        "2025-01-02T03:04:05+00:00",
        1.0,
    )
    [row] = csv.DictReader(io.StringIO(module.table(made)))
    assert row["series"] == 'a "quoted", kind' and row["machine"] == "x, y" and row["low"] == ""


def test_a_disturbed_or_shortened_result_says_that_it_is() -> None:
    made = replace(measured(ExperimentName.RATE), disturbed=True, settings=(("cut", "no memory <for> 32"),))
    source = when.result_patch(made, own=True)["source"]
    slow = replace(made, settings=(("cut", "it took longer than 180 s"),))
    assert both("lab.cut.time", seconds=180) in when.result_patch(slow, own=True)["source"]
    assert both("lab.disturbed") in source and "no memory &lt;for&gt; 32" in source
