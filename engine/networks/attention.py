"""Attention over the KV caches of several requests in one packed pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.errors import EngineError
from engine.networks.kv_cache import KVCache


@dataclass(slots=True)
class Span:
    """Rows row..row+count of a packed pass: positions begin..begin+count of one cache."""

    cache: KVCache
    row: int
    begin: int
    count: int
    masks: dict[tuple[int, int | None], Tensor | None] = field(default_factory=dict)

    def mask(self, groups: int, window: int | None, device: torch.device) -> Tensor | None:
        """True where a row may look, [groups * count, begin + count]; None where it may look everywhere.

        Made once a pass and shared by all layers. `window`: sliding window in positions.
        """
        end = self.begin + self.count
        if self.count == 1 and (window is None or end <= window):
            return None
        if (groups, window) not in self.masks:
            query_positions = torch.arange(self.begin, end, device=device)[:, None]
            key_positions = torch.arange(end, device=device)[None, :]
            visible = key_positions <= query_positions
            if window is not None:
                visible &= key_positions > query_positions - window
            self.masks[groups, window] = visible.repeat(groups, 1)
        return self.masks[groups, window]


def collect_feature_layers(spans: Sequence[Span], layers: int) -> frozenset[int]:
    """All layers whose features some cache of this pass keeps. Raises EngineError where the model has none such."""
    layer_ids = frozenset(layer for span in spans for layer in span.cache.feature_layers)
    if any(not 0 <= layer <= layers for layer in layer_ids):
        raise EngineError(f"The model has layers 0 to {layers}, and features of {sorted(layer_ids)} were asked for.")
    return layer_ids


def keep_features(layer: int, hidden: Tensor, spans: Sequence[Span]) -> None:
    """Give each cache that keeps this layer's features its rows of `hidden`, [rows of the pass, hidden]."""
    for span in spans:
        span.cache.write_features(layer, span.begin, hidden[span.row : span.row + span.count])


def attend_spans(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    spans: Sequence[Span] = (),
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention over pooled caches, in the shape that transformers' AttentionInterface expects.

    query [1, heads, rows, dim], key and value [1, kv heads, rows, dim], positions already rotated in.
    Each span writes its rows to its own cache and looks only there. The query heads that share a key head are
    folded into rows: on a CPU that is several times faster than repeating the keys. Returns [1, rows, heads, dim].
    """
    if s_aux is not None:
        raise EngineError("This model uses attention sinks, which Greenlight does not run: choose another model.")
    heads, kv_heads, dim = query.shape[1], key.shape[1], query.shape[3]
    groups = heads // kv_heads
    out = query.new_empty(1, query.shape[2], heads, value.shape[3])
    for span in spans:
        rows = slice(span.row, span.row + span.count)
        keys, values = span.cache.write(module.layer_idx, span.begin, key[0, :, rows], value[0, :, rows])
        mask = span.mask(groups, sliding_window, query.device)
        if softcap is None:
            out[0, rows] = attend(query[0, :, rows], keys, values, mask, scaling)
        else:
            folded_query = query[0, :, rows].reshape(kv_heads, groups * span.count, dim)
            scores = folded_query @ keys.transpose(1, 2) * (scaling if scaling is not None else dim**-0.5)
            scores = softcap * torch.tanh(scores / softcap)
            if mask is not None:
                scores = scores.masked_fill(~mask, float("-inf"))
            attended_values = torch.softmax(scores.float(), dim=-1).to(values.dtype) @ values
            out[0, rows] = attended_values.reshape(heads, span.count, -1).transpose(0, 1)
    return out, None


def attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scaling: float | None = None) -> Tensor:
    """query [heads, n, dim], keys and values [kv heads, positions, dim], mask as `Span.mask`. Returns [n, heads,
    dim]."""
    heads, n, dim = query.shape
    folded_query = query.reshape(len(keys), heads // len(keys) * n, dim)
    attended_values = F.scaled_dot_product_attention(folded_query[None], keys[None], values[None], mask, scale=scaling)[
        0
    ]
    return attended_values.reshape(heads, n, -1).transpose(0, 1)
