"""A tiny grammar for varied phrasings: `[a|b|]` is one of its alternatives, `{slot}` a value or one word of a list."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

Words = Mapping[str, Sequence[str]]

_ALTERNATIVES = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"\{(\w+)\}")


def listed(text: str) -> tuple[str, ...]:
    r"""Entries separated by semicolons, over any number of lines; a line break in an entry is written as \n."""
    return tuple(" ".join(part.split()).replace("\\n", "\n") for part in text.split(";"))


def spoken(rng: random.Random, template: str, words: Words, **values: object) -> str:
    """Alternatives first, the innermost before the outer ones, then slots; what a slot is filled with is left as it is.

    A slot that ends in a digit ({name1}) takes a word other than the slots of the same list before it.
    Raises KeyError for a slot that has neither a value nor a list.
    """
    while _ALTERNATIVES.search(template):
        template = _ALTERNATIVES.sub(lambda match: rng.choice(match[1].split("|")), template)
    used: dict[str, str] = {}

    def fill(match: re.Match[str]) -> str:
        slot = match[1]
        if slot in values:
            return str(values[slot])
        if slot not in used or not slot[-1].isdigit():
            choices = words[slot.rstrip("0123456789")]
            fresh = [word for word in choices if word not in used.values()]
            used[slot] = rng.choice(fresh or list(choices))
        return used[slot]

    return _SLOT.sub(fill, template)


def pick(rng: random.Random, templates: Sequence[str], words: Words, **values: object) -> str:
    return spoken(rng, rng.choice(templates), words, **values)
