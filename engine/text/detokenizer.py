"""Token ids back to text, one token at a time, without ever showing half a character.

Most tokenisers are bytes in disguise: every token stands for fixed bytes, and a reply is those bytes read as UTF-8.
For them a table id -> bytes and Python's incremental UTF-8 decoder are exact. The few others are decoded in a window.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import tokenizers

BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
LONGEST_CHARACTER = 4
"""Bytes of a UTF-8 character: a window that still ends in U+FFFD after so many tokens really holds one."""


class Detokenizer(Protocol):
    """State of one reply. The texts of all pushes and of the final flush, joined, are the reply."""

    def push(self, token_id: int) -> str:
        """The text that this token completes: "" inside a character, and for control tokens."""
        ...

    def flush(self) -> str:
        """What is left at the end: an incomplete character reads as U+FFFD. Empty the second time."""
        ...

    def copy(self) -> Detokenizer:
        """An independent detokeniser at the same position, to try tokens that may not stay."""
        ...


@dataclass(frozen=True, slots=True)
class ByteTable:
    """What each id stands for. Control tokens and unknown ids stand for nothing.

    strip: so many leading spaces of a whole text are not shown (Llama's tokeniser writes one too many).
    """

    pieces: tuple[bytes, ...]
    strip: int

    def piece(self, token_id: int) -> bytes:
        return self.pieces[token_id] if 0 <= token_id < len(self.pieces) else b""


class ByteDetokenizer:
    """Exact: bytes from the table, characters from Python's incremental UTF-8 decoder."""

    __slots__ = ("_decoder", "_strip", "_table")

    def __init__(self, table: ByteTable, strip: int) -> None:
        self._table = table
        self._strip = strip
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        return self._strip_leading_spaces(self._decoder.decode(self._table.piece(token_id)))

    def flush(self) -> str:
        text = self._strip_leading_spaces(self._decoder.decode(b"", final=True))
        self._decoder.reset()
        return text

    def copy(self) -> ByteDetokenizer:
        copy = ByteDetokenizer(self._table, self._strip)
        copy._decoder.setstate(self._decoder.getstate())
        return copy

    def _strip_leading_spaces(self, text: str) -> str:
        while self._strip and text.startswith(" "):
            text, self._strip = text[1:], self._strip - 1
        if text:
            self._strip = 0  # only the very beginning of a text is stripped
        return text


class WindowDetokenizer:
    """For other decoders: decode the last few tokens with and without the new one, and show the difference."""

    __slots__ = ("_backend", "_ids", "_shown_count")

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        self._ids: list[int] = []
        self._shown_count = 0  # how many of _ids have had their text shown; they stay as context for the next

    def push(self, token_id: int) -> str:
        self._ids.append(token_id)
        text = self._new_text()
        if text.endswith(INCOMPLETE) and len(self._ids) - self._shown_count < LONGEST_CHARACTER:
            return ""
        if text:
            self._ids = self._ids[self._shown_count :]
            self._shown_count = len(self._ids)
        return text

    def flush(self) -> str:
        text = self._new_text()
        self._shown_count = len(self._ids)
        return text

    def copy(self) -> WindowDetokenizer:
        copy = WindowDetokenizer(self._backend)
        copy._ids, copy._shown_count = list(self._ids), self._shown_count
        return copy

    def _new_text(self) -> str:
        return self._decode(self._ids)[len(self._decode(self._ids[: self._shown_count])) :]

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._backend.decode(ids, skip_special_tokens=True))


def byte_table(
    backend: tokenizers.Tokenizer, vocab: Mapping[str, int], vocab_size: int, control: Collection[int]
) -> ByteTable | None:
    """The table of a tokeniser whose decoder is byte-level, or byte-fallback with a space mark; else None.

    vocab: the ids of all tokens by name, which the library takes long to tell.
    """
    if backend.decoder is None:
        return None
    description = json.loads(backend.decoder.__getstate__())
    steps = description["decoders"] if description["type"] == "Sequence" else [description]
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"]:
        to_bytes, strip = _byte_level, 0
    elif "ByteFallback" in kinds and all(map(_is_plain_step, steps)):
        marks = [(s["pattern"]["String"], s["content"]) for s in steps if s["type"] == "Replace"]
        to_bytes, strip = _byte_fallback(marks), sum(s["start"] for s in steps if s["type"] == "Strip")
    else:
        return None
    pieces = [b""] * vocab_size
    for token, token_id in vocab.items():
        if token_id not in control and token_id < vocab_size:
            pieces[token_id] = to_bytes(token)
    return ByteTable(tuple(pieces), strip)


def _is_plain_step(step: dict[str, Any]) -> bool:
    """Whether a decoder's step treats tokens one by one, so that a table can stand for it."""
    if step["type"] == "Replace":
        return "String" in step["pattern"]
    if step["type"] == "Strip":
        return bool(step["content"] == " " and step["stop"] == 0)
    return step["type"] in ("ByteFallback", "Fuse")


def _byte_fallback(marks: Sequence[tuple[str, str]]) -> Any:
    def to_bytes(token: str) -> bytes:
        if match := BYTE_TOKEN.fullmatch(token):
            return bytes([int(match[1], 16)])
        for mark, content in marks:
            token = token.replace(mark, content)
        return token.encode("utf-8")

    return to_bytes


def _byte_level_alphabet() -> dict[int, str]:
    """For each character that byte-level BPE writes, that of its byte: printable ones stand for themselves, the rest
    are written from U+0100 on. Other characters below that are sent to where no byte is."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    unprintable = [byte for byte in range(256) if byte not in printable]
    substitutes = {0x100 + i: chr(byte) for i, byte in enumerate(unprintable)}
    return substitutes | {byte: chr(byte) for byte in printable} | dict.fromkeys(unprintable, "\uffff")


_ALPHABET = _byte_level_alphabet()


def _byte_level(token: str) -> bytes:
    """As the library does it: a token with a character outside the alphabet stands for its own UTF-8."""
    try:
        return token.translate(_ALPHABET).encode("latin-1")
    except UnicodeEncodeError:
        return token.encode("utf-8")
