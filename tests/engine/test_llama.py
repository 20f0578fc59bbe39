"""The lean forward pass, and transformers' own over our caches, against plain transformers on tiny random models of each
kind; and what the lean one leaves to transformers."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from engine.errors import EngineError, LoadError
from engine.loading import batch_invariance as exactness
from engine.networks.attention import attend_spans
from engine.networks.kv_cache import KVCache
from engine.networks.linear import Dense, Linear, Weight, to_floats
from engine.networks.llama import LeanLlama
from engine.networks.llama_shape import LlamaShape, refusal
from engine.networks.model import Model, Request
from engine.networks.transformers_network import TransformersNetwork

VOCAB = 50
SIZES = {
    "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 2048,
}  # fmt: skip
BIASES = {"attention_bias": True, "mlp_bias": True}


def rope(kind: str, **more: float) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 1e4, **more}}


LLAMA3 = rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama with biases, llama3 rope and wide heads": BIASES | LLAMA3 | {"head_dim": 24},
    "llama with a key head each, yarn rope": {"num_key_value_heads": 4}
    | rope("yarn", factor=4.0, original_max_position_embeddings=64),
    "llama, tied, with one key head for three, linear rope": {
        "num_attention_heads": 3, "num_key_value_heads": 1, "hidden_size": 48, "tie_word_embeddings": True,
    } | rope("linear", factor=3.0),
    "mistral": {"sliding_window": 8},
    "qwen2": {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
    "qwen3": {"head_dim": 24, "attention_bias": True, "tie_word_embeddings": True},
    "qwen3 with windows by layer": {
        "use_sliding_window": True, "sliding_window": 8, "head_dim": 8,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "gemma2": {"sliding_window": 8, "head_dim": 8, "query_pre_attn_scalar": 8},
    "gemma3_text": {"sliding_window": 8, "head_dim": 8, "query_pre_attn_scalar": 8},
}  # fmt: skip


def random_model(kind: str = "llama", **changes: Any) -> Any:
    """float32, with weights large enough that a wrong norm, bias, rotation or mask shows, and no parameter at its
    default."""
    torch.manual_seed(3)
    name = kind.partition(" ")[0].strip(",")
    config = transformers.AutoConfig.for_model(name, **SIZES | CONFIGS[kind] | changes | {"initializer_range": 0.2})
    model = transformers.AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            parameter.uniform_(0.5, 1.5) if "norm" in name else parameter.normal_()
    return model


def dense(weight: Weight, bias: torch.Tensor | None) -> Linear:
    return Dense(to_floats(weight), bias, torch.float32)


def lean(hf: Any, weights: Any = None, make: Callable[..., Linear] = dense, dtype: Any = torch.float32) -> LeanLlama:
    config, name = hf.config.to_dict(), hf.config.rope_parameters["rope_type"]
    speeds = None
    if name != "default":
        speeds, scale = ROPE_INIT_FUNCTIONS[name](hf.config)
        speeds = speeds.tolist(), scale
    weights = weights or dict(hf.state_dict())
    return LeanLlama(LlamaShape.read(config, speeds), weights, make, dtype=dtype, device=torch.device("cpu"))


def expected_of(hf: Any, ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [n, vocabulary], and features: what enters each layer, then what leaves the last, [n, layers, hidden]."""
    hf.set_attn_implementation("eager")
    last: list[torch.Tensor] = []
    hook = hf.base_model.layers[-1].register_forward_hook(lambda *x: last.append(x[2]))
    out = hf(input_ids=torch.tensor([ids]), output_hidden_states=True)
    hook.remove()
    transformers.AttentionInterface.register("greenlight", attend_spans)
    hf.set_attn_implementation("greenlight")
    return out.logits[0], torch.stack([state[0] for state in (*out.hidden_states[:-1], last[0])], 1)


IDS = random.Random(2).choices(range(VOCAB), k=1100)


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found.float(), expected, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", CONFIGS)
def test_logits_and_features_are_those_of_transformers(kind: str) -> None:
    """1100 ids: five passes, three blocks of keys, two tables of rotations."""
    hf, layers = random_model(kind), [0, 2, 3]
    logits, states = expected_of(hf, IDS)
    networks: list[Any] = [TransformersNetwork(hf, VOCAB)]
    if refusal(hf.config.to_dict()) is None:
        networks.append(lean(hf))
    assert (len(networks) == 1) == kind.startswith("gemma")
    if kind.startswith("llama") and "biases" not in kind:
        assert networks[0].weight_bytes == networks[1].weight_bytes
    for network in networks:
        forward, cache, other = Model(network, 2048).forward, KVCache(layers), KVCache((1,))
        for begin, end in ((0, 1), (1, 17), (17, 20), (20, 21), (21, 60)):  # in pieces, other requests in every pass
            requests = [Request(IDS[:end], end - begin, cache), Request(IDS[:40], 1, other)]
            [found, *rest] = forward([*requests, Request(IDS[5 : 5 + end], 1, KVCache())])
            close(found, logits[begin:end])
            close(rest[0], logits[39:40])
            close(cache.features(0, end), states[:end, layers])
        close(other.features(3, 40), states[3:40, [1]])
        close(forward([Request([*IDS[:30], 1, 2, 3], 4, cache)])[0][:1], logits[29:30])  # drafts that are rejected
        close(forward([Request(IDS[:700], 3, cache)])[0], logits[697:700])
        close(forward([Request(IDS, 300, cache)])[0], logits[800:])
        close(cache.features(0, 1100), states[:, layers])


