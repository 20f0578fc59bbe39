"""The numbers behind a token: top lists against the plainest way to make them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.config import Detail, Rule, SamplingParams
from engine.drafters.protocol import Proposal
from engine.events import Choice
from engine.logprobs import TOP, Explainer, Explanation, top_choices
from engine.rng import KeyedRng
from engine.sampling import LazyRows, raw_probs
from engine.verify import Verdict, verify

SIZES = st.sampled_from([1, 4, 5, 6, 63, 64, 65, 321, 4097, 49152])


@given(SIZES, st.integers(0, 10_000), st.sampled_from([2, 7, 2**22]), st.integers(1, 8))
@settings(max_examples=60)
def test_a_top_list_is_normalised_and_leaves_out_what_cannot_be(size: int, seed: int, levels: int, n: int) -> None:
    """levels: so many of the numbers differ; the fewer, the more ties. The largest may be anywhere."""
    row = np.random.default_rng(seed).integers(0, levels, size).astype(np.float32) / 7
    row[seed % size] = levels
    top = top_choices(torch.from_numpy(row), str, n)
    shares = np.sort(row.astype(np.float64) / row.sum(dtype=np.float64))[::-1][:n]
    assert [choice.prob for choice in top] == pytest.approx(shares[shares > 0].tolist(), rel=1e-5)
    assert top[0].id == seed % size and {choice.text for choice in top} == {str(choice.id) for choice in top}
    assert len({choice.id for choice in top}) == len(top)


def check_top(top: Sequence[Choice], logits: Tensor, ids: Tensor | None = None) -> None:
    """These are the likeliest of softmax(logits). ids: what its entries are called."""
    probs, entries = torch.topk(torch.softmax(logits.double(), dim=-1), TOP)
    assert [choice.id for choice in top] == (entries if ids is None else ids[entries]).tolist()
    assert [choice.prob for choice in top] == pytest.approx(probs.tolist(), rel=1e-4)


def explained(proposal: Proposal, logits: Tensor, sampling: SamplingParams, rule: Rule) -> tuple[Verdict, Explanation]:
    rows = LazyRows(logits, [1, 2, *proposal.token_ids], 2, sampling)
    verdict = verify(proposal, rows, 2, KeyedRng(1, rule))
    explainer = Explainer(Detail.FULL, raw_probs, str, sampling.greedy)
    explanation = explainer.explain(proposal, verdict, logits, rows)
    assert len(explanation.details) == len(verdict.tests) and explanation.recovery is not None
    check_top(explanation.recovery.raw_top, logits[verdict.num_accepted])
    for i, detail in enumerate(explanation.details):
        assert sampling.greedy or detail.target_top == top_choices(rows[i], str)
    return verdict, explanation


def test_full_detail_is_what_softmax_says() -> None:
    """Also of a token that only a bias made possible, whose own probability is nearly 0."""
    logits = torch.randn(3, 5000, generator=torch.Generator().manual_seed(1)) * 2
    logits[:, 3] = -91.0
    for temperature, bias, rule in product((0.0, 1.5), ((), ((3, 100.0),)), Rule):
        sampling = SamplingParams(temperature, seed=1, logit_bias=bias)
        _, explanation = explained(Proposal((7, 8)), logits, sampling, rule)
        assert [detail.draft_top[0].prob for detail in explanation.details] == [1.0] * len(explanation.details)


@pytest.mark.parametrize("vocabulary", [None, torch.arange(0, 500, 5)])
def test_without_temperature_both_lists_are_those_before_it(vocabulary: Tensor | None) -> None:
    """After it they would be one token with probability 1, and teach nothing."""
    generator = torch.Generator().manual_seed(2)
    logits, own = torch.randn(3, 500, generator=generator) * 3, torch.randn(2, 100, generator=generator) * 3
    entries = own.argmax(dim=-1)
    drafts = tuple((entries if vocabulary is None else vocabulary[entries]).tolist())
    logits[0, drafts[0]] = 50.0  # the first is accepted
    confidences = tuple(torch.softmax(own, dim=-1).amax(dim=-1).tolist())
    proposal = Proposal(drafts, None, list(own), confidences, tuple(entries.tolist()), vocabulary)
    verdict, explanation = explained(proposal, logits, SamplingParams(seed=1), Rule.REJECTION)
    assert verdict.num_accepted >= 1
    for i, detail in enumerate(explanation.details):
        check_top(detail.draft_top, own[i], vocabulary)
        check_top(detail.target_top, logits[i])
        assert detail.draft_top[0].prob == pytest.approx(detail.raw_draft_prob, rel=1e-6)
