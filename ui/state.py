"""What a conversation looks like at one moment, as frozen plain data, and how an event changes it. Pure.

Provenance comes from the engine's events and is only carried along here: a piece keeps the source of its token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from engine import (
    DecodingParams,
    Event,
    Facts,
    Finished,
    FinishReason,
    KReason,
    Message,
    Outcome,
    Prefilled,
    Prefilling,
    Round,
    Source,
    Summary,
    Tally,
    Token,
    TokenDecision,
)
from ui.controller_history import Course, round_figures


class Kind(StrEnum):
    """How a piece of the transcript is shown: the four sources, and the two fates of a draft that was not used."""

    DRAFT = "draft"
    RECOVERED = "recovered"
    BONUS = "bonus"
    PLAIN = "plain"
    REJECTED = "rejected"
    DISCARDED = "discarded"


LOST_KINDS = frozenset({Kind.REJECTED, Kind.DISCARDED})
"""Kinds that are shown but are no part of the reply."""

_KIND_OF_SOURCE = {
    Source.DRAFT: Kind.DRAFT,
    Source.RECOVERED: Kind.RECOVERED,
    Source.BONUS: Kind.BONUS,
    Source.PLAIN: Kind.PLAIN,
}


@dataclass(frozen=True, slots=True)
class Piece:
    """One token as shown. `special` names a control token or a fragment of a character, which have no text.

    prob: the target's probability of it without temperature and filters, where that was asked for.
    """

    kind: Kind
    text: str
    special: str = ""
    prob: float | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """One event of a reply and the tokens that it added, none at the end. It never changes, so it is sent to the
    browser once."""

    event: Prefilled | Round | Finished
    pieces: tuple[Piece, ...] = ()


class Phase(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply so far.

    read_share: how much of a long prompt has been read, 0 to 1. outgrown: a round went without guesses because the
    drafter's own context was full. course: what the controller did.
    """

    phase: Phase = Phase.WAITING
    read_share: float = 0.0
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
        return "".join(piece.text for block in self.blocks for piece in block.pieces if piece.kind not in LOST_KINDS)

    @property
    def token_ids(self) -> tuple[int, ...]:
        return tuple(token.id for block in self.blocks for token in tokens_of(block.event))


@dataclass(frozen=True, slots=True)
class About:
    """What a reply was written by and with. drafters: those that there were; drafter: the name of the model or head
    among them."""

    target: str
    weights: str
    kernel: str
    device: str
    exact: bool
    context_len: int
    drafters: tuple[str, ...]
    params: DecodingParams
    system: str = ""
    drafter: str = ""

    @property
    def pair(self) -> tuple[str, str, str]:
        """What makes it another pair: the models, and how the target's weights are kept."""
        return self.target, self.weights, self.drafter


