"""A chat as a file, of which nothing is lost, and a recording as a web page: one file that asks for nothing, in one
language, with all of the text and nothing that runs."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from html import unescape
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.config import DecodingParams, Detail, SamplingParams
from engine.events import Finished, FinishReason, Prefilled
from engine.stats import Summary
from tests.fake_engine import DEFAULT_TEXT, Script, play
from tests.ui.samples import (
    BIG_LIST,
    GREEDY,
    GUESSING,
    ID,
    NAUGHTY,
    PLAIN,
    conversations,
    few,
    race,
    record,
    recording,
    recordings,
)
from ui.html.render import show_blanks
from ui.inspect.explain import number
from ui.race import page_export
from ui.race.page_export import page
from ui.recording import export, saved
from ui.recording.recordings import LaneName, Recording
from ui.state import LOST_KINDS, Conversation, begin, progress
from ui.strings import LANGS, Lang, text

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


FILE_NAMES = {
    "狐狸：是什么？": "狐狸：是什么？", "a/b\\c:d*e?f\"g<h>i|j": "a b c d e f g h i j", "..": "Greenlight", "": "Greenlight", "CON": "CON chat",
    "nul.txt": "nul txt", "  . spaced .  ": "spaced", "tab\tand\nline\u202egnp": "tab and line gnp", "x" * 500: "x" * 60, "e\u0301": "é",
}  # fmt: skip


@given(st.text())
@example("...")
def test_a_name_that_every_system_takes(title: str) -> None:
    assert {title: export.file_name(title) for title in FILE_NAMES} == FILE_NAMES
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


ABOUT = replace(GREEDY, target="FakeLM-1M", weights="GGUF Q4_1", kernel="test kernel", params=GUESSING)

HOSTILE = (
    *NAUGHTY, "</style><script>alert(1)</script>", "</title><script>", "</bdi></main>", "-->", "<![CDATA[", "\u202e\u2066gnp.exe",
    "' style='position:fixed", '<span class="en" lang="en">x</span>', "é̈", "\ufeff",
)  # fmt: skip

TAGS = """html head meta title style body main header h1 h2 p bdi b section ul li span s small table caption thead tbody tr th td
footer"""
NAMES = "lang charset http-equiv content name class dir title scope aria-label data-i style"


class Tree(HTMLParser):
    """One well-formed page of ours that asks for nothing; collects what is in its elements."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text: dict[str, str] = {}
        self.lanes: list[str] = []
        self.feed(html)
        self.close()
        assert html.startswith("<!DOCTYPE html>") and self.open == []
        assert set(self.tags) <= set(TAGS.split()) and {name for name, _ in self.attributes} <= set(NAMES.split())
        assert all(self.tags.count(tag) == 1 for tag in ("html", "head", "body", "main", "title", "style"))
        assert all(re.fullmatch(r"--p:\d\.\d\d", value) for name, value in self.attributes if name == "style")
        assert not re.search(r"url\(|@import|https?:|//[a-z]", self.text["style"])
        assert ("content", page_export.POLICY) in self.attributes

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if ("class", "said reply") in attrs:
            self.lanes.append("")
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        place = self.open[-1] if self.open else ""
        self.text[place] = self.text.get(place, "") + data
        if self.lanes and place in ("span", "s", "p"):
            self.lanes[-1] += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError("a comment")


def hostile(payload: str) -> Recording:
    """A race of nothing but that text."""
    script = Script(pieces=[payload] * 9, wrong=(payload,), reason=FinishReason.ERROR, message=payload)
    guessed = replace(GUESSING, detail=Detail.PROBS)
    lanes = {LaneName.PLAIN: play(script, PLAIN), LaneName.SPECULATIVE: play(script, guessed)}
    made = recording(lanes, replace(ABOUT, target=payload, weights=payload, kernel=payload), payload)
    return replace(made, system=payload, date=payload, title=(payload, payload))


