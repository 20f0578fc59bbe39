"""A recording cut at any moment is what it was then; what grows grows one lane at a time; the store forgets the
oldest."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import DecodingParams
from engine.events import Event, Finished, FinishReason
from tests.fake_engine import Script, play
from tests.ui.samples import GREEDY, GUESSING, PLAIN, decodings, few, race, texts
from ui.recording.recordings import Lane, LaneName, Recording, Recordings, close, extend, of_turn, size
from ui.state import Reply, Turn, advance

BOTH = (Lane(LaneName.PLAIN), Lane(LaneName.SPECULATIVE))


@few
@given(texts, decodings, st.data())
def test_it_grows_as_it_would_have_been_at_once_and_cut_anywhere_is_what_it_was_then(
    pieces: list[str], params: DecodingParams, data: st.DataObject
) -> None:
    events = play(Script(pieces=pieces), params)
    grown = Recording("r", "hi", BOTH)
    rest: list[Event] = list(events)
    while rest:
        n = data.draw(st.integers(1, len(rest)))
        assert grown.running
        grown, rest = extend(grown, LaneName.SPECULATIVE, rest[:n]), rest[n:]
    assert grown.lanes == (BOTH[0], Lane(LaneName.SPECULATIVE, None, advance(Reply(), events))) and grown.running
    count = data.draw(st.integers(0, len(events)))
    assert grown.upto({"speculative": count}).lanes[1].reply == advance(Reply(), events[:count])
    assert grown.upto({}) == grown.upto({"plain": 10**9, "speculative": 10**9}) == grown
    assert grown.upto({"speculative": -1}).lanes == BOTH


def test_nothing_follows_the_end_of_a_lane_and_what_was_broken_off_is_closed_as_stopped() -> None:
    whole, events = race(), play(Script(), PLAIN)
    assert extend(whole, LaneName.PLAIN, events) == close(whole) == whole and not whole.running
    once = extend(Recording("r", "", BOTH), LaneName.PLAIN, [*events, *events])
    assert once.lanes[0].reply == advance(Reply(), events)
    with pytest.raises(KeyError):
        extend(whole, LaneName.REPLY, events)
    cut = whole.upto({"plain": 4, "speculative": 0})
    ended = close(cut)
    assert not ended.running
    for lane, before in zip(ended.lanes, cut.lanes, strict=True):
        end = Finished(FinishReason.CANCELLED, before.reply.text, before.reply.token_ids)
        assert lane.reply.blocks[-1].event == end and lane.reply.blocks[:-1] == before.reply.blocks


def test_a_reply_of_a_chat_is_one_lane() -> None:
    about = replace(GREEDY, system="be brief")
    reply = advance(Reply(), play(Script(), GUESSING))
    lane = Lane(LaneName.REPLY, about, reply)
    assert of_turn(Turn(3, "hello", reply, about), "abc") == Recording("abc", "hello", (lane,), "be brief")


def test_the_store_forgets_what_was_unused_for_longest_and_keeps_the_newest() -> None:
    def left(store: Recordings, *ids: str, again: str = "") -> str:
        """Which of these are still there after all were put there."""
        for id_ in ids:
            assert not again or store.find(again) or id_ == again
            store.put(race(recording_id=id_))
        return "".join(id_ for id_ in ids if store.find(id_))

    assert left(Recordings(capacity=2), "a", "b", "c", again="a") == "ac"
    blocks = size(race())
    assert [left(Recordings(capacity_blocks=n), *"abc") for n in (1, blocks + 1, 2 * blocks)] == ["c", "c", "bc"]
    store = Recordings()
    newer = replace(race(), user="newer")
    store.put(race())
    store.put(newer)
    assert store.find(newer.id) == newer and store.find("no such id") is None
    ids = {store.new_id() for _ in range(100)}
    assert len(ids) == 100 and min(map(len, ids)) >= 20
