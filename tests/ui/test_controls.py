"""The table of settings: what it offers is what the engine takes, and anything else is corrected with a sentence."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from engine.config import BOUNDS, MAX_K, MAX_STOP, MAX_STOPS, DecodingParams, Detail, Rule, SamplingParams
from tests.ui.samples import JSON, few, with_values
from ui import controls
from ui.controls import DRAFTERS, TABLE, Correction, Options, choice_label, control_of, settings, table
from ui.settings.presets import PRESETS, presets
from ui.strings import LANGS

NUMBERS = [c for c in TABLE if c.kind in ("slider", "number")]
MAX_SEED = int(BOUNDS["seed"].high)
K = "num_speculative_tokens"

NARROWED = {"temperature", "top_p", "top_k", "repetition_penalty", "probe_every", "max_new_tokens"}
"""Where the page offers less than the engine allows."""


def made(**changed: Any) -> DecodingParams:
    """The settings, where nothing needs to be corrected."""
    chosen, corrections = settings(TABLE, with_values(**changed))
    assert not corrections
    return chosen.params


def correction(**changed: Any) -> Correction:
    """The only correction that this change needs, in words in both languages."""
    [only] = settings(TABLE, with_values(**changed))[1]
    assert all(0 < len(only.sentence(lang)) < 300 for lang in LANGS)
    return only


# -- what is offered ---------------------------------------------------------------------------------------------------


def test_the_defaults_are_the_first_visitors() -> None:
    assert made() == DecodingParams(
        SamplingParams(temperature=0.0), "auto", None, Rule.REJECTION, 512, detail=Detail.PROBS
    )


def test_a_range_is_the_engines_unless_it_is_said_to_be_narrowed() -> None:
    for one in (*NUMBERS, control_of("max_new_tokens", table(Options(max_new_tokens=300)))):
        bounds = BOUNDS[one.name]
        assert bounds.low <= one.low < one.high <= bounds.high and one.whole == bounds.whole
        same = (one.low, one.high) == (bounds.low, bounds.high)
        assert same == (one.narrowed is None) == (one.name not in NARROWED), one
        made(**{one.name: one.low})
        made(**{one.name: control_of(one.name).high})
    assert control_of(K).choices == ("auto", *map(str, range(int(BOUNDS[K].low), MAX_K + 1)))
    assert [c.group for c in TABLE] == sorted((c.group for c in TABLE), key=controls.GROUPS.index)


def test_the_command_line_adapts_the_table_and_presets_stay_within_it() -> None:
    adapted = table(Options(k=7, max_new_tokens=100))
    longest = control_of("max_new_tokens", adapted)
    assert control_of(K, adapted).default == "7" and longest.high == longest.default == 100
    for asked, first in (("none", "none"), ("ngram", "ngram"), ("some/model", "auto")):
        assert control_of("drafter", table(Options(drafter=asked))).default == first
    sampling = {c.name for c in TABLE if c.group == "sampling"} - {"seed"}
    for preset in presets(adapted):
        assert settings(adapted, [preset.values.get(c.name, c.default) for c in adapted])[1] == ()
        assert sampling <= set(preset.values), "takes back the sampling of the others"
        assert not set(preset.values) & {"seed", "system", "stop"}
    assert len({tuple(sorted(preset.values.items())) for preset in PRESETS}) == len(PRESETS)


@given(st.sets(st.sampled_from([*DRAFTERS[1:], "medusa"]), min_size=1))
def test_only_what_the_engine_has_can_be_chosen(drafters: set[str]) -> None:
    first, *offered = control_of("drafter", table(Options(), tuple(drafters))).choices
    assert first == "auto" and set(offered) == drafters
    assert offered == sorted(offered, key=controls._place), "one order, whatever the engine says"
    for drafter in {"auto", *drafters} - {"medusa"}:
        name, help_ = controls.drafter_line(drafter, "en").split("\n")
        assert name == choice_label("drafter", drafter, "en") and len(help_) > len(name)
    assert controls.drafter_line("medusa", "en") == "medusa"


# -- what is taken, and what is corrected ------------------------------------------------------------------------------


def test_every_value_arrives() -> None:
    params = made(temperature=0.5, top_k=40.0, top_p=0.9, min_p=0.1, repetition_penalty=1.1, frequency_penalty=-0.5,
                  presence_penalty=0.3, seed=5, rule="shared_noise", drafter="ngram", num_speculative_tokens=8.0,
                  probe_every=3, max_new_tokens=9, record=True, stop="User:\r\n \t\n\\n\\nQ: \na\\\\nb")  # fmt: skip
    sampling = SamplingParams(0.5, 40, 0.9, 0.1, 1.1, -0.5, 0.3, seed=5)
    stop = ("User:", "\n\nQ: ", "a\\\nb")
    assert params == DecodingParams(sampling, "ngram", 8, Rule.SHARED_NOISE, 9, stop, 3, Detail.FULL)
    assert [made(num_speculative_tokens=k).num_speculative_tokens for k in ("auto", "0", 0)] == [None, 0, 0]
    seeds = {"": None, None: None, "  ": None, " 42 ": 42, "0": 0, str(MAX_SEED): MAX_SEED}
    assert {seed: made(seed=seed).sampling.seed for seed in seeds} == seeds
    systems = {None: "", "a\ud800b": "a?b", "你好 👋": "你好 👋"}
    assert {one: settings(TABLE, with_values(system=one))[0].system for one in systems} == systems


def test_numbers_out_of_range_go_to_its_end_and_what_is_none_becomes_the_default() -> None:
    for one in NUMBERS:
        high, low, default = one.high, one.low, one.default
        used = {1e9: high, math.inf: high, 10**400: high, -1e9: low, -math.inf: low, -(10**400): low,
                None: default, "": default, "7": default, math.nan: default, True: default}  # fmt: skip
        for bad, value in used.items():
            wrong = correction(**{one.name: bad})
            assert wrong.control == one and wrong.value == value
            assert all(f"{high:g}" in wrong.sentence(lang) for lang in LANGS)
        assert correction(**{one.name: [1]}).value == default
    assert correction(top_k=2.7).value == 3
    wrong = correction(temperature=7)
    assert wrong.sentence("en") == "“Temperature” goes from 0 to 2: 2 is used instead of 7."
    assert wrong.sentence("zh") == "“温度”的范围是 0 到 2：7 改为 2。"
    [wrong] = controls.check_all(table(Options(max_new_tokens=1_000_000)), {"max_new_tokens": 3_000_000})[1]
    assert "1 to 1000000: 1000000 is used instead of 3000000" in wrong.sentence("en"), "written out"


def test_unknown_choices_seeds_and_texts_become_the_default() -> None:
    for name in ("drafter", "rule", K):
        for bad in ("nonsense", "label", None, 99, -1, 2.7, True, ["none"], "<b>x</b>" * 99):
            wrong = correction(**{name: bad})
            assert wrong.value == control_of(name).default
            assert choice_label(name, str(wrong.value), "en") in wrong.sentence("en")
    for bad in ("-1", "1.5", "abc", str(MAX_SEED + 1), "１２", "0x10", "9" * 5000, 10**4000, -3, True):
        assert correction(seed=bad).value == ""
    assert correction(system=["x"]).value == ""


@given(st.lists(st.text(st.sampled_from("a\\n \t—"), max_size=MAX_STOP + 5), max_size=MAX_STOPS + 3).map("\n".join))
@example("a\\nb\n" * (MAX_STOPS + 1))
def test_too_many_or_too_long_stop_strings_are_cut(written: str) -> None:
    chosen, corrections = settings(TABLE, with_values(stop=written))
    asked = controls.stops(written)
    assert chosen.params.stop == tuple(stop[:MAX_STOP] for stop in asked[:MAX_STOPS])
    assert bool(corrections) == (chosen.params.stop != asked)
    for one in corrections:
        assert made(stop=one.value).stop == chosen.params.stop, "what is put back into the control means the same"


def test_what_a_browser_remembers_from_when_k_was_three_controls() -> None:
    cases: list[tuple[dict[str, Any], int | None, int | None]] = [
        ({"auto_k": False}, None, 3), ({"auto_k": False, K: 5}, None, 5), ({K: 5}, None, None), ({K: "7"}, None, 7),
        ({K: 5, "plain_only": True}, None, 0), ({"auto_k": True}, 3, None), ({K: 5}, 3, 5), ({}, 4, 4),
    ]  # fmt: skip
    for remembered, k_at_start, k in cases:
        adapted = table(Options(k=k_at_start))
        known, corrections = controls.check_all(adapted, controls.upgrade(remembered, k_at_start))
        chosen, _ = settings(adapted, [known.get(c.name, c.default) for c in adapted])
        assert not corrections and chosen.params.num_speculative_tokens == k, remembered


@few
@given(
    st.dictionaries(st.sampled_from([c.name for c in TABLE]) | st.text(max_size=8), JSON | st.just(10**400), min_size=1)
)
def test_whatever_comes_or_was_remembered_becomes_valid_settings(given: dict[str, Any]) -> None:
    """DecodingParams checks itself; so it is enough that nothing is raised. What is put back is then left alone."""
    chosen, corrections = settings(TABLE, with_values(**given))
    assert all(one.sentence(lang) for one in corrections for lang in LANGS)
    checked, _ = controls.check_all(TABLE, given)
    assert set(checked) == {c.name for c in TABLE} & set(given)
    assert settings(TABLE, with_values(**checked)) == (chosen, ())
