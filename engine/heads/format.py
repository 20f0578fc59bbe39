"""A draft head's files: the `speculators` format for EAGLE-3, written and read, and the first
EAGLE-3 heads' layout.

A folder holds config.json and model.safetensors. Two numbers are easily taken for others: a feature layer i is the
hidden state that *enters* layer i, and `d2t` holds offsets: target id = draft id + d2t[draft id].
"""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.errors import LoadError
from engine.heads.config import HEAD_FORMAT, default_feature_layers, is_head_config
from engine.heads.eagle3 import FIRST, HeadConfig, Weights
from engine.loading.source import PICKLE
from engine.networks.llama_shape import LlamaShape, refusal

LARGEST = {"num_hidden_layers": 64, "hidden_size": 2**16, "head_dim": 2**16, "max_position_embeddings": 2**24}
"""What no head exceeds: a wrong number must not fill the memory with tables before it is found out."""

UNREADABLE = (
    OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, EOFError, RuntimeError,
    SafetensorError, pickle.UnpicklingError,
)  # fmt: skip
"""What comes of files that are cut short, or that hold something else than they should."""


@dataclass(frozen=True, slots=True)
class HeadFile:
    """weights: float32, under the names of `eagle3`. ids int64 [draft vocabulary], the target's ids; embedding
    [V, hidden] if the head brings one, else None: the target's serves."""

    config: HeadConfig
    weights: Weights
    ids: Tensor
    embedding: Tensor | None


def is_head(folder: Path) -> bool:
    """Whether the folder's config.json describes a draft head."""
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return is_head_config(config)


def read_head(folder: Path, layers: int, hidden: int, vocab_size: int) -> HeadFile:
    """A head for a target of these sizes. Raises LoadError, with a sentence that says what does not fit."""
    try:
        config_json = json.loads((folder / "config.json").read_text("utf-8"))
        tensors = _read_tensors(folder)
        config = (_read_speculators_config if "speculators_model_type" in config_json else _read_original_config)(
            config_json, layers
        )
        weights = {
            _speculators_name(name): tensor.float() for name, tensor in tensors.items() if tensor.is_floating_point()
        }
        embedding = weights.pop("embed_tokens.weight", None)
        ids = torch.arange(len(weights["lm_head.weight"])) + tensors.get("d2t", torch.zeros(())).long()
    except UNREADABLE as error:
        raise LoadError(
            f"The draft head {folder} cannot be read ({type(error).__name__}: {error}): fetch it again."
        ) from error
    _check_fit(folder, config, hidden, vocab_size, layers)
    _check_sizes(folder, config, weights if embedding is None else weights | {"embed_tokens.weight": embedding})
    _check_vocabulary(folder, ids, tensors.get("t2d"), vocab_size)
    return HeadFile(config, weights, ids, embedding)


def _check_vocabulary(folder: Path, ids: Tensor, target_mask: Tensor | None, vocab_size: int) -> None:
    """The two maps between the draft vocabulary and the target's: `ids` from d2t, target_mask from t2d. Raises
    LoadError."""
    count = len(ids)
    if len(torch.unique(ids)) != count or not 0 <= int(ids.min()) <= int(ids.max()) < vocab_size:
        raise LoadError(
            f"The draft head {folder} maps its {count} tokens to none or the same of the target's "
            f"{vocab_size}: fetch it again."
        )
    if target_mask is not None and not (
        len(target_mask) == vocab_size and target_mask.bool()[ids].all() and target_mask.sum() == count
    ):
        raise LoadError(
            f"The two vocabulary maps of the draft head {folder} disagree (d2t holds offsets, not ids): fetch it again."
        )


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    """From safetensors, or from a pickle of tensors alone. Raises OSError where there is neither."""
    paths = sorted(folder.glob("*.safetensors"))  # several, where a large head was kept in parts
    if paths:
        return {name: tensor for path in paths for name, tensor in load_file(path).items()}
    pickled_tensors = torch.load(folder / PICKLE, map_location="cpu", weights_only=True)
    return {str(name): tensor for name, tensor in pickled_tensors.items()}


def _speculators_name(name: str) -> str:
    return name.removeprefix("model.").replace("midlayer.", FIRST)


