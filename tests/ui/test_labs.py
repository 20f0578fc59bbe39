"""The tab "When to use" without a page: every handler over the scripted engine."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from engine.errors import Busy, InvalidParams
from engine.lab import ExperimentName, Point, records
from engine.serving.engine import State, Status
from tests.fake_engine import FakeEngine, measured
from tests.ui.samples import run
from ui.chat.handlers import Handlers
from ui.controls import Options
from ui.html.render import both
from ui.when import charts
from ui.when import handlers as module
from ui.when import page as when
from ui.when.handlers import Labs

WISH = {"session": "s1", "key": "k1", "name": "rate"}


class Lab:
    """The tab, its messages as the page gets them. The reference machine's results are made-up ones."""

    def __init__(self) -> None:
        self.engine = FakeEngine()
        self.labs = Labs(Handlers(self.engine, Options(), self.engine))  # type: ignore[arg-type]

    def ran(self, stop: Callable[[Any], bool] = lambda _: False, **wished: object) -> list[Any]:
        """stop: the message at which the visitor wants no more."""

        async def heard() -> list[Any]:
            messages = []
            async for message in self.labs.lab(WISH | wished):
                messages.append(message["lab"])
                if stop(message["lab"]):
                    await self.labs.ask("stop", {"session": "s1"})
            return messages

        return run(heard())  # type: ignore[no-any-return]

    def ask(self, what: str, **args: object) -> Any:
        message = run(self.labs.ask(what, {"session": "s1", "number": 4} | args))
        return None if message is None else next(payload for name, payload in message.items() if name != "v")

    def owns(self, session: str = "s1", name: str = "rate") -> Any:
        return self.ask("results", session=session)["experiments"][name]["own"]


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setattr(module, "CALM_UPDATE_S", 0.0)
    monkeypatch.setattr(module, "GLANCE_S", 0.001)
    machine = (("processor", "Reference CPU"), ("threads", "2"))
    made = {name: replace(measured(name), machine=machine) for name in ExperimentName}
    monkeypatch.setattr(when, "reference", lambda: made)
    return Lab()


def test_an_experiment_tells_how_far_it_is_and_then_what_it_came_to(lab: Lab) -> None:
    lab.engine.pace_s = 0.002
    for name in ExperimentName:
        first, *messages, last = lab.ran(name=name.value)
        assert first["running"] and both("lab.begins") in first["progress"]
        steps = [(message["done"], message["total"]) for message in messages if "done" in message]
        assert steps == sorted(steps) and {total for _, total in steps} == {len(measured(name).points)}
        assert all(message["running"] and not message.get("shown", {}).get("says") for message in messages)
        assert not last["running"] and last["shown"]["own"] and last["shown"]["says"].count("<p>") == 2
        assert last["shown"]["charts"].keys() == set(charts.NAMES[name])


