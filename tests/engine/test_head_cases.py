"""A head in whole replies: wherever a conversation stops, turns or ends, text and drafts are those of a fresh start."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.config import DecodingParams, Rule, SamplingParams
from engine.drafters.combined import CombinedDrafter
from engine.drafters.head import HeadDrafter
from engine.drafters.ngram import NgramDrafter
from engine.drafters.protocol import Drafter
from engine.events import Event, FinishReason, KReason, Outcome, Round
from engine.heads.format import read_head, write_head
from engine.heads.load import load_head
from engine.heads.torch_head import TorchHead
from engine.loading.source import ModelSource
from engine.networks.attention import Span
from engine.networks.kv_cache import KVCache, KVCachePool
from engine.networks.model import Model
from engine.text.tokenizer import Tokenizer
from engine.train.target import read_target
from tests.engine.tiny_heads import (
    CONFIG,
    HIDDEN,
    LAYERS,
    VOCAB,
    draft_ids,
    embedding,
    features_of,
    head_config,
    proposed,
    random_weights,
    torch_head,
)  # fmt: skip
from tests.fakes import FakeNetwork, byte_tokenizer, finished, hashed_logits, run

LANGUAGE = hashed_logits(VOCAB, seed=1)
K = 4


class FeatureNetwork(FakeNetwork):
    """As FakeNetwork; its features of a position depend on all ids up to it, as its own cache holds them."""

    def __call__(self, token_ids: Tensor, positions: Tensor, spans: Sequence[Span], logit_rows: Tensor) -> Tensor:
        layers = {span.row: span.cache.feature_layers for span in spans}
        for span in spans:
            span.cache._feature_layers = ()
        logits = super().__call__(token_ids, positions, spans, logit_rows)
        for span in spans:
            span.cache._feature_layers = layers[span.row]
            keys = span.cache.reserve(0, 0, 1, (1, 1), torch.float64, self.device)[0]
            ids = [int(x) for x in keys[0, : span.begin + span.count, 0].tolist()]
            features = features_of(ids, LAYERS)[span.begin :]
            for index, layer in enumerate(layers[span.row]):
                span.cache.write_features(layer, span.begin, features[:, index])
        return logits


HEAD = torch_head(head_config(features=LAYERS))


def perfect() -> TorchHead:
    """A head whose drafts are always right: it reads what the language says next out of its own cache."""
    head = torch_head(head_config(features=LAYERS))
    ids: dict[int, int] = {}
    run_ = head.run
    ends: list[int] = [0]

    def noting(token_ids: Tensor, state: Tensor, begin: int, cache: KVCache, keys_only: bool = False) -> Tensor:
        ids.update({begin + 1 + i: int(token_id) for i, token_id in enumerate(token_ids)})
        ends[0] = begin + 1 + len(token_ids)
        return run_(token_ids, state, begin, cache, keys_only)

    def knowing(state: Tensor) -> Tensor:
        text = tuple(ids.get(i, FIRST) for i in range(ends[0]))
        return torch.tensor(sayable(text), dtype=torch.float32)[draft_ids()][None]

    head.run, head.logits = noting, knowing  # type: ignore[method-assign]
    return head


FIRST = int(draft_ids()[3])


def sayable(ids: tuple[int, ...]) -> np.ndarray:
    """A language that says nothing but what a head can draft."""
    row = np.full(VOCAB, -30.0)
    row[draft_ids().numpy()] = LANGUAGE(ids)[draft_ids().numpy()]
    return row


def model(context_len: int = 4096, language: Callable[[tuple[int, ...]], np.ndarray] = LANGUAGE) -> Model:
    return Model(FeatureNetwork(VOCAB, language), context_len)


def stopping_at(token_id: int) -> Tokenizer:
    tokenizer = byte_tokenizer()
    fields = {name: getattr(tokenizer, name) for name in tokenizer.__slots__}
    return Tokenizer(**fields | {"stop_ids": frozenset({token_id})})


class Talk:
    """One conversation: what stays from reply to reply are the two caches."""

    def __init__(self, context_len: int = 4096, head: TorchHead = HEAD, copies: bool = False) -> None:
        self.pool, self.own, self.model = KVCachePool(2**28), KVCache(), model(context_len)
        self.head, self.copies = head, copies

    def reply(self, prompt: Sequence[int], params: DecodingParams, stop: int = 256, rounds: int = 10**6) -> list[Event]:
        head = HeadDrafter(self.head, self.own, VOCAB)
        drafter: Drafter = CombinedDrafter(NgramDrafter(1), head) if self.copies else head
        cache = self.pool.acquire("talk", drafter.feature_layers)
        cancelled = iter([False] * rounds + [True] * 10**4).__next__
        events = run(prompt, params, self.model, stopping_at(stop), drafter, cache, cancelled)
        self.pool.release("talk", cache)
        return events

    def plain(self, prompt: Sequence[int], params: DecodingParams) -> None:
        cache = self.pool.acquire("talk")
        run(prompt, replace(params, num_speculative_tokens=0), self.model, byte_tokenizer(), None, cache)
        self.pool.release("talk", cache)


def told(events: Sequence[Event]) -> tuple[tuple[int, ...], list[tuple[tuple[int, Outcome], ...]]]:
    """The reply's ids and what became of every draft: this depends on every entry of the head's cache."""
    rounds = [event for event in events if isinstance(event, Round)]
    return finished(events).token_ids, [tuple((d.id, d.outcome) for d in r.decisions) for r in rounds]


def settings(k: int | None = K, n: int = 24, **sampling: float) -> DecodingParams:
    return DecodingParams(SamplingParams(seed=5, **sampling), "any", k, Rule.REJECTION, n, probe_every=5)  # type: ignore[arg-type]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("copies", [False, True], ids=["head", "both"])
def test_stop_edit_retry_and_the_next_turn_equal_a_fresh_start(temperature: float, copies: bool) -> None:
    params, talk = settings(temperature=temperature), Talk(copies=copies)
    first = [1, 2, 3, 4]

    def check(prompt: list[int]) -> tuple[int, ...]:
        found = told(talk.reply(prompt, params))
        assert found == told(Talk(copies=copies).reply(prompt, params))
        return found[0]

    talk.reply(first, params, rounds=4)
    answer = check(first)
    check([*first, *answer, 10, 11])
    check([1, 2, 9, 4, 5])
    talk.plain([1, 2, 9, 4, 5], params)  # its cache keeps no features: the next turn has to read all of it once more
    check([1, 2, 9, 4, 5, 6])
    check(first)
    check(first[:1])


@pytest.mark.parametrize("k", [1, 3, 8])
def test_the_turn_after_a_stop_in_mid_block_equals_a_fresh_start(k: int) -> None:
    params, said = settings(k), finished(Talk().reply([3, 4], settings(0))).token_ids
    for stop in list(dict.fromkeys(said))[:9]:
        talk = Talk()
        first = finished(talk.reply([3, 4], params, stop)).token_ids
        assert first == said[: said.index(stop) + 1]
        turn = [3, 4, *first, 10, 60]
        assert told(talk.reply(turn, params, stop)) == told(Talk().reply(turn, params, stop))


@pytest.mark.parametrize("copies", [False, True], ids=["head", "both"])
@pytest.mark.parametrize("k", [None, 5])
@pytest.mark.parametrize("offset", [-9, -6, -5, -2, -1])
def test_the_end_of_the_context_is_no_exception(offset: int, k: int | None, copies: bool) -> None:
    limit = 40
    config = head_config(features=LAYERS)
    head = torch_head(replace(config, shape=replace(config.shape, context_len=limit)))
    end = finished(Talk(limit, head, copies).reply([9] * (limit + offset), settings(k, 500)))
    assert end.reason is FinishReason.CONTEXT and len(end.token_ids) == -offset


@pytest.mark.parametrize("copies", [False, True], ids=["head", "both"])
@pytest.mark.parametrize("k", [None, 5])
@pytest.mark.parametrize("length", [2, 19, 20, 21, 30])
def test_behind_the_heads_own_context_the_reply_goes_on_without_it(length: int, k: int | None, copies: bool) -> None:
    config = head_config(features=LAYERS)
    head = torch_head(replace(config, shape=replace(config.shape, context_len=20)))
    prompt = list(range(1, length + 1))
    events = Talk(head=head, copies=copies).reply(prompt, settings(k, 40))
    assert finished(events).token_ids == finished(Talk().reply(prompt, settings(0, 40))).token_ids
    rounds = [event for event in events if isinstance(event, Round)]
    assert all(r.context_len + r.num_drafted <= 20 for r in rounds if r.drafter == "head")
    late = [r for r in rounds if r.context_len >= 20 and r.drafter != "ngram"]
    if not copies and k:
        assert any(r.k_reason is KReason.DRAFTER_CONTEXT for r in late)


@pytest.mark.parametrize("k", [1, 3, 8])
def test_drafts_that_are_all_right_are_all_accepted(k: int) -> None:
    talk = Talk(head=perfect())
    talk.model = model(language=sayable)
    n = 3 * (k + 1) + 1
    params = replace(settings(k, n), probe_every=0)
    events = talk.reply([FIRST], params)
    rounds = [event for event in events if isinstance(event, Round)]
    assert len(rounds) == 3
    assert all(d.outcome is Outcome.ACCEPTED for r in rounds for d in r.decisions)
    assert all(r.num_drafted == k for r in rounds)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("k", [None, 4])
def test_bans_and_penalties_hold_for_drafts_too(temperature: float, k: int | None) -> None:
    plain = finished(Talk().reply([5], settings(0))).token_ids
    banned = [*plain[:4], int(draft_ids()[0])]
    base = settings(k, 40)
    sampling = replace(
        base.sampling, temperature=temperature, repetition_penalty=1.3, logit_bias=tuple((i, -100.0) for i in banned)
    )
    params = replace(base, sampling=sampling, rule=Rule.SHARED_NOISE)
    events = Talk().reply([5], params)
    drafts = [d.id for event in events if isinstance(event, Round) for d in event.decisions]
    assert drafts and not set(banned) & {*drafts, *finished(events).token_ids}
    assert (
        finished(events).token_ids == finished(Talk().reply([5], replace(params, num_speculative_tokens=0))).token_ids
    )


def test_a_request_that_bans_all_that_the_head_can_draft_is_answered() -> None:
    bans = tuple((int(i), -100.0) for i in draft_ids())
    params = replace(settings(), sampling=SamplingParams(seed=5, logit_bias=bans))
    end = finished(Talk().reply([5], params))
    assert end.reason is FinishReason.LENGTH, end.message
    assert end.token_ids == finished(Talk().reply([5], replace(params, num_speculative_tokens=0))).token_ids


def test_numbers_that_broke_once_are_not_met_again() -> None:
    """Entries that are no numbers must not outlive the reply: another try in the same conversation is a fresh start."""
    cache, ids = KVCache(), [3, 1, 4, 1, 5]
    drafter = HeadDrafter(HEAD, cache, VOCAB)
    join = HEAD.join
    try:
        HEAD.join = lambda features: torch.full_like(join(features), float("nan"))  # type: ignore[method-assign]
        assert not proposed(drafter, ids, 2).token_ids and not drafter.options(ids), "the reply goes on without it"
    finally:
        HEAD.join = join  # type: ignore[method-assign]
    found, fresh = (
        proposed(HeadDrafter(HEAD, cache, VOCAB), [*ids, 9], 2),
        proposed(HeadDrafter(HEAD, KVCache(), VOCAB), [*ids, 9], 2),
    )
    assert found.token_ids == fresh.token_ids


def test_rows_that_pad_the_targets_vocabulary_are_never_drafted(tmp_path: Path) -> None:
    """A head over all rows of the target's weights, of which the last ones are no tokens: it works without them."""
    config = head_config()
    weights = random_weights(config)
    write_head(tmp_path, config, weights, draft_ids(), CONFIG)
    tokens = int(draft_ids()[-4])
    table = embedding()
    network = SimpleNamespace(
        shape=SimpleNamespace(layers=8, hidden=HIDDEN, vocab_size=VOCAB), vocab_size=tokens,
        device=torch.device("cpu"), embed=lambda ids: table[ids],
    )  # fmt: skip
    ready = load_head(tmp_path, SimpleNamespace(network=network, name="padded"), 1)  # type: ignore[arg-type]
    assert torch.equal(ready.head.ids, draft_ids()[:-4]) and ready.vocab_size == tokens
    ids = [int(i) % tokens for i in range(7, 60, 5)]
    found = proposed(HeadDrafter(ready.head, KVCache(), ready.vocab_size), ids, 4)
    assert len(found.token_ids) == 4 and max(found.token_ids) < tokens
    state = torch.randn(2, HIDDEN)
    whole = torch_head(config, {name: tensor.half().float() for name, tensor in weights.items()}).logits(state)
    torch.testing.assert_close(ready.head.logits(state), whole[:, :-4])


