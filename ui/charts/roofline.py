"""Time of a forward pass by its rows, drawn as SVG against the memory floor and the compute line. Pure.

Both axes in doublings: a floor lies flat, and where twice the rows take twice the time the line climbs at 45 degrees.
Colours are the style sheet's; the numbers stand in a table below, so the drawing is an extra.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ui.html.render import named

WIDTH, HEIGHT = 440, 280
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 12, 36


@dataclass(frozen=True, slots=True)
class Pass:
    """A forward pass of so many rows. floor_ms: reading the weights once; compute_ms: calculating alone; None: not
    known."""

    rows: int
    ms: float
    floor_ms: float | None = None
    compute_ms: float | None = None


@dataclass(frozen=True, slots=True)
class _Scale:
    """From values to the drawing, in logarithms."""

    rows: tuple[float, float]
    ms: tuple[float, float]

    def x(self, rows: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * _share(rows, self.rows)

    def y(self, ms: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * _share(ms, self.ms)


def drawing(passes: Sequence[Pass]) -> str:
    """The figure as SVG; "" for fewer than two passes, which make no line."""
    if len(passes) < 2:
        return ""
    floor = next((p.floor_ms for p in passes if p.floor_ms), None)
    low = min([p.ms for p in passes] + ([floor] if floor else [])) * 0.75
    scale = _Scale((passes[0].rows, passes[-1].rows), (low, max(p.ms for p in passes) * 1.3))
    parts = [_axes(passes, scale)]
    if floor:
        parts.append(_line("floor", [(scale.x(p.rows), scale.y(floor)) for p in (passes[0], passes[-1])]))
    slope = [(p.rows, p.compute_ms) for p in passes if p.compute_ms and p.compute_ms >= low]
    parts.append(_line("compute", [(scale.x(rows), scale.y(ms)) for rows, ms in slope]))
    places = [(scale.x(p.rows), scale.y(p.ms)) for p in passes]
    parts.append(_line("measured", places))
    parts += [f'<circle class="measured" cx="{x:.1f}" cy="{y:.1f}" r="4"/>' for x, y in places]
    return (
        f'<svg class="roofline" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{named("learn.bound.chart")}">'
        f"{''.join(parts)}</svg>"
    )


def _share(value: float, ends: tuple[float, float]) -> float:
    low, high = (math.log(end) for end in ends)
    return (math.log(value) - low) / (high - low) if high > low else 0.5


def _axes(passes: Sequence[Pass], scale: _Scale) -> str:
    bottom = HEIGHT - BOTTOM
    grid = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{scale.y(ms):.1f}" y2="{scale.y(ms):.1f}"/>'
        f'<text x="{LEFT - 6}" y="{scale.y(ms) + 4:.1f}" text-anchor="end">{ms:g}</text>'
        for ms in ticks(*scale.ms)
    )
    names = "".join(
        f'<text x="{scale.x(p.rows):.1f}" y="{bottom + 17}" text-anchor="middle">{p.rows}</text>' for p in passes
    )
    return (
        f'<g class="axes" aria-hidden="true">{grid}{names}<text x="{LEFT - 6}" y="{TOP}" text-anchor="end">ms</text>'
        "</g>"
    )


def ticks(low: float, high: float) -> list[float]:
    """1, 2, 5, 10, 20 ... between two values."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [tick for power in decades for one in (1, 2, 5) if low <= (tick := one * 10.0**power) <= high]


def _line(name: str, places: Sequence[tuple[float, float]]) -> str:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return f'<polyline class="{name}" points="{points}"/>' if len(places) > 1 else ""
