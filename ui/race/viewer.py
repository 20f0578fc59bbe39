"""The fixed frames of the views besides the chat: the tabs, the race, the inspector, and the viewer that all of them
play in.

A viewer plays a recording (see `ui.recording.recordings`): one or two lanes, each on its own clock.
assets/page/viewer.js fills the frame.
"""

from __future__ import annotations

from html import escape

from ui.controls import K_CHOICES, choice_label, control_of
from ui.examples import EXAMPLES
from ui.html.render import DASH, both, icon, named
from ui.race import charts as race_charts
from ui.strings import LANGS
from ui.strings.glossary import figure

TABS = ("chat", "race", "inspect", "learn", "when", "models")
"""In the order in which they are shown; `?tab=NAME` opens one."""

PLAY = '<path class="play" d="M5 3v10l8-5z"/><path class="pause" d="M5 3v10M11 3v10"/>'
BACK = '<path d="M4 3v10M12.5 3.5v9L6 8z"/>'
STEP = '<path d="M12 3v10M3.5 3.5v9L10 8z"/>'
AGAIN = '<path d="M3 8a5 5 0 1 0 1.6-3.7M3 2v3h3"/>'
END = '<path d="M3 3.5v9L8 8zM8 3.5v9L13 8zM13.5 3v10"/>'

SPEEDS = ("live", "real", "slow", "slower")
"""How fast a viewer plays: as it is made; each lane as fast as it ran; a quarter and a sixteenth of that."""

MODES = (*SPEEDS, "done", "paused", "held")
"""What is written beside the buttons: how it plays, that it is over, or that it stands still; held: while a race goes
on."""

LENGTHS = (64, 128, 256, 512)
"""Tokens of a reply that the race offers."""

KS = tuple(k for k in K_CHOICES if k != "0")
"""A race is one against plain decoding, so it needs guesses."""


def tabs() -> str:
    """Links, so that each view has an address of its own; a script shows it without loading the page again."""
    links = "".join(
        f'<a href="?tab={tab}" '
        f'data-tab-link="{tab}"{" aria-current=page" if tab == "chat" else ""}>{both(f"tab.{tab}")}</a>'
        for tab in TABS
    )
    return f'<nav class="tabs" aria-label="{named("tab.label")}">{links}</nav>'


def small() -> str:
    """The recorded race on the blank page, which is there before the model is."""
    return (
        f'<section class="glance" aria-labelledby="gl-glance"><h3 id="gl-glance">{both("watch.glance")}</h3>'
        f'{viewer("glance")}<p><a href="?tab=race" data-tab-link="race">{both("watch.glance.more")}</a></p></section>'
    )


def watch() -> str:
    """Both views in one component, and what its script copies."""
    return f"{_race()}{_inspect()}{_ready()}"


def viewer(where: str) -> str:
    """What plays a recording. Empty slots are filled by the script; `where` names it on the page."""
    more = "" if where == "glance" else _more(where)
    return (
        f'<div class="viewer" data-viewer="{where}">'
        f'<div class="what" data-slot="what"></div>{_transport(where)}'
        f'<p class="gain" data-slot="gain" hidden>{both("watch.gain")} <b data-slot="speedup">{DASH}</b></p>'
        '<div class="lanes" data-slot="lanes"></div>'
        f'<p class="lost" role="status" data-slot="lost" hidden>{both("watch.lost")}</p>{more}</div>'
    )


def _more(where: str) -> str:
    return (
        '<div class="verdict-place" data-slot="verdict" role="status"></div>'
        f'<section class="inside" aria-labelledby="gl-inside-{where}"><h3 '
        f'id="gl-inside-{where}">{both("watch.inside")}</h3>'
        f'<div data-slot="round"><p class="hint">{both("watch.inside.hint")}</p></div></section>'
        f'<p class="unseen" role="status" aria-live="polite" data-slot="say"></p>'
        f'{race_charts.frame(where)}<p class="acts saves" data-slot="saves" hidden>'
        f"{_act('save-trace', 'watch.save.trace')}{_act('save-page', 'watch.save.page')}</p>"
    )


def _transport(where: str) -> str:
    """Play, step, speed. Buttons as on any player; what the speed means is written beside it."""
    buttons = "".join(
        f'<button type="button" data-action="{action}" title="{named(f"watch.{action}")}">{icon(drawing)}'
        f'<span class="unseen">{both(f"watch.{action}")}</span></button>'
        for action, drawing in (("restart", AGAIN), ("back", BACK), ("play", PLAY), ("step", STEP), ("end", END))
    )
    speeds = "".join(
        f'<label><input type="radio" name="gl-speed-{where}" value="{speed}"> {both(f"watch.speed.{speed}")}</label>'
        for speed in SPEEDS
    )
    modes = "".join(f'<span data-mode="{mode}" hidden>{both(f"watch.mode.{mode}")}</span>' for mode in MODES)
    return (
        f'<div class="transport" role="group" aria-label="{named("watch.transport")}">{buttons}'
        f'<fieldset class="speeds"><legend class="unseen">{both("watch.speeds")}</legend>{speeds}</fieldset>'
        f'<p class="mode" data-slot="mode">{modes}</p></div>'
    )


