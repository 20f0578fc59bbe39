"""Conversations as the browser keeps them: what comes back is what was written, or is refused; nothing else can
happen."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import DecodingParams, Detail, Rule, SamplingParams
from engine.events import Finished
from tests.fake_engine import DEFAULT_TEXT, Script, play
from ui.recording import saved
from ui.recording.saved import NotSaved, conversation
from ui.state import About, Conversation, Phase, begin, progress, undo

ID = "k73hGPRuHNFx-urrhDmt_apb"

samplings = st.builds(
    SamplingParams,
    temperature=st.floats(0, 5),
    top_k=st.integers(0, 1000),
    top_p=st.floats(0.01, 1),
    logit_bias=st.lists(st.tuples(st.integers(0, 10_000_000), st.floats(-100, 100)), max_size=3).map(tuple),
    seed=st.none() | st.integers(0, 2**63 - 1),
)
decodings = st.builds(
    DecodingParams,
    sampling=samplings,
    drafter=st.sampled_from(["ngram", "none", "both"]),
    num_speculative_tokens=st.none() | st.integers(0, 8),
    rule=st.sampled_from(Rule),
    max_new_tokens=st.integers(1, 60),
    stop=st.lists(st.text(min_size=1, max_size=5), max_size=2).map(tuple),
    probe_every=st.integers(0, 5),
    detail=st.sampled_from([Detail.OFF, Detail.PROBS]),
)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
abouts = st.builds(
    About, target=words, weights=words, kernel=words, device=words, exact=st.booleans(),
    context_len=st.integers(1, 2**31 - 1), drafters=st.lists(words, max_size=3).map(tuple), params=decodings, system=words,
)  # fmt: skip


@st.composite
def conversations(draw: st.DrawFn, level: Detail = Detail.OFF) -> Conversation:
    """Several turns, some written again in place of others, so that keys have gaps; the last one may be unfinished."""
    made = Conversation(ID)
    for _ in range(draw(st.integers(0, 4))):
        key, keep = made.next_key, draw(st.none() | st.integers(0, len(made.turns)))
        about = draw(st.none() | abouts)
        made = begin(made, draw(words), keep, about)
        script = Script(pieces=draw(st.lists(words, min_size=1, max_size=30)))
        params = replace(about.params if about else DecodingParams(drafter="ngram"), detail=level)
        made = progress(made, key, play(script, params))
    return made


def record(made: Conversation, **more: object) -> dict[str, Any]:
    """As the page makes it of what it was sent, and as it comes back: through JSON."""
    turns = [saved.turn_json(turn) for turn in made.turns]
    kept = {"greenlight_chat": saved.FORMAT, "id": made.id, "title": "t", "at": 1.7e12, "named": False, "turns": turns}
    return dict(json.loads(json.dumps(kept | more)))


def example(message: str = "hello") -> dict[str, Any]:
    params = DecodingParams(SamplingParams(seed=2**63 - 1, logit_bias=((5, 1.5),)), "ngram", stop=("\n\n",))
    about = About("FakeLM", "Q4_1", "test", "cpu", True, 8192, ("none", "ngram"), params, "be brief")
    made = begin(Conversation(ID), message, about=about)
    made = progress(made, 1, play(Script(), params))
    return record(progress(begin(made, "and now?", about=about), 2, play(Script(), params)))


@given(conversations())
@settings(max_examples=40, deadline=None)
def test_what_comes_back_is_what_was_kept(made: Conversation) -> None:
    again = conversation(record(made))
    assert again.turns == made.turns and again.id == made.id
    assert again.next_key == max((turn.key for turn in made.turns), default=0) + 1
    assert undo(again) == again  # what was before is not kept
    assert [saved.turn_json(turn) for turn in again.turns] == [saved.turn_json(turn) for turn in made.turns]


@given(conversations(Detail.PROBS))
@settings(max_examples=30, deadline=None)
def test_what_was_rounded_is_not_rounded_again(made: Conversation) -> None:
    once = conversation(record(made))
    assert record(once) == record(made) and conversation(record(once)).turns == once.turns
    assert [turn.reply.text for turn in once.turns] == [turn.reply.text for turn in made.turns]


@given(conversations())
@settings(max_examples=20, deadline=None)
def test_the_figures_come_back_too(made: Conversation) -> None:
    again = conversation(record(made))
    for turn, before in zip(again.turns, made.turns, strict=True):
        assert turn.reply.tally.summary() == before.reply.tally.summary()
    if made.next_key == len(made.turns) + 1:  # none was replaced
        assert again.tally == made.tally


def test_a_reply_that_was_broken_off_is_a_stopped_one() -> None:
    for length in (0, 1, 5):
        kept = example()
        kept["turns"][-1]["rows"] = kept["turns"][-1]["rows"][:length]
        (_, last) = conversation(kept).turns
        assert last.reply.phase is Phase.FINISHED and DEFAULT_TEXT.startswith(last.reply.text)
        assert isinstance(last.reply.blocks[-1].event, Finished)


@pytest.mark.parametrize(("done", "of"), [(0, 0), (5, 0), (9, 1)])
def test_a_prompt_that_was_read_in_odd_parts_is_no_reason_to_lose_the_chat(done: int, of: int) -> None:
    kept = example()
    kept["turns"][0]["rows"].insert(0, {"v": 1, "e": "reading", "done": done, "of": of})
    assert conversation(kept).turns[0].reply.text == DEFAULT_TEXT


def test_a_record_without_keys_is_numbered() -> None:
    kept = example()
    for turn in kept["turns"]:
        del turn["key"]
    assert [turn.key for turn in conversation(kept).turns] == [1, 2]


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)


def read_or_refused(value: object) -> None:
    """Any other error fails the test."""
    with suppress(NotSaved):
        assert isinstance(conversation(value), Conversation)


@given(JSON, JSON)
def test_any_json_is_read_or_refused(value: object, turns: object) -> None:
    read_or_refused(value)
    read_or_refused({"greenlight_chat": 1, "id": ID, "turns": turns})
    read_or_refused({"greenlight_chat": 1, "id": ID, "turns": [{"user": "a", "rows": [], "about": value}]})


def places(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    inner = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    return [path, *(place for key, part in inner for place in places(part, (*path, key)))]


def changed(value: Any, path: Sequence[Any], new: object) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


SMALL = record(progress(begin(Conversation(ID), "hi", about=conversation(example()).turns[0].about), 1,
                        play(Script(text="one two three four five six"), DecodingParams(drafter="ngram"))))  # fmt: skip


@given(st.sampled_from(places(SMALL)), JSON | st.sampled_from([1e400, -1, 10**400, "9" * 50, [[1, 2]], [["a", "b"]]]))
@settings(max_examples=300, deadline=None)
def test_one_value_changed_is_read_or_refused(path: tuple[Any, ...], new: object) -> None:
    read_or_refused(changed(SMALL, path, new))


@pytest.mark.parametrize(
    "more",
    [
        {"greenlight_chat": 2}, {"id": "short"}, {"id": "../../etc/passwd_and_more"}, {"turns": None}, {"turns": {}},
        {"turns": [5]}, {"turns": [{"user": "a"}]}, {"turns": [{"user": 5, "rows": []}]},
        {"turns": [{"user": "a" * (saved.MAX_TEXT + 1), "rows": []}]},
        {"turns": [{"user": "a", "rows": []}] * (saved.MAX_TURNS + 1)},
        {"turns": [{"user": "a", "rows": [], "key": 2}, {"user": "a", "rows": [], "key": 2}]},
        {"turns": [{"user": "a", "rows": [], "key": True}]}, {"turns": [{"user": "a", "rows": [], "key": 0}]},
        {"turns": [{"user": "a", "rows": [], "about": {}}]},
    ],
)  # fmt: skip
def test_what_was_not_saved_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(NotSaved):
        conversation(example() | more)


@pytest.mark.parametrize(
    ("path", "new"),
    [
        (("target",), 5), (("context_len",), 0), (("drafters",), "ngram"), (("params",), []), (("params", "rule"), "guess"),
        (("params", "stop"), "abc"), (("params", "sampling", "temperature"), 9), (("params", "sampling", "seed"), 5),
        (("params", "sampling", "logit_bias"), [[1e400, 0]]), (("params", "sampling", "surprise"), 1),
    ],
)  # fmt: skip
def test_settings_that_cannot_have_been_are_refused(path: tuple[str, ...], new: object) -> None:
    about = example()["turns"][0]["about"]
    saved.about(about)
    with pytest.raises(NotSaved):
        saved.about(_set(about, path, new))


def _set(value: dict[str, Any], path: Sequence[str], new: object) -> dict[str, Any]:
    return value | {path[0]: new if len(path) == 1 else _set(value[path[0]], path[1:], new)}


def test_half_a_surrogate_pair_is_mended() -> None:
    kept = example("a\ud800b")
    assert conversation(kept).turns[0].user.encode()
