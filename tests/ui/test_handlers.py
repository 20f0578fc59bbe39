"""What people do to the page, without a page: every handler over the scripted engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from engine.engine import State, Status
from engine.events import FinishReason
from tests.fake_engine import DEFAULT_TEXT, FakeEngine, Script
from ui import handlers as module
from ui.controls import TABLE, Options
from ui.handlers import Handlers, readable
from ui.patches import Patch, packed
from ui.render import both
from ui.sessions import Sessions
from ui.state import Phase

VALUES = [control.default for control in TABLE]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pace is for eyes; here nobody looks."""
    monkeypatch.setattr(module, "UPDATE_S", 0.002)
    monkeypatch.setattr(module, "GLANCE_S", 0.001)


def with_values(**changed: object) -> list[object]:
    return [changed.get(control.name, control.default) for control in TABLE]


def run(action: Callable[[], Awaitable[Any]]) -> Any:
    return asyncio.run(asyncio.wait_for(action(), 60))


async def everything(patches: AsyncGenerator[Patch, None]) -> list[Patch]:
    return [patch async for patch in patches]


class Page:
    """Applies patches as assets/page.js does, and can miss some."""

    def __init__(self) -> None:
        self.turns: dict[int, list[str]] = {}
        self.torn = False
        self.last: Patch = {}

    def apply(self, patch: Patch) -> None:
        self.last = self.last | patch
        self.turns = {key: have for key, have in self.turns.items() if key in patch["keys"]}
        self.torn = False
        for turn in patch["turns"]:
            if turn["key"] not in self.turns and not turn["head"]:
                self.torn = True
                continue
            have = self.turns.setdefault(turn["key"], [])
            if turn["from"] > len(have):
                self.torn = True
                continue
            have += turn["blocks"][len(have) - turn["from"] :]
        self.torn |= set(self.turns) != set(patch["keys"])


def new(engine: FakeEngine, options: Options | None = None) -> tuple[Handlers, str]:
    made = Handlers(engine, options or Options())
    return made, made.sync("")["conversation"]


def test_a_reply_arrives_whole(engine: FakeEngine) -> None:
    engine.tok_s = 2000
    handlers, id_ = new(engine)
    page = Page()
    for patch in run(lambda: everything(handlers.send(id_, "hello", VALUES))):
        page.apply(patch)
    whole = Page()
    whole.apply(handlers.sync(id_))
    assert page.turns == whole.turns and not page.torn
    assert not page.last["running"]
    reply = handlers.sessions.open(id_).turns[0].reply
    assert reply.text == DEFAULT_TEXT.rstrip() or reply.text == DEFAULT_TEXT
    assert (reply.phase, reply.reason) == (Phase.FINISHED, FinishReason.STOP)


@pytest.mark.parametrize("missed", [2, 5, 6, 9])
def test_a_page_that_misses_patches_catches_up_or_knows(engine: FakeEngine, missed: int) -> None:
    engine.tok_s = 3000
    engine.answer = lambda _: Script(text=DEFAULT_TEXT * 5)
    handlers, id_ = new(engine)
    page = Page()
    for i, patch in enumerate(run(lambda: everything(handlers.send(id_, "hello", VALUES)))):
        if i % (missed + 1) == 0:
            page.apply(patch)
    if page.torn or page.last["running"]:
        page.apply(handlers.sync(id_))
    whole = Page()
    whole.apply(handlers.sync(id_))
    assert page.turns == whole.turns


def test_a_patch_does_not_grow_with_the_reply(engine: FakeEngine) -> None:
    engine.tok_s = 4000
    engine.answer = lambda _: Script(text=DEFAULT_TEXT * 25)
    handlers, id_ = new(engine)
    patches = run(lambda: everything(handlers.send(id_, "hello", with_values(max_new_tokens=2048))))
    sizes = [sum(len(turn["blocks"]) for turn in patch["turns"]) for patch in patches]
    blocks = len(handlers.sessions.open(id_).turns[0].reply.blocks)
    assert blocks > 300 and len(patches) > 20
    assert max(sizes) < blocks / 2
    assert max(len(packed(patch, id_)) for patch in patches[1:]) < len(packed(handlers.sync(id_), id_)) / 2


