"""A pair checked by headers: every finding can happen and says what to do, nothing is downloaded, and nothing
raises."""

from __future__ import annotations

import itertools
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from huggingface_hub import HfApi, constants, errors
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from engine.config import EngineConfig
from engine.loading import load as loading
from engine.preflight import check as check_module
from engine.preflight import model_files
from engine.preflight import tokenizer_info as tokens
from engine.preflight.check import Report, card, check_config
from engine.preflight.diagnostics import DIAGNOSTIC_TEXTS, FitLevel, diagnose
from engine.preflight.headers import DEFAULT_MODEL_INFO, read_headers
from engine.preflight.memory import Machine
from engine.preflight.supported import SINKS, STATEFUL, TRANSFORMERS
from engine.text.tokenizer import build_tokenizer
from tests.engine import tokenisers
from tests.engine.tiny_folders import CONFIG, write_folder
from tests.engine.tiny_ggufs import parts_of, random_model, write

ROOM = Machine(free_mib=100_000, gpu_free_mib=None, disk_free_mib=10**6, read_gib_s=1000.0)


def checked(
    target: object, drafter: object = "ngram", machine: Machine = ROOM, beside_mib: float = 0, **more: Any
) -> Report:
    config = EngineConfig(target=str(target), drafter=str(drafter), **{"offline": True} | more)
    return check_config(config, machine=machine, beside_mib=beside_mib)


