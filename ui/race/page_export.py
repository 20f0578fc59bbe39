"""A recording as one web page that needs nothing else: no script, no network, light and dark by the reader's own
setting. Pure.

Styles are the app's own (assets/style), put into the page; only one of the two languages is in it. All text of people
and models is escaped, and the page forbids scripts and every address to whatever opens it.
"""

from __future__ import annotations

import re
from functools import cache
from html import escape

from engine import Prefilled, Round
from ui.examples import ASSETS
from ui.html import render
from ui.inspect.explain import number
from ui.race import verdict
from ui.recording import export
from ui.recording.recordings import Lane, LaneName, Recording
from ui.state import Block, Piece, Turn
from ui.strings import LANGS, Lang, text

STYLES = ("colours", "tokens", "verdict", "page_export")
"""In assets/style."""

POLICY = "default-src 'none'; style-src 'unsafe-inline'"

MAX_TITLE = 80
"""Characters of a prompt that stands for a title."""

_EITHER = re.compile(r'<span class="(en|zh)" lang="\1">([^<]*)</span>')
"""What `render.both` makes; text of others is escaped and cannot look like it."""


def page(recording: Recording, lang: Lang) -> str:
    """The whole file: title, prompt, legend, figures, and the lanes one under the other."""
    title = _title(recording, lang)
    date = f"<p>{escape(text('save.made', lang, date=recording.date))}</p>" if recording.date else ""
    head = (
        f"<header><p>Greenlight · {escape(text('app.line', lang))}</p><h1><bdi>{escape(title)}</bdi></h1>{date}"
        "</header>"
    )
    figures = verdict.verdict(recording, again=False)
    body = _in_language(f"{head}{_prompt(recording, lang)}{render.legend()}{figures}", lang)
    lanes = "".join(_lane(recording, lane, lang) for lane in recording.lanes)
    foot = f"<footer><p>{escape(text('save.hint', lang))} {escape(text('save.how', lang))}</p></footer>"
    return (
        f'<!DOCTYPE html>\n<html lang="{lang}"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)} · Greenlight</title><style>\n{style()}</style></head>\n"
        f"<body><main>{body}{lanes}{foot}</main></body></html>\n"
    )


@cache
def style() -> str:
    """The styles as one text; the dark colours follow the reader's own setting instead of the app's switch."""
    css = "\n".join((ASSETS / "style" / f"{name}.css").read_text(encoding="utf-8") for name in STYLES)
    return re.sub(r"^\.dark (\{.*?\n\})", r"@media (prefers-color-scheme: dark) { :root \1 }", css, flags=re.M | re.S)


def _in_language(html: str, lang: Lang) -> str:
    """Only one language of what has both."""
    return _EITHER.sub(lambda match: match[2] if match[1] == lang else "", html)


def _title(recording: Recording, lang: Lang) -> str:
    """Its own, or the prompt's beginning; in one line."""
    words = " ".join((recording.title[LANGS.index(lang)] or recording.user).split())
    return words if len(words) <= MAX_TITLE else f"{words[:MAX_TITLE]}…"


def _prompt(recording: Recording, lang: Lang) -> str:
    parts = (("save.system", recording.system), ("save.prompt", recording.user))
    return "".join(
        f'<section><h2>{escape(text(key, lang))}</h2><p class="said asked" dir="auto">{escape(content)}</p></section>'
        for key, content in parts
        if content
    )


def _lane(recording: Recording, lane: Lane, lang: Lang) -> str:
    names = {LaneName.PLAIN: text("save.plain", lang), LaneName.SPECULATIVE: text("save.speculative", lang),
             LaneName.REPLY: text("save.reply", lang)}  # fmt: skip
    reply = lane.reply
    blocks = "".join(_block(block, lang) for block in reply.blocks)
    body = f'<p class="said reply" dir="auto">{blocks}</p>' if blocks else f"<p>{escape(text('save.empty', lang))}</p>"
    endings = "".join(f'<p class="ended">{escape(sentence)}</p>' for sentence in export.ending(reply, lang))
    about = " · ".join(export.provenance(Turn(1, recording.user, reply, lane.about), lang))
    return (
        f'<section class="lane {lane.name.value}"><h2>{escape(names[lane.name])}</h2>'
        f'<p class="about">{escape(about)}</p>{body}{endings}</section>'
    )


def _block(block: Block, lang: Lang) -> str:
    return "".join(_piece(block, i, lang) for i in range(len(block.pieces)))


def _piece(block: Block, i: int, lang: Lang) -> str:
    """A token as in the app, with what it is as its title."""
    html = _in_language(render.piece(block.pieces[i], i), lang)
    return html.replace(' class="t', f' title="{escape(_words(block, block.pieces[i], lang))}" class="t', 1)


def _words(block: Block, piece: Piece, lang: Lang) -> str:
    """What a token is, in which round, and how likely the model itself found it, where that is known."""
    first = isinstance(block.event, Prefilled)
    kind = text("card.kind.first" if first else f"card.kind.{piece.kind.value}", lang)
    words = text("save.token", lang, kind=kind, index=block.event.index) if isinstance(block.event, Round) else kind
    return words if piece.prob is None else text("save.token.prob", lang, token=words, prob=number(piece.prob))
