"""The tab "Learn" without a browser: what its steps say by themselves, and its lessons over the scripted engine."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import DecodingParams, Detail, Rule
from engine.lab.results import Point
from engine.serving.engine import State, Status
from engine.stats import summarise
from tests.fake_engine import FakeEngine, Script, play
from ui.charts import roofline
from ui.charts.roofline import Pass
from ui.chat import handlers as handlers_module
from ui.chat.handlers import Handlers
from ui.controls import Options
from ui.html.render import both
from ui.learn import handlers as module
from ui.learn import page as learn
from ui.learn import play as learn_play
from ui.learn import tables as lesson_tables
from ui.learn.handlers import Lessons, point
from ui.strings import TEXT
from ui.updates import Patch

LESSONS = ("token", "bound", "verify", "drafters")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GLANCE_S", 0.001)


def run(action: Callable[[], Awaitable[Any]]) -> Any:
    return asyncio.run(asyncio.wait_for(action(), 60))


def lessons(engine: FakeEngine) -> Lessons:
    return Lessons(Handlers(engine, Options(), engine))


def taught(made: Lessons, name: str, **wished: object) -> list[dict[str, Any]]:
    async def everything() -> list[dict[str, Any]]:
        wish: Mapping[str, object] = {
            "key": "k1",
            "name": name,
            "prompt": "What color is the sun?",
            "example": 0,
        } | wished
        return [message["lesson"] async for message in made.lesson(wish)]

    found: list[dict[str, Any]] = run(everything)
    return found


def shown(messages: list[dict[str, Any]]) -> str:
    return str([message["html"] for message in messages if "html" in message][-1])


def words(html: str, lang: str) -> str:
    """The text as one language's reader sees it."""
    other = "zh" if lang == "en" else "en"
    return re.sub(r"<[^>]+>", " ", re.sub(rf'<span class="{other}" lang="{other}">.*?</span>', " ", html))


# -- the frame ---------------------------------------------------------------------------------------------------------


def test_eight_steps_in_order_with_headings() -> None:
    html = learn.learn()
    assert re.findall(r'<section class="step" id="learn-(\w+)"', html) == list(learn.STEPS) and len(learn.STEPS) == 8
    assert re.findall(r'href="\?tab=learn#learn-(\w+)"', html) == list(learn.STEPS)
    for name in learn.STEPS:
        assert f'<h3 id="learn-{name}-name">' in html


@pytest.mark.parametrize("name", learn.STEPS)
def test_each_step_has_something_live_and_says_something_without_scripts(name: str) -> None:
    html = learn.learn()
    step = html[html.index(f'id="learn-{name}"') :].split("</section>\n")[0].split('<section class="step"')[0]
    assert re.search(r'type="submit"|type="range"|type="radio"|data-action="story"', step)
    for lang in ("en", "zh"):
        assert len(words(step, lang)) > 150


def test_the_examples_table_is_the_articles() -> None:
    html = learn._verify()
    rows = [re.sub(r"\s+", " ", words(row, "en")).strip() for row in re.findall(r"<tr>(.*?)</tr>", html)][:4]
    assert rows[1:] == [
        "is high high accepted", "orange high low rejected",
        ". high medium discarded: it stands behind a rejection, so nobody looks at it",
    ]  # fmt: skip


LEARN = sorted(Path("ui/learn").glob("*.py"))


def test_no_word_of_the_steps_is_left_over() -> None:
    """Built names cannot be found in the sources, so each text must be in the frame or be named where it is used."""
    html = learn.learn()
    sources = "".join(path.read_text("utf-8") for path in LEARN)
    for key in TEXT:
        if key.startswith("learn.") and f'"{key}"' not in sources:
            begins = re.split(r"\{\w+\}", text_of(key))[0]
            named = re.search(r'learn\.[^"]*\{\w+\}[^"]*"', sources) and key.rsplit(".", 1)[1] in sources
            assert (begins and begins in html) or named, key


def text_of(key: str) -> str:
    from html import escape

    return escape(TEXT[key][0])


def test_without_the_reference_measurements_the_step_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learn, "reference_of", lambda name: None)
    assert both("learn.bound.none") in learn._bound()


# -- mathematics of the frame ------------------------------------------------------------------------------------------

WEIGHTS = st.lists(st.integers(0, 100), min_size=4, max_size=4)


@given(WEIGHTS, WEIGHTS)
def test_the_rule_leaves_the_target_as_it_is(draft_weights: list[int], target_weights: list[int]) -> None:
    draft, target = learn_play.shares(draft_weights), learn_play.shares(target_weights)
    keeps, instead = learn_play.acceptance(draft, target), learn_play.residual(draft, target)
    lost = sum(d * (1 - keep) for d, keep in zip(draft, keeps, strict=True))
    for d, keep, left, wanted in zip(draft, keeps, instead, target, strict=True):
        assert math.isclose(d * keep + lost * left, wanted, abs_tol=1e-12)


def test_the_first_numbers_of_the_arithmetic_are_the_papers() -> None:
    html = learn_play.sums()
    tokens = (1 - 0.7**4) / 0.3
    assert f"{tokens:.2f} tokens a round" in html and f"{tokens / 1.45:.2f}×" in html


