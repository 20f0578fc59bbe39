"""The loop: whatever the drafter, K, and place of the end, speculative decoding writes what plain decoding writes."""

from __future__ import annotations

import inspect
import random
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine import decode as decode_module
from engine.config import DecodingParams, Detail, Rule, SamplingParams
from engine.decode import Reply, ReplyContext
from engine.drafters.draft_model import DraftModelDrafter
from engine.drafters.ngram import NgramDrafter
from engine.drafters.protocol import DraftContext, Drafter, DraftOption, Proposal
from engine.errors import ContextFull
from engine.events import (
    Event,
    Finished,
    FinishReason,
    KReason,
    Outcome,
    Prefilled,
    Prefilling,
    Round,
    RoundKind,
    Source,
)
from engine.networks.kv_cache import KVCache
from engine.networks.model import Model
from engine.rng import KeyedRng, Purpose
from engine.rounds import play_rounds
from engine.sampling import probabilities
from engine.stats import summarise
from engine.stopping import cut_at_stop_strings
from engine.text.tokenizer import Tokenizer
from tests.fake_engine import Script, play, tokens_of
from tests.fakes import FakeNetwork, Scripted, byte_tokenizer, finished, hashed_logits, noisy, run

VOCAB = 257
LANGUAGE = hashed_logits(VOCAB, seed=1)
TOKENIZER = byte_tokenizer()
MODEL, NGRAM = DraftOption("draft_model", "draft_model"), DraftOption("ngram", "ngram 1-2")


def model(language=LANGUAGE, context_len: int = 4096) -> Model:  # type: ignore[no-untyped-def]
    return Model(FakeNetwork(VOCAB, language), context_len)


def drafters() -> dict[str, Drafter | None]:
    qualities = {"right": 0.0, "good": 0.3, "poor": 1.5, "wrong": 50.0}
    made: dict[str, Drafter | None] = {
        name: DraftModelDrafter(model(noisy(LANGUAGE, VOCAB, amount)), KVCache()) for name, amount in qualities.items()
    }
    return made | {"ngram": NgramDrafter(1), "none": None}


def decode(
    prompt: Sequence[int], drafter: Drafter | None = None, k: int = 4, n: int = 60, **more: object
) -> list[Event]:
    sampling = more.pop("sampling", SamplingParams(seed=5))
    params = DecodingParams(sampling, "any", k, max_new_tokens=n, **more)  # type: ignore[arg-type]
    return run(prompt, params, model(), TOKENIZER, drafter)


def rounds(events: Sequence[Event]) -> list[Round]:
    return [event for event in events if isinstance(event, Round)]


def check_reply(events: Sequence[Event]) -> None:
    """What must hold for every reply."""
    end = finished(events)
    [first] = [event for event in events if isinstance(event, Prefilled)]
    tokens = ([first.token] if first.token else []) + [token for r in rounds(events) for token in r.tokens]
    assert tuple(token.id for token in tokens) == end.token_ids
    assert "".join(token.text for token in tokens) == end.text
    assert [token.position for token in tokens] == list(range(len(tokens)))
    for r in rounds(events):
        outcomes = [d.outcome for d in r.decisions]
        assert len(outcomes) == r.num_drafted
        accepted = outcomes.count(Outcome.ACCEPTED)
        assert outcomes[:accepted] == [Outcome.ACCEPTED] * accepted and outcomes.count(Outcome.REJECTED) <= 1
        assert Outcome.REJECTED not in outcomes[accepted + 1 :]
        assert [t.id for t in r.tokens if t.source is Source.DRAFT] == [d.id for d in r.decisions[:accepted]]
        assert r.total_s >= r.draft_s + r.verify_s + r.sample_s - 1e-9
        for t in r.tokens[accepted:]:
            assert t.source is (
                Source.PLAIN if not outcomes else Source.BONUS if accepted == len(outcomes) else Source.RECOVERED
            )


