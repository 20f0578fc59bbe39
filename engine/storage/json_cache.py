"""A JSON object kept in the cache folder: written at once, forgiven when it is damaged or cannot be written."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

T = TypeVar("T")


def read_record(path: Path) -> dict[str, Any]:
    """What is kept at `path`; empty where nothing is, or nothing that is a JSON object."""
    try:
        record = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Under another name first, so that nobody ever reads half of it. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(record, indent=1), "utf-8")
    os.replace(partial, path)


def remember(path: Path, key: str, compute: Callable[[], T], is_answer: Callable[[Any], bool]) -> T:
    """The answer kept under `key`, or else what `compute` gives, which is then kept.

    is_answer: whether a value read back can be one; any other is computed again. Where nothing can be written, every
    start computes it again.
    """
    cached_answer = read_record(path).get(key)
    if is_answer(cached_answer):
        return cast(T, cached_answer)
    answer = compute()
    with contextlib.suppress(OSError):
        write_record(path, read_record(path) | {key: answer})  # read again: others may have answered meanwhile
    return answer
