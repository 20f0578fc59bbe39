"""A pair checked by headers: every finding can happen and says what to do, nothing is downloaded, and nothing
raises."""

from __future__ import annotations

import ast
import json
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from engine.config import EngineConfig
from engine.errors import LoadError
from engine.loading.gguf.header import TYPES, read_gguf
from engine.preflight import check as check_module
from engine.preflight import model_files
from engine.preflight.check import Report, card, check_config
from engine.preflight.diagnostics import DIAGNOSTIC_TEXTS, FitLevel, diagnose
from engine.preflight.headers import read_headers
from engine.preflight.memory import Machine
from engine.preflight.supported import SINKS, STATEFUL, TRANSFORMERS
from tests.engine import tokenisers
from tests.engine.tiny_folders import CONFIG, write_folder, write_gguf, write_head

ROOM = Machine(free_mib=100_000, gpu_free_mib=None, disk_free_mib=10**6, read_gib_s=1000.0)


def checked(
    target: object, drafter: object = "ngram", machine: Machine = ROOM, beside_mib: float = 0, **more: Any
) -> Report:
    config = EngineConfig(target=str(target), drafter=str(drafter), offline=more.pop("offline", True), **more)
    return check_config(config, machine=machine, beside_mib=beside_mib)


def codes(report: Report) -> set[str]:
    return {diagnostic.code for diagnostic in report.diagnostics}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No model of this machine is seen, and none is left behind."""
    import huggingface_hub.constants

    monkeypatch.setenv("GREENLIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(model_files, "ENDPOINT", "http://127.0.0.1:9")
    return tmp_path


# -- every finding ------------------------------------------------------------------------------------------------------

Case = Callable[[Path], Report]


def _edited(folder: Path, **changes: Any) -> Path:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    return folder


def _without(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).unlink()
    return folder


def _pickled(home: Path) -> Path:
    folder = _without(write_folder(home / "m"), "model.safetensors")
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    return folder


def _cut(path: Path, by: int = 100) -> Path:
    os.truncate(path, path.stat().st_size - by)
    return path


def _big(folder: Path, mib: int) -> Path:
    """A folder whose weights say that they are large; the file has a hole in it and takes no room."""
    write_folder(folder)
    path = folder / "model.safetensors"
    numbers = mib * 2**20 // 4
    head = json.dumps(
        {"model.embed_tokens.weight": {"dtype": "F32", "shape": [numbers], "data_offsets": [0, 4 * numbers]}}
    )
    path.write_bytes(struct.pack("<Q", len(head)) + head.encode())
    os.truncate(path, 8 + len(head) + 4 * numbers)
    return folder


def _file(path: Path) -> Path:
    path.write_text("no model")
    return path


def _other_cuts(folder: Path) -> Path:
    backend = tokenisers.byte_level()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    return write_folder(folder, backend)


def _without_a_size(path: Path) -> Path:
    """It does not say how wide it is any more."""
    path.write_bytes(path.read_bytes().replace(b"llama.embedding_length", b"llama.embedding_lengtx"))
    return path


def _memory(free: float, beside: float = 0) -> Case:
    return lambda home: checked(_big(home / "m", 500), machine=Machine(free_mib=free), beside_mib=beside)


ROWS = tokenisers.byte_level().get_vocab_size()
CASES: dict[str, Case] = {
    "not_found": lambda home: checked(home / "nothing"),
    "not_a_model": lambda home: checked(_file(home / "model.bin")),
    "offline": lambda home: checked("owner/model"),
    "no_network": lambda home: checked("owner/model", offline=False),
    "no_config": lambda home: checked(_without(write_folder(home / "m"), "config.json")),
    "no_weights": lambda home: checked(_without(write_folder(home / "m"), "model.safetensors")),
    "pickle_only": lambda home: checked(_pickled(home)),
    "no_tokenizer": lambda home: checked(_without(write_folder(home / "m"), "tokenizer.json")),
    "damaged": lambda home: checked(_file(home / "text.gguf")),
    "truncated": lambda home: checked(_cut(write_folder(home / "m") / "model.safetensors").parent),
    "unsupported_type": lambda home: checked(write_gguf(home / "m.gguf", "IQ4_NL")),
    "gguf_refused": lambda home: checked(_without_a_size(write_gguf(home / "m.gguf"))),
    "prequantised": lambda home: checked(
        _edited(write_folder(home / "m"), quantization_config={"quant_method": "gptq"})
    ),
    "unknown_architecture": lambda home: checked(write_gguf(home / "m.gguf", architecture="starship")),
    "stateful_cache": lambda home: checked(_edited(write_folder(home / "m"), model_type="mamba2")),
    "attention_sinks": lambda home: checked(_edited(write_folder(home / "m"), model_type="gpt_oss")),
    "encoder_decoder": lambda home: checked(_edited(write_folder(home / "m"), model_type="t5")),
    "head_alone": lambda home: checked(write_head(home / "h", 32, ROWS)),
    "no_device": lambda home: checked(write_folder(home / "m"), device="cuda"),
    "no_native": lambda home: checked(write_folder(home / "m"), kernel="native"),
    "quant_refused": lambda home: checked(write_folder(home / "m"), quant="gguf"),
    "bitsandbytes": lambda home: checked(
        write_folder(home / "m"), quant="int8", machine=Machine(free_mib=10_000, bitsandbytes=False)
    ),
    "memory_short": _memory(300),
    "memory_beside": _memory(500, beside=2000),
    "memory_tight": lambda home: _memory(_memory(10_000)(home).needs_mib / 0.95)(home),
    "memory_unknown": lambda home: checked(write_folder(home / "m"), machine=Machine(free_mib=None)),
    "disk_short": lambda home: checked(
        write_gguf(home / "m.gguf", "Q4_K"), machine=Machine(free_mib=10_000, disk_free_mib=0.01)
    ),
    "gpu_better": lambda home: checked(_big(home / "m", 3000), machine=Machine(free_mib=10_000, read_gib_s=10.0)),
    "nf4_on_cpu": lambda home: checked(write_folder(home / "m"), quant="nf4"),
    "requantised": lambda home: checked(write_folder(home / "m"), quant="int8"),
    "requantised_again": lambda home: checked(write_gguf(home / "m.gguf"), quant="int8"),
    "dequantised": lambda home: checked(write_gguf(home / "m.gguf", "Q6_K")),
    "own_grid": lambda home: checked(write_gguf(home / "m.gguf", "Q8_0")),
    "context_short": lambda home: checked(write_folder(home / "m", max_position_embeddings=512)),
    "no_chat_template": lambda home: checked(write_folder(home / "m", template=None)),
    "tokenisers_differ": lambda home: checked(
        write_folder(home / "m"), write_folder(home / "d", tokenisers.byte_fallback())
    ),
    "tokenisers_unread": lambda home: checked(
        write_folder(home / "m"), _file(_without(write_folder(home / "d"), "tokenizer.json") / "tokenizer.model").parent
    ),
    "tokenisers_cut_otherwise": lambda home: checked(write_folder(home / "m"), _other_cuts(home / "d")),
    "padded_vocabulary": lambda home: checked(
        write_folder(home / "m", vocab_size=ROWS + 64), write_folder(home / "d", vocab_size=ROWS + 8)
    ),
    "head_of_another_target": lambda home: checked(
        write_folder(home / "m"), write_head(home / "h", 32, ROWS, "a/other")
    ),
    "head_size": lambda home: checked(write_folder(home / "m"), write_head(home / "h", 64, ROWS)),
    "drafter_larger": lambda home: checked(write_folder(home / "m"), write_folder(home / "d", num_hidden_layers=8)),
    "drafter_context_shorter": lambda home: checked(
        write_folder(home / "m"), write_folder(home / "d", max_position_embeddings=2048)
    ),
}
ON_HUB = {"gated", "download"}
"""Those that a hub is needed for; tested below."""


@pytest.mark.parametrize("code", CASES)
def test_a_finding_is_made_where_it_is_true(code: str, home: Path) -> None:
    report = CASES[code](home)
    made = next((diagnostic for diagnostic in report.diagnostics if diagnostic.code == code), None)
    assert made is not None, report.diagnostics
    assert made.level is DIAGNOSTIC_TEXTS[code].level
    assert report.verdict is max((f.level for f in report.diagnostics), key=list(FitLevel).index)
    assert all(made.message and "{" not in f.message + f.advice for f in report.diagnostics)
    assert tuple(name for name, _ in made.values) == tuple(dict(made.values)) and set(
        DIAGNOSTIC_TEXTS[code].fields
    ) == set(dict(made.values))
    assert card(report).count(made.message) == 1


def test_every_sentence_is_said_somewhere() -> None:
    assert DIAGNOSTIC_TEXTS.keys() == CASES.keys() | ON_HUB


def test_what_cannot_be_says_what_to_try() -> None:
    for code, sentence in DIAGNOSTIC_TEXTS.items():
        assert sentence.message.endswith(".") and (not sentence.advice or sentence.advice.endswith(".")), code
        if sentence.level is FitLevel.CANNOT:
            assert sentence.advice, code


def test_a_missing_value_is_an_error_and_not_a_brace() -> None:
    with pytest.raises(KeyError):
        diagnose("download", name="x")


def test_what_fits_says_nothing(home: Path) -> None:
    report = checked(write_folder(home / "m"))
    assert (report.verdict, report.diagnostics, report.drafting) == (FitLevel.FITS, (), "ngram")
    assert report.needs_mib == pytest.approx(sum(mib for _, mib in report.parts))


# -- nothing raises, whatever the files hold
# ----------------------------------------------------------------------------


@given(
    st.sampled_from(["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"]),
    st.binary(max_size=60),
)
def test_no_content_of_a_file_raises(tmp_path_factory: pytest.TempPathFactory, name: str, content: bytes) -> None:
    folder = write_folder(tmp_path_factory.mktemp("m"))
    (folder / name).write_bytes(content)
    assert checked(folder).verdict in tuple(FitLevel)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
KEYS = [*CONFIG, "vocab_size", "layer_types", "text_config", "quantization_config", "rope_scaling", "rope_parameters",
        "sliding_window", "transformer_layer_config", "speculators_model_type", "speculators_config",
        "eagle_aux_hidden_state_layer_ids", "is_encoder_decoder"]  # fmt: skip


@given(st.dictionaries(st.sampled_from(KEYS), JSON | st.just("eagle3"), max_size=4))
def test_no_value_of_a_config_raises(tmp_path_factory: pytest.TempPathFactory, changes: dict[str, Any]) -> None:
    folder = _edited(write_folder(tmp_path_factory.mktemp("m")), **changes)
    checked(folder)
    checked(write_folder(tmp_path_factory.mktemp("t")), folder)


@given(st.floats(0, 1), st.integers(0, 255))
def test_a_gguf_that_is_cut_or_spoilt_is_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, where: float, value: int
) -> None:
    path = write_gguf(tmp_path_factory.mktemp("g") / "m.gguf")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(where * (len(whole) - 1))])
    assert codes(checked(path)) & {"truncated", "damaged"}
    spoilt = bytearray(whole)
    spoilt[int(where * 4000)] = value
    path.write_bytes(spoilt)
    checked(path)


def test_a_safetensors_cut_anywhere_cannot_be_loaded(home: Path) -> None:
    path = write_folder(home / "m") / "model.safetensors"
    whole = path.read_bytes()
    for kept in [0, 4, 8, 100, len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:kept])
        assert checked(path.parent).verdict is FitLevel.CANNOT, kept


def test_a_part_of_the_weights_that_is_missing_is_named(home: Path) -> None:
    folder = write_folder(home / "m")
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    [diagnostic] = checked(folder).diagnostics
    assert diagnostic.code == "damaged" and "model-2.safetensors" in diagnostic.message


# -- what headers say is true
# -------------------------------------------------------------------------------------------


def test_headers_of_a_folder_are_its_sizes(home: Path) -> None:
    found_headers = read_headers(str(write_folder(home / "m", vocab_size=ROWS + 5, tie_word_embeddings=False)))
    assert (found_headers.layers, found_headers.hidden, found_headers.kv_heads, found_headers.mlp) == (2, 32, 2, 48)
    assert (found_headers.vocab_rows, found_headers.vocab_size, found_headers.tied) == (ROWS + 5, ROWS, False)
    assert found_headers.file_bytes == (home / "m" / "model.safetensors").stat().st_size
    assert found_headers.formats == (("F32", 4 * found_headers.parameters),)
    assert (found_headers.runs, found_headers.chat, found_headers.window) == ("lean", True, None)


def test_a_sliding_window_is_told_where_it_is_used(home: Path) -> None:
    layers = ["sliding_attention", "full_attention"]
    gemma = write_folder(home / "g", model_type="gemma3_text", sliding_window=512, layer_types=layers)
    assert (read_headers(str(gemma)).window, read_headers(str(gemma)).runs) == (512, "transformers")
    qwen = write_folder(home / "q", model_type="qwen2", sliding_window=512, use_sliding_window=False)
    assert read_headers(str(qwen)).window is None


def test_the_types_of_a_gguf_are_the_libraries() -> None:
    from gguf.constants import GGML_QUANT_SIZES

    known = {int(kind): (kind.name, *sizes) for kind, sizes in GGML_QUANT_SIZES.items()}
    assert all(known.get(number) == about for number, about in TYPES.items())


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "F16", "BF16", "F32"])
def test_the_head_of_a_gguf_is_read_as_its_library_reads_it(home: Path, kind: str) -> None:
    from gguf import GGUFReader

    path = write_gguf(home / "m.gguf", kind)
    ours, theirs = read_gguf(path), GGUFReader(path)
    assert {n: f.contents() for n, f in theirs.fields.items() if not n.startswith("GGUF.")} == dict(ours.facts)
    for tensor, other in zip(ours.tensors, theirs.tensors, strict=True):
        assert (tensor.name, tensor.offset, tensor.nbytes) == (other.name, other.data_offset, other.n_bytes)
        assert tensor.type == other.tensor_type.name and tensor.numbers == int(other.n_elements)
    assert checked(path).verdict is FitLevel.FITS


def test_tokenisers_are_compared_as_when_they_are_loaded(tmp_path: Path) -> None:
    """What the check says of two is what `Tokenizer.same_ids` will say."""
    from engine.preflight import tokenizer_info as tokens
    from engine.text.tokenizer import build_tokenizer

    makers = {
        "bytes": tokenisers.byte_level, "fallback": tokenisers.byte_fallback, "words": tokenisers.word_piece,
        "first": lambda: tokenisers.byte_fallback("first"), "more": _with_more,
    }  # fmt: skip
    for name, make in makers.items():
        make().save(str(tmp_path / f"{name}.json"))
    agreed = set()
    for left in makers:
        for right in makers:
            ours = [tokens.from_file(tmp_path / f"{name}.json") for name in (left, right)]
            real = [build_tokenizer(makers[name](), None, stop_ids=[0]) for name in (left, right)]
            same = real[0].same_ids(real[1])
            assert ours[0].same_ids(ours[1], min(t.size for t in ours)) == same, (left, right)
            agreed |= {(left, right)} if same else set()
    assert ("bytes", "more") in agreed and ("bytes", "fallback") not in agreed


def _with_more() -> Any:
    backend = tokenisers.byte_level()
    backend.add_tokens(["<tool>", "<answer>"])
    return backend


def test_a_gguf_and_a_folder_of_one_tokeniser_agree(home: Path) -> None:
    report = checked(write_gguf(home / "m.gguf"), write_folder(home / "d"))
    assert report.drafting == "same ids" and not codes(report) & {"tokenisers_differ", "tokenisers_unread"}


@pytest.mark.model
def test_facts_of_the_default_model_are_its_headers() -> None:
    from engine.loading.default_model import default_model
    from engine.preflight.headers import DEFAULT_MODEL_INFO

    gguf = read_headers(str(default_model(offline=True, progress=lambda *_: None)))
    for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "mlp", "vocab_rows", "context_len", "parameters",
                 "file_bytes", "formats", "embedding", "tied", "grid", "kind"):  # fmt: skip
        assert getattr(DEFAULT_MODEL_INFO, name) == getattr(gguf, name), name
    report = check_config(EngineConfig(offline=True), machine=ROOM)
    assert (report.verdict, report.drafting) == (FitLevel.FITS, "head")


# -- what can run, as transformers has it
# -------------------------------------------------------------------------------


def test_the_table_of_kinds_is_of_the_transformers_that_is_here() -> None:
    """Every causal kind is in one table, or takes its attention from nowhere outside."""
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES

    transformers.logging.set_verbosity_error()

    def kind(name: str) -> Any:
        return transformers.MODEL_FOR_CAUSAL_LM_MAPPING[transformers.CONFIG_MAPPING[name]]

    known = TRANSFORMERS | STATEFUL | SINKS
    assert known <= set(NAMES)
    assert not TRANSFORMERS & STATEFUL and not SINKS & (TRANSFORMERS | STATEFUL)
    for name in sorted(set(NAMES) - known):
        assert not kind(name)._supports_attention_backend, f"{name} might run: put it into a table"
    for name in sorted(STATEFUL):
        assert kind(name)._is_stateful, name
    for name in ("llama", "qwen2", "qwen3", "mistral", "gemma", "gemma2", "gemma3_text", "phi3", "smollm3"):
        assert name in TRANSFORMERS and kind(name)._supports_attention_backend and not kind(name)._is_stateful


@pytest.mark.parametrize("kind", ["mamba", "gpt_oss", "bloom", "starship"])
def test_what_the_check_refuses_is_refused_by_the_loader_too(kind: str, home: Path) -> None:
    from engine.loading import load as loading

    folder = write_folder(home / "m", model_type=kind, architectures=["SomeForCausalLM"])
    assert checked(folder).verdict is FitLevel.CANNOT
    with pytest.raises(LoadError):
        loading.load(str(folder), device="cpu", threads=1, offline=True, progress=lambda *_: None)


@pytest.mark.parametrize("changes", [{}, {"vocab_size": ROWS + 9}, {"tie_word_embeddings": False}], ids=str)
def test_what_the_check_lets_pass_is_loaded_with_the_memory_it_said(changes: dict[str, Any], home: Path) -> None:
    from engine.loading import load as loading

    folder = write_folder(home / "m", **changes)
    report = checked(folder, quant="fp32")
    assert report.verdict is FitLevel.FITS and report.target is not None
    loaded = loading.load(str(folder), device="cpu", threads=1, quant="fp32", offline=True, progress=lambda *_: None)
    assert (loaded.context_len, loaded.network.vocab_size) == (report.target.context_len, report.target.vocab_size)
    separate = 0 if report.target.tied else 4 * report.target.embedding
    said = dict(report.parts)["target"] * 2**20
    assert said == pytest.approx(loaded.network.weight_bytes + separate, rel=0.02)


# -- a hub, by range requests
# -------------------------------------------------------------------------------------------


class _Hub(BaseHTTPRequestHandler):
    """As much of a hub as the check asks of one. served: bytes of weights that left it."""

    root: Path
    served = 0
    gated = False

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if self.gated:
            return self._answer(403, b"{}", {"X-Error-Code": "GatedRepo", "X-Error-Message": "gated"})
        if path.startswith("/api/models/owner/model"):
            siblings = [{"rfilename": f.name, "size": f.stat().st_size} for f in self.root.iterdir()]
            return self._answer(200, json.dumps({"id": "owner/model", "sha": "0" * 40, "siblings": siblings}).encode())
        file = self.root / path.rsplit("/", 1)[-1]
        if "/resolve/" not in path or not file.is_file():
            return self._answer(404, b"{}", {"X-Error-Code": "RepoNotFound" if "/api/" in path else "EntryNotFound"})
        content, about = file.read_bytes(), {"ETag": f'"{file.name}"', "X-Repo-Commit": "0" * 40}
        if wanted := self.headers.get("Range"):
            begin, _, end = wanted.removeprefix("bytes=").partition("-")
            part = content[int(begin) : int(end) + 1]
            about["Content-Range"] = f"bytes {begin}-{int(begin) + len(part) - 1}/{len(content)}"
            return self._answer(206, part, about)
        return self._answer(200, content, about)

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": f"{len(body)}",
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            if self.path.split("?")[0].endswith(".safetensors"):
                type(self).served += len(body)
            self.wfile.write(body)


@contextmanager
def hub(root: Path, monkeypatch: pytest.MonkeyPatch, gated: bool = False) -> Iterator[type[_Hub]]:
    handler = type("Hub", (_Hub,), {"root": root, "served": 0, "gated": gated})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setattr(model_files, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    try:
        yield handler
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_of_a_hubs_model_only_headers_are_fetched(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_folder(home / "m", hidden_size=512, intermediate_size=2048)
    size = (folder / "model.safetensors").stat().st_size
    with hub(folder, monkeypatch) as served:
        report = checked("owner/model", offline=False)
        assert codes(report) == {"download"} and report.target is not None
        assert not report.target.here and report.target.file_bytes == size
        assert report.target.parameters == read_headers(str(folder)).parameters
        assert 0 < served.served < size / 10
        short = checked("owner/model", offline=False, machine=Machine(free_mib=10_000, disk_free_mib=1))
        assert "disk_short" in codes(short)
    fetched = {path.name for path in (home / "hub").rglob("*") if path.is_symlink() or path.is_file()}
    assert "config.json" in fetched and not [name for name in fetched if name.endswith(".safetensors")]


def test_a_gated_and_a_misspelt_model_are_told_apart(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_folder(home / "m")
    with hub(folder, monkeypatch, gated=True):
        assert codes(checked("owner/model", offline=False)) == {"gated"}
    with hub(folder, monkeypatch):
        assert codes(checked("owner/modle", offline=False)) == {"not_found"}


def test_no_name_leads_out_to_a_hub_that_is_no_hub_id(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("engine.preflight.headers.find_on_hub", lambda name, *_: asked.append(name))
    for name in ("../x", "~nobody/x", "/etc/model", "a/b/c", "a b", "-x/y", "x.gguf", "http://h/x", "a/../b"):
        assert checked(name, offline=False).verdict is FitLevel.CANNOT
    assert not asked


# -- devices, memory, the command
# -----------------------------------------------------------------------------------------


def test_each_device_has_its_own_memory(home: Path) -> None:
    target, drafter = _big(home / "m", 900), write_folder(home / "d")
    machine = Machine(free_mib=10_000, gpu_name="GPU", gpu_free_mib=1000)
    assert "memory_short" in codes(checked(target, machine=machine, device="cuda", quant="fp32"))
    assert "memory_short" not in codes(checked(target, machine=machine, device="cpu", quant="fp32"))
    both = checked(drafter, target, machine=machine, device="cuda", drafter_device="cpu", drafter_quant="fp32")
    assert "memory_short" not in codes(both) and both.free_mib == 1000


def test_memory_grows_with_what_is_kept(home: Path) -> None:
    folder = _big(home / "m", 400)
    needs = {quant: dict(checked(folder, quant=quant).parts)["target"] for quant in ("fp32", "bf16")}
    assert needs["fp32"] == pytest.approx(2 * needs["bf16"]) == pytest.approx(400, rel=0.01)


def test_a_quantised_model_comes_in_whole_first(home: Path) -> None:
    parts = dict(checked(write_folder(home / "m", hidden_size=256, intermediate_size=8192), quant="int8").parts)
    whole = dict(checked(home / "m", quant="fp32").parts)["target"]
    assert parts["target"] < whole / 2 and parts["target"] + parts.get("loading", 0) <= whole + 1


def test_quantising_for_a_gpu_needs_main_memory_for_the_whole(home: Path) -> None:
    target = _big(home / "m", 3000)
    small = Machine(free_mib=1000, gpu_free_mib=8000)
    assert "memory_short" in codes(checked(target, machine=small, device="cuda", quant="nf4"))
    assert "memory_short" not in codes(checked(target, machine=small, device="cuda", quant="bf16"))
    enough = checked(target, machine=Machine(free_mib=4000, gpu_free_mib=8000), device="cuda", quant="nf4")
    assert "memory_short" not in codes(enough) and "loading" not in dict(enough.parts)


def test_the_check_needs_no_torch() -> None:
    code = "import sys, engine.preflight.check, engine.loading.model_presets; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    paths = sorted(Path(check_module.__file__).parent.rglob("*.py"))
    assert len(paths) > 1
    for path in paths:
        top = [n for n in ast.parse(path.read_text()).body if isinstance(n, (ast.Import, ast.ImportFrom))]
        assert "torch" not in {getattr(n, "module", None) or n.names[0].name for n in top}


def test_the_command_prints_the_card_and_says_by_its_status(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(write_folder(home / "m"))
    assert check_module.main(["--target", folder, "--drafter", "ngram", "--offline"]) == 0
    assert "This pair fits." in capsys.readouterr().out
    assert check_module.main(["--target", "owner/model", "--offline"]) == 1
    assert "Start without --offline" in capsys.readouterr().out
    assert check_module.main(["--target", folder, "--drafter", "draft_model"]) == 2
    assert "drafter must be" in capsys.readouterr().err
