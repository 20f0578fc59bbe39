"""Prompt lookup: the longest earlier occurrence, found at a cost that does not grow with the text."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import Rule, SamplingParams
from engine.drafters.ngram import NgramDrafter, SuffixAutomaton
from engine.drafters.protocol import DraftContext, DraftOption, Proposal
from engine.rng import KeyedRng

RNG = KeyedRng(0, Rule.REJECTION)
OFFER = DraftOption("ngram", "ngram 1-2")
texts = st.lists(st.integers(0, 3), min_size=1, max_size=60)


def longest_repeated_suffix(text: list[int]) -> int:
    """By trying all, longest first."""
    n = len(text)
    for length in range(n - 1, 0, -1):
        if any(text[i : i + length] == text[n - length :] for i in range(n - length)):
            return length
    return 0


@given(texts)
@settings(max_examples=300, deadline=None)
def test_the_match_is_the_longest_and_really_there(text: list[int]) -> None:
    index = SuffixAutomaton()
    for n, token in enumerate(text, 1):
        index.extend(token)
        length, end = index.match_length, index.match_end
        assert length == longest_repeated_suffix(text[:n])
        if length:
            assert end < n - 1 and text[end + 1 - length : end + 1] == text[n - length : n]


@given(texts, st.integers(1, 8))
@settings(max_examples=200, deadline=None)
def test_proposals_copy_what_followed_and_learn_step_by_step(text: list[int], k: int) -> None:
    grown, drafter = [], NgramDrafter(1)
    for token in text:
        grown.append(token)
        step = drafter.propose(OFFER, DraftContext(grown, 0, None, SamplingParams(), RNG), k)
    fresh = NgramDrafter(1).propose(OFFER, DraftContext(text, 0, None, SamplingParams(), RNG), k)
    length = longest_repeated_suffix(text)
    for proposal in (step, fresh):
        assert len(proposal.token_ids) == (k if length else 0) and proposal.probs is None
    if length:
        whole = [*text, *fresh.token_ids]
        assert any(whole[i : i + length + k] == whole[len(text) - length :] for i in range(len(text) - length))


def test_a_period_is_continued_beyond_the_end_of_the_text() -> None:
    assert NgramDrafter().propose(
        OFFER, DraftContext([7, 1, 2, 1, 2], 0, None, SamplingParams(), RNG), 6
    ).token_ids == (
        1,
        2,
        1,
        2,
        1,
        2,
    )


def test_ids_that_do_not_go_on_from_the_last_call_are_read_afresh() -> None:
    drafter = NgramDrafter()
    drafter.propose(OFFER, DraftContext([1, 2, 3, 1, 2], 0, None, SamplingParams(), RNG), 2)
    assert drafter.propose(OFFER, DraftContext([5, 6, 7, 5, 6], 0, None, SamplingParams(), RNG), 1).token_ids == (7,)
    assert drafter.propose(OFFER, DraftContext([1, 2, 3, 4, 5], 0, None, SamplingParams(), RNG), 1) == Proposal()


def test_the_index_stays_linear_in_the_text() -> None:
    """At most 2 n states (Blumer et al.) and 3 n transitions: no text makes a round slower the longer it is."""
    for text in ([0] * 3000, [0, 1] * 1500, [i % 7 * (i % 3) for i in range(3000)]):
        index = SuffixAutomaton()
        for token in text:
            index.extend(token)
        assert len(index._length) <= 2 * len(text) and sum(map(len, index._next)) <= 3 * len(text)
