"""GGUF files of people's own, of every type and family, against transformers; refusals are in test_hostile_files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from engine.config import Message
from engine.errors import LoadError
from engine.kernels.build import Kernels, kernels
from engine.loading import load as loading
from engine.loading import source
from engine.loading.gguf import convert
from engine.loading.gguf.files import GRID, READ
from engine.loading.gguf.header import TYPES, read_gguf
from engine.loading.gguf.rope import rope_speeds
from engine.networks.kv_cache import KVCache
from engine.networks.model import Model, Request
from tests.engine.tiny_ggufs import DIM, ROWS, parts_of, random_model, write, write_model

TEXT = list(range(5, 45))


def load(target: object, **options: Any) -> loading.Loaded:
    return loading.load(str(target), device="cpu", threads=1, offline=True, progress=lambda *_: None, **options)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    kernels()  # compiled once and kept where they are kept for good
    monkeypatch.setenv("GREENLIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("engine.loading.batch_invariance.is_exact_cached", lambda *_: False)  # takes half a second
    return tmp_path / "cache" / "gguf"


def distance(loaded: loading.Loaded, model: Any) -> float:
    """Of logits to transformers', by their spread: 0 for the same, 1.4 for another model's."""
    [ours] = Model(loaded.network, loaded.context_len).forward([Request(TEXT, len(TEXT), KVCache())])
    expected = model(torch.tensor([TEXT])).logits[0, :, : loaded.tokenizer.vocab_size]
    return float((ours - expected).norm() / (expected - expected.mean(-1, keepdim=True)).norm())


def test_every_type_is_read(tmp_path: Path) -> None:
    """The header as ggml's package reads it, and the numbers that it says are there, in bf16 and in the model's order."""
    model = random_model("llama")
    for kind in READ:
        path = write_model(tmp_path / f"{kind}.gguf", "llama", model, kind)
        ours, theirs = read_gguf(path), gguf.GGUFReader(path)
        assert {n: f.contents() for n, f in theirs.fields.items() if not n.startswith("GGUF.")} == dict(ours.facts)
        assert [(t.name, t.type, t.offset, t.nbytes, t.numbers) for t in ours.tensors] == [
            (t.name, t.tensor_type.name, t.data_offset, t.n_bytes, t.n_elements) for t in theirs.tensors
        ]
        weights = load_file(source.find(str(path), True, lambda *_: None).folder / "model.safetensors")
        wanted = {name: value.bfloat16() for name, value in model.state_dict().items() if name != "lm_head.weight"}
        assert weights.keys() == wanted.keys()
        assert [name for name in wanted if not torch.equal(weights[name], wanted[name])] == [], kind
    loaded = load(path, quant="fp32")
    assert distance(loaded, model) < 0.02 and loaded.name == kind and loaded.weights == f"GGUF {kind}, run as fp32"
    assert loaded.tokenizer.vocab_size < ROWS, "the rows that only pad the vocabulary are never drawn"
    ids = loaded.tokenizer.encode_chat([Message("user", "the fox <|im_end|>")])
    assert [i for i in ids if i in loaded.tokenizer.special] == [1, 2, 1]
    assert loaded.tokenizer.stop_ids == {0, 2} and loaded.tokenizer.fallback_note == ""
    sizes = {int(kind): (kind.name, *size) for kind, size in gguf.GGML_QUANT_SIZES.items()}
    assert {number: sizes[number] for number in TYPES} == TYPES


def test_what_lies_on_a_grid_runs_on_it(tmp_path: Path) -> None:
    for kind in GRID:
        model = random_model("llama")
        path = write_model(tmp_path / "own.gguf", "llama", model, kind)
        assert distance(load(path, kernel="torch", quant="fp32"), model) < 1e-4
        ways = [("torch", "gguf", "own grid"), ("native", "auto", "native")]
        for kernel, quant, phrase in ways if isinstance(kernels(), Kernels) else ways[:1]:
            loaded = load(path, kernel=kernel, quant=quant)
            assert 1e-6 < distance(loaded, model) < 0.05, (kind, kernel)
            assert loaded.weights == f"GGUF {kind}" and loaded.note == "" and phrase in loaded.kernel
    for architecture in ("qwen2", "qwen3"):
        model = random_model(architecture, tie_word_embeddings=False)
        path = write_model(tmp_path / "other.gguf", architecture, model, "Q8_0")
        loaded = load(path, quant="gguf")
        assert "own grid" in loaded.kernel and distance(loaded, model) < 0.05
        with pytest.raises(LoadError, match="leave out --kernel native"):
            load(path, kernel="native")


def test_what_lies_on_no_one_grid_is_dequantised_and_says_what_memory_that_takes(tmp_path: Path) -> None:
    model = random_model("llama")
    mixed = write_model(tmp_path / "mixed.gguf", "llama", model, lambda name: "Q8_0" if "attn_v" in name else "Q4_0")
    loaded = load(mixed, quant="fp32", kernel="torch")
    assert loaded.weights == "GGUF Q4_0, run as fp32" and 1e-4 < distance(loaded, model) < 0.02
    with pytest.raises(LoadError, match="--quant gguf"):
        load(mixed, quant="gguf")
    named = write_model(tmp_path / "k.gguf", "llama", model, "Q4_K", **{"general.file_type": 15})
    loaded = load(named, quant="bf16")
    assert loaded.weights == "GGUF Q4_K_M, run as bf16"
    assert loaded.note.startswith("The numbers of k (GGUF Q4_K_M) are dequantised: its weights take 0.00 GiB")


GEMMA = {
    "sliding_window": 8,
    "query_pre_attn_scalar": DIM,
    "num_hidden_layers": 6,
    "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    },
}


def test_every_family_computes_what_transformers_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written in one file and in several, a few rows at a time."""
    for n, (architecture, changes) in enumerate({"llama": {}, "qwen2": {}, "qwen3": {}, "gemma3": GEMMA}.items()):
        model = random_model(architecture, tie_word_embeddings=n % 2 == 0, **changes)
        loaded = load(write_model(tmp_path / f"{architecture}.gguf", architecture, model), quant="fp32")
        assert distance(loaded, model) < 1e-4, architecture
    monkeypatch.setattr(convert, "SHARD", 400_000)
    monkeypatch.setattr(convert, "ROWS", 1000)
    model = random_model("qwen3", tie_word_embeddings=False)
    loaded = load(write_model(tmp_path / "large.gguf", "qwen3", model), quant="fp32")
    assert len(list((tmp_path / "cache" / "gguf").glob("large*/*.safetensors"))) > 3
    assert distance(loaded, model) < 1e-4


