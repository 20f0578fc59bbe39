"""State -> HTML and figures. Pure; everything that came from a person or a model is escaped here, on the server.

Both languages are in the page at once and a style sheet shows one of them, so that switching never renders again
and what was sent once ("frozen") stays true.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from engine.engine import Facts, State, Status
from engine.events import FinishReason, KReason
from ui.controls import choice_label
from ui.course import Played
from ui.state import LOST, Block, Kind, Phase, Piece, Reply, Turn
from ui.strings import LANGS, TEXT, Lang, text

DASH = "–"

_MARKS = {"\n": "↵", "\r": "↵", "\t": "⇥", "\u00a0": "⍽", "\u3000": "⍽", "\u200b": "∅"}
"""What invisible characters of a lost token are shown as. They must not break the line they were struck from."""

_SPECIALS = {
    "<|im_end|>": "special.end_of_turn",
    "<|im_start|>": "special.start_of_turn",
    "<|endoftext|>": "special.end_of_text",
}


def both(key: str, **values: object) -> str:
    """A text in both languages, as HTML. Values are escaped."""
    shown = {lang: escape(text(key, lang, **values)) for lang in ("en", "zh")}
    return f'<span class="en" lang="en">{shown["en"]}</span><span class="zh" lang="zh">{shown["zh"]}</span>'


def name(drafter: str) -> str:
    """A drafter's name; one that has no words stands for itself."""
    return both(f"drafter.{drafter}") if f"drafter.{drafter}" in TEXT else escape(drafter)


def piece(part: Piece) -> str:
    """One token as HTML; "" where it shows nothing (the first bytes of a character)."""
    if part.special:
        return _chip(part)
    shown = _marked(part.text) if part.kind in LOST else escape(part.text)
    if not shown:
        return ""
    if part.kind in LOST:
        return f'<s class="t {part.kind.value}">{shown}</s>'
    blank = " ws" if part.text.isspace() else ""  # white space shows no colour unless it was struck out
    return f'<span class="t {part.kind.value}{blank}">{shown}</span>'


def _chip(part: Piece) -> str:
    name = both(_SPECIALS[part.special]) if part.special in _SPECIALS else escape(part.special)
    return f'<span class="t chip {part.kind.value}">{name}</span>' + escape(part.text)


def _marked(written: str) -> str:
    """A lost token's text with its white space made visible; leading spaces of a word stay spaces."""
    marked = "".join(_MARKS.get(char, char) for char in written)
    return escape("␣" * len(marked) if marked.isspace() else marked)


def block(part: Block) -> str:
    """Tokens; those of a round in an element that says, in both languages, how they came about."""
    shown = "".join(map(piece, part.pieces))
    if part.played is None or not shown:
        return shown
    said = "".join(f' data-{lang}="{escape(round_line(part.played, lang))}"' for lang in LANGS)
    return f'<span class="round"{said}>{shown}</span>'


def round_line(now: Played, lang: Lang) -> str:
    """A round in one line: its K and why, who guessed, how many were right, and what was expected."""
    parts = [text("round.k", lang, index=now.index, k=now.k), text(f"round.{now.reason.value}", lang)]
    if now.drafted:
        parts += [text("round.by", lang, who=choice_label(now.drafter, lang))]
        parts += [text("round.right", lang, accepted=now.accepted, drafted=now.drafted)]
    if now.predicted is not None:
        key = "round.would" if now.reason is KReason.OFF else "round.expected"
        parts.append(text(key, lang, speedup=times(now.predicted)))
    return " · ".join(parts)


def blocks(parts: Iterable[Block]) -> list[str]:
    return [block(part) for part in parts]


def turn_head(turn: Turn) -> str:
    """The parts of a turn that do not change: who said what, and the empty place where blocks are put."""
    return (
        f'<div class="you"><h3 class="who">{both("log.you")}</h3><p class="said" dir="auto">{escape(turn.user)}</p></div>'
        f'<div class="model"><h3 class="who">{both("log.model")}</h3>'
        '<p class="said reply" dir="auto" data-part="blocks"></p><p class="foot" data-part="foot"></p></div>'
    )


