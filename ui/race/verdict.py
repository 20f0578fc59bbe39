"""What a race came to: who was faster and by how much, what it took, whether both wrote the same text and if not why.
Pure.

The speed-up is of decoding alone, after the first token: both lanes share one reading of the prompt, and guessing
does not make that faster. Times are each lane's own computing. Texts are compared token by token.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from html import escape

from engine import FinishReason, Prefilled, Round, Rule, Summary, Token, format_k
from engine import ratio as divided
from ui.html.panel import uncertainty
from ui.html.render import both, named, ratio, seconds, speed, times
from ui.inspect.explain import named as quoted
from ui.inspect.explain import number
from ui.recording.recordings import Lane, LaneName, Recording
from ui.state import Reply, tokens_of
from ui.strings.glossary import figure

KS = ("1", "2", "3", "5", "8", "auto")
"""What a race is offered to be run again with: a few of those that its form has."""

SAME_WITHIN = 0.02
"""Speeds nearer than that are called the same."""

MISMEASURED = 1.02
"""A pass with guesses takes at least as long as one without, so a speed-up this much above its tokens was
mismeasured."""


@dataclass(frozen=True, slots=True)
class Side:
    """One lane in figures. whole_s: its own computing from the prompt to the end. passes: forward passes of the model.

    tokens_a_pass: over its rounds; None before the first one.
    """

    name: LaneName
    figures: Summary
    whole_s: float
    passes: int
    tokens_a_pass: float | None


class Likeness(StrEnum):
    SAME = "same"
    SO_FAR = "so_far"  # one ended earlier, and what it wrote is the other's beginning
    PARTED = "parted"
    NOTHING = "nothing"  # a lane wrote no token


@dataclass(frozen=True, slots=True)
class Parting:
    """Where two texts part. probs: of the two tokens, as the plain lane's model found them at temperature 1 without
    filters (the logarithm of their ratio is the distance of their logits); None where they were not among those
    recorded."""

    plain: Token
    speculative: Token
    probs: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """speedup: the speculative lane's tokens per second after the first token over the plain lane's; None unless both
    wrote on. alike: tokens from the beginning that are the same."""

    plain: Side
    speculative: Side
    speedup: float | None
    likeness: Likeness
    alike: int
    parting: Parting | None = None


def comparison(recording: Recording) -> Comparison | None:
    """A finished race in figures; None while a lane runs, and for what is no race."""
    plain, speculative = recording.lane(LaneName.PLAIN), recording.lane(LaneName.SPECULATIVE)
    if plain is None or speculative is None or recording.running:
        return None
    one, other = _side(plain), _side(speculative)
    rates = one.figures.overall_tok_s, other.figures.overall_tok_s
    speedup = rates[1] / rates[0] if rates[0] and rates[1] else None
    return Comparison(one, other, speedup, *_compared(plain.reply, speculative.reply))


def _side(lane: Lane) -> Side:
    figures = lane.reply.tally.summary()
    rounds = [block.event for block in lane.reply.blocks if isinstance(block.event, Round)]
    read = any(isinstance(block.event, Prefilled) for block in lane.reply.blocks)
    whole_s = (figures.ttft_s or 0.0) + sum(round_.total_s for round_ in rounds)
    written = sum(len(round_.tokens) for round_ in rounds)
    return Side(lane.name, figures, whole_s, read + len(rounds), divided(written, len(rounds)))


def _compared(plain: Reply, speculative: Reply) -> tuple[Likeness, int, Parting | None]:
    ones, others = (
        [token for block in reply.blocks for token in tokens_of(block.event)] for reply in (plain, speculative)
    )
    pairs = list(zip(ones, others, strict=False))
    at = next((i for i, (one, other) in enumerate(pairs) if one.id != other.id), None)
    if at is not None:
        return Likeness.PARTED, at, Parting(*pairs[at], _probs(plain, *pairs[at]))
    if not pairs:
        return Likeness.NOTHING, 0, None
    return Likeness.SAME if len(ones) == len(others) else Likeness.SO_FAR, len(pairs), None


def _probs(plain: Reply, one: Token, other: Token) -> tuple[float, float] | None:
    """What the round that wrote `one` recorded of both."""
    for block in plain.blocks:
        if isinstance(block.event, Round) and one in block.event.tokens and block.event.recovery is not None:
            prob_by_id = {choice.id: choice.prob for choice in block.event.recovery.raw_top if choice.prob > 0}
            return (
                (prob_by_id[one.id], prob_by_id[other.id]) if one.id in prob_by_id and other.id in prob_by_id else None
            )
    return None


# -- in words ----------------------------------------------------------------------------------------------------------


def verdict(recording: Recording, again: bool = True) -> str:
    """The verdict as HTML in both languages; "" while a lane runs. Of a reply that did not race, its figures. again:
    offer to race once more."""
    if recording.running:
        return ""
    outcome = comparison(recording)
    if outcome is None:
        return _sheet(_table([_side(lane) for lane in recording.lanes], again))
    cut = any(lane.reply.reason in (FinishReason.CANCELLED, FinishReason.ERROR) for lane in recording.lanes)
    parts = [
        _headline(outcome),
        f"<p>{both('verdict.cut')}</p>" if cut else "",
        _table([outcome.plain, outcome.speculative], again),
    ]
    return _sheet("".join(parts) + _text(outcome, recording) + (_again(recording) if again else ""))


def _sheet(html: str) -> str:
    return f'<section class="outcome" aria-label="{named("verdict.label")}">{html}</section>'


def _headline(outcome: Comparison) -> str:
    if outcome.speedup is None:
        return f'<p class="headline">{both("verdict.unknown")}</p>'
    how = _how(outcome.speedup, uncertainty(outcome.plain.figures.baseline))
    sentence = {
        "faster": both("verdict.faster"), "slower": both("verdict.slower"), "same": both("verdict.same"),
        "unclear": both("verdict.unclear"),
    }[how]  # fmt: skip
    most = max(1.0, outcome.speculative.tokens_a_pass or 1.0)
    doubt = ""
    if outcome.speedup > MISMEASURED * most:
        doubt = f'<p class="doubt">{both("verdict.doubtful", tokens=ratio(most))}</p>'
    return f'<p class="headline {how}"><b>{times(outcome.speedup)}</b> {sentence}</p>{doubt}'


def _how(speedup: float, scatter: float) -> str:
    """A slow-down is said as plainly as a speed-up; nothing is claimed within what single passes scatter."""
    if abs(speedup - 1) <= SAME_WITHIN:
        return "same"
    return "unclear" if abs(speedup - 1) < scatter else "faster" if speedup > 1 else "slower"


def _table(sides: list[Side], linked: bool) -> str:
    """A column for each lane. linked: each figure's name leads to the glossary, which a file of its own has not."""
    heading = figure if linked else _unlinked
    names = {LaneName.PLAIN: both("panel.plain"), LaneName.SPECULATIVE: both("panel.spec"),
             LaneName.REPLY: both("verdict.reply")}  # fmt: skip
    rows = [
        (heading("verdict.time", both("verdict.time")), [seconds(side.whole_s or None) for side in sides]),
        (heading("verdict.first", both("verdict.first")), [seconds(side.figures.ttft_s) for side in sides]),
        (heading("verdict.tokens", both("verdict.tokens")), [str(side.figures.tokens) for side in sides]),
        (heading("verdict.speed", both("verdict.speed")), [speed(side.figures.overall_tok_s) for side in sides]),
        (
            _explained(heading("verdict.passes", both("verdict.passes")), "verdict.passes.help"),
            [str(side.passes) for side in sides],
        ),
        (
            _explained(heading("verdict.alpha", both("verdict.alpha")), "verdict.alpha.help"),
            [_guessed(side, side.figures.alpha) for side in sides],
        ),
        (
            heading("verdict.tau", both("verdict.tau")),
            [_guessed(side, side.figures.acceptance_length) for side in sides],
        ),
    ]
    heads = "".join(f'<th scope="col">{names[side.name]}</th>' for side in sides)
    body = "".join(
        f'<tr><th scope="row">{name}</th>' + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
        for name, cells in rows
    )
    caption = both("verdict.table" if len(sides) > 1 else "verdict.table.reply")
    return (
        f'<table><caption class="unseen">{caption}</caption><thead><tr><th scope="col"><span class="unseen">'
        f"{both('verdict.figure')}</span></th>{heads}</tr></thead><tbody>{body}</tbody></table>"
    )


