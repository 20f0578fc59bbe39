"""Puts the page together: components, and which event calls which handler. No logic of its own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import gradio as gr

from engine import Engine
from engine.lab import LoadLab
from ui import bundle
from ui.api import make_generate
from ui.charts import reply as reply_charts
from ui.chat import sidebar
from ui.chat.handlers import Handlers
from ui.controls import Options
from ui.examples import ASSETS, EXAMPLES, buttons
from ui.html import render
from ui.html.render import both, named
from ui.learn import page as learn_page
from ui.learn.handlers import Lessons
from ui.models import page as models_page
from ui.models.handlers import Models
from ui.race import viewer
from ui.race.handlers import Races
from ui.recording import export, saved
from ui.settings.page import SettingsPane
from ui.state import Conversation
from ui.strings import TEXT, Lang, text
from ui.strings.glossary import figure
from ui.theme import dress
from ui.updates import Patch, answer, pack
from ui.when import page as when_page
from ui.when.handlers import Labs

FILL = "(...values) => window.greenlight.fill(...values)"
SEND = "(...values) => window.greenlight.send(...values)"
"""Run in the browser before an event is sent: they put the page's conversation id in the first place."""

JOIN = """window.greenlight{Name} = {{element, trigger, props, watch, events: {events}}};
document.dispatchEvent(new CustomEvent("greenlight:{name}"));"""
"""The script of a component of the other views: it hands what Gradio gave it to the page's own script. Gradio takes
only events that are named in it."""

PRIVATE: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}


def build_app(engine: Engine, options: Options, lab: LoadLab | None = None) -> gr.Blocks:
    """The whole page and its API over one engine. lab: what runs experiments on it; its own by default."""
    handlers = Handlers(engine, options, lab)
    lang: Lang = options.lang or "en"
    gr.set_static_paths([reply_charts.plotly_script()])
    with gr.Blocks(title="Greenlight", analytics_enabled=False, fill_width=True) as app:
        conversation = gr.Textbox(visible=False)
        gr.HTML(_header(), elem_id="gl-header", apply_default_css=False)
        with gr.Column(elem_id="gl-chat"):
            gr.HTML(sidebar.sidebar(), elem_id="gl-chats", apply_default_css=False)
            log = gr.HTML(
                html_template=_log(options),
                value=None,
                js_on_load=bundle.script(),
                elem_id="gl-log",
                apply_default_css=False,
            )
            with gr.Column(elem_id="gl-side"):
                gr.HTML(_panel(), elem_id="gl-panel", apply_default_css=False)
                settings = SettingsPane(handlers, lang)
            with gr.Column(elem_id="gl-composer"):
                gr.HTML(_notices(), elem_id="gl-notices", apply_default_css=False)
                box = gr.Textbox(
                    **box_words(lang), lines=1, max_lines=8, show_label=False, container=False, elem_id="gl-box"
                )
                with gr.Row(elem_id="gl-buttons"):
                    send, stop, undo, redo = (
                        gr.Button(text(f"button.{name}", lang), variant=variant, size="md", elem_id=f"gl-{name}")
                        for name, variant in BUTTONS
                    )
                gr.HTML('<p class="meter" data-part="meter"></p>', elem_id="gl-meter", apply_default_css=False)
        watch = _view("watch", viewer.watch(), ("race", "look"))
        learning = _view("learn", learn_page.learn(), ("lesson", "ask"))
        when_to_use = _view("when", when_page.when(), ("lab", "ask"))
        other_models = _view("models", models_page.models(options), ("ask",))
        settings.wire(app, log)
        _Views(Races(handlers)).wire(watch, settings)
        _Learning(Lessons(handlers)).wire(learning)
        _When(Labs(handlers)).wire(when_to_use)
        _Models(Models(handlers)).wire(other_models)
        _Page(handlers, conversation, log, box, settings).wire(send, stop, undo, redo)
        gr.api(make_generate(handlers), api_name="generate", concurrency_limit=None)
    return app


