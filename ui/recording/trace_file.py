"""A recording as one JSON file, and back: what a person saves, shares and opens again, and what the app ships.

    {"greenlight_trace": 1,           the version of this layout
     "made": "2026-01-31",            the day (and time) of the recording as ISO 8601; "" where it is not known
     "title": ["...", "..."],         in English and Chinese; "" where there is none
     "system": "...", "user": "...",  the prompt; of a chat, its latest message
     "lanes": [{"name": ..., "about": {...} or null, "rows": [...]}, ...]}

lanes: one named "reply", or a race's two, named "plain" and "speculative". about: what wrote it and with which settings
(see `ui.recording.saved.about_json`). rows: its events, a line of the file each (see `engine.trace.reply`), with the
lists of likeliest tokens where these were recorded; without an end the reply was stopped there. Nothing else is in a
file: no state of the model.

What is opened was in other hands, so all of it is checked. Reading a file of the largest size takes seconds: not for
the event loop.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any, NoReturn

from engine import Prefilling, TraceError, trace
from engine.trace import untrusted
from ui.examples import ASSETS
from ui.html.render import both
from ui.recording.recordings import RACE, Lane, LaneName, Recording, close
from ui.recording.saved import MAX_TEXT, NotSaved, about, about_json
from ui.state import Reply, advance
from ui.strings import text

FORMAT = 1

SHIPPED = ("chat", "code", "bad")
"""The recordings that come with the app, by the name of their file."""

MAX_CHARS = 20_000_000
"""Characters of a file. Two replies of 2,000 tokens each with all of their lists take about three million."""

MAX_TITLE = 200
MAX_DATE = 40


class Unreadable(TraceError):
    """A file that is no trace, or a damaged one. `html` says so in both languages; as text it is in English."""

    def __init__(self, key: str, **values: object) -> None:
        super().__init__(text(key, "en", **values))
        self.html = both(key, **values)


def dump(recording: Recording) -> str:
    """The file's text: a line for each event. Half a surrogate pair, which no file can hold, becomes a question
    mark."""
    head_fields: dict[str, Any] = {
        "greenlight_trace": FORMAT, "made": recording.date, "title": recording.title,
        "system": recording.system, "user": recording.user,
    }  # fmt: skip
    head = ",\n".join(f"{_json(key)}: {_json(value)}" for key, value in head_fields.items())
    lanes = ",\n".join(map(_dump_lane, recording.lanes))
    return f'{{{head},\n"lanes": [\n{lanes}\n]}}\n'.encode("utf-8", "replace").decode("utf-8")


def _dump_lane(lane: Lane) -> str:
    rows = ",\n".join(_json(trace.row(block.event)) for block in lane.reply.blocks)
    return f'{{"name": {_json(lane.name.value)}, "about": {_json(about_json(lane.about))}, "rows": [\n{rows}\n]}}'


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def load(source: object, recording_id: str) -> Recording:
    """The recording of a file's text, or of the JSON value that it holds. A lane without an end is closed as stopped.

    Raises Unreadable.
    """
    record = _parse(source) if isinstance(source, str) else source
    if not isinstance(record, dict) or "greenlight_trace" not in record:
        raise Unreadable("trace.foreign")
    version = record["greenlight_trace"]
    if isinstance(version, bool) or version != FORMAT:
        raise Unreadable("trace.version")
    try:
        return close(_recording(record, recording_id))
    except Unreadable:
        raise
    except (TraceError, NotSaved) as error:
        raise Unreadable("trace.damaged") from error


def _parse(source: str) -> object:
    if len(source) > MAX_CHARS:
        raise Unreadable("trace.long", limit=MAX_CHARS // 1_000_000)
    try:
        return json.loads(source.removeprefix("\ufeff"), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise Unreadable("trace.broken") from error


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


def _recording(record: dict[str, Any], recording_id: str) -> Recording:
    """Raises TraceError and NotSaved."""
    untrusted.check_keys(record, ("greenlight_trace", "made", "title", "system", "user", "lanes"))
    english, chinese = (untrusted.text(title, MAX_TITLE) for title in untrusted.items(record["title"], 2, 2))
    system, user = (untrusted.text(record[name], MAX_TEXT) for name in ("system", "user"))
    lanes = tuple(_lanes(record["lanes"]))
    return Recording(recording_id, user, lanes, system, _date(record["made"]), (english, chinese))


def _lanes(value: object) -> Iterator[Lane]:
    lanes = value if isinstance(value, list) else []
    names = [lane.get("name") if isinstance(lane, dict) else None for lane in lanes]
    if names != [LaneName.REPLY] and not (len(names) == len(RACE) and all(name in names for name in RACE)):
        raise Unreadable("trace.lanes")
    for lane in lanes:
        untrusted.check_keys(lane, ("name", "about", "rows"))
        events = [
            event for event in trace.events(lane["rows"]) if not isinstance(event, Prefilling)
        ]  # these leave nothing
        yield Lane(LaneName(lane["name"]), about(lane["about"]), advance(Reply(), events))


def _date(value: object) -> str:
    date = untrusted.text(value, MAX_DATE)
    try:
        if date:
            datetime.fromisoformat(date)
    except ValueError:
        untrusted.fail("its date is none")
    return date


def load_shipped(name: str, recording_id: str) -> Recording:
    """One of SHIPPED. Raises Unreadable where there is none of that name."""
    if name not in SHIPPED:
        raise Unreadable("trace.missing", name=name)
    return replace(_load_shipped(name), id=recording_id)


@cache
def _load_shipped(name: str) -> Recording:
    try:
        source = (ASSETS / "traces" / f"{name}.json").read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise Unreadable("trace.missing", name=name) from error
    return load(source, name)
