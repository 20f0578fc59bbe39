"""The example prompts: three where guessing pays off, three where it hardly helps. They live in
assets/examples.json."""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape
from pathlib import Path
from textwrap import shorten

from ui.html.render import both

ASSETS = Path(__file__).resolve().parent.parent / "assets"


@dataclass(frozen=True, slots=True)
class Example:
    """`good`: speculation shines here. expect: what will be seen of it. `temperature` is set together with the
    prompt."""

    id: str
    good: bool
    en: str
    zh: str
    expect_en: str
    expect_zh: str
    temperature: float
    prompt: str

    def name(self) -> str:
        """In both languages, as HTML."""
        return _bilingual(self.en, self.zh)


def load(path: Path = ASSETS / "examples.json") -> tuple[Example, ...]:
    return tuple(Example(**entry) for entry in json.loads(path.read_text(encoding="utf-8")))


EXAMPLES = load()

FIRST_WORDS = 90
"""How many characters of a prompt its card shows."""


def buttons() -> str:
    """The examples as two labelled rows of cards; the page's script turns a press into an event."""
    rows = [(key, [i for i, example in enumerate(EXAMPLES) if example.good is good])
            for key, good in (("examples.good", True), ("examples.bad", False))]  # fmt: skip
    return "".join(f'<div class="row"><h3>{both(key)}</h3>{"".join(map(_button, row))}</div>' for key, row in rows)


def _button(index: int) -> str:
    """One card: its name, how the prompt begins, what to expect."""
    example = EXAMPLES[index]
    return (
        f'<button type="button" class="example" data-example="{index}" title="{escape(example.prompt)}">'
        f"<b>{_bilingual(example.en, example.zh)}</b>"
        f'<q lang="en">{escape(shorten(example.prompt, FIRST_WORDS, placeholder=" …"))}</q>'
        f"<i>{_bilingual(example.expect_en, example.expect_zh)}</i></button>"
    )


def _bilingual(en: str, zh: str) -> str:
    return f'<span class="en" lang="en">{escape(en)}</span><span class="zh" lang="zh">{escape(zh)}</span>'
