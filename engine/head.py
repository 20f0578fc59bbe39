"""A draft head in plain torch, for any device and number format."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from engine import eagle3
from engine.eagle3 import HeadConfig, Weights
from engine.llama_shape import rope_tables
from engine.model import Cache


class TorchHead:
    """See `drafters.head.Head`. Heads of several layers: those behind the first are ordinary decoder layers."""

    def __init__(
        self,
        config: HeadConfig,
        weights: Weights,
        ids: Tensor,
        embed: Callable[[Tensor], Tensor],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.config, self.ids, self.device = config, ids, device
        self._weights = {name: tensor.to(device, dtype) for name, tensor in weights.items()}
        self._embed, self._dtype = embed, dtype
        self._cosine, self._sine = (table.to(device, dtype) for table in rope_tables(config.shape))

    def join(self, features: Tensor) -> Tensor:
        return eagle3.join(self._weights, self.config, features.to(self._dtype))

    def run(self, token_ids: Tensor, state: Tensor, begin: int, cache: Cache, keys_only: bool = False) -> Tensor:
        config, weights, shape = self.config, self._weights, self.config.shape
        embedded = self._embed(token_ids.to(self.device)).to(self._dtype)
        at = slice(begin, begin + len(token_ids))
        for n in range(shape.layers):
            if n == 0:
                x, residual = eagle3.attention_input(weights, config, embedded, state)
            else:
                x = eagle3.rms_norm(state, weights[f"layers.{n}.input_layernorm.weight"], shape.epsilon)
                residual = state
            key = eagle3.rotate(eagle3.project(weights, config, n, x, "k"), self._cosine[at], self._sine[at])
            value = eagle3.project(weights, config, n, x, "v")
            keys, values = cache.write(n, begin, key.transpose(0, 1), value.transpose(0, 1))
            if keys_only and n == shape.layers - 1:
                break
            query = eagle3.rotate(eagle3.project(weights, config, n, x, "q"), self._cosine[at], self._sine[at])
            state = eagle3.finish(weights, config, n, residual, _attend(query, keys, values))
        return state

    def fed(self, state: Tensor) -> Tensor:
        return eagle3.fed(self._weights, self.config, state)

    def choice(self, logits: Tensor) -> tuple[int, float]:
        share, index = torch.softmax(logits[0], dim=-1).max(dim=-1)
        return int(index), float(share)

    def logits(self, state: Tensor) -> Tensor:
        return eagle3.logits(self._weights, self.config, state).float().cpu()


def _attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """queries [n, heads, dim], the last n positions of keys, values [kv heads, positions, dim] -> [n, heads * dim]."""
    n, heads, dim = queries.shape
    kv, end = keys.shape[:2]
    groups = heads // kv
    folded = queries.reshape(n, kv, groups, dim).permute(1, 2, 0, 3).reshape(kv, groups * n, dim)
    row = torch.arange(end - n, end, device=keys.device).repeat(groups)
    mask = torch.arange(end, device=keys.device)[None, :] <= row[:, None]
    seen = F.scaled_dot_product_attention(folded[None], keys[None], values[None], mask)[0]
    return seen.reshape(kv, groups, n, dim).permute(2, 0, 1, 3).reshape(n, heads * dim)
