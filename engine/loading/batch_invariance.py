"""Is this network exact to the bit? Asked of the machine at hand, once, and remembered."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path
from time import perf_counter

import torch

from engine.networks.kv_cache import KVCache
from engine.networks.model import Model, Network, Request
from engine.storage.json_cache import remember

PROMPT = 530
"""Long enough to cross the positions 16, 64 and 512."""

FIRST = 24

PIECES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17)


def is_exact(network: Network, limit_s: float = math.inf) -> bool:
    """Whether a row's logits, and what it leaves in the cache, are the same bits however many rows it is computed
    with.

    The same random ids once in large passes and once in pieces of 1 to 17 rows, some of them beside another request.
    A few ids first, which tell most networks that are not. Raises TimeoutError where it takes longer than limit_s.
    """
    deadline = perf_counter() + limit_s
    rng = random.Random(0)
    ids = [rng.randrange(network.vocab_size) for _ in range(PROMPT)]
    return _agrees(network, ids[:FIRST], deadline) and _agrees(network, ids, deadline)


def _agrees(network: Network, ids: list[int], deadline: float) -> bool:
    model = Model(network, len(ids))
    whole_cache, cache, other_cache = KVCache(), KVCache(), KVCache()
    [expected] = model.forward([Request(ids, len(ids), whole_cache)])
    begin = 0
    for step, piece_rows in enumerate(itertools.cycle(PIECES)):
        count = min(piece_rows, len(ids) - begin)
        requests = [Request(ids[: begin + count], count, cache)]
        other_index = step // 2 % 2  # of the other request, where there is one
        if step % 2:
            requests.insert(other_index, Request(ids[: begin + 1][-20:], 1, other_cache))
        logits = model.forward(requests)[1 - other_index if step % 2 else 0]
        if not torch.equal(logits, expected[begin : begin + count]):
            return False
        begin += count
        if begin == len(ids):
            break
        if perf_counter() > deadline:
            raise TimeoutError
    return True


def is_exact_cached(network: Network, folder: Path, key: str, limit_s: float = math.inf) -> bool:
    """`is_exact`, asked once for each `key` (which names weights, kernels and processor) and kept in `folder`.

    False, and asked again at the next start, where an answer takes longer than limit_s.
    """
    try:
        return remember(
            folder / "exact.json", key, lambda: is_exact(network, limit_s), lambda answer: isinstance(answer, bool)
        )
    except TimeoutError:
        return False
