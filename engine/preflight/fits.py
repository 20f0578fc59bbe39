"""Whether a pair can be loaded at all, and whether beside the one in use or that one has to make room first."""

from __future__ import annotations

from engine.config import EngineConfig
from engine.errors import LoadError
from engine.loading.progress import Progress
from engine.preflight.check import Report, check_config
from engine.preflight.diagnostics import Diagnostic, FitLevel


def load_refusal(config: EngineConfig) -> str:
    """Why a pair cannot be loaded, by its headers, and what to try: one or two sentences, "" where it can."""
    refusals = _refusals(check_config(config))
    return refusals[0].text if refusals else ""


def makes_room(config: EngineConfig, held_mib: float, progress: Progress) -> bool:
    """True where there is memory for the new pair only without the held_mib of the old. Raises LoadError for one that
    cannot be loaded at all, before anything has changed."""
    report = check_config(config, progress=progress)
    refusals = _refusals(report)
    if not refusals:
        return False
    is_memory_alone = all(diagnostic.code == "memory_short" for diagnostic in refusals)
    if is_memory_alone and report.free_mib is not None and report.needs_mib <= report.free_mib + held_mib:
        return True
    raise LoadError(refusals[0].text)


def _refusals(report: Report) -> list[Diagnostic]:
    return [diagnostic for diagnostic in report.diagnostics if diagnostic.level is FitLevel.CANNOT]
