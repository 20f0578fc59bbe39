"""What a tokeniser is, as far as its files tell: its vocabulary, its control tokens, and how it cuts text."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tokenizers

from engine.errors import LoadError, is_panic
from engine.loading.gguf.tokenizer import CONTROL, UNUSED

PROBES = (
    "Hello, world!", " Hello", "  two  spaces", "\n\n", "\t tab", "line\r\nline", "don't I'LL we've", "CamelCaseWord",
    "0", "12", "123", "1234567890", "3.14159", "1,000,000", "x = y + 1", "def f(a, b):\n    return a[b]  # ok",
    '{"key": [1, 2.5, null]}', "</div><br/>", "https://example.org/a?b=c&d=%20", "e\u0301 é ﬁ", "naïve Straße",
    "你好，世界。", "今天天气很好！我们去公园吧", "第3章：12月25日", "日本語のテキスト", "한국어 문장", "Привет, мир",
    "مرحبا",
    "🙂", "👩‍👩‍👧 🇫🇷", "a🙂b 中c", "\u200b\u00a0", "<|im_start|>user", "<s>[INST] x [/INST]",
)  # fmt: skip
"""Where tokenisers differ: spaces, digits, case, code, accents, other scripts, emoji, and names of control tokens."""

CACHE_SIZE = 4


@dataclass(frozen=True, slots=True)
class TokenizerInfo:
    """size: ids that it has. ids: of all tokens by name. special: the control tokens' ids.

    behaviour: a digest of the ids that it makes of PROBES; "" where that is not known before the model is loaded.
    """

    size: int
    ids: Mapping[str, int] = field(repr=False)
    special: frozenset[int] = field(repr=False)
    behaviour: str = ""

    def same_ids(self, other: TokenizerInfo, end: int) -> bool:
        """Whether all ids below `end` stand for the same tokens in both; as `Tokenizer.same_ids`."""
        if self is other:
            return True
        own_ids, other_ids = ({name: i for name, i in tokens.ids.items() if i < end} for tokens in (self, other))
        return own_ids == other_ids and {i for i in self.special if i < end} == {i for i in other.special if i < end}


_cache: dict[str, TokenizerInfo] = {}
"""The last few that were read, by digest: target and drafter often have one and the same file."""


def from_file(path: Path) -> TokenizerInfo:
    """Of a tokenizer.json. Raises LoadError, OSError."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest not in _cache:
        info = _read(path)
        while len(_cache) >= CACHE_SIZE:
            _cache.pop(next(iter(_cache)), None)
        _cache[digest] = info
    return _cache[digest]


def _read(path: Path) -> TokenizerInfo:
    try:
        return from_backend(tokenizers.Tokenizer.from_file(str(path)))
    except BaseException as error:  # the library's own errors have no type, and its panics are no Exception
        if not (isinstance(error, Exception) or is_panic(error)):
            raise
        raise LoadError(f"{path.name} cannot be read ({str(error).strip()}): fetch it again.") from error


def from_backend(backend: tokenizers.Tokenizer) -> TokenizerInfo:
    """Takes it over: it must not be used for anything else afterwards."""
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = True
    special = frozenset(i for i, token in backend.get_added_tokens_decoder().items() if token.special)
    probe_ids = [backend.encode(probe, add_special_tokens=False).ids for probe in PROBES]
    ids = backend.get_vocab(with_added_tokens=True)
    return TokenizerInfo(_vocab_size(ids), ids, special, hashlib.sha256(str(probe_ids).encode()).hexdigest()[:16])


def from_gguf(facts: Mapping[str, Any]) -> TokenizerInfo:
    """Of a GGUF's key-values; names that only pad the vocabulary are left out."""
    names = facts.get("tokenizer.ggml.tokens") or []
    types = facts.get("tokenizer.ggml.token_type") or [1] * len(names)
    ids = {name: i for i, (name, kind) in enumerate(zip(names, types, strict=False)) if kind != UNUSED}
    return TokenizerInfo(_vocab_size(ids), ids, frozenset(i for i, kind in enumerate(types) if kind == CONTROL))


def _vocab_size(ids: Mapping[str, int]) -> int:
    return max(ids.values(), default=-1) + 1
