"""Runs an experiment to its end, by short steps between which the engine thread may do other things."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from time import perf_counter

from engine.lab.context import Experiment, Pairs
from engine.lab.results import ExperimentRequest, Result, Step

LIMIT_S = 180.0
"""An experiment that takes longer ends with what it has: on a slow machine it would keep its reader for an hour."""


@dataclass(frozen=True, slots=True)
class RunControl:
    """What is seen from outside. cancelled: somebody wants it to end. disturbed: other replies were
    written meanwhile."""

    cancelled: Callable[[], bool]
    disturbed: Callable[[], bool]
    machine: Pairs
    clock: Callable[[], float] = perf_counter
    limit_s: float = LIMIT_S


def run_experiment(
    request: ExperimentRequest, experiment: Experiment, control: RunControl
) -> Iterator[Step | Result | None]:
    """None where others may have their turn, a Step after each measurement, at last a Result. Raises EngineError.

    The measurements come by repeat, so that an experiment that is cut short has something everywhere.
    """
    begin_s, total = control.clock(), len(experiment.measurements)
    weight_left = sum(measurement.weight for measurement in experiment.measurements)
    weight_done = 0.0
    cut: Pairs = ()

    def result() -> Result:
        return Result(
            name=request.name,
            points=experiment.points(),
            machine=control.machine,
            made=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=control.clock() - begin_s,
            cancelled=control.cancelled(),
            disturbed=control.disturbed(),
            settings=(("drafter", request.drafter), ("repeats", str(request.repeats)), *experiment.settings(), *cut),
        )

    yield Step(0, total, None)
    for n, measurement in enumerate(experiment.measurements, 1):
        run = measurement.run()
        while not control.cancelled() and next(run, run) is not run:
            yield None
        if control.cancelled():
            break
        weight_done, weight_left = weight_done + measurement.weight, weight_left - measurement.weight
        elapsed_s = control.clock() - begin_s
        yield Step(n, total, elapsed_s / weight_done * weight_left if weight_done else None, experiment.points())
        if elapsed_s > control.limit_s and n < total:
            cut = (("cut", f"it took longer than {control.limit_s:.0f} s"),)
            break
    yield result()
