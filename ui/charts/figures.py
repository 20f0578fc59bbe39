"""The figures of a reply and of a race, as Plotly takes them. Pure; what they show comes from `ui.charts.reply` and
`ui.race.charts`.

Colours are the style sheet's variables (`var(--gl-draft)`) and words are keys of `ui.strings`: the page's script puts
in what they stand for, so a figure follows theme and language without being asked for again.

All but the numbers is the same each time. It is built once from Plotly's own classes, which refuse what Plotly would
not understand; that takes 20 ms, filling in the numbers next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from html import escape
from typing import Any

from engine import Drafts
from ui.strings import LANGS, TEXT, text

Figure = dict[str, Any]

Mark = tuple[float, float, float | None, float | None]
"""A measured figure: x, y, and what its repeats scatter between."""

Step = tuple[float, tuple[float, float, float], int]
"""A round on the time line: its start, the seconds of guessing, of the big model and of the rest, the tokens that it
wrote."""

FONT = "system-ui, sans-serif"

WORDS = (
    "charts.axis.tokens", "charts.axis.speed", "charts.axis.place", "charts.axis.right", "charts.axis.length",
    "charts.axis.rounds", "charts.this", "charts.plain", "charts.draft", "charts.verify",
    "charts.sample", "charts.other", "drafter.ngram", "drafter.head", "drafter.draft_model",
    "charts.lane.plain", "charts.lane.speculative", "charts.lane.reply", "charts.axis.own", "charts.axis.passes",
    "charts.axis.row", "charts.axis.small", "charts.axis.big", "charts.even", "panel.accepted", "panel.rejected",
    "lab.axis.users", "lab.axis.tokens", "lab.axis.k", "lab.axis.temperature", "lab.axis.rows", "lab.axis.speed",
    "lab.axis.times", "lab.axis.ms", "lab.axis.alpha", "lab.series.plain", "lab.series.speculative", "lab.series.auto",
    "lab.series.predicted", "lab.series.measured", "lab.series.floor", "lab.series.compute", "lab.series.own",
    "lab.series.copy", "lab.series.code", "lab.series.summary", "lab.series.rag", "lab.series.chat",
    "lab.series.choice", "lab.series.poem", "lab.series.rejection", "lab.series.shared_noise",
)  # fmt: skip
"""Every key that a figure may hold."""

PARTS = {"draft": "draft", "verify": "recovered", "sample": "quiet", "other": "line"}
"""The parts of the time, each with its colour."""

_PATTERNS = ("", "/", ".", "x")
"""What tells drafters apart besides their names: all of their right guesses are green."""


def words() -> dict[str, list[str]]:
    """What the keys in a figure stand for, in the order of LANGS."""
    return {key: [text(key, lang) for lang in LANGS] for key in WORDS}


def speed(points: Sequence[tuple[int, float]], plain_tok_s: float | None, guessed: bool) -> Figure:
    """points: (tokens written, tokens/s). The dashed line of plain decoding is there only where that was measured."""
    x, y = [at for at, _ in points], [round(tok_s, 2) for _, tok_s in points]
    data = [_trace("guessed" if guessed else "unguessed") | {"x": x, "y": y}]
    if plain_tok_s is not None:
        data.append(_trace("plain") | {"x": [0, x[-1]], "y": [round(plain_tok_s, 2)] * 2})
    return {"data": data, "layout": _layout("speed")}


def acceptance(drafters: Sequence[Drafts]) -> Figure:
    """Bars of accepted / tested by draft position, a series for each drafter."""
    data = []
    for number, drafts in enumerate(drafters):
        shares = [(place + 1, right / count) for place, (count, right) in enumerate(drafts.by_position) if count]
        x, y = [place for place, _ in shares], [round(share, 4) for _, share in shares]
        pattern = _PATTERNS[number % len(_PATTERNS)]
        data.append(_trace(f"right{pattern}") | {"x": x, "y": y, "name": _drafter(drafts.drafter)})
    return {"data": data, "layout": _layout("acceptance")}


def lengths(counts: Mapping[int, int]) -> Figure:
    """Bars of rounds by the tokens that they wrote."""
    x = list(range(min(counts), max(counts) + 1))
    data = [_trace("right") | {"x": x, "y": [counts.get(tokens, 0) for tokens in x]}]
    return {"data": data, "layout": _layout("lengths")}


def time(seconds: Mapping[str, float]) -> Figure:
    """One bar, stacked from the PARTS of the time as shares of their sum."""
    total = sum(seconds.values())
    data = [_trace(part) | {"x": [round(seconds[part] / total, 4)], "y": [""]} for part in PARTS]
    return {"data": data, "layout": _layout("time")}


def timeline(lanes: Mapping[str, Sequence[Step]], start_s: float, end_s: float) -> Figure:
    """A row for each lane, in which its rounds stand where its own clock puts them, each in three stretches."""
    bars = [(f"charts.lane.{lane}", *step) for lane, steps in lanes.items() for step in steps]
    rows = [lane for lane, *_ in bars]
    begins = {"draft": 0.0, "verify": 0.0, "other": 0.0}
    data = []
    for part in begins:
        place = ("draft", "verify", "other").index(part)
        x = [parts[place] for _, _, parts, _ in bars]
        base = [at + sum(parts[:place]) for _, at, parts, _ in bars]
        series = {"x": [round(s, 6) for s in x], "base": [round(s, 6) for s in base], "y": rows}
        series["customdata"] = [round(s * 1e3, 2) for s in x]
        if part == "verify":
            series["text"] = [str(tokens) for *_, tokens in bars]
        data.append(_trace(f"step.{part}") | series)
    layout = _layout("timeline")
    return {"data": data, "layout": layout | {"xaxis": layout["xaxis"] | {"range": [start_s, end_s]}}}


def cumulative(lanes: Mapping[str, Sequence[tuple[float, int]]]) -> Figure:
    """points: (seconds by the lane's own clock, tokens written)."""
    data = [
        _trace(f"line.{lane}") | {"x": [round(at, 5) for at, _ in points], "y": [tokens for _, tokens in points]}
        for lane, points in lanes.items()
    ]
    return {"data": data, "layout": _layout("cumulative")}


def passes(lanes: Mapping[str, Mapping[int, int]]) -> Figure:
    """Bars of each lane's forward passes by the tokens that they wrote, as shares of the lane's."""
    data = []
    for lane, counts in lanes.items():
        total = sum(counts.values())
        x = sorted(counts)
        data.append(_trace(f"passes.{lane}") | {"x": x, "y": [round(counts[tokens] / total, 4) for tokens in x]})
    return {"data": data, "layout": _layout("passes")}


def right_in_a_row(counts: Mapping[int, int]) -> Figure:
    """Bars of rounds by how many guesses in a row were right, from 0 on."""
    x = list(range(max(counts) + 1))
    data = [_trace("right") | {"x": x, "y": [counts.get(right, 0) for right in x]}]
    return {"data": data, "layout": _layout("accepted")}


def scatter(dots: Sequence[tuple[float, float, bool]]) -> Figure:
    """dots: (the drafter's probability, the target's, whether it was accepted). On the dashed line both are the
    same."""
    data = [_trace("even")]
    for kind in (True, False):
        if points := [(draft, target) for draft, target, right in dots if right is kind]:
            x, y = [round(draft, 3) for draft, _ in points], [round(target, 3) for _, target in points]
            data.append(_trace("kept" if kind else "lost") | {"x": x, "y": y})
    return {"data": data, "layout": _layout("scatter")}


def experiment_lines(chart: str, lines: Sequence[tuple[str, str, Sequence[Mark]]]) -> Figure:
    """An experiment of the lab as lines. lines: (kind of trace, see `_lab_traces`; series; its marks, by x)."""
    data = []
    for kind, series, marks in lines:
        trace = _trace(f"lab.{kind}") | {"name": _series(series)}
        data.append(
            trace
            | {"x": [x for x, *_ in marks], "y": [_round_off(y) for _, y, *_ in marks]}
            | _scatter_of("error_y", marks)
        )
    layout = _layout(f"lab.{chart}")
    if layout["xaxis"].get("type") == "log":
        ticks = sorted({mark[0] for *_, marks in lines for mark in marks})
        layout = layout | {"xaxis": layout["xaxis"] | {"tickvals": ticks, "ticktext": [f"{x:g}" for x in ticks]}}
    return {"data": data, "layout": layout}


def kinds(bars: Sequence[tuple[str, Mark]]) -> Figure:
    """Bars of the speed-up by kind of text, the first on top; where the line of 1 is not reached guessing costs
    time."""
    marks = [mark for _, mark in bars]
    trace = _trace("lab.bars") | {"x": [_round_off(y) for _, y, *_ in marks], "y": [_series(kind) for kind, _ in bars]}
    return {"data": [trace | _scatter_of("error_x", marks)], "layout": _layout("lab.text")}


def _scatter_of(axis: str, marks: Sequence[Mark]) -> Figure:
    """What repeats scatter between, as lines through the marks; nothing where that is known of none."""
    if not any(low is not None and high is not None for *_, low, high in marks):
        return {}
    over = [0.0 if high is None else _round_off(max(0.0, high - y)) for _, y, _, high in marks]
    under = [0.0 if low is None else _round_off(max(0.0, y - low)) for _, y, low, _ in marks]
    return {axis: {"type": "data", "array": over, "arrayminus": under, "symmetric": False, "thickness": 1, "width": 3}}


def _round_off(value: float) -> float:
    return float(f"{value:.4g}")


def _series(name: str) -> str:
    """A key where there are words for it, or it is one; else the name itself, escaped."""
    if name in TEXT:
        return name
    return key if (key := f"lab.series.{name}") in TEXT else escape(name)


def _drafter(name: str) -> str:
    """A key where there are words for it; else the name itself, escaped because Plotly reads names as HTML."""
    return key if (key := f"drafter.{name}") in WORDS else escape(name)


def _trace(name: str) -> Figure:
    return dict(_traces()[name])


def _layout(name: str) -> Figure:
    return _layouts()[name]


def _colour(role: str) -> str:
    return f"var(--gl-{role})"


@cache
def _traces() -> dict[str, Figure]:
    """Every kind of trace, still without numbers."""
    import plotly.graph_objects as go  # here, because it takes a while and the page is up without it

    def line(name: str, role: str, **more: Any) -> Any:
        return go.Scatter(mode="lines", name=name, line={"color": _colour(role), "width": 2} | more)

    def bars(role: str, pattern: str = "", **more: Any) -> Any:
        marker: dict[str, Any] = {"color": _colour(role), "line": {"color": _colour(role), "width": 1}}
        if pattern:
            marker["pattern"] = {"shape": pattern, "fgcolor": _colour(role), "bgcolor": _colour("ground"), "size": 6}
        return go.Bar(marker=marker, **more)

    traces = {"guessed": line("charts.this", "draft"), "unguessed": line("charts.this", "quiet"),
            "plain": line("charts.plain", "text", width=1.5, dash="dash")}  # fmt: skip
    traces |= {f"right{pattern}": bars("draft", pattern, hoverinfo="y") for pattern in _PATTERNS}
    traces |= {
        part: bars(role, orientation="h", name=f"charts.{part}", hoverinfo="x+name") for part, role in PARTS.items()
    }
    traces |= _race_traces(line, bars) | _lab_traces(line, bars)
    return {name: trace.to_plotly_json() for name, trace in traces.items()}


def _race_traces(line: Callable[..., Any], bars: Callable[..., Any]) -> dict[str, Any]:
    """Those of races. Lanes keep their colours: green is the one with guesses."""
    import plotly.graph_objects as go

    def dots(name: str, role: str, symbol: str) -> Any:
        marker = {"color": _colour(role), "symbol": symbol, "size": 7, "line": {"color": _colour(role), "width": 1}}
        return go.Scatter(mode="markers", name=name, marker=marker, opacity=0.75)

    traces: dict[str, Any] = {}
    for lane, role, dash, pattern in (
        ("plain", "text", "dash", "/"),
        ("speculative", "draft", "solid", ""),
        ("reply", "draft", "solid", ""),
    ):
        traces[f"line.{lane}"] = line(f"charts.lane.{lane}", role, dash=dash)
        traces[f"passes.{lane}"] = bars(role, pattern, name=f"charts.lane.{lane}", hoverinfo="y+name")
    for part, role, pattern in (("draft", "draft", "/"), ("verify", "recovered", ""), ("other", "line", "")):
        step = bars(role, pattern, orientation="h", name=f"charts.{part}", hovertemplate="%{customdata} ms")
        step.marker.line = {"color": _colour("ground"), "width": 1}
        traces[f"step.{part}"] = step
    traces["step.verify"].update(
        textposition="inside", insidetextanchor="middle", textangle=0, textfont={"color": _colour("ground")}
    )
    traces["kept"] = dots("panel.accepted", "draft", "circle-open")
    traces["lost"] = dots("panel.rejected", "rejected", "x-thin")
    traces["even"] = line("charts.even", "quiet", width=1, dash="dot").update(x=[0, 1], y=[0, 1], hoverinfo="skip")
    return traces


def _lab_traces(line: Callable[..., Any], bars: Callable[..., Any]) -> dict[str, Any]:
    """Those of the lab: what tells series apart besides their colour is the mark, the dash or both."""

    def line_with_marks(role: str, symbol: str, dash: str = "solid") -> Any:
        return line("", role, dash=dash).update(
            mode="lines+markers", marker={"symbol": symbol, "size": 7, "color": _colour(role)}
        )

    return {
        "lab.plain": line_with_marks("text", "square-open", "dash"),
        "lab.first": line_with_marks("draft", "circle"),
        "lab.second": line_with_marks("recovered", "diamond-open", "dot"),
        "lab.third": line_with_marks("quiet", "x", "dashdot"),
        "lab.worked": line("", "text", width=1.5, dash="dot"),
        "lab.limit": line("", "recovered", width=1.5, dash="dash"),
        "lab.bars": bars("draft", orientation="h", hoverinfo="x+y"),
    }


@cache
def _layouts() -> dict[str, Figure]:
    """Axes and manners of each. Nothing is dragged or zoomed: a finger on a chart scrolls the page.

    Margins are fixed: finding them out takes Plotly as long as drawing.
    """
    import plotly.graph_objects as go

    axis = {"fixedrange": True, "gridcolor": _colour("line"), "linecolor": _colour("line"), "zeroline": False}
    common = {
        "font": {"family": FONT, "size": 12, "color": _colour("quiet")},
        "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "autosize": True, "dragmode": False,
        "margin": {"l": 52, "r": 12, "t": 32, "b": 40}, "bargap": 0.25, "hovermode": "closest",
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "itemclick": False,
                   "itemdoubleclick": False, "traceorder": "normal"},
        "hoverlabel": {"bgcolor": _colour("raised"), "bordercolor": _colour("line"),
                       "font": {"color": _colour("text")}},
    }  # fmt: skip

    def layout(x: str, y: str, across: dict[str, Any], up: dict[str, Any], **more: Any) -> Figure:
        xaxis = axis | {"title": {"text": x, "standoff": 8}, "showgrid": False} | across
        yaxis = axis | {"title": {"text": y, "standoff": 8}, "rangemode": "tozero"} | up
        layout_json: Figure = go.Layout(common | {"xaxis": xaxis, "yaxis": yaxis} | more).to_plotly_json()
        return layout_json

    share = {"range": [0, 1], "tickformat": ".0%", "hoverformat": ".1%"}
    prob = {"range": [-0.03, 1.03], "dtick": 0.25, "tickformat": ".0%", "hoverformat": ".1%"}
    place = {"dtick": 1}
    return {
        "speed": layout("charts.axis.tokens", "charts.axis.speed", {"rangemode": "tozero"}, {"hoverformat": ".1f"},
                        hovermode="x"),
        "acceptance": layout("charts.axis.place", "charts.axis.right", place, share),
        "lengths": layout("charts.axis.length", "charts.axis.rounds", place, {"tickformat": ",d"},
                          margin={"l": 52, "r": 12, "t": 8, "b": 40}),
        "time": layout("", "", share | {"dtick": 0.25, "ticklabeloverflow": "allow"}, {"visible": False},
                       barmode="stack", margin={"l": 20, "r": 24, "t": 52, "b": 24}),
        "timeline": layout("charts.axis.own", "", {"nticks": 6}, {"autorange": "reversed", "title": {"text": ""}},
                           barmode="overlay", bargap=0.3, uniformtext={"mode": "hide", "minsize": 12},
                           margin={"l": 84, "r": 16, "t": 32, "b": 40}),
        "cumulative": layout("charts.axis.own", "charts.axis.tokens", {"rangemode": "tozero"}, {}, hovermode="x"),
        "passes": layout("charts.axis.length", "charts.axis.passes", place, share, barmode="group"),
        "accepted": layout("charts.axis.row", "charts.axis.rounds", place, {"tickformat": ",d"},
                           margin={"l": 52, "r": 12, "t": 8, "b": 40}),
        "scatter": layout("charts.axis.small", "charts.axis.big", prob, prob),
    } | _lab_layouts(layout, share)  # fmt: skip


