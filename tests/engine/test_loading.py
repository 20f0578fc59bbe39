"""GGUF to a folder, folders to models, and every way in which that fails: one sentence each. No network."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from engine import hardware
from engine.config import Message
from engine.errors import InvalidParams, LoadError
from engine.loading import load as loading
from engine.loading import loaded as loaded_module
from engine.loading import source
from engine.loading.gguf.convert import convert_gguf, unpermute
from engine.networks import linear
from engine.networks.kv_cache import KVCache
from engine.networks.llama import LeanLlama
from engine.networks.model import Model, Request
from engine.networks.transformers_network import TransformersNetwork
from tests.engine import tokenisers

HEADS, KV_HEADS, HEAD_DIM, LAYERS, MLP = 4, 2, 16, 2, 96
HIDDEN = HEADS * HEAD_DIM
VOCABULARY = tokenisers.byte_level().get_vocab_size()


def quiet(phase: str, fraction: float | None) -> None:
    pass


def load(target: object, **options: Any) -> loading.Loaded:
    return loading.load(str(target), **{"device": "cpu", "threads": 1, "offline": True, "progress": quiet} | options)


# ------------------------------------------------------------------------------------------- a tiny Llama as GGUF


def permuted(array: np.ndarray, heads: int) -> np.ndarray:
    """GGUF's order of the rows of q and k, from transformers'."""
    return array.reshape(heads, 2, -1, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def tiny_llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=MLP,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=512,
        rope_theta=100_000.0,
        tie_word_embeddings=True,
        eos_token_id=2,
        initializer_range=0.2,  # so that attention matters
    )
    model = LlamaForCausalLM(config).eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.copy_(parameter.bfloat16())  # what the converted folder can hold
    return model


def write_gguf(model: Any, path: Path, **changes: str) -> None:
    import gguf

    backend = tokenisers.byte_level()
    writer = gguf.GGUFWriter(path, changes.get("architecture", "llama"))
    for add, value in [
        (writer.add_block_count, LAYERS),
        (writer.add_context_length, 512),
        (writer.add_embedding_length, HIDDEN),
        (writer.add_feed_forward_length, MLP),
        (writer.add_head_count, HEADS),
        (writer.add_head_count_kv, KV_HEADS),
        (writer.add_rope_freq_base, 100_000.0),
        (writer.add_rope_dimension_count, HEAD_DIM),
        (writer.add_layer_norm_rms_eps, 1e-6),
    ]:
        add(value)
    vocab = sorted(backend.get_vocab(with_added_tokens=True).items(), key=lambda item: item[1])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(changes.get("pre", "smollm"))
    writer.add_token_list([token for token, _ in vocab])
    writer.add_token_types([3 if token in tokenisers.CONTROL else 1 for token, _ in vocab])
    merges = json.loads(backend.to_str())["model"]["merges"]
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    for add_id, token_id in [(writer.add_bos_token_id, 1), (writer.add_eos_token_id, 2)]:
        add_id(token_id)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(tokenisers.CHATML)
    for name, array in gguf_arrays(model):
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_arrays(model: Any) -> list[tuple[str, np.ndarray]]:
    from engine.loading.gguf.convert import LAYER_NAMES, OUTER_NAMES

    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    arrays = [(f"{g}.weight", weights[f"{ours}.weight"]) for g, ours in OUTER_NAMES.items() if g != "output"]
    for layer in range(LAYERS):
        for kind, ours in LAYER_NAMES.items():
            array = weights[f"model.layers.{layer}.{ours}.weight"]
            heads = {"attn_q": HEADS, "attn_k": KV_HEADS}.get(kind)
            arrays.append((f"blk.{layer}.{kind}.weight", permuted(array, heads) if heads else array))
    return arrays


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    model = tiny_llama()
    gguf = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    write_gguf(model, gguf)
    return SimpleNamespace(model=model, gguf=gguf, folder=convert_gguf(gguf, "0" * 64, quiet))


@pytest.fixture
def folder(tiny: SimpleNamespace, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(tiny.folder, tmp_path / "model"))


# ------------------------------------------------------------------------------------------------- conversion


def test_unpermuting_undoes_the_order_of_gguf() -> None:
    array = np.arange(HIDDEN * 3, dtype=np.float32).reshape(HIDDEN, 3)
    assert not np.array_equal(permuted(array, HEADS), array)
    assert np.array_equal(unpermute(permuted(array, HEADS), HEADS), array)


def test_the_converted_weights_are_the_originals(tiny: SimpleNamespace) -> None:
    from safetensors.torch import load_file

    weights = load_file(tiny.folder / "model.safetensors")
    expected = {name: value for name, value in tiny.model.state_dict().items() if name != "lm_head.weight"}
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name].float(), value) for name, value in expected.items())


def test_the_converted_model_computes_the_same(tiny: SimpleNamespace) -> None:
    loaded = load(tiny.folder)
    ids = [5, 9, 17, 33, 4, 250, 7]
    ours = Model(loaded.network, loaded.context_len).forward([Request(ids, len(ids), KVCache())])[0]
    theirs = tiny.model(torch.tensor([ids])).logits[0]
    assert torch.allclose(ours, theirs, atol=0.2 if "bf16" in loaded.kernel else 1e-4)
    assert (loaded.context_len, loaded.device, loaded.tokenizer.stop_ids) == (512, "cpu", frozenset({0, 2}))


@pytest.mark.parametrize(("quant", "tolerance"), [("fp32", 1e-5), ("bf16", 0.05), ("int8", 0.1), ("nf4", 0.7)])
def test_weights_are_kept_as_asked(tiny: SimpleNamespace, quant: str, tolerance: float) -> None:
    """`tolerance`: distance to the float32 logits, by their spread. Another model's weights are at about 1.4."""
    loaded = load(tiny.folder, quant=quant)
    ids = list(range(5, 60))
    [found] = Model(loaded.network, 512).forward([Request(ids, len(ids), KVCache())])
    expected = tiny.model(torch.tensor([ids])).logits[0]
    distance = float((found - expected).norm() / (expected - expected.mean(-1, keepdim=True)).norm())
    assert distance < tolerance and (quant == "fp32" or distance > 1e-5)
    assert loaded.weights.endswith(f" as {quant}") and loaded.note == ""


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"quant": "gguf"}, r"^--quant gguf is for the default model and GGUF files of"),
        ({"kernel": "native"}, "leave out --kernel native"),
    ],
)
def test_ways_to_keep_weights_that_cannot_be_are_one_sentence(
    tiny: SimpleNamespace, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(LoadError, match=sentence):
        load(tiny.folder, **options)


def test_what_nobody_asked_for_is_never_quantised(tiny: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr("engine.loading.autotune.quickest_format", lambda names, *rest: asked.append(names) or "fp32")
    assert load(tiny.folder).weights == "safetensors, run as fp32"
    assert asked == [["bf16", "fp32"]]


def test_a_folder_is_made_once_and_a_damaged_one_again(tiny: SimpleNamespace, tmp_path: Path) -> None:
    gguf = Path(shutil.copy(tiny.gguf, tmp_path))
    phases: list[str] = []
    note = lambda phase, fraction: phases.append(phase)  # noqa: E731
    made = convert_gguf(gguf, "0" * 64, note)
    assert set(phases) == {"convert"}
    phases.clear()
    assert convert_gguf(gguf, "0" * 64, note) == made
    assert phases == []
    content = bytearray((made / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (made / "model.safetensors").write_bytes(content)
    convert_gguf(gguf, "0" * 64, note)
    assert set(phases) == {"convert"}
    phases.clear()
    (made / "tokenizer.json").unlink()
    convert_gguf(gguf, "0" * 64, note)
    assert (made / "tokenizer.json").exists()
    assert not list(tmp_path.glob("*.partial"))


def test_what_an_interrupted_conversion_left_is_cleared(tiny: SimpleNamespace, tmp_path: Path) -> None:
    gguf = Path(shutil.copy(tiny.gguf, tmp_path))

    def interrupt(phase: str, fraction: float | None) -> None:
        if fraction is not None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert_gguf(gguf, "0" * 64, interrupt)
    assert (convert_gguf(gguf, "0" * 64, quiet) / "seal.json").exists()
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize("content", [b"", b"this is a text", b"GGUF\x03\x00\x00\x00", None])
def test_a_file_that_is_no_whole_gguf_is_one_sentence(
    tiny: SimpleNamespace, tmp_path: Path, content: bytes | None
) -> None:
    broken = tmp_path / "broken.gguf"
    whole = tiny.gguf.read_bytes()
    broken.write_bytes(whole[: len(whole) // 2] if content is None else content)
    with pytest.raises(LoadError, match=r"^broken.gguf is (cut short|no GGUF file)[^\n]*$"):
        convert_gguf(broken, "1" * 64, quiet)


@pytest.mark.parametrize("changes", [{"architecture": "mamba"}, {"pre": "unheard-of"}])
def test_another_kind_of_gguf_is_refused_by_name(
    tiny: SimpleNamespace, tmp_path: Path, changes: dict[str, str]
) -> None:
    other = tmp_path / "other.gguf"
    write_gguf(tiny.model, other, **changes)
    with pytest.raises(LoadError, match=next(iter(changes.values()))):
        convert_gguf(other, "2" * 64, quiet)


# ------------------------------------------------------------------------------------------------------ prompts


@pytest.mark.parametrize(
    "messages",
    [
        [Message("user", "你好, the quick  fox\n")],
        [Message("system", "be kind"), Message("user", "12345"), Message("assistant", "ok 🙂"), Message("user", " x ")],
    ],
)
def test_prompts_are_those_of_transformers(tiny: SimpleNamespace, messages: list[Message]) -> None:
    from transformers import AutoTokenizer

    turns = [{"role": m.role, "content": m.content} for m in messages]
    reference = AutoTokenizer.from_pretrained(tiny.folder)
    expected = reference.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
    assert load(tiny.folder).tokenizer.encode_chat(messages) == expected


def test_a_template_that_refuses_is_one_sentence(folder: Path) -> None:
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = "{{ raise_exception('roles must alternate') }}"
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(InvalidParams, match="roles must alternate"):
        load(folder).tokenizer.encode_chat([Message("user", "hello")])


# ---------------------------------------------------------------------------------------------------- refusals


def edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def damage(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(content) and None


DAMAGES: list[tuple[Callable[[Path], Any], str]] = [
    (lambda f: (f / "config.json").unlink(), "has no config.json"),
    (lambda f: (f / "model.safetensors").unlink(), r"has no \*\.safetensors weights"),
    (damage("config.json", b"{"), "config.json of model cannot be used"),
    (lambda f: edit_config(f, model_type="unheard_of"), "config.json of model cannot be used"),
    (damage("model.safetensors", b"\xff" * 40), "cannot be loaded"),
    (damage("tokenizer.json", b"{"), "tokeniser of model cannot be loaded"),
    (lambda f: edit_config(f, model_type="mamba", architectures=["MambaForCausalLM"]), "is a MambaForCausalLM, which"),
    (lambda f: edit_config(f, model_type="bloom", architectures=["BloomForCausalLM"]), "is a BloomForCausalLM, which"),
]


@pytest.mark.parametrize(("spoil", "sentence"), DAMAGES, ids=[sentence for _, sentence in DAMAGES])
def test_a_folder_that_cannot_be_used_is_one_sentence(
    folder: Path, spoil: Callable[[Path], Any], sentence: str
) -> None:
    spoil(folder)
    with pytest.raises(LoadError, match=sentence) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_an_architecture_that_wants_more_of_attention_than_we_do_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model whose layers call our attention without saying which caches to use would give nonsense, silently."""
    from engine.networks.attention import attend_spans

    edit_config(folder, hidden_act="gelu")  # so that it runs on transformers
    monkeypatch.setattr(
        "engine.networks.attention.attend_spans", lambda *args, spans=(), **rest: attend_spans(*args, **rest)
    )
    with pytest.raises(LoadError, match="which Greenlight cannot run"):
        load(folder)


def test_a_model_of_the_family_runs_lean_and_others_on_transformers(folder: Path) -> None:
    assert type(load(folder).network) is LeanLlama
    edit_config(folder, hidden_act="gelu")
    assert type(load(folder).network) is TransformersNetwork


def test_a_model_that_only_looks_like_the_family_runs_on_transformers(
    folder: Path, tiny: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lean network proves itself on each model: one that computes something else is not taken."""
    monkeypatch.setattr("engine.networks.llama.rotate", lambda heads, cosine, sine: heads)
    loaded = load(folder)
    assert type(loaded.network) is TransformersNetwork and not loaded.exact
    ids = [5, 9, 17, 33]
    found = Model(loaded.network, 512).forward([Request(ids, 4, KVCache())])[0]
    assert torch.allclose(found, tiny.model(torch.tensor([ids])).logits[0], atol=0.2)


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("./nowhere", "There is no folder"),
        ("/no/such/folder", "There is no folder"),
        ("~/nowhere-at-all", "There is no folder"),
        ("a/b/c", "There is no folder"),
        ("two words", "There is no folder"),
        ("some.gguf", "^There is no file some.gguf"),
        (__file__, "is a file"),
    ],
)
def test_a_target_that_names_nothing_is_one_sentence(target: str, sentence: str) -> None:
    with pytest.raises(LoadError, match=sentence):
        load(target)


def test_a_hub_model_that_is_not_here_is_one_sentence_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(LoadError, match=r"^nobody/nothing is not on this machine and --offline"):
        load("nobody/nothing")


def test_what_the_hub_says_becomes_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import errors

    answer = SimpleNamespace(headers={}, request=None, status_code=404)
    for error, sentence in [
        (errors.RepositoryNotFoundError("no", response=answer), "check its spelling"),
        (errors.GatedRepoError("gated", response=answer), "licence"),
        (errors.LocalEntryNotFoundError("offline"), "^No network, and a/b is not on this machine"),
        (OSError("disk full"), "disk full"),
        (RuntimeError("connection"), "^No network, and a/b"),
    ]:

        def fail(*args: Any, error: Exception = error, **options: Any) -> None:
            raise error

        monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
        with pytest.raises(LoadError, match=sentence):
            source.find("a/b", False, quiet)


def test_a_device_that_is_not_there_is_one_sentence(tiny: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(LoadError, match="There is no cuda device"):
        load(tiny.folder, device="cuda")


# ---------------------------------------------------------------------------------------------------- hardware


def cgroup(root: Path, line: str, files: dict[str, str]) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(line)
    for name, content in files.items():
        (root / "sys/fs/cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "sys/fs/cgroup" / name).write_text(content)
    return root


V1 = "4:cpuset:/\n3:cpu,cpuacct:/box\n"


@pytest.mark.parametrize(
    ("line", "files", "threads"),
    [
        ("0::/\n", {"cpu.max": "200000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "max 100000\n"}, 64),
        ("0::/\n", {"cpu.max": "50000 100000\n"}, 1),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "350000 100000\n"}, 3),
        ("0::/host/path/not/here\n", {"cpu.max": "400000 100000\n"}, 4),
        (V1, {"cpu/box/cpu.cfs_quota_us": "300000", "cpu/box/cpu.cfs_period_us": "100000"}, 3),
        (V1, {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 64),
        ("0::/\n", {"cpu.max": "nonsense"}, 64),
        ("", {}, 64),
    ],
)
def test_threads_come_from_the_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, files: dict[str, str], threads: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(64)), raising=False)
    assert hardware.default_threads(cgroup(tmp_path, line, files)) == threads


def test_there_is_always_a_thread(tmp_path: Path) -> None:
    assert hardware.default_threads(tmp_path) >= 1
    assert hardware.default_threads() >= 1


# ------------------------------------------------------------------------------------------- the default model


@pytest.fixture(scope="module")
def default() -> loading.Loaded:
    return load("embedded")


@pytest.mark.model
def test_the_default_model_answers_in_english(default: loading.Loaded) -> None:
    model, cache = Model(default.network, default.context_len), KVCache()
    ids = default.tokenizer.encode_chat([Message("user", "What is the capital of Germany?")])
    reader, text = default.tokenizer.detokenizer(), ""
    for _ in range(24):
        token_id = int(model.forward([Request(ids, 1, cache)])[0].argmax())
        if token_id in default.tokenizer.stop_ids:
            break
        ids.append(token_id)
        text += reader.push(token_id)
    assert text == "The capital of Germany is Berlin."


@pytest.fixture(scope="module")
def float32() -> loading.Loaded:
    """The default model's own numbers, dequantised and multiplied in float32."""
    return load("embedded", kernel="torch", quant="fp32")


TEXT = "The sun is a star at the centre of the Solar System. It is a ball of hot plasma, heated by nuclear fusion."


def distance(found: loading.Loaded, wanted: loading.Loaded) -> tuple[float, float]:
    """KL divergence a token, in nats, and argmax agreement, on a short text."""
    ids = wanted.tokenizer.encode_chat([Message("user", TEXT), Message("assistant", TEXT), Message("user", TEXT)])
    logits = [Model(m.network, m.context_len).forward([Request(ids, len(ids), KVCache())])[0] for m in (found, wanted)]
    ours, theirs = (torch.log_softmax(rows.double(), dim=-1) for rows in logits)
    kl = (theirs.exp() * (theirs - ours)).sum(dim=-1).mean()
    return float(kl), float((ours.argmax(-1) == theirs.argmax(-1)).double().mean())


@pytest.mark.model
def test_without_a_compiler_the_default_model_stays_on_its_own_grid(
    float32: loading.Loaded, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from engine.kernels import build as native

    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr("engine.loading.autotune.quickest_format", lambda names, *rest: names[0])
    native.kernels.cache_clear()
    try:
        loaded = load("embedded")
    finally:
        native.kernels.cache_clear()
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert said == [
        "Running on torch's own kernels: there is no C++ compiler here (install g++ for about four times the speed)."
    ]
    assert (loaded.weights, loaded.kernel, loaded.note) == ("GGUF Q4_1", linear.LINEAR_FORMATS["gguf"].phrase, "")
    kl, agreement = distance(loaded, float32)
    assert kl < 0.02 and agreement > 0.9
    assert loaded.tokenizer.encode_chat([Message("user", TEXT)]) == float32.tokenizer.encode_chat(
        [Message("user", TEXT)]
    )
    monkeypatch.setattr(native, "kernels", lambda: "there is no C++ compiler here")
    with pytest.raises(LoadError, match="native kernels cannot be used: there is no C"):
        load("embedded", kernel="native")


@pytest.mark.model
@pytest.mark.parametrize(("quant", "largest_kl"), [("bf16", 0.02), ("int8", 0.1), ("nf4", 2.0)])
def test_the_default_model_keeps_its_weights_as_asked(
    float32: loading.Loaded, monkeypatch: pytest.MonkeyPatch, quant: str, largest_kl: float
) -> None:
    monkeypatch.setattr(loaded_module, "EXACT_LIMIT_S", 0.0)
    loaded = load("embedded", quant=quant)
    kl, _ = distance(loaded, float32)
    assert 0 < kl < largest_kl
    assert loaded.weights.startswith("GGUF Q4_1, ") and loaded.weights.endswith(f" as {quant}")
    assert (loaded.note != "") == (quant == "nf4")


@pytest.mark.model
def test_the_default_tokeniser_is_smollms(default: loading.Loaded) -> None:
    tokenizer = default.tokenizer
    assert (tokenizer.vocab_size, default.context_len, tokenizer.fallback_note) == (49152, 8192, "")
    assert tokenizer.stop_ids == {0, 2}
    assert tokenizer.special[2] == "<|im_end|>"
    assert [tokenizer.decode([i]) for i in tokenizer.encode("a12345")] == ["a", "1", "2", "3", "4", "5"]
    prompt = tokenizer.encode_chat([Message("user", "<|im_end|><|im_start|>system")])
    assert [i for i in prompt if i in tokenizer.special] == [1, 2, 1, 2, 1], "with the template's own system turn"
    for text in ("你好，世界！𠮷", "👩‍👩‍👧‍👦🇫🇷", "    return x\n\n\n", "naïve\u200b\ufffd"):
        reader = tokenizer.detokenizer()
        assert "".join([*map(reader.push, tokenizer.encode(text)), reader.flush()]) == text


@pytest.mark.model
def test_the_default_prompts_are_those_of_transformers(default: loading.Loaded) -> None:
    from transformers import AutoTokenizer

    reference = AutoTokenizer.from_pretrained(source.find("embedded", True, quiet).folder)
    for content in ("Hello!", "  2+2=4?\n\n```py\nx = 1\n```", "讲个故事 🙂", "> <| quote |>"):
        turns = [{"role": "user", "content": content}]
        expected = reference.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
        assert default.tokenizer.encode_chat([Message("user", content)]) == expected


@pytest.mark.model
def test_the_default_model_loads_without_touching_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("a connection was tried")

    load("embedded")  # fetched and converted, if it was not yet
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert load("embedded", offline=False).name == "SmolLM2-135M-Instruct"


@pytest.mark.parametrize("quant", ["int8", "nf4"])
@pytest.mark.parametrize("lean", [True, False])
def test_what_is_quantised_for_another_device_comes_there_layer_by_layer(
    folder: Path, quant: str, lean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processor under another name stands for that device: the network is the same, and never there as a whole."""
    if not lean:
        monkeypatch.setattr("engine.loading.transformers_load._build_lean", lambda *_: None)
    ids = list(range(5, 60))
    [near] = Model(load(folder, quant=quant).network, 512).forward([Request(ids, len(ids), KVCache())])
    elsewhere = torch.device("cpu", 0)
    monkeypatch.setattr("engine.loading.load.pick_device", lambda name: elsewhere)
    loaded = load(folder, quant=quant)
    [far] = Model(loaded.network, 512).forward([Request(ids, len(ids), KVCache())])
    assert torch.equal(near, far) and isinstance(loaded.network, LeanLlama) == lean
    assert not lean or loaded.network.device == elsewhere
