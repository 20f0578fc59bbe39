"""The whole thing: the default model, the engine, the page, a real browser. What a first visitor does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from engine.config import DecodingParams, EngineConfig, Message, Rule, SamplingParams
from engine.events import Finished, FinishReason, Outcome, Round
from engine.serving.engine import Engine, State
from tests.ui.page.conftest import Visit
from ui.controls import Options

pytestmark = [pytest.mark.model, pytest.mark.browser]

PROMPT = "Write a Python class for a bank account with deposit, withdraw and balance methods."


@pytest.fixture(scope="module")
def real_engine() -> Iterator[Engine]:
    engine = Engine(EngineConfig(offline=True, threads=1))  # the browser beside it needs a processor, too
    status = engine.wait_ready(600)
    assert status.state is State.READY, status.message
    yield engine
    engine.close()


def test_a_first_visit(real_engine: Engine, launch_page: Callable[..., str], visit: Callable[..., Visit]) -> None:
    page = visit(launch_page(real_engine))
    page.page.set_default_timeout(600_000)  # a real model on a busy machine; it must come, not come soon
    assert "SmolLM2-135M-Instruct" in page.page.inner_text("body")
    page.send(PROMPT)
    page.wait_turns(1)
    assert "def" in page.reply()
    assert page.texts(".turn .t.draft"), "no green token"
    assert page.texts(".turn .t.rejected"), "no red token"
    assert float(page.page.inner_text("[data-figure=plain]")) > 0
    assert float(page.page.inner_text("[data-figure=spec]")) > 0
    assert page.page.inner_text("[data-figure=speedup]").endswith("×")
    page.send("Write a very long story about a lighthouse.")
    page.page.wait_for_selector(".turn[data-phase=running] .t")
    page.page.click("#gl-stop")
    page.page.wait_for_selector("#gl-send:visible")
    stopped = page.reply()
    page.send("What is the capital of Germany?")
    page.page.wait_for_selector(".turn:nth-of-type(3)[data-phase=finished], .turn:nth-child(3)[data-phase=finished]")
    assert page.reply(1) == stopped, "what was written before the stop is kept"
    assert "Berlin" in page.reply()
    assert not page.outside, "the page asks nobody else"


def test_what_can_be_done_with_a_reply(
    real_engine: Engine, launch_page: Callable[..., str], visit: Callable[..., Visit]
) -> None:
    page = visit(launch_page(real_engine, Options(max_new_tokens=96)))
    page.page.set_default_timeout(600_000)
    page.send(PROMPT)
    page.wait_turns(1)
    written = page.reply()
    page.page.hover(".turn .t.rejected >> nth=0")
    page.page.wait_for_selector(".token-card", state="visible")
    card = page.page.inner_text(".token-card")
    assert "rejected" in card and "target" in card and any(digit in card for digit in "0123456789")
    assert "bit-exact" in page.page.inner_text(".turn .foot") and "tokens/s" in page.page.inner_text(".turn .foot")
    page.page.click("[data-switch=colours]")
    page.page.wait_for_selector(".turn [data-part=prose] pre", state="visible")
    assert "def" in page.page.inner_text(".turn [data-part=prose]")
    page.page.click("[data-switch=colours]")
    page.page.click(".charts > summary")
    page.page.locator("[data-chart=speed]").scroll_into_view_if_needed()
    page.page.wait_for_selector("[data-chart=speed] .main-svg")
    page.page.click(".turn [data-action=again]")
    page.page.wait_for_selector(".turn[data-key='2'][data-phase=finished]")
    assert page.reply() == written, "greedy: the same words"
    page.page.wait_for_selector(".chat [aria-current=true]")
    page.page.reload()
    page.wait_turns(1)
    assert page.reply() == written
    assert not page.outside


def test_the_real_tokeniser_and_model_agree_on_the_ends(real_engine: Engine) -> None:
    events = list(real_engine.stream([Message("user", "What is the capital of Germany?")], DecodingParams()))
    end = events[-1]
    assert isinstance(end, Finished)
    assert end.reason is FinishReason.STOP and "Berlin" in end.text
    last = next(event for event in reversed(events) if isinstance(event, Round)).tokens[-1]
    assert (last.special, last.text) == ("<|im_end|>", "")


def test_shared_noise_writes_the_same_words_for_any_k(real_engine: Engine) -> None:
    replies = set()
    for k in (0, 3):
        params = DecodingParams(
            SamplingParams(temperature=1.0, top_p=0.9, seed=5), "ngram", k, Rule.SHARED_NOISE, max_new_tokens=24
        )
        end = list(real_engine.stream([Message("user", "Say hello, hello, hello to my dog.")], params))[-1]
        assert isinstance(end, Finished)
        replies.add(end.text)
    assert len(replies) == 1


def test_a_drafter_that_copies_is_accepted_where_the_text_repeats(real_engine: Engine) -> None:
    params = DecodingParams(max_new_tokens=120)
    events = list(real_engine.stream([Message("user", PROMPT)], params))
    outcomes = [d.outcome for event in events if isinstance(event, Round) for d in event.decisions]
    assert Outcome.ACCEPTED in outcomes and Outcome.REJECTED in outcomes
