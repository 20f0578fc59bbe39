"""Tiny GGUF files of every family and type that is read."""

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
Tensors = dict[str, tuple[str, Array]]
HIDDEN, LAYERS, DIM, ROWS = 256, 2, 64, 416
SIZES = {
    "vocab_size": ROWS, "hidden_size": HIDDEN, "intermediate_size": 512, "num_hidden_layers": LAYERS, "head_dim": DIM,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512, "initializer_range": 0.1,
    "pad_token_id": None,
}  # fmt: skip
"""What every type and every kernel can take; more rows than the tokeniser has tokens."""

SCALES = {
    "Q2_K": {80: 6e-3, 82: 9e-3}, "Q3_K": {108: 1.5e-3}, "Q4_K": {0: 3e-4, 2: 2.2e-3}, "Q5_K": {0: 1.5e-4, 2: 2.3e-3},
    "Q6_K": {208: 4.6e-5},
}  # fmt: skip
"""Half floats in a block, and values that make random quants about as large as weights."""


def _rounded(kind: str, matrix: Array) -> Array:
    """uint8 [outputs, bytes]: as ggml's package rounds it, or random where the package reads a type and makes none."""
    number = gguf.GGMLQuantizationType[kind]
    try:
        made = gguf.quants.quantize(matrix, number)
    except NotImplementedError:
        block, size = gguf.GGML_QUANT_SIZES[number]
        made = np.random.default_rng(1).integers(0, 256, (matrix.size // block, size), np.uint8)
        for at, scale in SCALES.get(kind, {}).items():
            made[:, at : at + 2] = np.frombuffer(np.float16(scale).tobytes(), np.uint8)
    return np.ascontiguousarray(made).view(np.uint8).reshape(len(matrix), -1)


def permuted(array: Array, heads: int) -> Array:
    """GGUF's order of the rows of q and k, from transformers'."""
    return array.reshape(heads, 2, -1, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def random_model(architecture: str, **changes: Any) -> Any:
    """A transformers model of the family, of weights that bf16 can hold."""
    import transformers

    kind = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "gemma3": "Gemma3Text"}[architecture]
    torch.manual_seed(changes.pop("seed", 0))
    config = getattr(transformers, f"{kind}Config")(**SIZES | {"tie_word_embeddings": True} | changes)
    model = transformers.AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    for parameter in model.parameters():
        if parameter.ndim == 1:  # norms and biases start as ones and zeros, which would hide mistakes
            parameter.add_(torch.randn_like(parameter) * 0.2)
        parameter.copy_(parameter.bfloat16())
    return model


def parts_of(
    architecture: str, model: Any, types: str | Callable[[str], str] = "F32"
) -> tuple[dict[str, Any], Tensors]:
    """A file's facts and tensors, as llama.cpp's conversion writes them. types: of all matrices, or of each by its
    name; what they lose is lost in the model too."""
    config = model.config
    names = {ours: theirs for theirs, ours in OUTER_NAMES.items()}
    for n in range(config.num_hidden_layers):
        layer = FAMILIES[architecture].layer_names.items()
        names |= {f"model.layers.{n}.{ours}": f"blk.{n}.{theirs}" for theirs, ours in layer}
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    tensors: Tensors = {}
    for full_name, value in model.state_dict().items():
        name, _, suffix = full_name.rpartition(".")
        if name == "lm_head" and config.tie_word_embeddings:
            continue
        array, part, gguf_name = value.float().numpy(), name.split(".")[-1], f"{names[name]}.{suffix}"
        kind = "F32" if array.ndim == 1 else types if isinstance(types, str) else types(gguf_name)
        if kind != "F32":
            array = _rounded(kind, array)
            value.copy_(torch.from_numpy(gguf.quants.dequantize(array, gguf.GGMLQuantizationType[kind])))
        if architecture == "llama" and part in heads:
            array = permuted(array, heads[part])
        if architecture == "gemma3" and part.endswith("norm"):
            array = array + np.float32(1)
        tensors[gguf_name] = (kind, array)
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    facts = {
        "block_count": config.num_hidden_layers, "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size, "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads, "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": config.head_dim, "attention.value_length": config.head_dim,
        "rope.freq_base": float(rope["rope_theta"]), "attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
    }  # fmt: skip
    if architecture == "gemma3":
        facts["attention.sliding_window"] = config.sliding_window
    return {f"{architecture}.{name}": value for name, value in facts.items()} | byte_level_facts(), tensors


def byte_level_facts(pre: str = "smollm") -> dict[str, Any]:
    backend = tokenisers.byte_level()
    tokens = [str(backend.id_to_token(i)) for i in range(backend.get_vocab_size())]
    added = {token.content: 3 if token.special else 4 for token in backend.get_added_tokens_decoder().values()}
    facts = {
        "model": "gpt2", "pre": pre, "tokens": tokens, "token_type": [added.get(token, 1) for token in tokens],
        "merges": [" ".join(merge) for merge in json.loads(backend.to_str())["model"]["merges"]],
        "bos_token_id": 1, "eos_token_id": 2, "add_bos_token": False,
    }  # fmt: skip
    return {f"tokenizer.ggml.{k}": v for k, v in facts.items()} | {"tokenizer.chat_template": tokenisers.CHATML}


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
    for name, (type_name, data) in tensors.items():
        raw = None if type_name == "F32" else gguf.GGMLQuantizationType[type_name]
        writer.add_tensor(name, np.ascontiguousarray(data), raw_dtype=raw)
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    return path


def write_model(
    path: Path, architecture: str, model: Any, types: str | Callable[[str], str] = "F32", **facts: Any
) -> Path:
    usual, tensors = parts_of(architecture, model, types)
    return write(path, architecture, usual | facts, tensors)
