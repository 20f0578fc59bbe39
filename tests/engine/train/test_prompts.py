"""What users may ask: varied, seeded, without leftovers of the grammar, and with nothing of a benchmark in it."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from engine.train.prompts import phrasings
from engine.train.prompts.arithmetic import PLAIN, STORIES
from engine.train.prompts.arithmetic import WORDS as SUM_WORDS
from engine.train.prompts.make import KINDS, WORDS, TrainingPrompt, follow_up, prompts
from engine.train.prompts.passages import Passage, Pool
from engine.train.prompts.phrases import listed, pick, spoken
from engine.train.prompts.sentences import PATTERNS
from engine.train.prompts.words import wordnet_nouns

BENCHMARK = Path(__file__).parents[4] / "shared" / "data" / "spec_bench_dev.jsonl"
LEFTOVER = re.compile(r"\{[a-z]\w*\}|\[[^\[\]\n]*\|[^\[\]\n]*\]")
GIVEN = {"topic", "topic2", "passage", "passages", "question", "about", "lines", "text", "into", "out_of"}
TEMPLATES = {name: value for name, value in vars(phrasings).items() if name.isupper() and isinstance(value, tuple)}


def made(seed: int, many: int, pool: Pool | None = None) -> list[TrainingPrompt]:
    return list(islice(prompts(random.Random(seed), pool or Pool()), many))


def test_alternatives_are_chosen_inside_out_and_values_are_left_alone() -> None:
    words = {"thing": ("ball", "cup")}
    said = {
        spoken(random.Random(i), "[a [red|blue]|one] {thing}: {text}", words, text="[x|y] {thing}") for i in range(99)
    }
    assert said == {
        f"{start} {thing}: [x|y] {{thing}}" for start in ("a red", "a blue", "one") for thing in ("ball", "cup")
    }


def test_numbered_slots_keep_their_word_and_differ_from_each_other() -> None:
    for seed in range(50):
        first, second, again = pick(random.Random(seed), ("{w1}-{w2}-{w1}",), {"w": ("a", "b", "c")}).split("-")
        assert first == again != second


def test_a_slot_that_nobody_fills_is_an_error() -> None:
    with pytest.raises(KeyError):
        spoken(random.Random(0), "{nothing}", {})


def test_entries_may_run_over_lines_and_name_their_line_breaks() -> None:
    assert listed("one;\n two\n words; x\\ny") == ("one", "two words", "x\ny")


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_slot_of_every_phrasing_can_be_filled(name: str) -> None:
    for template in TEMPLATES[name]:
        slots = set(re.findall(r"\{(\w+)\}", template))
        assert {slot for slot in slots if slot not in GIVEN and slot.rstrip("0123456789") not in WORDS} == set()


def test_phrasings_have_balanced_brackets() -> None:
    tuples = [*TEMPLATES.values(), *phrasings.FOLLOW_UP_OF.values(), STORIES, PLAIN, *(p for p, _ in PATTERNS.values())]
    for template in (template for templates in tuples for template in templates):
        assert template
        assert template.count("[") == template.count("]") and template.count("{") == template.count("}"), template


@pytest.mark.parametrize("language", PATTERNS)
def test_composed_sentences_fill_every_slot(language: str) -> None:
    patterns, words = PATTERNS[language]
    for pattern in patterns:
        assert not LEFTOVER.search(pick(random.Random(1), (pattern,), words)), pattern


def test_two_thousand_prompts_are_all_different_and_of_every_kind() -> None:
    found = made(0, 2000)
    assert len({prompt.text for prompt in found}) == 2000
    kinds = Counter(prompt.kind for prompt in found)
    assert set(kinds) == set(KINDS)
    total = sum(weight for weight, _ in KINDS.values())
    for kind, (weight, _) in KINDS.items():
        assert kinds[kind] > 0.5 * 2000 * weight / total


def test_prompts_do_not_only_differ_in_a_word() -> None:
    found = made(1, 2000)
    assert len({" ".join(prompt.text.split()[:4]).lower() for prompt in found}) > 700


def test_nothing_of_the_grammar_is_left_in_a_prompt() -> None:
    for prompt in made(2, 2000):
        assert not LEFTOVER.search(prompt.text), prompt
        assert prompt.text == prompt.text.strip() and 1 <= len(prompt.text.split()) < 700


def test_the_seed_decides() -> None:
    assert made(5, 200) == made(5, 200)
    assert len({p.text for p in made(5, 200)} & {p.text for p in made(6, 200)}) < 20


def test_given_texts_are_used_and_german_ones_only_to_be_translated() -> None:
    english = "The quagga keeper wrote a report about the winter. Nobody in the quagga house had read it before. " * 3
    german = (
        "Der Quaggawärter schrieb einen Bericht über den Winter. Niemand im Quaggahaus hatte ihn vorher gelesen. " * 3
    )
    found = made(3, 1500, Pool([*[Passage(english)] * 4, Passage(german, "de")]))
    assert {p.kind for p in found if "Quaggawärter" in p.text} == {"translation"}
    used = Counter(p.kind for p in found if "quagga keeper" in p.text)
    assert {"summary", "questions", "several passages", "rewriting", "extraction"} <= set(used)
    translations = [p.text for p in found if p.kind == "translation"]
    assert sum("German" in text or "Quagga" in text for text in translations) > len(translations) / 3


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_can_be_followed_up(kind: str) -> None:
    rng = random.Random(0)
    said = {follow_up(rng, kind) for _ in range(100)}
    assert len(said) > 20
    assert all(text and not LEFTOVER.search(text) for text in said)


def test_sums_are_about_every_story() -> None:
    from engine.train.prompts.arithmetic import problem

    rng = random.Random(0)
    told = {problem(rng) for _ in range(1000)}
    assert len(told) > 950
    assert not [text for text in told if LEFTOVER.search(text) or text.count("  ")]
    assert all(
        slot.rstrip("0123456789") in {*SUM_WORDS, *"abcdep"} for s in STORIES for slot in re.findall(r"\{(\w+)\}", s)
    )


def test_wordnets_nouns_are_optional(tmp_path: Path) -> None:
    assert wordnet_nouns(tmp_path / "missing") == ()
    index = tmp_path / "index.noun"
    index.write_text(
        "  1 This is the licence.\nice_floe n 1 2 @ ~ 1 1 09309292\nrare_thing n 1 1 @ 1 0 0931\nox n 1 1 @ 1 4 0932\n"
        "tide n 3 3 @ ~ + 3 2 07 08 09\n"
    )
    assert wordnet_nouns(index) == ("ice floe", "tide")


@pytest.mark.skipif(not BENCHMARK.exists(), reason="needs the benchmark's prompts beside the repository")
def test_no_prompt_shares_eight_words_in_a_row_with_the_benchmark() -> None:
    def runs(text: str) -> set[tuple[str, ...]]:
        words = re.findall(r"\w+", text.lower())
        return {tuple(words[i : i + 8]) for i in range(len(words) - 7)}

    asked = [turn for line in BENCHMARK.read_text("utf-8").splitlines() for turn in json.loads(line)["turns"]]
    known = set().union(*map(runs, asked))
    assert len(known) > 1000
    rng = random.Random(9)
    ours = [prompt.text for prompt in made(9, 4000)] + [follow_up(rng, kind) for kind in KINDS for _ in range(200)]
    shared = {" ".join(run) for text in ours for run in runs(text) & known}
    assert not shared
