"""One prompt twice, by turns: each lane is what it would be alone, on its own clock, and neither outlives the other's
end."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.config import DecodingParams, Detail, EngineConfig, Rule, SamplingParams
from engine.drafters.ngram import NgramDrafter
from engine.errors import Busy, ContextFull, InvalidParams, NotReady
from engine.events import Event, Finished, FinishReason, KReason, Prefilled, Prefilling, Round, RoundKind
from engine.networks.kv_cache import KVCache
from engine.networks.model import PREFILL_CHUNK, Model, Request
from engine.serving.engine import Engine, State
from engine.serving.load_pair import ModelPair
from engine.serving.race import TURN_S, LaneTurn, Race, interleave, next_turn
from tests.fake_engine import Script
from tests.fake_engine import play as scripted
from tests.fakes import FakeNetwork, fake_engine, finished, hashed_logits, noisy, say

VOCAB = 257
ANY = hashed_logits(VOCAB, seed=8)
PLAIN, SPECULATIVE = "plain", "speculative"


def language(ids: tuple[int, ...]) -> np.ndarray:
    """Never ends, and repeats itself now and then, so that copies are offered, some of them right."""
    row = ANY(ids).copy()
    row[256] = -50.0
    row[ord("a") + len(ids) % 3] += 8.0
    return row


class Gate:
    """A language that waits for permission once `length` tokens are there."""

    def __init__(self, length: int) -> None:
        self.length, self.open, self.reached = length, threading.Event(), threading.Event()

    def __call__(self, ids: tuple[int, ...]) -> np.ndarray:
        if len(ids) > self.length:
            self.reached.set()
            assert self.open.wait(60)
        return language(ids)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    made = fake_engine(language, noisy(language, VOCAB, 0.5), noisy(language, VOCAB, 0.3), max_new_tokens=4096)
    yield made
    made.close()


def params(n: int = 60, temperature: float = 0.0, **more: object) -> DecodingParams:
    rule = Rule.SHARED_NOISE if temperature else Rule.REJECTION
    more = {"rule": rule, "max_new_tokens": n, "sampling": SamplingParams(temperature, seed=4)} | more
    return DecodingParams(**more)  # type: ignore[arg-type]


def both(race: Race) -> tuple[list[Event], list[Event]]:
    """All events of the plain lane, and of the speculative."""
    return list(race.plain), list(race.speculative)


def rounds(events: list[Event]) -> list[Round]:
    return [event for event in events if isinstance(event, Round)]


def first(events: list[Event]) -> Prefilled:
    [prefilled] = [event for event in events if isinstance(event, Prefilled)]
    return prefilled


# -- whose turn it is ------------------------------------------------------------------------------------------------


@given(
    st.lists(st.floats(0.0, 0.4), min_size=1, max_size=60),
    st.lists(st.floats(0.0, 0.4), min_size=1, max_size=60),
    st.floats(0.001, 0.2),
)
def test_clocks_are_never_further_apart_than_a_turn_and_an_event(
    plain: list[float], speculative: list[float], turn_s: float
) -> None:
    left = {SPECULATIVE: list(speculative), PLAIN: list(plain)}
    clocks = dict.fromkeys(left, 0.0)
    longest = max(*plain, *speculative)
    turn = LaneTurn(SPECULATIVE, 0.0)
    while len(clocks) == 2:
        turn = next_turn(turn, clocks, turn_s)
        clocks[turn.lane] += left[turn.lane].pop(0)
        assert abs(clocks[PLAIN] - clocks[SPECULATIVE]) <= turn_s + longest + 1e-9
        if not left[turn.lane]:
            del clocks[turn.lane]
    [lane] = clocks
    assert next_turn(turn, clocks, turn_s).lane == lane  # the other simply finishes
    assert next_turn(LaneTurn(lane, 1e9), clocks, turn_s).lane == lane


@given(st.floats(0.0, 10.0), st.floats(0.0, 10.0), st.sampled_from([PLAIN, SPECULATIVE]))
def test_a_turn_is_played_to_its_end_and_the_next_is_of_who_is_behind(plain: float, spec: float, lane: str) -> None:
    clocks = {SPECULATIVE: spec, PLAIN: plain}
    going_on = LaneTurn(lane, clocks[lane] + 0.01)
    assert next_turn(going_on, clocks) is going_on
    turn = next_turn(LaneTurn(lane, clocks[lane]), clocks)
    assert clocks[turn.lane] == min(clocks.values()) and turn.until_s == clocks[turn.lane] + TURN_S


def test_lanes_take_turns_by_their_own_clocks() -> None:
    """Rounds of 10 ms: five a turn. How many tokens a round brings does not matter to whose turn it is."""
    asked = DecodingParams(SamplingParams(seed=1), "ngram", 3, probe_every=0)
    lanes = [scripted(Script(), replace(asked, num_speculative_tokens=k)) for k in (3, 0)]
    race = Race()
    order = [(stream is race.plain, event) for stream, event in interleave(race, *map(iter, lanes))]
    assert [e for p, e in order if p] == lanes[1] and [e for p, e in order if not p] == lanes[0]
    clocks = {True: 0.0, False: 0.0}
    until = next(i for i, (_, event) in enumerate(order) if isinstance(event, Finished))
    for plain, event in order[:until]:
        clocks[plain] += event.ttft_s if isinstance(event, Prefilled) else event.total_s  # type: ignore[union-attr]
        assert abs(clocks[True] - clocks[False]) <= TURN_S + 0.05 + 1e-9
    changes = sum(left[0] != right[0] for left, right in itertools.pairwise(order[:until]))
    assert 5 <= changes <= until / 4  # neither all of one first nor one event of each


def test_whatever_a_round_takes_is_on_its_lanes_clock() -> None:
    """Not the target's pass alone: a drafter that is ten times as slow holds its own lane up, and only that."""
    asked = DecodingParams(SamplingParams(seed=1), "ngram", 3, probe_every=0)
    guessed, plain = (scripted(Script(), replace(asked, num_speculative_tokens=k)) for k in (3, 0))
    slow = [replace(e, draft_s=0.2, total_s=e.total_s + 0.2) if isinstance(e, Round) else e for e in guessed]
    race = Race()
    clocks = {True: 0.0, False: 0.0}
    for stream, event in interleave(race, iter(slow), iter(plain)):
        if isinstance(event, Finished):
            break
        clocks[stream is race.plain] += event.ttft_s if isinstance(event, Prefilled) else event.total_s  # type: ignore[union-attr]
        assert abs(clocks[True] - clocks[False]) <= TURN_S + 0.21 + 1e-9


