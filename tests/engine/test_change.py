"""Another pair in place of the one in use: no reply is interrupted, and on failure nothing has happened."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.config import DecodingParams, EngineConfig, Message, SamplingParams
from engine.errors import Busy, LoadError, NotReady
from engine.events import Finished, FinishReason
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
from tests.fakes import FakeLoaded, FakeNetwork, LogitsOf, byte_tokenizer, finished, hashed_logits, noisy, say

LANGUAGES = {name: hashed_logits(257, seed) for seed, name in enumerate(("old", "new"))}


class World:
    """Loads pairs by name, as told: `wait` holds a load of that name, `fails` breaks it, `pause` holds a reply."""

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.fails: dict[str, Exception] = {}
        self.held, self.reached = {"": threading.Event()}, threading.Event()
        self.pause, self.writes = threading.Event(), threading.Event()
        self.pause.set()
        self.drafter: LogitsOf | None = None
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
        language = LANGUAGES[config.target]

        def speaks(ids: tuple[int, ...]) -> np.ndarray:
            if len(ids) > 40:
                self.writes.set()
                assert self.pause.wait(60)
            row = language(ids).copy()
            row[256] = -50.0
            return row

        target = FakeLoaded(FakeNetwork(257, speaks), byte_tokenizer(), name=config.target)
        draft = (
            FakeLoaded(FakeNetwork(257, noisy(speaks, 257, 0.5)), byte_tokenizer()) if config.drafter == "m" else None
        )
        return ModelPair(target, draft)  # type: ignore[arg-type]

    def ask(self, prompt: str = "hello", n: int = 30, drafter: str = "auto", conversation: str = "") -> Stream:
        params = DecodingParams(SamplingParams(seed=1), drafter, max_new_tokens=n)
        return self.engine.stream(say(prompt), params, conversation)

    def writing(self) -> Stream:
        """A reply that is being written, up to where `pause` holds it."""
        self.writes.clear()
        stream = self.ask()
        assert self.writes.wait(60)
        return stream

    def text(self, prompt: str = "hello") -> str:
        return finished(list(self.ask(prompt))).text

    def settled(self, swap: Swap) -> SwapPhase:
        return swap.wait(60).phase


@pytest.fixture
def world():  # type: ignore[no-untyped-def]
    made = World()
    yield made
    made.pause.set()
    for gate in made.held.values():
        gate.set()
    made.engine.close()


def until(phase: SwapPhase, swap: Swap) -> None:
    with swap._changed:
        assert swap._changed.wait_for(lambda: swap.status().phase is phase, 60)


def test_the_next_reply_is_the_new_pairs_and_its_facts_too(world: World) -> None:
    before = world.text()
    assert world.settled(world.engine.swap(EngineConfig("new", drafter="m"))) is SwapPhase.DONE
    facts = world.engine.facts()
    assert (facts.target, facts.pair, world.engine.config.target) == ("new", 2, "new")
    assert "draft_model" in facts.drafters
    after = world.text()
    assert after != before
    assert world.settled(world.engine.swap(EngineConfig("old"))) is SwapPhase.DONE
    assert world.text() == before and world.engine.facts().pair == 3
    assert world.loaded == ["old", "new", "old"]


def test_a_running_reply_is_written_to_its_end_by_the_pair_that_began_it(world: World) -> None:
    alone = world.text()
    world.pause.clear()
    running = world.writing()
    swap = world.engine.swap(EngineConfig("new"))
    until(SwapPhase.WAITING, swap)
    late = world.ask()  # read by the old pair, written by the new
    assert world.engine.facts().target == "old"
    world.pause.set()
    assert finished(list(running)).text == alone
    assert world.settled(swap) is SwapPhase.DONE
    assert finished(list(late)).text == world.text() != alone


def test_replies_go_on_while_the_other_pair_is_loaded(world: World) -> None:
    world.held["new"] = threading.Event()
    swap = world.engine.swap(EngineConfig("new"))
    assert world.reached.wait(60)
    assert world.text() and swap.status().phase is SwapPhase.LOADING and swap.status().fraction == 0.5
    with pytest.raises(Busy):
        world.engine.swap(EngineConfig("new"))
    world.held["new"].set()
    assert world.settled(swap) is SwapPhase.DONE


@pytest.mark.parametrize("error", [LoadError("There is no model new."), RuntimeError("shape"), MemoryError("none")])
def test_a_pair_that_cannot_be_loaded_leaves_the_old_one_as_it_was(world: World, error: Exception) -> None:
    list(world.ask(conversation="c"))
    caches = world.engine._served_pair.pool
    before = world.text()
    world.fails["new"] = error
    swap = world.engine.swap(EngineConfig("new"))
    assert world.settled(swap) is SwapPhase.FAILED
    message = swap.status().message
    assert message == str(error) if isinstance(error, LoadError) else type(error).__name__ in message
    assert world.engine.facts().target == world.engine.config.target == "old" and world.engine.facts().pair == 1
    assert world.engine._served_pair.pool is caches and caches.nbytes  # and its conversations are remembered
    assert world.text() == before
    del world.fails["new"]
    assert world.settled(world.engine.swap(EngineConfig("new"))) is SwapPhase.DONE


def test_a_pair_whose_first_pass_breaks_leaves_the_old_one_in_use(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = world.text()

    def breaks(*_: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(module, "start_pair", breaks)
    assert world.settled(world.engine.swap(EngineConfig("new"))) is SwapPhase.FAILED
    assert world.text() == before and world.engine.status().state is State.READY


def test_a_pair_that_does_not_begin_leaves_torch_the_threads_of_the_old_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = world.engine._served_pair
    served.pair = replace(served.pair, torch_threads=2)
    used = []

    def breaks(*_: object) -> None:
        torch.set_num_threads(1)
        raise RuntimeError("out of memory")

    def speaks(ids: tuple[int, ...]) -> np.ndarray:
        used.append(torch.get_num_threads())
        return LANGUAGES["old"](ids)

    served.pair.target.network.logits_of = speaks
    monkeypatch.setattr(module, "start_pair", breaks)
    assert world.settled(world.engine.swap(EngineConfig("new"))) is SwapPhase.FAILED
    world.text()
    assert set(used) == {2}


def test_a_request_that_comes_just_after_it_was_read_is_read_again_by_the_new_pair(world: World) -> None:
    stream, before = Stream(), world.text()
    params = DecodingParams(SamplingParams(seed=1), max_new_tokens=30)
    job = ReplyJob.create(world.engine.served_pair(), say("hello"), params, "", [stream])
    assert world.settled(world.engine.swap(EngineConfig("new"))) is SwapPhase.DONE
    world.engine.submit(job)
    assert finished(list(stream)).text == world.text() != before


def test_whatever_breaks_when_a_request_is_read_again_ends_that_request_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.pause.clear()
    running = world.writing()
    swap = world.engine.swap(EngineConfig("new"))
    until(SwapPhase.WAITING, swap)
    late = world.ask("no")
    request = ServedPair.request

    def refuses(served: ServedPair, messages: Sequence[Message], params: DecodingParams) -> object:
        if messages[-1].content == "no":
            raise ZeroDivisionError
        return request(served, messages, params)

    monkeypatch.setattr(ServedPair, "request", refuses)
    world.pause.set()
    list(running)
    assert finished(list(late)).reason is FinishReason.ERROR
    assert world.settled(swap) is SwapPhase.DONE and world.text()


def test_of_the_pairs_that_were_in_use_nothing_is_left(world: World) -> None:
    gone = []
    for name in ("new", "old") * 3:
        world.text()
        gone.append(weakref.ref(world.engine._served_pair.pair.target))
        assert world.settled(world.engine.swap(EngineConfig(name))) is SwapPhase.DONE
    world.text()
    gc.collect()
    assert [ref() for ref in gone] == [None] * 6


def test_called_off_while_it_loads_it_is_over_at_once_and_its_load_is_thrown_away(world: World) -> None:
    before = world.text()
    world.held["new"] = threading.Event()
    swap = world.engine.swap(EngineConfig("new"))
    assert world.reached.wait(60)
    swap.cancel()
    assert swap.status().phase is SwapPhase.CANCELLED
    again = world.engine.swap(EngineConfig("old"))  # waits for the load that nobody wants any more
    world.held["new"].set()
    assert world.settled(again) is SwapPhase.DONE
    swap.cancel()
    assert swap.status().phase is SwapPhase.CANCELLED and world.engine.facts().pair == 2
    assert world.text() == before


def test_called_off_while_it_waits_for_a_reply(world: World) -> None:
    world.pause.clear()
    running = world.writing()
    swap = world.engine.swap(EngineConfig("new"))
    until(SwapPhase.WAITING, swap)
    late = world.ask("another")
    swap.cancel()
    world.pause.set()
    assert finished(list(running)).reason is FinishReason.LENGTH
    assert finished(list(late)).text == world.text("another")
    assert world.engine.facts().target == "old" and swap.status().phase is SwapPhase.CANCELLED


def test_a_waiting_request_for_a_drafter_that_has_gone_is_drafted_by_what_there_is(world: World) -> None:
    assert world.settled(world.engine.swap(EngineConfig("new", drafter="m"))) is SwapPhase.DONE
    world.pause.clear()
    running = world.writing()
    swap = world.engine.swap(EngineConfig("old"))
    until(SwapPhase.WAITING, swap)
    late = world.ask(drafter="draft_model")
    world.pause.set()
    list(running)
    assert finished(list(late)).text == world.text() and world.engine.facts().target == "old"


def test_an_experiment_that_waited_says_that_it_is_of_the_past(world: World) -> None:
    world.pause.clear()
    running = world.writing()
    swap = world.engine.swap(EngineConfig("new"))
    until(SwapPhase.WAITING, swap)
    reports = LoadLab(world.engine).experiment(ExperimentName.LENGTH)
    world.pause.set()
    list(running)
    assert world.settled(swap) is SwapPhase.DONE
    last = list(reports)[-1]
    assert isinstance(last, Failed) and "once more" in last.message
    assert world.text()


class Short(World):
    """There is memory for one pair at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "makes_room", lambda *_: True)
        super().__init__()
        self.engine._checks_memory = True


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    made = Short(monkeypatch)
    yield made
    for gate in made.held.values():
        gate.set()
    made.engine.close()


def test_where_memory_is_short_the_old_pair_goes_first(short: Short) -> None:
    short.held["new"] = threading.Event()
    swap = short.engine.swap(EngineConfig("new"))
    assert short.reached.wait(60)
    assert (
        short.engine._served_pair is None and short.engine.status().state is State.LOADING and swap.status().made_room
    )
    with pytest.raises(NotReady):
        short.ask()
    short.held["new"].set()
    assert short.settled(swap) is SwapPhase.DONE
    assert short.engine.facts().target == "new" and short.text()


@pytest.mark.parametrize("cancelled", [False, True])
def test_where_it_made_room_for_nothing_it_is_loaded_again(short: Short, cancelled: bool) -> None:
    before = short.text()
    short.held["new"] = threading.Event()
    if not cancelled:
        short.fails["new"] = LoadError("It is damaged.")
    swap = short.engine.swap(EngineConfig("new"))
    assert short.reached.wait(60)
    if cancelled:
        swap.cancel()
        assert not swap.status().over  # not before the old one is back
    short.held["new"].set()
    assert short.settled(swap) is (SwapPhase.CANCELLED if cancelled else SwapPhase.FAILED)
    assert short.engine.status().state is State.READY and short.engine.facts().target == "old"
    assert short.text() == before and short.loaded == ["old", "new", "old"]


