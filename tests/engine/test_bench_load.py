"""`load`: runs what is asked for, prints what it says, and writes what the page reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from engine.bench import __main__ as bench
from engine.bench import load
from engine.bench.conclusions import conclusion, crossover
from engine.lab.records import loads
from engine.lab.results import PLAIN, SPECULATIVE, ExperimentName, Point
from tests.fake_engine import FakeEngine, measured


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    fake = FakeEngine()

    @contextmanager
    def ready(args: object) -> Iterator[FakeEngine]:
        yield fake

    monkeypatch.setattr(load, "engine_of", ready)
    monkeypatch.setattr(load, "LoadLab", lambda engine: engine)
    return fake


def test_it_runs_all_experiments_and_writes_what_the_page_reads(
    engine: FakeEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    assert bench.main(["load", "--repeats", "2", "--json", str(out)]) == 0
    assert loads(out.read_text()) == tuple(measured(name) for name in ExperimentName)
    assert [(asked.name, asked.repeats) for asked in engine.experimented] == [(name, 2) for name in ExperimentName]
    printed = capsys.readouterr()
    assert all(conclusion(measured(name)) in printed.out for name in ExperimentName)
    assert "1/" in printed.err and "left" in printed.err


def rate(*ratios: float) -> list[Point]:
    """Users 1, 2, 4 ... with these speed-ups."""
    return [
        point
        for i, gain in enumerate(ratios)
        for point in (Point(2.0**i, PLAIN, 50.0, 3), Point(2.0**i, SPECULATIVE, 50.0 * gain, 3))
    ]


def test_the_crossover_lies_where_the_lines_meet() -> None:
    assert crossover(rate(1.5, 1.25, 0.75, 0.5)) == pytest.approx(3.0)
    assert crossover(rate(1.5, 1.0)) == pytest.approx(2.0)
    assert crossover(rate(1.5, 1.25)) is None and crossover(rate(0.9, 0.8)) is None
    with pytest.raises(LookupError):
        crossover([])


def test_the_conclusion_follows_the_points_and_too_few_conclude_nothing() -> None:
    for ratios, words in (
        ((1.5, 1.25, 0.75), "at about 3.0 users"),
        ((1.5, 1.2), "still pays with 2"),
        ((0.9, 0.8), "does not pay"),
    ):
        result = replace(measured(ExperimentName.RATE), points=tuple(rate(*ratios)))
        assert words in conclusion(result) and f"{ratios[-1]:.2f} times with" in conclusion(result)
    for name in ExperimentName:
        whole = measured(name)
        assert "Too little" in conclusion(replace(whole, points=()))
        assert all(conclusion(replace(whole, points=whole.points[:count])) for count in range(1, len(whole.points)))
