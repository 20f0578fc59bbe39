"""What a head begins as: the ids that it drafts, and its weights, from the target or from another head."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from engine.errors import EngineError
from engine.heads.eagle3 import FIRST, HeadConfig, Weights
from engine.heads.format import HeadFile
from engine.train.dialogues import Dialogue
from engine.train.target import TargetTensors

DRAFT_VOCAB = 8192
"""Tokens that a head can draft if nobody says how many."""

FROZEN = ("lm_head.weight",)
"""The vocabulary rows stay the target's own: a step is cheaper and the head needs less text."""


def draft_ids(dialogues: Sequence[Dialogue], size: int, vocab_size: int, always: Sequence[int] = ()) -> Tensor:
    """The target's ids that the head may draft, rising: `always` and the most frequent of the replies."""
    counts = Counter(token_id for d in dialogues for token_id in d.ids[d.prompt_len :])
    ranked = [*always, *(token_id for token_id, _ in counts.most_common()), *range(vocab_size)]
    return torch.tensor(sorted(list(dict.fromkeys(ranked))[: min(size, vocab_size)]))


def initial_weights(target: TargetTensors, config: HeadConfig, ids: Tensor) -> Weights:
    """The head begins as the target's last layer over what enters it, which is the last feature; the rest is zero."""
    shape, layer = target.shape, target.last_layer
    count = len(config.feature_layers)
    fc = torch.zeros(shape.hidden, count * shape.hidden)
    fc[:, -shape.hidden :] = torch.eye(shape.hidden)
    weights = {"fc.weight": fc, "norm.weight": target.norm.clone(), "lm_head.weight": target.output[ids].clone()}
    for name, tensor in layer.items():
        if name.startswith("self_attn.") and name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
            tensor = torch.cat([torch.zeros_like(tensor), tensor], dim=1)  # noqa: PLW2901
        weights[FIRST + name] = tensor.clone()
    weights[f"{FIRST}hidden_norm.weight"] = layer["input_layernorm.weight"].clone()
    weights[f"{FIRST}input_layernorm.weight"] = torch.ones(shape.hidden)
    return weights


def check_initial_head(head: HeadFile, config: HeadConfig, weights: Weights) -> None:
    """Raises EngineError for a head that is of another make than those that are trained here."""
    own = head.config
    expected = replace(
        config, shape=own.shape, draft_vocab_size=own.draft_vocab_size, target=own.target, acceptance=own.acceptance
    )
    same_rope = (own.shape.rope_speeds, own.shape.rope_scale) == (config.shape.rope_speeds, config.shape.rope_scale)
    shapes, expected_shapes = (
        {name: w.shape for name, w in tensors.items() if name not in FROZEN} for tensors in (head.weights, weights)
    )
    if head.embedding is not None or own != expected or not same_rope or shapes != expected_shapes:
        layers = ",".join(map(str, head.config.feature_layers))
        raise EngineError(
            f"A run cannot begin with that head: its layers, norms or sizes are others (it reads the layers {layers}). "
            "Name a head that fit made for this model, with the same --layers."
        )
