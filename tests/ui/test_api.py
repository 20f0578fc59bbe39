"""The endpoint for programs: its function, and what only a call over HTTP can show."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import gradio as gr
import pytest

from engine.config import Rule, SamplingParams
from engine.events import FinishReason
from tests.fake_engine import DEFAULT_TEXT, FakeEngine, Script
from tests.ui.conftest import until
from ui.api import make_generate
from ui.chat.handlers import Handlers
from ui.controls import Options


async def answered(generate: Callable[..., Any], *arguments: object) -> Any:
    return [made async for made in generate(*arguments)][-1]


def ask(engine: FakeEngine, *arguments: object, options: Options | None = None) -> Any:
    return asyncio.run(answered(make_generate(Handlers(engine, options or Options())), *arguments))


def test_a_reply_as_json() -> None:
    engine = FakeEngine()
    made = ask(engine, "hello", 30, 0.5, 3, "ngram", 11)
    assert made["text"] == "".join(token["text"] for token in made["tokens"]) and DEFAULT_TEXT.startswith(made["text"])
    assert len(made["tokens"]) == 30 and made["stats"]["finish_reason"] == "length"
    sources = [token["source"] for token in made["tokens"]]
    assert set(sources) == {"draft", "recovered", "bonus", "plain"} and made["rejected"]
    for rejected in made["rejected"]:
        assert set(rejected) == {"text", "id", "after_index"} and sources[rejected["after_index"] + 1] == "recovered"
    assert 0 < made["stats"]["accepted"] < made["stats"]["drafted"] and all(set(token) == {"text", "id", "source"} for token in made["tokens"])  # fmt: skip
    assert made["engine"] == {
        "target": "FakeLM-1M", "weights": "GGUF Q4_1", "kernel": "test kernel", "device": "cpu", "exact": True, "note": "",
    }  # fmt: skip
    params = engine.asked[0].params
    assert (params.num_speculative_tokens, params.max_new_tokens, params.drafter) == (3, 30, "ngram")
    assert (params.sampling.temperature, params.sampling.seed) == (0.5, 11)


def test_filters_penalties_stop_strings_and_the_rule_reach_the_engine() -> None:
    engine = FakeEngine()
    ask(engine, "hi", 5, 0, None, "auto", None, 0.9, 40, 0.05, 1.1, 0.5, -0.5, ["END", "\n\n"], "shared_noise")
    params = engine.asked[0].params
    assert params.sampling == SamplingParams(0, 40, 0.9, 0.05, 1.1, 0.5, -0.5)
    assert (params.stop, params.rule) == (("END", "\n\n"), Rule.SHARED_NOISE)


def test_what_is_not_given_is_off_or_automatic_or_the_command_lines() -> None:
    for arguments, options, wanted in (
        ((), Options(), (None, "auto", 256)),
        ((5, 0, None), Options(k=3), (None, "auto", 5)),
        ((5, 0, 0), Options(), (0, "auto", 5)),
        ((), Options(k=2, drafter="none", max_new_tokens=7), (2, "none", 7)),
        ((), Options(drafter="some/model"), (None, "auto", 256)),
    ):
        engine = FakeEngine()
        ask(engine, "hello", *arguments, options=options)
        params = engine.asked[0].params
        assert (params.num_speculative_tokens, params.drafter, params.max_new_tokens) == wanted, options
        assert (params.sampling, params.stop, params.rule) == (SamplingParams(), (), Rule.REJECTION)


WRONG = """
[""] > prompt is empty
["hi", 0] > max_new_tokens must be between
["hi", "many"] > must be a whole number
["hi", 5, -1] > temperature must be between 0 and 5
["hi", 5, 0, 99] > num_speculative_tokens must be between 0 and 16
["hi", 5, 0, "many"] > num_speculative_tokens must be auto or a whole number between 0 and 16, not 'many'
["hi", 5, 0, true] > must be auto or a whole number
["hi", 5, 0, 2.5] > must be auto or a whole number
["hi", 5, 0, 4, "magic"] > drafter must be one of
["hi", 5, 0, 4, "auto", null, 0] > top_p must be above 0
["hi", 5, 0, 4, "auto", null, 1, 0, 0, 1, 0, "x"] > presence_penalty must be a number between -2 and 2
["hi", 5, 0, 4, "auto", null, 1, 0, 0, 1, 0, 0, "END"] > stop must be a list of strings, not 'END'
["hi", 5, 0, 4, "auto", null, 1, 0, 0, 1, 0, 0, [""]] > stop takes at most 16 strings of 1 to 200 characters
["hi", 5, 0, 4, "auto", null, 1, 0, 0, 1, 0, 0, [], "magic"] > rule must be one of rejection, shared_noise, not 'magic'
"""


def test_what_is_wrong_is_said_in_a_sentence() -> None:
    for row in WRONG.strip().splitlines():
        arguments, words = row.split(" > ")
        engine = FakeEngine()
        with pytest.raises(gr.Error, match=words):
            ask(engine, *json.loads(arguments))
        assert not engine.asked
    with pytest.raises(gr.Error, match="shorten the message"):
        ask(FakeEngine(), "word " * 9000)
    broken = FakeEngine(answer=lambda _: Script(reason=FinishReason.ERROR, message="The logits were not numbers."))
    with pytest.raises(gr.Error, match="not numbers"):
        ask(broken, "hello")


def test_many_at_once_are_not_mixed() -> None:
    generate = make_generate(
        Handlers(FakeEngine(tok_s=400, answer=lambda said: Script(text=f"{said} " * 40)), Options())
    )

    async def all_of_them() -> list[Any]:
        return await asyncio.gather(*(answered(generate, f"w{i}") for i in range(8)))

    assert [set(made["text"].split()) for made in asyncio.run(all_of_them())] == [{f"w{i}"} for i in range(8)]


def test_a_program_over_http(engine: FakeEngine, launch_page: Callable[..., str]) -> None:
    """The endpoint is the only one, takes only what it should, and frees the engine when its caller has gone."""
    import httpx
    from gradio_client import Client
    from gradio_client.exceptions import AppError

    url = launch_page(engine)
    call = Client(url, verbose=False)
    assert call.predict("hello", 30, 0.5, 3, "ngram", 11, api_name="/generate") == ask(FakeEngine(), "hello", 30, 0.5, 3, "ngram", 11)  # fmt: skip
    with pytest.raises(AppError, match="prompt is empty"):
        call.predict("", api_name="/generate")
    offered = call.view_api(return_format="dict", print_info=False)
    assert list(offered["named_endpoints"]) == ["/generate"] and not offered["unnamed_endpoints"]
    upload = httpx.post(f"{url}gradio_api/upload", files={"files": ("big.bin", b"x" * 100_000)})
    assert upload.status_code == 413

    engine.hold_after = 5
    job = call.submit("hello", api_name="/generate")
    until(lambda: len(engine.asked) == 2)
    job.cancel()
    until(lambda: engine.asked[1].stream.cancelled)
    everything = ["hello", 64, 0, 4, "ngram", None, 1, 0, 0, 1, 0, 0, None, "rejection"]
    joined = httpx.post(f"{url}gradio_api/call/generate", json={"data": everything}).json()
    with httpx.stream("GET", f"{url}gradio_api/call/generate/{joined['event_id']}", timeout=60) as events:
        until(lambda: len(engine.asked) == 3)
        next(events.iter_bytes())
    until(lambda: engine.asked[2].stream.cancelled)
    call.close()
