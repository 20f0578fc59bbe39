"""Keeps control tokens the template's own: what people type can spell a control token's name, never become one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import islice, pairwise

import tokenizers

from engine.errors import InvalidParams

PRIVATE_USE = range(0xF0000, 0x10FFFE)
"""Code points without a meaning, from which stand-ins are taken (see `ControlNames.shield`)."""


class ControlNames:
    """Finds control tokens in a rendered prompt, and keeps the same names in messages from being found.

    Before the template is rendered, the character at which a name begins inside a message is replaced by a private-use
    stand-in, so that afterwards every name in the text is the template's own; then the stand-ins become characters
    again. Whatever else the template does with a message (trim it, look into it) works as ever. The ends of a message
    are shielded too where they could make up a name together with the template's text.
    """

    def __init__(self, token_of_id: Mapping[int, tokenizers.AddedToken]) -> None:
        self._ids = {token.content: token_id for token_id, token in token_of_id.items() if token.content}
        names = sorted(self._ids, key=len, reverse=True)  # the longest first, as the library matches
        match_nothing = r"(?!)"
        token_by_name = {token.content: token for token in token_of_id.values()}
        self._whole = re.compile("|".join(_name_pattern(token_by_name[name]) for name in names) or match_nothing)
        self._begin = re.compile(f"(?=(?:{'|'.join(map(re.escape, names)) or match_nothing}))(?s:.)")
        self._tails = tuple({name[i:] for name in names for i in range(1, len(name))})
        self._heads = tuple({name[:i] for name in names for i in range(1, len(name))})
        self._characters = sorted(set("".join(names)))

    def find_names(self, text: str) -> list[str | int]:
        """The text's plain pieces and, between them, the ids of its control tokens."""
        parts: list[str | int] = []
        end = 0
        for match in self._whole.finditer(text):
            name = match.group() if match.group() in self._ids else match.group().strip()
            parts += [text[end : match.start()], self._ids[name]]
            end = match.end()
        return [*parts, text[end:]]

    def split_names(self, text: str) -> list[str]:
        """The text in pieces, of which none holds a whole name."""
        boundaries = [0, *(match.end() for match in self._begin.finditer(text)), len(text)]
        return [text[begin:end] for begin, end in pairwise(boundaries)]

    def shield(self, contents: Sequence[str]) -> tuple[list[str], dict[int, str]]:
        """The contents with stand-ins, and the table for `str.translate` that undoes them."""
        taken_characters = set().union(*contents)
        free_characters = (chr(code) for code in PRIVATE_USE if chr(code) not in taken_characters)
        stand_ins = dict(zip(self._characters, islice(free_characters, len(self._characters)), strict=False))
        if len(stand_ins) < len(self._characters):
            raise InvalidParams("content", "the messages use nearly all private-use characters: remove some of them.")
        shielded_contents = [self._shield_content(content, stand_ins) for content in contents]
        return shielded_contents, {ord(stand_in): char for char, stand_in in stand_ins.items()}

    def _shield_content(self, content: str, stand_ins: Mapping[str, str]) -> str:
        content = self._begin.sub(lambda match: stand_ins[match.group()], content)
        core = content.strip()
        if not core:
            return content
        begin = content.index(core)
        last = begin + len(core) - 1
        if core.endswith(self._heads) or any(core in name for name in self._ids):
            content = content[:last] + stand_ins[content[last]] + content[last + 1 :]
        if core.startswith(self._tails) and last > begin:
            content = content[:begin] + stand_ins[content[begin]] + content[begin + 1 :]
        return content


def _name_pattern(token: tokenizers.AddedToken) -> str:
    """A control token with the white space that it swallows on either side."""
    before = r"(?<!\s)\s*" if token.lstrip else ""
    after = r"\s*" if token.rstrip else ""
    return before + re.escape(token.content) + after
