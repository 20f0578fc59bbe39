"""A recording reads back from its file as it was, up to six digits; any other file is refused with a sentence."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import Detail
from engine.errors import TraceError
from engine.events import FinishReason
from tests.engine.test_trace import same
from tests.fake_engine import Script, play
from tests.ui.samples import GUESSING, JSON, PLAIN, changed, few, places, race, recording, recordings
from ui.examples import ASSETS
from ui.recording import trace_file
from ui.recording.recordings import LaneName, Recording, close
from ui.recording.trace_file import SHIPPED, Unreadable, dump, load, load_shipped
from ui.state import Reply, advance
from ui.strings import LANGS, TEXT, text

SCRIPT, FULL = Script("one two three four"), Detail.FULL
SMALL = replace(  # with everything that is recorded
    recording({
        LaneName.PLAIN: play(SCRIPT, replace(PLAIN, detail=FULL)), LaneName.SPECULATIVE: play(SCRIPT, replace(GUESSING, detail=FULL)),
    }),
    system="be brief", date="2026-01-31", title=("A race", "一场赛跑"),
)  # fmt: skip
WRITTEN = dump(SMALL)
RECORD = json.loads(WRITTEN)


def refused(given: object) -> str:
    with pytest.raises(Unreadable) as caught:
        load(given, "x")
    return sentence(caught.value)


def sentence(error: Unreadable) -> str:
    """One that a person can read, in both languages."""
    assert isinstance(error, TraceError) and str(error).endswith(".") and re.search("[\u4e00-\u9fff].*。", error.html)
    assert all(f'<span class="{lang}" lang="{lang}">' in error.html for lang in LANGS)
    return str(error)


# -- there and back ----------------------------------------------------------------------------------------------------


@few
@given(recordings())
def test_every_recording_reads_back_as_it_was(made: Recording) -> None:
    written = dump(made)
    read = load(written, "r1")
    assert replace(read, lanes=()) == replace(made, lanes=())
    for lane, before in zip(read.lanes, close(made).lanes, strict=True):
        assert same(lane.reply.blocks, before.reply.blocks) and same(lane.reply.tally, before.reply.tally)
        assert (
            lane.reply == advance(Reply(), [block.event for block in lane.reply.blocks]) and lane.about == before.about
        )
    again = dump(read)
    assert load(again, "r1") == read and dump(load(again, "r1")) == again, "rounding twice changes nothing"
    assert load(json.loads(written), "r1") == load("\ufeff" + written, "r1") == read


def test_a_file_has_a_line_for_each_event_and_says_what_it_is() -> None:
    lines = WRITTEN.splitlines()
    assert lines[0] == '{"greenlight_trace": 1,' and '"made": "2026-01-31",' in lines
    rows = [json.loads(line.rstrip(",")) for line in lines if line.startswith('{"v": 1, "e": ')]
    assert len(rows) == sum(len(lane.reply.blocks) for lane in SMALL.lanes)
    assert "一场赛跑" in WRITTEN and " other" in WRITTEN, "Chinese stays readable; the likeliest tokens are in it"


def test_what_was_broken_off_or_cannot_be_written_reads_back_all_the_same() -> None:
    for cut in ({"plain": 0}, {"speculative": 2}, {"plain": 1, "speculative": 0}):
        read = load(dump(race().upto(cut)), "r")
        assert not read.running and FinishReason.CANCELLED in [lane.reply.reason for lane in read.lanes]
    assert load(dump(replace(SMALL, user="a\ud800b")), "r").user == "a?b"
    reading = [{"v": 1, "e": "reading", "done": 0, "of": 0}, {"v": 1, "e": "reading", "done": 9, "of": 1}]
    path = ("lanes", 0, "rows")
    assert load(changed(RECORD, path, [*reading, *RECORD["lanes"][0]["rows"]]), "r") == load(RECORD, "r")


# -- anything else -----------------------------------------------------------------------------------------------------


@few
@given(JSON, st.text(max_size=200), st.integers(0, len(WRITTEN) - 2))
def test_any_json_any_text_and_a_file_that_was_cut_is_refused(value: object, written: str, cut: int) -> None:
    for strange in (value, json.dumps(value), written):
        refused(strange)
    assert "cut off" in refused(WRITTEN[:cut])


@given(
    st.sampled_from(places(RECORD)), JSON, st.sampled_from([-1, 10**30, math.nan, math.inf, "\ud800", [[]], {"x": 1}])
)
def test_one_value_changed_is_read_or_refused(path: tuple[Any, ...], new: object, impossible: object) -> None:
    record = changed(RECORD, path, new)
    for source in (record, json.dumps(record)):
        try:
            read = load(source, "x")
        except Unreadable as error:
            sentence(error)
        else:  # it can be told again, and as JSON
            assert not read.running and dump(load(dump(read), "x")) == dump(read) == dump(read).encode().decode()
    refused(changed(RECORD, path, impossible))
    refused(json.dumps(changed(RECORD, path, impossible)))


def test_a_missing_or_unknown_entry_and_deep_nesting_are_refused() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for path, value in (((), RECORD), *((("lanes", i), RECORD["lanes"][i]) for i in (0, 1))):
        refused(changed(RECORD, path, value | {"unknown": 1}))
        for key in value:
            refused(changed(RECORD, path, {name: part for name, part in value.items() if name != key}))
            refused(changed(RECORD, (*path, key), deep))
    refused(changed(RECORD, ("lanes", 1, "rows", 1, "d"), deep))


def test_damaged_files_say_what_is_wrong() -> None:
    def spoilt(new: str, old: str = '"s": [0.05, 0]') -> str:
        assert old in WRITTEN
        return WRITTEN.replace(old, new)

    version, millions = '"greenlight_trace": 1', "x" * 10_000_000
    for why, files in {
        "cut off": ["", "[" * 100_000, '{"greenlight_trace": ' * 100_000, millions],
        "no JSON": [spoilt('"x": NaN, "lanes"', '"lanes"'), spoilt('"s": [NaN, 0]'), spoilt('"s": [Infinity, 0]'),
                    spoilt(f'"s": [{"9" * 10_000}, 0]')],
        "damaged": [spoilt('"s": [1e999, 0]'), spoilt(f'"s": [{"9" * 400}, 0]'), spoilt('"\\ud800"', '"hi"'),
                    spoilt('"yesterday"', '"2026-01-31"'), f'{{{version}, "user": "{millions}"}}'],
        "not a reply or race saved by Greenlight": ['{"greenlight_chat": 1}', '"greenlight_trace"'],
        "another version": [spoilt('"greenlight_trace": 2', version), spoilt('"greenlight_trace": true', version), '{"greenlight_trace": 99}'],
        text("trace.long", "en", limit=20): [" " * (trace_file.MAX_CHARS + 1)],
    }.items():  # fmt: skip
        for written in files:
            assert why in refused(written)
    assert {key for key in TEXT if key.startswith("trace.")} == {
        f"trace.{why}" for why in ("foreign", "version", "long", "broken", "lanes", "damaged", "missing")
    }


def test_only_one_reply_or_a_race_of_two_is_read() -> None:
    lane = RECORD["lanes"][0]
    names: list[list[Any]] = [
        *map(str.split, ("", "plain", "speculative", "plain plain", "plain reply", "reply reply", "plain speculative reply",
                         "plain speculative plain", "other")), [None], [[]], [{}],
    ]  # fmt: skip
    wrong: list[object] = [None, {}, "plain", [1], [[], []], ["plain", "speculative"]]
    for lanes in (*wrong, *([lane | {"name": name} for name in some] for some in names)):
        assert "one reply, or a race of two" in refused(RECORD | {"lanes": lanes})


# -- those that come with the app --------------------------------------------------------------------------------------


@pytest.mark.skipif(not (ASSETS / "traces").exists(), reason="this copy came without recordings")
def test_what_is_shipped_is_a_finished_race_with_a_title_and_what_is_not_says_so() -> None:
    for name in SHIPPED:
        shipped = load_shipped(name, "mine")
        assert shipped.id == "mine" and all(shipped.title) and shipped.date and not shipped.running
        assert [lane.name for lane in shipped.lanes] == ["plain", "speculative"]
        assert all(lane.about is not None and lane.reply.text for lane in shipped.lanes)
    for name in ("", "../examples", "chat/../chat", "nothing"):
        with pytest.raises(Unreadable) as caught:
            load_shipped(name, "x")
        assert "did not come with" in sentence(caught.value)
