"""What tests of the page share: strings that try to be markup, readers of HTML, and made-up replies."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

from hypothesis import strategies as st

from engine.config import DecodingParams, SamplingParams
from tests.fake_engine import Script, play
from ui.recording.recordings import Lane, LaneName, Recording, extend
from ui.state import About
from ui.strings import Lang

NAUGHTY = (
    "<img src=x "
    "onerror=alert(1)>", "${alert(1)}", "{{value}}", "{{#each value}}", "`${1+1}`", "</span><script>alert(1)</script>",
    "&lt;b&gt;", "\"' onmouseover='alert(1)", "javascript:alert(1)", "\\u003cscript\\u003e", "<!--", "]]>", "\x00<b>", "@children",
)  # fmt: skip


BIG_LIST: list[str] = json.loads((Path(__file__).parents[1] / "data" / "naughty.json").read_text(encoding="utf-8"))[
    "strings"
]


class Reader(HTMLParser):
    """Collects the elements and, per class of token, the text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        self.links += [value or "" for name, value in attrs if name == "href"]

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def leads_away(self) -> bool:
        """Whether a link goes anywhere but to the page's own glossary."""
        return not all(link.startswith("?tab=learn#glossary-") for link in self.links)


GREEDY = About("m", "w", "k", "cpu", True, 99, ("ngram",), DecodingParams())


WARM = replace(GREEDY, params=DecodingParams(sampling=SamplingParams(temperature=0.8)))


def said(html: str, lang: Lang = "en") -> str:
    """What a person reads in one language."""
    other = "zh" if lang == "en" else "en"
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", re.sub(rf'<span class="{other}".*?</span>', "", html))).split())


texts = st.lists(st.text(max_size=6), min_size=1, max_size=60)


decodings = st.builds(
    DecodingParams,
    sampling=st.builds(SamplingParams, seed=st.integers(0, 9)),
    drafter=st.sampled_from(["ngram", "none"]),
    num_speculative_tokens=st.none() | st.integers(0, 8),
    probe_every=st.integers(0, 5),
    max_new_tokens=st.integers(1, 80),
)


GUESSING = DecodingParams(drafter="ngram", num_speculative_tokens=3)


PLAIN = DecodingParams(drafter="none", num_speculative_tokens=0, probe_every=0)


def race(script: Script | None = None, recording_id: str = "r1") -> Recording:
    """A finished race of a scripted reply."""
    begun = Recording(recording_id, "hi", (Lane(LaneName.PLAIN), Lane(LaneName.SPECULATIVE)), date="2026-01-02")
    begun = extend(begun, LaneName.PLAIN, play(script or Script(), PLAIN))
    return extend(begun, LaneName.SPECULATIVE, play(script or Script(), replace(GUESSING, probe_every=0)))
