"""What the engines that are compared have in common: a job, and the turn that one of them makes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.cli.prompts import BenchPrompt


@dataclass(frozen=True, slots=True)
class PeerJob:
    """ids: the templated prompt; tokens: how many are asked for."""

    prompt: BenchPrompt
    ids: list[int]
    tokens: int


@dataclass(frozen=True, slots=True)
class PeerTurn:
    """tokens: all of the reply; decoded: those that took `seconds`, that is, without what came first."""

    tokens: int
    decoded: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Peer:
    """An engine in one setting. note: how it runs, for people; play raises EngineError."""

    name: str
    note: str
    play: Callable[[PeerJob], PeerTurn]
