"""The words of the tab "Learn" and of the glossary; part of the one table in `ui.strings`."""

from __future__ import annotations

LEARN: dict[str, tuple[str, str]] = {
    "learn.title": ("How it works, in eight steps", "八步弄懂推测解码"),
    "learn.lead": (
        "Each step is short, and each has something to try on this machine.",
        "每一步都很短，每一步都有可以在这台机器上亲手试的东西。",
    ),
}
