"""The sidebar with the chats that the browser keeps: its frame, and all its words. assets/page/chats.js fills it."""

from __future__ import annotations

from ui.html.render import PENCIL, both, icon
from ui.strings import text

SIDEBAR = '<rect x="2" y="3" width="12" height="10" rx="1.5"/><path d="M6 3v10"/>'
PLUS = '<path d="M8 3v10M3 8h10"/>'
CROSS = '<path d="m4 4 8 8M12 4l-8 8"/>'
DOTS = '<path d="M3.5 8h.01M8 8h.01M12.5 8h.01"/>'
SAVE = '<path d="M8 2.5v7.5M5 7l3 3 3-3M3 13.5h10"/>'
BIN = '<path d="M2.5 4.5h11M6 4.5V3h4v1.5M4 4.5l.6 9h6.8l.6-9"/>'


def header() -> str:
    """The header's button that opens and closes the sidebar, and one for a new chat beside it."""
    return (
        '<button type="button" class="picture" data-action="chats" aria-expanded="false" aria-controls="gl-chats">'
        f"{icon(SIDEBAR)}{_unseen('chats.title')}</button>"
        f'<button type="button" class="picture" data-action="chat-new">{icon(PLUS)}{_unseen("chats.new")}</button>'
    )


def sidebar() -> str:
    return (
        '<nav class="chats" aria-labelledby="gl-chats-name">'
        f'<p class="top"><button type="button" class="new" data-action="chat-new">{icon(PLUS)}{both("chats.new")}'
        "</button>"
        f'<button type="button" class="close" data-action="chats">{icon(CROSS)}{_unseen("chats.close")}</button></p>'
        f'<h2 id="gl-chats-name">{both("chats.title")}</h2>'
        f'<div class="gone" role="status" data-part="chats-gone"></div><ul data-part="chats"></ul>'
        f'<p class="none">{both("chats.none")}</p>'
        f'<p class="where" data-part="chats-where"></p>{_ready()}</nav>'
        '<div class="scrim" data-action="chats"></div>'
    )


def _ready() -> str:
    """What a script copies or shows when it comes to that."""
    return (
        f'<ul hidden data-text="chat">{_chat()}</ul>'
        f'<div hidden data-text="chats-gone"><p><span>{both("chats.gone")}</span>{_button("chat-undo", "chats.undo")}'
        "</p></div>"
        f'<span hidden data-text="chats-kept">{both("chats.where")}</span>'
        f'<span hidden data-text="chats-forbidden">{both("chats.forbidden")}</span>'
        f'<span hidden data-text="chats-full">{both("chats.full")}</span>'
        f'<span hidden data-text="chats-unanswered">{both("chats.unanswered")}</span>'
    )


def _chat() -> str:
    """One entry. Its title is put in as text, three times: to read, to change, and in the name of the button beside
    it."""
    return (
        '<li class="chat"><div class="line"><button type="button" class="open" data-action="chat-open">'
        f'<span class="title" dir="auto"></span><span class="writing" hidden>{both("chats.writing")}</span></button>'
        '<button type="button" class="more" data-action="chat-more" aria-expanded="false">'
        f'{icon(DOTS)}<span class="unseen">{both("chats.more")} <span class="title"></span></span></button></div>'
        f'<label class="rename">{_unseen("chats.name")}<input type="text" maxlength="120" dir="auto"></label>'
        f'<p class="menu" hidden>{_button("chat-rename", "chats.rename", PENCIL)}'
        f"{_button('chat-markdown', 'chats.markdown', SAVE)}"
        f"{_button('chat-json', 'chats.json', SAVE, 'chats.json.help')}"
        f"{_button('chat-delete', 'chats.delete', BIN)}</p>"
        f'<p class="sure" hidden><span>{both("chats.sure")}</span>{_button("chat-delete-yes", "chats.yes")}'
        f"{_button('chat-keep', 'chats.keep')}</p></li>"
    )


def _button(action: str, key: str, picture: str = "", help_: str = "") -> str:
    title = f' title="{text(help_, "en")} · {text(help_, "zh")}"' if help_ else ""
    return f'<button type="button" data-action="{action}"{title}>{icon(picture) if picture else ""}{both(key)}</button>'


def _unseen(key: str) -> str:
    """Words for those who hear the page."""
    return f'<span class="unseen">{both(key)}</span>'
