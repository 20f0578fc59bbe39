"""Races and recordings without a page: every handler over the scripted engine."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest

from engine.config import BOUNDS, Detail, Rule
from engine.events import FinishReason
from engine.serving.engine import State, Status
from tests.fake_engine import DEFAULT_TEXT, FakeEngine
from tests.ui.samples import VALUES, Blocks, at_once, begun, everything, race, run, with_values  # noqa: F401
from ui.chat.handlers import Handlers
from ui.controls import Narrowed, Options, control_of
from ui.html.render import both
from ui.race import verdict, viewer
from ui.race.handlers import Races
from ui.recording import trace_file
from ui.recording.recordings import Recording
from ui.updates import Patch

WISH: dict[str, Any] = {"key": "k1", "prompt": "hello", "k": "auto", "temperature": 0, "length": 128, "dice": True}
PLACE: dict[str, Any] = {"lane": "speculative", "block": 3, "piece": 0}


class Visit:
    """Somebody at the page."""

    def __init__(self, engine: FakeEngine) -> None:
        self.engine = engine
        self.races = Races(Handlers(engine, Options()))

    def racing(self, values: list[object] = VALUES, **wished: object) -> AsyncGenerator[Patch, None]:
        return self.races.race(WISH | wished, values)

    def race(self, values: list[object] = VALUES, **wished: object) -> list[dict[str, Any]]:
        return [message["live"] for message in run(everything(self.racing(values, **wished)))]

    def look(self, what: str, **args: Any) -> Any:
        message = run(self.races.look(what, args))
        return None if message is None else next(message[name] for name in message if name != "v")

    def open(self, **args: Any) -> dict[str, Any]:
        opened: dict[str, Any] = self.look("open", number=1, **args)["recording"]
        return opened

    def recording(self, id_: str) -> Recording:
        found = self.races.recordings.find(id_)
        assert found is not None
        return found


@pytest.fixture
def visit(engine: FakeEngine) -> Visit:
    return Visit(engine)


# -- a race ------------------------------------------------------------------------------------------------------------


def test_a_race_tells_both_lanes_whole_and_then_the_verdict_also_where_messages_are_lost(visit: Visit) -> None:
    visit.engine.tok_s = 1500
    first, *messages = visit.race()
    last = messages[-1]
    assert first["recording"]["user"] == "hello" and first["running"] and not last["running"] and last["verdict"]
    assert not any("verdict" in message for message in messages[:-1])
    assert {lane["phase"] for lane in last["lanes"]} == {"finished"}
    lanes = {lane["name"]: lane["blocks"] for lane in visit.open(id=last["id"])["lanes"]}
    for of in (1, 3):
        page = Blocks()
        assert all(page.take(message["lanes"], "name") for message in (*messages[::of], last)) and page == lanes
    assert [lane.reply.text for lane in visit.recording(last["id"]).lanes] == [DEFAULT_TEXT] * 2


def test_the_form_speaks_before_the_settings(visit: Visit) -> None:
    chosen = with_values(temperature=0.3, top_p=0.5, num_speculative_tokens="0", probe_every=5, system="Be brief.")
    visit.race(chosen, k=4, temperature=0.7, length=32, dice=False)
    visit.race()
    one, other = visit.engine.raced
    assert [message.content for message in one.messages] == ["Be brief.", "hello"]
    params, sampling = one.params, one.params.sampling
    assert (params.num_speculative_tokens, params.max_new_tokens, params.rule) == (4, 32, Rule.REJECTION)
    assert (sampling.temperature, sampling.top_p, params.detail, params.probe_every) == (0.7, 0.5, Detail.FULL, 0)
    assert (other.params.num_speculative_tokens, other.params.rule) == (None, Rule.SHARED_NOISE)


def test_what_the_form_offers_is_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with other settings: no copy of a range stands in the form."""
    usual = control_of("temperature")
    for one in (usual, replace(usual, narrowed=Narrowed(0.25, 1.5, "a test"), step=0.125, default=0.75)):
        monkeypatch.setattr(viewer, "control_of", {"temperature": one}.__getitem__)
        [field] = re.findall(r'<input name="temperature"[^>]*>', viewer.watch())
        offered = {name: float(value) for name, value in re.findall(r'(min|max|step|value)="([^"]*)"', field)}
        assert offered == {"min": one.low, "max": one.high, "step": one.step, "value": one.default}
    [select] = re.findall(r'<select name="k".*?</select>', viewer.watch())
    ks = re.findall(r'<option value="(\w+)"', select)
    assert ks == [k for k in control_of("num_speculative_tokens").choices if k != "0"] and set(verdict.KS) < set(ks)
    assert all(BOUNDS["max_new_tokens"].low <= n <= BOUNDS["max_new_tokens"].high for n in viewer.LENGTHS)


