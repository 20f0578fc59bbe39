"""State -> HTML and figures. Pure; everything that came from a person or a model is escaped here, on the server.

Both languages are in the page at once and a style sheet shows one of them, so that switching never renders again and
what was sent once ("frozen") stays true.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from math import ceil

from engine import Facts, FinishReason, State, Status, Summary
from ui.state import LOST_KINDS, About, Block, Conversation, Kind, Phase, Piece, Reply, Turn
from ui.strings import LANGS, TEXT, text
from ui.strings.glossary import figure

DASH = "–"

COPY = '<path d="M5 5V2.5h8.5V11H11M2.5 5H11v8.5H2.5z"/>'
AGAIN = '<path d="M13 8a5 5 0 1 1-1.6-3.7M13 2v3h-3"/>'
DICE = '<rect x="2.5" y="2.5" width="11" height="11" rx="2"/><path d="M5.5 5.5h.01M8 8h.01M10.5 10.5h.01"/>'
PENCIL = '<path d="M10.5 3 13 5.5 5.5 13H3v-2.5z"/>'
LENS = '<circle cx="7" cy="7" r="4.5"/><path d="m10.5 10.5 3 3"/>'
"""Drawn on 16 x 16, for `icon`."""

_MARKS = {"\n": "↵", "\r": "↵", "\t": "⇥", "\u00a0": "⍽", "\u3000": "⍽", "\u200b": "∅"}
"""What invisible characters of a lost token are shown as. They must not break the line they were struck from."""

_SPECIALS = {
    "<|im_end|>": "special.end_of_turn",
    "<|im_start|>": "special.start_of_turn",
    "<|endoftext|>": "special.end_of_text",
}


def both(key: str, **values: object) -> str:
    """A text in both languages, as HTML. Values are escaped."""
    texts = {lang: escape(text(key, lang, **values)) for lang in ("en", "zh")}
    return f'<span class="en" lang="en">{texts["en"]}</span><span class="zh" lang="zh">{texts["zh"]}</span>'


def named(key: str) -> str:
    """A text in both languages for an attribute, which no style sheet can switch. Escaped."""
    return " · ".join(escape(text(key, lang)) for lang in LANGS)


def name(drafter: str) -> str:
    """A drafter's name; one that has no words stands for itself."""
    return both(f"drafter.{drafter}") if f"drafter.{drafter}" in TEXT else escape(drafter)


def icon(paths: str) -> str:
    return f'<svg class="icon" viewBox="0 0 16 16" aria-hidden="true">{paths}</svg>'


def piece(part: Piece, index: int = 0) -> str:
    """One token as HTML; "" where it shows nothing (the first bytes of a character). index: its place in the block."""
    if part.special:
        return _chip(part, index)
    letters = escape(show_blanks(part.text)) if part.kind in LOST_KINDS else escape(part.text)
    if not letters:
        return ""
    rest = _attributes(part, index)
    if part.kind in LOST_KINDS:
        return f'<s class="t {part.kind.value}"{rest}>{letters}</s>'
    blank = " ws" if part.text.isspace() else ""  # white space shows no colour unless it was struck out
    return f'<span class="t {part.kind.value}{blank}"{rest}>{letters}</span>'


def _attributes(part: Piece, index: int) -> str:
    """Which piece of its block it is, and how likely it was, for the shading."""
    return f' data-i="{index}"' + ("" if part.prob is None else f' style="--p:{part.prob:.2f}"')


def _chip(part: Piece, index: int) -> str:
    return f'<span class="t chip {part.kind.value}"{_attributes(part, index)}>{special(part.special)}</span>' + escape(
        part.text
    )


def special(token: str) -> str:
    """A control token in words where it has some, as HTML."""
    return both(_SPECIALS[token]) if token in _SPECIALS else escape(token)


def show_blanks(token_text: str) -> str:
    """A token's text with its white space made visible; leading spaces of a word stay spaces."""
    visible = "".join(_MARKS.get(char, char) for char in token_text)
    return "␣" * len(visible) if visible.isspace() else visible


def block(part: Block) -> str:
    """The tokens of an event, in one element by which a script finds them; "" where it added none."""
    pieces = "".join(piece(one, i) for i, one in enumerate(part.pieces))
    return f'<span class="round">{pieces}</span>'


def turn_head(turn: Turn) -> str:
    """The parts of a turn that do not change: who said what, and the empty place where blocks are put."""
    first = _first() if turn.key == 1 else ""
    return (
        '<p class="between" data-part="between"></p>'
        f'<div class="you"><h3 class="who">{both("log.you")}</h3><p class="said" dir="auto">{escape(turn.user)}</p>'
        f'<p class="acts">{_act("edit", PENCIL)}</p></div>'
        f'<div class="model"><h3 class="who">{both("log.model")}</h3>{first}'
        '<p class="said reply" dir="auto" data-part="blocks"></p><div class="foot" data-part="foot"></div></div>'
    )


