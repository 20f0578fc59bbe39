"""Every word in both languages, none missing, none left over."""

from __future__ import annotations

import re
from pathlib import Path
from string import Formatter

import pytest

from ui.controls import TABLE, choice_label
from ui.html.render import _SPECIALS
from ui.layout import BUTTONS
from ui.strings import TEXT, text

SOURCES = "\n".join(
    path.read_text(encoding="utf-8")
    for path in sorted(Path("ui").rglob("*.py"))
    if path.parent.name != "strings" or path.name == "glossary.py"
)
BUILT = ("load.", "legend.", "panel.", "drafter.", "rule.", "k.", "button.", "round.", "group.", "preset.",
         "card.kind.", "card.drawn.", "card.greedy.", "card.noise.", "card.recovered.", "card.col.", "card.outcome.", "act.", "charts.", "tab.", "source.", "lane.", "watch.speed.", "watch.mode.",
         "watch.say.", "learn.", "term.", "watch.restart", "watch.back", "watch.play", "watch.step", "watch.end",
         "lab.chart.", "lab.table.", "lab.series.", "lab.rate.name", "lab.rate.asks", "lab.length.", "lab.k.name", "lab.k.asks",
         "lab.temperature.", "lab.text.name", "lab.text.asks", "lab.rows.name", "lab.rows.asks", "advise.tokens", "advise.users",
         "advise.goal", "advise.busy", "advise.memory", "advise.kind", "advise.verdict.", "advise.side.", "advise.from.",
         "advise.command.", "advise.why.", "advise.said.", "advise.rule.",
         "check.", "pair.", "models.col.", "models.target", "models.drafter", "models.quant", "models.device", "models.compute", "models.option.",
         "models.part.", "models.verdict.", "models.level.", "models.drafting.", "models.phase.")  # fmt: skip
"""Beginnings of keys that the code puts together from a name."""


def fields(sentence: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(sentence) if name}


@pytest.mark.parametrize("key", TEXT)
def test_both_languages_say_the_same_thing(key: str) -> None:
    english, chinese = TEXT[key]
    assert english.strip() and chinese.strip()
    assert fields(english) == fields(chinese)
    assert "!" not in english and "！" not in chinese


@pytest.mark.parametrize("key", TEXT)
def test_no_key_is_left_over(key: str) -> None:
    assert re.search(rf"""["']{re.escape(key)}["']""", SOURCES) or key.startswith(BUILT), key


def test_no_key_is_missing() -> None:
    named = set(re.findall(r"""\b(?:text|both)\(\s*["']([a-z_.]+)["']""", SOURCES))
    named |= {key for control in TABLE for key in (control.label, control.help)}
    named |= {f"button.{name}" for name, _ in BUTTONS} | set(_SPECIALS.values())
    assert named <= set(TEXT), named - set(TEXT)


def test_one_token_is_not_several() -> None:
    assert text("say.finished", "en", tokens=1).endswith(": 1 token.")
    assert text("say.finished", "en", tokens=21).endswith(": 21 tokens.")
    assert "at 1 token." in text("end.length", "en", count=1)


def test_an_unknown_key_is_a_mistake_that_shows() -> None:
    with pytest.raises(KeyError):
        text("no.such.key", "en")


def test_choices_without_words_stand_for_themselves() -> None:
    assert choice_label("drafter", "ngram", "zh") != "ngram"
    assert choice_label("drafter", "medusa", "zh") == "medusa"
