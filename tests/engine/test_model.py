"""Caches and the forward pass: whatever was computed together or before, an answer is that of a fresh start."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import EngineError
from engine.networks.kv_cache import BLOCK, KVCache, KVCachePool
from engine.networks.model import PREFILL_CHUNK, Model, Request
from tests.fakes import FakeNetwork, hashed_logits

VOCAB = 50
LANGUAGE = hashed_logits(VOCAB, seed=4, order=20)
TEXTS = st.lists(st.integers(0, 3), min_size=1, max_size=40)


@given(st.lists(st.lists(st.tuples(TEXTS, st.integers(0, 8)), min_size=2, max_size=2), max_size=8))
@settings(max_examples=40)
def test_caches_with_any_past_answer_like_fresh_ones(calls: list[list[tuple[list[int], int]]]) -> None:
    """Align on read: no order of requests, overlaps or lengths makes a cached answer differ, nor what shares a pass."""
    model, caches = Model(FakeNetwork(VOCAB, LANGUAGE), 4096), [KVCache(), KVCache()]
    for call in calls:
        requests = [Request(ids, min(last, len(ids)), cache) for (ids, last), cache in zip(call, caches, strict=True)]
        for request, logits in zip(requests, model.forward(requests), strict=True):
            ids, last, cache = request
            [fresh] = Model(FakeNetwork(VOCAB, LANGUAGE), 4096).forward([Request(ids, last, KVCache())])
            assert logits.shape == (last, VOCAB) and torch.equal(logits, fresh) and cache.ids == ids


def test_only_missing_rows_are_run_together_and_long_prompts_in_bounded_passes() -> None:
    network, cache, ids = FakeNetwork(VOCAB, LANGUAGE), KVCache(), [3] * (PREFILL_CHUNK * 2 + 10)
    for text, last in ((ids, 1), ([*ids, 1, 2], 2), ([*ids, 1, 2], 2), ([*ids, 1, 4], 0)):
        Model(network, 4096).forward([Request(text, last, cache), Request([1, 2], last, KVCache())])
    assert network.rows == [PREFILL_CHUNK, PREFILL_CHUNK, 12, 4, 4, 3]


def filled(feature_layers: tuple[int, ...] = ()) -> KVCache:
    cache = KVCache(feature_layers)
    cache.write(0, 0, torch.zeros(1, 10, 2), torch.zeros(1, 10, 2))
    for layer in feature_layers:
        cache.write_features(layer, 0, torch.ones(10, 4))
    cache.ids = list(range(10))
    return cache


def test_the_pool_keeps_the_latest_within_its_budget_and_lends_a_cache_once() -> None:
    pool, caches = KVCachePool(budget_bytes=3 * BLOCK * 8 * 2), {name: filled() for name in "abcd"}
    for name, cache in caches.items():
        pool.release(name, cache)
    before = pool.nbytes
    assert 0 < before <= pool.budget_bytes
    pool.release("e", KVCache())  # a reply stopped before its prefill leaves nothing worth keeping
    pool.release("", filled())
    assert pool.nbytes == before
    for name, times in (("a", 0), ("d", 1), ("d", 0), ("c", 1)):
        assert (pool.acquire(name) is caches[name]) == bool(times)


def test_the_pool_hands_out_only_what_keeps_the_features_that_are_asked_for() -> None:
    pool = KVCachePool(budget_bytes=2**20)
    for has, wanted in (((), (1, 2)), ((1,), (1, 2)), ((1, 2), (2, 1))):  # a prefix that lacks some is no use
        pool.release("a", filled(has))
        fresh = pool.acquire("a", wanted)
        assert fresh.feature_layers == wanted and not fresh.ids
    cache, plain = filled((1, 2)), filled()
    pool.release("a", cache)
    assert pool.nbytes == cache.nbytes > plain.nbytes, "features count"
    assert pool.acquire("a", (1, 2)) is cache and torch.equal(cache.features(0, 10), torch.ones(10, 2, 4))
    pool.release("a", cache)
    assert pool.acquire("a") is cache and cache.ids
    assert cache.nbytes == plain.nbytes, "who asks for none pays for none"
    with pytest.raises(EngineError, match="no features"):
        cache.features(0, 10)
    pool.release("a", cache)
    assert pool.acquire("a", (1, 2)) is not cache


def test_caches_grow_in_blocks_and_keep_what_they_hold() -> None:
    cache, rows = KVCache((4, 9)), torch.randn(2, 1000, 2, 3)
    for begin in range(0, 1000, 50):
        new = rows[:, begin : begin + 50]
        for layer in range(2):
            keys, values = cache.write(layer, begin, new[..., 0, :], new[..., 1, :])
        for index, layer in enumerate((4, 9, 7)):  # the last is one that it does not keep
            cache.write_features(layer, begin, new[0, :, index % 2])
    cache.ids = [0] * 1000
    assert torch.equal(torch.stack([keys, values], 2), rows) and torch.equal(cache.features(0, 1000), rows[0])
    features = cache.features(0, 0).untyped_storage().nbytes()
    for size, row in ((features, 2 * 3 * 4), (cache.nbytes - features, 2 * 2 * 2 * 3 * 4)):
        assert size % (BLOCK * row) == 0 and 1000 * row <= size <= 2000 * row
