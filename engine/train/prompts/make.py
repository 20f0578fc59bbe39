"""What users may ask, composed by chance: many kinds of wishes, phrasings, topics and constraints, all our own."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from engine.train.prompts import phrasings
from engine.train.prompts.arithmetic import problem
from engine.train.prompts.passages import Passage, Pool
from engine.train.prompts.phrases import pick
from engine.train.prompts.sentences import composed
from engine.train.prompts.specifics import CODE_WORDS, FACT_WORDS
from engine.train.prompts.words import LISTS, topic, wordnet_nouns

MOST_WORDS = {"summary": 450, "questions": 350, "several passages": 160, "rewriting": 200, "extraction": 250}
"""Of a passage, by kind, so that prompt and reply stay within what a conversation usually holds."""
WORDS = LISTS | CODE_WORDS | FACT_WORDS
CODES = {"German": "de", "French": "fr", "Spanish": "es", "English": "en"}


@dataclass(frozen=True, slots=True)
class TrainingPrompt:
    """kind: a key of KINDS."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class PromptSource:
    """What a prompt is made from."""

    rng: random.Random
    pool: Pool
    nouns: tuple[str, ...]

    def phrase(self, templates: tuple[str, ...], **values: object) -> str:
        """One of the templates with its slots filled; {topic} and {topic2} are topics."""
        topics = {name: topic(self.rng, self.nouns) for name in ("topic", "topic2")}
        return pick(self.rng, templates, WORDS, **(topics | values))

    def passage(self, most_words: int, language: str = "English") -> str:
        """Whole sentences of a text, composed where the pool has none in this language."""
        texts = self.pool.pick(self.rng, CODES.get(language, ""))
        if texts is None:
            return composed(self.rng, language, self.rng.randint(3, 7))
        return self.shortened(texts, most_words)

    def shortened(self, passage: Passage, most_words: int) -> str:
        """As it is, or its first sentences up to a length by chance."""
        allowed = self.rng.randint(most_words // 3, most_words)
        if len(passage.text.split()) <= allowed:
            return passage.text
        taken: list[str] = []
        for sentence in passage.sentences:
            if taken and len(" ".join([*taken, sentence]).split()) > allowed:
                break
            taken.append(sentence)
        return " ".join(" ".join(taken).split()[:most_words])


def _phrased(templates: tuple[str, ...], source: PromptSource) -> str:
    return source.phrase(templates)


def _summary(source: PromptSource) -> str:
    return source.phrase(phrasings.SUMMARY, passage=source.passage(MOST_WORDS["summary"]))


def _questions(source: PromptSource) -> str:
    """One question about one passage."""
    passage = source.passage(MOST_WORDS["questions"])
    return source.phrase(phrasings.QUESTIONS, passage=passage, question=_question(source, passage))


def _question(source: PromptSource, passage: str) -> str:
    """A question that the passage suggests: about a name or a longer word in it."""
    words = passage.split()
    inner = [word for before, word in pairwise(words) if before[-1] not in '.!?:"”“']
    bare = [word.strip(".,;:!?()[]\"'“”„*#`") for word in inner]
    names = [word for word in bare if word[:1].isupper() and len(word) > 2]
    long = [word for word in bare if len(word) > 7]
    about = source.rng.choice((names if source.rng.random() < 0.6 else []) or long or names or ["it"])
    return source.phrase(phrasings.PASSAGE_QUESTION, about=about)


def _several_passages(source: PromptSource) -> str:
    """A question over several numbered texts, as a search engine would hand them to a model."""
    many = source.rng.randint(2, 4)
    most = MOST_WORDS["several passages"]
    texts = [source.shortened(p, most) for p in source.pool.neighbours(source.rng, many)]
    texts += [composed(source.rng, "English", 4) for _ in range(many - len(texts))]
    mark = source.rng.choice(("[{}] {}", "{}. {}", "Passage {}: {}", "({}) {}", "Document {}\n{}", "Source {}: {}"))
    gap = source.rng.choice(("\n", "\n\n"))
    passages = gap.join(mark.format(n, " ".join(text.split())) for n, text in enumerate(texts, 1))
    return source.phrase(
        phrasings.SEVERAL_PASSAGES, passages=passages, question=_question(source, source.rng.choice(texts))
    )


def _rewriting(source: PromptSource) -> str:
    return source.phrase(phrasings.REWRITING, passage=source.passage(MOST_WORDS["rewriting"]))


def _extraction(source: PromptSource) -> str:
    return source.phrase(phrasings.EXTRACTION, passage=source.passage(MOST_WORDS["extraction"]))


def _classification(source: PromptSource) -> str:
    """Of a few sentences, one a line."""
    texts = Passage(source.passage(300)).sentences
    lines = [source.rng.choice((source.rng.choice(texts), composed(source.rng, "English"))) for _ in range(4)]
    mark = source.rng.choice(("- ", "* ", ""))
    return source.phrase(phrasings.CLASSIFICATION, lines="\n".join(mark + line for line in dict.fromkeys(lines)))


def _translation(source: PromptSource) -> str:
    """German to English above all; one sentence more often than a paragraph."""
    foreign = source.rng.choices(("German", "French", "Spanish", "Chinese"), (70, 12, 10, 8))[0]
    out_of, into = (foreign, "English") if source.rng.random() < 0.85 else ("English", foreign)
    text = _to_translate(source, out_of)
    return source.phrase(phrasings.TRANSLATION, out_of=out_of, into=into, text=text)


def _to_translate(source: PromptSource, language: str) -> str:
    """A sentence or a few of a text; composed where there is none, and a third of the time."""
    passage = source.pool.pick(source.rng, CODES.get(language, ""))
    many = 1 if source.rng.random() < 0.65 else source.rng.randint(2, 6)
    if passage is None or source.rng.random() < 0.33:
        return composed(source.rng, language, many)
    texts = passage.sentences
    begin = source.rng.randrange(max(1, len(texts) - many + 1))
    return " ".join(" ".join(texts[begin : begin + many]).split()[:150])


KINDS: dict[str, tuple[float, Callable[[PromptSource], str]]] = {
    "advice": (8, partial(_phrased, phrasings.ADVICE)),
    "explanation": (9, partial(_phrased, phrasings.EXPLANATION)),
    "writing": (9, partial(_phrased, phrasings.WRITING)),
    "list": (4, partial(_phrased, phrasings.LIST)),
    "code": (7, partial(_phrased, phrasings.CODE)),
    "role play": (3, partial(_phrased, phrasings.ROLE_PLAY)),
    "fact": (9, partial(_phrased, phrasings.FACT)),
    "reasoning": (4, partial(_phrased, phrasings.REASONING)),
    "comparison": (3, partial(_phrased, phrasings.COMPARISON)),
    "small talk": (2, partial(_phrased, phrasings.SMALL_TALK)),
    "arithmetic": (12, lambda source: problem(source.rng)),
    "summary": (11, _summary),
    "questions": (4, _questions),
    "several passages": (9, _several_passages),
    "rewriting": (3, _rewriting),
    "extraction": (2, _extraction),
    "classification": (2, _classification),
    "translation": (14, _translation),
}
"""Name: (how often, who makes one)."""


def prompts(rng: random.Random, pool: Pool) -> Iterator[TrainingPrompt]:
    """Without end, and none twice. The pool may grow meanwhile."""
    source = PromptSource(rng, pool, wordnet_nouns())
    previous: set[str] = set()
    kinds, weights = list(KINDS), [weight for weight, _ in KINDS.values()]
    while True:
        kind = rng.choices(kinds, weights)[0]
        text = _as_typed(rng, kind, KINDS[kind][1](source).strip())
        if text and text not in previous:
            previous.add(text)
            yield TrainingPrompt(kind, text)


def _as_typed(rng: random.Random, kind: str, text: str) -> str:
    """People do not always write with care: some short questions are in small letters, or lack their mark."""
    if kind in ("fact", "small talk", "advice") and rng.random() < 0.3:
        return text.lower() if rng.random() < 0.6 else text.rstrip("?.")
    return text[:1].upper() + text[1:]


def follow_up(rng: random.Random, kind: str) -> str:
    """A second turn that refers to the reply before."""
    fitting = phrasings.FOLLOW_UP_OF.get(kind, ())
    templates = fitting if fitting and rng.random() < 0.6 else phrasings.FOLLOW_UP
    return pick(rng, templates, WORDS, topic=topic(rng, ()))
