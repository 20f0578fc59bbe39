"""Texts to ask about: paragraphs from files, and what the target itself has written."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.errors import EngineError

LEAST_WORDS, MOST_WORDS = 40, 500
SIZES = (40, 80, 150, 60, 300, 110, 450)
"""Words at which a passage is cut, in turn, so that there are short and long ones."""
OWN_WORDS = (60, 450)
OWN_REPLIES = 2000
"""So many of the target's latest replies serve as passages."""

SENTENCE_END = re.compile(r"(?:(?<=[.!?])|(?<=[.!?]['\"”“)]))\s+(?=[\"'“„¿¡(]?[A-ZÄÖÜÉ0-9])")
FREQUENT = {
    "en": "the of and to in is that it was for with as his they be at",
    "de": "der die und das den nicht ist von zu mit sich des auf für im dem ein eine",
    "fr": "le la les et des est dans une que pour qui du sur pas au",
    "es": "el la los que y en un por con una para las del se no es",
}


@dataclass(frozen=True, slots=True)
class Passage:
    text: str
    language: str = "en"

    @property
    def sentences(self) -> list[str]:
        return sentences(self.text)


class Pool:
    """What prompts may ask about. It grows with the target's own replies, of which it keeps the latest."""

    def __init__(self, passages: Sequence[Passage] = ()) -> None:
        self._from_files: dict[str, list[Passage]] = {}
        for passage in passages:
            self._from_files.setdefault(passage.language, []).append(passage)
        self._own: list[Passage] = []
        self._added = 0

    def add_reply(self, text: str) -> None:
        """If it is prose of a fitting length, and does not turn in circles."""
        text = text.strip()
        if not OWN_WORDS[0] <= len(text.split()) <= OWN_WORDS[1] or "```" in text or repetitive(text):
            return
        if len(self._own) < OWN_REPLIES:
            self._own.append(Passage(text))
        else:
            self._own[self._added % OWN_REPLIES] = Passage(text)
        self._added += 1

    def pick(self, rng: random.Random, language: str = "en") -> Passage | None:
        """Given or own, half of the time each; None where there is nothing in this language."""
        from_files = self._from_files.get(language, [])
        own = self._own if language == "en" else []
        if from_files and (not own or rng.random() < 0.5):
            return rng.choice(from_files)
        return rng.choice(own) if own else None

    def neighbours(self, rng: random.Random, many: int) -> list[Passage]:
        """Several, of which those from files are likely to be about one thing; fewer or none where there are too
        few."""
        from_files = self._from_files.get("en", [])
        if len(from_files) >= many and (len(self._own) < many or rng.random() < 0.5):
            begin = rng.randrange(len(from_files) - many + 1)
            return from_files[begin : begin + many]
        return rng.sample(self._own, min(many, len(self._own)))


def repetitive(text: str) -> bool:
    """Whether a good part of its lines, or of its runs of five words, is there twice."""
    words = text.lower().split()
    runs = [tuple(words[i : i + 5]) for i in range(len(words) - 4)]
    return len(set(runs)) < 0.8 * len(runs)


def sentences(text: str) -> list[str]:
    return [part.strip() for part in SENTENCE_END.split(" ".join(text.split())) if part.strip()]


def read_passages(paths: Iterable[Path]) -> list[Passage]:
    """Of text files and of all *.txt in folders, in order. Raises EngineError for what is missing or no text."""
    return [passage for path in paths for file in _files(path) for passage in _read(file)]


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(path.rglob("*.txt"))
    return [path]


def _read(file: Path) -> Iterator[Passage]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EngineError(f"The passages {file} cannot be read ({error}): name text files in UTF-8.") from error
    suffix = file.suffixes[-2:-1]
    language = suffix[0][1:] if suffix and suffix[0][1:] in FREQUENT else guess_language(text[:20_000])
    for passage in cut(text):
        yield Passage(passage, language)


def cut(text: str) -> Iterator[str]:
    """Paragraphs, joined until they have one of SIZES words, and cut after a sentence where they have too many."""
    sizes = itertools.cycle(SIZES)
    taken: list[str] = []
    count, size = 0, next(sizes)
    for paragraph in re.split(r"\n\s*\n", text):
        for piece in _pieces(paragraph):
            words = len(piece.split())
            if taken and count + words > MOST_WORDS:
                if count >= LEAST_WORDS:
                    yield "\n\n".join(taken)
                taken, count = [], 0
            taken.append(piece)
            count += words
            if count >= size:
                yield "\n\n".join(taken)
                taken, count, size = [], 0, next(sizes)
    if count >= LEAST_WORDS:
        yield "\n\n".join(taken)


def _pieces(paragraph: str) -> Iterator[str]:
    """The paragraph on one line, in pieces of at most MOST_WORDS words."""
    piece: list[str] = []
    count = 0
    for sentence in sentences(paragraph):
        words = sentence.split()[:MOST_WORDS]
        if piece and count + len(words) > MOST_WORDS:
            yield " ".join(piece)
            piece, count = [], 0
        piece.append(" ".join(words))
        count += len(words)
    if piece:
        yield " ".join(piece)


def guess_language(text: str) -> str:
    """The one whose frequent words are the most frequent; English in doubt."""
    words = text.lower().split()
    return max(FREQUENT, key=lambda language: sum(map(words.count, FREQUENT[language].split())))