# -- the same as alone -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("drafter", ["ngram", "head", "both", "draft_model", "auto"])
@pytest.mark.parametrize("k", [1, 3, None])
def test_both_lanes_say_what_a_reply_alone_says(
    engine: Engine, drafter: str, k: int | None, temperature: float
) -> None:
    asked = params(temperature=temperature, drafter=drafter, num_speculative_tokens=k)
    plain, speculative = both(engine.race(say("hello, hello"), asked))
    alone = list(engine.stream(say("hello, hello"), asked))
    bare = list(engine.stream(say("hello, hello"), replace(asked, num_speculative_tokens=0)))
    ends = [finished(events) for events in (plain, speculative, alone, bare)]
    assert len(set(ends)) == 1 and ends[0].reason is FinishReason.LENGTH and len(ends[0].token_ids) == 60
    assert [r.tokens for r in rounds(plain)] == [r.tokens for r in rounds(bare)]
    assert first(plain) == first(speculative) and first(plain).seed == 4 and first(plain).cached_tokens == 0
    assert {(r.kind, r.drafter, r.k_reason) for r in rounds(plain)} == {(RoundKind.PLAIN, "none", KReason.FIXED)}
    assert all(r.draft_s <= r.total_s and not r.decisions for r in rounds(plain))
    assert RoundKind.PROBE not in {r.kind for r in rounds(speculative)}
    assert any(r.num_drafted for r in rounds(speculative))


def test_under_the_rejection_rule_each_lane_is_still_what_it_is_alone(engine: Engine) -> None:
    asked = params(temperature=1.0, rule=Rule.REJECTION, drafter="ngram", num_speculative_tokens=3, probe_every=0)
    plain, speculative = both(engine.race(say("hello, hello"), asked))
    assert finished(speculative) == finished(list(engine.stream(say("hello, hello"), asked)))
    bare = list(engine.stream(say("hello, hello"), replace(asked, num_speculative_tokens=0)))
    assert finished(plain) == finished(bare)


