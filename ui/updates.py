"""What is sent to the page: small patches that assets/page/patches.js applies.

Blocks of a reply never change, so a patch carries only those from index `from` on; the page appends what it lacks.
Gradio may skip values when they come faster than the browser draws. Therefore each patch repeats the blocks of the
last few, and a page that still finds a gap asks for everything (`sync`). A patch thus never has to arrive.

A block is sent as its HTML and its row (see `engine.trace.reply`), without the lists of likeliest tokens: with the rows
the browser keeps the conversation, and can give it back to a server that no longer knows it.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterable, Sequence
from typing import Any

from engine import Facts, Status, trace
from ui.html import panel, render
from ui.recording import saved
from ui.state import Block, Conversation, Phase, Reply, Turn

Patch = dict[str, Any]
BlockPatch = tuple[str, trace.Row]
"""A block as it is sent: its HTML and its row."""

_versions = itertools.count(time.time_ns() // 1_000_000)
"""No two patches are equal, so the page notices each; and they go on growing when the server is started again."""


def with_version(patch: Patch) -> Patch:
    """Newer than all before it."""
    return {"v": next(_versions)} | patch


def pack(patch: Patch, conversation_id: str = "") -> str:
    """A patch as one string, with the conversation id that the page asked with: the page follows to a new id only from
    there.

    One string, because Gradio sends nested values as differences to the one before, and its list differences are
    wrong when an inner list loses several entries at once. A string that does not grow is simply replaced.
    """
    # No tag in it, not even as text: Gradio would warn of it on the terminal.
    return json.dumps(patch | {"asked": conversation_id}, separators=(",", ":")).replace("<", "\\u003c")


def everything(conversation: Conversation, status: Status, facts: Facts | None, left_s: float | None = None) -> Patch:
    """The whole conversation: for a page that has just opened, or has lost track. left_s: of this phase of loading."""
    return _patch(conversation, _all(conversation)) | {
        "figures": _figures(conversation) | {"engine": render.engine_chip(status, facts), "note": render.note(facts)},
        "loading": render.loading_notice(status, left_s=left_s),
        "ready": facts is not None,
        "meter": render.meter(conversation, facts.context_len) if facts else "",
    }


def unknown(conversation_id: str) -> Patch:
    """The server does not know that conversation: a page that has it gives it back, another starts a new one."""
    return _patch(Conversation(conversation_id), []) | {"unknown": True}


def after_undo(conversation: Conversation, taken_back: str = "", came_back: str = "") -> Patch:
    """Its turns after an undo or a redo. taken_back: a message that is no longer there and goes back into the box;
    came_back: one that is there again."""
    return _patch(conversation, _all(conversation)) | {
        "figures": _figures(conversation),
        "notice": "",
        "taken_back": taken_back,
        "came_back": came_back,
    }


def answer(conversation: Conversation, what: str, payload: object) -> Patch:
    """What the page asked for, under its name; the transcript stays as it is."""
    patch = _patch(conversation, []) | {what: payload}
    del patch["running"]  # the patch that ends the reply says so, with its last words
    return patch


def block_patches(blocks: Iterable[Block]) -> list[BlockPatch]:
    """What is sent of blocks. A patch repeats those of the last few, so whoever sends many makes each once."""
    return [(render.block(block), trace.row(block.event, tops=False)) for block in blocks]


REPEATED = 3
"""How many updates' blocks each message repeats."""


class Sending:
    """The blocks of a reply that grows, as they are sent: each is made once, and repeated in the next few messages."""

    def __init__(self) -> None:
        self._blocks: list[BlockPatch] = []
        self._begins = [0] * REPEATED  # where those of the last messages began, oldest first

    def more(self, blocks: Sequence[Block]) -> tuple[int, list[BlockPatch]]:
        """blocks: all of the reply so far. Where what is to be sent now begins, and that."""
        self._blocks += block_patches(blocks[len(self._blocks) :])
        begin = self._begins[0]
        self._begins = [*self._begins[1:], len(self._blocks)]
        return begin, self._blocks[begin:]


def latest(
    conversation: Conversation,
    start: int,
    blocks: list[BlockPatch],
    ahead: int = 0,
    probing: bool = True,
    note: str = "",
) -> Patch:
    """The last turn with its `blocks` from `start` on, and the figures. Its size does not depend on the reply's
    length."""
    *earlier, turn = conversation.turns
    return (
        _patch(conversation, [_turn(earlier[-1] if earlier else None, turn, start, blocks, ahead)])
        | {
            "figures": _figures(conversation, probing),
            "notice": note,
            "took": turn.key,
            "say": _say(turn),
        }
        | ({"meter": render.meter(conversation, turn.about.context_len)} if turn.about else {})
    )


def notice(conversation: Conversation, html: str) -> Patch:
    """A sentence above the message box; the transcript stays as it is."""
    return _patch(conversation, []) | {"notice": html}


def still_loading(
    conversation: Conversation, status: Status, facts: Facts | None, left_s: float | None = None
) -> Patch:
    """A message waits for the engine. It says so above the box and in the header, and no longer in the blank page."""
    notice_ = render.loading_notice(status, pending=True, left_s=left_s)
    return _patch(conversation, []) | {
        "figures": {"engine": render.engine_chip(status, facts), "note": render.note(facts)},
        "loading": "",
        "notice": notice_,
        "running": True,
    }


def _patch(conversation: Conversation, turns: list[Patch]) -> Patch:
    patch = {
        "conversation": conversation.id,
        "keys": [turn.key for turn in conversation.turns],
        "undo": bool(conversation.past),
        "redo": bool(conversation.future),
        "turns": turns,
        "running": bool(conversation.turns) and conversation.turns[-1].reply.phase is not Phase.FINISHED,
    }
    return with_version(patch)


def _turn(before: Turn | None, turn: Turn, start: int, blocks: list[BlockPatch], ahead: int = 0) -> Patch:
    part = {
        "key": turn.key,
        "from": start,
        "blocks": blocks,
        "foot": render.turn_foot(turn, ahead),
        "between": render.between(before, turn),
        "phase": turn.reply.phase.value,
    }
    if start == 0:
        part |= {"head": render.turn_head(turn), "user": turn.user, "about": saved.about_json(turn.about)}
    return part


def _all(conversation: Conversation) -> list[Patch]:
    befores = (None, *conversation.turns)
    return [
        _turn(before, turn, 0, block_patches(turn.reply.blocks))
        for before, turn in zip(befores, conversation.turns, strict=False)
    ]


def _figures(conversation: Conversation, probing: bool = True) -> Patch:
    reply = conversation.turns[-1].reply if conversation.turns else Reply()
    bars = panel.bars(reply.tally, conversation.tally)
    figures = panel.figures(reply.tally, conversation.tally, probing, reply.course, reply.phase is not Phase.FINISHED)
    return figures | {f"bar.{side}": share for side, share in bars.items()}


def _say(turn: Turn) -> str:
    """For screen readers: the start and the end, not every token."""
    if turn.reply.phase is Phase.FINISHED:
        return render.both("say.finished", tokens=turn.reply.tally.tokens)
    return render.both("say.started") if turn.reply.phase is Phase.RUNNING else ""
