"""What the page tells of one token: what it is and why, in words and in numbers, and its round as a table. Pure.

The rule compared probabilities after temperature and filters; those before them ("raw") stand beside, where they differ:
at temperature 0 the first are 1 and 0 only.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any, TypeVar

from engine.config import Rule
from engine.events import KReason, Outcome, Prefilled, Round, RoundKind, Source, Token, TokenDecision
from ui.controls import choice_label
from ui.course import played
from ui.render import DASH, both, marked, special, times
from ui.state import LOST, About, Block, Kind, Piece, Turn, tokens_of
from ui.strings import LANGS, Lang, text

Subject = Token | TokenDecision
"""What a piece stands for: a token of the reply, or a draft that was lost."""

Placed = TypeVar("Placed", Token, TokenDecision)


def answer(turn: Turn, block: object, piece: object) -> dict[str, Any] | None:
    """What the page gets when it asks for a card; None if there is no such piece."""
    if not (isinstance(block, int) and isinstance(piece, int) and 0 <= block < len(turn.reply.blocks)):
        return None
    found = turn.reply.blocks[block]
    if not 0 <= piece < len(found.pieces):
        return None
    return {"key": turn.key, "block": block, "piece": piece, "html": card(found, piece, turn.about)}


def card(block: Block, piece: int, about: About | None = None) -> str:
    """The card of a block's piece as HTML, in both languages. about: what wrote the reply, for its temperature."""
    part, event, subject = block.pieces[piece], block.event, subject_of(block, piece)
    greedy = about is not None and about.params.sampling.temperature == 0
    kind = "first" if isinstance(event, Prefilled) else part.kind.value
    told = [*_why(event, subject, greedy), *_nature(part)]
    head = f'<p class="head">{_token(part.kind, part.text, part.special)} <b>{both(f"card.kind.{kind}")}</b></p>'
    says = f'<div class="says">{head}<p>{" ".join(told)}</p></div>'
    if not isinstance(event, Round):
        return says
    lines = "".join(f'<span class="{lang}" lang="{lang}">{escape(line(event, lang))}</span>' for lang in LANGS)
    return f'{says}{_table(event, subject)}<p class="line">{lines}</p>'


def subject_of(block: Block, piece: int) -> Subject:
    """Pieces are the event's tokens and its lost drafts, each in their own order."""
    lost = block.pieces[piece].kind in LOST
    nth = sum((before.kind in LOST) is lost for before in block.pieces[:piece])
    if lost and isinstance(block.event, Round):
        return [decision for decision in block.event.decisions if decision.outcome is not Outcome.ACCEPTED][nth]
    return tokens_of(block.event)[nth]


# -- numbers -----------------------------------------------------------------------------------------------------------


def number(value: float) -> str:
    """A probability in 2 or 3 digits that count; nothing that is above 0 or below 1 looks like these."""
    if value <= 0 or value >= 1:
        return "0" if value <= 0 else "1"
    if value > 0.999:
        return ">0.999"
    if value < 0.001:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    if value < 0.0995:
        return f"{value:.2g}"
    return f"{value:.2f}" if value < 0.995 else f"{value:.3f}"


def apart(one: float, other: float) -> tuple[str, str]:
    """Two numbers with as many digits as it takes to tell them apart."""
    for show in (number, *(f"{{:.{digits}f}}".format for digits in range(3, 9))):
        if show(one) != show(other) or one == other:
            return show(one), show(other)
    return f"{one:.6g}", f"{other:.6g}"


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


# -- why it is what it is ----------------------------------------------------------------------------------------------


def _why(event: object, subject: Subject, greedy: bool) -> list[str]:
    """Sentences in plain words, from the event's own numbers."""
    if isinstance(event, Prefilled):
        first = both("card.first", prompt=event.prompt_tokens, cached=event.cached_tokens, time=_time(event.ttft_s))
        return [first, *_raw(subject)]
    if not isinstance(event, Round):
        return []
    decision = _decision(event, subject)
    if decision is not None:
        return [*_why_draft(event, decision, greedy), *_raw(decision)]
    if isinstance(subject, Token) and subject.source is Source.RECOVERED:
        how = "greedy" if greedy else "noise" if event.rule is Rule.SHARED_NOISE else "drawn"
        return [both(f"card.recovered.{how}", lost=_named(_rejected(event))), *_raw(subject)]
    if isinstance(subject, Token) and subject.source is Source.BONUS:
        return [both("card.bonus", count=event.num_drafted), *_raw(subject)]
    return [both("card.plain.probe" if event.kind is RoundKind.PROBE else "card.plain"), *_raw(subject)]


