"""The results of the lab in figures, each with a table of its numbers. Pure; as `ui.charts.reply`, for
assets/page/charts.js."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from html import escape
from urllib.parse import quote

from engine.lab import MEASURED, PLAIN, PREDICTED, ExperimentName, Point, Result
from ui.charts import figures
from ui.charts.figures import Figure, Mark
from ui.charts.reply import Chart, plotly_script, table
from ui.html.render import DASH, both, speed
from ui.strings import LANGS, TEXT, text
from ui.strings.glossary import link
from ui.when import conclusions

NAMES: Mapping[ExperimentName, tuple[str, ...]] = {
    ExperimentName.RATE: ("rate", "each"), ExperimentName.LENGTH: ("length", "ttft"), ExperimentName.K: ("k",),
    ExperimentName.TEMPERATURE: ("temperature",), ExperimentName.TEXT: ("text",), ExperimentName.ROWS: ("rows",),
}  # fmt: skip
"""The charts of each experiment."""

TERMS = {
    "rate": "throughput", "each": "per_user", "length": "request_speedup", "ttft": "ttft", "k": "k",
    "temperature": "alpha", "text": "speedup", "rows": "memory_bound",
}  # fmt: skip
"""What each chart is about, in the glossary."""

_KINDS_OF_LINE = ("first", "second", "third")
"""How series look that are not plain and not worked out, in their order."""

Line = tuple[str, str, list[Mark]]
"""How it looks, the series, its marks."""

Drawing = tuple[Figure | None, str]
"""A figure and its numbers."""


def charts(result: Result) -> dict[str, Chart]:
    """For each of NAMES[result.name]: `figure` (None: nothing to draw), `label` by language, `html` with the
    numbers."""
    drawings = {chart: _DRAWINGS[chart](result.points) for chart in NAMES[result.name]}
    conclusion = {lang: " ".join(sentence.text(lang) for sentence in conclusions.conclusion(result)) for lang in LANGS}
    return {
        chart: {
            "figure": figure,
            "label": {lang: f"{text(f'lab.chart.{chart}', lang)}: {conclusion[lang]}" for lang in LANGS},
            "html": numbers,
        }
        for chart, (figure, numbers) in drawings.items()
    }


def section(name: ExperimentName, numbers: Mapping[str, str]) -> str:
    """The fixed part: a figure for each chart of an experiment, with `numbers` in their places for who has no script.

    Plotly's address is relative to the page, so that it holds behind a path prefix too.
    """
    address = f"gradio_api/file={quote(plotly_script().as_posix())}"
    words = json.dumps(figures.words(), ensure_ascii=False)
    figures_html = "".join(
        f"<figure><figcaption><h5>{link(TERMS[chart], both(f'lab.chart.{chart}'))}</h5></figcaption>"
        f'<div class="plot" data-of="{chart}" role="img" hidden></div><div class="numbers">{numbers.get(chart, "")}'
        "</div></figure>"
        for chart in NAMES[name]
    )
    return (
        f'<details class="plots lab" data-part="lab-charts" open data-plotly="{escape(address)}" '
        f'data-words="{escape(words)}">'
        f"<summary>{both('lab.open')}</summary>"
        f'<p class="failed" role="alert" hidden>{both("charts.failed")}</p><div class="sheet">{figures_html}</div>'
        "</details>"
    )


def _marks(points: Sequence[Point]) -> list[Mark]:
    return [(point.x, point.y, point.low, point.high) for point in points]


def _lines(points: Sequence[Point]) -> list[Line]:
    """Every series with the look that it has."""
    series_names = [name for name in conclusions.names(points) if conclusions.series(points, name)]
    looks = {PLAIN: "plain", PREDICTED: "worked"}
    rest = iter(_KINDS_OF_LINE * len(series_names))
    return [(looks.get(name) or next(rest), name, _marks(conclusions.series(points, name))) for name in series_names]


def _figure(chart: str, lines: Sequence[Line]) -> Figure | None:
    return figures.experiment_lines(chart, lines) if lines else None


def _rate(points: Sequence[Point]) -> Drawing:
    series_names = [name for name in conclusions.names(points) if conclusions.series(points, name)]
    gains = {
        gain.x: f"<b>{conclusions.times(gain.y)}×</b>{_range(gain.low, gain.high)}"
        for gain in conclusions.gains(points, conclusions.guessing(points))
    }
    rows = [
        (str(conclusions.whole(x)), *(_cell(points, name, x, speed) for name in series_names), gains.get(x, DASH))
        for x in _xs(points)
    ]
    heads = [*map(_head, series_names), both("lab.col.gain")]
    return _figure("rate", _lines(points)), _table("rate", "lab.axis.users", rows, heads)


def _each(points: Sequence[Point]) -> Drawing:
    """The same by what each user gets."""
    each = [Point(p.x, p.series, p.y / p.x, p.n) for p in points if p.x > 0]
    series_names = [name for name in conclusions.names(each) if conclusions.series(each, name)]
    rows = [(str(conclusions.whole(x)), *(_cell(each, name, x, speed) for name in series_names)) for x in _xs(each)]
    return _figure("each", _lines(each)), _table("each", "lab.axis.users", rows, [*map(_head, series_names)])


def _length(points: Sequence[Point]) -> Drawing:
    rows = []
    for name in conclusions.names(points):
        for point in conclusions.series(points, name):
            between = conclusions.extra(point, "decode_speedup")
            rows.append(
                (
                    str(conclusions.whole(point.x)),
                    _value(point, conclusions.times, "×"),
                    DASH if between is None else f"{conclusions.times(between)}×",
                )
            )
    return _figure("length", _lines(points)), _table(
        "length",
        "lab.axis.tokens",
        rows,
        [link("request_speedup", both("lab.col.whole")), link("speedup", both("lab.col.between"))],
    )


def _ttft(points: Sequence[Point]) -> Drawing:
    pairs = [
        (point.x, plain, spec)
        for point in sorted(points, key=lambda p: p.x)
        if (plain := conclusions.extra(point, "ttft_plain")) and (spec := conclusions.extra(point, "ttft_spec"))
    ]
    rows = [
        (str(conclusions.whole(x)), conclusions.ms(plain), conclusions.ms(spec), f"{(spec / plain - 1) * 100:+.1f} %")
        for x, plain, spec in pairs
    ]
    lines: list[Line] = [("plain", "plain", [(x, plain * 1e3, None, None) for x, plain, _ in pairs]),
             ("first", "charts.lane.speculative", [(x, spec * 1e3, None, None) for x, _, spec in pairs])]  # fmt: skip
    heads = [_head("plain"), both("charts.lane.speculative"), both("lab.col.change")]
    return _figure("ttft", lines if pairs else []), _table("ttft", "lab.axis.tokens", rows, heads)


def _k(points: Sequence[Point]) -> Drawing:
    series_names = conclusions.names(points)
    rows = [
        (str(conclusions.whole(x)), *(_cell(points, name, x, conclusions.times, "×") for name in series_names))
        for x in _xs(points)
    ]
    return _figure("k", _lines(points)), _table("k", "lab.axis.k", rows, [*map(_head, series_names)])


def _temperature(points: Sequence[Point]) -> Drawing:
    series_names = conclusions.names(points)
    rows = []
    for x in _xs(points):
        cells = []
        for name in series_names:
            at = next((point for point in conclusions.series(points, name) if point.x == x), None)
            faster = None if at is None else conclusions.extra(at, "speedup")
            cells += [
                _cell(points, name, x, conclusions.percent),
                DASH if faster is None else f"{conclusions.times(faster)}×",
            ]
        rows.append((f"{x:g}", *cells))
    heads = [part for name in series_names for part in (_head(name), link("speedup", both("lab.col.speedup")))]
    return _figure("temperature", _lines(points)), _table("temperature", "lab.axis.temperature", rows, heads)


def _text(points: Sequence[Point]) -> Drawing:
    fastest = conclusions.kinds(points)
    by_kind = {point.series: point for point in points}
    rows, bars = [], []
    for kind in fastest:
        point = by_kind[kind]
        alpha, request = conclusions.extra(point, "alpha"), conclusions.extra(point, "request_speedup")
        rows.append(
            (
                _head(kind),
                _value(point, conclusions.times, "×"),
                DASH if request is None else f"{conclusions.times(request)}×",
                DASH if alpha is None else conclusions.percent(alpha),
            )
        )
        bars.append((kind, (point.x, point.y, point.low, point.high)))
    heads = [
        link("speedup", both("lab.col.between")),
        link("request_speedup", both("lab.col.request")),
        link("alpha", both("lab.axis.alpha")),
    ]
    return figures.kinds(bars) if bars else None, _table("text", "lab.axis.text", rows, heads)


def _rows(points: Sequence[Point]) -> Drawing:
    passes = conclusions.series(points, MEASURED)
    extras = {
        name: [(p.x, value, None, None) for p in passes if (value := conclusions.extra(p, f"{name}_ms")) is not None]
        for name in ("floor", "compute")
    }
    lines: list[Line] = [("first", MEASURED, _marks(passes))] if passes else []
    lines += [
        (look, name, list(extras[name])) for name, look in (("floor", "worked"), ("compute", "limit")) if extras[name]
    ]
    limits = {name: {x: f"{value:.1f}" for x, value, *_ in marks} for name, marks in extras.items()}
    rows = [
        (
            str(conclusions.whole(p.x)),
            _value(p, _tenth),
            f"{p.y / p.x:.2f}",
            *(limits[name].get(p.x, DASH) for name in ("floor", "compute")),
        )
        for p in passes
    ]
    heads = [_head(MEASURED), both("lab.col.each_row"), _head("floor"), _head("compute")]
    return _figure("rows", lines), _table("rows", "lab.axis.rows", rows, heads)


_DRAWINGS: Mapping[str, Callable[[Sequence[Point]], Drawing]] = {
    "rate": _rate, "each": _each, "length": _length, "ttft": _ttft, "k": _k, "temperature": _temperature, "text": _text,
    "rows": _rows,
}  # fmt: skip


def _xs(points: Sequence[Point]) -> list[float]:
    return sorted({point.x for point in points})


def _head(series: str) -> str:
    """A series' name as HTML."""
    return both(key) if (key := f"lab.series.{series}") in TEXT else escape(series)


def _cell(points: Sequence[Point], name: str, x: float, in_words: Callable[[float], str], unit: str = "") -> str:
    point = next((point for point in conclusions.series(points, name) if point.x == x), None)
    return DASH if point is None else _value(point, in_words, unit)


def _value(point: Point, in_words: Callable[[float], str], unit: str = "") -> str:
    scatter = "" if point.low is None or point.high is None else _range(point.low, point.high, in_words)
    return f"<b>{in_words(point.y)}{unit}</b>{scatter}"


def _range(low: float, high: float, in_words: Callable[[float], str] = conclusions.times) -> str:
    return f"<small>{in_words(low)}–{in_words(high)}</small>"


def _tenth(value: float) -> str:
    return f"{value:.1f}"


def _table(chart: str, first: str, rows: Sequence[Sequence[str]], heads: Sequence[str]) -> str:
    return table(f"lab.table.{chart}", (first,), rows, heads) if rows else ""