def _view(name: str, html: str, events: tuple[str, ...]) -> gr.HTML:
    """A component of views besides the chat, with events of its own, so that it does not wait for the others."""
    join = JOIN.format(name=name, Name=name.capitalize(), events=json.dumps(events))
    return gr.HTML(html_template=html, value=None, js_on_load=join, elem_id=f"gl-{name}", apply_default_css=False)


BUTTONS = (("send", "primary"), ("stop", "stop"), ("undo", "secondary"), ("redo", "secondary"))


def launch(app: gr.Blocks, options: Options, **where: Any) -> Any:
    """Serve the app. Queue and limits are the same for page and API; nothing is published unless asked for."""
    app.queue(api_open=False, max_size=options.queue_size)
    return app.launch(
        **dress(),
        **where,
        # A reply waiting in the engine's queue also holds one of these; the queue must fill first.
        max_threads=options.queue_size + 40,
        quiet=True,
        ssr_mode=False,
        pwa=False,
        enable_monitoring=False,
        run_history=False,
        max_file_size=1,  # Gradio takes uploads on every page; this one has no use for them
        # Not asked whether the page comes within three seconds, which on a busy machine it does not while the models
        # are loading: Gradio would end the app and blame the proxy. It has already heard from its server by then.
        _frontend=False,
    )


class _Page:
    """The wiring. Values of settings arrive raw (`preprocess=False`): `controls` checks them and answers in words."""

    def __init__(
        self, handlers: Handlers, conversation: gr.Textbox, log: gr.HTML, box: gr.Textbox, settings: SettingsPane
    ) -> None:  # fmt: skip
        self.handlers, self.conversation, self.log, self.box, self.settings = handlers, conversation, log, box, settings

    def wire(self, send: gr.Button, stop: gr.Button, undo: gr.Button, redo: gr.Button) -> None:
        writes: dict[str, Any] = {"js": FILL, "preprocess": False, "concurrency_limit": None, **PRIVATE}
        quick: dict[str, Any] = {"queue": False, "preprocess": False, **PRIVATE}
        asks: dict[str, Any] = {"trigger_mode": "multiple", **quick}
        id_, log, values = self.conversation, self.log, self.settings.components
        # "multiple": a message sent the moment the last reply ends must not be dropped because Gradio is not done with
        # it; that only one reply runs at a time is the server's to say.
        gr.on(
            [send.click, self.box.submit], self.on_send, [id_, self.box, *values], log,
            **writes | {"js": SEND, "trigger_mode": "multiple"},
        )  # fmt: skip
        log.write(
            self.on_write,
            [id_, *values],
            [log, self.settings.named["temperature"]],
            **writes | {"trigger_mode": "multiple"},
        )
        stop.click(self.on_stop, id_, None, js=FILL, **quick)
        undo.click(self.on_undo, id_, log, js=FILL, **quick)
        redo.click(self.on_redo, id_, log, js=FILL, **quick)
        log.sync(self.on_sync, self.settings.named["drafter"], [log, *self.settings.found_outputs], **asks)
        log.ask(self.on_ask, None, log, **asks)
        words = [self.box, send, stop, undo, redo, *self.settings.worded]
        log.language(self.on_language, None, words, trigger_mode="always_last", **quick)

    async def on_send(self, id_: str, message: str, *values: object) -> AsyncIterator[str]:
        async with aclosing(self.handlers.send(id_, message, values)) as patches:
            async for patch in patches:
                yield pack(patch, id_)

    async def on_write(self, id_: str, event: gr.EventData, *values: object) -> AsyncIterator[tuple[str, Any]]:
        """What a button in the transcript asks for: an example, a reply once more, an edited message."""
        temperature: Any = gr.skip()
        if event.how == "example":
            example = EXAMPLES[int(event.index)]
            temperature = example.temperature
            new_values = [temperature if c.name == "temperature" else value
                       for c, value in zip(self.handlers.table(), values, strict=True)]  # fmt: skip
            reply = self.handlers.send(id_, example.prompt, new_values)
        elif event.how == "edit":
            reply = self.handlers.edit(id_, event.key, event.text, values)
        else:
            reply = self.handlers.retry(id_, event.key, values, event.seed == "same")
        async with aclosing(reply) as patches:
            async for patch in patches:
                yield pack(patch, id_), temperature
                temperature = gr.skip()  # set once: from here on the slider is the person's again

    async def on_stop(self, id_: str) -> None:
        self.handlers.stop(id_)

    async def on_undo(self, id_: str) -> str:
        return pack(self.handlers.undo(id_), id_)

    async def on_redo(self, id_: str) -> str:
        return pack(self.handlers.undo(id_, again=True), id_)

    async def on_sync(self, drafter: object, event: gr.EventData) -> list[Any]:
        id_ = str(event.conversation or "")
        patch = self.handlers.sync(id_)
        return [pack(patch, id_), *self.settings.drafters_found(drafter, _lang(getattr(event, "lang", None)))]

    async def on_ask(self, event: gr.EventData) -> Any:
        """What the page pulls; see `Handlers.answer`. A conversation that it gives back, or deletes, comes the same
        way."""
        id_, what, args = str(event.conversation or ""), str(event.what), event.args or {}
        patch: Patch | None = None
        if what == "restore":
            patch = self.handlers.restore(args.get("record"))
        elif what == "delete":
            self.handlers.delete(str(args.get("id", "")))
        elif what == "export":
            patch = answer(Conversation(""), what, _file(args))  # of a chat that need not be known here
        else:
            patch = await self.handlers.answer(id_, what, args)
        return gr.skip() if patch is None else pack(patch, id_)

    async def on_language(self, event: gr.EventData) -> list[Any]:
        lang = _lang(getattr(event, "lang", None))
        names = [gr.update(value=text(f"button.{name}", lang)) for name, _ in BUTTONS]
        return [gr.update(**box_words(lang)), *names, *self.settings.language(lang)]


