"""The web page of a recording: one file that asks for nothing, in one language, with all of the text and nothing that
runs."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import DecodingParams, Detail, SamplingParams
from engine.events import Finished, FinishReason, Prefilled
from tests.fake_engine import DEFAULT_TEXT, Script, play
from tests.ui.samples import BIG_LIST, GUESSING, NAUGHTY, PLAIN, race, recordings
from ui.html.render import show_blanks
from ui.inspect.explain import number
from ui.race import page_export
from ui.race.page_export import page
from ui.recording.recordings import Lane, LaneName, Recording
from ui.state import LOST_KINDS, About, Reply, advance
from ui.strings import LANGS, Lang, text

ABOUT = About("FakeLM-1M", "GGUF Q4_1", "test kernel", "cpu", True, 8192, ("none", "ngram"), GUESSING)

VOID = {"meta"}

HOSTILE = (
    *NAUGHTY, "</style><script>alert(1)</script>", "</title><script>", "</bdi></main>", "-->", "<![CDATA[", "\u202e\u2066gnp.exe",
    '" onmouseover="alert(1)', "' style='position:fixed", "&#x3c;script>", "<span class=\"en\" "
                                                                           "lang=\"en\">x</span>", "é̈", "\ufeff",
)  # fmt: skip


class Tree(HTMLParser):
    """Checks that elements are closed as they were opened, and collects what is in them."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text: dict[str, str] = {}
        self.lanes: list[str] = []
        self.declarations: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == [], self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if dict(attrs).get("class") == "said reply":
            self.lanes.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        place = self.open[-1] if self.open else ""
        self.text[place] = self.text.get(place, "") + data
        if self.lanes and self.open[-1:] in (["span"], ["s"], ["p"]):
            self.lanes[-1] += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError("a comment")

    def handle_decl(self, decl: str) -> None:
        self.declarations.append(decl)


TAGS = {"html", "head", "meta", "title", "style", "body", "main", "header", "h1", "h2", "p", "bdi", "b", "section", "ul", "li", "span", "s",
        "small", "table", "caption", "thead", "tbody", "tr", "th", "td", "footer"}  # fmt: skip
NAMES = {
    "lang",
    "charset",
    "http-equiv",
    "content",
    "name",
    "class",
    "dir",
    "title",
    "scope",
    "aria-label",
    "data-i",
    "style",
}


def check(html: str) -> Tree:
    """That it is one well-formed page of ours that asks for nothing."""
    tree = Tree(html)
    assert tree.declarations == ["DOCTYPE html"]
    assert set(tree.tags) <= TAGS and {name for name, _ in tree.attributes} <= NAMES
    assert [tree.tags.count(tag) for tag in ("html", "head", "body", "main", "title", "style")] == [1] * 6
    assert all(re.fullmatch(r"--p:\d\.\d\d", value) for name, value in tree.attributes if name == "style")
    assert not re.search(r"url\(|@import|https?:|//[a-z]", tree.text["style"])
    assert ("content", page_export.POLICY) in tree.attributes
    return tree


def hostile(payload: str) -> Recording:
    """A race of nothing but that text."""
    params = DecodingParams(drafter="ngram", num_speculative_tokens=3, detail=Detail.PROBS)
    script = Script(pieces=[payload] * 9, wrong=(payload,), reason=FinishReason.ERROR, message=payload)
    about = replace(ABOUT, target=payload, weights=payload, kernel=payload)
    lanes = tuple(
        Lane(name, about, advance(Reply(), play(script, made)))
        for name, made in ((LaneName.PLAIN, PLAIN), (LaneName.SPECULATIVE, params))
    )
    return Recording("r", payload, lanes, payload, payload, (payload, payload))


@pytest.mark.parametrize("payload", [*HOSTILE, *BIG_LIST[::5]])
@pytest.mark.parametrize("lang", LANGS)
def test_hostile_text_stays_text(payload: str, lang: Lang) -> None:
    tree = check(page(hostile(payload), lang))
    words = " ".join(tree.text["title"].split())
    assert words.endswith("Greenlight") and " ".join(payload.split())[:40].strip("\x00") in words.replace("\x00", "")
    shown = tree.lanes[0].replace("\ufffd", "\x00")
    assert payload.replace("\r\n", "\n").replace("\r", "\n") in shown.replace("\r\n", "\n").replace("\r", "\n")


@given(recordings(), st.sampled_from(LANGS))
@settings(max_examples=60, deadline=None)
def test_whatever_a_file_may_hold_is_a_page(recording: Recording, lang: Lang) -> None:
    check(page(recording, lang))


