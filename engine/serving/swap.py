"""A swap of the pair in use, as seen by whoever asked for it: how far it is, and a way to call it off."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from engine.config import EngineConfig
from engine.serving.load_pair import load_failure


class SwapPhase(StrEnum):
    CHECKING = "checking"
    LOADING = "loading"
    WAITING = "waiting"  # for the replies that are being written
    STARTING = "starting"  # the first passes, which are slow, and how long the next ones take
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


OVER = (SwapPhase.DONE, SwapPhase.FAILED, SwapPhase.CANCELLED)


@dataclass(frozen=True, slots=True)
class SwapStatus:
    """After FAILED and CANCELLED the pair of before is in use, unharmed.

    step: what loading is at, as `Status.phase`, or "". fraction: 0..1 of this step, None where unknown. message: one
    sentence when FAILED, else "". made_room: the pair of before had to make room,
    and is loaded again if this one fails.
    """

    phase: SwapPhase
    config: EngineConfig
    step: str = ""
    fraction: float | None = None
    message: str = ""
    made_room: bool = False

    @property
    def over(self) -> bool:
        return self.phase in OVER


class SwapCancelled(Exception):
    """Ends a load whose result nobody wants any more."""


class Swap:
    """Made by `Engine.swap`; safe to use from any thread."""

    def __init__(self, config: EngineConfig, wake: Callable[[], None]) -> None:
        """wake: called when it is called off, so that the engine looks."""
        self._status = SwapStatus(SwapPhase.CHECKING, config)
        self._changed = threading.Condition()
        self._cancelled = threading.Event()
        self._wake = wake

    def status(self) -> SwapStatus:
        return self._status

    def wait(self, timeout_s: float | None = None) -> SwapStatus:
        """Blocks until it is over, or the time-out; returns the status."""
        with self._changed:
            self._changed.wait_for(lambda: self._status.over, timeout_s)
            return self._status

    def cancel(self) -> None:
        """Call it off: the pair in use stays. Safe at any time, and more than once; after DONE it has no effect.

        A load that cannot be interrupted ends by itself and is thrown away. Where the pair of before had made room, it
        is loaded again first.
        """
        with self._changed:
            if self._status.over:
                return
            self._cancelled.set()
            if not self._status.made_room and self._status.phase is not SwapPhase.STARTING:
                self._tell(SwapPhase.CANCELLED)
        self._wake()

    # -- for the engine ----------------------------------------------------------------------------------------------

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    def tell(self, phase: SwapPhase, step: str = "", fraction: float | None = None, message: str = "") -> None:
        """Nothing is told any more once it is over."""
        with self._changed:
            if not self._status.over:
                self._tell(phase, step, fraction, message)

    def fail(self, error: BaseException) -> None:
        """CANCELLED where the error is that it was called off, else FAILED."""
        if isinstance(error, SwapCancelled):
            self.tell(SwapPhase.CANCELLED)
        else:
            self.tell(SwapPhase.FAILED, message=load_failure(error))

    def make_room(self) -> None:
        """From here on the pair of before is not in use."""
        with self._changed:
            self._status = replace(self._status, made_room=True)

    def progress(self, step: str, fraction: float | None = None) -> None:
        """For loaders. Raises SwapCancelled."""
        if self.cancelled:
            raise SwapCancelled
        self.tell(SwapPhase.LOADING, step, fraction)

    def _tell(self, phase: SwapPhase, step: str = "", fraction: float | None = None, message: str = "") -> None:
        self._status = replace(self._status, phase=phase, step=step, fraction=fraction, message=message)
        self._changed.notify_all()
