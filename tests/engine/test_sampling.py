"""Probabilities and random numbers: filters, penalties, bans, and what happens to numbers that are none."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import SamplingParams
from engine.errors import NumericalError
from engine.rng import Purpose, gumbel, gumbel_argmax, uniform
from engine.sampling import LazyRows, _top_p, probabilities


def reference(logits: np.ndarray, params: SamplingParams) -> np.ndarray:
    """Textbook definitions in float64, with full sorts; nothing of the engine's."""
    scaled = logits.astype(np.float64) / params.temperature
    p = np.exp(scaled - scaled.max())
    if params.top_k:
        p[np.argsort(-scaled)[params.top_k :]] = 0.0
    p /= p.sum()
    if params.top_p < 1.0:
        order = np.argsort(-p)
        p[order[1:][np.cumsum(p[order])[:-1] >= params.top_p]] = 0.0
    p[p < params.min_p * p.max()] = 0.0
    return np.asarray(p / p.sum())


@given(
    st.integers(0, 10_000),
    st.sampled_from([(1, 1.0), (12, 4.0), (5000, 0.1), (5000, 3.0)]),
    st.floats(0.05, 3),
    st.sampled_from([0, 0, 1, 3, 600]),
    st.sampled_from([1.0, 0.001, 0.3, 0.9, 0.999]),
    st.sampled_from([0.0, 0.0, 0.05, 0.99]),
)
@settings(max_examples=40)
def test_every_row_is_the_textbooks_and_does_not_depend_on_its_neighbours(
    seed: int, shape: tuple[int, float], temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    """Also where a filter must look far: 5000 tokens that are about equally likely."""
    params = SamplingParams(temperature, top_k, top_p, min_p)
    logits = np.random.default_rng(seed).normal(size=(3, shape[0])).astype(np.float32) * np.float32(shape[1])
    probs = probabilities(torch.from_numpy(logits), [0] * 3, 0, params)
    for row, made in zip(logits, probs, strict=True):
        np.testing.assert_allclose(made, reference(row, params), rtol=1e-4, atol=1e-6)
        assert torch.equal(made, probabilities(torch.from_numpy(row[None]), [0], 0, params)[0])


@pytest.mark.parametrize("temperature", [0.0, 1e-3, 1e-50, 5e-324])
def test_a_tiny_temperature_is_an_argmax_the_first_of_several(temperature: float) -> None:
    rows = probabilities(torch.tensor([[1.0, 300.0, 299.0], [1.0, 3.0, 3.0]]), [0, 0], 0, SamplingParams(temperature))
    assert rows.tolist() == [[0.0, 1.0, 0.0], [0.0, *([0.5, 0.5] if temperature else [1.0, 0.0])]]


def test_tokens_as_likely_as_the_last_one_that_stays_all_stay_and_no_others() -> None:
    logits = torch.tensor([[0.5, 0.125, 0.125, 0.125, 0.125, 1e-9]]).log()
    for params in (SamplingParams(1.0, top_p=0.6), SamplingParams(1.0, top_k=2)):
        assert (probabilities(logits, [], 0, params)[0] > 0).tolist() == [True] * 5 + [False]
    probs = np.array([0.125, 0.5, 0.25, 0.125], np.float32)  # whose sums are exact
    assert [_top_p(probs, mass).tolist() for mass in (0.5, 0.75, 0.76)] == [[1], [1, 2], [0, 1, 2, 3]]


def test_lazy_rows_are_made_when_asked_for_and_leave_logits_alone() -> None:
    logits = torch.randn(3, 40, generator=torch.Generator().manual_seed(3)) * 4
    logits[2] = torch.nan
    before, history = logits.clone(), [7, 3, 1, 2, 9]
    params = SamplingParams(0.8, 3, 0.9, repetition_penalty=1.4, logit_bias=((1, 2.0),))
    lazy = LazyRows(logits, history, 2, params)
    assert torch.equal(lazy[1], probabilities(logits[:2], history[:-1], 2, params)[1])
    with pytest.raises(NumericalError):
        lazy[2]
    assert torch.equal(logits[:2], before[:2])


def test_penalties_see_the_drafts_before_each_row_and_no_others() -> None:
    """By how much each token is less likely than one that has not been said, as a logarithm."""

    def penalties(history: list[int], prompt_len: int, rows: torch.Tensor, **which: float) -> list[list[float]]:
        probs = probabilities(rows, history, prompt_len, SamplingParams(1.0, **which))  # type: ignore[arg-type]
        return [(row[-1].log() - row[:-1].log()).tolist() for row in probs]

    # The prompt is [0, 1]; 2 and 3 are drafts, rows follow 1, 2, 3.
    present = penalties([0, 1, 2, 3], 2, torch.zeros(3, 5), presence_penalty=2.0)
    assert present == [pytest.approx(row, abs=1e-5) for row in ([0, 0, 0, 0], [0, 0, 2, 0], [0, 0, 2, 2])]
    [frequent] = penalties([0, 2, 2, 2, 1], 1, torch.zeros(1, 4), frequency_penalty=1.0)
    assert frequent == pytest.approx([0, 1, 3], abs=1e-5)
    # It covers the prompt, and pushes down whatever the sign.
    [repeated] = penalties([0, 1], 2, torch.tensor([[2.0, -2.0, 2.0, 0.0]]), repetition_penalty=2.0)
    assert repeated == pytest.approx([-1, 4, -2], abs=1e-5)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 5.0])
def test_a_ban_is_final_and_a_number_that_is_none_is_a_clear_error(temperature: float) -> None:
    banned = SamplingParams(temperature, logit_bias=((0, -100.0),))
    assert probabilities(torch.tensor([[50.0, 1.0, 0.0]]), [0], 0, banned)[0, 0] == 0
    for bad in ([0.0, math.nan, 1.0], [0.0, math.inf, 1.0], [-math.inf] * 3):
        with pytest.raises(NumericalError):
            probabilities(torch.tensor([bad]), [0], 0, SamplingParams(temperature))


def test_numbers_depend_on_every_part_of_their_key_and_are_uniform() -> None:
    keys = [(seed, position, purpose) for seed in range(20) for position in range(50) for purpose in Purpose]
    numbers = np.array([uniform(*key) for key in keys])
    assert len(set(numbers)) == len(numbers) and numbers.min() >= 0 and numbers.max() < 1
    counts, _ = np.histogram(numbers, bins=20, range=(0, 1))
    assert ((counts - len(keys) / 20) ** 2 / (len(keys) / 20)).sum() < 80  # chi-square, 19 degrees: p about 1e-9


@pytest.mark.parametrize("spread", [0.0, 0.5, 3.0, 12.0])
def test_the_pruned_gumbel_argmax_equals_the_full_one(spread: float) -> None:
    """Only candidates that can still win get a logarithm; the winner must be the same."""
    generator = torch.Generator().manual_seed(5)
    for seed in range(20):
        probs = torch.softmax(torch.randn(4000, generator=generator) * spread, -1)
        scores = np.log(probs.numpy().astype(np.float64)) + gumbel(seed, 9, np.arange(4000))
        assert gumbel_argmax(probs, seed, 9) == int(scores.argmax())


def test_noise_of_different_seeds_positions_and_tokens_is_independent() -> None:
    """The same noise at two places would make a reply repeat itself, which no single draw would show."""
    tokens = np.arange(4000)
    base = gumbel(3, 10, tokens)
    for other in (gumbel(4, 10, tokens), gumbel(3, 11, tokens), gumbel(3, 10, tokens + 1)):
        assert abs(np.corrcoef(base, other)[0, 1]) < 0.12  # 7.5 standard deviations
