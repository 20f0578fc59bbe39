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


def test_only_some_and_the_drafter_that_was_asked_for(engine: FakeEngine) -> None:
    assert bench.main(["load", "--only", "rows", "k", "--drafter", "ngram"]) == 0
    assert [(asked.name, asked.drafter) for asked in engine.experimented] == [
        (ExperimentName.ROWS, "ngram"),
        (ExperimentName.K, "ngram"),
    ]


def test_what_fails_is_told_in_a_sentence(engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    engine.experiment_fails = "The model broke: try again."
    assert bench.main(["load", "--only", "k"]) == 1
    assert "The model broke: try again." in capsys.readouterr().err
    assert bench.main(["load", "--drafter", "useless"]) == 1
    assert "useless" in capsys.readouterr().err


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


@pytest.mark.parametrize(
    ("ratios", "words"),
    [((1.5, 1.25, 0.75), "at about 3.0 users"), ((1.5, 1.2), "still pays with 2"), ((0.9, 0.8), "does not pay")],
)
def test_the_conclusion_follows_the_points(ratios: tuple[float, ...], words: str) -> None:
    result = replace(measured(ExperimentName.RATE), points=tuple(rate(*ratios)))
    assert words in conclusion(result) and f"{ratios[-1]:.2f} times with" in conclusion(result)


@pytest.mark.parametrize("name", list(ExperimentName))
def test_too_few_points_conclude_nothing_and_break_nothing(name: ExperimentName) -> None:
    assert "Too little" in conclusion(replace(measured(name), points=()))
    whole = measured(name)
    for count in range(1, len(whole.points)):
        assert conclusion(replace(whole, points=whole.points[:count]))
