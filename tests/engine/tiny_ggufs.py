"""Tiny GGUF files of every family and type that is read, and what each type's bytes mean, written out from the
format."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

from engine.loading.gguf.files import FAMILIES, OUTER_NAMES
from tests.engine import tokenisers

Array = np.ndarray
HIDDEN, MLP, LAYERS, HEADS, KV_HEADS, DIM, ROWS, CONTEXT = 256, 512, 2, 4, 2, 64, 416, 512
"""Sizes that every type and every kernel can take; more rows than the tokeniser has tokens."""

PERMUTED = ("llama",)
NORMS_ABOVE = {"gemma3": 1.0}
"""What llama.cpp's conversion does to a family, as it is there and not as it is undone here."""

SIZES = {
    "vocab_size": ROWS,
    "hidden_size": HIDDEN,
    "intermediate_size": MLP,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": DIM,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.1,
    "pad_token_id": None,
}


# ------------------------------------------------------------------------------------------ what the bytes mean


def _half(data: Array) -> Array:
    return np.ascontiguousarray(data).view(np.float16).astype(np.float64)


def _nibbles(data: Array) -> Array:
    return np.concatenate([data & 15, data >> 4], axis=-1).astype(np.float64)


def _fifth(data: Array) -> Array:
    """The fifth bit of 32 quants, from four bytes."""
    bits = np.ascontiguousarray(data).view(np.uint32)
    return ((bits >> np.arange(32, dtype=np.uint32)) & 1) * 16.0


def _scales_and_minima(s: Array) -> tuple[Array, Array]:
    """Eight of each in 12 bytes, six bits a piece."""
    low, mid, high = (s[:, begin : begin + 4].astype(int) for begin in (0, 4, 8))
    scales = np.concatenate([low & 63, (high & 15) | ((low >> 6) << 4)], axis=1)
    minima = np.concatenate([mid & 63, (high >> 4) | ((mid >> 6) << 4)], axis=1)
    return scales.astype(float), minima.astype(float)


def _pairs_of_32(qs: Array) -> Array:
    """[blocks, 8, 32] from 128 bytes: of each 32 bytes the low halves, then the high ones."""
    parts = qs.reshape(-1, 4, 1, 32)
    return np.concatenate([parts & 15, parts >> 4], axis=2).reshape(-1, 8, 32).astype(float)


def _q4_k(b: Array) -> Array:
    scales, minima = _scales_and_minima(b[:, 4:16])
    return _half(b[:, :2])[..., None] * scales[..., None] * _pairs_of_32(b[:, 16:]) - (
        _half(b[:, 2:4])[..., None] * minima[..., None]
    )


def _q5_k(b: Array) -> Array:
    scales, minima = _scales_and_minima(b[:, 4:16])
    fifth = ((b[:, None, 16:48] >> np.arange(8)[:, None]) & 1) * 16.0
    quants = _pairs_of_32(b[:, 48:]) + fifth
    return _half(b[:, :2])[..., None] * scales[..., None] * quants - _half(b[:, 2:4])[..., None] * minima[..., None]


def _q6_k(b: Array) -> Array:
    low, high = b[:, :128].reshape(-1, 2, 64), b[:, 128:192].reshape(-1, 2, 32)
    quarter = [low[:, :, :32] & 15, low[:, :, 32:] & 15, low[:, :, :32] >> 4, low[:, :, 32:] >> 4]
    quants = np.stack([q.astype(int) | (((high >> 2 * i) & 3).astype(int) << 4) for i, q in enumerate(quarter)], axis=2)
    scales = np.ascontiguousarray(b[:, 192:208]).view(np.int8).astype(float)
    return _half(b[:, 208:])[..., None] * scales[..., None] * (quants.reshape(-1, 16, 16) - 32.0)


