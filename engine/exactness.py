"""Is this network exact to the bit? Asked of the machine at hand, once, and remembered."""

from __future__ import annotations

import contextlib
import json
import os
import random
from pathlib import Path

import torch

from engine.model import Cache, Model, Network, Request

PROMPT = 530
"""Long enough to cross the positions 16, 64 and 512."""

PIECES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17)


def is_exact(network: Network) -> bool:
    """Whether a row's logits, and what it leaves in the cache, are the same bits however many rows are computed with it.

    The same random ids once in large passes and once in pieces of 1 to 17 rows, some of them beside another request.
    """
    generator = random.Random(0)
    ids = [generator.randrange(network.vocab_size) for _ in range(PROMPT)]
    model = Model(network, PROMPT)
    whole, cache, other = Cache(), Cache(), Cache()
    [expected] = model.forward([Request(ids, PROMPT, whole)])
    begin = 0
    while begin < PROMPT:
        count = min(PIECES[begin % len(PIECES)], PROMPT - begin)
        requests = [Request(ids[: begin + count], count, cache)]
        if begin % 2:
            requests.insert(0, Request(ids[: begin + 1][-20:], 1, other))
        if not torch.equal(model.forward(requests)[-1], expected[begin : begin + count]):
            return False
        begin += count
    return True


def remembered(network: Network, folder: Path, key: str) -> bool:
    """`is_exact`, asked once for each `key` (which names weights, kernels and processor) and kept in `folder`."""
    path = folder / "exact.json"
    answers: dict[str, bool] = {}
    with contextlib.suppress(OSError, ValueError):
        answers = dict(json.loads(path.read_text("utf-8")))
    if not isinstance(answers.get(key), bool):
        answers[key] = is_exact(network)
        with contextlib.suppress(OSError):  # a cache that cannot be written to asks again at the next start
            folder.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(f"{path.name}.{os.getpid()}")
            partial.write_text(json.dumps(answers), "utf-8")
            os.replace(partial, path)
    return answers[key]
