"""The Llama family on the native kernels: the whole forward pass in two calls, over weights that stay in their
tiles."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.errors import LoadError
from engine.kernels.build import Kernels, NativeLayer, NativeLinear, NativeRow, NativeShape
from engine.kernels.native_sampler import NativeSampler
from engine.kernels.packing import GROUP, LANES, TILE_BYTES
from engine.networks.attention import Span, collect_feature_layers, keep_features
from engine.networks.llama_shape import LlamaShape
from engine.networks.rope import rope_tables

TABLE = 1024
"""Positions whose rotations are computed together."""


class NativeLlama:
    """A `Network`. What a row becomes does not depend on what is computed beside it, so speculation is exact.

    Keys and values are float16, one storage for all layers: [layers * kv heads, capacity, dim], where each 16 keys are
    transposed among themselves (see kernels.cpp). The weights may be a memory map; they are never written to.
    """

    def __init__(self, shape: LlamaShape, weights: dict[str, Tensor], kernels: Kernels, threads: int) -> None:
        """weights: the entries of a tiles.safetensors (see `gguf.convert`). Raises LoadError where they do not fit the
        shape."""
        if shape.dim % LANES or (shape.heads * shape.dim) % GROUP:
            raise LoadError(f"The native kernels do not run heads of {shape.dim} dimensions: use --kernel torch.")
        self.shape = shape
        self.vocab_size = shape.vocab_size
        self.device = torch.device("cpu")
        self.kernels, self._library = kernels, kernels.library
        self.sampler: NativeSampler | None = NativeSampler(kernels.library)
        self._threads = threads
        self._weights = weights
        untouched_name = "token_embd" if "output" in weights else ""  # a separate embedding gives one row
        self.weight_bytes = sum(tensor.nbytes for name, tensor in weights.items() if name != untouched_name)
        self._cosine = self._sine = torch.empty(0, shape.dim // 2)
        self._head = self._native_linear(
            "output" if "output" in weights else "token_embd", shape.hidden, shape.vocab_size
        )
        self._embedding = self._native_linear("token_embd", shape.hidden, shape.vocab_size)
        self._norm = self._vector("output_norm.weight")
        self._layers = (NativeLayer * shape.layers)(*map(self._build_layer, range(shape.layers)))
        self._native_shape = NativeShape(
            shape.layers, shape.hidden, shape.heads, shape.kv_heads, shape.dim, shape.mlp,
            1, shape.epsilon, shape.dim**-0.5,
        )  # fmt: skip
        self._scratch = torch.empty(0, dtype=torch.uint8)

    @classmethod
    def load(cls, folder: Path, config: dict[str, Any], kernels: Kernels, threads: int) -> NativeLlama:
        """From a folder made by `gguf.convert` in the form TILES; the weights are mapped, not read. Raises
        LoadError."""
        from safetensors.torch import load_file

        return cls(LlamaShape.read(config), load_file(folder / "tiles.safetensors"), kernels, threads)

    def __call__(self, token_ids: Tensor, positions: Tensor, spans: Sequence[Span], logit_rows: Tensor) -> Tensor:
        shape, library, count = self.shape, self._library, len(token_ids)
        rows = (NativeRow * count)()
        longest_context = 0
        for span in spans:
            end = span.begin + span.count
            longest_context = max(longest_context, end)
            row_shape = (shape.layers * shape.kv_heads, shape.dim)
            keys, values = span.cache.reserve(0, span.begin, end, row_shape, torch.float16, self.device)
            storage_pointers = (keys.data_ptr(), values.data_ptr(), keys.shape[1])
            for i in range(span.count):
                rows[span.row + i] = NativeRow(*storage_pointers, span.begin + i)
        hidden = self.embed(token_ids)
        if longest_context > len(self._cosine):  # by position, so that longer tables begin with the same numbers
            self._cosine, self._sine = rope_tables(shape, 0, -(-longest_context // TABLE) * TABLE)
        cosine, sine = self._cosine[positions], self._sine[positions]
        scratch = self._scratch_for(count, longest_context)
        feature_buffers = {
            n: torch.empty(count, shape.hidden) for n in sorted(collect_feature_layers(spans, shape.layers))
        }
        library.gl_layers(
            ctypes.byref(self._native_shape), self._layers, rows, count, cosine.data_ptr(), sine.data_ptr(),
            hidden.data_ptr(), None, 0, self._feature_pointers(feature_buffers), scratch,
            longest_context, self._threads,
        )  # fmt: skip
        for n, layer_input in feature_buffers.items():
            keep_features(n, hidden if n == shape.layers else layer_input, spans)
        logit_hidden = hidden.index_select(0, logit_rows)  # indexing would wake torch's threads for a few rows
        logits = torch.empty(len(logit_hidden), shape.vocab_size)
        if len(logit_hidden):
            library.gl_head(
                ctypes.byref(self._head), self._norm, shape.epsilon, logit_hidden.data_ptr(), len(logit_hidden),
                logits.data_ptr(), scratch, self._threads,
            )  # fmt: skip
        return logits

    def embed(self, token_ids: Tensor) -> Tensor:
        """float32 [n, hidden]."""
        out = torch.empty(len(token_ids), self.shape.hidden)
        self._library.gl_rows(ctypes.byref(self._embedding), token_ids.data_ptr(), len(token_ids), out.data_ptr())
        return out

    def _feature_pointers(self, feature_buffers: dict[int, Tensor]) -> Any:
        """For each layer where to put the hidden states that enter it, or null; None where no cache keeps any."""
        if not feature_buffers:
            return None
        layers = self.shape.layers
        return (ctypes.c_void_p * layers)(
            *(feature_buffers[n].data_ptr() if n in feature_buffers else None for n in range(layers))
        )

    def _scratch_for(self, rows: int, longest_context: int) -> int:
        """Working memory, kept from pass to pass."""
        scratch_bytes = self._library.gl_scratch_bytes(
            ctypes.byref(self._native_shape), rows, longest_context, self._threads
        )
        if len(self._scratch) < scratch_bytes:
            self._scratch = torch.empty(scratch_bytes, dtype=torch.uint8)
        return self._scratch.data_ptr()

    def _build_layer(self, n: int) -> NativeLayer:
        shape, prefix = self.shape, f"blk.{n}."
        return NativeLayer(
            attention_norm=self._vector(f"{prefix}attn_norm.weight"),
            mlp_norm=self._vector(f"{prefix}ffn_norm.weight"),
            qkv=self._native_linear(f"{prefix}qkv", shape.hidden, (shape.heads + 2 * shape.kv_heads) * shape.dim),
            out=self._native_linear(f"{prefix}out", shape.heads * shape.dim, shape.hidden),
            gate_up=self._native_linear(f"{prefix}gate_up", shape.hidden, 2 * shape.mlp),
            down=self._native_linear(f"{prefix}down", shape.mlp, shape.hidden),
        )

    def _native_linear(self, name: str, inputs: int, outputs: int) -> NativeLinear:
        tiles = self._weights[name]
        bits = next((bits for bits, size in TILE_BYTES.items() if tiles.shape[-1] == size), 0)
        if not bits or tiles.shape[:2] != (outputs // LANES, inputs // GROUP):
            raise LoadError(
                f"The weights {name} do not fit the model's configuration: delete the cache and start again."
            )
        return NativeLinear(tiles.data_ptr(), None, bits, inputs, outputs)

    def _vector(self, name: str) -> int:
        return self._weights[name].data_ptr()
