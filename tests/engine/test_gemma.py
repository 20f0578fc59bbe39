"""Gemma 3 270M, in whose layers most look back over a window only. How windows are computed is tested in
test_llama."""

from __future__ import annotations

from typing import Any

import pytest

from engine.config import DecodingParams, Message, SamplingParams
from engine.drafters.ngram import NgramDrafter
from engine.events import Finished
from engine.loading.default_model import GEMMA, fetch_model
from engine.loading.load import Loaded, load
from engine.networks.model import Model
from tests import fakes

pytestmark = [pytest.mark.slow, pytest.mark.model("gemma")]


def reply(loaded: Loaded, ids: list[int], k: int = 0, drafter: Any = None) -> Finished:
    params = DecodingParams(SamplingParams(temperature=0.0, seed=0), "any", k, max_new_tokens=24, probe_every=0)
    model = Model(loaded.network, loaded.context_len)
    return fakes.finished(fakes.run(ids, params, model, loaded.tokenizer, drafter))


@pytest.fixture(scope="module")
def gemma() -> Loaded:
    file = fetch_model(GEMMA, offline=True, progress=lambda *_: None)
    return load(str(file), device="cpu", threads=2, quant="fp32", offline=True, progress=lambda *_: None)


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


def test_gemma_chats_without_a_template_and_with_drafts_as_without(gemma: Loaded) -> None:
    """500 tokens and 24 more: the reply crosses the window of 512."""
    chat = gemma.tokenizer.encode_chat([Message("user", "Count: one, two, three, one, two, three, one, two")])
    assert chat[0] == 2 and gemma.tokenizer.fallback_note.startswith("This model has no chat template")
    text = "Monday is the first day. Tuesday is the second day. Wednesday is the third day. " * 40
    for ids, word in ((chat, "three"), ([2, *gemma.tokenizer.encode(text)][:500], "day")):
        plain = reply(gemma, ids)
        assert word in plain.text and reply(gemma, ids, 4, NgramDrafter()) == plain
