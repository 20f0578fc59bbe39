"""ROWS: a forward pass by its rows. Why checking several drafts costs hardly more than writing one token.

A roofline (Williams, Waterman, Patterson 2009) in two lines: no pass is quicker than reading the weights once, and
beyond some number of rows each further row costs its arithmetic.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from time import perf_counter

import torch

from engine.hardware import buffer_bytes, free_bytes
from engine.lab.bootstrap import bootstrap
from engine.lab.context import ExperimentContext, Measurement, Pairs
from engine.lab.results import MEASURED, ExperimentRequest, Point
from engine.networks.kv_cache import KVCache
from engine.networks.model import Request

CONTEXT = 64
"""Tokens before the rows. Few, so that the pass is about the weights; attention to a long text
would add to each row."""

CYCLES = 5
"""Passes of each width a repeat, of which each is a sample."""

READS = 4
"""Reads of the buffer a repeat."""

SETTLE = 2
"""Untimed passes after a read of the buffer, which drives the weights out of the caches as a reply never would."""


class ForwardCost:
    """Cycles through the widths, up and down in turn, so that a busy moment hits all alike.

    Both lines are bounds, and so are made of the quickest that was seen: whatever else the machine does only adds to
    it.
    """

    def __init__(self, context: ExperimentContext, request: ExperimentRequest) -> None:
        self._context = context
        self._context_len = max(1, min(CONTEXT, context.model.context_len - int(max(request.xs))))
        self._xs = [int(x) for x in request.xs if self._context_len + x <= context.model.context_len]
        vocab = context.model.vocab_size
        self._ids = [1 + 7 * i % (vocab - 1) for i in range(self._context_len + max(self._xs, default=0))]
        self._cache = KVCache()
        self._buffer = buffer_bytes() if context.model.network.device.type == "cpu" else 2**30
        self._seconds: dict[int, list[float]] = {x: [] for x in self._xs}
        self._reads: list[float] = []
        sweep = sum(20 + x for x in self._xs)
        self.measurements: Sequence[Measurement] = [
            Measurement(sweep, partial(self._sweep, up=True, timed=False)),
            *(
                measurement
                for repeat in range(request.repeats)
                for measurement in (
                    Measurement(40, self._time_reads),
                    *(
                        Measurement(sweep, partial(self._sweep, cycle % 2 == 1))
                        for cycle in range(repeat * CYCLES, (repeat + 1) * CYCLES)
                    ),
                )
            ),
        ]

    def _sweep(self, up: bool, timed: bool = True) -> Iterator[None]:
        for rows in self._xs if up else reversed(self._xs):
            seconds = self._pass(rows)
            if timed:
                self._seconds[rows].append(seconds)
            yield

    def _pass(self, rows: int) -> float:
        """Asks for the last `rows` ids behind a context that the cache knows, as a round of rows - 1 drafts does."""
        model = self._context.model
        model.forward([Request(self._ids[: self._context_len], 0, self._cache)])  # a wider pass may have come before
        model.synchronize()
        begin_s = perf_counter()
        model.forward([Request(self._ids[: self._context_len + rows], rows, self._cache)])
        model.synchronize()
        return perf_counter() - begin_s

    def _time_reads(self) -> Iterator[None]:
        """Torch's sum over float32, with the same threads as the model: each takes its part."""
        model, free = self._context.model, free_bytes()
        size = self._buffer if free is None else min(self._buffer, free // 4)
        memory = torch.ones(max(size // 4, 1), device=model.network.device)
        for n in range(1 + READS):
            begin_s = perf_counter()
            float(memory.sum())
            if n:  # the first one wakes the threads
                self._reads.append((perf_counter() - begin_s) / memory.nbytes)
            yield
        del memory
        for _ in range(SETTLE):
            self._pass(1)
            yield

    def points(self) -> tuple[Point, ...]:
        floor_ms = None
        if self._reads and self._context.model.network.weight_bytes:
            floor_ms = min(self._reads) * self._context.model.network.weight_bytes * 1e3
        points: list[Point] = []
        slope = compute_slope({x: min(seconds) * 1e3 for x, seconds in self._seconds.items() if seconds})
        for x, seconds in self._seconds.items():
            estimate = bootstrap(seconds, statistics.median)
            if estimate is None:
                continue
            extra = [("floor_ms", floor_ms), ("compute_ms", slope and slope * x), ("least_ms", min(seconds) * 1e3)]
            low, high = (None if side is None else side * 1e3 for side in estimate[2:])
            figures = tuple((name, value) for name, value in extra if value is not None)
            points.append(Point(float(x), MEASURED, estimate.y * 1e3, estimate.n, low, high, figures))
        return tuple(points)

    def settings(self) -> Pairs:
        weights = self._context.model.network.weight_bytes
        speed = (("read_gb_s", f"{1e-9 / min(self._reads):.2f}"),) if self._reads else ()
        return (("context", str(self._context_len)), ("weight_mb", f"{weights / 1e6:.1f}"), *speed)


def compute_slope(ms: Mapping[int, float]) -> float | None:
    """Milliseconds of one more row where passes are widest: along the two widest, of which one must have twice the rows
    of the other. None where it cannot be told."""
    widest = sorted(ms)[-2:]
    if len(widest) < 2 or widest[1] < 2 * widest[0]:
        return None
    slope = (ms[widest[1]] - ms[widest[0]]) / (widest[1] - widest[0])
    return slope if slope > 0.0 else None
