"""GGUF files of people's own: every type and family against transformers, and every way in which a file is refused."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from engine.config import Message
from engine.errors import LoadError
from engine.loading import load as loading
from engine.loading.gguf import convert
from engine.loading.gguf.files import GRID, READ
from engine.loading.gguf.rope import rope_speeds
from engine.networks.kv_cache import KVCache
from engine.networks.model import Model, Request
from tests.engine import tiny_ggufs
from tests.engine.tiny_ggufs import LAYERS, MEANING, ROWS, random_model, write, write_model, write_quantised

TEXT = list(range(5, 45))


def quiet(phase: str, fraction: float | None) -> None:
    pass


def load(target: object, **options: Any) -> loading.Loaded:
    return loading.load(str(target), **{"device": "cpu", "threads": 1, "offline": True, "progress": quiet} | options)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GREENLIGHT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "gguf"


def distance(loaded: loading.Loaded, model: Any, ids: list[int] = TEXT) -> float:
    """Of logits to transformers', by their spread: 0 for the same, 1.4 for another model's."""
    [found] = Model(loaded.network, loaded.context_len).forward([Request(ids, len(ids), KVCache())])
    expected = model(torch.tensor([ids])).logits[0, :, : loaded.tokenizer.vocab_size]
    return float((found - expected).norm() / (expected - expected.mean(-1, keepdim=True)).norm())


# ------------------------------------------------------------------------------------------------------- types


@pytest.mark.parametrize("kind", MEANING)
def test_every_type_is_read_as_the_format_says(kind: str, tmp_path: Path) -> None:
    model = random_model("llama")
    path = write_quantised(tmp_path / f"{kind}.gguf", "llama", model, kind)
    loaded = load(path, kernel="torch", quant="fp32")
    assert distance(loaded, model) < (1e-4 if kind in GRID else 0.02), "bf16 in between, unless it is on its own grid"
    assert loaded.name == kind and loaded.weights == f"GGUF {kind}, run as fp32"
    assert loaded.tokenizer.vocab_size < ROWS, "the rows that only pad the vocabulary are never drawn"


@pytest.mark.parametrize("kind", sorted(set(READ) - set(MEANING)))
def test_other_types_are_those_of_ggufs_own_package(kind: str, tmp_path: Path) -> None:
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    data = np.zeros((16, 256 // block * size), np.uint8)
    data[:] = np.arange(16)[:, None] + 3
    path = write(tmp_path / "a.gguf", "llama", {}, {"x.weight": (kind, data)})
    [tensor] = convert.read_gguf(path).tensors
    made = convert._read_bf16(path, tensor, 0.0)
    expected = gguf.quants.dequantize(data, gguf.GGMLQuantizationType[kind])
    assert made.shape == (16, 256) and torch.equal(made, torch.from_numpy(expected.copy()).bfloat16())


@pytest.mark.parametrize("kind", GRID)
@pytest.mark.parametrize("kernel", ["torch", "native"])
def test_what_lies_on_a_grid_runs_on_it(kind: str, kernel: str, tmp_path: Path) -> None:
    from engine.kernels.build import Kernels, kernels

    if kernel == "native" and not isinstance(kernels(), Kernels):
        pytest.skip("there is no compiler here")
    model = random_model("llama")
    path = write_quantised(tmp_path / "own.gguf", "llama", model, kind)
    loaded = load(path, kernel=kernel, **({"quant": "gguf"} if kernel == "torch" else {}))
    assert 1e-6 < distance(loaded, model) < 0.05
    assert loaded.weights == f"GGUF {kind}" and loaded.note == ""
    assert ("native" if kernel == "native" else "own grid") in loaded.kernel


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3"])
def test_other_families_on_their_own_grid(architecture: str, tmp_path: Path) -> None:
    model = random_model(architecture, tie_word_embeddings=False)
    path = write_quantised(tmp_path / "own.gguf", architecture, model, "Q8_0")
    loaded = load(path, quant="gguf")
    assert "own grid" in loaded.kernel and distance(loaded, model) < 0.05
    with pytest.raises(LoadError, match="leave out --kernel native"):
        load(path, kernel="native")


def test_unlike_parts_of_one_product_are_dequantised(tmp_path: Path) -> None:
    model = random_model("llama")
    path = write_quantised(tmp_path / "mixed.gguf", "llama", model, lambda name: "Q8_0" if "attn_v" in name else "Q4_0")
    loaded = load(path, quant="fp32", kernel="torch")
    assert loaded.weights == "GGUF Q4_0, run as fp32" and 1e-4 < distance(loaded, model) < 0.02
    with pytest.raises(LoadError, match="--quant gguf"):
        load(tmp_path / "mixed.gguf", quant="gguf")


def test_what_is_dequantised_says_what_memory_that_takes(tmp_path: Path) -> None:
    path = write_quantised(tmp_path / "k.gguf", "llama", random_model("llama"), "Q4_K", **{"general.file_type": 15})
    loaded = load(path, quant="bf16")
    assert loaded.weights == "GGUF Q4_K_M, run as bf16"
    assert loaded.note.startswith("The numbers of k (GGUF Q4_K_M) are dequantised: its weights take 0.00 GiB")
    assert load(path, quant="int8").note == "" or "dequantised" in load(path, quant="int8").note


# ---------------------------------------------------------------------------------------------------- families

ROTATIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "linear": ({"factor": 4.0}, {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}),
    "yarn": (
        {"factor": 4.0, "original_max_position_embeddings": 128},
        {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 128},
    ),
}
GEMMA = {
    "sliding_window": 8,
    "query_pre_attn_scalar": tiny_ggufs.DIM,
    "num_hidden_layers": 6,
    "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    },
}


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "gemma3"])
@pytest.mark.parametrize("tied", [True, False])
def test_every_family_computes_what_transformers_does(architecture: str, tied: bool, tmp_path: Path) -> None:
    model = random_model(architecture, tie_word_embeddings=tied, **(GEMMA if architecture == "gemma3" else {}))
    loaded = load(write_model(tmp_path / "a.gguf", architecture, model), quant="fp32")
    assert distance(loaded, model) < 1e-4


@pytest.mark.parametrize("kind", ROTATIONS)
def test_scaled_rotations(kind: str, tmp_path: Path) -> None:
    ours, theirs = ROTATIONS[kind]
    model = random_model("llama", rope_parameters={"rope_type": kind, "rope_theta": 1e4, **ours})
    path = write_model(tmp_path / "a.gguf", "llama", model, **{f"llama.{k}": v for k, v in theirs.items()})
    assert distance(load(path, quant="fp32"), model) < 1e-4
    assert distance(load(path, quant="fp32"), random_model("llama")) > 0.01, "it makes a difference"


LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def slower_by() -> np.ndarray:
    plain = rope_speeds(LLAMA3 | {"rope_type": "default"}, tiny_ggufs.DIM)
    return (np.array(plain) / rope_speeds(LLAMA3, tiny_ggufs.DIM)).astype(np.float32)


@pytest.mark.parametrize("kind", ["F16", "Q8_0"])
def test_the_rotation_of_llama_3_is_found_again(kind: str, tmp_path: Path) -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    model = random_model("llama", rope_parameters=LLAMA3)
    theirs, _ = ROPE_INIT_FUNCTIONS["llama3"](model.config, "cpu")
    assert np.allclose(rope_speeds(LLAMA3, tiny_ggufs.DIM), theirs.numpy(), rtol=1e-5)
    path = write_quantised(tmp_path / "a.gguf", "llama", model, kind)
    header = convert.read_gguf(path)
    tensors = {t.name: (t.type, np.array(convert.read_raw(path, t))) for t in header.tensors}
    tensors = {n: (k, d.view(np.float32)[0] if k == "F32" else d) for n, (k, d) in tensors.items()}
    facts = {k: v for k, v in header.facts.items() if k != "general.architecture"}
    rotated = write(tmp_path / "b.gguf", "llama", facts, tensors | {"rope_freqs.weight": ("F32", slower_by())})
    assert distance(load(rotated, quant="fp32", kernel="torch"), model) < 0.02
    odd = slower_by() * np.linspace(1, 2, len(slower_by()), dtype=np.float32)
    with pytest.raises(LoadError, match="follows no known rule"):
        load(write(tmp_path / "c.gguf", "llama", facts, tensors | {"rope_freqs.weight": ("F32", odd)}))


def test_large_models_are_written_in_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert, "SHARD", 400_000)
    monkeypatch.setattr(convert, "ROWS", 1000)
    model = random_model("qwen3", tie_word_embeddings=False)
    loaded = load(write_model(tmp_path / "a.gguf", "qwen3", model), quant="fp32")
    assert len(list((tmp_path / "cache" / "gguf").glob("*/*.safetensors"))) > 3
    assert distance(loaded, model) < 1e-4


def test_the_prompt_is_the_templates(tmp_path: Path) -> None:
    path = write_model(tmp_path / "a.gguf", "llama", random_model("llama"))
    tokenizer = load(path).tokenizer
    ids = tokenizer.encode_chat([Message("user", "the fox <|im_end|>")])
    assert [i for i in ids if i in tokenizer.special] == [1, 2, 1] and tokenizer.stop_ids == {0, 2}
    assert tokenizer.fallback_note == ""


# ---------------------------------------------------------------------------------------------------- the cache


def test_a_file_is_converted_once_and_a_changed_one_anew(tmp_path: Path, cache: Path) -> None:
    path = write_model(tmp_path / "a.gguf", "llama", random_model("llama"))
    phases: list[str] = []
    note = lambda phase, fraction: phases.append(phase)  # noqa: E731
    load(path, progress=note)
    assert "convert" in phases and len(list(cache.glob("a-*v*[0-9]"))) == 1
    phases.clear()
    load(path, progress=note)
    assert "convert" not in phases
    os.utime(path, ns=(1, 1))
    load(path, progress=note)
    assert "convert" in phases


def test_a_stopped_conversion_leaves_nothing(tmp_path: Path, cache: Path) -> None:
    path = write_model(tmp_path / "a.gguf", "llama", random_model("llama"))

    def stop(phase: str, fraction: float | None) -> None:
        if phase == "convert" and fraction is not None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(path, progress=stop)
    assert not [entry for entry in cache.iterdir() if entry.is_dir()]


def test_a_full_disk_is_told_before_anything_is_written(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_model(tmp_path / "a.gguf", "llama", random_model("llama"))
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(10**9, 10**9, 10**6))
    with pytest.raises(LoadError, match=r"takes 1\d\d MB in .*, and 1 MB are free: make room, or set GREENLIGHT_CACHE"):
        load(path)
    assert not [entry for entry in cache.iterdir() if entry.is_dir()]


def test_a_cache_that_cannot_be_written_names_the_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_model(tmp_path / "a.gguf", "llama", random_model("llama"))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GREENLIGHT_CACHE", str(tmp_path / "file" / "below"))
    with pytest.raises(LoadError, match="set GREENLIGHT_CACHE"):
        load(path, kernel="torch")


# ----------------------------------------------------------------------------------------------------- refusals

Spoil = Callable[[Path, dict[str, Any], dict[str, Any]], str]


def _without(name: str) -> Spoil:
    def spoil(path: Path, facts: dict[str, Any], tensors: dict[str, Any]) -> str:
        (facts if name in facts else tensors).pop(name)
        write(path, "llama", facts, tensors)
        return ""

    return spoil


def _with(architecture: str = "llama", **more: Any) -> Spoil:
    def spoil(path: Path, facts: dict[str, Any], tensors: dict[str, Any]) -> str:
        keys = {key.replace("__", "."): value for key, value in more.items()}
        arrays = {key: value for key, value in keys.items() if isinstance(value, tuple)}
        write(path, architecture, facts | {k: v for k, v in keys.items() if k not in arrays}, tensors | arrays)
        return ""

    return spoil


def _cut(share: float) -> Spoil:
    def spoil(path: Path, facts: dict[str, Any], tensors: dict[str, Any]) -> str:
        whole = write(path, "llama", facts, tensors).read_bytes()
        path.write_bytes(whole[: int(len(whole) * share)])
        return ""

    return spoil


def _bytes(content: bytes) -> Spoil:
    return lambda path, facts, tensors: str(path.write_bytes(content))


VECTOR = ("F32", np.zeros(7, np.float32))
SPOILT: dict[str, tuple[Spoil, str]] = {
    "a text": (_bytes(b"once upon a time\n" * 10), "is no GGUF file"),
    "nothing": (_bytes(b""), "is cut short"),
    "version 1": (_bytes(b"GGUF" + struct.pack("<IQQ", 1, 0, 0)), "its version is 1"),
    "a head that cannot be": (_bytes(b"GGUF" + struct.pack("<IQQ", 3, 2**60, 2**60)), "cannot be right"),
    "a folder": (lambda path, facts, tensors: str(path.mkdir()), "is a folder|cannot be read|config.json"),
    "cut in its head": (_cut(0.001), "is cut short"),
    "cut in its weights": (_cut(0.9), "is cut short"),
    "unknown architecture": (_with("mamba"), r"of the architecture 'mamba'.*llama, qwen2, qwen3, gemma3"),
    "one of several": (_with(split__count=3), "one of 3 parts: join them"),
    "unknown type": (_with(x__weight=("IQ4_NL", np.zeros((16, 18), np.uint8))), r"numbers of IQ4_NL \(x.weight\)"),
    "a weight too few": (_without("blk.1.ffn_up.weight"), "lacks the weights blk.1.ffn_up.weight"),
    "a weight too many": (_with(blk__0__attn_q__bias=VECTOR), r"another kind of model \(blk.0.attn_q.bias\)"),
    "a weight of another size": (_with(output_norm__weight=VECTOR), "output_norm.weight, or they do not fit"),
    "no layers": (_without("llama.block_count"), "does not say its 'llama.block_count'"),
    "no heads": (_with(llama__attention__head_count=0), "head_count is 0"),
    "partly rotated": (_with(llama__rope__dimension_count=32), "32 of the 64 dimensions"),
    "experts": (_with(llama__expert_count=8), "mixture of experts"),
    "another rotation": (_with(llama__rope__scaling__type="longrope"), "its rotation is longrope"),
    "no tokeniser": (_without("tokenizer.ggml.tokens"), "choose a file with its tokeniser inside"),
    "another tokeniser": (_with(tokenizer__ggml__model="t5"), r"of a kind that is not known here \('t5'\)"),
    "words cut otherwise": (_with(tokenizer__ggml__pre="unheard-of"), "'unheard-of'"),
    "merges of nothing": (_with(tokenizer__ggml__merges=["never heard"]), "describes its tokeniser wrongly"),
    "a broken template": (_with(tokenizer__chat_template="{% if %}"), "chat template .* cannot be read"),
}


@pytest.mark.parametrize("case", SPOILT)
def test_a_file_that_cannot_be_run_is_one_sentence(case: str, tmp_path: Path, cache: Path) -> None:
    spoil, sentence = SPOILT[case]
    model = random_model("llama")
    tensors: dict[str, Any] = {name: ("F32", array) for name, array in tiny_ggufs.arrays_of("llama", model).items()}
    path = tmp_path / "mine.gguf"
    spoil(path, tiny_ggufs.facts_of("llama", model) | tiny_ggufs.byte_level_facts(), tensors)
    with pytest.raises(LoadError, match=sentence) as caught:
        load(path, kernel="torch")
    assert "mine" in str(caught.value) and "\n" not in str(caught.value)
    made = [entry for entry in cache.glob("*") if entry.is_dir()]
    assert not made or case == "a broken template", "nothing is written for what is refused"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"^There is no file .*missing.gguf: check its spelling"):
        load(tmp_path / "missing.gguf")


@pytest.mark.parametrize("layers", [LAYERS - 1, LAYERS + 1])
def test_the_number_of_layers_is_checked(layers: int, tmp_path: Path) -> None:
    path = write_model(tmp_path / "a.gguf", "llama", random_model("llama"), **{"llama.block_count": layers})
    with pytest.raises(LoadError, match=r"blk\.[12]\."):
        load(path)
