"""Whether another pair can be loaded beside the one in use, or that one has to make room first."""

from __future__ import annotations

from engine.check import Verdict, check
from engine.config import EngineConfig
from engine.errors import LoadError
from engine.pair import Progress


def makes_room(config: EngineConfig, held_mib: float, progress: Progress) -> bool:
    """True where there is memory for the new pair only without the held_mib of the old. Raises LoadError for one that cannot
    be loaded at all, before anything has changed."""
    report = check(config, progress=progress)
    refused = [finding for finding in report.findings if finding.level is Verdict.CANNOT]
    if not refused:
        return False
    short = all(finding.code == "memory_short" for finding in refused)
    if short and report.free_mib is not None and report.needs_mib <= report.free_mib + held_mib:
        return True
    raise LoadError(" ".join(filter(None, (refused[0].message, refused[0].advice))))
