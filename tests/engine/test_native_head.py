"""The native head against plain torch over the same rounded weights, and against itself with other rows beside."""

from __future__ import annotations

import pytest
import torch

import engine.kernels.build as native
from engine.heads.eagle3 import FIRST, Weights
from engine.heads.native_head import BITS, NativeHead
from engine.kernels.build import Kernels
from engine.kernels.packing import quantise
from engine.networks.kv_cache import KVCache
from tests.engine.tiny_heads import (
    DRAFT_VOCAB,
    HIDDEN,
    VARIANTS,
    VOCAB,
    draft_ids,
    embedding,
    features_of,
    head_config,
    random_weights,
    slowly,
    torch_head,
)  # fmt: skip

KINDS = {
    "fc": ("fc",),
    "qkv": tuple(f"{FIRST}self_attn.{which}_proj" for which in "qkv"),
    "out": (f"{FIRST}self_attn.o_proj",),
    "gate_up": (f"{FIRST}mlp.gate_proj", f"{FIRST}mlp.up_proj"),
    "down": (f"{FIRST}mlp.down_proj",),
    "lm_head": ("lm_head",),
}


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    found = native.kernels()
    if isinstance(found, str):
        pytest.skip(found)
    return found


def native_head(kernels: Kernels, variant: str, threads: int = 1) -> NativeHead:
    config, table = head_config(**VARIANTS[variant]), embedding()
    return NativeHead(config, random_weights(config), draft_ids(), lambda ids: table[ids], kernels, threads)


def rounded(weights: Weights) -> Weights:
    """As the native head keeps them."""
    matrices = {f"{name}.weight": BITS[kind] for kind, names in KINDS.items() for name in names}
    assert {name for name, tensor in weights.items() if tensor.ndim == 2} == matrices.keys()
    return weights | {
        name: torch.from_numpy(quantise(weights[name].numpy(), bits).dequantise()) for name, bits in matrices.items()
    }


def some_ids(n: int, seed: int = 0) -> list[int]:
    ids: list[int] = torch.randint(0, VOCAB, (n,), generator=torch.Generator().manual_seed(seed)).tolist()
    return ids


@pytest.mark.parametrize("variant", VARIANTS)
def test_it_computes_what_torch_computes_over_the_same_weights(kernels: Kernels, variant: str) -> None:
    """Up to the rounding of activations to 8 bits and of keys to 16: a wrong rope, norm or mask would differ by all of
    it."""
    config, ids = head_config(**VARIANTS[variant]), some_ids(40)
    features = features_of(ids)
    expected = torch.stack(slowly(torch_head(config, rounded(random_weights(config))), ids, features, 36, 3))
    found = torch.stack(slowly(native_head(kernels, variant), ids, features, 36, 3))
    error = (found - expected).norm(dim=-1) / (expected - expected.mean(-1, keepdim=True)).norm(dim=-1)
    assert float(error.max()) < 0.06
    others = [name for name in VARIANTS if name != variant and VARIANTS[name].keys() <= VARIANTS[variant].keys()]
    for name in others:  # without one of the variant's parts it is another head
        apart = torch.stack(slowly(native_head(kernels, name), ids, features, 36, 3)) - expected
        assert float(apart[-1].norm() / expected[-1].norm()) > 0.1


@pytest.mark.parametrize("variant", ["as it is trained here", "one norm over the features", "all of it"])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_an_entry_is_the_same_to_the_bit_whatever_is_run_beside_it(
    kernels: Kernels, variant: str, threads: int
) -> None:
    head, ids = native_head(kernels, variant, threads), some_ids(290)  # past the first block of keys
    features, tokens = features_of(ids), torch.tensor(ids)
    joined = head.join(features)
    one = native_head(kernels, variant, 1)
    alone = KVCache()
    states = torch.cat(
        [one.run(tokens[t + 1 : t + 2], one.join(features[t : t + 1]), t, alone) for t in range(len(ids) - 1)]
    )
    together = head.run(tokens[1:], joined[:-1], 0, KVCache())
    assert torch.equal(together, states)
    for begins in ([250], [3, 7, 256], [1, 2, 280]):
        cache, at = KVCache(), 0
        for end in begins:  # only their keys are needed
            head.run(tokens[at + 1 : end + 1], joined[at:end], at, cache, keys_only=True)
            at = end
        assert torch.equal(head.run(tokens[at + 1 :], joined[at:-1], at, cache), states[at:])
    assert torch.equal(head.logits(states), torch.cat([one.logits(state[None]) for state in states]))
    assert head.logits(states).shape == (len(ids) - 1, DRAFT_VOCAB) and states.shape[1] == HIDDEN


def test_what_it_is_given_is_left_as_it_was(kernels: Kernels) -> None:
    head, ids = native_head(kernels, "normed residual"), some_ids(6)
    state = head.join(features_of(ids)[:5])
    before = state.clone()
    head.run(torch.tensor(ids[1:]), state, 0, KVCache())
    assert torch.equal(state, before)