def _read_shape(config: dict[str, Any]) -> LlamaShape:
    """Of the head's own layers. Raises KeyError, ValueError."""
    rope = config.get("rope_parameters") or {
        **(config.get("rope_scaling") or {}),
        "rope_theta": config.get("rope_theta", 10000.0),
    }
    config = {"hidden_act": "silu", **config, "rope_parameters": rope}
    if reason := refusal(config) or ("its MLP has biases" if config.get("mlp_bias") else None):
        raise ValueError(reason)
    for name, largest in LARGEST.items():
        if int(config.get(name) or 0) > largest:
            raise ValueError(f"its {name} is {config[name]}")
    shape = LlamaShape.read(config)
    if not (min(shape.layers, shape.hidden, shape.mlp, shape.context_len) > 0 and 0 < shape.kv_heads <= shape.heads):
        raise ValueError("one of its sizes is not positive")
    if not (0 <= shape.epsilon < 1 and all(isinstance(s, float) and math.isfinite(s) for s in shape.rope_speeds)):
        raise ValueError("its epsilon or its rotation is no number that it could be")
    return shape


def _read_speculators_config(config_json: dict[str, Any], layers: int) -> HeadConfig:
    extras = config_json.get("greenlight") or {}
    return HeadConfig(
        shape=_read_shape(config_json["transformer_layer_config"]),
        draft_vocab_size=int(config_json["draft_vocab_size"]),
        feature_layers=tuple(
            map(int, config_json.get("eagle_aux_hidden_state_layer_ids") or default_feature_layers(layers))
        ),
        target=str(config_json["speculators_config"]["verifier"].get("name_or_path") or ""),
        normed_residual=bool(config_json.get("norm_before_residual")),
        joint_norm=bool(config_json.get("norm_before_fc")),
        feature_norm=bool(config_json.get("fc_norm")),
        feeds_normed=bool(config_json.get("norm_output")),
        acceptance=tuple(float(share) for share in extras.get("acceptance", ())),
    )


def _read_original_config(config_json: dict[str, Any], layers: int) -> HeadConfig:
    """SafeAILab/EAGLE's layout: a Llama config with a draft_vocab_size, one layer, and the three usual features."""
    shape = _read_shape({"head_dim": None, **config_json, "num_hidden_layers": 1})
    return HeadConfig(
        shape, int(config_json.get("draft_vocab_size") or config_json["vocab_size"]), default_feature_layers(layers)
    )


def _check_fit(folder: Path, config: HeadConfig, hidden: int, vocab_size: int, layers: int) -> None:
    trained_for = f" (it was made for {config.target})" if config.target else ""
    shape = config.shape
    for name, theirs, ours in (("hidden size", shape.hidden, hidden), ("vocabulary", shape.vocab_size, vocab_size)):
        if theirs != ours:
            raise LoadError(
                f"The draft head {folder} does not fit the target{trained_for}: its {name} is "
                f"{theirs}, the target's {ours}. Choose a head that was trained for this target."
            )
    if any(not 0 <= layer <= layers for layer in config.feature_layers):
        raise LoadError(
            f"The draft head {folder} does not fit the target{trained_for}: it reads layers "
            f"{config.feature_layers} and the target has {layers}. Choose a head that was trained for this target."
        )


def _check_sizes(folder: Path, config: HeadConfig, weights: Weights) -> None:
    """So that a wrong size is a sentence now and not a crash later."""
    s = config.shape
    mandatory_names = ("q_proj.bias", "k_proj.bias", "v_proj.bias") * s.qkv_bias + ("o_proj.bias",) * s.out_bias
    mandatory_names += ("q_norm.weight", "k_norm.weight") * s.qk_norm
    expected = _required_sizes(config)
    for name, size in _optional_sizes(s).items():
        if name in weights or name.endswith(mandatory_names):
            expected[name] = size
    for name, size in expected.items():
        if name not in weights or tuple(weights[name].shape) != size:
            actual = tuple(weights[name].shape) if name in weights else "missing"
            raise LoadError(
                f"The draft head {folder} is not whole: {name} is {actual} and should be {size}. Fetch it again."
            )
    for name, tensor in weights.items():
        if not torch.isfinite(tensor).all():
            raise LoadError(f"The draft head {folder} is spoilt: {name} holds what is no number. Fetch it again.")


