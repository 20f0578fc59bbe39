"""Conversations as the browser keeps them: what comes back is what was written, or is refused; nothing else can
happen."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import DecodingParams, Detail, SamplingParams
from engine.events import Finished
from tests.fake_engine import DEFAULT_TEXT, Script, play
from tests.ui.samples import ID, JSON, changed, conversations, few, places, record
from ui.recording import saved
from ui.recording.saved import NotSaved, conversation
from ui.state import About, Conversation, begin, progress, undo

PARAMS = DecodingParams(SamplingParams(seed=2**63 - 1, logit_bias=((5, 1.5),)), "ngram", stop=("\n\n",))
ABOUT = About("FakeLM", "Q4_1", "test", "cpu", True, 8192, ("none", "ngram"), PARAMS, "be brief")
EXAMPLE = record(progress(begin(Conversation(ID), "a\ud800b", about=ABOUT), 1, play(Script(), PARAMS)))


@few
@given(conversations())
def test_what_comes_back_is_what_was_kept_and_so_are_the_figures(made: Conversation) -> None:
    again = conversation(record(made))
    assert again.turns == made.turns and again.id == made.id
    assert again.next_key == max((turn.key for turn in made.turns), default=0) + 1
    assert undo(again) == again  # what was before is not kept
    for turn, before in zip(again.turns, made.turns, strict=True):
        assert turn.reply.tally.summary() == before.reply.tally.summary()
    assert made.next_key != len(made.turns) + 1 or again.tally == made.tally  # unless some were replaced


@few
@given(conversations(Detail.PROBS))
def test_what_was_rounded_is_not_rounded_again(made: Conversation) -> None:
    once = conversation(record(made))
    assert record(once) == record(made) and conversation(record(once)).turns == once.turns
    assert [turn.reply.text for turn in once.turns] == [turn.reply.text for turn in made.turns]


def test_what_is_damaged_in_a_way_that_does_not_matter_is_no_reason_to_lose_the_chat() -> None:
    [turn] = EXAMPLE["turns"]
    rows = turn["rows"]
    for length in (0, 1, 5):
        reply = conversation(changed(EXAMPLE, ("turns", 0, "rows"), rows[:length])).turns[0].reply
        assert DEFAULT_TEXT.startswith(reply.text) and isinstance(reply.blocks[-1].event, Finished)
    for done, of in ((0, 0), (5, 0), (9, 1)):
        odd = [{"v": 1, "e": "reading", "done": done, "of": of}, *rows, *rows[-1:]]
        again = conversation(changed(EXAMPLE, ("turns", 0, "rows"), odd)).turns[0]
        assert again.reply.text == DEFAULT_TEXT and again.user == "a?b", "half a surrogate pair is mended"
    keyless = {name: turn[name] for name in turn if name != "key"}
    assert [one.key for one in conversation(EXAMPLE | {"turns": [keyless, keyless]}).turns] == [1, 2]


@given(
    JSON,
    st.sampled_from(places(EXAMPLE)),
    JSON | st.sampled_from([1e400, -1, 10**400, "9" * 50, [[1, 2]], [["a", "b"]]]),
)
def test_any_json_and_one_value_changed_is_read_or_refused(value: object, path: tuple[Any, ...], new: object) -> None:
    about = changed(EXAMPLE, ("turns", 0, "about"), value)
    for strange in (value, EXAMPLE | {"turns": value}, about, changed(EXAMPLE, path, new)):
        with suppress(NotSaved):  # any other error fails the test
            assert isinstance(conversation(strange), Conversation)


def test_what_was_not_saved_is_refused() -> None:
    turn: dict[str, Any] = {"user": "a", "rows": []}
    turns: list[object] = [
        None, {}, [5], [{"user": "a"}], [turn | {"user": 5}], [turn | {"user": "a" * (saved.MAX_TEXT + 1)}],
        [turn] * (saved.MAX_TURNS + 1), [turn | {"key": 2}] * 2, [turn | {"key": True}], [turn | {"key": 0}],
    ]  # fmt: skip
    cases: dict[str, list[object]] = {
        "greenlight_chat": [2], "id": ["short", "../../etc/passwd_and_more"], "turns": turns, "target": [5], "context_len": [0],
        "drafters": ["ngram"], "params": [{}], "params rule": ["guess"], "params stop": ["abc"], "params sampling surprise": [1],
        "params sampling temperature": [9], "params sampling seed": [5], "params sampling logit_bias": [[[1e400, 0]]],
    }  # fmt: skip
    for place, values in cases.items():
        names = place.split()
        path = names if names[0] in EXAMPLE else ["turns", 0, "about", *names]
        for new in values:
            with pytest.raises(NotSaved):
                conversation(changed(EXAMPLE, path, new))
