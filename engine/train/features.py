"""What the head learns from, computed once: the target's hidden states over every dialogue, in one growing file.

A folder holds `states.f16`, float16 [tokens, layers, hidden] one dialogue after the other, `index.jsonl` with a line
for each dialogue, and `features.json`, which says whose states these are. The last of the layers is always the target's
last output before its final norm, from which the target's own distribution follows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import EngineError
from engine.networks.devices import fetch_to_cpu
from engine.networks.kv_cache import KVCache
from engine.networks.model import Model, Request
from engine.train.dialogues import Dialogue, digest, parse_dialogue, to_line

Array = np.ndarray[Any, Any]
PASS_TOKENS = 1024
"""Dialogues are read together up to about so many tokens, so that one report and one write serve several."""


def default_layers(layers: int) -> tuple[int, ...]:
    """An early, a middle and a late one; the late one is what enters the last layer, from which the head begins."""
    return max(1, layers // 10), layers // 2 + 1, layers - 1


def all_layers(head_layers: Sequence[int] | None, layers: int) -> tuple[int, ...]:
    """Those that the head reads, as asked for or by default, and the target's last output. Raises EngineError."""
    layers_read = tuple(head_layers or default_layers(layers))
    if list(layers_read) != sorted(set(layers_read)) or not 0 <= layers_read[0] <= layers_read[-1] < layers:
        raise EngineError(f"--layers takes rising numbers from 0 to {layers - 1} for this target, not {layers_read}.")
    return *layers_read, layers


def layers_option(text: str) -> tuple[int, ...]:
    """ "3,16,29" -> (3, 16, 29); for argparse, which turns the ValueError into its sentence."""
    return tuple(int(part) for part in text.split(","))


layers_option.__name__ = "list of whole numbers"  # what argparse calls it there


@dataclass(frozen=True, slots=True)
class Entry:
    """A dialogue and where its states begin, in tokens."""

    dialogue: Dialogue
    offset: int


class FeatureStore:
    """Opens or begins the folder. layers: as `KVCache.feature_layers`, the last of them the number of
    layers of the target.

    Raises EngineError where the folder cannot be used, or holds the states of another target or of other layers.
    """

    def __init__(self, folder: Path, target: str, layers: Sequence[int], hidden: int) -> None:
        self.folder, self.layers, self.hidden = folder, tuple(layers), hidden
        facts = {"target": target, "layers": list(layers), "hidden": hidden}
        about = folder / "features.json"
        self._states, self._index = folder / "states.f16", folder / "index.jsonl"
        try:
            self.entries = self._open(about, facts)
        except (OSError, UnicodeDecodeError, LookupError) as error:
            raise EngineError(f"{folder} cannot keep features ({error}): name another folder.") from error

    def _open(self, about: Path, facts: dict[str, Any]) -> list[Entry]:
        self.folder.mkdir(parents=True, exist_ok=True)
        if about.exists() and about.read_text() != json.dumps(facts) + "\n":
            raise EngineError(f"{self.folder} holds features of another target or other layers: name another folder.")
        about.write_text(json.dumps(facts) + "\n")
        return self._read_index()

    def states(self, entry: Entry) -> Array:
        """float16 [tokens, layers, hidden] of one dialogue, mapped from the file."""
        shape = (len(entry.dialogue.ids), len(self.layers), self.hidden)
        return np.memmap(self._states, np.float16, "r", entry.offset * self._token_bytes, shape)

    def add(self, dialogues: Sequence[Dialogue], states: Sequence[Array]) -> None:
        """States first, index after: what a stop cuts short is no dialogue."""
        at = self._end()
        with self._states.open("r+b" if self._states.exists() else "wb") as file:
            file.seek(at * self._token_bytes)
            for array in states:
                array.astype(np.float16).tofile(file)
            file.flush()
        with self._index.open("a", encoding="utf-8") as file:
            for d in dialogues:
                file.write(to_line(d, offset=at))
                self.entries.append(Entry(d, at))
                at += len(d.ids)

    @property
    def _token_bytes(self) -> int:
        return 2 * len(self.layers) * self.hidden

    def _end(self) -> int:
        return max((e.offset + len(e.dialogue.ids) for e in self.entries), default=0)

    def _read_index(self) -> list[Entry]:
        """Forgets, in the file too, a last line that a stop cut short, and dialogues whose states did not
        get onto the disk."""
        if not self._index.exists():
            return []
        text = self._index.read_text(encoding="utf-8")
        lines = text[: text.rfind("\n") + 1].splitlines(keepends=True)
        entries = [Entry(parse_dialogue(line, str(self._index)), json.loads(line)["offset"]) for line in lines]
        size = self._states.stat().st_size if self._states.exists() else 0
        on_disk = [(e.offset + len(e.dialogue.ids)) * self._token_bytes <= size for e in entries]
        complete = "".join(line for line, is_on_disk in zip(lines, on_disk, strict=True) if is_on_disk)
        if complete != text:
            partial = self._index.with_suffix(".partial")
            partial.write_text(complete, encoding="utf-8")
            partial.replace(self._index)
        return [entry for entry, is_on_disk in zip(entries, on_disk, strict=True) if is_on_disk]


def batches(lengths: Sequence[int], order: Sequence[int], size: int) -> Iterator[list[int]]:
    """Indices in order, whose lengths come to `size` at most, but at least one of them."""
    batch: list[int] = []
    for index in order:
        if batch and sum(lengths[i] for i in batch) + lengths[index] > size:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def fill(
    store: FeatureStore, model: Model, dialogues: Iterable[Dialogue], report: Callable[[int, int], None]
) -> FeatureStore:
    """Compute what the store lacks. report(tokens done, tokens in all) after each pass."""
    digests = {digest(e.dialogue.ids) for e in store.entries}
    todo: list[Dialogue] = []
    for d in dialogues:
        if (name := digest(d.ids)) not in digests and len(d.ids) <= model.context_len:
            digests.add(name)
            todo.append(d)
    lengths = [len(d.ids) for d in todo]
    tokens_done = 0
    for batch in batches(lengths, range(len(todo)), PASS_TOKENS):
        store.add([todo[i] for i in batch], [_states(model, todo[i], store.layers) for i in batch])
        tokens_done += sum(lengths[i] for i in batch)
        report(tokens_done, sum(lengths))
    return store


def _states(model: Model, dialogue: Dialogue, layers: Sequence[int]) -> Array:
    cache = KVCache(layers)
    model.forward([Request(dialogue.ids, 0, cache)])
    return fetch_to_cpu(cache.features(0, len(dialogue.ids))).numpy()
