"""The prompts of the experiments, by kind of text."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice, product

from engine.lab.results import TextKind

_LIGHTHOUSE = (
    "The harbour library opened in 1926 in a former rope store. Its first librarian, Ada Brandt, lent books to sailors "
    "for as long as their ships were away. In 1953 a flood reached the second shelf, and since then no book has stood "
    "below the third. The reading room was given its glass roof in 1978. Today the library lends about 400 books a "
    "week, and on the first Sunday of May it still reads aloud the names of all the ships that it has served."
)
_BAKERY = (
    "The night bakery in Mill Street begins its work at half past ten. Two bakers shape the loaves by hand, and a "
    "third looks after the oven, which has not gone out since 1994. The flour comes from a mill eleven kilometres "
    "away. "
    "At five in the morning the first rolls go to the hospital, the station and two schools. What is left at noon is "
    "given to the soup kitchen, and what is left there goes to the pigs of a farm outside the town."
)

PROMPTS: Mapping[TextKind, tuple[str, ...]] = {
    TextKind.COPY: (
        f"Repeat this text word for word, and change only the year 1926 to 1927:\n\n{_LIGHTHOUSE}",
        f"Repeat this text word for word, and change only Mill Street to Bridge Street:\n\n{_BAKERY}",
    ),
    TextKind.CODE: (
        "Write a Python class Stack with the methods push, pop, peek and is_empty, each with a docstring.",
        "Write a JavaScript function that checks whether a word reads the same backwards, "
        "with three examples of its use.",
    ),
    TextKind.SUMMARY: (f"Summarise this text:\n\n{_LIGHTHOUSE}", f"Summarise this text:\n\n{_BAKERY}"),
    TextKind.RAG: (
        f"Answer from the passage alone, in full sentences.\n\nPassage: {_LIGHTHOUSE}\n\n"
        "Question: Why does no book stand below the third shelf, and what happens on the first Sunday of May?",
        f"Answer from the passage alone, in full sentences.\n\nPassage: {_BAKERY}\n\n"
        "Question: Who gets the first rolls, and what happens to the bread that is left at noon?",
    ),
    TextKind.CHAT: (
        "Explain in detail how a bicycle stays upright while it is moving, and why it falls over when it stands still.",
        "I want to learn to cook. Explain in detail which five dishes I should learn first, and why.",
    ),
    TextKind.CHOICE: (
        "Which of these is a mammal? Answer with the letter only.\nA) Trout\nB) Dolphin\nC) Penguin\nD) Lizard",
        "Which of these numbers is prime? Answer with the letter only.\nA) 21\nB) 27\nC) 29\nD) 33",
    ),
    TextKind.POEM: (
        "Write a free poem, without rhymes, about rain on an old railway station.",
        "Write a free poem, without rhymes, about a letter that was never sent.",
    ),
}
"""Two of each, whose replies are long enough to be cut, but for CHOICE."""

LONG = (
    "Write a very long and detailed guide to growing tomatoes, from seed to harvest, with many sections.",
    "Write a very long and detailed history of the railway, from the first steam engines to today, with many sections.",
)
"""Prompts whose replies do not end early."""

_TASKS = (
    "Explain in detail how {} works.",
    "Write a long introduction to {} for somebody who has never heard of it.",
    "List ten facts about {}, each with a short explanation.",
    "Describe the history of {} in several paragraphs.",
)
_TOPICS = (
    "photosynthesis", "the stock market", "a sailing ship", "vaccination", "the printing press", "a suspension bridge",
    "chess", "beekeeping", "the violin", "public transport", "paper making", "weather forecasting", "glass blowing",
    "the postal service", "coffee roasting", "map making",
)  # fmt: skip


def users(count: int) -> list[str]:
    """Prompts of so many users, no two alike, at most 64."""
    return [task.format(topic) for topic, task in islice(product(_TOPICS, _TASKS), count)]
