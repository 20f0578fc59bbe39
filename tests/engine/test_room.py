"""When the pair in use has to make room for the next one, and when that one is refused instead."""

from __future__ import annotations

import pytest

from engine.config import EngineConfig
from engine.errors import LoadError
from engine.preflight import fits
from engine.preflight.check import Report
from engine.preflight.diagnostics import diagnose, worst

SHORT = diagnose("memory_short", needs="900 MiB", free="600 MiB", where="memory")
REMARK = diagnose("memory_tight", needs="900 MiB", free="950 MiB", where="memory")
WRONG = diagnose("no_config", name="m")


def test_it_makes_room_where_that_helps_and_what_helps_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for diagnostics, free, held, expected in (
        ((), 2000.0, 500.0, False), ((REMARK,), 950.0, 500.0, False),
        ((SHORT,), 600.0, 300.0, True), ((SHORT,), 600.0, 900.0, True),
        ((SHORT,), 600.0, 299.0, SHORT), ((SHORT,), None, 5000.0, SHORT),
        ((WRONG,), 600.0, 5000.0, WRONG), ((SHORT, WRONG), 600.0, 5000.0, SHORT),
    ):  # fmt: skip
        report = Report(worst(diagnostics), diagnostics, None, None, 900.0, free, (), "none")
        monkeypatch.setattr(fits, "check_config", lambda *_, report=report, **__: report)
        try:
            outcome: object = fits.makes_room(EngineConfig(), held, lambda *_: None)
        except LoadError as refused:
            outcome = str(refused)
        assert outcome == (expected if isinstance(expected, bool) else expected.text), diagnostics