@pytest.mark.parametrize("name", ["right", "good", "poor", "wrong", "ngram"])
@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("length", [1, "k", "k+1", 200])
def test_greedy_equals_plain(name: str, k: int, length: int | str) -> None:
    size = length if isinstance(length, int) else k + (length == "k+1")
    generator = random.Random(k)
    prompt = [generator.randrange(VOCAB - 1) for _ in range(size)]
    events = decode(prompt, drafters()[name], k, 200)
    check_reply(events)
    assert finished(events).token_ids == finished(decode(prompt, None, 0, 200)).token_ids


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_shared_noise_depends_on_the_seed_alone(temperature: float) -> None:
    replies = set()
    for name, drafter in drafters().items():
        for k in (0, 1, 3, 7):
            sampling = SamplingParams(temperature=temperature, top_p=0.95, seed=12)
            events = decode([1, 2, 3], drafter, k, 50, sampling=sampling, rule=Rule.SHARED_NOISE)
            check_reply(events)
            replies.add(finished(events).token_ids)
            assert name != "right" or all(d.outcome is Outcome.ACCEPTED for r in rounds(events) for d in r.decisions)
    assert len(replies) == 1


def test_rejection_sampling_repeats_with_the_same_seed_k_and_drafter() -> None:
    def reply(seed: int) -> tuple[int, ...]:
        drafter = drafters()["good"]
        return finished(decode([1, 2], drafter, 3, 60, sampling=SamplingParams(temperature=1.0, seed=seed))).token_ids

    assert reply(3) == reply(3) and reply(3) != reply(4)


@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_perfect_drafter_is_accepted_whole_every_round(k: int, temperature: float) -> None:
    """The target as its own drafter; a draft cache that is one behind after a full round would break this."""
    n = 1 + 6 * (k + 1) + 2  # the first token comes from the prefill
    sampling = SamplingParams(temperature=temperature, seed=1, logit_bias=((256, -100.0),))
    events = decode([4, 5], drafters()["right"], k, n, probe_every=0, sampling=sampling)
    assert len(rounds(events)) == -(-(n - 1) // (k + 1))
    assert all(d.outcome is Outcome.ACCEPTED for r in rounds(events) for d in r.decisions)
    assert summarise(events).alpha == 1.0


def test_every_token_is_computed_once() -> None:
    """Align on read wastes nothing: a perfect drafter's rounds run exactly k + 1 rows of the target, k of the
    drafter."""
    target, drafter_model = model(), model()
    drafter = DraftModelDrafter(drafter_model, KVCache())
    params = DecodingParams(SamplingParams(seed=1), "any", 3, max_new_tokens=41, probe_every=0)
    run([1, 2, 3, 4], params, target, TOKENIZER, drafter)
    assert target.network.rows == [4] + [4] * 10  # type: ignore[attr-defined]
    # After a round accepted whole the drafter reads the one draft that it never ran and the bonus token together.
    assert drafter_model.network.rows == [5, 1, 1] + [2, 1, 1] * 9  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["right", "good", "wrong", "ngram"])
def test_a_stop_id_ends_the_reply_wherever_it_falls_in_a_block(name: str) -> None:
    k = 5
    plain = finished(decode([7, 7], None, 0, 40)).token_ids
    for stop_at in range(14):
        stop = plain[stop_at]
        expected = plain[: plain.index(stop) + 1]
        params = DecodingParams(SamplingParams(seed=5), "any", k, max_new_tokens=40, detail=Detail.FULL)
        events = run([7, 7], params, model(), stopping_at(stop), drafters()[name])
        check_reply(events)
        assert finished(events).token_ids == expected and finished(events).reason is FinishReason.STOP
        last = rounds(events)[-1] if rounds(events) else None
        if last is not None:
            end = last.tokens[-1].position
            assert all((d.position > end) <= (d.outcome is Outcome.DISCARDED) for d in last.decisions)
            assert (last.recovery is None) == (last.tokens[-1].source is Source.DRAFT), (
                "explains no token behind the end"
            )


def stopping_at(token_id: int) -> Tokenizer:
    tokenizer = byte_tokenizer()
    fields = {name: getattr(tokenizer, name) for name in tokenizer.__slots__}
    return Tokenizer(**fields | {"stop_ids": frozenset({token_id})})


