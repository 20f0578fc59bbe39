"""An invented reply for measurements of the page, with everything that a real one has. Made up, and never shown."""

from __future__ import annotations

from collections.abc import Sequence

from engine import Event, KReason, Outcome, Prefilled, Round, RoundKind, Rule, Source, Token, TokenDecision, TokenDetail

K = 3

ROUNDS_AN_UPDATE = 5
"""About 12 tokens, as an engine of 150 tokens/s writes between two updates."""

_WORDS = ("the", "sea", "was", "calm", "and", "nobody", "had", "seen", "such", "a", "light", "before")


def reply(tokens: int) -> list[Event]:
    """A reply of at least that many tokens that still goes on: rounds of K drafts of which 0, 1 ... K are right in
    turn."""
    events: list[Event] = [Prefilled(24, 0, _token(0, Source.PLAIN), 7, 0.05)]
    position = 1
    while position < tokens:
        round_ = _round(len(events) - 1, position)
        events.append(round_)
        position += len(round_.tokens)
    return events


def plain(tokens: int) -> list[Event]:
    """So many tokens without guesses, a round each."""
    rounds = [
        Round(place - 1, RoundKind.PLAIN, Rule.REJECTION, "none", 0, KReason.FIXED, 0, 24 + place, (),
              (_token(place, Source.PLAIN),), 0.0, 0.0101, 0.0004, 0.0108)
        for place in range(1, tokens)
    ]  # fmt: skip
    return [Prefilled(24, 0, _token(0, Source.PLAIN), 7, 0.05), *rounds]


def more(events: Sequence[Event]) -> list[Event]:
    """What the next update brings after those events, the last of which is a round."""
    last = events[-1]
    assert isinstance(last, Round)
    position, fresh = last.tokens[-1].position + 1, list[Event]()
    for index in range(last.index + 1, last.index + 1 + ROUNDS_AN_UPDATE):
        round_ = _round(index, position)
        fresh.append(round_)
        position += len(round_.tokens)
    return fresh


def _round(index: int, position: int) -> Round:
    right = index % (K + 1)
    outcomes = [Outcome.ACCEPTED] * right + [Outcome.REJECTED, *[Outcome.DISCARDED] * K][: K - right]
    decisions = tuple(_decision(position + place, outcome) for place, outcome in enumerate(outcomes))
    end = Source.BONUS if right == K else Source.RECOVERED
    tokens = (*(_token(position + place, Source.DRAFT) for place in range(right)), _token(position + right, end))
    return Round(
        index, RoundKind.SPECULATIVE, Rule.REJECTION, "ngram", K, KReason.AUTO, K, 24 + position, decisions, tokens,
        0.0007, 0.0123, 0.0004, 0.0141, predicted_speedup=1.4,
    )  # fmt: skip


def _token(position: int, source: Source) -> Token:
    return Token(1000 + position % 900, _text(position), position, source, raw_prob=0.423171)


def _decision(position: int, outcome: Outcome) -> TokenDecision:
    if outcome is Outcome.DISCARDED:
        return TokenDecision(1000 + position % 900, _text(position), position, outcome, 0.731225)
    detail = TokenDetail(0.731225, 0.423171, (), ())
    return TokenDecision(1000 + position % 900, _text(position), position, outcome, 0.731225, 0.423171, 0.578713,
                         0.312977, detail=detail)  # fmt: skip


def _text(position: int) -> str:
    """Words in paragraphs of some seventy."""
    return "\n\n" if position % 71 == 70 else " " + _WORDS[position * 7 % len(_WORDS)]