def _race() -> str:
    return (
        '<section class="view race" data-tab-view="race" aria-labelledby="gl-race-name">'
        f'<h2 id="gl-race-name">{both("race.title")}</h2><p class="lead">{both("race.lead")}</p>{_form()}'
        f'<div class="notice" role="alert" data-slot="race-notice"></div>{viewer("race")}</section>'
    )


def _form() -> str:
    """What is raced. Everything else is as in the chat's settings."""
    prompts = "".join(
        f'<button type="button" class="pick" data-action="race-prompt" data-prompt="{escape(example.prompt)}"'
        f' data-temperature="{example.temperature:g}">'
        f'<span class="en" lang="en">{escape(example.en)}</span><span class="zh" '
        f'lang="zh">{escape(example.zh)}</span></button>'
        for example in EXAMPLES
    )
    ks = "".join(map(_k, KS))
    lengths = "".join(f'<option value="{n}"{" selected" if n == 128 else ""}>{n}</option>' for n in LENGTHS)
    warm = control_of("temperature")
    temperature = (
        f'<input name="temperature" type="number" min="{warm.low:g}" max="{warm.high:g}" step="{warm.step:g}"'
        f' value="{warm.default:g}">'
    )
    return (
        f'<form class="race-form" data-part="race-form"><label class="prompt"><span>{both("race.prompt")}</span>'
        f'<textarea name="prompt" rows="2" dir="auto" maxlength="20000"></textarea></label>'
        f'<p class="picks">{prompts}</p><p class="fields">'
        f'<label title="{named("race.k.help")}">K <select name="k" '
        f'aria-label="{named("race.k.help")}">{ks}</select></label>'
        f"<label>{both(warm.label)} {temperature}</label>"
        f'<label>{both("race.length")} <select name="length">{lengths}</select></label>'
        f'<label class="dice"><input name="dice" type="checkbox" checked> {both("race.dice")}</label>'
        f'<button type="submit" class="act go" data-action="race-go">{both("race.go")}</button>'
        f'<button type="button" class="act" data-action="race-stop" hidden>{both("race.stop")}</button>'
        f'</p><p class="rest">{both("race.dice.help")} {both("race.rest")}</p></form>'
    )


def _k(k: str) -> str:
    """An option holds plain text alone, so a script puts in the word of the language shown."""
    if k != "auto":
        return f'<option value="{k}">{k}</option>'
    labels = {lang: choice_label("num_speculative_tokens", k, lang) for lang in LANGS}
    words = " ".join(f'data-{lang}="{words}"' for lang, words in labels.items())
    return f'<option value="{k}" {words}>{labels["en"]}</option>'


def _inspect() -> str:
    sources = "".join(
        f'<button type="button" class="pick" data-action="open" data-source="{source}" aria-pressed="false">'
        f"{both(f'source.{source}')}</button>"
        for source in ("chat", "race", "shipped-chat", "shipped-code", "shipped-bad")
    )
    return (
        '<section class="view inspect" data-tab-view="inspect" aria-labelledby="gl-inspect-name">'
        f'<h2 id="gl-inspect-name">{both("inspect.title")}</h2><p class="lead">{both("inspect.lead")}</p>'
        f'<p class="picks">{sources}<label class="pick file"><input type="file" accept=".json,application/json" '
        f'data-part="trace-file">'
        f'{both("source.file")}</label></p><div class="notice" role="alert" '
        f'data-slot="inspect-notice"></div>{viewer("inspect")}</section>'
    )


def _act(action: str, key: str) -> str:
    return f'<button type="button" data-action="{action}">{both(key)}</button>'


def _ready() -> str:
    """A lane, the way from a token's card to its round, and sentences: what a script copies when it comes to that."""
    figures = "".join(
        f'<span><b data-lane="{name}">{DASH}</b> {figure(f"lane.{name}", both(f"lane.{name}"))}</span>'
        for name in ("speed", "tokens", "clock")
    )
    lane = (
        f'<article class="lane"><h4><span data-lane="name"></span><span class="winner" '
        f"hidden>{both('lane.first')}</span></h4>"
        f'<p class="figures">{figures}</p><span class="bar" aria-hidden="true"><span data-lane="bar"></span></span>'
        '<div class="lane-text" tabindex="0" role="region"><p class="said" dir="auto" data-lane="blocks"></p></div>'
        '<div class="foot" data-lane="foot"></div></article>'
    )
    names = "".join(
        f'<span data-text="lane-{name}">{both(f"lane.name.{name}")}</span>'
        for name in ("plain", "speculative", "reply")
    )
    words = "".join(
        f'<span data-text="watch-{name}">{both(f"watch.say.{name}")}</span>'
        for name in ("nothing", "no-race", "unfinished", "opening", "too-large", "unanswered", "recorded")
    )
    look = f'<div data-text="look"><p class="acts">{_act("inspect", "act.inspect")}</p></div>'
    return f'<div hidden><div data-text="lane">{lane}</div>{look}{names}{words}</div>'
