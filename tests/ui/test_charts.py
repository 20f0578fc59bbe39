"""Charts say what the tally says, draw nothing that was not measured, and stay small whatever the reply's length."""

from __future__ import annotations

import copy
import itertools
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import DecodingParams
from engine.events import Event, Round, RoundKind
from tests.fake_engine import Script, play
from tests.ui.samples import NAUGHTY
from ui.charts import figures
from ui.charts.reply import (
    MOST_POINTS,
    MOST_STRETCHES,
    NAMES,
    WINDOW_S,
    charts,
    charts_frame,
    curve,
    plotly_script,
    stretches,
)
from ui.html.render import seconds, speed
from ui.state import Reply, advance
from ui.strings import LANGS

EMPTY_AXES = "a chart without numbers is a sentence"


class Table(HTMLParser):
    """Rows of cells as English text, and every tag."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.rows: list[list[str]] = []
        self.tags: list[str] = []
        self._hidden = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._hidden = ("class", "zh") in attrs
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows and not self._hidden:
            self.rows[-1][-1] += data


def written(tokens: int = 300, drafter: str = "ngram", k: int | None = 3, **params: Any) -> list[Event]:
    script = Script(text=" w" * tokens)
    return play(script, DecodingParams(drafter=drafter, num_speculative_tokens=k, max_new_tokens=tokens, **params))


def reply(events: list[Event]) -> Reply:
    return advance(Reply(), events)


def drawn(events: list[Event]) -> dict[str, Any]:
    made: dict[str, Any] = charts(reply(events))["charts"]
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


@given(replies())
def test_every_figure_is_one_that_plotly_takes(events: list[Event]) -> None:
    for name, chart in drawn(events).items():
        if chart["figure"] is not None:
            figure = json.loads(json.dumps(chart["figure"]))
            go.Figure(data=figure["data"], layout=figure["layout"])  # refuses what it does not know
            assert all(trace["x"] and trace["y"] for trace in figure["data"]), EMPTY_AXES
        assert set(chart["label"]) == set(LANGS) and name in NAMES


@given(replies())
def test_the_numbers_are_the_tallys(events: list[Event]) -> None:
    shown, summary = drawn(events), reply(events).tally.summary()
    if shown["speed"]["figure"]:
        rows = dict(Table(shown["speed"]["html"]).rows)
        whole = summary.overall_tok_s if summary.spec_tok_s is None else summary.spec_tok_s
        assert rows["whole reply"] == speed(whole)
    if shown["acceptance"]["figure"]:
        *places, every = Table(shown["acceptance"]["html"]).rows[1:]
        counts = [pair for pair in summary.acceptance_by_position if pair[0]]
        assert [row[-1].split(" ")[:3:2] for row in places] == [[str(right), str(tested)] for tested, right in counts]
        assert every[-1].startswith(f"{summary.accepted} / {summary.accepted + summary.rejected} ")
    if shown["lengths"]["figure"]:
        *lengths, every = Table(shown["lengths"]["html"]).rows[1:]
        assert sum(int(tokens) * int(rounds) for tokens, rounds, _ in lengths) == reply(events).tally.spec_tokens
        assert int(every[1]) == summary.spec_rounds == sum(int(rounds) for _, rounds, _ in lengths)
    if shown["time"]["figure"]:
        taken = [row[1] for row in Table(shown["time"]["html"]).rows[1:-1]]
        parts = (summary.draft_s, summary.verify_s, summary.sample_s, summary.other_s)
        assert taken == [seconds(part) for part in parts]


@given(replies())
def test_no_baseline_is_drawn_before_it_is_measured(events: list[Event]) -> None:
    figure = drawn(events)["speed"]["figure"]
    measured = reply(events).tally.baseline().tok_s
    dashed = [trace for trace in figure["data"] if trace["name"] == "charts.plain"] if figure else []
    if measured is None:
        assert not dashed and "plain, n" not in drawn(events)["speed"]["html"]
    elif figure:
        assert [round(measured, 2)] * 2 == dashed[0]["y"]


def test_the_baseline_appears_with_its_third_sample() -> None:
    events = written(300, probe_every=4)
    probes = [i for i, event in enumerate(events) if isinstance(event, Round) and event.kind is RoundKind.PROBE]
    assert len(drawn(events[: probes[2]])["speed"]["figure"]["data"]) == 1
    assert len(drawn(events[: probes[2] + 1])["speed"]["figure"]["data"]) == 2


def test_probes_do_not_bend_the_curve() -> None:
    """Everything but probes is three tokens a round here, so the curve is flat however slow the probes were."""
    events = [
        replace(event, tokens=event.tokens[:1], total_s=9.0) if event.kind is RoundKind.PROBE else replace(event, total_s=len(event.tokens) / 50)
        for event in written(300, probe_every=4)
        if isinstance(event, Round)
    ]  # fmt: skip
    assert {round(y) for y in drawn(events)["speed"]["figure"]["data"][0]["y"]} == {50}


@pytest.mark.parametrize("k", [0, 3])
def test_a_long_reply_is_as_small_as_a_short_one(k: int) -> None:
    short, long = (drawn(written(n, drafter="both", k=k)) for n in (500, 8000))
    assert len(json.dumps(long)) < 1.3 * len(json.dumps(short)) < 40_000
    assert all(
        len(trace["x"]) <= MOST_POINTS
        for chart in long.values()
        if chart["figure"]
        for trace in chart["figure"]["data"]
    )


@given(st.integers(1, 3000))
def test_a_thinned_curve_ends_where_the_reply_does(count: int) -> None:
    rounds = [event for event in written(count, k=0) if isinstance(event, Round)]
    points = curve(rounds)
    assert len(points) <= MOST_POINTS
    if len(rounds) >= 3:
        assert points[-1][0] == rounds[-1].tokens[-1].position + 1
    assert len(stretches(rounds)) <= MOST_STRETCHES


@given(st.lists(st.floats(0.001, 2), min_size=3, max_size=60))
def test_the_curve_is_tokens_over_seconds_of_its_window(times: list[float]) -> None:
    rounds = [event for event in written(len(times) + 1, k=0) if isinstance(event, Round)]
    rounds = [replace(round_, total_s=s) for round_, s in zip(rounds, times, strict=False)]
    for at, tok_s in curve(rounds):
        until = [r for r in rounds if r.tokens[-1].position < at]
        n = next((n for n in range(3, len(until)) if sum(r.total_s for r in until[-n:]) >= WINDOW_S - 1e-9), len(until))
        assert tok_s == pytest.approx(n / sum(r.total_s for r in until[-n:]))


def test_stretches_are_the_whole_reply() -> None:
    rounds = [event for event in written(777) if isinstance(event, Round)]
    found = stretches(rounds)
    assert found[-1][1] == rounds[-1].tokens[-1].position + 1
    assert all(after[0] == before[1] + 1 for before, after in itertools.pairwise(found))


def test_nothing_yet_is_a_sentence() -> None:
    for chart in charts(Reply())["charts"].values():
        assert chart["figure"] is None and "<table" not in chart["html"] and 'class="reading"' in chart["html"]


def test_a_plain_reply_has_its_speed_and_its_time() -> None:
    shown = drawn(written(k=0))
    assert [name for name in NAMES if shown[name]["figure"]] == ["speed", "time"]
    assert "all of it plain decoding" in shown["speed"]["html"]


def test_each_drafter_has_its_bars() -> None:
    shown = drawn(written(drafter="both"))["acceptance"]
    assert [trace["name"] for trace in shown["figure"]["data"]] == ["drafter.ngram", "drafter.head"]
    patterns = [trace["marker"].get("pattern", {}).get("shape", "") for trace in shown["figure"]["data"]]
    assert len(set(patterns)) == 2, "not by colour alone"
    assert Table(shown["html"]).rows[0] == ["guess in its round", "n-gram", "trained head", "all"]


def test_words_and_colours_are_ones_that_the_page_knows() -> None:
    events = written(drafter="both")
    told = {text for chart in drawn(events).values() for text in _strings(chart["figure"])}
    known = set(figures.words())
    assert {text for text in told if text.startswith(("charts.", "drafter."))} <= known
    style = "".join(path.read_text(encoding="utf-8") for path in sorted(_styles()))
    for colour in re.findall(r"var\((--[\w-]+)\)", json.dumps(drawn(events))):
        assert f"{colour}:" in style, colour


def _styles() -> list[Any]:
    from ui.examples import ASSETS

    return list((ASSETS / "style").glob("*.css"))


def _strings(part: Any) -> list[str]:
    if isinstance(part, dict):
        return [text for value in part.values() for text in _strings(value)]
    if isinstance(part, list):
        return [text for value in part for text in _strings(value)]
    return [part] if isinstance(part, str) else []


@pytest.mark.parametrize("name", NAUGHTY)
def test_a_strange_drafter_stays_text(name: str) -> None:
    events = [replace(event, drafter=name) if isinstance(event, Round) and event.drafter == "head" else event
              for event in written(drafter="both")]  # fmt: skip
    shown = drawn(events)["acceptance"]
    assert set(Table(shown["html"]).tags) == {"p", "span", "table", "caption", "thead", "tr", "th", "tbody", "td", "b"}
    assert not re.search("<", shown["figure"]["data"][1]["name"])


def test_asking_twice_gives_the_same() -> None:
    """What is built once is not written into."""
    events = written(drafter="both")
    first = copy.deepcopy(drawn(events))
    drawn(written(20, k=0))
    assert drawn(events) == first


def test_the_frame_names_a_script_that_is_there() -> None:
    frame = charts_frame()
    assert plotly_script().is_file() and plotly_script().name in frame
    assert not re.search(r"\$\{|\{\{|https?://", frame)
    assert frame.count("<figure") == len(NAMES) and frame.count('role="img"') == len(NAMES)
