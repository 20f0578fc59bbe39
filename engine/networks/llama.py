"""The forward pass of the Llama family (see llama_shape.py) in plain torch, over linear layers of any kind (linear.py).

Lean: joined projections, few operations, and nothing made for each layer that can be made once a pass. Attention gives
a row the same bits whatever rows are computed beside it; where the linear layers do so too, the whole network does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.errors import LoadError
from engine.kernels.native_sampler import NativeSampler
from engine.kernels.packing import Blocks, concatenate, select_rows
from engine.networks.attention import Span, collect_feature_layers, keep_features
from engine.networks.devices import move_to_device
from engine.networks.linear import Builder, Dense, Linear, Weight
from engine.networks.llama_shape import LlamaShape
from engine.networks.rope import rope_tables

KEYS = 512
"""Keys that torch's CPU attention takes at a time. Whole blocks of them, and at least MULTIPLE rows, keep it to one
order of summing: fewer rows take another path, and a block cut short another split. What is beyond the end has no
weight."""

MULTIPLE = 4

TABLE = 1024
"""Positions whose rotations are computed together, once."""


LINEARS = ("qkv", "out", "gate_up", "down")


@dataclass(slots=True)
class LlamaLayer:
    """qk_norm: [heads + kv heads, dim], what each normalised query and key is multiplied by; None where none is."""

    attention_norm: Tensor
    mlp_norm: Tensor
    qk_norm: Tensor | None
    qkv: Linear
    out: Linear
    gate_up: Linear
    down: Linear

    @property
    def weight_bytes(self) -> int:
        linears = sum(getattr(self, name).weight_bytes for name in LINEARS)
        return int(self.attention_norm.nbytes + self.mlp_norm.nbytes + linears)


class LeanLlama:
    """A `Network`. Hidden states, keys, values and features are all in one number format."""

    sampler: NativeSampler | None = None

    def __init__(
        self,
        shape: LlamaShape,
        weights: dict[str, Weight],
        make_linear: Builder,
        make_head: Builder | None = None,
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """weights: under transformers' names, on `device`. They are taken out as they are built in, so that a tensor
        that nobody else holds is freed as soon as it is joined, or quantised: never are all weights in memory twice.

        make_head: for the head, if other than make_linear. dtype: of the hidden states. Raises LoadError where weights
        do not fit the shape.
        """
        self.shape = shape
        self.vocab_size = shape.vocab_size
        self.device = device
        self._dtype = dtype
        vocabulary_shape = (shape.vocab_size, shape.hidden)
        self._embedding = _take(weights, "model.embed_tokens.weight", vocabulary_shape)
        self._layers = [self._build_layer(n, weights, make_linear) for n in range(shape.layers)]
        self._norm = self._vector(weights, "model.norm", shape.hidden)
        head_weight = self._embedding if shape.tied else _take(weights, "lm_head.weight", vocabulary_shape)
        self._head = (make_head or make_linear)(head_weight, None)
        self.weight_bytes = self._weight_bytes()
        self._cosine = self._sine = torch.empty(0, 1, shape.dim, dtype=dtype, device=device)

    def replace_linears(self, replace: Callable[[Linear], Linear]) -> None:
        """Every linear layer but the head, one after the other, so that what is replaced can be freed on the way."""
        for layer, name in itertools.product(self._layers, LINEARS):
            setattr(layer, name, replace(getattr(layer, name)))
        self.weight_bytes = self._weight_bytes()

    def move_to(self, device: torch.device, dtype: torch.dtype) -> None:
        """Take everything but the layers' matrices, which are there already, to a device, in a number format."""
        assert isinstance(self._embedding, Tensor) and isinstance(self._head, Dense)
        self.device, self._dtype = device, dtype
        self._embedding = move_to_device(self._embedding, device)
        head = self._embedding if self.shape.tied else move_to_device(self._head.weight, device)
        self._head = Dense(head, None, self._head.weight.dtype)
        self._norm = move_to_device(self._norm, device, dtype)
        for layer in self._layers:
            layer.attention_norm = move_to_device(layer.attention_norm, device, dtype)
            layer.mlp_norm = move_to_device(layer.mlp_norm, device, dtype)
            layer.qk_norm = None if layer.qk_norm is None else move_to_device(layer.qk_norm, device, dtype)
        self._cosine = self._sine = torch.empty(0, 1, self.shape.dim, dtype=dtype, device=device)
        self.weight_bytes = self._weight_bytes()

    def _weight_bytes(self) -> int:
        return self._head.weight_bytes + self._norm.nbytes + sum(layer.weight_bytes for layer in self._layers)

    def __call__(self, token_ids: Tensor, positions: Tensor, spans: Sequence[Span], logit_rows: Tensor) -> Tensor:
        shape, epsilon = self.shape, self.shape.epsilon
        feature_ids = collect_feature_layers(spans, shape.layers)
        hidden = self.embed(token_ids)
        rotation = self._rotation(positions, max(span.begin + span.count for span in spans))
        groups = shape.heads // shape.kv_heads
        masks = {
            window: [attention_mask(span, groups, window, hidden) for span in spans] for window in set(shape.windows)
        }
        for n, layer in enumerate(self._layers):
            if n in feature_ids:
                keep_features(n, hidden, spans)
            qkv = layer.qkv(rms_norm(hidden, layer.attention_norm, epsilon))
            hidden += layer.out(self._attention(n, qkv, rotation, spans, masks[shape.windows[n]]))
            gate, up = layer.gate_up(rms_norm(hidden, layer.mlp_norm, epsilon)).chunk(2, dim=-1)
            hidden += layer.down(F.silu(gate) * up)
        if shape.layers in feature_ids:
            keep_features(shape.layers, hidden, spans)
        if not len(logit_rows):
            return hidden.new_empty(0, shape.vocab_size)
        return self._head(rms_norm(hidden[logit_rows], self._norm, epsilon))

    def _attention(
        self, n: int, qkv: Tensor, rotation: tuple[Tensor, Tensor], spans: Sequence[Span], masks: Sequence[Tensor]
    ) -> Tensor:
        """qkv [rows, (heads + 2 kv heads) * dim], not yet rotated. Writes the caches; returns [rows, heads * dim]."""
        s = self.shape
        qkv = qkv.view(len(qkv), -1, s.dim)
        qk, values = qkv[:, : s.heads + s.kv_heads], qkv[:, s.heads + s.kv_heads :]
        scale = self._layers[n].qk_norm
        qk = rotate(qk if scale is None else rms_norm(qk, scale, s.epsilon), *rotation)
        queries, keys = qk[:, : s.heads], qk[:, s.heads :]
        outputs = []
        for span, mask in zip(spans, masks, strict=True):
            rows, end = slice(span.row, span.row + span.count), span.begin + span.count
            row_shape = (s.kv_heads, s.dim)
            layer_keys, layer_values = span.cache.reserve(
                n, span.begin, mask.shape[1], row_shape, self._dtype, self.device
            )
            layer_keys[:, span.begin : end] = keys[rows].transpose(0, 1)
            layer_values[:, span.begin : end] = values[rows].transpose(0, 1)
            outputs.append(attend(queries[rows], layer_keys, layer_values, mask))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def embed(self, token_ids: Tensor) -> Tensor:
        """[n, hidden], in the number format of the hidden states."""
        if isinstance(self._embedding, Blocks):
            return torch.from_numpy(select_rows(self._embedding, token_ids.numpy()).dequantise()).to(self._dtype)
        return self._embedding[token_ids].to(self._dtype)

    def _rotation(self, positions: Tensor, end: int) -> tuple[Tensor, Tensor]:
        """What `rotate` needs, [rows, 1, dim] each; from tables that grow as texts do, and never change."""
        while len(self._cosine) < end:
            cosine, sine = rope_tables(self.shape, len(self._cosine), len(self._cosine) + TABLE)
            new_tables = torch.cat([cosine, cosine], dim=-1), torch.cat([-sine, sine], dim=-1)
            self._cosine, self._sine = (
                torch.cat([table, move_to_device(new_rows[:, None], self.device, table.dtype)])
                for table, new_rows in zip((self._cosine, self._sine), new_tables, strict=True)
            )
        return self._cosine[positions], self._sine[positions]

    def _build_layer(self, n: int, weights: dict[str, Weight], make_linear: Builder) -> LlamaLayer:
        s, prefix = self.shape, f"model.layers.{n}."
        query, key = s.heads * s.dim, s.kv_heads * s.dim

        def linear(inputs: int, bias: bool, outputs: dict[str, int]) -> Linear:
            weights_of_part = [
                _take(weights, f"{prefix}{name}.weight", (size, inputs)) for name, size in outputs.items()
            ]
            biases = [self._vector(weights, f"{prefix}{name}", size, "bias") for name, size in outputs.items() if bias]
            return make_linear(_concatenate(weights_of_part), torch.cat(biases) if bias else None)

        scale = None
        if s.qk_norm:
            norm_parts = ((s.heads, "q_norm"), (s.kv_heads, "k_norm"))
            scale = torch.cat(
                [self._vector(weights, f"{prefix}self_attn.{x}", s.dim).expand(count, -1) for count, x in norm_parts]
            )
        return LlamaLayer(
            attention_norm=self._vector(weights, f"{prefix}input_layernorm", s.hidden),
            mlp_norm=self._vector(weights, f"{prefix}post_attention_layernorm", s.hidden),
            qk_norm=scale,
            qkv=linear(
                s.hidden, s.qkv_bias, {"self_attn.q_proj": query, "self_attn.k_proj": key, "self_attn.v_proj": key}
            ),
            out=linear(query, s.out_bias, {"self_attn.o_proj": s.hidden}),
            gate_up=linear(s.hidden, s.mlp_bias, {"mlp.gate_proj": s.mlp, "mlp.up_proj": s.mlp}),
            down=linear(s.mlp, s.mlp_bias, {"mlp.down_proj": s.hidden}),
        )

    def _vector(self, weights: dict[str, Weight], name: str, size: int, kind: str = "weight") -> Tensor:
        vector = _take(weights, f"{name}.{kind}", (size,))
        assert isinstance(vector, Tensor)
        return vector.to(self._dtype)


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """x / sqrt(mean(x^2) + epsilon) * weight over the last axis (Zhang and Sennrich, arXiv:1910.07467).

    On a CPU torch's own is made of twice as many operations.
    """
    if x.dtype != torch.float32 or x.device.type != "cpu":
        return F.rms_norm(x, x.shape[-1:], None, epsilon) * weight
    norm: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return (x * norm.square_().div_(x.shape[-1]).add_(epsilon).rsqrt_()).mul_(weight)