def test_what_cannot_be_is_corrected_or_refused_in_words(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    for wished in ({"temperature": None}, {"length": "many"}, {"k": 99}, {"temperature": float("nan")}):
        assert visit.race(**wished)[0]["notice"]
    assert len(visit.engine.raced) == 4

    def refused(notice: str, values: list[object] = VALUES, **wished: object) -> None:
        assert visit.race(values, **wished) == [{"key": "k1", "notice": both(notice), "running": False}]

    for prompt in ("", "   ", "\u200b", None, 7, ["x"]):
        refused("notice.empty", prompt=prompt)
    refused("race.nobody", with_values(drafter="none"))
    refused("race.nobody", k=0)
    visit.engine.busy = True
    refused("notice.full")
    visit.engine.context_len = 3
    assert "at most 3" in visit.race()[-1]["notice"] and len(visit.engine.raced) == 4
    with monkeypatch.context() as broken:
        broken.setattr(visit.engine, "race", None)
        refused("notice.bug")


def test_it_waits_for_the_engine_and_can_be_stopped_while_it_waits(visit: Visit) -> None:
    visit.engine.state = Status(State.LOADING, "load", 0.5)
    first, *_, last = run(begun(visit.racing(), lambda: visit.races.stop("k1")))
    assert first["live"]["running"] and not visit.engine.raced
    assert last["live"] == {"key": "k1", "notice": both("notice.unsent"), "running": False}


@pytest.mark.parametrize("leaves", [False, True])
def test_stopped_or_left_half_way_both_lanes_keep_what_they_have(visit: Visit, leaves: bool) -> None:
    visit.engine.hold_after = 20

    async def story() -> str:
        racing = visit.racing()
        id_ = ""
        async for message in racing:
            if all(lane["blocks"] for lane in message["live"].get("lanes", [{"blocks": []}])):
                id_ = message["live"]["id"]
                [again] = await everything(visit.racing())
                assert again["live"]["notice"] == both("notice.busy"), "one key is one race"
                await (racing.aclose() if leaves else visit.races.look("stop", {"key": "k1"}))
        return id_

    lanes = visit.recording(run(story())).lanes
    assert [lane.reply.reason for lane in lanes] == [FinishReason.CANCELLED] * 2
    assert all(DEFAULT_TEXT.startswith(lane.reply.text) and lane.reply.text for lane in lanes)
    assert visit.engine.raced[0].race.cancelled and not visit.races._live and not visit.races.handlers.sessions._line


# -- recordings --------------------------------------------------------------------------------------------------------


def test_the_recordings_that_come_with_the_app_need_no_model(visit: Visit) -> None:
    visit.engine.state = Status(State.FAILED, "load", message="no model")
    for name in trace_file.SHIPPED:
        shown = visit.open(shipped=name)
        assert [(lane["name"], lane["phase"]) for lane in shown["lanes"]] == [
            ("plain", "finished"),
            ("speculative", "finished"),
        ]
        block = next(i for i, (_, row) in enumerate(shown["lanes"][1]["blocks"]) if row.get("d"))
        id_ = shown["id"]
        assert shown["verdict"] and shown["made"] and visit.look("round", id=id_, **PLACE | {"block": block})["html"]
        assert visit.look("charts", id=id_, upto={"plain": 5})["charts"]
        assert visit.look("file", id=id_, form="page", lang="zh")["text"].startswith("<!")
    assert not visit.races.recordings._store, "they are always there, and take no place of others"


def test_what_is_saved_can_be_opened_again_elsewhere_and_a_page_gives_back_what_was_forgotten(visit: Visit) -> None:
    id_ = visit.race(k=3)[-1]["id"]
    file, before, other = visit.look("file", id=id_, form="trace", number=9), visit.open(id=id_), Visit(FakeEngine())
    opened = other.open(trace=file["text"])
    assert file["number"] == 9 and file["name"].endswith(".json")
    assert opened["id"] != id_ and opened | {"id": id_} == before
    htmls = [page.look("round", id=one, **PLACE)["html"] for page, one in ((visit, id_), (other, opened["id"]))]
    assert htmls[0] == htmls[1] != ""
    lanes = [
        {"name": lane["name"], "about": lane["about"], "rows": [row for _, row in lane["blocks"]]}
        for lane in before["lanes"]
    ]
    head = {"greenlight_trace": 1, "title": ["", ""], **{name: before[name] for name in ("made", "system", "user")}}
    assert other.open(trace=json.loads(json.dumps(head | {"lanes": lanes}))) | {"id": id_} == before


def test_a_reply_of_a_chat_is_a_recording_of_one_lane_once_it_is_written(visit: Visit) -> None:
    handlers, engine = visit.races.handlers, visit.engine
    id_ = handlers.sync("")["conversation"]
    engine.hold_after = 10

    async def meanwhile() -> Any:
        sending = handlers.send(id_, "hello", VALUES)
        await anext(sending)
        opened = await visit.races.look("open", {"number": 1, "conversation": id_, "key": 1})
        engine.gate.set()
        await everything(sending)
        return opened

    assert run(meanwhile())["opened"]["failed"] == both("watch.say.unfinished")
    opened = visit.open(conversation=id_, key=1)
    [lane], [turn] = opened["lanes"], handlers.sessions.open(id_).turns
    assert (lane["name"], len(lane["blocks"]), opened["user"]) == ("reply", len(turn.reply.blocks), "hello")
    for wrong in ({"conversation": id_, "key": 2}, {"conversation": "x", "key": 1}, {"conversation": id_, "key": "1"}):
        assert visit.look("open", **wrong)["failed"] == both("watch.lost")


def test_what_is_not_there_or_no_file_is_refused_in_words(visit: Visit) -> None:
    strange = ("", "{", "[]", "null", "{}", {"greenlight_trace": 2}, {"greenlight_trace": 1}, 7, None)
    for args in (*({"trace": trace} for trace in strange), {"shipped": "../x"}, {"shipped": None}, {"id": "x"}, {}):
        answer = visit.look("open", number=3, **args)  # type: ignore[arg-type]
        assert answer["number"] == 3 and 'lang="zh"' in answer["failed"]
    for what in ("round", "charts", "file"):
        for id_ in (None, "x", ["x"], "shipped-x", "shipped-../../x"):
            assert run(visit.races.look(what, {"id": id_}))["forgot"] == id_
    assert visit.look("nonsense", id="shipped-chat") is None
    place = PLACE | {"id": "shipped-chat"}
    assert visit.look("round", **place)["html"]
    for name, wrong in (
        ("lane", "none"),
        ("block", -1),
        ("block", 999),
        ("piece", 99),
        ("block", "1"),
        ("piece", None),
    ):
        assert visit.look("round", **place | {name: wrong})["html"] == ""


def test_charts_are_of_the_moment_that_is_shown(visit: Visit) -> None:
    visit.races.recordings.put(race(recording_id="r"))
    moments: list[dict[Any, Any]] = [{}, {"plain": 3, "speculative": 2}, {"plain": "x", 3: 4}]
    whole, part, strange = (visit.look("charts", id="r", upto=upto)["charts"] for upto in moments)
    assert whole["cumulative"]["figure"] and part != whole == strange