@pytest.mark.parametrize("k", [1, 4, 8])
def test_the_turn_after_a_stop_in_mid_block_equals_a_fresh_start(k: int) -> None:
    """What the caches of target and drafter hold behind the stop must not leak into the next turn."""
    plain = finished(decode([3, 4], None, 0, 24)).token_ids
    params = DecodingParams(SamplingParams(seed=5), "any", k, max_new_tokens=24)
    for stop in dict.fromkeys(plain):
        target, cache, draft_cache = model(), KVCache(), KVCache()
        drafter = DraftModelDrafter(model(noisy(LANGUAGE, VOCAB, 0.2)), draft_cache)
        first = finished(run([3, 4], params, target, stopping_at(stop), drafter, cache)).token_ids
        assert first == plain[: plain.index(stop) + 1]
        turn = [3, 4, *first, 10, 60]
        again = finished(run(turn, params, target, stopping_at(stop), drafter, cache)).token_ids
        assert again == finished(run(turn, params, model(), stopping_at(stop))).token_ids


TEXT = "The sky is blue; 天空是蓝色的。 👨‍👩‍👧 and so it goes, and so it goes, and so it ends."


@pytest.mark.parametrize("k", [0, 1, 3, 8])
@pytest.mark.parametrize("stop", ["blue", "天空", "蓝色的。", "👩", "so it goes, and so it e", "T", "ends.", "never"])
def test_a_stop_string_cuts_text_tokens_and_counts_at_the_same_place(k: int, stop: str) -> None:
    script = TEXT.encode()
    scripted = Scripted(script, 3)
    drafter = DraftModelDrafter(model(noisy(scripted, VOCAB, 4.0)), KVCache())
    params = DecodingParams(SamplingParams(seed=5), "any", k, stop=(stop,), max_new_tokens=500)
    events = run([1, 2, 3], params, model(scripted), TOKENIZER, drafter)
    check_reply(events)
    expected = TEXT.split(stop, maxsplit=1)[0]
    end = finished(events)
    assert end.text == expected
    assert end.reason is (FinishReason.STOP if stop == "never" else FinishReason.STOP_STRING)
    assert len(end.token_ids) == len(expected.encode()) + (stop == "never")


@given(st.text("ab", min_size=1, max_size=4), st.text("ab", min_size=1, max_size=30), st.integers(0, 8))
@settings(max_examples=100, deadline=None)
def test_stop_strings_that_overlap_themselves(stop: str, text: str, k: int) -> None:
    scripted = Scripted(text.encode(), 1)
    params = DecodingParams(SamplingParams(seed=5), "any", k, stop=(stop,))
    events = run([1], params, model(scripted), TOKENIZER, NgramDrafter(1))
    check_reply(events)
    assert finished(events).text == text.split(stop, maxsplit=1)[0]


@given(
    st.lists(st.text("ab中", min_size=1, max_size=5), min_size=1, max_size=12),
    st.text("ab中", min_size=1, max_size=4),
    st.integers(0, 8),
)
def test_a_stop_string_inside_a_token_cuts_the_token(pieces: list[str], stop: str, k: int) -> None:
    """Tokens of several characters: what stands before the stop stays, in its token and with its source."""
    played = play(Script(pieces=pieces), DecodingParams(num_speculative_tokens=k))
    events = list(cut_at_stop_strings(iter(played), (stop,)))
    text = "".join(pieces).split(stop, maxsplit=1)[0]
    assert finished(events).text == text
    kept = [token for event in events for token in tokens_of(event)]
    assert "".join(token.text for token in kept) == text
    assert finished(events).token_ids == tuple(token.id for token in kept)
    whole = [token for event in played for token in tokens_of(event)]
    assert [(token.id, token.source) for token in kept] == [(token.id, token.source) for token in whole[: len(kept)]]


def test_text_that_cannot_be_a_stop_string_is_not_held_back() -> None:
    scripted = Scripted(b"https://example.org/a/very/long/path", 1)
    params = DecodingParams(SamplingParams(seed=5), "any", 0, stop=("zebra",))
    events = run([1], params, model(scripted), TOKENIZER)
    shown = ""
    for event in events[:-1]:
        shown += event.text if isinstance(event, Round) else event.token.text  # type: ignore[union-attr]
        assert shown == "https://example.org/a/very/long/path"[: len(shown)]
    assert len(events) == 2 + len("https://example.org/a/very/long/path")