MEANING: dict[str, tuple[int, int, Callable[[Array], Array]]] = {
    "F32": (1, 4, lambda b: np.ascontiguousarray(b).view(np.float32).astype(np.float64)),
    "F16": (1, 2, _half),
    "BF16": (1, 2, lambda b: (np.ascontiguousarray(b).view(np.uint16).astype(np.uint32) << 16).view(np.float32)),
    "Q4_0": (32, 18, lambda b: _half(b[:, :2]) * (_nibbles(b[:, 2:]) - 8)),
    "Q4_1": (32, 20, lambda b: _half(b[:, :2]) * _nibbles(b[:, 4:]) + _half(b[:, 2:4])),
    "Q5_0": (32, 22, lambda b: _half(b[:, :2]) * (_nibbles(b[:, 6:]) + _fifth(b[:, 2:6]) - 16)),
    "Q5_1": (32, 24, lambda b: _half(b[:, :2]) * (_nibbles(b[:, 8:]) + _fifth(b[:, 4:8])) + _half(b[:, 2:4])),
    "Q8_0": (32, 34, lambda b: _half(b[:, :2]) * np.ascontiguousarray(b[:, 2:]).view(np.int8)),
    "Q4_K": (256, 144, _q4_k),
    "Q5_K": (256, 176, _q5_k),
    "Q6_K": (256, 210, _q6_k),
}
"""Numbers in a block, its bytes, and what [blocks, bytes] mean (ggml's ggml-quants.c, dequantize_row_*)."""


def meaning(kind: str, data: Array) -> Array:
    """float32 [outputs, inputs] of uint8 [outputs, bytes]."""
    size = MEANING[kind][1]
    return MEANING[kind][2](data.reshape(-1, size)).reshape(len(data), -1).astype(np.float32)


