"""What a round costs: measured once when the engine warms up, then followed from round to round.

Pure: times come in as values, no clock is read here. One reply has one `RoundLatency`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.config import MAX_K

FADE = 0.9
"""What an observation counts for against the one after it: about the last ten rounds decide."""

OUTLIER = 3.0
"""A time is believed up to this factor above what was expected: one hiccup must not turn everything over. One that lies
as far below cannot be a hiccup: what was expected was."""

CALM = 0.3
"""Observations' worth of belief that times differ from the measured ones by a common factor only."""

ROW_SHARE = 0.05
DRAFT_SHARE = 0.05
"""What a further row, or a draft, is taken to cost of a plain round where nothing was measured."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What the engine measured before the first request, in seconds; all of it may be missing.

    rows_s: (rows, the target's pass and the rest of a round at that many rows), ascending, 1 first. draft_s: (drafter,
    one draft). acceptance: (kind of option, chance by draft position that a draft stands if it is tested).
    """

    rows_s: tuple[tuple[int, float], ...] = ()
    draft_s: tuple[tuple[str, float], ...] = ()
    acceptance: tuple[tuple[str, tuple[float, ...]], ...] = ()


class LinearFit:
    """seconds = scale * expected + extra * unit: how the times seen lately differ from the expected ones.

    Least squares over the relative errors of recent observations. scale follows what slows all alike (a busy machine, a
    growing context); extra is what the expected shape did not know, and stays near 0 without evidence.
    """

    def __init__(self) -> None:
        self._begin(1.0)

    def _begin(self, scale: float) -> None:
        """As if this scale had been seen twice, and nothing else."""
        self._xx, self._xz, self._zz, self._xy, self._zy = 2.0, 0.0, 0.0, 2.0 * scale, 0.0
        self._scale, self._extra = scale, 0.0

    def seconds(self, expected: float, unit: float) -> float:
        return max(self._scale * expected + self._extra * unit, 0.05 * self._scale * expected)

    def add(self, expected: float, unit: float, seconds: float) -> None:
        predicted = self.seconds(expected, unit)
        if seconds < predicted / OUTLIER:
            self._begin(max(seconds / expected, 1e-6))
            return
        y, z = min(seconds, predicted * OUTLIER) / expected, unit / expected
        self._xx = FADE * self._xx + 1.0
        self._xz = FADE * self._xz + z
        self._zz = FADE * self._zz + z * z
        self._xy = FADE * self._xy + y
        self._zy = FADE * self._zy + z * y
        zz = self._zz + CALM
        determinant = self._xx * zz - self._xz * self._xz
        self._scale = max((self._xy * zz - self._zy * self._xz) / determinant, 0.05 * self._xy / self._xx)
        self._extra = (self._zy - self._xz * self._scale) / zz


class RoundLatency:
    """Seconds that a round is going to take, from `Profile` and the rounds so far."""

    def __init__(self, profile: Profile) -> None:
        self._drafts_s = dict(profile.draft_s)
        self._measured = bool(profile.rows_s)
        self._shape = _shape(profile.rows_s or ((1, 1.0),))
        self._fit = LinearFit()
        self._rows = list(self._shape)
        self._drafts: dict[str, LinearFit] = {}

    @property
    def plain(self) -> float:
        """A round without drafts."""
        return self._rows[0]

    def rounds(self, drafter: str, limit: int) -> list[float]:
        """Rounds with 0, 1, ... limit of this drafter's drafts: target, sampling and all the rest, and the drafting."""
        step, fit = self._draft_base(drafter), self._drafts.get(drafter)
        if fit is None:
            return [rows + step * count for count, rows in enumerate(self._rows[: limit + 1])]
        return [
            rows + (fit.seconds(step * count, step) if count else 0.0)
            for count, rows in enumerate(self._rows[: limit + 1])
        ]

    def add(self, drafter: str, count: int, draft_s: float, rest_s: float) -> None:
        """A round with `count` drafts was seen. rest_s: all but drafting."""
        if rest_s <= 0.0:
            return
        if not self._measured:  # the first round sets the scale
            self._measured = True
            self._shape = [seconds * rest_s / self._shape[count] for seconds in self._shape]
        plain = self._shape[0]
        self._fit.add(self._shape[count], count * plain, rest_s)
        fitted = [self._fit.seconds(expected, i * plain) for i, expected in enumerate(self._shape)]
        self._rows = [max(fitted[0], seconds) for seconds in fitted]
        if count and drafter not in self._drafts:
            self._drafts[drafter] = LinearFit()  # its first round also read the prompt: no sample of a usual one
        elif count:
            step = self._draft_base(drafter)
            self._drafts[drafter].add(step * count, step, draft_s)

    def _draft_base(self, drafter: str) -> float:
        """Not below a sliver of a plain round, so that a look-up's microseconds are no divisor."""
        plain = self._shape[0]
        return max(self._drafts_s.get(drafter, DRAFT_SHARE * plain), 0.002 * plain)


def _shape(rows_s: Sequence[tuple[int, float]]) -> list[float]:
    """Seconds at 1, 2, ... MAX_K + 1 rows, along straight lines between the measured numbers of
    rows and beyond the last."""
    if len(rows_s) == 1:
        rows_s = (rows_s[0], (rows_s[0][0] + 1, rows_s[0][1] * (1.0 + ROW_SHARE)))
    times: list[float] = []
    for rows in range(1, MAX_K + 2):
        i = next((i for i, (count, _) in enumerate(rows_s) if count >= rows), len(rows_s) - 1)
        (below, below_s), (above, above_s) = rows_s[max(0, i - 1)], rows_s[max(1, i)]
        times.append(below_s + (above_s - below_s) * (rows - below) / (above - below))
    return times
