"""A reply for clean reading: Markdown as safe HTML, in pieces of which all but the last stay as they are while it
grows.

Whatever the model writes, all of it can be read: if the parser should lose a letter, the piece is shown as plain text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from html import escape
from typing import Any

from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from ui.html.highlight import highlight
from ui.html.markdown import MAX_NESTING, parser
from ui.html.render import copy_button, named

MAX_CHUNK = 60_000
"""Characters. A longer piece is shown as plain text."""

MAX_CACHED = 8_000
"""Characters. Longer pieces are rendered each time that they are asked for, rather than kept."""

_FENCE = re.compile(r"( {0,3}(?:(?:[-+*]|\d{1,9}[.)])[ \t]+)*)(?:(`{3,})[^`\n]*|(~{3,})[^\n]*)$")
_ITEM = re.compile(r" {0,3}(?:[-+*]|\d{1,9}[.)])(?:[ \t\r]|$)")
_MAY_BE_ITEM = re.compile(r"\d{1,9}$")
_BLANK = " \t\r\n"


def answer(source: str, start: int) -> dict[str, Any]:
    """What the page lacks of a reply: `chunks`, the HTML of the pieces from index `from` on, and how many there are."""
    pieces = chunks(source)
    start = max(0, min(start, len(pieces)))
    return {"from": start, "chunks": [render(piece) for piece in pieces[start:]], "total": len(pieces)}


def chunks(source: str) -> tuple[str, ...]:
    """`source` cut at blank lines between top-level blocks; lists, fences and tables stay whole. Joined, they are
    `source`.

    Only where it is sure: however the text goes on, all chunks but the last stay as they are. A cut needs a line that
    is not blank, not indented and, behind a list, no item of it; a last line that may yet become one is left with the
    list.
    """
    cuts, start, position = [0], 0, 0
    fence, listed, blank = "", False, False
    lines = source.split("\n")
    for i, line in enumerate(lines):
        whole = i < len(lines) - 1
        if not line.strip(_BLANK):
            blank = True
        else:
            goes_on = listed and (_ITEM.match(line) or (not whole and _MAY_BE_ITEM.match(line)))
            if blank and not fence and line[0] not in " \t" and not goes_on and source[start:position].strip(_BLANK):
                cuts.append(position)
                start, listed = position, False
            if not fence:
                listed = listed or bool(_ITEM.match(line))
            fence, blank = _fence_after(line.rstrip("\r"), fence), False
        position += len(line) + 1
    return tuple(source[a:b] for a, b in zip(cuts, [*cuts[1:], len(source)], strict=True)) if source else ()


def _fence_after(line: str, fence: str) -> str:
    """The indentation and marks of the code fence that is open behind `line`; "" for none. fence: before it."""
    if not fence:
        match = _FENCE.match(line)
        return " " * len(match[1]) + (match[2] or match[3]) if match else ""
    marks, text = fence.lstrip(" "), line.strip(" \t")
    indent = len(line) - len(line.lstrip(" \t"))
    closes = set(text) == {marks[0]} and len(text) >= len(marks) and indent <= len(fence) - len(marks) + 3
    return "" if closes else fence


def render(chunk: str) -> str:
    """Safe HTML of one chunk. Elements and attributes are those of `Page`, and text is escaped."""
    return _render_cached(chunk) if len(chunk) <= MAX_CACHED else _render_anew(chunk)


def _render_anew(chunk: str) -> str:
    if len(chunk) > MAX_CHUNK:
        return _plain(chunk)
    tokens = _MARKDOWN.parse(chunk)
    too_deep = any(token.level >= MAX_NESTING - 1 for token in tokens)
    if too_deep or _letters(_texts_of(tokens)) != _letters([chunk]):
        return _plain(chunk)
    return str(_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {}))


_render_cached = lru_cache(maxsize=1024)(_render_anew)


def _plain(chunk: str) -> str:
    return f"<p>{escape(chunk.strip(_BLANK), quote=False)}</p>" if chunk.strip(_BLANK) else ""


def _texts_of(tokens: Sequence[Token]) -> Iterable[str]:
    """What tokens show, in order, with the addresses of links."""
    for token in tokens:
        if token.type == "inline":
            yield from _texts_of(token.children or [])
        else:
            yield token.info if token.block else ""
            yield token.content


def _letters(parts: Iterable[str]) -> str:
    """All but white space and what may be markup."""
    text = "".join(parts).replace("\0", "\ufffd")
    return "".join(char for char in text if char.isalnum() or (char > "\x7f" and not char.isspace()))


class Page(RendererHTML):
    """Tokens -> the elements that the style sheet knows."""

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Code with the name of its language, as it was written, and a button that copies it."""
        info = tokens[idx].info.strip()
        code = highlight(tokens[idx].content.removesuffix("\n"), info.split()[0] if info else "")
        name = f'<span class="language">{escape(info)}</span>' if info else ""
        return (
            f'<div class="code"><div class="code-bar">{name}{_COPY}</div>'
            f'<pre tabindex="0" role="group" aria-label="{named("prose.code")}" dir="ltr"><code>{code}</code></pre>'
            "</div>"
        )

    code_block = fence

    def softbreak(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return "\n"  # white space is shown as it is written

    hardbreak = softbreak

    def paragraph_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return '<p class="tight">' if tokens[idx].hidden else "<p>"

    def paragraph_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return "</p>"

    def heading_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return f"<{_below(tokens[idx])}>"

    def heading_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return f"</{_below(tokens[idx])}>"

    def list_item_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Numbers as they were written, also where they leave some out."""
        return f'<li value="{int(tokens[idx].info)}">' if tokens[idx].info else "<li>"

    def table_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return f'<div class="table" tabindex="0" role="region" aria-label="{named("prose.table")}"><table>'

    def table_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return "</table></div>"

    def td_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        side = str(tokens[idx].attrs.get("style", "")).removeprefix("text-align:")
        return f"<{tokens[idx].tag}" + (f' class="{side}">' if side else ">")

    th_open = td_open

    def link_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        token = tokens[idx]
        attrs = {"href": token.attrs["href"], "title": token.attrs.get("title", "")}
        attributes = "".join(f' {name}="{escape(str(value))}"' for name, value in attrs.items() if value)
        return f'<a{attributes} rel="noopener noreferrer nofollow" target="_blank">{escape(token.content)}'


def _below(token: Token) -> str:
    """The page's own headings end at level 3."""
    return f"h{min(6, int(token.tag[1]) + 3)}"


_COPY = copy_button("copy-code")
_MARKDOWN = parser(Page)
