"""Whether the engine is ready, and why not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Status:
    """Where loading stands. phase is one of "start", "compile", "fetch", "unpack", "convert",
    "load", "warm_up", "ready".

    fraction: 0..1 of this phase, None where unknown. message: one sentence when FAILED, else "".
    """

    state: State
    phase: str
    fraction: float | None = None
    message: str = ""

    @property
    def refusal(self) -> str:
        """What a request is told while the state is another than READY."""
        return {
            State.LOADING: "The model is still loading: please wait a moment.",
            State.FAILED: self.message,
            State.CLOSED: "The engine has been closed: start the app again.",
        }.get(self.state, "The engine is not ready.")
