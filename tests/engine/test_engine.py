"""The engine thread: many readers, one worker, nobody in another's way."""

from __future__ import annotations

import gc
import itertools
import threading
import weakref

import numpy as np
import pytest

from engine.config import DecodingParams, EngineConfig, SamplingParams
from engine.control.profiling import measure
from engine.errors import Busy, ContextFull, InvalidParams, LoadError, NotReady
from engine.events import Event, FinishReason, Prefilled
from engine.networks.kv_cache import KVCache
from engine.networks.model import Model
from engine.serving.engine import Engine, State
from engine.serving.job_queue import MAX_ACTIVE
from engine.serving.jobs import ReplyJob
from engine.serving.load_pair import ModelPair
from tests.fakes import FakeNetwork, Gate, endless, fake_engine, finished, noisy, rounds, say


def params(n: int = 30, **more: object) -> DecodingParams:
    return DecodingParams(SamplingParams(seed=4), max_new_tokens=n, **more)  # type: ignore[arg-type]


def test_eight_readers_at_once_get_what_each_would_get_alone() -> None:
    """Half of them watch a race."""
    engine = fake_engine(endless, noisy(endless, 257, 0.5))
    asked = [(say(f"question {i}" * (i + 1)), params(drafter=("ngram", "draft_model")[i % 2])) for i in range(8)]
    alone = [finished(list(engine.stream(*request))) for request in asked]
    results: dict[int, list[list[Event]]] = {}

    def ask(i: int) -> None:
        if i < 4:
            results[i] = [list(engine.stream(*asked[i], conversation=f"c{i % 3}"))]
        else:
            race = engine.race(*asked[i], conversation=f"c{i % 3}")
            results[i] = [list(race.plain), list(race.speculative)]

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [{*map(finished, results[i])} for i in range(8)] == [{end} for end in alone]
    engine.close()


def test_chats_and_a_race_take_turns() -> None:
    """By the order of the passes, the first of which are held until all have been asked for."""
    order: list[str] = []
    gate = Gate(40)

    def noted(ids: tuple[int, ...]) -> np.ndarray:
        order.append(next((name for name in "ABC" if ord(name) in ids[:10]), ""))
        return gate(ids)

    engine = fake_engine(noted)
    order.clear()
    streams = [engine.stream(say(name), params(200, probe_every=0)) for name in "AB"]
    streams.append(engine.race(say("C"), params(200)).plain)
    gate.open.set()
    assert [len(finished(list(stream)).token_ids) for stream in streams] == [200] * 3
    last = {name: len(order) - order[::-1].index(name) for name in "ABC"}
    assert max(map(order.index, "ABC")) < min(last.values())
    engine.close()


def test_cancel_or_leaving_ends_one_reply_and_no_other() -> None:
    gate = Gate(60)
    engine = fake_engine(gate)
    cancelled, others = (engine.stream(say(name), params(100), conversation=name) for name in "ab")
    with engine.stream(say("c"), params(500)) as left:
        assert gate.reached.wait(60)
    cancelled.cancel()
    gate.open.set()
    assert [finished(list(stream)).reason for stream in (cancelled, left)] == [FinishReason.CANCELLED] * 2
    assert finished(list(others)).reason is FinishReason.LENGTH
    engine.close()


def test_who_waits_can_leave_and_a_full_queue_says_so() -> None:
    gate = Gate(60)
    engine = fake_engine(gate, max_waiting=2)
    streams = [engine.stream(say("a"), params(100)) for _ in range(2)]
    assert gate.reached.wait(60)  # from here on the engine thread stands still, so the queue only fills
    with pytest.raises(Busy, match="try again"):  # noqa: PT012
        for _ in range(MAX_ACTIVE + 3):
            streams.append(engine.race(say("b"), params(10)).speculative)
    streams[-1].cancel()
    gate.open.set()
    events = [list(stream) for stream in streams]
    *others, last = [finished(each).reason for each in events]
    assert {*others} == {FinishReason.LENGTH} and last is FinishReason.CANCELLED
    assert all(event.queued_s > 0 for event in events[-2] if isinstance(event, Prefilled))
    engine.close()


def test_what_cannot_run_is_refused_before_it_runs() -> None:
    engine = fake_engine(endless, max_new_tokens=64)
    for message, asked, words in (
        ("a", params(drafter="draft_model"), "drafter"),
        ("a", params(65), "64"),
        ("a", DecodingParams(SamplingParams(logit_bias=((300, 1.0),)), max_new_tokens=5), "logit_bias"),
        ("x" * 5000, params(), "4096"),
    ):
        for ask in (engine.stream, engine.race):
            with pytest.raises((InvalidParams, ContextFull), match=words):
                ask(say(message), asked)
    assert engine.count_tokens(say("x" * 5000)) > 5000 and not engine._queue.waiting
    assert finished(list(engine.stream(say("still alive"), params()))).reason is FinishReason.LENGTH
    engine.close()