def test_scaled_rotations(tmp_path: Path) -> None:
    """Linear and yarn as the file names them; Llama 3's, by the tensor that slows each pair down."""
    scaled = {"factor": 4.0, "original_max_position_embeddings": 128}
    for kind in ("linear", "yarn"):
        model = random_model("llama", rope_parameters={"rope_type": kind, "rope_theta": 1e4, **scaled})
        named = {"type": kind, "factor": 4.0, "original_context_length": 128}
        facts: dict[str, Any] = {f"llama.rope.scaling.{name}": value for name, value in named.items()}
        loaded = load(write_model(tmp_path / f"{kind}.gguf", "llama", model, **facts), quant="fp32")
        assert distance(loaded, model) < 1e-4 and distance(loaded, random_model("llama")) > 0.01, kind
    llama3 = scaled | {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0}
    llama3 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    plain = np.array(rope_speeds(llama3 | {"rope_type": "default"}, DIM))
    slower_by = (plain / rope_speeds(llama3, DIM)).astype(np.float32)
    for kind in ("F16", "Q8_0"):
        model = random_model("llama", rope_parameters=llama3)  # transformers' own rotation
        facts, tensors = parts_of("llama", model, kind)
        tensors["rope_freqs.weight"] = ("F32", slower_by)
        rotated = write(tmp_path / f"{kind}.gguf", "llama", facts, tensors)
        assert distance(load(rotated, quant="fp32", kernel="torch"), model) < 0.02
    tensors["rope_freqs.weight"] = ("F32", slower_by * np.linspace(1, 2, len(slower_by), dtype=np.float32))
    with pytest.raises(LoadError, match="follows no known rule"):
        load(write(tmp_path / "odd.gguf", "llama", facts, tensors))


def test_a_file_is_converted_once_and_again_where_it_or_its_folder_changed(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_model(tmp_path / "a.gguf", "llama", random_model("llama"))

    def stop(phase: str, fraction: float | None) -> None:
        if phase == "convert" and fraction is not None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        source.find(str(path), True, stop)

    def made() -> list[Path]:
        return [entry for entry in cache.iterdir() if entry.is_dir()]

    assert made() == [], "a stopped conversion leaves nothing"
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(10**9, 10**9, 10**6))
        wanted = r"takes 1\d\d MB in .*, and 1 MB are free: make room, or set GREENLIGHT_CACHE"
        with pytest.raises(LoadError, match=wanted):
            source.find(str(path), True, lambda *_: None)
    assert made() == []
    phases: list[str] = []

    def converted() -> bool:
        phases.clear()
        source.find(str(path), True, lambda phase, _: phases.append(phase))
        return "convert" in phases

    assert converted() and not converted()
    [folder] = made()
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    assert converted() and not converted(), "damaged"
    (folder / "tokenizer.json").unlink()
    assert converted() and not converted(), "incomplete"
    os.utime(path, ns=(1, 1))
    assert converted() and not converted(), "another file of that name"
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GREENLIGHT_CACHE", str(tmp_path / "file" / "below"))
    with pytest.raises(LoadError, match="set GREENLIGHT_CACHE"):
        load(path, kernel="torch")
