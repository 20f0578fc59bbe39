"""A chat as a file: Markdown to read, JSON with every figure. Pure; from the record that the browser keeps (see
`ui.recording.saved`).

The JSON is that record with `reply` and `figures` (every field of `engine.stats.Summary`, None where nothing was
measured) added to each turn, and the figures of the whole; it can be read back.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import asdict
from datetime import UTC, datetime
from json import dumps
from typing import Any

from engine import FinishReason
from ui.html.render import figures_of
from ui.recording import saved
from ui.state import Conversation, Reply, Turn
from ui.strings import TEXT, Lang, text

MIMES = {"markdown": "text/markdown;charset=utf-8", "json": "application/json"}
SUFFIXES = {"markdown": ".md", "json": ".json"}

LONGEST_NAME = 60
"""Characters of a file's name; in UTF-8 far less than the 255 bytes that systems take."""

_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
"""Names that Windows keeps for devices, also with anything behind a dot."""

_ENDINGS = {
    FinishReason.LENGTH: "export.length", FinishReason.CONTEXT: "export.context",
    FinishReason.CANCELLED: "export.cancelled", FinishReason.ERROR: "export.error",
}  # fmt: skip
"""How a reply ended, where that was not the model's own end."""

_OPEN_LEVELS = 4
"""The record, its turns, a turn, the turn's parts: so far down each entry has a line of its own; an event has one
line."""


def file(record: object, form: str, lang: Lang) -> dict[str, str]:
    """What the browser saves: name, mime, text. form: "markdown" or "json". Raises ui.recording.saved.NotSaved."""
    content = markdown(record, lang) if form == "markdown" else json(record)
    return {"name": file_name(_title(record)) + SUFFIXES[form], "mime": MIMES[form], "text": content}


def markdown(record: object, lang: Lang) -> str:
    """Title, date, each message and each reply as the model wrote it, with a line of figures. Raises
    ui.recording.saved.NotSaved."""
    conversation = saved.conversation(record)
    at = _at(record)
    date = "" if at is None else f" · {datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d %H:%M} UTC"
    parts = [f"# {_title(record)}", f"Greenlight{date}"]
    for turn in conversation.turns:
        parts += [f"## {text('log.you', lang)}", _close_fence(turn.user), f"## {text('log.model', lang)}"]
        parts += [_close_fence(turn.reply.text), f"> {_figures_line(turn, lang)}"]
    return "\n\n".join(parts) + "\n"


def json(record: object) -> str:
    """The record with the replies' text and all figures. Raises ui.recording.saved.NotSaved."""
    conversation = saved.conversation(record)
    return _laid_out(_with_figures(record, conversation)) + "\n"


def _with_figures(record: object, conversation: Conversation) -> dict[str, Any]:
    """Made from what was read, so that nothing else that the record may hold gets through."""
    turns = [
        saved.turn_json(turn) | {"reply": turn.reply.text, "figures": asdict(turn.reply.tally.summary())}
        for turn in conversation.turns
    ]
    return {
        "greenlight_chat": saved.FORMAT, "id": conversation.id, "title": _title(record), "at": _at(record),
        "named": isinstance(record, dict) and record.get("named") is True, "turns": turns,
        "figures": asdict(conversation.tally.summary()),
    }  # fmt: skip


def _laid_out(value: object, depth: int = 0) -> str:
    """JSON that people can read: the upper levels in lines, what is below them on one line."""
    if not isinstance(value, (dict, list)) or not value or depth == _OPEN_LEVELS:
        return dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        entries = [f"{dumps(name)}: {_laid_out(part, depth + 1)}" for name, part in value.items()]
    else:
        entries = [_laid_out(part, depth + 1) for part in value]
    begin, end = "{}" if isinstance(value, dict) else "[]"
    pad = "\n" + "  " * depth
    return f"{begin}{pad}  " + f",{pad}  ".join(entries) + f"{pad}{end}"


