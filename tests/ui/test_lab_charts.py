"""Figures of the lab and their tables hold the same numbers, in words that the page's script knows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from typing import Any

import pytest

from engine.lab import ExperimentName, Point, Result
from tests.fake_engine import measured
from ui.charts import figures
from ui.strings import TEXT
from ui.when import charts as lab_charts


def tables(html: str) -> list[list[str]]:
    """The cells of each row in words, English alone."""
    shown = re.sub(r'<span class="zh".*?</span>', "", html)
    return [
        [re.sub(r"<.*?>", " ", cell).strip() for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)]
        for row in re.findall(r"<tr>(.*?)</tr>", shown)
    ]


def strings(part: Any) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    elif isinstance(part, dict):
        for one in part.values():
            yield from strings(one)
    elif isinstance(part, list):
        for one in part:
            yield from strings(one)


CHARTS = [(name, chart) for name in ExperimentName for chart in lab_charts.NAMES[name]]


@pytest.mark.parametrize(("name", "chart"), CHARTS)
def test_every_chart_has_a_figure_a_label_and_a_table_with_a_row_for_each_x(name: ExperimentName, chart: str) -> None:
    made = lab_charts.charts(measured(name))[chart]
    xs = {x for trace in made["figure"]["data"] for x in trace["x" if chart != "text" else "y"]}
    rows = tables(made["html"])
    assert len(rows) == len(xs) + 1 and all(len(row) == len(rows[0]) for row in rows)
    assert all(made["label"][lang] for lang in ("en", "zh")) and made["label"]["en"] != made["label"]["zh"]
    assert json.loads(json.dumps(made)) == made


@pytest.mark.parametrize(("name", "chart"), CHARTS)
def test_every_word_of_a_figure_is_one_that_the_script_can_put_in(name: ExperimentName, chart: str) -> None:
    found = set(strings(lab_charts.charts(measured(name))[chart]["figure"]))
    assert {word for word in found if word in TEXT} <= set(figures.WORDS)
    assert not {word for word in found if word.startswith(("lab.", "charts."))} - set(TEXT)


def test_the_table_of_loads_tells_what_the_figure_draws() -> None:
    made = lab_charts.charts(measured(ExperimentName.RATE))
    head, first, *_ = tables(made["rate"]["html"])
    assert head == ["users at once", "plain", "fixed K", "K automatic", "fixed K ÷ plain"]
    assert [cell.split()[0] for cell in first] == ["1", "80.0", "120", "123", "1.50×"]
    each = tables(made["each"]["html"])[-1]
    assert each[0] == "32" and each[1] == "11.1"  # 355.6 over 32 users


def test_scatter_is_drawn_and_written_where_it_is_known_and_only_there() -> None:
    made = lab_charts.charts(measured(ExperimentName.K))["k"]
    by_name = {trace["name"]: trace for trace in made["figure"]["data"]}
    assert by_name["lab.series.chat"]["error_y"]["array"][0] == pytest.approx(0.059, abs=1e-3)
    assert "error_y" not in by_name["lab.series.predicted"]
    assert "1.12–1.24" in unescape(made["html"])


def test_predictions_and_plain_decoding_look_like_no_other_series() -> None:
    looks = {
        trace["name"]: (trace["line"]["dash"], trace["line"]["color"], trace["mode"])
        for name in (ExperimentName.RATE, ExperimentName.K)
        for trace in lab_charts.charts(measured(name))[lab_charts.NAMES[name][0]]["figure"]["data"]
    }
    assert len({looks[f"lab.series.{one}"] for one in ("plain", "speculative", "auto", "predicted")}) == 4
    assert looks["lab.series.predicted"][2] == "lines"


def test_a_series_with_a_name_of_its_own_is_escaped() -> None:
    points = [Point(1, "<b>x</b>", 1.5, 1), Point(2, "<b>x</b>", 1.6, 1)]
    made = lab_charts.charts(Result(ExperimentName.K, tuple(points), (), "2025-01-02T03:04:05+00:00", 1.0))["k"]
    assert made["figure"]["data"][0]["name"] == "&lt;b&gt;x&lt;/b&gt;" and "<b>x</b>" not in made["html"]


@pytest.mark.parametrize("name", ExperimentName)
def test_any_beginning_of_an_experiment_can_be_shown(name: ExperimentName) -> None:
    whole = measured(name)
    for count in range(len(whole.points) + 1):
        made = lab_charts.charts(replace(whole, points=whole.points[:count]))
        for chart in made.values():
            assert (chart["figure"] is None) == (count == 0) and bool(chart["html"]) == (count > 0)


@pytest.mark.parametrize("name", ExperimentName)
def test_without_a_script_the_numbers_are_there_too(name: ExperimentName) -> None:
    numbers = {chart: made["html"] for chart, made in lab_charts.charts(measured(name)).items()}
    html = lab_charts.section(name, numbers)
    assert html.count("<table>") == len(lab_charts.NAMES[name]) == html.count('class="plot"')
    assert "<details" in html and " open " in html
