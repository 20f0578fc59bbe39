"""Caches and the forward pass: pooled caches give what transformers gives, whatever was computed together or before."""

from __future__ import annotations

import random

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import EngineError
from engine.networks.attention import attend_spans
from engine.networks.kv_cache import BLOCK, KVCache, KVCachePool, common_prefix
from engine.networks.model import PREFILL_CHUNK, Model, Request
from engine.networks.transformers_network import TransformersNetwork
from tests.fakes import FakeNetwork, hashed_logits

VOCAB = 50
LANGUAGE = hashed_logits(VOCAB, seed=4, order=20)


def fake() -> Model:
    return Model(FakeNetwork(VOCAB, LANGUAGE), 4096)


@given(st.lists(st.integers(0, 2), max_size=12), st.lists(st.integers(0, 2), max_size=12))
def test_common_prefix(left: list[int], right: list[int]) -> None:
    n = common_prefix(left, right)
    assert left[:n] == right[:n] and (n == min(len(left), len(right)) or left[n] != right[n])


@given(st.lists(st.tuples(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(0, 8)), max_size=8))
@settings(max_examples=100, deadline=None)
def test_a_cache_with_any_past_answers_like_a_fresh_one(calls: list[tuple[list[int], int]]) -> None:
    """Align on read: no order of requests, overlaps or lengths makes a cached answer differ."""
    model, cache = fake(), KVCache()
    for ids, wanted in calls:
        last = min(wanted, len(ids))
        [logits] = model.forward([Request(ids, last, cache)])
        [fresh] = fake().forward([Request(ids, last, KVCache())])
        assert logits.shape == (last, VOCAB) and torch.equal(logits, fresh)
        assert cache.ids == ids


def test_only_missing_rows_are_run_and_long_prompts_in_bounded_passes() -> None:
    model, cache = fake(), KVCache()
    ids = random.Random(1).choices(range(VOCAB), k=PREFILL_CHUNK * 2 + 10)
    model.forward([Request(ids, 1, cache)])
    model.forward([Request([*ids, 1, 2], 2, cache)])
    model.forward([Request([*ids, 1, 2], 2, cache)])
    assert model.network.rows == [PREFILL_CHUNK, PREFILL_CHUNK, 10, 2, 2]  # type: ignore[attr-defined]


def test_several_requests_share_a_pass_and_keep_apart() -> None:
    model = fake()
    texts = [[1, 2, 3], [4], list(range(40)), [1, 2, 9]]
    together = model.forward([Request(ids, 1, KVCache()) for ids in texts])
    assert len(model.network.rows) == 1  # type: ignore[attr-defined]
    for ids, logits in zip(texts, together, strict=True):
        assert torch.equal(logits, fake().forward([Request(ids, 1, KVCache())])[0])


def tiny(kind: str) -> transformers.PreTrainedModel:
    """Random weights, float32. Windows of 8 positions make sliding attention matter."""
    torch.manual_seed(3)
    sizes = {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "head_dim": 8,
        "initializer_range": 0.2,  # so that attention matters
    }
    configs = {
        "llama": lambda: transformers.LlamaConfig(**sizes),
        "mistral": lambda: transformers.MistralConfig(**sizes, sliding_window=8),
        "qwen2": lambda: transformers.Qwen2Config(**sizes),
        "qwen3": lambda: transformers.Qwen3Config(**sizes),
        "gemma2": lambda: transformers.Gemma2Config(**sizes, sliding_window=8, query_pre_attn_scalar=8),
        "gemma3": lambda: transformers.Gemma3TextConfig(**sizes, sliding_window=8, query_pre_attn_scalar=8),
    }
    return transformers.AutoModelForCausalLM.from_config(configs[kind]()).eval()


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3"])
def test_pooled_caches_give_what_transformers_gives(kind: str) -> None:
    hf = tiny(kind)
    ids = random.Random(2).choices(range(VOCAB), k=60)
    hf.set_attn_implementation("eager")
    with torch.inference_mode():
        expected = hf(input_ids=torch.tensor([ids])).logits[0]
    transformers.AttentionInterface.register("greenlight", attend_spans)
    hf.set_attn_implementation("greenlight")
    model = Model(TransformersNetwork(hf, VOCAB), 512)
    [whole] = model.forward([Request(ids, 60, KVCache())])
    torch.testing.assert_close(whole, expected, atol=1e-4, rtol=0)
    cache, other = KVCache(), KVCache()
    for begin, end in ((0, 1), (1, 17), (17, 20), (20, 21), (21, 60)):  # in pieces, another request in every pass
        pieces = model.forward([Request(ids[:end], end - begin, cache), Request(ids[5 : 5 + end], 1, other)])
        torch.testing.assert_close(pieces[0], expected[begin:end], atol=1e-4, rtol=0)
    rejected = model.forward([Request([*ids[:30], 1, 2, 3], 4, cache)])[0]
    torch.testing.assert_close(rejected[0], expected[29], atol=1e-4, rtol=0)
    torch.testing.assert_close(model.forward([Request(ids, 5, cache)])[0], expected[-5:], atol=1e-4, rtol=0)


