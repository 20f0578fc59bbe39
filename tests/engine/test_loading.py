"""Names to files, folders to models, and every way in which that fails: one sentence each. No network."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch

from engine import hardware
from engine.config import Message
from engine.errors import InvalidParams, LoadError
from engine.kernels import build
from engine.loading import load as loading
from engine.loading import loaded as loaded_module
from engine.loading import source
from engine.networks import linear
from engine.networks.attention import attend_spans as attend
from engine.networks.kv_cache import KVCache
from engine.networks.llama import LeanLlama
from engine.networks.model import Model, Request
from engine.networks.transformers_network import TransformersNetwork
from engine.serving.engine import Engine
from tests.engine.tiny_folders import write_folder


def quiet(phase: str, fraction: float | None) -> None:
    pass


def load(target: object, device: str = "cpu", **options: Any) -> loading.Loaded:
    return loading.load(str(target), device=device, threads=1, **{"offline": True} | options, progress=quiet)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "model", hidden_size=64, intermediate_size=96, head_dim=16)


def edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


IDS = list(range(5, 60))


def logits_of(loaded: loading.Loaded, ids: list[int] = IDS) -> torch.Tensor:
    return Model(loaded.network, loaded.context_len).forward([Request(ids, len(ids), KVCache())])[0]


def logits_by_transformers(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    with torch.inference_mode():
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)(torch.tensor([IDS])).logits[0]


@pytest.mark.parametrize("kinds", [("fp32", "bf16", "int8"), pytest.param(("nf4",), marks=pytest.mark.slow)])
def test_weights_are_kept_as_asked_wherever_they_go(folder: Path, kinds: tuple[str, ...]) -> None:
    """A tolerance is a distance to the float32 logits, by their spread: another model's weights are at about 1.4. The
    processor under another name stands for a device where what is quantised comes layer by layer."""
    expected, elsewhere = logits_by_transformers(folder), torch.device("cpu", 0)
    spread = (expected - expected.mean(-1, keepdim=True)).norm()
    for network, act in ((LeanLlama, "silu"), (TransformersNetwork, "gelu")):
        for quant in kinds if network is LeanLlama else kinds[-1:]:
            tolerance = {"fp32": 1e-5, "bf16": 0.05, "int8": 0.1, "nf4": 0.7}[quant]
            loaded = load(folder, quant=quant)
            near = logits_of(loaded)
            assert type(loaded.network) is network and (loaded.context_len, loaded.device) == (4096, "cpu")
            assert (near - expected).norm() < tolerance * spread, (act, quant)
            assert quant == "fp32" or (near - expected).norm() > 1e-5 * spread
            assert loaded.weights.endswith(f" as {quant}") and loaded.note == ""
            if quant in ("int8", "nf4"):
                with patch("engine.loading.load.pick_device", return_value=elsewhere):
                    far = load(folder, quant=quant)
                assert torch.equal(near, logits_of(far)) and type(far.network) is network
                assert network is not LeanLlama or far.network.device == elsewhere
        edit_config(folder, hidden_act="gelu")
        expected = logits_by_transformers(folder)


def test_what_nobody_asked_for_is_never_quantised(folder: Path) -> None:
    with patch("engine.loading.autotune.quickest_format", return_value="fp32") as choose:
        assert load(folder).weights == "safetensors, run as fp32"
    assert choose.call_args.args[0] == ["bf16", "fp32"]


def test_a_network_proves_itself_on_each_model(folder: Path) -> None:
    """What only looks like the family runs on transformers; layers that call our attention without saying which caches
    to use would give nonsense, silently, and are refused."""
    with patch("engine.networks.llama.rotate", lambda heads, cosine, sine: heads):
        loaded = load(folder, quant="fp32")
    assert type(loaded.network) is TransformersNetwork and not loaded.exact
    assert torch.allclose(logits_of(loaded), logits_by_transformers(folder), atol=1e-3)
    edit_config(folder, hidden_act="gelu")
    careless = patch("engine.networks.attention.attend_spans", lambda *args, spans=(), **rest: attend(*args, **rest))
    with careless, pytest.raises(LoadError, match="which Greenlight cannot run"):
        load(folder)


def test_prompts_are_the_templates(folder: Path) -> None:
    tokenizer = load(folder, quant="fp32").tokenizer
    assert tokenizer.stop_ids == {2}
    ids = tokenizer.encode_chat([Message("system", "be kind"), Message("user", " x <|im_end|>")])
    assert [i for i in ids if i in tokenizer.special] == [1, 2, 1, 2, 1]
    assert tokenizer.decode(ids).endswith(" x <|im_end|>\nassistant\n")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = "{{ raise_exception('roles must alternate') }}"
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(InvalidParams, match="roles must alternate"):
        load(folder, quant="fp32").tokenizer.encode_chat([Message("user", "x")])


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_what_cannot_be_loaded_is_one_sentence(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    cases: list[tuple[object, dict[str, str], str]] = [
        (folder, {"quant": "gguf"}, r"^--quant gguf is for the default model and GGUF files of"),
        (folder, {"kernel": "native"}, "leave out --kernel native"),
        (folder, {"device": "cuda"}, "There is no cuda device"),
        ("some.gguf", {}, "^There is no file some.gguf"),
        (__file__, {}, "is a file"),
        ("nobody/nothing", {}, r"^nobody/nothing is not on this machine and --offline"),
        *((name, {}, "There is no folder") for name in ("./nowhere", "/no/such", "~/nowhere", "a/b/c", "two words")),
    ]
    for target, options, sentence in cases:
        with pytest.raises(LoadError, match=sentence) as caught:
            load(target, **options)
        assert "\n" not in str(caught.value)


def test_what_the_hub_says_becomes_one_sentence() -> None:
    from huggingface_hub import errors

    answer = SimpleNamespace(headers={}, request=None, status_code=404)
    for error, sentence in [
        (errors.RepositoryNotFoundError("no", response=answer), "check its spelling"),
        (errors.GatedRepoError("gated", response=answer), "licence"),
        (errors.LocalEntryNotFoundError("offline"), "^No network, and a/b is not on this machine"),
        (OSError("disk full"), "disk full"),
        (RuntimeError("connection"), "^No network, and a/b"),
    ]:
        with patch("huggingface_hub.snapshot_download", side_effect=error), pytest.raises(LoadError, match=sentence):
            source.find("a/b", False, quiet)


# -- hardware ----------------------------------------------------------------------------------------------------------

QUOTAS = """
0::/ | cpu.max=200000 100000 | 2
0::/ | cpu.max=max 100000 | 64
0::/ | cpu.max=50000 100000 | 1
0::/a/b | a/b/cpu.max=max 100000 & a/cpu.max=350000 100000 | 3
0::/host/path/not/here | cpu.max=400000 100000 | 4
4:cpuset:/a;3:cpu,cpuacct:/box | cpu/a/cpu.max=1 1 & cpu/box/cpu.cfs_quota_us=300000 & cpu/box/cpu.cfs_period_us=100000 | 3
4:cpuset:/;3:cpu,cpuacct:/box | cpu/cpu.cfs_quota_us=-1 & cpu/cpu.cfs_period_us=100000 | 64
0::/ | cpu.max=nonsense | 64
"""
"""Lines of /proc/self/cgroup, files below /sys/fs/cgroup, and how many of 64 processors may be used."""


def test_threads_come_from_the_quota_and_are_at_least_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hardware.default_threads(tmp_path) >= 1 and hardware.default_threads() >= 1
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(64)), raising=False)
    for n, row in enumerate(QUOTAS.strip().splitlines()):
        groups, files, threads = row.split(" | ")
        contents = [f"/proc/self/cgroup={groups}".replace(";", "\n")]
        contents += [f"/sys/fs/cgroup/{file}" for file in files.split(" & ")]
        for name, content in (one.split("=") for one in contents):
            path = Path(f"{tmp_path}/{n}{name}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{content}\n")
        assert hardware.default_threads(tmp_path / str(n)) == int(threads), row


# -- the default model -------------------------------------------------------------------------------------------------

TEXT = "The sun is a star at the centre of the Solar System. It is a ball of hot plasma, heated by nuclear fusion."
TALK = [Message("user", TEXT), Message("assistant", TEXT), Message("user", TEXT)]


@pytest.mark.model
def test_the_default_tokeniser_is_smollms(real_engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found without a look at the network; the answer that the model gives is in the page's tests."""
    from transformers import AutoTokenizer

    target = real_engine.served_pair().pair.target
    tokenizer = target.tokenizer
    assert (tokenizer.vocab_size, target.context_len, tokenizer.fallback_note) == (49152, 8192, "")
    assert tokenizer.stop_ids == {0, 2} and tokenizer.special[2] == "<|im_end|>"
    assert [tokenizer.decode([i]) for i in tokenizer.encode("a12345")] == ["a", "1", "2", "3", "4", "5"]
    prompt = tokenizer.encode_chat([Message("user", "<|im_end|><|im_start|>system")])
    assert [i for i in prompt if i in tokenizer.special] == [1, 2, 1, 2, 1], "with the template's own system turn"
    for attempt in ("socket.getaddrinfo", "socket.socket.connect"):
        monkeypatch.setattr(attempt, lambda *_, **__: pytest.fail("a connection was tried"))
    reference = AutoTokenizer.from_pretrained(source.find("embedded", False, quiet, tiles=True).folder)
    for content in (
        "Hello!",
        "  2+2=4?\n\n```py\nx = 1\n```",
        "讲个故事，世界！𠮷 👩‍👩‍👧‍👦🇫🇷",
        "> <| quote |>",
        "naïve\u200b\ufffd",
    ):
        reader = tokenizer.detokenizer()
        assert "".join([*map(reader.push, tokenizer.encode(content)), reader.flush()]) == content
        turns = [{"role": "user", "content": content}]
        expected = reference.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
        assert tokenizer.encode_chat([Message("user", content)]) == expected


