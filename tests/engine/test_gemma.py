"""The Gemma kind, in whose layers most look back over a window only: a tiny one, and Gemma 3 270M itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.config import DecodingParams, Message, SamplingParams
from engine.drafters.draft_model import DraftModelDrafter
from engine.drafters.ngram import NgramDrafter
from engine.events import Finished
from engine.loading.default_model import GEMMA, fetch_model
from engine.loading.loaded import Loaded
from engine.networks.kv_cache import KVCache
from engine.networks.model import Model, Request
from tests import fakes
from tests.engine.test_gguf_files import GEMMA as SHAPE
from tests.engine.test_gguf_files import load
from tests.engine.tiny_ggufs import random_model, write_model

pytestmark = pytest.mark.slow
WINDOW = 8


def made(folder: Path, seed: int) -> tuple[Any, Loaded]:
    model = random_model("gemma3", seed=seed, **SHAPE)
    return model, load(write_model(folder / f"tiny{seed}.gguf", "gemma3", model), quant="fp32")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Loaded, Loaded]:
    """transformers' model, ours, and another of the same shape, whose every guess is wrong."""
    folder = tmp_path_factory.mktemp("gemma")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GREENLIGHT_CACHE", str(folder / "cache"))
        return *made(folder, 0), made(folder, 1)[1]


def test_logits_are_those_of_transformers_across_the_window(tiny: tuple[Any, Loaded, Loaded]) -> None:
    theirs, loaded, _ = tiny
    model = Model(loaded.network, loaded.context_len)
    for prompt in (1, WINDOW - 2, WINDOW, 3 * WINDOW, 300):
        cache, ids = KVCache(), [5 + 7 * i % 380 for i in range(prompt + 40)]
        expected = theirs(torch.tensor([ids])).logits[0, :, : model.vocab_size]
        for begin in range(prompt, len(ids), 5):  # five at a time, of which the last two are then taken back
            model.forward([Request([*ids[: begin + 3], 9, 9], 5, cache)])
            [found] = model.forward([Request(ids[: begin + 5], 5, cache)])
            torch.testing.assert_close(found, expected[begin : begin + 5], atol=2e-3, rtol=1e-5)


def reply(loaded: Loaded, ids: list[int], k: int = 0, drafter: Any = None) -> Finished:
    params = DecodingParams(SamplingParams(temperature=0.0, seed=0), "any", k, max_new_tokens=24, probe_every=0)
    model = Model(loaded.network, loaded.context_len)
    return fakes.finished(fakes.run(ids, params, model, loaded.tokenizer, drafter))


def test_a_bad_drafter_changes_no_word_however_the_window_lies(tiny: tuple[Any, Loaded, Loaded]) -> None:
    _, loaded, bad = tiny
    models = [Model(each.network, loaded.context_len) for each in (loaded, bad)]
    for prompt, k in ((3, 1), (3, 7), (WINDOW, 4), (250, 4)):
        ids = [5 + 11 * i % 380 for i in range(prompt)]
        expected = list(ids)
        while len(expected) < prompt + 24:  # greedy, from a fresh cache at every step
            expected.append(int(models[0].forward([Request(expected, 1, KVCache())])[0][0].argmax()))
        drafters = [DraftModelDrafter(model, KVCache()) for model in models]
        for found in (reply(loaded, ids), *(reply(loaded, ids, k, drafter) for drafter in drafters)):
            assert list(found.token_ids) == expected[prompt:]


# ------------------------------------------------------------------------------------------------ Gemma 3 270M


@pytest.fixture(scope="module")
def gemma() -> Loaded:
    return load(fetch_model(GEMMA, offline=True, progress=lambda *_: None), threads=2, quant="fp32")


@pytest.mark.model("gemma")
def test_what_gemma_is_and_how_it_reads(gemma: Loaded) -> None:
    assert gemma.weights == "GGUF Q4_K_M, run as fp32" and gemma.context_len == 32768
    assert "dequantised: its weights take 1.00 GiB of memory instead of 0.23" in gemma.note
    tokenizer = gemma.tokenizer
    assert tokenizer.vocab_size == 262144 and tokenizer.stop_ids == {1, 106}
    assert tokenizer.special[2] == "<bos>" and tokenizer.special[106] == "<end_of_turn>"
    assert tokenizer.encode("  two\n\n\nlines") == [138, 13498, 109, 8721]
    assert tokenizer.encode("Hello, world!") == [9259, 236764, 1902, 236888]
    for text in (
        "Hello!",
        "你好，世界。 今天 天气",
        "🙂👩‍👩‍👧🇫🇷 \u200b\u00a0",
        "\t\tdef f(a):\r\n    return 3.14",
        "<0x0A> <b>x",
    ):
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.model("gemma")
def test_gemma_chats_without_a_template_and_with_drafts_as_without(gemma: Loaded) -> None:
    """500 tokens and 24 more: the reply crosses the window of 512."""
    chat = gemma.tokenizer.encode_chat([Message("user", "Count: one, two, three, one, two, three, one, two")])
    assert chat[0] == 2 and gemma.tokenizer.fallback_note.startswith("This model has no chat template")
    text = "Monday is the first day. Tuesday is the second day. Wednesday is the third day. " * 40
    for ids, word in ((chat, "three"), ([2, *gemma.tokenizer.encode(text)][:500], "day")):
        plain = reply(gemma, ids)
        assert word in plain.text and reply(gemma, ids, 4, NgramDrafter()) == plain
