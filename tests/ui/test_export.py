"""A chat as a file: nothing of it is lost in the JSON, and the Markdown says what was said, by whom and how fast."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import DecodingParams, SamplingParams
from engine.events import Finished, FinishReason
from engine.stats import Summary
from tests.fake_engine import DEFAULT_TEXT, Script, play
from tests.ui.samples import ID, conversations, record
from ui.recording import export, saved
from ui.state import About, Conversation, begin, progress
from ui.strings import LANGS


def written(
    *messages: str, params: DecodingParams | None = None, script: Script | None = None, **more: Any
) -> dict[str, Any]:
    """A record of scripted replies."""
    params = params or DecodingParams(SamplingParams(seed=7), "ngram")
    about = About("FakeLM-1M", "GGUF Q4_1", "test kernel", "cpu", True, 8192, ("none", "ngram"), params)
    made = Conversation(ID)
    for message in messages:
        made = begin(made, message, about=about)
        made = progress(made, made.turns[-1].key, play(script or Script(text=DEFAULT_TEXT * 3), params))
    return record(made, **({"title": "foxes", "at": 1_764_000_000_000} | more))


@given(conversations())
@settings(max_examples=30, deadline=None)
def test_the_json_reads_back_and_has_every_figure(made: Conversation) -> None:
    kept = record(made)
    exported = json.loads(export.json(kept))
    again = saved.conversation(exported)
    assert again == saved.conversation(kept)
    assert {name: exported[name] for name in ("id", "title", "at", "named")} == {
        "id": made.id, "title": "t", "at": 1.7e12, "named": False,
    }  # fmt: skip
    for turn, told in zip(again.turns, exported["turns"], strict=True):
        assert told["reply"] == turn.reply.text
        assert set(told["figures"]) == {field.name for field in fields(Summary)}
        assert told["figures"]["tokens"] == turn.reply.tally.tokens
    assert set(exported["figures"]) == {field.name for field in fields(Summary)}


def test_what_was_not_measured_is_null() -> None:
    plain = DecodingParams(drafter="none", num_speculative_tokens=0)
    figures = json.loads(export.json(written("hi", params=plain)))["turns"][0]["figures"]
    assert figures["alpha"] is None and figures["speedup"] is None and figures["baseline"]["tok_s"] is not None


def test_the_json_is_laid_out_for_people() -> None:
    lines = export.json(written("你好")).splitlines()
    assert any('"user": "你好"' in line for line in lines)
    events = [line for line in lines if line.strip().startswith('{"v": 1')]
    assert len(events) == len(written("你好")["turns"][0]["rows"])  # a line each


def test_the_markdown_says_all_of_a_reply() -> None:
    params = DecodingParams(SamplingParams(temperature=0.7, top_p=0.9, seed=7), "ngram")
    text = export.markdown(written("What is a fox?", "And then?", params=params), "en")
    assert text.startswith("# foxes\n\nGreenlight · 2025-11-24 16:00 UTC\n\n## You\n\nWhat is a fox?\n\n## Model\n\n")
    assert text.count((DEFAULT_TEXT * 3).rstrip()) == 2
    line = next(line for line in text.splitlines() if line.startswith("> "))
    for part in ("tokens/s", "plain 100 tokens/s", "× plain speed", "α 0.", "τ ", "· first token 50 ms "
                                                                                  "·", "FakeLM-1M", "n-gram",
                 "test kernel", "bit-exact", "temperature "
                                             "0.7", "Top-p 0.9", "K auto", "seed 7", "rejection sampling"):  # fmt: skip
        assert part in line, part
    assert "Top-k" not in line and "None" not in text
    chinese = export.markdown(written("狐狸是什么？"), "zh")
    assert "首个 token 50 ms ·" in chinese
    assert "## 你\n\n狐狸是什么？" in chinese and "温度 0" in chinese and "tokens/s" not in chinese


def test_the_markdown_says_how_a_reply_ended() -> None:
    for reason, words in ((FinishReason.ERROR, "ended by an error: boom"), (FinishReason.CANCELLED, "stopped")):
        text = export.markdown(written("hi", script=Script(reason=reason, message="boom")), "en")
        assert f"\n> {words} · " in text
    cut = export.markdown(written("hi", params=DecodingParams(drafter="ngram", max_new_tokens=5)), "en")
    assert "\n> cut off at the length limit · 5 tokens" in cut


@pytest.mark.parametrize(
    ("reply", "closed"),
    [
        ("```python\nx = 1", True), ("~~~\nx", True), ("```\nx\n```", False), ("````\n```\nx", True), ("plain", False),
        ("in `line` ``` ticks", False), ("```a `b` c", False), ("    ```\nindented", False), ("```\nx\n~~~", True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("lang", LANGS)
def test_a_code_block_left_open_does_not_take_in_the_rest(reply: str, closed: bool, lang: Any) -> None:
    script = Script(pieces=[reply], special_end=False)
    text = export.markdown(written("hi", script=script), lang)
    fence = reply[: len(reply) - len(reply.lstrip("`~"))]
    assert (f"\n{reply}\n{fence}\n\n> " in text) == closed
    assert (f"\n{reply}\n\n> " in text) != closed


def test_a_reply_without_a_word_is_told_too() -> None:
    made = progress(begin(Conversation(ID), "hi"), 1, [Finished(FinishReason.CANCELLED, "", ())])
    assert "> stopped · 0 tokens" in export.markdown(record(made), "en")
    assert json.loads(export.json(record(made)))["turns"][0]["reply"] == ""


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("foxes", "foxes"), ("狐狸：是什么？", "狐狸：是什么？"), ("a/b\\c:d*e?f\"g<h>i|j", "a b c d e f g h i j"),
        ("..", "Greenlight"), ("", "Greenlight"), ("CON", "CON chat"), ("nul.txt", "nul txt"), ("  . spaced . "
                                                                                                " ", "spaced"),
        ("tab\tand\nline\u202egnp", "tab and line gnp"), ("x" * 500, "x" * 60), ("Com1", "Com1 chat"), ("e\u0301", "é"),
    ],
)  # fmt: skip
def test_a_name_that_every_system_takes(title: str, name: str) -> None:
    assert export.file_name(title) == name


@given(st.text())
def test_any_title_makes_a_name(title: str) -> None:
    name = export.file_name(title)
    assert 0 < len(name.encode()) <= 240 and not set(name) & set('<>:"/\\|?*\n\r\0') and name.strip(" .") == name


@pytest.mark.parametrize("more", [{"title": None}, {"title": ["a"]}, {"at": "today"}, {"at": -5}, {"at": 1e300}, {"at": True},
                                  {"title": "a\ud800\nb"}, {"named": "yes"}, {"junk": {"deep": [1]}}])  # fmt: skip
def test_what_the_browser_says_beside_the_turns_is_not_believed(more: dict[str, Any]) -> None:
    for form in ("markdown", "json"):
        made = export.file(written("hi") | more, form, "en")
        assert made["text"].encode() and made["name"].encode() and "junk" not in made["text"]
    told = json.loads(made["text"])
    assert isinstance(told["title"], str) and "\n" not in told["title"] and isinstance(told["named"], bool)


def test_what_is_no_chat_is_refused() -> None:
    for value in (None, [], {}, {"greenlight_chat": 1}):
        with pytest.raises(saved.NotSaved):
            export.file(value, "json", "en")
