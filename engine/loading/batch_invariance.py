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
    """Whether a row's logits, and what it leaves in the cache, are the same bits however many rows are computed with it.

    The same random ids once in large passes and once in pieces of 1 to 17 rows, some of them beside another request.
    A few ids first, which tell most networks that are not. Raises TimeoutError where it takes longer than limit_s.
    """
    deadline = perf_counter() + limit_s
    generator = random.Random(0)
    ids = [generator.randrange(network.vocab_size) for _ in range(PROMPT)]
    return _agrees(network, ids[:FIRST], deadline) and _agrees(network, ids, deadline)


def _agrees(network: Network, ids: list[int], deadline: float) -> bool:
    model = Model(network, len(ids))
    whole, cache, other = KVCache(), KVCache(), KVCache()
    [expected] = model.forward([Request(ids, len(ids), whole)])
    begin = 0
    for number, piece in enumerate(itertools.cycle(PIECES)):
        count = min(piece, len(ids) - begin)
        requests = [Request(ids[: begin + count], count, cache)]
        place = number // 2 % 2  # of the other request, where there is one
        if number % 2:
            requests.insert(place, Request(ids[: begin + 1][-20:], 1, other))
        found = model.forward(requests)[1 - place if number % 2 else 0]
        if not torch.equal(found, expected[begin : begin + count]):
            return False
        begin += count
        if begin == len(ids):
            break
        if perf_counter() > deadline:
            raise TimeoutError
    return True


def remembered(network: Network, folder: Path, key: str, limit_s: float = math.inf) -> bool:
    """`is_exact`, asked once for each `key` (which names weights, kernels and processor) and kept in `folder`.

    False, and asked again at the next start, where an answer takes longer than limit_s.
    """
    try:
        return remember(
            folder / "exact.json", key, lambda: is_exact(network, limit_s), lambda kept: isinstance(kept, bool)
        )
    except TimeoutError:
        return False