def about_of(facts: Facts, params: DecodingParams, system: str = "") -> About:
    """What a reply is written by, on that engine with those settings."""
    return About(
        facts.target, facts.weights, facts.kernel, facts.device, facts.exact, facts.context_len, facts.drafters,
        params, system, facts.drafter_name,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Turn:
    """A message and its reply. `key` is unique in its conversation; whatever writes the reply again makes a new
    turn."""

    key: int
    user: str
    reply: Reply = field(default_factory=Reply)
    about: About | None = None


Turns = tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    """`tally` sums over all replies ever written here, also those that were replaced: they were measured too.

    past, future: what `turns` was before the changes that can be undone, and after those that were, newest last.
    """

    id: str
    turns: Turns = ()
    tally: Tally = field(default_factory=Tally)
    next_key: int = 1
    past: tuple[Turns, ...] = ()
    future: tuple[Turns, ...] = ()


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
            reply = replace(reply, read_share=min(1.0, event.done / max(1, event.prompt_tokens)))
        elif isinstance(event, Prefilled):
            blocks.append(Block(event, () if event.token is None else (_piece_of_token(event.token),)))
            reply = replace(reply, phase=Phase.RUNNING, seed=event.seed)
        elif isinstance(event, Round):
            blocks.append(Block(event, round_pieces(event)))
            course = course.add(round_figures(event))
            if event.k_reason is KReason.DRAFTER_CONTEXT and event.k_requested == 0:
                reply = replace(reply, outgrown=True)
        else:
            blocks.append(Block(event))
            reply = _finish(reply, event)
    return replace(reply, blocks=(*reply.blocks, *blocks), tally=tally, course=course)


def _finish(reply: Reply, event: Finished) -> Reply:
    return replace(reply, phase=Phase.FINISHED, reason=event.reason, message=event.message)


def round_pieces(round_: Round) -> tuple[Piece, ...]:
    """The tokens of a round in reading order, with the drafts that were lost exactly where they were lost.

    Lost drafts stand before the token that took the place of the first of them: first what was struck out, then what
    was written instead.
    """
    losses = [decision for decision in round_.decisions if decision.outcome is not Outcome.ACCEPTED]
    if not losses:
        return tuple(_piece_of_token(token) for token in round_.tokens)
    place = losses[0].position
    before = [_piece_of_token(token) for token in round_.tokens if token.position < place]
    after = [_piece_of_token(token) for token in round_.tokens if token.position >= place]
    return (*before, *(_piece_of_draft(decision) for decision in losses), *after)


def tokens_of(event: Event) -> tuple[Token, ...]:
    """What an event added to the reply."""
    if isinstance(event, Prefilled):
        return () if event.token is None else (event.token,)
    return event.tokens if isinstance(event, Round) else ()


def _piece_of_token(token: Token) -> Piece:
    return Piece(_KIND_OF_SOURCE[token.source], token.text, token.special, token.raw_prob)


def _piece_of_draft(decision: TokenDecision) -> Piece:
    kind = Kind.REJECTED if decision.outcome is Outcome.REJECTED else Kind.DISCARDED
    prob = decision.detail.raw_target_prob if decision.detail else None
    return Piece(kind, decision.text, decision.special, prob)


UNDO_DEPTH = 20
"""How many changes of a conversation can be undone."""


def begin(conversation: Conversation, user: str, keep: int | None = None, about: About | None = None) -> Conversation:
    """A new turn behind the first `keep` ones (None: all), in place of those after them."""
    turn = Turn(conversation.next_key, user, about=about)
    past = (*conversation.past, conversation.turns)[-UNDO_DEPTH:]
    turns = (*conversation.turns[:keep], turn)
    return replace(conversation, turns=turns, next_key=turn.key + 1, past=past, future=())


def undo(conversation: Conversation) -> Conversation:
    """As it was before its last change, if there was one."""
    if not conversation.past:
        return conversation
    *past, turns = conversation.past
    return replace(conversation, turns=turns, past=tuple(past), future=(*conversation.future, conversation.turns))


def redo(conversation: Conversation) -> Conversation:
    """The opposite of `undo`."""
    if not conversation.future:
        return conversation
    *future, turns = conversation.future
    return replace(conversation, turns=turns, past=(*conversation.past, conversation.turns), future=tuple(future))


def index_of(conversation: Conversation, key: int) -> int | None:
    """Where the turn of that key is."""
    return next((i for i, turn in enumerate(conversation.turns) if turn.key == key), None)


def writing(conversation: Conversation, key: int) -> bool:
    """Whether the last turn is that one, and its reply not finished."""
    last = conversation.turns[-1] if conversation.turns else None
    return last is not None and last.key == key and last.reply.phase is not Phase.FINISHED


def progress(conversation: Conversation, key: int, events: Sequence[Event]) -> Conversation:
    """The conversation after events of the turn `key`, which is the last one. Another key changes nothing, and nothing
    follows the end of a reply."""
    if not writing(conversation, key):
        return conversation
    last = conversation.turns[-1]
    turn = replace(last, reply=advance(last.reply, events))
    tally = conversation.tally
    for event in events:
        tally = tally.add(event)
    return replace(conversation, turns=(*conversation.turns[:-1], turn), tally=tally)


def reattribute(conversation: Conversation, about: About | None) -> Conversation:
    """The last turn as written by another pair than was in use when it was asked for: it waited while they were
    changed."""
    *turns, last = conversation.turns
    if about is None or (last.about is not None and last.about.pair == about.pair):
        return conversation
    return replace(conversation, turns=(*turns, replace(last, about=about)))


def abandon(conversation: Conversation, key: int) -> Conversation:
    """Nobody reads the events of this turn any more (the page was closed): keep what is there, as stopped."""
    if not writing(conversation, key):
        return conversation
    last = conversation.turns[-1]
    end = Finished(FinishReason.CANCELLED, last.reply.text, last.reply.token_ids)
    return progress(conversation, key, [end])


def prompt(system: str, turns: Iterable[Turn], user: str) -> tuple[Message, ...]:
    """What the model reads: system text if any, finished turns, the new message. Turns without a reply are left out."""
    messages = [Message("system", system)] if system.strip() else []
    for turn in turns:
        if reply_text := turn.reply.text:
            messages += [Message("user", turn.user), Message("assistant", reply_text)]
    return (*messages, Message("user", user))


def measured_window(reply: Tally, conversation: Tally) -> tuple[Summary, bool]:
    """Figures whose two speeds belong to one window, and whether that window is the reply alone.

    The reply's own window once it has both sides; until then the conversation's, for both sides.
    """
    own = reply.summary()
    if own.spec_tok_s is not None and own.baseline.tok_s is not None:
        return own, True
    return conversation.summary(), False
