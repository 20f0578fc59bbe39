"""The native kernels against their twin, against transformers, and against themselves with other rows beside."""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import engine.kernels.build as native
from engine import rng as randomness
from engine import sampling
from engine.config import SamplingParams
from engine.errors import LoadError, NumericalError
from engine.kernels.build import Kernels, NativeLinear
from engine.kernels.native_sampler import NativeSampler
from engine.kernels.packing import (
    Blocks,
    interleave_tiles,
    multiply,
    pack_tiles,
    quantise,
    select_rows,
)
from engine.loading import batch_invariance as exactness
from engine.networks.attention import attend_spans
from engine.networks.kv_cache import KVCache
from engine.networks.llama_shape import LlamaShape
from engine.networks.model import Model, Request
from engine.networks.native_llama import NativeLlama
from engine.networks.transformers_network import TransformersNetwork
from tests.engine.tiny_ggufs import permuted
from tests.fakes import FakeNetwork, hashed_logits

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, native.COMPILERS)), reason="there is no C++ compiler here"
)
BUILDS = {
    "portable C++": "",
    "AVX2": "avx2 fma f16c",
    "AVX-512 VNNI": "avx2 fma f16c avx512f avx512bw avx512vl avx512vnni",
}
"""Instructions beyond the plain ones, by the path that they lead to; who has those of a path has those before it."""


