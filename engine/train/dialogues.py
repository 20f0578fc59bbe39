"""Dialogues that the target wrote itself: one JSON object a line, in a plain or gzipped file that only ever grows."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine.errors import EngineError


@dataclass(frozen=True, slots=True)
class Dialogue:
    """ids: the templated prompt and the reply, in the target's tokens; the reply begins at ids[prompt_len]."""

    ids: tuple[int, ...]
    prompt_len: int
    temperature: float | None = None

    @property
    def reply_len(self) -> int:
        return len(self.ids) - self.prompt_len


def mark_repeats(ids: Sequence[int], length: int = 3) -> list[bool]:
    """For each token whether it and those before it, `length` together, have come before: what follows is
    then easily guessed."""
    runs: set[tuple[int, ...]] = set()
    marks = []
    for end in range(1, len(ids) + 1):
        run = tuple(ids[max(0, end - length) : end])
        marks.append(len(run) == length and run in runs)
        runs.add(run)
    return marks


def read_dialogues(path: Path) -> Iterator[Dialogue]:
    """A last line that a stop cut short is left out. Raises EngineError for a file that is missing or
    holds something else."""
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.endswith("\n"):
                    yield parse_dialogue(line, f"{path}, line {number}")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise EngineError(f"The dialogues {path} cannot be read ({error}).") from error


def digest(ids: Sequence[int]) -> bytes:
    """The same for the same ids, in every run."""
    return hashlib.sha256(np.asarray(ids, np.int64).tobytes()).digest()


def parse_dialogue(line: str, where: str) -> Dialogue:
    """Raises EngineError, which says where."""
    try:
        record = json.loads(line)
        ids, prompt_len, temperature = tuple(record["ids"]), record["prompt_len"], record.get("temperature")
    except (ValueError, KeyError, TypeError) as error:
        raise EngineError(f"{where} holds no dialogue: it needs prompt_len and ids.") from error
    if not all(isinstance(number, int) and number >= 0 for number in (prompt_len, *ids)) or not 0 < prompt_len < len(
        ids
    ):
        raise EngineError(f"{where} holds no dialogue: ids must be whole numbers, of which prompt_len are the prompt.")
    return Dialogue(ids, prompt_len, temperature)


def to_line(dialogue: Dialogue, **more: int) -> str:
    """What `parse_dialogue` reads. more: further entries."""
    d = dialogue
    record = {"prompt_len": d.prompt_len, "temperature": d.temperature, "ids": list(d.ids), **more}
    return json.dumps(record, separators=(",", ":")) + "\n"


def append_dialogues(path: Path, dialogues: Iterable[Dialogue]) -> None:
    """Written and flushed at once, so that a stop loses at most what is being sampled."""
    with path.open("a", encoding="utf-8") as file:
        file.writelines(map(to_line, dialogues))
