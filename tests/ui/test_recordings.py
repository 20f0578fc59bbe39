"""A recording cut at any moment is what it was then; what grows grows one lane at a time; the store forgets the
oldest."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import DecodingParams
from engine.events import Event, Finished, FinishReason
from tests.fake_engine import Script, play
from tests.ui.samples import GUESSING, PLAIN, decodings, race, texts
from ui.recording.recordings import Lane, LaneName, Recording, Recordings, close, extend, of_turn, size
from ui.state import About, Phase, Reply, Turn, advance


@given(texts, decodings, st.data())
@settings(max_examples=50, deadline=None)
def test_a_recording_cut_anywhere_is_what_it_was_then(
    pieces: list[str], params: DecodingParams, data: st.DataObject
) -> None:
    plain, guessed = play(Script(pieces=pieces), PLAIN), play(Script(pieces=pieces), params)
    recording = race(Script(pieces=pieces))
    recording = replace(
        recording, lanes=(recording.lanes[0], Lane(LaneName.SPECULATIVE, None, advance(Reply(), guessed)))
    )
    counts = {"plain": data.draw(st.integers(0, len(plain))), "speculative": data.draw(st.integers(0, len(guessed)))}
    for lane, events in zip(recording.upto(counts).lanes, (plain, guessed), strict=True):
        assert lane.reply == advance(Reply(), events[: counts[lane.name]])
    assert recording.upto({}) == recording
    assert recording.upto({"plain": 10**9, "speculative": -1}).lanes[0] is recording.lanes[0]
    assert recording.upto({"speculative": -1}).lanes[1].reply == Reply()


@given(texts, decodings, st.data())
@settings(max_examples=50, deadline=None)
def test_it_grows_as_it_would_have_been_at_once(pieces: list[str], params: DecodingParams, data: st.DataObject) -> None:
    events = play(Script(pieces=pieces), params)
    grown = Recording("r", "hi", (Lane(LaneName.PLAIN), Lane(LaneName.SPECULATIVE)))
    rest: list[Event] = list(events)
    while rest:
        n = data.draw(st.integers(1, len(rest)))
        assert grown.running
        grown, rest = extend(grown, LaneName.SPECULATIVE, rest[:n]), rest[n:]
    found = grown.lane("speculative")
    assert found is not None and found.reply == advance(Reply(), events)
    assert grown.lane("plain") == Lane(LaneName.PLAIN) and grown.lane("reply") is None and grown.running


def test_nothing_follows_the_end_of_a_lane() -> None:
    recording = race()
    events = play(Script(), PLAIN)
    assert extend(recording, LaneName.PLAIN, events) == recording and not recording.running
    once = extend(Recording("r", "", (Lane(LaneName.REPLY),)), LaneName.REPLY, [*events, *events])
    assert once.lanes[0].reply == advance(Reply(), events)
    with pytest.raises(KeyError):
        extend(recording, LaneName.REPLY, events)


def test_what_was_broken_off_is_closed_as_stopped() -> None:
    recording = race().upto({"plain": 4, "speculative": 0})
    ended = close(recording)
    assert not ended.running and close(ended) == ended
    for lane, before in zip(ended.lanes, recording.lanes, strict=True):
        assert lane.reply.reason is FinishReason.CANCELLED and lane.reply.text == before.reply.text
        end = lane.reply.blocks[-1].event
        assert isinstance(end, Finished) and end.token_ids == before.reply.token_ids
    assert close(race()) == race()


def test_a_reply_of_a_chat_is_one_lane() -> None:
    about = About("m", "w", "k", "cpu", True, 99, ("ngram",), GUESSING, "be brief")
    reply = advance(Reply(), play(Script(), GUESSING))
    recording = of_turn(Turn(3, "hello", reply, about), "abc")
    assert recording == Recording("abc", "hello", (Lane(LaneName.REPLY, about, reply),), "be brief")
    assert of_turn(Turn(3, "hello"), "abc").lanes[0].reply.phase is Phase.WAITING


def test_the_store_forgets_what_was_unused_for_longest() -> None:
    store = Recordings(capacity=2)
    one, two, three = (race(recording_id=store.new_id()) for _ in range(3))
    store.put(one)
    store.put(two)
    assert store.find(one.id) == one
    store.put(three)
    assert store.find(two.id) is None and store.find(one.id) == one and store.find(three.id) == three
    store.put(replace(one, user="newer"))
    assert store.find(one.id) == replace(one, user="newer") and store.find("no such id") is None


def test_the_store_is_bounded_by_blocks_and_keeps_the_newest() -> None:
    store = Recordings(capacity_blocks=size(race()) + 1)
    store.put(race(recording_id="a"))
    store.put(race(recording_id="b"))
    assert store.find("a") is None and store.find("b") is not None
    two = Recordings(capacity_blocks=2 * size(race()))
    for name in "abc":
        two.put(race(recording_id=name))
    assert [two.find(name) is not None for name in "abc"] == [False, True, True]  # no more is forgotten than need be
    small = Recordings(capacity_blocks=1)
    small.put(race(recording_id="c"))
    assert small.find("c") is not None


def test_ids_are_long_and_all_different() -> None:
    store = Recordings()
    ids = {store.new_id() for _ in range(100)}
    assert len(ids) == 100 and min(map(len, ids)) >= 20