@pytest.mark.parametrize(
    "blank", ["", "   ", "\n\n", "\t", "\u200b", "\u200b \ufeff", "\u2060", "\u3164", "\u2800", "\ufe0f\u034f", None, 5]
)
def test_nothing_to_say_is_a_hint_not_a_reply(engine: FakeEngine, blank: object) -> None:
    handlers, id_ = new(engine)
    (patch,) = run(lambda: everything(handlers.send(id_, blank, VALUES)))
    assert patch["notice"] == both("notice.empty") and "took" not in patch
    assert not engine.asked and not handlers.sessions.open(id_).turns


def test_messages_are_kept_as_typed_but_can_be_encoded() -> None:
    assert readable("  hi \n") == "  hi \n"
    assert readable("a\ud800b").encode()


@pytest.mark.parametrize(
    ("field", "bad", "words"),
    [
        ("num_speculative_tokens", 99, "0 to 16"),
        ("temperature", "hot", "between 0 and 2"),
        ("seed", "x", "Seed"),
        ("drafter", "magic", "n-gram"),
    ],
)
def test_a_wrong_setting_is_one_sentence_and_loses_nothing(
    engine: FakeEngine, field: str, bad: object, words: str
) -> None:
    handlers, id_ = new(engine)
    (patch,) = run(lambda: everything(handlers.send(id_, "hello", with_values(**{field: bad}))))
    assert (
        words in patch["notice"] and "Your message is kept" in patch["notice"] and "你写的消息还在" in patch["notice"]
    )
    assert "took" not in patch and not engine.asked and not patch["running"]


def test_a_message_longer_than_the_context_is_refused_with_its_length(engine: FakeEngine) -> None:
    engine.context_len = 50
    handlers, id_ = new(engine)
    (patch,) = run(lambda: everything(handlers.send(id_, "word " * 100, VALUES)))
    assert "105 tokens" in patch["notice"] and "at most 50" in patch["notice"] and not engine.asked


def test_a_full_queue_says_so(engine: FakeEngine) -> None:
    engine.busy = True
    handlers, id_ = new(engine)
    (patch,) = run(lambda: everything(handlers.send(id_, "hello", VALUES)))
    assert "Too many people" in patch["notice"]


