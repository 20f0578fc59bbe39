"""What the tab "Learn" asks of the engine: each lesson is a short measurement whose figures are shown as they come.

As in `ui.race.handlers` each handler returns or yields messages for the page; assets/page/learn.js takes them. A
message is
    lesson    {key, name, html?, notice?, running, share?, left?}: how far one is; html holds all of it so far
    pane      a round of the reader's own sentence, up close
    point     the figures of the reader's conversation for the arithmetic; null where there are none
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, TypeVar

from engine import USUAL_K, Channel, DecodingParams, Detail, EngineError, Message, Round, Rule, SamplingParams, Summary
from engine.lab import ExperimentName, Failed, Result, Step
from ui.chat.handlers import Handlers
from ui.controls import readable
from ui.examples import EXAMPLES
from ui.html.render import both, disturbed, loading_notice
from ui.inspect import inspector
from ui.jobs import GLANCE_S, HEARTBEAT_S, refusal_notice
from ui.learn import page, tables
from ui.recording.recordings import Lane, LaneName, Recording, Recordings, close, extend
from ui.sessions import Live
from ui.state import measured_window, prompt
from ui.updates import Patch, with_version

log = logging.getLogger(__name__)

Item = TypeVar("Item")
Fields = dict[str, Any]

MAX_KEY = 100
CAPACITY = 50
"""Lessons whose latest message is kept, for pages that missed it."""

TOKENS = 25
"""Of the first lesson: one comes with the prompt, the others from a pass each."""

ROUNDS = 3
SENTENCE_PARAMS = DecodingParams(
    SamplingParams(0.8),
    num_speculative_tokens=USUAL_K,
    rule=Rule.REJECTION,
    max_new_tokens=1 + (USUAL_K + 1) * ROUNDS,
    probe_every=0,
    detail=Detail.FULL,
)
"""The reader's own sentence: warm enough that guesses are rejected, and no longer than it is looked into."""

DRAFTER_TOKENS = 64
"""Tokens that each drafter writes."""

SKY = "Why is the sky blue?"


