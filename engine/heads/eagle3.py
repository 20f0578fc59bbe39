"""The EAGLE-3 style draft head: its sizes, its mathematics in plain torch, and nothing of how it is used.

Li et al., arXiv:2503.01840. Hidden states of a few of the target's layers are joined to one; a decoder layer reads
[embedding of the next token, joined state] and gives a state, from which a reduced vocabulary's logits follow. A draft
step feeds on the state that the step before it gave. Weights go by the names of the `speculators` format.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.networks.kv_cache import KVCache
from engine.networks.llama_shape import LlamaShape

Weights = dict[str, Tensor]
FIRST = "layers.0."


@dataclass(frozen=True, slots=True)
class HeadConfig:
    """shape: of the head's decoder layers, its vocab_size the target's. feature_layers: as `KVCache.feature_layers`.

    normed_residual: whether the layer adds to the normed state instead of the state itself ("norm_before_residual").
    joint_norm, feature_norm: one norm over all joined states ("norm_before_fc"), or one for each ("fc_norm").
    feeds_normed: whether a draft step reads the normed state ("norm_output"). acceptance: chance that the draft of each
    step is the target's choice, when those before it were; () if unknown.
    """

    shape: LlamaShape
    draft_vocab_size: int
    feature_layers: tuple[int, ...]
    target: str = ""
    normed_residual: bool = False
    joint_norm: bool = False
    feature_norm: bool = False
    feeds_normed: bool = False
    acceptance: tuple[float, ...] = ()


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], weight, epsilon)


def rotate(heads: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Dimension i with i + dim / 2. heads [rows, any, dim]; cosine, sine [rows, dim / 2]."""
    a, b = heads.chunk(2, dim=-1)
    cosine, sine = cosine[:, None], sine[:, None]
    return torch.cat([a * cosine - b * sine, a * sine + b * cosine], dim=-1)


def feature_norms(weights: Weights, config: HeadConfig, features: Tensor) -> Tensor:
    """features [rows, layers, hidden] -> what `fc` reads, [rows, layers * hidden]."""
    epsilon = config.shape.epsilon
    if config.feature_norm:
        norms = [weights[f"fc_norm.{i}.weight"] for i in range(features.shape[1])]
        features = torch.stack([rms_norm(features[:, i], norm, epsilon) for i, norm in enumerate(norms)], dim=1)
    concatenated_features = features.flatten(1)
    return (
        rms_norm(concatenated_features, weights["input_norm.weight"], epsilon)
        if config.joint_norm
        else concatenated_features
    )


def join(weights: Weights, config: HeadConfig, features: Tensor) -> Tensor:
    """features [rows, layers, hidden] -> the state that the head starts from, [rows, hidden]."""
    return F.linear(feature_norms(weights, config, features), weights["fc.weight"])


def attention_input(weights: Weights, config: HeadConfig, embeddings: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """What the first layer's projections read, [rows, 2 hidden], and what the layer adds to, [rows, hidden]."""
    epsilon = config.shape.epsilon
    state_norm = rms_norm(state, weights[f"{FIRST}hidden_norm.weight"], epsilon)
    concatenated_input = torch.cat(
        [rms_norm(embeddings, weights[f"{FIRST}input_layernorm.weight"], epsilon), state_norm], dim=-1
    )
    return concatenated_input, state_norm if config.normed_residual else state


def project(weights: Weights, config: HeadConfig, n: int, x: Tensor, kind: str) -> Tensor:
    """Queries, keys or values of layer n, kind = "q", "k" or "v", [rows, heads, dim], not yet rotated."""
    prefix = f"layers.{n}.self_attn."
    projection = F.linear(x, weights[f"{prefix}{kind}_proj.weight"], weights.get(f"{prefix}{kind}_proj.bias"))
    heads = projection.view(len(x), projection.shape[1] // config.shape.dim, config.shape.dim)
    norm = weights.get(f"{prefix}{kind}_norm.weight")
    return heads if norm is None else rms_norm(heads, norm, config.shape.epsilon)


def finish_layer(weights: Weights, config: HeadConfig, n: int, residual: Tensor, attention_output: Tensor) -> Tensor:
    """The rest of layer n behind its attention. attention_output [rows, heads * dim] -> [rows, hidden]."""
    prefix = f"layers.{n}."
    x = residual + F.linear(
        attention_output, weights[f"{prefix}self_attn.o_proj.weight"], weights.get(f"{prefix}self_attn.o_proj.bias")
    )
    mlp_input = rms_norm(x, weights[f"{prefix}post_attention_layernorm.weight"], config.shape.epsilon)
    gate, up = (F.linear(mlp_input, weights[f"{prefix}mlp.{half}_proj.weight"]) for half in ("gate", "up"))
    mlp_hidden = F.silu(gate) * up
    return x + F.linear(mlp_hidden, weights[f"{prefix}mlp.down_proj.weight"])


def next_input(weights: Weights, config: HeadConfig, state: Tensor) -> Tensor:
    """What the next draft step reads of the state that a step gave, [rows, hidden]."""
    return rms_norm(state, weights["norm.weight"], config.shape.epsilon) if config.feeds_normed else state


def logits(weights: Weights, config: HeadConfig, state: Tensor) -> Tensor:
    """[rows, hidden] -> [rows, draft vocabulary]."""
    return F.linear(rms_norm(state, weights["norm.weight"], config.shape.epsilon), weights["lm_head.weight"])


class Head(Protocol):
    """The head's forward pass. ids int64 [draft vocabulary]: the target's id of each draft id."""

    config: HeadConfig
    ids: Tensor
    device: torch.device

    def join(self, features: Tensor) -> Tensor:
        """[n, feature layers, hidden] -> states [n, hidden]."""
        ...

    def run(self, token_ids: Tensor, state: Tensor, begin: int, cache: KVCache, keys_only: bool = False) -> Tensor:
        """Entries begin..begin + n of tokens int64 [n] and states [n, hidden] -> states [n, hidden].

        keys_only: only fill the cache; what is returned means nothing.
        """
        ...

    def next_input(self, state: Tensor) -> Tensor:
        """What a draft step reads of the state [n, hidden] that the step before it gave."""
        ...

    def logits(self, state: Tensor) -> Tensor:
        """[n, hidden] -> float32 [n, draft vocabulary] on the CPU."""
        ...

    def choice(self, logits: Tensor) -> tuple[int, float]:
        """The likeliest draft id of logits [1, draft vocabulary] and its probability, no number where they hold
        none."""
        ...
