"""A reply in four charts: its speed, which guesses were right, tokens a round, where the time went. Pure.

Each chart is a figure, a sentence that reads it, and a table with its numbers, which is also what screen readers get.
Nothing is drawn that was not measured. One pass over the rounds; the rest comes from the reply's tally.
"""

from __future__ import annotations

import importlib.util
import json
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from engine import Drafts, KReason, Round, RoundKind, Summary
from ui.charts import figures
from ui.html.render import both, name, ratio, seconds, speed, times
from ui.state import Reply
from ui.strings import LANGS, glossary, text

WINDOW_S = 0.5
"""The curve of the speed is a mean over the rounds of so much computing, and at least LEAST_ROUNDS."""

LEAST_ROUNDS = 3

MOST_POINTS = 150
"""Of a curve, whatever the reply's length."""

MOST_STRETCHES = 8
"""Rows of the table of speeds."""

NAMES = ("speed", "acceptance", "lengths", "time")

Chart = dict[str, Any]
Point = TypeVar("Point")


def charts(reply: Reply) -> dict[str, Any]:
    """What the page's script draws: of each chart `figure` (None: nothing to draw), `label` by language, `html`.

    `blocks` and `phase` say which moment of the reply it is, so that the page knows when to ask again.
    """
    rounds = [block.event for block in reply.blocks if isinstance(block.event, Round)]
    summary = reply.tally.summary()
    charts_by_name = {
        "speed": _speed(rounds, summary),
        "acceptance": acceptance(summary.acceptance_by_drafter),
        "lengths": _lengths(rounds, summary),
        "time": _time(summary),
    }
    return {"blocks": len(reply.blocks), "phase": reply.phase.value, "charts": charts_by_name}


def plotly_script() -> Path:
    """Plotly's own script, as it comes with the Python package; found without importing that, which takes a while."""
    spec = importlib.util.find_spec("plotly")
    assert spec is not None and spec.origin is not None  # it is one of the requirements
    return Path(spec.origin).resolve().parent / "package_data" / "plotly.min.js"


def charts_frame() -> str:
    """The fixed part of the chat's section."""
    places = {chart: f'data-chart="{chart}"' for chart in NAMES}
    return section('class="charts plots" data-part="charts"', "charts.title", places)


def section(attributes: str, title: str, places: Mapping[str, str]) -> str:
    """The fixed part of a section of charts, with a figure for each name in `places`, which holds that one's
    attributes.

    Plotly's address is relative to the page, so that it holds behind a path prefix too.
    """
    address = f"gradio_api/file={quote(plotly_script().as_posix())}"
    words = json.dumps(figures.words(), ensure_ascii=False)
    figures_html = "".join(
        f"<figure {place}><figcaption><h3>{glossary.figure(f'charts.{chart}', both(f'charts.{chart}'))}</h3>"
        "</figcaption>"
        f'<div class="plot" data-of="{chart}" role="img" hidden></div><div class="numbers"></div></figure>'
        for chart, place in places.items()
    )
    return (
        f'<details {attributes} data-plotly="{escape(address)}" data-words="{escape(words)}">'
        f"<summary>{both(title)}</summary>"
        f'<p class="failed" role="alert" hidden>{both("charts.failed")}</p><div class="sheet">{figures_html}</div>'
        "</details>"
    )


def curve(rounds: Iterable[Round]) -> list[tuple[int, float]]:
    """(tokens written, tokens/s of the latest WINDOW_S of computing) after each round, thinned to MOST_POINTS."""
    points: list[tuple[int, float]] = []
    window: deque[tuple[int, float]] = deque()
    tokens, seconds_ = 0, 0.0
    for round_ in rounds:
        window.append((len(round_.tokens), round_.total_s))
        tokens, seconds_ = tokens + window[-1][0], seconds_ + window[-1][1]
        while len(window) > LEAST_ROUNDS and seconds_ - window[0][1] >= WINDOW_S:
            oldest = window.popleft()
            tokens, seconds_ = tokens - oldest[0], seconds_ - oldest[1]
        if len(window) >= LEAST_ROUNDS and seconds_ > 0:
            points.append((_tokens_after(round_), tokens / seconds_))
    return thin(points)


