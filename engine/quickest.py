"""Which kind of linear layer is quickest on this machine: measured once, in a second, and remembered."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from engine.hardware import processor
from engine.linear import KINDS, Linear
from engine.native.tiles import GROUP, Blocks
from engine.records import remember

ROWS = (1, 4)
"""Plain decoding is a pass of one row, a check of three drafts one of four; each counts the same."""

LIMIT_S = 1.0
WEIGHTS = 2**24
"""Weights to go through before any is met again: more than a cache holds, as in a model."""

LARGEST = 4096
"""Layers with more outputs or inputs behave like ones of so many."""


def quickest(names: Sequence[str], folder: Path | None, shape: tuple[int, int], threads: int) -> str:
    """The kind of least time, of `names`, for layers of `shape` (outputs, inputs); kept in `folder`, if there is one."""
    key = "|".join([processor(), torch.__version__, f"{shape}", f"{threads}", ",".join(names)])

    def ask() -> str:
        costs = measured(names, shape)
        return min(costs, key=costs.__getitem__)

    if len(names) == 1:
        return names[0]
    return remember(folder / "linear.json", key, ask, lambda kept: kept in names) if folder else ask()


def measured(names: Sequence[str], shape: tuple[int, int]) -> dict[str, float]:
    """Seconds for one layer of `shape`, a pass of each of ROWS, by kind. Takes LIMIT_S, or one pass of each if that is more."""
    began = perf_counter()
    outputs, inputs = (min(-(-size // GROUP) * GROUP, LARGEST) for size in shape)
    layers: dict[str, list[Linear]] = {name: [] for name in names}
    weight = _sample(outputs, inputs)
    for copy in range(-(-WEIGHTS // (outputs * inputs))):
        if copy and perf_counter() - began > LIMIT_S / 2:
            break
        for name in names:
            layers[name].append(KINDS[name].build(weight, None))
    xs = [torch.randn(rows, inputs) for rows in ROWS]
    times: dict[tuple[str, int], list[float]] = {(name, n): [] for name in names for n in range(len(ROWS))}
    with torch.inference_mode():
        for name, n in times:  # the first call of each is slow
            layers[name][0](xs[n])
        while True:
            for (name, n), taken in times.items():
                taken.extend(_each_s(layers[name], xs[n]))
            if perf_counter() - began > LIMIT_S:
                return {name: sum(_quiet(times[name, n]) for n in range(len(ROWS))) for name in names}


def _each_s(layers: Sequence[Linear], x: torch.Tensor) -> list[float]:
    times = [perf_counter()]
    for layer in layers:
        layer(x)
        times.append(perf_counter())
    return [end - begin for begin, end in pairwise(times)]


def _quiet(times: list[float]) -> float:
    """The lowest decile: what it takes when no other program has the processor, and not by luck alone."""
    return sorted(times)[len(times) // 10]


def _sample(outputs: int, inputs: int) -> Blocks:
    rng = np.random.default_rng(0)
    groups = (outputs, inputs // GROUP)
    scale = rng.uniform(0.01, 0.02, groups).astype(np.float16)
    return Blocks(4, rng.integers(0, 16, (outputs, inputs), dtype=np.uint8), scale, (scale * -8).astype(np.float16))
