"""The lean forward pass against transformers' own, on tiny random models of each kind, and what it leaves to transformers."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from engine import exactness
from engine.errors import EngineError, LoadError
from engine.linear import Dense, Linear, Weight, values
from engine.llama import LeanLlama, attend, rms_norm
from engine.llama_shape import LlamaShape, refusal, rope_tables
from engine.model import Cache, Model, Request, TransformersNetwork, attend_spans
from engine.native.tiles import Blocks

VOCAB = 50
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64}
QWEN_WINDOWS = {"use_sliding_window": True, "sliding_window": 8}

CONFIGS: dict[str, Callable[[], Any]] = {
    "llama": lambda: transformers.LlamaConfig(**SIZES),
    "llama tied": lambda: transformers.LlamaConfig(**SIZES, tie_word_embeddings=True),
    "llama with biases": lambda: transformers.LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True),
    "llama with wide heads": lambda: transformers.LlamaConfig(**SIZES, head_dim=24),
    "llama, a key head each": lambda: transformers.LlamaConfig(**SIZES | {"num_key_value_heads": 4}),
    "llama, one key head": lambda: transformers.LlamaConfig(**SIZES | {"num_key_value_heads": 1}),
    "llama, linear rope": lambda: transformers.LlamaConfig(
        **SIZES, rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 3.0}
    ),
    "llama, llama3 rope": lambda: transformers.LlamaConfig(**SIZES, rope_parameters=LLAMA3),
    "llama, yarn rope": lambda: transformers.LlamaConfig(**SIZES, rope_parameters=YARN),
    "smollm": lambda: transformers.LlamaConfig(
        **SIZES | {"num_attention_heads": 3, "num_key_value_heads": 1, "hidden_size": 48},
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1e5},
        rms_norm_eps=1e-5,
    ),
    "mistral": lambda: transformers.MistralConfig(**SIZES, sliding_window=8),
    "mistral without a window": lambda: transformers.MistralConfig(**SIZES, sliding_window=None),
    "qwen2": lambda: transformers.Qwen2Config(**SIZES),
    "qwen2, windows from layer 1": lambda: transformers.Qwen2Config(**SIZES, **QWEN_WINDOWS, max_window_layers=1),
    "qwen3": lambda: transformers.Qwen3Config(**SIZES, head_dim=24),
    "qwen3, windows by layer": lambda: transformers.Qwen3Config(
        **SIZES, **QWEN_WINDOWS, layer_types=["sliding_attention", "full_attention", "sliding_attention"]
    ),
    "qwen3 with biases": lambda: transformers.Qwen3Config(**SIZES, attention_bias=True, tie_word_embeddings=True),
}


def random_model(config: Any) -> Any:
    """float32, with weights large enough that a wrong norm, bias, rotation or mask shows, and no parameter at its default."""
    torch.manual_seed(3)
    config.initializer_range = 0.2
    model = transformers.AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            parameter.uniform_(0.5, 1.5) if "norm" in name else parameter.normal_()
    return model


def dense(weight: Weight, bias: torch.Tensor | None) -> Linear:
    return Dense(values(weight), bias, torch.float32)


def shape_of(config: Any) -> LlamaShape:
    name = config.rope_parameters["rope_type"]
    if name == "default":
        return LlamaShape.read(config.to_dict())
    speeds, scale = ROPE_INIT_FUNCTIONS[name](config)
    return LlamaShape.read(config.to_dict(), (speeds.tolist(), scale))


def lean(hf: Any, make: Callable[..., Linear] = dense, **options: Any) -> LeanLlama:
    options = {"dtype": torch.float32, "device": torch.device("cpu")} | options
    return LeanLlama(shape_of(hf.config), dict(hf.state_dict()), make, **options)


def expected_of(hf: Any, ids: list[int]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Logits [n, vocabulary], and features: what enters each layer, then what leaves the last, [n, hidden] each."""
    hf.set_attn_implementation("eager")
    last: list[torch.Tensor] = []
    hook = hf.base_model.layers[-1].register_forward_hook(lambda *x: last.append(x[2]))
    with torch.inference_mode():
        out = hf(input_ids=torch.tensor([ids]), output_hidden_states=True)
    hook.remove()
    return out.logits[0], [state[0] for state in (*out.hidden_states[:-1], last[0])]


def some_ids(n: int, seed: int = 2) -> list[int]:
    return [random.Random(seed).randrange(VOCAB) for _ in range(n)]


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found.float(), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", CONFIGS)
def test_logits_are_those_of_transformers(kind: str) -> None:
    hf = random_model(CONFIGS[kind]())
    assert refusal(hf.config.to_dict()) is None
    ids = some_ids(60)
    expected, _ = expected_of(hf, ids)
    model = Model(lean(hf), 2048)
    close(model.forward([Request(ids, 60, Cache())])[0], expected)
    cache, other = Cache(), Cache()
    for begin, end in ((0, 1), (1, 17), (17, 20), (20, 21), (21, 60)):  # in pieces, another request in every pass
        pieces = model.forward([Request(ids[:end], end - begin, cache), Request(ids[5 : 5 + end], 1, other)])
        close(pieces[0], expected[begin:end])
    rejected = model.forward([Request([*ids[:30], 1, 2, 3], 4, cache)])[0]
    close(rejected[0], expected[29])
    close(model.forward([Request(ids, 5, cache)])[0], expected[-5:])