def _why_draft(round_: Round, decision: TokenDecision, greedy: bool) -> list[str]:
    if decision.outcome is Outcome.DISCARDED:
        return _why_unchecked(round_, decision)
    fate = "kept" if decision.outcome is Outcome.ACCEPTED else "lost"
    if greedy:
        copied = [both("card.copy")] if _copied(round_, decision) else []
        return [*copied, both(f"card.greedy.{fate}")]
    if round_.rule is Rule.SHARED_NOISE:
        return [
            both(f"card.noise.{fate}", instead=_named(_at(round_.tokens, decision.position))),
            *_gave(round_, decision),
        ]
    return _why_drawn(round_, decision, fate)


def _why_drawn(round_: Round, decision: TokenDecision, fate: str) -> list[str]:
    """Rejection sampling: the two probabilities, and the number that decided."""
    gave = _gave(round_, decision)
    accept, drawn = decision.accept_prob, decision.uniform
    if accept is None or drawn is None:
        return gave
    if accept >= 1:
        return [*gave, both("card.sure")]
    drawn_shown, accept_shown = apart(drawn, accept)
    return [*gave, both("card.accept", accept=accept_shown), both(f"card.drawn.{fate}", drawn=drawn_shown)]


def _gave(round_: Round, decision: TokenDecision) -> list[str]:
    """What both made of it. A drafter that copies is certain."""
    copied = _copied(round_, decision)
    if decision.target_prob is None:
        return [both("card.gave.copied" if copied else "card.gave.draft", draft=number(decision.draft_prob))]
    draft, target = number(decision.draft_prob), number(decision.target_prob)
    return [both("card.gave.copy" if copied else "card.gave", draft=draft, target=target)]


def _copied(round_: Round, decision: TokenDecision) -> bool:
    return round_.drafter == "ngram" and decision.draft_prob >= 1


def _why_unchecked(round_: Round, decision: TokenDecision) -> list[str]:
    rejected = _rejected(round_)
    behind = both("card.unchecked", lost=_named(rejected)) if rejected else both("card.unchecked.end")
    return [behind, *_gave(round_, decision)]


def _raw(subject: Subject) -> list[str]:
    """What the models made of it before temperature and filters, where that is known and not the same."""
    if isinstance(subject, Token):
        return [] if subject.raw_prob is None else [both("card.raw.model", target=number(subject.raw_prob))]
    if subject.detail is None:
        return []
    draft, target = subject.detail.raw_draft_prob, subject.detail.raw_target_prob
    same = draft is None or number(draft) == number(subject.draft_prob)
    if not same and draft is not None:
        return [both("card.raw.both", draft=number(draft), target=number(target))]
    if subject.target_prob is None or number(target) != number(subject.target_prob):
        return [both("card.raw.model", target=number(target))]
    return []


def _nature(part: Piece) -> list[str]:
    """What it is where it is no ordinary text."""
    if part.special.startswith("0x"):
        return [both("card.fragment")]
    if part.special:
        return [both("card.special", name=part.special)]
    return [both("card.blank")] if part.text and part.text.isspace() else []


def _decision(round_: Round, subject: Subject) -> TokenDecision | None:
    """The decision about it; None if it was no draft."""
    if isinstance(subject, TokenDecision):
        return subject
    return _at(round_.decisions, subject.position) if subject.source is Source.DRAFT else None


def _at(these: Iterable[Placed], position: int) -> Placed | None:
    return next((one for one in these if one.position == position), None)


def _rejected(round_: Round) -> TokenDecision | None:
    return next((decision for decision in round_.decisions if decision.outcome is Outcome.REJECTED), None)


def _named(subject: Subject | None) -> str:
    """A token inside a sentence; the marks around it keep text that runs from right to left to itself."""
    if subject is None:
        return DASH
    shown = subject.special or marked(subject.text.strip() or subject.text) or "…"
    return f"\u2068{shown}\u2069"


# -- the round ---------------------------------------------------------------------------------------------------------

_COLUMNS = ("token", "draft", "target", "accept", "drawn", "decision")