@pytest.mark.parametrize("k", range(1, 9))
def test_no_replacement_character_is_ever_shown(k: int) -> None:
    scripted = Scripted(TEXT.encode(), 2)
    drafter = DraftModelDrafter(model(noisy(scripted, VOCAB, 6.0)), KVCache())
    params = DecodingParams(SamplingParams(seed=5), "any", k, max_new_tokens=500)
    events = run([1, 2], params, model(scripted), TOKENIZER, drafter)
    check_reply(events)
    assert finished(events).text == TEXT
    for r in rounds(events):
        assert "\ufffd" not in r.text
        assert all("\ufffd" not in d.text for d in r.decisions)


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_reply_cut_inside_a_character_closes_it_once(cut: int) -> None:
    script = b"ab" + "👍".encode()
    params = DecodingParams(SamplingParams(seed=5), "any", 3, max_new_tokens=2 + cut)
    events = run([1], params, model(Scripted(script, 1)), TOKENIZER, NgramDrafter())
    check_reply(events)
    assert finished(events).text == "ab\ufffd"


@pytest.mark.parametrize("k", [0, 5])
@pytest.mark.parametrize("offset", range(-10, 11))
def test_the_context_limit_ends_a_reply_without_an_exception(offset: int, k: int) -> None:
    limit = 64
    prompt = [9] * (limit + offset)
    params = DecodingParams(SamplingParams(seed=5), "any", k, max_new_tokens=500)
    if offset >= 0:
        with pytest.raises(ContextFull, match=str(limit)):
            run(prompt, params, model(context_len=limit), TOKENIZER, NgramDrafter(1))
        return
    events = run(prompt, params, model(context_len=limit), TOKENIZER, drafters()["good"])
    check_reply(events)
    assert finished(events).reason is FinishReason.CONTEXT and len(finished(events).token_ids) == -offset


def test_a_drafter_with_a_shorter_context_stops_visibly_and_the_reply_goes_on() -> None:
    drafter = DraftModelDrafter(model(LANGUAGE, context_len=20), KVCache())
    params = DecodingParams(SamplingParams(seed=5), "any", 4, max_new_tokens=60, probe_every=0)
    events = run([1] * 5, params, model(), TOKENIZER, drafter)
    assert finished(events).token_ids == finished(decode([1] * 5, None, 0, 60)).token_ids
    assert [r.num_drafted for r in rounds(events) if r.context_len >= 20] == [0] * len(
        [r for r in rounds(events) if r.context_len >= 20]
    )
    assert any(r.k_reason is KReason.DRAFTER_CONTEXT for r in rounds(events))


def test_probes_come_at_round_2_and_then_every_so_often_and_emit_real_tokens() -> None:
    events = decode([3], drafters()["poor"], 3, 80, probe_every=5)
    check_reply(events)
    probes = [r for r in rounds(events) if r.kind is RoundKind.PROBE]
    assert [r.index for r in probes][:4] == [2, 7, 12, 17]
    assert all(r.num_drafted == 0 and len(r.tokens) == 1 and r.tokens[0].source is Source.PLAIN for r in probes)
    assert summarise(events).baseline.n == len(probes)


def test_zero_k_and_no_drafter_are_plain_rounds() -> None:
    for events in (decode([3], drafters()["good"], 0, 20), decode([3], None, 4, 20)):
        assert {r.kind for r in rounds(events)} == {RoundKind.PLAIN}


def test_the_budget_is_met_exactly_and_one_token_needs_no_round() -> None:
    for n in range(1, 12):
        events = decode([3], drafters()["right"], 4, n)
        assert len(finished(events).token_ids) == n and finished(events).reason is FinishReason.LENGTH
    assert len(decode([3], None, 4, 1)) == 2
    assert summarise(decode([3], None, 4, 1)).overall_tok_s is None


def test_cancel_between_rounds_and_inside_a_long_prefill() -> None:
    flags = iter([False] * 4)
    events = run(
        [1] * 3000,
        DecodingParams(SamplingParams(seed=1)),
        model(),
        TOKENIZER,
        cancelled=lambda: next(flags, None) is not False,
    )
    assert finished(events).reason is FinishReason.CANCELLED and finished(events).token_ids == ()
    assert 0 < len([event for event in events if isinstance(event, Prefilling)]) < 10
    calls = iter(range(1000))
    events = decode_cancelled_after(20, calls)
    check_reply(events)
    assert finished(events).reason is FinishReason.CANCELLED and 0 < len(finished(events).token_ids) < 60


