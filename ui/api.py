"""The endpoint for programs, `/generate`: one prompt in, one JSON object out. The same engine, queue and checks as the
page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import gradio as gr

from engine import (
    DecodingParams,
    EngineError,
    Event,
    Facts,
    Finished,
    FinishReason,
    InvalidParams,
    Message,
    Outcome,
    Prefilled,
    Round,
    Rule,
    SamplingParams,
    Stream,
    Tally,
    Token,
    format_k,
    parse_k,
)
from ui.chat.handlers import Handlers
from ui.controls import SAMPLING, USUAL, default_drafter, readable
from ui.jobs import GLANCE_S, HEARTBEAT_S
from ui.sessions import Live

USUAL_TOKENS = 256
"""Of an answer where the caller does not say; less than on the page, since a program waits for the whole."""

TOLD = ("target", "weights", "kernel", "device", "exact", "note")
"""What an answer says of the engine (see `Facts`)."""


@dataclass(frozen=True, slots=True)
class Record:
    """A reply as a program wants it: every token, every rejected draft with its place, and what computed them."""

    facts: Facts | None = None
    tokens: tuple[dict[str, Any], ...] = ()
    rejected: tuple[dict[str, Any], ...] = ()
    tally: Tally = field(default_factory=Tally)
    finished: Finished | None = None

    def add(self, event: Event) -> Record:
        record = replace(self, tally=self.tally.add(event))
        if isinstance(event, Prefilled) and event.token is not None:
            return replace(record, tokens=(*self.tokens, _token(event.token)))
        if isinstance(event, Round):
            tokens = tuple(_token(token) for token in event.tokens)
            return replace(record, tokens=self.tokens + tokens, rejected=self.rejected + _rejected(event))
        return replace(record, finished=event) if isinstance(event, Finished) else record

    def json(self) -> dict[str, Any]:
        summary = self.tally.summary()
        return {
            "text": self.finished.text if self.finished else "".join(token["text"] for token in self.tokens),
            "tokens": list(self.tokens),
            "rejected": list(self.rejected),
            "stats": {
                "spec_tok_s": summary.spec_tok_s,
                "plain_tok_s": summary.baseline.tok_s,
                "speedup": summary.speedup,
                "alpha": summary.alpha,
                "acceptance_length": summary.acceptance_length,
                "mean_k": summary.mean_k,
                "drafted": summary.drafted,
                "accepted": summary.accepted,
                "ttft_s": summary.ttft_s,
                "finish_reason": self.finished.reason.value if self.finished else None,
            },
            "engine": {name: getattr(self.facts, name, None) for name in TOLD},
        }


def _token(token: Token) -> dict[str, Any]:
    return {"text": token.text, "id": token.id, "source": token.source.value}


def _rejected(round_: Round) -> tuple[dict[str, Any], ...]:
    """after_index: the index in `tokens` that the draft would have followed (-1 before the first)."""
    return tuple(
        {"text": decision.text, "id": decision.id, "after_index": decision.position - 1}
        for decision in round_.decisions
        if decision.outcome is Outcome.REJECTED
    )


def make_generate(handlers: Handlers) -> Callable[..., Any]:
    """The endpoint's function, bound to the engine. Its signature is what callers see."""

    longest = min(USUAL_TOKENS, handlers.options.max_new_tokens)

    async def generate(
        prompt: str,
        max_new_tokens: int = longest,
        temperature: float = SAMPLING.temperature,
        num_speculative_tokens: int | str | None = format_k(handlers.options.k),
        drafter: str = default_drafter(handlers.options.drafter),
        seed: int | None = SAMPLING.seed,
        top_p: float = SAMPLING.top_p,
        top_k: int = SAMPLING.top_k,
        min_p: float = SAMPLING.min_p,
        repetition_penalty: float = SAMPLING.repetition_penalty,
        frequency_penalty: float = SAMPLING.frequency_penalty,
        presence_penalty: float = SAMPLING.presence_penalty,
        stop: list[str] | None = None,
        rule: str = USUAL.rule.value,
    ) -> AsyncIterator[dict[str, Any]]:
        """One reply to one prompt, with the source of every token and the speeds. Seed: a whole number, or none."""
        live = Live()
        handlers.sessions.join(live)
        try:
            record = Record()
            sampling = SamplingParams(
                temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, repetition_penalty=repetition_penalty,
                frequency_penalty=frequency_penalty, presence_penalty=presence_penalty, seed=seed,
            )  # fmt: skip
            params = DecodingParams(
                sampling, drafter, parse_k(num_speculative_tokens), _rule(rule), max_new_tokens, _stop(stop)
            )
            async for _ in handlers.until_loaded(live):
                yield record.json()
            messages = _messages(prompt)
            stream = await handlers.ask(live, lambda: handlers.engine.stream(messages, params))
            async for record in _written(live, stream, Record(handlers.facts())):
                yield record.json()  # partial: lets Gradio notice that the caller has gone, and a program follow along
            if record.finished and record.finished.reason is FinishReason.ERROR:
                raise gr.Error(record.finished.message, print_exception=False)
        except EngineError as error:
            raise gr.Error(str(error), print_exception=False) from error
        finally:
            handlers.sessions.end("", live)

    return generate


def _rule(value: object) -> Rule:
    """Raises InvalidParams."""
    for rule in Rule:
        if rule == value:
            return rule
    raise InvalidParams("rule", f"rule must be one of {', '.join(Rule)}, not {value!r}.")


def _stop(value: object) -> tuple[str, ...]:
    """A list of strings; how many and how long is for the engine to say. Raises InvalidParams."""
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)):
        raise InvalidParams("stop", f"stop must be a list of strings, not {value!r}.")
    return tuple(value)


def _messages(prompt: str) -> tuple[Message, ...]:
    if not (written := readable(prompt)):
        raise InvalidParams("prompt", "prompt is empty: write something to answer.")
    return (Message("user", written),)


async def _written(live: Live, stream: Stream, record: Record) -> AsyncIterator[Record]:
    """The record, empty at first, about once a second and at the end."""
    last_update_s = asyncio.get_running_loop().time()
    while not stream.done:
        for event in stream.take(0):
            live.started = True
            record = record.add(event)
        now = asyncio.get_running_loop().time()
        if stream.done or now - last_update_s > HEARTBEAT_S:
            last_update_s = now
            yield record
        if not stream.done:
            await asyncio.sleep(GLANCE_S)