class _Views:
    """The wiring of the views besides the chat."""

    def __init__(self, races: Races) -> None:
        self.races = races

    def wire(self, watch: gr.HTML, settings: SettingsPane) -> None:
        private: dict[str, Any] = {"preprocess": False, "trigger_mode": "multiple", **PRIVATE}
        watch.race(self.on_race, settings.components, watch, concurrency_limit=None, **private)
        watch.look(self.on_look, None, watch, queue=False, **private)

    async def on_race(self, event: gr.EventData, *values: object) -> AsyncIterator[str]:
        names = ("key", "prompt", "k", "temperature", "length", "dice")
        wish = {name: getattr(event, name, None) for name in names}
        async with aclosing(self.races.race(wish, values)) as messages:
            async for message in messages:
                yield pack(message)

    async def on_look(self, event: gr.EventData) -> Any:
        args = event.args if isinstance(event.args, dict) else {}
        message = await self.races.look(str(event.what), args)
        return gr.skip() if message is None else pack(message)


class _When:
    """The wiring of the tab "When to use"."""

    def __init__(self, labs: Labs) -> None:
        self.labs = labs

    def wire(self, when_to_use: gr.HTML) -> None:
        private: dict[str, Any] = {"preprocess": False, "trigger_mode": "multiple", **PRIVATE}
        when_to_use.lab(self.on_lab, None, when_to_use, concurrency_limit=None, **private)
        when_to_use.ask(self.on_ask, None, when_to_use, queue=False, **private)

    async def on_lab(self, event: gr.EventData) -> AsyncIterator[str]:
        wish = {name: getattr(event, name, None) for name in ("session", "key", "name", "prompt")}
        async with aclosing(self.labs.lab(wish)) as messages:
            async for message in messages:
                yield pack(message)

    async def on_ask(self, event: gr.EventData) -> Any:
        args = event.args if isinstance(event.args, dict) else {}
        message = await self.labs.ask(str(event.what), args)
        return gr.skip() if message is None else pack(message)


