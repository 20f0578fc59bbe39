"""The Llama family: sizes and rotations, shared by every way to run it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class LlamaShape:
    """Sizes of a model, from a `config.json` as transformers writes it."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    dim: int
    mlp: int
    vocab_size: int
    context_len: int
    epsilon: float
    rope_base: float

    @classmethod
    def read(cls, config: dict[str, Any]) -> LlamaShape:
        heads = int(config["num_attention_heads"])
        return cls(
            layers=int(config["num_hidden_layers"]),
            hidden=int(config["hidden_size"]),
            heads=heads,
            kv_heads=int(config["num_key_value_heads"]),
            dim=int(config.get("head_dim") or config["hidden_size"] // heads),
            mlp=int(config["intermediate_size"]),
            vocab_size=int(config["vocab_size"]),
            context_len=int(config["max_position_embeddings"]),
            epsilon=float(config["rms_norm_eps"]),
            rope_base=float(config["rope_parameters"]["rope_theta"]),
        )


def rope_tables(shape: LlamaShape) -> tuple[Tensor, Tensor]:
    """Cosines and sines [context_len, dim / 2], float32 from float64 angles (Su et al., arXiv:2104.09864)."""
    speeds = shape.rope_base ** (-torch.arange(0, shape.dim, 2, dtype=torch.float64) / shape.dim)
    angles = torch.arange(shape.context_len, dtype=torch.float64)[:, None] * speeds
    return angles.cos().float(), angles.sin().float()
