"""A draft head on the native kernels: its weights rounded to 8 or 4 bits when it is loaded, a draft step in three
calls."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.errors import LoadError
from engine.heads.eagle3 import FIRST, HeadConfig, Weights, feature_norms, next_input
from engine.kernels.build import Kernels, NativeLayer, NativeLinear, NativeRow, NativeShape
from engine.kernels.packing import GROUP, LANES, Array, interleave_tiles, pack_tiles, quantise
from engine.networks.kv_cache import BLOCK, KVCache
from engine.networks.model import PREFILL_CHUNK
from engine.networks.rope import rope_tables

BITS = {"fc": 4, "qkv": 4, "out": 4, "gate_up": 4, "down": 4, "lm_head": 4}
"""How fine each matrix is kept. A draft step is as long as its weights are, and 8 bits made no more drafts stand."""


class NativeHead:
    """See `eagle3.Head`."""

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
        self._buffers: list[Any] = []  # what the pointers below point at
        self._cosine, self._sine = rope_tables(shape)
        self._fc = self._pack_linear("fc", weights["fc.weight"])
        self._lm_head = self._pack_linear("lm_head", weights["lm_head.weight"])
        self._norm = self._vector_pointer(weights["norm.weight"])
        self._layers = (NativeLayer * 1)(self._build_layer(weights))
        self._shape = NativeShape(
            1, shape.hidden, shape.heads, shape.kv_heads, shape.dim, shape.mlp,
            0, shape.epsilon, shape.dim**-0.5, config.normed_residual,
        )  # fmt: skip
        self._scratch = torch.empty(0, dtype=torch.uint8)
        self._scratch_capacity = (0, 0)  # rows and positions that the working memory is known to be enough for
        self._probability = ctypes.c_float()

    def _build_layer(self, weights: Weights) -> NativeLayer:
        shape, prefix = self.config.shape, f"{FIRST}self_attn."
        qkv = [weights[f"{prefix}{kind}_proj.weight"] for kind in "qkv"]
        gate, up = (weights[f"{FIRST}mlp.{half}_proj.weight"] for half in ("gate", "up"))
        gate_up = interleave_tiles(_pack_weight(gate, BITS["gate_up"]), _pack_weight(up, BITS["gate_up"]))
        return NativeLayer(
            attention_norm=self._vector_pointer(weights[f"{FIRST}input_layernorm.weight"]),
            state_norm=self._vector_pointer(weights[f"{FIRST}hidden_norm.weight"]),
            mlp_norm=self._vector_pointer(weights[f"{FIRST}post_attention_layernorm.weight"]),
            query_norm=self._vector_pointer(weights.get(f"{prefix}q_norm.weight")),
            key_norm=self._vector_pointer(weights.get(f"{prefix}k_norm.weight")),
            qkv=self._pack_linear("qkv", torch.cat(qkv)),
            out=self._pack_linear("out", weights[f"{prefix}o_proj.weight"]),
            gate_up=self._native_linear(gate_up, BITS["gate_up"], shape.hidden, 2 * shape.mlp),
            down=self._pack_linear("down", weights[f"{FIRST}mlp.down_proj.weight"]),
        )

    def join(self, features: Tensor) -> Tensor:
        x = feature_norms(self._weights, self.config, features).contiguous()
        out = torch.empty(len(x), self.config.shape.hidden)
        for begin in range(0, len(x), PREFILL_CHUNK):
            chunk = x[begin : begin + PREFILL_CHUNK]
            scratch = self._scratch_pointer(_multiply_scratch_bytes(*chunk.shape))
            self._library.gl_multiply(
                ctypes.byref(self._fc), chunk.data_ptr(), len(chunk), out[begin:].data_ptr(), scratch, self._threads
            )
        return out

    def run(self, token_ids: Tensor, state: Tensor, begin: int, cache: KVCache, keys_only: bool = False) -> Tensor:
        shape, count = self.config.shape, len(token_ids)
        end = begin + count
        keys, values = cache.reserve(0, begin, end, (shape.kv_heads, shape.dim), torch.float16, self.device)
        storage_pointers = (keys.data_ptr(), values.data_ptr(), keys.shape[1])
        rows = (NativeRow * count)()
        for row, position in zip(rows, range(begin, end), strict=True):
            row.keys, row.values, row.capacity, row.position = *storage_pointers, position
        embeddings = self._embed(token_ids)
        out = state.clone()
        if count > self._scratch_capacity[0] or end > self._scratch_capacity[1]:
            self._scratch_capacity = max(count, self._scratch_capacity[0]), max(end + BLOCK, self._scratch_capacity[1])
            self._scratch_pointer(
                self._library.gl_scratch_bytes(ctypes.byref(self._shape), *self._scratch_capacity, self._threads)
            )
        rope_offset = (
            begin * self._cosine.shape[1] * self._cosine.element_size()
        )  # the tables of angles, from `begin` on
        self._library.gl_layers(
            ctypes.byref(self._shape), self._layers, rows, count, self._cosine.data_ptr() + rope_offset,
            self._sine.data_ptr() + rope_offset, out.data_ptr(), embeddings.data_ptr(), keys_only, None,
            self._scratch_pointer(0), end, self._threads,
        )  # fmt: skip
        return out

    def next_input(self, state: Tensor) -> Tensor:
        return next_input(self._weights, self.config, state)

    def logits(self, state: Tensor) -> Tensor:
        out = torch.empty(len(state), self.config.draft_vocab_size)
        scratch = self._scratch_pointer(_multiply_scratch_bytes(*state.shape))
        self._library.gl_head(
            ctypes.byref(self._lm_head), self._norm, self.config.shape.epsilon, state.data_ptr(), len(state),
            out.data_ptr(), scratch, self._threads,
        )  # fmt: skip
        return out

    def choice(self, logits: Tensor) -> tuple[int, float]:
        index = self._library.gl_choice(
            logits.data_ptr(), self.config.draft_vocab_size, ctypes.byref(self._probability)
        )
        return index, self._probability.value

    def _scratch_pointer(self, scratch_bytes: int) -> int:
        """Working memory, kept from call to call."""
        if len(self._scratch) < scratch_bytes:
            self._scratch = torch.empty(scratch_bytes, dtype=torch.uint8)
        return self._scratch.data_ptr()

    def _pack_linear(self, name: str, weight: Tensor) -> NativeLinear:
        return self._native_linear(_pack_weight(weight, BITS[name]), BITS[name], weight.shape[1], weight.shape[0])

    def _native_linear(self, tiles: Array, bits: int, inputs: int, outputs: int) -> NativeLinear:
        self._buffers.append(tiles)
        return NativeLinear(tiles.ctypes.data, None, bits, inputs, outputs)

    def _vector_pointer(self, vector: Tensor | None) -> int | None:
        if vector is None:
            return None
        buffer = vector.float().contiguous()
        self._buffers.append(buffer)
        return buffer.data_ptr()


def _multiply_scratch_bytes(rows: int, inputs: int) -> int:
    """Working memory of gl_multiply, and of gl_head, which takes one normed row more: the rounded rows by whole panels
    of four, with scale and total for each group of 32, and what comes of rounding each piece up."""
    padded_rows = -(-rows // 4) * 4
    return padded_rows * (inputs + 2 * inputs // GROUP * 4) + 32 * padded_rows + 4 * inputs + 1024


def _pack_weight(weight: Tensor, bits: int) -> Array:
    return np.ascontiguousarray(pack_tiles(quantise(weight.float().numpy(), bits)))
