"""The tab "Models" without a page: checks, loads and news over the scripted engine."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.config import EngineConfig
from engine.preflight.check import Report
from engine.preflight.diagnostics import diagnose, worst
from engine.serving.engine import State, Status
from engine.serving.swap import SwapPhase
from tests.fake_engine import FakeEngine
from tests.ui.conftest import until
from tests.ui.samples import VALUES, run
from ui.chat.handlers import Handlers
from ui.controls import Options
from ui.html.render import both
from ui.models import handlers as module
from ui.models.handlers import Models
from ui.sessions import Live

WISH = {"target": "owner/new", "drafter": "auto"}
FOUND = {"owner/bad": "not_found", "owner/large": "memory_beside"}
NO_CARD = {"number": 1, "going": False, "html": ""}


class Tab:
    """The tab over an engine whose configurations are checked by a script: see FOUND; "held" waits until let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, options: Options) -> None:
        self.engine = FakeEngine()
        self.models = Models(Handlers(self.engine, options))
        self.checked: list[EngineConfig] = []
        self.let_go = threading.Event()
        monkeypatch.setattr(module, "check_config", self._check)

    def _check(self, config: EngineConfig, **_: object) -> Report:
        self.checked.append(config)
        if "held" in config.target:
            self.let_go.wait(30)
        if "broken" in config.target:
            raise RuntimeError("a mistake")
        values = {"name": config.target, "needs": "9 GiB", "free": "8 GiB", "where": "memory"}
        codes = [FOUND[config.target]] if config.target in FOUND else []
        diagnostics = tuple(diagnose(code, **values) for code in codes)
        return Report(worst(diagnostics), diagnostics, None, None, 0.0, None, (), "ngram")

    def ask(self, what: str = "news", session: str = "s1", **args: object) -> Any:
        message = run(self.models.ask(what, {"session": session} | args))
        return None if message is None else message["models"]

    def load(self, target: str = "owner/new", session: str = "s1", number: int = 1, **more: str) -> Any:
        return self.ask("load", session, number=number, wish={"target": target} | more)

    def settled(self) -> Any:
        """What is said once the change is over and its end was timed."""
        until(lambda: self.models._latest_change and self.models._latest_change.ended_s is not None)
        return self.ask()


@pytest.fixture
def tab(monkeypatch: pytest.MonkeyPatch) -> Tab:
    return Tab(monkeypatch, Options())


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Tab:
    (tmp_path / "one.gguf").write_bytes(b"GGUF")
    return Tab(monkeypatch, Options(served=True, models_folder=str(tmp_path)))


def test_news_come_once_and_again_when_something_has_changed(tab: Tab) -> None:
    first = tab.ask()
    assert "FakeLM-1M" in first["pair"]["html"] and first["change"] is None and "<table" in first["presets"]
    assert tab.ask(seen=first["token"]) is None
    tab.engine.pair = 2
    assert tab.ask(seen=first["token"])["pair"]["number"] == 2
    tab.engine.state = Status(State.LOADING, "")
    assert tab.ask()["pair"] is None
    tab.models = Models(Handlers(tab.engine, Options()))
    assert tab.ask(seen=first["token"])["start"] != first["start"], "another start of the app is news"


def test_a_check_brings_a_card_and_changes_nothing(tab: Tab) -> None:
    tab.engine.config = EngineConfig(threads=3, offline=True, max_new_tokens=99, kernel="native", drafter="ngram")
    for number in (3, 3, 2):  # the same question twice is checked once
        card = tab.ask("check", number=number, wish=WISH | {"quant": "nf4"})["check"]
    assert card["number"] == 3 and both("models.verdict.fits") in card["html"] and tab.ask()["check"] == card
    wanted = replace(tab.engine.config, target="owner/new", drafter="auto", kernel="auto", quant="nf4")
    assert tab.checked == [wanted] and not tab.engine.changes, "what the command line fixed stays"
    assert tab.ask(session="s2")["check"] == NO_CARD | {"number": 0}
    broken = tab.load("owner/broken", number=8)
    assert broken["notice"] == both("models.bug") and not broken["check"]["going"]


def test_nonsense_is_answered_in_words(tab: Tab) -> None:
    wishes = (None, "x", {"target": 7}, WISH | {"quant": "<q>"}, WISH | {"device": "tpu"}, {"target": "x" * 1000})
    for wish in wishes:
        said = tab.ask("check", number=1, wish=wish)
        assert said["check"] == NO_CARD and said["notice"] and "<q>" not in said["notice"] and not tab.checked


def test_a_check_that_takes_long_can_be_called_off(tab: Tab) -> None:
    async def story() -> Any:
        wish = {"session": "s1", "number": 1, "wish": {"target": "owner/held"}}
        checking = asyncio.create_task(tab.models.ask("load", wish))
        card: Any = {"going": False}
        while not card["going"]:
            await asyncio.sleep(0.01)
            card = (await tab.models.ask("news", wish))["models"]["check"]  # type: ignore[index]
        assert both("models.checking") in card["html"]
        await tab.models.ask("cancel", wish)
        tab.let_go.set()
        return await checking

    assert run(story())["models"]["check"] == NO_CARD and not tab.engine.changes


