"""Lines of progress that say how long it will still take."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter


class Pace:
    """`pace(done, text)` reports "done/total text, time left", where the time left is as much a piece as so far."""

    def __init__(self, total: int, report: Callable[[str], None], clock: Callable[[], float] = perf_counter) -> None:
        self._total, self._report, self._clock = total, report, clock
        self._begin_s = clock()

    def __call__(self, done: int, text: str) -> None:
        left_s = (self._clock() - self._begin_s) / done * (self._total - done)
        self._report(f"{done}/{self._total} {text}" + (f", {written(left_s)} left" if done < self._total else ""))


def written(seconds: float) -> str:
    """ "about 40 s", "about 12 min", "about 2.5 h"."""
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    return f"about {round(seconds / 60)} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"
