"""Probabilities: filters, penalties, bans, and what happens to numbers that are none."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import BOUNDS, MAX_K, DecodingParams, EngineConfig, Rule, SamplingParams, format_k, parse_k
from engine.errors import InvalidParams, NumericalError
from engine.rng import KeyedRng, Purpose, gumbel, gumbel_argmax, inverse_cdf, uniform
from engine.sampling import LazyRows, _top_p, probabilities

rows = st.lists(st.lists(st.floats(-20, 20, width=32), min_size=12, max_size=12), min_size=1, max_size=4)


@given(
    rows,
    st.floats(0.05, 3),
    st.integers(0, 12),
    st.floats(0.05, 1),
    st.floats(0, 1),
)
@settings(max_examples=200, deadline=None)
def test_rows_are_distributions_and_do_not_depend_on_their_neighbours(
    logits: list[list[float]], temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    matrix = torch.tensor(logits)
    probs = probabilities(matrix, [0] * len(logits), 0, params)
    assert torch.all(probs >= 0) and torch.allclose(probs.sum(-1), torch.ones(len(logits)), atol=1e-5)
    for i in range(len(logits)):
        assert torch.equal(probs[i], probabilities(matrix[i : i + 1], [0], 0, params)[0])
        assert probs[i, matrix[i].argmax()] > 0


def test_temperature_zero_is_one_hot_from_an_argmax() -> None:
    probs = probabilities(torch.tensor([[1.0, 3.0, 3.0, 2.0]]), [0], 0, SamplingParams())
    assert probs.tolist() == [[0.0, 1.0, 0.0, 0.0]]


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 1e-50, 5e-324])
def test_a_tiny_temperature_equals_greedy(temperature: float) -> None:
    logits = torch.tensor([[1.0, 300.0, 299.0]])
    assert probabilities(logits, [0], 0, SamplingParams(temperature=temperature)).argmax() == 1
    assert torch.isfinite(probabilities(logits, [0], 0, SamplingParams(temperature=temperature))).all()


def test_min_p_of_099_equals_greedy() -> None:
    logits = torch.stack([torch.randperm(100, generator=torch.Generator().manual_seed(i)) for i in range(5)]).float()
    near = probabilities(logits, [0] * 5, 0, SamplingParams(temperature=1.0, min_p=0.99))
    greedy = probabilities(logits, [0] * 5, 0, SamplingParams())
    assert torch.equal(near, greedy)


@pytest.mark.parametrize("top_p", [0.001, 0.3, 0.999999, 1.0])
def test_top_p_matches_a_full_sort_even_where_it_must_look_far(top_p: float) -> None:
    logits = torch.randn(2, 5000, generator=torch.Generator().manual_seed(2)) * 0.1
    probs = probabilities(logits, [0, 0], 0, SamplingParams(temperature=1.0, top_p=top_p))
    for row, kept in zip(torch.softmax(logits, -1).numpy(), probs.numpy(), strict=True):
        running = np.cumsum(np.sort(row.astype(np.float64))[::-1])
        assert abs((kept > 0).sum() - min(5000, int((running < top_p).sum()) + 1)) <= 5000 * 1e-3


@pytest.mark.parametrize("filters", [{"top_p": 0.6}, {"top_k": 2}])
def test_tokens_as_likely_as_the_last_one_kept_are_all_kept(filters: dict[str, float]) -> None:
    logits = torch.tensor([[0.5, 0.125, 0.125, 0.125, 0.125, 1e-9]]).log()
    [row] = probabilities(logits, [], 0, SamplingParams(1.0, **filters))  # type: ignore[arg-type]
    assert (row > 0).tolist() == [True] * 5 + [False]


def test_top_p_stops_as_soon_as_the_mass_is_reached() -> None:
    probs = np.array([0.125, 0.5, 0.25, 0.125], np.float32)  # whose sums are exact
    assert _top_p(probs, 0.5).tolist() == [1]
    assert _top_p(probs, 0.75).tolist() == [1, 2]
    assert _top_p(probs, 0.76).tolist() == [0, 1, 2, 3]


def test_lazy_rows_are_the_rows_of_the_whole_and_only_the_asked_ones_are_made() -> None:
    logits = torch.randn(5, 40, generator=torch.Generator().manual_seed(3)) * 4
    history, params = [7, 7, 3, 1, 2, 9, 9, 4], SamplingParams(0.8, top_p=0.9, repetition_penalty=1.4)
    whole = probabilities(logits, history, 2, params)
    lazy = LazyRows(logits, history, 2, params)
    assert all(torch.equal(lazy[i], whole[i]) for i in (3, 0, 4, 1, 2))
    logits[4] = float("nan")
    lazy = LazyRows(logits, history, 2, params)
    assert torch.equal(lazy[3], whole[3])
    with pytest.raises(NumericalError):
        lazy[4]


def test_penalties_see_the_drafts_before_each_row_and_no_others() -> None:
    logits = torch.zeros(3, 6)
    history = [0, 1, 2, 3]  # the prompt is [0, 1]; 2 and 3 are drafts, rows follow 1, 2, 3
    params = SamplingParams(temperature=1.0, presence_penalty=2.0)
    probs = probabilities(logits, history, 2, params)
    penalised = [[i for i in range(6) if row[i] < row.max() * 0.99] for row in probs]
    assert penalised == [[], [2], [2, 3]]
    frequent = probabilities(
        torch.zeros(1, 6), [0, 4, 4, 4, 5], 1, SamplingParams(temperature=1.0, frequency_penalty=1.0)
    )
    assert frequent[0, 4] / frequent[0, 0] == pytest.approx(math.exp(-3)) and frequent[0, 5] / frequent[
        0, 0
    ] == pytest.approx(math.exp(-1))


def test_repetition_penalty_covers_the_prompt_and_pushes_down_whatever_the_sign() -> None:
    probs = probabilities(
        torch.tensor([[2.0, -2.0, 2.0, -2.0]]), [0, 1], 2, SamplingParams(temperature=1.0, repetition_penalty=2.0)
    )
    assert probs[0, 0] < probs[0, 2] and probs[0, 1] < probs[0, 3]


def test_a_banned_token_has_probability_zero() -> None:
    logits = torch.tensor([[50.0, 1.0, 0.0]])
    for temperature in (0.0, 1.0, 5.0):
        params = SamplingParams(temperature=temperature, logit_bias=((0, -100.0),))
        assert probabilities(logits, [0], 0, params)[0, 0] == 0


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_numbers_that_are_none_are_a_clear_error(bad: float, temperature: float) -> None:
    with pytest.raises(NumericalError):
        probabilities(torch.tensor([[0.0, bad, 1.0]]), [0], 0, SamplingParams(temperature=temperature))
    with pytest.raises(NumericalError):
        probabilities(torch.full((1, 3), -math.inf), [0], 0, SamplingParams(temperature=temperature))


def test_the_callers_logits_are_left_alone() -> None:
    logits = torch.randn(2, 20)
    before = logits.clone()
    probabilities(
        logits,
        [1, 2],
        0,
        SamplingParams(temperature=0.5, top_k=3, top_p=0.5, repetition_penalty=2.0, logit_bias=((1, 2.0),)),
    )
    assert torch.equal(logits, before)


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=30), st.floats(0, 1, exclude_max=True))
@settings(max_examples=300, deadline=None)
def test_inverse_cdf_never_returns_an_impossible_token(weights: list[float], u: float) -> None:
    probs = torch.tensor(weights)
    if not (probs > 0).any():
        return
    assert probs[inverse_cdf(probs, u)] > 0


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
    for seed in range(40):
        probs = torch.softmax(torch.randn(4000, generator=generator) * spread, -1)
        scores = np.log(probs.numpy().astype(np.float64)) + gumbel(seed, 9, np.arange(4000))
        assert gumbel_argmax(probs, seed, 9) == int(scores.argmax())


def test_same_key_same_draw() -> None:
    probs = torch.softmax(torch.randn(100, generator=torch.Generator().manual_seed(0)), -1)
    for rule in Rule:
        assert KeyedRng(1, rule).draw(probs, 5, Purpose.TARGET) == KeyedRng(1, rule).draw(probs, 5, Purpose.TARGET)
        assert len({KeyedRng(seed, rule).draw(probs, 5, Purpose.TARGET) for seed in range(50)}) > 5


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (SamplingParams, {"temperature": -0.1}),
        (SamplingParams, {"temperature": math.nan}),
        (SamplingParams, {"temperature": "hot"}),
        (SamplingParams, {"temperature": 10**400}),
        (SamplingParams, {"top_p": 0.0}),
        (SamplingParams, {"top_k": 1.5}),
        (SamplingParams, {"min_p": 1.5}),
        (SamplingParams, {"seed": -1}),
        (SamplingParams, {"seed": True}),
        (SamplingParams, {"seed": 10**400}),
        (SamplingParams, {"logit_bias": ((-1, 1.0),)}),
        (DecodingParams, {"num_speculative_tokens": 17}),
        (DecodingParams, {"max_new_tokens": 0}),
        (DecodingParams, {"rule": "magic"}),
        (DecodingParams, {"detail": True}),
        (DecodingParams, {"detail": "more"}),
        (DecodingParams, {"stop": ("",)}),
        (DecodingParams, {"drafter": ""}),
        (EngineConfig, {"drafter": " "}),
        (EngineConfig, {"target": ""}),
    ],
)
def test_bad_settings_say_which_and_why(kind: type, values: dict[str, object]) -> None:
    [field] = values
    with pytest.raises(InvalidParams, match=field) as caught:
        kind(**values)
    assert caught.value.field == field


@pytest.mark.parametrize("kind", [SamplingParams, DecodingParams, EngineConfig])
def test_each_setting_takes_the_ends_of_its_bounds_and_nothing_beyond(kind: type) -> None:
    """Also its default lies within them; a bias is one of many, and top_p 0 leaves no token."""
    for name, bounds in BOUNDS.items():
        if name not in kind.__dataclass_fields__ or name == "logit_bias":
            continue
        default = getattr(kind(), name)
        assert default is None or bounds.low <= default <= bounds.high
        for taken in (bounds.high,) if name == "top_p" else (bounds.low, bounds.high):
            assert getattr(kind(**{name: taken}), name) == taken
        for beyond in (bounds.low - 1, bounds.high + 1):
            with pytest.raises(InvalidParams, match=f"^{name} must be between") as caught:
                kind(**{name: beyond})
            assert caught.value.field == name


@pytest.mark.parametrize(
    ("asked", "k"), [(None, None), ("auto", None), (0, 0), ("0", 0), (MAX_K, MAX_K), (" 7 ", 7), ("99", 99), (-1, -1)]
)
def test_k_is_read_one_way_wherever_it_is_asked_for(asked: object, k: int | None) -> None:
    """Its range is checked with all others, where the request is made."""
    assert parse_k(asked) == k and parse_k(format_k(k)) == k


@pytest.mark.parametrize("asked", ["", "many", "automatic", "2.5", 2.5, 3.0, True, [3], "9" * 5000])
def test_what_is_no_k_is_refused_with_what_it_may_be(asked: object) -> None:
    words = f"^num_speculative_tokens must be auto or a whole number between 0 and {MAX_K}, not "
    with pytest.raises(InvalidParams, match=words):
        parse_k(asked)


def test_native_kernels_and_quantising_again_exclude_each_other() -> None:
    with pytest.raises(InvalidParams, match="leave out --kernel native or --quant nf4"):
        EngineConfig(kernel="native", quant="nf4")
    assert EngineConfig(kernel="native", quant="gguf").quant == "gguf"


def test_a_number_just_out_of_range_is_named_in_full() -> None:
    with pytest.raises(InvalidParams, match=f"between 0 and {2**63 - 1}, not {2**63}"):
        SamplingParams(seed=2**63)


def test_noise_of_different_seeds_positions_and_tokens_is_independent() -> None:
    """The same noise at two places would make a reply repeat itself, which no single draw would show."""
    tokens = np.arange(4000)
    base = gumbel(3, 10, tokens)
    for other in (gumbel(4, 10, tokens), gumbel(3, 11, tokens), gumbel(3, 10, tokens + 1)):
        assert abs(np.corrcoef(base, other)[0, 1]) < 0.12  # 7.5 standard deviations
    probs = torch.full((1000,), 1e-3)
    for seeds, positions in ((range(40), [7]), ([7], range(40))):
        assert len({gumbel_argmax(probs, seed, position) for seed in seeds for position in positions}) > 30
