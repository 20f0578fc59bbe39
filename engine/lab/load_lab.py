"""The load lab: experiments as jobs of the engine, in turn with replies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from engine.config import Message
from engine.errors import ContextFull, InvalidParams, NotReady
from engine.hardware import processor_name
from engine.lab.catalog import MOST_REPEATS, checked_xs, specs
from engine.lab.results import ExperimentName, ExperimentRequest, ExperimentSpec, Failed, Report, Result
from engine.serving.engine import Engine
from engine.serving.jobs import Job, NewDrafter, Output
from engine.serving.served_pair import ServedPair
from engine.serving.stream import Channel

if TYPE_CHECKING:
    from engine.drafters.protocol import Drafter


class Reports(Channel[Report]):
    """Any number of `Step`, then one `Result`, or `Failed`. After `cancel` it is a Result of what
    was measured so far."""

    ends = (Result, Failed)


class LoadLab:
    """What can be measured on this engine, and the measurements."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def experiments(self) -> tuple[ExperimentSpec, ...]:
        """What `experiment` can measure, by default, and about how long it takes here. Raises NotReady."""
        return specs(self._engine.served_pair().profile)

    def experiment(
        self,
        name: ExperimentName,
        xs: Sequence[float] = (),
        prompts: Sequence[str] = (),
        drafter: str = "auto",
        repeats: int = 3,
    ) -> Reports:
        """Queue an experiment: each measurement `repeats` times, plain and speculative in turn, in turn with replies.

        xs: where to measure, () for the experiment's own (of TEXT, indices of `ExperimentSpec.series`). prompts: in
        place of its own; in K and TEXT they are then the one series "own"; ROWS reads none. drafter: as in
        `DecodingParams`. Raises NotReady, InvalidParams, ContextFull, and Busy when too many wait or another experiment
        runs.
        """
        served_pair = self._engine.served_pair()
        facts, drafter = served_pair.facts, served_pair.drafter_of(drafter)
        if drafter == "none" and name is not ExperimentName.ROWS:
            raise InvalidParams(
                "drafter", "This experiment needs somebody who drafts: choose a drafter other than none."
            )
        if not 1 <= repeats <= MOST_REPEATS:
            raise InvalidParams("repeats", f"repeats must be between 1 and {MOST_REPEATS}, not {repeats}.")
        ids = tuple(tuple(self._engine.encode([Message("user", prompt)])) for prompt in prompts)
        if ids and (longest := max(map(len, ids))) >= facts.context_len:
            raise ContextFull(longest, facts.context_len)
        xs = checked_xs(name, xs, facts.max_new_tokens)
        request = ExperimentRequest(name, xs, ids, drafter, repeats, facts.max_new_tokens)
        reports = Reports()
        self._engine.submit(ExperimentJob(pair=facts.pair, streams=[reports], request=request))
        return reports


@dataclass(slots=True, kw_only=True)
class ExperimentJob(Job):
    """An experiment on the engine thread. Two would disturb each other."""

    busy_message: ClassVar[str] = (
        "An experiment is running already, and two would disturb each other: wait for its end."
    )

    request: ExperimentRequest

    def renew(self, served_pair: ServedPair) -> None:
        raise NotReady("The models were changed before this began: start it once more.")

    def begin(self, served_pair: ServedPair, new_drafter: NewDrafter) -> Iterator[Output]:
        from engine.lab.context import ExperimentContext
        from engine.lab.experiments import EXPERIMENTS
        from engine.lab.runner import RunControl, run_experiment
        from engine.networks.kv_cache import KVCache

        def drafter(name: str) -> Drafter | None:
            return served_pair.drafter(name, lambda _: KVCache())

        context = ExperimentContext(served_pair.model, served_pair.pair.target.tokenizer, served_pair.profile, drafter)
        [reports] = self.streams
        control = RunControl(lambda: reports.cancelled, lambda: self.shared, _machine(served_pair))
        for report in run_experiment(self.request, EXPERIMENTS[self.request.name](context, self.request), control):
            yield None if report is None else (reports, report)

    def error_event(self, message: str) -> Failed:
        return Failed(message)

    def cancelled_event(self) -> Any:
        """It ends with a result of nothing, which it makes itself."""
        return None


def _machine(served_pair: ServedPair) -> tuple[tuple[str, str], ...]:
    """What the figures are about."""
    facts = served_pair.facts
    values = (facts.target, facts.weights, facts.kernel, facts.device, str(facts.threads), processor_name())
    return tuple(zip(("target", "weights", "kernel", "device", "threads", "processor"), values, strict=True))
