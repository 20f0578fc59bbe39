"""A race's charts say what its tallies say, draw nothing that was not measured, and stay small whatever its length."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import DecodingParams, Detail
from engine.events import Event, Outcome, Prefilled, Round, RoundKind, TokenDecision, TokenDetail
from tests.fake_engine import Script, play
from tests.ui.samples import NAUGHTY
from tests.ui.test_charts import EMPTY_AXES, Table, _strings, _styles
from ui.bench import fixtures as invented
from ui.charts import figures
from ui.charts.reply import MOST_POINTS
from ui.race.charts import LATEST_ROUNDS, MOST_DOTS, MOST_ROWS, NAMES, charts, frame, sample
from ui.recording.recordings import Lane, LaneName, Recording
from ui.state import Reply, advance
from ui.strings import LANGS

Lanes = dict[LaneName, list[Event]]


def recording(lanes: Lanes) -> Recording:
    return Recording("x", "hello", tuple(Lane(name, None, advance(Reply(), events)) for name, events in lanes.items()))


def drawn(lanes: Lanes) -> dict[str, Any]:
    return charts(recording(lanes))["charts"]


def written(tokens: int, k: int | None = 3, drafter: str = "both", detail: Detail = Detail.FULL) -> list[Event]:
    params = DecodingParams(
        drafter=drafter, num_speculative_tokens=k, max_new_tokens=tokens, probe_every=0, detail=detail
    )
    return play(Script(text=" w" * tokens), params)


def race(tokens: int, **params: Any) -> Lanes:
    return {LaneName.PLAIN: written(tokens, k=0), LaneName.SPECULATIVE: written(tokens, **params)}


def long_race(tokens: int) -> Lanes:
    guessed = [replace(e, drafter="head") if isinstance(e, Round) else e for e in invented.reply(tokens)]
    return {LaneName.PLAIN: invented.plain(tokens), LaneName.SPECULATIVE: guessed}


def rounds(lanes: Lanes, name: LaneName) -> list[Round]:
    return [event for event in lanes[name] if isinstance(event, Round)]


@st.composite
def recordings(draw: st.DrawFn) -> Lanes:
    """One lane or two, each cut anywhere, with rounds of any length in time and any probabilities."""
    names = draw(
        st.sampled_from(
            ([LaneName.PLAIN, LaneName.SPECULATIVE], [LaneName.SPECULATIVE, LaneName.PLAIN], [LaneName.REPLY])
        )
    )
    tokens = draw(st.integers(1, 150))
    found: Lanes = {}
    for name in names:
        k = 0 if name is LaneName.PLAIN else draw(st.sampled_from((None, 0, 1, 3, 16)))
        drafter = draw(st.sampled_from(("ngram", "head", "both")))
        events = written(tokens, k, drafter, draw(st.sampled_from((Detail.OFF, Detail.FULL))))
        chance = draw(st.randoms(use_true_random=False))
        greedy = draw(st.booleans())
        events = events[: draw(st.integers(0, len(events)))]
        found[name] = [_shaken(e, chance, greedy) if isinstance(e, Round) else e for e in events]
    return found


def _shaken(round_: Round, chance: Any, greedy: bool) -> Round:
    total_s = 10 ** chance.uniform(-5, 1.5)
    draft = total_s * chance.uniform(0, 0.6)
    decisions = tuple(
        d if d.outcome is Outcome.DISCARDED
        else replace(d, draft_prob=1.0, target_prob=float(d.outcome is Outcome.ACCEPTED)) if greedy
        else replace(d, draft_prob=chance.random(), target_prob=chance.random())
        for d in round_.decisions
    )  # fmt: skip
    return replace(round_, total_s=total_s, draft_s=draft, verify_s=(total_s - draft) / 2, decisions=decisions)


@given(recordings())
def test_every_figure_is_one_that_plotly_takes(lanes: Lanes) -> None:
    shown = drawn(lanes)
    assert tuple(shown) == NAMES
    for chart in shown.values():
        assert set(chart["label"]) == set(LANGS) and 'class="reading"' in chart["html"]
        if chart["figure"] is None:
            assert "<table" not in chart["html"]
            continue
        figure = json.loads(json.dumps(chart["figure"]))
        go.Figure(data=figure["data"], layout=figure["layout"])  # refuses what it does not know
        assert all(trace["x"] and len(trace["x"]) == len(trace["y"]) for trace in figure["data"]), EMPTY_AXES
        assert "<table" in chart["html"]


@given(recordings())
def test_figures_are_bounded_and_know_their_words_and_colours(lanes: Lanes) -> None:
    style = "".join(path.read_text(encoding="utf-8") for path in _styles())
    for name, chart in drawn(lanes).items():
        told = set(_strings(chart["figure"]))
        assert {text for text in told if text.startswith(("charts.", "drafter.", "panel."))} <= set(figures.words())
        assert all(f"{colour}:" in style for text in told for colour in re.findall(r"var\((--[\w-]+)\)", text))
        for trace in (chart["figure"] or {"data": []})["data"]:
            most = MOST_DOTS if name == "scatter" else MOST_POINTS
            assert len(trace["x"]) <= most


@pytest.mark.parametrize("make", [long_race, lambda tokens: {LaneName.REPLY: long_race(tokens)[LaneName.SPECULATIVE]}])
def test_a_long_race_is_as_small_as_a_short_one(make: Any) -> None:
    short, long = (len(json.dumps(drawn(make(tokens)))) for tokens in (600, 12_000))
    assert long < 1.3 * short and short < 50_000


@given(recordings(), st.integers(0, 200), st.integers(0, 200))
def test_an_earlier_moment_is_that_of_the_recording_cut_there(lanes: Lanes, one: int, other: int) -> None:
    whole, counts = recording(lanes), {name.value: n for name, n in zip(lanes, (one, other), strict=False)}
    assert charts(whole, counts) == charts(whole.upto(counts))


@given(recordings())
def test_right_guesses_are_the_tallys(lanes: Lanes) -> None:
    shown = drawn(lanes)
    name = next(name for name in lanes if name is not LaneName.PLAIN)
    tally = advance(Reply(), lanes[name]).tally
    if not shown["acceptance"]["figure"]:
        assert tally.accepted + tally.rejected == 0
        return
    *places, every = Table(shown["acceptance"]["html"]).rows[1:]
    counts = [pair for pair in tally.by_position if pair[0]]
    assert [row[-1].split(" ")[:3:2] for row in places] == [[str(right), str(tested)] for tested, right in counts]
    assert every[-1].startswith(f"{tally.accepted} / {tally.accepted + tally.rejected} ")
    *lengths, every = Table(shown["accepted"]["html"]).rows[1:]
    assert sum(int(right) * int(n) for right, n, _ in lengths) == tally.accepted
    assert int(every[1]) == sum(bool(r.decisions) for r in rounds(lanes, name))


@given(recordings())
def test_passes_are_every_round_but_probes(lanes: Lanes) -> None:
    counted = {name: [r for r in rounds(lanes, name) if r.kind is not RoundKind.PROBE] for name in lanes}
    counted = {name: found for name, found in counted.items() if found}
    shown = drawn(lanes)["lengths"]
    if not counted:
        assert shown["figure"] is None
        return
    *_, every, _mean = Table(shown["html"]).rows
    assert every[1:] == [str(len(found)) for found in counted.values()]
    for trace, found in zip(shown["figure"]["data"], counted.values(), strict=True):
        mean = sum(x * y for x, y in zip(trace["x"], trace["y"], strict=True))
        assert mean == pytest.approx(sum(len(r.tokens) for r in found) / len(found), abs=0.01)


@given(recordings())
def test_lines_end_where_the_lanes_do(lanes: Lanes) -> None:
    shown = drawn(lanes)["cumulative"]
    going = [name for name in lanes if rounds(lanes, name)]
    assert bool(shown["figure"]) == bool(going)
    for trace, name in zip((shown["figure"] or {"data": []})["data"], going, strict=True):
        first = lanes[name][0]
        assert isinstance(first, Prefilled)
        spent = first.ttft_s + sum(r.total_s for r in rounds(lanes, name))
        assert trace["x"][-1] == pytest.approx(spent, abs=1e-4)
        assert trace["y"][-1] == advance(Reply(), lanes[name]).tally.tokens
        assert trace["x"] == sorted(trace["x"]) and trace["y"] == sorted(trace["y"])
    if going:
        assert len(Table(shown["html"]).rows) <= 1 + MOST_ROWS + 1


@given(recordings())
def test_a_round_stands_on_the_time_line_where_its_lanes_clock_puts_it(lanes: Lanes) -> None:
    figure = drawn(lanes)["timeline"]["figure"]
    going = [name for name in lanes if rounds(lanes, name)]
    if not going:
        assert figure is None
        return
    start, end = figure["layout"]["xaxis"]["range"]
    draft, verify, rest = figure["data"]
    for name in going:
        clock, stands = [lanes[name][0].ttft_s], {}  # type: ignore[union-attr]
        for r in rounds(lanes, name):
            stands[round(clock[-1], 6)] = r
            clock.append(clock[-1] + r.total_s)
        mine = [i for i, lane in enumerate(draft["y"]) if lane == f"charts.lane.{name.value}"]
        assert len(mine) <= LATEST_ROUNDS[name] + 2
        assert end <= clock[-1] + 1e-4, "only what all lanes have"
        for i in mine:
            r = stands[draft["base"][i]]
            assert draft["x"][i] == pytest.approx(r.draft_s, abs=1e-6)
            assert verify["base"][i] == pytest.approx(draft["base"][i] + r.draft_s, abs=2e-6)
            assert rest["base"][i] + rest["x"][i] == pytest.approx(draft["base"][i] + r.total_s, abs=5e-6)
            assert verify["text"][i] == str(len(r.tokens))
            assert draft["base"][i] < end + 1e-4 and draft["base"][i] + r.total_s > start - 1e-4


@pytest.mark.parametrize(
    "lanes",
    [{}, {LaneName.REPLY: []}, {LaneName.PLAIN: [], LaneName.SPECULATIVE: []}, {LaneName.REPLY: written(9)[:1]}],
)
def test_nothing_yet_is_a_sentence(lanes: Lanes) -> None:
    for chart in drawn(lanes).values():
        assert chart["figure"] is None and "<table" not in chart["html"] and 'class="reading"' in chart["html"]


def test_a_plain_lane_alone_has_what_it_measured() -> None:
    shown = drawn({LaneName.PLAIN: written(60, k=0)})
    assert [name for name in NAMES if shown[name]["figure"]] == ["timeline", "cumulative", "lengths"]


def test_rounds_that_took_no_time_have_no_time_line() -> None:
    still = [replace(e, total_s=0.0, draft_s=0.0, verify_s=0.0) if isinstance(e, Round) else e for e in written(30)]
    assert drawn({LaneName.REPLY: still})["timeline"]["figure"] is None


def decided(outcome: Outcome, draft: float, target: float, raw: tuple[float, float] | None) -> TokenDecision:
    detail = None if raw is None else TokenDetail(*raw)
    return TokenDecision(1, "w", 1, outcome, draft, target, 1.0, None, detail=detail)


def dots(decisions: list[TokenDecision], drafter: str = "head") -> dict[str, Any]:
    first, second = written(40, k=3)[:2]
    assert isinstance(second, Round)
    made = [replace(second, drafter=drafter, decisions=(one,)) for one in decisions]
    return drawn({LaneName.REPLY: [first, *made]})["scatter"]  # type: ignore[no-any-return]


def test_where_one_token_is_left_the_models_own_probabilities_are_drawn() -> None:
    chart = dots([decided(Outcome.ACCEPTED, 1, 1, (0.6, 0.7)), decided(Outcome.REJECTED, 1, 0, (0.5, 0.2))])
    _, kept, lost = chart["figure"]["data"]
    assert (kept["x"], kept["y"], lost["x"], lost["y"]) == ([0.6], [0.7], [0.5], [0.2])
    assert "own probabilities" in chart["label"]["en"] and "70 %" in chart["label"]["en"]
    assert kept["marker"]["symbol"] != lost["marker"]["symbol"], "not by colour alone"


def test_with_a_temperature_what_was_compared_is_drawn() -> None:
    chart = dots([decided(Outcome.ACCEPTED, 0.4, 0.9, (0.6, 0.7)), decided(Outcome.REJECTED, 0.5, 0.0, (0.5, 0.2))])
    _, kept, lost = chart["figure"]["data"]
    assert (kept["x"], kept["y"], lost["x"], lost["y"]) == ([0.4], [0.9], [0.5], [0.0])
    assert "after temperature and filters" in chart["label"]["en"]


def test_probabilities_that_were_not_recorded_are_not_drawn() -> None:
    greedy = [decided(Outcome.ACCEPTED, 1, 1, None)]
    assert "not recorded" in dots(greedy)["label"]["en"] and dots(greedy)["figure"] is None
    copied = dots([decided(Outcome.ACCEPTED, 1, 0.6, (0.1, 0.6))], drafter="ngram")
    assert copied["figure"] is None and "no probability" in copied["label"]["en"]


@given(st.integers(0, 20_000), st.integers(0, 3000))
def test_dots_are_few_spread_and_do_not_come_back(count: int, more: int) -> None:
    kept = [int(place) for place, _, _ in sample([(i, 0.0, True) for i in range(count)])]
    assert len(kept) <= MOST_DOTS and kept == sorted(set(kept))
    assert len(kept) >= min(count, MOST_DOTS // 3)
    later = {int(place) for place, _, _ in sample([(i, 0.0, True) for i in range(count + more)])}
    assert {place for place in later if place < count} <= set(kept)
    if count >= MOST_DOTS:
        for period in (2, 3, 4, 8):
            shares = [sum(place % period == rest for place in kept) / len(kept) for rest in range(period)]
            assert max(shares) < 1.6 / period, "no place of a round is drawn much more often than others"


@pytest.mark.parametrize("name", NAUGHTY)
def test_a_strange_drafter_stays_text(name: str) -> None:
    lanes = {
        LaneName.REPLY: [
            replace(e, drafter=name) if isinstance(e, Round) and e.drafter == "head" else e for e in written(60)
        ]
    }
    for chart in drawn(lanes).values():
        assert set(Table(chart["html"]).tags) <= {
            "p",
            "span",
            "table",
            "caption",
            "thead",
            "tr",
            "th",
            "tbody",
            "td",
            "b",
        }


def test_frames_of_a_page_share_no_id() -> None:
    one, other = (frame(where) for where in ("race", "inspect"))
    ids = re.findall(r' id="([^"]+)"', one + other)
    assert len(ids) == len(set(ids)) == 2 * (len(NAMES) + 1)
    assert re.findall(r'data-of="(\w+)"', one) == list(NAMES)
    assert "data-chart=" not in one, "those are the chat's"
