"""A record: items by key, one a line, and what differs between two of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

Item = tuple[str, Any]
"""A key and a value for `plain`."""

NAME = "_"
"""Under which a value's class is told."""

AROUND = 80
"""Characters shown on both sides of a difference."""


def plain(value: Any, timed: bool = False) -> Any:
    """The value as JSON has it, field by field and without functions; floats with all their bits. timed: with fields of
    seconds (`*_s`)."""
    if is_dataclass(value):
        names = [one.name for one in fields(value) if timed or not one.name.endswith("_s")]
        told = {name: getattr(value, name) for name in names}
        told = {name: dict(sorted(one.items())) if isinstance(one, Mapping) else one for name, one in told.items()}
        return {NAME: type(value).__name__} | plain(told, timed)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): plain(one, timed) for key, one in value.items() if not callable(one)}
    if isinstance(value, (set, frozenset)):
        return sorted(plain(one, timed) for one in value)
    if isinstance(value, (list, tuple)):
        return [plain(one, timed) for one in value]
    if isinstance(value, Path):
        return str(value)
    assert value is None or isinstance(value, (bool, int, float, str)), type(value)
    return value


def write(path: Path, items: Iterable[Item]) -> int:
    """How many there are. Each is on the disk as soon as it is known."""
    known: set[str] = set()
    with path.open("w", encoding="utf-8") as file:
        for key, value in items:
            assert key not in known and ": " not in key and "\n" not in key, key
            known.add(key)
            file.write(f"{key}: {json.dumps(plain(value), ensure_ascii=False)}\n")
            file.flush()
    return len(known)


def read(path: Path) -> dict[str, Any]:
    lines = path.read_text(encoding="utf-8", errors="surrogateescape").split("\n") if path.exists() else []
    return {key: json.loads(value) for key, colon, value in (line.partition(": ") for line in lines) if colon}


def nameless(value: Any) -> Any:
    """Values in their order, without the names of classes and fields: what no renaming changes."""
    if isinstance(value, dict):
        return [nameless(one) for key, one in value.items() if key != NAME]
    return [nameless(one) for one in value] if isinstance(value, list) else value


def differences(before: dict[str, Any], after: dict[str, Any], named: bool) -> Iterator[str]:
    for key in before | after:
        if key not in after or key not in before:
            yield f"{key}: only {'before' if key in before else 'after'}"
            continue
        one, other = (found[key] if named else nameless(found[key]) for found in (before, after))
        if (left := _written(one)) != (right := _written(other)):
            yield f"{key}: {_where(left, right)}"


def _written(value: Any) -> str:
    """As text, since 1 is not 1.0 here, nor 0.0 the same as -0.0."""
    return json.dumps(value, ensure_ascii=False)


def _where(left: str, right: str) -> str:
    same = next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
    parts = (text[max(0, same - AROUND) : same + AROUND] for text in (left, right))
    return f"at character {same}\n    - " + "\n    + ".join(parts)
