"""Races and recordings without a page: every handler over the scripted engine."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from engine.config import BOUNDS, DecodingParams, Detail, Rule
from engine.events import FinishReason
from engine.serving.engine import State, Status
from tests.fake_engine import DEFAULT_TEXT, FakeEngine, Script, play
from ui import jobs
from ui.chat.handlers import Handlers
from ui.controls import TABLE, Narrowed, Options, control_of
from ui.html.render import both
from ui.race import handlers as module
from ui.race import verdict, viewer
from ui.race.handlers import Races
from ui.recording import trace_file
from ui.recording.recordings import Lane, LaneName, Recording, extend
from ui.updates import Patch

VALUES = [control.default for control in TABLE]
WISH = {"key": "k1", "prompt": "hello", "k": "auto", "temperature": 0, "length": 128, "dice": True}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pace is for eyes; here nobody looks."""
    monkeypatch.setattr(jobs, "UPDATE_S", 0.002)
    monkeypatch.setattr(module, "GLANCE_S", 0.001)


def run(action: Callable[[], Awaitable[Any]]) -> Any:
    return asyncio.run(asyncio.wait_for(action(), 60))


def races(engine: FakeEngine) -> Races:
    return Races(Handlers(engine, Options()))


async def everything(messages: AsyncGenerator[Patch, None]) -> list[dict[str, Any]]:
    return [message["live"] async for message in messages]


