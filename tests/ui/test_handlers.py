"""What people do to the page, without a page: every handler over the scripted engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from engine.config import DecodingParams
from engine.events import FinishReason
from engine.serving.engine import State, Status
from engine.trace import reply as trace
from tests.fake_engine import DEFAULT_TEXT, FakeEngine, Script, play
from ui import jobs
from ui.chat import handlers as module
from ui.chat.handlers import Handlers
from ui.controls import TABLE, Options, readable
from ui.html.render import both
from ui.sessions import Sessions
from ui.state import Phase, Reply, Turn, advance
from ui.updates import Patch, pack

VALUES = [control.default for control in TABLE]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pace is for eyes; here nobody looks."""
    monkeypatch.setattr(jobs, "UPDATE_S", 0.002)
    monkeypatch.setattr(module, "GLANCE_S", 0.001)


def with_values(**changed: object) -> list[object]:
    return [changed.get(control.name, control.default) for control in TABLE]


def run(action: Callable[[], Awaitable[Any]]) -> Any:
    return asyncio.run(asyncio.wait_for(action(), 60))


async def everything(patches: AsyncGenerator[Patch, None]) -> list[Patch]:
    return [patch async for patch in patches]


class Page:
    """Applies patches as assets/page/patches.js does, and can miss some."""

    def __init__(self) -> None:
        self.turns: dict[int, list[Any]] = {}
        self.torn = False
        self.last: Patch = {}

    def apply(self, patch: Patch) -> None:
        self.last = self.last | patch
        self.turns = {key: have for key, have in self.turns.items() if key in patch["keys"]}
        self.torn = False
        for turn in patch["turns"]:
            if turn["key"] not in self.turns and "head" not in turn:
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
    assert max(len(pack(patch, id_)) for patch in patches[1:]) < len(pack(handlers.sync(id_), id_)) / 2


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
    ("field", "bad", "used"),
    [
        ("num_speculative_tokens", 99, lambda params: params.num_speculative_tokens is None),
        ("temperature", 9, lambda params: params.sampling.temperature == 2),
        ("seed", "x", lambda params: params.sampling.seed is None),
        ("drafter", "magic", lambda params: params.drafter == "auto"),
    ],
)
def test_a_wrong_setting_is_corrected_and_said(
    engine: FakeEngine, field: str, bad: object, used: Callable[[DecodingParams], bool]
) -> None:
    handlers, id_ = new(engine)
    *_, last = run(lambda: everything(handlers.send(id_, "hello", with_values(**{field: bad}))))
    assert 'class="en"' in last["notice"] and 'class="zh"' in last["notice"]
    assert last["took"] == 1 and used(engine.asked[0].params)


def test_no_tag_is_in_a_patch_not_even_as_text(engine: FakeEngine) -> None:
    handlers, id_ = new(engine)
    engine.answer = lambda _: Script(text="<script>1</script>")
    for patch in run(lambda: everything(handlers.send(id_, "<script>alert(1)</script>", VALUES))):
        sent = pack(patch, id_)
        assert "<" not in sent and json.loads(sent) == json.loads(json.dumps(patch | {"asked": id_}))


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
        await asyncio.sleep(0)  # the call of `engine.serving.stream` is under way in its thread
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
    for patch in run(lambda: everything(handlers.retry(id_, 1, VALUES, True))):
        page.apply(patch)
    assert list(page.turns) == [2] and not page.torn
    assert engine.asked[0].messages == engine.asked[1].messages


def test_a_retry_that_is_refused_keeps_the_reply(engine: FakeEngine) -> None:
    handlers, id_ = new(engine)
    run(lambda: everything(handlers.send(id_, "hello", VALUES)))
    engine.busy = True
    (patch,) = run(lambda: everything(handlers.retry(id_, 1, VALUES, True)))
    assert patch["keys"] == [1] and handlers.sessions.open(id_).turns[0].reply.text


def test_a_retry_with_the_same_seed_or_another(engine: FakeEngine) -> None:
    handlers, id_ = new(engine)
    run(lambda: everything(handlers.send(id_, "hello", with_values(seed="41"))))
    run(lambda: everything(handlers.retry(id_, 1, VALUES, True)))
    run(lambda: everything(handlers.retry(id_, 2, with_values(seed="43"), False)))
    run(lambda: everything(handlers.retry(id_, 3, with_values(seed="43"), True)))
    seeds = [asked.params.sampling.seed for asked in engine.asked]
    assert seeds == [41, 41, None, 7]  # the engine picked 7 where none was given


def test_an_edited_message_takes_the_place_of_what_came_after_it(engine: FakeEngine) -> None:
    handlers, id_ = new(engine)
    for message in ("one", "two", "three"):
        run(lambda message=message: everything(handlers.send(id_, message, VALUES)))
    patch = run(lambda: everything(handlers.edit(id_, 2, "zwei", VALUES)))[-1]
    assert patch["keys"] == [1, 4]
    first = handlers.sessions.open(id_).turns[0].reply.text
    assert [message.content for message in engine.asked[-1].messages] == ["one", first, "zwei"]
    undone = handlers.undo(id_)
    assert undone["keys"] == [1, 2, 3] and undone["redo"] and undone["taken_back"] == ""
    assert handlers.undo(id_, again=True)["keys"] == [1, 4]


