"""The table of settings: what it offers is what the engine takes, and anything else is corrected with a sentence."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import BOUNDS, MAX_K, MAX_STOP, MAX_STOPS, DecodingParams, Detail, Rule, SamplingParams
from ui.controls import (
    DRAFTERS,
    GROUPS,
    TABLE,
    Control,
    Correction,
    Options,
    Settings,
    _place,
    check,
    check_all,
    choice_label,
    control_of,
    default_drafter,
    drafter_line,
    settings,
    stops,
    table,
    upgrade,
)
from ui.settings.presets import PRESETS, presets
from ui.strings import LANGS, Lang

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(10**300, 10**400) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NUMBERS = [c for c in TABLE if c.kind in ("slider", "number")]
MAX_SEED = int(BOUNDS["seed"].high)

NARROWED = {"temperature", "top_p", "top_k", "repetition_penalty", "probe_every", "max_new_tokens"}
"""Where the page offers less than the engine allows."""


def values(**changed: Any) -> list[Any]:
    return [changed.get(control.name, control.default) for control in TABLE]


def made(**changed: Any) -> Settings:
    """The settings, where nothing needs to be corrected."""
    found, corrections = settings(TABLE, values(**changed))
    assert not corrections
    return found


def correction(**changed: Any) -> Correction:
    """The only correction that this change needs."""
    [found] = settings(TABLE, values(**changed))[1]
    return found


def test_the_defaults_are_the_first_visitors() -> None:
    assert made().params == DecodingParams(
        SamplingParams(temperature=0.0), "auto", None, Rule.REJECTION, 512, detail=Detail.PROBS
    )
    assert made().system == ""


def test_the_table_is_sorted_by_group() -> None:
    assert [c.group for c in TABLE] == sorted((c.group for c in TABLE), key=GROUPS.index)
    assert len({c.name for c in TABLE}) == len(TABLE)


@pytest.mark.parametrize("one", [c for c in TABLE if c.name in BOUNDS], ids=lambda c: c.name)
@pytest.mark.parametrize("options", [Options(), Options(max_new_tokens=300)], ids=["usual", "short"])
def test_a_range_is_the_engines_unless_it_is_said_to_be_narrowed(one: Control, options: Options) -> None:
    bounds, one = BOUNDS[one.name], control_of(one.name, table(options))
    assert bounds.low <= one.low < one.high <= bounds.high
    assert ((one.low, one.high) == (bounds.low, bounds.high)) == (one.narrowed is None) == (one.name not in NARROWED)
    assert one.narrowed is None or one.narrowed.why


@pytest.mark.parametrize("name", [c.name for c in NUMBERS])
def test_what_is_whole_for_the_engine_is_whole_on_the_page(name: str) -> None:
    assert control_of(name).whole == BOUNDS[name].whole


def test_k_is_chosen_from_all_that_the_engine_takes() -> None:
    auto, *numbers = control_of("num_speculative_tokens").choices
    low, high = int(BOUNDS["num_speculative_tokens"].low), int(BOUNDS["num_speculative_tokens"].high)
    assert auto == "auto" and [*map(int, numbers)] == [*range(low, high + 1)]


@pytest.mark.parametrize("one", NUMBERS, ids=lambda c: c.name)
def test_the_ends_of_every_range_are_taken_by_the_engine(one: Control) -> None:
    made(**{one.name: one.low})
    made(**{one.name: one.high})


@pytest.mark.parametrize("one", NUMBERS, ids=lambda c: c.name)
@pytest.mark.parametrize("bad", [1e9, -1e9, math.inf, -math.inf, 10**400, -(10**400)])
def test_numbers_out_of_range_go_to_its_end_and_both_languages_say_so(one: Control, bad: Any) -> None:
    found = correction(**{one.name: bad})
    assert found.control == one and found.value == (one.high if bad > 0 else one.low)
    for lang in LANGS:
        assert f"{found.value:g}" in found.sentence(lang) and f"{one.low:g}" in found.sentence(lang)


@pytest.mark.parametrize("one", NUMBERS, ids=lambda c: c.name)
@pytest.mark.parametrize("bad", [None, "", "abc", "7", math.nan, True, [1], {"a": 1}])
def test_what_is_no_number_becomes_the_default(one: Control, bad: Any) -> None:
    found = correction(**{one.name: bad})
    assert found.value == one.default
    assert all(f"{one.high:g}" in found.sentence(lang) for lang in LANGS)


def test_the_sentence_names_all_three_numbers() -> None:
    said = correction(temperature=7).sentence("en")
    assert said == "“Temperature” goes from 0 to 2: 2 is used instead of 7."
    assert correction(temperature=7).sentence("zh") == "“温度”的范围是 0 到 2：7 改为 2。"
    assert "whole numbers from 1 to 2048: 100 is used instead of 99.6" in correction(max_new_tokens=99.6).sentence("en")


def test_large_numbers_are_written_out() -> None:
    wide = table(Options(max_new_tokens=1_000_000))
    [found] = check_all(wide, {"max_new_tokens": 3_000_000})[1]
    assert "1 to 1000000: 1000000 is used instead of 3000000" in found.sentence("en")


def test_halves_of_whole_numbers_are_rounded() -> None:
    assert correction(top_k=2.7).value == 3
    assert made(top_k=3.0).params.sampling.top_k == 3


@pytest.mark.parametrize(
    ("written", "seed"),
    [("", None), (None, None), ("  ", None), ("0", 0), (" 42 ", 42), (7, 7), (str(MAX_SEED), MAX_SEED)],
)
def test_seeds(written: Any, seed: int | None) -> None:
    assert made(seed=written).params.sampling.seed == seed


@pytest.mark.parametrize("bad", ["-1", "1.5", "abc", str(MAX_SEED + 1), "１２", "0x10", "9" * 5000, 10**4000, -3, True])
def test_a_seed_that_is_no_seed_becomes_a_random_one(bad: Any) -> None:
    found, [said] = settings(TABLE, values(seed=bad))
    assert found.params.sampling.seed is None and said.value == ""
    assert all(said.sentence(lang) for lang in LANGS)


@pytest.mark.parametrize("name", ["drafter", "rule", "num_speculative_tokens"])
@pytest.mark.parametrize("bad", ["nonsense", "label", None, 99, -1, 2.7, True, ["none"], "<b>x</b>" * 99])
def test_unknown_choices_become_the_default(name: str, bad: Any) -> None:
    found = correction(**{name: bad})
    assert found.value == control_of(name).default
    for lang in LANGS:
        assert choice_label(name, str(found.value), lang) in found.sentence(lang) and len(found.sentence(lang)) < 200


@pytest.mark.parametrize(("written", "system"), [(None, ""), ("a\ud800b", "a?b"), ("你好 👋", "你好 👋")])
def test_a_system_prompt_is_text_that_can_be_encoded(written: Any, system: str) -> None:
    assert made(system=written).system == system
    assert correction(system=["x"]).value == ""


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("", ()),
        (None, ()),
        (" \n\n \t\n", ()),
        ("END", ("END",)),
        ("User:\r\n###\r\n", ("User:", "###")),
        ("\\n\\nQ: ", ("\n\nQ: ",)),
        ("a\\\\nb", ("a\\\nb",)),
    ],
)
def test_stop_strings_stand_one_a_line(written: Any, found: tuple[str, ...]) -> None:
    assert made(stop=written).params.stop == found


@given(st.lists(st.text(st.sampled_from("a\\n \t—"), max_size=MAX_STOP + 5), max_size=MAX_STOPS + 3).map("\n".join))
def test_too_many_or_too_long_stop_strings_are_cut(written: str) -> None:
    found, corrections = settings(TABLE, values(stop=written))
    asked = stops(written)
    assert found.params.stop == tuple(stop[:MAX_STOP] for stop in asked[:MAX_STOPS])
    assert bool(corrections) == (found.params.stop != asked)
    for one in corrections:
        assert made(stop=one.value).params.stop == found.params.stop, "what is put back into the control means the same"


@pytest.mark.parametrize(("chosen", "k"), [("auto", None), ("0", 0), ("8", 8), (8, 8), (8.0, 8), (0, 0)])
def test_k_is_automatic_fixed_or_zero(chosen: object, k: int | None) -> None:
    assert made(num_speculative_tokens=chosen).params.num_speculative_tokens == k


@pytest.mark.parametrize(
    ("remembered", "k_at_start", "k"),
    [
        ({"auto_k": False}, None, 3),
        ({"auto_k": False, "num_speculative_tokens": 5}, None, 5),
        ({"num_speculative_tokens": 5}, None, None),
        ({"num_speculative_tokens": 5, "plain_only": True}, None, 0),
        ({"plain_only": True}, None, 0),
        ({"auto_k": "x", "plain_only": None}, None, None),
        ({"num_speculative_tokens": "7"}, None, 7),
        ({"auto_k": True}, 3, None),
        ({"num_speculative_tokens": 5}, 3, 5),
        ({}, 4, 4),
    ],
)
def test_what_a_browser_remembers_from_when_k_was_three_controls(
    remembered: dict[str, Any], k_at_start: int | None, k: int | None
) -> None:
    controls = table(Options(k=k_at_start))
    found, corrections = check_all(controls, upgrade(remembered, k_at_start))
    values = [found.get(control.name, control.default) for control in controls]
    assert not corrections and settings(controls, values)[0].params.num_speculative_tokens == k


@pytest.mark.parametrize(
    ("lang", "auto", "plain"),
    [("en", "automatic (by what pays)", "0 · plain decoding"), ("zh", "自动（划算才猜）", "0 · 普通解码")],
)
def test_k_says_what_auto_and_zero_are(lang: Lang, auto: str, plain: str) -> None:
    words = [choice_label("num_speculative_tokens", k, lang) for k in ("auto", "0", "7")]
    assert words == [auto, plain, "7"]


def test_every_sampling_value_arrives() -> None:
    chosen = {"temperature": 0.5, "top_k": 40, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.1,
              "frequency_penalty": -0.5, "presence_penalty": 0.3, "seed": 5}  # fmt: skip
    assert made(**chosen).params.sampling == SamplingParams(**chosen)


@given(st.lists(JSON, min_size=len(TABLE), max_size=len(TABLE)))
def test_whatever_comes_becomes_valid_settings(raw: list[Any]) -> None:
    """DecodingParams checks itself; so it is enough that nothing is raised. What is put back is then left alone."""
    found, corrections = settings(TABLE, raw)
    for one in corrections:
        assert all(one.sentence(lang) for lang in LANGS)
        assert one.value == one.control.default or check(one.control, one.value) == (one.value, None)
    checked, _ = check_all(TABLE, dict(zip((c.name for c in TABLE), raw, strict=True)))
    assert settings(TABLE, [checked[c.name] for c in TABLE]) == (found, ())


@given(st.dictionaries(st.sampled_from([c.name for c in TABLE]) | st.text(max_size=8), JSON))
def test_what_was_remembered_counts_as_far_as_it_is_known(remembered: dict[str, Any]) -> None:
    found, _ = check_all(TABLE, remembered)
    assert set(found) == {c.name for c in TABLE} & set(remembered)
    assert settings(TABLE, values(**found))[1] == ()


def test_the_command_line_and_the_engine_adapt_the_table() -> None:
    adapted = {
        c.name: c
        for c in table(Options(k=7, drafter="some/model", max_new_tokens=100), ("none", "ngram", "draft_model"))
    }
    assert adapted["num_speculative_tokens"].default == "7"
    assert adapted["drafter"].default == "auto"
    assert adapted["max_new_tokens"].high == adapted["max_new_tokens"].default == 100
    assert adapted["num_speculative_tokens"].choices[-1] == str(MAX_K)


@given(st.sets(st.sampled_from(["none", "ngram", "head", "both", "draft_model", "medusa"]), min_size=1))
def test_only_what_the_engine_has_can_be_chosen(drafters: set[str]) -> None:
    offered = next(c for c in table(Options(), tuple(drafters)) if c.name == "drafter").choices
    assert offered[0] == "auto" and sorted(offered[1:]) == sorted(drafters)
    assert list(offered[1:]) == sorted(offered[1:], key=_place), "one order, whatever the engine says"


@pytest.mark.parametrize("lang", LANGS)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_every_drafter_explains_itself(drafter: str, lang: Lang) -> None:
    name, help_ = drafter_line(drafter, lang).split("\n")
    assert name == choice_label("drafter", drafter, lang) and len(help_) > len(name)
    assert drafter_line("medusa", lang) == "medusa"


@pytest.mark.parametrize(
    ("asked", "first"), [("auto", "auto"), ("none", "none"), ("ngram", "ngram"), ("some/model", "auto")]
)
def test_the_drafter_that_the_command_line_asks_for_comes_first(asked: str, first: str) -> None:
    """Also before the engine is ready: whatever a model's name turns out to be, automatic takes it."""
    one = next(c for c in table(Options(drafter=asked)) if c.name == "drafter")
    assert default_drafter(asked) == one.default == first
    assert first in one.choices


@pytest.mark.parametrize("longest", [1, 100, 2048, 9000])
def test_presets_stay_within_the_table(longest: int) -> None:
    controls = table(Options(max_new_tokens=longest))
    for preset in presets(controls):
        chosen = {c.name: preset.values.get(c.name, c.default) for c in controls}
        assert settings(controls, list(chosen.values()))[1] == ()
        assert not set(preset.values) & {"seed", "system", "stop"}


def test_presets_differ_and_each_takes_back_the_sampling_of_the_others() -> None:
    assert len({tuple(sorted(preset.values.items())) for preset in PRESETS}) == len(PRESETS)
    sampling = {c.name for c in TABLE if c.group == "sampling"} - {"seed"}
    assert all(sampling <= set(preset.values) for preset in PRESETS)


def test_the_likeliest_tokens_are_recorded_only_when_asked_for() -> None:
    assert made(record=True).params.detail is Detail.FULL and made(record=False).params.detail is Detail.PROBS
