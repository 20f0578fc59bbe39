"""A race's charts say what its tallies say, draw nothing that was not measured, and stay small whatever its length."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.events import Event, Outcome, Prefilled, Round, TokenDecision, TokenDetail
from tests.ui.samples import NAUGHTY, Reader, cells, few, recording, recordings, rounds_of, written
from ui.bench import fixtures as invented
from ui.charts import figures
from ui.charts.reply import MOST_POINTS
from ui.examples import ASSETS
from ui.race.charts import LATEST_ROUNDS, MOST_DOTS, MOST_ROWS, NAMES, charts, frame, sample
from ui.recording.recordings import Lane, LaneName, Recording
from ui.strings import LANGS


def paced(tokens: int, cut: int, step: int, alone: bool) -> Recording:
    """A reply or a race of so many tokens, cut, whose rounds took very different times."""

    def lane(k: int | None) -> list[Event]:
        made: list[Event] = []
        for e in written(tokens, k)[: cut if k else 2 * cut]:
            slower = 10 ** (e.index * step % 4 - 2) if isinstance(e, Round) else 1
            times = {
                part: getattr(e, part) * slower for part in ("draft_s", "verify_s", "total_s") if isinstance(e, Round)
            }
            made.append(replace(e, **times))
        return made

    return recording({LaneName.REPLY: lane(3)} if alone else {LaneName.PLAIN: lane(0), LaneName.SPECULATIVE: lane(3)})


REAL = st.builds(paced, st.integers(1, 150), st.integers(0, 150), st.integers(0, 3), st.booleans())
ANY = recordings() | REAL
"""Also what only a file can hold."""

STYLE = "".join(path.read_text(encoding="utf-8") for path in (ASSETS / "style").glob("*.css"))


def drawn(made: Recording, upto: dict[str, int] | None = None) -> dict[str, Any]:
    shown: dict[str, Any] = charts(made, upto)["charts"]
    return shown


def replied(events: Sequence[Event]) -> dict[str, Any]:
    return drawn(recording({LaneName.REPLY: events}))


def going(made: Recording) -> dict[Lane, list[Round]]:
    """The lanes that have rounds, and these."""
    lanes = {lane: rounds_of([block.event for block in lane.reply.blocks]) for lane in made.lanes}
    return {lane: rounds for lane, rounds in lanes.items() if rounds}


def begins(lane: Lane) -> float:
    first = lane.reply.blocks[0].event
    assert isinstance(first, Prefilled)
    return first.ttft_s


@few
@given(ANY)
def test_every_figure_is_one_that_plotly_takes_and_is_bounded_and_has_its_words(made: Recording) -> None:
    shown = drawn(made)
    assert tuple(shown) == NAMES
    for name, chart in shown.items():
        assert set(chart["label"]) == set(LANGS) and 'class="reading"' in chart["html"]
        assert ("<table" in chart["html"]) == (chart["figure"] is not None)
        figure = json.dumps(chart["figure"] or {})
        go.Figure(**{"data": [], "layout": {}} | json.loads(figure))  # refuses what it does not know
        for trace in (chart["figure"] or {"data": []})["data"]:
            most = MOST_DOTS if name == "scatter" else MOST_POINTS
            assert 0 < len(trace["x"]) == len(trace["y"]) <= most
        assert set(re.findall(r'"((?:charts|drafter|panel)\.[^"]+)"', figure)) <= set(figures.words())
        assert all(f"{colour}:" in STYLE for colour in re.findall(r"var\((--[\w-]+)\)", figure))


def test_a_long_race_is_as_small_as_a_short_one() -> None:
    def length(tokens: int) -> int:
        guessed = [replace(e, drafter="head") if isinstance(e, Round) else e for e in invented.reply(tokens)]
        return len(
            json.dumps(drawn(recording({LaneName.PLAIN: invented.plain(tokens), LaneName.SPECULATIVE: guessed})))
        )

    assert length(3000) < 1.3 * length(600) < 65_000


@few
@given(ANY, st.integers(0, 100), st.integers(0, 100))
def test_an_earlier_moment_is_that_of_the_recording_cut_there(made: Recording, one: int, other: int) -> None:
    counts = {lane.name.value: n for lane, n in zip(made.lanes, (one, other), strict=False)}
    assert drawn(made, counts) == drawn(made.upto(counts))


@few
@given(REAL)
def test_the_numbers_are_those_of_the_tallies_and_rounds(made: Recording) -> None:
    shown, lanes = drawn(made), going(made)
    decided = [r for rounds in lanes.values() for r in rounds if r.decisions]
    tallies = [lane.reply.tally for lane in lanes]
    accepted, rejected = (sum(getattr(tally, name) for tally in tallies) for name in ("accepted", "rejected"))
    if shown["acceptance"]["figure"]:
        _, *places, every = cells(shown["acceptance"]["html"])
        rights = [f"{right} / {tested}" for lane in lanes for tested, right in lane.reply.tally.by_position if tested]
        assert [row[-1].rsplit(" ", 2)[0] for row in places] == rights
        assert every[-1].startswith(f"{accepted} / {accepted + rejected} ")
    else:
        assert not accepted + rejected
    if decided:
        _, *lengths, every = cells(shown["accepted"]["html"])
        assert sum(int(right) * int(n) for right, n, _ in lengths) == accepted and every[1] == str(len(decided))
    if lanes:
        *_, every, _mean = cells(shown["lengths"]["html"])
        assert every[1:] == [str(len(rounds)) for rounds in lanes.values()]
        for trace, rounds in zip(shown["lengths"]["figure"]["data"], lanes.values(), strict=True):
            mean = sum(x * y for x, y in zip(trace["x"], trace["y"], strict=True))
            assert mean == pytest.approx(sum(len(r.tokens) for r in rounds) / len(rounds), abs=0.01)
    lines = shown["cumulative"]["figure"]
    assert bool(lines) == bool(lanes) == bool(shown["lengths"]["figure"])
    for trace, lane in zip(lines["data"] if lines else [], lanes, strict=True):
        assert trace["x"][-1] == pytest.approx(begins(lane) + sum(r.total_s for r in lanes[lane]), abs=1e-4)
        assert trace["y"][-1] == lane.reply.tally.tokens
        assert trace["x"] == sorted(trace["x"]) and trace["y"] == sorted(trace["y"])
    assert len(cells(shown["cumulative"]["html"])) <= 1 + MOST_ROWS + 1


@few
@given(REAL)
def test_a_round_stands_on_the_time_line_where_its_lanes_clock_puts_it(made: Recording) -> None:
    figure = drawn(made)["timeline"]["figure"]
    assert bool(figure) == bool(going(made))
    if not figure:
        return
    start, end = figure["layout"]["xaxis"]["range"]
    draft, verify, rest = figure["data"]
    for lane, rounds in going(made).items():
        at, stands = begins(lane), {}
        for r in rounds:
            stands[round(at, 6)] = r
            at += r.total_s
        mine = [i for i, name in enumerate(draft["y"]) if name == f"charts.lane.{lane.name.value}"]
        assert len(mine) <= LATEST_ROUNDS[lane.name] + 2 and end <= at + 1e-4, "only what all lanes have"
        for i in mine:
            base = draft["base"][i]
            r = stands[base]
            assert draft["x"][i] == pytest.approx(r.draft_s, abs=1e-6) and verify["text"][i] == str(len(r.tokens))
            assert verify["base"][i] == pytest.approx(base + r.draft_s, abs=2e-6)
            assert rest["base"][i] + rest["x"][i] == pytest.approx(base + r.total_s, abs=5e-6)
            assert base < end + 1e-4 and base + r.total_s > start - 1e-4


def test_nothing_is_drawn_that_was_not_measured() -> None:
    still = [replace(e, total_s=0.0, draft_s=0.0, verify_s=0.0) if isinstance(e, Round) else e for e in written(30)]
    assert replied(still)["timeline"]["figure"] is None, "rounds that took no time"
    for events in ([], written(9)[:1]):
        assert [chart["figure"] for chart in replied(events).values()] == [None] * len(NAMES)
    alone = drawn(recording({LaneName.PLAIN: written(60, k=0)}))
    assert [name for name in NAMES if alone[name]["figure"]] == ["timeline", "cumulative", "lengths"]


def test_dots_are_what_the_rule_compared_or_where_one_token_was_left_the_models_own_probabilities() -> None:
    def dots(*numbers: tuple[float, float, float, float], drafter: str = "head") -> tuple[list[Any], str]:
        """Of an accepted guess and a rejected one: what was compared, and both models' own."""
        first, second = written(40)[:2]
        assert isinstance(second, Round)
        rounds = [
            replace(second, drafter=drafter, decisions=(TokenDecision(
                1, "w", 1, outcome, draft, target, 1.0, None, detail=TokenDetail(own[0], own[1]) if own else None),))
            for outcome, (draft, target, *own) in zip((Outcome.ACCEPTED, Outcome.REJECTED), numbers, strict=False)
        ]  # fmt: skip
        chart = replied([first, *rounds])["scatter"]
        traces = chart["figure"]["data"][1:] if chart["figure"] else []
        assert len({trace["marker"]["symbol"] for trace in traces}) == len(traces), "not by colour alone"
        tested = sum(int(row[1].split()[2]) for row in cells(chart["html"])[1:])
        assert tested == sum(len(trace["x"]) for trace in traces), "each is in the table, too"
        return [(trace["x"], trace["y"]) for trace in traces], chart["label"]["en"]

    places, words = dots((1, 1, 0.6, 0.7), (1, 0, 0.5, 0.2))
    assert places == [([0.6], [0.7]), ([0.5], [0.2])] and "own probabilities" in words and "70 %" in words
    places, words = dots((1.0, 0.9, 0.6, 0.7), (0.5, 0.0, 0.5, 0.2))
    assert places == [([1.0], [0.9]), ([0.5], [0.0])] and "after temperature and filters" in words
    places, words = dots((1, 1))  # type: ignore[arg-type]
    assert not places and "not recorded" in words
    places, words = dots((1, 0.6, 0.1, 0.6), drafter="ngram")
    assert not places and "no probability" in words