class _Models:
    """The wiring of the tab "Models"."""

    def __init__(self, pairs: Models) -> None:
        self.pairs = pairs

    def wire(self, other_models: gr.HTML) -> None:
        private: dict[str, Any] = {"preprocess": False, "trigger_mode": "multiple", **PRIVATE}
        other_models.ask(self.on_ask, None, other_models, queue=False, **private)

    async def on_ask(self, event: gr.EventData) -> Any:
        args = event.args if isinstance(event.args, dict) else {}
        message = await self.pairs.ask(str(event.what), args)
        return gr.skip() if message is None else pack(message)


class _Learning:
    """The wiring of the tab "Learn"."""

    def __init__(self, lessons: Lessons) -> None:
        self.lessons = lessons

    def wire(self, learning: gr.HTML) -> None:
        private: dict[str, Any] = {"preprocess": False, "trigger_mode": "multiple", **PRIVATE}
        learning.lesson(self.on_lesson, None, learning, concurrency_limit=None, **private)
        learning.ask(self.on_ask, None, learning, queue=False, **private)

    async def on_lesson(self, event: gr.EventData) -> AsyncIterator[str]:
        wish = {name: getattr(event, name, None) for name in ("key", "name", "prompt", "example")}
        async with aclosing(self.lessons.lesson(wish)) as messages:
            async for message in messages:
                yield pack(message)

    async def on_ask(self, event: gr.EventData) -> Any:
        args = event.args if isinstance(event.args, dict) else {}
        message = await self.lessons.ask(str(event.what), args)
        return gr.skip() if message is None else pack(message)


def _file(args: dict[str, Any]) -> dict[str, Any]:
    """A chat as a file, for the browser to save."""
    form = "markdown" if args.get("form") == "markdown" else "json"
    try:
        file: dict[str, Any] = export.file(args.get("record"), form, _lang(args.get("lang")))
    except saved.NotSaved:
        file = {"failed": both("notice.unreadable")}
    return file | {"number": args.get("number")}


def _lang(value: object) -> Lang:
    return "zh" if value == "zh" else "en"


def box_words(lang: Lang) -> dict[str, Any]:
    return {"label": text("box.label", lang), "placeholder": text("box.placeholder", lang)}


THEME = '<circle cx="8" cy="8" r="5.5"/><path fill="currentColor" d="M8 2.5v11a5.5 5.5 0 0 0 0-11z"/>'


def _header() -> str:
    logo = (ASSETS / "logo.svg").read_text(encoding="utf-8")
    return (
        f'<header class="gl-header">{sidebar.header()}<span class="logo" aria-hidden="true">{logo}</span>'
        f"<h1>{both('app.name')}</h1>"
        f'{viewer.tabs()}<p class="line">{both("app.line")}</p><span data-figure="engine"></span>'
        f'<button type="button" data-action="language"{_hint("header.language.help")}>{both("header.language")}'
        "</button>"
        f'<button type="button" class="picture" data-action="theme"{_hint("header.theme")}>{render.icon(THEME)}'
        f'<span class="unseen">{both("header.theme")}</span></button></header>'
    )


