"""The example prompts: three where guessing pays off, three where it hardly helps. They live in assets/examples.json."""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape
from pathlib import Path

from ui.render import both

ASSETS = Path(__file__).resolve().parent.parent / "assets"


@dataclass(frozen=True, slots=True)
class Example:
    """`good`: speculation shines here. `temperature` is set together with the prompt."""

    id: str
    good: bool
    en: str
    zh: str
    temperature: float
    prompt: str


def load(path: Path = ASSETS / "examples.json") -> tuple[Example, ...]:
    return tuple(Example(**entry) for entry in json.loads(path.read_text(encoding="utf-8")))


EXAMPLES = load()


def buttons() -> str:
    """The examples as two labelled rows of buttons; assets/page.js turns a press into an event."""
    rows = [(key, [i for i, example in enumerate(EXAMPLES) if example.good is good])
            for key, good in (("examples.good", True), ("examples.bad", False))]  # fmt: skip
    return "".join(f'<div class="row"><h3>{both(key)}</h3>{"".join(map(_button, row))}</div>' for key, row in rows)


def _button(index: int) -> str:
    example = EXAMPLES[index]
    return (
        f'<button type="button" data-example="{index}" title="{escape(example.prompt)}">'
        f'<span class="en" lang="en">{escape(example.en)}</span>'
        f'<span class="zh" lang="zh">{escape(example.zh)}</span></button>'
    )
