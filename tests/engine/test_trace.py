"""A kept reply reads back as it was, up to six digits; whatever else may come back is refused with a sentence."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import MAX_K, DecodingParams, Detail, Rule, SamplingParams
from engine.drafters.draft_model import DraftModelDrafter
from engine.errors import TraceError
from engine.events import (
    Choice,
    Event,
    Finished,
    FinishReason,
    KReason,
    Outcome,
    Prefilled,
    Prefilling,
    RecoveryDetail,
    Round,
    RoundKind,
    Source,
    Token,
    TokenDecision,
    TokenDetail,
)
from engine.networks.kv_cache import KVCache
from engine.networks.model import Model
from engine.stats import Tally
from engine.stopping import cut_at_stop_strings, cut_round
from engine.trace import reply as trace
from engine.trace import untrusted
from tests.fake_engine import Script, play, tokens_of
from tests.fakes import FakeNetwork, Scripted, byte_tokenizer, noisy, run

DIGITS = 5.1e-6
"""How far six digits may be from a number, relative to it."""


def same(found: object, expected: object) -> bool:
    """Equal, with floats up to six digits."""
    if isinstance(expected, float):
        return isinstance(found, float) and math.isclose(found, expected, rel_tol=DIGITS)
    if isinstance(expected, tuple):
        return isinstance(found, tuple) and len(found) == len(expected) and all(map(same, found, expected))
    if is_dataclass(expected):
        pairs = [(getattr(found, f.name, None), getattr(expected, f.name)) for f in fields(expected)]
        return type(found) is type(expected) and all(same(a, b) for a, b in pairs)
    return type(found) is type(expected) and found == expected


def carried(events: Sequence[Event]) -> list[Any]:
    """The rows as they come back from elsewhere."""
    back = json.loads(json.dumps(trace.rows(events), allow_nan=False))
    assert isinstance(back, list)
    return back


def check_kept(events: Sequence[Event]) -> None:
    rows = carried(events)
    found = trace.events(rows)
    assert same(found, tuple(events))
    assert carried(found) == rows, "rounding twice changes nothing"


# -- any reply that the engine can tell

PROBS = st.floats(0, 1)
SECONDS = st.floats(0, 1e5)
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=6)
IDS = st.integers(0, untrusted.MAX_ID)
TOPS = st.lists(st.builds(Choice, IDS, TEXTS, PROBS), max_size=5).map(tuple)
DETAILS = st.builds(TokenDetail, st.none() | PROBS, PROBS, TOPS, TOPS)


@st.composite
def rounds(draw: st.DrawFn, index: int, prompt_tokens: int, begin: int) -> Round:
    """Any round that follows `begin` tokens of the reply."""
    k = draw(st.integers(0, 4))
    accepted = draw(st.integers(0, k))
    ends = draw(st.booleans())  # a stop cut off what follows the accepted ones
    decisions, tokens = [], []
    for i in range(k):
        tested = i < accepted or (i == accepted and not ends)
        outcome = Outcome.DISCARDED if not tested else Outcome.ACCEPTED if i < accepted else Outcome.REJECTED
        numbers = (draw(PROBS), draw(PROBS), draw(st.none() | PROBS)) if tested else (None, None, None)
        detail = draw(st.none() | DETAILS) if tested else None
        decision = TokenDecision(draw(IDS), draw(TEXTS), begin + i, outcome, draw(PROBS), *numbers, draw(TEXTS), detail)
        decisions.append(decision)
        if i < accepted:
            raw_prob = None if detail is None else detail.raw_target_prob
            text, special = draw(st.just((decision.text, decision.special)) | st.tuples(TEXTS, TEXTS))
            tokens.append(Token(decision.id, text, begin + i, Source.DRAFT, special, raw_prob))
    if not ends:
        source = Source.PLAIN if k == 0 else Source.BONUS if accepted == k else Source.RECOVERED
        tokens.append(Token(draw(IDS), draw(TEXTS), begin + accepted, source, draw(TEXTS), draw(st.none() | PROBS)))
    recovery = draw(st.none() | st.builds(RecoveryDetail, TOPS, st.none() | PROBS, TOPS))
    times = draw(st.tuples(*[SECONDS] * 5))
    return Round(
        index, draw(st.sampled_from(RoundKind)), draw(st.sampled_from(Rule)),
        draw(st.sampled_from(["none", "ngram", "head", "draft_model"])), draw(st.integers(0, MAX_K)),
        draw(st.sampled_from(KReason)), k, prompt_tokens + begin, tuple(decisions), tuple(tokens), *times,
        recovery=recovery, predicted_speedup=draw(st.none() | st.floats(0, 100)),
    )  # fmt: skip


@st.composite
def replies(draw: st.DrawFn) -> tuple[Event, ...]:
    """Any reply, finished or broken off."""
    prompt_tokens = draw(st.integers(0, 10_000))
    reading = draw(st.lists(st.integers(0, 10_000), max_size=2))
    told: list[Event] = [Prefilling(done, prompt_tokens) for done in reading]
    tokens: list[Token] = []
    if draw(st.integers(0, 5)):
        first = draw(st.none() | st.builds(Token, IDS, TEXTS, st.just(0), st.just(Source.PLAIN), TEXTS, PROBS))
        seed = draw(st.integers(0, 2**63 - 1))
        told.append(Prefilled(prompt_tokens, draw(st.integers(0, 10_000)), first, seed, draw(SECONDS), draw(SECONDS)))
        tokens += () if first is None else (first,)
        index = draw(st.integers(0, 1000))
        for i in range(draw(st.integers(0, 5))):
            round_ = draw(rounds(index + i, prompt_tokens, len(tokens)))
            told.append(round_)
            tokens += round_.tokens
    if draw(st.booleans()):
        told = _cut(told, draw(st.integers(0, len(tokens))))
        tokens = [token for event in told for token in tokens_of(event)]
    if draw(st.booleans()):
        text, ids = "".join(token.text for token in tokens), tuple(token.id for token in tokens)
        told.append(Finished(draw(st.sampled_from(FinishReason)), text, ids, draw(TEXTS)))
    return tuple(told)


def _cut(events: Sequence[Event], end: int) -> list[Event]:
    """Without the tokens from position `end` on; the rounds that they were in stay."""
    told: list[Event] = []
    for event in events:
        if isinstance(event, Round):
            told.append(cut_round(event, end))
        else:
            told.append(replace(event, token=None) if isinstance(event, Prefilled) and end == 0 else event)
    return told


@given(replies())
@settings(max_examples=60)
def test_every_reply_reads_back_as_it_was_and_so_do_its_figures(events: tuple[Event, ...]) -> None:
    check_kept(events)
    tally, expected = Tally(), Tally()
    for back, event in zip(trace.events(carried(events)), events, strict=True):
        tally, expected = tally.add(back), expected.add(event)
        assert same(tally, expected)
        alone = replace(event, text="", token_ids=()) if isinstance(event, Finished) else event
        assert same(trace.event(trace.row(event)), alone), "only the end's text is in the rows before it"


@given(replies())
@settings(max_examples=30)
def test_without_top_lists_all_the_rest_reads_back(events: tuple[Event, ...]) -> None:
    lean = json.loads(json.dumps(trace.rows(events, tops=False), allow_nan=False))
    assert same(trace.events(lean), tuple(map(without_tops, events)))
    assert lean == [trace.row(event, tops=False) for event in events]
    assert trace.rows(events, tops=True) == trace.rows(events)


def without_tops(event: Event) -> Event:
    if not isinstance(event, Round):
        return event
    decisions = [
        decision if decision.detail is None
        else replace(decision, detail=replace(decision.detail, draft_top=(), target_top=()))
        for decision in event.decisions
    ]  # fmt: skip
    recovery = event.recovery and replace(event.recovery, top=(), raw_top=())
    return replace(event, decisions=tuple(decisions), recovery=recovery)


TEXT = "The sky is blue; 天空是蓝色的。 👨‍👩‍👧 and so it goes, and so it ends."


def test_a_reply_of_the_loop_is_kept_wherever_it_was_cut() -> None:
    """Characters in several tokens, control tokens, stop strings in the midst of a block; or in the midst of it all."""
    said = Scripted(TEXT.encode(), 3)
    cases = zip(("blue", "天空", "👩", "T", "so it e", "never"), cycle(Detail), cycle(Rule), cycle((0.0, 4.0)))
    for stop, level, rule, amount in cases:
        drafter = DraftModelDrafter(Model(FakeNetwork(257, noisy(said, 257, amount)), 4096), KVCache())
        params = DecodingParams(SamplingParams(seed=5), "any", 5, rule, 500, (stop,), detail=level)
        events = run([1, 2, 3], params, Model(FakeNetwork(257, said), 4096), byte_tokenizer(), drafter)
        check_kept(events)
        check_kept(events[: len(events) // 2])
        check_kept(play(Script(), DecodingParams(detail=level)))


@given(
    st.lists(st.text("ab中", min_size=1, max_size=5), min_size=1, max_size=12),
    st.text("ab中", min_size=1, max_size=4),
    st.integers(0, 8),
    st.sampled_from(Detail),
)
def test_a_reply_whose_last_token_was_cut_is_kept(pieces: list[str], stop: str, k: int, level: Detail) -> None:
    played = play(Script(pieces=pieces), DecodingParams(num_speculative_tokens=k, detail=level))
    check_kept(list(cut_at_stop_strings(iter(played), (stop,))))


# -- anything else that may come back

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
KEYS = st.sampled_from(["v", "e", "n", "k", "why", "ctx", "s", "at", "d", "ok", "last", "tok", "seed", "rec", "x"])
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=6) | st.dictionaries(KEYS, inner, max_size=6), max_leaves=12
)
EXAMPLE = carried(play(Script("one two three four five six seven"), DecodingParams(detail=Detail.FULL)))


def places(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value in a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, each in inner for place in places(each, (*path, key)))]


def changed(value: Any, path: tuple[Any, ...], new: object) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


def refused(rows: object) -> bool:
    """Whether it is; if not, what was read is a reply that can be kept again and sent on."""
    try:
        found = trace.events(rows)
    except TraceError as error:
        why = str(error)
    else:
        assert same(trace.events(carried(found)), found)
        json.dumps(trace.rows(found), ensure_ascii=False).encode()
        return False
    assert why.startswith("This saved reply cannot be read (") and why.endswith(".")
    return True


@given(JSON | st.lists(st.builds(lambda row: {"v": 1} | row, st.dictionaries(KEYS, JSON, max_size=8)), max_size=4))
@settings(max_examples=100)
def test_any_json_is_read_or_refused(value: object) -> None:
    refused(value)


@given(st.sampled_from(places(EXAMPLE)), JSON)
@settings(max_examples=100)
def test_a_reply_with_one_value_changed_is_read_or_refused(path: tuple[Any, ...], new: object) -> None:
    refused(changed(EXAMPLE, path, new))


@given(st.sampled_from(places(EXAMPLE)), st.sampled_from([-1, 10**30, math.nan, math.inf, "\ud800", [[]], {"x": 1}]))
@settings(max_examples=100)
def test_what_no_reply_can_hold_is_refused(path: tuple[Any, ...], new: object) -> None:
    assert refused(changed(EXAMPLE, path, new))


@given(st.sampled_from([path for path in places(EXAMPLE) if path]))
def test_a_missing_or_unknown_entry_is_refused(path: tuple[Any, ...]) -> None:
    value = EXAMPLE
    for key in path:
        value = value[key]
    if isinstance(value, dict):
        assert refused(changed(EXAMPLE, path, value | {"unknown": 1}))
    if isinstance(value, list):
        assert refused(changed(EXAMPLE, path, [*value, None]))


def without(at: int) -> list[Any]:
    return [row for i, row in enumerate(EXAMPLE) if i != at]


OUT_OF_ORDER = (
    None,
    {"rows": EXAMPLE},
    without(0),
    without(2),
    [*EXAMPLE, EXAMPLE[-1]],
    [*EXAMPLE[:-1], EXAMPLE[1]],
    [EXAMPLE[0], *EXAMPLE],
    [EXAMPLE[0], EXAMPLE[2], EXAMPLE[1]],
    [EXAMPLE[-1], *EXAMPLE],
    changed(EXAMPLE, (0, "v"), trace.VERSION + 1),
    changed(EXAMPLE, (0, "tok", 1), "x" * (untrusted.MAX_TEXT + 1)),
    changed(EXAMPLE, (0, "seed"), str(2**63)),
    changed(EXAMPLE, (0, "seed"), "²"),
    changed(EXAMPLE, (0, "tokens"), EXAMPLE[0]["tokens"] + 1),
)


def test_what_is_out_of_order_or_bounds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [i for i, rows in enumerate(OUT_OF_ORDER) if not refused(rows)] == []
    assert refused(trace.rows([Prefilled(5, 0, None, 1, 1.0)]) * 2), "a prompt is read once"
    assert not refused(EXAMPLE)
    monkeypatch.setattr(trace, "MAX_ROWS", len(EXAMPLE) - 1)
    assert refused(EXAMPLE)


def test_what_is_read_is_what_was_written_not_what_it_resembles() -> None:
    """Whole numbers for what is whole, and a seed that JavaScript cannot round."""
    [prompt] = trace.rows([Prefilled(5, 0, None, 2**63 - 1, 1.0)])
    assert prompt == {"v": 1, "e": "prompt", "tokens": 5, "cached": 0, "seed": "9223372036854775807", "s": [1, 0]}
    assert isinstance(trace.event(prompt), Prefilled) and trace.event(prompt) == Prefilled(5, 0, None, 2**63 - 1, 1.0)
    assert not refused([]) and trace.events([]) == ()