@few
@given(st.integers(0, 20_000), st.integers(0, 3000))
def test_dots_are_few_spread_and_do_not_come_back(count: int, more: int) -> None:
    kept, later = (
        [int(place) for place, _, _ in sample([(i, 0.0, True) for i in range(n)])] for n in (count, count + more)
    )
    assert min(count, MOST_DOTS // 3) <= len(kept) <= MOST_DOTS and kept == sorted(set(kept))
    assert {place for place in later if place < count} <= set(kept)
    for period in (2, 3, 4, 8) if count >= MOST_DOTS else ():
        shares = [sum(place % period == rest for place in kept) / len(kept) for rest in range(period)]
        assert max(shares) < 1.6 / period, "no place of a round is drawn much more often than others"


def test_a_strange_drafter_stays_text() -> None:
    for name in NAUGHTY:
        events = [replace(e, drafter=name) if isinstance(e, Round) and e.drafter == "head" else e for e in written(60)]
        assert all(Reader(chart["html"]).harmless for chart in replied(events).values())


def test_frames_of_a_page_share_no_id() -> None:
    one, other = (frame(where) for where in ("race", "inspect"))
    ids = re.findall(r' id="([^"]+)"', one + other)
    assert len(ids) == len(set(ids)) == 2 * (len(NAMES) + 1)
    assert re.findall(r'data-of="(\w+)"', one) == list(NAMES) and "data-chart=" not in one, "those are the chat's"
