"""Conclusions follow from the points and claim nothing that scatter may be; figures of the lab and their tables hold the
same numbers, in words that the page's script knows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from html import unescape
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.lab import ExperimentName, Point, Result
from tests.fake_engine import measured
from tests.ui.samples import few
from tests.ui.test_charts import Table, _strings
from ui.charts import figures
from ui.strings import LANGS, TEXT
from ui.when import charts
from ui.when import conclusions as lab
from ui.when.conclusions import Sentence

USERS = (1, 2, 4, 8, 16, 32)
RATE, LENGTH, K, TEMPERATURE, TEXTS, ROWS = ExperimentName


def point(x: float, series: str, y: float, scatter: float = 0.02, **extra: float) -> Point:
    return Point(x, series, y, 3, y * (1 - scatter), y * (1 + scatter), tuple(extra.items()))


def concluded(name: ExperimentName, points: Sequence[Point]) -> tuple[Sentence, ...]:
    return tuple(lab.conclusion(Result(name, tuple(points), (), "2025-01-02T03:04:05+00:00", 1.0)))


def keys(sentences: Sequence[Sentence]) -> list[str]:
    return [sentence.key for sentence in sentences]


def english(name: ExperimentName, points: Sequence[Point]) -> str:
    return " ".join(sentence.text("en") for sentence in concluded(name, points))


def rates(gains: Sequence[float], scatter: float = 0.01) -> list[Point]:
    plain = [point(x, "plain", 50.0 * x**0.5, scatter) for x in USERS]
    return plain + [point(p.x, "speculative", p.y * gain, scatter) for p, gain in zip(plain, gains, strict=True)]


LOADS = """
1.8 1.6 1.3 1.1 0.9 0.8 0.01 crossover
1.8 1.7 1.6 1.5 1.4 1.3 0.01 always
0.9 0.8 0.8 0.7 0.7 0.6 0.01 never
1.8 1.6 1.3 1.1 1.02 0.99 0.03 fades
1.05 1.0 0.98 1.02 1.0 0.97 0.1 unclear
"""
"""Speed-ups for USERS, their scatter, and what follows."""


def test_what_the_loads_came_to() -> None:
    for row in LOADS.strip().splitlines():
        *numbers, key = row.split()
        *gains, scatter = map(float, numbers)
        sentences = concluded(RATE, rates(gains, scatter))
        assert keys(sentences) == [f"lab.rate.{key}", "lab.rate.totals"]
        if key == "crossover":
            assert "about 11 users" in sentences[0].text("en") and "11 个用户" in sentences[0].text("zh")
    assert [lab.users(count) for count in (1.38, 2.0, 9.94, 11.4)] == ["1.4", "2", "9.9", "11"]


@given(st.lists(st.floats(0.3, 3.0), min_size=2, max_size=6))
def test_a_crossover_is_where_the_measured_gain_was_above_one_before_and_not_after(ys: list[float]) -> None:
    gains = [lab.Gain(x, y, y, y) for x, y in zip(USERS, ys, strict=False)]
    at = lab.crossover(gains)
    falls = [(a, b) for a, b in pairwise(gains) if a.y > 1 >= b.y]
    assert (at is None) == (not falls)
    if at is not None:
        assert falls[-1][0].x * 0.999 <= at <= falls[-1][1].x * 1.001


def test_no_claim_is_made_where_scatter_is_larger_than_the_effect() -> None:
    for name, middle in ((RATE, 50.0), (LENGTH, 1.02), (TEXTS, 1.02), (TEMPERATURE, 0.5)):
        points = [Point(p.x, p.series, y := middle + p.x / 1e4, 3, y * 0.5, y * 1.5, p.extra) for p in measured(name).points]  # fmt: skip
        assert "no clear difference" in english(name, points).lower(), name
    slight = [point(1, "measured", 41.6, 0.15), point(4, "measured", 36.5, 0.05)]
    assert keys(concluded(ROWS, slight))[0] == "lab.rows.same", "not clearly longer is not shorter"


LENGTHS = """
0.104 1.0 1.4 1.8 same grows
0.108 1.0 1.4 1.8 other grows
0.1 1.5 1.5 1.5 same pays
0.1 0.9 0.8 0.7 same slower
0.1 1.0 1.01 1.0 same unclear
"""
"""Seconds to the first token with guesses, speed-ups of three lengths, and what follows for the token and the whole."""


def test_the_first_token_and_the_whole_request_are_told_apart() -> None:
    for row in LENGTHS.strip().splitlines():
        *numbers, first, whole = row.split()
        first_s, *ys = map(float, numbers)
        points = [point(x, "speculative", y, ttft_plain=0.1, ttft_spec=first_s) for x, y in zip((1, 16, 256), ys, strict=True)]  # fmt: skip
        assert keys(concluded(LENGTH, points)) == [f"lab.length.ttft.{first}", f"lab.length.{whole}"]
    assert "for 1 token," in english(LENGTH, measured(LENGTH).points), "not several"


def test_the_best_k_is_told_with_those_that_repeats_cannot_tell_from_it() -> None:
    points = [point(k, "code", y, 0.01) for k, y in enumerate((1.2, 1.5, 1.51, 1.3), start=1)]
    assert lab.best_k(points, "code") == (3, 1.51, (2,)) and keys(concluded(K, points)) == ["lab.k.best"]
    predicted = [Point(k, "predicted", y, 0) for k, y in enumerate((1.2, 1.6, 1.5, 1.4), start=1)]
    best, formula = concluded(K, [*points, *predicted])
    assert "code with K = 3 (1.51 times; K = 2 not clearly different)" in best.text("en")
    assert (formula.values["k"], formula.values["mean"]) == (2, 3)


def test_acceptance_falls_rises_or_stays_and_texts_lose_or_cannot_be_told() -> None:
    for last, words in ((0.6, "falls from 80 %"), (0.9, "rises"), (0.81, "no clear difference")):
        assert words in english(TEMPERATURE, [point(0, "rejection", 0.8), point(1, "rejection", last)])
    for y, key in ((0.8, "slower"), (1.0, "unclear"), (1.2, "all")):
        texts = [point(0, "copy", 2, alpha=0.5), point(1, "chat", 1.5, alpha=0.5), point(2, "poem", y, alpha=0.5)]
        assert keys(concluded(TEXTS, texts))[1] == f"lab.text.{key}"


def test_what_a_forward_costs_and_from_where_on_arithmetic_counts() -> None:
    points = measured(ROWS).points
    cost, knee = concluded(ROWS, points)
    assert (cost.values["rows"], cost.values["cost"]) == (4, "1.14")
    assert knee.key == "lab.rows.knee" and knee.values["rows"] == 16, "0.5 ms a row against 8 ms for the weights"
    bare = [Point(p.x, p.series, p.y, p.n, extra=(("floor_ms", 8.0),)) for p in points]
    assert keys(concluded(ROWS, bare)) == ["lab.rows.cost", "lab.rows.each"]


@pytest.mark.parametrize("name", ExperimentName)
@few
@given(data=st.data())
def test_whatever_was_measured_so_far_can_be_said_in_both_languages(name: ExperimentName, data: st.DataObject) -> None:
    points = data.draw(st.lists(st.sampled_from(measured(name).points), unique=True))
    factors = data.draw(st.lists(st.floats(0.2, 3), min_size=len(points), max_size=len(points)))
    scaled = [Point(p.x, p.series, p.y * f, p.n, p.low, p.high, p.extra) for p, f in zip(points, factors, strict=True)]
    sentences = concluded(name, scaled)
    assert 1 <= len(sentences) <= 2
    for sentence in sentences:
        assert not any("{" in sentence.text(lang) or "lab." in sentence.text(lang) for lang in LANGS)
    broken = [Point(p.x, p.series, float("nan"), 0) for p in points]
    assert keys(concluded(name, broken)) == ["lab.none"]
    assert "<b>" not in Sentence("lab.text.one", {"part": "<b>"}).html()


def test_every_chart_has_a_figure_in_known_words_a_label_and_a_table_with_a_row_for_each_x() -> None:
    for name in ExperimentName:
        made = charts.charts(measured(name))
        assert set(made) == set(charts.NAMES[name]) and json.loads(json.dumps(made)) == made
        for chart, one in made.items():
            xs = {x for trace in one["figure"]["data"] for x in trace["x" if chart != "text" else "y"]}
            rows = Table(one["html"]).rows
            assert len(rows) == len(xs) + 1 and {len(row) for row in rows} == {len(rows[0])}, chart
            assert len({one["label"][lang] for lang in LANGS}) == 2
            strings = set(_strings(one["figure"]))
            assert strings & set(TEXT) <= set(figures.WORDS)
            assert {word for word in strings if word.startswith(("lab.", "charts."))} <= set(TEXT)
        html = charts.section(name, {chart: one["html"] for chart, one in made.items()})
        assert html.count("<table>") == len(made) == html.count('class="plot"') and " open " in html, "without a script"


def test_the_table_of_loads_tells_what_the_figure_draws() -> None:
    made = charts.charts(measured(RATE))
    head, first, *_ = Table(made["rate"]["html"]).rows
    assert head == ["users at once", "plain", "fixed K", "K automatic", "fixed K ÷ plain"]
    assert all(map(str.startswith, first, ("1", "80.0", "120", "123", "1.50×")))
    assert Table(made["each"]["html"]).rows[-1][:2] == ["32", "11.1"], "355.6 over 32 users"


def test_scatter_is_drawn_where_it_is_known_and_predictions_look_like_no_other_series() -> None:
    one = charts.charts(measured(K))["k"]
    traces = {trace["name"]: trace for trace in one["figure"]["data"]}
    assert traces["lab.series.chat"]["error_y"]["array"][0] == pytest.approx(0.059, abs=1e-3)
    assert "error_y" not in traces["lab.series.predicted"] and "1.12–1.24" in unescape(one["html"])
    rate = charts.charts(measured(RATE))["rate"]["figure"]["data"]
    looks = {
        (trace["line"]["dash"], trace["line"]["color"], trace["mode"])
        for trace in (*rate, traces["lab.series.predicted"])
    }
    assert len(looks) == 4 and traces["lab.series.predicted"]["mode"] == "lines"


def test_any_beginning_of_an_experiment_can_be_shown_and_names_are_escaped() -> None:
    for name in ExperimentName:
        whole = measured(name)
        for count in range(len(whole.points) + 1):
            for chart in charts.charts(replace(whole, points=whole.points[:count])).values():
                assert (chart["figure"] is None) == (count == 0) and bool(chart["html"]) == (count > 0)
    odd = charts.charts(replace(measured(K), points=(Point(1, "<b>x</b>", 1.5, 1),)))["k"]
    assert odd["figure"]["data"][0]["name"] == "&lt;b&gt;x&lt;/b&gt;" and "<b>x</b>" not in odd["html"]
