"""From events to what is shown: nothing lost, nothing invented, every token with its own source."""

from __future__ import annotations

from functools import reduce as fold
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from engine.config import DecodingParams, Message
from engine.events import Finished, FinishReason, Outcome, Prefilled, Prefilling, Round
from engine.stats import Tally
from tests.fake_engine import Script, play, tokens_of
from tests.ui.samples import decodings, texts
from ui.state import (
    LOST_KINDS,
    UNDO_DEPTH,
    Conversation,
    Kind,
    Phase,
    Piece,
    Reply,
    Turn,
    abandon,
    advance,
    begin,
    measured_window,
    progress,
    redo,
    undo,
)
from ui.state import prompt as prompt_of
from ui.state import reduce as reduce_reply


def shown(reply: Reply) -> list[Piece]:
    return [piece for block in reply.blocks for piece in block.pieces]


@given(texts, decodings)
def test_the_pieces_joined_are_the_reply_and_keep_their_sources(pieces: list[str], params: DecodingParams) -> None:
    events = play(Script(pieces=pieces), params)
    reply = advance(Reply(), events)
    tokens = [token for event in events for token in tokens_of(event)]
    kept = [piece for piece in shown(reply) if piece.kind not in LOST_KINDS]
    assert isinstance(events[-1], Finished)
    assert reply.text == events[-1].text
    assert [(piece.kind.value, piece.text, piece.special) for piece in kept] == [
        (token.source.value, token.text, token.special) for token in tokens
    ]


@given(texts, decodings)
def test_lost_drafts_stand_exactly_where_they_were_lost(pieces: list[str], params: DecodingParams) -> None:
    events = play(Script(pieces=pieces), params)
    for event in (event for event in events if isinstance(event, Round)):
        block = advance(Reply(), [event]).blocks[0].pieces
        lost = [decision for decision in event.decisions if decision.outcome is not Outcome.ACCEPTED]
        kinds = [Kind(decision.outcome.value) for decision in lost]
        assert [piece.kind for piece in block if piece.kind in LOST_KINDS] == kinds
        if lost:
            place = next(i for i, piece in enumerate(block) if piece.kind in LOST_KINDS)
            before = sum(token.position < lost[0].position for token in event.tokens)
            assert place == before


@given(texts, decodings, st.data())
def test_it_does_not_matter_how_events_are_gathered(
    pieces: list[str], params: DecodingParams, data: st.DataObject
) -> None:
    events = play(Script(pieces=pieces), params)
    cut = data.draw(st.integers(0, len(events)))
    one_by_one = fold(reduce_reply, events, Reply())
    assert advance(advance(Reply(), events[:cut]), events[cut:]) == one_by_one


def test_a_long_prompt_shows_how_far_it_is_read() -> None:
    reply = advance(Reply(), [Prefilling(512, 2048)])
    assert (reply.phase, reply.read_share, reply.blocks) == (Phase.WAITING, 0.25, ())


def test_a_first_token_cut_by_a_stop_string_shows_nothing() -> None:
    reply = advance(Reply(), [Prefilled(9, 0, None, 1, 0.1), Finished(FinishReason.STOP_STRING, "", ())])
    assert (shown(reply), reply.text, reply.phase) == ([], "", Phase.FINISHED)


def test_retry_replaces_the_last_turn_under_a_new_key_and_keeps_what_was_measured() -> None:
    events = play(Script(), DecodingParams())
    first = progress(begin(Conversation("c"), "hello"), 1, events)
    again = begin(first, "hello", keep=0)
    assert [turn.key for turn in again.turns] == [2]
    assert again.tally == first.tally != Tally()


@given(st.lists(st.sampled_from(["send", "edit", "undo", "redo"]), max_size=30), st.randoms())
def test_undo_and_redo_walk_through_what_was(steps: list[str], random: Random) -> None:
    """Against a plain list of states and a place in it."""
    talk, states, at = Conversation("c"), [()], 0
    for step in steps:
        if step == "undo":
            talk, at = undo(talk), max(0, at - 1)
        elif step == "redo":
            talk, at = redo(talk), min(len(states) - 1, at + 1)
        else:
            talk = begin(talk, step, random.randint(0, len(talk.turns)) if step == "edit" else None)
            states, at = [*states[: at + 1], talk.turns], at + 1
        assert talk.turns == states[at]
        assert (bool(talk.past), bool(talk.future)) == (at > 0, at + 1 < len(states)) or len(states) > UNDO_DEPTH
        assert len({turn.key for turn in talk.turns}) == len(talk.turns) and len(talk.past) <= UNDO_DEPTH


def test_events_for_another_turn_change_nothing() -> None:
    talk = begin(Conversation("c"), "hello")
    assert progress(talk, 99, play(Script(), DecodingParams())) == talk
    assert abandon(talk, 99) == talk


def test_an_abandoned_reply_keeps_its_words() -> None:
    events = play(Script(), DecodingParams())[:5]
    left = abandon(progress(begin(Conversation("c"), "hello"), 1, events), 1)
    reply = left.turns[0].reply
    assert (reply.phase, reply.reason) == (Phase.FINISHED, FinishReason.CANCELLED)
    assert reply.text.startswith("The quick")


def test_a_finished_reply_is_never_abandoned() -> None:
    done = progress(begin(Conversation("c"), "hello"), 1, play(Script(), DecodingParams()))
    assert done.turns[0].reply.reason is FinishReason.STOP and abandon(done, 1) == done


def test_the_model_reads_the_finished_turns() -> None:
    written = advance(Reply(), play(Script(pieces=["Hi", "."]), DecodingParams()))
    turns = [Turn(1, "hello", written), Turn(2, "stopped at once", Reply(Phase.FINISHED))]
    assert prompt_of("Be brief.", turns, "next") == (
        Message("system", "Be brief."),
        Message("user", "hello"),
        Message("assistant", "Hi."),
        Message("user", "next"),
    )
    assert prompt_of("  ", [], "next") == (Message("user", "next"),)


def test_both_speeds_always_come_from_one_window() -> None:
    long = play(Script(text="a b c d e f g h " * 20), DecodingParams(probe_every=3))
    first = fold(Tally.add, long, Tally())
    assert measured_window(first, first) == (first.summary(), True)
    early = fold(Tally.add, long[:3], Tally())
    both = fold(Tally.add, long[:3], first)
    window, alone = measured_window(early, both)
    assert not alone and window.spec_tok_s == both.summary().spec_tok_s
    assert window.baseline == both.baseline()
