"""Plain and speculative decoding of one prompt, side by side on one engine thread: each lane on its own clock.

Two lanes cannot be timed at once on one machine, so they take turns: the one that has computed less goes on. What a
viewer shows from the lanes' own clocks is then what each would have shown alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING

from engine.config import DecodingParams
from engine.events import Event, Finished, FinishReason, Prefilled, Prefilling, Round
from engine.serving.stream import Stream, attempt

if TYPE_CHECKING:
    from engine.decode import ReplyContext

TURN_S = 0.05
"""Seconds of its own compute that a lane has before the other may go on: a few rounds, so that neither starves, and
what a change of lanes costs is spread over several."""


@dataclass(frozen=True, slots=True)
class Race:
    """Two replies to the same prompt with the same seed. Cancelling either stream ends both, within a round.

    As a context manager it cancels on leaving, so a reader that fails half-way does not leave the engine working for
    nobody.
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


@dataclass(frozen=True, slots=True)
class LaneTurn:
    """The lane that goes on, until its own clock shows `until_s`."""

    lane: str
    until_s: float


def next_turn(turn: LaneTurn, clocks: Mapping[str, float], turn_s: float = TURN_S) -> LaneTurn:
    """Whose turn it is. clocks: seconds of own compute of each lane that still runs, at least one.

    A turn is played to its end; then the lane that is behind begins one, the first of equals. So while both run their
    clocks are never further apart than a turn and the one event that goes beyond it.
    """
    if turn.lane in clocks and clocks[turn.lane] < turn.until_s:
        return turn
    behind = min(clocks, key=clocks.__getitem__)
    return LaneTurn(behind, clocks[behind] + turn_s)


def race_events(
    race: Race, ids: Sequence[int], params: DecodingParams, context: ReplyContext
) -> Iterator[tuple[Stream, Event]]:
    """The events of both replies to the prompt `ids`, and whose they are; ends when both have ended.

    context: the speculative reply's, which reads the prompt; the plain one goes on from a copy of its cache, by itself.
    """
    from engine.decode import generate

    prefilled: list[Prefilled] = []

    def plain() -> Iterator[Event]:
        if not prefilled:  # it ended before the prompt did
            yield Finished(FinishReason.CANCELLED, "", ())
            return
        plain_context = replace(context, cache=context.cache.copy(), drafter=None)
        plain_context.model.synchronize()
        yield from generate(ids, replace(params, drafter="none", num_speculative_tokens=0), plain_context, prefilled[0])

    return interleave(race, generate(ids, params, context, on_prefilled=prefilled.append), plain())


def interleave(race: Race, speculative: Iterator[Event], plain: Iterator[Event]) -> Iterator[tuple[Stream, Event]]:
    """Both lanes' events in the order in which they are made, by turns; `plain` is not begun before the prompt is read.

    How far the speculative lane has read it is told to both. A lane that breaks ends with an error, and the other is
    cancelled.
    """
    event = _next(speculative)
    while isinstance(event, Prefilling):
        yield race.plain, event
        yield race.speculative, event
        event = _next(speculative)
    streams = {"speculative": race.speculative, "plain": race.plain}
    event_iterators = {"speculative": chain([event], speculative), "plain": plain}
    clocks = dict.fromkeys(streams, 0.0)
    turn = LaneTurn("speculative", 0.0)
    while clocks:
        turn = next_turn(turn, clocks)
        event = _next(event_iterators[turn.lane])
        clocks[turn.lane] += _compute_s(event)
        if isinstance(event, Finished):
            del clocks[turn.lane]
            if event.reason is FinishReason.ERROR:
                race.cancel()
        yield streams[turn.lane], event


def _next(events: Iterator[Event]) -> Event:
    return attempt(lambda: next(events))


def _compute_s(event: Event) -> float:
    """Seconds of compute that an event adds to its lane's clock."""
    if isinstance(event, Prefilled):
        return event.ttft_s
    return event.total_s if isinstance(event, Round) else 0.0