def test_a_load_changes_the_pair_and_says_so(tab: Tab) -> None:
    tab.load("owner/large")
    after = tab.settled()
    pair, change, card = after["pair"], after["change"], after["check"]["html"]
    assert pair["number"] == 2 and pair["wish"]["target"] == "owner/large" and not change["going"]
    assert all("owner/large" in words for words in (pair["html"], pair["announced"], change["title"]))
    assert both("models.verdict.slow") in card and both("check.memory_beside.try") in card, "without the pair in use"
    assert tab.ask(session="s2")["change"] is None, "others hear of the pair alone"
    assert tab.ask("close")["change"] is None


def test_what_fails_or_is_refused_leaves_the_old_pair(tab: Tab) -> None:
    bad = tab.load("owner/bad")
    assert bad["notice"] == both("models.refused") and both("models.verdict.cannot") in bad["check"]["html"]
    tab.engine.state = Status(State.FAILED, "")
    assert tab.load(number=2)["notice"] == both("models.refusal", message="The engine is still loading: wait for it.")
    assert not tab.engine.changes
    tab.engine.state, tab.engine.change_fails = Status(State.READY, ""), "The file is cut short: fetch it again."
    tab.load(number=3)
    said = tab.settled()
    assert tab.engine.change_fails in said["change"]["title"] and said["pair"]["number"] == 1


def test_progress_is_told_to_everybody_and_one_change_runs_at_a_time(tab: Tab) -> None:
    tab.engine.hold_change = SwapPhase.WAITING
    live = Live()
    tab.models.handlers.sessions.join(live)
    tab.load()
    until(lambda: tab.engine.changes[-1].status().phase is SwapPhase.WAITING)
    for session in ("s1", "s2"):
        change = tab.ask(session=session)["change"]
        assert change["going"] and change["mine"] and change["bar"] == 0.5 and "owner/new" in change["title"]
        assert both("models.phase.waiting", count=1) in change["far"]
    assert tab.load(session="s2")["notice"] == both("models.busy") and len(tab.engine.changes) == 1
    tab.ask("cancel")
    said = tab.settled()
    assert said["change"]["title"] == both("models.cancelled") and said["pair"]["number"] == 1


def test_served_only_known_pairs_and_the_folder_can_be_named(served: Tab, tmp_path: Path) -> None:
    for number, wish in enumerate(({"target": "owner/new"}, {"target": "embedded", "drafter": "/etc"}), 1):
        name = wish.get("drafter", "owner/new")
        assert served.ask("load", number=number, wish=wish)["notice"] == both("models.forbidden", name=name)
    assert not served.checked and not served.engine.changes
    served.engine.change_fails = f"{tmp_path}/one.gguf is cut short."
    said = [served.load("one.gguf", number=3, drafter="ngram"), served.settled()]
    assert served.checked == [EngineConfig(str(tmp_path / "one.gguf"), "ngram")]
    assert str(tmp_path) not in str(said) and "one.gguf is cut short" in said[1]["change"]["title"]
    served.engine.config = EngineConfig("/home/somebody/model")
    assert served.ask()["pair"]["wish"] is None


def test_served_a_change_is_called_off_only_by_whoever_asked_for_it(served: Tab) -> None:
    served.engine.hold_change = SwapPhase.LOADING
    served.load("one.gguf")
    assert not served.ask(session="s2")["change"]["mine"]
    served.ask("cancel", "s2")
    assert served.ask()["change"]["going"] and not served.engine.changes[-1].cancelled
    served.ask("cancel")
    served.settled()
    assert served.engine.changes[-1].status().phase is SwapPhase.CANCELLED


def test_the_chat_goes_on_with_the_new_pair() -> None:
    engine = FakeEngine(hold_after=0)
    handlers = Handlers(engine, Options())

    async def story() -> Any:
        id_ = handlers.sync("")["conversation"]
        for asked, begun in (("Other", "FakeLM-1M"), ("<New>", "<New>")):
            engine.target = asked
            async for _ in handlers.send(id_, "hello", VALUES):
                engine.target = begun
                engine.gate.set()
        return handlers.sync(id_)["turns"]

    turns = run(story())
    assert [turn["about"]["target"] for turn in turns] == ["FakeLM-1M", "<New>"]
    assert [turn["between"] for turn in turns] == ["", both("models.between", name="<New> (GGUF Q4_1)")]
    engine.config, engine.drafters = replace(engine.config, drafter="none"), ("none", "ngram", "draft_model")
    [drafter] = [control for control in handlers.table() if control.name == "drafter"]
    assert drafter.default == "none" and "draft_model" in drafter.choices
