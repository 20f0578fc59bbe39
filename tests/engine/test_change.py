"""Another pair in place of the one in use: no reply is interrupted, and on failure nothing has happened."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
import torch

from engine.config import DecodingParams, EngineConfig, SamplingParams
from engine.errors import Busy, LoadError, NotReady
from engine.events import FinishReason
from engine.lab import ExperimentName
from engine.lab.load_lab import LoadLab
from engine.lab.results import Failed
from engine.serving import engine as module
from engine.serving.engine import Engine, State
from engine.serving.jobs import ReplyJob
from engine.serving.load_pair import ModelPair
from engine.serving.served_pair import ServedPair
from engine.serving.stream import Stream
from engine.serving.swap import Swap, SwapPhase
from tests.fakes import FakeLoaded, FakeNetwork, byte_tokenizer, finished, hashed_logits, noisy, say

LANGUAGES = {name: hashed_logits(257, seed) for seed, name in enumerate(("old", "new"))}
NEW = EngineConfig("new")


class World:
    """Loads pairs by name: `held` holds a load of that name, `fails` breaks it, `pause` holds a reply."""

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.fails: dict[str, Exception] = {}
        self.held: dict[str, threading.Event] = {}
        self.reached, self.pause, self.writes = threading.Event(), threading.Event(), threading.Event()
        self.pause.set()
        self.torch_threads: list[int] = []
        self.engine = Engine(EngineConfig("old"), self.load)
        assert self.engine.wait_ready(60).state is State.READY

    def load(self, config: EngineConfig, progress: Callable[[str, float | None], None]) -> ModelPair:
        progress("load", 0.5)
        self.loaded.append(config.target)
        if gate := self.held.get(config.target):
            self.reached.set()
            assert gate.wait(60)
            progress("load", 1.0)
        if error := self.fails.get(config.target):
            raise error

        def speaks(ids: tuple[int, ...]) -> np.ndarray:
            self.torch_threads.append(torch.get_num_threads())
            if len(ids) > 40:
                self.writes.set()
                assert self.pause.wait(60)
            row = LANGUAGES[config.target](ids).copy()
            row[256] = -50.0
            return row

        target = FakeLoaded(FakeNetwork(257, speaks), byte_tokenizer(), name=config.target)
        drafter = FakeLoaded(FakeNetwork(257, noisy(speaks, 257, 0.5)), byte_tokenizer())
        return ModelPair(target, drafter if config.drafter == "m" else None)  # type: ignore[arg-type]

    def ask(self, prompt: str = "hello", drafter: str = "auto", conversation: str = "") -> Stream:
        params = DecodingParams(SamplingParams(seed=1), drafter, max_new_tokens=30)
        return self.engine.stream(say(prompt), params, conversation)

    def text(self, prompt: str = "hello") -> str:
        return finished(list(self.ask(prompt))).text

    def target(self) -> tuple[str, int]:
        facts = self.engine.facts()
        assert facts.target == self.engine.config.target
        return facts.target, facts.pair

    def waiting(self, config: EngineConfig = NEW) -> tuple[Stream, Swap]:
        """A reply that is being written, up to where `pause` holds it, and a pair that waits for its end."""
        self.writes.clear()
        self.pause.clear()
        running = self.ask()
        assert self.writes.wait(60)
        swap = self.engine.swap(config)
        with swap._changed:
            assert swap._changed.wait_for(lambda: swap.status().phase is SwapPhase.WAITING, 60)
        return running, swap

    def loading(self, config: EngineConfig = NEW) -> Swap:
        """A pair that is being loaded, until `held` lets it go on."""
        self.held[config.target] = threading.Event()
        swap = self.engine.swap(config)
        assert self.reached.wait(60)
        return swap

    def change(self, config: EngineConfig = NEW) -> SwapPhase:
        return self.engine.swap(config).wait(60).phase

    def short_of_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """There is memory for one pair at a time."""
        monkeypatch.setattr(module, "makes_room", lambda *_: True)
        self.engine._checks_memory = True


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    for gate in (made.pause, *made.held.values()):
        gate.set()
    made.engine.close()


def test_the_next_reply_is_the_new_pairs_and_of_the_old_ones_nothing_is_left(world: World) -> None:
    old, gone = world.text(), []
    for turn, name in enumerate(("new", "old") * 2, 2):
        gone.append(weakref.ref(world.engine.served_pair().pair.target))
        assert world.change(EngineConfig(name, drafter="m")) is SwapPhase.DONE
        assert world.target() == (name, turn) and "draft_model" in world.engine.facts().drafters
        assert (world.text() == old) == (name == "old")
    assert world.loaded == ["old", "new", "old", "new", "old"]
    gc.collect()
    assert [ref() for ref in gone] == [None] * 4


def test_a_running_reply_is_written_to_its_end_by_the_pair_that_began_it(world: World) -> None:
    """What comes meanwhile is read again by the new pair: for a drafter that has gone, by what there is."""
    alone = world.text()
    assert world.change(EngineConfig("old", drafter="m")) is SwapPhase.DONE
    params = DecodingParams(SamplingParams(seed=1), max_new_tokens=30)
    stream = Stream()
    job = ReplyJob.create(world.engine.served_pair(), say("hello"), params, "", [stream])
    running, swap = world.waiting()
    late = [world.ask(), world.ask(drafter="draft_model")]
    experiment = LoadLab(world.engine).experiment(ExperimentName.LENGTH)
    assert world.target()[0] == "old"
    world.pause.set()
    assert finished(list(running)).text == alone
    assert swap.wait(60).phase is SwapPhase.DONE
    world.engine.submit(job)  # read by the old pair just before it went
    new = world.text()
    assert {finished(list(reply)).text for reply in (*late, stream)} == {new} != {alone}
    last = list(experiment)[-1]
    assert isinstance(last, Failed) and "once more" in last.message


def test_a_pair_that_cannot_be_used_leaves_the_old_one_as_it_was(world: World) -> None:
    list(world.ask(conversation="c"))
    before, served = world.text(), world.engine.served_pair()
    served.pair = replace(served.pair, torch_threads=2)

    def breaks(*_: object) -> None:
        torch.set_num_threads(1)
        raise RuntimeError("out of memory")

    def failed(said: str) -> bool:
        status = world.engine.swap(NEW).wait(60)
        assert status.phase is SwapPhase.FAILED and said in status.message
        assert world.target() == ("old", 1) and world.engine.status().state is State.READY
        assert world.engine.served_pair() is served and served.pool.nbytes, "its conversations are remembered"
        return world.text() == before

    for error, said in ((LoadError("There is none."), "There is none."), (MemoryError("x"), "MemoryError")):
        world.fails["new"] = error
        assert failed(said)
    world.fails.clear()
    world.torch_threads.clear()
    with patch.object(module, "start_pair", breaks):  # its first pass
        assert failed("out of memory") and {*world.torch_threads} == {2}
    assert world.change() is SwapPhase.DONE


def test_whatever_breaks_when_a_request_is_read_again_ends_that_request_alone(world: World) -> None:
    running, swap = world.waiting()
    late = world.ask("no")
    with patch.object(ServedPair, "request", side_effect=ZeroDivisionError):
        world.pause.set()
        assert finished(list(running)).reason is FinishReason.LENGTH
        assert finished(list(late)).reason is FinishReason.ERROR
    assert swap.wait(60).phase is SwapPhase.DONE and world.text()


def test_replies_go_on_while_the_other_pair_is_loaded_and_called_off_it_is_thrown_away(world: World) -> None:
    swap = world.loading()
    before = world.text()
    assert (swap.status().phase, swap.status().fraction) == (SwapPhase.LOADING, 0.5)
    with pytest.raises(Busy):
        world.engine.swap(NEW)
    swap.cancel()
    assert swap.status().phase is SwapPhase.CANCELLED
    again = world.engine.swap(EngineConfig("old"))  # waits for the load that nobody wants any more
    world.held["new"].set()
    assert again.wait(60).phase is SwapPhase.DONE
    swap.cancel()
    assert swap.status().phase is SwapPhase.CANCELLED and world.target() == ("old", 2) and world.text() == before


@pytest.mark.parametrize("makes_room", [False, True])
def test_called_off_while_it_waits_for_a_reply(world: World, makes_room: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if makes_room:
        world.short_of_memory(monkeypatch)
    running, swap = world.waiting()
    late = world.ask("another")
    swap.cancel()
    world.pause.set()
    assert finished(list(running)).reason is FinishReason.LENGTH
    assert finished(list(late)).text == world.text("another")
    assert world.target() == ("old", 1) and swap.wait(60).phase is SwapPhase.CANCELLED
    assert world.loaded == (["old"] if makes_room else ["old", "new"])
    assert world.change() is SwapPhase.DONE


def test_where_memory_is_short_the_old_pair_goes_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.short_of_memory(monkeypatch)
    world.held["new"] = threading.Event()
    running, swap = world.waiting()
    late, old = world.ask(), weakref.ref(world.engine.served_pair().pair.target)
    world.pause.set()
    list(running)
    assert world.reached.wait(60)
    gc.collect()
    assert old() is None
    assert world.engine.status().state is State.LOADING and swap.status().made_room
    with pytest.raises(NotReady):
        world.ask()
    world.held["new"].set()
    assert finished(list(late)).text == world.text() and swap.wait(60).phase is SwapPhase.DONE
    assert world.target() == ("new", 2)


@pytest.mark.parametrize("end", ["cancelled", "fails", "both fail"])
def test_where_it_made_room_for_nothing_the_old_one_is_loaded_again(
    world: World, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.short_of_memory(monkeypatch)
    before = world.text()
    swap = world.loading()
    if end == "cancelled":
        swap.cancel()
        assert not swap.status().over, "not before the old one is back"
    else:
        world.fails = {"new": LoadError("It is damaged.")}
    if end == "both fail":
        world.fails["old"] = LoadError("The disk is gone.")
    world.held["new"].set()
    status = swap.wait(60)
    assert status.phase is (SwapPhase.CANCELLED if end == "cancelled" else SwapPhase.FAILED)
    assert status.message == ("" if end == "cancelled" else "It is damaged.")
    if end == "both fail":
        assert world.engine.status().state is State.FAILED and world.engine.status().message == "The disk is gone."
        return
    assert world.engine.status().state is State.READY and world.target()[0] == "old"
    assert world.text() == before and world.loaded == ["old", "new", "old"]


@pytest.mark.parametrize("at", ["waiting", "waiting for room", "loading"])
def test_closing_the_engine_ends_a_change_and_loads_nothing_again(
    world: World, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if at != "waiting":
        world.short_of_memory(monkeypatch)
        world.held["new"] = threading.Event()
    running, swap = world.waiting()
    late, loaded = world.ask(), list(world.loaded)
    if at == "loading":
        world.pause.set()
        assert world.reached.wait(60)
        loaded.append("new")
    closing = threading.Thread(target=world.engine.close)
    closing.start()
    with world.engine._changed:
        assert world.engine._changed.wait_for(lambda: world.engine.status().state is State.CLOSED, 60)
    for gate in (world.pause, *world.held.values()):
        gate.set()
    closing.join(60)
    assert swap.wait(60).phase is SwapPhase.CANCELLED
    assert finished(list(late)).reason is (FinishReason.ERROR if at == "loading" else FinishReason.CANCELLED)
    assert finished(list(running)) and world.loaded == loaded
    with pytest.raises(NotReady):
        world.engine.swap(NEW)


def test_when_it_is_over_it_stays_as_it_is() -> None:
    for end in (SwapPhase.DONE, SwapPhase.FAILED, SwapPhase.CANCELLED):
        swap = Swap(NEW, lambda: None)
        swap.tell(end, message="So it ended.")
        swap.tell(SwapPhase.WAITING)
        swap.cancel()
        assert (swap.status().phase, swap.status().message) == (end, "So it ended.")
