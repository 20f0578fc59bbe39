"""Text to ids and back: the chat template and control tokens.

What people type stays what they typed: control tokens come from the template alone, never from a message.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import tokenizers

from engine.config import Message
from engine.errors import EngineError, InvalidParams
from engine.text.control_tokens import ControlNames
from engine.text.detokenizer import (
    INCOMPLETE,
    ByteDetokenizer,
    ByteTable,
    Detokenizer,
    WindowDetokenizer,
    byte_table,
)

Render = Callable[[list[dict[str, str]]], str]
"""A chat template: turns ({"role", "content"}) to the text of a prompt that ends where the reply begins."""

NO_TEMPLATE = "This model has no chat template, so it sees the conversation as plain User: and Assistant: lines."
NO_SYSTEM = "This model's chat template has no system role, so the system prompt is put before the first message."


@dataclass(frozen=True, slots=True, eq=False)
class Tokenizer:
    """Made by `build_tokenizer`; nothing in it changes afterwards, so any thread may use it.

    vocab_size: ids at or beyond it are padding rows of the model, never to be drawn. special: control tokens' names by
    id. stop_ids end a reply; so do stop_strings (only without a chat template). fallback_note: a sentence to show where
    the model lacks something, else "".
    """

    vocab_size: int
    stop_ids: frozenset[int]
    stop_strings: tuple[str, ...]
    special: Mapping[int, str]
    fallback_note: str
    _backend: tokenizers.Tokenizer
    _names: ControlNames
    _table: ByteTable | None
    _bos_ids: tuple[int, ...]
    _prepends_space: bool
    _render: Render | None
    _takes_system: bool

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """The prompt for the next reply. Only the template writes control tokens. Raises InvalidParams."""
        if not messages:
            raise InvalidParams("messages", "there is no message to answer: write one first.")
        if self._render is None:
            return [*self._bos_ids, *self.encode(_plain_form(messages))]
        if not self._takes_system:
            messages = _merge_system(messages)
        contents, undo = self._names.shield([message.content for message in messages])
        turns = [{"role": m.role, "content": content} for m, content in zip(messages, contents, strict=True)]
        ids: list[int] = []
        for index, part in enumerate(self._names.find_names(self._render(turns))):
            if isinstance(part, int):
                ids.append(part)
            else:
                ids += self._encode_piece(part.translate(undo), first=index == 0)
        while len(ids) > 1 and ids[0] == ids[1] and ids[:1] == list(self._bos_ids[:1]):
            del ids[0]
        return ids

    def encode(self, text: str) -> list[int]:
        """Plain characters only: the name of a control token is spelt out, like any other text."""
        return self._encode_piece(text, first=True)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of all ids at once, control tokens left out; the same as a detokeniser's pushes and flush."""
        detokenizer = self.detokenizer()
        return "".join([*map(detokenizer.push, ids), detokenizer.flush()])

    def detokenizer(self) -> Detokenizer:
        """A fresh one, for one reply."""
        if self._table is None:
            return WindowDetokenizer(self._backend)
        return ByteDetokenizer(self._table, self._table.strip)

    def describe(self, token_id: int, pending: Detokenizer | None) -> tuple[str, str]:
        """(text, special) of a token as it would read behind what `pending` has seen (None: in the midst of a text).

        A control token has no text and its name as special; a fragment of a character has its bytes there: "0xE4 0xB8".
        """
        if token_id in self.special:
            return "", self.special[token_id]
        for detokenizer in (pending, self._mid_text_detokenizer()):
            text = detokenizer.copy().push(token_id) if detokenizer is not None else ""
            if text and INCOMPLETE not in text:
                return text, ""
        # Behind half a character, or as half a character, it has no text of its own: name its bytes.
        piece = self._table.piece(token_id) if self._table is not None else b""
        if text and piece == INCOMPLETE.encode():
            return text, ""
        return "", " ".join(f"0x{byte:02X}" for byte in piece) or f"#{token_id}"

    def _mid_text_detokenizer(self) -> Detokenizer:
        """A fresh detokeniser that does not take the next token for the beginning of a text."""
        return WindowDetokenizer(self._backend) if self._table is None else ByteDetokenizer(self._table, 0)

    def same_ids(self, other: Tokenizer) -> bool:
        """Whether every id that both have stands for the same token in both, so that one model can draft for the other.

        One may have more ids behind those: tokens that were added later, or names for the padding of its weights.
        """
        shared_end = min(self.vocab_size, other.vocab_size)
        return self._tokens_below(shared_end) == other._tokens_below(shared_end)

    def _tokens_below(self, end: int) -> tuple[dict[str, int], dict[int, str]]:
        """Ids by name, and the control tokens among them."""
        vocab: dict[str, int] = self._backend.get_vocab(True)
        special = {i: name for i, name in self.special.items() if i < end}
        return {name: i for name, i in vocab.items() if i < end}, special

    def _encode_piece(self, text: str, first: bool) -> list[int]:
        """Ids of text without control tokens. first: nothing stands before it in the prompt."""
        if not text:
            return []
        if first and self._prepends_space and not text.startswith((" ", "\u2581")):
            text = " " + text
        ids = self._encode_plain(text)
        if self.special.keys().isdisjoint(ids):
            return ids
        # Some models keep control tokens in their ordinary vocabulary, where plain text can hit them.
        return [token_id for part in self._names.split_names(text) for token_id in self._encode_plain(part)]

    def _encode_plain(self, text: str) -> list[int]:
        return list(self._backend.encode(text, add_special_tokens=False).ids)


