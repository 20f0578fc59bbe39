"""What a GPU must do as the CPU does: tiny random models in every format, pairs on two devices, and no needless
waiting.

Most of it runs on the CPU as well, where it compares the CPU with itself: so what is to be run on a GPU machine is
known to run. `bash test.sh -m gpu` runs what needs the GPU, here and beside the code that it is about.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from engine.config import DecodingParams, EngineConfig, Message, SamplingParams
from engine.drafters.cross_tokenizer import CrossTokenizerDrafter
from engine.drafters.draft_model import DraftModelDrafter
from engine.drafters.head import HeadDrafter
from engine.events import Finished, FinishReason, Round
from engine.heads.torch_head import TorchHead
from engine.loading import load as loading
from engine.networks.attention import Span
from engine.networks.devices import fetch_to_cpu, move_to_device, send_ids
from engine.networks.kv_cache import KVCache
from engine.networks.linear import LINEAR_FORMATS, Nf4, refusal
from engine.networks.model import Model, Request
from engine.serving.engine import Engine, State
from tests.engine import tiny_heads, tokenisers
from tests.engine.tokenisers import CHATML
from tests.fakes import finished, run

CPU = torch.device("cpu")
DEVICES = [
    pytest.param("cpu", id="cpu", marks=pytest.mark.slow),
    pytest.param("cuda", id="cuda", marks=pytest.mark.gpu),
]
TWO = [pytest.param("cpu", "cpu", id="cpu, cpu", marks=pytest.mark.slow),
       *(pytest.param(*both, id=", ".join(both), marks=pytest.mark.gpu)
         for both in (("cuda", "cuda"), ("cuda", "cpu"), ("cpu", "cuda")))]  # fmt: skip
"""The target's device and the drafter's."""

BACKEND = tokenisers.byte_level()
SIZES = {
    "vocab_size": BACKEND.get_vocab_size(),
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "initializer_range": 0.15,
    "eos_token_id": 2,
    "bos_token_id": 1,
}
ARCHITECTURES = {
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)),
    "gemma": lambda: transformers.Gemma3ForCausalLM(
        transformers.Gemma3TextConfig(**SIZES, sliding_window=16, query_pre_attn_scalar=16)
    ),
}
"""One that runs lean, and one that runs on transformers, with windows."""

ERRORS = {"fp32": 1e-3, "bf16": 0.1, "fp16": 0.02, "nf4": 0.4, "int8": 0.2}
"""Of logits on any device against the same kind on the CPU (fp16 against fp32)."""


@pytest.fixture(scope="module", params=ARCHITECTURES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _written(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _written("llama", tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another model of the same tokeniser."""
    return _written("llama", tmp_path_factory.mktemp("drafter"), seed=1)


def _written(architecture: str, folder: Path, seed: int = 0) -> Path:
    torch.manual_seed(seed)
    ARCHITECTURES[architecture]().save_pretrained(folder)
    hf = transformers.PreTrainedTokenizerFast(
        tokenizer_object=BACKEND, bos_token="<|im_start|>", eos_token="<|im_end|>", chat_template=CHATML
    )
    hf.save_pretrained(folder)
    return folder


def load(folder: Path, device: str, quant: str = "fp32", **options: Any) -> loading.Loaded:
    return loading.load(
        str(folder),
        device=device,
        threads=1,
        quant=quant,
        offline=True,
        progress=lambda phase, fraction: None,
        **options,
    )


def model(folder: Path, device: str, quant: str = "fp32", **options: Any) -> Model:
    found = load(folder, device, quant, **options)
    assert found.network.device.type == device
    return Model(found.network, found.context_len)


def some_ids(n: int) -> list[int]:
    return [(7 * i) % 250 + 3 for i in range(n)]


def logits_of(network: Model) -> torch.Tensor:
    [logits] = network.forward([Request(some_ids(40), 40, KVCache())])
    return logits


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("quant", ERRORS)
def test_logits_are_those_of_the_cpu(folder: Path, device: str, quant: str) -> None:
    if refusal(quant, torch.device(device)):
        pytest.skip(f"{quant} does not run on {device}")
    expected = logits_of(model(folder, "cpu", "fp32" if quant == "fp16" else quant))
    found = logits_of(model(folder, device, quant))
    assert found.device == CPU and found.dtype == torch.float32
    assert (found - expected).norm() <= ERRORS[quant] * expected.norm()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("compute", ["bf16", "fp16", "fp32"])
def test_nf4_in_each_format(llama: Path, device: str, compute: str) -> None:
    expected = logits_of(model(llama, "cpu", "nf4"))
    found = logits_of(model(llama, device, "nf4", compute=compute))
    assert (found - expected).norm() <= ERRORS["nf4"] * expected.norm()


