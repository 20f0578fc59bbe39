"""The few tensors of the target that a head is trained with, in float32."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.errors import EngineError
from engine.loading.source import ModelSource
from engine.networks.llama_shape import LlamaShape, refusal


@dataclass(frozen=True, slots=True)
class TargetTensors:
    """config: as the model's config.json holds it. embedding, output [V, hidden]; norm [hidden]; last_layer: the last
    decoder layer's tensors by their names within it, e.g. "self_attn.q_proj.weight"."""

    config: dict[str, Any]
    shape: LlamaShape
    embedding: Tensor
    output: Tensor
    norm: Tensor
    last_layer: dict[str, Tensor]


def read_target(place: ModelSource) -> TargetTensors:
    """Raises EngineError for a model that is not of the Llama family, or whose files lack something."""
    config = json.loads((place.folder / "config.json").read_text("utf-8"))
    # Older files have theta outside. A head's rotation is its own: the plain one serves, whatever the target's is.
    theta = (config.get("rope_parameters") or config).get("rope_theta", 10000.0)
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": theta}
    if reason := refusal(config):
        raise EngineError(f"{place.name} cannot have a head trained, since {reason}: choose a Llama-family model.")
    shape = LlamaShape.read(config)
    layer_prefix = f"model.layers.{shape.layers - 1}."
    outer = ["model.embed_tokens.weight", "model.norm.weight"] + ([] if shape.tied else ["lm_head.weight"])
    tensors = _tensors(place, lambda name: name in outer or name.startswith(layer_prefix))
    try:
        embedding, norm = tensors["model.embed_tokens.weight"], tensors["model.norm.weight"]
        output = embedding if shape.tied else tensors["lm_head.weight"]
    except KeyError as error:
        raise EngineError(f"{place.name} has no tensor {error}: fetch the model again.") from error
    layer = {
        name.removeprefix(layer_prefix): tensor for name, tensor in tensors.items() if name.startswith(layer_prefix)
    }
    return TargetTensors(config, shape, embedding, output, norm, layer)


def _tensors(place: ModelSource, is_needed: Any) -> dict[str, Tensor]:
    if place.tiles:
        from engine.loading.gguf.convert import read_tiles

        matrices, vectors = read_tiles(place.folder)
        tensors = {name: torch.from_numpy(blocks.dequantise()) for name, blocks in matrices.items() if is_needed(name)}
        return tensors | {name: torch.from_numpy(vector) for name, vector in vectors.items() if is_needed(name)}
    return {
        name: tensor for path in sorted(place.folder.glob("*.safetensors")) for name, tensor in _file(path, is_needed)
    }


def _file(path: Path, is_needed: Any) -> list[tuple[str, Tensor]]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        return [(name, file.get_tensor(name).float()) for name in file.keys() if is_needed(name)]  # noqa: SIM118
