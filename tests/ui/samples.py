"""What tests of the page share: strings that try to be markup, readers of HTML, made-up replies, and how a handler is
run."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st

from engine.config import DecodingParams, Detail, Rule, SamplingParams
from engine.events import Event, Prefilling, Round
from tests.engine.test_trace import replies
from tests.fake_engine import Script, play
from ui import jobs
from ui.chat import handlers as chat
from ui.controls import TABLE
from ui.race import handlers as races
from ui.recording import saved
from ui.recording.recordings import Lane, LaneName, Recording
from ui.state import About, Conversation, Reply, advance, begin, progress
from ui.strings import LANGS, Lang

NAUGHTY = (
    "<img src=x "
    "onerror=alert(1)>", "${alert(1)}", "{{value}}", "{{#each value}}", "`${1+1}`", "</span><script>alert(1)</script>",
    "&lt;b&gt;", "\"' onmouseover='alert(1)", "javascript:alert(1)", "\\u003cscript\\u003e", "<!--", "]]>", "\x00<b>", "@children",
)  # fmt: skip

DATA = Path(__file__).parents[1] / "data"
BIG_LIST: list[str] = json.loads((DATA / "naughty.json").read_text(encoding="utf-8"))["strings"]

few = settings(max_examples=30)
"""For what takes long to draw or to try."""

# -- HTML --------------------------------------------------------------------------------------------------------------

TAGS = (
    "a|article|b|bdi|br|button|caption|circle|code|col|colgroup|div|h[34]|li|ol|p|path|rect|s|section|small|span|svg|"
    "table|tbody|td|th|thead|tr|ul"
)
ATTRIBUTES = (
    r"aria-\w+|class|colspan|cx|cy|d|data-\w+|dir|disabled|height|href|lang|r|role|rx|scope|style|tabindex|type|"
    r"viewbox|width|x|y"
)


class Reader(HTMLParser):
    """Collects the elements and the text."""

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

    @property
    def harmless(self) -> bool:
        """Whether it is made of nothing but what the page is made of; whose text was kept is for the test to say."""
        known = [
            *(re.fullmatch(TAGS, tag) for tag in self.tags),
            *(re.fullmatch(ATTRIBUTES, a) for a in self.attributes),
        ]
        return all(known) and not self.leads_away


def said(html: str, lang: Lang = "en") -> str:
    """What a person reads in one language."""
    other = "zh" if lang == "en" else "en"
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", re.sub(rf'<span class="{other}".*?</span>', "", html))).split())


def bilingual(html: str) -> bool:
    """Whether there is as much in English as in Chinese."""
    english, chinese = (html.count(f'<span class="{lang}" lang="{lang}">') for lang in LANGS)
    return english == chinese > 1 and bool(re.search("[\u4e00-\u9fff]", said(html, "zh")))


def cells(html: str) -> list[list[str]]:
    """A table's rows in English, cell by cell."""
    return [[*map(said, re.findall("(?s)<t[hd].*?</t[hd]>", row))] for row in re.findall("(?s)<tr.*?</tr>", html)]


# -- replies -----------------------------------------------------------------------------------------------------------

GREEDY = About("m", "w", "k", "cpu", True, 99, ("ngram",), DecodingParams())
WARM = replace(GREEDY, params=DecodingParams(sampling=SamplingParams(temperature=0.8)))
GUESSING = DecodingParams(drafter="ngram", num_speculative_tokens=3)
PLAIN = DecodingParams(drafter="none", num_speculative_tokens=0, probe_every=0)
ID = "k73hGPRuHNFx-urrhDmt_apb"

texts = st.lists(st.text(max_size=6), min_size=1, max_size=60)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
samplings = st.builds(
    SamplingParams,
    temperature=st.floats(0, 5),
    top_k=st.integers(0, 1000),
    top_p=st.floats(0.01, 1),
    logit_bias=st.lists(st.tuples(st.integers(0, 10_000_000), st.floats(-100, 100)), max_size=3).map(tuple),
    seed=st.none() | st.integers(0, 2**63 - 1),
)
decodings = st.builds(
    DecodingParams,
    sampling=samplings,
    drafter=st.sampled_from(["ngram", "none", "both"]),
    num_speculative_tokens=st.none() | st.integers(0, 8),
    rule=st.sampled_from(Rule),
    max_new_tokens=st.integers(1, 80),
    stop=st.lists(st.text(min_size=1, max_size=5), max_size=2).map(tuple),
    probe_every=st.integers(0, 5),
    detail=st.sampled_from([Detail.OFF, Detail.PROBS]),
)
abouts = st.builds(
    About, words, words, words, words, st.booleans(), st.integers(1, 2**31 - 1), st.lists(words, max_size=3).map(tuple),
    decodings, words,
)  # fmt: skip
dates = st.just("") | st.dates().map(str) | st.datetimes().map(lambda at: at.isoformat(timespec="seconds"))