def rotate(heads: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary embedding (Su et al., arXiv:2104.09864), of dimension i with i + dim / 2. heads: [rows, any, dim].

    cosine, sine: [rows, 1, dim]; the first half of the sines is negative.
    """
    return (heads * cosine).addcmul_(heads.roll(heads.shape[-1] // 2, -1), sine)


def attention_mask(span: Span, groups: int, window: int | None, like: Tensor) -> Tensor:
    """The mask of `attend` for all layers of this window: 0 where a query may look, else -inf; of like's number format
    and device.

    [count * groups and at least as many rows as keep to one order of summing, keys in whole blocks].
    """
    end = span.begin + span.count
    query_positions = torch.arange(_round_up(span.count * groups, MULTIPLE), device=like.device)
    query_positions = query_positions.div_(groups, rounding_mode="floor").add_(span.begin)[:, None]
    key_positions = torch.arange(_round_up(end, KEYS), device=like.device)
    masked_keys = key_positions > query_positions
    if window is not None:
        masked_keys |= key_positions <= query_positions - window
    return like.new_zeros(masked_keys.shape).masked_fill_(masked_keys, float("-inf"))


def attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Attention of queries [count, heads, dim] to one cache, keys and values [kv heads, capacity, dim].

    mask: [count * groups or more, at most capacity]. The heads that share keys are folded into rows, a row's together;
    what the mask has more of them is filled up with zeros. Returns [count, heads * dim].
    """
    count, heads, dim = queries.shape
    kv_heads, groups = len(keys), heads // len(keys)
    folded_queries = (
        queries.reshape(count, kv_heads, groups, dim).transpose(0, 1).reshape(1, kv_heads, count * groups, dim)
    )
    if len(mask) > count * groups:
        folded_queries = F.pad(folded_queries, (0, 0, 0, len(mask) - count * groups))
    width = mask.shape[1]
    attended_values = F.scaled_dot_product_attention(
        folded_queries, keys[None, :, :width], values[None, :, :width], mask
    )
    attended_values = attended_values[0, :, : count * groups].reshape(kv_heads, count, groups, dim)
    return attended_values.transpose(0, 1).reshape(count, heads * dim)


def _round_up(n: int, block: int) -> int:
    return -(-n // block) * block


def _take(weights: dict[str, Weight], name: str, size: tuple[int, ...]) -> Weight:
    """Taken out of `weights`. Raises LoadError."""
    weight = weights.pop(name, None)
    if weight is None or tuple((weight.quants if isinstance(weight, Blocks) else weight).shape) != size:
        raise LoadError(
            f"The weights {name} are missing or do not fit the model's configuration: fetch the model again."
        )
    return weight


def _concatenate(matrices: list[Weight]) -> Weight:
    """Several matrices over the same inputs as one, their outputs one after the other."""
    blocks = [matrix for matrix in matrices if isinstance(matrix, Blocks)]
    if len(blocks) == len(matrices):
        return concatenate(blocks)
    tensors = [matrix for matrix in matrices if isinstance(matrix, Tensor)]
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors)
