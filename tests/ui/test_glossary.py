"""The glossary: no figure of the page without a term, no term without its facts, no link that leads nowhere."""

from __future__ import annotations

import re
from functools import reduce

import pytest

from engine.config import DecodingParams
from engine.stats import Tally
from tests.fake_engine import Script, play
from tests.ui.samples import race
from ui.charts import reply as charts
from ui.html import panel
from ui.html.render import figures_of
from ui.layout import _panel
from ui.learn import page as learn
from ui.learn.glossary_page import entry, glossary
from ui.race import page_export, verdict
from ui.race import viewer as watch
from ui.race.viewer import TABS
from ui.strings import LANGS, TEXT, text
from ui.strings.glossary import BY_NAME, OF_FIGURE, TERMS, figure, link
from ui.when import charts as lab_charts
from ui.when import page as when

WORDS_ONLY = {"rest", "verdict", "by", "line", "baseline"}
"""Places of the panel that hold a sentence and no figure, or one made of figures."""

COUNTED = {"accepted", "rejected", "recovered", "bonus", "plain_token", "probe", "k", "tokens", "prefill"}
"""What is counted needs no formula; a ratio, a speed or a share does."""

DESIGNED = """target drafter draft_token k round accepted rejected discarded recovered bonus alpha draft_rate tau ttft tpot
itl"""
"""The words that the design fixes."""


def terms(html: str) -> set[str]:
    """The terms that are linked to, each at its own place."""
    links = re.findall(r"<a\b[^>]*data-term[^>]*>", html)
    names = [re.search(r'href="\?tab=learn#glossary-(\w+)"', one) for one in links]
    assert all(name and f'data-term="{name[1]}"' in one for name, one in zip(names, links, strict=True))
    return {name[1] for name in names if name}


def test_every_term_says_what_it_is_and_where() -> None:
    assert set(DESIGNED.split()) <= set(BY_NAME) and len(BY_NAME) == len(TERMS)
    for lang in LANGS:
        assert len({text(f"term.{term.name}", lang) for term in TERMS}) == len(TERMS), "a name is told once"
    for term in TERMS:
        assert all(len(text(f"term.{term.name}.is", lang)) > 8 for lang in LANGS) and term.seen
        assert set(term.seen) <= set(TABS) and (not term.unit or f"term.unit.{term.unit}" in TEXT)
        assert not term.unit or term.name in COUNTED or f"term.{term.name}.formula" in TEXT
        assert f'id="glossary-{term.name}"' in entry(term) and term.source.split(",")[0] in entry(term)


def test_every_named_figure_is_linked_and_every_link_leads_to_an_entry() -> None:
    shown, lanes, result = _panel(), watch.watch(), verdict.verdict(race())
    names = set(re.findall(r'data-figure="(\w+)"', shown)) - WORDS_ONLY
    assert {OF_FIGURE[name] for name in names} <= terms(shown)
    named = [*re.findall(r"<dt.*?</dt>", shown), *re.findall(r'<th scope="row">(.*?)</th>', result)]
    named += re.findall(r"<figcaption><h3>(.*?)</h3>", lanes + charts.charts_frame())
    named += re.findall(r'<span><b data-lane="\w+">.*?</span></a></span>', lanes)
    assert len(named) > 20 and [one for one in named if not terms(one)] == []
    whole = "".join((shown, lanes, watch.small(), learn.learn(), when.when(), result, charts.charts_frame()))
    tally = reduce(Tally.add, play(Script(), DecodingParams(drafter="ngram")), Tally())
    assert {*panel.figures(tally, tally), *dict(figures_of(tally.summary()))} - WORDS_ONLY <= set(OF_FIGURE)
    assert all(name in lab_charts.TERMS for some in lab_charts.NAMES.values() for name in some)
    entries = set(re.findall(r'id="glossary-(\w+)"', glossary()))
    assert terms(whole) | set(OF_FIGURE.values()) <= entries == set(BY_NAME)
    with pytest.raises(KeyError):
        link("no_such_term", "x")
    with pytest.raises(KeyError):
        figure("no.such.figure", "x")
    assert not terms(page_export.page(race(), "en")), "a saved page has no links into the app"