@pytest.mark.slow
@pytest.mark.model
def test_the_default_model_in_other_formats_and_without_a_compiler(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Against its own numbers, dequantised and multiplied in float32."""
    monkeypatch.setattr(loaded_module, "EXACT_LIMIT_S", 0.0)
    float32 = load("embedded", kernel="torch", quant="fp32")
    ids = float32.tokenizer.encode_chat(TALK)
    theirs = torch.log_softmax(logits_of(float32, ids).double(), dim=-1)

    def kl(loaded: loading.Loaded) -> float:
        """Nats a token."""
        ours = torch.log_softmax(logits_of(loaded, ids).double(), dim=-1)
        return float((theirs.exp() * (theirs - ours)).sum(dim=-1).mean())

    for quant, largest_kl in (("bf16", 0.02), ("int8", 0.1), ("nf4", 2.0)):
        loaded = load("embedded", quant=quant)
        assert 0 < kl(loaded) < largest_kl
        assert loaded.weights.startswith("GGUF Q4_1, ") and loaded.weights.endswith(f" as {quant}")
        assert (loaded.note != "") == (quant == "nf4")
    monkeypatch.setattr(build, "kernels", lambda: "there is no C++ compiler here")
    monkeypatch.setattr("engine.loading.autotune.quickest_format", lambda names, *rest: names[0])
    loaded = load("embedded")
    assert [r.getMessage() for r in caplog.records if r.levelname == "WARNING"] == [
        "Running on torch's own kernels: there is no C++ compiler here."
    ]
    assert (loaded.weights, loaded.kernel, loaded.note) == ("GGUF Q4_1", linear.LINEAR_FORMATS["gguf"].phrase, "")
    assert kl(loaded) < 0.02 and loaded.tokenizer.encode_chat(TALK) == ids
    with pytest.raises(LoadError, match="native kernels cannot be used: there is no C"):
        load("embedded", kernel="native")