def test_one_seed_is_picked_for_both_and_repeats_the_race(engine: Engine) -> None:
    free = params(temperature=1.0, sampling=SamplingParams(temperature=1.0))
    plain, speculative = both(engine.race(say("hello"), free))
    assert finished(plain) == finished(speculative) and first(plain).seed == first(speculative).seed
    again = replace(free, sampling=replace(free.sampling, seed=first(plain).seed))
    assert finished(list(engine.race(say("hello"), again).plain)) == finished(plain)


@pytest.mark.parametrize("detail", list(Detail))
def test_detail_is_told_in_both_lanes(engine: Engine, detail: Detail) -> None:
    plain, speculative = both(engine.race(say("hello"), params(detail=detail, num_speculative_tokens=3)))
    assert first(plain) == first(speculative)
    for events in (plain, speculative):
        assert all((t.raw_prob is None) == (detail == Detail.OFF) for r in rounds(events) for t in r.tokens)
        assert all((r.recovery is None) == (detail != Detail.FULL) for r in rounds(events))


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("k", [3, None])
def test_the_shortest_replies_end_both(engine: Engine, n: int, k: int | None) -> None:
    plain, speculative = both(engine.race(say("hello"), params(n, num_speculative_tokens=k)))
    assert finished(plain) == finished(speculative) and len(finished(plain).token_ids) == n
    assert len(rounds(plain)) == n - 1


@pytest.mark.parametrize("at", [0, 1, 5, 17])
@pytest.mark.parametrize("length", [1, 4])
def test_a_stop_string_cuts_both_alike(engine: Engine, at: int, length: int) -> None:
    """At the very first character there is no token at all; over several tokens events wait for what follows."""
    asked = params(num_speculative_tokens=3)
    text = finished(list(engine.stream(say("hello"), asked))).text
    stop = text[at : at + length]
    plain, speculative = both(engine.race(say("hello"), replace(asked, stop=(stop,))))
    assert finished(plain) == finished(speculative)
    assert finished(plain).reason is FinishReason.STOP_STRING and finished(plain).text == text[: text.index(stop)]
    assert first(plain) == first(speculative) and (first(plain).token is None) == (text.index(stop) == 0)


def test_a_stop_string_that_never_comes_changes_nothing(engine: Engine) -> None:
    """Every event of one lane is held for a while."""
    asked = params(num_speculative_tokens=3)
    text = finished(list(engine.stream(say("hello"), asked))).text
    plain, speculative = both(engine.race(say("hello"), replace(asked, stop=(text + "!", text[3:9] + "\0"))))
    assert finished(plain) == finished(speculative) and finished(plain).text == text


@pytest.mark.parametrize("after", [0, 1, 7])
def test_the_models_own_end_ends_both(after: int) -> None:
    prompt_len = len("<user>hello\n<assistant>")

    def ends(ids: tuple[int, ...]) -> np.ndarray:
        row = language(ids)
        row[256] = 50.0 if len(ids) >= prompt_len + after else -50.0
        return row

    engine = fake_engine(ends)
    plain, speculative = both(engine.race(say("hello"), params(num_speculative_tokens=3)))
    assert finished(plain) == finished(speculative)
    assert finished(plain).reason is FinishReason.STOP and len(finished(plain).token_ids) == after + 1
    engine.close()


@pytest.mark.parametrize("room", [1, 2, 5])
@pytest.mark.parametrize("k", [8, None])
def test_a_nearly_full_context_ends_both_alike(engine: Engine, room: int, k: int | None) -> None:
    text = "x" * (4096 - room - engine.count_tokens(say("")))
    plain, speculative = both(engine.race(say(text), params(200, num_speculative_tokens=k)))
    assert finished(plain) == finished(speculative)
    assert finished(plain).reason is FinishReason.CONTEXT and len(finished(plain).token_ids) == room


# -- the prompt, and caches ------------------------------------------------------------------------------------------


def test_the_prompt_is_read_once_and_both_are_told(engine: Engine) -> None:
    network = engine._served_pair.model.network
    assert isinstance(network, FakeNetwork)
    prompt = say("a long prompt, " * 60)
    network.rows.clear()
    plain, speculative = both(engine.race(prompt, params(1)))
    assert sum(network.rows) == engine.count_tokens(prompt) > 3 * PREFILL_CHUNK
    reading = [[event for event in events if isinstance(event, Prefilling)] for events in (plain, speculative)]
    assert reading[0] == reading[1] and len(reading[0]) == 3
    assert first(plain) == first(speculative) and first(plain).ttft_s > 0


