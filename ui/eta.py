"""How long a phase of loading will still take, as far as that can be said: from how it went since somebody looked. No
clock."""

from __future__ import annotations

from math import ceil

from engine import Status
from ui.html.render import both

ENOUGH_S = 3.0
"""Seconds that a phase must have been seen before anything is said of the rest of it."""

ENOUGH = 0.04
"""And the share of it that must have been done meanwhile."""


class Pace:
    """Keeps where a phase stood when it was first seen."""

    def __init__(self) -> None:
        self._phase = ""
        self._since_s, self._share = 0.0, 0.0

    def left_s(self, status: Status, now_s: float) -> float | None:
        """Seconds until this phase ends if it goes on as it has; None while that cannot be said. now_s: of any one
        clock."""
        share = status.fraction
        if share is None:
            self._phase = ""
            return None
        if status.phase != self._phase or share < self._share:
            self._phase, self._since_s, self._share = status.phase, now_s, share
            return None
        progress, spent_s = share - self._share, now_s - self._since_s
        if progress < ENOUGH or spent_s < ENOUGH_S:
            return None
        return (1.0 - share) / progress * spent_s


def time_left(seconds: float) -> str:
    """Rounded up, to five seconds or to minutes: more would not be known."""
    if seconds > 90:
        return both("lab.left.minutes", count=ceil(seconds / 60))
    return both("lab.left.seconds", count=max(1, ceil(seconds / 5)) * 5)
