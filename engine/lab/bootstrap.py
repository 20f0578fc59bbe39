"""One figure from repeated measurements, and how far it scatters. Pure, and the same every time."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")

DRAWS = 100
LEAST = 3
"""Measurements below which nothing is said of the scatter."""


class Estimate(NamedTuple):
    """n: measurements. low, high: 10 % and 90 % of what the figure is when they are drawn anew."""

    y: float
    n: int
    low: float | None
    high: float | None


def bootstrap(samples: Sequence[T], figure: Callable[[Sequence[T]], float | None]) -> Estimate | None:
    """The figure of the samples; None where it has none. Scatter: the percentile bootstrap (Efron 1979)."""
    y = figure(samples) if samples else None
    if y is None:
        return None
    if len(samples) < LEAST:
        return Estimate(y, len(samples), None, None)
    rng = random.Random(0)
    resamples = (figure(rng.choices(samples, k=len(samples))) for _ in range(DRAWS))
    values = sorted(value for value in resamples if value is not None) or [y]
    low, high = values[len(values) // 10], values[-1 - len(values) // 10]
    return Estimate(y, len(samples), min(low, y), max(high, y))