def _table(round_: Round, subject: Subject) -> str:
    """Every draft of the round in order with its fate, then what the model put behind or in its place; "" without drafts."""
    if not round_.decisions:
        return ""
    current = _decision(round_, subject) or subject
    rows = [_row(_kind(decision), decision, current) for decision in round_.decisions]
    rows += [_last_row(token, current) for token in round_.tokens if token.source is not Source.DRAFT]
    note = f'<p class="line">{both("card.raw.note")}</p>' if any("<small>" in row for row in rows) else ""
    caption = f'<caption class="unseen">{both("card.table")}</caption>'
    return f"<table>{caption}{_heads()}<tbody>{''.join(rows)}</tbody></table>{note}"


def _heads() -> str:
    """Three columns stand under one word, or the table would be too wide for a phone."""
    names = "".join(f'<th scope="col">{both(f"card.col.{name}")}</th>' for name in _COLUMNS)
    over = f'<td></td><th scope="colgroup" colspan="3">{both("card.col.probability")}</th><td colspan="2"></td>'
    columns = "".join(f'<col class="{name}">' for name in _COLUMNS)
    return f"<colgroup>{columns}</colgroup><thead><tr>{over}</tr><tr>{names}</tr></thead>"


def _kind(decision: TokenDecision) -> Kind:
    return Kind.DRAFT if decision.outcome is Outcome.ACCEPTED else Kind(decision.outcome.value)


def _row(kind: Kind, decision: TokenDecision, current: Subject) -> str:
    raw = decision.detail
    cells = [
        _cell(decision.draft_prob, raw.raw_draft_prob if raw else None),
        _cell(decision.target_prob, raw.raw_target_prob if raw else None),
        _cell(decision.accept_prob),
        _cell(decision.uniform, none="card.none.drawn" if decision.accept_prob is not None else "card.none.unchecked"),
    ]
    return _tr(kind, decision, cells, f"card.outcome.{decision.outcome.value}", current)


def _last_row(token: Token, current: Subject) -> str:
    nobody = _cell(None, none="card.none.undrafted")
    cells = [nobody, _cell(None, token.raw_prob, "card.none.unknown"), nobody, nobody]
    return _tr(Kind(token.source.value), token, cells, f"card.outcome.{token.source.value}", current)


def _tr(kind: Kind, subject: Subject, cells: list[str], outcome: str, current: Subject) -> str:
    here = ' aria-current="true"' if subject is current else ""
    shown = "".join(f"<td>{cell}</td>" for cell in [*cells, both(outcome)])
    return f'<tr{here}><th scope="row">{_token(kind, subject.text, subject.special)}</th>{shown}</tr>'


def _cell(value: float | None, raw: float | None = None, none: str = "card.none.unchecked") -> str:
    """A number and, where it differs, the raw one; a dash with words for screen readers where there is neither."""
    if value is None and raw is None:
        return f'<span aria-hidden="true">{DASH}</span><span class="unseen">{both(none)}</span>'
    shown = "" if value is None else number(value)
    beside = "" if raw is None or number(raw) == shown else f"<small>{both('card.raw', value=number(raw))}</small>"
    return shown + beside


def _token(kind: Kind, text: str, special_: str) -> str:
    """The token itself, in the colours that it has in the reply, its white space made visible."""
    shown = special(special_) if special_ else escape(marked(text)) or "…"
    chip = " chip" if special_ else ""
    return f'<bdi class="t {kind.value}{chip}">{shown}</bdi>'


def line(round_: Round, lang: Lang) -> str:
    """The round in one line: its K and why, who guessed, how many were right, what was expected and what it took."""
    now = played(round_)
    k = now.drafted if now.reason in (KReason.AUTO, KReason.EXPLORE) else now.k  # there it was only a limit
    parts = [text("round.k", lang, index=now.index, k=k), text(f"round.{now.reason.value}", lang)]
    if now.drafted:
        parts.append(text("round.by", lang, who=choice_label(now.drafter, lang)))
        parts.append(text("round.right", lang, accepted=now.accepted, drafted=now.drafted))
    if now.predicted is not None:
        key = "round.expected" if now.drafted else "round.would"
        parts.append(text(key, lang, speedup=times(now.predicted)))
    draft, verify, whole = map(_time, (round_.draft_s, round_.verify_s, round_.total_s))
    took = "round.took.guessing" if now.drafted else "round.took"
    parts.append(text(took, lang, tokens=len(round_.tokens), time=whole, draft=draft, verify=verify))
    return " · ".join(parts)
