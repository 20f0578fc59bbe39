"""The loop: whatever the drafter, K, and place of the end, speculative decoding writes what plain decoding writes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import decode as decode_module
from engine.config import DecodingParams, Detail, Rule, SamplingParams
from engine.control.latency import Profile
from engine.drafters.combined import CombinedDrafter
from engine.drafters.draft_model import DraftModelDrafter
from engine.drafters.ngram import NgramDrafter
from engine.drafters.protocol import DraftContext, Drafter, DraftOption, Proposal
from engine.errors import ContextFull
from engine.events import Event, Finished, FinishReason, KReason, Outcome, Prefilling, RoundKind, Source, Token
from engine.networks.kv_cache import KVCache
from engine.networks.model import Model
from engine.rng import KeyedRng, Purpose
from engine.sampling import probabilities
from engine.stats import summarise
from engine.stopping import cut_at_stop_strings
from engine.text.tokenizer import Tokenizer
from tests.fake_engine import Script, play, tokens_of
from tests.fakes import FakeNetwork, LogitsOf, Scripted, byte_tokenizer, finished, hashed_logits, noisy, rounds, run

VOCAB = 257
LANGUAGE = hashed_logits(VOCAB, seed=1)
TOKENIZER = byte_tokenizer()
AMOUNTS = {"right": 0.0, "good": 0.3, "poor": 1.5, "wrong": 50.0}
COSTS = (
    Profile(((1, 1.0), (17, 1.01)), (("draft_model", 1e-4), ("ngram", 1e-5))),  # drafts are cheap
    Profile(((1, 1e-6), (2, 1.0)), (("draft_model", 1.0),)),  # and dear
    Profile(),
)
SAMPLINGS = (
    SamplingParams(seed=5),
    SamplingParams(0.5, top_p=0.95, seed=12),
    SamplingParams(1.0, logit_bias=((104, -100.0), (9, 2.0)), seed=1),
    SamplingParams(0.0, repetition_penalty=1.3, seed=5),
    SamplingParams(1.0, frequency_penalty=0.4, presence_penalty=1.5, seed=5),
)


def repeats(ids: tuple[int, ...]) -> np.ndarray:
    """A language that says two tokens over and over where no penalty or ban keeps it from that."""
    row = LANGUAGE(ids).copy()
    row[104], row[97] = 9.0, 8.9
    return row


def model(language: LogitsOf = LANGUAGE, context_len: int = 4096) -> Model:
    return Model(FakeNetwork(VOCAB, language), context_len)


def drafter_of(name: str, language: LogitsOf = LANGUAGE, context_len: int = 4096) -> Drafter | None:
    if name == "both":
        return CombinedDrafter(NgramDrafter(1), drafter_of("good", language))  # type: ignore[arg-type]
    if name not in AMOUNTS:
        return NgramDrafter(1) if name == "ngram" else None
    return DraftModelDrafter(model(noisy(language, VOCAB, AMOUNTS[name]), context_len), KVCache())


def decode(
    prompt: Sequence[int],
    drafter: str | Drafter | None = "none",
    k: int | None = 4,
    n: int = 60,
    target: LogitsOf | Model = LANGUAGE,
    sampling: SamplingParams = SAMPLINGS[0],
    tools: tuple[Any, ...] = (),
    **more: Any,
) -> list[Event]:
    """A reply that is as it must be. tools: as `run` takes them, from the cache on."""
    on = target if isinstance(target, Model) else model(target)
    drafts = drafter_of(drafter, on.network.logits_of) if isinstance(drafter, str) else drafter  # type: ignore[attr-defined]
    tokenizer = more.pop("tokenizer", TOKENIZER)
    params = DecodingParams(sampling, "any", k, max_new_tokens=n, **more)
    events = run(prompt, params, on, tokenizer, drafts, *tools)
    check_reply(events)
    return events


def tokens(events: Sequence[Event]) -> list[Token]:
    return [token for event in events for token in tokens_of(event)]


def check_reply(events: Sequence[Event]) -> None:
    """What must hold for every reply."""
    end, said = finished(events), tokens(events)
    assert tuple(token.id for token in said) == end.token_ids and max((0, *end.token_ids)) < VOCAB
    assert "".join(token.text for token in said) == end.text
    assert [token.position for token in said] == list(range(len(said)))
    for r in rounds(events):
        outcomes = [d.outcome for d in r.decisions]
        accepted = outcomes.count(Outcome.ACCEPTED)
        rejected = outcomes.count(Outcome.REJECTED)
        fates = [Outcome.ACCEPTED] * accepted + [Outcome.REJECTED] * rejected
        assert outcomes == fates + [Outcome.DISCARDED] * (r.num_drafted - len(fates)) and rejected <= 1
        assert [t.id for t in r.tokens if t.source is Source.DRAFT] == [d.id for d in r.decisions[:accepted]]
        assert r.total_s >= r.draft_s + r.verify_s + r.sample_s - 1e-9
        last = Source.PLAIN if not outcomes else Source.BONUS if accepted == len(outcomes) else Source.RECOVERED
        assert {t.source for t in r.tokens[accepted:]} <= {last}
        assert all(d.id < VOCAB for d in r.decisions)  # no padding row of the weights


@given(
    st.sampled_from([*AMOUNTS, "ngram", "both"]),
    st.sampled_from([LANGUAGE, repeats]),
    st.sampled_from([None, None, 1, 2, 3, 5, 8]),
    st.sampled_from([1, 2, 9, 80]),
    st.lists(st.sampled_from([1, 2, 97, 104, 250]), min_size=1, max_size=30),
    st.sampled_from(SAMPLINGS),
    st.sampled_from(COSTS),
    st.integers(0, 14),
    st.sampled_from(Detail),
)
@settings(max_examples=40)
def test_every_reply_is_plain_decodings(
    name: str, language: LogitsOf, k: int | None, n: int, prompt: list[int], sampling: SamplingParams, costs: Profile,
    stop_at: int, detail: Detail,
) -> None:  # fmt: skip
    """At temperature 0, and under shared noise at any other, whatever the controller does and wherever in a block the
    reply ends; and so is the next turn, on the same caches. The target as its own drafter is accepted whole: a draft
    cache that is one behind after a full round would break this. The budget is met exactly, a ban holds."""
    more = {"sampling": sampling, "rule": Rule.SHARED_NOISE, "n": n, "probe_every": 5}
    unstopped = finished(decode(prompt, "none", 0, target=language, **more)).token_ids  # type: ignore[arg-type]
    fields = {field: getattr(TOKENIZER, field) for field in TOKENIZER.__slots__}
    more["tokenizer"] = Tokenizer(**fields | {"stop_ids": frozenset(unstopped[stop_at : stop_at + 1])})
    target, drafter, cache = model(language), drafter_of(name, language), KVCache()
    for _ in range(2):
        tools = (cache, lambda: False, costs)
        events = decode(prompt, drafter, k, target=target, tools=tools, detail=detail, **more)  # type: ignore[arg-type]
        end = finished(decode(prompt, "none", 0, target=language, **more))  # type: ignore[arg-type]
        assert finished(events) == end and (end.reason is FinishReason.STOP or len(end.token_ids) == n)
        assert 104 not in end.token_ids or not sampling.logit_bias
        assert bool(rounds(events)) == (len(end.token_ids) > 1)
        for r in rounds(events):
            assert (r.drafter == "none") == (r.k_requested == 0)
            # It explains no token behind the end.
            assert (r.recovery is None) == (detail is not Detail.FULL or r.tokens[-1].source is Source.DRAFT)
            last = r.tokens[-1].position
            assert all((d.position > last) <= (d.outcome is Outcome.DISCARDED) for d in r.decisions)
            assert name != "right" or Outcome.REJECTED not in {d.outcome for d in r.decisions}
        prompt = [*prompt, *end.token_ids, 10, 60]


def test_under_the_rejection_rule_the_seed_decides_and_equal_models_agree() -> None:
    def reply(seed: int) -> tuple[int, ...]:
        events = decode([104] * 30, "right", 3, sampling=SamplingParams(1.0, seed=seed))
        assert summarise(events).alpha == 1.0
        return finished(events).token_ids

    assert reply(3) == reply(3) != reply(4)


def test_every_token_is_computed_once() -> None:
    """Align on read wastes nothing: a perfect drafter's rounds run exactly k + 1 rows of the target, k of the
    drafter."""
    target, guess = FakeNetwork(VOCAB, LANGUAGE), FakeNetwork(VOCAB, LANGUAGE)
    decode([1, 2, 3, 4], DraftModelDrafter(Model(guess, 4096), KVCache()), 3, 41, Model(target, 4096), probe_every=0)
    assert target.rows == [4] + [4] * 10
    # After a round accepted whole the drafter reads the one draft that it never ran and the bonus token together.
    assert guess.rows == [5, 1, 1] + [2, 1, 1] * 9


# -- text --------------------------------------------------------------------------------------------------------------


def says(text: str, name: str = "ngram", k: int = 3, n: int = 900, **more: object) -> list[Event]:
    """A reply that is this text. name: of its drafter; "model" is one that is mostly right."""
    scripted = Scripted(text.encode(), 1)
    drafter = (
        drafter_of("ngram") if name == "ngram" else DraftModelDrafter(model(noisy(scripted, VOCAB, 5.0)), KVCache())
    )
    return decode([1], drafter if k else "none", k, n, scripted, **more)  # type: ignore[arg-type]


@given(
    st.text("ab中👍", min_size=1, max_size=4),
    st.text("ab中👍", min_size=1, max_size=30),
    st.integers(0, 8),
    st.booleans(),
)
@settings(max_examples=40)
def test_a_stop_string_cuts_text_tokens_and_counts_at_the_same_place(
    stop: str, text: str, k: int, copies: bool
) -> None:
    end, before = finished(says(text, "ngram" if copies else "model", k, stop=(stop,))), text.split(stop, maxsplit=1)[0]
    assert end.text == before and len(end.token_ids) == len(before.encode()) + (stop not in text)
    assert end.reason is (FinishReason.STOP_STRING if stop in text else FinishReason.STOP)


@given(
    st.lists(st.text("ab中", min_size=1, max_size=5), min_size=1, max_size=12),
    st.text("ab中", min_size=1, max_size=4),
    st.integers(0, 8),
)
@settings(max_examples=40)
def test_a_stop_string_inside_a_token_cuts_the_token(pieces: list[str], stop: str, k: int) -> None:
    """Tokens of several characters: what stands before the stop stays, in its token and with its source."""
    played = play(Script(pieces=pieces), DecodingParams(num_speculative_tokens=k))
    events = list(cut_at_stop_strings(iter(played), (stop,)))
    left = tokens(events)
    assert finished(events).text == "".join(t.text for t in left) == "".join(pieces).split(stop, maxsplit=1)[0]
    assert finished(events).token_ids == tuple(token.id for token in left)
    assert [(t.id, t.source) for t in left] == [(t.id, t.source) for t in tokens(played)[: len(left)]]


def test_text_that_cannot_be_a_stop_string_is_not_held_back() -> None:
    made: list[Event] = []

    def making() -> Iterator[Event]:
        for event in play(Script(), DecodingParams(num_speculative_tokens=3)):
            made.append(event)
            yield event

    for shown, _ in enumerate(cut_at_stop_strings(making(), ("\0zebra",)), 1):
        assert len(made) == shown


@pytest.mark.parametrize("k", [0, 1, 4, 8])
def test_every_character_shows_at_once_in_the_token_that_completed_it(k: int) -> None:
    text = "标点，。《》“号” aGV= https://例.测/q?=%20#片 👨‍👩‍👧 🏴󠁧󠁢󠁥󠁮󠁧󠁿🇨🇳 𠮷 a\ufffdb"
    for stops in ((), ("zebra", "。”", "\ufffd\ufffd")):
        events = says(text, "model", k, stop=stops)
        raw = b""
        for token in tokens(events):
            before, raw = raw.decode("utf-8", "ignore"), raw + bytes([token.id] if token.id < 256 else [])
            assert token.text == raw.decode("utf-8", "ignore")[len(before) :]
        assert finished(events).text == text
        for r in rounds(events):
            accepted = [d.text for d in r.decisions if d.outcome is Outcome.ACCEPTED]
            assert accepted == [token.text for token in r.tokens[: len(accepted)]]


def test_a_reply_cut_inside_a_character_closes_it_once() -> None:
    for cut in (1, 2, 3):
        assert finished(says("ab👍", n=2 + cut)).text == "ab\ufffd"


class Ender(NgramDrafter):
    """Proposes that the reply ends, all the time."""

    def options(self, ids: Sequence[int]) -> tuple[DraftOption, ...]:
        return (DraftOption("ender", "ender"),)

    def propose(self, option, context, k, should_continue=None) -> Proposal:  # type: ignore[no-untyped-def]
        return Proposal((256,) * k)


def test_control_tokens_carry_their_name_and_no_text_also_where_they_are_rejected() -> None:
    events = decode([1], Ender(), 3, target=Scripted(b"hi there", 1))
    drafts, last = [d for r in rounds(events) for d in r.decisions], tokens(events)[-1]
    assert {d.outcome for d in drafts} == set(Outcome)
    assert {(d.text, d.special) for d in drafts} == {(last.text, last.special)} == {("", "<|end|>")}
    assert finished(events).text == "hi there" and finished(events).reason is FinishReason.STOP


# -- ends --------------------------------------------------------------------------------------------------------------


def test_the_context_limit_ends_a_reply_without_an_exception() -> None:
    for left, k in itertools.product((1, 2, 5, 10), (0, 5)):
        end = finished(decode([9] * (64 - left), "good", k, 500, model(context_len=64)))
        assert end.reason is FinishReason.CONTEXT and len(end.token_ids) == left
    for beyond in (0, 9):
        with pytest.raises(ContextFull, match="64"):
            decode([9] * (64 + beyond), "good", target=model(context_len=64))


def test_a_drafter_with_a_shorter_context_stops_visibly_and_the_reply_goes_on() -> None:
    events = decode([1] * 5, drafter_of("right", context_len=20), probe_every=0)
    assert finished(events) == finished(decode([1] * 5))
    assert {r.num_drafted for r in rounds(events) if r.context_len >= 20} == {0}
    assert KReason.DRAFTER_CONTEXT in {r.k_reason for r in rounds(events)}


def test_probes_come_at_round_2_and_then_every_so_often_and_emit_real_tokens() -> None:
    events = decode([3], "poor", 3, 80, probe_every=5)
    probes = [r for r in rounds(events) if r.kind is RoundKind.PROBE]
    assert [r.index for r in probes][:4] == [2, 7, 12, 17] and summarise(events).baseline.n == len(probes)
    assert {(r.num_drafted, tuple(t.source for t in r.tokens)) for r in probes} == {(0, (Source.PLAIN,))}
    for plain in (decode([3], "good", 0, 20), decode([3], "none", 4, 20)):
        assert {r.kind for r in rounds(plain)} == {RoundKind.PLAIN}


def test_cancel_between_rounds_and_inside_a_long_prefill() -> None:
    def cancelled_after(looks: int, prompt: list[int]) -> list[Event]:
        seen = itertools.count()
        events = decode(prompt, "good", 3, tools=(KVCache(), lambda: next(seen) >= looks))
        assert finished(events).reason is FinishReason.CANCELLED
        return events

    assert [type(event) for event in cancelled_after(4, [1] * 3000)] == [Prefilling] * 4 + [Finished]
    assert 0 < len(tokens(cancelled_after(20, [1, 2]))) < 60


def test_whatever_breaks_ends_the_reply_with_a_sentence_and_keeps_the_text() -> None:
    def broken(bad: float) -> LogitsOf:
        def language(ids: tuple[int, ...]) -> np.ndarray:
            if not bad and len(ids) > 12:
                raise RuntimeError("secret detail")
            return LANGUAGE(ids) + (bad if len(ids) > 12 else 0.0)

        return language

    guess = DraftModelDrafter(model(broken(np.nan)), KVCache())
    for target, drafter, words in (
        (broken(np.nan), "ngram", "not a number"),
        (broken(np.inf), "ngram", "not a number"),
        (broken(0.0), "ngram", "try again"),
        (LANGUAGE, guess, "not a number"),
    ):
        end = finished(decode([1, 2], drafter, 3, target=target))
        assert end.reason is FinishReason.ERROR and words in end.message and "secret" not in end.message
        assert 8 <= len(end.token_ids) <= 11


# -- what is told, and what it is made from ----------------------------------------------------------------------------


def raw_prob(language: LogitsOf, ids: tuple[int, ...], token_id: int) -> object:
    shares = np.exp(language(ids))
    return pytest.approx(shares[token_id] / shares.sum(), rel=1e-5)


def test_detail_tells_the_models_own_probabilities() -> None:
    """Worked out again from the languages themselves, for every token and every draft that was tested."""
    prompt, guess, tested = [1, 2, 1, 2, 1], noisy(LANGUAGE, VOCAB, AMOUNTS["good"]), 0
    levels = itertools.cycle([Detail.PROBS, Detail.FULL, Detail.FULL])
    for sampling, name, level in zip(SAMPLINGS[:4] * 2, ["good"] * 4 + ["ngram"] * 4, levels, strict=False):
        events = decode(prompt, name, 3, detail=level, sampling=sampling)
        whole = (*prompt, *finished(events).token_ids)
        for token in tokens(events):
            assert token.raw_prob == raw_prob(LANGUAGE, whole[: len(prompt) + token.position], token.id)
        for r in rounds(events):
            for i, d in enumerate(r.decisions):
                assert (d.detail is None) == (d.outcome is Outcome.DISCARDED)
                if d.detail is not None:
                    before = (*whole[: r.context_len], *(draft.id for draft in r.decisions[:i]))
                    assert d.detail.raw_target_prob == raw_prob(LANGUAGE, before, d.id)
                    assert d.detail.raw_draft_prob == (raw_prob(guess, before, d.id) if name == "good" else None)
                    assert bool(d.detail.draft_top) == bool(d.detail.target_top) == (level is Detail.FULL)
                    tested += 1
    assert tested > 50


@pytest.mark.parametrize("rule", list(Rule))
def test_a_proposal_holds_the_very_distributions_that_were_drawn_from(rule: Rule) -> None:
    """Not the unfiltered ones, not those of other drafts: filters and penalties of each place included."""
    prompt, rng = [1, 2, 3], KeyedRng(3, rule, begin=3)
    for params in (SamplingParams(0.7, 5, seed=3), SamplingParams(1.5, top_p=0.6, presence_penalty=1.0, seed=3)):
        context = DraftContext(prompt, 1, None, params, rng)
        proposal = DraftModelDrafter(model(), KVCache()).propose(DraftOption("draft_model", ""), context, 5)
        for i, token_id in enumerate(proposal.token_ids):
            history = [*prompt, *proposal.token_ids[:i]]
            logits = torch.tensor(LANGUAGE(tuple(history)), dtype=torch.float32)[None]
            assert proposal.probs is not None
            assert torch.equal(proposal.probs[i], probabilities(logits, history, 1, params)[0])
            assert token_id == rng.draw(proposal.probs[i], 3 + i, Purpose.DRAFT)


@pytest.mark.parametrize("name", ["good", "ngram"])
def test_no_random_number_decides_twice(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number that tested one draft and then another, or drew two tokens, would tie together what must be
    independent."""
    used: list[tuple[Purpose, int]] = []

    class Counting(KeyedRng):
        def uniform(self, position: int, purpose: Purpose) -> float:
            used.append((purpose, position))
            return super().uniform(position, purpose)

    monkeypatch.setattr(decode_module, "KeyedRng", Counting)
    events = decode([1, 2, 3], name, 4, sampling=SAMPLINGS[2])
    decisive = [entry for entry in used if entry[0] is not Purpose.DRAFT]
    assert len(set(decisive)) == len(decisive)
    drawn = {(Purpose.TARGET, 3 + token.position) for token in tokens(events) if token.source is not Source.DRAFT}
    assert drawn <= {*decisive}