def test_a_copy_of_a_cache_has_no_features_and_a_life_of_its_own() -> None:
    model, cache = Model(FakeNetwork(VOCAB, language), 4096), KVCache((0, 2))
    ids = [1 + i % 200 for i in range(300)]
    model.forward([Request(ids, 1, cache)])
    copy = cache.copy()
    assert copy.ids == cache.ids and copy.feature_layers == () and 0 < copy.nbytes < cache.nbytes
    [expected] = model.forward([Request([*ids, 7, 8], 1, KVCache())])
    model.forward([Request([*ids, 9], 1, cache)])
    [found] = model.forward([Request([*ids, 7, 8], 1, copy)])
    assert torch.equal(found, expected)  # not spoiled by what the other wrote
    assert cache.ids == [*ids, 9] and copy.ids == [*ids, 7, 8]
    assert cache.features(0, 301)[:, 0, 0].tolist() == [*ids, 9]


def test_a_race_leaves_the_caches_of_chats_alone(engine: Engine) -> None:
    list(engine.stream(say("so it began"), params(), conversation="chat"))
    before = {key: (cache, list(cache.ids)) for key, cache in engine._served_pair.pool._idle.items()}
    both(engine.race(say("so it began"), params()))
    assert {key: (cache, list(cache.ids)) for key, cache in engine._served_pair.pool._idle.items()} == before


def test_a_conversations_cache_is_used_by_the_speculative_lane_and_comes_back(engine: Engine) -> None:
    list(engine.stream(say("a beginning"), params(), conversation="named"))
    plain, speculative = both(engine.race(say("a beginning"), params(), conversation="named"))
    assert first(plain) == first(speculative) and first(plain).cached_tokens > 10
    assert finished(plain) == finished(speculative)
    alone = list(engine.stream(say("a beginning"), params(), conversation="named"))
    assert first(alone).cached_tokens > 10 and finished(alone) == finished(plain)


# -- ends that nobody planned ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["plain", "speculative", "both"])
@pytest.mark.parametrize("length", [70, 90, 300, 600])
def test_cancelling_either_ends_both(who: str, length: int) -> None:
    """While the prompt is read, and while both reply; what was leased has come back."""
    gate = Gate(length)
    engine = fake_engine(gate)
    race = engine.race(say("p" * 60), params(2000, num_speculative_tokens=3), conversation="c")
    assert gate.reached.wait(60)
    (race if who == "both" else race.plain if who == "plain" else race.speculative).cancel()
    gate.open.set()
    for events in both(race):
        assert finished(events).reason is FinishReason.CANCELLED and len(finished(events).token_ids) <= length
    assert finished(list(engine.stream(say("more"), params(5)))).reason is FinishReason.LENGTH
    assert not engine._queue.waiting and set(engine._served_pair.pool._idle) == {"c"}
    engine.close()


def test_a_cancel_in_the_midst_of_a_long_prompt_ends_both_before_its_end() -> None:
    engine = fake_engine(language)
    network = engine._served_pair.model.network
    assert isinstance(network, FakeNetwork)
    held, should_continue = threading.Event(), threading.Event()
    forward = FakeNetwork.__call__

    def waits(self: FakeNetwork, *args: object) -> torch.Tensor:
        if len(self.rows) == 2:
            held.set()
            assert should_continue.wait(60)
        return forward(self, *args)  # type: ignore[arg-type]

    class Slow(FakeNetwork):
        __call__ = waits  # type: ignore[assignment]

    network.rows.clear()
    network.__class__ = Slow
    race = engine.race(say("a long prompt, " * 100), params(100))
    assert held.wait(60)
    race.plain.cancel()
    should_continue.set()
    for events in both(race):
        assert [type(event) for event in events[:2]] == [Prefilling, Prefilling]
        assert isinstance(events[-1], Finished) and not any(isinstance(event, Prefilled) for event in events)
        assert finished(events).reason is FinishReason.CANCELLED and not finished(events).token_ids
    assert len(network.rows) == 3
    engine.close()


