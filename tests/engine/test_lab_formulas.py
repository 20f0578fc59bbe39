"""The arithmetic against what it stands for: every way in which the drafts of a round may fall."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.lab.formulas import best_k, expected_tokens, speedup, speedup_from_costs

ALPHA = st.floats(0.0, 1.0)


@given(ALPHA, st.integers(0, 8))
def test_expected_tokens_are_the_mean_over_all_ways_in_which_the_drafts_may_fall(alpha: float, k: int) -> None:
    total = 0.0
    for fates in itertools.product([True, False], repeat=k):
        chance = math.prod(alpha if stands else 1.0 - alpha for stands in fates)
        accepted = next((i for i, stands in enumerate(fates) if not stands), k)
        total += chance * (accepted + 1)
    assert expected_tokens(alpha, k) == pytest.approx(total)


@given(st.floats(0.0, 0.999), st.integers(0, 16))
def test_it_is_the_papers_closed_form(alpha: float, k: int) -> None:
    assert expected_tokens(alpha, k) == pytest.approx((1 - alpha ** (k + 1)) / (1 - alpha))


@given(ALPHA, st.integers(1, 16), st.floats(0.0, 2.0), st.floats(1e-4, 10.0))
def test_with_a_pass_that_costs_the_same_for_any_rows_both_formulas_agree(
    alpha: float, k: int, c: float, plain_s: float
) -> None:
    rounds_s = [plain_s * (1 + n * c) for n in range(k + 1)]
    assert speedup_from_costs(alpha, rounds_s) == pytest.approx(speedup(alpha, k, c))


@given(ALPHA, st.floats(0.0, 2.0))
def test_the_best_k_is_the_best_and_some_pays_only_where_one_draft_does(alpha: float, c: float) -> None:
    best = best_k(alpha, c, 12)
    assert all(speedup(alpha, best, c) >= speedup(alpha, k, c) for k in range(13))
    assert (best == 0) == (speedup(alpha, 1, c) <= 1.0)


def test_the_papers_examples() -> None:
    assert expected_tokens(0.8, 5) == pytest.approx(3.69, abs=0.005)  # table 1: alpha 0.8, gamma 5
    assert speedup(0.6, 2, 0.0) == pytest.approx(1.96)
    assert expected_tokens(1.0, 4) == 5.0
    assert expected_tokens(0.0, 4) == 1.0


@pytest.mark.parametrize(("alpha", "k"), [(-0.1, 1), (1.1, 1), (0.5, -1), (math.nan, 1)])
def test_what_is_no_chance_or_no_number_of_drafts_is_refused(alpha: float, k: int) -> None:
    with pytest.raises(ValueError, match="must"):
        expected_tokens(alpha, k)


def test_times_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="time"):
        speedup_from_costs(0.5, [])
    with pytest.raises(ValueError, match="time"):
        speedup_from_costs(0.5, [0.0, 1.0])
    with pytest.raises(ValueError, match="c must"):
        speedup(0.5, 1, -1.0)