def test_hostile_text_stays_text() -> None:
    for payload in (*HOSTILE, *BIG_LIST[::5]):
        for lang in LANGS:
            tree = Tree(page(hostile(payload), lang))
            words = " ".join(tree.text["title"].split())
            assert words.endswith("Greenlight") and " ".join(payload.split())[:40].strip("\x00") in words.replace(
                "\x00", ""
            )
            shown, whole = (re.sub("\r\n?", "\n", one) for one in (tree.lanes[0].replace("\ufffd", "\x00"), payload))
            assert whole in shown


@few
@given(recordings(), st.sampled_from(LANGS))
def test_whatever_a_file_may_hold_is_a_page(made: Recording, lang: Lang) -> None:
    Tree(page(made, lang))


def test_the_lanes_are_there_word_for_word_and_each_token_says_what_it_is() -> None:
    guessed = replace(GUESSING, detail=Detail.PROBS, probe_every=0)
    made = recording({LaneName.PLAIN: play(Script(), PLAIN), LaneName.SPECULATIVE: play(Script(), guessed)})
    for lang in LANGS:
        html = page(made, lang)
        assert Tree(html).lanes[0].startswith(DEFAULT_TEXT)
        assert html.index(text("save.plain", lang)) < html.rindex(text("save.speculative", lang))
        titles = re.findall(r'<\w+ title="(.*?)" class="t', html)
        pieces = [(block, piece) for lane in made.lanes for block in lane.reply.blocks for piece in block.pieces]
        for title, (block, piece) in zip(map(unescape, titles), pieces, strict=True):
            kind = "first" if isinstance(block.event, Prefilled) else piece.kind.value
            assert text(f"card.kind.{kind}", lang) in title
            assert piece.prob is None or number(piece.prob) in title
            assert (show_blanks(piece.text) if piece.kind in LOST_KINDS else piece.text) in unescape(html)


def test_only_one_language_is_in_it() -> None:
    english, chinese = (re.sub(r"<style>.*?</style>", "", page(race(), lang), flags=re.DOTALL) for lang in LANGS)
    assert not re.search("[\u4e00-\u9fff]", re.sub(r'aria-label=".*?"', "", english))
    assert 'lang="zh"' not in english and 'lang="en"' not in chinese
    assert "猜中了，白赚的" in chinese and "guessed right, free" in english and "guessed right, free" not in chinese


def test_it_has_title_date_prompt_legend_figures_and_settings() -> None:
    warm = replace(ABOUT, params=replace(GUESSING, sampling=SamplingParams(temperature=0.7)))
    made = replace(race(), title=("Foxes", "狐狸"), system="be brief", user="tell me\nof foxes " + "word " * 99, date="2026-01-31")  # fmt: skip
    plain, guessed = made.lanes
    made = replace(made, lanes=(replace(plain, about=ABOUT), replace(guessed, about=warm)))
    html = unescape(page(made, "en"))
    parts = """<h1><bdi>Foxes</bdi></h1>|Recorded 2026-01-31|be brief|never checked, behind a wrong guess|counted after the first token|
Same text: yes|FakeLM-1M (GGUF Q4_1)|test kernel|bit-exact|temperature 0|temperature 0.7|K 3|seed 7|Point at a word"""
    assert [part for part in (*parts.replace("\n", "").split("|"), made.user) if part not in html] == []
    assert "race-again" not in html and "<h1><bdi>狐狸</bdi></h1>" in page(made, "zh")
    untitled = page(replace(made, title=("", "")), "en")
    assert "<h1><bdi>tell me of foxes" in untitled and len(Tree(untitled).text["title"]) < 120, "cut for the title only"
    for reason, words in (
        (FinishReason.CANCELLED, "stopped"),
        (FinishReason.ERROR, "ended by an error: it &lt;broke&gt;"),
    ):
        html = page(recording({LaneName.REPLY: [Finished(reason, "", (), "it <broke>")]}), "en")
        assert words in html and "Nothing was written." in html