def build_tokenizer(
    backend: tokenizers.Tokenizer,
    render: Render | None,
    stop_ids: Iterable[int],
    bos_id: int | None = None,
    rows: int | None = None,
) -> Tokenizer:
    """Takes `backend` over: it is adjusted here, once, and must not be changed or used for anything else afterwards.

    render: the chat template, None if there is none; it must raise EngineError when it refuses a conversation. rows:
    how many ids the model knows; a tokeniser may have names for more.
    """
    backend.no_truncation()
    backend.no_padding()
    bos_ids = backend.encode("", add_special_tokens=True).ids[:1] if bos_id is None else [bos_id]
    backend.encode_special_tokens = True  # control tokens are found by ControlNames, never by the library
    control_tokens = {i: token for i, token in backend.get_added_tokens_decoder().items() if token.special}
    special = {i: token.content for i, token in control_tokens.items()}
    vocab = backend.get_vocab(with_added_tokens=True)
    vocab_size = max(vocab.values(), default=-1) + 1
    if rows is not None:
        vocab_size = min(vocab_size, rows)
    takes_system = render is not None and _takes_system(render)
    return Tokenizer(
        vocab_size=vocab_size,
        stop_ids=frozenset(stop_ids),
        stop_strings=("\nUser:",) if render is None else (),
        special=MappingProxyType(special),
        fallback_note=NO_TEMPLATE if render is None else "" if takes_system else NO_SYSTEM,
        _backend=backend,
        _names=ControlNames(control_tokens),
        _table=byte_table(backend, vocab, vocab_size, special),
        _bos_ids=tuple(bos_ids),
        _prepends_space=_take_over_first_space(backend),
        _render=render,
        _takes_system=takes_system,
    )


def _take_over_first_space(backend: tokenizers.Tokenizer) -> bool:
    """Whether the tokeniser puts a space before the first word of a whole text, and only there.

    The library cannot know which of our pieces is the first, so it stops doing it and `_encode_piece` does.
    """
    if backend.pre_tokenizer is None:
        return False
    description = json.loads(backend.pre_tokenizer.__getstate__())
    if description.get("prepend_scheme") != "first":
        return False
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(
        replacement=description["replacement"], prepend_scheme="never", split=description["split"]
    )
    return True


def _takes_system(render: Render) -> bool:
    """Whether the template shows the system text at all; some refuse it, some drop it silently."""
    probe = "greenlight-probe"
    try:
        return probe in render([{"role": "system", "content": probe}, {"role": "user", "content": "Hello"}])
    except EngineError:
        return False


def _merge_system(messages: Sequence[Message]) -> list[Message]:
    """The system text as the beginning of the first user turn."""
    system = "\n\n".join(m.content for m in messages if m.role == "system" and m.content.strip())
    turns = [m for m in messages if m.role != "system"]
    if not system:
        return turns
    first = next((i for i, m in enumerate(turns) if m.role == "user"), None)
    if first is None:
        return [Message("user", system), *turns]
    merged = Message("user", f"{system}\n\n{turns[first].content}")
    return [*turns[:first], merged, *turns[first + 1 :]]


def _plain_form(messages: Sequence[Message]) -> str:
    """The fallback without a chat template."""
    names = {"system": "", "user": "User: ", "assistant": "Assistant: "}
    return "".join(f"{names[m.role]}{m.content}\n" for m in messages) + "Assistant:"
