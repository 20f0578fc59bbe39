"""Conclusions follow from the points, and claim nothing that scatter may be."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.lab import ExperimentName, Point, Result
from tests.fake_engine import measured
from ui.when import conclusions as lab
from ui.when.conclusions import Sentence

USERS = (1, 2, 4, 8, 16, 32)


def result(name: ExperimentName, points: Sequence[Point]) -> Result:
    return Result(name, tuple(points), (), "2025-01-02T03:04:05+00:00", 1.0)


def point(x: float, series: str, y: float, scatter: float = 0.02, **extra: float) -> Point:
    return Point(x, series, y, 3, y * (1 - scatter), y * (1 + scatter), tuple(extra.items()))


def keys(sentences: Sequence[Sentence]) -> list[str]:
    return [sentence.key for sentence in sentences]


def rate(gains: Sequence[float], scatter: float = 0.01) -> Result:
    plain = [point(x, "plain", 50.0 * x**0.5, scatter) for x in USERS]
    spec = [point(p.x, "speculative", p.y * gain, scatter) for p, gain in zip(plain, gains, strict=True)]
    return result(ExperimentName.RATE, [*plain, *spec])


@pytest.mark.parametrize(
    ("gains", "scatter", "key"),
    [
        ((1.8, 1.6, 1.3, 1.1, 0.9, 0.8), 0.01, "lab.rate.crossover"),
        ((1.8, 1.7, 1.6, 1.5, 1.4, 1.3), 0.01, "lab.rate.always"),
        ((0.9, 0.8, 0.8, 0.7, 0.7, 0.6), 0.01, "lab.rate.never"),
        ((1.8, 1.6, 1.3, 1.1, 1.02, 0.99), 0.03, "lab.rate.fades"),
        ((1.05, 1.0, 0.98, 1.02, 1.0, 0.97), 0.1, "lab.rate.unclear"),
    ],
)
def test_what_the_loads_came_to(gains: Sequence[float], scatter: float, key: str) -> None:
    said = lab.conclusion(rate(gains, scatter))
    assert keys(said) == [key, "lab.rate.totals"]


def test_the_crossover_lies_between_the_loads_where_the_gain_falls_through_one() -> None:
    [said, _] = lab.conclusion(rate((1.8, 1.6, 1.3, 1.1, 0.9, 0.8)))
    assert 8 < float(str(said.values["users"])) < 16
    assert "about 11 users" in said.text("en") and "11 个用户" in said.text("zh")
    assert [lab.users(count) for count in (1.38, 2.0, 9.94, 11.4)] == ["1.4", "2", "9.9", "11"]


@given(st.lists(st.floats(0.3, 3.0), min_size=2, max_size=6))
def test_a_crossover_is_where_the_measured_gain_was_above_one_before_and_not_after(ys: list[float]) -> None:
    found = [lab.Gain(x, y, y, y) for x, y in zip(USERS, ys, strict=False)]
    at = lab.crossover(found)
    falls = [(a, b) for a, b in pairwise(found) if a.y > 1 >= b.y]
    assert (at is None) == (not falls)
    if at is not None:
        before, after = falls[-1]
        assert before.x * 0.999 <= at <= after.x * 1.001


def test_no_claim_is_made_where_scatter_is_larger_than_the_effect() -> None:
    for name in (ExperimentName.RATE, ExperimentName.LENGTH, ExperimentName.TEXT, ExperimentName.TEMPERATURE):
        points = [
            Point(p.x, p.series, y := _middling(name, p), 3, y * 0.5, y * 1.5, p.extra) for p in measured(name).points
        ]
        said = " ".join(sentence.text("en") for sentence in lab.conclusion(result(name, points)))
        assert "no clear difference" in said.lower(), (name, said)


def _middling(name: ExperimentName, of: Point) -> float:
    return 50.0 if name is ExperimentName.RATE else 0.5 if name is ExperimentName.TEMPERATURE else 1.02 + of.x / 1e4


def test_the_first_token_and_the_whole_request_are_told_apart() -> None:
    def lengths(spec_s: float, ys: Sequence[float]) -> list[str]:
        points = [
            point(x, "speculative", y, ttft_plain=0.1, ttft_spec=spec_s) for x, y in zip((1, 16, 256), ys, strict=True)
        ]
        return keys(lab.conclusion(result(ExperimentName.LENGTH, points)))

    assert lengths(0.104, (1.0, 1.4, 1.8)) == ["lab.length.ttft.same", "lab.length.grows"]
    assert lengths(0.108, (1.0, 1.4, 1.8)) == ["lab.length.ttft.other", "lab.length.grows"]
    assert lengths(0.1, (1.5, 1.5, 1.5)) == ["lab.length.ttft.same", "lab.length.pays"]
    assert lengths(0.1, (0.9, 0.8, 0.7)) == ["lab.length.ttft.same", "lab.length.slower"]
    assert lengths(0.1, (1.0, 1.01, 1.0)) == ["lab.length.ttft.same", "lab.length.unclear"]


def test_a_single_token_is_not_several() -> None:
    [_, said] = lab.conclusion(measured(ExperimentName.LENGTH))
    assert "for 1 token," in said.text("en")


def test_the_best_k_is_told_with_those_that_repeats_cannot_tell_from_it() -> None:
    points = [point(k, "code", y, 0.01) for k, y in enumerate((1.2, 1.5, 1.51, 1.3), start=1)]
    assert lab.best_k(points, "code") == (3, 1.51, (2,))
    predicted = [Point(k, "predicted", y, 0) for k, y in enumerate((1.2, 1.6, 1.5, 1.4), start=1)]
    best, formula = lab.conclusion(result(ExperimentName.K, [*points, *predicted]))
    assert "code with K = 3 (1.51 times; K = 2 not clearly different)" in best.text("en")
    assert formula.values["k"] == 2 and formula.values["mean"] == 3
    assert keys(lab.conclusion(result(ExperimentName.K, points))) == ["lab.k.best"]


def test_acceptance_falls_rises_or_stays() -> None:
    def said(first: float, last: float) -> str:
        points = [point(0, "rejection", first), point(1, "rejection", last)]
        [sentence] = lab.conclusion(result(ExperimentName.TEMPERATURE, points))
        return sentence.text("en")

    assert (
        "falls from 80 %" in said(0.8, 0.6) and "rises" in said(0.6, 0.8) and "no clear difference" in said(0.6, 0.61)
    )


def test_texts_are_named_where_they_lose_or_cannot_be_told() -> None:
    def second(*ys: float) -> str:
        points = [
            point(x, kind, y, alpha=0.5) for x, (kind, y) in enumerate(zip(("copy", "chat", "poem"), ys, strict=True))
        ]
        return lab.conclusion(result(ExperimentName.TEXT, points))[1].key

    assert second(2, 1.5, 0.8) == "lab.text.slower"
    assert second(2, 1.5, 1.0) == "lab.text.unclear"
    assert second(2, 1.5, 1.2) == "lab.text.all"


def test_what_a_forward_costs_and_from_where_on_arithmetic_counts() -> None:
    cost, knee = lab.conclusion(measured(ExperimentName.ROWS))
    assert cost.values["rows"] == 4 and cost.values["cost"] == "1.14"
    assert knee.key == "lab.rows.knee" and knee.values["rows"] == 16  # 0.5 ms a row against 8 ms for the weights
    points = [Point(p.x, p.series, p.y, p.n, extra=(("floor_ms", 8.0),)) for p in measured(ExperimentName.ROWS).points]
    assert keys(lab.conclusion(result(ExperimentName.ROWS, points))) == ["lab.rows.cost", "lab.rows.each"]


def test_a_forward_that_is_not_clearly_longer_is_not_said_to_be_shorter() -> None:
    said = lab.conclusion(
        result(ExperimentName.ROWS, [point(1, "measured", 41.6, 0.15), point(4, "measured", 36.5, 0.05)])
    )[0]
    assert said.key == "lab.rows.same" and "No clear difference" in said.text("en")


@pytest.mark.parametrize("name", ExperimentName)
def test_too_little_is_said_to_be_too_little(name: ExperimentName) -> None:
    assert keys(lab.conclusion(result(name, ()))) == ["lab.none"]
    broken = [Point(p.x, p.series, float("nan"), 0) for p in measured(name).points]
    assert keys(lab.conclusion(result(name, broken))) == ["lab.none"]


@pytest.mark.parametrize("name", ExperimentName)
@given(data=st.data())
def test_whatever_was_measured_so_far_can_be_said_in_both_languages(name: ExperimentName, data: st.DataObject) -> None:
    points = data.draw(st.lists(st.sampled_from(measured(name).points), unique=True))
    factors = data.draw(st.lists(st.floats(0.2, 3), min_size=len(points), max_size=len(points)))
    scaled = [Point(p.x, p.series, p.y * f, p.n, p.low, p.high, p.extra) for p, f in zip(points, factors, strict=True)]
    said = lab.conclusion(result(name, scaled))
    assert 1 <= len(said) <= 2
    for sentence in said:
        for lang in ("en", "zh"):
            words = sentence.text(lang)  # type: ignore[arg-type]
            assert words and "{" not in words and "lab." not in words
        assert 'lang="zh"' in sentence.html()


def test_values_are_escaped() -> None:
    assert "<b>" not in Sentence("lab.text.one", {"part": "<b>"}).html()