@pytest.mark.parametrize("lang", LANGS)
def test_the_lanes_are_there_word_for_word(lang: Lang) -> None:
    recording = race()
    tree = check(page(recording, lang))
    assert tree.lanes[0].startswith(DEFAULT_TEXT)
    html = page(recording, lang)
    assert html.index(text("save.plain", lang)) < html.rindex(text("save.speculative", lang))
    for lane in recording.lanes:
        for block in lane.reply.blocks:
            for piece in block.pieces:
                assert (show_blanks(piece.text) if piece.kind in LOST_KINDS else piece.text) in unescape(html)


def test_only_one_language_is_in_it() -> None:
    english, chinese = (re.sub(r"<style>.*?</style>", "", page(race(), lang), flags=re.DOTALL) for lang in LANGS)
    assert not re.search("[\u4e00-\u9fff]", re.sub(r'aria-label=".*?"', "", english))
    assert 'lang="zh"' not in english and 'lang="en"' not in chinese
    assert "猜中了，白赚的" in chinese and "guessed right, free" in english and "guessed right, free" not in chinese
    assert '<html lang="zh">' in chinese and '<html lang="en">' in english


@pytest.mark.parametrize("lang", LANGS)
def test_each_token_says_what_it_is(lang: Lang) -> None:
    params = replace(GUESSING, detail=Detail.PROBS, probe_every=0)
    reply = advance(Reply(), play(Script("one two three four five"), params))
    html = page(Recording("r", "hi", (Lane(LaneName.REPLY, None, reply),)), lang)
    titles = re.findall(r'<\w+ title="(.*?)" class="t', html)
    pieces = [(block, piece) for block in reply.blocks for piece in block.pieces]
    assert len(titles) == len(pieces)
    for title, (block, piece) in zip(titles, pieces, strict=True):
        kind = "first" if isinstance(block.event, Prefilled) else piece.kind.value
        assert text(f"card.kind.{kind}", lang) in unescape(title)
        if piece.prob is not None:
            assert number(piece.prob) in unescape(title)


def test_it_has_title_date_prompt_legend_figures_and_settings() -> None:
    recording = replace(race(), title=("Foxes", "狐狸"), system="be brief", user="tell me\nof foxes", date="2026-01-31")
    lanes = tuple(replace(lane, about=ABOUT) for lane in recording.lanes)
    html = page(replace(recording, lanes=lanes), "en")
    for part in ("<h1><bdi>Foxes</bdi></h1>", "Recorded 2026-01-31", "be brief", "tell me\nof "
                                                                                 "foxes", "never checked, behind a "
                                                                                          "wrong guess",
                 "counted after the first "
                 "token", "Same text: yes", "FakeLM-1M (GGUF Q4_1)", "test kernel", "bit-exact", "temperature 0",
                 "K 3", "seed 7", "Point at a word"):  # fmt: skip
        assert part in unescape(html), part
    assert "race-again" not in html and "<button" not in html and "<script" not in html
    assert "<h1><bdi>狐狸</bdi></h1>" in page(recording, "zh")
    assert "<h1><bdi>tell me of foxes</bdi></h1>" in page(replace(recording, title=("", "")), "en")


def test_a_long_prompt_is_cut_for_the_title_only() -> None:
    recording = replace(race(), user="word " * 1000)
    tree = check(page(recording, "en"))
    assert len(tree.text["title"]) < 120 and ("word " * 1000) in page(recording, "en")


def test_how_a_reply_ended_is_said() -> None:
    for reason, words in (
        (FinishReason.CANCELLED, "stopped"),
        (FinishReason.ERROR, "ended by an error: it &lt;broke&gt;"),
    ):
        reply = advance(Reply(), [Finished(reason, "", (), "it <broke>")])
        html = page(Recording("r", "hi", (Lane(LaneName.REPLY, None, reply),)), "en")
        assert words in html and "Nothing was written." in html


def test_light_and_dark_follow_the_reader() -> None:
    style = page_export.style()
    assert style.count("@media (prefers-color-scheme: dark) { :root {") == 1 and not re.search(
        r"^\.dark", style, re.MULTILINE
    )
    dark = style[style.index("prefers-color-scheme: dark") :]
    assert "--gl-text: #e7ebe9" in dark[: dark.index("} }")] and style.count("{") == style.count("}")
    for colour in re.findall(r"var\((--gl-[\w-]+)\)", style):
        assert f"{colour}:" in style, colour


def test_pages_of_different_settings_say_so() -> None:
    warm = replace(ABOUT, params=replace(GUESSING, sampling=SamplingParams(temperature=0.7)))
    lanes = (race().lanes[0], replace(race().lanes[1], about=warm))
    assert "temperature 0.7" in page(replace(race(), lanes=lanes), "en")
