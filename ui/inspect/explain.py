"""Why a token is what it is, in plain words and with the numbers that decided, in both languages. Pure.

The rule compared probabilities after temperature and filters; those before them ("raw") are told too, where they
differ: at temperature 0 the first are 1 and 0 only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from engine import Outcome, Prefilled, Round, RoundKind, Rule, Source, Token, TokenDecision
from ui.html.render import DASH, both, show_blanks
from ui.state import LOST_KINDS, Block, Piece, tokens_of

Subject = Token | TokenDecision
"""What a piece stands for: a token of the reply, or a draft that was lost."""

TokenLike = TypeVar("TokenLike", Token, TokenDecision)


def subject_of(block: Block, piece: int) -> Subject:
    """Pieces are the event's tokens and its lost drafts, each in their own order."""
    lost = block.pieces[piece].kind in LOST_KINDS
    nth = sum((before.kind in LOST_KINDS) is lost for before in block.pieces[:piece])
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


def took(seconds: float) -> str:
    """A time in three digits."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


# -- why it is what it is ----------------------------------------------------------------------------------------------


def why(event: object, subject: Subject, greedy: bool) -> list[str]:
    """Sentences from the event's own numbers, as HTML. greedy: temperature was 0."""
    if isinstance(event, Prefilled):
        first = both("card.first", prompt=event.prompt_tokens, cached=event.cached_tokens, time=took(event.ttft_s))
        return [first, *_raw(subject)]
    if not isinstance(event, Round):
        return []
    decision = decision_about(event, subject)
    if decision is not None:
        return [*_why_draft(event, decision, greedy), *_raw(decision)]
    if isinstance(subject, Token) and subject.source is Source.RECOVERED:
        how = "greedy" if greedy else "noise" if event.rule is Rule.SHARED_NOISE else "drawn"
        return [both(f"card.recovered.{how}", lost=named(rejection_in(event))), *_raw(subject)]
    if isinstance(subject, Token) and subject.source is Source.BONUS:
        return [both("card.bonus", count=event.num_drafted), *_raw(subject)]
    return [both("card.plain.probe" if event.kind is RoundKind.PROBE else "card.plain"), *_raw(subject)]


def _why_draft(round_: Round, decision: TokenDecision, greedy: bool) -> list[str]:
    if decision.outcome is Outcome.DISCARDED:
        return _why_unchecked(round_, decision, greedy)
    fate = "kept" if decision.outcome is Outcome.ACCEPTED else "lost"
    if greedy:
        copy_note = [both("card.copy")] if _is_copy(round_, decision) else []
        return [*copy_note, both(f"card.greedy.{fate}")]
    if round_.rule is Rule.SHARED_NOISE:
        return [
            both(f"card.noise.{fate}", instead=named(at(round_.tokens, decision.position))),
            *_gave(round_, decision),
        ]
    return _why_by_draw(round_, decision, fate)


def _why_by_draw(round_: Round, decision: TokenDecision, fate: str) -> list[str]:
    """Rejection sampling: the two probabilities, and the number that decided."""
    gave = _gave(round_, decision)
    accept, draw = decision.accept_prob, decision.uniform
    if accept is None or draw is None:
        return gave
    if accept >= 1:
        return [*gave, both("card.sure")]
    draw_text, accept_text = apart(draw, accept)
    return [*gave, both("card.accept", accept=accept_text), both(f"card.drawn.{fate}", drawn=draw_text)]


def _gave(round_: Round, decision: TokenDecision) -> list[str]:
    """What both made of it. A drafter that copies is certain."""
    copied = _is_copy(round_, decision)
    if decision.target_prob is None:
        return [both("card.gave.copied" if copied else "card.gave.draft", draft=number(decision.draft_prob))]
    draft, target = number(decision.draft_prob), number(decision.target_prob)
    return [both("card.gave.copy" if copied else "card.gave", draft=draft, target=target)]


def _is_copy(round_: Round, decision: TokenDecision) -> bool:
    return round_.drafter == "ngram" and decision.draft_prob >= 1


def _why_unchecked(round_: Round, decision: TokenDecision, greedy: bool) -> list[str]:
    """At temperature 0 every guess has the probability 1, which says nothing about how sure the drafter was."""
    rejection = rejection_in(round_)
    behind = both("card.unchecked", lost=named(rejection)) if rejection else both("card.unchecked.end")
    if greedy:
        return [behind, *([both("card.copy")] if _is_copy(round_, decision) else [])]
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


def nature(part: Piece) -> list[str]:
    """What it is where it is no ordinary text."""
    if part.special.startswith("0x"):
        return [both("card.fragment")]
    if part.special:
        return [both("card.special", name=part.special)]
    return [both("card.blank")] if part.text and part.text.isspace() else []


def decision_about(round_: Round, subject: Subject) -> TokenDecision | None:
    """The decision about it; None if it was no draft."""
    if isinstance(subject, TokenDecision):
        return subject
    return at(round_.decisions, subject.position) if subject.source is Source.DRAFT else None


def at(these: Iterable[TokenLike], position: int) -> TokenLike | None:
    """The one at that position of the reply, if there is one."""
    return next((one for one in these if one.position == position), None)


def rejection_in(round_: Round) -> TokenDecision | None:
    """The guess that the model did not take; there is at most one in a round."""
    return next((decision for decision in round_.decisions if decision.outcome is Outcome.REJECTED), None)


def named(subject: Subject | None) -> str:
    """A token inside a sentence; the marks around it keep text that runs from right to left to itself."""
    if subject is None:
        return DASH
    letters = subject.special or show_blanks(subject.text.strip() or subject.text) or "…"
    return f"\u2068{letters}\u2069"