def some_bytes(kind: str, outputs: int, inputs: int, rng: np.random.Generator) -> Array:
    """A matrix of about the size that a network likes, in a type."""
    if not kind.endswith("_K"):
        matrix = rng.normal(0, inputs**-0.5, (outputs, inputs)).astype(np.float32)
        made = gguf.quants.quantize(matrix, gguf.GGMLQuantizationType[kind])
        return np.ascontiguousarray(made).view(np.uint8).reshape(outputs, -1)
    block, size, _ = MEANING[kind]
    data = rng.integers(0, 256, (outputs * inputs // block, size), dtype=np.uint8)
    unit = np.float16(0.06 / (1300 if kind == "Q6_K" else 200 if kind == "Q4_K" else 400))
    for at, number in {"Q6_K": {208: unit}}.get(kind, {0: unit, 2: unit * (7.5 if kind == "Q4_K" else 15.5)}).items():
        data[:, at : at + 2] = np.frombuffer(np.float16(number).tobytes(), np.uint8)
    return data.reshape(outputs, -1)


# -------------------------------------------------------------------------------------------------- whole files


def permuted(array: Array, heads: int) -> Array:
    """GGUF's order of the rows of q and k, from transformers'."""
    return array.reshape(heads, 2, -1, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def unpermuted(array: Array, heads: int) -> Array:
    return array.reshape(heads, -1, 2, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def random_model(architecture: str, **changes: Any) -> Any:
    """A transformers model of the family, of weights that bf16 can hold."""
    import transformers

    kinds = {
        "llama": transformers.LlamaConfig,
        "qwen2": transformers.Qwen2Config,
        "qwen3": transformers.Qwen3Config,
        "gemma3": transformers.Gemma3TextConfig,
    }
    torch.manual_seed(changes.pop("seed", 0))
    config = kinds[architecture](**SIZES | {"tie_word_embeddings": True} | changes)
    model = transformers.AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:  # norms and biases start as ones and zeros, which would hide mistakes
            parameter.add_(torch.randn_like(parameter) * 0.2)
        parameter.copy_(parameter.bfloat16())
        assert parameter.isfinite().all(), name
    return model


def names(architecture: str, layers: int = LAYERS) -> dict[str, str]:
    """GGUF's name of each tensor by transformers' name."""
    family = FAMILIES[architecture]
    found = {f"{ours}.weight": f"{theirs}.weight" for theirs, ours in OUTER_NAMES.items()}
    for n in range(layers):
        for theirs, ours in family.layer_names.items():
            found |= {f"model.layers.{n}.{ours}.{x}": f"blk.{n}.{theirs}.{x}" for x in ("weight", "bias")}
    return found


def arrays_of(architecture: str, model: Any) -> dict[str, Array]:
    """float32 by GGUF's names, as llama.cpp's conversion writes them."""
    config = model.config
    ours = names(architecture, config.num_hidden_layers)
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    found = {}
    for name, value in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        array, kind = value.float().numpy(), ours[name].split(".")[-2]
        if architecture in PERMUTED and kind in heads:
            array = permuted(array, heads[kind])
        found[ours[name]] = array + np.float32(NORMS_ABOVE.get(architecture, 0.0)) if kind.endswith("norm") else array
    return found


def facts_of(architecture: str, model: Any) -> dict[str, Any]:
    """The file's key-values on the model, as llama.cpp's conversion writes them."""
    config = model.config
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    found = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
        "rope.freq_base": float(rope["rope_theta"]),
        "attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
    }
    if architecture == "gemma3":
        found["attention.sliding_window"] = config.sliding_window
    return {f"{architecture}.{name}": value for name, value in found.items()}


def byte_level_facts(pre: str = "smollm") -> dict[str, Any]:
    backend = tokenisers.byte_level()
    vocabulary = sorted(backend.get_vocab(with_added_tokens=True).items(), key=lambda item: item[1])
    added = {token.content: token.special for token in backend.get_added_tokens_decoder().values()}
    merges = json.loads(backend.to_str())["model"]["merges"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [token for token, _ in vocabulary],
        "tokenizer.ggml.token_type": [{None: 1, True: 3, False: 4}[added.get(token)] for token, _ in vocabulary],
        "tokenizer.ggml.merges": [merge if isinstance(merge, str) else " ".join(merge) for merge in merges],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": tokenisers.CHATML,
    }


def write(path: Path, architecture: str, facts: Mapping[str, Any], tensors: Mapping[str, tuple[str, Array]]) -> Path:
    """tensors: type and data by name; data float32, or uint8 [outputs, bytes] as the type has them."""
    writer = gguf.GGUFWriter(path, architecture)
    kinds = gguf.GGUFValueType
    for name, value in facts.items():
        if isinstance(value, list):
            writer.add_array(name, value)
        else:
            kind = {bool: kinds.BOOL, int: kinds.UINT32, float: kinds.FLOAT32, str: kinds.STRING}[type(value)]
            writer.add_key_value(name, value, kind)
    for name, (kind, data) in tensors.items():
        raw = None if kind == "F32" and data.dtype == np.float32 else gguf.GGMLQuantizationType[kind]
        writer.add_tensor(name, np.ascontiguousarray(data), raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_model(path: Path, architecture: str, model: Any, **facts: Any) -> Path:
    """All weights as float32."""
    tensors = {name: ("F32", array) for name, array in arrays_of(architecture, model).items()}
    return write(path, architecture, facts_of(architecture, model) | byte_level_facts() | facts, tensors)


def write_quantised(path: Path, architecture: str, model: Any, types: str | Callable[[str], str], **facts: Any) -> Path:
    """Every matrix random, in one type or in one by its name; the model gets what the bytes mean."""
    rng = np.random.default_rng(1)
    heads = {"attn_q": model.config.num_attention_heads, "attn_k": model.config.num_key_value_heads}
    theirs = {ours: name for name, ours in names(architecture).items()}
    state, tensors = model.state_dict(), {}
    for name, array in arrays_of(architecture, model).items():
        if array.ndim == 1:
            tensors[name] = ("F32", array)
            continue
        kind = types if isinstance(types, str) else types(name)
        data = some_bytes(kind, *array.shape, rng)
        tensors[name] = (kind, data)
        matrix, part = meaning(kind, data), name.split(".")[-2]
        if architecture in PERMUTED and part in heads:
            matrix = unpermuted(matrix, heads[part])
        state[theirs[name]].copy_(torch.from_numpy(np.ascontiguousarray(matrix)))
    return write(path, architecture, facts_of(architecture, model) | byte_level_facts() | facts, tensors)