@pytest.mark.parametrize("message", ["", " \u200b"])
def test_an_edit_to_nothing_is_a_hint(engine: FakeEngine, message: str) -> None:
    handlers, id_ = new(engine)
    run(lambda: everything(handlers.send(id_, "one", VALUES)))
    (patch,) = run(lambda: everything(handlers.edit(id_, 1, message, VALUES)))
    assert patch["notice"] == both("notice.empty") and patch["keys"] == [1]


def test_an_edit_of_what_is_gone_says_so(engine: FakeEngine) -> None:
    handlers, id_ = new(engine)
    (patch,) = run(lambda: everything(handlers.edit(id_, 5, "hello", VALUES)))
    assert patch["notice"] == both("notice.nothing") and not engine.asked


def test_undo_of_a_message_puts_it_back_into_the_box(engine: FakeEngine) -> None:
    handlers, id_ = new(engine)
    run(lambda: everything(handlers.send(id_, "hello", VALUES)))
    run(lambda: everything(handlers.send(id_, "more", VALUES)))
    patch = handlers.undo(id_)
    assert (patch["keys"], patch["taken_back"], patch["undo"], patch["redo"]) == ([1], "more", True, True)
    assert handlers.undo(id_)["taken_back"] == "hello"
    assert handlers.undo(id_)["keys"] == []  # nothing more to undo
    again = handlers.undo(id_, again=True)
    assert (again["keys"], again["came_back"], again["taken_back"]) == ([1], "hello", "")
    run(lambda: everything(handlers.send(id_, "other", VALUES)))
    assert not handlers.sync(id_)["redo"]


def test_undo_in_the_middle_of_a_reply_stops_it(engine: FakeEngine) -> None:
    engine.hold_after = 10
    handlers, id_ = new(engine)

    async def story() -> Patch:
        undone: Patch = {}
        async for patch in handlers.send(id_, "hello", VALUES):
            if not undone and patch["turns"][-1]["blocks"]:
                undone = handlers.undo(id_)
        return undone

    patch = run(story)
    assert patch["keys"] == [] and patch["taken_back"] == "hello" and not patch["running"]
    assert engine.asked[0].stream.cancelled
    kept = handlers.undo(id_, again=True)["turns"][0]
    assert kept["phase"] == "finished" and kept["blocks"]


def test_the_page_is_told_how_full_the_context_is(engine: FakeEngine) -> None:
    engine.context_len = 400
    handlers, id_ = new(engine)
    assert "0 of 400" in handlers.sync(id_)["meter"]
    run(lambda: everything(handlers.send(id_, "hello", VALUES)))
    tally = handlers.sessions.open(id_).turns[0].reply.tally
    assert f"{tally.prompt_tokens + tally.tokens} of 400" in handlers.sync(id_)["meter"]

    def asked(text: str) -> Patch:
        return run(lambda: handlers.answer(id_, "meter", {"text": text}))

    assert "with this message" in asked("one two three")["meter"]
    assert "too long: " in asked("word " * 500)["meter"]
    assert "with this message" not in asked("  ")["meter"]


@pytest.mark.parametrize("what", ["card", "prose", "charts", "meter", "nonsense"])
@pytest.mark.parametrize(
    "args", [{}, {"key": 1}, {"key": "1", "from": "x"}, {"key": [], "from": -3, "block": 99, "piece": {}}]
)
def test_whatever_a_page_asks_for_never_fails(engine: FakeEngine, what: str, args: dict[str, object]) -> None:
    handlers, id_ = new(engine)
    run(lambda: handlers.answer(id_, what, args))
    run(lambda: everything(handlers.send(id_, "hello", VALUES)))
    run(lambda: handlers.answer(id_, what, args))
    assert run(lambda: handlers.answer("not ours", what, args))["unknown"]
    assert run(lambda: handlers.answer("", what, args)) is None


@pytest.mark.parametrize("again", [False, True])
def test_undo_and_redo_in_the_middle_of_a_reply_leave_one_end(engine: FakeEngine, again: bool) -> None:
    engine.hold_after = 10
    handlers, id_ = new(engine)

    async def story() -> None:
        done = False
        async for patch in handlers.send(id_, "hello", VALUES):
            if not done and patch["turns"][-1]["blocks"]:
                done = True
                handlers.undo(id_)
                if again:
                    handlers.undo(id_, again=True)

    run(story)
    if not again:
        handlers.undo(id_, again=True)
    kept = handlers.sync(id_)["turns"][0]
    assert [row["e"] for _, row in kept["blocks"]].count("end") == 1
    trace.events([row for _, row in kept["blocks"]])


