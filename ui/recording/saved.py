"""A conversation as JSON: what the browser keeps of it and gives back to a server that no longer knows it.

    {"greenlight_chat": 1, "id": ..., "title": ..., "at": ..., "named": ...,
     "turns": [{"key": ..., "user": ..., "about": {...}, "rows": [...]}]}

rows are the reply's events (see `engine.trace.reply`), about says what wrote it. key is the turn's own (see
`ui.state.Turn`), so that a page that still shows the chat finds its turns again. title, at (milliseconds since 1970)
and named (somebody chose the title) are the browser's. What comes back was in other hands, so all that is read of it is
checked here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

from engine import DecodingParams, Detail, EngineError, Rule, SamplingParams, trace
from ui.state import About, Conversation, Turn, abandon, begin, progress

FORMAT = 1

MAX_TURNS = 1000
MAX_TEXT = 1_000_000
"""Characters of one message or system prompt."""

_ID = re.compile(r"[A-Za-z0-9_-]{20,40}")


class NotSaved(Exception):
    """What came back is no conversation of ours."""


def turn_json(turn: Turn) -> dict[str, Any]:
    rows = [trace.row(block.event) for block in turn.reply.blocks]
    return {"key": turn.key, "user": turn.user, "about": about_json(turn.about), "rows": rows}


def about_json(about: About | None) -> dict[str, Any] | None:
    if about is None:
        return None
    record = asdict(about)
    sampling = record["params"]["sampling"]
    if sampling["seed"] is not None:
        sampling["seed"] = str(sampling["seed"])  # a script's numbers are not that exact
    return record


def conversation(record: object) -> Conversation:
    """The conversation of a record, under its own id. Raises NotSaved."""
    if not isinstance(record, dict) or record.get("greenlight_chat") != FORMAT:
        raise NotSaved("the format is unknown")
    id_, turns = record.get("id"), record.get("turns")
    if not isinstance(id_, str) or not _ID.fullmatch(id_):
        raise NotSaved("it has no id")
    if not isinstance(turns, list) or len(turns) > MAX_TURNS:
        raise NotSaved("it has no list of turns")
    chat = Conversation(id_)
    for turn in turns:
        chat = _with_turn(chat, turn)
    return Conversation(
        id_, chat.turns, chat.tally, chat.next_key
    )  # a change from before it was saved cannot be undone


def _with_turn(chat: Conversation, turn: object) -> Conversation:
    if not isinstance(turn, dict):
        raise NotSaved("a turn is no object")
    rows = turn.get("rows")
    if not isinstance(rows, list):
        raise NotSaved("a turn has no rows")
    try:
        events = trace.events(_up_to_its_end(rows))
    except EngineError as error:
        raise NotSaved(str(error)) from error
    key = _whole(turn.get("key", chat.next_key))
    if key < chat.next_key:
        raise NotSaved("its turns are not in order")
    chat = begin(replace(chat, next_key=key), _text(turn.get("user")), about=about(turn.get("about")))
    return abandon(progress(chat, key, events), key)


def _up_to_its_end(rows: list[Any]) -> list[Any]:
    """What was kept behind a reply's end is not worth the loss of the chat."""
    ends = (i for i, row in enumerate(rows) if isinstance(row, dict) and row.get("e") == "end")
    return rows[: next(ends, len(rows)) + 1]


def about(record: object) -> About | None:
    """What wrote a reply, or None where that was not kept. Raises NotSaved."""
    if record is None:
        return None
    if not isinstance(record, dict):
        raise NotSaved("what wrote a reply is no object")
    try:
        return About(
            _text(record["target"]), _text(record["weights"]), _text(record["kernel"]), _text(record["device"]),
            record["exact"] is True, _whole(record["context_len"]), _texts(record["drafters"]),
            _params(record["params"]), _text(record["system"]), _text(record.get("drafter", "")),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, OverflowError, EngineError) as error:
        raise NotSaved("what wrote a reply is not as it was saved") from error


def _params(record: Mapping[str, Any]) -> DecodingParams:
    """DecodingParams checks the values; unknown names are a TypeError."""
    sampling = dict(record["sampling"])
    if sampling["seed"] is not None:
        sampling["seed"] = int(_text(sampling["seed"])[:30])
    sampling["logit_bias"] = tuple((int(id_), float(bias)) for id_, bias in sampling.get("logit_bias", ()))
    names = {field.name for field in fields(DecodingParams)}
    rest: dict[str, Any] = {name: value for name, value in record.items() if name in names}
    rest |= {
        "sampling": SamplingParams(**sampling), "rule": Rule(rest["rule"]), "detail": Detail(rest["detail"]),
        "stop": _texts(rest["stop"]),
    }  # fmt: skip
    return DecodingParams(**rest)


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise NotSaved("a text is missing or far too long")
    return value.encode("utf-8", "replace").decode("utf-8")


def _texts(values: object) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise NotSaved("a list is missing")
    return tuple(map(_text, values))


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
        raise NotSaved("a number is out of range")
    return value