def _title(record: object) -> str:
    """In one line. It has its own place in the record and no other use, so anything readable will do."""
    title = record.get("title") if isinstance(record, dict) else None
    words = title[:1000].encode("utf-8", "replace").decode("utf-8").split() if isinstance(title, str) else []
    return " ".join(words) or "Greenlight"


def _at(record: object) -> int | None:
    """Milliseconds since 1970, None unless that is a date."""
    value = record.get("at") if isinstance(record, dict) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 253_402_300_800_000:
        return None
    return int(value)


def file_name(title: str) -> str:
    """The title as far as every system takes it as a file's name; all scripts are kept."""
    printable = "".join(
        " " if unicodedata.category(char)[0] in "CZ" else char for char in unicodedata.normalize("NFC", title)
    )
    name = " ".join(re.sub(r'[<>:"/\\|?*]', " ", printable).split())[:LONGEST_NAME].strip(" .")
    if _RESERVED.fullmatch(name):
        name = f"{name} chat" if "." not in name else name.replace(".", " ")
    return name or "Greenlight"


def _close_fence(source: str) -> str:
    """Text with its last code block closed, which else would take in all that follows (CommonMark 0.31, section
    4.5)."""
    fence = ""
    for line in source.splitlines():
        match = re.match(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})(.*)", line)
        if match is None:
            continue
        if not fence:
            fence = match[1]
        elif match[1].startswith(fence) and not match[2].strip():
            fence = ""
    return f"{source}\n{fence}" if fence else source


def _figures_line(turn: Turn, lang: Lang) -> str:
    """The reply's own figures, each only where it was measured; what wrote it, and with which settings."""
    return " · ".join([*ending(turn.reply, lang), *_figures(turn.reply, lang), *provenance(turn, lang)])


def ending(reply: Reply, lang: Lang) -> list[str]:
    """How it ended, where that was not the model's own end: one sentence or none."""
    if reply.reason not in _ENDINGS:
        return []
    return [text(_ENDINGS[reply.reason], lang, message=" ".join(reply.message.split()))]


def _figures(reply: Reply, lang: Lang) -> list[str]:
    own = reply.tally.summary()
    counts = text("export.tokens", lang, tokens=own.tokens, drafted=own.drafted, accepted=own.accepted)
    return [counts, *(text(key, lang, value=value) for key, value in figures_of(own))]


def provenance(turn: Turn, lang: Lang) -> list[str]:
    """Who guessed, which model wrote it on what, and with which settings; without what is not known."""
    drafters = [_name(drafts.drafter, lang) for drafts in turn.reply.tally.by_drafter]
    parts = [" + ".join(drafters) or text("export.no_drafter", lang)]
    if (about := turn.about) is not None:
        exact = text("header.exact" if about.exact else "header.inexact", lang)
        parts = [f"{about.target} ({about.weights})", *parts, about.kernel, exact, *_settings(turn, lang)]
    if turn.reply.seed is not None:
        parts.append(text("export.seed", lang, value=turn.reply.seed))
    return parts


def _name(drafter: str, lang: Lang) -> str:
    return text(f"drafter.{drafter}", lang) if f"drafter.{drafter}" in TEXT else drafter


def _settings(turn: Turn, lang: Lang) -> list[str]:
    """Temperature and K always; the rest where it is not as usual."""
    assert turn.about is not None
    params = turn.about.params
    sampling = params.sampling
    k = text("export.auto", lang) if params.num_speculative_tokens is None else params.num_speculative_tokens
    others = [
        ("top_k.label", sampling.top_k, 0), ("top_p.label", sampling.top_p, 1.0), ("min_p.label", sampling.min_p, 0.0),
        ("repetition_penalty.label", sampling.repetition_penalty, 1.0),
        ("frequency_penalty.label", sampling.frequency_penalty, 0.0),
        ("presence_penalty.label", sampling.presence_penalty, 0.0),
    ]  # fmt: skip
    unusual = [f"{text(key, lang)} {value:g}" for key, value, usual in others if value != usual]
    temperature = text("export.temperature", lang, value=f"{sampling.temperature:g}")
    return [temperature, f"K {k}", *unusual, text(f"rule.{params.rule.value}", lang)]
