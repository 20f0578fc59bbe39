"""One round up close, as HTML in both languages: what stood before it, what was guessed, what both models found likely,
what became of each guess and why, and where the time went. Pure.

Why, and the table of the round, are those of a token's card (`ui.inspect.explain`, `ui.inspect.token_card`); here the
lists of likeliest tokens are added, where they were recorded. Every bar has its token and its number in words beside
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from engine import Choice, Finished, Outcome, Prefilled, RecoveryDetail, Round, Rule, Source, Token, TokenDecision
from ui.html.render import both, icon, named, show_blanks
from ui.inspect import token_card
from ui.inspect.explain import Subject, decision_about, number, rejection_in, subject_of, took
from ui.inspect.explain import named as quoted
from ui.recording.recordings import Lane, LaneName, Recording
from ui.state import LOST_KINDS, Block, Kind, Piece

CHARS_BEFORE = 80
"""Characters of the text before a round that are shown."""

PARTS = ("draft", "verify", "sample", "other")
"""Of a round's time, in the order in which they are drawn."""

BACK = '<path d="M10 3 5 8l5 5"/>'
ON = '<path d="m6 3 5 5-5 5"/>'


@dataclass(frozen=True, slots=True)
class Row:
    """A bar: a token, its probability, and what it is besides: "guess", "written" or nothing."""

    text: str
    prob: float
    mark: str = ""


def pane(recording: Recording, lane: LaneName, block: int, piece: int) -> str | None:
    """The round of a lane's block with one of its pieces chosen; None where there is no such round or piece.

    A round of which nothing is left has the piece 0. The end of a reply is no round.
    """
    recorded_lane = recording.lane(lane)
    if recorded_lane is None or not 0 <= block < len(recorded_lane.reply.blocks):
        return None
    here = recorded_lane.reply.blocks[block]
    if isinstance(here.event, Finished) or not 0 <= piece < max(1, len(here.pieces)):
        return None
    inside = (
        _round_inside(recorded_lane, here, block, piece)
        if here.pieces
        else f'<p class="note">{both("inspect.empty")}</p>'
    )
    time = _time(here.event) if isinstance(here.event, Round) else ""
    before = _before(recording, recorded_lane, block)
    return (
        f'<article class="pane" aria-label="{named("inspect.label")}">{_head(recorded_lane, block)}{before}{inside}'
        f"{time}</article>"
    )


def _round_inside(lane: Lane, here: Block, block: int, piece: int) -> str:
    event, subject = here.event, subject_of(here, piece)
    greedy = lane.about is not None and lane.about.params.sampling.temperature == 0
    says = token_card.says(here, piece, lane.about)
    row = _tokens(here, block, piece)
    if not isinstance(event, Round):
        return f'{row}{says}<p class="note">{both("inspect.unrecorded.first")}</p>'
    return f'{row}{says}{_likely(event, subject, greedy)}<div class="all">{token_card.table(event, subject)}</div>'


# -- where it is -------------------------------------------------------------------------------------------------------


def _head(lane: Lane, block: int) -> str:
    """Which round it is, between the ways to its neighbours."""
    event, blocks = lane.reply.blocks[block].event, lane.reply.blocks
    line = token_card.lines(event) if isinstance(event, Round) else f'<p class="line">{both("inspect.prompt")}</p>'
    before, after = (any(one.pieces for one in some) for some in (blocks[:block], blocks[block + 1 :]))
    back = _step("round-prev", f"{icon(BACK)}{both('inspect.prev')}", before)
    on = _step("round-next", f"{both('inspect.next')}{icon(ON)}", after)
    return f'<div class="steps">{back}{line}{on}</div>'


def _step(action: str, html: str, there: bool) -> str:
    return f'<button type="button" data-action="{action}"{"" if there else " disabled"}>{html}</button>'


def _before(recording: Recording, lane: Lane, block: int) -> str:
    """The end of what the model had read when the round began."""
    reply_text = "".join(
        piece.text for one in lane.reply.blocks[:block] for piece in one.pieces if piece.kind not in LOST_KINDS
    )
    text = reply_text or recording.user
    if not text:
        return ""
    end = ("…" if len(text) > CHARS_BEFORE else "") + text[-CHARS_BEFORE:]
    name = both("inspect.before" if reply_text else "inspect.before.prompt")
    return f'<p class="before"><span class="name">{name}</span> <bdi>{escape(end)}</bdi></p>'