def test_attention_sinks_are_refused_and_not_ignored() -> None:
    rows = torch.zeros(1, 1, 1, 8)
    with pytest.raises(EngineError, match="sinks"):
        attend_spans(None, rows, rows, rows, None, s_aux=torch.zeros(1))


def test_caches_grow_in_blocks_and_keep_what_they_hold() -> None:
    cache = KVCache()
    rows = torch.randn(2, 1000, 4)
    for begin in range(0, 1000, 50):
        keys, _ = cache.write(0, begin, rows[:, begin : begin + 50], rows[:, begin : begin + 50])
    assert torch.equal(keys, rows)
    assert cache.nbytes == 2 * 2 * 4 * 4 * -(-cache.nbytes // (2 * 2 * 4 * 4 * BLOCK)) * BLOCK


def test_the_pool_keeps_the_latest_within_its_budget_and_lends_a_cache_once() -> None:
    pool = KVCachePool(budget_bytes=3 * BLOCK * 8 * 2)

    def filled() -> KVCache:
        cache = KVCache()
        cache.write(0, 0, torch.zeros(1, 10, 2), torch.zeros(1, 10, 2))
        return cache

    caches = {name: filled() for name in "abcd"}
    for name, cache in caches.items():
        pool.release(name, cache)
    assert pool.nbytes <= pool.budget_bytes
    assert pool.acquire("d") is caches["d"] and pool.acquire("d") is not caches["d"]
    assert pool.acquire("a") is not caches["a"]
    pool.release("e", KVCache())
    assert "e" not in pool._idle, "a reply stopped before its prefill leaves nothing worth keeping"
    pool.release("", filled())
    before = pool.nbytes
    pool.release("", filled())
    assert pool.nbytes == before


def test_the_pool_hands_out_only_what_keeps_the_features_that_are_asked_for() -> None:
    pool = KVCachePool(budget_bytes=2**20)

    def filled(feature_layers: tuple[int, ...]) -> KVCache:
        cache = KVCache(feature_layers)
        for layer in feature_layers:
            cache.write_features(layer, 0, torch.ones(10, 4))
        cache.write(0, 0, torch.zeros(1, 10, 2), torch.zeros(1, 10, 2))
        cache.ids = list(range(10))
        return cache

    for held, asked in (((), (1, 2)), ((1,), (1, 2)), ((1, 2), (2, 1))):  # a prefix that lacks some is no use
        cache = filled(held)
        pool.release("a", cache)
        fresh = pool.acquire("a", asked)
        assert fresh is not cache and fresh.feature_layers == asked and not fresh.ids
    cache = filled((1, 2))
    pool.release("a", cache)
    assert pool.nbytes == cache.nbytes > filled(()).nbytes, "features count"
    assert pool.acquire("a", (1, 2)) is cache and torch.equal(cache.features(0, 10), torch.ones(10, 2, 4))
    pool.release("a", cache)
    plain = pool.acquire("a")
    assert plain is cache and plain.ids and plain.nbytes == filled(()).nbytes, "who asks for none pays for none"
    with pytest.raises(EngineError, match="no features"):
        plain.features(0, 10)
    pool.release("a", plain)
    assert pool.acquire("a", (1, 2)) is not plain


def test_features_grow_in_blocks_and_keep_what_they_hold() -> None:
    cache, rows = KVCache((4, 9)), torch.randn(1000, 2, 3)
    for begin in range(0, 1000, 50):
        for index, layer in enumerate((4, 9)):
            cache.write_features(layer, begin, rows[begin : begin + 50, index])
        cache.write_features(7, begin, rows[begin : begin + 50, 0])  # of a layer that it does not keep
    cache.ids = [0] * 1000
    assert torch.equal(cache.features(0, 1000), rows)
    assert cache.nbytes % (BLOCK * 2 * 3 * 4) == 0 and cache.nbytes <= 2 * rows.nbytes
