"""The settings pane in Gradio: presets, groups of controls, what the browser remembers. What is allowed, `controls`
says.

Most of it happens in the browser (assets/page/settings.js), without the server: a preset, the dice, the lock and the
reset button hand values to the script, which triggers "settings" and so fills them in; each change of a control calls
`keep`, which marks the preset that fits and stores what differs from the defaults. The server is asked to check what
was typed ("check") and, when the page opens, what was stored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import gradio as gr

from ui import controls
from ui.chat.handlers import Handlers
from ui.controls import DRAFTERS, GROUPS, Control, Correction, Value, choice_label, control_of, corrected, drafter_line
from ui.html.render import both, icon
from ui.settings.presets import presets
from ui.strings import Lang, text

KEEP = "(...values) => window.greenlightSettings?.keep(...values)"
FILL_IN = "() => window.greenlightSettings?.wanted()"
SAY = "(words) => window.greenlightSettings?.say(words)"
OPENED = "(words) => window.greenlightSettings?.opened(words)"

SECRET = "greenlight"
"""Gradio encrypts what it stores. This keeps nothing secret, and need not: it is fixed so that what was stored can
still be read after the server has started anew."""

QUICK: dict[str, Any] = {"queue": False, "preprocess": False, "api_visibility": "private", "show_progress": "hidden"}
IN_BROWSER: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}

DICE = icon(
    '<rect x="2" y="2" width="12" height="12" rx="2.5"/><circle class="dot" cx="5.5" cy="5.5" r="1"/>'
    '<circle class="dot" cx="8" cy="8" r="1"/><circle class="dot" cx="10.5" cy="10.5" r="1"/>'
)
LOCK = icon(
    '<rect x="3" y="7" width="10" height="7" rx="1.5"/><path class="shackle" d="M5.5 7V5a2.5 2.5 0 0 1 5 0v2"/>'
)


class SettingsPane:
    """Made inside the column where it is to stand; `wire` it once the page's script has its component."""

    def __init__(self, handlers: Handlers, lang: Lang) -> None:
        self.handlers = handlers
        table = handlers.table()
        components: dict[str, Any] = {}
        gr.HTML(_data(table), elem_id="gl-settings-data", apply_default_css=False)
        with gr.Accordion(text("settings.title", lang), open=False, elem_id="gl-settings") as whole:
            gr.HTML(_presets(table), elem_id="gl-presets", apply_default_css=False)
            groups = [self._group(group, table, components, lang) for group in GROUPS]
            gr.HTML(_reset(), elem_id="gl-reset", apply_default_css=False)
        self.named = components
        self.components = [components[control.name] for control in table]
        self.accordions = [whole, *groups]
        self.store = gr.BrowserState({}, storage_key="greenlight.settings", secret=SECRET)
        self.notice = gr.Textbox(visible=False)
        """Words about a correction, on their way to the place for notices."""

    def _group(self, group: str, table: Sequence[Control], components: dict[str, Any], lang: Lang) -> gr.Accordion:
        with gr.Accordion(text(f"group.{group}", lang), open=False, elem_id=f"gl-group-{group}") as accordion:
            for control in table:
                if control.group != group:
                    continue
                if control.name == "seed":
                    with gr.Row(elem_id="gl-seed"):
                        components[control.name] = component(control, lang)
                        gr.HTML(_seed_buttons(), elem_id="gl-seed-buttons", apply_default_css=False)
                else:
                    components[control.name] = component(control, lang)
                if control.name == "drafter":
                    self.missing = gr.HTML(self.handlers.missing(), elem_id="gl-missing", apply_default_css=False)
        return accordion

    def wire(self, app: gr.Blocks, script: Any) -> None:
        """app: the page; script: the component whose script triggers "settings" and "check"."""
        changes = [one.change for one in self.components]
        gr.on(changes, None, self.components, self.store, js=KEEP, **IN_BROWSER)
        script.settings(None, None, self.components, js=FILL_IN, **IN_BROWSER)
        answered = [*self.components, self.notice]
        checked = script.check(self.on_check, None, answered, trigger_mode="multiple", **QUICK)
        checked.then(None, self.notice, None, js=SAY, **IN_BROWSER)
        opened = app.load(self.on_open, self.store, answered, **QUICK)
        opened.then(None, self.notice, None, js=OPENED, **IN_BROWSER)

    async def on_check(self, event: gr.EventData) -> list[Any]:
        """What a person has typed into one control."""
        values, corrections = controls.check_all(self.handlers.table(), {str(event.name): event.value})
        return self._answer(values if corrections else {}, corrections)

    async def on_open(self, remembered: object) -> list[Any]:
        """What the browser remembers. While the engine loads, a drafter that it may have is believed (see
        `drafters_found`)."""
        facts = self.handlers.facts()
        table = controls.table(self.handlers.options, facts.drafters if facts else DRAFTERS[1:])
        return self._answer(
            *controls.check_all(
                table, controls.upgrade(remembered, self.handlers.options.k) if isinstance(remembered, dict) else {}
            )
        )

    def _answer(self, values: Mapping[str, Value], corrections: Sequence[Correction]) -> list[Any]:
        words = " ".join(map(corrected, corrections))
        return [*(values.get(control.name, gr.skip()) for control in self.handlers.table()), words]

    @property
    def found_outputs(self) -> list[Any]:
        """The components that `drafters_found` updates."""
        return [self.named["drafter"], self.missing]

    def drafters_found(self, drafter: object, lang: Lang) -> list[Any]:
        """What the engine turns out to have: the list of drafters, and why some are missing. A chosen one that it has
        not gives way to the default."""
        control = control_of("drafter", self.handlers.table())
        update: dict[str, Any] = {"choices": choices(control, lang)}
        if self.handlers.facts() is not None and drafter not in control.choices:
            update["value"] = control.default
        return [gr.update(**update), self.handlers.missing()]

    @property
    def worded(self) -> list[Any]:
        """The components that `language` updates."""
        return [*self.accordions, *self.components]

    def language(self, lang: Lang) -> list[Any]:
        titles = ["settings.title", *(f"group.{group}" for group in GROUPS)]
        labels = [gr.update(label=text(title, lang)) for title in titles]
        return [*labels, *(gr.update(**words(control, lang)) for control in self.handlers.table())]


def component(control: Control, lang: Lang) -> Any:
    """The Gradio component of one setting."""
    shown = words(control, lang) | {"elem_id": f"gl-set-{control.name}", "elem_classes": f"gl-{control.kind}"}
    low, high, default = control.low, control.high, control.default
    if control.kind == "slider":
        return gr.Slider(low, high, float(default), step=control.step, buttons=[], **shown)
    if control.kind == "number":
        return gr.Number(float(default), minimum=low, maximum=high, step=control.step, **shown)
    if control.kind == "choice":
        return gr.Dropdown(value=str(default), filterable=False, **shown)
    if control.kind == "list":
        return gr.Radio(value=str(default), **shown)
    if control.kind == "switch":
        return gr.Checkbox(bool(default), **shown)
    lines = {"line": (1, 1), "lines": (2, 6), "text": (2, 8)}[control.kind]
    return gr.Textbox(str(default), lines=lines[0], max_lines=lines[1], **shown)


def words(control: Control, lang: Lang) -> dict[str, Any]:
    """What a setting says, in one language."""
    texts: dict[str, Any] = {"label": text(control.label, lang), "info": text(control.help, lang)}
    if control.kind in ("choice", "list"):
        texts["choices"] = choices(control, lang)
    return texts


def choices(control: Control, lang: Lang) -> list[tuple[str, str]]:
    if control.name == "drafter":
        return [(drafter_line(drafter, lang), drafter) for drafter in control.choices]
    return [(choice_label(control.name, choice, lang), choice) for choice in control.choices]


def _data(table: Sequence[Control]) -> str:
    """What the script must know of the table; here and not in the pane, which is not in the page before it is
    opened."""
    table_facts = {
        "defaults": {control.name: control.default for control in table},
        "presets": [{"name": preset.name, "values": dict(preset.values)} for preset in presets(table)],
    }
    return f'<div hidden data-settings="{escape(json.dumps(table_facts))}"></div>'


def _presets(table: Sequence[Control]) -> str:
    """Four buttons; the script says which one is pressed."""
    buttons = "".join(
        f'<button type="button" data-action="preset" data-preset="{preset.name}" aria-pressed="false">'
        f"<b>{both(f'preset.{preset.name}')}</b><i>{both(f'preset.{preset.name}.help')}</i></button>"
        for preset in presets(table)
    )
    return (
        f'<h3 id="gl-presets-name">{both("presets.label")}</h3>'
        f'<div role="group" aria-labelledby="gl-presets-name">{buttons}</div>'
    )


def _seed_buttons() -> str:
    return _icon_button("dice", DICE, "seed.dice") + _icon_button("lock", LOCK, "seed.lock", ' aria-pressed="false"')


def _icon_button(action: str, drawing: str, key: str, more: str = "") -> str:
    title = f"{text(key, 'en')} · {text(key, 'zh')}"
    return (
        f'<button type="button" data-action="{action}" title="{escape(title)}"{more}>{drawing}'
        f'<span class="unseen">{both(key)}</span></button>'
    )


def _reset() -> str:
    return (
        f'<button type="button" data-action="reset-settings">{both("settings.reset")}</button>'
        f"<p>{both('settings.kept')}</p>"
    )
