"""What the check says of every file that the tests make, good or bad, and with which sentences the loader refuses them.

The tests themselves run, since many of the files are made inside of them; each report and each error is noted down.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.errors import EngineError
from engine.preflight import check as checking
from engine.preflight.check import Report, card
from engine.preflight.memory import Machine
from tests.engine import (
    test_check,
    test_gguf_files,
    test_gguf_tokeniser,
    test_head_files,
    test_hostile_files,
    test_loading,
)
from tests.golden.items import Item, plain
from ui.models import page as models

FILES = (test_check, test_hostile_files, test_gguf_files, test_gguf_tokeniser, test_head_files, test_loading)

HERE = Machine(free_mib=8192, disk_free_mib=10**6, read_gib_s=20.0)
"""Stands for this machine, of which something else is free each time."""


class Notes:
    """A plugin of pytest."""

    def __init__(self, home: str) -> None:
        self.home = home
        self.items: list[Item] = []
        self._test = ""
        self._made = Counter[str]()
        self._names = Counter[str]()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Without those whose files are other ones each time, and those that depend on what has run before."""
        drawn = {item for item in items if hasattr(getattr(item, "obj", None), "hypothesis")}
        items[:] = [item for item in items if item not in drawn and item.get_closest_marker("model") is None]

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._names[item.name] += 1
        again = f" ({self._names[item.name]})" if self._names[item.name] > 1 else ""
        self._test = item.name.replace(": ", ":") + again

    def note(self, kind: str, value: Any) -> None:
        """Once, however often it is said in one test."""
        said = self._anywhere(plain(value))
        if not any(key.startswith(f"{self._test}/{kind} ") and known == said for key, known in self.items):
            self._made[self._test + kind] += 1
            self.items.append((f"{self._test}/{kind} {self._made[self._test + kind]}", said))

    def _anywhere(self, value: Any) -> Any:
        """Without what is another one each time: folders, ports, and which of two wrong tensors is met first."""
        if isinstance(value, str):
            told = re.sub(re.escape(self.home) + r"(/[\w.-]+)?", "<folder>", value)
            return re.sub(r"tensor `[ab]`", "tensor <a or b>", re.sub(r"127\.0\.0\.1:\d+", "<address>", told))
        if isinstance(value, dict):
            return {key: self._anywhere(one) for key, one in value.items()}
        return [self._anywhere(one) for one in value] if isinstance(value, list) else value


def items() -> Iterator[Item]:
    assert checking.this_machine() != HERE
    checking.this_machine = lambda: HERE
    with tempfile.TemporaryDirectory() as folder:
        notes = Notes(os.path.realpath(folder))
        Report.__init__ = _noting(Report.__init__, lambda report: _report(notes, report))
        EngineError.__init__ = _noting(EngineError.__init__, lambda error: notes.note("error", str(error)))
        files = [str(Path(file.__file__)) for file in FILES]
        pytest.main(["-q", "-p", "no:cacheprovider", f"--basetemp={notes.home}", *files], plugins=[notes])
    yield from notes.items


def _report(notes: Notes, report: Report) -> None:
    notes.note("report", report)
    notes.note("card", card(report))
    notes.note("page", models.card(report))


def _noting(init: Callable[..., None], note: Callable[[Any], None]) -> Callable[..., None]:
    def noted(made: Any, *arguments: Any, **named: Any) -> None:
        init(made, *arguments, **named)
        note(made)

    return noted