def decode_cancelled_after(n: int, calls: object) -> list[Event]:
    params = DecodingParams(SamplingParams(seed=5), "any", 3, max_new_tokens=60)
    return run([1, 2], params, model(), TOKENIZER, drafters()["good"], cancelled=lambda: next(calls) > n)  # type: ignore[call-overload]


def test_stop_edit_retry_and_the_next_turn_equal_a_fresh_start() -> None:
    """One cache through a conversation that is stopped in mid-reply, edited and retried."""
    shared, draft_cache = model(), KVCache()
    cache = KVCache()
    params = DecodingParams(SamplingParams(seed=5), "any", 4, max_new_tokens=30)

    def reply(prompt: list[int]) -> tuple[int, ...]:
        drafter = DraftModelDrafter(model(noisy(LANGUAGE, VOCAB, 0.5)), draft_cache)
        return finished(run(prompt, params, shared, TOKENIZER, drafter, cache)).token_ids

    def fresh(prompt: list[int]) -> tuple[int, ...]:
        return finished(run(prompt, params, model(), TOKENIZER)).token_ids

    first = [1, 2, 3, 4]
    run(first, params, shared, TOKENIZER, drafters()["good"], cache, cancelled=iter([False] * 5 + [True] * 99).__next__)
    answer = reply(first)
    assert answer == fresh(first)
    turn = [*first, *answer, 10, 11]
    assert reply(turn) == fresh(turn)
    edited = [1, 2, 9, 4, 5]
    assert reply(edited) == fresh(edited)
    assert reply(first) == answer
    assert reply(first[:1]) == fresh(first[:1])


def test_the_repetition_penalty_sees_the_drafts_before_each_position() -> None:
    """Row i of a verification is penalised for the drafts before it, as plain decoding would be."""

    def wants_repeats(ids: tuple[int, ...]) -> np.ndarray:
        row = hashed_logits(VOCAB, 2)(ids)
        row[104], row[97] = 6.0, 5.9
        return row

    for penalties in ({"repetition_penalty": 1.3}, {"frequency_penalty": 0.4}, {"presence_penalty": 1.5}):
        params = SamplingParams(seed=5, **penalties)
        replies = {
            finished(
                run(
                    [104, 97],
                    DecodingParams(params, "any", k, max_new_tokens=80),
                    model(wants_repeats),
                    TOKENIZER,
                    drafter,
                )
            ).token_ids
            for k, drafter in [
                (0, None),
                (4, NgramDrafter(1)),
                (3, DraftModelDrafter(model(wants_repeats), KVCache())),
            ]
        }
        assert len(replies) == 1 and len(set(replies.pop())) > 3


@pytest.mark.parametrize("rule", list(Rule))
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_banned_token_is_never_emitted_at_any_position(rule: Rule, temperature: float) -> None:
    def repeats(ids: tuple[int, ...]) -> np.ndarray:
        row = hashed_logits(VOCAB, 3)(ids)
        row[50] = 30.0
        return row

    params = DecodingParams(
        SamplingParams(temperature=temperature, logit_bias=((50, -100.0),), seed=5), "any", 4, rule, max_new_tokens=80
    )
    for drafter in (NgramDrafter(1), DraftModelDrafter(model(repeats), KVCache())):
        assert 50 not in finished(run([50] * 30, params, model(repeats), TOKENIZER, drafter)).token_ids


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_logit_that_is_no_number_ends_the_reply_with_a_sentence_and_keeps_the_text(bad: float) -> None:
    def breaks(ids: tuple[int, ...]) -> np.ndarray:
        row = LANGUAGE(ids).copy()
        if len(ids) > 12:
            row[5] = bad
        return row

    events = run([1, 2], DecodingParams(SamplingParams(seed=5), "any", 3), model(breaks), TOKENIZER, NgramDrafter())
    check_reply(events)
    end = finished(events)
    assert end.reason is FinishReason.ERROR and end.message and len(end.token_ids) == 11


