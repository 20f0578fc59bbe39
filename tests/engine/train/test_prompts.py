"""What users may ask: varied, seeded, without leftovers of the grammar, and with nothing of a benchmark in it."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from engine.train.prompts.make import KINDS, TrainingPrompt, follow_up, prompts
from engine.train.prompts.passages import Passage, Pool
from engine.train.prompts.phrases import spoken

pytestmark = pytest.mark.slow

BENCHMARK = Path(__file__).parents[4] / "shared" / "data" / "spec_bench_dev.jsonl"
LEFTOVER = re.compile(r"\{[a-z]\w*\}|\[[^\[\]\n]*\|[^\[\]\n]*\]")


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


def test_two_thousand_prompts_are_all_different_and_of_every_kind() -> None:
    found = made(0, 2000)
    assert len({prompt.text for prompt in found}) == 2000
    kinds = Counter(prompt.kind for prompt in found)
    assert set(kinds) == set(KINDS)
    total = sum(weight for weight, _ in KINDS.values())
    for kind, (weight, _) in KINDS.items():
        assert kinds[kind] > 0.5 * 2000 * weight / total
        assert len({follow_up(random.Random(i), kind) for i in range(100)}) > 20
    assert len({" ".join(prompt.text.split()[:4]).lower() for prompt in found}) > 700, "they differ in more than a word"
    assert [
        p for p in found if LEFTOVER.search(p.text) or p.text != p.text.strip() or not 1 <= len(p.text.split()) < 700
    ] == []
    assert made(5, 200) == made(5, 200) and len({p.text for p in made(5, 200)} & {p.text for p in made(6, 200)}) < 20


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