def test_after_an_undo_in_the_middle_of_a_reply_the_next_message_is_taken(engine: FakeEngine) -> None:
    engine.hold_after = 10
    handlers, id_ = new(engine)

    async def story() -> list[Patch]:
        first = handlers.send(id_, "hello", VALUES)
        await anext(first)
        handlers.undo(id_)
        engine.hold_after = None
        second = await everything(handlers.send(id_, "again", VALUES))
        await everything(first)
        return second

    patches = run(story)
    assert patches[-1]["keys"] == [2] and patches[-1]["turns"][-1]["phase"] == "finished"
    assert [asked.messages[-1].content for asked in engine.asked] == ["hello", "again"]


def test_retry_without_a_reply_says_so(engine: FakeEngine) -> None:
    handlers, id_ = new(engine)
    (patch,) = run(lambda: everything(handlers.retry(id_, 1, VALUES, True)))
    assert patch["notice"] == both("notice.nothing")


def test_deleting_in_the_middle_of_a_reply(engine: FakeEngine) -> None:
    engine.hold_after = 10
    handlers, id_ = new(engine)

    async def story() -> None:
        async for _ in handlers.send(id_, "hello", VALUES):
            handlers.delete(id_)

    run(story)
    assert engine.asked[0].stream.cancelled and handlers.sessions.find(id_) is None
    assert handlers.sync(id_)["unknown"]


def test_a_conversation_comes_back_from_its_browser(engine: FakeEngine) -> None:
    handlers, id_ = new(engine)
    run(lambda: everything(handlers.send(id_, "hello", VALUES)))
    before = handlers.sync(id_)
    turns = [
        {"user": turn["user"], "about": turn["about"], "rows": [row for _, row in turn["blocks"]]}
        for turn in before["turns"]
    ]
    record = json.loads(json.dumps({"greenlight_chat": 1, "id": id_, "turns": turns}))
    restarted, _ = new(engine)
    assert restarted.sync(id_)["unknown"]
    (patch,) = run(lambda: everything(restarted.send(id_, "more", VALUES)))
    assert patch["unknown"] and len(engine.asked) == 1
    (patch,) = run(lambda: everything(restarted.edit(id_, 1, "more", VALUES)))
    assert patch["unknown"]
    (patch,) = run(lambda: everything(restarted.retry(id_, 1, VALUES, True)))
    assert patch["unknown"] and restarted.undo(id_)["unknown"] and len(engine.asked) == 1
    after = restarted.restore(record)
    assert [turn["blocks"] for turn in after["turns"]] == [turn["blocks"] for turn in before["turns"]]
    assert after["figures"]["alpha"] == before["figures"]["alpha"]
    run(lambda: everything(restarted.send(id_, "more", VALUES)))
    assert [message.role for message in engine.asked[-1].messages] == ["user", "assistant", "user"]


def test_what_came_back_never_replaces_what_is_known(engine: FakeEngine) -> None:
    handlers, id_ = new(engine)
    run(lambda: everything(handlers.send(id_, "hello", VALUES)))
    assert handlers.restore({"greenlight_chat": 1, "id": id_, "turns": []})["keys"] == [1]


@pytest.mark.parametrize("record", [None, {}, {"greenlight_chat": 2}, {"greenlight_chat": 1, "id": "x", "turns": []}])
def test_a_record_that_cannot_be_read_is_said(engine: FakeEngine, record: object) -> None:
    handlers, _ = new(engine)
    patch = handlers.restore(record)
    assert patch["unknown"] and patch["notice"] == both("notice.unreadable")


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
        handlers.delete(ours)
        handlers.stop("guess")
        assert handlers.sync("guess")["unknown"] and handlers.sync("guess")["keys"] == []
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
    assert handlers.sync("made up")["unknown"] and handlers.sync("")["conversation"] not in ("", id_)


def test_conversations_are_bounded_and_the_busy_ones_stay() -> None:
    sessions = Sessions(capacity=3)
    first = sessions.open("")
    live = sessions.begin(first.id)
    others = [sessions.open("").id for _ in range(5)]
    assert sessions.find(first.id) and [bool(sessions.find(id_)) for id_ in others] == [False] * 3 + [True] * 2
    sessions.end(first.id, live)


def test_conversations_are_bounded_by_what_they_hold() -> None:
    reply = advance(Reply(), play(Script(), DecodingParams()))
    sessions = Sessions(capacity_blocks=3 * len(reply.blocks))
    long = [sessions.open("") for _ in range(5)]
    for conversation in long:
        sessions.put(replace(conversation, turns=(Turn(1, "hello", reply),)))
    newest = sessions.open("")
    assert [bool(sessions.find(one.id)) for one in (*long, newest)] == [False] * 2 + [True] * 4


def test_the_settings_reach_the_engine(engine: FakeEngine) -> None:
    handlers, id_ = new(engine)
    chosen = with_values(num_speculative_tokens="7", rule="shared_noise", temperature=0.5, top_p=0.9, seed="11",
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
    run(lambda: everything(handlers.send(id_, "hello", with_values(num_speculative_tokens="0"))))
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
