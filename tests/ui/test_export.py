"""A chat as a file: nothing of it is lost in the JSON, and the Markdown says what was said, by whom and how fast."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.config import DecodingParams, SamplingParams
from engine.events import Finished, FinishReason
from engine.stats import Summary
from tests.fake_engine import DEFAULT_TEXT, Script, play
from tests.ui.samples import GREEDY, ID, PLAIN, conversations, few, record
from ui.recording import export, saved
from ui.state import Conversation, begin, progress
from ui.strings import LANGS

AUTO = DecodingParams(SamplingParams(seed=7), "ngram")


def written(*messages: str, params: DecodingParams = AUTO, script: Script | None = None, **more: Any) -> dict[str, Any]:
    """A record of scripted replies."""
    made = Conversation(ID)
    for message in messages:
        made = begin(made, message, about=replace(GREEDY, target="FakeLM-1M", kernel="test kernel", params=params))
        made = progress(made, made.turns[-1].key, play(script or Script(text=DEFAULT_TEXT * 3), params))
    return record(made, **({"title": "foxes", "at": 1_764_000_000_000} | more))


@few
@given(conversations())
def test_the_json_reads_back_and_has_every_figure(made: Conversation) -> None:
    kept = record(made)
    exported = json.loads(export.json(kept))
    again, names = saved.conversation(exported), {field.name for field in fields(Summary)}
    assert again == saved.conversation(kept) and set(exported["figures"]) == names
    assert [exported[name] for name in ("id", "title", "at", "named")] == [made.id, "t", 1.7e12, False]
    for turn, row in zip(again.turns, exported["turns"], strict=True):
        assert row["reply"] == turn.reply.text and set(row["figures"]) == names
        assert row["figures"]["tokens"] == turn.reply.tally.tokens
    figures = json.loads(export.json(written("hi", params=PLAIN)))["turns"][0]["figures"]
    assert figures["alpha"] is figures["speedup"] is None and figures["baseline"]["tok_s"], "null: not measured"


def test_the_markdown_says_all_of_a_reply() -> None:
    params = DecodingParams(SamplingParams(temperature=0.7, top_p=0.9, seed=7), "ngram")
    text = export.markdown(written("What is a fox?", "And then?", params=params), "en")
    assert text.startswith("# foxes\n\nGreenlight · 2025-11-24 16:00 UTC\n\n## You\n\nWhat is a fox?\n\n## Model\n\n")
    assert text.count((DEFAULT_TEXT * 3).rstrip()) == 2
    line = next(line for line in text.splitlines() if line.startswith("> "))
    parts = """tokens/s|plain 100 tokens/s|× plain speed|α 0.|τ |· first token 50 ms ·|FakeLM-1M|n-gram|test kernel|bit-exact|
temperature 0.7|Top-p 0.9|K auto|seed 7|rejection sampling"""
    assert [part for part in parts.replace("\n", "").split("|") if part not in line] == []
    assert "Top-k" not in line and "None" not in text
    chinese = export.markdown(written("狐狸是什么？"), "zh")
    assert all(part in chinese for part in ("首个 token 50 ms ·", "## 你\n\n狐狸是什么？", "温度 0"))
    for reason, words in ((FinishReason.ERROR, "ended by an error: boom"), (FinishReason.CANCELLED, "stopped")):
        assert f"\n> {words} · " in export.markdown(written("hi", script=Script(reason=reason, message="boom")), "en")
    cut = export.markdown(written("hi", params=DecodingParams(drafter="ngram", max_new_tokens=5)), "en")
    assert "\n> cut off at the length limit · 5 tokens" in cut
    empty = progress(begin(Conversation(ID), "hi"), 1, [Finished(FinishReason.CANCELLED, "", ())])
    assert "> stopped · 0 tokens" in export.markdown(record(empty), "en")


def test_a_code_block_left_open_does_not_take_in_the_rest() -> None:
    opened = ("```python\nx = 1", "~~~\nx", "````\n```\nx", "```\nx\n~~~")
    for reply in (*opened, "```\nx\n```", "plain", "in `line` ``` ticks", "```a `b` c", "    ```\nindented"):
        text = export.markdown(written("hi", script=Script(pieces=[reply], special_end=False)), "en")
        fence = f"{reply[: len(reply) - len(reply.lstrip('`~'))]}\n" if reply in opened else ""
        assert f"\n{reply}\n{fence}\n> " in text, reply


NAMES = {
    "狐狸：是什么？": "狐狸：是什么？", "a/b\\c:d*e?f\"g<h>i|j": "a b c d e f g h i j", "..": "Greenlight", "": "Greenlight", "CON": "CON chat",
    "nul.txt": "nul txt", "  . spaced .  ": "spaced", "tab\tand\nline\u202egnp": "tab and line gnp", "x" * 500: "x" * 60, "e\u0301": "é",
}  # fmt: skip


@given(st.text())
@example("...")
def test_a_name_that_every_system_takes(title: str) -> None:
    assert {title: export.file_name(title) for title in NAMES} == NAMES
    name = export.file_name(title)
    assert 0 < len(name.encode()) <= 240 and not set(name) & set('<>:"/\\|?*\n\r\0') and name.strip(" .") == name


def test_what_the_browser_says_beside_the_turns_is_not_believed() -> None:
    for more in ({"title": None}, {"title": ["a"]}, {"at": "today"}, {"at": -5}, {"at": 1e300}, {"at": True}, {"title": "a\ud800\nb"},
                 {"named": "yes"}, {"junk": {"deep": [1]}}):  # fmt: skip
        files = [export.file(written("hi") | more, form, lang) for form in ("markdown", "json") for lang in LANGS]
        for made in files:
            assert made["text"].encode() and made["name"].encode() and "junk" not in made["text"]
        read = json.loads(files[-1]["text"])
        assert isinstance(read["title"], str) and "\n" not in read["title"] and isinstance(read["named"], bool)
    nothing: tuple[object, ...] = (None, [], {}, {"greenlight_chat": 1})
    for value in nothing:
        with pytest.raises(saved.NotSaved):
            export.file(value, "json", "en")