def between(before: Turn | None, turn: Turn) -> str:
    """What stands between two turns of which another pair wrote the second; "" where it is the same, or not known."""
    was, now = before.about if before else None, turn.about
    if was is None or now is None or was.pair == now.pair:
        return ""
    name = " + ".join(filter(None, (now.target, now.drafter)))
    return both("models.between", name=f"{name} ({now.weights})")


def _first() -> str:
    """Beside the first reply: what the two colours mean, until that is known."""
    lines = "<br>".join(
        f'<span class="{colour}">{both(f"legend.word.{colour}")}</span> {both(f"legend.first.{colour}")}'
        for colour in ("green", "red")
    )
    button = f'<button type="button" data-action="first-done">{both("legend.first.done")}</button>'
    return f'<div class="first"><p>{lines}</p>{button}</div>'


def _act(name: str, paths: str) -> str:
    """A quiet button under a message, in words and with a picture."""
    return f'<button type="button" data-action="{name}">{icon(paths)}{both(f"act.{name}")}</button>'


def copy_button(action: str) -> str:
    """It says for a moment that it has copied."""
    return (
        f'<button type="button" data-action="{action}">{icon(COPY)}<span class="todo">{both("act.copy")}</span>'
        f'<span class="done">{both("act.copied")}</span></button>'
    )


def turn_foot(turn: Turn, ahead: int = 0) -> str:
    """What stands under a reply: why nothing is there yet, or how it ended, its figures, and what can be done with
    it."""
    reply = turn.reply
    if reply.phase is Phase.WAITING:
        if ahead and not reply.read_share:
            return f'<span class="busy">{both("log.waiting")} · {both("log.ahead", count=ahead)}</span>'
        return (
            f'<span class="busy">{both("log.reading")}{f" {reply.read_share:.0%}" if reply.read_share else ""}</span>'
        )
    if reply.phase is Phase.RUNNING:
        return ""
    outgrown = both("end.drafter_context") if reply.outgrown else ""
    parts = [ending(reply), outgrown, _counts_line(reply), _figures_line(reply, turn.about)]
    acts = (
        f'<p class="acts">{copy_button("copy")}{_act("again", AGAIN)}{_act("reseed", DICE)}{_act("inspect", LENS)}</p>'
    )
    return "".join(f"<p>{part}</p>" for part in parts if part) + acts


def ending(reply: Reply) -> str:
    """Why it ended, where that was not the model's own end; as HTML."""
    if reply.reason is FinishReason.LENGTH:
        return both("end.length", count=reply.tally.tokens)
    if reply.reason is FinishReason.CONTEXT:
        return both("end.context")
    if reply.reason is FinishReason.CANCELLED:
        return both("end.cancelled" if reply.text else "end.cancelled.empty")
    if reply.reason is FinishReason.ERROR:
        return f'<span class="error">{both("end.error", message=reply.message)}</span>'
    return ""


def _counts_line(reply: Reply) -> str:
    tally = reply.tally
    if not tally.tokens:
        return ""
    if not tally.drafted:
        return both("end.plain", tokens=tally.tokens, seed=reply.seed)
    green, red = tally.accepted, tally.drafted - tally.accepted
    return both("end.figures", tokens=tally.tokens, green=green, red=red, seed=reply.seed)


def figures_of(own: Summary) -> list[tuple[str, str]]:
    """A reply's own figures as keys of strings and values in words, each only where it was measured and can be true."""
    speedup = None if disturbed(own) else own.speedup
    figures = [
        ("foot.speed", own.spec_tok_s or own.overall_tok_s, speed),
        ("foot.plain", own.baseline.tok_s, speed),
        ("foot.speedup", speedup, times),
        ("foot.alpha", own.alpha, ratio),
        ("foot.tau", own.acceptance_length, ratio),
        ("foot.ttft", own.ttft_s, seconds),
    ]
    return [(key, in_words(value)) for key, value, in_words in figures if value is not None]


def _figures_line(reply: Reply, about: About | None) -> str:
    """These in one line; what wrote it; whether that is exact."""
    own = reply.tally.summary()
    if not own.tokens:
        return ""
    parts = [figure(key, both(key, value=value)) for key, value in figures_of(own)]
    if about is not None:
        who = " + ".join(name(drafts.drafter) for drafts in own.acceptance_by_drafter) or name("none")
        parts += [who, escape(about.kernel), both("header.exact" if about.exact else "header.inexact")]
    return f'<span class="figures">{" · ".join(parts)}</span>'


def context_tokens(conversation: Conversation) -> int:
    """Tokens that the conversation takes of the model's context: the last prompt and its reply."""
    tally = conversation.turns[-1].reply.tally if conversation.turns else None
    return 0 if tally is None else tally.prompt_tokens + tally.tokens


def meter(conversation: Conversation, context_len: int, asking: int | None = None) -> str:
    """How full the model's context is. asking: the tokens of the whole prompt with the message being written."""
    count = context_tokens(conversation) if asking is None else asking
    rest = max(0, context_len - count)
    bar = (
        f'<meter min="0" max="{context_len}" high="{context_len * 0.9:.0f}" value="{min(count, context_len)}" '
        'aria-hidden="true"></meter>'
    )
    if asking is not None and asking >= context_len:
        return f'<span class="full">{bar} {both("meter.too_long", count=asking, context=context_len)}</span>'
    return (
        f"{bar} {both('meter.used' if asking is None else 'meter.asking', used=count, context=context_len, left=rest)}"
    )