def _unlinked(_: str, name: str) -> str:
    return name


def _explained(name: str, help_: str) -> str:
    return f"{name} <small>{both(help_)}</small>"


def _guessed(side: Side, value: float | None) -> str:
    """A figure about guesses; where there were none, that is said, for it is not a matter of measuring."""
    return ratio(value) if side.figures.drafted or value is not None else both("verdict.none")


def _text(outcome: Comparison, recording: Recording) -> str:
    """Whether the texts agree, and where and why they part."""
    if outcome.parting is None:
        return f'<p class="likeness {outcome.likeness.value}">{_alike(outcome)}</p>'
    parting = outcome.parting
    key = "verdict.text.parted" if outcome.alike else "verdict.text.parted.first"
    sentence = both(key, count=outcome.alike, plain=quoted(parting.plain), speculative=quoted(parting.speculative))
    because = " ".join([*_margin(parting), _why(recording)])
    return f'<p class="likeness parted">{sentence}</p><p class="because">{because}</p>'


def _alike(outcome: Comparison) -> str:
    written = outcome.plain.figures.tokens, outcome.speculative.figures.tokens
    if outcome.likeness is Likeness.NOTHING:
        return both("verdict.text.one" if any(written) else "verdict.text.nothing")
    if outcome.likeness is Likeness.SAME:
        return both("verdict.text.same", count=outcome.alike)
    shorter = "verdict.text.so_far.plain" if written[0] < written[1] else "verdict.text.so_far.speculative"
    return both(shorter, count=outcome.alike)


