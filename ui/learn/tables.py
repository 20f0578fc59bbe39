"""What the steps of the tab "Learn" show of measurements: events and points -> HTML with a sentence and a table. Pure.

The same functions show what was recorded elsewhere and what the reader measures.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from engine import Round, RoundKind, Summary
from engine.lab import Point, Result
from ui.charts.roofline import Pass, drawing
from ui.html.render import DASH, both, name, ratio, show_blanks, speed, times
from ui.inspect.explain import took
from ui.recording.recordings import Recording
from ui.state import About, Block

FEW, MANY = 4, 64
"""Rows that the sentence about forward passes compares with one; the nearest that were measured."""


@dataclass(frozen=True, slots=True)
class Drafting:
    """How one drafter did on a text."""

    drafter: str
    alpha: float | None
    tau: float | None
    tok_s: float | None


# -- where it was measured ---------------------------------------------------------------------------------------------


def here(about: About | None) -> str:
    where = DASH if about is None else " · ".join((about.target, about.weights, about.kernel, about.device))
    return f'<p class="origin">{both("learn.here", where=where)}</p>'


def recording_origin(recording: Recording) -> str:
    about = recording.lanes[0].about
    where = DASH if about is None else " · ".join((about.target, about.weights, about.kernel, about.device))
    return f'<p class="origin">{both("learn.recorded", date=recording.date or DASH, where=where)}</p>'


def origin(result: Result, reference: bool) -> str:
    """Of an experiment. reference: it is the one that comes with the app."""
    machine = dict(result.machine)
    names = ("target", "weights", "kernel", "device", "processor")
    where = " · ".join(machine[part] for part in names if machine.get(part))
    sentence = (
        both("learn.reference", date=result.made[:10], where=where) if reference else both("learn.here", where=where)
    )
    disturbance = f" <b>{both('learn.disturbed')}</b>" if result.disturbed else ""
    return f'<p class="origin">{sentence}{disturbance}</p>'


# -- 1: token by token -------------------------------------------------------------------------------------------------


def tokens(blocks: Iterable[Block], most: int = 24) -> str:
    """Each token of plain rounds with what its pass took; "" before there is one."""
    rows = [
        ("".join(token.text or token.special for token in block.event.tokens), block.event.total_s)
        for block in blocks
        if isinstance(block.event, Round)
    ][:most]
    if not rows:
        return ""
    durations = [seconds for _, seconds in rows]
    longest = max(durations)
    sentence = both(
        "learn.token.result",
        median=took(statistics.median(durations)),
        count=len(durations),
        low=took(min(durations)),
        high=took(longest),
    )
    beads = "".join(
        f'<li><bdi>{escape(show_blanks(text)) or "…"}</bdi><span class="track" aria-hidden="true">'
        f'<span style="width:{seconds / longest:.0%}"></span></span>'
        f"<small>{took(seconds)}</small></li>"
        for text, seconds in rows
    )
    return (
        f'<p class="result">{sentence}</p><p class="name">{both("learn.token.list")}</p><ol class="beads">{beads}</ol>'
    )


# -- 2: rows -----------------------------------------------------------------------------------------------------------


def passes(points: Sequence[Point]) -> str:
    """The roofline, its sentence and its table; "" before anything was measured."""
    by_rows = sorted(map(_pass, points), key=lambda one: one.rows)
    if not by_rows:
        return ""
    one = by_rows[0].ms if by_rows[0].rows == 1 else None
    rows = [
        (str(p.rows), f"{p.ms:.3g}", times(p.ms / one) if one else DASH, f"{p.ms / p.rows:.3g}",
         f"{p.floor_ms:.3g}" if p.floor_ms else DASH, f"{p.compute_ms:.3g}" if p.compute_ms else DASH)
        for p in by_rows
    ]  # fmt: skip
    columns = ("rows", "ms", "times", "each", "floor.ms", "compute.ms")
    keys = {name: both(f"learn.bound.{name}") for name in columns}
    legend = "".join(
        f'<li class="{line}">{both(f"learn.bound.{line}")}</li>' for line in ("measured", "floor", "compute")
    )
    return (
        f'{_comparison(by_rows)}<p class="name">{both("learn.bound.chart")}</p>{drawing(by_rows)}'
        f'<ul class="lines">{legend}</ul>'
        f"{table(both('learn.bound.table'), list(keys.values()), rows)}"
    )


def _pass(point: Point) -> Pass:
    extra = dict(point.extra)
    return Pass(int(point.x), point.y, extra.get("floor_ms"), extra.get("compute_ms"))


def _comparison(by_rows: Sequence[Pass]) -> str:
    if len(by_rows) < 3 or by_rows[0].rows != 1:
        return ""
    few = min(by_rows[1:], key=lambda one: abs(one.rows - FEW))
    many = min(by_rows[1:], key=lambda one: abs(one.rows - MANY))
    if few.rows == many.rows:
        many = by_rows[-1]
    one = by_rows[0].ms
    sentence = both(
        "learn.bound.result", few=few.rows, times=f"{few.ms / one:.2f}", many=many.rows, most=f"{many.ms / one:.1f}"
    )
    return f'<p class="result">{sentence}</p>'


# -- 6: tokens a round -------------------------------------------------------------------------------------------------


def lengths(recording: Recording, lane: str) -> str:
    """Rounds with guesses by the tokens that they wrote."""
    recorded_lane = recording.lane(lane)
    rounds = (
        [block.event for block in recorded_lane.reply.blocks if isinstance(block.event, Round)] if recorded_lane else []
    )
    counts = Counter(len(one.tokens) for one in rounds if one.kind is RoundKind.SPECULATIVE and one.decisions)
    if not counts:
        return ""
    token_sum = sum(tokens * times for tokens, times in counts.items())
    sentence = both("learn.least.counted", rounds=counts.total(), tokens=token_sum, least=min(counts), most=max(counts))
    rows = [(str(length), str(counts[length])) for length in sorted(counts)]
    heads = [both("learn.least.tokens"), both("learn.least.rounds")]
    return (
        f'<p class="result">{sentence}</p>{table(both("learn.least.rounds.table"), heads, rows)}'
        f"{recording_origin(recording)}"
    )


# -- 8: drafters -------------------------------------------------------------------------------------------------------


def drafting(drafter: str, figures: Summary) -> Drafting:
    return Drafting(drafter, figures.alpha, figures.acceptance_length, figures.overall_tok_s)


def drafters(figures: Sequence[Drafting], prompt: str, count: int, finished: bool) -> str:
    """Each with its figures; plain decoding ("none") is what the others are compared with. prompt: its name, as
    HTML."""
    if not figures:
        return ""
    plain = next((one.tok_s for one in figures if one.drafter == "none"), None)
    gains = {one.drafter: one.tok_s / plain for one in figures if one.tok_s and plain}
    rows = [
        (name(one.drafter), ratio(one.alpha), ratio(one.tau), speed(one.tok_s), times(gains.get(one.drafter)))
        for one in figures
    ]
    keys = ("name", "alpha", "tau", "speed", "gain")
    heads = [both(f"learn.drafters.{key}") for key in keys]
    caption = _with("learn.drafters.measured", "prompt", prompt, count=count)
    return f"{_quickest(gains) if finished else ''}{table(caption, heads, rows)}"


def _quickest(gains: Mapping[str, float]) -> str:
    guessing = {drafter: gain for drafter, gain in gains.items() if drafter != "none"}
    if not guessing:
        return ""
    best = max(guessing, key=lambda drafter: guessing[drafter])
    if guessing[best] <= 1:
        return f'<p class="result">{both("learn.drafters.result.none")}</p>'
    sentence = _with("learn.drafters.result", "best", name(best), speedup=f"{guessing[best]:.2f}")
    return f'<p class="result">{sentence}</p>'


def _with(key: str, field: str, html: str, **values: object) -> str:
    """A sentence with something in it that is HTML in both languages itself, so it goes in after the sentence is
    made."""
    return both(key, **{field: "\0"}, **values).replace("\0", html)


def right(recordings: Iterable[Recording], drafter: str) -> str:
    """How many guesses of a drafter were right in recordings, in words."""
    drafts = [
        one
        for recording in recordings
        for lane in recording.lanes
        for one in lane.reply.tally.summary().acceptance_by_drafter
        if one.drafter == drafter
    ]
    tested, accepted = sum(one.tested for one in drafts), sum(one.accepted for one in drafts)
    if not tested:
        return both("learn.drafters.absent")
    return both("learn.drafters.right", accepted=accepted, tested=tested)


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """All cells are HTML; the first of a row names it."""
    columns = "".join(f'<th scope="col">{head}</th>' for head in heads)
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
        for first, *cells in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{_plain(caption)}"><table><caption>{caption}'
        "</caption>"
        f"<thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _plain(html: str) -> str:
    """The words of a text in both languages, for an attribute."""
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())
