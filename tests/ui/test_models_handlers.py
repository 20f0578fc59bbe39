"""The tab "Models" without a page: checks, loads and news over the scripted engine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.config import EngineConfig, Message
from engine.preflight.check import Report
from engine.preflight.diagnostics import diagnose, worst
from engine.serving.engine import State, Status
from engine.serving.swap import SwapPhase
from tests.fake_engine import FakeEngine
from ui.chat.handlers import Handlers
from ui.controls import Options
from ui.html.render import both
from ui.models import handlers as module
from ui.models.handlers import Models
from ui.sessions import Live

WISH = {"target": "owner/new", "drafter": "auto"}


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[EngineConfig]:
    """Configurations that were checked. What is called "bad" cannot be loaded; of "held", a check waits to be let
    go."""
    asked: list[EngineConfig] = []

    def check(config: EngineConfig, **_: Any) -> Report:
        asked.append(config)
        if "held" in config.target:
            LET_GO.wait(30)
        if "broken" in config.target:
            raise RuntimeError("a mistake")
        codes = {"owner/bad": "not_found", "owner/large": "memory_beside"}
        values = {
            "not_found": {"name": config.target},
            "memory_beside": {"needs": "9 GiB", "free": "8 GiB", "where": "memory"},
        }
        diagnostics = tuple(diagnose(code, **values[code]) for name, code in codes.items() if name == config.target)
        return Report(worst(diagnostics), diagnostics, None, None, 0.0, None, (), "ngram")

    monkeypatch.setattr(module, "check_config", check)
    return asked


LET_GO = threading.Event()


@pytest.fixture(autouse=True)
def nothing_waits() -> Iterator[None]:
    LET_GO.clear()
    yield
    LET_GO.set()


@pytest.fixture
def pairs(engine: FakeEngine, checked: list[EngineConfig]) -> Models:
    return Models(Handlers(engine, Options()))


def run(action: Callable[[], Any]) -> Any:
    return asyncio.run(asyncio.wait_for(action(), 60))


def ask(pairs: Models, what: str = "news", session: str = "s1", **args: Any) -> Any:
    message = run(lambda: pairs.ask(what, {"session": session} | args))
    return None if message is None else message["models"]


def ended(engine: FakeEngine) -> None:
    assert engine.changes[-1].wait(30).over


def settled(pairs: Models, session: str = "s1") -> Any:
    """What is said once the change is over and its end was timed."""
    begun = pairs._latest_change
    assert begun is not None
    for _ in range(3000):
        if begun.ended_s is not None:
            return ask(pairs, session=session)
        threading.Event().wait(0.01)
    raise AssertionError("it never ended")


# -- news


def test_news_come_once_and_again_when_something_has_changed(pairs: Models, engine: FakeEngine) -> None:
    first = ask(pairs)
    assert first["pair"]["number"] == 1 and "FakeLM-1M" in first["pair"]["html"] and first["change"] is None
    assert first["pair"]["wish"]["target"] == "embedded" and "<table" in first["presets"]
    assert ask(pairs, seen=first["token"]) is None and ask(pairs, seen="")["token"] == first["token"]
    engine.pair = 2
    assert ask(pairs, seen=first["token"])["pair"]["number"] == 2


def test_another_start_of_the_app_is_news(pairs: Models, engine: FakeEngine) -> None:
    again = Models(Handlers(engine, Options()))
    assert ask(pairs)["start"] != ask(again)["start"] and ask(again, seen=ask(pairs)["token"]) is not None


def test_while_nothing_is_loaded_there_is_no_pair(pairs: Models, engine: FakeEngine) -> None:
    engine.state = Status(State.LOADING, "load", 0.5)
    assert ask(pairs)["pair"] is None
    engine.state = Status(State.READY, "ready")
    assert ask(pairs)["pair"]["number"] == 1


# -- a check


def test_a_check_brings_a_card_and_changes_nothing(
    pairs: Models, engine: FakeEngine, checked: list[EngineConfig]
) -> None:
    said = ask(pairs, "check", number=1, wish=WISH | {"quant": "nf4", "compute": "bf16"})
    assert (
        said["check"]["number"] == 1
        and not said["check"]["going"]
        and both("models.verdict.fits") in said["check"]["html"]
    )
    assert checked == [EngineConfig("owner/new", quant="nf4", compute="bf16")] and not engine.changes
    assert ask(pairs)["check"] == said["check"]  # a page that is loaded again finds it
    assert ask(pairs, session="s2")["check"] == {"number": 0, "going": False, "html": ""}


def test_the_same_question_twice_is_checked_once(pairs: Models, checked: list[EngineConfig]) -> None:
    for number in (3, 3, 2):
        ask(pairs, "check", number=number, wish=WISH)
    assert len(checked) == 1


def test_what_the_command_line_fixed_stays(pairs: Models, engine: FakeEngine, checked: list[EngineConfig]) -> None:
    engine.config = EngineConfig(threads=3, offline=True, max_new_tokens=99, kernel="native", drafter="ngram")
    ask(pairs, "check", number=1, wish=WISH)
    assert checked == [replace(engine.config, target="owner/new", drafter="auto", kernel="auto")]
    engine.config = replace(engine.config, kernel="torch")
    ask(pairs, "check", number=2, wish=WISH)
    assert checked[-1].kernel == "torch"


@pytest.mark.parametrize(("wish", "key"), [
    ({}, "models.empty"), (None, "models.empty"), ("x", "models.empty"), ({"target": "  "}, "models.empty"),
    ({"target": 7}, "models.empty"), ({"target": "a/b", "quant": "<q>"}, "models.refusal"),
    ({"target": "a/b", "device": "tpu"}, "models.refusal"), ({"target": "a/b", "drafter": "head"}, "models.refusal"),
    ({"target": "x" * 1000}, "models.forbidden"),
])  # fmt: skip
def test_nonsense_is_answered_in_words(pairs: Models, checked: list[EngineConfig], wish: object, key: str) -> None:
    said = ask(pairs, "check", number=1, wish=wish)
    assert said["notice"] and said["check"] == {"number": 1, "going": False, "html": ""} and not checked
    assert "<q>" not in said["notice"]
    assert both("models.empty") == said["notice"] if key == "models.empty" else both("models.empty") != said["notice"]


def test_a_mistake_of_ours_leaves_nobody_waiting(pairs: Models) -> None:
    said = ask(pairs, "load", number=1, wish={"target": "owner/broken"})
    assert said["notice"] == both("models.bug") and not said["check"]["going"]
    assert ask(pairs, "check", number=2, wish=WISH)["notice"] == ""


def test_a_check_that_takes_long_can_be_called_off(pairs: Models, engine: FakeEngine) -> None:
    async def story() -> Any:
        checking = asyncio.create_task(
            pairs.ask("load", {"session": "s1", "number": 1, "wish": {"target": "owner/held"}})
        )
        while not (await pairs.ask("news", {"session": "s1"}))["models"]["check"]["going"]:  # type: ignore[index]
            await asyncio.sleep(0.01)
        assert both("models.checking") in (await pairs.ask("news", {"session": "s1"}))["models"]["check"]["html"]  # type: ignore[index]
        await pairs.ask("cancel", {"session": "s1"})
        LET_GO.set()
        return await checking

    said = run(story)["models"]
    assert said["check"] == {"number": 1, "going": False, "html": ""} and not engine.changes


# -- a load


def test_a_load_changes_the_pair_and_says_so(pairs: Models, engine: FakeEngine) -> None:
    before = ask(pairs)
    ask(pairs, "load", number=1, wish=WISH)
    ended(engine)
    after = settled(pairs)
    assert after["pair"]["number"] == 2 and "owner/new" in after["pair"]["html"] and after["token"] != before["token"]
    assert "owner/new" in after["pair"]["announced"] and after["pair"]["wish"]["target"] == "owner/new"
    assert not after["change"]["going"] and "owner/new" in after["change"]["title"]
    assert ask(pairs, session="s2")["change"] is None  # others hear of the pair alone
    assert ask(pairs, "close")["change"] is None


def test_what_cannot_run_is_not_loaded(pairs: Models, engine: FakeEngine) -> None:
    said = ask(pairs, "load", number=1, wish={"target": "owner/bad"})
    assert said["notice"] == both("models.refused") and both("models.verdict.cannot") in said["check"]["html"]
    assert not engine.changes and said["change"] is None


def test_what_fits_only_without_the_pair_in_use_is_loaded(pairs: Models, engine: FakeEngine) -> None:
    said = ask(pairs, "load", number=1, wish={"target": "owner/large"})
    assert (
        both("models.verdict.slow") in said["check"]["html"]
        and both("check.memory_beside.try") in said["check"]["html"]
    )
    ended(engine)
    assert settled(pairs)["pair"]["number"] == 2


def test_progress_is_told_to_everybody_and_a_cancel_leaves_the_old_pair(pairs: Models, engine: FakeEngine) -> None:
    engine.hold_change = SwapPhase.LOADING
    ask(pairs, "load", number=1, wish=WISH)
    for session in ("s1", "s2"):
        swap = ask(pairs, session=session)["change"]
        assert swap["going"] and swap["mine"] and swap["bar"] == 0.5 and "owner/new" in swap["title"]
    ask(pairs, "cancel")
    ended(engine)
    said = settled(pairs)
    assert said["change"]["title"] == both("models.cancelled") and said["pair"]["number"] == 1


def test_a_failure_is_said_with_what_is_kept(pairs: Models, engine: FakeEngine) -> None:
    engine.change_fails = "The file is cut short: fetch it again."
    ask(pairs, "load", number=1, wish=WISH)
    ended(engine)
    said = settled(pairs)
    assert both("models.failed", message=engine.change_fails) in said["change"]["title"] and said["pair"]["number"] == 1


def test_a_second_change_is_refused_while_one_is_under_way(pairs: Models, engine: FakeEngine) -> None:
    engine.hold_change = SwapPhase.LOADING
    ask(pairs, "load", number=1, wish=WISH)
    assert ask(pairs, "load", "s2", number=1, wish=WISH)["notice"] == both("models.busy")
    engine.gate.set()
    ended(engine)
    assert len(engine.changes) == 1


def test_it_says_what_it_waits_for(pairs: Models, engine: FakeEngine) -> None:
    sessions = pairs.handlers.sessions
    lives = [Live(), Live()]
    for live in lives:
        sessions.join(live)
    engine.hold_change = SwapPhase.WAITING
    ask(pairs, "load", number=1, wish=WISH)
    while engine.changes[-1].status().phase is not SwapPhase.WAITING:
        threading.Event().wait(0.01)
    assert both("models.phase.waiting", count=2) in ask(pairs)["change"]["far"]
    for live in lives:
        sessions.leave(live)
    assert both("models.phase.waiting.none") in ask(pairs)["change"]["far"]


def test_an_engine_that_refuses_is_quoted(pairs: Models, engine: FakeEngine) -> None:
    engine.state = Status(State.FAILED, "load", message="No model was found.")
    notice = ask(pairs, "load", number=1, wish=WISH)["notice"]
    assert notice == both("models.refusal", message="The engine is still loading: wait for it.") and not engine.changes


# -- served to others


@pytest.fixture
def served(engine: FakeEngine, checked: list[EngineConfig], tmp_path: Path) -> Models:
    (tmp_path / "one.gguf").write_bytes(b"GGUF")
    return Models(Handlers(engine, Options(served=True, models_folder=str(tmp_path))))


def test_served_only_known_pairs_and_the_folder_can_be_named(
    served: Models, checked: list[EngineConfig], tmp_path: Path
) -> None:
    for number, (target, drafter) in enumerate([("owner/new", "auto"), ("embedded", "/etc"), ("../x", "auto")], 1):
        said = ask(served, "load", number=number, wish={"target": target, "drafter": drafter})
        assert both("models.forbidden", name=target if drafter == "auto" else drafter) == said["notice"]
    assert not checked
    ask(served, "check", number=9, wish={"target": "one.gguf", "drafter": "ngram"})
    assert checked == [EngineConfig(str(tmp_path / "one.gguf"), "ngram")]


def test_served_nobody_learns_where_the_folder_is(served: Models, engine: FakeEngine, tmp_path: Path) -> None:
    engine.change_fails = f"{tmp_path}/one.gguf is cut short."
    said = ask(served, "load", number=1, wish={"target": "one.gguf"})
    ended(engine)
    told = settled(served)
    assert str(tmp_path) not in str(said) + str(told) and "one.gguf is cut short" in told["change"]["title"]
    engine.change_fails = ""
    ask(served, "load", number=2, wish={"target": "one.gguf"})
    ended(engine)
    assert settled(served)["pair"]["wish"]["target"] == "one.gguf"
    engine.config = EngineConfig("/home/somebody/model")
    assert ask(served)["pair"]["wish"] is None


def test_served_a_change_is_called_off_only_by_whoever_asked_for_it(served: Models, engine: FakeEngine) -> None:
    engine.hold_change = SwapPhase.LOADING
    ask(served, "load", number=1, wish={"target": "one.gguf"})
    assert not ask(served, session="s2")["change"]["mine"]
    ask(served, "cancel", "s2")
    assert ask(served)["change"]["going"]
    ask(served, "cancel")
    ended(engine)
    assert engine.changes[-1].status().phase is SwapPhase.CANCELLED


def test_visitors_are_forgotten_when_there_are_many(pairs: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CAPACITY", 2)
    ask(pairs, "check", number=5, wish=WISH)
    for session in ("s2", "s3"):
        ask(pairs, session=session)
    assert ask(pairs)["check"]["number"] == 0


# -- the chat goes on


def test_settings_follow_the_pair_in_use(pairs: Models, engine: FakeEngine) -> None:
    handlers = Handlers(engine, Options(drafter="ngram"))

    def drafter() -> Any:
        return next(control for control in handlers.table() if control.name == "drafter")

    assert drafter().default == "ngram"
    engine.config, engine.drafters = replace(engine.config, drafter="none"), ("none", "ngram", "draft_model")
    assert drafter().default == "none" and "draft_model" in drafter().choices
    assert engine.count_tokens([Message("user", "hi")]) > 0


def test_between_turns_of_two_pairs_there_is_a_note(engine: FakeEngine) -> None:
    handlers = Handlers(engine, Options())

    async def story() -> list[str]:
        values = [control.default for control in handlers.table()]
        id_ = handlers.sync("")["conversation"]
        for number, name in enumerate(("FakeLM-1M", "FakeLM-1M", "<Other>"), 1):
            engine.target = name
            async for _ in handlers.send(id_, f"message {number}", values):
                pass
        return [turn["between"] for turn in handlers.sync(id_)["turns"]]

    first, second, third = run(story)
    assert first == second == "" and third == both("models.between", name="<Other> (GGUF Q4_1)")


def test_a_reply_that_waited_while_the_pair_changed_is_the_new_ones(engine: FakeEngine) -> None:
    handlers = Handlers(engine, Options())
    engine.hold_after = 0

    async def story() -> list[str]:
        values = [control.default for control in handlers.table()]
        id_ = handlers.sync("")["conversation"]
        by = []
        async for patch in handlers.send(id_, "hello", values):
            by += [turn["about"]["target"] for turn in patch["turns"]]
            engine.target = "Other"  # after it was asked of the first, and before its first token
            engine.gate.set()
        return [by[0], handlers.sync(id_)["turns"][0]["about"]["target"]]

    assert run(story) == ["FakeLM-1M", "Other"]
