"""Prompt lookup: the longest earlier occurrence, found at a cost that does not grow with the text."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.config import Rule, SamplingParams
from engine.drafters.ngram import NgramDrafter, SuffixAutomaton
from engine.drafters.protocol import DraftContext, DraftOption
from engine.rng import KeyedRng


def propose(drafter: NgramDrafter, text: list[int], k: int) -> list[int]:
    context = DraftContext(text, 0, None, SamplingParams(), KeyedRng(0, Rule.REJECTION))
    proposal = drafter.propose(DraftOption("ngram", "ngram 1-2"), context, k)
    assert proposal.probs is None and bool(drafter.options(text)) == bool(proposal.token_ids)
    return list(proposal.token_ids)


def longest_repeated_suffix(text: list[int]) -> int:
    """By trying all, longest first."""
    n = len(text)
    return next(
        (length for length in range(n - 1, 0, -1) for i in range(n - length) if text[i : i + length] == text[-length:]),
        0,
    )


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(1, 8))
@example([0] * 60, 8)
@example([7, 1, 2, 1, 2], 6)  # a period, which is continued beyond the end of the text
@settings(max_examples=100)
def test_proposals_copy_what_followed_the_longest_match_and_learn_step_by_step(text: list[int], k: int) -> None:
    index, grown, another = SuffixAutomaton(), NgramDrafter(1), NgramDrafter(1)
    propose(another, [5, 6, 7, 5, 6], 2)  # ids that do not go on from the last call are read afresh
    for n, token in enumerate(text, 1):
        index.extend(token)
        length, end = index.match_length, index.match_end
        assert length == longest_repeated_suffix(text[:n])
        assert not length or (end < n - 1 and text[end + 1 - length : end + 1] == text[n - length : n])
        copied = propose(grown, text[:n], k)
    assert propose(NgramDrafter(1), text, k) == propose(another, text, k) == copied and len(copied) == (
        k if length else 0
    )
    whole = [*text, *copied]
    assert (
        any(whole[i : i + length + k] == whole[len(text) - length :] for i in range(len(text) - length)) or not length
    )
    assert propose(NgramDrafter(), text, k) == (copied if length > 1 else [])


def test_the_index_stays_linear_in_the_text() -> None:
    """At most 2 n states (Blumer et al.) and 3 n transitions: no text makes a round slower the longer it is."""
    for text in ([0] * 3000, [0, 1] * 1500, [i % 7 * (i % 3) for i in range(3000)]):
        index = SuffixAutomaton()
        for token in text:
            index.extend(token)
        assert len(index._length) <= 2 * len(text) and sum(map(len, index._next)) <= 3 * len(text)
