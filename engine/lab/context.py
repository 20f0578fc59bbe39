"""What an experiment works with, and what it is made of: short measurements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.control.latency import Profile
from engine.drafters.protocol import Drafter
from engine.lab.results import Point
from engine.networks.model import Model
from engine.text.tokenizer import Tokenizer

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ExperimentContext:
    """new_drafter: makes a drafter with caches of its own, by its name; None for "none"."""

    model: Model
    tokenizer: Tokenizer
    profile: Profile
    new_drafter: Callable[[str], Drafter | None]


@dataclass(frozen=True, slots=True)
class Measurement:
    """`run` stands still at each yield, with no clock running, and records when it is through. weight: how long it
    takes, against others of the same experiment."""

    weight: float
    run: Callable[[], Iterator[None]]


class Experiment(Protocol):
    """The first measurement of each warms up or reads prompts."""

    measurements: Sequence[Measurement]

    def points(self) -> tuple[Point, ...]:
        """From what was measured so far."""
        ...

    def settings(self) -> Pairs:
        """What shaped the figures."""
        ...
