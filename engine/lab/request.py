"""What an experiment is to measure."""

from __future__ import annotations

from dataclasses import dataclass

from engine.lab.results import ExperimentName


@dataclass(frozen=True, slots=True)
class ExperimentRequest:
    """A request, checked and complete. xs: in ascending order. prompts: ids, () for the experiment's own.

    drafter: a name of `Facts.drafters`. most_tokens: of a reply.
    """

    name: ExperimentName
    xs: tuple[float, ...]
    prompts: tuple[tuple[int, ...], ...]
    drafter: str
    repeats: int
    most_tokens: int
