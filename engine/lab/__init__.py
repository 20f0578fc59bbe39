"""When speculation helps, measured: experiments that the engine runs on the machine that it is on."""

from engine.lab import records
from engine.lab.catalog import DEFAULTS
from engine.lab.formulas import best_k, expected_tokens, speedup
from engine.lab.load_lab import LoadLab, Reports
from engine.lab.results import (
    AUTO,
    MEASURED,
    OWN,
    PLAIN,
    PREDICTED,
    SPECULATIVE,
    ExperimentName,
    ExperimentSpec,
    Failed,
    Point,
    Report,
    Result,
    Step,
    TextKind,
)

__all__ = [
    "AUTO",
    "DEFAULTS",
    "MEASURED",
    "OWN",
    "PLAIN",
    "PREDICTED",
    "SPECULATIVE",
    "ExperimentName",
    "ExperimentSpec",
    "Failed",
    "LoadLab",
    "Point",
    "Report",
    "Reports",
    "Result",
    "Step",
    "TextKind",
    "best_k",
    "expected_tokens",
    "records",
    "speedup",
]
