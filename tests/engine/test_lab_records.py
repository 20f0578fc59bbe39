"""Results survive a file, and nothing else does. What is shipped can be read."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.bench.conclusions import conclusion
from engine.errors import EngineError
from engine.lab.records import dumps, from_json, loads, reference, to_json
from engine.lab.results import ExperimentName, Point, Result
from tests.fake_engine import measured

NUMBER = st.floats(0.0, 1e9)
WORD = st.text(st.characters(codec="utf-8"), max_size=30)
PAIRS = st.lists(st.tuples(WORD, WORD), max_size=4).map(tuple)


@st.composite
def points(draw: st.DrawFn) -> Point:
    scatter = draw(st.none() | st.tuples(NUMBER, NUMBER))
    low, high = sorted(scatter) if scatter else (None, None)
    extra = tuple(draw(st.lists(st.tuples(WORD, NUMBER), max_size=3)))
    return Point(draw(NUMBER), draw(WORD), draw(NUMBER), draw(st.integers(0, 1000)), low, high, extra)


RESULTS = st.builds(
    Result, st.sampled_from(ExperimentName), st.lists(points(), max_size=4).map(tuple), PAIRS,
    st.just("2025-01-02T03:04:05+00:00"), NUMBER, st.booleans(), st.booleans(), PAIRS,
)  # fmt: skip


@given(st.lists(RESULTS, max_size=3))
def test_results_come_back_as_they_were(results: list[Result]) -> None:
    assert loads(dumps(results)) == tuple(results)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place within JSON values."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] + [place for key, part in inner for place in places(part, (*path, key))]


@given(st.data())
def test_whatever_is_damaged_is_refused_with_a_sentence(data: st.DataObject) -> None:
    record = to_json(measured(data.draw(st.sampled_from(ExperimentName))))
    path = data.draw(st.sampled_from([path for path in places(record) if path]))
    broken = copy.deepcopy(record)
    holder: Any = broken
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = data.draw(st.sampled_from([[[[]]], {"odd": 1}, -1, float("nan"), float("inf")]))
    with pytest.raises(EngineError, match="measure anew"):
        from_json(broken)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2, "results": []}', '{"version": 1, "results": 3}'])
def test_what_is_no_such_file_is_refused(text: str) -> None:
    with pytest.raises(EngineError, match="measure anew"):
        loads(text)


def test_keys_that_are_missing_or_unknown_are_refused() -> None:
    record = to_json(measured(ExperimentName.RATE))
    for changed in ({**record, "more": 1}, {key: value for key, value in record.items() if key != "made"}):
        with pytest.raises(EngineError, match="damaged"):
            from_json(changed)
    with pytest.raises(EngineError, match="damaged"):
        from_json({**record, "made": "yesterday"})
    record["points"][0] |= {"low": 2.0, "high": 1.0}
    with pytest.raises(EngineError, match="damaged"):
        from_json(record)


def test_the_reference_machines_results_are_there_and_say_something(tmp_path: Path) -> None:
    results = reference()
    assert {result.name for result in results} == set(ExperimentName)
    assert not any(result.cancelled or result.disturbed for result in results)
    for result in results:
        assert result.points and "Too little" not in conclusion(result)
        assert {name for name, _ in result.machine} >= {"target", "weights", "kernel", "device", "threads", "processor"}
    with pytest.raises(EngineError, match="missing"):
        reference(tmp_path / "none.json")


def test_json_is_what_a_browser_reads() -> None:
    text = dumps([measured(name) for name in ExperimentName])
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
