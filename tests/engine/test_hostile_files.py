"""Files that were made to do harm, or by mistake: one sentence, at once, and from the check the same as from the
loader."""

from __future__ import annotations

import json
import os
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from engine.config import EngineConfig
from engine.errors import LoadError
from engine.kernels.build import kernels
from engine.loading.gguf.convert import fingerprint
from engine.loading.gguf.header import read_gguf
from engine.preflight.check import check_config
from engine.preflight.diagnostics import FitLevel
from engine.serving.load_pair import ModelPair, load_pair
from tests.engine.tiny_folders import write_folder
from tests.engine.tiny_ggufs import parts_of, random_model, write, write_model


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels()  # compiled once and kept where they are kept for good
    monkeypatch.setenv("GREENLIGHT_CACHE", str(tmp_path / "cache"))


def configured(target: Path, quant: str = "fp32") -> EngineConfig:
    return EngineConfig(str(target), "ngram", device="cpu", threads=1, offline=True, quant=quant)


def loaded(target: Path, quant: str = "fp32") -> ModelPair:
    return load_pair(configured(target, quant), lambda *_: None)


def refusal(target: Path, also_checked: bool = True) -> str:
    """What the loader says, in one line; the check knows it before, where headers tell."""
    with pytest.raises(LoadError) as refused:
        loaded(target)
    assert not also_checked or check_config(configured(target)).verdict is FitLevel.CANNOT
    assert "\n" not in str(refused.value)
    return str(refused.value)


FACTS, TENSORS = parts_of("llama", random_model("llama"))
VECTOR = ("F32", np.zeros(7, np.float32))
WRONG_FACTS = """
split.count = 3: one of 3 parts: join them
split.count = [2]: describes its model wrongly
general.alignment = [32]: is no GGUF file
blk.1.ffn_up.weight = null: lacks the weights blk.1.ffn_up.weight
llama.block_count = null: does not say its 'llama.block_count'
llama.block_count = 4294967295: describes its model wrongly
llama.block_count = 1: another kind of model (blk.1.
llama.block_count = 3: lacks the weights blk.2.
llama.attention.head_count = 0: head_count is 0
llama.attention.layer_norm_rms_epsilon = NaN: layer_norm_rms_epsilon is nan
llama.attention.layer_norm_rms_epsilon = -1.0: layer_norm_rms_epsilon is -1.0
llama.rope.freq_base = Infinity: freq_base is inf
llama.rope.dimension_count = 32: 32 of the 64 dimensions
llama.rope.scaling.type = "longrope": its rotation is longrope
llama.expert_count = 8: mixture of experts
llama.expert_count = "many": describes its model wrongly
tokenizer.ggml.tokens = null: choose a file with its tokeniser inside
tokenizer.ggml.token_type = [1]: describes its tokeniser wrongly (1 types of
tokenizer.ggml.model = "t5": of a kind that is not known here ('t5')
tokenizer.ggml.pre = "unheard-of": 'unheard-of'
tokenizer.ggml.merges = ["never heard"]: describes its tokeniser wrongly
tokenizer.ggml.eos_token_id = [2, 3]: describes its tokeniser wrongly
tokenizer.ggml.bos_token_id = 1.5: describes its tokeniser wrongly
tokenizer.chat_template = "{% for x %}": The chat template of m.gguf cannot be read
tokenizer.chat_template = 7: The chat template of m.gguf cannot be read
"""
"""What differs from a file that is right, null for what it lacks, and what is said of that."""


def gguf(path: Path, architecture: str = "llama", **changes: Any) -> Path:
    facts, tensors = dict(FACTS), dict(TENSORS)
    for name, value in changes.items():
        (tensors if name in tensors or isinstance(value, tuple) else facts)[name] = value
    known, there = ({k: v for k, v in part.items() if v is not None} for part in (facts, tensors))
    return write(path, architecture, known, there)


def ggml(**facts: Any) -> dict[str, Any]:
    return {f"tokenizer.ggml.{name}": value for name, value in facts.items()}


def test_a_gguf_that_cannot_be_run_is_one_sentence_of_check_and_loader(tmp_path: Path) -> None:
    path, cache = tmp_path / "m.gguf", tmp_path / "cache" / "gguf"
    spm = ggml(model="llama", tokens=["<unk>", "a" * 10**6, "a"], token_type=[2, 1, 1], scores=[0.0, -1.0, -2.0])
    cases: list[tuple[dict[str, Any], str]] = [
        (spm, "a token of more than 1024 characters"),  # which would take forever to cut
        # At this the library of tokenisers panics.
        (ggml(tokens=["a"], token_type=[1], merges=["a a"], bos_token_id=0, eos_token_id=0), "its tokeniser wrongly"),
        ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 0.0}, "scaling.factor is 0.0"),
        ({"x.weight": ("IQ4_NL", np.zeros((16, 18), np.uint8))}, "numbers of IQ4_NL (x.weight)"),
        ({"blk.0.attn_q.bias": VECTOR}, "another kind of model (blk.0.attn_q.bias)"),
        ({"output_norm.weight": VECTOR}, "output_norm.weight, or they do not fit"),
    ]
    for line in WRONG_FACTS.strip().splitlines():
        (name, _, rest), add_bos = line.partition(" = "), {"tokenizer.ggml.add_bos_token": True}
        value, _, sentence = rest.partition(": ")
        cases.append((add_bos | {name: json.loads(value)}, sentence))
    wrong: list[Any] = []
    for changes, sentence in cases:
        said = refusal(gguf(path, **changes), changes is not spm)
        if sentence not in said or "m.gguf" not in said or (cache.exists() and list(cache.glob("*/"))):
            wrong.append((changes.keys(), said))
    whole, strange = (gguf(path, architecture).read_bytes() for architecture in ("llama", "mamba"))
    endless = struct.pack("<Q3sI", 3, b"key", 9) + struct.pack("<IQ", 9, 1) * 5000  # arrays in arrays
    contents = [
        (strange, "of the architecture 'mamba', and GGUF files are read of llama, qwen2, qwen3, gemma3"),
        (whole.replace(b"blk.1.attn_norm.weight", b"blk.0.attn_norm.weight"), "twice"),
        (whole[:3000], "is cut short"),
        (whole[:-100], "is cut short"),
        (b"", "is cut short"),
        (b"once upon a time\n" * 10, "is no GGUF file"),
        (head(1, 0), "its version is 1"),
        (head(3, 2**60), "its head cannot be right"),
        (head(3, 1) + endless, "is no GGUF file"),
    ]
    for content, sentence in contents:
        path.write_bytes(content)
        if sentence not in (said := refusal(path)):
            wrong.append((content[:40], said))
    assert wrong == []