def test_padding_rows_of_the_weights_are_never_proposed_or_drawn() -> None:
    events = decode([1], drafters()["good"], 4, 60, sampling=SamplingParams(temperature=2.0, seed=1))
    assert all(i < VOCAB for i in finished(events).token_ids)
    assert all(d.id < VOCAB for r in rounds(events) for d in r.decisions)


SHAPED = [
    SamplingParams(seed=2),
    SamplingParams(temperature=0.8, seed=2),
    SamplingParams(temperature=1.5, top_p=0.9, repetition_penalty=1.3, logit_bias=((9, 2.0), (256, -100.0)), seed=2),
]


@pytest.mark.parametrize("sampling", SHAPED, ids=["greedy", "drawn", "shaped"])
@pytest.mark.parametrize("level", [Detail.PROBS, Detail.FULL])
def test_detail_adds_numbers_and_changes_nothing(sampling: SamplingParams, level: Detail) -> None:
    with_detail = decode([1, 2], drafters()["good"], 3, 40, detail=level, sampling=sampling)
    without = decode([1, 2], drafters()["good"], 3, 40, sampling=sampling)
    assert finished(with_detail).token_ids == finished(without).token_ids
    assert all(token.raw_prob is None for event in without for token in tokens_of(event))
    for r in rounds(with_detail):
        assert (r.recovery is None) == (level is Detail.PROBS) and r.detail_s > 0
        for d in r.decisions:
            assert (d.detail is None) == (d.outcome is Outcome.DISCARDED)
            if d.detail is not None and level is Detail.PROBS:
                assert d.detail.draft_top == d.detail.target_top == ()
            elif d.detail is not None:
                assert 0 <= d.detail.raw_target_prob <= 1 and 0 <= (d.detail.raw_draft_prob or 0) <= 1
                assert sum(choice.prob for choice in d.detail.target_top) <= 1 + 1e-6
                assert d.detail.target_top[0].prob == max(choice.prob for choice in d.detail.target_top)


def softmax(row: np.ndarray) -> np.ndarray:
    shares: np.ndarray = np.exp(row - row.max())
    return shares / shares.sum()


@pytest.mark.parametrize("sampling", SHAPED, ids=["greedy", "drawn", "shaped"])
@pytest.mark.parametrize("name", ["good", "ngram"])
def test_raw_probabilities_are_the_models_own_whatever_the_settings(sampling: SamplingParams, name: str) -> None:
    """Worked out again from the languages themselves, for every token and every draft that was tested."""
    prompt, says = [1, 2, 1, 2, 1], {"good": noisy(LANGUAGE, VOCAB, 0.3)}
    events = decode(prompt, drafters()[name], 3, 200, detail=Detail.PROBS, sampling=sampling)
    whole = (*prompt, *finished(events).token_ids)
    for token in (token for event in events for token in tokens_of(event)):
        row = softmax(LANGUAGE(whole[: len(prompt) + token.position]))
        assert token.raw_prob == pytest.approx(row[token.id], rel=1e-5)
    tested = 0
    for r in rounds(events):
        for i, d in enumerate(r.decisions):
            if d.detail is None:
                continue
            before = (*whole[: r.context_len], *(draft.id for draft in r.decisions[:i]))
            assert d.detail.raw_target_prob == pytest.approx(softmax(LANGUAGE(before))[d.id], rel=1e-5)
            expected = softmax(says[name](before))[d.id] if name in says else None
            assert d.detail.raw_draft_prob == (None if expected is None else pytest.approx(expected, rel=1e-5))
            tested += 1
    assert tested > 5


def test_control_tokens_carry_their_name_and_no_text() -> None:
    events = run(
        [1], DecodingParams(SamplingParams(seed=5), "any", 3), model(Scripted(b"hi", 1)), TOKENIZER, NgramDrafter()
    )
    last = rounds(events)[-1].tokens[-1]
    assert (last.id, last.text, last.special) == (256, "", "<|end|>")
    assert finished(events).text == "hi" and finished(events).reason is FinishReason.STOP


