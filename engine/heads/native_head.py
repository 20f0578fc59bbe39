"""A draft head on the native kernels: its weights rounded to 8 or 4 bits when it is loaded, a draft step in three calls."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.errors import LoadError
from engine.heads.eagle3 import FIRST, HeadConfig, Weights, feature_norms, fed
from engine.kernels.build import Kernels, NativeLayer, NativeLinear, NativeRow, NativeShape
from engine.kernels.packing import GROUP, LANES, Array, interleave_tiles, pack_tiles, quantise
from engine.networks.kv_cache import BLOCK, KVCache
from engine.networks.model import PREFILL_CHUNK
from engine.networks.rope import rope_tables

BITS = {"fc": 4, "qkv": 4, "out": 4, "gate_up": 4, "down": 4, "lm_head": 4}
"""How fine each matrix is kept. A draft step is as long as its weights are, and 8 bits made no more drafts stand."""


class NativeHead:
    """See `drafters.head.Head`."""

    def __init__(
        self,
        config: HeadConfig,
        weights: Weights,
        ids: Tensor,
        embed: Callable[[Tensor], Tensor],
        kernels: Kernels,
        threads: int,
    ) -> None:
        """embed: ids int64 [n] -> float32 [n, hidden]. Raises LoadError for a head that the kernels do not run."""
        shape = config.shape
        rows = (shape.dim % LANES, config.draft_vocab_size % LANES)
        columns = (shape.hidden % GROUP, shape.heads * shape.dim % GROUP, shape.mlp % GROUP)
        if any(rows + columns) or shape.layers != 1 or any(name.endswith(".bias") for name in weights):
            raise LoadError("The native kernels do not run a draft head of this shape: use --kernel torch.")
        self.config, self.ids = config, ids
        self.device = torch.device("cpu")
        self._library, self._threads, self._embed, self._weights = kernels.library, threads, embed, weights
        self._kept: list[Any] = []  # what the pointers below point at
        self._cosine, self._sine = rope_tables(shape)
        at = f"{FIRST}self_attn."
        qkv = [weights[f"{at}{which}_proj.weight"] for which in "qkv"]
        gate, up = (weights[f"{FIRST}mlp.{which}_proj.weight"] for which in ("gate", "up"))
        self._fc = self._linear("fc", weights["fc.weight"])
        self._lm_head = self._linear("lm_head", weights["lm_head.weight"])
        self._norm = self._vector(weights["norm.weight"])
        both = interleave_tiles(_tiles(gate, BITS["gate_up"]), _tiles(up, BITS["gate_up"]))
        self._layers = (NativeLayer * 1)(
            NativeLayer(
                attention_norm=self._vector(weights[f"{FIRST}input_layernorm.weight"]),
                state_norm=self._vector(weights[f"{FIRST}hidden_norm.weight"]),
                mlp_norm=self._vector(weights[f"{FIRST}post_attention_layernorm.weight"]),
                query_norm=self._vector(weights.get(f"{at}q_norm.weight")),
                key_norm=self._vector(weights.get(f"{at}k_norm.weight")),
                qkv=self._linear("qkv", torch.cat(qkv)),
                out=self._linear("out", weights[f"{at}o_proj.weight"]),
                gate_up=self._packed(both, BITS["gate_up"], shape.hidden, 2 * shape.mlp),
                down=self._linear("down", weights[f"{FIRST}mlp.down_proj.weight"]),
            )
        )
        self._shape = NativeShape(
            1, shape.hidden, shape.heads, shape.kv_heads, shape.dim, shape.mlp,
            0, shape.epsilon, shape.dim**-0.5, config.normed_residual,
        )  # fmt: skip
        self._scratch = torch.empty(0, dtype=torch.uint8)
        self._room_for = (0, 0)  # rows and positions that the working memory is known to be enough for
        self._share = ctypes.c_float()

    def join(self, features: Tensor) -> Tensor:
        x = feature_norms(self._weights, self.config, features).contiguous()
        out = torch.empty(len(x), self.config.shape.hidden)
        for begin in range(0, len(x), PREFILL_CHUNK):
            part = x[begin : begin + PREFILL_CHUNK]
            scratch = self._room(_product_bytes(*part.shape))
            self._library.gl_multiply(
                ctypes.byref(self._fc), part.data_ptr(), len(part), out[begin:].data_ptr(), scratch, self._threads
            )
        return out

    def run(self, token_ids: Tensor, state: Tensor, begin: int, cache: KVCache, keys_only: bool = False) -> Tensor:
        shape, count = self.config.shape, len(token_ids)
        end = begin + count
        keys, values = cache.room(0, begin, end, (shape.kv_heads, shape.dim), torch.float16, self.device)
        where = (keys.data_ptr(), values.data_ptr(), keys.shape[1])
        rows = (NativeRow * count)()
        for row, position in zip(rows, range(begin, end), strict=True):
            row.keys, row.values, row.capacity, row.position = *where, position
        embedded = self._embed(token_ids)
        out = state.clone()
        if count > self._room_for[0] or end > self._room_for[1]:
            self._room_for = max(count, self._room_for[0]), max(end + BLOCK, self._room_for[1])
            self._room(self._library.gl_scratch_bytes(ctypes.byref(self._shape), *self._room_for, self._threads))
        turned = begin * self._cosine.shape[1] * self._cosine.element_size()  # the tables of angles, from `begin` on
        self._library.gl_layers(
            ctypes.byref(self._shape), self._layers, rows, count, self._cosine.data_ptr() + turned,
            self._sine.data_ptr() + turned, out.data_ptr(), embedded.data_ptr(), keys_only, None, self._room(0), end,
            self._threads,
        )  # fmt: skip
        return out

    def fed(self, state: Tensor) -> Tensor:
        return fed(self._weights, self.config, state)

    def logits(self, state: Tensor) -> Tensor:
        out = torch.empty(len(state), self.config.draft_vocab_size)
        scratch = self._room(_product_bytes(*state.shape))
        self._library.gl_head(
            ctypes.byref(self._lm_head), self._norm, self.config.shape.epsilon, state.data_ptr(), len(state),
            out.data_ptr(), scratch, self._threads,
        )  # fmt: skip
        return out

    def choice(self, logits: Tensor) -> tuple[int, float]:
        index = self._library.gl_choice(logits.data_ptr(), self.config.draft_vocab_size, ctypes.byref(self._share))
        return index, self._share.value

    def _room(self, needed: int) -> int:
        """Working memory, kept from call to call."""
        if len(self._scratch) < needed:
            self._scratch = torch.empty(needed, dtype=torch.uint8)
        return self._scratch.data_ptr()

    def _linear(self, name: str, weight: Tensor) -> NativeLinear:
        return self._packed(_tiles(weight, BITS[name]), BITS[name], weight.shape[1], weight.shape[0])

    def _packed(self, packed: Array, bits: int, inputs: int, outputs: int) -> NativeLinear:
        self._kept.append(packed)
        return NativeLinear(packed.ctypes.data, None, bits, inputs, outputs)

    def _vector(self, vector: Tensor | None) -> int | None:
        if vector is None:
            return None
        kept = vector.float().contiguous()
        self._kept.append(kept)
        return kept.data_ptr()


def _product_bytes(rows: int, inputs: int) -> int:
    """Working memory of gl_multiply, and of gl_head, which takes one normed row more: the rounded rows by whole panels of
    four, with scale and total for each group of 32, and what comes of rounding each piece up."""
    padded = -(-rows // 4) * 4
    return padded * (inputs + 2 * inputs // GROUP * 4) + 32 * padded + 4 * inputs + 1024


def _tiles(weight: Tensor, bits: int) -> Array:
    return np.ascontiguousarray(pack_tiles(quantise(weight.float().numpy(), bits)))
