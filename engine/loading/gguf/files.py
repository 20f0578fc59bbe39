"""GGUF files as transformers keeps models: the configuration, and the tensors' names and sizes.

Of each family that is read, what llama.cpp's conversion did to it is undone: q and k of Llama are in another order of
rows, and Gemma's norms are one higher. What could not be run rightly is refused here, before anything is written.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.errors import LoadError
from engine.loading.gguf.header import GgufHeader
from engine.loading.gguf.rope import SPEEDS_KNOWN, llama3_parameters
from engine.loading.gguf.values import read_values

Config = dict[str, Any]

READ = (
    "F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K",
)  # fmt: skip
GRID = {"Q4_0": 4, "Q4_1": 4, "Q8_0": 8}
"""Types that the kernels multiply as they are, and the bits of their quants."""

LANES, GROUP = 16, 32
"""Outputs and inputs that a tile of such a matrix holds (see kernels/packing.py)."""

LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OUTER_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
QK_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
GEMMA_NORMS = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
ROTATION = "rope_freqs.weight"
"""A tensor that is no weight: by how much each pair of dimensions turns more slowly."""


@dataclass(frozen=True, slots=True)
class Family:
    """kind: transformers' model_type. biased: layers' matrices with a bias. permuted: whether rows of q and k are in
    GGUF's own order. norm_offset: what llama.cpp's conversion added to each norm."""

    kind: str
    architecture: str
    layer_names: Mapping[str, str] = field(default_factory=lambda: LAYER_NAMES)
    biased: tuple[str, ...] = ()
    permuted: bool = False
    norm_offset: float = 0.0


FAMILIES = {
    "llama": Family("llama", "LlamaForCausalLM", permuted=True),
    "qwen2": Family("qwen2", "Qwen2ForCausalLM", biased=("attn_q", "attn_k", "attn_v")),
    "qwen3": Family("qwen3", "Qwen3ForCausalLM", LAYER_NAMES | QK_NORMS),
    "gemma3": Family("gemma3_text", "Gemma3ForCausalLM", LAYER_NAMES | QK_NORMS | GEMMA_NORMS, norm_offset=1.0),
}


def family_of(header: GgufHeader, name: str) -> Family:
    """Raises LoadError for a file that is not read, as one sentence that begins with `name`."""
    family = FAMILIES.get(header.architecture)
    if family is None:
        raise LoadError(
            f"{name} is of the architecture {header.architecture or 'of no name'!r}, and GGUF files are read of "
            f"{', '.join(FAMILIES)}: choose another file, or the model as safetensors."
        )
    part_count = int(header.facts.get("split.count") or 1)
    if part_count > 1:
        raise LoadError(
            f"{name} is one of {part_count} parts: join them with llama-gguf-split --merge and name the result."
        )
    unreadable = next((tensor for tensor in header.tensors if tensor.type not in READ), None)
    if unreadable is not None:
        raise LoadError(
            f"{name} holds numbers of {unreadable.type} ({unreadable.name}), which cannot be read: choose a file of "
            f"{', '.join(READ[3:])}, F16, BF16 or F32."
        )
    return family


def model_config(header: GgufHeader, path: Path) -> Config:
    """A config.json. Raises LoadError where the file lacks a size, or its weights do not fit what it says."""
    name = path.name
    try:
        family = family_of(header, name)
        if int(header.fact("expert_count") or 0):
            raise LoadError(f"{name} is a mixture of experts, which Greenlight cannot run from a GGUF: choose another.")
        config = _read_sizes(header) | {
            "architectures": [family.architecture],
            "model_type": family.kind,
            "tie_word_embeddings": all(tensor.name != "output.weight" for tensor in header.tensors),
            "dtype": "bfloat16",
        }
        rotation = _read_rotation(header, path, config["head_dim"])
        config |= _gemma_config(header, config, rotation) if family.norm_offset else {"rope_parameters": rotation}
    except KeyError as error:
        raise LoadError(f"{name} does not say its {error}: convert the model anew, or choose another file.") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise LoadError(f"{name} describes its model wrongly ({error}): choose another file.") from error
    _check_tensors(header, family, config, name)
    return config


def _read_sizes(header: GgufHeader) -> Config:
    arch = header.architecture

    def size(fact: str) -> int:
        value = header.facts[f"{arch}.{fact}"]
        if isinstance(value, list) or int(value) <= 0:
            raise ValueError(f"{arch}.{fact} is {value}")
        return int(value)

    heads, layers = size("attention.head_count"), size("block_count")
    if layers > len(header.tensors):  # before anything is made for each layer
        raise ValueError(f"{layers} layers of {len(header.tensors)} tensors")
    rotated_dim = header.fact("rope.dimension_count")
    dim = header.fact("attention.key_length") or rotated_dim or size("embedding_length") // heads
    if int(rotated_dim or dim) != int(dim):
        raise ValueError(f"{rotated_dim} of the {dim} dimensions of a head are rotated")
    embedding = next((tensor for tensor in header.tensors if tensor.name == "token_embd.weight"), None)
    if embedding is None:
        raise KeyError("token_embd.weight")
    return {
        "hidden_size": size("embedding_length"),
        "intermediate_size": size("feed_forward_length"),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": int(header.fact("attention.head_count_kv") or heads),
        "head_dim": int(dim),
        "max_position_embeddings": size("context_length"),
        "rms_norm_eps": _positive(header.facts[f"{arch}.attention.layer_norm_rms_epsilon"], "layer_norm_rms_epsilon"),
        "vocab_size": embedding.shape[0],
        "bos_token_id": header.facts.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": header.facts.get("tokenizer.ggml.eos_token_id"),
        "hidden_act": "silu",
        "attention_bias": arch == "qwen2",
    }


def _read_rotation(header: GgufHeader, path: Path, dim: int) -> Config:
    theta = _positive(header.fact("rope.freq_base") or 10_000.0, "rope.freq_base")
    kind = header.fact("rope.scaling.type") or "none"
    slowdown = next((tensor for tensor in header.tensors if tensor.name == ROTATION), None)
    if slowdown is not None:
        return llama3_parameters(theta, dim, read_values(path, slowdown).reshape(-1))
    if kind == "none":
        return {"rope_type": "default", "rope_theta": theta}
    if kind not in ("linear", "yarn"):
        raise ValueError(f"its rotation is {kind}")
    factor = _positive(header.facts[_key(header, "rope.scaling.factor")], "rope.scaling.factor")
    parameters = {"rope_type": kind, "rope_theta": theta, "factor": factor}
    if kind == "yarn":
        original = header.facts[_key(header, "rope.scaling.original_context_length")]
        parameters["original_max_position_embeddings"] = int(
            _positive(original, "rope.scaling.original_context_length")
        )
    return parameters


def _key(header: GgufHeader, fact: str) -> str:
    return f"{header.architecture}.{fact}"


def _positive(value: Any, what: str) -> float:
    """A number that can be reckoned with. Raises ValueError."""
    if not 0 < float(value) < math.inf:
        raise ValueError(f"{what} is {value}")
    return float(value)


LAYERS_OF_27B = 62


def _gemma_config(header: GgufHeader, config: Config, rotation: Config) -> Config:
    """Gemma 3 (arXiv:2503.19786, section 2): of six layers five look back over a window, with a rotation of their own.

    The largest divides its scores by another number than the root of a head's dimensions.
    """
    layers, pattern = config["num_hidden_layers"], header.fact("attention.sliding_window_pattern") or 6
    if isinstance(pattern, list):
        has_window = [bool(layer) for layer in pattern]
    else:
        has_window = [(n + 1) % int(pattern) != 0 for n in range(layers)]
    if len(has_window) != layers:
        raise ValueError(f"{len(has_window)} of {layers} layers have a window or none")
    heads = config["num_attention_heads"]
    return {
        "query_pre_attn_scalar": config["hidden_size"] // heads if layers == LAYERS_OF_27B else config["head_dim"],
        "sliding_window": int(_positive(header.facts[_key(header, "attention.sliding_window")], "sliding_window")),
        "layer_types": ["sliding_attention" if is_windowed else "full_attention" for is_windowed in has_window],
        "rope_parameters": {
            "full_attention": rotation,
            "sliding_attention": {
                "rope_type": "default",
                "rope_theta": _positive(header.fact("rope.freq_base_swa") or 10_000.0, "rope.freq_base_swa"),
            },
        },
        "hidden_activation": "gelu_pytorch_tanh",
        "final_logit_softcapping": header.fact("final_logit_softcapping"),
        "attn_logit_softcapping": header.fact("attn_logit_softcapping"),
    }


def _check_tensors(header: GgufHeader, family: Family, config: Config, name: str) -> None:
    """Every weight there, of its size, and none besides: a missing one would be made up, another one left out."""
    expected, actual = _expected_shapes(family, config), {tensor.name: tensor.shape for tensor in header.tensors}
    actual.pop(ROTATION, None)
    if len({tensor.name for tensor in header.tensors}) < len(header.tensors):
        raise LoadError(f"{name} holds some of its weights twice: fetch the file again, or choose another.")
    wrong_name = next((key for key in [*expected, *actual] if actual.get(key) != expected.get(key)), None)
    if wrong_name is None:
        return
    if wrong_name not in expected:
        raise LoadError(f"{name} holds weights of another kind of model ({wrong_name}): choose another file.")
    raise LoadError(f"{name} lacks the weights {wrong_name}, or they do not fit the rest: fetch the file again.")


def _expected_shapes(family: Family, config: Config) -> dict[str, tuple[int, ...]]:
    """Shapes by the names of GGUF."""
    hidden, mlp, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    query, key = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    matrices = {
        "attn_q": (query, hidden), "attn_k": (key, hidden), "attn_v": (key, hidden), "attn_output": (hidden, query),
        "ffn_gate": (mlp, hidden), "ffn_up": (mlp, hidden), "ffn_down": (hidden, mlp),
    }  # fmt: skip
    layer: dict[str, tuple[int, ...]] = {
        f"{kind}.weight": matrices.get(kind, (dim,) if kind in QK_NORMS else (hidden,)) for kind in family.layer_names
    }
    layer |= {f"{kind}.bias": matrices[kind][:1] for kind in family.biased}
    outer: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (config["vocab_size"], hidden),
        "output_norm.weight": (hidden,),
    }
    if not config["tie_word_embeddings"]:
        outer["output.weight"] = (config["vocab_size"], hidden)
    return outer | {
        f"blk.{n}.{rest}": shape for n in range(config["num_hidden_layers"]) for rest, shape in layer.items()
    }


def on_grid(header: GgufHeader, config: Config) -> bool:
    """Whether every matrix lies on a grid that the kernels multiply as it is, in pieces that they take."""
    if config["model_type"] not in ("llama", "qwen2", "qwen3"):
        return False
    if config["rope_parameters"]["rope_type"] not in SPEEDS_KNOWN:
        return False
    bits: dict[str, int] = {}
    for tensor in header.tensors:
        if len(tensor.shape) == 1:
            continue
        if tensor.type not in GRID or tensor.shape[0] % LANES or tensor.shape[1] % GROUP:
            return False
        bits[tensor.name.removesuffix(".weight")] = GRID[tensor.type]
    joint_kinds = (("attn_q", "attn_k", "attn_v"), ("ffn_gate", "ffn_up"))  # multiplied as one matrix
    return all(
        len({bits[f"blk.{n}.{kind}"] for kind in kinds}) == 1
        for n in range(config["num_hidden_layers"])
        for kinds in joint_kinds
    )


def gguf_origin(header: GgufHeader) -> str:
    """What its makers call the file's numbers, such as "GGUF Q4_K_M"; else the type of most of them."""
    from gguf.constants import LlamaFileType

    try:
        file_type = LlamaFileType(header.facts["general.file_type"]).name
        return f"GGUF {file_type.removeprefix('MOSTLY_').removeprefix('ALL_')}"
    except (KeyError, ValueError):
        numbers_of_type: dict[str, int] = {}
        for tensor in header.tensors:
            numbers_of_type[tensor.type] = numbers_of_type.get(tensor.type, 0) + tensor.numbers
        return f"GGUF {max(numbers_of_type, key=lambda kind: numbers_of_type[kind])}"
