"""What a model says of itself before any of its weights is read: sizes, number formats, tokeniser, and what can run it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.findings import Finding

Progress = Callable[[str, float | None], None]


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a tokeniser is, in digests: two with the same vocabulary and specials give every id the same meaning.

    size: ids that it has. vocabulary: of all tokens with their ids. specials: of the control tokens. behaviour: of the
    ids that it makes of some probes; "" where that is not known before the model is loaded.
    """

    size: int
    vocabulary: str
    specials: str
    behaviour: str = ""


@dataclass(frozen=True, slots=True)
class HeadFacts:
    """Of a draft head (EAGLE-3). target: whom it was trained for, "" if it does not say. layers: whose hidden states it reads."""

    target: str
    hidden: int
    layers: tuple[int, ...]
    draft_vocabulary: int
    vocabulary: int


@dataclass(frozen=True, slots=True)
class Headers:
    """source: "embedded", "folder", "gguf" or "hub". kind: its model_type.

    runs: on "native" or "lean" networks of ours, on "transformers", or "no", and then reason is a finding that says why.
    layers .. vocab_rows: as in its config; window: of its sliding-window layers, None if it has none. context_len: tokens.
    parameters: numbers in its weights. file_bytes: of its weight files. formats: bytes by number format, largest first.
    head: where it is a draft head. chat: whether it has a chat template. here: bytes that are on this machine already.
    windowed: how many of its layers look back only over the window.
    """

    name: str
    source: str
    kind: str
    runs: str
    reason: Finding | None
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocab_rows: int
    context_len: int
    window: int | None
    parameters: int
    file_bytes: int
    formats: tuple[tuple[str, int], ...]
    tokens: Tokens | None = None
    head: HeadFacts | None = None
    chat: bool = True
    here: bool = True
    embedding: int = 0
    tied: bool = True
