"""Charts say what the tally says, draw nothing that was not measured, and stay small whatever the reply's length."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import DecodingParams
from engine.events import Event, Round, RoundKind
from tests.fake_engine import Script, play
from tests.ui.samples import few, rounds_of, said
from ui.charts import figures
from ui.charts.reply import (
    MOST_POINTS,
    MOST_STRETCHES,
    NAMES,
    WINDOW_S,
    charts,
    curve,
    stretches,
)
from ui.examples import ASSETS
from ui.html.render import seconds, speed
from ui.state import Reply, advance
from ui.strings import LANGS

EMPTY_AXES = "a chart without numbers is a sentence"


class Table:
    """Rows of cells as English text, and every tag."""

    def __init__(self, html: str) -> None:
        self.tags = re.findall(r"<(\w+)", html)
        rows = re.findall(r"<tr\b.*?</tr>", html)
        self.rows = [[said(cell) for cell in re.findall(r"<t[hd]\b.*?</t[hd]>", row)] for row in rows]


def written(tokens: int = 300, drafter: str = "ngram", k: int | None = 3, **params: Any) -> list[Event]:
    script = Script(text=" w" * tokens)
    return play(script, DecodingParams(drafter=drafter, num_speculative_tokens=k, max_new_tokens=tokens, **params))


def drawn(events: list[Event]) -> dict[str, Any]:
    made: dict[str, Any] = charts(advance(Reply(), events))["charts"]
    return made


@st.composite
def replies(draw: st.DrawFn) -> list[Event]:
    """A reply cut anywhere, its rounds of any length in time."""
    events = written(
        draw(st.integers(1, 200)), draw(st.sampled_from(("none", "ngram", "both"))),
        draw(st.sampled_from((None, 0, 1, 3, 16))), probe_every=draw(st.sampled_from((0, 2, 16))),
    )  # fmt: skip
    cut = draw(st.integers(0, len(events)))
    times = draw(st.lists(st.floats(1e-6, 30), min_size=cut, max_size=cut))
    return [
        replace(event, total_s=s, verify_s=s / 2, draft_s=s / 4, sample_s=0.0) if isinstance(event, Round) else event
        for event, s in zip(events[:cut], times, strict=True)
    ]


@few
@given(replies())
def test_every_figure_is_one_that_plotly_takes_and_its_numbers_are_the_tallys(events: list[Event]) -> None:
    shown, tally = drawn(events), advance(Reply(), events).tally
    summary, measured = tally.summary(), tally.baseline().tok_s
    assert set(shown) == set(NAMES) and all(set(chart["label"]) == set(LANGS) for chart in shown.values())
    rows = {}
    for name, chart in shown.items():
        if chart["figure"] is not None:
            figure = json.loads(json.dumps(chart["figure"]))
            go.Figure(data=figure["data"], layout=figure["layout"])  # refuses what it does not know
            assert all(trace["x"] and trace["y"] for trace in figure["data"]), EMPTY_AXES
            rows[name] = Table(chart["html"]).rows
    if "speed" in rows:
        whole = summary.overall_tok_s if summary.spec_tok_s is None else summary.spec_tok_s
        assert dict(rows["speed"])["whole reply"] == speed(whole)
        dashed = [trace["y"] for trace in shown["speed"]["figure"]["data"] if trace["name"] == "charts.plain"]
        assert dashed == ([] if measured is None else [[round(measured, 2)] * 2]), "none before it is measured"
    if "acceptance" in rows:
        *places, every = rows["acceptance"][1:]
        counts = [[str(right), str(tested)] for tested, right in summary.acceptance_by_position if tested]
        assert [row[-1].split(" ")[:3:2] for row in places] == counts
        assert every[-1].startswith(f"{summary.accepted} / {summary.accepted + summary.rejected} ")
    if "lengths" in rows:
        *lengths, every = rows["lengths"][1:]
        assert sum(int(tokens) * int(rounds) for tokens, rounds, _ in lengths) == tally.spec_tokens
        assert int(every[1]) == summary.spec_rounds == sum(int(rounds) for _, rounds, _ in lengths)
    if "time" in rows:
        parts = (summary.draft_s, summary.verify_s, summary.sample_s, summary.other_s)
        assert [row[1] for row in rows["time"][1:-1]] == [seconds(part) for part in parts]


@settings(max_examples=10)
@given(st.integers(1, 3000), st.sampled_from([0, 3]))
def test_a_long_reply_is_as_small_as_a_short_one_and_whole(count: int, k: int) -> None:
    events = written(count, drafter="both", k=k)
    rounds, shown = rounds_of(events), drawn(events)
    lengths = [len(trace["x"]) for chart in shown.values() if chart["figure"] for trace in chart["figure"]["data"]]
    assert max(lengths, default=0) <= MOST_POINTS and len(json.dumps(shown)) < 40_000
    points, parts = curve(rounds), stretches(rounds)
    assert len(points) <= MOST_POINTS and len(parts) <= MOST_STRETCHES
    assert all(after[0] == before[1] + 1 for before, after in itertools.pairwise(parts))
    if len(rounds) >= 3:
        assert points[-1][0] == parts[-1][1] == rounds[-1].tokens[-1].position + 1


@few
@given(st.lists(st.floats(0.001, 2), min_size=3, max_size=60))
def test_the_curve_is_tokens_over_seconds_of_its_window(times: list[float]) -> None:
    rounds = [replace(it, total_s=s) for it, s in zip(rounds_of(written(len(times) + 1, k=0)), times, strict=False)]
    for at, tok_s in curve(rounds):
        until = [r for r in rounds if r.tokens[-1].position < at]
        n = next((n for n in range(3, len(until)) if sum(r.total_s for r in until[-n:]) >= WINDOW_S - 1e-9), len(until))
        assert tok_s == pytest.approx(n / sum(r.total_s for r in until[-n:]))


def test_probes_do_not_bend_the_curve() -> None:
    """Everything but probes is three tokens a round here, so the curve is flat however slow the probes were."""
    rounds = rounds_of(written(300, probe_every=4))
    events: list[Event] = [
        replace(it, total_s=9.0 if it.kind is RoundKind.PROBE else len(it.tokens) / 50) for it in rounds
    ]
    assert {round(y) for y in drawn(events)["speed"]["figure"]["data"][0]["y"]} == {50}


def test_only_what_there_is_is_drawn() -> None:
    for chart in charts(Reply())["charts"].values():
        assert chart["figure"] is None and "<table" not in chart["html"] and 'class="reading"' in chart["html"]
    plain = drawn(written(k=0))
    assert [name for name in NAMES if plain[name]["figure"]] == ["speed", "time"]
    assert "all of it plain decoding" in plain["speed"]["html"]


def test_each_drafter_has_its_bars_in_words_and_colours_that_the_page_knows() -> None:
    shown = drawn(written(drafter="both"))
    bars = shown["acceptance"]["figure"]["data"]
    assert [trace["name"] for trace in bars] == ["drafter.ngram", "drafter.head"]
    assert len({str(trace["marker"].get("pattern")) for trace in bars}) == 2, "not by colour alone"
    assert {word for word in _strings(shown) if word.startswith(("charts.", "drafter."))} <= set(figures.words())
    drawn(written(20, k=0))
    assert drawn(written(drafter="both")) == shown, "what is built once is not written into"
    style = "".join(path.read_text(encoding="utf-8") for path in _styles())
    assert all(f"{colour}:" in style for colour in re.findall(r"var\((--[\w-]+)\)", json.dumps(shown)))


def _styles() -> list[Path]:
    return sorted((ASSETS / "style").glob("*.css"))


def _strings(part: Any) -> list[str]:
    inside = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    return [part] if isinstance(part, str) else [text for value in inside for text in _strings(value)]


def test_a_strange_drafter_stays_text() -> None:
    events = [replace(event, drafter="<b>&") if isinstance(event, Round) and event.drafter == "head" else event for event in written(drafter="both")]  # fmt: skip
    shown = drawn(events)["acceptance"]
    assert "<b>&" not in shown["html"] and "&lt;b&gt;&amp;" in shown["html"]
    assert shown["figure"]["data"][1]["name"] == "&lt;b&gt;&amp;"