def _log(options: Options) -> str:
    """The transcript's fixed frame. It has no placeholder, so Gradio evaluates nothing that arrives later."""
    return (
        f'<div data-lang-fixed="{options.lang or ""}"></div>'
        f'<h2 class="unseen" id="gl-log-name">{both("log.label")}</h2>'
        '<div class="log" data-part="log" tabindex="0" role="region" aria-labelledby="gl-log-name">'
        f'<div class="blank"><div class="loading" data-part="loading"></div><p class="lead">{both("app.line")}</p>'
        f"<h2>{both('log.empty')}</h2>"
        f'<div class="tries">{buttons()}<p>{both("log.english")}</p></div>{viewer.small()}</div>'
        '<div data-part="turns"></div></div>'
        f'<div class="token-card" role="group" aria-label="{named("card.label")}" data-part="card" tabindex="0" '
        "hidden></div>"
        '<p class="unseen" role="status" aria-live="polite" data-part="card-say"></p>'
        '<p class="unseen" role="status" aria-live="polite" data-part="say"></p>'
    )


def _notices() -> str:
    return (
        '<p class="note" data-figure="note"></p><p class="notice" role="alert" data-part="notice"></p>'
        f'<span hidden data-text="paste">{both("notice.paste")}</span>'
        f'<span hidden data-text="busy">{both("notice.busy")}</span><div hidden data-text="editor">{_editor()}</div>'
    )


def _editor() -> str:
    """What takes the place of a message while it is edited; a script copies it there."""
    return (
        f'<div class="editor"><textarea aria-label="{named("edit.label")}"></textarea><p class="acts">'
        f'<button type="button" class="act" data-action="edit-send">{both("edit.send")}</button>'
        f'<button type="button" class="act" data-action="edit-cancel">{both("edit.cancel")}</button>'
        f"<span>{both('edit.note')}</span></p></div>"
    )


def _panel() -> str:
    return (
        f'<button type="button" class="fold" data-action="fold" aria-expanded="false" aria-controls="gl-figures">'
        f'<span data-figure="line">{both("panel.idle")}</span><span class="unseen">{both("panel.open")}</span></button>'
        f'<div id="gl-figures"><div class="pair">{_side("spec")}{_side("plain")}</div>'
        f'<p class="pair speedup"><span>{figure("speedup", both("panel.speedup"))} '
        f'<b data-figure="speedup">{render.DASH}</b></span>'
        f'<span class="expected"{_hint("panel.expected.help")}>{figure("expected", both("panel.expected"))}'
        f' <b data-figure="expected">{render.DASH}</b></span></p>'
        f'<p class="verdict" data-figure="verdict"></p><p class="rest" data-figure="rest"></p>'
        f'<p class="baseline" data-figure="baseline">{both("panel.idle")}</p><dl>{_cells()}</dl>'
        f'<p class="by" data-figure="by"></p>'
        f"<h3>{both('legend.title')}</h3>{render.legend()}"
        f'<p class="how">{both("legend.round")}</p>{"".join(map(_switch, ("colours", "hide", "shade")))}'
        f"{render.scale()}"
        f'<div id="gl-charts">{reply_charts.charts_frame()}</div></div>'
    )


def _switch(name: str) -> str:
    return f'<label class="switch"><input type="checkbox" data-switch="{name}"> {both(f"legend.{name}")}</label>'


def _hint(key: str) -> str:
    """A title attribute, where there is such a text."""
    return f' title="{named(key)}"' if key in TEXT else ""


def _side(name: str) -> str:
    return (
        f'<div class="side {name}"><span>{figure(name, both(f"panel.{name}"))}</span>'
        f'<b data-figure="{name}">{render.DASH}</b>'
        f'<i>{both("panel.unit")}</i><span class="bar"><span data-figure="bar.{name}"></span></span></div>'
    )


def _cells() -> str:
    """The small figures, in pairs of name and value."""
    names = (
        "now",
        "overall",
        "alpha",
        "tau",
        "k",
        "mean_k",
        "drafted",
        "accepted",
        "rejected",
        "discarded",
        "tokens",
        "ttft",
    )
    return "".join(
        f"<div><dt{_hint(f'panel.{name}.help')}>{figure(name, both(f'panel.{name}'))}</dt>"
        f'<dd data-figure="{name}">{render.DASH}</dd></div>'
        for name in names
    )
