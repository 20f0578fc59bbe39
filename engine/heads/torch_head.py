"""A draft head in plain torch, for any device and number format."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from engine.heads import eagle3
from engine.heads.eagle3 import HeadConfig, Weights
from engine.networks.attention import Span, attend
from engine.networks.devices import fetch_to_cpu, move_to_device, send_ids
from engine.networks.kv_cache import KVCache
from engine.networks.rope import rope_tables
from engine.sampling import likeliest


class TorchHead:
    """See `eagle3.Head`. Heads of several layers: those behind the first are ordinary decoder layers."""

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
        self._weights = {name: move_to_device(tensor, device, dtype) for name, tensor in weights.items()}
        self._embed, self._dtype = embed, dtype
        self._cosine, self._sine = (move_to_device(table, device, dtype) for table in rope_tables(config.shape))

    def join(self, features: Tensor) -> Tensor:
        return eagle3.join(self._weights, self.config, features.to(self._dtype))

    def run(self, token_ids: Tensor, state: Tensor, begin: int, cache: KVCache, keys_only: bool = False) -> Tensor:
        config, weights, shape = self.config, self._weights, self.config.shape
        embeddings = self._embed(send_ids([token_ids.tolist()], self.device)[0]).to(self._dtype)
        positions = slice(begin, begin + len(token_ids))
        span = Span(cache, 0, begin, len(token_ids))
        for n in range(shape.layers):
            if n == 0:
                x, residual = eagle3.attention_input(weights, config, embeddings, state)
            else:
                x = eagle3.rms_norm(state, weights[f"layers.{n}.input_layernorm.weight"], shape.epsilon)
                residual = state
            key = eagle3.rotate(
                eagle3.project(weights, config, n, x, "k"), self._cosine[positions], self._sine[positions]
            )
            value = eagle3.project(weights, config, n, x, "v")
            keys, values = cache.write(n, begin, key.transpose(0, 1), value.transpose(0, 1))
            if keys_only and n == shape.layers - 1:
                break
            query = eagle3.rotate(
                eagle3.project(weights, config, n, x, "q"), self._cosine[positions], self._sine[positions]
            )
            mask = span.mask(shape.heads // shape.kv_heads, None, self.device)
            attention_output = attend(query.transpose(0, 1), keys, values, mask).flatten(1)
            state = eagle3.finish_layer(weights, config, n, residual, attention_output)
        return state

    def next_input(self, state: Tensor) -> Tensor:
        return eagle3.next_input(self._weights, self.config, state)

    def choice(self, logits: Tensor) -> tuple[int, float]:
        return likeliest(logits[0])

    def logits(self, state: Tensor) -> Tensor:
        return fetch_to_cpu(eagle3.logits(self._weights, self.config, state))