def test_every_reply_ends_with_finished_even_when_the_engine_is_broken() -> None:
    def broken(ids: tuple[int, ...]) -> np.ndarray:
        if len(ids) > 5:
            raise RuntimeError("secret detail")
        return LANGUAGE(ids)

    events = run([1, 2], DecodingParams(SamplingParams(seed=5), "any", 3), model(broken), TOKENIZER, NgramDrafter())
    end = finished(events)
    assert isinstance(end, Finished) and end.reason is FinishReason.ERROR and "secret" not in end.message


class RecordingDice(KeyedRng):
    """Remembers what it was asked to draw from, where, and what came out."""

    __slots__ = ("drawn",)

    def __init__(self, seed: int, rule: Rule) -> None:
        super().__init__(seed, rule)
        object.__setattr__(self, "drawn", [])

    def draw(self, probs: Tensor, position: int, purpose: Purpose) -> int:
        token_id = super().draw(probs, position, purpose)
        self.drawn.append((probs, position, purpose, token_id))
        return token_id


@pytest.mark.parametrize("rule", list(Rule))
@pytest.mark.parametrize(
    "settings_",
    [{"temperature": 0.0}, {"temperature": 0.7, "top_k": 5}, {"temperature": 1.5, "top_p": 0.6, "presence_penalty": 1.0}],
)  # fmt: skip
def test_a_proposal_holds_the_very_distributions_that_were_drawn_from(rule: Rule, settings_: dict[str, float]) -> None:
    """Not the unfiltered ones, not those of other drafts: filters and penalties of each place included."""
    params, k, prompt = SamplingParams(seed=3, **settings_), 5, [1, 2, 3]  # type: ignore[arg-type]
    rng = RecordingDice(3, rule)
    proposal = DraftModelDrafter(model(), KVCache()).propose(MODEL, DraftContext(prompt, 1, None, params, rng), k)
    assert [(position, purpose) for _, position, purpose, _ in rng.drawn] == [(3 + i, Purpose.DRAFT) for i in range(k)]
    assert proposal.token_ids == tuple(token_id for *_, token_id in rng.drawn)
    for i in range(k):
        history = [*prompt, *proposal.token_ids[:i]]
        logits = torch.tensor(LANGUAGE(tuple(history)), dtype=torch.float32)[None]
        assert proposal.probs is not None and torch.equal(proposal.probs[i], rng.drawn[i][0])
        assert torch.equal(proposal.probs[i], probabilities(logits, history, 1, params)[0])


def test_a_look_up_is_a_point_mass() -> None:
    proposal = NgramDrafter(1).propose(
        NGRAM, DraftContext([1, 2, 1], 1, None, SamplingParams(), KeyedRng(0, Rule.REJECTION)), 3
    )
    assert proposal.probs is None and [proposal.prob(i) for i in range(3)] == [1.0] * 3


