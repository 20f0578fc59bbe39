"""A recording reads back from its file as it was, up to six digits; any other file is refused with a sentence."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import DecodingParams, Detail
from engine.errors import TraceError
from engine.events import Event, FinishReason, Prefilling
from tests.engine.test_trace import JSON, changed, places, replies, same
from tests.fake_engine import Script, play
from tests.ui.samples import race
from tests.ui.test_saved import abouts
from ui.examples import ASSETS
from ui.recording import trace_file
from ui.recording.recordings import Lane, LaneName, Recording, close
from ui.recording.trace_file import SHIPPED, Unreadable, dump, load, load_shipped
from ui.state import Phase, Reply, advance
from ui.strings import LANGS, TEXT, text

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
dates = st.just("") | st.dates().map(str) | st.datetimes().map(lambda at: at.isoformat(timespec="seconds"))


def blocks() -> st.SearchStrategy[list[Event]]:
    """The events of a reply that leave a block."""
    return replies().map(lambda events: [event for event in events if not isinstance(event, Prefilling)])


@st.composite
def recordings(draw: st.DrawFn) -> Recording:
    """Any recording: one reply or a race, each lane whole or broken off anywhere."""
    names = draw(st.sampled_from([(LaneName.REPLY,), (LaneName.PLAIN, LaneName.SPECULATIVE)]))
    lanes = tuple(Lane(name, draw(st.none() | abouts), advance(Reply(), draw(blocks()))) for name in names)
    return Recording("r1", draw(words), lanes, draw(words), draw(dates), (draw(words), draw(words)))


def full(text: str = "one two three four") -> Recording:
    """A small race with everything that is recorded."""
    params = DecodingParams(drafter="ngram", num_speculative_tokens=2, detail=Detail.FULL)
    told: list[Event] = play(Script(text), params)
    plain = play(Script(text), replace(params, num_speculative_tokens=0))
    lanes = (
        Lane(LaneName.PLAIN, None, advance(Reply(), plain)),
        Lane(LaneName.SPECULATIVE, None, advance(Reply(), told)),
    )
    return Recording("r1", "hi", lanes, "be brief", "2026-01-31", ("A race", "一场赛跑"))


def refused(given: object) -> str:
    with pytest.raises(Unreadable) as caught:
        load(given, "x")
    check_sentence(caught.value)
    return str(caught.value)


def check_sentence(error: Unreadable) -> None:
    """One that a person can read, in both languages."""
    assert isinstance(error, TraceError) and str(error).endswith(".")
    assert all(f'<span class="{lang}" lang="{lang}">' in error.html for lang in LANGS)
    assert re.search("[\u4e00-\u9fff].*。", error.html)


def read_or_refused(given: object) -> None:
    """What is read can be told again, and as JSON; any other error fails the test."""
    try:
        found = load(given, "x")
    except Unreadable as error:
        check_sentence(error)
    else:
        assert not found.running and dump(load(dump(found), "x")) == dump(found)
        dump(found).encode()


# -- there and back ----------------------------------------------------------------------------------------------------


@given(recordings())
@settings(max_examples=50, deadline=None)
def test_every_recording_reads_back_as_it_was(recording: Recording) -> None:
    written = dump(recording)
    found = load(written, "r1")
    assert replace(found, lanes=()) == replace(recording, lanes=())
    for lane, before in zip(found.lanes, close(recording).lanes, strict=True):
        assert same(lane.reply.blocks, before.reply.blocks) and same(lane.reply.tally, before.reply.tally)
        assert lane.reply == advance(Reply(), [block.event for block in lane.reply.blocks])
    assert [lane.about for lane in found.lanes] == [lane.about for lane in recording.lanes]
    again = dump(found)
    assert load(again, "r1") == found and dump(load(again, "r1")) == again, "rounding twice changes nothing"


@given(recordings())
@settings(max_examples=15, deadline=None)
def test_the_value_in_the_file_does_as_well_as_its_text(recording: Recording) -> None:
    written = dump(recording)
    assert load(json.loads(written), "r1") == load(written, "r1") == load("\ufeff" + written, "r1")


def test_a_file_has_a_line_for_each_event_and_says_what_it_is() -> None:
    recording = full()
    lines = dump(recording).splitlines()
    assert lines[0] == '{"greenlight_trace": 1,' and '"made": "2026-01-31",' in lines
    rows = [line for line in lines if line.startswith('{"v": 1, "e": ')]
    assert len(rows) == sum(len(lane.reply.blocks) for lane in recording.lanes)
    assert all(isinstance(json.loads(line.rstrip(",")), dict) for line in rows)
    assert "一场赛跑" in dump(recording), "Chinese stays readable"


def test_the_lists_of_likeliest_tokens_are_in_it() -> None:
    lane, original = load(dump(full()), "r").lane("speculative"), full().lane("speculative")
    assert lane is not None and original is not None and same(lane.reply.blocks, original.reply.blocks)
    assert " other" in dump(full())


def test_how_a_prompt_was_read_may_be_told_and_leaves_nothing() -> None:
    reading = [{"v": 1, "e": "reading", "done": 0, "of": 0}, {"v": 1, "e": "reading", "done": 9, "of": 1}]
    told = changed(RECORD, ("lanes", 0, "rows"), [*reading, *RECORD["lanes"][0]["rows"]])
    assert load(told, "r") == load(RECORD, "r")


def test_what_was_broken_off_reads_back_as_stopped() -> None:
    for cut in ({"plain": 0}, {"speculative": 2}, {"plain": 1, "speculative": 0}):
        found = load(dump(race().upto(cut)), "r")
        assert all(lane.reply.phase is Phase.FINISHED for lane in found.lanes)
        assert {lane.reply.reason for lane in found.lanes} >= {FinishReason.CANCELLED}


def test_half_a_surrogate_pair_does_not_spoil_the_file() -> None:
    assert load(dump(replace(full(), user="a\ud800b")), "r").user == "a?b"


# -- anything else -----------------------------------------------------------------------------------------------------

RECORD = json.loads(dump(full()))


@given(JSON)
@settings(max_examples=100, deadline=None)
def test_any_json_is_refused(value: object) -> None:
    refused(value)
    refused(json.dumps(value))


@given(st.text(max_size=200))
def test_any_text_is_refused(written: str) -> None:
    refused(written)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_a_file_that_was_cut_is_refused(data: st.DataObject) -> None:
    whole = dump(full()).rstrip()
    assert "cut off" in refused(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(st.sampled_from(places(RECORD)), JSON)
@settings(max_examples=200, deadline=None)
def test_one_value_changed_is_read_or_refused(path: tuple[Any, ...], new: object) -> None:
    record = changed(RECORD, path, new)
    read_or_refused(record)
    read_or_refused(json.dumps(record))


@given(st.sampled_from(places(RECORD)), st.sampled_from([-1, 10**30, math.nan, math.inf, "\ud800", [[]], {"x": 1}]))
@settings(max_examples=100, deadline=None)
def test_what_no_recording_can_hold_is_refused(path: tuple[Any, ...], new: object) -> None:
    refused(changed(RECORD, path, new))
    refused(json.dumps(changed(RECORD, path, new)))


@pytest.mark.parametrize("path", [(), ("lanes", 0), ("lanes", 1)])
def test_a_missing_or_unknown_entry_is_refused(path: tuple[Any, ...]) -> None:
    value = RECORD
    for key in path:
        value = value[key]
    refused(changed(RECORD, path, value | {"unknown": 1}))
    for key in value:
        refused(changed(RECORD, path, {name: part for name, part in value.items() if name != key}))


WRITTEN = dump(full())


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("", "cut off"),
        ("[" * 100_000, "cut off"),
        ('{"greenlight_trace": ' * 100_000, "cut off"),
        (WRITTEN.replace('"lanes"', '"x": NaN, "lanes"'), "no JSON"),
        (WRITTEN.replace('"s": [0.05, 0]', '"s": [NaN, 0]'), "no JSON"),
        (WRITTEN.replace('"s": [0.05, 0]', '"s": [Infinity, 0]'), "no JSON"),
        (WRITTEN.replace('"s": [0.05, 0]', '"s": [1e999, 0]'), "damaged"),
        (WRITTEN.replace('"s": [0.05, 0]', f'"s": [{"9" * 400}, 0]'), "damaged"),
        (WRITTEN.replace('"s": [0.05, 0]', f'"s": [{"9" * 10_000}, 0]'), "no JSON"),
        (WRITTEN.replace('"hi"', '"\\ud800"'), "damaged"),
        ('{"greenlight_chat": 1}', "not a reply or race saved by Greenlight"),
        ('"greenlight_trace"', "not a reply or race saved by Greenlight"),
        (WRITTEN.replace('"greenlight_trace": 1', '"greenlight_trace": 2'), "another version"),
        (WRITTEN.replace('"greenlight_trace": 1', '"greenlight_trace": true'), "another version"),
        (WRITTEN.replace('"2026-01-31"', '"yesterday"'), "damaged"),
        (" " * (trace_file.MAX_CHARS + 1), "too long"),
        ("x" * 10_000_000, "cut off"),
        ('{"greenlight_trace": 1, "user": "' + "x" * 10_000_000 + '"}', "damaged"),
    ],
)  # fmt: skip
def test_damaged_files_say_what_is_wrong(written: str, why: str) -> None:
    assert why in refused(written)


def test_deep_nesting_in_a_value_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for path in [(), ("lanes",), ("title",), ("lanes", 0, "rows"), ("lanes", 0, "about"), ("lanes", 1, "rows", 1, "d")]:
        refused(changed(RECORD, path, deep))


@pytest.mark.parametrize(
    "names",
    [(), ("plain",), ("speculative",), ("plain", "plain"), ("plain", "reply"), ("reply", "reply"),
     ("plain", "speculative", "reply"), ("plain", "speculative", "plain"), ("other",), (None,), ([],), ({},)],
)  # fmt: skip
def test_only_one_reply_or_a_race_of_two_is_read(names: tuple[Any, ...]) -> None:
    lanes = [RECORD["lanes"][0] | {"name": name} for name in names]
    assert "one reply, or a race of two" in refused(RECORD | {"lanes": lanes})


@pytest.mark.parametrize("lanes", [None, {}, "plain", [1], [[], []], ["plain", "speculative"]])
def test_lanes_that_are_none_are_refused(lanes: object) -> None:
    assert "one reply, or a race of two" in refused(RECORD | {"lanes": lanes})


def test_the_version_is_read_before_anything_else() -> None:
    assert "another version" in refused({"greenlight_trace": 99, "all": "new"})


# -- those that come with the app --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHIPPED)
def test_what_is_shipped_is_a_finished_race_with_a_title(name: str) -> None:
    if not (ASSETS / "traces" / f"{name}.json").exists():
        pytest.skip("this copy came without recordings")
    recording = load_shipped(name, "mine")
    assert recording.id == "mine" and all(recording.title) and recording.date
    assert [lane.name for lane in recording.lanes] == ["plain", "speculative"]
    assert all(lane.about is not None and lane.reply.text for lane in recording.lanes)


@pytest.mark.parametrize("name", ["", "../examples", "chat/../chat", "nothing"])
def test_what_is_not_shipped_says_so(name: str) -> None:
    with pytest.raises(Unreadable) as caught:
        load_shipped(name, "x")
    check_sentence(caught.value)
    assert "did not come with" in str(caught.value)


def test_every_sentence_is_spoken_for() -> None:
    assert {key for key in TEXT if key.startswith("trace.")} == {
        f"trace.{why}" for why in ("foreign", "version", "long", "broken", "lanes", "damaged", "missing")
    }
    assert text("trace.long", "en", limit=trace_file.MAX_CHARS // 1_000_000) in refused(
        "x" * (trace_file.MAX_CHARS + 1)
    )
