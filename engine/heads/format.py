"""A draft head's files: the `speculators` format for EAGLE-3, written and read, and the layout of the first EAGLE-3 heads.

A folder holds config.json and model.safetensors. Two numbers are easily taken for others: a feature layer i is the hidden
state that *enters* layer i, and `d2t` holds offsets: target id = draft id + d2t[draft id].
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
from engine.heads.config import HEAD_FORMAT, default_features, is_head_config
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
    """weights: float32, under the names of `eagle3`. ids int64 [draft vocabulary], the target's ids; embedding [V, hidden]
    if the head brings one, else None: the target's serves."""

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
        about = json.loads((folder / "config.json").read_text("utf-8"))
        tensors = _tensors(folder)
        config = (_speculators if "speculators_model_type" in about else _original)(about, layers)
        weights = {_renamed(name): tensor.float() for name, tensor in tensors.items() if tensor.is_floating_point()}
        embedding = weights.pop("embed_tokens.weight", None)
        ids = torch.arange(len(weights["lm_head.weight"])) + tensors.get("d2t", torch.zeros(())).long()
    except UNREADABLE as error:
        raise LoadError(
            f"The draft head {folder} cannot be read ({type(error).__name__}: {error}): fetch it again."
        ) from error
    _check_fit(folder, config, hidden, vocab_size, layers)
    _check_sizes(folder, config, weights if embedding is None else weights | {"embed_tokens.weight": embedding})
    count = len(ids)
    if len(torch.unique(ids)) != count or not 0 <= int(ids.min()) <= int(ids.max()) < vocab_size:
        raise LoadError(
            f"The draft head {folder} maps its {count} tokens to none or the same of the target's {vocab_size}: fetch it again."
        )
    members = tensors.get("t2d")
    if members is not None and not (
        len(members) == vocab_size and members.bool()[ids].all() and members.sum() == count
    ):
        raise LoadError(
            f"The two vocabulary maps of the draft head {folder} disagree (d2t holds offsets, not ids): fetch it again."
        )
    return HeadFile(config, weights, ids, embedding)


def _tensors(folder: Path) -> dict[str, Tensor]:
    """From safetensors, or from a pickle of tensors alone. Raises OSError where there is neither."""
    paths = sorted(folder.glob("*.safetensors"))  # several, where a large head was kept in parts
    if paths:
        return {name: tensor for path in paths for name, tensor in load_file(path).items()}
    pickled = torch.load(folder / PICKLE, map_location="cpu", weights_only=True)
    return {str(name): tensor for name, tensor in pickled.items()}


def _renamed(name: str) -> str:
    return name.removeprefix("model.").replace("midlayer.", FIRST)


def _shape(config: dict[str, Any]) -> LlamaShape:
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


def _speculators(about: dict[str, Any], layers: int) -> HeadConfig:
    told = about.get("greenlight") or {}
    return HeadConfig(
        shape=_shape(about["transformer_layer_config"]),
        draft_vocab_size=int(about["draft_vocab_size"]),
        feature_layers=tuple(map(int, about.get("eagle_aux_hidden_state_layer_ids") or default_features(layers))),
        target=str(about["speculators_config"]["verifier"].get("name_or_path") or ""),
        normed_residual=bool(about.get("norm_before_residual")),
        joint_norm=bool(about.get("norm_before_fc")),
        feature_norm=bool(about.get("fc_norm")),
        feeds_normed=bool(about.get("norm_output")),
        acceptance=tuple(float(share) for share in told.get("acceptance", ())),
    )


def _original(about: dict[str, Any], layers: int) -> HeadConfig:
    """The layout of SafeAILab/EAGLE: a Llama config with a draft_vocab_size, one layer, and the three usual features."""
    shape = _shape({"head_dim": None, **about, "num_hidden_layers": 1})
    return HeadConfig(shape, int(about.get("draft_vocab_size") or about["vocab_size"]), default_features(layers))


def _check_fit(folder: Path, config: HeadConfig, hidden: int, vocab_size: int, layers: int) -> None:
    made_for = f" (it was made for {config.target})" if config.target else ""
    shape = config.shape
    for name, theirs, ours in (("hidden size", shape.hidden, hidden), ("vocabulary", shape.vocab_size, vocab_size)):
        if theirs != ours:
            raise LoadError(
                f"The draft head {folder} does not fit the target{made_for}: its {name} is {theirs}, the target's {ours}. Choose a head that was trained for this target."
            )
    if any(not 0 <= layer <= layers for layer in config.feature_layers):
        raise LoadError(
            f"The draft head {folder} does not fit the target{made_for}: it reads layers {config.feature_layers} and the target has {layers}. Choose a head that was trained for this target."
        )


