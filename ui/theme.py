"""How the page is dressed: system fonts only, a quiet neutral theme, the style sheet. Nothing is loaded from
elsewhere."""

from __future__ import annotations

from typing import Any

import gradio as gr

from ui import bundle
from ui.examples import ASSETS

SANS = ("system-ui", "PingFang SC", "Microsoft YaHei", "Noto Sans CJK SC", "sans-serif")
MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "Noto Sans Mono CJK SC", "monospace")

GREEN = gr.themes.Color(
    c50="#f0faf5", c100="#e2f4ec", c200="#bfe6d5", c300="#7fe0bf", c400="#3cb890", c500="#0d8a68",
    c600="#00664d", c700="#00543f", c800="#10302a", c900="#0d2520", c950="#081713",
)  # fmt: skip
"""Built around the two greens of accepted drafts."""


def theme() -> gr.themes.Base:
    base = gr.themes.Base(
        primary_hue=GREEN, secondary_hue=GREEN, neutral_hue=gr.themes.colors.neutral, font=SANS, font_mono=MONO
    )
    # The colours themselves are variables of assets/style/colours.css, which also knows the dark ones.
    both_modes = {
        "body_background_fill": "var(--gl-ground)",
        "body_text_color": "var(--gl-text)",
        "body_text_color_subdued": "var(--gl-quiet)",
        "block_background_fill": "transparent",
        "block_border_width": "0px",
        "block_label_text_color": "var(--gl-text)",
        "block_title_text_color": "var(--gl-text)",
        "block_info_text_color": "var(--gl-quiet)",
        "border_color_primary": "var(--gl-line)",
        "panel_background_fill": "transparent",
        "input_background_fill": "var(--gl-ground)",
        "input_background_fill_focus": "var(--gl-ground)",
        "input_border_color": "var(--gl-line)",
        "input_border_color_focus": "var(--gl-draft)",
        "input_border_width": "1px",
        "input_placeholder_color": "var(--gl-quiet)",
        "button_primary_background_fill": "var(--gl-action)",
        "button_primary_background_fill_hover": "var(--gl-action-hover)",
        "button_primary_text_color": "#ffffff",
        "button_secondary_background_fill": "var(--gl-raised)",
        "button_secondary_background_fill_hover": "var(--gl-line)",
        "button_secondary_text_color": "var(--gl-text)",
        "slider_color": "var(--gl-draft)",
        "checkbox_background_color_selected": "var(--gl-action)",
        "checkbox_border_color": "var(--gl-quiet)",
        "checkbox_label_background_fill": "transparent",
    }
    return base.set(block_shadow="none", **both_modes, **{f"{name}_dark": value for name, value in both_modes.items()})


def dress() -> dict[str, Any]:
    """Arguments for `Blocks.launch` that decide how the page looks; Gradio 6 takes them there."""
    return {
        "theme": theme(),
        "css": bundle.style(),
        "head": bundle.early(),
        "favicon_path": str(ASSETS / "logo.svg"),
        "footer_links": [],
    }
