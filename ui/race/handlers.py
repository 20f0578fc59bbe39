"""What happens in the views besides the chat: a race is run, a recording is opened, looked into, saved.

As in `ui.chat.handlers` each handler returns or yields messages for the page; assets/page/watch.js takes them. A
message is
    live      of a race that runs: what its lanes have more, and at first the whole (empty) recording
    opened    a whole recording, or why there is none
    round, charts, file    what was asked about one; forgot: it is not here any more
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from html import escape
from typing import Any

from engine import Detail, EngineError, Event, FinishReason, InvalidParams, Prefilled, Race, Rule, Stream
from ui import controls, updates
from ui.chat.handlers import Handlers
from ui.controls import Settings, corrected, readable
from ui.html import render
from ui.html.render import both
from ui.inspect import inspector
from ui.jobs import GLANCE_S, HEARTBEAT_S, pace_s, refusal_notice
from ui.race import charts as race_charts
from ui.race import page_export, verdict
from ui.recording import export, saved, trace_file
from ui.recording.recordings import Lane, LaneName, Recording, Recordings, close, extend, of_turn, race_lanes
from ui.sessions import Live
from ui.state import About, Phase, Reply, index_of, prompt
from ui.strings import Lang
from ui.updates import Patch, with_version

log = logging.getLogger(__name__)

MAX_KEY = 100

SHIPPED_ID = "shipped-"
"""How the ids of those begin that come with the app: they are the same for everybody."""


class Races:
    """The events of these views, bound to one engine and one set of recordings."""

    def __init__(self, handlers: Handlers) -> None:
        self.handlers = handlers
        self.recordings = Recordings()
        self._live: dict[str, Live] = {}

    # -- a race ------------------------------------------------------------------------------------------------------

    def stop(self, key: object) -> None:
        if isinstance(key, str) and (live := self._live.get(key)):
            live.stop()

    async def race(self, wish: Mapping[str, Any], values: Sequence[object]) -> AsyncGenerator[Patch, None]:
        """wish: what the form says, and `key`, a name that the page made up, to stop it by. values: the chat's
        settings."""
        key, user = str(wish.get("key", ""))[:MAX_KEY], readable(wish.get("prompt"))
        if not user or key in self._live:
            yield _message(key, notice=both("notice.empty" if not user else "notice.busy"), running=False)
            return
        live = self._live[key] = Live()
        self.handlers.sessions.join(live)
        try:
            async for status in self.handlers.until_loaded(live):
                yield _message(key, notice=render.loading_notice(status, pending=True), running=True)
            if live.stopped:
                yield _message(key, notice=both("notice.unsent"), running=False)
                return
            settings, corrections = self._settings(wish, values)
            try:
                messages = prompt(settings.system, (), user)
                engine = self.handlers.engine
                race = await self.handlers.ask(live, lambda: engine.race(messages, settings.params))
            except EngineError as refusal:
                yield _message(key, notice=_refusal(refusal), running=False)
                return
            recording = self._new(user, settings)
            note = " ".join(map(corrected, corrections))
            yield _message(key, recording=recording_patch(recording), notice=note, running=True)
            async for message in self._follow(live, race, key, recording, note):
                yield message
        except Exception:  # a mistake of ours must not leave the page waiting
            log.exception("a race failed")
            yield _message(key, notice=both("notice.bug"), running=False)
        finally:
            # Runs however the generator ends, also when Gradio closes it because the page has gone.
            self.handlers.sessions.end("", live)
            self._live.pop(key, None)

    def _settings(
        self, wish: Mapping[str, Any], values: Sequence[object]
    ) -> tuple[Settings, tuple[controls.Correction, ...]]:
        """The chat's settings with what the form says in their place, as a race takes them."""
        dice = wish.get("dice") is True
        form: dict[str, object] = {
            "num_speculative_tokens": wish.get("k"),
            "temperature": wish.get("temperature"),
            "rule": Rule.SHARED_NOISE.value if dice else Rule.REJECTION.value,
            "max_new_tokens": wish.get("length"),
        }
        table = self.handlers.table()
        form_values = [form.get(control.name, value) for control, value in zip(table, values, strict=True)]
        settings, corrections = controls.settings(table, form_values)
        params = replace(settings.params, detail=Detail.FULL, probe_every=0)
        return replace(settings, params=params), corrections

    def _new(self, user: str, settings: Settings) -> Recording:
        lanes = race_lanes(self.handlers.facts(), settings.params, settings.system)
        date = datetime.now(UTC).date().isoformat()
        return Recording(self.recordings.new_id(), user, lanes, settings.system, date)

    async def _follow(
        self, live: Live, race: Race, key: str, recording: Recording, note: str
    ) -> AsyncGenerator[Patch, None]:
        """Messages until both lanes have ended; each repeats the blocks of the last few, because a page may miss
        some."""
        streams: dict[LaneName, Stream] = {LaneName.PLAIN: race.plain, LaneName.SPECULATIVE: race.speculative}
        sending = {name: updates.Sending() for name in streams}
        last_sent_s, start_s = 0.0, time.monotonic()
        try:
            while recording.running:
                fresh = {name: stream.take(0) for name, stream in streams.items()}
                events: list[Event] = [event for some in fresh.values() for event in some]
                if events or time.monotonic() - last_sent_s > HEARTBEAT_S:
                    live.started = live.started or any(isinstance(event, Prefilled) for event in events)
                    for name, some in fresh.items():
                        recording = extend(recording, name, some)
                    self.recordings.put(recording)
                    yield self._progress(live, key, recording, sending, note)
                    last_sent_s = time.monotonic()
                await asyncio.sleep(pace_s(time.monotonic() - start_s) if events else GLANCE_S)
        finally:
            self.recordings.put(close(recording))

    def _progress(
        self, live: Live, key: str, recording: Recording, sending: Mapping[LaneName, updates.Sending], note: str
    ) -> Patch:
        """note: what has been said of this race, which stands again once it no longer waits."""
        lanes = [_lane_patch(lane, *sending[lane.name].more(lane.reply.blocks)) for lane in recording.lanes]
        ahead = self.handlers.sessions.ahead(live)
        waiting = both("log.waiting") + (f" · {both('log.ahead', count=ahead)}" if ahead else "")
        notice = note if live.started or not recording.running else waiting
        over = {} if recording.running else {"verdict": verdict.verdict(recording)}
        return _message(key, id=recording.id, lanes=lanes, running=recording.running, notice=notice, **over)

    # -- recordings --------------------------------------------------------------------------------------------------

    async def look(self, what: str, args: Mapping[str, Any]) -> Patch | None:
        """What the page asks about recordings; None where there is nothing to say."""
        if what == "open":
            return with_version({"opened": await self._open(args)})
        if what == "stop":
            self.stop(args.get("key"))
        elif what in _ABOUT:
            recording = self._find(str(args.get("id", "")))
            if recording is None:
                return with_version({"forgot": args.get("id")})
            return with_version({what: await asyncio.to_thread(_ABOUT[what], recording, args)})
        return None

    def _find(self, recording_id: str) -> Recording | None:
        """One that a page has; those that come with the app are always there."""
        recording = self.recordings.find(recording_id)
        name = recording_id.removeprefix(SHIPPED_ID)
        if recording is None and name != recording_id and name in trace_file.SHIPPED:
            return trace_file.load_shipped(name, recording_id)
        return recording

    async def _open(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """A recording by its name, its id, from a chat or from what a file holds; with the number that it was asked
        by."""
        try:
            recording = await self._load(args)
        except trace_file.Unreadable as error:
            return {"number": args.get("number"), "failed": error.html}
        if isinstance(recording, str):
            return {"number": args.get("number"), "failed": recording}
        if not recording.id.startswith(SHIPPED_ID):
            self.recordings.put(recording)
        return {"number": args.get("number"), "recording": await asyncio.to_thread(recording_patch, recording)}

    async def _load(self, args: Mapping[str, Any]) -> Recording | str:
        """The recording, or why there is none. Raises trace_file.Unreadable."""
        if "trace" in args:
            return await asyncio.to_thread(trace_file.load, args["trace"], self.recordings.new_id())
        if "shipped" in args:
            name = str(args["shipped"])[:MAX_KEY]
            return await asyncio.to_thread(trace_file.load_shipped, name, SHIPPED_ID + name)
        if "id" in args:
            return self._find(str(args["id"])) or both("watch.lost")
        conversation = self.handlers.sessions.find(str(args.get("conversation", "")))
        key = args.get("key")
        place = index_of(conversation, key) if conversation and isinstance(key, int) else None
        if conversation is None or place is None:
            return both("watch.lost")
        turn = conversation.turns[place]
        if turn.reply.phase is not Phase.FINISHED:
            return both("watch.say.unfinished")
        return of_turn(turn, self.recordings.new_id())


def recording_patch(recording: Recording) -> Patch:
    """A recording as the page takes it."""
    en, zh = recording.title
    return {
        "id": recording.id, "title": {"en": en, "zh": zh}, "user": recording.user, "system": recording.system,
        "made": recording.date, "verdict": verdict.verdict(recording),
        "lanes": [_lane_patch(lane, 0, updates.block_patches(lane.reply.blocks)) for lane in recording.lanes],
    }  # fmt: skip


def _lane_patch(lane: Lane, start: int, blocks: list[updates.BlockPatch]) -> Patch:
    patch = {
        "name": lane.name.value,
        "from": start,
        "blocks": blocks,
        "phase": lane.reply.phase.value,
        "foot": _foot(lane),
    }
    return patch | ({"about": saved.about_json(lane.about)} if start == 0 else {})


def _foot(lane: Lane) -> str:
    """How it ended, and what wrote it."""
    parts = [_ending(lane.reply), _wrote(lane.about)]
    return "".join(f"<p>{part}</p>" for part in parts if part)


def _ending(reply: Reply) -> str:
    """As `render.ending`, which speaks of what one can do in a chat."""
    if reply.reason in (FinishReason.LENGTH, FinishReason.CONTEXT):
        return both(f"lane.end.{reply.reason}", count=reply.tally.tokens)
    if reply.reason is FinishReason.ERROR:
        return f'<span class="error">{both("lane.end.error", message=reply.message)}</span>'
    return render.ending(reply)


def _wrote(about: About | None) -> str:
    if about is None:
        return ""
    exact = both("header.exact" if about.exact else "header.inexact")
    return " · ".join([*map(escape, (about.target, about.weights, about.kernel)), exact])


def _message(key: str, **fields: object) -> Patch:
    return with_version({"live": {"key": key} | fields})


def _refusal(refusal: EngineError) -> str:
    if isinstance(refusal, InvalidParams) and refusal.field in ("drafter", "num_speculative_tokens"):
        return both("race.nobody")
    return refusal_notice(refusal)


def _charts(recording: Recording, args: Mapping[str, Any]) -> dict[str, Any]:
    counts = args.get("upto") if isinstance(args.get("upto"), dict) else {}
    whole = {str(name): count for name, count in (counts or {}).items() if isinstance(count, int)}
    return {"id": recording.id} | race_charts.charts(recording, whole)


def _round(recording: Recording, args: Mapping[str, Any]) -> dict[str, Any]:
    lane, block, piece = args.get("lane"), args.get("block"), args.get("piece")
    html = None
    if lane in tuple(LaneName) and isinstance(block, int) and isinstance(piece, int):
        html = inspector.pane(recording, LaneName(str(lane)), block, piece)
    return {"id": recording.id, "lane": lane, "block": block, "piece": piece, "html": html or ""}


def _file(recording: Recording, args: Mapping[str, Any]) -> dict[str, Any]:
    """A recording as a file for the browser to save: to be opened again, or to be read."""
    lang: Lang = "zh" if args.get("lang") == "zh" else "en"
    name = export.file_name(f"greenlight {recording.user[:60]}")
    if args.get("form") == "page":
        file = {"name": f"{name}.html", "mime": "text/html;charset=utf-8", "text": page_export.page(recording, lang)}
    else:
        file = {"name": f"{name}.json", "mime": "application/json", "text": trace_file.dump(recording)}
    return file | {"number": args.get("number")}


_ABOUT: dict[str, Callable[[Recording, Mapping[str, Any]], dict[str, Any]]] = {
    "round": _round,
    "charts": _charts,
    "file": _file,
}
"""What can be asked about a recording. In threads: a long one takes a while."""
