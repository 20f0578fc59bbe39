"""The Llama family (Llama, SmolLM, Mistral, Qwen2, Qwen3): which models are of it, their sizes, and their rotations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.kinds import refusal

__all__ = ["LlamaShape", "refusal", "rope_tables"]


@dataclass(frozen=True, slots=True)
class LlamaShape:
    """Sizes of a model, from a `config.json` as transformers writes it.

    windows: of each layer, how many positions it looks back over, its own included; None for all.
    rope_speeds: radians a position for each pair of dimensions; rope_scale: what the rotated heads are multiplied by.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    dim: int
    mlp: int
    vocab_size: int
    context_len: int
    epsilon: float
    rope_speeds: tuple[float, ...]
    rope_scale: float = 1.0
    windows: tuple[int | None, ...] = ()
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    tied: bool = True

    @classmethod
    def read(cls, config: dict[str, Any], rope: tuple[Sequence[float], float] | None = None) -> LlamaShape:
        """rope: (speeds, scale), for another rotation than the default one, which is computed here.

        Raises KeyError for a size that is missing, ValueError for a rotation that nobody computed.
        """
        kind, heads, parameters = (
            config.get("model_type"),
            int(config["num_attention_heads"]),
            config["rope_parameters"],
        )
        dim = int(config.get("head_dim") or config["hidden_size"] // heads)
        if rope is None:
            if parameters.get("rope_type", "default") != "default":
                raise ValueError(f"the rotation {parameters['rope_type']} needs its speeds")
            rope = [float(parameters["rope_theta"]) ** (-2 * i / dim) for i in range(dim // 2)], 1.0
        biased = bool(config.get("attention_bias")) and kind != "mistral"
        return cls(
            layers=int(config["num_hidden_layers"]),
            hidden=int(config["hidden_size"]),
            heads=heads,
            kv_heads=int(config["num_key_value_heads"]),
            dim=dim,
            mlp=int(config["intermediate_size"]),
            vocab_size=int(config["vocab_size"]),
            context_len=int(config["max_position_embeddings"]),
            epsilon=float(config["rms_norm_eps"]),
            rope_speeds=tuple(rope[0]),
            rope_scale=rope[1],
            windows=_windows(config),
            qkv_bias=biased or kind == "qwen2",
            out_bias=biased and kind != "qwen2",
            mlp_bias=bool(config.get("mlp_bias")) and kind == "llama",
            qk_norm=kind == "qwen3",
            tied=bool(config.get("tie_word_embeddings")),
        )


def _windows(config: dict[str, Any]) -> tuple[int | None, ...]:
    """As transformers reads them: Mistral in every layer, Qwen where it is switched on, from a layer on or layer by layer."""
    kind, layers, window = config.get("model_type"), int(config["num_hidden_layers"]), config.get("sliding_window")
    if kind == "mistral":
        return (window,) * layers
    if kind not in ("qwen2", "qwen3") or not config.get("use_sliding_window"):
        return (None,) * layers
    first = config.get("max_window_layers", 28)
    types = config.get("layer_types") or ["sliding_attention" if n >= first else "" for n in range(layers)]
    return tuple(window if kind == "sliding_attention" else None for kind in types)


def rope_tables(shape: LlamaShape, begin: int = 0, end: int | None = None) -> tuple[Tensor, Tensor]:
    """Cosines and sines of positions begin..end (the whole context by default), [positions, dim / 2] each.

    float32 from float64 angles (Su et al., arXiv:2104.09864).
    """
    speeds = torch.tensor(shape.rope_speeds, dtype=torch.float64)
    angles = torch.arange(begin, shape.context_len if end is None else end, dtype=torch.float64)[:, None] * speeds
    return (angles.cos() * shape.rope_scale).float(), (angles.sin() * shape.rope_scale).float()
