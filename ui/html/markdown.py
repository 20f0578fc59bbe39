"""Markdown -> tokens: CommonMark with tables and strikethrough (markdown-it-py), amended so that nothing vanishes.

CommonMark throws away what it takes for markup: entities, reference definitions, the indentation of a line, cells
beyond a table's width, a link whose address is refused. In what a model wrote these are text, and stay. No raw HTML and
no images: both are shown as what was typed.
"""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from markdown_it.common.utils import MD_TRIM_CHARS
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock, paragraph
from markdown_it.rules_block.table import escapedSplit, getLine, table
from markdown_it.rules_inline import StateInline, emphasis, escape, link, newline

MAX_NESTING = 40
"""Quotes, lists and items within each other. The parser drops what lies deeper; `prose.render` then shows plain
text."""

_ADDRESS = re.compile(r"(?:https?://|mailto:)\S+", re.IGNORECASE)
_BREAK = re.compile(r"\n([ \t]+)\Z")
_DUNDER = re.compile(r"(?<!\w)__[A-Za-z]\w*__(?!\w)", re.ASCII)
_LATIN = re.compile(r"[A-Za-z0-9]")
_CJK = re.compile(r"[\u2e80-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")


def parser(renderer: type[RendererHTML]) -> MarkdownIt:
    """A parser with its rules amended.

    Off: entities (`&lt;` was written to be read so), reference definitions, images, and underlined headings, because
    `Such as:` over the `-` of a list's first item would be a heading for as long as the item is not written.
    """
    md = MarkdownIt("commonmark", {"html": False, "maxNesting": MAX_NESTING, "xhtmlOut": False}, renderer_cls=renderer)
    md.enable(["table", "strikethrough"]).disable(["entity", "reference", "image", "lheading"])
    md.validateLink = lambda url: bool(_ADDRESS.fullmatch(url))  # type: ignore[method-assign]
    md.normalizeLinkText = lambda url: url  # type: ignore[method-assign,assignment]
    md.block.ruler.at("paragraph", _paragraph)
    md.block.ruler.at("table", _table, {"alt": ["paragraph", "reference"]})
    md.inline.ruler.at("newline", _newline)
    md.inline.ruler.at("escape", _escape)
    md.inline.ruler.at("emphasis", _emphasis)
    md.inline.ruler.at("link", _link)
    return md


def _paragraph(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """A paragraph keeps the spaces that its first line begins with."""
    line = state.getLines(start, start + 1, state.blkIndent, False)
    paragraph(state, start, end, silent)
    text = state.tokens[-2]
    text.content = line[: len(line) - len(line.lstrip(MD_TRIM_CHARS))] + text.content
    return True


def _table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Cells beyond the table's width go into the last one of their row."""
    before = len(state.tokens)
    if not table(state, start, end, silent):
        return False
    tokens = state.tokens[before:]
    width = sum(token.type == "th_open" for token in tokens)
    for i, token in enumerate(tokens):
        if token.type == "tr_close" and token.level and tokens[i - 1].type == "td_close":
            last = tokens[i - 2]
            assert last.map
            cells = escapedSplit(getLine(state, last.map[0]).strip(MD_TRIM_CHARS))
            cells = cells[cells[:1] == [""] : len(cells) - (len(cells) > 1 and cells[-1] == "")]
            last.content = " | ".join([last.content, *map(str.strip, cells[width:])])
    return True


def _newline(state: StateInline, silent: bool) -> bool:
    start = state.pos
    return newline(state, silent) and _keep_indent(state, start, silent)


def _escape(state: StateInline, silent: bool) -> bool:
    start = state.pos
    return escape(state, silent) and _keep_indent(state, start, silent)


def _keep_indent(state: StateInline, start: int, silent: bool) -> bool:
    """After a line break: the next line keeps the spaces that it begins with."""
    if not silent and (indent := _BREAK.search(state.src[start : state.pos])):
        state.pending += indent[1]
    return True


def _emphasis(state: StateInline, silent: bool) -> bool:
    """Stars between Latin letters or digits multiply (`2*3*4`), `__init__` is a name, and beside Chinese, Japanese or
    Korean, which have no spaces between words, punctuation does not keep stars from closing (`**注意：**请`)."""
    start, first = state.pos, len(state.delimiters)
    if state.src[start] not in "*_" or silent:
        return False
    if name := _DUNDER.match(state.src, start):
        state.append_pending(name[0])
        state.pos = name.end()
        return True
    emphasis.tokenize(state, silent)
    before, after = state.src[start - 1 : start], state.src[state.pos : state.pos + 1]
    for mark in state.delimiters[first:] if state.src[start] == "*" else ():
        if _LATIN.match(before) and _LATIN.match(after):
            mark.open = mark.close = False
        elif _CJK.match(before) or _CJK.match(after):
            mark.open |= bool(after.strip()) and bool(_CJK.match(before))
            mark.close |= bool(before.strip()) and bool(_CJK.match(after))
    return True


def _link(state: StateInline, silent: bool) -> bool:
    """A link tells its address, as it was written, where one points at it; one without a label is its address, and
    one without an address is text. `content` of the opening token is what it shows before its label, that of the
    closing token what it does not show."""
    start, first = state.pos, len(state.tokens)
    label_end = state.md.helpers.parseLinkLabel(state, start, True) if state.src[start] == "[" else -1
    if not link(state, silent) or silent:
        return state.pos > start
    at = next(i for i in range(first, len(state.tokens)) if state.tokens[i].type == "link_open")
    opening, closing = state.tokens[at], state.tokens[-1]
    address = state.src[label_end + 2 : state.pos - 1]
    if not opening.attrs["href"]:
        for token, content in ((opening, "["), (closing, f"]({address})")):
            token.type, token.tag, token.content, token.nesting = "text", "", content, 0
        return True
    opening.attrs["title"] = address.strip()
    if state.src[start + 1 : label_end].strip():
        closing.content = address
    else:
        opening.content = address.strip()
    return True
