"""What a viewer plays: one prompt and the reply or the two replies to it, as frozen plain data; and the store of them.

A race is two lanes, the same prompt written plainly and with guesses; a reply of a chat is one lane. A recording may
still grow, or be finished. Pure, but for the store.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from engine import DecodingParams, Event, Facts, Finished, FinishReason
from ui.state import About, Phase, Reply, Turn, about_of, advance

CAPACITY = 100
"""Recordings kept; beyond it the one unused for longest is forgotten. Whoever still wants it opens it anew."""

CAPACITY_BLOCKS = 50_000
"""Blocks kept in all recordings. With the lists of likeliest tokens one takes some ten kilobytes."""


class LaneName(StrEnum):
    PLAIN = "plain"  # of a race: without guesses
    SPECULATIVE = "speculative"  # of a race: with them
    REPLY = "reply"  # the only lane of a reply from a chat


RACE = frozenset({LaneName.PLAIN, LaneName.SPECULATIVE})


@dataclass(frozen=True, slots=True)
class Lane:
    """One reply and what wrote it (None: not known). Its clock is the sum of its own compute times."""

    name: LaneName
    about: About | None = None
    reply: Reply = field(default_factory=Reply)


@dataclass(frozen=True, slots=True)
class Recording:
    """system, user: the prompt (of a chat, its latest message). date: the day of the recording as ISO 8601, "" where it
    is not known. title: in English and Chinese, "" where it has none."""

    id: str
    user: str
    lanes: tuple[Lane, ...]
    system: str = ""
    date: str = ""
    title: tuple[str, str] = ("", "")

    def lane(self, name: str) -> Lane | None:
        return next((lane for lane in self.lanes if lane.name == name), None)

    def upto(self, counts: Mapping[str, int]) -> Recording:
        """Each lane as it was after its first `counts[name]` blocks, with the figures of that moment; whole where
        counts has no such name."""
        return replace(self, lanes=tuple(_upto(lane, counts.get(lane.name)) for lane in self.lanes))

    @property
    def running(self) -> bool:
        """Whether a lane has not ended yet."""
        return any(lane.reply.phase is not Phase.FINISHED for lane in self.lanes)


def _upto(lane: Lane, count: int | None) -> Lane:
    if count is None or count >= len(lane.reply.blocks):
        return lane
    return replace(lane, reply=advance(Reply(), [block.event for block in lane.reply.blocks[: max(0, count)]]))


def extend(recording: Recording, name: LaneName, events: Sequence[Event]) -> Recording:
    """The recording after more events of one lane; nothing follows a lane's end. Raises KeyError where there is no such
    lane."""
    lane = recording.lane(name)
    if lane is None:
        raise KeyError(name)
    if lane.reply.phase is Phase.FINISHED:
        return recording
    ends = (i for i, event in enumerate(events) if isinstance(event, Finished))
    grown = replace(lane, reply=advance(lane.reply, events[: next(ends, len(events)) + 1]))
    return replace(recording, lanes=tuple(grown if one is lane else one for one in recording.lanes))


def close(recording: Recording) -> Recording:
    """Nobody adds to it any more: a lane that has not ended was stopped where it is."""
    for lane in recording.lanes:
        end = Finished(FinishReason.CANCELLED, lane.reply.text, lane.reply.token_ids)
        recording = extend(recording, lane.name, [end])
    return recording


def race_lanes(facts: Facts | None, params: DecodingParams, system: str = "") -> tuple[Lane, Lane]:
    """Both lanes of a race that begins. params: of the one with guesses; facts None: the engine is gone already."""
    plain = replace(params, num_speculative_tokens=0, drafter="none")
    abouts = [None if facts is None else about_of(facts, each, system) for each in (plain, params)]
    return Lane(LaneName.PLAIN, abouts[0]), Lane(LaneName.SPECULATIVE, abouts[1])


def of_turn(turn: Turn, recording_id: str) -> Recording:
    """A reply of a chat as a recording of one lane."""
    system = turn.about.system if turn.about is not None else ""
    return Recording(recording_id, turn.user, (Lane(LaneName.REPLY, turn.about, turn.reply),), system)


class Recordings:
    """Those that a page may still ask about, by their secret id; those used least lately are forgotten first."""

    def __init__(self, capacity: int = CAPACITY, capacity_blocks: int = CAPACITY_BLOCKS) -> None:
        self._capacity, self._capacity_blocks = capacity, capacity_blocks
        self._store: OrderedDict[str, Recording] = OrderedDict()

    def new_id(self) -> str:
        return secrets.token_urlsafe(18)

    def put(self, recording: Recording) -> None:
        """Keep it, or a newer state of it. The newest stays, however large it is."""
        self._store[recording.id] = recording
        self._store.move_to_end(recording.id)
        blocks = sum(map(size, self._store.values()))
        while len(self._store) > 1 and (len(self._store) > self._capacity or blocks > self._capacity_blocks):
            blocks -= size(self._store.popitem(last=False)[1])

    def find(self, recording_id: str) -> Recording | None:
        if recording_id in self._store:
            self._store.move_to_end(recording_id)
        return self._store.get(recording_id)


def size(recording: Recording) -> int:
    """Blocks that it holds in memory."""
    return sum(len(lane.reply.blocks) for lane in recording.lanes)