def head(version: int, pairs: int) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, 0, pairs)


def test_a_head_that_says_little_at_length_does_not_fill_the_memory(tmp_path: Path) -> None:
    """A file with holes takes no disk, and each of its bytes would be a number in memory."""
    size = 2**20
    with (tmp_path / "m.gguf").open("wb") as file:
        file.write(head(3, 2000))
        for number in range(100):
            file.write(struct.pack("<Q", 3) + b"%03d" % number + struct.pack("<IIQ", 9, 0, size))
            file.seek(size, os.SEEK_CUR)
        file.truncate(2**37)
    with pytest.raises(LoadError, match="its head cannot be right"):
        read_gguf(tmp_path / "m.gguf")


def test_neither_a_long_context_nor_a_strange_name_is_any_harm(tmp_path: Path) -> None:
    """A context takes no memory before it is used, and a name may be any bytes."""
    facts: dict[str, Any] = {"llama.context_length": 2**32 - 1}
    assert loaded(gguf(tmp_path / "m.gguf", **facts)).target.context_len == 2**32 - 1
    path = write_model(tmp_path / "m.gguf", "llama", random_model("llama"), "Q8_0", **facts)
    for quant in ("gguf", "auto"):  # on torch's kernels, and on native ones where there are any
        assert loaded(path, quant).target.context_len == 2**32 - 1
    for name in (b"a**b", b"a[", b"n" * 250, b"\xff\xfe", "\u202emodel 🙂 中".encode()):
        path = path.rename(tmp_path / os.fsdecode(name + b".gguf"))
        assert check_config(configured(path, "gguf")).verdict is not FitLevel.CANNOT
        assert fingerprint(path)
        shown = loaded(path, "gguf").target.name
        assert shown.isprintable() and shown.encode(), name


FOLDERS = r"""
config.json null has no config.json
model.safetensors null has no \*\.safetensors weights
config.json [123] config\.json of m cannot be used
config.json [91,93] config\.json of m cannot be used
tokenizer.json [123] tokeniser of m cannot be loaded
model.safetensors [255,255,255,255,255,255,255,255,255] m cannot be loaded
model.safetensors [] m cannot be loaded
"""
"""What a file holds instead, byte by byte, and what the loader says."""
CONFIGS = (
    '{"hidden_size": -32} {"hidden_size": "32"} {"max_position_embeddings": "4096"} {"num_hidden_layers": 3} '
    '{"num_attention_heads": 3} {"num_key_value_heads": 4} {"head_dim": 16} {"model_type": "mamba"} '
    '{"model_type": "gpt_oss"} {"model_type": "bloom"} {"model_type": "starship"}'
)


def test_a_folder_whose_files_do_not_fit_each_other_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    config, weights = folder / "config.json", folder / "model.safetensors"
    usual, whole = json.loads(config.read_text("utf-8")), weights.read_bytes()
    for line in FOLDERS.strip().splitlines():
        name, content, sentence = line.split(" ", 2)
        (write_folder(folder) / name).unlink()
        if content != "null":
            (folder / name).write_bytes(bytes(json.loads(content)))
        assert re.search(sentence, refusal(folder)), line
    write_folder(folder)
    for changes in CONFIGS.replace("} {", "}\n{").splitlines():
        config.write_text(json.dumps(usual | json.loads(changes)))
        assert refusal(folder), changes
    config.write_text('{"a":' * 50000 + "1" + "}" * 50000)
    assert "config.json" in refusal(folder)
    config.write_text(json.dumps(usual))
    for lost in ("model.layers.1.", "model.layers.0.mlp.up", "model.norm", "embed_tokens"):
        weights.write_bytes(whole)
        save_file({k: v for k, v in load_file(weights).items() if lost not in k}, weights, {"format": "pt"})
        assert "it lacks the weights" in refusal(folder, "layers" in lost)  # the check knows of layers alone
    for at in ([-64, 64], [0, 64], [64, 0], [32, 96]):  # none of which leaves each its own place
        said = json.dumps({name: {"dtype": "F32", "shape": [4, 4], "data_offsets": at} for name in "ab"}).encode()
        weights.write_bytes(struct.pack("<Q", len(said)) + said + bytes(128))
        assert refusal(folder), at
    for length in (0, 4, 8, 100, len(whole) // 2, len(whole) - 1):
        weights.write_bytes(whole[:length])
        assert refusal(folder), length
    weights.write_bytes(whole)
    index = {"weight_map": {"a": weights.name, "b": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    [finding] = check_config(configured(folder)).diagnostics
    assert finding.code == "damaged" and "model-2.safetensors" in finding.message
    weights.rename(folder / "model-00001-of-00002.safetensors")
    assert refusal(folder)
