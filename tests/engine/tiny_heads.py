"""Small random draft heads of every variant, the features that they read, and what they should say, worked out
slowly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.config import DecodingParams, SamplingParams
from engine.drafters.head import HeadDrafter
from engine.drafters.protocol import DraftContext, DraftOption, Proposal
from engine.heads import format as format_module
from engine.heads.eagle3 import Head, HeadConfig, Weights
from engine.heads.torch_head import TorchHead
from engine.networks.kv_cache import KVCache
from engine.networks.llama_shape import LlamaShape
from engine.rng import KeyedRng

VOCAB, DRAFT_VOCAB, HIDDEN, LAYERS = 96, 32, 64, 3
CONFIG = {
    "model_type": "llama", "hidden_act": "silu", "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "hidden_size": HIDDEN, "intermediate_size": 96, "num_hidden_layers": 1, "vocab_size": VOCAB,
    "max_position_embeddings": 700, "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
}  # fmt: skip

VARIANTS: dict[str, dict[str, Any]] = {
    "as it is trained here": {},
    "normed residual": {"normed_residual": True},
    "one norm over the features": {"joint_norm": True},
    "a norm for each feature": {"feature_norm": True},
    "feeds on the normed state": {"feeds_normed": True},
    "norms of queries and keys": {"model_type": "qwen3"},
    "all of it": {"model_type": "qwen3", "normed_residual": True, "feature_norm": True, "feeds_normed": True},
}


def head_config(model_type: str = "llama", layers: int = 1, features: int = 3, **options: Any) -> HeadConfig:
    shape = LlamaShape.read(CONFIG | {"model_type": model_type, "num_hidden_layers": layers})
    return HeadConfig(shape, DRAFT_VOCAB, tuple(range(1, features + 1)), "tiny", **options)


def random_weights(config: HeadConfig, seed: int = 0) -> Weights:
    """Large enough that a wrong norm, rotation or mask shows, and no norm at its default."""
    random = torch.Generator().manual_seed(seed)
    sizes = format_module._required_sizes(config)
    if config.shape.qk_norm:
        optional = format_module._optional_sizes(config.shape).items()
        sizes |= {name: size for name, size in optional if name.endswith("_norm.weight")}

    def filled(name: str, size: tuple[int, ...]) -> Tensor:
        if len(size) == 1:
            return torch.rand(size, generator=random) + 0.5
        scale = 3.0 if ".v_proj" in name or ".o_proj" in name else 1.5
        return torch.randn(size, generator=random) * scale * size[1] ** -0.5

    return {name: filled(name, size) for name, size in sizes.items()}


def draft_ids(seed: int = 0) -> Tensor:
    """Which of the target's ids may be drafted, rising."""
    return torch.randperm(VOCAB, generator=torch.Generator().manual_seed(seed))[:DRAFT_VOCAB].sort().values


def embedding(seed: int = 0) -> Tensor:
    return torch.randn(VOCAB, HIDDEN, generator=torch.Generator().manual_seed(seed + 1))


def torch_head(config: HeadConfig, weights: Weights | None = None, seed: int = 0) -> TorchHead:
    table = embedding(seed)
    weights = random_weights(config, seed) if weights is None else weights
    cpu = torch.device("cpu")
    return TorchHead(config, weights, draft_ids(seed), lambda ids: table[ids], cpu, torch.float32)


def features_of(ids: Sequence[int], layers: int = LAYERS) -> Tensor:
    """[len(ids), layers, hidden]; like a target's, those of a position depend on all ids up to it."""
    table = torch.randn(VOCAB, layers, HIDDEN, generator=torch.Generator().manual_seed(9))
    seen = torch.zeros(layers, HIDDEN)
    rows = []
    for token_id in ids:
        seen = 0.7 * seen.roll(1, -1) + table[token_id]
        rows.append(seen)
    return torch.stack(rows)


def slowly(head: Head, ids: Sequence[int], features: Tensor, begin: int, steps: int) -> list[Tensor]:
    """Logits [draft vocabulary] of each step of the chain that begins behind entry `begin`, fed with the ids that came:
    entries one by one, all of them in full, in a cache of their own."""
    cache = KVCache()
    for t in range(begin + 1):
        state = head.run(torch.tensor(ids[t + 1 : t + 2]), head.join(features[t : t + 1]), t, cache)
    rows = [head.logits(state)[0]]
    for t in range(begin + 1, begin + steps):
        state = head.run(torch.tensor(ids[t + 1 : t + 2]), head.next_input(state), t, cache)
        rows.append(head.logits(state)[0])
    return rows


def proposed(
    drafter: HeadDrafter,
    ids: Sequence[int],
    k: int,
    params: SamplingParams | None = None,
    features: Tensor | None = None,
) -> Proposal:
    """Drafts by the rejection rule behind a prompt of one token."""
    params = params or SamplingParams(temperature=1.0)
    features = features_of(ids)[: len(ids) - 1] if features is None else features
    rng = KeyedRng(5, DecodingParams().rule)
    return drafter.propose(DraftOption("head", "head"), DraftContext(ids, 1, features, params, rng), k)


def raw_rows(proposal: Proposal) -> Tensor:
    """What the drafts were made from, spread over the target's vocabulary, [k, V]: the rest cannot be drafted."""
    assert proposal.raw_logits is not None
    spread = torch.full((len(proposal.token_ids), VOCAB), float("-inf"))
    spread[:, draft_ids()] = torch.stack(list(proposal.raw_logits))
    return spread


def prob_rows(proposal: Proposal) -> Tensor:
    """What the drafts were drawn from, spread over the target's vocabulary, [k, V]; point masses where it says no
    more."""
    if proposal.probs is None:
        return F.one_hot(torch.tensor(proposal.token_ids), VOCAB).float()
    rows = torch.stack([proposal.probs[i] for i in range(len(proposal.token_ids))])
    if proposal.vocabulary is None:
        return rows
    spread = torch.zeros(len(rows), VOCAB)
    spread[:, proposal.vocabulary] = rows
    return spread