def test_a_reply_that_cannot_even_begin_does_not_take_the_engine_down(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = fake_engine(endless)
    monkeypatch.delattr(ReplyJob, "begin")
    broken = finished(list(engine.stream(say("a"), params())))
    assert broken.reason is FinishReason.ERROR and "try again" in broken.message and "None" not in broken.message
    monkeypatch.undo()
    assert finished(list(engine.stream(say("b"), params()))).reason is FinishReason.LENGTH
    engine.close()


@pytest.mark.parametrize("error", [LoadError("No network: connect and start again."), RuntimeError("odd")])
def test_a_failed_load_is_a_status_with_a_sentence(error: Exception) -> None:
    def load(config: EngineConfig, progress: object) -> ModelPair:
        raise error

    engine = Engine(EngineConfig(), load)
    status = engine.wait_ready(60)
    assert status.state is State.FAILED and str(error) in status.message
    for ask in (engine.stream, engine.race):
        with pytest.raises(NotReady, match=str(error).split(":")[0]):
            ask(say("a"), params())
    engine.close()


def test_closing_ends_every_reply_keeps_what_was_written_and_does_not_wait_for_a_load() -> None:
    gate = Gate(60)
    engine = fake_engine(gate)
    streams = [engine.stream(say("a"), params(500)) for _ in range(4)]
    races = [engine.race(say("a"), params(500)) for _ in range(2)]  # more than may run at once
    assert gate.reached.wait(60)
    closing = threading.Thread(target=engine.close)
    closing.start()
    with engine._changed:
        assert engine._changed.wait_for(lambda: engine.status().state is State.CLOSED, 60)
    gate.open.set()
    ends = [
        finished(list(stream)) for stream in (*streams, *(lane for r in races for lane in (r.plain, r.speculative)))
    ]
    closing.join(60)
    assert {end.reason for end in ends} == {FinishReason.CANCELLED} and any(len(end.token_ids) > 20 for end in ends)
    with pytest.raises(NotReady, match="closed"):
        engine.stream(say("a"), params())
    engine.close()

    loading, release = threading.Event(), threading.Event()

    def load(config: EngineConfig, progress: object) -> ModelPair:
        loading.set()
        release.wait(60)
        raise LoadError("late")

    slow = Engine(EngineConfig(), load)
    assert loading.wait(60)
    slow.close()  # returns although the load goes on
    assert not release.is_set() and slow.status().state is State.CLOSED
    release.set()


def test_a_finished_reply_gives_its_memory_back_without_a_garbage_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = fake_engine(endless, noisy(endless, 257, 0.5))
    list(engine.stream(say("warm up"), params()))
    made: list[weakref.ref[KVCache]] = []
    acquire = engine.served_pair().pool.acquire

    def noted(*args: object) -> KVCache:
        cache = acquire(*args)  # type: ignore[arg-type]
        made.append(weakref.ref(cache))
        return cache

    monkeypatch.setattr(engine.served_pair().pool, "acquire", noted)
    gc.disable()
    try:
        for drafter in ("ngram", "draft_model", "ngram"):  # with the last the thread lets go of those before
            list(engine.stream(say("hello"), params(drafter=drafter)))
        assert [cache() for cache in made[:3]] == [None] * 3 and len(made) == 4
    finally:
        gc.enable()
    engine.close()


def test_each_drafter_drafts_where_it_is_asked_for_and_changes_no_text() -> None:
    """And "auto" is the best that there is."""
    good = noisy(endless, 257, 0.3)
    plain = None
    for pair, names in (
        ({"head": good, "drafter": good}, ("none", "ngram", "head", "both", "draft_model")),
        ({"drafter": good}, ("none", "ngram", "draft_model")),
        ({}, ("none", "ngram")),
    ):
        engine = fake_engine(endless, **pair)
        assert engine.facts().drafters == names
        for drafter, k in itertools.product((*names, "auto"), (None, 0, 3)):
            asked = params(60, drafter=drafter, num_speculative_tokens=k)
            events = list(engine.stream(say("hello, hello"), asked, "c"))
            assert finished(events) == (plain := plain or finished(events))
            who = {r.drafter for r in rounds(events) if r.num_drafted}
            named = {"auto": "both" if "both" in names else names[-1]}.get(drafter, drafter)
            assert who <= ({"ngram", "head"} if named == "both" else {named} - {"none"}) and (k != 0 or not who)
            assert k != 3 or named in ("none", "ngram") or who >= {"head" if named == "both" else named}
        engine.close()


def test_what_rounds_cost_is_measured_before_the_first_but_holds_up_no_slow_machine() -> None:
    engine = fake_engine(endless, endless, head=endless)
    profile = engine.served_pair().profile
    measured, seconds = map(list, zip(*profile.rows_s, strict=True))
    assert measured[0] == 1 and measured == sorted(measured) and seconds == sorted(seconds) and seconds[0] > 0
    assert dict(profile.draft_s).keys() == {"ngram", "head", "draft_model"}
    assert dict(profile.acceptance)["head"] == (0.6, 0.5) and "ngram 9+" in dict(profile.acceptance)
    engine.close()
    network = FakeNetwork(257, endless)
    assert len(measure(Model(network, 4096), (), limit_s=0.0).rows_s) == 1 and len(network.rows) < 6
