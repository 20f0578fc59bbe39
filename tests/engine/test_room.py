"""When the pair in use has to make room for the next one, and when that one is refused instead."""

from __future__ import annotations

import pytest

from engine.config import EngineConfig
from engine.errors import LoadError
from engine.preflight import fits
from engine.preflight.check import Report
from engine.preflight.diagnostics import Diagnostic, diagnose, worst

SHORT = diagnose("memory_short", needs="900 MiB", free="600 MiB", where="memory")
REMARK = diagnose("memory_tight", needs="900 MiB", free="950 MiB", where="memory")
WRONG = diagnose("no_config", name="m")


def makes_room(
    monkeypatch: pytest.MonkeyPatch, *diagnostics: Diagnostic, free: float | None = 600.0, held: float = 0.0
) -> bool:
    report = Report(worst(diagnostics), diagnostics, None, None, 900.0, free, (), "none")
    monkeypatch.setattr(fits, "check_config", lambda *_, **__: report)
    return fits.makes_room(EngineConfig(), held, lambda *_: None)


def test_what_fits_beside_the_old_pair_does_not_send_it_away(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not makes_room(monkeypatch, free=2000.0, held=500.0)
    assert not makes_room(monkeypatch, REMARK, free=950.0, held=500.0)


@pytest.mark.parametrize("held", [300.0, 900.0])
def test_what_fits_only_without_it_does(held: float, monkeypatch: pytest.MonkeyPatch) -> None:
    assert makes_room(monkeypatch, SHORT, held=held)


@pytest.mark.parametrize(
    ("diagnostics", "free", "held", "said"),
    [
        ((SHORT,), 600.0, 299.0, SHORT),
        ((SHORT,), None, 5000.0, SHORT),
        ((WRONG,), 600.0, 5000.0, WRONG),
        ((SHORT, WRONG), 600.0, 5000.0, SHORT),
    ],
)
def test_what_cannot_be_loaded_either_way_is_refused_before_anything_changes(
    diagnostics: tuple[Diagnostic, ...],
    free: float | None,
    held: float,
    said: Diagnostic,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(LoadError) as refused:
        makes_room(monkeypatch, *diagnostics, free=free, held=held)
    assert said.message in str(refused.value) and said.advice in str(refused.value)
