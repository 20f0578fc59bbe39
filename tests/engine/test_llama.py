"""The lean forward pass against transformers' own, on tiny random models of each kind, and what it leaves to
transformers."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from engine.errors import EngineError, LoadError
from engine.kernels import build as native
from engine.kernels.packing import Blocks
from engine.loading import batch_invariance as exactness
from engine.loading import source
from engine.loading.gguf.convert import read_tiles
from engine.networks.attention import Span, attend_spans
from engine.networks.kv_cache import KVCache
from engine.networks.linear import Dense, Linear, Weight, to_floats
from engine.networks.llama import LeanLlama, attend, attention_mask, rms_norm
from engine.networks.llama_shape import LlamaShape, refusal
from engine.networks.model import Model, Request
from engine.networks.native_llama import NativeLlama
from engine.networks.rope import rope_tables
from engine.networks.transformers_network import TransformersNetwork

VOCAB = 50
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64}
QWEN_WINDOWS = {"use_sliding_window": True, "sliding_window": 8}

CONFIGS: dict[str, Callable[[], Any]] = {
    "llama": lambda: transformers.LlamaConfig(**SIZES),
    "llama tied": lambda: transformers.LlamaConfig(**SIZES, tie_word_embeddings=True),
    "llama with biases": lambda: transformers.LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True),
    "llama with wide heads": lambda: transformers.LlamaConfig(**SIZES, head_dim=24),
    "llama, a key head each": lambda: transformers.LlamaConfig(**SIZES | {"num_key_value_heads": 4}),
    "llama, one key head": lambda: transformers.LlamaConfig(**SIZES | {"num_key_value_heads": 1}),
    "llama, linear rope": lambda: transformers.LlamaConfig(
        **SIZES, rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 3.0}
    ),
    "llama, llama3 rope": lambda: transformers.LlamaConfig(**SIZES, rope_parameters=LLAMA3),
    "llama, yarn rope": lambda: transformers.LlamaConfig(**SIZES, rope_parameters=YARN),
    "smollm": lambda: transformers.LlamaConfig(
        **SIZES | {"num_attention_heads": 3, "num_key_value_heads": 1, "hidden_size": 48},
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1e5},
        rms_norm_eps=1e-5,
    ),
    "mistral": lambda: transformers.MistralConfig(**SIZES, sliding_window=8),
    "mistral without a window": lambda: transformers.MistralConfig(**SIZES, sliding_window=None),
    "qwen2": lambda: transformers.Qwen2Config(**SIZES),
    "qwen2, windows from layer 1": lambda: transformers.Qwen2Config(**SIZES, **QWEN_WINDOWS, max_window_layers=1),
    "qwen3": lambda: transformers.Qwen3Config(**SIZES, head_dim=24),
    "qwen3, windows by layer": lambda: transformers.Qwen3Config(
        **SIZES, **QWEN_WINDOWS, layer_types=["sliding_attention", "full_attention", "sliding_attention"]
    ),
    "qwen3 with biases": lambda: transformers.Qwen3Config(**SIZES, attention_bias=True, tie_word_embeddings=True),
}


def random_model(config: Any) -> Any:
    """float32, with weights large enough that a wrong norm, bias, rotation or mask shows, and no parameter at its
    default."""
    torch.manual_seed(3)
    config.initializer_range = 0.2
    model = transformers.AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            parameter.uniform_(0.5, 1.5) if "norm" in name else parameter.normal_()
    return model


def dense(weight: Weight, bias: torch.Tensor | None) -> Linear:
    return Dense(to_floats(weight), bias, torch.float32)


def shape_of(config: Any) -> LlamaShape:
    name = config.rope_parameters["rope_type"]
    if name == "default":
        return LlamaShape.read(config.to_dict())
    speeds, scale = ROPE_INIT_FUNCTIONS[name](config)
    return LlamaShape.read(config.to_dict(), (speeds.tolist(), scale))


def lean(hf: Any, make: Callable[..., Linear] = dense, **options: Any) -> LeanLlama:
    options = {"dtype": torch.float32, "device": torch.device("cpu")} | options
    return LeanLlama(shape_of(hf.config), dict(hf.state_dict()), make, **options)


def expected_of(hf: Any, ids: list[int]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Logits [n, vocabulary], and features: what enters each layer, then what leaves the last, [n, hidden] each."""
    hf.set_attn_implementation("eager")
    last: list[torch.Tensor] = []
    hook = hf.base_model.layers[-1].register_forward_hook(lambda *x: last.append(x[2]))
    with torch.inference_mode():
        out = hf(input_ids=torch.tensor([ids]), output_hidden_states=True)
    hook.remove()
    return out.logits[0], [state[0] for state in (*out.hidden_states[:-1], last[0])]


def some_ids(n: int, seed: int = 2) -> list[int]:
    return random.Random(seed).choices(range(VOCAB), k=n)


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found.float(), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", CONFIGS)
def test_logits_are_those_of_transformers(kind: str) -> None:
    hf = random_model(CONFIGS[kind]())
    assert refusal(hf.config.to_dict()) is None
    ids = some_ids(60)
    expected, _ = expected_of(hf, ids)
    model = Model(lean(hf), 2048)
    close(model.forward([Request(ids, 60, KVCache())])[0], expected)
    cache, other = KVCache(), KVCache()
    for begin, end in ((0, 1), (1, 17), (17, 20), (20, 21), (21, 60)):  # in pieces, another request in every pass
        pieces = model.forward([Request(ids[:end], end - begin, cache), Request(ids[5 : 5 + end], 1, other)])
        close(pieces[0], expected[begin:end])
    rejected = model.forward([Request([*ids[:30], 1, 2, 3], 4, cache)])[0]
    close(rejected[0], expected[29])
    close(model.forward([Request(ids, 5, cache)])[0], expected[-5:])


@pytest.mark.parametrize("kind", ["smollm", "mistral", "qwen3, windows by layer"])
def test_prompts_of_several_passes_and_blocks_of_keys(kind: str) -> None:
    hf = random_model(CONFIGS[kind]())
    ids = some_ids(1100)  # five passes, three blocks of keys, two tables of rotations
    expected, _ = expected_of(hf, ids)
    model, cache = Model(lean(hf), 2048), KVCache()
    close(model.forward([Request(ids[:700], 3, cache)])[0], expected[697:700])
    close(model.forward([Request(ids, 300, cache)])[0], expected[800:])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_bad_number_does_not_outlive_its_pass(bad: float) -> None:
    """A token that breaks the arithmetic, met as a draft: the next try on the same cache answers like a fresh one."""
    hf = random_model(CONFIGS["llama"]())
    hf.model.embed_tokens.weight[7] = bad
    model, ids, cache = Model(lean(hf), 2048), [1, 2, 3], KVCache()
    model.forward([Request(ids, 1, cache)])
    [broken] = model.forward([Request([*ids, 4, 5, 7], 4, cache)])
    assert not broken[-1].isfinite().all()
    [again] = model.forward([Request([*ids, 9], 1, cache)])
    [fresh] = model.forward([Request([*ids, 9], 1, KVCache())])
    assert torch.equal(again, fresh) and fresh.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_close_in_every_format(dtype: torch.dtype) -> None:
    """Hidden states in the weights' own format, as on a GPU: a wrong place for a cast would be off by far more."""
    hf = random_model(CONFIGS["qwen3 with biases"]())
    ids = some_ids(40)
    expected, _ = expected_of(hf, ids)
    weights = {name: tensor.to(dtype) for name, tensor in hf.state_dict().items()}
    network = LeanLlama(
        shape_of(hf.config),
        weights,
        lambda w, b: Dense(to_floats(w), b, dtype),
        dtype=dtype,
        device=torch.device("cpu"),
    )
    cache = KVCache()
    [found] = Model(network, 2048).forward([Request(ids, 40, cache)])
    error = (found - expected).norm() / (expected - expected.mean(-1, keepdim=True)).norm()
    assert float(error) < 0.1
    assert {tensor.dtype for pair in cache._layers.values() for tensor in pair} == {dtype}


def test_weights_may_lie_on_a_ggufs_grid() -> None:
    """Quantised weights, the embedding among them, give what the same numbers in floats give."""
    sizes = {"hidden_size": 96, "intermediate_size": 64, "num_attention_heads": 3, "num_key_value_heads": 1}
    hf = random_model(transformers.LlamaConfig(**SIZES | sizes, tie_word_embeddings=True))
    grid: dict[str, Weight] = {}
    for name, tensor in hf.state_dict().items():
        if tensor.ndim == 2 and name != "lm_head.weight":
            scale = (tensor.abs().amax(1, keepdim=True) / 127).half()
            quants = (tensor / scale.float()).round().clamp(-127, 127)
            tensor.copy_(quants * scale.float())
            groups = scale.numpy().repeat(tensor.shape[1] // 32, axis=1)
            grid[name] = Blocks(8, quants.to(torch.int8).numpy(), groups, None)
        elif tensor.ndim == 1:
            grid[name] = tensor
    ids = some_ids(20)
    expected, _ = expected_of(hf, ids)
    network = LeanLlama(shape_of(hf.config), grid, dense, dtype=torch.float32, device=torch.device("cpu"))
    close(Model(network, 2048).forward([Request(ids, 20, KVCache())])[0], expected)


def test_every_linear_layer_but_the_head_can_be_replaced() -> None:
    hf = random_model(CONFIGS["llama"]())
    network = lean(hf)
    before = Model(network, 2048).forward([Request(some_ids(9), 9, KVCache())])[0]
    seen: list[tuple[int, int]] = []

    class Half(Dense):
        """Gives half of what another gives, and is half its size."""

        def __init__(self, whole: Linear) -> None:
            self.whole, self.inputs, self.outputs = whole, whole.inputs, whole.outputs
            self.weight_bytes = whole.weight_bytes // 2

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return self.whole(x) / 2

    def replaced(linear: Linear) -> Linear:
        seen.append((linear.outputs, linear.inputs))
        return Half(linear)

    bytes_before = network.weight_bytes
    network.replace_linears(replaced)
    assert seen == [(64, 32), (32, 32), (96, 32), (32, 48)] * 3
    assert bytes_before - network.weight_bytes == sum(outputs * inputs for outputs, inputs in seen) * 4 // 2
    assert not torch.allclose(before, Model(network, 2048).forward([Request(some_ids(9), 9, KVCache())])[0], atol=1e-2)


@pytest.mark.parametrize("kind", ["llama", "llama tied"])
def test_weight_bytes_are_what_a_forward_reads(kind: str) -> None:
    hf = random_model(CONFIGS[kind]())
    assert lean(hf).weight_bytes == TransformersNetwork(hf, VOCAB).weight_bytes


@pytest.mark.parametrize("spoil", ["missing", "another size"])
def test_weights_that_do_not_fit_are_one_sentence(spoil: str) -> None:
    hf = random_model(CONFIGS["llama with biases"]())
    weights = dict(hf.state_dict())
    name = "model.layers.1.mlp.gate_proj.bias"
    if spoil == "missing":
        del weights[name]
    else:
        weights[name] = weights[name][1:]
    with pytest.raises(LoadError, match=r"mlp.gate_proj.bias are missing or do not fit [^\n]*$"):
        LeanLlama(shape_of(hf.config), weights, dense, dtype=torch.float32, device=torch.device("cpu"))


# ---------------------------------------------------------------------------------- what is left to transformers


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (lambda: transformers.GemmaConfig(**SIZES), "kind is gemma"),
        (lambda: transformers.Gemma2Config(**SIZES), "kind is gemma2"),
        (lambda: transformers.LlamaConfig(**SIZES, hidden_act="gelu"), "activation is gelu"),
        (lambda: transformers.GPT2Config(), "kind is gpt2"),
        (
            lambda: transformers.LlamaConfig(
                **SIZES, rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
            ),
            "rotation is dynamic",
        ),
        (
            lambda: transformers.LlamaConfig(
                **SIZES,
                rope_parameters={
                    "rope_type": "longrope", "rope_theta": 1e4, "factor": 2.0, "short_factor": [1.0] * 4,
                    "long_factor": [2.0] * 4, "original_max_position_embeddings": 64,
                },
            ),
            "rotation is longrope",
        ),
        (
            lambda: transformers.LlamaConfig(
                **SIZES, rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
            ),
            "a part of each head",
        ),
        (
            lambda: transformers.LlamaConfig(**SIZES, quantization_config={"quant_method": "gptq", "bits": 4}),
            "quantised",
        ),
        (lambda: transformers.LlamaConfig(**SIZES | {"num_key_value_heads": 3}), "3 key heads"),
    ],
)  # fmt: skip
def test_what_it_does_not_know_it_refuses(config: Callable[[], Any], reason: str) -> None:
    assert reason in (refusal(config().to_dict()) or "")


def test_a_rotation_that_nobody_computed_is_not_taken_for_the_default_one() -> None:
    with pytest.raises(ValueError, match="llama3"):
        LlamaShape.read(CONFIGS["llama, llama3 rope"]().to_dict())


