"""What happens when a person does something. Each handler is an async function or generator that returns patches."""

from __future__ import annotations

import asyncio
import logging
import time
import unicodedata
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from html import escape

from engine.config import DecodingParams, Message
from engine.engine import Engine, Facts, State, Status
from engine.errors import Busy, ContextFull, EngineError
from engine.events import Finished, Prefilled
from engine.stream import Stream
from ui import controls, patches
from ui.patches import Patch
from ui.render import both, missing_drafters
from ui.sessions import Live, Sessions
from ui.state import Conversation, Turn, abandon, begin, progress, prompt

log = logging.getLogger(__name__)

UPDATE_S = 1 / 12
"""At most so often is the page told. Only the page is paced; the engine runs freely and its queue is emptied each time."""

GLANCE_S = 0.02
"""How soon the queue is looked at again when it was empty, so that the first token shows at once."""

HEARTBEAT_S = 1.0
"""A patch goes out at least so often: Gradio notices a closed page only when it sends, and the page a lost server."""

REPEATED = 3
"""How many updates' blocks each patch repeats (see `patches`)."""

_BLANK = frozenset(
    map(chr, (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, *range(0x180B, 0x1810), *range(0xFE00, 0xFE10),
              *range(0xE0100, 0xE01F0)))
)  # fmt: skip
"""Characters that show nothing although Unicode counts them as letters, marks or symbols: fillers, variation selectors."""


