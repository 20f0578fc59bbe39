"""From events to what is shown: nothing lost, nothing invented, every token with its own source."""

from __future__ import annotations

from functools import reduce as fold
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from engine.config import DecodingParams
from engine.events import Finished, FinishReason, Outcome, Prefilled, Prefilling
from engine.stats import Tally
from tests.fake_engine import Script, play, tokens_of
from tests.ui.samples import GUESSING, decodings, few, rounds_of, texts
from ui import state
from ui.state import LOST_KINDS, Conversation, Phase, Reply, Turn, abandon, advance, begin, progress

EVENTS = play(Script(), GUESSING)


@few
@given(texts, decodings, st.data())
def test_every_token_is_shown_with_its_source_and_lost_drafts_where_they_were_lost(
    pieces: list[str], params: DecodingParams, data: st.DataObject
) -> None:
    events = play(Script(pieces=pieces), params)
    reply = advance(Reply(), events)
    tokens = [(token.source.value, token.text, token.special) for event in events for token in tokens_of(event)]
    kept = [piece for block in reply.blocks for piece in block.pieces if piece.kind not in LOST_KINDS]
    assert [(piece.kind.value, piece.text, piece.special) for piece in kept] == tokens
    assert isinstance(events[-1], Finished) and reply.text == events[-1].text
    for event in rounds_of(events):
        kinds = [piece.kind.value for piece in advance(Reply(), [event]).blocks[0].pieces]
        lost = [decision for decision in event.decisions if decision.outcome is not Outcome.ACCEPTED]
        before = sum(token.position < lost[0].position for token in event.tokens) if lost else 0
        assert kinds[before : before + len(lost)] == [decision.outcome.value for decision in lost]
    cut = data.draw(st.integers(0, len(events)))
    one_by_one = fold(state.reduce, events, Reply())
    assert advance(advance(Reply(), events[:cut]), events[cut:]) == one_by_one, "however events are gathered"


def test_a_prompt_that_is_read_and_a_first_token_that_was_cut_show_nothing() -> None:
    reply = advance(Reply(), [Prefilling(512, 2048)])
    assert (reply.phase, reply.read_share, reply.blocks) == (Phase.WAITING, 0.25, ())
    reply = advance(reply, [Prefilled(9, 0, None, 1, 0.1), Finished(FinishReason.STOP_STRING, "", ())])
    assert (reply.blocks[0].pieces, reply.text, reply.phase) == ((), "", Phase.FINISHED)


@given(st.lists(st.sampled_from(["send", "edit", "undo", "redo"]), max_size=30), st.randoms())
def test_undo_and_redo_walk_through_what_was(steps: list[str], random: Random) -> None:
    """Against a plain list of states and a place in it."""
    talk, at = Conversation("c"), 0
    states = [talk.turns]
    for step in steps:
        if step == "undo":
            talk, at = state.undo(talk), max(0, at - 1)
        elif step == "redo":
            talk, at = state.redo(talk), min(len(states) - 1, at + 1)
        else:
            talk = begin(talk, step, random.randint(0, len(talk.turns)) if step == "edit" else None)
            states, at = [*states[: at + 1], talk.turns], at + 1
        assert talk.turns == states[at]
        assert (bool(talk.past), bool(talk.future)) == (at > 0, at + 1 < len(states)) or len(states) > state.UNDO_DEPTH
        assert len({turn.key for turn in talk.turns}) == len(talk.turns) and len(talk.past) <= state.UNDO_DEPTH


def test_events_belong_to_the_last_turn_until_it_ends_and_what_was_measured_stays() -> None:
    talk = begin(Conversation("c"), "hello")
    assert progress(talk, 99, EVENTS) == abandon(talk, 99) == talk
    left = abandon(progress(talk, 1, EVENTS[:5]), 1).turns[0].reply
    assert (left.phase, left.reason, left.text) == (
        Phase.FINISHED,
        FinishReason.CANCELLED,
        "The quick brown fox jumps over the lazy dog, and",
    )
    done = progress(talk, 1, EVENTS)
    assert done.turns[0].reply.reason is FinishReason.STOP and progress(done, 1, EVENTS) == abandon(done, 1) == done
    again = begin(done, "hello", keep=0)
    assert [turn.key for turn in again.turns] == [2] and again.tally == done.tally != Tally()


def test_the_model_reads_the_finished_turns() -> None:
    written = advance(Reply(), play(Script(pieces=["Hi", "."]), GUESSING))
    turns = [Turn(1, "hello", written), Turn(2, "stopped at once", Reply(Phase.FINISHED))]
    for system, messages in (("Be brief.", ["system", "Be brief."]), ("  ", [])):
        told = [part for message in state.prompt(system, turns, "next") for part in (message.role, message.content)]
        assert told == [*messages, "user", "hello", "assistant", "Hi.", "user", "next"]


def test_both_speeds_always_come_from_one_window() -> None:
    events = play(Script(), DecodingParams(probe_every=3))
    first, early = (fold(Tally.add, some, Tally()) for some in (events, events[:3]))
    assert state.measured_window(first, first) == (first.summary(), True)
    both = fold(Tally.add, events[:3], first)
    window, alone = state.measured_window(early, both)
    assert not alone and window == both.summary() and window.baseline.tok_s and window.spec_tok_s
