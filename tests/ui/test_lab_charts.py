"""Figures of the lab and their tables hold the same numbers, in words that the page's script knows."""

from __future__ import annotations

import json
from dataclasses import replace
from html import unescape

import pytest

from engine.lab import ExperimentName, Point
from tests.fake_engine import measured
from tests.ui.test_charts import Table, _strings
from ui.charts import figures
from ui.strings import LANGS, TEXT
from ui.when import charts


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
    made = charts.charts(measured(ExperimentName.RATE))
    head, first, *_ = Table(made["rate"]["html"]).rows
    assert head == ["users at once", "plain", "fixed K", "K automatic", "fixed K ÷ plain"]
    assert all(map(str.startswith, first, ("1", "80.0", "120", "123", "1.50×")))
    assert Table(made["each"]["html"]).rows[-1][:2] == ["32", "11.1"], "355.6 over 32 users"


def test_scatter_is_drawn_where_it_is_known_and_predictions_look_like_no_other_series() -> None:
    one = charts.charts(measured(ExperimentName.K))["k"]
    traces = {trace["name"]: trace for trace in one["figure"]["data"]}
    assert traces["lab.series.chat"]["error_y"]["array"][0] == pytest.approx(0.059, abs=1e-3)
    assert "error_y" not in traces["lab.series.predicted"] and "1.12–1.24" in unescape(one["html"])
    rate = charts.charts(measured(ExperimentName.RATE))["rate"]["figure"]["data"]
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
    odd = charts.charts(replace(measured(ExperimentName.K), points=(Point(1, "<b>x</b>", 1.5, 1),)))["k"]
    assert odd["figure"]["data"][0]["name"] == "&lt;b&gt;x&lt;/b&gt;" and "<b>x</b>" not in odd["html"]