# -- what it wrote and guessed -----------------------------------------------------------------------------------------


def _tokens(here: Block, block: int, piece: int) -> str:
    """All tokens of the round, each with what became of it in words; pressing one chooses it."""
    items = "".join(f"<li>{_token(here, block, i, i == piece)}</li>" for i in range(len(here.pieces)))
    guessed = isinstance(here.event, Round) and bool(here.event.decisions)
    name = both("inspect.tokens" if guessed else "inspect.tokens.plain")
    end_note = f'<p class="note">{both("inspect.ended")}</p>' if guessed and not _has_own(here.pieces) else ""
    return f'<p class="name">{name}</p><ol class="guesses">{items}</ol>{end_note}'


def _token(here: Block, block: int, i: int, is_current: bool) -> str:
    part = here.pieces[i]
    aria_current = ' aria-current="true"' if is_current else ""
    return (
        f'<button type="button" data-block="{block}" data-piece="{i}" class="{part.kind.value}"{aria_current}>'
        f'{token_card.token(part.kind, part.text, part.special)} <span class="fate">{_fate(here, part)}</span></button>'
    )


def _fate(here: Block, part: Piece) -> str:
    if isinstance(here.event, Prefilled):
        return both("inspect.first")
    if part.kind is Kind.DISCARDED:
        behind = isinstance(here.event, Round) and rejection_in(here.event) is not None
        return both("inspect.behind" if behind else "inspect.cut")
    return both(f"card.outcome.{'accepted' if part.kind is Kind.DRAFT else part.kind.value}")


def _has_own(pieces: Sequence[Piece]) -> bool:
    """Whether there is a token of the model's own in the round."""
    return any(piece.kind not in LOST_KINDS and piece.kind is not Kind.DRAFT for piece in pieces)


# -- what was likely ---------------------------------------------------------------------------------------------------


def _likely(round_: Round, subject: Subject, greedy: bool) -> str:
    """The lists of likeliest tokens that belong to a token: of its guess, and of what was written at the round's
    end."""
    last = next((token for token in round_.tokens if token.source is not Source.DRAFT), None)
    guess = decision_about(round_, subject)
    if guess is None and isinstance(subject, Token) and subject.source is Source.RECOVERED:
        guess = rejection_in(round_)
    if guess is not None and guess.outcome is Outcome.DISCARDED:
        return f'<p class="note">{both("inspect.unrecorded.unchecked")}</p>'
    parts = [_two_views(round_, guess, last, greedy)] if guess is not None else []
    if guess is None or guess.outcome is Outcome.REJECTED:
        parts.append(_draw_source(round_, guess, last, greedy))
    lists = "".join(parts)
    return lists or f'<p class="note">{both("inspect.unrecorded")}</p>'


def _two_views(round_: Round, guess: TokenDecision, last: Token | None, greedy: bool) -> str:
    """What both models found likely at the place of a guess, side by side; "" where that was not recorded."""
    detail = guess.detail
    if detail is None or not (detail.draft_top or detail.target_top):
        return ""
    written_id = last.id if guess.outcome is Outcome.REJECTED and last is not None else None
    copied = round_.drafter == "ngram"
    # At temperature 0 the lists are those before it (see `engine.events.TokenDetail`).
    gave = (detail.raw_draft_prob, detail.raw_target_prob) if greedy else (guess.draft_prob, guess.target_prob)
    draft, target = (
        _rows(top, written_id, guess, prob)
        for top, prob in zip((detail.draft_top, detail.target_top), gave, strict=True)
    )
    fate = "kept" if guess.outcome is Outcome.ACCEPTED else "lost"
    views = [
        _bars(both("inspect.draft_top.copy" if copied else "inspect.draft_top"), draft, fate),
        _bars(both("inspect.target_top"), target, fate),
    ]
    comparison = "inspect.compared.noise" if round_.rule is Rule.SHARED_NOISE else "inspect.compared"
    note = both("inspect.greedy") if greedy else both(comparison)
    return f'<div class="views">{"".join(views)}</div><p class="note">{note}</p>'


