"""What people do to the page, without a page: every handler over the scripted engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from engine.events import FinishReason
from engine.serving.engine import State, Status
from engine.trace import reply as trace
from tests.fake_engine import DEFAULT_TEXT, FakeEngine, Script, play
from tests.ui.samples import GUESSING, VALUES, Blocks, at_once, begun, everything, run, with_values  # noqa: F401
from ui.chat.handlers import Handlers
from ui.controls import Options, readable
from ui.html.render import both
from ui.sessions import Sessions
from ui.state import Phase, Reply, Turn, advance
from ui.updates import Patch, pack

STRANGE: list[dict[str, Any]] = [
    {}, {"key": 1}, {"key": "1", "from": "x"}, {"key": [], "from": -3, "block": 99, "piece": {}},
]  # fmt: skip


class Talk:
    """One conversation, and what a person does in it. What answers an action is the last patch of it."""

    def __init__(self, engine: FakeEngine, handlers: Handlers | None = None) -> None:
        self.engine = engine
        self.handlers = handlers or Handlers(engine, Options())
        self.id: str = self.handlers.sync("")["conversation"]
        self.patches: list[Patch] = []

    def sync(self) -> Patch:
        return self.handlers.sync(self.id)

    def sending(self, message: object = "hello", **values: object) -> AsyncGenerator[Patch, None]:
        return self.handlers.send(self.id, message, with_values(**values))

    def send(self, message: object = "hello", **values: object) -> Patch:
        return self.last(everything(self.sending(message, **values)))

    def edit(self, key: object, message: str) -> Patch:
        return self.last(everything(self.handlers.edit(self.id, key, message, VALUES)))

    def retry(self, key: int, seed: str = "", same: bool = True) -> Patch:
        return self.last(everything(self.handlers.retry(self.id, key, with_values(seed=seed), same)))

    def last(self, work: Coroutine[Any, Any, list[Patch]]) -> Patch:
        self.patches = run(work)
        return self.patches[-1]

    def during(self, act: Callable[[], object], words: bool = True) -> Patch:
        """A message, and something done in the middle of its reply: when there are words, or at the first patch."""

        async def written() -> AsyncGenerator[Patch, None]:
            async for patch in self.sending():
                if not words or patch["turns"][-1]["blocks"]:
                    yield patch

        return self.last(begun(written(), act))

    def undo(self, again: bool = False) -> Patch:
        return self.handlers.undo(self.id, again)

    def stop(self) -> None:
        self.handlers.stop(self.id)

    @property
    def replies(self) -> list[Reply]:
        return [turn.reply for turn in self.handlers.sessions.open(self.id).turns]

    @property
    def asked(self) -> list[list[str]]:
        """The messages of each prompt."""
        return [[message.content for message in asked.messages] for asked in self.engine.asked]


@pytest.fixture
def talk(engine: FakeEngine) -> Talk:
    return Talk(engine)


# -- a reply arrives ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("of", [1, 3, 7])
def test_a_reply_arrives_whole_and_a_page_that_misses_patches_catches_up_or_knows(talk: Talk, of: int) -> None:
    talk.engine.tok_s = 4000
    last, page, whole = talk.send("<hello>"), Blocks(), True
    for patch in talk.patches[::of]:
        whole = page.take(patch["turns"], "key")
        sent = pack(patch, talk.id)
        assert "<" not in sent, "no tag is in a patch, not even as text"
        assert json.loads(sent) == json.loads(json.dumps(patch | {"asked": talk.id}))
    assert not last["running"] and (whole or of > 1)
    if not whole or patch["running"]:
        page.take(talk.sync()["turns"], "key")
    [turn] = talk.sync()["turns"]
    assert page == {1: turn["blocks"]} and turn["from"] == 0 and "&lt;hello" in turn["head"]
    [reply] = talk.replies
    assert (reply.text, reply.phase, reply.reason) == (DEFAULT_TEXT, Phase.FINISHED, FinishReason.STOP)


def test_a_patch_does_not_grow_with_the_reply(talk: Talk) -> None:
    talk.engine.tok_s = 4000
    talk.engine.answer = lambda _: Script(text=DEFAULT_TEXT * 25)
    talk.send(max_new_tokens=2048)
    blocks = len(talk.replies[0].blocks)
    assert blocks > 300 and len(talk.patches) > 20
    assert max(len(turn["blocks"]) for patch in talk.patches for turn in patch["turns"]) < blocks / 2
    assert max(len(pack(patch)) for patch in talk.patches[1:]) < len(pack(talk.sync())) / 2


def test_settings_reach_the_engine_and_wrong_ones_are_corrected_and_said(talk: Talk) -> None:
    last = talk.send(
        system="Be brief.",
        max_new_tokens=33,
        top_p=0.9,
        probe_every=5,
        num_speculative_tokens=99,
        temperature=9,
        seed="x",
    )
    assert last["notice"].count('class="en"') == last["notice"].count('class="zh"') == 3 and last["took"] == 1
    params = talk.engine.asked[0].params
    assert (params.max_new_tokens, params.num_speculative_tokens, params.probe_every) == (33, None, 5)
    assert (params.sampling.top_p, params.sampling.temperature, params.sampling.seed) == (0.9, 2, None)
    assert talk.asked == [["Be brief.", "hello"]]


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_nothing_to_say_is_a_hint_not_a_reply(talk: Talk) -> None:
    blanks = ("", "  ", "\n\n\t", "\u200b \ufeff", "\u2060", "\u3164", "\u2800", "\ufe0f\u034f", None, 5)
    assert [blank for blank in blanks if readable(blank)] == [] and readable("  hi \n\ud800") == "  hi \n?"
    assert talk.send("\u200b")["notice"] == both("notice.empty") and not talk.replies
    talk.send()
    patch = talk.edit(1, " ")
    assert patch["notice"] == both("notice.empty") and patch["keys"] == [1]


def test_refusals_and_mistakes_are_said_and_lose_nothing(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = talk.engine
    engine.context_len = 50
    assert "105 tokens" in (said := talk.send("word " * 100)["notice"]) and "at most 50" in said
    with monkeypatch.context() as broken:
        broken.setattr(engine, "stream", None)
        patch = talk.send()
        assert patch["notice"] == both("notice.bug") and not patch["running"]
    for patch in (talk.retry(5), talk.edit(5, "hello"), talk.edit("1", "hello")):
        assert patch["notice"] == both("notice.nothing")
    assert not engine.asked and talk.send()["took"] == 1
    engine.busy = True
    assert "Too many people" in talk.retry(1)["notice"] and talk.sync()["keys"] == [1] and talk.replies[0].text


def test_a_message_waits_for_the_model_and_then_goes_out(talk: Talk) -> None:
    talk.engine.state = Status(State.LOADING, "fetch", 0.42)
    assert "42 %" in talk.sync()["loading"] and not talk.sync()["ready"]
    last = talk.during(lambda: setattr(talk.engine, "state", Status(State.READY, "ready")), words=False)
    first, second, *_ = talk.patches
    assert "Fetching the model" in first["notice"] and first["running"] and "took" not in first
    assert "42 %" in first["figures"]["engine"] and first["loading"] == ""
    assert second["notice"] == "" and "bit-exact" in second["figures"]["engine"] and second["running"]
    assert last["took"] == 1 and not last["running"]


def test_stop_while_the_model_loads_sends_nothing_and_a_failure_says_why(talk: Talk) -> None:
    talk.engine.state = Status(State.LOADING, "load")
    last = talk.during(talk.stop, words=False)
    assert last["notice"] == both("notice.unsent") and not last["running"]
    talk.engine.state = Status(State.FAILED, "fetch", message="No network & no model.")
    assert "No network &amp; no model" in talk.sync()["loading"]
    assert "no model" in (said := talk.send()["notice"]) and "Your message is kept" in said and not talk.engine.asked


# -- what ends a reply early -------------------------------------------------------------------------------------------


def test_stop_keeps_what_was_written(talk: Talk) -> None:
    talk.engine.hold_after = 10
    talk.during(talk.stop)
    [reply] = talk.replies
    assert reply.reason is FinishReason.CANCELLED and reply.text and DEFAULT_TEXT.startswith(reply.text)
    talk.engine.hold_after = 0
    assert "Stopped before the first word" in talk.during(talk.stop, words=False)["turns"][-1]["foot"]
    talk.engine.gate.set()
    talk.send("again")
    assert talk.asked[-1] == ["hello", reply.text, "again"]


def test_a_page_that_goes_stops_its_reply_also_while_the_engine_is_asked(talk: Talk) -> None:
    talk.engine.hold_after = 0

    async def story() -> None:
        first = talk.sending()
        await anext(first)
        [patch] = await everything(talk.sending("me too"))
        assert patch["notice"] == both("notice.busy") and patch["running"] and len(talk.asked) == 1
        await first.aclose()
        assert talk.engine.asked[0].stream.cancelled and not talk.handlers.sessions.live(talk.id)
        going = asyncio.create_task(everything(talk.sending()))
        await asyncio.sleep(0)  # the call of the engine is under way in its thread
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
        while not (talk.asked[1:] and talk.engine.asked[1].stream.cancelled):
            await asyncio.sleep(0)

    run(story())
    assert talk.replies[0].phase is Phase.FINISHED


# -- once more, otherwise, and back ------------------------------------------------------------------------------------


def test_a_reply_is_written_again_with_the_same_seed_or_another(talk: Talk) -> None:
    talk.send(seed="41")
    assert talk.retry(1)["keys"] == [2]
    talk.retry(2, "43", same=False)
    talk.retry(3, "43")
    assert [asked.params.sampling.seed for asked in talk.engine.asked] == [41, 41, None, 7]  # 7: the engine's choice
    assert talk.asked == [["hello"]] * 4


def test_edit_and_undo_walk_through_what_was_said_and_put_back_into_the_box(talk: Talk) -> None:
    for message in ("one", "two", "three"):
        talk.send(message)
    assert talk.edit(2, "zwei")["keys"] == [1, 4] and talk.asked[-1] == ["one", DEFAULT_TEXT, "zwei"]
    undone = [talk.undo(again) for again in (False, False, True, False, False, False, False, True)]
    told = [tuple(patch[part] for part in ("keys", "taken_back", "came_back", "undo", "redo")) for patch in undone]
    assert told == [([1, 2, 3], "", "three", True, True), ([1, 2], "three", "", True, True), ([1, 2, 3], "", "three", True, True),
                    ([1, 2], "three", "", True, True), ([1], "two", "", True, True), ([], "one", "", False, True),
                    ([], "", "", False, True), ([1], "", "one", True, True)]  # fmt: skip
    talk.send("other")
    assert not talk.sync()["redo"]


@pytest.mark.parametrize("again", [False, True])
def test_undo_and_redo_in_the_middle_of_a_reply_leave_one_end(talk: Talk, again: bool) -> None:
    talk.engine.hold_after = 10
    undone: list[Patch] = []
    talk.during(lambda: undone.extend(talk.undo(back) for back in (False, True)[: again + 1]))
    assert undone[0]["keys"] == [] and undone[0]["taken_back"] == "hello" and not undone[0]["running"]
    assert talk.engine.asked[0].stream.cancelled
    [turn] = (talk.sync() if again else talk.undo(again=True))["turns"]
    rows = [row for _, row in turn["blocks"]]
    assert turn["phase"] == "finished" and len(rows) > 1 and [row["e"] for row in rows].count("end") == 1
    trace.events(rows)


def test_the_next_message_is_taken_after_an_undo_and_from_the_moment_a_reply_ends(talk: Talk) -> None:
    """It must not meet a reply that is still being put away."""
    talk.engine.hold_after = 10

    async def story() -> None:
        first = talk.sending()
        await anext(first)
        talk.undo()
        talk.engine.hold_after = None
        async for patch in talk.sending("again"):
            if patch["turns"] and not patch["running"]:
                assert (await everything(talk.sending("third")))[-1]["took"] == 3
        await everything(first)

    run(story())
    assert [messages[-1] for messages in talk.asked] == ["hello", "again", "third"]


# -- what a page asks for ----------------------------------------------------------------------------------------------


def test_the_page_is_told_how_full_the_context_is(talk: Talk) -> None:
    talk.engine.context_len = 400
    assert "0 of 400" in talk.sync()["meter"]
    talk.send()
    tally = talk.replies[0].tally
    assert f"{tally.prompt_tokens + tally.tokens} of 400" in talk.sync()["meter"]
    for text, words in (("a b", "with this message"), ("a " * 500, "too long: "), (" ", "of 400 tokens")):
        assert words in run(talk.handlers.answer(talk.id, "meter", {"text": text}))["meter"]


def test_whatever_a_page_asks_for_never_fails(talk: Talk) -> None:
    for what in ("card", "prose", "charts", "meter", "nonsense"):
        for args in STRANGE:
            run(talk.handlers.answer(talk.id, what, args))
            assert run(talk.handlers.answer("not ours", what, args))["unknown"]
            assert run(talk.handlers.answer("", what, args)) is None
        talk.send()
    place: dict[str, object] = {"key": 1, "block": 1, "piece": 0}
    patch = run(talk.handlers.answer(talk.id, "card", place))
    assert "accepted draft" in patch["card"]["html"] and patch["turns"] == []
    for name, wrong in (("key", 9), ("block", 999), ("key", "1")):
        assert run(talk.handlers.answer(talk.id, "card", place | {name: wrong})) is None


# -- who is talking ----------------------------------------------------------------------------------------------------


def test_a_conversation_comes_back_from_its_browser(talk: Talk) -> None:
    talk.send()
    before = talk.sync()
    [turn] = before["turns"]
    kept = {"user": turn["user"], "about": turn["about"], "rows": [row for _, row in turn["blocks"]]}
    record = {"greenlight_chat": 1, "id": talk.id, "turns": [kept]}
    talk.handlers = Handlers(talk.engine, Options())  # the server was started again
    for patch in (talk.sync(), talk.send(), talk.edit(1, "more"), talk.retry(1), talk.undo()):
        assert patch["unknown"] and patch["keys"] == []
    restore = talk.handlers.restore
    after = restore(json.loads(json.dumps(record)))
    assert after["turns"][0]["blocks"] == turn["blocks"] and after["figures"]["alpha"] == before["figures"]["alpha"]
    talk.send("more")
    assert talk.asked == [["hello"], ["hello", DEFAULT_TEXT, "more"]]
    assert restore(record | {"turns": []})["keys"] == [1, 2], "what is known is newer"
    patch = restore(record | {"id": "x"})
    assert patch["unknown"] and patch["notice"] == both("notice.unreadable")


def test_nobody_sees_or_stops_anything_of_another_but_waits_in_line(talk: Talk) -> None:
    engine, other = talk.engine, Talk(talk.engine, talk.handlers)
    engine.hold_after = 0

    async def story() -> None:
        mine, theirs = talk.sending("mine"), other.sending("theirs")
        await anext(mine)
        assert "1 ahead of you" in (await anext(theirs))["turns"][-1]["foot"]
        talk.stop()
        assert engine.asked[0].stream.cancelled
        talk.handlers.delete(talk.id)
        assert talk.sync()["unknown"]
        talk.handlers.stop("guess")
        assert not engine.asked[1].stream.cancelled
        await mine.aclose()
        await theirs.aclose()

    run(story())
    assert talk.id != other.id and len(talk.id) >= 20
    assert {asked.conversation for asked in engine.asked} == {talk.id, other.id}
    line = Sessions()
    one, two = line.begin("a"), line.begin("b")
    before, one.started = line.ahead(two), True
    assert (before, line.ahead(two)) == (1, 0), "who has the first token is ahead of nobody"


def test_conversations_are_bounded_in_number_and_by_what_they_hold_and_the_busy_ones_stay() -> None:
    def left(sessions: Sessions, turns: tuple[Turn, ...] = ()) -> list[int]:
        """Which of six are still there when all have been opened; the first is being written."""
        many = [sessions.open("")]
        sessions.begin(many[0].id)
        for _ in range(5):
            sessions.put(replace(many[-1], turns=turns))
            many.append(sessions.open(""))
        return [i for i, one in enumerate(many) if sessions.find(one.id)]

    reply = advance(Reply(), play(Script(), GUESSING))
    assert left(Sessions(capacity=3)) == [0, 4, 5]
    assert left(Sessions(capacity_blocks=3 * len(reply.blocks)), (Turn(1, "hello", reply),)) == [0, 3, 4, 5]