def _lab_layouts(layout: Callable[..., Figure], share: dict[str, Any]) -> dict[str, Figure]:
    """Those of the lab. Users, tokens and rows double from one to the next, so their axes are logarithmic; the dotted
    line of the speed-ups is plain decoding."""
    doubling = {"type": "log", "tickmode": "array"}
    one = {
        "type": "line",
        "y0": 1,
        "y1": 1,
        "x0": 0,
        "x1": 1,
        "xref": "paper",
        "line": {"color": _colour("quiet"), "width": 1, "dash": "dot"},
    }
    across = one | {"yref": "paper", "xref": "x", "y0": 0, "x0": 1, "x1": 1}
    times = {"hoverformat": ".2f"}
    return {
        "lab.rate": layout("lab.axis.users", "lab.axis.speed", doubling, {"hoverformat": ".1f"}),
        "lab.each": layout("lab.axis.users", "lab.axis.speed", doubling, {"hoverformat": ".1f"}),
        "lab.length": layout("lab.axis.tokens", "lab.axis.times", doubling, times, shapes=[one]),
        "lab.ttft": layout("lab.axis.tokens", "lab.axis.ms", doubling, {"hoverformat": ".1f"}),
        "lab.k": layout("lab.axis.k", "lab.axis.times", {"dtick": 1}, times, shapes=[one]),
        "lab.temperature": layout("lab.axis.temperature", "lab.axis.alpha", {}, share),
        "lab.text": layout("lab.axis.times", "", {"rangemode": "tozero", "showgrid": True, "hoverformat": ".2f"},
                           {"autorange": "reversed", "title": {"text": ""}}, shapes=[across],
                           margin={"l": 108, "r": 16, "t": 8, "b": 40}),
        "lab.rows": layout("lab.axis.rows", "lab.axis.ms", doubling, {"hoverformat": ".1f"}),
    }  # fmt: skip
