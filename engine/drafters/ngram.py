"""Prompt lookup: where the last words have occurred before, propose what followed them then.

Saxena, "Prompt lookup decoding" (2023); Yang et al., "Inference with reference", arXiv:2304.04487. The longest suffix
of the text that has occurred before comes from a suffix automaton (Blumer et al., Theoretical Computer Science 40,
1985), which takes amortised constant time for each new token, however long the text is.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.drafters.protocol import DraftContext, DraftOption, Proposal, ShouldContinue, always

MIN_MATCH = 2
"""Shortest match worth a guess, in tokens: a single common word predicts too little."""


class SuffixAutomaton:
    """Knows every substring of the ids fed to it. A state stands for the substrings that end at the same set of places.

    After `extend`, `match_length` is the length of the longest suffix that also ended earlier, and `match_end` the
    index of the last token of such an earlier occurrence (a recent one).
    """

    def __init__(self) -> None:
        self.size = 0
        self.match_length = 0
        self.match_end = -1
        self._next: list[dict[int, int]] = [{}]
        self._link = [-1]
        self._length = [0]
        self._end = [-1]
        self._last = 0

    def extend(self, token_id: int) -> None:
        """Append one token."""
        current = self._state(self._length[self._last] + 1, 0, {}, self.size)
        state = self._last
        while state != -1 and token_id not in self._next[state]:
            self._next[state][token_id] = current
            state = self._link[state]
        if state != -1:
            self._link[current] = self._suffix_state(state, token_id)
        link = self._link[current]
        self.match_length, self.match_end = self._length[link], self._end[link]
        self._end[link] = self.size
        self._last = current
        self.size += 1

    def _suffix_state(self, state: int, token_id: int) -> int:
        """The state of (longest substring of `state`) + token, split off from a longer one where needed."""
        longer = self._next[state][token_id]
        if self._length[longer] == self._length[state] + 1:
            return longer
        clone = self._state(self._length[state] + 1, self._link[longer], dict(self._next[longer]), self._end[longer])
        while state != -1 and self._next[state].get(token_id) == longer:
            self._next[state][token_id] = clone
            state = self._link[state]
        self._link[longer] = clone
        return clone

    def _state(self, length: int, link: int, following: dict[int, int], end: int) -> int:
        self._next.append(following)
        self._link.append(link)
        self._length.append(length)
        self._end.append(end)
        return len(self._length) - 1


MATCH_KINDS = ((8, "ngram 9+"), (4, "ngram 5-8"), (2, "ngram 3-4"), (0, "ngram 1-2"))
"""(longer than, kind): the longer the match, the better the guess."""

ACCEPTANCE = (
    ("ngram 9+", (0.8, 0.9)),
    ("ngram 5-8", (0.65, 0.8)),
    ("ngram 3-4", (0.5, 0.7)),
    ("ngram 1-2", (0.35, 0.6)),
)
"""What to expect of each kind, by draft position, before a reply has shown it; about what greedy replies to chat
prompts of many kinds show, and a little less: a promise that is not kept costs more than one that is exceeded."""

DRAFT_S = 1e-5
"""Seconds per draft, roughly: nothing is computed."""


def kind_of(match_length: int) -> str:
    """The kind of an option that copies behind a match of so many tokens."""
    return next(kind for shorter, kind in MATCH_KINDS if match_length > shorter)


class NgramDrafter:
    """Copies what followed the longest earlier occurrence of the text's end; no option where there is none."""

    name = "ngram"
    context_len: int | None = None
    feature_layers: tuple[int, ...] = ()

    def __init__(self, min_match: int = MIN_MATCH) -> None:
        self._min_match = min_match
        self._automaton = SuffixAutomaton()
        self._ids: list[int] = []

    def options(self, ids: Sequence[int]) -> tuple[DraftOption, ...]:
        """One, whose kind tells how long the match is, where there is a match."""
        self._index_ids(ids)
        if self._automaton.match_length < self._min_match:
            return ()
        return (DraftOption(self.name, kind_of(self._automaton.match_length)),)

    def propose(
        self, option: DraftOption, context: DraftContext, k: int, should_continue: ShouldContinue = always
    ) -> Proposal:
        """Point masses, because nothing is drawn. A copy that reaches the end of the text goes on
        with its own tokens."""
        ids = context.ids
        self._index_ids(ids)
        if self._automaton.match_length < self._min_match:
            return Proposal()
        continuation = list(ids)
        begin = self._automaton.match_end + 1
        for i in range(k):
            continuation.append(continuation[begin + i])
        return Proposal(tuple(continuation[len(ids) :]))

    def _index_ids(self, ids: Sequence[int]) -> None:
        if list(ids[: len(self._ids)]) != self._ids:
            self._automaton, self._ids = SuffixAutomaton(), []
        for token_id in ids[len(self._ids) :]:
            self._automaton.extend(token_id)
        self._ids = list(ids)
