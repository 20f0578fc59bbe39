"""Every word in both languages, none missing, none left over."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from string import Formatter
from typing import get_args

import pytest

from engine.config import Rule
from engine.events import FinishReason, KReason
from engine.lab import ExperimentName, TextKind
from engine.loading.model_presets import MODEL_PRESETS
from engine.preflight.diagnostics import DIAGNOSTIC_TEXTS, FitLevel
from engine.preflight.memory_plan import PARTS
from engine.serving.served_pair import Inexact
from engine.serving.swap import SwapPhase
from ui.controls import _WORDED, _WORDS, DRAFTERS, GROUPS, TABLE, choice_label
from ui.html.render import _SPECIALS
from ui.inspect.token_card import _COLUMNS
from ui.layout import BUTTONS
from ui.learn.page import STEPS
from ui.learn.play import RULES
from ui.models.page import CHOICES, DRAFTING, FIELDS
from ui.race.viewer import MODES, SPEEDS, TABS
from ui.settings.presets import PRESETS
from ui.state import Kind
from ui.strings import TEXT, text
from ui.strings.glossary import BY_NAME, TERMS
from ui.when import charts
from ui.when.advisor import Goal, Stance, Verdict
from ui.when.page import TOKENS

DRAWN = {chart for some in charts.NAMES.values() for chart in some}
PRESET_NAMES = [preset.name for preset in PRESETS]
PAIRS = " ".join(pair.name for pair in MODEL_PRESETS)

ROWS: tuple[tuple[str, Iterable[object]], ...] = (
    ("act.{}", "edit again reseed"),
    ("button.{}", dict(BUTTONS)),
    ("card.col.{}", _COLUMNS),
    ("card.drawn.{}", "kept lost"),
    ("card.kind.{}", Kind),
    ("card.outcome.{}", (*Kind, "accepted")),
    ("check.{} check.{}.try", DIAGNOSTIC_TEXTS),
    ("check.word.{}", ("memory", "the GPU's memory", "hidden size", "vocabulary", "last layer")),
    ("drafter.{} drafter.{}.help advise.command.{}", DRAFTERS),
    ("group.{}", GROUPS),
    ("lane.end.{}", FinishReason),
    ("legend.{}", (*Kind, "colours", "hide", "shade")),
    ("load.{} load.{}.why", "start compile fetch unpack convert load warm_up ready"),
    ("preset.{} preset.{}.help", PRESET_NAMES),
    ("round.{}", KReason),
    ("rule.{}", Rule),
    ("tab.{}", TABS),
    ("watch.mode.{}", MODES),
    ("watch.speed.{}", SPEEDS),
    ("learn.step.{}", STEPS),
    ("learn.rule.{}", (*RULES, "draft", "target", "accept", "residual", "emitted")),
    ("learn.rule.weight.{}", "draft target"),
    ("models.{}", FIELDS),
    ("models.target.help{}", ("", ".served")),
    ("models.option.{}", {word for some in CHOICES.values() for word in some}),
    ("models.verdict.{} models.level.{}", FitLevel),
    ("models.drafting.{}", DRAFTING.values()),
    ("models.part.{}", PARTS),
    ("models.phase.{}", SwapPhase),
    ("pair.exact.no.{}", get_args(Inexact)),
    ("pair.{}", f"target weights kernel device drafter memory context exact {PAIRS}"),
    ("term.{}", BY_NAME),
    ("{}.is {}.formula", [f"term.{name}" for name in BY_NAME]),
    ("term.unit.{}", [term.unit for term in TERMS]),
    ("lab.{}.name lab.{}.asks", ExperimentName),
    ("lab.chart.{} lab.table.{}", DRAWN),
    ("lab.temperature.{}", "falls rises same"),
    ("advise.{}", "tokens users goal busy memory kind"),
    ("advise.tokens.{}", TOKENS),
    ("advise.goal.{}", Goal),
    ("advise.kind.{}", TextKind),
    ("advise.verdict.{}", Verdict),
    ("advise.rule.{}", "long idle latency memory short busy throughput"),
    ("advise.side.{} advise.said.load.{} advise.why.length.{} advise.why.latency.{} advise.why.memory.{}", Stance),
    ("advise.why.throughput.{} advise.why.text.{}", Stance),
    ("advise.why.{}.{}", ("busy", "load", *Stance)),
    ("{}.crossover", "advise.why.busy.against advise.why.load.against"),
)
VALUES = {key: words.split() if isinstance(words, str) else words for keys, words in ROWS for key in keys.split()}
"""What a key that the code puts together can really be filled in with, where that stands in a table, an enum or a
caller."""


def test_no_key_is_left_over_and_none_is_missing() -> None:
    """A key is written out, or it is an f-string, filled in with what VALUES has or else with literals of the same
    function."""
    literal = re.compile(r"""(?=["']([\w.-]+)["'])""")
    sources = [path.read_text("utf-8") for path in Path("ui").rglob("*.py") if path.parent.name != "strings" or path.name == "glossary.py"]  # fmt: skip
    everywhere = "\n".join(sources)
    named = {*literal.findall(everywhere), *(f"{begin}.{word}" for begin in _WORDS.values() for word in _WORDED)}
    patterns = set()
    for part in re.split(r"\n(?=\S)", everywhere):
        for _, key in re.findall(r"""f(["'])((?:[a-z0-9_.]|\{[^{}]*\})+)\1""", part):
            pattern = re.sub(r"\{.*?\}", "{}", key)
            if "." in pattern and pattern != "{}.{}":
                patterns.add(pattern)
                words = VALUES.get(pattern, literal.findall(part))
                named |= {pattern.format(*some) for some in product(words, repeat=pattern.count("{}"))}
    assert set(VALUES) <= patterns, "the code no longer puts such keys together"
    assert set(TEXT) - named == set(), "nobody shows these: delete them"
    asked = set(re.findall(r"""\b(?:text|both|named)\(\s*["']([a-z_.]+)["']""", everywhere)) | set(_SPECIALS.values())
    asked |= {key for control in TABLE for key in (control.label, control.help)}
    for pattern in ("button.{}", "card.kind.{}", "check.{}", "load.{}.why", "preset.{}.help", "round.{}", "tab.{}"):
        asked |= {pattern.format(word) for word in VALUES[pattern]}
    assert asked <= set(TEXT)


def fields(sentence: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(sentence) if name}


def test_both_languages_say_the_same_thing() -> None:
    wrong = [
        key
        for key, (english, chinese) in TEXT.items()
        if not (english.strip() and chinese.strip()) or fields(english) != fields(chinese) or re.search("[!！]", english + chinese)
    ]  # fmt: skip
    assert wrong == []


def test_how_words_are_chosen() -> None:
    assert text("say.finished", "en", tokens=1).endswith(": 1 token.")
    assert text("say.finished", "en", tokens=21).endswith(": 21 tokens.")
    with pytest.raises(KeyError):
        text("no.such.key", "en")
    assert choice_label("drafter", "ngram", "zh") != "ngram"
    assert choice_label("drafter", "medusa", "zh") == "medusa", "what has no words stands for itself"