def test_a_mistake_of_ours_does_not_leave_the_page_waiting(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    handlers, id_ = new(engine)
    monkeypatch.setattr(engine, "stream", broken)
    *_, patch = run(lambda: everything(handlers.send(id_, "hello", VALUES)))
    assert patch["notice"] == both("notice.bug") and not patch["running"]
    monkeypatch.undo()
    assert run(lambda: everything(handlers.send(id_, "hello", VALUES)))[-1]["took"] == 1


def test_stop_keeps_what_was_written(engine: FakeEngine) -> None:
    engine.hold_after = 10
    handlers, id_ = new(engine)

    async def story() -> None:
        async for patch in handlers.send(id_, "hello", VALUES):
            if sum(len(turn["blocks"]) for turn in patch["turns"]):
                handlers.stop(id_)

    run(story)
    reply = handlers.sessions.open(id_).turns[0].reply
    assert (reply.phase, reply.reason) == (Phase.FINISHED, FinishReason.CANCELLED)
    assert reply.text and DEFAULT_TEXT.startswith(reply.text)
    engine.gate.set()
    run(lambda: everything(handlers.send(id_, "again", VALUES)))
    assert [message.content for message in engine.asked[-1].messages] == ["hello", reply.text, "again"]


def test_stop_while_nothing_came_yet(engine: FakeEngine) -> None:
    engine.hold_after = 0
    handlers, id_ = new(engine)

    async def story() -> list[Patch]:
        sending = asyncio.create_task(everything(handlers.send(id_, "hello", VALUES)))
        while not engine.asked:
            await asyncio.sleep(0)
        handlers.stop(id_)
        return await sending

    *_, patch = run(story)
    assert "Stopped before the first word" in patch["turns"][-1]["foot"]


def test_a_page_that_is_closed_stops_its_reply(engine: FakeEngine) -> None:
    engine.hold_after = 10
    handlers, id_ = new(engine)

    async def story() -> None:
        patches = handlers.send(id_, "hello", VALUES)
        await anext(patches)
        await patches.aclose()

    run(story)
    assert engine.asked[0].stream.cancelled
    assert handlers.sessions.open(id_).turns[0].reply.phase is Phase.FINISHED
    assert not handlers.sessions.live(id_)


def test_a_page_that_goes_while_the_prompt_is_being_read_stops_its_reply(engine: FakeEngine) -> None:
    handlers, id_ = new(engine)
    engine.hold_after = 0

    async def story() -> None:
        sending = asyncio.create_task(everything(handlers.send(id_, "hello", VALUES)))
        await asyncio.sleep(0)  # the call of `engine.stream` is under way in its thread
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        while not (engine.asked and engine.asked[0].stream.cancelled):
            await asyncio.sleep(0)

    run(story)


def test_retry_writes_the_last_reply_again(engine: FakeEngine) -> None:
    handlers, id_ = new(engine)
    page = Page()
    for patch in run(lambda: everything(handlers.send(id_, "hello", VALUES))):
        page.apply(patch)
    for patch in run(lambda: everything(handlers.retry(id_, VALUES))):
        page.apply(patch)
    assert list(page.turns) == [2] and not page.torn
    assert engine.asked[0].messages == engine.asked[1].messages


def test_a_retry_that_is_refused_keeps_the_reply(engine: FakeEngine) -> None:
    handlers, id_ = new(engine)
    run(lambda: everything(handlers.send(id_, "hello", VALUES)))
    (patch,) = run(lambda: everything(handlers.retry(id_, with_values(temperature=9))))
    assert patch["keys"] == [1] and handlers.sessions.open(id_).turns[0].reply.text


def test_retry_without_a_reply_says_so(engine: FakeEngine) -> None:
    handlers, id_ = new(engine)
    (patch,) = run(lambda: everything(handlers.retry(id_, VALUES)))
    assert patch["notice"] == both("notice.nothing")


def test_clear_in_the_middle_of_a_reply(engine: FakeEngine) -> None:
    engine.hold_after = 10
    handlers, id_ = new(engine)

    async def story() -> Patch:
        cleared: Patch = {}
        async for _ in handlers.send(id_, "hello", VALUES):
            cleared = cleared or handlers.clear(id_)
        return cleared

    patch = run(story)
    assert patch["keys"] == [] and patch["conversation"] != id_ and not patch["running"]
    assert engine.asked[0].stream.cancelled and handlers.sessions.find(id_) is None


def test_one_reply_at_a_time_in_one_conversation(engine: FakeEngine) -> None:
    engine.hold_after = 10
    handlers, id_ = new(engine)

    async def story() -> list[Patch]:
        first = handlers.send(id_, "hello", VALUES)
        await anext(first)
        second = await everything(handlers.send(id_, "me too", VALUES))
        await first.aclose()
        return second

    (patch,) = run(story)
    assert patch["notice"] == both("notice.busy") and patch["running"]
    assert len(engine.asked) == 1


def test_nobody_sees_or_stops_anything_of_another(engine: FakeEngine) -> None:
    engine.hold_after = 10
    handlers, ours = new(engine)
    theirs = handlers.sync("")["conversation"]

    async def story() -> None:
        mine, other = handlers.send(ours, "mine", VALUES), handlers.send(theirs, "theirs", VALUES)
        await anext(mine)
        await anext(other)
        handlers.stop(ours)
        assert [asked.stream.cancelled for asked in engine.asked] == [True, False]
        handlers.clear(ours)
        handlers.stop("guess")
        assert handlers.sync("guess")["keys"] == []
        assert not engine.asked[1].stream.cancelled
        await mine.aclose()
        await other.aclose()

    run(story)
    assert ours != theirs and len(ours) >= 20
    assert {asked.conversation for asked in engine.asked} == {ours, theirs}


def test_who_waits_is_told_how_many_are_ahead(engine: FakeEngine) -> None:
    engine.hold_after = 0
    handlers, first = new(engine)
    second = handlers.sync("")["conversation"]

    async def story() -> Patch:
        one, two = handlers.send(first, "a", VALUES), handlers.send(second, "b", VALUES)
        await anext_waiting(one)
        patch = await anext_waiting(two)
        await one.aclose()
        await two.aclose()
        return patch

    async def anext_waiting(patches: AsyncGenerator[Patch, None]) -> Patch:
        return await anext(patches)

    assert "1 ahead of you" in run(story)["turns"][-1]["foot"]


def test_a_message_waits_for_the_model_and_then_goes_out(engine: FakeEngine) -> None:
    engine.state = Status(State.LOADING, "fetch", 0.42)
    handlers, id_ = new(engine)
    assert "42 %" in handlers.sync(id_)["loading"] and not handlers.sync(id_)["ready"]

    async def story() -> list[Patch]:
        patches = []
        async for patch in handlers.send(id_, "hello", VALUES):
            patches.append(patch)
            engine.state = Status(State.READY, "ready", 1.0)
        return patches

    first, second, *_, last = run(story)
    assert "Fetching the model" in first["notice"] and first["running"] and "took" not in first
    assert "42 %" in first["figures"]["engine"] and first["loading"] == ""
    assert second["notice"] == "" and "bit-exact" in second["figures"]["engine"] and second["running"]
    assert last["took"] == 1 and not last["running"]


def test_stop_while_the_model_loads_sends_nothing(engine: FakeEngine) -> None:
    engine.state = Status(State.LOADING, "load")
    handlers, id_ = new(engine)

    async def story() -> list[Patch]:
        patches = []
        async for patch in handlers.send(id_, "hello", VALUES):
            patches.append(patch)
            handlers.stop(id_)
        return patches

    *_, last = run(story)
    assert last["notice"] == both("notice.unsent") and not last["running"] and not engine.asked


def test_a_model_that_failed_to_load_says_why(engine: FakeEngine) -> None:
    engine.state = Status(State.FAILED, "fetch", message="No network & no model: connect once.")
    handlers, id_ = new(engine)
    assert "No network &amp; no model" in handlers.sync(id_)["loading"]
    (patch,) = run(lambda: everything(handlers.send(id_, "hello", VALUES)))
    assert "connect once" in patch["notice"] and "Your message is kept" in patch["notice"]


def test_a_reply_that_fails_keeps_what_was_written(engine: FakeEngine) -> None:
    engine.answer = lambda _: Script(
        text="Once upon", reason=FinishReason.ERROR, message="The logits were not numbers."
    )
    handlers, id_ = new(engine)
    *_, last = run(lambda: everything(handlers.send(id_, "hello", VALUES)))
    assert "The logits were not numbers." in last["turns"][-1]["foot"]
    assert handlers.sessions.open(id_).turns[0].reply.text == "Once upon"


def test_a_reload_shows_the_conversation_again(engine: FakeEngine) -> None:
    handlers, id_ = new(engine)
    run(lambda: everything(handlers.send(id_, "hello", VALUES)))
    patch = handlers.sync(id_)
    assert patch["conversation"] == id_ and patch["turns"][0]["from"] == 0 and "hello" in patch["turns"][0]["head"]
    assert handlers.sync("made up")["conversation"] not in ("made up", id_)


def test_conversations_are_bounded_and_the_busy_ones_stay() -> None:
    sessions = Sessions(capacity=3)
    first = sessions.open("")
    live = sessions.begin(first.id)
    others = [sessions.open("").id for _ in range(5)]
    assert sessions.find(first.id) and [bool(sessions.find(id_)) for id_ in others] == [False] * 3 + [True] * 2
    sessions.end(first.id, live)


def test_the_settings_reach_the_engine(engine: FakeEngine) -> None:
    handlers, id_ = new(engine)
    chosen = with_values(num_speculative_tokens=7, auto_k=False, rule="shared_noise", temperature=0.5, top_p=0.9, seed="11",
                         system="Be brief.", probe_every=0, max_new_tokens=33)  # fmt: skip
    run(lambda: everything(handlers.send(id_, "hello", chosen)))
    params = engine.asked[0].params
    assert (params.num_speculative_tokens, params.rule.value, params.probe_every, params.max_new_tokens) == (
        7,
        "shared_noise",
        0,
        33,
    )
    assert (params.sampling.temperature, params.sampling.top_p, params.sampling.seed) == (0.5, 0.9, 11)
    assert engine.asked[0].messages[0].content == "Be brief."
    run(lambda: everything(handlers.send(id_, "hello", with_values(plain_only=True))))
    assert engine.asked[1].params == replace(engine.asked[1].params, num_speculative_tokens=0)


def test_a_message_may_follow_the_moment_the_page_hears_of_the_end(engine: FakeEngine) -> None:
    """When the patch that ends a reply is out, the next message must not meet a reply that is still being put away."""
    handlers = Handlers(engine, Options())

    async def two_in_a_row() -> str:
        conversation = ""
        async for patch in handlers.send("", "hello", VALUES):
            conversation = patch["conversation"]
            if patch["turns"] and not patch["running"]:
                second = await everything(handlers.send(conversation, "again", VALUES))
                return str(second[0].get("notice", ""))
        raise AssertionError("the reply never ended")

    assert run(two_in_a_row) != both("notice.busy")
    assert len(engine.asked) == 2