class Handlers:
    """The page's events, bound to one engine and one set of conversations."""

    def __init__(self, engine: Engine, options: controls.Options) -> None:
        self.engine = engine
        self.options = options
        self.sessions = Sessions()

    def facts(self) -> Facts | None:
        return self.engine.facts() if self.engine.status().state is State.READY else None

    def table(self) -> tuple[controls.Control, ...]:
        facts = self.facts()
        return controls.table(self.options, facts.drafters if facts else None)

    def sync(self, conversation_id: str) -> Patch:
        """Everything, for a page that opens, reloads or lost track."""
        conversation = self.sessions.open(conversation_id)
        if not self.sessions.live(conversation.id) and conversation.turns:
            conversation = abandon(conversation, conversation.turns[-1].key)
            self.sessions.put(conversation)
        return patches.everything(conversation, self.engine.status(), self.facts())

    def missing(self) -> str:
        """Which drafters there are not, and why; "" until the engine says what it has."""
        facts = self.facts()
        return missing_drafters(facts.drafters, self.options.drafter) if facts else ""

    def stop(self, conversation_id: str) -> None:
        self.sessions.stop(conversation_id)

    def clear(self, conversation_id: str) -> Patch:
        """Stop, forget, and start a conversation with a new id; late patches of the old one are ignored by the page."""
        self.sessions.drop(conversation_id)
        return patches.everything(self.sessions.open(""), self.engine.status(), self.facts())

    def send(self, conversation_id: str, message: object, values: Sequence[object]) -> AsyncGenerator[Patch, None]:
        conversation = self.sessions.open(conversation_id)
        user = readable(message)
        if not user:
            return _only(patches.notice(conversation, both("notice.empty")))
        return self._reply(conversation, conversation.turns, user, values, replaces=False)

    def retry(self, conversation_id: str, values: Sequence[object]) -> AsyncGenerator[Patch, None]:
        """Write the last reply again with the settings of now; the old one goes only once the new one has begun."""
        conversation = self.sessions.open(conversation_id)
        if not conversation.turns:
            return _only(patches.notice(conversation, both("notice.nothing")))
        *before, last = conversation.turns
        return self._reply(conversation, before, last.user, values, replaces=True)

    async def _reply(
        self, conversation: Conversation, before: Sequence[Turn], user: str, values: Sequence[object], replaces: bool
    ) -> AsyncGenerator[Patch, None]:
        if self.sessions.live(conversation.id):
            yield patches.notice(conversation, both("notice.busy"))
            return
        live = self.sessions.begin(conversation.id)
        key = conversation.next_key
        try:
            async for status in self.until_loaded(live):
                yield patches.still_loading(conversation, status, self.facts())
            if live.stopped:
                yield patches.notice(conversation, both("notice.unsent"))
                return
            try:
                settings = controls.settings(self.table(), values)
                messages = prompt(settings.system, before, user)
                await self.ask(live, messages, settings.params, conversation.id)
            except (controls.Refusal, EngineError) as refusal:
                yield patches.notice(conversation, refusal_notice(refusal))
                return
            self.sessions.put(begin(conversation, user, replaces))
            probing = settings.params.probe_every > 0
            async for patch in self._follow(live, conversation.id, key, probing):
                yield patch
        except Exception:  # a mistake of ours must not leave the page waiting
            log.exception("a reply failed")
            self.sessions.end(conversation.id, live)
            yield self.sync(conversation.id) | {"notice": both("notice.bug")}
        finally:
            # Runs however the generator ends, also when Gradio closes it because the page has gone.
            self.sessions.end(conversation.id, live)
            if left := self.sessions.find(conversation.id):
                self.sessions.put(abandon(left, key))

    async def until_loaded(self, live: Live) -> AsyncIterator[Status]:
        """How far the engine is, time and again, while it loads; once more when that has ended. Nothing if it had."""
        waited = False
        while not live.stopped and (status := self.engine.status()).state is State.LOADING:
            waited = True
            yield status
            await asyncio.sleep(HEARTBEAT_S / 4)
        if waited and not live.stopped:
            yield status

    async def ask(
        self, live: Live, messages: Sequence[Message], params: DecodingParams, conversation_id: str = ""
    ) -> None:
        """Ask the engine for a stream, off the event loop because a long prompt takes a while to split into tokens."""
        asking = asyncio.ensure_future(asyncio.to_thread(self.engine.stream, messages, params, conversation_id))

        def attach(done: asyncio.Future[Stream]) -> None:
            # A callback, so that a stream that opens after this task was cancelled is cancelled too.
            if not done.cancelled() and done.exception() is None:
                live.attach(done.result())

        asking.add_done_callback(attach)
        await asyncio.shield(asking)
        live.attach(asking.result())

    async def _follow(self, live: Live, conversation_id: str, key: int, probing: bool) -> AsyncGenerator[Patch, None]:
        """Patches until the reply is finished or its conversation is gone."""
        stream = live.stream
        assert stream is not None
        sent = [0] * REPEATED  # where the blocks of the last updates began, oldest first
        told = 0.0
        while not stream.done:
            events = stream.take(0)
            if any(isinstance(event, Finished) for event in events):
                # Before the page hears of it, since it may send the next message at once.
                self.sessions.end(conversation_id, live)
            if events or time.monotonic() - told > HEARTBEAT_S:
                conversation = self.sessions.find(conversation_id)
                if conversation is None or conversation.turns[-1].key != key:
                    return
                live.started = live.started or any(isinstance(event, Prefilled) for event in events)
                conversation = progress(conversation, key, events)
                self.sessions.put(conversation)
                yield patches.latest(conversation, sent[0], self.sessions.ahead(live), probing)
                sent = [*sent[1:], len(conversation.turns[-1].reply.blocks)]
                told = time.monotonic()
            await asyncio.sleep(UPDATE_S if events else GLANCE_S)


async def _only(patch: Patch) -> AsyncGenerator[Patch, None]:
    yield patch


def readable(message: object) -> str:
    """The message as text that can be sent on, or "" if a person could not see anything in it."""
    written = controls.sendable(message) if isinstance(message, str) else ""
    visible = any(
        not (char.isspace() or char in _BLANK or unicodedata.category(char) in ("Cf", "Cc")) for char in written
    )
    return written if visible else ""


def refusal_notice(refusal: Exception) -> str:
    """One sentence that says what to do, in both languages where we know the kind."""
    if isinstance(refusal, controls.Refusal):
        words = {lang: escape(refusal.sentence(lang)) for lang in ("en", "zh")}
        return f'<span class="en" lang="en">{words["en"]}</span><span class="zh" lang="zh">{words["zh"]}</span>'
    if isinstance(refusal, ContextFull):
        return both("notice.context", prompt=refusal.prompt_tokens, context=refusal.context_len)
    if isinstance(refusal, Busy):
        return both("notice.full")
    return both("notice.failed", message=str(refusal))
