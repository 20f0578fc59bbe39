"""Results as JSON, and back, strictly checked: they may have been in other hands.

A file is {"version": 1, "results": [...]}; the objects have the fields of `results.Result` and `results.Point`, and
pairs are lists of two.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.errors import EngineError, TraceError
from engine.lab.results import ExperimentName, Point, Result
from engine.trace import untrusted

VERSION = 1
MAX_POINTS = 1000
MAX_PAIRS = 50
MAX_Y = 1e12

REFERENCE = Path(__file__).resolve().parents[2] / "assets" / "lab" / "reference.json"
"""What the reference machine measured, as `python -m engine.bench load --json` writes it."""

_MADE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00")


def to_json(result: Result) -> dict[str, Any]:
    """The result as JSON values."""
    return {
        "name": result.name.value,
        "points": [_point_to_json(point) for point in result.points],
        "machine": [list(pair) for pair in result.machine],
        "made": result.made,
        "seconds": result.seconds,
        "cancelled": result.cancelled,
        "disturbed": result.disturbed,
        "settings": [list(pair) for pair in result.settings],
    }


def _point_to_json(point: Point) -> dict[str, Any]:
    return {
        "x": point.x, "series": str(point.series), "y": point.y, "n": point.n, "low": point.low, "high": point.high,
        "extra": [list(pair) for pair in point.extra],
    }  # fmt: skip


def from_json(value: object) -> Result:
    """The opposite of `to_json`. Raises EngineError for anything that it cannot have made."""
    try:
        return _result(value)
    except TraceError as error:
        raise EngineError(
            "These measurements cannot be read: they are damaged or of another version, so measure anew."
        ) from error


def dumps(results: Sequence[Result]) -> str:
    """A whole file."""
    return json.dumps({"version": VERSION, "results": [to_json(result) for result in results]}, indent=1) + "\n"


def loads(text: str) -> tuple[Result, ...]:
    """The opposite of `dumps`; what else the object holds is left alone. Raises EngineError."""
    try:
        record = json.loads(text)
    except ValueError as error:
        raise EngineError("These measurements cannot be read: they are no JSON, so measure anew.") from error
    if not isinstance(record, dict) or record.get("version") != VERSION or not isinstance(record.get("results"), list):
        raise EngineError("These measurements cannot be read: they are of another version, so measure anew.")
    return tuple(from_json(value) for value in record["results"])


def reference(path: Path = REFERENCE) -> tuple[Result, ...]:
    """What is shown before anything was measured here. Raises EngineError."""
    try:
        return loads(path.read_text("utf-8"))
    except OSError as error:
        raise EngineError(f"The reference machine's measurements are missing ({error}): get the files anew.") from error


def _result(value: object) -> Result:
    row = _object(value, Result)
    if not isinstance(row["made"], str) or not _MADE.fullmatch(row["made"]):
        untrusted.fail("its date is no date")
    return Result(
        name=untrusted.one_of(ExperimentName, row["name"]),
        points=tuple(_point(point) for point in untrusted.items(row["points"], 0, MAX_POINTS)),
        machine=_texts(row["machine"]),
        made=row["made"],
        seconds=untrusted.seconds(row["seconds"]),
        cancelled=_flag(row["cancelled"]),
        disturbed=_flag(row["disturbed"]),
        settings=_texts(row["settings"]),
    )


def _point(value: object) -> Point:
    row = _object(value, Point)
    low, high = (None if row[side] is None else _number(row[side]) for side in ("low", "high"))
    if (low is None) != (high is None) or (low is not None and high is not None and low > high):
        untrusted.fail("its scatter is none")
    return Point(
        x=_number(row["x"]),
        series=untrusted.text(row["series"], 40),
        y=_number(row["y"]),
        n=untrusted.whole(row["n"]),
        low=low,
        high=high,
        extra=tuple((name, _number(number)) for name, number in _pairs(row["extra"])),
    )


def _object(value: object, kind: type[Result] | type[Point]) -> dict[str, Any]:
    if not isinstance(value, dict):
        untrusted.fail("an object is missing")
    untrusted.check_keys(value, kind.__dataclass_fields__)
    return value


def _pairs(value: object) -> list[tuple[str, object]]:
    pairs = [untrusted.items(pair, 2, 2) for pair in untrusted.items(value, 0, MAX_PAIRS)]
    return [(untrusted.text(name, 40), second) for name, second in pairs]


def _texts(value: object) -> tuple[tuple[str, str], ...]:
    return tuple((name, untrusted.text(second, 400)) for name, second in _pairs(value))


def _number(value: object) -> float:
    return untrusted.number(value, MAX_Y)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        untrusted.fail("a yes or no is missing")
    return value
