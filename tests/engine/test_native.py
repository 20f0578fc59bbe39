"""The native kernels against their twin, against transformers, and against themselves with other rows beside."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

import engine.kernels.build as native
from engine import rng as randomness
from engine import sampling
from engine.config import SamplingParams
from engine.errors import LoadError, NumericalError
from engine.kernels.build import Kernels, NativeLinear
from engine.kernels.native_sampler import NativeSampler
from engine.kernels.packing import (
    Blocks,
    concatenate,
    integer_sums,
    interleave_tiles,
    multiply,
    pack_tiles,
    quantise_activations,
    read_blocks,
)
from engine.loading import batch_invariance as exactness
from engine.loading.gguf.convert import unpermute
from engine.networks.attention import attend_spans
from engine.networks.kv_cache import KVCache
from engine.networks.llama_shape import LlamaShape
from engine.networks.model import Model, Request
from engine.networks.native_llama import NativeLlama
from engine.networks.transformers_network import TransformersNetwork
from tests.fakes import FakeNetwork, hashed_logits

COMPILER = next(filter(None, map(shutil.which, native.COMPILERS)), None)
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler here")


def cpu_has(*wanted: str) -> bool:
    try:
        flags = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags"))
    except (OSError, StopIteration):
        return False
    return all(flag in flags.split() for flag in wanted)


BUILDS = {
    "portable C++": ((), ()),
    "AVX2": (("-mavx2", "-mfma", "-mf16c"), ("avx2", "fma", "f16c")),
    "AVX-512 VNNI": (
        ("-mavx2", "-mfma", "-mf16c", "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512vnni"),
        ("avx512f", "avx512bw", "avx512_vnni"),
    ),
}


@pytest.fixture(scope="module", params=list(BUILDS))
def kernels(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    """Each path that this processor can run, built on its own."""
    flags, needed = BUILDS[request.param]
    if COMPILER is None or not cpu_has(*needed):
        pytest.skip(f"this machine cannot build or run {request.param}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "FLAGS", tuple("-O2" if f == "-march=native" else f for f in native.FLAGS) + flags)
        path = tmp_path_factory.mktemp("kernels") / "kernels.so"
        native._compile(COMPILER, path)
    made = native._load_library(path, "test")
    assert made.path == request.param
    return made


def random_blocks(rng: np.random.Generator, bits: int, outputs: int, inputs: int) -> Blocks:
    groups = (outputs, inputs // 32)
    scale = rng.uniform(0.001, 0.02, groups).astype(np.float16)
    if bits == 8:
        return Blocks(8, rng.integers(-127, 128, (outputs, inputs), dtype=np.int8), scale, None)
    minimum = rng.uniform(-0.15, -0.01, groups).astype(np.float16)
    return Blocks(4, rng.integers(0, 16, (outputs, inputs), dtype=np.uint8), scale, minimum)


def linear(packed: np.ndarray, blocks: Blocks) -> NativeLinear:
    outputs, inputs = blocks.quants.shape
    return NativeLinear(packed.ctypes.data, None, blocks.bits, inputs, outputs)


def native_multiply(kernels: Kernels, blocks: Blocks, x: np.ndarray, threads: int = 2) -> np.ndarray:
    packed = pack_tiles(blocks)
    out = np.full((len(x), len(blocks.quants)), np.nan, dtype=np.float32)
    scratch = np.empty(1 << 22, dtype=np.uint8)
    w = linear(packed, blocks)
    kernels.library.gl_multiply(ctypes.byref(w), x.ctypes.data, len(x), out.ctypes.data, scratch.ctypes.data, threads)
    return out


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0"])
def test_blocks_are_read_to_the_number(kind: str) -> None:
    """Against the gguf package's own dequantisation."""
    rng = np.random.default_rng(1)
    size = {"Q4_0": 18, "Q4_1": 20, "Q8_0": 34}[kind]
    data = rng.integers(0, 256, (16, 3 * size), dtype=np.uint8)
    for group in range(3):
        for at in (0, 2)[: 1 + (kind == "Q4_1")]:
            scale = rng.uniform(-0.5, 0.5, 16).astype(np.float16).view(np.uint8).reshape(16, 2)
            data[:, group * size + at : group * size + at + 2] = scale
    blocks = read_blocks(kind, data)
    assert blocks is not None
    expected = dequantize(data, GGMLQuantizationType[kind])
    np.testing.assert_allclose(blocks.dequantise(), expected, rtol=2e-3 if kind == "Q4_0" else 0, atol=1e-6)
    assert read_blocks("Q6_K", data) is None


