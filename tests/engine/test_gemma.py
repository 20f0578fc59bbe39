"""The Gemma kind, in whose layers most look back over a window only: a tiny one, and Gemma 3 270M itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.config import DecodingParams, Message, SamplingParams
from engine.drafters.draft_model import DraftModelDrafter
from engine.drafters.ngram import NgramDrafter
from engine.drafters.protocol import Drafter
from engine.loading import load as loading
from engine.loading.default_model import GEMMA, fetch_model
from engine.networks.kv_cache import KVCache
from engine.networks.model import Model, Request
from tests import fakes
from tests.engine.test_gguf_files import GEMMA as SHAPE
from tests.engine.test_gguf_files import load
from tests.engine.tiny_ggufs import random_model, write_model

WINDOW = 8
GREEDY = SamplingParams(temperature=0.0, seed=0)


def quiet(phase: str, fraction: float | None) -> None:
    pass


# ----------------------------------------------------------------------------------------------------- a tiny one


def made(folder: Path, seed: int) -> tuple[Any, loading.Loaded]:
    model = random_model("gemma3", seed=seed, **SHAPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GREENLIGHT_CACHE", str(folder / "cache"))
        return model, load(write_model(folder / f"tiny{seed}.gguf", "gemma3", model), quant="fp32")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, loading.Loaded]:
    return made(tmp_path_factory.mktemp("gemma"), 0)


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> loading.Loaded:
    """Another model of the same shape, whose every guess is wrong."""
    return made(tmp_path_factory.mktemp("bad"), 1)[1]


def one_by_one(loaded: loading.Loaded, model: Model, prompt: list[int], count: int) -> list[int]:
    """Greedy, from a fresh cache at every step: nothing that a cache forgets or mixes up can spoil it."""
    ids = list(prompt)
    while len(ids) < len(prompt) + count and ids[-1] not in loaded.tokenizer.stop_ids:
        ids.append(int(model.forward([Request(ids, 1, KVCache())])[0][0].argmax()))
    return [i for i in ids[len(prompt) :] if i not in loaded.tokenizer.stop_ids]


@pytest.mark.parametrize("prompt", [1, WINDOW - 2, WINDOW, 3 * WINDOW, 300])
def test_logits_are_those_of_transformers_across_the_window(tiny: tuple[Any, loading.Loaded], prompt: int) -> None:
    theirs, loaded = tiny
    model, cache = Model(loaded.network, loaded.context_len), KVCache()
    ids = [5 + 7 * i % 380 for i in range(prompt + 40)]
    expected = theirs(torch.tensor([ids])).logits[0, :, : model.vocab_size]
    model.forward([Request(ids[:prompt], 0, cache)])
    for begin in range(prompt, len(ids), 5):  # five at a time, of which the last two are then taken back
        model.forward([Request([*ids[: begin + 3], 9, 9], 5, cache)])
        [found] = model.forward([Request(ids[: begin + 5], 5, cache)])
        assert torch.allclose(found, expected[begin : begin + 5], atol=2e-3)


@pytest.mark.parametrize(("prompt", "k"), [(3, 1), (3, 7), (WINDOW, 4), (250, 4)])
def test_a_bad_drafter_changes_no_word_however_the_window_lies(
    tiny: tuple[Any, loading.Loaded], bad: loading.Loaded, prompt: int, k: int
) -> None:
    _, loaded = tiny
    model = Model(loaded.network, loaded.context_len)
    ids = [5 + 11 * i % 380 for i in range(prompt)]
    expected = one_by_one(loaded, model, ids, 24)
    assert len(expected) > WINDOW
    for drafter in (DraftModelDrafter(Model(bad.network, 512), KVCache()), DraftModelDrafter(model, KVCache()), None):
        reply = said(model, loaded, ids, 24, k, drafter)
        assert [i for i in reply if i not in loaded.tokenizer.stop_ids] == expected


def said(
    model: Model, loaded: loading.Loaded, ids: list[int], count: int, k: int, drafter: Drafter | None
) -> list[int]:
    params = DecodingParams(
        sampling=GREEDY, num_speculative_tokens=k if drafter else 0, max_new_tokens=count, probe_every=0
    )
    return list(fakes.finished(fakes.run(ids, params, model, loaded.tokenizer, drafter)).token_ids)


# ------------------------------------------------------------------------------------------------ Gemma 3 270M


@pytest.fixture(scope="module")
def gemma() -> loading.Loaded:
    file = fetch_model(GEMMA, offline=True, progress=quiet)
    return loading.load(str(file), device="cpu", threads=2, quant="fp32", offline=True, progress=quiet)


REPEATING = "Monday is the first day. Tuesday is the second day. Wednesday is the third day. "


@pytest.mark.model("gemma")
def test_what_gemma_is(gemma: loading.Loaded) -> None:
    assert gemma.weights == "GGUF Q4_K_M, run as fp32" and gemma.context_len == 32768
    assert "dequantised: its weights take 1.00 GiB of memory instead of 0.23" in gemma.note
    tokenizer = gemma.tokenizer
    assert (tokenizer.vocab_size, tokenizer.stop_ids) == (262144, {1, 106})
    assert tokenizer.special[2] == "<bos>" and tokenizer.special[106] == "<end_of_turn>"


@pytest.mark.model("gemma")
@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("The capital of France is", [818, 5279, 529, 7001, 563]),
        ("Hello, world!", [9259, 236764, 1902, 236888]),
        ("  two\n\n\nlines", [138, 13498, 109, 8721]),
    ],
)
def test_gemmas_tokeniser(gemma: loading.Loaded, text: str, ids: list[int]) -> None:
    assert gemma.tokenizer.encode(text) == ids and gemma.tokenizer.decode(ids) == text


@pytest.mark.model("gemma")
@pytest.mark.parametrize(
    "text", ["你好，世界。 今天 天气", "🙂👩‍👩‍👧🇫🇷 \u200b\u00a0", "\t\tdef f(a):\r\n    return 3.14", "<0x0A> <b>x"]
)
def test_gemmas_tokeniser_loses_nothing(gemma: loading.Loaded, text: str) -> None:
    assert gemma.tokenizer.decode(gemma.tokenizer.encode(text)) == text


@pytest.mark.model("gemma")
@pytest.mark.parametrize("prompt", [20, 500])
def test_gemma_with_drafts_says_what_it_says_without(gemma: loading.Loaded, prompt: int) -> None:
    """500 tokens and 24 more: the reply crosses the window of 512."""
    model = Model(gemma.network, gemma.context_len)
    ids = [2, *gemma.tokenizer.encode(REPEATING * 40)][:prompt]
    plain = said(model, gemma, ids, 24, 0, None)
    assert len(plain) == 24
    assert said(model, gemma, ids, 24, 4, NgramDrafter()) == plain


@pytest.mark.model("gemma")
def test_gemma_chats_without_a_template(gemma: loading.Loaded) -> None:
    model = Model(gemma.network, gemma.context_len)
    ids = gemma.tokenizer.encode_chat([Message("user", "Count: one, two, three, one, two, three, one, two")])
    assert ids[0] == 2 and gemma.tokenizer.fallback_note.startswith("This model has no chat template")
    params = DecodingParams(sampling=GREEDY, num_speculative_tokens=4, max_new_tokens=20, probe_every=0)
    end = fakes.finished(fakes.run(ids, params, model, gemma.tokenizer, NgramDrafter()))
    assert "three" in end.text and end.message == ""