def test_results_are_kept_for_the_visitor_and_for_nobody_else(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    before = lab.ask("results")["experiments"]
    source = before["rate"]["source"]
    assert all(part in source for part in (both("lab.reference"), "Reference CPU", "2025-01-02"))
    assert set(before) == set(ExperimentName) and not before["rate"]["own"]
    lab.ran()
    after = lab.ask("results")
    assert after["experiments"]["rate"]["own"] and "FakeCPU" in after["experiments"]["rate"]["source"]
    assert not after["experiments"]["k"]["own"] and (after["running"], after["over"]) == ("", ["k1"])
    assert lab.ask("results", session="s2")["experiments"] == before
    monkeypatch.setattr(module, "CAPACITY", 2)
    for session in ("s2", "s1", "s3"):
        lab.ran(session=session)
    assert [lab.owns(session) for session in ("s1", "s2", "s3")] == [True, False, True], "forgotten one by one"


def test_cancelled_nothing_is_kept_but_what_was_there(lab: Lab) -> None:
    for done, earlier in ((0, False), (3, False), (3, True)):
        if earlier:
            lab.engine.hold_after = None
            lab.ran()
        lab.engine.hold_after = done + 1
        last = lab.ran(stop=lambda message, done=done: message.get("done", 0) == done)[-1]  # type: ignore[misc]
        assert last == {"key": "k1", "name": "rate", "running": False, "notice": both("lab.cancelled")}
        assert lab.owns() == earlier and all(one.reports.cancelled for one in lab.engine.experimented if not earlier)


def test_one_experiment_at_a_time_and_a_page_that_goes_ends_it(lab: Lab) -> None:
    lab.engine.hold_after = 3

    async def story() -> None:
        first = lab.labs.lab(WISH)
        async for message in first:
            if message["lab"].get("done") == 2:
                break
        second = [message["lab"] async for message in lab.labs.lab(WISH | {"key": "k2", "name": "k"})]
        assert second == [{"key": "k2", "name": "k", "running": False, "notice": both("lab.busy")}]
        results = await lab.labs.ask("results", {"session": "s1"})
        assert results and results["results"]["running"] == "k1"
        await first.aclose()

    run(story())
    [one] = lab.engine.experimented
    assert one.reports.cancelled and not lab.labs._live and not lab.labs.handlers.sessions._line
    assert lab.ask("results")["over"] == ["k1"]


def test_what_goes_wrong_is_said_in_words_and_not_kept(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = lab.engine
    for wished in ({"name": "nonsense"}, {"name": ["rate"]}, {"session": ""}, {"session": 7}):
        assert lab.ran(**wished) == [] and not engine.experimented
    engine.state, loaded = Status(State.FAILED, "load", message="No model was found."), engine.state
    last = lab.ran()[-1]
    assert "No model was found." in last["notice"] and not last["running"] and lab.ask("results")["about"] == {}
    engine.state, engine.experiment_fails = loaded, "The memory was used up: close other programs."
    assert "The memory was used up" in lab.ran()[-1]["notice"] and not lab.owns()
    notices = []
    for refusal in (InvalidParams("drafter", "no"), Busy("another"), InvalidParams("prompts", "Too long."), KeyError()):
        monkeypatch.setattr(engine, "experiment", Mock(side_effect=refusal))
        notices.append(lab.ran()[-1]["notice"])
    assert notices == [both("lab.nobody"), both("lab.full"), both("lab.failed", message="Too long."), both("lab.bug")]


def test_it_waits_for_the_engine_and_can_be_stopped_while_it_waits(lab: Lab) -> None:
    lab.engine.state = Status(State.LOADING, "load", 0.5)
    messages = lab.ran(stop=lambda message: "notice" in message)
    assert "<progress" in messages[1]["notice"] and messages[-1]["notice"] == both("lab.cancelled")
    assert not lab.engine.experimented


def test_a_prompt_of_ones_own_is_measured_where_that_is_offered(lab: Lab) -> None:
    for name, prompt in (("k", " Write a haiku. "), ("k", "   "), ("rate", "Write a haiku.")):
        lab.ran(name=name, prompt=prompt)
    assert [asked.prompts for asked in lab.engine.experimented] == [(" Write a haiku. ",), (), ()]


def test_advice_goes_by_the_visitors_own_figures_and_says_so(lab: Lab) -> None:
    own, reference, busy = both("advise.from.own"), both("advise.from.reference"), {"users": "32", "tokens": "256"}
    before = lab.ask("advise", answers=busy)
    assert both("advise.verdict.no") in before["html"] and own not in before["html"] + before["rules"]
    lab.ran()
    after = lab.ask("advise", answers=busy)
    assert own in after["html"] and own in after["rules"] and reference in after["html"]
    assert lab.ask("advise", answers="nonsense")["html"] == lab.ask("advise", answers={})["html"]


def test_results_as_files_can_be_read_back(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.ran()
    file = lab.ask("file", name="rate", form="json")
    assert (file["number"], file["name"]) == (4, "greenlight rate 2025-01-02.json")
    assert records.loads(file["text"]) == (measured(ExperimentName.RATE),)
    odd = Point(1, 'a "quoted", kind', 1.5, 1)
    for result in (replace(measured(ExperimentName.K), points=(odd,)), *map(measured, ExperimentName)):
        for row, point in zip(csv.DictReader(io.StringIO(module.table(result))), result.points, strict=True):
            assert (float(row["x"]), row["series"], float(row["y"])) == (point.x, point.series, point.y)
            assert row["x_unit"] and row["y_unit"] and "FakeCPU" in row["machine"]
            assert {key: float(row[key]) for key, _ in point.extra} == dict(point.extra)
    assert lab.ask("file", name="k", form="csv")["name"].endswith(".csv")
    monkeypatch.setattr(when, "reference", dict)
    assert lab.ask("file", name="k", form="csv") is None and both("lab.missing") in when.when()


def test_a_disturbed_or_shortened_result_says_that_it_is() -> None:
    for cut, words in (
        ("no memory <for> 32", "no memory &lt;for&gt; 32"),
        ("it took longer than 180 s", both("lab.cut.time", seconds=180)),
    ):
        result = replace(measured(ExperimentName.RATE), disturbed=True, settings=(("cut", cut),))
        source = when.result_patch(result, own=True)["source"]
        assert both("lab.disturbed") in source and words in source
