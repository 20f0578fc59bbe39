"""The Llama family (Llama, SmolLM, Mistral, Qwen2, Qwen3): which models are of it, their sizes, and their rotations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


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
        has_bias = bool(config.get("attention_bias")) and kind != "mistral"
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
            qkv_bias=has_bias or kind == "qwen2",
            out_bias=has_bias and kind != "qwen2",
            mlp_bias=bool(config.get("mlp_bias")) and kind == "llama",
            qk_norm=kind == "qwen3",
            tied=bool(config.get("tie_word_embeddings")),
        )


def _windows(config: dict[str, Any]) -> tuple[int | None, ...]:
    """As transformers reads them: Mistral in every layer, Qwen where it is switched on, all or some layers."""
    kind, layers, window = config.get("model_type"), int(config["num_hidden_layers"]), config.get("sliding_window")
    if kind == "mistral":
        return (window,) * layers
    if kind not in ("qwen2", "qwen3") or not config.get("use_sliding_window"):
        return (None,) * layers
    first = config.get("max_window_layers", 28)
    types = config.get("layer_types") or ["sliding_attention" if n >= first else "" for n in range(layers)]
    return tuple(window if kind == "sliding_attention" else None for kind in types)


LLAMA_FAMILY = ("llama", "mistral", "qwen2", "qwen3")


STATIC_ROPES = ("default", "linear", "llama3", "yarn")
"""Rotations that depend on the position alone. In the others (dynamic, longrope) the speeds change with the length of
the text, and with them every key that a cache already holds."""


def refusal(config: dict[str, Any]) -> str | None:
    """Why a model cannot run here, as a phrase, or None where it can. config: as transformers' `to_dict` gives it."""
    rope = config.get("rope_parameters") or {}
    heads, kv_heads = config.get("num_attention_heads") or 0, config.get("num_key_value_heads") or 0
    checks = (
        (config.get("model_type") in LLAMA_FAMILY, f"its kind is {config.get('model_type')}"),
        (config.get("hidden_act") == "silu", f"its activation is {config.get('hidden_act')}"),
        (not config.get("quantization_config"), "its weights are quantised"),
        (rope.get("rope_type", "default") in STATIC_ROPES, f"its rotation is {rope.get('rope_type')}"),
        (float(rope.get("partial_rotary_factor") or 1.0) == 1.0, "it rotates a part of each head"),
        (heads and kv_heads and heads % kv_heads == 0, f"{kv_heads} key heads are shared by {heads} heads"),
        ((config.get("head_dim") or 2) % 2 == 0, f"its heads have {config.get('head_dim')} dimensions"),
    )
    return next((reason for is_met, reason in checks if not is_met), None)
