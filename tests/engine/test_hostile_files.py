"""Files that were made to do harm, or by mistake: one sentence, at once, and from the check the same as from the
loader."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from engine.config import EngineConfig
from engine.errors import LoadError
from engine.loading.gguf.convert import fingerprint
from engine.loading.gguf.header import read_gguf
from engine.preflight.check import check_config
from engine.preflight.diagnostics import FitLevel
from engine.serving.load_pair import load_pair
from tests.engine import tiny_ggufs
from tests.engine.tiny_folders import write_folder


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GREENLIGHT_CACHE", str(tmp_path / "cache"))


def refusal(target: Path) -> str:
    """What both say, as the loader says it. It fails where only one of them refuses."""
    config = EngineConfig(str(target), "ngram", device="cpu", threads=1, offline=True, quant="fp32")
    report = check_config(config)
    assert report.verdict is FitLevel.CANNOT
    with pytest.raises(LoadError) as refused:
        load_pair(config, lambda *_: None)
    return str(refused.value)


def gguf(path: Path, **facts: Any) -> Path:
    """A small Llama of which some facts are other ones; _ in their names stands for a point."""
    model = tiny_ggufs.random_model("llama")
    usual = tiny_ggufs.facts_of("llama", model) | tiny_ggufs.byte_level_facts()
    tensors = {name: ("F32", array) for name, array in tiny_ggufs.arrays_of("llama", model).items()}
    return tiny_ggufs.write(path / "m.gguf", "llama", usual | facts, tensors)


@pytest.mark.parametrize(
    ("fact", "value", "said"),
    [
        ("llama.block_count", 2**32 - 1, "describes its model wrongly"),
        ("llama.attention.layer_norm_rms_epsilon", float("nan"), "layer_norm_rms_epsilon is nan"),
        ("llama.attention.layer_norm_rms_epsilon", -1.0, "layer_norm_rms_epsilon is -1.0"),
        ("llama.rope.freq_base", float("inf"), "freq_base is inf"),
        ("llama.rope.freq_base", -3.0, "freq_base is -3.0"),
        ("llama.expert_count", "many", "describes its model wrongly"),
        ("split.count", [2], "describes its model wrongly"),
        ("general.alignment", [32], "is no GGUF file"),
        ("tokenizer.ggml.eos_token_id", "two", "describes its tokeniser wrongly"),
        ("tokenizer.ggml.eos_token_id", [2, 3], "describes its tokeniser wrongly"),
        ("tokenizer.ggml.bos_token_id", 1.5, "describes its tokeniser wrongly"),
        ("tokenizer.chat_template", "{% for x %}", "The chat template of m.gguf cannot be read"),
        ("tokenizer.chat_template", 7, "The chat template of m.gguf cannot be read"),
    ],
)
def test_a_wrong_fact_of_a_gguf_is_refused_by_the_check_and_the_loader(
    fact: str, value: object, said: str, tmp_path: Path
) -> None:
    said_so = refusal(gguf(tmp_path, **{fact: value, "tokenizer.ggml.add_bos_token": True}))
    assert said in said_so and "\n" not in said_so


def test_a_scaled_rotation_by_nothing_is_refused(tmp_path: Path) -> None:
    facts = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 0.0}
    assert "scaling.factor is 0.0" in refusal(gguf(tmp_path, **facts))


def test_a_panic_of_the_tokenisers_library_is_a_sentence(tmp_path: Path) -> None:
    tokens = {"tokens": ["a"], "token_type": [1], "merges": ["a a"], "bos_token_id": 0, "eos_token_id": 0}
    facts = {f"tokenizer.ggml.{name}": value for name, value in tokens.items()}
    assert "describes its tokeniser wrongly" in refusal(gguf(tmp_path, **facts))


def test_a_token_that_would_take_forever_to_be_cut_is_refused(tmp_path: Path) -> None:
    tokens = ["<unk>", "a" * 10**6, "a"]
    spm = {"model": "llama", "tokens": tokens, "token_type": [2, 1, 1], "scores": [0.0, -1.0, -2.0]}
    facts = {f"tokenizer.ggml.{name}": value for name, value in spm.items()}
    config = EngineConfig(str(gguf(tmp_path, **facts)), "ngram", offline=True)
    with pytest.raises(LoadError, match="a token of more than 1024 characters"):
        load_pair(config, lambda *_: None)


def head(*values: bytes) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(values)) + b"".join(values)


def pair(number: int, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", 3) + b"%03d" % number + struct.pack("<I", kind) + value


def test_arrays_in_arrays_without_end_are_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(head(pair(1, 9, struct.pack("<IQ", 9, 1) * 5000)))
    with pytest.raises(LoadError, match=r"m\.gguf is no GGUF file"):
        read_gguf(tmp_path / "m.gguf")


@pytest.mark.parametrize("size", [2**20, 2**25])
def test_a_head_that_says_little_at_length_does_not_fill_the_memory(size: int, tmp_path: Path) -> None:
    """A file with holes takes no disk, and each of its bytes would be a number in memory."""
    with (tmp_path / "m.gguf").open("wb") as file:
        file.write(head()[:-8] + struct.pack("<Q", 2000))
        for number in range(100):
            file.write(pair(number, 9, struct.pack("<IQ", 0, size)))
            file.seek(size, os.SEEK_CUR)
        file.truncate(2**37)
    with pytest.raises(LoadError, match="its head cannot be right"):
        read_gguf(tmp_path / "m.gguf")


def test_weights_that_are_there_twice_are_refused(tmp_path: Path) -> None:
    data = gguf(tmp_path).read_bytes()
    assert data.count(b"blk.0.attn_norm.weight") == data.count(b"blk.1.attn_norm.weight") == 1
    (tmp_path / "m.gguf").write_bytes(data.replace(b"blk.1.attn_norm.weight", b"blk.0.attn_norm.weight"))
    assert "twice" in refusal(tmp_path / "m.gguf")


def test_a_context_of_any_length_takes_no_memory_before_it_is_used(tmp_path: Path) -> None:
    model = tiny_ggufs.random_model("llama")
    path = tiny_ggufs.write_quantised(
        tmp_path / "m.gguf", "llama", model, "Q8_0", **{"llama.context_length": 2**32 - 1}
    )
    loaded = load_pair(EngineConfig(str(path), "ngram", offline=True), lambda *_: None).target
    assert loaded.context_len == 2**32 - 1


@pytest.mark.parametrize("lost", ["model.layers.1.", "model.layers.0.mlp.up", "model.norm", "embed_tokens"])
def test_weights_that_are_missing_are_not_made_up(lost: str, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    kept = {name: array for name, array in load_file(folder / "model.safetensors").items() if lost not in name}
    save_file(kept, folder / "model.safetensors", {"format": "pt"})
    config = EngineConfig(str(folder), "ngram", device="cpu", threads=1, offline=True, quant="fp32")
    with pytest.raises(LoadError, match="it lacks the weights"):
        load_pair(config, lambda *_: None)
    if "layers" in lost:  # the check knows of layers alone
        assert check_config(config).verdict is FitLevel.CANNOT


def test_one_file_of_several_without_their_index_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    assert refusal(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_size": -32},
        {"hidden_size": "32"},
        {"max_position_embeddings": "4096"},
        {"num_hidden_layers": 3},
        {"num_attention_heads": 3},
        {"num_key_value_heads": 4},
        {"head_dim": 16},
    ],
)
def test_sizes_that_are_none_are_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    text = (folder / "config.json").read_text("utf-8")
    (folder / "config.json").write_text(json.dumps(json.loads(text) | changes), "utf-8")
    assert refusal(folder)


def test_json_in_json_without_end_is_a_sentence(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    (folder / "config.json").write_text('{"a":' * 50000 + "1" + "}" * 50000)
    assert "config.json" in refusal(folder)


@pytest.mark.parametrize("at", [[-64, 64], [0, 64], [64, 0], [32, 96]])
def test_weights_that_do_not_lie_one_behind_the_other_are_refused(at: list[int], tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    about = {name: {"dtype": "F32", "shape": [4, 4], "data_offsets": at} for name in ("a", "b")}
    said = json.dumps(about).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(said)) + said + bytes(128))
    assert refusal(folder)


@pytest.mark.parametrize(
    "name", [b"a**b.gguf", b"a[.gguf", b"n" * 250 + b".gguf", b"\xff\xfe.gguf", "\u202emodel 🙂 中.gguf".encode()]
)
def test_strange_names_of_files(name: bytes, tmp_path: Path) -> None:
    path = gguf(tmp_path)
    strange = tmp_path / os.fsdecode(name)
    path.rename(strange)
    config = EngineConfig(str(strange), "ngram", device="cpu", threads=1, offline=True, quant="fp32")
    assert check_config(config).verdict is not FitLevel.CANNOT
    assert fingerprint(strange)
    name_shown = load_pair(config, lambda *_: None).target.name
    assert name_shown.isprintable() and name_shown.encode()
