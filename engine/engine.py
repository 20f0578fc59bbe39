"""Owns the models, the cache pool and the one thread that computes. Everything else talks to it through queues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from engine.config import DecodingParams, EngineConfig, Message
from engine.events import Event


class State(StrEnum):
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Status:
    """Where loading stands. phase is one of "start", "fetch", "unpack", "convert", "load", "warm_up", "ready".

    fraction: 0..1 of this phase, None where unknown. message: one sentence when FAILED, else "".
    """

    state: State
    phase: str
    fraction: float | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """The truth about the loaded engine, for a chip in the page. exact says whether speculative text is proven bit-equal."""

    target: str
    weights: str  # e.g. "GGUF Q4_1, run as bf16"
    kernel: str  # e.g. "torch bf16 linear"
    device: str
    threads: int
    context_len: int
    exact: bool
    drafters: tuple[str, ...]  # names valid for DecodingParams.drafter
    max_new_tokens: int


class Stream:
    """The events of one request, read from any thread. Iterating yields events until `Finished`, inclusive."""

    def take(self, timeout_s: float) -> list[Event]:
        """All events that wait; blocks up to timeout_s for the first. [] on time-out or after `Finished` was taken."""
        raise NotImplementedError

    @property
    def done(self) -> bool:
        """True once `Finished` has been taken."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Ask the engine to end this reply; it ends with `Finished(CANCELLED)` within a round. Safe at any time."""
        raise NotImplementedError


class Engine:
    """`Engine(config)` returns at once and loads in the background; see `status`."""

    def __init__(self, config: EngineConfig) -> None:
        raise NotImplementedError

    def status(self) -> Status:
        raise NotImplementedError

    def wait_ready(self, timeout_s: float | None = None) -> Status:
        """Blocks until READY, FAILED or CLOSED, or the time-out; returns the status."""
        raise NotImplementedError

    def facts(self) -> Facts:
        """Raises NotReady before READY."""
        raise NotImplementedError

    def count_tokens(self, messages: Sequence[Message]) -> int:
        """Tokens of the templated prompt. Raises NotReady."""
        raise NotImplementedError

    def stream(self, messages: Sequence[Message], params: DecodingParams, conversation: str = "") -> Stream:
        """Queue one reply. `conversation` names the KV cache to reuse ("" = a fresh one).

        Raises NotReady, InvalidParams (unknown drafter, too many tokens asked for), ContextFull, and Busy when too many wait.
        """
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError
