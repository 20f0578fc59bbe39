"""The page's own script and style sheet, each put together from small files. Gradio takes each as one text."""

from __future__ import annotations

from ui.examples import ASSETS

SCRIPTS = (
    "patches",
    "reading",
    "view",
    "keys",
    "kept",
    "chats",
    "sidebar",
    "card",
    "first",
    "prose",
    "charts",
    "settings",
    "watch",
    "viewer",
    "race",
    "inspect",
    "chances",
    "play",
    "learn",
    "when",
    "models",
    "tabs",
    "start",
)
"""In assets/page, in this order: they share one scope, the body of a function that Gradio calls when the page is
there."""

STYLES = (
    "colours",
    "frame",
    "transcript",
    "tokens",
    "panel",
    "composer",
    "chats",
    "card",
    "prose",
    "charts",
    "settings",
    "watch",
    "verdict",
    "inspector",
    "learn",
    "when",
    "models",
    "narrow",
)
"""In assets/style, in this order: the last ones are for narrow screens and reduced motion and win over those before."""


def script() -> str:
    return "\n".join((ASSETS / "page" / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)


def style() -> str:
    return "\n".join((ASSETS / "style" / f"{name}.css").read_text(encoding="utf-8") for name in STYLES)


def early() -> str:
    """What must have run before Gradio puts its components up; it goes into the document's head."""
    return f"<script>{(ASSETS / 'page' / 'early.js').read_text(encoding='utf-8')}</script>"
