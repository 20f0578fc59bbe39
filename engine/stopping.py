"""Where a reply ends inside a block of tokens: everything behind the end is neither shown, nor kept, nor counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import NamedTuple

from engine.events import Event, Finished, FinishReason, Outcome, Prefilled, Prefilling, Round, Token, TokenDecision


def cut_round(round_: Round, end: int) -> Round:
    """The round without reply positions >= end. Drafts there become DISCARDED: a stop made their test void."""
    tokens = tuple(token for token in round_.tokens if token.position < end)
    decisions = tuple(d if d.position < end else _discard(d) for d in round_.decisions)
    recovery = round_.recovery if len(tokens) == len(round_.tokens) else None
    return replace(round_, tokens=tokens, decisions=decisions, recovery=recovery)


def _discard(decision: TokenDecision) -> TokenDecision:
    return replace(decision, outcome=Outcome.DISCARDED, target_prob=None, accept_prob=None, uniform=None, detail=None)


def cut_at_stop_strings(events: Iterator[Event], stops: tuple[str, ...]) -> Iterator[Event]:
    """The same events, ended where one of `stops` begins.

    An event whose text may be the beginning of a stop string waits until that is decided, so that text, tokens and
    counts always describe the same prefix and nothing shown is ever taken back. Ordinary text is not held.
    """
    if not stops:
        yield from events
        return
    matcher = StopStrings(stops)
    pending: list[_PendingEvent] = []
    length = 0
    tokens: list[Token] = []
    for event in events:
        if isinstance(event, Prefilling):
            yield event
            continue
        if isinstance(event, Finished):
            yield from (item.event for item in pending)
            yield event
            return
        text = "".join(token.text for token in _tokens(event))
        pending.append(_PendingEvent(event, length, length + len(text)))
        length += len(text)
        matcher.feed(text)
        if matcher.cut is not None:
            last_events = [_trim(item.event, item.begin, matcher.cut) for item in pending]
            yield from last_events
            tokens += [token for cut in last_events for token in _tokens(cut)]
            ids = tuple(token.id for token in tokens)
            yield Finished(FinishReason.STOP_STRING, "".join(token.text for token in tokens), ids)
            return
        num_safe = sum(1 for _ in takewhile(lambda item: item.end <= matcher.safe, pending))
        while num_safe and _ends_inside_a_character(pending[num_safe - 1].event):
            num_safe -= 1
        yield from (item.event for item in pending[:num_safe])
        tokens += [token for item in pending[:num_safe] for token in _tokens(item.event)]
        del pending[:num_safe]


class _PendingEvent(NamedTuple):
    """An event that may have to be cut, and the characters begin..end of the reply that it added."""

    event: Prefilled | Round
    begin: int
    end: int


def _ends_inside_a_character(event: Prefilled | Round) -> bool:
    """Its last token is a fragment, whose text will come with a later one: both stay or go together."""
    tokens = _tokens(event)
    return bool(tokens) and not tokens[-1].text and not tokens[-1].special


def _tokens(event: Prefilled | Round) -> tuple[Token, ...]:
    if isinstance(event, Round):
        return event.tokens
    return (event.token,) if event.token is not None else ()


def _trim(event: Prefilled | Round, begin: int, cut: int) -> Prefilled | Round:
    """Keep the characters before `cut`; the event's text begins at character `begin`. A token keeps what it
    has before the cut."""
    tokens: list[Token] = []
    offset = begin
    for token in _tokens(event):
        if offset >= cut:
            break
        tokens.append(replace(token, text=token.text[: cut - offset]))
        offset += len(token.text)
    if isinstance(event, Prefilled):
        return replace(event, token=tokens[0] if tokens else None)
    if not event.tokens:
        return event
    round_ = cut_round(event, tokens[-1].position + 1 if tokens else event.tokens[0].position)
    return replace(round_, tokens=tuple(tokens))


class StopStrings:
    """Watches a reply for stop strings while it grows. Each character costs the same, however long the reply.

    cut: the index, in the reply so far, at which the first completed stop string begins; None until there is one.
    safe: characters before this index can be shown for sure; the rest may be the beginning of a stop string.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [(stop, _borders(stop)) for stop in dict.fromkeys(stops) if stop]
        self._matched = [0] * len(self._stops)  # how many characters of each stop the reply ends with
        self._length = 0
        self.cut: int | None = None

    @property
    def safe(self) -> int:
        return self.cut if self.cut is not None else self._length - max(self._matched, default=0)

    def feed(self, text: str) -> None:
        """Go on with what the next token added. Nothing changes any more once there is a cut."""
        if not self._stops:
            self._length += len(text)
            return
        for char in text:
            if self.cut is not None:
                return
            self._length += 1
            for index, (stop, borders) in enumerate(self._stops):
                matched = self._matched[index]
                while matched and stop[matched] != char:
                    matched = borders[matched - 1]
                self._matched[index] = matched + (stop[matched] == char)
                if self._matched[index] == len(stop):
                    begin = self._length - len(stop)
                    self.cut = begin if self.cut is None else min(self.cut, begin)


def _borders(pattern: str) -> list[int]:
    """For each prefix, the length of its longest border, a proper prefix that is a suffix too (Knuth-Morris-Pratt)."""
    borders = [0] * len(pattern)
    length = 0
    for index in range(1, len(pattern)):
        while length and pattern[index] != pattern[length]:
            length = borders[length - 1]
        length += pattern[index] == pattern[length]
        borders[index] = length
    return borders