def thin(points: Sequence[Point]) -> list[Point]:
    """At most MOST_POINTS of a curve, its last among them.

    Keeps every second, fourth, eighth ... point, so that a growing reply does not make the curve dance.
    """
    step = 1
    while len(points) > step * (MOST_POINTS - 1):
        step *= 2
    return [*points[:-1:step], points[-1]] if points else []


def stretches(rounds: Sequence[Round]) -> list[tuple[int, int, float]]:
    """(first token, last token, tokens/s) of equal stretches of the reply, at most MOST_STRETCHES; by where a round
    ends."""
    if not rounds:
        return []
    last = _tokens_after(rounds[-1])
    width = next(w * 10**n for n in range(1, 10) for w in (1, 2, 5) if last <= w * 10**n * MOST_STRETCHES)
    sums: dict[int, tuple[int, float]] = {}
    for round_ in rounds:
        place = (_tokens_after(round_) - 1) // width
        tokens, seconds_ = sums.get(place, (0, 0.0))
        sums[place] = (tokens + len(round_.tokens), seconds_ + round_.total_s)
    return [
        (place * width + 1, min(last, (place + 1) * width), tokens / seconds_)
        for place, (tokens, seconds_) in sums.items()
        if seconds_ > 0
    ]


def _tokens_after(round_: Round) -> int:
    """How many tokens the reply had after a round."""
    return round_.tokens[-1].position + 1


def _own_rounds(rounds: Iterable[Round]) -> list[Round]:
    """Rounds of the reply's own speed, as `Summary.spec_tok_s` counts them; of a reply that was to be plain, all.

    A stop string may have left a round no token; it has no place on the curve.
    """
    own = [r for r in rounds if r.kind is not RoundKind.PROBE and r.tokens]
    return [r for r in own if r.kind is RoundKind.SPECULATIVE or r.k_reason is not KReason.FIXED] or own


def _speed(rounds: Sequence[Round], summary: Summary) -> Chart:
    own_rounds = _own_rounds(rounds)
    points = curve(own_rounds)
    spec, plain = summary.spec_tok_s, summary.baseline.tok_s
    if not points:
        return nothing("speed", "panel.idle")
    rows = [(f"{first}–{last}", speed(tok_s)) for first, last, tok_s in stretches(own_rounds)]
    rows.append((word("charts.whole"), speed(summary.overall_tok_s if spec is None else spec)))
    if plain is not None:
        rows.append((both("charts.plain.measured", n=summary.baseline.n), speed(plain)))
    html = table("charts.speed.table", ("charts.axis.tokens", "panel.unit"), rows, window=WINDOW_S)
    figure = figures.speed(points, plain, guessed=spec is not None)
    if spec is None:
        return chart_of("speed", figure, html, "charts.speed.plain", plain=speed(summary.overall_tok_s))
    if plain is None:
        return chart_of("speed", figure, html, "charts.speed.alone", spec=speed(spec))
    return chart_of("speed", figure, html, "charts.speed.both", spec=speed(spec), plain=speed(plain),
                  speedup=times(summary.speedup))  # fmt: skip


def acceptance(drafts: Sequence[Drafts]) -> Chart:
    """Guesses that were right by their place in the round; `drafts` of each drafter."""
    drafters = [one for one in drafts if one.tested]
    if not drafters:
        return nothing("acceptance", "charts.acceptance.none")
    every = _together(drafters)
    columns = [*drafters, every] if len(drafters) > 1 else [every]
    rows = [
        (str(place + 1), *(right_of(drafts.by_position[place : place + 1]) for drafts in columns))
        for place in range(len(every.by_position))
        if every.by_position[place][0]
    ]
    rows.append((word("charts.all"), *(right_of(drafts.by_position) for drafts in columns)))
    heads = [name(drafts.drafter) for drafts in columns[:-1]] + [
        word("charts.all" if len(columns) > 1 else "charts.axis.right")
    ]
    html = table("charts.acceptance.table", ("charts.axis.place",), rows, heads)
    tested, accepted = every.by_position[0]
    return chart_of(
        "acceptance", figures.acceptance(drafters), html, "charts.acceptance.first", tested=tested, accepted=accepted
    )


