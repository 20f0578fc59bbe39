"""What happens when a person does something. Each handler is an async function or generator that returns patches."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeVar

from engine import DecodingParams, Engine, EngineError, Facts, Finished, Prefilled, State, Status, Stream
from engine.lab import LoadLab
from ui import controls, updates
from ui.charts import reply as reply_charts
from ui.controls import corrected, readable
from ui.eta import Pace
from ui.html import prose, render
from ui.html.render import both, missing_drafters
from ui.inspect import token_card
from ui.jobs import GLANCE_S, HEARTBEAT_S, pace_s, refusal_notice
from ui.recording import saved
from ui.sessions import Live, Sessions, Work
from ui.state import (
    About,
    Conversation,
    Reply,
    Turn,
    abandon,
    about_of,
    begin,
    index_of,
    progress,
    prompt,
    reattribute,
    redo,
    undo,
    writing,
)
from ui.updates import Patch

log = logging.getLogger(__name__)

AnyWork = TypeVar("AnyWork", bound=Work)


class Handlers:
    """The page's events, bound to one engine and one set of conversations."""

    def __init__(self, engine: Engine, options: controls.Options, lab: LoadLab | None = None) -> None:
        """lab: what runs experiments on this engine; its own by default."""
        self.engine = engine
        self.lab = lab or LoadLab(engine)
        self.options = options
        self._started_with = engine.config
        self.sessions = Sessions()
        self.pace = Pace()

    def facts(self) -> Facts | None:
        return self.engine.facts() if self.engine.status().state is State.READY else None

    def table(self) -> tuple[controls.Control, ...]:
        facts = self.facts()
        return controls.table(replace(self.options, drafter=self.drafter()), facts.drafters if facts else None)

    def drafter(self) -> str:
        """What was asked for with the pair in use: on the command line, or when it took the place of that one."""
        config = self.engine.config
        return self.options.drafter if config is self._started_with else config.drafter

    def sync(self, conversation_id: str) -> Patch:
        """Everything, for a page that opens, reloads or lost track. "": a new conversation."""
        if self.forgotten(conversation_id):
            return updates.unknown(conversation_id)
        conversation = self.sessions.open(conversation_id)
        if not self.sessions.live(conversation.id) and conversation.turns:
            conversation = abandon(conversation, conversation.turns[-1].key)
            self.sessions.put(conversation)
        status = self.engine.status()
        return updates.everything(conversation, status, self.facts(), self.pace.left_s(status, time.monotonic()))

    def forgotten(self, conversation_id: str) -> bool:
        """The page names a conversation that is not here (any more); it is asked for it before anything is done with
        it."""
        return bool(conversation_id) and self.sessions.find(conversation_id) is None

    def missing(self) -> str:
        """Which drafters there are not, and why; "" until the engine says what it has."""
        facts = self.facts()
        return missing_drafters(facts.drafters, self.drafter()) if facts else ""

    def stop(self, conversation_id: str) -> None:
        self.sessions.stop(conversation_id)

    def delete(self, conversation_id: str) -> None:
        """Stop what is being written there and forget the rest; the page has asked for confirmation."""
        self.sessions.drop(conversation_id)

    def restore(self, record: object) -> Patch:
        """A conversation that its browser kept, for a server that no longer knows it. What the server knows is
        newer."""
        try:
            conversation = saved.conversation(record)
        except saved.NotSaved:
            log.warning("a conversation that came back could not be read", exc_info=True)
            return updates.unknown("") | {"notice": both("notice.unreadable")}
        if self.sessions.find(conversation.id) is None:
            self.sessions.add(conversation)
        return self.sync(conversation.id)

    def undo(self, conversation_id: str, again: bool = False) -> Patch:
        """Take back the last change; again: make it once more. A reply being written is stopped first."""
        if self.forgotten(conversation_id):
            return updates.unknown(conversation_id)
        conversation = self.sessions.open(conversation_id)
        self.sessions.release(conversation.id)
        if conversation.turns:
            conversation = abandon(conversation, conversation.turns[-1].key)
        after = (redo if again else undo)(conversation)
        self.sessions.put(after)
        lost_turns, new_turns = conversation.turns[len(after.turns) :], after.turns[len(conversation.turns) :]
        taken_back = lost_turns[0].user if lost_turns and not again else ""
        return updates.after_undo(after, taken_back, new_turns[-1].user if new_turns else "")

    async def answer(self, conversation_id: str, what: str, args: Mapping[str, object]) -> Patch | None:
        """What the page asks for now and then; None where there is nothing (any more) to say."""
        conversation = self.sessions.find(conversation_id)
        if conversation is None:
            return updates.unknown(conversation_id) if conversation_id else None
        payload: object = None
        if what == "charts":
            reply = conversation.turns[-1].reply if conversation.turns else Reply()
            payload = await asyncio.to_thread(reply_charts.charts, reply)
        elif what == "meter":
            payload = await self._meter(conversation, str(args.get("text", "")))
        elif what == "card" and (turn := _turn(conversation, args.get("key"))) is not None:
            payload = token_card.answer(turn, args.get("block"), args.get("piece"))
        elif what == "prose" and (turn := _turn(conversation, args.get("key"))) is not None:
            start = _index(args.get("from"))  # in a thread: a long table takes a while
            payload = {"key": turn.key, **await asyncio.to_thread(prose.answer, turn.reply.text, start)}
        return None if payload is None else updates.answer(conversation, what, payload)

    async def _meter(self, conversation: Conversation, message: str) -> str:
        """What the message being written would take of the context, beside what the conversation takes."""
        facts = self.facts()
        if facts is None:
            return ""
        user = readable(message)
        messages = prompt("", conversation.turns, user) if user else ()
        count = await asyncio.to_thread(self.engine.count_tokens, messages) if messages else None
        return render.meter(conversation, facts.context_len, count)

    def send(self, conversation_id: str, message: object, values: Sequence[object]) -> AsyncGenerator[Patch, None]:
        if self.forgotten(conversation_id):
            return _only(updates.unknown(conversation_id))
        conversation = self.sessions.open(conversation_id)
        user = readable(message)
        if not user:
            return _only(updates.notice(conversation, both("notice.empty")))
        return self._reply(conversation, len(conversation.turns), user, values)

    def edit(
        self, conversation_id: str, key: object, message: object, values: Sequence[object]
    ) -> AsyncGenerator[Patch, None]:
        """Another message in place of an earlier one; what came after it goes, and an undo brings it back."""
        if self.forgotten(conversation_id):
            return _only(updates.unknown(conversation_id))
        conversation = self.sessions.open(conversation_id)
        user, place = readable(message), _place(conversation, key)
        if not user or place is None:
            return _only(updates.notice(conversation, both("notice.nothing" if user else "notice.empty")))
        return self._reply(conversation, place, user, values)

    def retry(
        self, conversation_id: str, key: object, values: Sequence[object], same_seed: bool
    ) -> AsyncGenerator[Patch, None]:
        """Write a reply again with the settings of now, but with the seed that it had or a new one. The old one goes
        only once the new one has begun."""
        if self.forgotten(conversation_id):
            return _only(updates.unknown(conversation_id))
        conversation = self.sessions.open(conversation_id)
        place = _place(conversation, key)
        if place is None:
            return _only(updates.notice(conversation, both("notice.nothing")))
        turn = conversation.turns[place]
        return self._reply(conversation, place, turn.user, values, seed=turn.reply.seed if same_seed else None)

    async def _reply(
        self,
        conversation: Conversation,
        keep: int,
        user: str,
        values: Sequence[object],
        seed: int | Literal["settings"] | None = "settings",
    ) -> AsyncGenerator[Patch, None]:
        """A reply to `user` behind the first `keep` turns. seed: as the settings say, a certain one, or None, a new
        one."""
        if self.sessions.live(conversation.id):
            yield updates.notice(conversation, both("notice.busy"))
            return
        live = self.sessions.begin(conversation.id)
        key = conversation.next_key
        try:
            async for status in self.until_loaded(live):
                left_s = self.pace.left_s(status, time.monotonic())
                yield updates.still_loading(conversation, status, self.facts(), left_s)
            if live.stopped:
                yield updates.notice(conversation, both("notice.unsent"))
                return
            settings, corrections = controls.settings(self.table(), values)
            params = settings.params
            if seed != "settings":
                params = replace(params, sampling=replace(params.sampling, seed=seed))
            try:
                messages = prompt(settings.system, conversation.turns[:keep], user)
                stream = await self.ask(live, lambda: self.engine.stream(messages, params, conversation.id))
            except EngineError as refusal:
                yield updates.notice(conversation, refusal_notice(refusal))
                return
            self.sessions.put(begin(conversation, user, keep, self.about(params, settings.system)))
            note = " ".join(map(corrected, corrections))
            async for patch in self._follow(live, stream, conversation.id, key, params.probe_every > 0, note):
                yield patch
        except Exception:  # a mistake of ours must not leave the page waiting
            log.exception("a reply failed")
            self.sessions.end(conversation.id, live)
            yield self.sync(conversation.id) | {"notice": both("notice.bug")}
        finally:
            # Runs however the generator ends, also when Gradio closes it because the page has gone.
            self.sessions.end(conversation.id, live)
            if latest := self.sessions.find(conversation.id):
                self.sessions.put(abandon(latest, key))

    def about(self, params: DecodingParams, system: str) -> About | None:
        """What writes a reply with these settings; None while the engine is not ready."""
        facts = self.facts()
        return None if facts is None else about_of(facts, params, system)

    def _about_now(self, conversation: Conversation) -> About | None:
        """Of the reply that begins: with the pair in use now, which may not be the one that it was asked of."""
        about = conversation.turns[-1].about
        return None if about is None else self.about(about.params, about.system)

    async def until_loaded(self, live: Live) -> AsyncIterator[Status]:
        """How far the engine is, time and again, while it loads; once more when that has ended. Nothing if it had."""
        waited = False
        while not live.stopped and (status := self.engine.status()).state is State.LOADING:
            waited = True
            yield status
            await asyncio.sleep(HEARTBEAT_S / 4)
        if waited and not live.stopped:
            yield status

    async def ask(self, live: Live, open_work: Callable[[], AnyWork]) -> AnyWork:
        """Ask the engine for a stream or a race, off the event loop because a long prompt takes a while to split into
        tokens."""
        asking = asyncio.ensure_future(asyncio.to_thread(open_work))

        def attach(future: asyncio.Future[AnyWork]) -> None:
            # A callback, so that work that begins after this task was cancelled is cancelled too.
            if not future.cancelled() and future.exception() is None:
                live.attach(future.result())

        asking.add_done_callback(attach)
        await asyncio.shield(asking)
        live.attach(asking.result())
        return asking.result()

    async def _follow(
        self, live: Live, stream: Stream, conversation_id: str, key: int, probing: bool, note: str
    ) -> AsyncGenerator[Patch, None]:
        """Patches until the reply is finished or its conversation is gone."""
        sending = updates.Sending()
        last_sent_s, start_s = 0.0, time.monotonic()
        while not stream.done:
            events = stream.take(0)
            if any(isinstance(event, Finished) for event in events):
                # Before the page hears of it, since it may send the next message at once.
                self.sessions.end(conversation_id, live)
            if events or time.monotonic() - last_sent_s > HEARTBEAT_S:
                conversation = self.sessions.find(conversation_id)
                if conversation is None or not writing(conversation, key):
                    return
                if any(isinstance(event, Prefilled) for event in events):
                    live.started = True
                    conversation = reattribute(conversation, self._about_now(conversation))
                conversation = progress(conversation, key, events)
                self.sessions.put(conversation)
                start, blocks = sending.more(conversation.turns[-1].reply.blocks)
                yield updates.latest(conversation, start, blocks, self.sessions.ahead(live), probing, note)
                last_sent_s = time.monotonic()
            await asyncio.sleep(pace_s(time.monotonic() - start_s) if events else GLANCE_S)


async def _only(patch: Patch) -> AsyncGenerator[Patch, None]:
    yield patch


def _index(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _place(conversation: Conversation, key: object) -> int | None:
    return index_of(conversation, key) if isinstance(key, int) else None


def _turn(conversation: Conversation, key: object) -> Turn | None:
    place = _place(conversation, key)
    return None if place is None else conversation.turns[place]
