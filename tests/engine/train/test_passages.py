"""Texts to ask about: cut to size without losing order, known by their language, and the target's own if they are
prose."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.train.prompts.passages import (
    LEAST_WORDS,
    MOST_WORDS,
    OWN_REPLIES,
    Pool,
    cut,
    read_passages,
)

TEXT = "The ferry left the island at noon, and nobody on it knew that the harbour was closed."
GERMAN = "Die Fähre verließ die Insel am Mittag, und niemand auf ihr wusste, dass der Hafen geschlossen war."


def numbered(lengths: list[int]) -> str:
    """Paragraphs of so many words, all of them different."""
    words = (f"W{n}{'.' if n % 9 == 0 else ''}" for n in range(10**6))
    return "\n\n".join(" ".join(next(words) for _ in range(length)) for length in lengths)


@settings(deadline=None)
@given(st.lists(st.integers(1, 700), max_size=12))
def test_passages_are_of_a_fitting_size_and_in_order(lengths: list[int]) -> None:
    text = numbered(lengths)
    found = list(cut(text))
    assert all(LEAST_WORDS <= len(passage.split()) <= MOST_WORDS for passage in found)
    places = [int(word.strip("W.")) for passage in found for word in passage.split()]
    assert places == sorted(set(places))


def test_a_file_says_its_language_by_its_name_or_by_its_words(tmp_path: Path) -> None:
    (tmp_path / "a.de.txt").write_text(" ".join([TEXT] * 5))
    (tmp_path / "b.txt").write_text(" ".join([GERMAN] * 5), encoding="utf-8")
    (tmp_path / "c.txt").write_text(" ".join([TEXT] * 5))
    (tmp_path / "ignored.md").write_text(TEXT)
    found = read_passages([tmp_path])
    assert [passage.language for passage in found] == ["de", "de", "en"]
    assert read_passages([tmp_path / "c.txt"]) == found[2:]


def reply(n: int) -> str:
    return " ".join(f"word{n}x{i}" for i in range(80))


def test_own_replies_join_the_pool_and_the_oldest_leave_it() -> None:
    pool = Pool()
    assert pool.pick(random.Random(0)) is None
    for n in range(OWN_REPLIES + 5):
        pool.add_reply(reply(n))
    rng = random.Random(0)
    seen = {found.text for _ in range(20_000) if (found := pool.pick(rng))}
    assert not seen & {reply(n) for n in range(5)}
    assert len(seen & {reply(OWN_REPLIES + n) for n in range(5)}) == 5
    assert pool.pick(rng, "de") is None


@pytest.mark.parametrize("text", ["too short", "again and again it says " * 30, "```python\n" + reply(1), "w " * 600])
def test_replies_that_are_no_prose_stay_out(text: str) -> None:
    pool = Pool()
    pool.add_reply(text)
    assert pool.pick(random.Random(0)) is None
