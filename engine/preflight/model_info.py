"""What is known of a model before any of its weights is read."""

from __future__ import annotations

from dataclasses import dataclass

from engine.heads.config import default_feature_layers
from engine.preflight.diagnostics import Diagnostic
from engine.preflight.tokenizer_info import TokenizerInfo


@dataclass(frozen=True, slots=True)
class HeadInfo:
    """Of a draft head (EAGLE-3). target: whom it was trained for, "" if it does not say. layers: whose hidden states it
    reads, () for the usual ones."""

    target: str
    hidden: int
    layers: tuple[int, ...]
    draft_vocabulary: int
    vocabulary: int

    def layers_of(self, target_layers: int) -> tuple[int, ...]:
        return self.layers or default_feature_layers(target_layers)


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """source: "embedded", "folder", "gguf" or "hub". kind: its model_type.

    runs: on "native" or "lean" networks of ours, on "transformers", or "no", and reason is a diagnostic that says why.
    layers .. vocab_rows: as in its config; window: of its sliding-window layers, None if it has none. context_len: in
    tokens. parameters: numbers in its weights. file_bytes: of its weight files. formats: bytes by number format,
    largest first. tokens: None where the tokeniser cannot be read before the model is loaded. head: where it is a draft
    head. chat: whether it has a chat template. here: whether it is on this machine already. embedding: numbers in the
    embedding; tied: whether it is the head as well. grid: whether a GGUF's own numbers are multiplied as they are.
    """

    name: str
    source: str
    kind: str
    runs: str
    reason: Diagnostic | None
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
    tokens: TokenizerInfo | None = None
    head: HeadInfo | None = None
    chat: bool = True
    here: bool = True
    embedding: int = 0
    tied: bool = True
    grid: bool = False

    @property
    def vocab_size(self) -> int | None:
        """Real ids; None where the tokeniser is not known."""
        return None if self.tokens is None else min(self.tokens.size, self.vocab_rows)


def window_of(value: object) -> int | None:
    """A sliding window, where there is one."""
    return int(value) if isinstance(value, int) and value > 0 else None