def test_a_plain_config_says_the_same_of_windows_as_transformers() -> None:
    """A config.json as it lies on the hub, before transformers fills in what it lacks."""
    plain = SIZES | {"model_type": "qwen2", "rms_norm_eps": 1e-6, "rope_parameters": {"rope_theta": 1e4}}
    windows = plain | {"sliding_window": 8, "max_window_layers": 2}
    assert LlamaShape.read(windows | {"use_sliding_window": False}).windows == (None, None, None)
    assert LlamaShape.read(windows | {"use_sliding_window": True}).windows == (None, None, 8)
    assert LlamaShape.read(plain | {"model_type": "mistral", "sliding_window": 8}).windows == (8, 8, 8)
    assert LlamaShape.read(plain | {"model_type": "mistral"}).windows == (None, None, None)
    assert LlamaShape.read(plain | {"model_type": "llama", "sliding_window": 8}).windows == (None, None, None)


# -------------------------------------------------------------------------------------------------- features


def kept(hf: Any, network: Any) -> Model:
    transformers.AttentionInterface.register("greenlight", attend_spans)
    hf.set_attn_implementation("greenlight")
    return Model(network, 2048)


@pytest.mark.parametrize("way", ["lean", "transformers"])
@pytest.mark.parametrize("kind", ["smollm", "mistral", "qwen3"])
def test_features_are_the_hidden_states_of_transformers(way: str, kind: str) -> None:
    hf = random_model(CONFIGS[kind]())
    ids, layers = some_ids(300), (0, 2, 3)
    _, expected = expected_of(hf, ids)
    model = kept(hf, lean(hf) if way == "lean" else TransformersNetwork(hf, VOCAB))

    def check(cache: KVCache, end: int) -> None:
        assert cache.features(0, end).shape == (end, 3, hf.config.hidden_size)
        for index, layer in enumerate(layers):
            close(cache.features(0, end)[:, index], expected[layer][:end])

    cache, plain, other = KVCache(layers), KVCache(), KVCache((1,))
    model.forward([Request(ids[:40], 1, cache)])
    check(cache, 40)
    close(cache.features(7, 11), torch.stack([expected[layer][7:11] for layer in layers], 1))
    # rows of three requests in one pass, who keep features of other layers, or none
    model.forward([Request(ids[:9], 1, plain), Request(ids[:44], 4, cache), Request(ids[:30], 1, other)])
    check(cache, 44)
    close(other.features(0, 30)[:, 0], expected[1][:30])
    model.forward([Request([*ids[:44], 1, 2, 3], 4, cache)])  # a draft that is rejected
    model.forward([Request(ids[:50], 4, cache)])
    check(cache, 50)
    model.forward([Request([*ids[:20], 5, 5], 1, cache)])  # an edit
    model.forward([Request(ids, 1, cache)])  # a retry, over more than one pass and past the first block
    check(cache, 300)
    evicted = KVCache(layers)
    model.forward([Request(ids, 1, evicted)])
    check(evicted, 300)


def test_a_cache_without_features_costs_nothing_and_has_none_to_give() -> None:
    hf = random_model(CONFIGS["llama"]())
    model, plain, rich = Model(lean(hf), 2048), KVCache(), KVCache((1, 3))
    ids = some_ids(20)
    logits = [model.forward([Request(ids, 5, cache)])[0] for cache in (plain, rich)]
    assert torch.equal(*logits)
    assert rich.nbytes - plain.nbytes == rich.features(0, 0).untyped_storage().nbytes() > 0
    for cache, begin, end in ((plain, 0, 5), (KVCache((1,)), 0, 1), (rich, 0, 21), (rich, 3, 2), (rich, -1, 2)):
        with pytest.raises(EngineError, match="no features"):
            cache.features(begin, end)


@pytest.mark.parametrize("layer", [-1, 4])
def test_features_of_a_layer_that_there_is_not_are_refused(layer: int) -> None:
    hf = random_model(CONFIGS["llama"]())
    for network in (lean(hf), TransformersNetwork(hf, VOCAB)):
        with pytest.raises(EngineError, match="layers 0 to 3"):
            kept(hf, network).forward([Request([1, 2], 1, KVCache((layer,)))])