# -- the drawing -------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0.01, 1e5), min_size=2, max_size=9), st.floats(0.01, 1e4))
def test_a_roofline_stays_in_its_frame_and_climbs_with_the_times(times: list[float], floor: float) -> None:
    passes = [Pass(2**i, ms, floor, ms) for i, ms in enumerate(times)]
    html = roofline.drawing(passes)
    places = [(float(x), float(y)) for x, y in re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', html)]
    assert len(places) == len(times)
    assert all(0 <= x <= roofline.WIDTH and 0 <= y <= roofline.HEIGHT for x, y in places)
    for (before, (_, high)), (after, (_, low)) in pairwise(zip(times, places, strict=True)):
        assert not after > before * 1.2 or low <= high


def test_one_pass_is_no_line() -> None:
    assert roofline.drawing([Pass(1, 10.0)]) == ""
    assert roofline.ticks(8, 120) == [10, 20, 50, 100]


def test_the_sentence_about_rows_comes_from_the_points() -> None:
    points = [Point(rows, "measured", 10.0 + rows, 3, extra=(("floor_ms", 8.0),)) for rows in (1, 2, 4, 64)]
    html = lesson_tables.passes(points)
    assert both("learn.bound.result", few=4, times="1.27", many=64, most="6.7") in html
    assert lesson_tables.passes([]) == ""


# -- lessons -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_shows_what_was_measured_and_ends(engine: FakeEngine, name: str) -> None:
    messages = taught(lessons(engine), name)
    assert messages[0]["running"] and not messages[-1]["running"]
    assert both("learn.here", where="FakeLM-1M").split("FakeLM")[0].split(">")[1] in shown(messages)
    assert all(0 <= message.get("share", 0) <= 1.01 for message in messages)


def test_plain_decoding_is_measured_pass_by_pass(engine: FakeEngine) -> None:
    html = shown(taught(lessons(engine), "token"))
    assert engine.asked[0].params.num_speculative_tokens == 0 and engine.asked[0].params.probe_every == 0
    assert (
        html.count("<li>") == 24
        and both("learn.token.result", median="10 ms", count=24, low="10 ms", high="10 ms") in html
    )


def test_the_readers_sentence_is_looked_into(engine: FakeEngine) -> None:
    made = lessons(engine)
    messages = taught(made, "verify", prompt="hello")
    params = engine.asked[0].params
    assert engine.asked[0].messages[-1].content == "hello"
    assert params.detail == Detail.FULL and params.rule is Rule.REJECTION and params.num_speculative_tokens == 3
    told = next(message for message in messages if "id" in message)
    block, piece = told["place"]
    kept = made.recordings.find(told["id"])
    assert kept and len(module._rounds(kept)) == module.ROUNDS  # as many as the button says
    on = pane(made, id=told["id"], block=block, piece=piece, way=1)
    assert on["block"] > block and on["html"]
    back = pane(made, id=told["id"], block=on["block"], piece=0, way=-1)
    assert back["block"] == block
    assert (
        pane(made, id=told["id"], block=block, piece=piece)["html"]
        == told["html"].split("</article>")[0] + "</article>"
    )


def pane(made: Lessons, **args: object) -> Any:
    message = run(lambda: made.ask("pane", args))
    return message["pane"]


def test_the_recorded_round_can_be_looked_into_without_a_model(engine: FakeEngine) -> None:
    engine.state = Status(State.FAILED, "load", message="no model")
    asked = re.search(r'data-id="(\w+)" data-block="(\d+)" data-piece="(\d+)"', learn.learn())
    assert asked
    id_, block, piece = asked[1], int(asked[2]), int(asked[3])
    made = lessons(engine)
    assert pane(made, id=id_, block=block, piece=piece)["html"]
    assert pane(made, id=id_, block=block, piece=0, way=1)["block"] > block


@pytest.mark.parametrize(
    "args", [{}, {"id": "x"}, {"id": "chat", "block": "1", "piece": 0}, {"id": "chat", "block": -1, "piece": 0}, {"id": "chat", "block": 1e9, "piece": 0}]
)  # fmt: skip
def test_a_round_that_is_not_there_has_no_pane(engine: FakeEngine, args: dict[str, object]) -> None:
    assert pane(lessons(engine), **args)["html"] == ""


@pytest.mark.parametrize("prompt", ["", "  ", "\u200b", None, 7])
def test_nothing_is_not_asked(engine: FakeEngine, prompt: object) -> None:
    messages = taught(lessons(engine), "verify", prompt=prompt)
    assert any(message.get("notice") == both("notice.empty") for message in messages) and not engine.asked


def test_each_drafter_writes_the_same_text(engine: FakeEngine) -> None:
    engine.drafters = ("none", "ngram", "head")
    html = shown(taught(lessons(engine), "drafters", example=1))
    assert [asked.params.drafter for asked in engine.asked] == ["none", "ngram", "head"]
    assert len({asked.messages for asked in engine.asked}) == 1
    plain, ngram = (summarise(play(Script(), asked.params)).overall_tok_s for asked in engine.asked[:2])
    assert plain and ngram and f"{ngram / plain:.2f}×" in html


@pytest.mark.parametrize("example", [None, -1, 99, "1", True])
def test_an_example_that_is_none_is_the_first(engine: FakeEngine, example: object) -> None:
    taught(lessons(engine), "drafters", example=example)
    assert engine.asked


def test_nobody_is_called_quick_who_is_not() -> None:
    slow = [lesson_tables.Drafting("none", None, None, 100.0), lesson_tables.Drafting("ngram", 0.2, 1.1, 80.0)]
    assert both("learn.drafters.result.none") in lesson_tables.drafters(slow, "x", 64, finished=True)
    quick = [slow[0], replace(slow[1], tok_s=150.0)]
    assert "1.50" in lesson_tables.drafters(quick, "x", 64, finished=True)


@pytest.mark.parametrize("name", LESSONS)
def test_a_refusal_is_said_in_words(engine: FakeEngine, name: str) -> None:
    engine.busy = True
    last = taught(lessons(engine), name)[-1]
    assert last["notice"] == both("notice.full") and not last["running"]


def test_an_experiment_that_fails_says_so(engine: FakeEngine) -> None:
    engine.experiment_fails = "It broke: try again."
    messages = taught(lessons(engine), "bound")
    assert any("It broke" in message.get("notice", "") for message in messages) and not messages[-1]["running"]


def test_it_waits_for_the_engine_and_can_be_stopped(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers_module, "HEARTBEAT_S", 0.02)
    engine.state = Status(State.LOADING, "load", 0.5)
    made = lessons(engine)

    async def waiting() -> list[dict[str, Any]]:
        found = []
        async for message in made.lesson({"key": "k1", "name": "token"}):
            found.append(message["lesson"])
            await made.ask("stop", {"key": "k1"})
        return found

    messages = run(waiting)
    assert messages[0]["notice"] and messages[-1]["notice"] == both("learn.stopped") and not engine.asked


def test_stopped_half_way_it_keeps_what_it_has(engine: FakeEngine) -> None:
    engine.hold_after = 10
    made = lessons(engine)

    async def stopping() -> list[dict[str, Any]]:
        found = []
        async for message in made.lesson({"key": "k1", "name": "token"}):
            found.append(message["lesson"])
            if "html" in message["lesson"]:
                await made.ask("stop", {"key": "k1"})
        return found

    messages = run(stopping)
    assert messages[-1]["notice"] == both("learn.stopped") and "<li>" in shown(messages)
    assert engine.asked[0].stream.cancelled and not made._live and not made.handlers.sessions._line


def test_a_page_that_missed_the_end_asks_for_it(engine: FakeEngine) -> None:
    made = lessons(engine)
    messages = taught(made, "token")
    again = run(lambda: made.ask("again", {"key": "k1"}))["lesson"]
    assert again["html"] == shown(messages) and again["running"] is False and again["name"] == "token"
    unknown = run(lambda: made.ask("again", {"key": "other"}))["lesson"]
    assert unknown["lost"] and not unknown["running"]


@pytest.mark.parametrize(
    "wish", [{}, {"name": "token"}, {"key": "k", "name": "nonsense"}, {"key": "", "name": "token"}]
)
def test_what_is_no_lesson_is_left_alone(engine: FakeEngine, wish: dict[str, object]) -> None:
    made = lessons(engine)

    async def everything() -> list[Patch]:
        return [message async for message in made.lesson(wish)]

    assert run(everything) == [] and run(lambda: made.ask("nonsense", {})) is None


def test_a_mistake_of_ours_does_not_leave_the_page_waiting(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> str:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(module.tables, "tokens", broken)
    assert taught(lessons(engine), "token")[-1]["notice"] == both("notice.bug")


# -- the reader's own point --------------------------------------------------------------------------------------------


def test_the_point_is_what_the_conversation_measured(engine: FakeEngine) -> None:
    made = lessons(engine)
    id_ = made.handlers.sync("")["conversation"]
    assert run(lambda: made.ask("point", {"conversation": id_}))["point"] is None

    async def chat() -> None:
        from ui.controls import TABLE

        values = [{"num_speculative_tokens": "3", "probe_every": 4}.get(c.name, c.default) for c in TABLE]
        async for _ in made.handlers.send(id_, "hello", values):
            pass

    run(chat)
    found = run(lambda: made.ask("point", {"conversation": id_}))["point"]
    own = made.handlers.sessions.find(id_).tally.summary()  # type: ignore[union-attr]
    assert found["alpha"] == own.alpha and found["speedup"] == own.speedup
    assert math.isclose(found["c"], 0.0, abs_tol=1e-9)  # every scripted round takes as long as a plain one


def test_a_point_that_cannot_be_true_is_none() -> None:
    own = summarise(play(Script(), DecodingParams(drafter="ngram", num_speculative_tokens=3, probe_every=4)))
    assert point(own) is not None
    assert point(replace(own, spec_tok_s=9999.0, speedup=99.0)) is None
    assert point(replace(own, alpha=None)) is None and point(replace(own, mean_k=0.0)) is None