def test_where_not_even_the_old_one_can_be_loaded_again_everybody_is_told(short: Short) -> None:
    short.held["new"] = threading.Event()
    swap = short.engine.swap(EngineConfig("new"))
    assert short.reached.wait(60)
    short.fails = {"new": LoadError("It is damaged."), "old": LoadError("The disk is gone.")}
    short.held["new"].set()
    assert short.settled(swap) is SwapPhase.FAILED and swap.status().message == "It is damaged."
    assert short.engine.status().state is State.FAILED and short.engine.status().message == "The disk is gone."


def test_where_memory_is_short_nothing_of_the_old_pair_is_held_while_the_other_is_loaded(short: Short) -> None:
    short.held["new"] = threading.Event()
    short.pause.clear()
    running = short.writing()
    old = weakref.ref(short.engine._served_pair.pair.target)
    swap = short.engine.swap(EngineConfig("new"))
    until(SwapPhase.WAITING, swap)
    late = short.ask()
    short.pause.set()
    list(running)
    assert short.reached.wait(60)
    gc.collect()
    assert old() is None
    short.held["new"].set()
    assert finished(list(late)).text == short.text() and short.settled(swap) is SwapPhase.DONE


def test_one_that_will_have_to_make_room_can_be_called_off_while_it_waits(short: Short) -> None:
    short.pause.clear()
    running = short.writing()
    swap = short.engine.swap(EngineConfig("new"))
    until(SwapPhase.WAITING, swap)
    swap.cancel()
    short.pause.set()
    list(running)
    assert short.settled(swap) is SwapPhase.CANCELLED and short.loaded == ["old"]
    assert short.settled(short.engine.swap(EngineConfig("new"))) is SwapPhase.DONE


@pytest.mark.parametrize("loads", [False, True])
def test_closing_the_engine_ends_one_that_makes_room_and_loads_nothing_again(short: Short, loads: bool) -> None:
    short.pause.clear()
    short.held["new"] = threading.Event()
    running = short.writing()
    swap = short.engine.swap(EngineConfig("new"))
    until(SwapPhase.WAITING, swap)
    late = short.ask()
    if loads:
        short.pause.set()
        assert short.reached.wait(60)
    closing = threading.Thread(target=short.engine.close)
    closing.start()
    with short.engine._changed:
        assert short.engine._changed.wait_for(lambda: short.engine.status().state is State.CLOSED, 60)
    short.pause.set()
    short.held["new"].set()
    closing.join(60)
    assert short.settled(swap) is SwapPhase.CANCELLED
    assert finished(list(late)).reason is (FinishReason.ERROR if loads else FinishReason.CANCELLED)
    assert finished(list(running)) and short.loaded == ["old", "new"][: 1 + loads]


def test_closing_the_engine_ends_a_change(world: World) -> None:
    world.pause.clear()
    running = world.writing()
    swap = world.engine.swap(EngineConfig("new"))
    until(SwapPhase.WAITING, swap)
    world.pause.set()
    world.engine.close()
    assert swap.wait(60).over
    last = list(running)[-1]
    assert isinstance(last, Finished)
    with pytest.raises(NotReady):
        world.engine.swap(EngineConfig("new"))


@pytest.mark.parametrize("end", [SwapPhase.DONE, SwapPhase.FAILED, SwapPhase.CANCELLED])
def test_when_it_is_over_it_stays_as_it_is(end: SwapPhase) -> None:
    swap = Swap(EngineConfig("new"), lambda: None)
    swap.tell(end, message="So it ended.")
    swap.tell(SwapPhase.WAITING)
    swap.cancel()
    assert (swap.status().phase, swap.status().message) == (end, "So it ended.")
