"""When speculation helps, measured: experiments that the engine runs on the machine that it is on."""

from engine.lab.load_lab import LoadLab
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
    "Result",
    "Step",
    "TextKind",
]
