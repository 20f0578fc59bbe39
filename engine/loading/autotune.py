"""Which kind of linear layer is quickest on this machine: measured once, in a second, and remembered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, thread_time

import numpy as np
import torch

from engine.hardware import linear_key
from engine.kernels.packing import GROUP, Blocks
from engine.networks.linear import LINEAR_FORMATS, Linear
from engine.storage.json_cache import remember

WORK = ((1, 32), (4, 32), (64, 4))
"""(rows, how many such passes) of a usual reply: plain decoding is a pass of one row, a check of three drafts one of
four, and a prompt is read in wide ones, where a format that the processor does not multiply by itself loses most."""

LIMIT_S = 0.8
WEIGHTS = 2**24
"""Weights to go through before any is met again: more than a cache holds, as in a model."""
LARGEST = 4096
"""Layers with more outputs or inputs behave like ones of so many."""
WORTH = 0.9
"""Part of the preferred kind's time that another may take at most to be chosen instead."""


def quickest_format(names: Sequence[str], folder: Path | None, shape: tuple[int, int]) -> str:
    """The kind of least time for layers of `shape` (outputs, inputs); kept in `folder`, if there is one.

    names: the preferred one first, which also stands where the others are hardly quicker.
    """
    key = linear_key(names, shape, torch.__version__)

    def choose() -> str:
        costs = measure_seconds(names, shape)
        costs[names[0]] *= WORTH
        return min(costs, key=costs.__getitem__)

    if len(names) == 1:
        return names[0]
    if folder is None:
        return choose()
    return remember(folder / "linear.json", key, choose, lambda cached_name: cached_name in names)


def measure_seconds(names: Sequence[str], shape: tuple[int, int]) -> dict[str, float]:
    """Seconds of processor for one layer of `shape` in WORK, by kind.

    One thread, and its own time: so other programs on the machine hardly matter, and with more threads, which share the
    way to memory, the order is the same or smaller weights gain. Takes LIMIT_S, or a pass of each if that is more.
    """
    start = perf_counter()
    outputs, inputs = (min(-(-size // GROUP) * GROUP, LARGEST) for size in shape)
    weight = _sample(outputs, inputs)
    layers: dict[str, list[Linear]] = {name: [] for name in names}
    for copy_index in range(-(-WEIGHTS // (outputs * inputs))):
        if copy_index and perf_counter() - start > LIMIT_S / 2:
            break
        for name in names:
            layers[name].append(LINEAR_FORMATS[name].build(weight, None))
    inputs_by_rows = {rows: torch.randn(rows, inputs) for rows, _ in WORK}
    times: dict[tuple[str, int], list[float]] = {(name, rows): [] for name in names for rows in inputs_by_rows}
    with _one_thread(), torch.inference_mode():
        for name, rows in times:  # the first call of each is slow
            layers[name][0](inputs_by_rows[rows])
        while True:
            for (name, rows), samples in times.items():
                # Arithmetic decides a wide pass: wherever its weights come from, one layer tells.
                samples.append(_time_pass(layers[name][: 1 if rows > GROUP else None], inputs_by_rows[rows]))
            if perf_counter() - start > LIMIT_S:
                return {name: sum(count * min(times[name, rows]) for rows, count in WORK) for name in names}


def _time_pass(layers: Sequence[Linear], x: torch.Tensor) -> float:
    start = thread_time()
    for layer in layers:
        layer(x)
    return (thread_time() - start) / len(layers)


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