def raced(made: Races, values: Sequence[object] = VALUES, **wished: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run(lambda: everything(made.race(WISH | wished, values)))
    return found


def look(made: Races, what: str, **args: object) -> Any:
    message = run(lambda: made.look(what, args))
    return None if message is None else next(payload for name, payload in message.items() if name != "v")


def texts(lanes: Sequence[dict[str, Any]]) -> list[str]:
    return [lane["name"] for lane in lanes]


class Page:
    """Takes messages as assets/page/viewer.js does, and can miss some."""

    def __init__(self) -> None:
        self.blocks: dict[str, list[Any]] = {}
        self.phases: dict[str, str] = {}
        self.torn = False

    def take(self, lanes: Sequence[dict[str, Any]]) -> None:
        for lane in lanes:
            have = self.blocks.setdefault(lane["name"], [])
            if lane["from"] > len(have):
                self.torn = True
                continue
            have += lane["blocks"][len(have) - lane["from"] :]
            self.phases[lane["name"]] = lane["phase"]


def test_a_race_tells_both_lanes_whole_and_then_the_verdict(engine: FakeEngine) -> None:
    engine.tok_s = 3000
    made = races(engine)
    messages = raced(made)
    assert messages[0]["recording"]["user"] == "hello" and messages[0]["running"]
    page = Page()
    for message in messages[1:]:
        page.take(message["lanes"])
    last = messages[-1]
    assert not page.torn and page.phases == {"plain": "finished", "speculative": "finished"}
    assert not last["running"] and last["verdict"] and not any("verdict" in message for message in messages[:-1])
    kept = look(made, "open", number=1, id=last["id"])["recording"]
    assert {lane["name"]: lane["blocks"] for lane in kept["lanes"]} == page.blocks
    for lane in made.recordings.find(last["id"]).lanes:  # type: ignore[union-attr]
        assert lane.reply.text == DEFAULT_TEXT


def test_two_messages_of_three_may_be_lost(engine: FakeEngine) -> None:
    engine.tok_s = 1500
    page = Page()
    messages = raced(races(engine))
    for place, message in enumerate(messages[1:]):
        if place % 3 == 0 or message is messages[-1]:
            page.take(message["lanes"])
    assert not page.torn and set(page.phases.values()) == {"finished"}


def test_the_form_speaks_before_the_settings(engine: FakeEngine) -> None:
    values = [{"temperature": 0.3, "top_p": 0.5, "num_speculative_tokens": "0", "probe_every": 5, "system": "Be brief."}.get(c.name, c.default)
              for c in TABLE]  # fmt: skip
    raced(races(engine), values, k=4, temperature=0.7, length=32, dice=False)
    params = engine.raced[0].params
    assert params.num_speculative_tokens == 4 and params.max_new_tokens == 32 and params.rule is Rule.REJECTION
    assert params.sampling.temperature == 0.7 and params.sampling.top_p == 0.5
    assert params.detail == Detail.FULL and params.probe_every == 0
    assert [message.content for message in engine.raced[0].messages] == ["Be brief.", "hello"]
    raced(races(engine), k="auto", dice=True)
    assert engine.raced[1].params.num_speculative_tokens is None and engine.raced[1].params.rule is Rule.SHARED_NOISE


def test_what_the_form_offers_is_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with other settings: no copy of a range stands in the form."""
    drawn = replace(control_of("temperature"), narrowed=Narrowed(0.25, 1.5, "a test"), step=0.125, default=0.75)
    for one in (control_of("temperature"), drawn):
        monkeypatch.setattr(viewer, "control_of", {"temperature": one}.__getitem__)
        [field] = re.findall(r'<input name="temperature"[^>]*>', viewer.watch())
        found = {name: float(value) for name, value in re.findall(r'(min|max|step|value)="([^"]*)"', field)}
        assert found == {"min": one.low, "max": one.high, "step": one.step, "value": one.default}
    [select] = re.findall(r'<select name="k".*?</select>', viewer.watch())
    offered = re.findall(r'<option value="(\w+)"', select)
    assert offered == [k for k in control_of("num_speculative_tokens").choices if k != "0"]
    assert set(verdict.KS) < set(offered)
    assert all(BOUNDS["max_new_tokens"].low <= n <= BOUNDS["max_new_tokens"].high for n in viewer.LENGTHS)


@pytest.mark.parametrize(
    "wished", [{"temperature": None}, {"length": "many"}, {"k": 99}, {"temperature": float("nan")}]
)
def test_what_cannot_be_is_corrected_and_said(engine: FakeEngine, wished: dict[str, object]) -> None:
    messages = raced(races(engine), **wished)
    assert messages[0]["notice"] and len(engine.raced) == 1


@pytest.mark.parametrize("prompt", ["", "   ", "\u200b", None, 7, ["x"]])
def test_nothing_is_not_raced(engine: FakeEngine, prompt: object) -> None:
    [message] = raced(races(engine), prompt=prompt)
    assert message["notice"] == both("notice.empty") and not message["running"] and not engine.raced


def test_a_race_needs_somebody_who_guesses(engine: FakeEngine) -> None:
    for values, wished in (([("none" if c.name == "drafter" else c.default) for c in TABLE], {}), (VALUES, {"k": 0})):
        message = raced(races(engine), values, **wished)[-1]
        assert message["notice"] == both("race.nobody") and not message["running"]


def test_a_refusal_is_said_in_words(engine: FakeEngine) -> None:
    engine.busy = True
    assert raced(races(engine))[-1] == {"key": "k1", "notice": both("notice.full"), "running": False}
    engine.busy, engine.context_len = False, 3
    assert "3" in raced(races(engine))[-1]["notice"]


def test_it_waits_for_the_engine_and_can_be_stopped_while_it_waits(engine: FakeEngine) -> None:
    engine.state = Status(State.LOADING, "load", 0.5)
    made = races(engine)

    async def waiting() -> list[dict[str, Any]]:
        found = []
        async for message in made.race(WISH, VALUES):
            found.append(message["live"])
            made.stop("k1")
        return found

    messages = run(waiting)
    assert messages[0]["running"] and messages[-1] == {"key": "k1", "notice": both("notice.unsent"), "running": False}
    assert not engine.raced


def test_stopped_half_way_both_lanes_keep_what_they_have(engine: FakeEngine) -> None:
    engine.hold_after = 20
    made = races(engine)

    async def racing() -> list[dict[str, Any]]:
        found = []
        async for message in made.race(WISH, VALUES):
            found.append(message["live"])
            if all(len(lane["blocks"]) for lane in found[-1].get("lanes", [])) and "lanes" in found[-1]:
                await made.look("stop", {"key": "k1"})
        return found

    last = run(racing)[-1]
    lanes = made.recordings.find(last["id"]).lanes  # type: ignore[union-attr]
    assert not last["running"] and [lane.reply.reason for lane in lanes] == [FinishReason.CANCELLED] * 2
    assert all(DEFAULT_TEXT.startswith(lane.reply.text) and lane.reply.text for lane in lanes)


def test_a_page_that_goes_ends_the_race(engine: FakeEngine) -> None:
    engine.hold_after = 20
    made = races(engine)

    async def leaving() -> str:
        racing = made.race(WISH, VALUES)
        async for message in racing:
            if message["live"].get("lanes"):
                await racing.aclose()
                return str(message["live"]["id"])
        raise AssertionError

    id_ = run(leaving)
    assert engine.raced[0].race.cancelled
    assert not made.recordings.find(id_).running  # type: ignore[union-attr]
    assert not made._live and not made.handlers.sessions._line


def test_one_key_is_one_race(engine: FakeEngine) -> None:
    engine.hold_after = 5
    made = races(engine)

    async def twice() -> dict[str, Any]:
        first = made.race(WISH, VALUES)
        await anext(first)
        [second] = await everything(made.race(WISH, VALUES))
        await first.aclose()
        return second

    assert run(twice)["notice"] == both("notice.busy") and len(engine.raced) == 1


def test_a_mistake_of_ours_does_not_leave_the_page_waiting(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> str:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(module.verdict, "verdict", broken)
    assert raced(races(engine))[-1] == {"key": "k1", "notice": both("notice.bug"), "running": False}


# -- recordings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", trace_file.SHIPPED)
def test_the_recordings_that_come_with_the_app_need_no_model(engine: FakeEngine, name: str) -> None:
    engine.state = Status(State.FAILED, "load", message="no model")
    made = races(engine)
    recording = look(made, "open", number=4, shipped=name)["recording"]
    assert texts(recording["lanes"]) == ["plain", "speculative"] and recording["verdict"] and recording["made"]
    assert all(lane["phase"] == "finished" for lane in recording["lanes"])
    block = next(i for i, (_, row) in enumerate(recording["lanes"][1]["blocks"]) if row.get("d"))
    assert look(made, "round", id=recording["id"], lane="speculative", block=block, piece=0)["html"]
    made.recordings._store.clear()
    assert look(made, "charts", id=recording["id"], upto={"plain": 5})["charts"]
    assert look(made, "file", id=recording["id"], form="page", lang="zh", number=1)["text"].startswith("<!")


def test_what_is_saved_can_be_opened_again_elsewhere(engine: FakeEngine) -> None:
    made = races(engine)
    id_ = raced(made, k=3)[-1]["id"]
    file = look(made, "file", id=id_, form="trace", number=9)
    assert file["number"] == 9 and file["name"].endswith(".json")
    other = races(FakeEngine())
    opened = look(other, "open", number=1, trace=file["text"])["recording"]
    before = look(made, "open", number=2, id=id_)["recording"]
    assert opened["id"] != id_ and opened | {"id": id_} == before
    asked = {"lane": "speculative", "block": 3, "piece": 0}
    assert look(other, "round", id=opened["id"], **asked)["html"] == look(made, "round", id=id_, **asked)["html"] != ""


def test_a_page_gives_back_what_the_server_forgot(engine: FakeEngine) -> None:
    made = races(engine)
    shown = look(made, "open", number=1, id=raced(made)[-1]["id"])["recording"]
    trace = {
        "greenlight_trace": 1, "made": shown["made"], "title": ["", ""], "system": shown["system"], "user": shown["user"],
        "lanes": [{"name": lane["name"], "about": lane["about"], "rows": [row for _, row in lane["blocks"]]} for lane in shown["lanes"]],
    }  # fmt: skip
    again = look(races(FakeEngine()), "open", number=1, trace=json.loads(json.dumps(trace)))["recording"]
    assert again | {"id": shown["id"]} == shown


def test_a_reply_of_a_chat_is_a_recording_of_one_lane(engine: FakeEngine) -> None:
    made = races(engine)
    handlers = made.handlers
    id_ = handlers.sync("")["conversation"]

    async def chat() -> None:
        async for _ in handlers.send(id_, "hello", VALUES):
            pass

    run(chat)
    opened = look(made, "open", number=1, conversation=id_, key=1)["recording"]
    assert texts(opened["lanes"]) == ["reply"] and opened["user"] == "hello" and opened["verdict"]
    turn = handlers.sessions.find(id_).turns[0]  # type: ignore[union-attr]
    assert len(opened["lanes"][0]["blocks"]) == len(turn.reply.blocks)
    for wrong in ({"conversation": id_, "key": 2}, {"conversation": "x", "key": 1}, {"conversation": id_, "key": "1"}):
        assert look(made, "open", number=1, **wrong)["failed"] == both("watch.lost")


def test_a_reply_that_is_being_written_is_not_opened_yet(engine: FakeEngine) -> None:
    engine.hold_after = 10
    made = races(engine)
    handlers = made.handlers
    id_ = handlers.sync("")["conversation"]

    async def meanwhile() -> Any:
        sending = handlers.send(id_, "hello", VALUES)
        async for _ in sending:
            break
        opened = await made.look("open", {"number": 1, "conversation": id_, "key": 1})
        await sending.aclose()
        return opened

    assert run(meanwhile)["opened"]["failed"] == both("watch.say.unfinished")


@pytest.mark.parametrize(
    "trace", ["", "{", "[]", "null", "{}", {"greenlight_trace": 2}, {"greenlight_trace": 1}, 7, None, "x" * 100, {"greenlight_trace": 1, "made": "", "title": ["", ""], "system": "", "user": "", "lanes": []}]
)  # fmt: skip
def test_a_file_that_is_none_is_refused_in_words(engine: FakeEngine, trace: object) -> None:
    answer = look(races(engine), "open", number=3, trace=trace)
    assert answer["number"] == 3 and 'lang="zh"' in answer["failed"]


@pytest.mark.parametrize(
    "args", [{}, {"id": "x"}, {"id": None}, {"id": ["x"]}, {"id": "shipped-x"}, {"id": "shipped-../../x"}]
)
@pytest.mark.parametrize("what", ["round", "charts", "file"])
def test_of_an_unknown_recording_that_is_said(engine: FakeEngine, what: str, args: dict[str, object]) -> None:
    message = run(lambda: races(engine).look(what, args))
    assert message["forgot"] == args.get("id")


@pytest.mark.parametrize("args", [{"shipped": "../x"}, {"shipped": None}, {"id": "x"}, {}])
def test_what_is_not_there_is_not_opened(engine: FakeEngine, args: dict[str, object]) -> None:
    assert look(races(engine), "open", number=1, **args)["failed"]


@pytest.mark.parametrize(
    "place",
    [
        {"lane": "none"},
        {"block": -1},
        {"block": 999},
        {"piece": 99},
        {"block": "1"},
        {"piece": None},
        {"block": True, "piece": 9},
    ],
)
def test_a_token_that_is_not_there_has_no_pane(engine: FakeEngine, place: dict[str, object]) -> None:
    made = races(engine)
    asked: dict[str, object] = {"lane": "plain", "block": 0, "piece": 0}
    assert look(made, "round", id="shipped-chat", **asked)["html"]
    assert look(made, "round", id="shipped-chat", **(asked | place))["html"] == ""


def test_an_unknown_question_is_left_unanswered(engine: FakeEngine) -> None:
    assert look(races(engine), "nonsense", id="shipped-chat") is None


def test_charts_are_of_the_moment_that_is_shown(engine: FakeEngine) -> None:
    made = races(engine)
    params = DecodingParams(drafter="ngram", num_speculative_tokens=3, detail=Detail.FULL)
    recording = Recording("r", "hello", (Lane(LaneName.PLAIN), Lane(LaneName.SPECULATIVE)))
    recording = extend(recording, LaneName.SPECULATIVE, play(Script(), params))
    recording = extend(recording, LaneName.PLAIN, play(Script(), replace(params, num_speculative_tokens=0)))
    made.recordings.put(recording)
    whole, part = (look(made, "charts", id="r", upto=upto)["charts"] for upto in ({}, {"plain": 3, "speculative": 2}))
    assert whole["cumulative"]["figure"] and part != whole
    assert look(made, "charts", id="r", upto={"plain": "x", 3: 4})["charts"] == whole
