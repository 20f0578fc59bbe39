"""The tab "Learn" without a browser: what its steps say by themselves, and its lessons over the scripted engine."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import Detail, Rule
from engine.lab.results import Point
from engine.serving.engine import State, Status
from engine.stats import summarise
from tests.fake_engine import FakeEngine, Script, play
from tests.ui.samples import everything, few, run, with_values
from ui.charts import roofline
from ui.charts.roofline import Pass
from ui.chat import handlers as chat
from ui.chat.handlers import Handlers
from ui.controls import Options
from ui.html.render import both
from ui.learn import handlers as module
from ui.learn import page as learn
from ui.learn import play as learn_play
from ui.learn import tables
from ui.learn.handlers import Lessons, point

LESSONS = ("token", "bound", "verify", "drafters")


class Lesson:
    """One lesson over the scripted engine, its messages as the page gets them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "GLANCE_S", 0.001)
        monkeypatch.setattr(chat, "HEARTBEAT_S", 0.02)
        self.engine = FakeEngine()
        self.all = Lessons(Handlers(self.engine, Options(), self.engine))  # type: ignore[arg-type]

    def taught(self, name: str, stop: Callable[[Any], bool] = lambda _: False, prompt: object = "hello") -> list[Any]:
        """stop: the message at which the reader wants no more."""

        async def heard() -> list[Any]:
            messages = []
            async for message in self.all.lesson({"key": "k1", "name": name, "prompt": prompt, "example": 1}):
                messages.append(message["lesson"])
                if stop(message["lesson"]):
                    await self.all.ask("stop", {"key": "k1"})
            return messages

        return run(heard())  # type: ignore[no-any-return]

    def ask(self, what: str, **args: object) -> Any:
        return run(self.all.ask(what, args))[what]


@pytest.fixture
def lesson(monkeypatch: pytest.MonkeyPatch) -> Lesson:
    return Lesson(monkeypatch)


def shown(messages: list[Any]) -> str:
    return str([message["html"] for message in messages if "html" in message][-1])


# -- the frame ---------------------------------------------------------------------------------------------------------


WEIGHTS = st.lists(st.integers(0, 100), min_size=4, max_size=4)


@given(WEIGHTS, WEIGHTS)
def test_the_rule_leaves_the_target_as_it_is(draft_weights: list[int], target_weights: list[int]) -> None:
    draft, target = learn_play.shares(draft_weights), learn_play.shares(target_weights)
    keeps, instead = learn_play.acceptance(draft, target), learn_play.residual(draft, target)
    lost = sum(d * (1 - keep) for d, keep in zip(draft, keeps, strict=True))
    for d, keep, left, wanted in zip(draft, keeps, instead, target, strict=True):
        assert math.isclose(d * keep + lost * left, wanted, abs_tol=1e-12)