def _check_sizes(folder: Path, config: HeadConfig, weights: Weights) -> None:
    """So that a wrong size is a sentence now and not a crash later."""
    s = config.shape
    query, key, features = s.heads * s.dim, s.kv_heads * s.dim, len(config.feature_layers) * s.hidden
    wanted: dict[str, tuple[int, ...]] = {
        "fc.weight": (s.hidden, features),
        "norm.weight": (s.hidden,),
        "lm_head.weight": (config.draft_vocab_size, s.hidden),
    }
    if config.joint_norm:
        wanted["input_norm.weight"] = (features,)
    if config.feature_norm:
        wanted |= {f"fc_norm.{i}.weight": (s.hidden,) for i in range(len(config.feature_layers))}
    for n in range(s.layers):
        at, width = f"layers.{n}.", s.hidden if n else 2 * s.hidden
        wanted |= {
            f"{at}self_attn.q_proj.weight": (query, width), f"{at}self_attn.k_proj.weight": (key, width),
            f"{at}self_attn.v_proj.weight": (key, width), f"{at}self_attn.o_proj.weight": (s.hidden, query),
            f"{at}mlp.gate_proj.weight": (s.mlp, s.hidden), f"{at}mlp.up_proj.weight": (s.mlp, s.hidden),
            f"{at}mlp.down_proj.weight": (s.hidden, s.mlp), f"{at}input_layernorm.weight": (s.hidden,),
            f"{at}post_attention_layernorm.weight": (s.hidden,),
        }  # fmt: skip
    wanted[f"{FIRST}hidden_norm.weight"] = (s.hidden,)
    possible: dict[str, tuple[int, ...]] = {"embed_tokens.weight": (s.vocab_size, s.hidden)}
    for n in range(s.layers):
        at = f"layers.{n}.self_attn."
        possible |= {f"{at}q_proj.bias": (query,), f"{at}k_proj.bias": (key,), f"{at}v_proj.bias": (key,)}
        possible |= {f"{at}o_proj.bias": (s.hidden,), f"{at}q_norm.weight": (s.dim,), f"{at}k_norm.weight": (s.dim,)}
    needed = ("q_proj.bias", "k_proj.bias", "v_proj.bias") * s.qkv_bias + ("o_proj.bias",) * s.out_bias
    needed += ("q_norm.weight", "k_norm.weight") * s.qk_norm
    wanted |= {name: size for name, size in possible.items() if name in weights or name.endswith(needed)}
    for name, size in wanted.items():
        if name not in weights or tuple(weights[name].shape) != size:
            found = tuple(weights[name].shape) if name in weights else "missing"
            raise LoadError(
                f"The draft head {folder} is not whole: {name} is {found} and should be {size}. Fetch it again."
            )
    for name, tensor in weights.items():
        if not torch.isfinite(tensor).all():
            raise LoadError(f"The draft head {folder} is spoilt: {name} holds what is no number. Fetch it again.")


def write_head(
    folder: Path, config: HeadConfig, weights: Weights, ids: Tensor, target_config: dict[str, Any], **more: Any
) -> None:
    """ids int64 [draft vocabulary]: the target's id of each draft id, rising. Matrices are written as float16.

    target_config: the target's config.json, for what the format says about its verifier. more: further keys of config.json.
    The embedding is the target's and is left out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shape = config.shape
    layer = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "num_hidden_layers": 1,
        "hidden_size": shape.hidden, "intermediate_size": shape.mlp, "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads, "head_dim": shape.dim, "vocab_size": shape.vocab_size,
        "max_position_embeddings": shape.context_len, "rms_norm_eps": shape.epsilon,
        "rope_parameters": target_config["rope_parameters"], "rope_theta": target_config["rope_parameters"]["rope_theta"],
        "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False,
    }  # fmt: skip
    verifier = {
        "name_or_path": config.target,
        "architectures": list(target_config.get("architectures") or ["LlamaForCausalLM"]),
    }
    about = {
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
        **more,
    }
    t2d = torch.zeros(shape.vocab_size, dtype=torch.bool)
    t2d[ids] = True
    tensors = {name: tensor.detach().to(torch.float16).contiguous() for name, tensor in weights.items()}
    tensors |= {"d2t": ids - torch.arange(len(ids)), "t2d": t2d}
    partial = folder / "model.safetensors.partial"
    save_file(tensors, partial, {"format": "pt"})
    partial.chmod(0o644)  # it is made readable by its owner alone
    partial.replace(folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
