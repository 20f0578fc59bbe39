"""Plain and speculative decoding of one prompt, side by side on one engine thread: each lane on its own clock.

Two lanes cannot be timed at once on one machine, so they take turns: the one that has computed less goes on. What a
viewer shows from the lanes' own clocks is then what each would have shown alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import TracebackType

from engine.stream import Stream


@dataclass(frozen=True, slots=True)
class Race:
    """Two replies to the same prompt with the same seed. Cancelling either stream ends both, within a round.

    As a context manager it cancels on leaving, so a reader that fails half-way does not leave the engine working for nobody.
    """

    plain: Stream = field(default_factory=Stream)
    speculative: Stream = field(default_factory=Stream)

    @property
    def cancelled(self) -> bool:
        return self.plain.cancelled or self.speculative.cancelled

    def cancel(self) -> None:
        """Ask the engine to end both replies. Safe at any time, and more than once."""
        self.plain.cancel()
        self.speculative.cancel()

    def __enter__(self) -> Race:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()
