"""The recordings that come with the app, read and written again in every form."""

from __future__ import annotations

import json
from collections.abc import Iterator

from engine.trace import reply as trace
from tests.golden.items import Item, plain
from ui.examples import ASSETS
from ui.race import page_export
from ui.recording import export
from ui.recording.recordings import LaneName
from ui.recording.saved import FORMAT, conversation, turn_json
from ui.recording.trace_file import SHIPPED, dump, load
from ui.state import Turn
from ui.strings import LANGS


def items() -> Iterator[Item]:
    for name in SHIPPED:
        written = (ASSETS / "traces" / f"{name}.json").read_text(encoding="utf-8")
        recording = load(written, name)
        yield f"{name}/recording", recording
        yield f"{name}/as the file", dump(recording) == written
        yield f"{name}/file", dump(recording)
        for lane in recording.lanes:
            events = [block.event for block in lane.reply.blocks]
            yield f"{name}/{lane.name.value}/events", plain(events, timed=True)
            yield f"{name}/{lane.name.value}/summary", plain(lane.reply.tally.summary(), timed=True)
            yield f"{name}/{lane.name.value}/rows without lists", trace.rows(events, tops=False)
            told = trace.events(trace.rows(events))
            yield f"{name}/{lane.name.value}/read again", plain(told, timed=True)
        turns = [Turn(i, recording.user, lane.reply, lane.about) for i, lane in enumerate(recording.lanes, 1)]
        chat = {"greenlight_chat": FORMAT, "id": "a" * 24, "title": f"{name}: a/b", "at": 1735689600000, "named": True,
                "turns": json.loads(json.dumps([turn_json(turn) for turn in turns]))}  # fmt: skip
        yield f"{name}/chat read", conversation(chat)
        for lang in LANGS:
            yield f"{name}/page {lang}", page_export.page(recording, lang)
            yield f"{name}/page cut {lang}", page_export.page(recording.upto(dict.fromkeys(LaneName, 9)), lang)
            for form in export.MIMES:
                yield f"{name}/chat {form} {lang}", export.file(chat, form, lang)
