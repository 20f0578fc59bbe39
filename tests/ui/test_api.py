"""The endpoint for programs, called over HTTP as a program would."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from engine.config import Rule, SamplingParams
from tests.fake_engine import DEFAULT_TEXT, FakeEngine, Script
from ui.controls import Options

WAIT_S = 60
OFF = ("hi", 5, 0, None, "auto", None)
"""What comes before the filters, the penalties, the stop strings and the rule."""


@pytest.fixture
def call(engine: FakeEngine, launch_page: Callable[..., str]) -> Iterator[Any]:
    from gradio_client import Client

    client = Client(launch_page(engine), verbose=False)
    yield client
    client.close()


def test_a_reply_as_json(call: Any, engine: FakeEngine) -> None:
    made = call.predict("hello", 30, 0.5, 3, "ngram", 11, api_name="/generate")
    assert made["text"] == "".join(token["text"] for token in made["tokens"]) and DEFAULT_TEXT.startswith(made["text"])
    assert len(made["tokens"]) == 30
    assert {token["source"] for token in made["tokens"]} == {"draft", "recovered", "bonus", "plain"}
    assert all(set(token) == {"text", "id", "source"} for token in made["tokens"])
    assert set(made["stats"]) == {
        "spec_tok_s", "plain_tok_s", "speedup", "alpha", "acceptance_length", "mean_k", "drafted", "accepted", "ttft_s", "finish_reason",
    }  # fmt: skip
    assert made["stats"]["finish_reason"] == "length"
    assert made["engine"] == {
        "target": "FakeLM-1M", "weights": "GGUF Q4_1", "kernel": "test kernel", "device": "cpu", "exact": True, "note": "",
    }  # fmt: skip
    params = engine.asked[0].params
    assert (params.num_speculative_tokens, params.sampling.temperature, params.sampling.seed) == (3, 0.5, 11)
    assert params.max_new_tokens == 30 and params.drafter == "ngram"


def test_filters_penalties_stop_strings_and_the_rule_reach_the_engine(call: Any, engine: FakeEngine) -> None:
    call.predict(*OFF, 0.9, 40, 0.05, 1.1, 0.5, -0.5, ["END", "\n\n"], "shared_noise", api_name="/generate")
    call.predict("hello", api_name="/generate")
    params, usual = (asked.params for asked in engine.asked)
    assert params.sampling == SamplingParams(
        top_p=0.9, top_k=40, min_p=0.05, repetition_penalty=1.1, frequency_penalty=0.5, presence_penalty=-0.5
    )
    assert (params.stop, params.rule) == (("END", "\n\n"), Rule.SHARED_NOISE)
    assert (usual.sampling, usual.stop, usual.rule) == (SamplingParams(), (), Rule.REJECTION), "off unless asked for"


def test_rejected_drafts_say_what_they_would_have_followed(call: Any) -> None:
    made = call.predict("hello", api_name="/generate")
    sources = [token["source"] for token in made["tokens"]]
    assert made["rejected"]
    for rejected in made["rejected"]:
        assert set(rejected) == {"text", "id", "after_index"}
        assert sources[rejected["after_index"] + 1] == "recovered"


def test_only_the_prompt_is_needed(call: Any) -> None:
    made = call.predict("hello", api_name="/generate")
    assert made["stats"]["finish_reason"] == "stop"
    assert made["stats"]["accepted"] <= made["stats"]["drafted"]


def test_only_the_prompt_is_needed_where_replies_must_be_short(launch_page: Callable[..., str]) -> None:
    from gradio_client import Client

    client = Client(launch_page(FakeEngine(), Options(max_new_tokens=5)), verbose=False)
    assert len(client.predict("hello", api_name="/generate")["tokens"]) == 5
    client.close()


def test_nothing_can_be_uploaded(launch_page: Callable[..., str]) -> None:
    import httpx

    url = launch_page(FakeEngine())
    answer = httpx.post(f"{url}gradio_api/upload", files={"files": ("big.bin", b"x" * 100_000)})
    assert answer.status_code == 413


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("",), "prompt is empty"),
        (("hi", 0), "max_new_tokens must be between"),
        (("hi", 5, -1), "temperature must be between 0 and 5"),
        (("hi", 5, 0, 99), "num_speculative_tokens must be between 0 and 16"),
        (("hi", 5, 0, "many"), "num_speculative_tokens must be auto or a whole number between 0 and 16, not 'many'"),
        (("hi", 5, 0, True), "must be auto or a whole number"),
        (("hi", 5, 0, 2.5), "must be auto or a whole number"),
        (("hi", 5, 0, 4, "magic"), "drafter must be one of"),
        (("hi", "many"), "must be a whole number"),
        ((*OFF, 0), "top_p must be above 0"),
        ((*OFF, 1, -3), "top_k must be between 0 and"),
        ((*OFF, 1, 0, 2), "min_p must be between 0 and 1"),
        ((*OFF, 1, 0, 0, 0), "repetition_penalty must be between 0.1 and 10"),
        ((*OFF, 1, 0, 0, 1, 3), "frequency_penalty must be between -2 and 2"),
        ((*OFF, 1, 0, 0, 1, 0, "x"), "presence_penalty must be a number between -2 and 2"),
        ((*OFF, 1, 0, 0, 1, 0, 0, "END"), "stop must be a list of strings, not 'END'"),
        ((*OFF, 1, 0, 0, 1, 0, 0, [""]), "stop takes at most 16 strings of 1 to 200 characters"),
        ((*OFF, 1, 0, 0, 1, 0, 0, [], "magic"), "rule must be one of rejection, shared_noise, not 'magic'"),
        (("word " * 9000,), "shorten the message"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(
    call: Any, engine: FakeEngine, arguments: tuple[Any, ...], words: str
) -> None:
    from gradio_client.exceptions import AppError

    with pytest.raises(AppError, match=words):
        call.predict(*arguments, api_name="/generate")
    assert not engine.asked


def test_a_reply_that_fails_is_an_error(call: Any, engine: FakeEngine) -> None:
    from gradio_client.exceptions import AppError

    from engine.events import FinishReason

    engine.answer = lambda _: Script(reason=FinishReason.ERROR, message="The logits were not numbers.")
    with pytest.raises(AppError, match="not numbers"):
        call.predict("hello", api_name="/generate")


def test_no_other_endpoint_is_open(call: Any) -> None:
    offered = call.view_api(return_format="dict", print_info=False)
    assert list(offered["named_endpoints"]) == ["/generate"] and not offered["unnamed_endpoints"]
    from gradio_client.exceptions import AppError

    for name in ("/on_sync", "/on_stop", "/on_send"):
        with pytest.raises((ValueError, AppError)):
            call.predict("x", api_name=name)


def test_many_at_once_are_not_mixed(call: Any, engine: FakeEngine) -> None:
    engine.tok_s = 400
    engine.answer = lambda message: Script(text=f"{message} " * 40)
    names = [f"w{i}" for i in range(8)]
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda name: call.predict(name, api_name="/generate"), names))
    assert [set(one["text"].split()) for one in made] == [{name} for name in names]


def test_a_caller_that_cancels_frees_the_engine(call: Any, engine: FakeEngine) -> None:
    engine.hold_after = 5
    job = call.submit("hello", api_name="/generate")
    _until(lambda: bool(engine.asked))
    job.cancel()
    assert engine.asked[0].stream._stop.wait(WAIT_S)


def test_a_caller_that_vanishes_frees_the_engine(engine: FakeEngine, launch_page: Callable[..., str]) -> None:
    import httpx

    engine.hold_after = 5
    url = launch_page(engine)
    everything = ["hello", 64, 0, 4, "ngram", None, 1, 0, 0, 1, 0, 0, None, "rejection"]
    joined = httpx.post(f"{url}gradio_api/call/generate", json={"data": everything}).json()
    with httpx.stream("GET", f"{url}gradio_api/call/generate/{joined['event_id']}", timeout=WAIT_S) as events:
        _until(lambda: bool(engine.asked))
        next(events.iter_bytes())
    assert engine.asked[0].stream._stop.wait(WAIT_S)


def test_the_command_lines_defaults_are_the_apis(engine: FakeEngine, launch_page: Callable[..., str]) -> None:
    from gradio_client import Client

    client = Client(launch_page(engine, Options(k=2, drafter="none")), verbose=False)
    client.predict("hello", api_name="/generate")
    assert (engine.asked[0].params.num_speculative_tokens, engine.asked[0].params.drafter) == (2, "none")


def test_k_and_drafter_are_automatic_unless_asked_for(call: Any, engine: FakeEngine) -> None:
    for arguments in (("hello",), ("hello", 5, 0, "auto", "auto"), ("hello", 5, 0, None), ("hello", 5, 0, 0)):
        call.predict(*arguments, api_name="/generate")
    assert [asked.params.num_speculative_tokens for asked in engine.asked] == [None, None, None, 0]
    assert {asked.params.drafter for asked in engine.asked} == {"auto"}


def test_a_model_given_on_the_command_line_is_what_automatic_takes(launch_page: Callable[..., str]) -> None:
    from gradio_client import Client

    engine = FakeEngine(drafters=("none", "ngram", "draft_model"))
    client = Client(launch_page(engine, Options(drafter="some/model")), verbose=False)
    client.predict("hello", api_name="/generate")
    assert engine.asked[0].params.drafter == "auto"
    client.close()


def _until(true: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(WAIT_S * 50):
        if true():
            return
        pause.wait(0.02)
    raise AssertionError("it never happened")
