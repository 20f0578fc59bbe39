"""Which kind of linear layer is quickest on this machine: measured once, in a second, and remembered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, thread_time

import numpy as np
import torch

from engine.hardware import processor
from engine.linear import KINDS, Linear
from engine.native.tiles import GROUP, Blocks
from engine.records import remember

ROWS = (1, 4)
"""Plain decoding is a pass of one row, a check of three drafts one of four; each counts the same."""

LIMIT_S = 0.8
WEIGHTS = 2**24
"""Weights to go through before any is met again: more than a cache holds, as in a model."""
LARGEST = 4096
"""Layers with more outputs or inputs behave like ones of so many."""
WORTH = 0.9
"""Part of the preferred kind's time that another may take at most to be chosen instead."""


def quickest(names: Sequence[str], folder: Path | None, shape: tuple[int, int]) -> str:
    """The kind of least time for layers of `shape` (outputs, inputs); kept in `folder`, if there is one.

    names: the preferred one first, which also stands where the others are hardly quicker.
    """
    key = "|".join([processor(), torch.__version__, f"{shape}", ",".join(names)])

    def ask() -> str:
        costs = measured(names, shape)
        costs[names[0]] *= WORTH
        return min(costs, key=costs.__getitem__)

    if len(names) == 1:
        return names[0]
    return remember(folder / "linear.json", key, ask, lambda kept: kept in names) if folder else ask()


def measured(names: Sequence[str], shape: tuple[int, int]) -> dict[str, float]:
    """Seconds of processor for one layer of `shape`, a pass of each of ROWS, by kind.

    One thread, and its own time: so other programs on the machine hardly matter, and with more threads, which share the
    way to memory, the order is the same or smaller weights gain. Takes LIMIT_S, or a pass of each if that is more.
    """
    began = perf_counter()
    outputs, inputs = (min(-(-size // GROUP) * GROUP, LARGEST) for size in shape)
    weight = _sample(outputs, inputs)
    layers: dict[str, list[Linear]] = {name: [] for name in names}
    for copy in range(-(-WEIGHTS // (outputs * inputs))):
        if copy and perf_counter() - began > LIMIT_S / 2:
            break
        for name in names:
            layers[name].append(KINDS[name].build(weight, None))
    xs = [torch.randn(rows, inputs) for rows in ROWS]
    times: dict[tuple[str, int], list[float]] = {(name, n): [] for name in names for n in range(len(ROWS))}
    with _one_thread(), torch.inference_mode():
        for name, n in times:  # the first call of each is slow
            layers[name][0](xs[n])
        while True:
            for (name, n), taken in times.items():
                taken.append(_pass_s(layers[name], xs[n]))
            if perf_counter() - began > LIMIT_S:
                return {name: sum(min(times[name, n]) for n in range(len(ROWS))) for name in names}


def _pass_s(layers: Sequence[Linear], x: torch.Tensor) -> float:
    began = thread_time()
    for layer in layers:
        layer(x)
    return (thread_time() - began) / len(layers)


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _sample(outputs: int, inputs: int) -> Blocks:
    rng = np.random.default_rng(0)
    groups = (outputs, inputs // GROUP)
    scale = rng.uniform(0.01, 0.02, groups).astype(np.float16)
    return Blocks(4, rng.integers(0, 16, (outputs, inputs), dtype=np.uint8), scale, (scale * -8).astype(np.float16))