class Lessons:
    """The events of the tab, bound to one engine."""

    def __init__(self, handlers: Handlers) -> None:
        self.handlers = handlers
        self.recordings = Recordings()
        self._live: dict[str, Live] = {}
        self._last: OrderedDict[str, Fields] = OrderedDict()

    async def lesson(self, wish: Mapping[str, Any]) -> AsyncGenerator[Patch, None]:
        """wish: `name`, one of _LESSONS; `key`, made up by the page; and what the lesson's form says."""
        key, name = str(wish.get("key", ""))[:MAX_KEY], str(wish.get("name", ""))
        if name not in _LESSONS or not key or key in self._live:
            return
        live = self._live[key] = Live()
        self.handlers.sessions.join(live)
        try:
            async for status in self.handlers.until_loaded(live):
                yield self._message(key, name, notice=loading_notice(status, pending=True), running=True)
            yield self._message(key, name, notice="", running=True)
            start_s = time.monotonic()
            if not live.stopped:
                async for fields in _LESSONS[name](self, live, wish):
                    yield self._message(
                        key, name, **{"running": True} | _time_left(fields, time.monotonic() - start_s) | fields
                    )
            yield self._message(key, name, running=False, **({"notice": both("learn.stopped")} if live.stopped else {}))
        except EngineError as refusal:
            yield self._message(key, name, notice=refusal_notice(refusal), running=False)
        except Exception:  # a mistake of ours must not leave the page waiting
            log.exception("a lesson failed")
            yield self._message(key, name, notice=both("notice.bug"), running=False)
        finally:
            # Runs however the generator ends, also when Gradio closes it because the page has gone.
            self.handlers.sessions.end("", live)
            self._live.pop(key, None)

    def _message(self, key: str, name: str, **fields: object) -> Patch:
        """What is new, kept together with what was said before: a page that missed something asks for it again."""
        self._last[key] = self._last.get(key, {"key": key, "name": name}) | fields
        self._last.move_to_end(key)
        while len(self._last) > CAPACITY:
            self._last.popitem(last=False)
        return with_version({"lesson": {"key": key, "name": name} | fields})

    async def ask(self, what: str, args: Mapping[str, Any]) -> Patch | None:
        """What the page asks besides; None where there is nothing to say."""
        key = str(args.get("key", ""))
        if what == "stop" and (live := self._live.get(key)):
            live.stop()
        elif what == "again":  # unknown: the server was started anew
            return with_version({"lesson": self._last.get(key, {"key": key, "running": False, "lost": True})})
        elif what == "pane":
            return with_version({"pane": await asyncio.to_thread(self._pane, args)})
        elif what == "point":
            return with_version({"point": self._point(str(args.get("conversation", "")))})
        return None

    # -- lessons -----------------------------------------------------------------------------------------------------

    async def _token(self, live: Live, wish: Mapping[str, Any]) -> AsyncGenerator[Fields, None]:
        """Plain decoding, pass by pass."""
        params = DecodingParams(drafter="none", num_speculative_tokens=0, max_new_tokens=TOKENS, probe_every=0)
        async for recording in self._replies(live, SKY, params):
            blocks = recording.lanes[0].reply.blocks
            share = sum(len(block.pieces) for block in blocks) / TOKENS
            html = tables.tokens(blocks)
            if html:
                yield {"html": html + tables.here(recording.lanes[0].about), "share": share}

    async def _bound(self, live: Live, wish: Mapping[str, Any]) -> AsyncGenerator[Fields, None]:
        """Forward passes of more and more rows."""
        reports = await self.handlers.ask(live, lambda: self.handlers.lab.experiment(ExperimentName.ROWS))
        async for some in _items(reports):
            for report in some[-1:]:
                if isinstance(report, Failed):
                    yield {"notice": both("notice.failed", message=report.message)}
                elif isinstance(report, Step):
                    left_s = None if report.left_s is None else round(report.left_s)
                    share = report.done / max(1, report.total)
                    fields = {"html": tables.passes(report.points)} if report.points else {}
                    yield {"share": share, "left": left_s} | fields
                elif isinstance(report, Result) and report.points:
                    yield {"html": page.bound(report, reference=False)}
                elif isinstance(report, Result):
                    yield {"notice": both("learn.nothing")}

    async def _verify(self, live: Live, wish: Mapping[str, Any]) -> AsyncGenerator[Fields, None]:
        """A few rounds over the reader's sentence, to be looked into."""
        user = readable(wish.get("prompt"))
        if not user:
            yield {"notice": both("notice.empty")}
            return
        last: Recording | None = None
        async for last in self._replies(live, user, SENTENCE_PARAMS):
            rounds = len(_rounds(last))
            if rounds >= ROUNDS and live.work is not None:
                live.work.cancel()
            yield {"share": min(1.0, rounds / ROUNDS)}
        if last is None:
            return
        ends = _rounds(last)[:ROUNDS]
        recording = close(last.upto({LaneName.REPLY: ends[-1] + 1 if ends else 0}))
        self.recordings.put(recording)
        place = _first_look(recording)
        if place is None:
            yield {"notice": both("learn.verify.unguessed")}
            return
        pane = inspector.pane(recording, LaneName.REPLY, *place) or ""
        yield {"html": pane + tables.here(recording.lanes[0].about), "id": recording.id, "place": list(place)}

    async def _drafters(self, live: Live, wish: Mapping[str, Any]) -> AsyncGenerator[Fields, None]:
        """Every drafter that there is, one after the other, on the same text; plain decoding first."""
        index = wish.get("example")
        example = EXAMPLES[index if isinstance(index, int) and 0 <= index < len(EXAMPLES) else 0]
        facts = self.handlers.facts()
        names = ["none", *(name for name in facts.drafters if name != "none")] if facts else []
        figures: list[tables.Drafting] = []
        for name in names:
            k = 0 if name == "none" else USUAL_K
            params = DecodingParams(
                drafter=name, num_speculative_tokens=k, max_new_tokens=DRAFTER_TOKENS, probe_every=0
            )
            last: Recording | None = None
            async for last in self._replies(live, example.prompt, params):
                share = last.lanes[0].reply.tally.tokens / DRAFTER_TOKENS
                yield {"share": (len(figures) + share) / len(names)}
            if live.stopped or last is None:
                break
            figures.append(tables.drafting(name, last.lanes[0].reply.tally.summary()))
            whole = len(figures) == len(names)
            html = tables.drafters(figures, example.name(), DRAFTER_TOKENS, whole)
            yield {"html": html + tables.here(last.lanes[0].about), "share": len(figures) / len(names)}

    async def _replies(self, live: Live, user: str, params: DecodingParams) -> AsyncGenerator[Recording, None]:
        """A reply as it grows. Raises EngineError."""
        messages: Sequence[Message] = prompt("", (), user)
        engine = self.handlers.engine
        stream = await self.handlers.ask(live, lambda: engine.stream(messages, params))
        lane = Lane(LaneName.REPLY, self.handlers.about(params, ""))
        recording = Recording(self.recordings.new_id(), user, (lane,))
        async for events in _items(stream):
            recording = extend(recording, LaneName.REPLY, events)
            reply = recording.lanes[0].reply
            if reply.message:
                raise EngineError(reply.message)
            live.started = live.started or bool(reply.blocks)
            yield recording

    # -- what is asked besides -----------------------------------------------------------------------------------------

    def _pane(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Another round, or another token of one. way: the round before (-1) or behind (1) that has something in it."""
        id_ = str(args.get("id", ""))
        recording = page.recording() if id_ == page.RECORDING_ID else self.recordings.find(id_)
        block, piece, way = args.get("block"), args.get("piece"), args.get("way")
        html = None
        if recording and isinstance(block, int) and isinstance(piece, int):
            if way in (-1, 1):
                block, piece = _neighbour(recording, block, int(way)), 0
            html = inspector.pane(recording, recording.lanes[-1].name, block, piece)
        return {"id": args.get("id"), "block": block, "piece": piece, "html": html or ""}

    def _point(self, conversation_id: str) -> dict[str, float] | None:
        conversation = self.handlers.sessions.find(conversation_id)
        if conversation is None or not conversation.turns:
            return None
        return point(measured_window(conversation.turns[-1].reply.tally, conversation.tally)[0])


def _time_left(fields: Fields, spent_s: float) -> Fields:
    """How many seconds it still takes if it goes on as it did, for what takes long enough that one asks."""
    share = float(fields.get("share", 0.0))
    return {"left": round(spent_s * (1 - share) / share)} if spent_s > 1 and share > 0.05 else {}


def point(own: Summary) -> dict[str, float] | None:
    """alpha, k, c and the measured speed-up of a conversation; None while one of them is missing or cannot be true.

    c is what a guess cost in plain steps, its row of the check included: a round with k guesses took 1 + k c of them.
    """
    plain, spec, tau = own.baseline.tok_s, own.spec_tok_s, own.acceptance_length
    if plain is None or spec is None or tau is None or own.alpha is None or not own.mean_k or disturbed(own):
        return None
    rounds = own.drafted / own.mean_k  # those in which guessing rested are among them, a token each
    tokens_per_round = (tau * own.spec_rounds + (rounds - own.spec_rounds)) / rounds
    steps = tokens_per_round / spec * plain
    return {"alpha": own.alpha, "k": own.mean_k, "c": max(0.0, (steps - 1) / own.mean_k), "speedup": spec / plain}


def _rounds(recording: Recording) -> list[int]:
    """The blocks that are rounds."""
    return [i for i, block in enumerate(recording.lanes[0].reply.blocks) if isinstance(block.event, Round)]


def _first_look(recording: Recording) -> tuple[int, int] | None:
    """Block and piece to begin with: something rejected if there is any, else the first round with guesses."""
    if place := page.first_rejection(recording):
        return place
    blocks = recording.lanes[0].reply.blocks
    with_guesses = (i for i, block in enumerate(blocks) if isinstance(block.event, Round) and block.event.decisions)
    first = next(with_guesses, None)
    return None if first is None else (first, 0)


def _neighbour(recording: Recording, block: int, way: int) -> int:
    """The nearest block in that direction that shows something, or the same."""
    blocks = recording.lanes[-1].reply.blocks
    order = range(block + way, len(blocks) if way > 0 else -1, way)
    return next((at for at in order if 0 <= at < len(blocks) and blocks[at].pieces), block)


async def _items(channel: Channel[Item]) -> AsyncGenerator[list[Item], None]:
    """What comes out of the engine, and [] at least every second, by which a page that has gone is noticed."""
    last_s = time.monotonic()
    while not channel.done:
        some = channel.take(0)
        if some or time.monotonic() - last_s > HEARTBEAT_S:
            last_s = time.monotonic()
            yield some
        await asyncio.sleep(GLANCE_S)


_LESSONS: dict[str, Callable[[Lessons, Live, Mapping[str, Any]], AsyncGenerator[Fields, None]]] = {
    "token": Lessons._token,
    "bound": Lessons._bound,
    "verify": Lessons._verify,
    "drafters": Lessons._drafters,
}