@pytest.mark.parametrize(("device", "drafter_device"), TWO)
@pytest.mark.parametrize("reencoded", [False, True])
def test_the_text_is_plain_decodings(
    llama: Path, other: Path, device: str, drafter_device: str, reencoded: bool
) -> None:
    """In float32 there are hardly two best tokens so close that a wider pass tells them apart otherwise."""
    loaded = load(llama, device)
    target, tokenizer = Model(loaded.network, loaded.context_len), loaded.tokenizer
    prompt = tokenizer.encode_chat([Message("user", "hello")])
    params = DecodingParams(SamplingParams(seed=0), "any", 4, max_new_tokens=60)
    plain = run(prompt, replace(params, num_speculative_tokens=0), target, tokenizer)
    for folder in (llama, other):  # drafts that nearly all stand, and that hardly do
        drafts = model(folder, drafter_device)
        drafter: Any = DraftModelDrafter(drafts, KVCache(), target.vocab_size)
        if reencoded:
            drafter = CrossTokenizerDrafter(drafts, tokenizer, tokenizer, KVCache(), prompt)
        spec = run(prompt, params, target, tokenizer, drafter)
        assert finished(spec).token_ids == finished(plain).token_ids
        rounds = [event for event in spec if isinstance(event, Round)]
        assert any(one.num_drafted for one in rounds) and all(one.total_s > 0 for one in rounds)


@pytest.mark.parametrize(("device", "drafter_device"), TWO)
def test_the_engine_says_where_it_runs_and_answers(llama: Path, other: Path, device: str, drafter_device: str) -> None:
    config = EngineConfig(
        str(llama), str(other), device, threads=1, offline=True, drafter_device=drafter_device, quant="bf16",
        drafter_quant="nf4", max_new_tokens=24,
    )  # fmt: skip
    engine = Engine(config)
    try:
        status = engine.wait_ready(300)
        assert status.state is State.READY, status.message
        assert engine.facts().device.startswith(device)
        with engine.stream([Message("user", "hello")], DecodingParams(max_new_tokens=24), "") as stream:
            last = list(stream)[-1]
        assert isinstance(last, Finished) and last.reason in (FinishReason.LENGTH, FinishReason.STOP), last
    finally:
        engine.close()


def head_on(device: str) -> TorchHead:
    config, table = tiny_heads.head_config(), move_to_device(tiny_heads.embedding(), device)
    where = torch.device(device)
    ids = tiny_heads.draft_ids()
    return TorchHead(config, tiny_heads.random_weights(config), ids, lambda i: table[i], where, torch.float32)


@pytest.mark.parametrize("device", DEVICES)
def test_a_heads_drafts_are_those_of_the_cpu(device: str) -> None:
    ids = some_ids(30)
    ids = [i % tiny_heads.VOCAB for i in ids]
    params, features = SamplingParams(), tiny_heads.features_of(ids)[:-1]
    expected = tiny_heads.proposed(
        HeadDrafter(tiny_heads.torch_head(tiny_heads.head_config()), KVCache(), tiny_heads.VOCAB), ids, 5, params
    )
    drafter = HeadDrafter(head_on(device), KVCache(), tiny_heads.VOCAB)
    found = tiny_heads.proposed(drafter, ids, 5, params, move_to_device(features, device))
    assert found.token_ids == expected.token_ids


# -------------------------------------------------------------------------------------------------- only on a GPU


@contextmanager
def without_waiting() -> Iterator[None]:
    """Whatever makes the CPU wait for the GPU is an error."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
def test_waiting_would_be_noticed() -> None:
    x = torch.ones(2, device="cuda")
    with pytest.raises(RuntimeError), without_waiting():
        fetch_to_cpu(x)


@pytest.mark.gpu
@pytest.mark.parametrize("quant", ["bf16", "nf4"])
def test_a_pass_waits_for_nothing_before_its_logits(llama: Path, quant: str) -> None:
    """Neither for its ids to go out, nor for anything within: only `fetched` may."""
    network, cache = model(llama, "cuda", quant), KVCache()
    ids = some_ids(40)
    for n in (36, 37):  # what comes with the first passes: room, rope tables, kernels
        network.forward([Request(ids[:n], 1, cache)])
    with torch.inference_mode(), without_waiting():
        token_ids, positions, logit_rows = send_ids([ids[37:38], [37], [0]], "cuda")
        network.network(token_ids, positions, [Span(cache, 0, 37, 1)], logit_rows)


@pytest.mark.gpu
def test_a_heads_step_waits_for_nothing_before_its_logits() -> None:
    head, cache = head_on("cuda"), KVCache()
    features = move_to_device(tiny_heads.features_of([1, 2, 3]), "cuda")
    with torch.inference_mode():
        state = head.run(torch.tensor([1, 2, 3]), head.join(features), 0, cache)
        state = head.run(torch.tensor([4]), head.next_input(state[-1:]), 3, cache)
        with without_waiting():
            head.run(torch.tensor([5]), head.next_input(state), 4, cache)


@pytest.mark.gpu
def test_scales_are_quantised_too() -> None:
    """Double quantisation: 4 bits, 8 bits for 64, and 32 for 64 * 256 (QLoRA, section 3); and about the same
    weights."""
    weight = torch.randn(512, 512, generator=torch.Generator().manual_seed(0)).bfloat16().float()
    twice, once = Nf4(move_to_device(weight, "cuda", torch.bfloat16), None), Nf4(weight, None)
    assert twice.weight_bytes == pytest.approx(weight.numel() * (4 + 8 / 64 + 32 / (64 * 256)) / 8, rel=0.01)
    x = torch.eye(512)
    found = fetch_to_cpu(twice(move_to_device(x, "cuda", torch.bfloat16)))
    assert (found - once(x)).norm() <= 0.02 * weight.norm()


@pytest.mark.gpu
def test_each_kind_of_layer_fits_this_machine() -> None:
    assert [
        name for name, kind in LINEAR_FORMATS.items() if "cuda" in kind.devices and refusal(name, torch.device("cuda"))
    ] == []