def rounds_of(events: Sequence[Event]) -> list[Round]:
    return [event for event in events if isinstance(event, Round)]


def recording(lanes: Mapping[LaneName, Sequence[Event]], about: About | None = None, user: str = "hi") -> Recording:
    return Recording("r1", user, tuple(Lane(name, about, advance(Reply(), lanes[name])) for name in lanes))


def race(script: Script | None = None, recording_id: str = "r1") -> Recording:
    """A finished race of a scripted reply."""
    plain, guessed = (play(script or Script(), params) for params in (PLAIN, replace(GUESSING, probe_every=0)))
    made = recording({LaneName.PLAIN: plain, LaneName.SPECULATIVE: guessed})
    return replace(made, id=recording_id, date="2026-01-02")


def written(tokens: int, k: int | None = 3, drafter: str = "both", detail: Detail = Detail.FULL) -> list[Event]:
    """A reply of so many tokens, with everything that is recorded."""
    params = DecodingParams(SamplingParams(), drafter, k, max_new_tokens=tokens, probe_every=0, detail=detail)
    return play(Script(text=" w" * tokens), params)


def raced(tokens: int) -> Recording:
    """The same for both lanes of a race."""
    return recording({LaneName.PLAIN: written(tokens, 0), LaneName.SPECULATIVE: written(tokens)})


@st.composite
def recordings(draw: st.DrawFn) -> Recording:
    """Any recording: one reply or a race, each lane whole or broken off anywhere."""
    lanes = []
    for name in draw(st.sampled_from([(LaneName.REPLY,), (LaneName.PLAIN, LaneName.SPECULATIVE)])):
        events = [event for event in draw(replies()) if not isinstance(event, Prefilling)]  # these leave no block
        lanes.append(Lane(name, draw(st.none() | abouts), advance(Reply(), events)))
    return Recording("r1", draw(words), tuple(lanes), draw(words), draw(dates), (draw(words), draw(words)))


@st.composite
def conversations(draw: st.DrawFn, level: Detail = Detail.OFF) -> Conversation:
    """Several turns, some written again in place of others, so that keys have gaps."""
    made = Conversation(ID)
    for _ in range(draw(st.integers(0, 4))):
        key, keep, about = made.next_key, draw(st.none() | st.integers(0, len(made.turns))), draw(st.none() | abouts)
        made = begin(made, draw(words), keep, about)
        script = Script(pieces=draw(st.lists(words, min_size=1, max_size=30)))
        params = replace(about.params if about else DecodingParams(drafter="ngram"), detail=level)
        made = progress(made, key, play(script, params))
    return made


# -- JSON --------------------------------------------------------------------------------------------------------------

LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)


def record(made: Conversation, **more: object) -> dict[str, Any]:
    """As the page makes it of what it was sent, and as it comes back: through JSON."""
    turns = [saved.turn_json(turn) for turn in made.turns]
    kept = {"greenlight_chat": saved.FORMAT, "id": made.id, "title": "t", "at": 1.7e12, "named": False, "turns": turns}
    return dict(json.loads(json.dumps(kept | more)))


def places(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    inner = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    return [path, *(place for key, part in inner for place in places(part, (*path, key)))]


def changed(value: Any, path: Sequence[Any], new: object) -> Any:
    if not path:
        return new
    head, *rest = path
    copy = value.copy()
    copy[head] = changed(value[head], rest, new) if rest else new
    return copy


# -- handlers ----------------------------------------------------------------------------------------------------------


class Blocks(dict[object, list[Any]]):
    """What has arrived of each reply, by its key: as assets/page/ puts patches together."""

    def take(self, parts: Sequence[Mapping[str, Any]], key: str) -> bool:
        """Whether nothing is missing before these."""
        whole = True
        for part in parts:
            have = self.setdefault(part[key], [])
            whole = whole and part["from"] <= len(have)
            have += part["blocks"][len(have) - part["from"] :] if part["from"] <= len(have) else []
        return whole


def with_values(**chosen: object) -> list[object]:
    """What the page sends of its settings."""
    return [chosen.get(control.name, control.default) for control in TABLE]


VALUES = with_values()


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 60))


async def everything(patches: AsyncGenerator[dict[str, Any], None]) -> list[dict[str, Any]]:
    return [patch async for patch in patches]


async def begun(patches: AsyncGenerator[dict[str, Any], None], act: Callable[[], object]) -> list[dict[str, Any]]:
    """All that a handler tells the page, where something is done once the first of it has come."""
    first = await anext(patches)
    act()
    return [first, *await everything(patches)]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pace is for eyes; where this is imported nobody looks."""
    monkeypatch.setattr(jobs, "UPDATE_S", 0.002)
    for module in (chat, races):
        monkeypatch.setattr(module, "GLANCE_S", 0.001)
