"""One prompt twice, by turns: each lane is what it would be alone, on its own clock, and neither outlives the other's
end."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from engine.config import DecodingParams, Detail, Rule, SamplingParams
from engine.drafters.ngram import NgramDrafter
from engine.errors import InvalidParams
from engine.events import Event, Finished, FinishReason, KReason, Prefilled, Prefilling, RoundKind
from engine.networks.kv_cache import KVCache
from engine.networks.model import PREFILL_CHUNK
from engine.serving.engine import Engine
from engine.serving.race import TURN_S, Race, interleave
from tests.fake_engine import Script
from tests.fake_engine import play as scripted
from tests.fakes import FakeNetwork, Gate, endless, fake_engine, finished, noisy, rounds, say


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    made = fake_engine(endless, noisy(endless, 257, 0.5), noisy(endless, 257, 0.3), max_new_tokens=4096)
    yield made
    made.close()


def params(n: int = 60, temperature: float = 0.0, k: int | None = 3, **more: object) -> DecodingParams:
    more = {"rule": Rule.SHARED_NOISE, "sampling": SamplingParams(temperature, seed=4)} | more
    return DecodingParams(num_speculative_tokens=k, max_new_tokens=n, **more)  # type: ignore[arg-type]


def both(race: Race) -> tuple[list[Event], list[Event]]:
    """All events of the plain lane, and of the speculative."""
    return list(race.plain), list(race.speculative)


def first(events: list[Event]) -> Prefilled:
    [prefilled] = [event for event in events if isinstance(event, Prefilled)]
    return prefilled


# -- whose turn it is --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("draft_s", [0.0, 0.2])
def test_lanes_take_turns_by_their_own_clocks(draft_s: float) -> None:
    """Rounds of 10 ms: five a turn. How many tokens a round brings does not matter to whose turn it is, and a drafter
    that is slow holds its own lane up, and only that."""
    asked = DecodingParams(SamplingParams(seed=1), "ngram", 3, probe_every=0)
    guessed, plain = (scripted(Script(), replace(asked, num_speculative_tokens=k)) for k in (3, 0))
    slow = [replace(e, total_s=e.total_s + draft_s) for e in rounds(guessed)]
    lanes, race = [[guessed[0], *slow, guessed[-1]], plain], Race()
    order = [(stream is race.plain, event) for stream, event in interleave(race, *map(iter, lanes))]
    assert [e for p, e in order if p] == lanes[1] and [e for p, e in order if not p] == lanes[0]
    clocks = {True: 0.0, False: 0.0}
    until = next(i for i, (_, event) in enumerate(order) if isinstance(event, Finished))
    for lane, event in order[:until]:
        clocks[lane] += event.ttft_s if isinstance(event, Prefilled) else event.total_s  # type: ignore[union-attr]
        assert abs(clocks[True] - clocks[False]) <= TURN_S + draft_s + 0.05 + 1e-9
    changes = sum(left[0] != right[0] for left, right in itertools.pairwise(order[:until]))
    assert draft_s or 5 <= changes <= until / 4  # neither all of one first nor one event of each


# -- the same as alone -------------------------------------------------------------------------------------------------


def test_both_lanes_say_what_a_reply_alone_says(engine: Engine) -> None:
    hello, details = say("hello, hello"), itertools.cycle(Detail)
    for drafter, (k, temperature, rule) in itertools.product(
        ("ngram", "head", "both", "draft_model", "auto"),
        ((3, 1.0, Rule.SHARED_NOISE), (None, 0.0, Rule.REJECTION), (1, 1.0, Rule.REJECTION)),
    ):
        detail = next(details)
        asked = params(60, temperature, k, rule=rule, drafter=drafter, detail=detail, probe_every=0)
        plain, speculative = both(engine.race(hello, asked))
        alone = list(engine.stream(hello, asked))
        bare = list(engine.stream(hello, replace(asked, num_speculative_tokens=0)))
        assert finished(speculative) == finished(alone) and finished(plain) == finished(bare)
        assert finished(plain).reason is FinishReason.LENGTH and len(finished(plain).token_ids) == 60
        assert finished(plain) == finished(speculative) or (temperature and rule is Rule.REJECTION)
        assert [r.tokens for r in rounds(plain)] == [r.tokens for r in rounds(bare)]
        assert first(plain) == first(speculative) and first(plain).seed == 4 and first(plain).cached_tokens == 0
        assert {(r.kind, r.drafter, r.k_reason) for r in rounds(plain)} == {(RoundKind.PLAIN, "none", KReason.FIXED)}
        assert not any(r.decisions for r in rounds(plain)) and any(r.num_drafted for r in rounds(speculative))
        for events in (plain, speculative):
            assert all((t.raw_prob is None) == (detail is Detail.OFF) for r in rounds(events) for t in r.tokens)
            assert all((r.recovery is None) == (detail is not Detail.FULL) for r in rounds(events))


def test_one_seed_is_picked_for_both_and_repeats_the_race_which_has_no_probes(engine: Engine) -> None:
    plain, speculative = both(engine.race(say("hello"), params(sampling=SamplingParams(1.0))))
    assert finished(plain) == finished(speculative) and first(plain).seed == first(speculative).seed
    assert RoundKind.PROBE not in {r.kind for r in rounds(speculative)}
    again = params(sampling=SamplingParams(1.0, seed=first(plain).seed))
    assert finished(both(engine.race(say("hello"), again))[0]) == finished(plain)


def test_whatever_ends_a_reply_ends_both_alike(engine: Engine) -> None:
    """A stop string at the very first character leaves no token at all; one over several tokens holds events back, and
    one that never comes holds every event of a lane."""
    text = finished(list(engine.stream(say("hello"), params()))).text
    ends_at_once = SamplingParams(logit_bias=((256, 100.0),), seed=4)
    cases = [(0, params(1), FinishReason.LENGTH), (0, params(2, k=None), FinishReason.LENGTH)]
    for stop in (text[0], text[1:5], text[5], text[17:21]):
        cases.append((0, params(stop=(stop,)), FinishReason.STOP_STRING))
    cases += [
        (0, params(stop=(text + "!",)), FinishReason.LENGTH),
        (0, params(sampling=ends_at_once), FinishReason.STOP),
    ]
    cases += [(room, params(200, k=k), FinishReason.CONTEXT) for room, k in ((1, 8), (2, None), (5, 8))]
    for room, asked, reason in cases:
        prompt = say("x" * (4096 - room - engine.count_tokens(say("")))) if room else say("hello")
        plain, speculative = both(engine.race(prompt, asked))
        assert finished(plain) == finished(speculative) == finished(list(engine.stream(prompt, asked)))
        assert first(plain) == first(speculative) and finished(plain).reason is reason


# -- the prompt, and caches --------------------------------------------------------------------------------------------


def test_the_prompt_is_read_once_and_both_are_told(engine: Engine) -> None:
    network, prompt = engine.served_pair().model.network, say("a long prompt, " * 60)
    assert isinstance(network, FakeNetwork)
    network.rows.clear()
    plain, speculative = both(engine.race(prompt, params(1)))
    assert sum(network.rows) == engine.count_tokens(prompt) > 3 * PREFILL_CHUNK
    reading = [[event for event in events if isinstance(event, Prefilling)] for events in (plain, speculative)]
    assert reading[0] == reading[1] and len(reading[0]) == 3
    assert first(plain) == first(speculative) and first(plain).ttft_s > 0


def test_a_race_leaves_caches_alone_but_the_one_that_it_names(engine: Engine) -> None:
    idle, prompt = engine.served_pair().pool._idle, say("so it began")
    list(engine.stream(prompt, params(), conversation="chat"))
    before = {key: (cache, list(cache.ids)) for key, cache in idle.items()}
    ends = [finished(events) for events in both(engine.race(prompt, params()))]
    assert {key: (cache, list(cache.ids)) for key, cache in idle.items()} == before
    named = both(engine.race(prompt, params(), conversation="chat"))
    assert first(named[0]) == first(named[1]) and first(named[0]).cached_tokens > 10
    alone = list(engine.stream(prompt, params(), conversation="chat"))
    assert first(alone).cached_tokens > 10
    assert {*ends, *map(finished, named)} == {finished(alone)}


# -- ends that nobody planned ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("who", "length"), [("plain", 70), ("plain", 90), ("speculative", 90), ("leaving", 300)])
def test_cancelling_either_ends_both(who: str, length: int) -> None:
    """While the prompt is read, and while both reply; what was leased has come back."""
    gate = Gate(length)
    engine = fake_engine(gate)
    race = engine.race(say("p" * 60), params(2000), conversation="c")
    assert gate.reached.wait(60)
    if who == "leaving":
        with race:
            pass
    else:
        getattr(race, who).cancel()
    gate.open.set()
    ends = [finished(events) for events in both(race)]
    assert all(end.reason is FinishReason.CANCELLED and len(end.token_ids) <= length for end in ends)
    assert finished(list(engine.stream(say("more"), params(5)))).reason is FinishReason.LENGTH
    assert set(engine.served_pair().pool._idle) == {"c"}
    engine.close()


def test_a_cancel_in_the_midst_of_a_long_prompt_ends_both_before_its_end(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, passes = threading.Event(), itertools.count(1)

    def synchronize() -> None:
        assert asked.wait(60)
        if next(passes) == 2:
            race.plain.cancel()

    monkeypatch.setattr(engine.served_pair().model, "synchronize", synchronize)
    race = engine.race(say("a long prompt, " * 100), params(100))
    asked.set()
    for events in both(race):
        assert [type(event) for event in events] == [Prefilling, Prefilling, Finished]
        assert finished(events).reason is FinishReason.CANCELLED and not finished(events).token_ids
    assert next(passes) == 3


def test_a_lane_that_breaks_ends_with_an_error_and_the_other_too(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the prompt, where the speculative lane reads it, or later; the engine lives on."""

    def breaks(*args: object) -> None:
        raise MemoryError("boom")

    ticks = itertools.count()  # every look at the clock is a second later, so each event ends a turn
    for module in ("decode", "rounds"):
        monkeypatch.setattr(f"engine.{module}.perf_counter", lambda: float(next(ticks)))
    for broken, what, name in (
        (0, KVCache, "copy"),
        (1, NgramDrafter, "propose"),
        (1, engine.served_pair().model, "forward"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(what, name, breaks)
            lanes = both(engine.race(say("hello, hello, hello"), params(500, drafter="ngram")))
        error, other = finished(lanes[broken]), finished(lanes[1 - broken])
        assert error.reason is FinishReason.ERROR and "try again" in error.message and "boom" not in error.message
        assert other.reason is FinishReason.CANCELLED and len(other.token_ids) < 500
        assert finished(both(engine.race(say("b"), params()))[0]).reason is FinishReason.LENGTH


def test_a_race_without_drafts_is_refused(engine: Engine) -> None:
    for asked, field in ((params(k=0), "num_speculative_tokens"), (params(drafter="none"), "drafter")):
        with pytest.raises(InvalidParams, match="draft") as refused:
            engine.race(say("a"), asked)
        assert refused.value.field == field


def test_every_second_is_on_the_clock_of_the_round_that_it_is_spent_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a made-up clock that moves only where work is done: a forward of n rows takes 1 + n seconds, asking a drafter a
    quarter. A probe is what plain decoding would be, so the next round pays for having asked."""
    now, options = [0.0], NgramDrafter.options
    for module in ("decode", "rounds"):
        monkeypatch.setattr(f"engine.{module}.perf_counter", lambda: now[0])

    def passing(seconds: float) -> float:
        now[0] += seconds
        return now[0]

    class Timed(FakeNetwork):
        def __call__(self, token_ids: torch.Tensor, *more: object) -> torch.Tensor:
            passing(1.0 + len(token_ids))
            return super().__call__(token_ids, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(NgramDrafter, "options", lambda self, ids: passing(0.25) and options(self, ids))
    engine = fake_engine(endless)
    engine.served_pair().model.network.__class__ = Timed  # type: ignore[assignment]
    for detail in Detail:
        plain, speculative = both(engine.race(say("aba" * 5), params(80, detail=detail)))
        assert {(r.total_s, r.verify_s) for r in rounds(plain)} == {(2.0, 2.0)}
        assert {(r.total_s - r.num_drafted, r.verify_s - r.num_drafted) for r in rounds(speculative)} == {(2.25, 2.0)}
        assert {r.num_drafted for r in rounds(speculative)} > {0}
    probed = rounds(list(engine.stream(say("aba" * 5), params(80, probe_every=5))))
    kinds = [r.kind is RoundKind.PROBE for r in probed]
    seconds = [r.total_s - r.num_drafted for r in probed]
    assert seconds == [
        2.0 if now else 2.25 + 0.25 * before for before, now in zip([False, *kinds], kinds, strict=False)
    ]
    engine.close()


@pytest.mark.model
def test_the_default_model_says_the_same_in_both_lanes_and_alone(real_engine: Engine) -> None:
    if not real_engine.facts().exact:
        pytest.skip("this machine's kernel is not proven exact")
    prompt = say("Explain speculative decoding in three sentences, then say the first of them again.")
    for temperature, detail in ((0.0, Detail.OFF), (0.8, Detail.FULL)):
        asked = params(40, temperature, k=None, detail=detail)
        plain, speculative = both(real_engine.race(prompt, asked))
        assert finished(plain) == finished(speculative) == finished(list(real_engine.stream(prompt, asked)))
        assert first(plain) == first(speculative) and any(r.num_drafted for r in rounds(speculative))
