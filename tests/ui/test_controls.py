"""The table of settings: what it offers is what the engine takes, and nothing else gets through."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import MAX_K, DecodingParams, Rule, SamplingParams
from ui.controls import (
    DRAFTERS,
    MAX_SEED,
    TABLE,
    Control,
    Options,
    Refusal,
    _place,
    check,
    choice_label,
    choice_line,
    default_drafter,
    settings,
    table,
)
from ui.strings import LANGS, Lang


def values(**changed: Any) -> list[Any]:
    return [changed.get(control.name, control.default) for control in TABLE]


def control(name: str) -> Control:
    return next(control for control in TABLE if control.name == name)


def test_the_defaults_are_the_first_visitors() -> None:
    made = settings(TABLE, values())
    assert made.params == DecodingParams(SamplingParams(temperature=0.0), "auto", None, Rule.REJECTION, 512)
    assert made.system == ""


@pytest.mark.parametrize("one", [c for c in TABLE if c.kind == "slider"], ids=lambda c: c.name)
def test_the_ends_of_every_range_are_taken_by_the_engine(one: Control) -> None:
    settings(TABLE, values(**{one.name: one.low}))
    settings(TABLE, values(**{one.name: one.high}))


@pytest.mark.parametrize("one", [c for c in TABLE if c.kind == "slider"], ids=lambda c: c.name)
@pytest.mark.parametrize("bad", [None, "", "abc", math.nan, math.inf, -1, 1e9, 10**400, True, [1], {"a": 1}])
def test_values_out_of_range_are_refused_in_both_languages(one: Control, bad: Any) -> None:
    with pytest.raises(Refusal) as caught:
        settings(TABLE, values(**{one.name: bad}))
    for lang in LANGS:
        assert f"{one.high:g}" in caught.value.sentence(lang)


def test_halves_of_whole_numbers_are_refused() -> None:
    with pytest.raises(Refusal):
        settings(TABLE, values(num_speculative_tokens=2.5))
    assert settings(TABLE, values(num_speculative_tokens=3.0, auto_k=False)).params.num_speculative_tokens == 3


@pytest.mark.parametrize(
    ("written", "seed"),
    [("", None), (None, None), ("  ", None), ("0", 0), (" 42 ", 42), (7, 7), (str(MAX_SEED), MAX_SEED)],
)
def test_seeds(written: Any, seed: int | None) -> None:
    assert settings(TABLE, values(seed=written)).params.sampling.seed == seed


@pytest.mark.parametrize("bad", ["-1", "1.5", "abc", str(MAX_SEED + 1), "１２", "0x10", "9" * 5000])
def test_bad_seeds(bad: str) -> None:
    with pytest.raises(Refusal):
        check(control("seed"), bad)


@pytest.mark.parametrize("name", ["drafter", "rule"])
def test_unknown_choices_are_refused(name: str) -> None:
    with pytest.raises(Refusal) as caught:
        settings(TABLE, values(**{name: "nonsense"}))
    assert "nonsense" not in caught.value.sentence("en")


@pytest.mark.parametrize(("written", "system"), [(None, ""), (["x"], ""), ("a\ud800b", "a?b"), ("你好 👋", "你好 👋")])
def test_a_system_prompt_is_text_that_can_be_encoded(written: Any, system: str) -> None:
    assert settings(TABLE, values(system=written)).system == system


@pytest.mark.parametrize(
    ("plain_only", "auto_k", "k"), [(True, True, 0), (True, False, 0), (False, True, None), (False, False, 8)]
)
def test_k_is_automatic_fixed_or_zero(plain_only: bool, auto_k: bool, k: int | None) -> None:
    chosen = values(plain_only=plain_only, auto_k=auto_k, num_speculative_tokens=8)
    assert settings(TABLE, chosen).params.num_speculative_tokens == k


def test_the_command_line_and_the_engine_adapt_the_table() -> None:
    adapted = {
        c.name: c
        for c in table(Options(k=7, drafter="some/model", max_new_tokens=100), ("none", "ngram", "draft_model"))
    }
    assert adapted["num_speculative_tokens"].default == 7 and adapted["auto_k"].default is False
    assert adapted["drafter"].default == "auto"
    assert adapted["max_new_tokens"].high == adapted["max_new_tokens"].default == 100
    assert adapted["num_speculative_tokens"].high == MAX_K


@given(st.sets(st.sampled_from(["none", "ngram", "head", "both", "draft_model", "medusa"]), min_size=1))
def test_only_what_the_engine_has_can_be_chosen(drafters: set[str]) -> None:
    offered = next(c for c in table(Options(), tuple(drafters)) if c.name == "drafter").choices
    assert offered[0] == "auto" and sorted(offered[1:]) == sorted(drafters)
    assert list(offered[1:]) == sorted(offered[1:], key=_place), "one order, whatever the engine says"


@pytest.mark.parametrize("lang", LANGS)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_every_drafter_explains_itself(drafter: str, lang: Lang) -> None:
    name, help_ = choice_line(drafter, lang).split("\n")
    assert name == choice_label(drafter, lang) and len(help_) > len(name)
    assert choice_line("medusa", lang) == "medusa"


@pytest.mark.parametrize(
    ("asked", "first"), [("auto", "auto"), ("none", "none"), ("ngram", "ngram"), ("some/model", "auto")]
)
def test_the_drafter_that_the_command_line_asks_for_comes_first(asked: str, first: str) -> None:
    """Also before the engine is ready: whatever a model's name turns out to be, automatic takes it."""
    one = next(c for c in table(Options(drafter=asked)) if c.name == "drafter")
    assert default_drafter(asked) == one.default == first
    assert first in one.choices