def codes(report: Report) -> set[str]:
    return {diagnostic.code for diagnostic in report.diagnostics}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No model of this machine is seen, and none is left behind."""
    monkeypatch.setenv("GREENLIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(model_files, "ENDPOINT", "http://127.0.0.1:9")
    return tmp_path


# -- every finding -----------------------------------------------------------------------------------------------------


def edited(folder: Path, **changes: Any) -> Path:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    return folder


def without(folder: Path, name: str, instead: str = "") -> Path:
    (folder / name).unlink()
    if instead:
        (folder / instead).write_text("no model")
    return folder


def cut(path: Path) -> Path:
    os.truncate(path, path.stat().st_size - 100)
    return path.parent


def big(folder: Path, mib: int) -> Path:
    """A folder whose weights say that they are large; the file has a hole in it and takes no room."""
    path, size = write_folder(folder) / "model.safetensors", mib * 2**20
    about = {"model.embed_tokens.weight": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}
    head = json.dumps(about).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head)
    os.truncate(path, 8 + len(head) + size)
    return folder


def other(m: Path, *more: Any, **changes: Any) -> Path:
    return write_folder(m.parent / "d", *more, **changes)


def cut_otherwise(m: Path) -> Path:
    backend = tokenisers.byte_level()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    return other(m, backend)


def gguf(m: Path, kind: str = "Q4_0", architecture: str = "llama", without: str = "") -> Path:
    facts, tensors = parts_of("llama", random_model("llama", max_position_embeddings=4096), kind)
    return write(m / "m.gguf", architecture, {k: v for k, v in facts.items() if k != without}, tensors)


def head(m: Path, hidden: int = 32, target: str = "") -> Path:
    """What a draft head says of itself, in the speculators format."""
    return edited(
        write_folder(m / "h"), speculators_model_type="eagle3", draft_vocab_size=16,
        eagle_aux_hidden_state_layer_ids=[0, 1, 2], speculators_config={"verifier": {"name_or_path": target}},
        transformer_layer_config={**CONFIG, "hidden_size": hidden, "vocab_size": ROWS, "num_hidden_layers": 1},
    )  # fmt: skip


def memory(free: float, beside: float = 0) -> Callable[[Path], Report]:
    return lambda m: checked(big(m, 500), machine=Machine(free_mib=free), beside_mib=beside)


ROWS = tokenisers.byte_level().get_vocab_size()
SMALL = Machine(free_mib=10_000, disk_free_mib=0.01, read_gib_s=10.0, bitsandbytes=False)
CASES: dict[str, Callable[[Path], Report]] = {
    "not_found": lambda m: checked(m / "nothing"),
    "not_a_model": lambda m: checked(m / "config.json"),
    "offline": lambda m: checked("owner/model"),
    "no_network": lambda m: checked("owner/model", offline=False),
    "no_config": lambda m: checked(without(m, "config.json")),
    "no_weights": lambda m: checked(without(m, "model.safetensors")),
    "pickle_only": lambda m: checked(without(m, "model.safetensors", "pytorch_model.bin")),
    "no_tokenizer": lambda m: checked(without(m, "tokenizer.json")),
    "damaged": lambda m: checked(without(m, "config.json", "text.gguf") / "text.gguf"),
    "truncated": lambda m: checked(cut(m / "model.safetensors")),
    "unsupported_type": lambda m: checked(gguf(m, "IQ4_NL")),
    "gguf_refused": lambda m: checked(gguf(m, without="llama.embedding_length")),
    "prequantised": lambda m: checked(edited(m, quantization_config={"quant_method": "gptq"})),
    "unknown_architecture": lambda m: checked(gguf(m, architecture="starship")),
    "stateful_cache": lambda m: checked(edited(m, model_type="mamba2")),
    "attention_sinks": lambda m: checked(edited(m, model_type="gpt_oss")),
    "encoder_decoder": lambda m: checked(edited(m, model_type="t5")),
    "head_alone": lambda m: checked(head(m)),
    "no_device": lambda m: checked(m, device="cuda"),
    "no_native": lambda m: checked(m, kernel="native"),
    "quant_refused": lambda m: checked(m, quant="gguf"),
    "bitsandbytes": lambda m: checked(m, quant="int8", machine=SMALL),
    "memory_short": memory(300),
    "memory_beside": memory(500, beside=2000),
    "memory_tight": lambda m: memory(memory(10_000)(m).needs_mib / 0.95)(m),
    "memory_unknown": lambda m: checked(m, machine=Machine(free_mib=None)),
    "disk_short": lambda m: checked(gguf(m, "Q4_K"), machine=SMALL),
    "gpu_better": lambda m: checked(big(m, 3000), machine=SMALL),
    "nf4_on_cpu": lambda m: checked(m, quant="nf4"),
    "requantised": lambda m: checked(m, quant="int8"),
    "requantised_again": lambda m: checked(gguf(m), quant="int8"),
    "dequantised": lambda m: checked(gguf(m, "Q6_K")),
    "own_grid": lambda m: checked(gguf(m, "Q8_0")),
    "context_short": lambda m: checked(edited(m, max_position_embeddings=512)),
    "no_chat_template": lambda m: checked(other(m, None, None)),
    "tokenisers_differ": lambda m: checked(m, other(m, tokenisers.byte_fallback())),
    "tokenisers_unread": lambda m: checked(m, without(other(m), "tokenizer.json", "tokenizer.model")),
    "tokenisers_cut_otherwise": lambda m: checked(m, cut_otherwise(m)),
    "padded_vocabulary": lambda m: checked(other(m, vocab_size=ROWS + 64), write_folder(m, vocab_size=ROWS + 8)),
    "head_of_another_target": lambda m: checked(m, head(m, target="a/other")),
    "head_size": lambda m: checked(m, head(m, 64)),
    "drafter_larger": lambda m: checked(m, other(m, num_hidden_layers=8)),
    "drafter_context_shorter": lambda m: checked(m, other(m, max_position_embeddings=2048)),
}
ON_HUB = {"gated", "download"}
"""Those that a hub is needed for; tested below."""


def test_every_finding_is_made_where_it_is_true_and_says_what_to_try(home: Path) -> None:
    wrong = []
    for code, case in CASES.items():
        report, sentence = case(write_folder(home / code / "m")), DIAGNOSTIC_TEXTS[code]
        made = {(d.code, d.level, *sorted(dict(d.values))): d for d in report.diagnostics}
        finding = made.get((code, sentence.level, *sorted(sentence.fields)))
        worst = max((d.level for d in report.diagnostics), key=list(FitLevel).index)
        if finding is None or card(report).count(finding.message) != 1 or report.verdict is not worst:
            wrong.append((code, report.diagnostics))
    assert wrong == []
    assert DIAGNOSTIC_TEXTS.keys() == CASES.keys() | ON_HUB
    for code, sentence in DIAGNOSTIC_TEXTS.items():
        assert sentence.message.endswith("."), code
        assert sentence.advice.endswith(".") or (not sentence.advice and sentence.level is not FitLevel.CANNOT), code
    with pytest.raises(KeyError):
        diagnose("download", name="x")


# -- nothing raises, whatever the files hold ---------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
KEYS = [*CONFIG, "vocab_size", "layer_types", "text_config", "quantization_config", "rope_scaling", "rope_parameters",
        "sliding_window", "transformer_layer_config", "speculators_model_type", "speculators_config",
        "eagle_aux_hidden_state_layer_ids", "is_encoder_decoder"]  # fmt: skip
FILES = ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"]


@given(
    st.dictionaries(st.sampled_from(KEYS), JSON | st.just("eagle3"), max_size=4),
    st.sampled_from(FILES),
    st.binary(max_size=60),
)
@settings(max_examples=40)
def test_nothing_that_a_folder_holds_raises(
    tmp_path_factory: pytest.TempPathFactory, changes: dict[str, Any], name: str, content: bytes
) -> None:
    folder = write_folder(tmp_path_factory.mktemp("m"))
    right = write_folder(folder / "right")
    edited(folder, **changes)
    checked(folder)
    checked(right, folder)
    (right / name).write_bytes(content)
    assert checked(right).verdict in tuple(FitLevel)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gguf(tmp_path_factory.mktemp("whole"))


@given(st.floats(0, 1), st.integers(0, 255))
@settings(max_examples=25)
def test_a_gguf_that_is_cut_or_spoilt_is_one_sentence(whole: Path, where: float, value: int) -> None:
    path, content = whole.with_name("part.gguf"), whole.read_bytes()
    path.write_bytes(content[: int(where * (len(content) - 1))])
    assert codes(checked(path)) & {"truncated", "damaged"}
    spoilt = bytearray(content)
    spoilt[int(where * 4000)] = value
    path.write_bytes(spoilt)
    checked(path)


# -- what headers say is true ------------------------------------------------------------------------------------------


def test_headers_of_a_folder_are_its_sizes(home: Path) -> None:
    folder = write_folder(home / "m", vocab_size=ROWS + 5, tie_word_embeddings=False)
    info = read_headers(str(folder))
    sizes = (info.layers, info.hidden, info.kv_heads, info.mlp, info.vocab_rows, info.vocab_size, info.tied, info.chat)
    assert sizes == (2, 32, 2, 48, ROWS + 5, ROWS, False, True)
    assert info.file_bytes == (folder / "model.safetensors").stat().st_size
    assert info.formats == (("F32", 4 * info.parameters),)
    assert (info.window, info.runs) == (None, "lean")
    edited(folder, model_type="qwen2", sliding_window=512, use_sliding_window=False)
    assert read_headers(str(folder)).window is None
    edited(folder, model_type="gemma3_text", layer_types=["sliding_attention", "full_attention"])
    info = read_headers(str(folder))
    assert (info.window, info.runs) == (512, "transformers")


def test_tokenisers_are_compared_as_when_they_are_loaded(home: Path) -> None:
    """What the check says of two is what `Tokenizer.same_ids` will say."""
    more = tokenisers.byte_level()
    more.add_tokens(["<tool>", "<answer>"])
    others = [tokenisers.byte_fallback(), tokenisers.byte_fallback("first"), tokenisers.word_piece()]
    both, agreed = [], set()
    for backend in [tokenisers.byte_level(), more, *others]:
        backend.save(str(home / "t.json"))
        both.append((tokens.from_file(home / "t.json"), build_tokenizer(backend, None, stop_ids=[0])))
    for (a, (ours, real)), (b, (other, other_real)) in itertools.product(enumerate(both), repeat=2):
        same = real.same_ids(other_real)
        assert ours.same_ids(other, min(ours.size, other.size)) == same, (a, b)
        agreed |= {(a, b)} if same else set()
    assert (0, 1) in agreed and (0, 2) not in agreed
    report = checked(gguf(home), write_folder(home / "d"))
    assert report.drafting == "same ids" and not codes(report) & {"tokenisers_differ", "tokenisers_unread"}


@pytest.mark.model
def test_facts_of_the_default_model_are_its_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.loading.default_model import default_model

    monkeypatch.delenv("GREENLIGHT_CACHE")
    gguf = read_headers(str(default_model(offline=True, progress=lambda *_: None)))
    for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "mlp", "vocab_rows", "context_len", "parameters",
                 "file_bytes", "formats", "embedding", "tied", "grid", "kind"):  # fmt: skip
        assert getattr(DEFAULT_MODEL_INFO, name) == getattr(gguf, name), name
    report = check_config(EngineConfig(offline=True), machine=ROOM)
    assert (report.verdict, report.drafting) == (FitLevel.FITS, "head")


@pytest.mark.slow  # imports every kind of model that transformers has
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


def test_what_fits_says_nothing_and_takes_the_memory_that_it_says(home: Path) -> None:
    for changes in ({}, {"vocab_size": ROWS + 9}, {"tie_word_embeddings": False}):
        folder = write_folder(home / "m", **changes)
        report = checked(folder, quant="fp32")
        assert (report.verdict, report.diagnostics, report.drafting) == (FitLevel.FITS, (), "ngram")
        assert report.needs_mib == pytest.approx(sum(mib for _, mib in report.parts)) and report.target is not None
        model = loading.load(str(folder), device="cpu", threads=1, quant="fp32", offline=True, progress=lambda *_: None)
        assert (model.context_len, model.network.vocab_size) == (report.target.context_len, report.target.vocab_size)
        separate = 0 if report.target.tied else 4 * report.target.embedding
        said = dict(report.parts)["target"] * 2**20
        assert said == pytest.approx(model.network.weight_bytes + separate, rel=0.02)


# -- a hub -------------------------------------------------------------------------------------------------------------


def test_of_a_hubs_model_only_headers_are_fetched(home: Path) -> None:
    folder = write_folder(home / "m")
    files = {file.name: file.stat().st_size for file in folder.iterdir()}
    siblings = [SimpleNamespace(rfilename=name, size=size) for name, size in files.items()]
    here = model_files.Folder("m", folder).tensors("model.safetensors")
    heads = {n: SimpleNamespace(dtype=t.dtype, shape=t.shape, data_offsets=(t.begin, t.end)) for n, t in here.items()}
    with (
        patch.object(HfApi, "model_info", autospec=True, return_value=SimpleNamespace(siblings=siblings)) as asked,
        patch.object(HfApi, "parse_safetensors_file_metadata", return_value=SimpleNamespace(tensors=heads)),
        patch("huggingface_hub.hf_hub_download", side_effect=lambda _, file, **__: str(folder / file)) as download,
    ):
        report = checked("owner/model", offline=False)
        assert codes(report) == {"download"} and report.target is not None and not report.target.here
        assert report.target.file_bytes == files["model.safetensors"]
        assert report.target.parameters == read_headers(str(folder)).parameters
        assert "disk_short" in codes(checked("owner/model", offline=False, machine=SMALL))
        assert {call.args[1] for call in download.call_args_list} <= {name for name in files if name.endswith(".json")}
        answer = SimpleNamespace(headers={}, request=None, status_code=404)
        for error, code in ((errors.GatedRepoError, "gated"), (errors.RepositoryNotFoundError, "not_found")):
            asked.side_effect = error("no", response=answer)
            assert codes(checked("owner/model", offline=False)) == {code}


def test_no_name_leads_out_to_a_hub_that_is_no_hub_id(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("engine.preflight.headers.find_on_hub", lambda name, *_: asked.append(name))
    for name in ("../x", "~nobody/x", "/etc/model", "a/b/c", "a b", "-x/y", "x.gguf", "http://h/x", "a/../b"):
        assert checked(name, offline=False).verdict is FitLevel.CANNOT
    assert asked == []


# -- devices, memory, the command --------------------------------------------------------------------------------------


def test_memory_is_that_of_each_device_and_of_how_weights_are_kept(home: Path) -> None:
    def short(main_mib: float, gpu_mib: float, quant: str, device: str = "cuda") -> bool:
        machine = Machine(free_mib=main_mib, gpu_name="GPU", gpu_free_mib=gpu_mib)
        return "memory_short" in codes(checked(target, machine=machine, device=device, quant=quant))

    target = big(home / "m", 3000)
    assert short(10_000, 2900, "fp32") and not short(10_000, 2900, "fp32", "cpu") and not short(10_000, 2900, "bf16")
    # What is quantised comes in whole first, in main memory, wherever it goes to.
    assert short(1000, 8000, "nf4") and not short(1000, 8000, "bf16") and not short(4000, 8000, "nf4")
    wide = write_folder(home / "w", hidden_size=256, intermediate_size=8192)
    needs = {quant: dict(checked(wide, quant=quant).parts) for quant in ("fp32", "bf16", "int8")}
    whole = needs["fp32"]["target"]
    assert needs["int8"]["target"] < whole / 2 == pytest.approx(needs["bf16"]["target"])
    assert needs["int8"]["target"] + needs["int8"].get("loading", 0) <= whole + 1
    both = checked(
        write_folder(home / "d"), target, Machine(free_mib=10_000, gpu_free_mib=1000), device="cuda",
        drafter_device="cpu", drafter_quant="fp32",
    )  # fmt: skip
    assert "memory_short" not in codes(both) and both.free_mib == 1000


def test_the_check_needs_no_torch() -> None:
    code = "import sys, engine.preflight.check, engine.loading.model_presets; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_command_prints_the_card_and_says_by_its_status(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(write_folder(home / "m"))
    assert check_module.main(["--target", folder, "--drafter", "ngram", "--offline"]) == 0
    assert "This pair fits." in capsys.readouterr().out
    assert check_module.main(["--target", "owner/model", "--offline"]) == 1
    assert "Start without --offline" in capsys.readouterr().out
    assert check_module.main(["--target", folder, "--drafter", "draft_model"]) == 2
    assert "drafter must be" in capsys.readouterr().err