def test_who_waits_can_leave_and_a_full_queue_says_so() -> None:
    gate = Gate(60)
    engine = fake_engine(gate, max_waiting=2)
    running = engine.stream(say("a"), params(100))
    assert gate.reached.wait(60)  # from here on the engine thread stands still, so the queue only fills
    waiting = [engine.race(say("b"), params(10)) for _ in range(2)]
    with pytest.raises(Busy, match="try again"):
        engine.race(say("b"), params(10))
    waiting[1].speculative.cancel()
    gate.open.set()
    assert [finished(events).reason for events in both(waiting[1])] == [FinishReason.CANCELLED] * 2
    plain, speculative = both(waiting[0])
    assert [finished(events).reason for events in (plain, speculative)] == [FinishReason.LENGTH] * 2
    assert first(plain) == first(speculative) and first(plain).queued_s > 0
    assert finished(list(running)).reason is FinishReason.LENGTH
    engine.close()


def list_of(race: Race) -> list[Event]:
    return both(race)[0]


def test_leaving_the_with_block_cancels_both() -> None:
    gate = Gate(70)
    engine = fake_engine(gate)
    with engine.race(say("a"), params(2000)) as race:
        assert gate.reached.wait(60)
    gate.open.set()
    ends = [finished(events) for events in both(race)]
    assert [end.reason for end in ends] == [FinishReason.CANCELLED] * 2
    engine.close()


def test_closing_ends_races_and_keeps_what_was_written() -> None:
    gate = Gate(70)
    engine = fake_engine(gate)
    races = [engine.race(say("a"), params(2000)) for _ in range(6)]  # more than may run at once
    assert gate.reached.wait(60)
    closing = threading.Thread(target=engine.close)
    closing.start()
    with engine._changed:
        assert engine._changed.wait_for(lambda: engine.status().state is State.CLOSED, 60)
    gate.open.set()
    ends = [finished(events) for race in races for events in both(race)]
    closing.join(60)
    assert {end.reason for end in ends} == {FinishReason.CANCELLED} and any(end.text for end in ends)
    with pytest.raises(NotReady, match="closed"):
        engine.race(say("a"), params())


class Broken(NgramDrafter):
    def propose(self, *args: object, **more: object) -> object:  # type: ignore[override]
        raise RuntimeError("boom")