def _required_sizes(config: HeadConfig) -> dict[str, tuple[int, ...]]:
    """Of the weights that every head of this configuration has, by name."""
    s = config.shape
    query, key, features = s.heads * s.dim, s.kv_heads * s.dim, len(config.feature_layers) * s.hidden
    sizes: dict[str, tuple[int, ...]] = {
        "fc.weight": (s.hidden, features),
        "norm.weight": (s.hidden,),
        "lm_head.weight": (config.draft_vocab_size, s.hidden),
    }
    if config.joint_norm:
        sizes["input_norm.weight"] = (features,)
    if config.feature_norm:
        sizes |= {f"fc_norm.{i}.weight": (s.hidden,) for i in range(len(config.feature_layers))}
    for n in range(s.layers):
        prefix, width = f"layers.{n}.", s.hidden if n else 2 * s.hidden
        sizes |= {
            f"{prefix}self_attn.q_proj.weight": (query, width), f"{prefix}self_attn.k_proj.weight": (key, width),
            f"{prefix}self_attn.v_proj.weight": (key, width), f"{prefix}self_attn.o_proj.weight": (s.hidden, query),
            f"{prefix}mlp.gate_proj.weight": (s.mlp, s.hidden), f"{prefix}mlp.up_proj.weight": (s.mlp, s.hidden),
            f"{prefix}mlp.down_proj.weight": (s.hidden, s.mlp), f"{prefix}input_layernorm.weight": (s.hidden,),
            f"{prefix}post_attention_layernorm.weight": (s.hidden,),
        }  # fmt: skip
    sizes[f"{FIRST}hidden_norm.weight"] = (s.hidden,)
    return sizes


def _optional_sizes(shape: LlamaShape) -> dict[str, tuple[int, ...]]:
    """Of the weights that a head may have or not: its own embedding, biases, and norms of queries and keys."""
    query, key = shape.heads * shape.dim, shape.kv_heads * shape.dim
    sizes: dict[str, tuple[int, ...]] = {"embed_tokens.weight": (shape.vocab_size, shape.hidden)}
    for n in range(shape.layers):
        prefix = f"layers.{n}.self_attn."
        sizes |= {f"{prefix}q_proj.bias": (query,), f"{prefix}k_proj.bias": (key,), f"{prefix}v_proj.bias": (key,)}
        sizes |= {f"{prefix}o_proj.bias": (shape.hidden,)}
        sizes |= {f"{prefix}q_norm.weight": (shape.dim,), f"{prefix}k_norm.weight": (shape.dim,)}
    return sizes


def write_head(
    folder: Path, config: HeadConfig, weights: Weights, ids: Tensor, target_config: dict[str, Any], **more: Any
) -> None:
    """ids int64 [draft vocabulary]: the target's id of each draft id, rising. Matrices are written as float16.

    target_config: the target's config.json, for what the format says about its verifier. more: further keys of
    config.json. The embedding is the target's and is left out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config_json = _speculators_json(config, target_config) | more
    t2d = torch.zeros(config.shape.vocab_size, dtype=torch.bool)
    t2d[ids] = True
    tensors = {name: tensor.detach().to(torch.float16).contiguous() for name, tensor in weights.items()}
    tensors |= {"d2t": ids - torch.arange(len(ids)), "t2d": t2d}
    partial = folder / "model.safetensors.partial"
    save_file(tensors, partial, {"format": "pt"})
    partial.chmod(0o644)  # it is made readable by its owner alone
    partial.replace(folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config_json, indent=1) + "\n", encoding="utf-8")


def _speculators_json(config: HeadConfig, target_config: dict[str, Any]) -> dict[str, Any]:
    """A config.json as `speculators` writes it, of one layer."""
    shape, rope = config.shape, target_config["rope_parameters"]
    layer = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "num_hidden_layers": 1,
        "hidden_size": shape.hidden, "intermediate_size": shape.mlp, "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads, "head_dim": shape.dim, "vocab_size": shape.vocab_size,
        "max_position_embeddings": shape.context_len, "rms_norm_eps": shape.epsilon,
        "rope_parameters": rope, "rope_theta": rope["rope_theta"],
        "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False,
    }  # fmt: skip
    verifier = {
        "name_or_path": config.target,
        "architectures": list(target_config.get("architectures") or ["LlamaForCausalLM"]),
    }
    return {
        "speculators_model_type": HEAD_FORMAT,
        "architectures": ["Eagle3Speculator"],
        "speculators_version": "0.9.0",
        "draft_vocab_size": config.draft_vocab_size,
        "norm_before_residual": config.normed_residual,
        "norm_before_fc": config.joint_norm,
        "fc_norm": config.feature_norm,
        "norm_output": config.feeds_normed,
        "eagle_aux_hidden_state_layer_ids": list(config.feature_layers),
        "transformer_layer_config": layer,
        "speculators_config": {
            "algorithm": HEAD_FORMAT,
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
            "verifier": verifier,
        },
    }
