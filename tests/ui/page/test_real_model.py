"""The whole thing: the default model, the engine, the page, a real browser. What a first visitor does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.config import DecodingParams, Message, Rule, SamplingParams
from engine.events import Finished, FinishReason, Outcome, Round
from engine.serving.engine import Engine
from tests.ui.page.conftest import Visit
from ui.controls import Options

pytestmark = pytest.mark.model

PROMPT = "Write a Python class for a bank account with deposit, withdraw and balance methods."


@pytest.mark.browser
def test_a_first_visit(real_engine: Engine, launch_page: Callable[..., str], visit: Callable[..., Visit]) -> None:
    page = visit(launch_page(real_engine, Options(max_new_tokens=160)))
    page.page.set_default_timeout(600_000)  # a real model on a busy machine; it must come, not come soon
    page.page.wait_for_selector("body:has-text('SmolLM2-135M-Instruct')")
    page.send(PROMPT)
    page.wait_turns(1)
    written = page.reply()
    assert "def" in written
    assert page.texts(".turn .t.draft"), "no green token"
    assert page.texts(".turn .t.rejected"), "no red token"
    foot = page.page.inner_text(".turn .foot")
    assert "bit-exact" in foot and "tokens/s" in foot
    assert float(page.page.inner_text("[data-figure=plain]")) > 0
    assert float(page.page.inner_text("[data-figure=spec]")) > 0
    assert page.page.inner_text("[data-figure=speedup]").endswith("×")
    page.page.hover(".turn .t.rejected >> nth=0")
    page.page.wait_for_selector(".token-card", state="visible")
    card = page.page.inner_text(".token-card")
    assert "rejected" in card and "target" in card and any(digit in card for digit in "0123456789")
    page.page.click("[data-switch=colours]")
    page.page.wait_for_selector(".turn [data-part=prose] pre:has-text('def')", state="visible")
    page.page.click("[data-switch=colours]")
    page.page.click(".charts > summary")
    page.page.locator("[data-chart=speed]").scroll_into_view_if_needed()
    page.page.wait_for_selector("[data-chart=speed] .main-svg")
    page.page.click(".turn [data-action=again]")
    page.page.wait_for_selector(".turn[data-key='2'][data-phase=finished]")
    assert page.reply() == written, "greedy: the same words"

    page.send("Write a very long story about a lighthouse.")
    page.page.wait_for_selector(".turn[data-phase=running] .t")
    page.page.click("#gl-stop")
    page.wait_turns(2)
    page.page.wait_for_selector("#gl-send:visible")
    stopped = page.reply()
    page.send("What is the capital of Germany?")
    page.wait_turns(3)
    assert page.reply(1) == stopped, "what was written before the stop is kept"
    assert "Berlin" in page.reply()
    page.page.wait_for_selector(".chat [aria-current=true]")
    page.page.reload()
    page.wait_turns(3)
    assert page.reply(0) == written and page.reply(1) == stopped
    assert not page.outside, "the page asks nobody else"


def test_the_real_engine_behind_the_page(real_engine: Engine) -> None:
    events = list(real_engine.stream([Message("user", "What is the capital of Germany?")], DecodingParams()))
    end = events[-1]
    assert isinstance(end, Finished) and end.reason is FinishReason.STOP and "Berlin" in end.text
    last = next(event for event in reversed(events) if isinstance(event, Round)).tokens[-1]
    assert (last.special, last.text) == ("<|im_end|>", "")
    events = list(real_engine.stream([Message("user", PROMPT)], DecodingParams(max_new_tokens=120)))
    outcomes = [d.outcome for event in events if isinstance(event, Round) for d in event.decisions]
    assert Outcome.ACCEPTED in outcomes and Outcome.REJECTED in outcomes
    sampling = SamplingParams(temperature=1.0, top_p=0.9, seed=5)
    replies = set()
    for k in (0, 3):
        params = DecodingParams(sampling, "ngram", k, Rule.SHARED_NOISE, max_new_tokens=24)
        end = list(real_engine.stream([Message("user", "Say hello, hello, hello to my dog.")], params))[-1]
        assert isinstance(end, Finished)
        replies.add(end.text)
    assert len(replies) == 1, "shared noise writes the same words for any K"