@pytest.mark.parametrize("name", ["right", "good", "wrong", "ngram"])
def test_no_random_number_decides_twice(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number that tested one draft and then another, or drew two tokens, would tie together what must be
    independent."""
    used: list[tuple[Purpose, int]] = []

    class Counting(KeyedRng):
        def uniform(self, position: int, purpose: Purpose) -> float:
            used.append((purpose, position))
            return super().uniform(position, purpose)

    monkeypatch.setattr(decode_module, "KeyedRng", Counting)
    events = decode([1, 2, 3], drafters()[name], 4, 50, sampling=SamplingParams(temperature=1.0, seed=3))
    decisive = [entry for entry in used if entry[0] is not Purpose.DRAFT]
    assert len(set(decisive)) == len(decisive)
    drawn = [token.position for r in rounds(events) for token in r.tokens if token.source is not Source.DRAFT]
    assert {3 + position for position in drawn} <= {
        position for purpose, position in decisive if purpose is Purpose.TARGET
    }


@pytest.mark.parametrize("k", [0, 1, 4, 8])
@pytest.mark.parametrize("stops", [(), ("zebra", "。”", "\ufffd\ufffd")])
def test_every_character_shows_at_once_in_the_token_that_completed_it(k: int, stops: tuple[str, ...]) -> None:
    text = "标点，。！？《》“引号” aGVsbG8gd29ybGQ= https://例子.测试/路径?q=%20#片段 🏴󠁧󠁢󠁥󠁮󠁧󠁿🇨🇳 𠮷龘 a\ufffdb"
    scripted = Scripted(text.encode(), 2)
    drafter = DraftModelDrafter(model(noisy(scripted, VOCAB, 5.0)), KVCache()) if k else None
    params = DecodingParams(SamplingParams(seed=5), "any", k, stop=stops, max_new_tokens=900)
    events = run([1, 2], params, model(scripted), TOKENIZER, drafter)
    check_reply(events)
    raw = b""
    for event in events[:-1]:
        for token in event.tokens if isinstance(event, Round) else [event.token]:  # type: ignore[union-attr]
            before, raw = raw.decode("utf-8", "ignore"), raw + bytes([token.id] if token.id < 256 else [])
            assert token.text == raw.decode("utf-8", "ignore")[len(before) :]
    assert finished(events).text == text
    for r in rounds(events):
        accepted = [d for d in r.decisions if d.outcome is Outcome.ACCEPTED]
        assert [d.text for d in accepted] == [token.text for token in r.tokens[: len(accepted)]]


def test_a_drafter_whose_numbers_break_ends_the_reply_with_a_sentence() -> None:
    def breaks(ids: tuple[int, ...]) -> np.ndarray:
        return LANGUAGE(ids) * (np.nan if len(ids) > 9 else 1.0)

    events = run(
        [1, 2],
        DecodingParams(SamplingParams(seed=5), "any", 3),
        model(),
        TOKENIZER,
        DraftModelDrafter(model(breaks), KVCache()),
    )
    check_reply(events)
    assert finished(events).reason is FinishReason.ERROR and "not a number" in finished(events).message


def test_a_rejected_control_token_keeps_its_name() -> None:
    class Ender:
        """Proposes that the reply ends, all the time."""

        name, context_len, feature_layers = "ender", None, ()

        def options(self, ids):  # type: ignore[no-untyped-def]
            return (DraftOption("ender", "ender"),)

        def propose(self, option, context, k, should_continue):  # type: ignore[no-untyped-def]
            return Proposal((256,) * k)

    events = run(
        [1], DecodingParams(SamplingParams(seed=5), "any", 3), model(Scripted(b"hi there", 1)), TOKENIZER, Ender()
    )
    check_reply(events)
    drafts = [d for r in rounds(events) for d in r.decisions]
    assert {d.outcome for d in drafts} == set(Outcome)
    assert all((d.text, d.special) == ("", "<|end|>") for d in drafts)
    assert finished(events).text == "hi there"


def test_only_the_wanted_rows_of_a_long_prompt_get_logits() -> None:
    wanted: list[int] = []

    class Counting(FakeNetwork):
        def __call__(self, token_ids, positions, spans, logit_rows):  # type: ignore[no-untyped-def]
            wanted.append(len(logit_rows))
            return super().__call__(token_ids, positions, spans, logit_rows)

    params = DecodingParams(SamplingParams(seed=5), "any", 4, max_new_tokens=20)
    run([1, 2] * 1500, params, Model(Counting(VOCAB, LANGUAGE), 4096), TOKENIZER, NgramDrafter())
    assert max(wanted) <= 5


def test_a_pass_that_fails_ends_every_round_that_waits_for_it() -> None:
    """And each reply, alone, ends with a sentence."""
    broken = model()
    contexts = [ReplyContext(broken, KVCache(), TOKENIZER, NgramDrafter(1), lambda: False) for _ in range(2)]
    replies = [Reply([1, 2, 1], DecodingParams(SamplingParams(seed=1), "any", 3), context) for context in contexts]
    for reply in replies:
        list(reply.prefill())
    rounds = [reply.round(1) for reply in replies]
    broken.forward = _out_of_memory  # type: ignore[method-assign]
    with pytest.raises(MemoryError):
        play_rounds(broken, rounds)
    assert all(inspect.getgeneratorstate(round_) == inspect.GEN_CLOSED for round_ in rounds)
    [*_, last] = replies[0].events(iter(()))
    assert isinstance(last, Finished) and last.reason is FinishReason.ERROR and "try again" in last.message


def _out_of_memory(requests: object) -> list[Tensor]:
    raise MemoryError
