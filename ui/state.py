"""What a conversation looks like at one moment, as frozen plain data, and how an event changes it. Pure.

Provenance comes from the engine's events and is only carried along here: a piece keeps the source of its token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from engine.config import Message
from engine.events import (
    Event,
    Finished,
    FinishReason,
    KReason,
    Outcome,
    Prefilled,
    Prefilling,
    Round,
    Source,
    Token,
    TokenDecision,
)
from engine.stats import Summary, Tally
from ui.course import Course, Played, played


class Kind(StrEnum):
    """How a piece of the transcript is shown: the four sources, and the two fates of a draft that was not used."""

    DRAFT = "draft"
    RECOVERED = "recovered"
    BONUS = "bonus"
    PLAIN = "plain"
    REJECTED = "rejected"
    DISCARDED = "discarded"


LOST = frozenset({Kind.REJECTED, Kind.DISCARDED})
"""Kinds that are shown but are no part of the reply."""

_KIND_OF_SOURCE = {
    Source.DRAFT: Kind.DRAFT,
    Source.RECOVERED: Kind.RECOVERED,
    Source.BONUS: Kind.BONUS,
    Source.PLAIN: Kind.PLAIN,
}


@dataclass(frozen=True, slots=True)
class Piece:
    """One token as shown. `special` names a control token or a fragment of a character, which have no text."""

    kind: Kind
    text: str
    special: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """What one event added: tokens, and of a round how they came about. It never changes, so it is sent to the browser once."""

    pieces: tuple[Piece, ...]
    played: Played | None = None


class Phase(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply so far.

    read: how much of a long prompt has been read, 0 to 1. outgrown: a round went without guesses because the drafter's
    own context was full. course: what the controller did.
    """

    phase: Phase = Phase.WAITING
    read: float = 0.0
    blocks: tuple[Block, ...] = ()
    tally: Tally = field(default_factory=Tally)
    seed: int | None = None
    reason: FinishReason | None = None
    message: str = ""
    outgrown: bool = False
    course: Course = field(default_factory=Course)

    @property
    def text(self) -> str:
        """The reply as the model wrote it, without the drafts that were lost."""
        return "".join(piece.text for block in self.blocks for piece in block.pieces if piece.kind not in LOST)


@dataclass(frozen=True, slots=True)
class Turn:
    """A message and its reply. `key` is unique in its conversation; a retry makes a turn with a new key."""

    key: int
    user: str
    reply: Reply = field(default_factory=Reply)


@dataclass(frozen=True, slots=True)
class Conversation:
    """`tally` sums over all replies ever written here, also those that a retry replaced: they were measured too."""

    id: str
    turns: tuple[Turn, ...] = ()
    tally: Tally = field(default_factory=Tally)
    next_key: int = 1


def reduce(reply: Reply, event: Event) -> Reply:
    """The reply after one more event."""
    return advance(reply, (event,))


def advance(reply: Reply, events: Sequence[Event]) -> Reply:
    """The reply after several events; the blocks are joined once, however many events there are."""
    blocks: list[Block] = []
    tally, course = reply.tally, reply.course
    for event in events:
        tally = tally.add(event)
        if isinstance(event, Prefilling):
            reply = replace(reply, read=event.done / event.prompt_tokens)
        elif isinstance(event, Prefilled):
            if event.token is not None:
                blocks.append(Block((_emitted(event.token),)))
            reply = replace(reply, phase=Phase.RUNNING, seed=event.seed)
        elif isinstance(event, Round):
            blocks.append(Block(round_pieces(event), played(event)))
            course = course.add(played(event))
            if event.k_reason is KReason.DRAFTER_CONTEXT and event.k_requested == 0:
                reply = replace(reply, outgrown=True)
        else:
            reply = _finished(reply, event)
    return replace(reply, blocks=(*reply.blocks, *blocks), tally=tally, course=course)


def _finished(reply: Reply, event: Finished) -> Reply:
    return replace(reply, phase=Phase.FINISHED, reason=event.reason, message=event.message)


def round_pieces(round_: Round) -> tuple[Piece, ...]:
    """The tokens of a round in reading order, with the drafts that were lost exactly where they were lost.

    Lost drafts stand before the token that took the place of the first of them: first what was struck out,
    then what was written instead.
    """
    lost = [decision for decision in round_.decisions if decision.outcome is not Outcome.ACCEPTED]
    if not lost:
        return tuple(_emitted(token) for token in round_.tokens)
    place = lost[0].position
    before = [_emitted(token) for token in round_.tokens if token.position < place]
    after = [_emitted(token) for token in round_.tokens if token.position >= place]
    return (*before, *(_lost(decision) for decision in lost), *after)


def _emitted(token: Token) -> Piece:
    return Piece(_KIND_OF_SOURCE[token.source], token.text, token.special)


def _lost(decision: TokenDecision) -> Piece:
    kind = Kind.REJECTED if decision.outcome is Outcome.REJECTED else Kind.DISCARDED
    return Piece(kind, decision.text, decision.special)


def begin(conversation: Conversation, user: str, replace_last: bool = False) -> Conversation:
    """A new turn at the end, or in place of the last one."""
    kept = conversation.turns[:-1] if replace_last else conversation.turns
    turn = Turn(conversation.next_key, user)
    return replace(conversation, turns=(*kept, turn), next_key=conversation.next_key + 1)


def progress(conversation: Conversation, key: int, events: Sequence[Event]) -> Conversation:
    """The conversation after events of the turn `key`, which is the last one. Another key changes nothing."""
    if not conversation.turns or conversation.turns[-1].key != key:
        return conversation
    last = conversation.turns[-1]
    turn = replace(last, reply=advance(last.reply, events))
    tally = conversation.tally
    for event in events:
        tally = tally.add(event)
    return replace(conversation, turns=(*conversation.turns[:-1], turn), tally=tally)


def abandon(conversation: Conversation, key: int) -> Conversation:
    """Nobody reads the events of this turn any more (the page was closed): keep what is there, as stopped."""
    if not conversation.turns or conversation.turns[-1].key != key:
        return conversation
    last = conversation.turns[-1]
    if last.reply.phase is Phase.FINISHED:
        return conversation
    reply = replace(last.reply, phase=Phase.FINISHED, reason=FinishReason.CANCELLED)
    return replace(conversation, turns=(*conversation.turns[:-1], replace(last, reply=reply)))


def prompt(system: str, turns: Iterable[Turn], user: str) -> tuple[Message, ...]:
    """What the model reads: system text if any, finished turns, the new message. Turns without a reply are left out."""
    messages = [Message("system", system)] if system.strip() else []
    for turn in turns:
        if written := turn.reply.text:
            messages += [Message("user", turn.user), Message("assistant", written)]
    return (*messages, Message("user", user))


def measured(reply: Tally, conversation: Tally) -> tuple[Summary, bool]:
    """Figures whose two speeds belong to one window, and whether that window is the reply alone.

    The reply's own window once it has both sides; until then the conversation's, for both sides.
    """
    own = reply.summary()
    if own.spec_tok_s is not None and own.baseline.tok_s is not None:
        return own, True
    return conversation.summary(), False