@pytest.mark.model
def test_the_native_networks_features_are_those_of_transformers() -> None:
    """Up to its rounding of activations to 8 bits, over the same quants: another layer's would differ by much more."""
    kernels = native.kernels()
    if isinstance(kernels, str):
        pytest.skip(kernels)
    folder = source.find("embedded", True, lambda phase, fraction: None, tiles=True).folder
    config = json.loads((folder / "config.json").read_text("utf-8"))
    matrices, vectors = read_tiles(folder)
    state = {name: torch.from_numpy(array) for name, array in vectors.items()}
    state |= {name: to_floats(blocks) for name, blocks in matrices.items()}
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    hf = transformers.LlamaForCausalLM(transformers.LlamaConfig.from_dict(config)).eval()
    hf.load_state_dict(state)
    layers = (0, 2, 15, 27, 30)
    ids = [int(i) for i in torch.randint(3, 40_000, (40,), generator=torch.Generator().manual_seed(1))]
    network = NativeLlama.load(folder, config, kernels, 2)
    caches = [KVCache(layers) for _ in range(2)]
    for model, cache in zip((Model(network, 8192), kept(hf, TransformersNetwork(hf, 49152))), caches, strict=True):
        model.forward([Request(ids[:30], 1, cache)])
        model.forward([Request([*ids[:30], 5, 6], 3, cache)])
        model.forward([Request(ids, 1, cache), Request(ids[:7], 1, KVCache())])
    found, expected = (cache.features(0, 40).float() for cache in caches)
    error = (found - expected).norm(dim=-1) / expected.norm(dim=-1)
    assert float(error.mean(0).max()) < 0.1
    assert float(error[:, 0].max()) < 1e-5, "what enters layer 0 is the embedding"
    apart = (found[:, 1:] - expected[:, :-1]).norm(dim=-1) / expected[:, :-1].norm(dim=-1)
    assert float(apart.mean(0).min()) > 0.3


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
@pytest.mark.parametrize("kind", ["smollm", "llama, a key head each", "mistral", "qwen3"])
def test_over_linear_layers_that_are_exact_the_whole_network_is(kind: str) -> None:
    hf = random_model(CONFIGS[kind]())
    assert exactness.is_exact(lean(hf, lambda w, b: RowByRow(to_floats(w), b, torch.float32)))


@given(
    st.integers(1, 900), st.integers(1, 40), st.sampled_from([1, 2, 3, 4, 7]), st.sampled_from([16, 64, 128]),
    st.none() | st.integers(1, 600), st.integers(0, 2**32),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
@on_avx2
def test_attention_gives_a_row_its_bits_whatever_is_beside(
    begin: int, count: int, groups: int, dim: int, window: int | None, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    keys, held = (torch.randn(2, 1024, dim, generator=generator) for _ in range(2))
    queries = torch.randn(count, 2 * groups, dim, generator=generator)

    def seen_by(row: int, count: int) -> torch.Tensor:
        mask = attention_mask(Span(KVCache(), 0, begin + row, count), groups, window, keys)
        return attend(queries[row : row + count], keys, held, mask)

    whole, row = seen_by(0, count), seed % count
    alone = seen_by(row, 1)
    assert torch.equal(whole[row], alone[0])
    first = 0 if window is None else max(0, begin + row - window + 1)
    seen = slice(first, begin + row + 1)
    scores = torch.einsum("hgd,htd->hgt", queries[row].view(2, groups, dim), keys[:, seen]) * dim**-0.5
    expected = torch.einsum("hgt,htd->hgd", scores.softmax(-1), held[:, seen]).flatten()
    torch.testing.assert_close(alone[0], expected, atol=1e-5, rtol=1e-4)


@given(st.integers(1, 6), st.sampled_from([8, 33, 64]), st.floats(1e-3, 1e3))
@settings(max_examples=30, deadline=None)
def test_the_norm_is_torchs(n: int, size: int, scale: float) -> None:
    x, weight = torch.randn(n, size) * scale, torch.rand(size)
    torch.testing.assert_close(rms_norm(x, weight, 1e-5), F.rms_norm(x, (size,), weight, 1e-5), atol=1e-5, rtol=1e-4)


def test_tables_of_rotations_are_the_same_in_parts() -> None:
    shape = shape_of(CONFIGS["llama, yarn rope"]())
    whole, parts = rope_tables(shape), [rope_tables(shape, begin, begin + 512) for begin in range(0, 2048, 512)]
    for table, pieces in zip(whole, zip(*parts, strict=True), strict=True):
        torch.testing.assert_close(table, torch.cat(pieces), atol=1e-7, rtol=0)
        assert len(table) == 2048 and float(table.abs().max()) > 1.0  # yarn makes heads longer