def _together(drafters: Sequence[Drafts]) -> Drafts:
    places = zip_longest(*(drafts.by_position for drafts in drafters), fillvalue=(0, 0))
    return Drafts("", tuple((sum(t for t, _ in place), sum(a for _, a in place)) for place in places))


def right_of(counts: Sequence[tuple[int, int]]) -> str:
    """ "12 / 15 80 %" of (tested, accepted) pairs; "" where nothing was tested."""
    tested, accepted = sum(t for t, _ in counts), sum(a for _, a in counts)
    return f"{accepted} / {tested} <b>{percent(accepted / tested)}</b>" if tested else ""


def _lengths(rounds: Sequence[Round], summary: Summary) -> Chart:
    counts = Counter(len(round_.tokens) for round_ in rounds if round_.kind is RoundKind.SPECULATIVE)
    if not counts:
        return nothing("lengths", "charts.lengths.none")
    total = counts.total()
    rows = [(str(length), str(counts[length]), percent(counts[length] / total)) for length in sorted(counts)]
    rows.append((word("charts.all"), str(total), percent(1)))
    html = table("charts.lengths.table", ("charts.axis.length", "charts.axis.rounds", "charts.share"), rows)
    tau = ratio(summary.acceptance_length)
    return chart_of("lengths", figures.lengths(counts), html, "charts.lengths.mean", tau=tau)


def _time(summary: Summary) -> Chart:
    parts = {"draft": summary.draft_s, "verify": summary.verify_s, "sample": summary.sample_s, "other": summary.other_s}
    total = sum(parts.values())
    if total <= 0:
        return nothing("time", "panel.idle")
    shares = {part: percent(part_s / total) for part, part_s in parts.items()}
    rows = [(word(f"charts.{part}"), seconds(part_s), shares[part]) for part, part_s in parts.items()]
    rows.append((word("charts.all"), seconds(total), percent(1)))
    html = table("charts.time.table", ("charts.part", "charts.seconds", "charts.share"), rows)
    return chart_of(
        "time", figures.time(parts), html, "charts.time.split", draft=shares["draft"], verify=shares["verify"]
    )


def percent(share: float) -> str:
    return f"{share * 100:.0f} %"


@cache
def word(key: str) -> str:
    """`both`, for words that hold no values: tables are full of them, and filling them in takes longer than
    counting."""
    return both(key)


def chart_of(chart: str, figure: figures.Figure | None, numbers: str, reading: str, **values: object) -> Chart:
    label = {lang: f"{text(f'charts.{chart}', lang)}: {text(reading, lang, **values)}" for lang in LANGS}
    return {"figure": figure, "label": label, "html": f'<p class="reading">{both(reading, **values)}</p>{numbers}'}


def nothing(chart: str, sentence: str) -> Chart:
    """A sentence instead of empty axes."""
    return chart_of(chart, None, "", sentence)


def table(
    caption: str, keys: Sequence[str], rows: Iterable[Sequence[str]], heads: Sequence[str] = (), **values: object
) -> str:
    """Rows are HTML, the first cell of each its name; columns are named by keys and then by `heads`, which are HTML."""
    columns = "".join(f'<th scope="col">{head}</th>' for head in [*map(word, keys), *heads])
    body = "".join(
        f'<tr><th scope="row">{first}</th>' + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
        for first, *cells in rows
    )
    return (
        f"<table><caption>{both(caption, **values)}</caption><thead><tr>{columns}</tr></thead><tbody>{body}</tbody>"
        "</table>"
    )
