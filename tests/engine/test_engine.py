"""The engine thread: many readers, one worker, nobody in another's way."""

from __future__ import annotations

import gc
import itertools
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from engine.config import DecodingParams, EngineConfig, Message, Rule, SamplingParams
from engine.control.profiling import measure
from engine.errors import Busy, ContextFull, InvalidParams, LoadError, NotReady
from engine.events import Event, Finished, FinishReason, Prefilled, Round
from engine.networks.kv_cache import KVCache
from engine.networks.model import Model
from engine.serving.engine import Engine, State
from engine.serving.job_queue import MAX_ACTIVE
from engine.serving.jobs import ReplyJob
from engine.serving.load_pair import ModelPair
from tests.fakes import END, FakeNetwork, fake_engine, finished, hashed_logits, noisy, say

VOCAB = 257
LANGUAGE = hashed_logits(VOCAB, seed=8)


def never_ends(ids: tuple[int, ...]) -> np.ndarray:
    row = LANGUAGE(ids).copy()
    row[256] = -50.0
    return row


class Gate:
    """A language that waits for permission once the reply has begun: lets a test look at the middle of a reply."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.reached = threading.Event()

    def __call__(self, ids: tuple[int, ...]) -> np.ndarray:
        if len(ids) > 60:
            self.reached.set()
            assert self.open.wait(60)
        return never_ends(ids)


def params(n: int = 30, **more: object) -> DecodingParams:
    return DecodingParams(SamplingParams(seed=4), max_new_tokens=n, **more)  # type: ignore[arg-type]


def ids_of(events: list[Event]) -> tuple[int, ...]:
    return finished(events).token_ids


def test_eight_readers_at_once_get_what_each_would_get_alone() -> None:
    engine = fake_engine(never_ends, noisy(never_ends, VOCAB, 0.5))
    prompts = [f"question {i}" * (i + 1) for i in range(8)]
    drafters = ["ngram", "draft_model"] * 4
    alone = [list(engine.stream(say(p), params(drafter=d))) for p, d in zip(prompts, drafters, strict=True)]
    results: dict[int, list[Event]] = {}

    def ask(i: int) -> None:
        results[i] = list(engine.stream(say(prompts[i]), params(drafter=drafters[i]), conversation=f"c{i % 3}"))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [ids_of(results[i]) for i in range(8)] == [ids_of(events) for events in alone]
    engine.close()


def test_the_seed_is_reported_and_repeats_the_reply() -> None:
    engine = fake_engine(never_ends)
    free = DecodingParams(SamplingParams(temperature=1.0), rule=Rule.SHARED_NOISE, max_new_tokens=20)
    first = list(engine.stream(say("hello"), free))
    [seed] = [event.seed for event in first if isinstance(event, Prefilled)]
    again = DecodingParams(SamplingParams(temperature=1.0, seed=seed), rule=Rule.SHARED_NOISE, max_new_tokens=20)
    assert ids_of(list(engine.stream(say("hello"), again))) == ids_of(first)
    engine.close()


def test_the_second_turn_reuses_the_cache_and_equals_a_fresh_engine() -> None:
    engine, fresh = fake_engine(LANGUAGE), fake_engine(LANGUAGE)
    turns = say("first question")
    reply = finished(list(engine.stream(turns, params(), conversation="a"))).text
    turns = [*turns, Message("assistant", reply), Message("user", "second")]
    events = list(engine.stream(turns, params(), conversation="a"))
    [prefilled] = [event for event in events if isinstance(event, Prefilled)]
    assert prefilled.cached_tokens > 10
    assert ids_of(events) == ids_of(list(fresh.stream(turns, params())))
    engine.close()
    fresh.close()


def test_cancel_ends_one_reply_and_no_other() -> None:
    gate = Gate()
    engine = fake_engine(gate)
    doomed = engine.stream(say("a"), params(500), conversation="x")
    kept = engine.stream(say("b"), params(100), conversation="y")
    assert gate.reached.wait(60)
    doomed.cancel()
    gate.open.set()
    events, others = list(doomed), list(kept)
    assert finished(events).reason is FinishReason.CANCELLED and 0 < len(ids_of(events)) < 500
    assert finished(others).reason is FinishReason.LENGTH and len(ids_of(others)) == 100
    engine.close()


def test_leaving_the_with_block_cancels() -> None:
    gate = Gate()
    engine = fake_engine(gate)
    with engine.stream(say("a"), params(2000)) as stream:
        assert gate.reached.wait(60)
    gate.open.set()
    assert finished(list(stream)).reason is FinishReason.CANCELLED
    engine.close()


def test_a_reader_that_never_reads_does_not_hold_the_engine() -> None:
    engine = fake_engine(never_ends)
    ignored = engine.stream(say("a"), params(50))
    assert finished(list(engine.stream(say("b"), params(50)))).reason is FinishReason.LENGTH
    assert len(ids_of(list(ignored))) == 50
    engine.close()


def test_who_waits_can_leave_and_a_full_queue_says_so() -> None:
    gate = Gate()
    engine = fake_engine(gate, max_waiting=2)
    running = [engine.stream(say("a"), params(100)) for _ in range(2)]
    assert gate.reached.wait(60)  # from here on the engine thread stands still, so the queue only fills
    waiting = []
    refusal = ""
    while not refusal and len(waiting) < MAX_ACTIVE + 3:
        try:
            waiting.append(engine.stream(say("b"), params(10)))
        except Busy as error:
            refusal = str(error)
    assert "try again" in refusal
    waiting[-1].cancel()
    gate.open.set()
    assert finished(list(waiting[-1])).reason is FinishReason.CANCELLED
    for stream in [*running, *waiting[:-1]]:
        assert finished(list(stream)).reason is FinishReason.LENGTH
    engine.close()


def test_what_cannot_run_is_refused_before_it_runs() -> None:
    engine = fake_engine(never_ends, max_new_tokens=64)
    with pytest.raises(InvalidParams, match="drafter"):
        engine.stream(say("a"), params(drafter="draft_model"))
    with pytest.raises(InvalidParams, match="64"):
        engine.stream(say("a"), params(65))
    with pytest.raises(InvalidParams, match="logit_bias"):
        engine.stream(say("a"), DecodingParams(SamplingParams(logit_bias=((300, 1.0),)), max_new_tokens=5))
    with pytest.raises(ContextFull, match="4096"):
        engine.stream(say("x" * 100_000), params())
    assert engine.count_tokens(say("x" * 100_000)) > 100_000
    assert finished(list(engine.stream(say("still alive"), params()))).reason is FinishReason.LENGTH
    engine.close()


def test_a_reply_that_breaks_does_not_take_the_engine_down() -> None:
    def breaks_on_x(ids: tuple[int, ...]) -> np.ndarray:
        if ord("X") in ids:
            raise RuntimeError("boom")
        return never_ends(ids)

    engine = fake_engine(breaks_on_x)
    assert finished(list(engine.stream(say("X"), params()))).reason is FinishReason.ERROR
    assert finished(list(engine.stream(say("y"), params()))).reason is FinishReason.LENGTH
    engine.close()


@pytest.mark.parametrize("error", [LoadError("No network: connect and start again."), RuntimeError("odd")])
def test_a_failed_load_is_a_status_with_a_sentence(error: Exception) -> None:
    def load(config: EngineConfig, progress: Callable[[str, float | None], None]) -> ModelPair:
        progress("fetch", 0.5)
        raise error

    engine = Engine(EngineConfig(), load)
    status = engine.wait_ready(60)
    assert status.state is State.FAILED and str(error) in status.message
    with pytest.raises(NotReady, match=str(error).split(":")[0]):
        engine.stream(say("a"), params())
    engine.close()


def test_closing_ends_every_reply_and_later_ones_are_refused() -> None:
    engine = fake_engine(never_ends)
    streams = [engine.stream(say("a"), params(2000)) for _ in range(6)]
    engine.close()
    assert all(isinstance(list(stream)[-1], Finished) for stream in streams)
    with pytest.raises(NotReady, match="closed"):
        engine.stream(say("a"), params())
    engine.close()


def test_memory_of_many_conversations_stays_within_the_pools_budget() -> None:
    engine = fake_engine(never_ends, cache_mib=16)
    for i in range(60):
        stream = engine.stream(say("word " * 300), params(5), conversation=f"c{i}")
        if i % 3 == 0:
            stream.cancel()
        list(stream)
    assert 0 < engine._served_pair.pool.nbytes <= 16 * 2**20
    assert (
        40 <= len(engine._served_pair.pool._idle) <= 60
    )  # small ones all fit; one stopped before its prefill leaves nothing
    engine._served_pair.pool.budget_bytes = 10 * 2**14
    list(engine.stream(say("word " * 300), params(5), conversation="last"))
    assert engine._served_pair.pool.nbytes <= engine._served_pair.pool.budget_bytes
    engine.close()


def test_a_finished_reply_gives_its_memory_back_without_a_garbage_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = fake_engine(never_ends, noisy(never_ends, VOCAB, 0.5))
    list(engine.stream(say("warm up"), params()))
    made: list[weakref.ref[KVCache]] = []
    acquire = engine._served_pair.pool.acquire

    def noted(*args: object) -> KVCache:
        cache = acquire(*args)  # type: ignore[arg-type]
        made.append(weakref.ref(cache))
        return cache

    monkeypatch.setattr(engine._served_pair.pool, "acquire", noted)
    gc.disable()
    try:
        for drafter in ("ngram", "draft_model"):
            list(engine.stream(say("hello"), params(drafter=drafter)))
        list(engine.stream(say("one more, so that the thread has let go of the last"), params(drafter="ngram")))
        assert len(made) == 4
        assert [cache() for cache in made[:3]] == [None] * 3
    finally:
        gc.enable()


def test_control_tokens_in_a_message_are_plain_characters() -> None:
    engine = fake_engine(never_ends)
    assert engine.count_tokens(say(END)) == engine.count_tokens(say("")) + len(END)
    engine.close()


def test_rounds_of_two_replies_take_turns() -> None:
    """By the order of the passes, the first of which are held until both replies have been asked for."""
    order: list[str] = []
    gate = Gate()

    def noted(ids: tuple[int, ...]) -> np.ndarray:
        order.append("a" if ord("A") in ids[:10] else "b")
        return gate(ids)

    engine = fake_engine(noted)
    order.clear()
    streams = [engine.stream(say(name), params(200, probe_every=0)) for name in "AB"]
    gate.open.set()
    assert [len(ids_of(list(stream))) for stream in streams] == [200, 200]
    assert order.index("b") < len(order) - 1 - order[::-1].index("a")
    assert order.index("a") < len(order) - 1 - order[::-1].index("b")
    engine.close()


def test_closing_keeps_what_was_written_and_does_not_wait_for_a_load() -> None:
    gate = Gate()
    engine = fake_engine(gate)
    stream = engine.stream(say("a"), params(500))
    assert gate.reached.wait(60)
    closing = threading.Thread(target=engine.close)
    closing.start()
    with engine._changed:
        assert engine._changed.wait_for(lambda: engine.status().state is State.CLOSED, 60)
    gate.open.set()
    events = list(stream)
    closing.join(60)
    assert finished(events).reason is FinishReason.CANCELLED and len(finished(events).token_ids) > 20

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


def test_a_reply_that_cannot_even_begin_does_not_take_the_engine_down(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = fake_engine(never_ends)
    begin, calls = ReplyJob.begin, iter([MemoryError("no room")])

    def fails_once(job: ReplyJob, *args: Any) -> object:
        if (error := next(calls, None)) is not None:
            raise error
        return begin(job, *args)

    monkeypatch.setattr(ReplyJob, "begin", fails_once)
    broken = finished(list(engine.stream(say("a"), params())))
    assert broken.reason is FinishReason.ERROR and "try again" in broken.message and "no room" not in broken.message
    assert finished(list(engine.stream(say("b"), params()))).reason is FinishReason.LENGTH
    engine.close()


def test_a_head_is_offered_alone_and_with_copies_and_changes_no_text() -> None:
    engine = fake_engine(never_ends, head=noisy(never_ends, VOCAB, 0.3))
    assert engine.facts().drafters == ("none", "ngram", "head", "both")
    replies = {
        (drafter, k): list(
            engine.stream(say("hello, hello"), params(60, drafter=drafter, num_speculative_tokens=k), "c")
        )
        for drafter, k in itertools.product(("none", "ngram", "head", "both", "auto"), (None, 0, 3))
    }
    assert len({ids_of(events) for events in replies.values()}) == 1
    who = {
        key: {e.drafter for e in events if isinstance(e, Round) and e.num_drafted} for key, events in replies.items()
    }
    assert who["head", 3] == {"head"} and who["ngram", 3] <= {"ngram"} and "head" in who["both", 3] & who["auto", 3]
    assert not who["none", 3] | who["auto", 0] | who["head", 0]
    engine.close()


def test_auto_is_the_best_that_there_is() -> None:
    def drafters(**more: object) -> set[str]:
        engine = fake_engine(never_ends, **more)  # type: ignore[arg-type]
        events = list(engine.stream(say("so and so and so"), params(num_speculative_tokens=3)))
        engine.close()
        return {event.drafter for event in events if isinstance(event, Round) and event.num_drafted}

    assert drafters(head=never_ends, drafter=never_ends) >= {"head"}
    assert drafters(drafter=never_ends) == {"draft_model"}
    assert drafters() <= {"ngram"}


def test_what_rounds_cost_is_measured_before_the_first() -> None:
    engine = fake_engine(never_ends, noisy(never_ends, VOCAB, 0.3), head=never_ends)
    profile = engine._served_pair.profile
    rows, seconds = zip(*profile.rows_s, strict=True)
    assert rows[0] == 1 and list(rows) == sorted(rows) and list(seconds) == sorted(seconds) and seconds[0] > 0
    assert dict(profile.draft_s).keys() == {"ngram", "head", "draft_model"}
    assert dict(profile.acceptance)["head"] == (0.6, 0.5) and "ngram 9+" in dict(profile.acceptance)
    engine.close()


def test_a_slow_machine_is_not_held_up_by_measuring() -> None:
    network = FakeNetwork(VOCAB, never_ends)
    profile = measure(Model(network, 4096), (), limit_s=0.0)
    assert [rows for rows, _ in profile.rows_s] == [1] and len(network.rows) < 6
