"""What the page tells of one token: what it is and why, in words and in numbers, and its round as a table. Pure.

The words are those of `ui.inspect.explain`.
"""

from __future__ import annotations

from html import escape
from typing import Any

from engine import KReason, Outcome, Prefilled, Round, Source, Token, TokenDecision
from ui.controller_history import round_figures
from ui.controls import choice_label
from ui.html.render import DASH, both, show_blanks, special, times
from ui.inspect.explain import Subject, apart, decision_about, nature, number, subject_of, took, why
from ui.state import About, Block, Kind, Turn
from ui.strings import LANGS, Lang, text
from ui.strings.glossary import link

__all__ = ["answer", "apart", "card", "kind_of", "line", "lines", "number", "says", "subject_of", "table", "token"]


def answer(turn: Turn, block: object, piece: object) -> dict[str, Any] | None:
    """What the page gets when it asks for a card; None if there is no such piece."""
    if not (isinstance(block, int) and isinstance(piece, int) and 0 <= block < len(turn.reply.blocks)):
        return None
    reply_block = turn.reply.blocks[block]
    if not 0 <= piece < len(reply_block.pieces):
        return None
    return {"key": turn.key, "block": block, "piece": piece, "html": card(reply_block, piece, turn.about)}


def card(block: Block, piece: int, about: About | None = None) -> str:
    """The card of a block's piece as HTML, in both languages. about: what wrote the reply, for its temperature."""
    event = block.event
    sentences = says(block, piece, about)
    return (
        f"{sentences}{table(event, subject_of(block, piece))}{lines(event)}" if isinstance(event, Round) else sentences
    )


def says(block: Block, piece: int, about: About | None = None) -> str:
    """What a piece is, and why, in sentences."""
    part, event, subject = block.pieces[piece], block.event, subject_of(block, piece)
    greedy = about is not None and about.params.sampling.temperature == 0
    kind = "first" if isinstance(event, Prefilled) else part.kind.value
    sentences = [*why(event, subject, greedy), *nature(part)]
    head = f'<p class="head">{token(part.kind, part.text, part.special)} <b>{both(f"card.kind.{kind}")}</b></p>'
    return f'<div class="says">{head}<p>{" ".join(sentences)}</p></div>'


# -- the round ---------------------------------------------------------------------------------------------------------

_COLUMNS = ("token", "draft", "target", "accept", "drawn", "decision")


def table(round_: Round, subject: Subject) -> str:
    """Every draft of the round in order with its fate, then what the model put behind or in its place; "" without
    drafts."""
    if not round_.decisions:
        return ""
    current = decision_about(round_, subject) or subject
    rows = [_row(kind_of(decision), decision, current) for decision in round_.decisions]
    rows += [_last_row(last, current) for last in round_.tokens if last.source is not Source.DRAFT]
    note = f'<p class="line">{both("card.raw.note")}</p>' if any("<small>" in row for row in rows) else ""
    caption = f'<caption class="unseen">{both("card.table")}</caption>'
    return f"<table>{caption}{_heads()}<tbody>{''.join(rows)}</tbody></table>{note}"


def _heads() -> str:
    """Three columns stand under one word, or the table would be too wide for a phone."""
    terms = {"accept": "accept_prob", "drawn": "draw"}
    labels = {name: both(f"card.col.{name}") for name in _COLUMNS}
    labels |= {name: link(term, labels[name]) for name, term in terms.items()}
    names = "".join(f'<th scope="col">{labels[name]}</th>' for name in _COLUMNS)
    over = f'<td></td><th scope="colgroup" colspan="3">{both("card.col.probability")}</th><td colspan="2"></td>'
    columns = "".join(f'<col class="{name}">' for name in _COLUMNS)
    return f"<colgroup>{columns}</colgroup><thead><tr>{over}</tr><tr>{names}</tr></thead>"


def kind_of(decision: TokenDecision) -> Kind:
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


def _last_row(last: Token, current: Subject) -> str:
    nobody = _cell(None, none="card.none.undrafted")
    cells = [nobody, _cell(None, last.raw_prob, "card.none.unknown"), nobody, nobody]
    return _tr(Kind(last.source.value), last, cells, f"card.outcome.{last.source.value}", current)


def _tr(kind: Kind, subject: Subject, cells: list[str], outcome: str, current: Subject) -> str:
    here = ' aria-current="true"' if subject is current else ""
    columns = "".join(f"<td>{cell}</td>" for cell in [*cells, both(outcome)])
    return f'<tr{here}><th scope="row">{token(kind, subject.text, subject.special)}</th>{columns}</tr>'


def _cell(value: float | None, raw: float | None = None, none: str = "card.none.unchecked") -> str:
    """A number and, where it differs, the raw one; a dash with words for screen readers where there is neither."""
    if value is None and raw is None:
        return f'<span aria-hidden="true">{DASH}</span><span class="unseen">{both(none)}</span>'
    probability = "" if value is None else number(value)
    beside = (
        "" if raw is None or number(raw) == probability else f"<small>{both('card.raw', value=number(raw))}</small>"
    )
    return probability + beside


def token(kind: Kind, text: str, special_: str) -> str:
    """The token itself, in the colours that it has in the reply, its white space made visible."""
    letters = special(special_) if special_ else escape(show_blanks(text)) or "…"
    chip = " chip" if special_ else ""
    return f'<bdi class="t {kind.value}{chip}">{letters}</bdi>'


def lines(round_: Round) -> str:
    """The round in one line, in both languages."""
    texts = "".join(f'<span class="{lang}" lang="{lang}">{escape(line(round_, lang))}</span>' for lang in LANGS)
    return f'<p class="line">{texts}</p>'


def line(round_: Round, lang: Lang) -> str:
    """The round in one line: its K and why, who guessed, how many were right, what was expected and what it took."""
    now = round_figures(round_)
    k = now.drafted if now.reason in (KReason.AUTO, KReason.EXPLORE) else now.k  # there it was only a limit
    parts = [text("round.k", lang, index=now.index, k=k), text(f"round.{now.reason.value}", lang)]
    if now.drafted:
        parts.append(text("round.by", lang, who=choice_label("drafter", now.drafter, lang)))
        parts.append(text("round.right", lang, accepted=now.accepted, drafted=now.drafted))
    if now.predicted_speedup is not None:
        key = "round.expected" if now.drafted else "round.would"
        parts.append(text(key, lang, speedup=times(now.predicted_speedup)))
    draft, verify, whole = map(took, (round_.draft_s, round_.verify_s, round_.total_s))
    taking = "round.took.guessing" if now.drafted else "round.took"
    parts.append(text(taking, lang, tokens=len(round_.tokens), time=whole, draft=draft, verify=verify))
    return " · ".join(parts)
