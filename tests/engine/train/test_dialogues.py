"""Dialogues come back as they were written; a stop costs the line it cut, and another file is one sentence."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import EngineError
from engine.train.dialogues import Dialogue, append_dialogues, read_dialogues

DIALOGUES = st.lists(st.integers(0, 50_000), min_size=2, max_size=12).flatmap(
    lambda ids: st.builds(
        Dialogue, st.just(tuple(ids)), st.integers(1, len(ids) - 1), st.none() | st.sampled_from([0.0, 0.8, 1.0])
    )
)


@given(first=st.lists(DIALOGUES, max_size=4), then=st.lists(DIALOGUES, min_size=1, max_size=4), data=st.data())
def test_what_is_appended_is_read_and_a_cut_costs_one_line(
    first: list[Dialogue], then: list[Dialogue], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("dialogues") / "some.jsonl"
    append_dialogues(path, first)
    append_dialogues(path, then)
    assert list(read_dialogues(path)) == first + then
    assert all(d.reply_len == len(d.ids[d.prompt_len :]) for d in first + then)
    whole = path.read_bytes()
    last = len(whole) - whole[:-1].rfind(b"\n") - 1
    path.write_bytes(whole[: len(whole) - data.draw(st.integers(1, last))])
    assert list(read_dialogues(path)) == (first + then)[:-1]


def test_a_gzipped_file_is_read_and_a_broken_one_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl.gz"
    packed = gzip.compress(b'{"ids":[1,2,3],"prompt_len":1,"temperature":0.8}\n' * 50)
    path.write_bytes(packed)
    assert list(read_dialogues(path)) == [Dialogue((1, 2, 3), 1, 0.8)] * 50
    broken = bytearray(packed)
    broken[len(packed) // 2] ^= 0xFF
    for made in (packed[: len(packed) // 2], b"no gzip", bytes(broken), packed[:12] + b"\xff" * 20):
        path.write_bytes(made)
        with pytest.raises(EngineError, match=r"some.jsonl.gz"):
            list(read_dialogues(path))


def test_a_line_that_is_no_dialogue_is_named(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    for line in ("nothing", "[]", "{}", '{"ids": 3, "prompt_len": 1}', '{"ids": [1, 2], "prompt_len": 2}', "",
                 '{"ids": [1, 2.5], "prompt_len": 1}', '{"ids": [1, -2], "prompt_len": 1}'):  # fmt: skip
        path.write_text('{"ids": [1, 2], "prompt_len": 1}\n' + line + "\n")
        with pytest.raises(EngineError, match=r"some.jsonl, line 2 holds no dialogue"):
            list(read_dialogues(path))