def test_a_drafter_that_breaks_ends_its_lane_with_an_error_and_the_other_too(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_drafter", lambda job: Broken())
    plain, speculative = both(engine.race(say("hello, hello, hello"), params(500, num_speculative_tokens=3)))
    assert finished(speculative).reason is FinishReason.ERROR and "try again" in finished(speculative).message
    assert finished(plain).reason is FinishReason.CANCELLED and len(finished(plain).token_ids) < 500
    monkeypatch.undo()
    assert finished(list_of(engine.race(say("b"), params()))).reason is FinishReason.LENGTH


def test_a_plain_lane_that_breaks_ends_the_speculative_one_too(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(self: KVCache) -> KVCache:
        raise MemoryError("no room")

    monkeypatch.setattr(KVCache, "copy", no_room)
    seconds = itertools.count()  # every look at the clock is a second later, so each event ends a turn
    for module in ("decode", "rounds"):
        monkeypatch.setattr(f"engine.{module}.perf_counter", lambda: float(next(seconds)))
    plain, speculative = both(engine.race(say("hello"), params(500)))
    assert finished(plain).reason is FinishReason.ERROR and "no room" not in finished(plain).message
    assert finished(speculative).reason is FinishReason.CANCELLED and len(finished(speculative).token_ids) < 500


@pytest.mark.parametrize("length", [1, 40])
def test_a_model_that_breaks_ends_both_with_a_sentence(length: int) -> None:
    """In the prompt, or later in whichever lane comes there first; the engine lives on."""

    def breaks(ids: tuple[int, ...]) -> np.ndarray:
        if ord("X") in ids and len(ids) > length:
            return np.full(VOCAB, np.nan)
        return language(ids)

    engine = fake_engine(breaks)
    reasons = [finished(events).reason for events in both(engine.race(say("X"), params(400)))]
    assert sorted(reasons) == [FinishReason.CANCELLED, FinishReason.ERROR]
    assert finished(list_of(engine.race(say("y"), params()))).reason is FinishReason.LENGTH
    engine.close()


def test_what_cannot_run_is_refused_before_it_runs(engine: Engine) -> None:
    with pytest.raises(InvalidParams, match="draft") as refused:
        engine.race(say("a"), params(num_speculative_tokens=0))
    assert refused.value.field == "num_speculative_tokens"
    with pytest.raises(InvalidParams, match="draft") as refused:
        engine.race(say("a"), params(drafter="none"))
    assert refused.value.field == "drafter"
    with pytest.raises(InvalidParams, match="4096"):
        engine.race(say("a"), params(5000))
    with pytest.raises(ContextFull, match="4096"):
        engine.race(say("x" * 10_000), params())
    assert not engine._queue.waiting

    def load(config: EngineConfig, progress: object) -> ModelPair:
        raise RuntimeError("odd")

    failed_engine = Engine(EngineConfig(), load)
    failed_engine.wait_ready(60)
    with pytest.raises(NotReady, match="could not be loaded"):
        failed_engine.race(say("a"), params())


# -- beside others ---------------------------------------------------------------------------------------------------


def test_a_chat_and_a_race_take_turns() -> None:
    """By the order of the passes, the first of which are held until both have been asked for."""
    order: list[str] = []
    gate = Gate(40)

    def noted(ids: tuple[int, ...]) -> np.ndarray:
        order.append("chat" if ord("A") in ids[:10] else "race")
        return gate(ids)

    engine = fake_engine(noted)
    order.clear()
    chat = engine.stream(say("A"), params(300, num_speculative_tokens=0, probe_every=0))
    race = engine.race(say("b"), params(300))
    gate.open.set()
    assert len(finished(list(chat)).token_ids) == len(finished(list_of(race)).token_ids) == 300
    assert order.index("race") < len(order) - 1 - order[::-1].index("chat")
    assert order.index("chat") < len(order) - 1 - order[::-1].index("race")
    engine.close()


def test_races_and_chats_at_once_say_what_each_says_alone(engine: Engine) -> None:
    asked = [params(40, drafter=d, num_speculative_tokens=3) for d in ("ngram", "head", "draft_model", "both")]
    alone = [finished(list(engine.stream(say(f"q{i}"), one))) for i, one in enumerate(asked)]
    races = [engine.race(say(f"q{i}"), one) for i, one in enumerate(asked)]
    chats = [engine.stream(say(f"q{i}"), one, conversation=f"c{i}") for i, one in enumerate(asked)]
    for race, chat, end in zip(races, chats, alone, strict=True):
        assert [finished(events) for events in both(race)] == [end, end] and finished(list(chat)) == end


# -- clocks ----------------------------------------------------------------------------------------------------------


def test_nothing_of_one_lane_is_on_the_others_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A made-up clock that moves only where work is done: a forward of n rows takes 1 + n seconds."""
    now = [0.0]
    for module in ("decode", "rounds"):
        monkeypatch.setattr(f"engine.{module}.perf_counter", lambda: now[0])

    class Timed(FakeNetwork):
        def __call__(self, token_ids: torch.Tensor, *more: object) -> torch.Tensor:
            now[0] += 1.0 + len(token_ids)
            return super().__call__(token_ids, *more)  # type: ignore[arg-type]

    engine = fake_engine(language)
    engine._served_pair.model.network.__class__ = Timed
    for detail in Detail:
        plain, speculative = both(engine.race(say("aba" * 5), params(80, num_speculative_tokens=3, detail=detail)))
        assert {(r.total_s, r.verify_s) for r in rounds(plain)} == {(2.0, 2.0)}
        assert all(r.total_s == 2.0 + r.num_drafted for r in rounds(speculative))
        assert {r.num_drafted for r in rounds(speculative)} > {0}
    engine.close()


# -- the real model --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real() -> Iterator[Engine]:
    made = Engine(EngineConfig())
    made.wait_ready(600)
    yield made
    made.close()


@pytest.mark.model
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("detail", [Detail.OFF, Detail.FULL])
def test_the_default_model_says_the_same_in_both_lanes_and_alone(
    real: Engine, temperature: float, detail: Detail
) -> None:
    if not real.facts().exact:
        pytest.skip("this machine's kernel is not proven exact")
    asked = params(80, temperature, detail=detail)
    prompt = say("Explain speculative decoding in three sentences, then say the first of them again.")
    plain, speculative = both(real.race(prompt, asked))
    alone = list(real.stream(prompt, asked))
    assert finished(plain) == finished(speculative) == finished(alone)
    assert first(plain) == first(speculative)
    assert any(r.num_drafted for r in rounds(speculative))
    assert len(rounds(plain)) == len(finished(plain).token_ids) - 1
