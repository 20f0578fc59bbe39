"""The glossary: no figure of the page without a term, no term without its facts, no link that leads nowhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from engine.config import DecodingParams
from engine.stats import Tally, summarise
from tests.fake_engine import Script, play
from ui.charts import reply as charts
from ui.html import panel
from ui.html.render import figures_of
from ui.layout import _panel
from ui.learn import page as learn
from ui.learn.glossary_page import entry, glossary
from ui.race import charts as race_charts
from ui.race import page_export, verdict
from ui.race import viewer as watch
from ui.race.viewer import TABS
from ui.recording.recordings import Lane, LaneName, Recording, extend
from ui.recording.trace_file import load_shipped
from ui.strings import LANGS, TEXT, text
from ui.strings.glossary import BY_NAME, OF_FIGURE, TERMS, Term, figure, link
from ui.when import charts as lab_charts
from ui.when import page as when

WORDS_ONLY = {"rest", "verdict"}
"""Places of the panel that hold a sentence and no figure."""

DESIGNED = ("target", "drafter", "draft_token", "k", "round", "accepted", "rejected", "discarded", "recovered", "bonus", "alpha",
            "draft_rate", "tau", "ttft", "tpot", "itl")  # fmt: skip
"""The words that the design fixes."""


class Links(HTMLParser):
    """The terms that are linked to, and the words inside each link."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self._inside = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        if tag == "a" and said.get("data-term"):
            term = str(said["data-term"])
            assert said["href"] == f"?tab=learn#glossary-{term}"
            self.found.append((term, ""))
            self._inside = True

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "a"

    def handle_data(self, data: str) -> None:
        if self._inside:
            term, words = self.found[-1]
            self.found[-1] = (term, words + data)

    @property
    def terms(self) -> set[str]:
        return {term for term, _ in self.found}


def whole_page() -> str:
    recording = load_shipped("chat", "r")
    return "".join(
        [
            _panel(),
            watch.watch(),
            watch.small(),
            learn.learn(),
            when.when(),
            verdict.verdict(recording),
            charts.charts_frame(),
        ]
    )


@pytest.mark.parametrize("term", TERMS, ids=lambda term: term.name)
def test_every_term_says_what_it_is_and_where(term: Term) -> None:
    key = f"term.{term.name}"
    for lang in LANGS:
        assert text(key, lang).strip() and len(text(f"{key}.is", lang)) > 8
    assert set(term.seen) <= set(TABS) and term.seen
    assert not term.unit or f"term.unit.{term.unit}" in TEXT
    html = entry(term)
    assert f'id="glossary-{term.name}"' in html and (not term.source or term.source.split(",")[0] in html)


def test_a_ratio_a_speed_or_a_share_has_its_formula() -> None:
    counted = {"accepted", "rejected", "recovered", "bonus", "plain_token", "probe", "k", "tokens", "prefill"}
    missing = {term.name for term in TERMS if term.unit and f"term.{term.name}.formula" not in TEXT}
    assert missing <= counted


def test_no_word_of_the_glossary_is_left_over() -> None:
    named = {f"term.{term.name}{part}" for term in TERMS for part in ("", ".is", ".formula")}
    named |= {f"term.unit.{term.unit}" for term in TERMS if term.unit}
    assert {key for key in TEXT if key.startswith("term.")} <= named


def test_names_are_told_once() -> None:
    assert len(BY_NAME) == len(TERMS)
    for lang in LANGS:
        names = [text(f"term.{term.name}", lang) for term in TERMS]
        assert len(set(names)) == len(names)


def test_the_words_that_the_design_fixes_are_there() -> None:
    assert set(DESIGNED) <= set(BY_NAME)


def test_every_figure_of_the_panel_has_a_term() -> None:
    tally = Tally()
    for event in play(Script(), DecodingParams(drafter="ngram")):
        tally = tally.add(event)
    figures = set(panel.figures(tally, tally)) - WORDS_ONLY
    assert figures <= set(OF_FIGURE), figures - set(OF_FIGURE)


def test_every_named_figure_of_the_panel_is_linked() -> None:
    html = _panel()
    names = (
        set(re.findall(r'data-figure="(\w+)"', html)) - WORDS_ONLY - {"by", "line", "baseline"}
    )  # sentences of figures
    assert {OF_FIGURE[name] for name in names} <= Links(html).terms
    for dt in re.findall(r"<dt.*?</dt>", html):
        assert "data-term" in dt, dt


def test_every_figure_of_a_lane_a_verdict_a_reply_and_a_chart_has_a_term() -> None:
    lanes = {f"lane.{name}" for name in re.findall(r'<b data-lane="(\w+)"', watch.watch())}
    rows = set(re.findall(r'heading\("(verdict\.\w+)"', Path("ui/race/verdict.py").read_text("utf-8")))
    feet = {key for key, _ in figures_of(summarise(play(Script(), DecodingParams(drafter="ngram"))))}
    drawn = {f"charts.{name}" for name in (*charts.NAMES, *race_charts.NAMES)}
    assert lanes and rows and feet
    figures = lanes | rows | feet | drawn
    assert figures <= set(OF_FIGURE), figures - set(OF_FIGURE)
    assert all(name in lab_charts.TERMS for some in lab_charts.NAMES.values() for name in some)


def test_each_row_of_a_verdict_leads_to_its_term() -> None:
    html = verdict.verdict(load_shipped("chat", "r"))
    heads = re.findall(r'<th scope="row">(.*?)</th>', html)
    assert heads and all("data-term" in head for head in heads)


def test_each_figure_of_a_lane_and_each_chart_leads_to_its_term() -> None:
    html = watch.watch()
    figures = re.findall(r'<span><b data-lane="\w+">.*?</span></a></span>', html)
    assert len(figures) == 3 and all("data-term" in one for one in figures)
    titles = re.findall(r"<figcaption><h3>(.*?)</h3>", html + charts.charts_frame())
    assert titles and all("data-term" in title for title in titles)


def test_every_link_leads_to_an_entry() -> None:
    terms = Links(whole_page()).terms
    assert terms <= set(BY_NAME)
    assert {term for term in terms if f'id="glossary-{term}"' not in glossary()} == set()
    assert set(OF_FIGURE.values()) <= set(BY_NAME)


def test_a_link_to_no_term_is_a_mistake_that_shows() -> None:
    with pytest.raises(KeyError):
        link("no_such_term", "x")
    with pytest.raises(KeyError):
        figure("no.such.figure", "x")


def test_a_saved_page_of_its_own_has_no_links_into_the_app() -> None:
    recording = Recording("r", "hello", (Lane(LaneName.PLAIN), Lane(LaneName.SPECULATIVE)))
    for name, k in ((LaneName.PLAIN, 0), (LaneName.SPECULATIVE, 3)):
        recording = extend(recording, name, play(Script(), DecodingParams(drafter="ngram", num_speculative_tokens=k)))
    assert not Links(page_export.page(recording, "en")).terms
