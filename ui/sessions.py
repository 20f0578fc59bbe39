"""Who is talking: conversations by their secret id, and the replies being written now.

The only mutable thing in `ui`. Every handler runs on the server's one event loop, so there are no locks.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol, TypeVar

from ui.state import Conversation

Value = TypeVar("Value")

CAPACITY = 200
"""Conversations kept; beyond it the one unused for longest is forgotten. Its browser still has it and gives it back."""

CAPACITY_BLOCKS = 100_000
"""Blocks kept in all conversations, a few kilobytes each."""


class Work(Protocol):
    """What the engine does for somebody: a stream, or a race."""

    def cancel(self) -> None: ...


class Live:
    """Work that is being asked for or done. `stop` works at any moment, also before there is any."""

    def __init__(self) -> None:
        self.work: Work | None = None
        self.stopped = False
        self.started = False

    def stop(self) -> None:
        self.stopped = True
        if self.work is not None:
            self.work.cancel()

    def attach(self, work: Work) -> None:
        self.work = work
        if self.stopped:
            work.cancel()


def latest(store: OrderedDict[str, Value], session: str, fresh: Callable[[], Value], most: int) -> Value:
    """What is kept for that visitor, who is now the last to be forgotten; beyond `most` who came back last longest ago
    is."""
    value = store[session] if session in store else store.setdefault(session, fresh())
    store.move_to_end(session)
    while len(store) > most:
        store.popitem(last=False)
    return value


class Sessions:
    def __init__(self, capacity: int = CAPACITY, capacity_blocks: int = CAPACITY_BLOCKS) -> None:
        self._capacity, self._capacity_blocks = capacity, capacity_blocks
        self._conversations: OrderedDict[str, Conversation] = OrderedDict()
        self._live: dict[str, Live] = {}
        self._line: list[Live] = []

    def open(self, conversation_id: str) -> Conversation:
        """The conversation of that id, or a new one with a new secret id where there is none."""
        if conversation := self.find(conversation_id):
            self._conversations.move_to_end(conversation_id)
            return conversation
        return self.add(Conversation(secrets.token_urlsafe(18)))

    def add(self, conversation: Conversation) -> Conversation:
        """Take in one that is not known yet."""
        self._conversations[conversation.id] = conversation
        self._forget_oldest()
        return conversation

    def find(self, conversation_id: str) -> Conversation | None:
        return self._conversations.get(conversation_id)

    def put(self, conversation: Conversation) -> None:
        """Keep a newer state; ignored once the conversation was cleared."""
        if conversation.id in self._conversations:
            self._conversations[conversation.id] = conversation

    def drop(self, conversation_id: str) -> None:
        """Clear: stop what is being written, forget the rest."""
        self.stop(conversation_id)
        self._conversations.pop(conversation_id, None)

    def live(self, conversation_id: str) -> bool:
        return conversation_id in self._live

    def begin(self, conversation_id: str) -> Live:
        """Mark the conversation as being answered. Callers make sure that it is not."""
        self._live[conversation_id] = live = Live()
        self.join(live)
        return live

    def end(self, conversation_id: str, live: Live) -> None:
        live.stop()
        self.leave(live)
        if self._live.get(conversation_id) is live:
            del self._live[conversation_id]

    def stop(self, conversation_id: str) -> None:
        if live := self._live.get(conversation_id):
            live.stop()

    def release(self, conversation_id: str) -> None:
        """Stop what is being written, and let the conversation go on at once."""
        if live := self._live.get(conversation_id):
            self.end(conversation_id, live)

    def join(self, live: Live) -> None:
        """Stand in line, page and API alike."""
        self._line.append(live)

    def leave(self, live: Live) -> None:
        if live in self._line:
            self._line.remove(live)

    def ahead(self, live: Live) -> int:
        """How many that came earlier have not had their first token yet."""
        place = self._line.index(live) if live in self._line else 0
        return sum(not other.started for other in self._line[:place])

    def writing(self) -> int:
        """How many replies, races and experiments are asked for or under way, the API's too."""
        return len(self._line)

    def _forget_oldest(self) -> None:
        idle = [id_ for id_ in self._conversations if id_ not in self._live][:-1]  # never the newest
        blocks = sum(map(size, self._conversations.values()))
        for id_ in idle:
            if len(self._conversations) <= self._capacity and blocks <= self._capacity_blocks:
                return
            blocks -= size(self._conversations.pop(id_))


def size(conversation: Conversation) -> int:
    """Blocks that it holds in memory, those that an undo brings back too."""
    turns = {
        turn.key: turn for turns in (*conversation.past, *conversation.future, conversation.turns) for turn in turns
    }
    return sum(len(turn.reply.blocks) for turn in turns.values())
