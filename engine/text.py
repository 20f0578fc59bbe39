"""Text to ids and back: the chat template, control tokens, stop strings.

What people type stays what they typed: control tokens come from the template alone, never from a message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import tokenizers

from engine.config import Message
from engine.detokenise import ByteDetokeniser, ByteTable, Detokeniser, WindowDetokeniser, byte_table
from engine.errors import EngineError, InvalidParams

Render = Callable[[list[dict[str, str]]], str]
"""A chat template: turns ({"role", "content"}) to the text of a prompt that ends where the reply begins."""

NO_TEMPLATE = "This model has no chat template, so it sees the conversation as plain User: and Assistant: lines."
PRIVATE_USE = range(0xF0000, 0x10FFFE)
"""Code points without a meaning, from which stand-ins are taken (see `_Shield`)."""


class StopStrings:
    """Watches a reply for stop strings while it grows. Each character costs the same, however long the reply.

    cut: the index, in the reply so far, at which the first completed stop string begins; None until there is one.
    safe: characters before this index can be shown for sure; the rest may be the beginning of a stop string.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [(stop, _borders(stop)) for stop in dict.fromkeys(stops) if stop]
        self._matched = [0] * len(self._stops)  # how many characters of each stop the reply ends with
        self._length = 0
        self.cut: int | None = None

    @property
    def safe(self) -> int:
        return self.cut if self.cut is not None else self._length - max(self._matched, default=0)

    def feed(self, text: str) -> None:
        """Go on with what the next token added. Nothing changes any more once there is a cut."""
        if not self._stops:
            self._length += len(text)
            return
        for char in text:
            if self.cut is not None:
                return
            self._length += 1
            for index, (stop, borders) in enumerate(self._stops):
                matched = self._matched[index]
                while matched and stop[matched] != char:
                    matched = borders[matched - 1]
                self._matched[index] = matched + (stop[matched] == char)
                if self._matched[index] == len(stop):
                    begin = self._length - len(stop)
                    self.cut = begin if self.cut is None else min(self.cut, begin)


def _borders(pattern: str) -> list[int]:
    """For each prefix of the pattern, the length of its longest proper prefix that is also its suffix (Knuth-Morris-Pratt)."""
    borders = [0] * len(pattern)
    length = 0
    for index in range(1, len(pattern)):
        while length and pattern[index] != pattern[length]:
            length = borders[length - 1]
        length += pattern[index] == pattern[length]
        borders[index] = length
    return borders


class _Shield:
    """Keeps control tokens' names in messages from being taken for control tokens.

    Before the template is rendered, the first character of each such name is replaced by a private-use stand-in, so
    that afterwards every name in the text is the template's own; then the stand-ins become characters again. Whatever
    else the template does with a message (trim it, look into it) is untouched. A beginning or an end of a message
    that could become a name together with the template's text is treated alike.
    """

    def __init__(self, names: Iterable[str], messages: Sequence[Message]) -> None:
        names = sorted(names)
        whole = "|".join(f"(?={re.escape(name)})." for name in names)
        tails = "|".join(re.escape(name[i:]) for name in names for i in range(1, len(name)))
        heads = "|".join(re.escape(name[:i]) for name in names for i in range(1, len(name)))
        at_start, at_end = rf"(?<!\S)\A\s*\K", ""
        raise NotImplementedError(whole, tails, heads, at_start, at_end)