def test_a_bad_number_does_not_outlive_its_pass() -> None:
    """A token that breaks the arithmetic, met as a draft: the next try on the same cache answers like a fresh one."""
    hf, cache = random_model(), KVCache()
    for bad in (torch.nan, torch.inf):
        hf.model.embed_tokens.weight[7] = bad
        forward = Model(lean(hf), 2048).forward
        assert not forward([Request([1, 2, 3, 4, 5, 7], 4, cache)])[0].isfinite().all()
        [again], [fresh] = (forward([Request([1, 2, 3, 9], 1, each)]) for each in (cache, KVCache()))
        assert torch.equal(again, fresh) and fresh.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_close_in_every_format(dtype: torch.dtype) -> None:
    """Hidden states in the weights' own format, as on a GPU: a wrong place for a cast would be off by far more."""
    hf, cache = random_model("qwen3"), KVCache()
    expected, _ = expected_of(hf, IDS[:40])
    weights = {name: tensor.to(dtype) for name, tensor in hf.state_dict().items()}
    network = lean(hf, weights, lambda w, b: Dense(to_floats(w), b, dtype), dtype)
    [found] = Model(network, 2048).forward([Request(IDS[:40], 40, cache)])
    assert float((found - expected).norm() / (expected - expected.mean(-1, keepdim=True)).norm()) < 0.1
    assert {tensor.dtype for pair in cache._layers.values() for tensor in pair} == {dtype}


def test_weights_that_do_not_fit_are_one_sentence() -> None:
    hf = random_model("llama with biases, llama3 rope and wide heads")
    name = "model.layers.1.mlp.gate_proj.bias"
    for spoilt in ({}, {name: hf.state_dict()[name][1:]}):
        weights = {key: weight for key, weight in hf.state_dict().items() if key != name} | spoilt
        with pytest.raises(LoadError, match=r"mlp.gate_proj.bias are missing or do not fit [^\n]*$"):
            lean(hf, weights)


def test_what_it_does_not_know_it_refuses() -> None:
    plain = transformers.LlamaConfig(**SIZES).to_dict()
    assert refusal(plain) is None
    for change, reason in (
        ({"model_type": "gemma"}, "kind is gemma"),
        ({"hidden_act": "gelu"}, "activation is gelu"),
        (rope("dynamic"), "rotation is dynamic"),
        (rope("longrope"), "rotation is longrope"),
        (rope("default", partial_rotary_factor=0.5), "a part of each head"),
        ({"quantization_config": {"bits": 4}}, "quantised"),
        ({"num_key_value_heads": 3}, "3 key heads"),
        ({"head_dim": 7}, "7 dimensions"),
    ):
        assert reason in (refusal(plain | change) or "")
    with pytest.raises(ValueError, match="llama3"):  # not taken for the default rotation
        LlamaShape.read(plain | LLAMA3)


def test_a_plain_config_says_the_same_of_windows_as_transformers() -> None:
    """A config.json as it lies on the hub, before transformers fills in what it lacks."""
    plain = SIZES | rope("default") | {"rms_norm_eps": 1e-6}
    windows = {"model_type": "qwen2", "sliding_window": 8, "max_window_layers": 2}
    for about, expected in (
        (windows | {"use_sliding_window": False}, (None, None, None)),
        (windows | {"use_sliding_window": True}, (None, None, 8)),
        ({"model_type": "mistral", "sliding_window": 8}, (8, 8, 8)),
        ({"model_type": "mistral"}, (None, None, None)),
        ({"model_type": "llama", "sliding_window": 8}, (None, None, None)),
    ):
        assert LlamaShape.read(plain | about).windows == expected


def test_features_are_had_only_where_they_are_kept() -> None:
    network, plain, rich = lean(random_model()), KVCache(), KVCache((1, 3))
    logits = [Model(network, 2048).forward([Request(IDS[:20], 5, cache)])[0] for cache in (plain, rich)]
    assert torch.equal(*logits)
    assert rich.nbytes - plain.nbytes == rich.features(0, 0).untyped_storage().nbytes() > 0
    for cache, begin, end in ((plain, 0, 5), (KVCache((1,)), 0, 1), (rich, 0, 21), (rich, 3, 2), (rich, -1, 2)):
        with pytest.raises(EngineError, match="no features"):
            cache.features(begin, end)
    for layer in (-1, 4):
        with pytest.raises(EngineError, match="layers 0 to 3"):
            Model(network, 2048).forward([Request([1, 2], 1, KVCache((layer,)))])


def test_attention_sinks_are_refused_and_not_ignored() -> None:
    rows = torch.zeros(1, 1, 1, 8)
    with pytest.raises(EngineError, match="sinks"):
        attend_spans(None, rows, rows, rows, None, s_aux=torch.zeros(1))


# ------------------------------------------------------------------------------------- exact, whatever is beside


class RowByRow(Dense):
    """Each row multiplied alone, so that none can depend on another."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        multiply = super().__call__
        return torch.cat([multiply(row[None]) for row in x])


on_avx2 = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() != "AVX2", reason="what torch's attention does elsewhere was not looked at"
)


@on_avx2
@pytest.mark.parametrize("kind", ["llama", "llama with a key head each, yarn rope", "mistral", "qwen3"])
def test_over_linear_layers_that_are_exact_the_whole_network_is(kind: str) -> None:
    hf = random_model(kind)
    assert exactness.is_exact(lean(hf, None, lambda w, b: RowByRow(to_floats(w), b, torch.float32)))