def engine_chip(status: Status, facts: Facts | None) -> str:
    """The truth about the engine in one line: model, format, kernel and exactness; or how far loading is."""
    if status.state is State.FAILED:
        more = f'<span class="more" role="tooltip">{escape(status.message)}</span>'
        return f'<span class="chip-engine bad" tabindex="0">{both("load.failed")}{more}</span>'
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
    """What a person should know of this model; "" where there is nothing. Sentences of the engine that we know are
    translated."""
    return "<br>".join(translate(line, NOTES) or escape(line) for line in facts.note.splitlines()) if facts else ""


def translate(sentence: str, patterns: Mapping[str, str]) -> str:
    """A sentence of the engine in both languages; "" where it is none of those known. patterns: by key, that of all
    of it, whose named groups are the text's values."""
    for key, pattern in patterns.items():
        if match := re.fullmatch(pattern, sentence):
            return both(key, **match.groupdict())
    return ""


def _pattern(key: str) -> str:
    """Of a text whose English is the engine's own."""
    return re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+)", re.escape(TEXT[key][0]))


NOTES = {
    key: _pattern(key)
    for key in ("note.no_template", "note.no_system", "note.nf4", "note.dequantised", "note.reencoded")
}


def missing_drafters(drafters: Sequence[str], option: str) -> str:
    """Why a drafter cannot be chosen, a line each. option: the command line's `--drafter`."""
    lines = []
    if "head" not in drafters:
        lines.append(both("drafter.missing.head") if option == "auto" else both("drafter.missing.asked", asked=option))
    if "draft_model" not in drafters:
        lines.append(both("drafter.missing.model"))
    return "<br>".join(lines).replace("--drafter", "<code>--drafter</code>")


def loading(status: Status) -> str:
    """The phase of loading, with a percentage where it is known."""
    share = "" if status.fraction is None else f" {status.fraction * 100:.0f} %"
    return f'<span class="busy">{both(f"load.{status.phase}")}{share}</span>'


def loading_notice(status: Status, pending: bool = False, left_s: float | None = None) -> str:
    """The same at full width: what is being done and why, a bar, the time left where that is known; "" once the engine
    is ready. `pending`: a message already waits for it."""
    if status.state is State.FAILED:
        return f'<p class="error" role="alert">{both("load.failed")} {escape(status.message)}</p>'
    if status.state is not State.LOADING:
        return ""
    note = "load.pending" if pending else "load.note"
    bar = "<progress></progress>" if status.fraction is None else f'<progress value="{status.fraction:.3f}"></progress>'
    rest = "" if left_s is None else f" · {_time_left(left_s)}"
    return f"<p>{loading(status)}{rest}</p>{bar}<p>{both(f'load.{status.phase}.why')} {both(note)}</p>"


def _time_left(seconds: float) -> str:
    """Rounded up, to five seconds or to minutes: more would not be known."""
    if seconds > 90:
        return both("load.left.minutes", count=ceil(seconds / 60))
    return both("load.left.seconds", count=max(1, ceil(seconds / 5)) * 5)


def times(value: float | None) -> str:
    return DASH if value is None else f"{value:.2f}×"


def speed(value: float | None) -> str:
    """Tokens per second in three figures, so that the place it takes hardly changes."""
    if value is None:
        return DASH
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}"


def ratio(value: float | None) -> str:
    return DASH if value is None else f"{value:.2f}"


def seconds(value: float | None) -> str:
    if value is None:
        return DASH
    return f"{value * 1000:.0f} ms" if value < 0.9995 else f"{value:.2f} s"


def disturbed(own: Summary) -> bool:
    """A round with guesses takes at least as long as one without, so a speed-up above its tokens was mismeasured."""
    return own.speedup is not None and own.speedup > 1.02 * max(1.0, own.acceptance_length or 1.0)


def legend() -> str:
    """One sample of each kind with what it means."""
    kinds = "".join(
        f'<li><span class="t {kind.value}">{"abc"}</span> {both(f"legend.{kind.value}")}</li>'
        for kind in (Kind.DRAFT, Kind.REJECTED, Kind.DISCARDED, Kind.RECOVERED, Kind.BONUS, Kind.PLAIN)
    )
    return f'<ul class="legend">{kinds}</ul>'


def scale() -> str:
    """What the shading says, from 1 to 0; a style sheet shows it only while words are shaded."""
    steps = "".join(f'<span class="t" style="--p:{prob}">{prob:g}</span>' for prob in (1, 0.75, 0.5, 0.25, 0))
    ends = [both(f"legend.scale.{end}") for end in ("expected", "surprising")]
    return f'<p class="scale">{both("legend.scale")} {ends[0]} {steps} {ends[1]}</p>'