@pytest.mark.parametrize("bits", [4, 8])
def test_a_packed_table_gives_its_rows_back(kernels: Kernels, bits: int) -> None:
    rng = np.random.default_rng(2)
    blocks = random_blocks(rng, bits, 64, 96)
    packed, ids = pack_tiles(blocks), np.array([0, 63, 17, 5, 17], dtype=np.int64)
    out = np.empty((len(ids), 96), dtype=np.float32)
    kernels.library.gl_rows(ctypes.byref(linear(packed, blocks)), ids.ctypes.data, len(ids), out.ctypes.data)
    np.testing.assert_allclose(out, blocks.dequantise()[ids], rtol=1e-6, atol=1e-7)


def native_raw_probs(kernels: Kernels, logits: np.ndarray, rows: list[int], ids: list[int]) -> list[float]:
    wanted, out = ctypes.c_int32 * len(ids), (ctypes.c_double * len(ids))()
    kernels.library.gl_raw_probs(logits.ctypes.data, logits.shape[1], len(ids), wanted(*rows), wanted(*ids), out)
    return list(out)


@pytest.mark.parametrize("n", [1, 7, 31, 32, 33, 257, 1024, 1025, 1056, 49_152])
@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0, 1e4, 1e38])
def test_raw_probabilities_are_right_for_rows_of_any_length_and_height(kernels: Kernels, n: int, scale: float) -> None:
    rng = np.random.default_rng(n)
    logits = (rng.normal(size=(6, n)).clip(-3, 3) * scale).astype(np.float32)
    logits[1, 1:] = -np.inf  # allowed: tokens that cannot be
    logits[2] += np.float32(50)
    logits[3, -1] = logits[3].max() + np.float32(2)
    logits[4].sort()  # the largest of each block is above all before it
    logits[5] = np.sort(logits[5])[::-1]
    rows = [row for row in range(6) for _ in range(3)]
    ids = [each for row in logits for each in (0, int(row.argmax()), int(rng.integers(n)))]
    shares = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True).astype(np.float64))
    expected = (shares / shares.sum(-1, keepdims=True))[rows, ids]
    found = native_raw_probs(kernels, logits, rows, ids)
    np.testing.assert_allclose(found, expected, rtol=5e-6, atol=1e-30)
    by_torch = sampling.raw_probs(torch.from_numpy(logits), rows, ids)
    np.testing.assert_allclose(by_torch, expected, rtol=1e-4, atol=1e-30)  # its sums are of float32, in few parts
    alone = [native_raw_probs(kernels, logits[row : row + 1], [0], [i])[0] for row, i in zip(rows, ids, strict=True)]
    assert found == alone, "a row does not depend on those beside it"
    assert all(0.0 <= prob <= 1.0 for prob in found)


@pytest.mark.parametrize("n", [1, 33, 1500])
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf])
def test_raw_probabilities_of_what_is_no_number_are_none(kernels: Kernels, n: int, bad: float) -> None:
    for at in {0, n // 2, n - 1}:
        logits = np.linspace(-5, 5, 3 * n, dtype=np.float32).reshape(3, n)
        logits[0, at], logits[1] = bad, -np.inf
        rows, ids = [0, 0, 1, 2], [0, n - 1, n // 2, n - 1]
        for found in (
            native_raw_probs(kernels, logits, rows, ids),
            sampling.raw_probs(torch.from_numpy(logits), rows, ids),
        ):
            assert np.isnan(found[:3]).all() and np.isfinite(found[3])


FILTERS = [
    SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    for temperature in (0.0, 1e-9, 0.7, 1.0, 3.0)
    for top_k, top_p, min_p in ((0, 1.0, 0.0), (1, 1.0, 0.0), (7, 1.0, 0.0), (10**6, 1.0, 0.0), (0, 0.9, 0.0), (0, 0.01, 0.0),
                                (0, 1.0, 0.2), (0, 1.0, 1.0), (40, 0.95, 0.05))
]  # fmt: skip


def score_rows(n: int) -> Iterator[np.ndarray]:
    """Flat ones, steep ones, ones with many of the same, and ones with much that is banned."""
    rng = np.random.default_rng(n)
    for scale in (0.01, 3.0, 40.0):
        row = (rng.standard_normal(n) * scale).astype(np.float32)
        yield row
        yield np.round(row)
        banned = row.copy()
        banned[rng.random(n) < 0.6] = -np.inf
        banned[n // 2] = 0.0
        yield banned


@pytest.mark.parametrize("n", [1, 5, 64, 8192, 49155])
def test_a_rows_distribution_is_the_twins(kernels: Kernels, n: int) -> None:
    native = NativeSampler(kernels.library)
    for row in score_rows(n):
        for params in FILTERS:
            expected = np.zeros(n, np.float32)
            sampling._fill_in_numpy(row, params, expected)
            found = sampling.probabilities(torch.from_numpy(row)[None], [0], 0, params, native)[0].numpy()
            np.testing.assert_allclose(found, expected, rtol=3e-5, atol=1e-7, err_msg=str(params))
            sure = (expected == 0) | (expected > 1e-30)  # what is smaller may be 0 to the one and not to the other
            assert ((found > 0) == (expected > 0))[sure].all(), params
            assert found.sum(dtype=np.float64) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("bad", ["nan", "inf", "nothing"])
@pytest.mark.parametrize("n", [3, 100])
def test_what_is_no_number_has_no_distribution(kernels: Kernels, n: int, bad: str) -> None:
    native = NativeSampler(kernels.library)
    for at in range(n):
        row = torch.zeros(1, n) if bad != "nothing" else torch.full((1, n), float("-inf"))
        if bad != "nothing":
            row[0, at] = float(bad)
        for temperature in (0.0, 1.0):
            with pytest.raises(NumericalError):
                sampling.probabilities(row, [0], 0, SamplingParams(temperature=temperature), native)


@pytest.mark.parametrize("n", [1, 63, 64, 65, 8192, 49155])
def test_draws_are_where_the_running_sum_passes(kernels: Kernels, n: int) -> None:
    rng = np.random.default_rng(n)
    native = NativeSampler(kernels.library)
    for spread in (0.0, 1.0, 8.0):
        probs = 0.7 * np.exp(rng.standard_normal(n) * spread).astype(np.float32)  # a row with a 1 is a point mass
        probs[rng.random(n) < 0.5] = 0.0
        probs[n // 2] = 0.3  # not all are 0, and nor do they come to 1
        running = probs.cumsum(dtype=np.float64)
        for u in (0.0, *rng.random(50), 1.0 - 2.0**-53):
            found = randomness.inverse_cdf(torch.from_numpy(probs), u, native)
            assert probs[found] > 0
            slack = 1e-9 * running[-1]
            assert running[found] - probs[found] - slack <= u * running[-1] <= running[found] + slack
    zeros = np.zeros(n, np.float32)
    assert kernels.library.gl_draw(zeros.ctypes.data, n, 0.5) == -1


def test_double_precision_rows_are_the_twins_work(kernels: Kernels) -> None:
    native = NativeSampler(kernels.library)
    assert randomness.inverse_cdf(torch.tensor([0.25, 0.0, 0.75], dtype=torch.float64), 0.3, native) == 2


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e6, 0.0])
def test_rounding_gives_the_twins_integers(kernels: Kernels, scale: float) -> None:
    x = (np.random.default_rng(3).normal(size=(1, 32 * 50)) * scale).astype(np.float32)
    x[0, :32] = 0.0
    x[0, 32:64] = np.linspace(-127, 127, 32) / 2  # ties
    quants, step = quantise_activations(x)
    found, found_step = np.empty(x.shape[1], np.int8), np.empty(50, np.float32)
    total = np.empty(50, np.float32)
    kernels.library.gl_round(x.ctypes.data, x.shape[1], found.ctypes.data, found_step.ctypes.data, total.ctypes.data)
    assert np.array_equal(found.reshape(50, 32), quants[0]) and np.array_equal(found_step, step[0])
    np.testing.assert_array_equal(total, step[0] * quants[0].sum(-1, dtype=np.int32).astype(np.float32))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("largest", [False, True], ids=["random", "largest"])
def test_products_are_the_twins_integers(kernels: Kernels, bits: int, largest: bool) -> None:
    """Where scales are powers of two, float32 holds every step exactly, so nothing but the integers can differ."""
    rng = np.random.default_rng(4)
    blocks = random_blocks(rng, bits, 48, 64)
    blocks.scale[:] = np.float16(0.5)
    if blocks.minimum is not None:
        blocks.minimum[:] = np.float16(-2)
    x = rng.integers(-127, 128, (5, 64)).astype(np.float32)
    if largest:  # every product as large as it can be: sums that do not fit would show
        blocks.quants[:] = 15 if bits == 4 else 127
        x[:] = 127
    x[:, ::32] = 127  # the step of every group is then 1
    found = native_multiply(kernels, blocks, x)
    assert np.array_equal(found, multiply(blocks, x).astype(np.float32))
    assert np.abs(integer_sums(blocks, quantise_activations(x)[0])).max() > 1000


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_products_are_close_and_each_row_is_its_own(kernels: Kernels, bits: int, threads: int) -> None:
    rng = np.random.default_rng(5)
    blocks = random_blocks(rng, bits, 80, 160)
    x = rng.normal(size=(23, 160)).astype(np.float32)
    whole = native_multiply(kernels, blocks, x, threads)
    np.testing.assert_allclose(whole, multiply(blocks, x), rtol=1e-4, atol=1e-4)
    for begin, end in ((0, 1), (3, 5), (4, 7), (7, 11), (11, 16), (22, 23)):
        assert np.array_equal(native_multiply(kernels, blocks, x[begin:end]), whole[begin:end])


SHAPE = {
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16, "hidden_size": 96, "intermediate_size": 128,
    "num_hidden_layers": 3, "vocab_size": 128, "max_position_embeddings": 700, "rms_norm_eps": 1e-5,
}  # fmt: skip


def tiny_llama(seed: int = 0) -> tuple[dict[str, torch.Tensor], transformers.LlamaForCausalLM]:
    """The same random quantised weights as tiles and, dequantised, as a float32 transformers model."""
    rng = np.random.default_rng(seed)
    h, mlp = 96, 128
    sizes = {"attn_q": (96, h), "attn_k": (32, h), "attn_v": (32, h), "attn_output": (h, 96)}
    sizes |= {"ffn_gate": (mlp, h), "ffn_up": (mlp, h), "ffn_down": (h, mlp)}
    embedding = random_blocks(rng, 8, 128, h)
    weights = {"token_embd": pack_tiles(embedding), "output_norm.weight": np.ones(h, np.float32) * 1.5}
    state = {"model.embed_tokens.weight": embedding.dequantise(), "model.norm.weight": weights["output_norm.weight"]}
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    for n in range(3):
        made = {name: random_blocks(rng, 4, *size) for name, size in sizes.items()}
        norms = {name: rng.uniform(0.5, 1.5, h).astype(np.float32) for name in ("attn_norm", "ffn_norm")}
        at, to = f"blk.{n}.", f"model.layers.{n}."
        weights |= {f"{at}{name}.weight": norm for name, norm in norms.items()}
        weights[f"{at}qkv"] = pack_tiles(concatenate([made["attn_q"], made["attn_k"], made["attn_v"]]))
        weights[f"{at}out"], weights[f"{at}down"] = pack_tiles(made["attn_output"]), pack_tiles(made["ffn_down"])
        weights[f"{at}gate_up"] = interleave_tiles(pack_tiles(made["ffn_gate"]), pack_tiles(made["ffn_up"]))
        plain = {name: blocks.dequantise() for name, blocks in made.items()}
        state |= {
            f"{to}self_attn.q_proj.weight": unpermute(plain["attn_q"], 6),
            f"{to}self_attn.k_proj.weight": unpermute(plain["attn_k"], 2),
            f"{to}self_attn.v_proj.weight": plain["attn_v"],
            f"{to}self_attn.o_proj.weight": plain["attn_output"],
            f"{to}mlp.gate_proj.weight": plain["ffn_gate"],
            f"{to}mlp.up_proj.weight": plain["ffn_up"],
            f"{to}mlp.down_proj.weight": plain["ffn_down"],
            f"{to}input_layernorm.weight": norms["attn_norm"],
            f"{to}post_attention_layernorm.weight": norms["ffn_norm"],
        }
    config = transformers.LlamaConfig(**SHAPE, rope_parameters={"rope_type": "default", "rope_theta": 1e4})
    hf = transformers.LlamaForCausalLM(config).eval()
    hf.load_state_dict({name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in state.items()})
    return {name: torch.from_numpy(array) for name, array in weights.items()}, hf


def native_model(kernels: Kernels, threads: int = 2) -> tuple[Model, transformers.LlamaForCausalLM]:
    weights, hf = tiny_llama()
    shape = LlamaShape.read(SHAPE | {"rope_parameters": {"rope_theta": 1e4}})
    return Model(NativeLlama(shape, weights, kernels, threads), 700), hf


def test_the_whole_forward_gives_what_transformers_gives(kernels: Kernels) -> None:
    """Up to the rounding of activations to 8 bits: a wrong rope, norm or mask would differ by about all of it."""
    model, hf = native_model(kernels)
    transformers.AttentionInterface.register("greenlight", attend_spans)
    hf.set_attn_implementation("greenlight")
    reference = Model(TransformersNetwork(hf, 128), 700)
    ids = [int(i) for i in np.random.default_rng(6).integers(0, 128, 90)]
    [found] = model.forward([Request(ids, 90, KVCache())])
    [expected] = reference.forward([Request(ids, 90, KVCache())])
    error = (found - expected).norm(dim=-1) / (expected - expected.mean(-1, keepdim=True)).norm(dim=-1)
    assert float(error.max()) < 0.06
    assert float((found.argmax(-1) == expected.argmax(-1)).float().mean()) > 0.8


def test_the_forward_is_exact_to_the_bit_whatever_is_computed_beside(kernels: Kernels) -> None:
    model, _ = native_model(kernels)
    assert exactness.is_exact(model.network)
    assert exactness.is_exact(native_model(kernels, threads=1)[0].network)


def test_a_long_request_before_a_short_one_changes_no_bit(kernels: Kernels) -> None:
    model, _ = native_model(kernels, threads=3)
    ids = [int(i) for i in np.random.default_rng(8).integers(0, 128, 600)]
    long, short = KVCache(), KVCache()
    model.forward([Request(ids[:590], 0, long)])
    together = model.forward([Request(ids, 10, long), Request(ids[:3], 3, short)])
    alone = [model.forward([Request(ids, 10, KVCache())])[0], model.forward([Request(ids[:3], 3, KVCache())])[0]]
    assert all(torch.equal(a, b) for a, b in zip(together, alone, strict=True))


def test_eviction_and_rebuilding_change_no_bit(kernels: Kernels) -> None:
    model, _ = native_model(kernels)
    ids = [int(i) for i in np.random.default_rng(7).integers(0, 128, 600)]
    cache = KVCache()
    [first] = model.forward([Request(ids, 1, cache)])
    model.forward([Request([*ids[:100], 3, 1, 4], 2, cache)])  # an edit throws most of the cache away
    [again] = model.forward([Request(ids, 1, cache)])
    [fresh] = model.forward([Request(ids, 1, KVCache())])
    grown = KVCache()
    for end in range(40, 601, 40):
        [stepwise] = model.forward([Request(ids[:end], 1, grown)])
    assert torch.equal(first, again) and torch.equal(first, fresh) and torch.equal(first, stepwise)


def test_weights_of_another_size_are_refused(kernels: Kernels) -> None:
    weights, _ = tiny_llama()
    shape = LlamaShape.read(SHAPE | {"hidden_size": 64, "rope_parameters": {"rope_theta": 1e4}})
    with pytest.raises(LoadError, match="do not fit"):
        NativeLlama(shape, weights, kernels, 1)


def test_heads_that_do_not_divide_into_lanes_are_refused(kernels: Kernels) -> None:
    weights, _ = tiny_llama()
    shape = LlamaShape.read(SHAPE | {"head_dim": 24, "rope_parameters": {"rope_theta": 1e4}})
    with pytest.raises(LoadError, match="24 dimensions"):
        NativeLlama(shape, weights, kernels, 1)


@pytest.mark.parametrize("rows", [1, 3, 6])
def test_a_wide_pass_keeps_within_its_working_memory(
    kernels: Kernels, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide, heads, kv_heads, dim = 8192, 64, 8, 128
    outputs = {"qkv": (heads + 2 * kv_heads) * dim, "out": wide, "gate_up": 2 * wide, "down": wide}
    weights = {f"blk.0.{name}": torch.zeros(n // 16, wide // 32, 320, dtype=torch.uint8) for name, n in outputs.items()}
    weights |= {f"{name}.weight": torch.ones(wide) for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm")}
    weights["token_embd"] = torch.zeros(1, wide // 32, 544, dtype=torch.uint8)
    config = SHAPE | {"hidden_size": wide, "intermediate_size": wide, "num_attention_heads": heads, "head_dim": dim}
    config |= {"num_key_value_heads": kv_heads, "num_hidden_layers": 1, "vocab_size": 16}
    network = NativeLlama(LlamaShape.read(config | {"rope_parameters": {"rope_theta": 1e4}}), weights, kernels, 2)
    handed_out: list[torch.Tensor] = []

    def with_a_fence(count: int, longest: int) -> int:
        needed = kernels.library.gl_scratch_bytes(ctypes.byref(network._native_shape), count, longest, 2)
        handed_out.append(torch.full((needed + 1_000_000,), 0x5A, dtype=torch.uint8))
        return handed_out[-1].data_ptr()

    monkeypatch.setattr(network, "_scratch_for", with_a_fence)
    Model(network, 64).forward([Request(list(range(rows)), rows, KVCache())])
    assert len(handed_out) == 1 and bool((handed_out[0][-1_000_000:] == 0x5A).all())


class Wobbly(FakeNetwork):
    """Its last bit depends on how many rows are computed together, like most library kernels; from position `start`
    on."""

    start = 0

    def __call__(self, token_ids: Any, positions: Any, spans: Any, logit_rows: Any) -> torch.Tensor:
        wobbles = len(token_ids) > 4 and int(positions.max()) >= self.start
        return super().__call__(token_ids, positions, spans, logit_rows) * (1 + 1e-6 * wobbles)


@pytest.mark.parametrize("start", [16, 100, 513])
def test_the_self_check_looks_far_enough(start: int) -> None:
    network = Wobbly(60, hashed_logits(60))
    network.start = start
    assert not exactness.is_exact(network)


def test_the_self_check_tells_an_exact_network_from_one_that_is_not(tmp_path: Path) -> None:
    language = hashed_logits(60)
    assert exactness.is_exact(FakeNetwork(60, language))
    assert not exactness.is_exact(Wobbly(60, language))
    network = Wobbly(60, language)
    assert exactness.is_exact_cached(network, tmp_path, "a") is False
    asked = len(network.rows)
    assert exactness.is_exact_cached(network, tmp_path, "a") is False and len(network.rows) == asked
    (tmp_path / "exact.json").write_text("{damaged")
    assert exactness.is_exact_cached(FakeNetwork(60, language), tmp_path, "b") is True
    assert json.loads((tmp_path / "exact.json").read_text()) == {"b": True}


def run_python(code: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


ASK = "from engine.kernels.build import kernels; k = kernels(); print(k if isinstance(k, str) else 'built ' + k.path)"


@needs_compiler
def test_two_processes_may_build_at_once(tmp_path: Path) -> None:
    both = [run_python(ASK, GREENLIGHT_CACHE=str(tmp_path)) for _ in range(2)]
    assert all(process.communicate(timeout=300)[0].startswith("built ") for process in both)
    built = [path.name for path in (tmp_path / "native").iterdir() if not path.name.endswith(".lock")]
    assert len(built) == 1 and built[0].endswith(".so"), "no half-written file is left"


@pytest.mark.parametrize("size", [0, 1, 4096, 6999])
def test_a_build_that_was_cut_short_is_made_again_and_a_whole_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Loading half a library ends the process with a signal."""
    compiled = []

    def compile_one(compiler: str, target: Path) -> None:
        compiled.append(target)
        target.write_bytes(b"kernels" * 1000)

    monkeypatch.setattr(native, "_compile", compile_one)
    monkeypatch.setenv("GREENLIGHT_CACHE", str(tmp_path))
    built = native._build_library("c++", "key")
    assert native._build_library("c++", "key") == built and len(compiled) == 1
    os.truncate(built, size)
    assert native._build_library("c++", "key").stat().st_size == 7000 and len(compiled) == 2
    assert [path.suffix for path in (tmp_path / "native").iterdir() if path.suffix != ".lock"] == [".so"]


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"PATH": "/nowhere"}, "no C++ compiler"),
        ({"CXX": "/bin/false"}, "could not be compiled"),
        ({"CXX": "no-such-compiler"}, "no C++ compiler"),
    ],
)
def test_without_a_working_compiler_the_reason_is_a_phrase(
    tmp_path: Path, environment: dict[str, str], reason: str
) -> None:
    out, err = run_python(ASK, GREENLIGHT_CACHE=str(tmp_path), **environment).communicate(timeout=300)
    assert reason in out, err


@needs_compiler
def test_a_cache_that_cannot_be_written_to_still_builds(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    out, err = run_python(ASK, GREENLIGHT_CACHE=str(tmp_path / "file")).communicate(timeout=300)
    assert out.startswith("built "), err
