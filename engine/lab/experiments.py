"""The experiments by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.lab.comparisons import k, length, temperature, text
from engine.lab.concurrency import Concurrency
from engine.lab.context import Experiment, ExperimentContext
from engine.lab.forward_cost import ForwardCost
from engine.lab.results import ExperimentName, ExperimentRequest

EXPERIMENTS: Mapping[ExperimentName, Callable[[ExperimentContext, ExperimentRequest], Experiment]] = {
    ExperimentName.RATE: Concurrency,
    ExperimentName.LENGTH: length,
    ExperimentName.K: k,
    ExperimentName.TEMPERATURE: temperature,
    ExperimentName.TEXT: text,
    ExperimentName.ROWS: ForwardCost,
}