@pytest.fixture(scope="module", params=["own", *(pytest.param(name, marks=pytest.mark.slow) for name in BUILDS)])
def kernels(request: pytest.FixtureRequest) -> Kernels:
    """What runs here, and each path that this processor can run; all are compiled once for a source, and kept."""
    own, paths = native.kernels(), list(BUILDS)
    if isinstance(own, str):
        pytest.skip(own)
    if request.param == "own":
        return own
    if paths.index(request.param) > paths.index(own.path):
        pytest.skip("this processor cannot run it")
    flags = ["-O2" if flag == "-march=native" else flag for flag in native.FLAGS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GREENLIGHT_CACHE", str(request.config.cache.mkdir("kernels")))
        patch.setattr(native, "FLAGS", (*flags, *(f"-m{name}" for name in BUILDS[request.param].split())))
        made = native.kernels.__wrapped__()
    assert isinstance(made, Kernels) and made.path == request.param, made
    return made


def random_blocks(bits: int, outputs: int, inputs: int) -> Blocks:
    return quantise(np.random.default_rng(2).normal(size=(outputs, inputs)), bits)


def linear(packed: np.ndarray, blocks: Blocks) -> Any:
    outputs, inputs = blocks.quants.shape
    return ctypes.byref(NativeLinear(packed.ctypes.data, None, blocks.bits, inputs, outputs))


def native_multiply(kernels: Kernels, blocks: Blocks, x: np.ndarray, threads: int = 2) -> np.ndarray:
    packed, out = pack_tiles(blocks), np.full((len(x), len(blocks.quants)), np.nan, dtype=np.float32)
    scratch = np.empty(1 << 22, dtype=np.uint8)
    kernels.library.gl_multiply(
        linear(packed, blocks), x.ctypes.data, len(x), out.ctypes.data, scratch.ctypes.data, threads
    )
    return out


@pytest.mark.parametrize("bits", [4, 8])
def test_products_are_the_twins_and_each_row_is_its_own(kernels: Kernels, bits: int) -> None:
    rng, blocks = np.random.default_rng(5), random_blocks(bits, 80, 160)
    x = rng.normal(size=(23, 160)).astype(np.float32)
    whole = native_multiply(kernels, blocks, x)
    np.testing.assert_allclose(whole, multiply(blocks, x), rtol=1e-4, atol=1e-3)
    for threads in (1, 2, 5):
        for begin, end in ((0, 1), (3, 5), (4, 7), (7, 11), (11, 16), (0, 23)):
            assert np.array_equal(native_multiply(kernels, blocks, x[begin:end], threads), whole[begin:end])
    rows, ids = np.empty((5, 160), np.float32), np.array([0, 79, 17, 5, 17])
    packed = pack_tiles(blocks)
    kernels.library.gl_rows(linear(packed, blocks), ids.ctypes.data, 5, rows.ctypes.data)
    np.testing.assert_allclose(rows, blocks.dequantise()[ids], rtol=1e-6, atol=1e-7)
    # With powers of two for scales float32 holds every step exactly, so nothing but the integers can differ.
    blocks.scale[:] = 0.5
    if blocks.minimum is not None:
        blocks.minimum[:] = -2
    x = rng.integers(-253, 254, (5, 160)).astype(np.float32)
    x *= 0.5  # halves: ties
    x[:, ::32] = 127  # the step of every group is then 1
    x[0, :32] = 0.0
    for _ in range(2):
        assert np.array_equal(native_multiply(kernels, blocks, x), multiply(blocks, x).astype(np.float32))
        blocks.quants[:], x[:] = 15 if bits == 4 else 127, 127  # now as large as can be: all sums must fit


@pytest.mark.parametrize("n", [1, 7, 32, 33, 257, 1025, 49_152])
def test_raw_probabilities_are_right_for_rows_of_any_length_and_height(kernels: Kernels, n: int) -> None:
    rng, sampler = np.random.default_rng(n), NativeSampler(kernels.library)
    for scale in (0.0, 1.0, 30.0, 1e4, 1e38):
        logits = torch.from_numpy(rng.normal(size=(5, n)).clip(-3, 3) * scale).float()
        logits[1, 1:] = -torch.inf  # allowed: tokens that cannot be
        logits[2, -1] = logits[2].max() + 2
        logits[3] = logits[3].sort().values  # the largest of each block is above all before it
        logits[4] = logits[3].flip(0) + 50
        rows, ids = sorted([*range(5)] * 3), [each for row in logits for each in (0, int(row.argmax()), n // 2)]
        expected = logits.double().softmax(-1)[rows, ids]
        for raw_probs, limit in ((sampler.raw_probs, 5e-6), (sampling.raw_probs, 1e-4)):
            np.testing.assert_allclose(raw_probs(logits, rows, ids), expected, rtol=limit, atol=1e-30)


def test_what_is_no_number_has_no_probabilities_and_no_distribution(kernels: Kernels) -> None:
    sampler = NativeSampler(kernels.library)
    for n, bad in itertools.product((1, 33, 1500), (np.nan, -np.nan, np.inf)):
        for at in {0, 1 % n, n // 2, n - 1}:
            logits = torch.linspace(-5, 5, 3 * n).reshape(3, n)
            logits[0, at], logits[1] = bad, -np.inf
            for raw_probs in (sampler.raw_probs, sampling.raw_probs):
                found = raw_probs(logits, [0, 0, 1, 2], [0, n - 1, n // 2, n - 1])
                assert np.isnan(found[:3]).all() and np.isfinite(found[3])
            for row, temperature in itertools.product(logits[:2], (0.0, 1.0)):
                with pytest.raises(NumericalError):
                    sampling.probabilities(row[None], [0], 0, SamplingParams(temperature=temperature), sampler)


FILTERS: tuple[dict[str, Any], ...] = (
    {}, {"top_k": 1}, {"top_k": 7}, {"top_k": 10**6}, {"top_p": 0.9}, {"top_p": 0.01}, {"min_p": 0.2}, {"min_p": 1.0},
    {"top_k": 40, "top_p": 0.95, "min_p": 0.05},
)  # fmt: skip


@pytest.mark.parametrize("n", [1, 5, 64, 8192, 49155])
def test_a_rows_distribution_is_the_twins(kernels: Kernels, n: int) -> None:
    """Flat rows, steep ones, ones with many of the same, and ones with much that is banned."""
    sampler, rng = NativeSampler(kernels.library), np.random.default_rng(n)
    for scale, kind, filters in itertools.product((0.01, 3.0, 40.0), range(3), FILTERS):
        row = (rng.standard_normal(n) * scale).astype(np.float32)
        row = (row, row.round(), np.where((rng.random(n) < 0.6) & (np.arange(n) != n // 2), -np.inf, row))[kind]
        row = row.astype(np.float32)
        for temperature in (0.0, 1e-9, 0.7, 1.0, 3.0):
            params, expected = SamplingParams(temperature=temperature, **filters), np.zeros(n, np.float32)
            sampling._fill_in_numpy(row, params, expected)
            found = sampling.probabilities(torch.from_numpy(row)[None], [0], 0, params, sampler)[0].numpy()
            np.testing.assert_allclose(found, expected, rtol=3e-5, atol=1e-7, err_msg=str(params))
            sure = (expected == 0) | (expected > 1e-30)  # what is smaller may be 0 to the one and not to the other
            assert ((found > 0) == (expected > 0))[sure].all(), params
            assert found.sum(dtype=np.float64) == pytest.approx(1.0, abs=1e-5)


def test_draws_are_where_the_running_sum_passes(kernels: Kernels) -> None:
    sampler = NativeSampler(kernels.library)
    for n, spread in itertools.product((1, 63, 64, 65, 8192, 49155), (0.0, 1.0, 8.0)):
        rng = np.random.default_rng(n)
        probs = 0.7 * np.exp(rng.standard_normal(n) * spread).astype(np.float32)  # a row with a 1 is a point mass
        probs[rng.random(n) < 0.5] = 0.0
        probs[n // 2] = 0.3  # not all are 0, and nor do they come to 1
        shares = probs.cumsum(dtype=np.float64) / probs.sum(dtype=np.float64)
        for u in (0.0, *rng.random(50), 1.0 - 2.0**-53):
            found = randomness.inverse_cdf(torch.from_numpy(probs), u, sampler)
            assert probs[found] > 0 and u <= shares[found] + 1e-9
            assert found == 0 or shares[found - 1] - 1e-9 <= u
        assert sampler.draw(np.zeros(n, np.float32), 0.5) == -1
    doubles = torch.tensor([0.25, 0.0, 0.75], dtype=torch.float64)  # the twin's work
    assert randomness.inverse_cdf(doubles, 0.3, sampler) == 2


SHAPE = {
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16, "hidden_size": 96, "intermediate_size": 128,
    "num_hidden_layers": 3, "vocab_size": 128, "max_position_embeddings": 700, "rms_norm_eps": 1e-5,
}  # fmt: skip
HEADS = {"q": 6, "k": 2}


def to_tiles(weight: torch.Tensor, bits: int = 4, heads: int = 1) -> torch.Tensor:
    """The weight becomes what its tiles stand for. heads: of rows that a GGUF has in another order."""
    blocks = quantise(weight.numpy(), bits)
    weight.copy_(torch.from_numpy(blocks.dequantise()))
    order = permuted(np.arange(len(weight)), heads) if heads > 1 else slice(None)
    return torch.from_numpy(pack_tiles(select_rows(blocks, order)))


def tiny_llama() -> tuple[dict[str, torch.Tensor], transformers.LlamaForCausalLM]:
    """The same random quantised weights as tiles and, dequantised, as a float32 transformers model."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SHAPE, tie_word_embeddings=True, initializer_range=0.15)
    hf = transformers.LlamaForCausalLM(config).eval().requires_grad_(False)
    for parameter in hf.parameters():
        if parameter.ndim == 1:
            parameter.uniform_(0.5, 1.5)
    weights = {"token_embd": to_tiles(hf.lm_head.weight, 8), "output_norm.weight": hf.model.norm.weight}
    for n, layer in enumerate(hf.model.layers):
        modules = {name.partition(".")[2][:1]: module for name, module in layer.named_modules() if "proj" in name}
        tiles = {name: to_tiles(module.weight, 4, HEADS.get(name, 1)) for name, module in modules.items()}
        weights |= {f"blk.{n}.qkv": torch.cat([tiles[x] for x in "qkv"]), f"blk.{n}.out": tiles["o"]}
        gate_up = interleave_tiles(tiles["g"].numpy(), tiles["u"].numpy())
        weights |= {f"blk.{n}.gate_up": torch.from_numpy(gate_up), f"blk.{n}.down": tiles["d"]}
        weights[f"blk.{n}.attn_norm.weight"] = layer.input_layernorm.weight
        weights[f"blk.{n}.ffn_norm.weight"] = layer.post_attention_layernorm.weight
    return weights, hf


def native_llama(kernels: Kernels, threads: int = 2, **shape: int) -> NativeLlama:
    config = SHAPE | {"rope_parameters": {"rope_theta": 1e4}} | shape
    return NativeLlama(LlamaShape.read(config), tiny_llama()[0], kernels, threads)


IDS = np.random.default_rng(6).integers(0, 128, 600).tolist()


def test_the_whole_forward_and_its_features_are_those_of_transformers(kernels: Kernels) -> None:
    """Up to the rounding of activations to 8 bits: a wrong rope, norm, mask or layer would differ by about all of
    it."""
    hf, ids, layers = tiny_llama()[1], IDS[:90], (0, 2, 3)
    transformers.AttentionInterface.register("greenlight", attend_spans)
    hf.set_attn_implementation("greenlight")
    results = []
    for network in (native_llama(kernels), TransformersNetwork(hf, 128)):
        model, cache = Model(network, 700), KVCache(layers)
        [logits, _] = model.forward([Request(ids, 90, cache), Request(ids[:7], 1, KVCache((1,)))])
        model.forward([Request([*ids[:60], 5, 6], 3, cache)])  # drafts, rejected by the next pass
        model.forward([Request(ids, 1, cache)])
        results.append([logits, *cache.features(0, 90).unbind(1)])
    for n, (found, expected) in enumerate(zip(*results, strict=True)):
        error = (found - expected).norm(dim=-1) / (expected - expected.mean(-1, keepdim=True)).norm(dim=-1)
        assert float(error.max()) < (1e-5 if n == 1 else 0.1), "what enters layer 0 is the embedding"
    assert float((results[0][0].argmax(-1) == results[1][0].argmax(-1)).float().mean()) > 0.8


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_no_bit_depends_on_what_is_computed_beside_or_was_before(kernels: Kernels, threads: int) -> None:
    network, cache = native_llama(kernels, threads), KVCache()
    forward = Model(network, 700).forward
    assert exactness.is_exact(network)
    expected = [forward([Request(ids, 3, KVCache())])[0] for ids in (IDS, IDS[:3])]
    for end in (*range(40, 590, 50), 590):  # growing, past the first blocks
        forward([Request(IDS[:end], 1, cache)])
    together = forward([Request(IDS, 3, cache), Request(IDS[:3], 3, KVCache())])
    forward([Request([*IDS[:100], 3, 1, 4], 2, cache)])  # an edit throws most of the cache away
    [again] = forward([Request(IDS, 3, cache)])
    assert all(map(torch.equal, [*together, again], [*expected, expected[0]]))


def test_weights_and_heads_that_the_kernels_cannot_take_are_refused(kernels: Kernels) -> None:
    for change, reason in (({"hidden_size": 64}, "do not fit"), ({"head_dim": 24}, "24 dimensions")):
        with pytest.raises(LoadError, match=reason):
            native_llama(kernels, **change)


def test_a_pass_keeps_within_its_working_memory(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    network, fences = native_llama(kernels), list[torch.Tensor]()

    def with_a_fence(*size: int) -> int:
        needed = kernels.library.gl_scratch_bytes(ctypes.byref(network._native_shape), *size, 2)
        memory = torch.full((needed + 1_000_000,), 0x5A, dtype=torch.uint8)
        fences.append(memory[needed:])
        return memory.data_ptr()

    monkeypatch.setattr(network, "_scratch_for", with_a_fence)
    for rows in (1, 3, 6, 256):
        Model(network, 700).forward([Request(IDS[:rows], rows, KVCache()), Request(IDS[:1], 1, KVCache())])
    assert all(bool((fence == 0x5A).all()) for fence in fences)


# ------------------------------------------------------------------------------------------------ the self-check


class Wobbly(FakeNetwork):
    """Its last bit depends on how many rows are computed together, like most library kernels; from position `start`
    on."""

    start = 0

    def __call__(self, token_ids: Any, positions: Any, spans: Any, logit_rows: Any) -> torch.Tensor:
        wobbles = len(token_ids) > 4 and int(positions.max()) >= self.start
        return super().__call__(token_ids, positions, spans, logit_rows) * (1 + 1e-6 * wobbles)


def test_the_self_check_tells_an_exact_network_from_one_that_is_not(tmp_path: Path) -> None:
    language = hashed_logits(60)
    network = Wobbly(60, language)
    assert exactness.is_exact(FakeNetwork(60, language))
    for network.start in (16, 100, 513, 0):
        assert not exactness.is_exact(network), network.start
    for _ in range(2):
        assert exactness.is_exact_cached(network, tmp_path, "a") is False
    assert exactness.is_exact_cached(FakeNetwork(60, language), tmp_path, "a") is False, "it is remembered"


# ----------------------------------------------------------------------------------------------------- compiling


def test_a_build_is_whole_and_made_by_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading half a library ends the process with a signal."""
    held, compiled, others = [False], list[bool](), list[Path]()

    def compile_one(compiler: str, target: Path) -> None:
        compiled.append(held[-1])
        target.write_bytes(b"kernels" * 1000)

    @contextmanager
    def lock(path: Path, timeout: float) -> Iterator[None]:
        for target in others:  # made by another process while we waited
            target.write_bytes(b"kernels" * 1000)
        held.append(True)
        yield
        held.pop()

    monkeypatch.setattr(native, "_compile", compile_one)
    monkeypatch.setattr(native, "FileLock", lock)
    monkeypatch.setenv("GREENLIGHT_CACHE", str(tmp_path))
    for size in (0, 1, 6999):
        built = native._build_library("c++", "key")
        os.truncate(built, size)
        assert [native._build_library("c++", "key").stat().st_size for _ in range(2)] == [7000] * 2
        assert list((tmp_path / "native").iterdir()) == [built]
    built.unlink()
    others.append(built)
    assert native._build_library("c++", "key") == built and compiled == [True] * 4


@needs_compiler
def test_a_compiler_makes_a_library_also_where_the_cache_cannot_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "small.cpp"
    source.write_text('extern "C" int gl_answer() { return 42; }')
    monkeypatch.setattr(native, "SOURCE", source)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for folder in (tmp_path / "cache", source):
        monkeypatch.setenv("GREENLIGHT_CACHE", str(folder))
        built = native._build_library(native._find_compiler(), "key")
        assert ctypes.CDLL(str(built)).gl_answer() == 42 and (folder in built.parents) == (folder != source)


def test_without_a_working_compiler_the_reason_is_a_phrase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GREENLIGHT_CACHE", str(tmp_path))
    for compiler, reason in (
        ("/bin/false", "could not be compiled"),
        ("no-such", "no C++ compiler"),
        ("", "no C++ compiler"),
    ):
        monkeypatch.setenv("CXX", compiler)
        if not compiler:
            monkeypatch.setenv("PATH", "/nowhere")
        assert reason in str(native.kernels.__wrapped__())
