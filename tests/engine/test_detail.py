"""The numbers behind a token: top lists against the plainest way to make them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.config import Detail, Rule, SamplingParams
from engine.drafters.protocol import Proposal
from engine.logprobs import TOP, Explainer, largest, top_choices
from engine.rng import KeyedRng
from engine.sampling import LazyRows, raw_probs
from engine.verify import verify

SIZES = st.sampled_from([1, 2, 4, 5, 6, 63, 64, 65, 320, 321, 1000, 4097, 49152])


def row_of(size: int, seed: int, levels: int) -> np.ndarray:
    """Random numbers, of which only so many differ: the fewer, the more ties."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, levels, size).astype(np.float32) - np.float32(levels / 2)


@given(SIZES, st.integers(0, 10_000), st.sampled_from([1, 2, 7, 100, 2**22]), st.integers(1, 8))
def test_largest_are_the_largest_in_order(size: int, seed: int, levels: int, n: int) -> None:
    row = row_of(size, seed, levels)
    found = largest(row, n)
    assert len(set(found)) == len(found) == min(n, size)
    assert row[found].tolist() == np.sort(row)[::-1][:n].tolist()


@pytest.mark.parametrize("at", [0, 63, 64, 767, 49088, 49151])
def test_largest_are_found_wherever_they_are(at: int) -> None:
    row = np.full(49152, -np.inf, np.float32)
    row[at] = 1.0
    assert largest(row, 1) == [at] and largest(row, TOP)[0] == at


@given(SIZES, st.integers(0, 10_000), st.floats(0.01, 100.0))
def test_a_top_list_is_normalised_and_leaves_out_what_cannot_be(size: int, seed: int, total: float) -> None:
    rng = np.random.default_rng(seed)
    row = (rng.random(size) * (rng.random(size) < 0.3)).astype(np.float32)
    row[rng.integers(size)] = 1.0
    row *= np.float32(total) / row.sum()
    found = top_choices(torch.from_numpy(row), str)
    shares = np.sort(row.astype(np.float64) / row.sum(dtype=np.float64))[::-1][:TOP]
    assert [choice.prob for choice in found] == pytest.approx(shares[shares > 0].tolist(), rel=1e-5)
    assert all(0 < choice.prob <= 1 and choice.text == str(choice.id) for choice in found)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.5])
@pytest.mark.parametrize("bias", [(), ((3, 100.0),)])
@pytest.mark.parametrize("rule", list(Rule))
def test_full_detail_is_what_softmax_says(temperature: float, bias: tuple[tuple[int, float], ...], rule: Rule) -> None:
    """Also of a token that only a bias made possible, whose own probability is nearly 0."""
    logits = torch.randn(3, 5000, generator=torch.Generator().manual_seed(1)) * 4
    logits[:, 3] = -60.0
    sampling = SamplingParams(temperature, seed=1, logit_bias=bias)
    history = [1, 2, 7, 8]
    rows = LazyRows(logits, history, 2, sampling)
    verdict = verify(Proposal((7, 8)), rows, 2, KeyedRng(1, rule))
    known = Explainer(Detail.FULL, raw_probs, str).explain(Proposal((7, 8)), verdict, logits, rows)
    expected, ids = torch.topk(torch.softmax(logits[verdict.num_accepted].double(), dim=-1), TOP)
    assert known.recovery is not None
    assert [choice.id for choice in known.recovery.raw_top] == ids.tolist()
    assert [choice.prob for choice in known.recovery.raw_top] == pytest.approx(expected.tolist(), rel=1e-4)
    first, second = known.recovery.raw_top[:2]
    gap = float(logits[verdict.num_accepted][first.id] - logits[verdict.num_accepted][second.id])
    assert math.log(first.prob / second.prob) == pytest.approx(gap, rel=1e-5)
    assert len(known.details) == len(verdict.tests)
    for i, told in enumerate(known.details):
        assert told.target_top == top_choices(rows[i], str) and told.draft_top[0].prob == 1.0


@pytest.mark.parametrize("mapped", [False, True])
def test_without_temperature_both_lists_are_those_before_it(mapped: bool) -> None:
    """After it they would be one token with probability 1, and teach nothing."""
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(3, 500, generator=generator) * 3
    own = torch.randn(2, 100, generator=generator) * 3
    vocabulary = torch.arange(0, 500, 5) if mapped else None
    drafts = tuple(int(row.argmax()) * (5 if mapped else 1) for row in own)
    logits[0, drafts[0]] = 50.0  # the first is accepted
    raw = torch.softmax(own.double(), dim=-1)
    confidences = tuple(float(row.max()) for row in raw)
    proposal = Proposal(drafts, None, list(own), confidences, tuple(int(row.argmax()) for row in own), vocabulary)
    rows = LazyRows(logits, [1, 2, *drafts], 2, SamplingParams(0.0, seed=1))
    verdict = verify(proposal, rows, 2, KeyedRng(1, Rule.REJECTION))
    known = Explainer(Detail.FULL, raw_probs, str, greedy=True).explain(proposal, verdict, logits, rows)
    for i, told in enumerate(known.details):
        probs, entries = torch.topk(raw[i], TOP)
        ids = entries if vocabulary is None else vocabulary[entries]
        assert [choice.id for choice in told.draft_top] == ids.tolist()
        assert [choice.prob for choice in told.draft_top] == pytest.approx(probs.tolist(), rel=1e-4)
        assert told.draft_top[0].prob == pytest.approx(told.raw_draft_prob, rel=1e-6)
        target, ids = torch.topk(torch.softmax(logits[i].double(), dim=-1), TOP)
        assert [choice.id for choice in told.target_top] == ids.tolist()
        assert [choice.prob for choice in told.target_top] == pytest.approx(target.tolist(), rel=1e-4)