def test_a_head_kept_in_several_files_is_read_whole(tmp_path: Path) -> None:
    config = head_config()
    write_head(tmp_path, config, random_weights(config), draft_ids(), CONFIG)
    whole = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    for part in range(2):
        names = sorted(whole)[part::2]
        save_file({name: whole[name] for name in names}, tmp_path / f"model-0000{part + 1}-of-00002.safetensors")
    found = read_head(tmp_path, 8, HIDDEN, VOCAB)
    assert torch.equal(found.ids, draft_ids())
    assert all(torch.equal(found.weights[name], whole[name].float()) for name in found.weights)


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
        {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0}},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
    ],
    ids=["older file", "llama3", "plain"],
)
def test_a_head_can_be_trained_for_a_target_of_any_rotation(tmp_path: Path, rope: dict[str, Any]) -> None:
    """Its own rotation is the plain one, and what is written for it can be read."""
    about = (
        {key: value for key, value in CONFIG.items() if key != "rope_parameters"} | rope | {"tie_word_embeddings": True}
    )
    (tmp_path / "config.json").write_text(json.dumps(about))
    tensors = {"model.embed_tokens.weight": embedding(), "model.norm.weight": torch.ones(HIDDEN)}
    save_file(tensors, tmp_path / "model.safetensors")
    target = read_target(ModelSource(tmp_path, "target", "safetensors"))
    config = replace(head_config(), shape=replace(target.shape, layers=1, tied=False))
    write_head(tmp_path / "head", config, random_weights(config), draft_ids(), target.config)
    found = read_head(tmp_path / "head", 8, HIDDEN, VOCAB).config.shape
    assert found.rope_speeds == target.shape.rope_speeds and found.rope_speeds[1] == pytest.approx(5e5 ** (-2 / 16))
