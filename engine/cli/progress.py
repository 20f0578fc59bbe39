"""Lines of progress that say how long it will still take, and an end before the end."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from types import TracebackType
from typing import Any


class TimeLeft:
    """`pace(done, text)` reports "done/total text, time left", where the time left is as much a piece as so far."""

    def __init__(self, total: int, report: Callable[[str], None], clock: Callable[[], float] = perf_counter) -> None:
        self._total, self._report, self._clock = total, report, clock
        self._begin_s = clock()

    def __call__(self, done: int, text: str) -> None:
        left_s = (self._clock() - self._begin_s) / done * (self._total - done)
        self._report(
            f"{done}/{self._total} {text}" + (f", {format_duration(left_s)} left" if done < self._total else "")
        )


class Interruptible:
    """`with interruptible:` is left at Ctrl-C, and `partial` says from then on that not all was done."""

    def __init__(self) -> None:
        self.partial = False

    def __enter__(self) -> Interruptible:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        self.partial |= interrupted
        return interrupted


def mark_partial(report: dict[str, Any], interruptible: Interruptible) -> dict[str, Any]:
    """The report, with `partial` where it was interrupted; printed last, so that nobody overlooks it."""
    if not interruptible.partial:
        return report
    print("partial: interrupted before the end, so these figures are about what was done so far")
    return report | {"partial": True}


def format_duration(seconds: float) -> str:
    """ "about 40 s", "about 12 min", "about 2.5 h"."""
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    return f"about {round(seconds / 60)} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"