def turn_foot(reply: Reply, ahead: int = 0) -> str:
    """The line under a reply: why nothing is there yet, or how it ended and with what."""
    if reply.phase is Phase.WAITING:
        if ahead and not reply.read:
            return f'<span class="busy">{both("log.waiting")} · {both("log.ahead", count=ahead)}</span>'
        return f'<span class="busy">{both("log.reading")}{f" {reply.read:.0%}" if reply.read else ""}</span>'
    if reply.phase is Phase.RUNNING:
        return ""
    outgrown = both("end.drafter_context") if reply.outgrown else ""
    parts = [_ending(reply), outgrown, _written(reply)]
    return "<br>".join(part for part in parts if part)


def _ending(reply: Reply) -> str:
    if reply.reason is FinishReason.LENGTH:
        return both("end.length", count=reply.tally.tokens)
    if reply.reason is FinishReason.CONTEXT:
        return both("end.context")
    if reply.reason is FinishReason.CANCELLED:
        return both("end.cancelled" if reply.blocks else "end.cancelled.empty")
    if reply.reason is FinishReason.ERROR:
        return f'<span class="error">{both("end.error", message=reply.message)}</span>'
    return ""


def _written(reply: Reply) -> str:
    tally = reply.tally
    if not reply.blocks:
        return ""
    if not tally.drafted:
        return both("end.plain", tokens=tally.tokens, seed=reply.seed)
    green, red = tally.accepted, tally.drafted - tally.accepted
    return both("end.figures", tokens=tally.tokens, green=green, red=red, seed=reply.seed)


def engine_chip(status: Status, facts: Facts | None) -> str:
    """The truth about the engine in one line: model, format, kernel and exactness; or how far loading is."""
    if status.state is State.FAILED:
        return f'<span class="chip-engine bad">{both("load.failed")}</span>'
    if facts is None:
        return f'<span class="chip-engine">{loading(status)}</span>'
    details = both("header.facts", weights=facts.weights, kernel=facts.kernel, device=facts.device,
                   threads=facts.threads, context_len=facts.context_len)  # fmt: skip
    exact = both("header.exact" if facts.exact else "header.inexact")
    return (
        f'<span class="chip-engine" tabindex="0"><b>{escape(facts.target)}</b> · {escape(facts.weights)} · '
        f'{exact}<span class="kernel"> · {escape(facts.kernel)}</span>'
        f'<span class="more" role="tooltip">{details}</span></span>'
    )


def note(facts: Facts | None) -> str:
    """What a person should know of this model; "" where there is nothing. Sentences of the engine that we know are translated."""
    known = {text(key, "en"): both(key) for key in ("note.no_template", "note.no_system", "note.nf4")}
    return "<br>".join(known.get(line, escape(line)) for line in facts.note.splitlines()) if facts else ""


def missing_drafters(drafters: Sequence[str], asked: str) -> str:
    """Why a drafter cannot be chosen, a line each. asked: the command line's `--drafter`."""
    lines = []
    if "head" not in drafters:
        lines.append(both("drafter.missing.head") if asked == "auto" else both("drafter.missing.asked", asked=asked))
    if "draft_model" not in drafters:
        lines.append(both("drafter.missing.model"))
    return "<br>".join(lines).replace("--drafter", "<code>--drafter</code>")


def loading(status: Status) -> str:
    """The phase of loading, with a percentage where it is known."""
    share = "" if status.fraction is None else f" {status.fraction * 100:.0f} %"
    return f'<span class="busy">{both(f"load.{status.phase}")}{share}</span>'


def loading_notice(status: Status, pending: bool = False) -> str:
    """The same at full width, with a bar; "" once the engine is ready. `pending`: a message already waits for it."""
    if status.state is State.FAILED:
        return f'<p class="error" role="alert">{both("load.failed")} {escape(status.message)}</p>'
    if status.state is not State.LOADING:
        return ""
    note = "load.pending" if pending else "load.note"
    bar = "<progress></progress>" if status.fraction is None else f'<progress value="{status.fraction:.3f}"></progress>'
    return f"<p>{loading(status)}</p>{bar}<p>{both(note)}</p>"


def times(value: float | None) -> str:
    return DASH if value is None else f"{value:.2f}×"


def legend() -> str:
    """One sample of each kind with what it means."""
    kinds = "".join(
        f'<li><span class="t {kind.value}">{"abc"}</span> {both(f"legend.{kind.value}")}</li>'
        for kind in (Kind.DRAFT, Kind.REJECTED, Kind.DISCARDED, Kind.RECOVERED, Kind.BONUS, Kind.PLAIN)
    )
    return f'<ul class="legend">{kinds}</ul>'