def _draw_source(round_: Round, guess: TokenDecision | None, last: Token | None, greedy: bool) -> str:
    """What the round's own token came from: the residual after a rejection, else the model's own probabilities."""
    recovery = round_.recovery
    if recovery is None or last is None or not (recovery.top or recovery.raw_top):
        return ""
    if greedy and guess is not None and guess.detail is not None and guess.detail.target_top:
        return f'<p class="how">{both("inspect.likeliest.instead", token=quoted(last))}</p>'  # of the list just shown
    residual = guess is not None and not greedy and round_.rule is not Rule.SHARED_NOISE
    top = (recovery.raw_top if greedy else recovery.top) or recovery.top
    title = both("inspect.residual" if residual else "inspect.own")
    sentence = _choice_reason(round_, guess, last, recovery, greedy)
    return f'<p class="how">{sentence}</p><div class="views">{_bars(title, _rows(top, last.id, guess), "lost")}</div>'


def _choice_reason(
    round_: Round, guess: TokenDecision | None, last: Token, recovery: RecoveryDetail, greedy: bool
) -> str:
    if greedy:
        return both("inspect.likeliest")
    if round_.rule is Rule.SHARED_NOISE:
        key = "inspect.noise.own" if guess is None else "inspect.noise.instead"
        return both(key, token=quoted(last))
    why = both("inspect.own.why" if guess is None else "inspect.residual.why")
    if recovery.uniform is None:
        return why
    return f"{why} {both('inspect.drawn', drawn=number(recovery.uniform), token=quoted(last))}"


def _rows(
    top: Sequence[Choice], written_id: int | None, guess: TokenDecision | None, prob: float | None = None
) -> list[Row]:
    """The likeliest first. A guess that is not among them comes last where its probability (prob) is known."""
    guess_id = None if guess is None else guess.id
    marks = {written_id: "written", guess_id: "guess"}
    rows = [Row(choice.text, choice.prob, marks.get(choice.id, "")) for choice in top]
    if guess is not None and prob is not None and all(choice.id != guess.id for choice in top):
        rows.append(Row(guess.text or guess.special, prob, "guess"))
    return rows


def _bars(title: str, rows: Sequence[Row], fate: str) -> str:
    """A list with a bar and the number for each token. fate: of the guess, "kept" or "lost"."""
    return f'<section><h4>{title}</h4><ul class="probs {fate}">{"".join(map(_bar, rows))}</ul></section>'


def _bar(row: Row) -> str:
    words = {"guess": both("inspect.mark.guess"), "written": both("inspect.mark.written")}
    mark = f" <small>{words[row.mark]}</small>" if row.mark else ""
    name = f'<span class="unseen">{both("inspect.probability")}</span>'
    return (
        f'<li class="{row.mark}"><span class="which"><bdi>{escape(show_blanks(row.text)) or "…"}</bdi>{mark}</span>'
        f'<span class="track" aria-hidden="true"><span style="width:{min(1.0, row.prob):.1%}"></span></span>'
        f'<span class="prob">{name} {number(row.prob)}</span></li>'
    )


# -- where the time went -----------------------------------------------------------------------------------------------


def _time(round_: Round) -> str:
    """A bar of the round's time in its parts, and the parts in words; "" where none was measured."""
    if round_.total_s <= 0:
        return ""
    main_parts = {"draft": round_.draft_s, "verify": round_.verify_s, "sample": round_.sample_s}
    parts = main_parts | {"other": max(0.0, round_.total_s - sum(main_parts.values()))}
    whole = sum(parts.values())
    names = {
        "draft": both("charts.draft"),
        "verify": both("charts.verify"),
        "sample": both("charts.sample"),
        "other": both("charts.other"),
    }
    bar = "".join(f'<span class="{part}" style="width:{parts[part] / whole:.1%}"></span>' for part in PARTS)
    items = "".join(f'<li class="{part}">{names[part]} <b>{took(parts[part])}</b></li>' for part in PARTS)
    note = (
        f'<p class="note">{both("inspect.time.detail", time=took(round_.detail_s))}</p>' if round_.detail_s > 0 else ""
    )
    return (
        f'<div class="took"><p class="name">{both("inspect.time", total=took(round_.total_s))}</p>'
        f'<div class="parts" aria-hidden="true">{bar}</div><ul>{items}</ul>{note}</div>'
    )