def _margin(parting: Parting) -> list[str]:
    if parting.probs is None:
        return []
    one, other = parting.probs
    margin = f"{abs(math.log(one / other)):.3g}"
    return [both("verdict.margin", margin=margin, plain=number(one), speculative=number(other))]


def _why(recording: Recording) -> str:
    """Why the texts of a race part."""
    plain, speculative = (lane for name in (LaneName.PLAIN, LaneName.SPECULATIVE) if (lane := recording.lane(name)))
    if plain.about is None or speculative.about is None:
        return both("verdict.why.unknown")
    sampling, rule = speculative.about.params.sampling, speculative.about.params.rule
    drawn = sampling.temperature > 0
    if plain.about.params.sampling != sampling or (drawn and plain.reply.seed != speculative.reply.seed):
        return both("verdict.why.settings")
    if drawn and rule is Rule.REJECTION:
        return both("verdict.why.draws", temperature=f"{sampling.temperature:g}")
    exact = plain.about.exact and speculative.about.exact
    return both("verdict.why.fault" if exact else "verdict.why.rounding")


def _again(recording: Recording) -> str:
    """The same prompt with other numbers of guesses, one press each."""
    lane = recording.lane(LaneName.SPECULATIVE)
    params = lane.about.params if lane is not None and lane.about is not None else None
    now = "" if params is None else str(format_k(params.num_speculative_tokens))
    buttons = "".join(
        f'<button type="button" class="pick" data-action="race-again" data-k="{k}"{_here(k == now)}>'
        f"{both('verdict.again.auto') if k == 'auto' else escape(f'K = {k}')}</button>"
        for k in KS
    )
    return f'<p class="again">{both("verdict.again")} {buttons}</p>'


def _here(current: bool) -> str:
    return ' aria-current="true"' if current else ""
