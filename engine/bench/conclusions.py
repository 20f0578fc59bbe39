"""What an experiment's points say, in two sentences for a terminal, each computed from the points. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from engine.lab.results import PLAIN, PREDICTED, SPECULATIVE, ExperimentName, Point, Result


def conclusion(result: Result) -> str:
    """Two sentences, or one that says that too little was measured."""
    try:
        return _CONCLUSIONS[result.name](result.points)
    except (ValueError, LookupError, ArithmeticError):
        return "Too little was measured to conclude anything."


def crossover(points: Sequence[Point], series: str = SPECULATIVE) -> float | None:
    """Users at which a series of RATE stops being quicker than plain decoding, along straight lines
    between measured points.

    None where it never was quicker, or still is at the end. Raises LookupError where the two have no x in common.
    """
    plain, speeds = ({point.x: point.y for point in points if point.series == name} for name in (PLAIN, series))
    gains = [(x, speeds[x] / plain[x]) for x in sorted(plain.keys() & speeds.keys())]
    if not gains:
        raise LookupError("nothing to compare")
    for (users_before, gain_before), (users_after, gain_after) in pairwise(gains):
        if gain_before > 1.0 >= gain_after:
            return users_before + (users_after - users_before) * (gain_before - 1.0) / (gain_before - gain_after)
    return None


def _rate(points: Sequence[Point]) -> str:
    users_at_par = crossover(points)
    plain, spec = (_series(points, name) for name in (PLAIN, SPECULATIVE))
    users = sorted(plain.keys() & spec.keys())
    first, last = users[0], users[-1]
    gain = spec[first].y / plain[first].y
    if users_at_par is not None:
        verdict = f"Speculation stops paying at about {users_at_par:.1f} users served at once."
    elif gain > 1.0:
        verdict = f"Speculation still pays with {last:g} users served at once, the most that were measured."
    else:
        verdict = f"Speculation does not pay here, even with {first:g} user at once."
    return f"{verdict} It makes {gain:.2f} times plain decoding's tokens a second with {first:g} at once, and " \
           f"{spec[last].y / plain[last].y:.2f} times with {last:g}."  # fmt: skip


def _length(points: Sequence[Point]) -> str:
    short, long = min(points, key=_x), max(points, key=_x)
    ratios = [dict(point.extra)["ttft_spec"] / dict(point.extra)["ttft_plain"] for point in points]
    return (
        f"With its prompt, a reply of up to {short.x:g} tokens comes {short.y:.2f} times as fast as plain, one of up "
        f"to {long.x:g} comes {long.y:.2f} times as fast. The first token takes {statistics.median(ratios):.2f} times "
        "as long as plain."
    )


def _k(points: Sequence[Point]) -> str:
    measured = [point for point in points if point.series != PREDICTED]
    predictions = [point for point in points if point.series == PREDICTED]
    best = [
        max((p for p in measured if p.series == name), key=_y) for name in dict.fromkeys(p.series for p in measured)
    ]
    best_ks = ", ".join(f"{point.x:g} for {point.series} ({point.y:.2f} times)" for point in best)
    peak = max(predictions, key=_y)
    return f"The best K is {best_ks}. The formula foretells {peak.x:g} ({peak.y:.2f} times)."


def _temperature(points: Sequence[Point]) -> str:
    cold, hot = min(points, key=_x).x, max(points, key=_x).x
    sentences = [
        f"Under {name} the acceptance goes from {_series(points, name)[cold].y:.2f} at temperature {cold:g} to "
        f"{_series(points, name)[hot].y:.2f} at {hot:g}."
        for name in dict.fromkeys(point.series for point in points)
    ]
    return " ".join(sentences)


def _text(points: Sequence[Point]) -> str:
    best, worst = max(points, key=_y), min(points, key=_y)
    return (
        f"Speculation helps most with {best.series} ({best.y:.2f} times as fast, {_alpha(best)} of the tested drafts "
        f"stand). It helps least with {worst.series} ({worst.y:.2f} times, {_alpha(worst)})."
    )


def _rows(points: Sequence[Point]) -> str:
    ms = {point.x: point for point in points}
    narrow = ms[min(ms)]
    free = max(x for x in ms if ms[x].y <= 1.5 * narrow.y)
    wide = ms[max(ms)]
    return (
        f"A pass of up to {free:g} rows takes at most 1.5 times as long as one of {narrow.x:g} ({narrow.y:.1f} ms, "
        f"where reading the weights alone takes {dict(narrow.extra)['floor_ms']:.1f} ms). One of {wide.x:g} rows takes "
        f"{wide.y / narrow.y:.1f} times as long."
    )


_CONCLUSIONS: Mapping[ExperimentName, Callable[[Sequence[Point]], str]] = {
    ExperimentName.RATE: _rate,
    ExperimentName.LENGTH: _length,
    ExperimentName.K: _k,
    ExperimentName.TEMPERATURE: _temperature,
    ExperimentName.TEXT: _text,
    ExperimentName.ROWS: _rows,
}


def _series(points: Sequence[Point], name: str) -> dict[float, Point]:
    return {point.x: point for point in points if point.series == name}


def _alpha(point: Point) -> str:
    alpha = dict(point.extra).get("alpha")
    return "none" if alpha is None else f"{alpha:.0%}"


def _x(point: Point) -> float:
    return point.x


def _y(point: Point) -> float:
    return point.y