@few
@given(st.lists(st.floats(0.01, 1e5), min_size=2, max_size=9), st.floats(0.01, 1e4))
def test_a_roofline_stays_in_its_frame_and_climbs_with_the_times(times: list[float], floor: float) -> None:
    html = roofline.drawing([Pass(2**i, ms, floor, ms) for i, ms in enumerate(times)])
    places = [(float(x), float(y)) for x, y in re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', html)]
    assert len(places) == len(times)
    assert all(0 <= x <= roofline.WIDTH and 0 <= y <= roofline.HEIGHT for x, y in places)
    for (before, (_, high)), (after, (_, low)) in pairwise(zip(times, places, strict=True)):
        assert not after > before * 1.2 or low <= high


def test_sentences_follow_from_their_numbers() -> None:
    points = [Point(rows, "measured", 10.0 + rows, 3, extra=(("floor_ms", 8.0),)) for rows in (1, 2, 4, 64)]
    assert both("learn.bound.result", few=4, times="1.27", many=64, most="6.7") in tables.passes(points)
    tokens = (1 - 0.7**4) / 0.3
    assert f"{tokens:.2f} tokens a round" in learn_play.sums() and f"{tokens / 1.45:.2f}×" in learn_play.sums()
    slow = [tables.Drafting("none", None, None, 100.0), tables.Drafting("ngram", 0.2, 1.1, 80.0)]
    assert both("learn.drafters.result.none") in tables.drafters(slow, "x", 64, finished=True)


# -- lessons -----------------------------------------------------------------------------------------------------------


def test_a_lesson_shows_what_was_measured_and_ends(lesson: Lesson) -> None:
    for name in LESSONS:
        messages = lesson.taught(name)
        assert messages[0]["running"] and not messages[-1]["running"] and "FakeLM-1M" in shown(messages)
        assert all(0 <= message.get("share", 0) <= 1.01 for message in messages)
    again = run(lesson.all.ask("again", {"key": "k1"}))["lesson"]
    assert again["html"] == shown(messages) and not again["running"]
    assert run(lesson.all.ask("again", {"key": "other"}))["lesson"]["lost"]
    plain = lesson.engine.asked[0].params
    assert (plain.num_speculative_tokens, plain.probe_every) == (0, 0), "measured pass by pass"
    html = shown(lesson.taught("token"))
    assert both("learn.token.result", median="10 ms", count=24, low="10 ms", high="10 ms") in html


def test_the_readers_sentence_is_looked_into(lesson: Lesson) -> None:
    messages = lesson.taught("verify")
    asked = lesson.engine.asked[0]
    assert asked.messages[-1].content == "hello" and asked.params.rule is Rule.REJECTION
    assert (asked.params.detail, asked.params.num_speculative_tokens) == (Detail.FULL, 3)
    whole = next(message for message in messages if "id" in message)
    id_, (block, piece) = whole["id"], whole["place"]
    recording = lesson.all.recordings.find(id_)
    assert recording and len(module._rounds(recording)) == module.ROUNDS, "as many as the button says"
    assert lesson.ask("pane", id=id_, block=block, piece=piece)["html"] in whole["html"]
    on = lesson.ask("pane", id=id_, block=block, piece=piece, way=1)["block"]
    assert on > block == lesson.ask("pane", id=id_, block=on, piece=0, way=-1)["block"]
    lesson.engine.state = Status(State.FAILED, "load", message="no model")
    [(id_, block, piece)] = re.findall(r'data-id="(\w+)" data-block="(\d+)" data-piece="(\d+)"', learn.learn())
    assert lesson.ask("pane", id=id_, block=int(block), piece=int(piece))["html"], "recorded"
    for place in (None, "1", -1, 1e9):
        assert not lesson.ask("pane", id=id_, block=place, piece=0)["html"]


def test_each_drafter_writes_the_same_text(lesson: Lesson) -> None:
    lesson.engine.drafters = ("none", "ngram", "head")
    html, asked = shown(lesson.taught("drafters")), lesson.engine.asked
    assert [one.params.drafter for one in asked] == ["none", "ngram", "head"] and len(
        {one.messages for one in asked}
    ) == 1
    plain, ngram = (summarise(play(Script(), one.params)).overall_tok_s for one in asked[:2])
    assert plain and ngram and f"{ngram / plain:.2f}×" in html


def test_what_goes_wrong_is_said_in_words(lesson: Lesson, monkeypatch: pytest.MonkeyPatch) -> None:
    for prompt in ("\u200b", None, 7):
        messages = lesson.taught("verify", prompt=prompt)
        assert both("notice.empty") in [message.get("notice") for message in messages] and not lesson.engine.asked
    assert lesson.taught("nonsense") == []
    lesson.engine.experiment_fails = "It broke: try again."
    messages = lesson.taught("bound")
    assert any("It broke" in message.get("notice", "") for message in messages) and not messages[-1]["running"]
    monkeypatch.setattr(tables, "tokens", None)
    assert lesson.taught("token")[-1]["notice"] == both("notice.bug")
    lesson.engine.busy = True
    for name in LESSONS:
        last = lesson.taught(name)[-1]
        assert last["notice"] == both("notice.full") and not last["running"]


def test_it_waits_for_the_engine_and_can_be_stopped_then_or_half_way(lesson: Lesson) -> None:
    engine = lesson.engine
    engine.state = Status(State.LOADING, "load", 0.5)
    messages = lesson.taught("token", stop=lambda _: True)
    assert messages[0]["notice"] and messages[-1]["notice"] == both("learn.stopped") and not engine.asked
    engine.state, engine.hold_after = Status(State.READY, "ready"), 10
    messages = lesson.taught("token", stop=lambda message: "html" in message)
    assert messages[-1]["notice"] == both("learn.stopped") and "<li>" in shown(messages)
    assert engine.asked[0].stream.cancelled and not lesson.all._live and not lesson.all.handlers.sessions._line


def test_the_readers_point_is_what_the_conversation_measured(lesson: Lesson) -> None:
    handlers = lesson.all.handlers
    id_ = handlers.sync("")["conversation"]
    assert lesson.ask("point", conversation=id_) is None
    run(everything(handlers.send(id_, "hello", with_values(num_speculative_tokens="3", probe_every=4))))
    place, session = lesson.ask("point", conversation=id_), handlers.sessions.find(id_)
    assert session
    own = session.tally.summary()
    assert (place["alpha"], place["speedup"]) == (own.alpha, own.speedup)
    assert math.isclose(place["c"], 0.0, abs_tol=1e-9), "every scripted round takes as long as a plain one"
    assert point(replace(own, spec_tok_s=9999.0, speedup=99.0)) is point(replace(own, alpha=None)) is None
