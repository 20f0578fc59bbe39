"""The tab "Models": its fixed frame, and what is put into it: the pair in use, what a check found, a change, the known
pairs."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from engine import (
    COMPUTE,
    DEVICES,
    DRAFTER_WORDS,
    MODEL_PRESETS,
    QUANTS,
    Diagnostic,
    EngineConfig,
    Facts,
    FitLevel,
    Machine,
    ModelInfo,
    ModelPreset,
    Report,
    SwapPhase,
    SwapStatus,
    worst_first,
)
from ui.controls import Options
from ui.eta import time_left
from ui.html.render import both, icon, name
from ui.models import names as model_names
from ui.strings import LANGS, TEXT, Lang, text

MARKS = {
    FitLevel.FITS: '<path d="m3 8.5 3.5 3.5L13 4.5"/>',
    FitLevel.SLOW: '<circle cx="8" cy="8" r="5.5"/><path d="M8 4.5V8l2.5 2"/>',
    FitLevel.CANNOT: '<path d="m4 4 8 8M12 4l-8 8"/>',
}

CHOICES = {"quant": QUANTS, "drafter_quant": QUANTS, "device": DEVICES, "drafter_device": DEVICES, "compute": COMPUTE}
"""Fields of the form that are chosen from a list."""

FIELDS = ("target", "drafter", *CHOICES)
"""Of the form, as in `EngineConfig`."""

DRAFTING = {"same ids": "same", "re-encoded": "reencoded", "head": "head", "ngram": "ngram", "none": "none"}
"""`Report.drafting` as it stands in keys of `ui.strings`."""


def models(options: Options) -> str:
    return (
        '<section class="view models" data-tab-view="models" aria-labelledby="gl-models-name">'
        f'<h2 id="gl-models-name">{both("models.title")}</h2><p class="lead">{both("models.lead")}</p>'
        f'<section aria-labelledby="gl-models-now"><h3 id="gl-models-now">{both("models.now")}</h3>'
        f'<div class="in-use" data-slot="models-pair"><p>{both("models.none")}</p></div></section>'
        f'<section aria-labelledby="gl-models-other"><h3 id="gl-models-other">{both("models.other")}</h3>'
        f"{_served_note(options)}{_form(options)}"
        f'<div class="notice" role="alert" data-slot="models-notice"></div>{_change()}'
        '<div class="card" data-slot="models-card" role="status"></div></section>'
        f'<section aria-labelledby="gl-models-presets"><h3 id="gl-models-presets">{both("models.presets")}</h3>'
        f'<p class="lead">{both("models.presets.lead")}</p><div data-slot="models-presets">{presets(None)}</div>'
        "</section>"
        f'<div hidden><span data-text="models-unanswered">{both("models.unanswered")}</span>'
        f'<span data-text="models-empty">{both("models.empty")}</span></div></section>'
    )


def _served_note(options: Options) -> str:
    return f'<p class="served">{both("models.served")}</p>' if options.served else ""


# ---- the form


def _form(options: Options) -> str:
    folder_names = model_names.offered_names(options)
    targets = (
        [pair.name for pair in MODEL_PRESETS]
        + [pair.target for pair in MODEL_PRESETS if pair.target != pair.name]
        + list(folder_names)
    )
    drafters = [
        *DRAFTER_WORDS,
        *(pair.drafter for pair in MODEL_PRESETS if pair.drafter not in DRAFTER_WORDS),
        *folder_names,
    ]
    suffix = ".served" if options.served else ""
    more = "".join(_select(field) for field in ("drafter_device", "compute"))
    return (
        f'<div class="recent" data-part="models-recent" hidden><span>{both("models.recent")}</span><p class="picks">'
        "</p></div>"
        f'<form class="models-form" data-part="models-form" autocomplete="off"><div class="fields">'
        f"{_line('target', targets, f'models.target.help{suffix}')}{_line('drafter', drafters, 'models.drafter.help')}"
        "</div>"
        f'<div class="fields">{"".join(map(_select, ("quant", "drafter_quant", "device")))}</div>'
        f'<details><summary>{both("models.more")}</summary><div class="fields">{more}</div></details>'
        f'<p class="acts"><button type="submit" class="act">{both("models.check")}</button>'
        f'<button type="button" class="act go" data-action="models-load">{both("models.load")}</button>'
        f'<span class="safe">{both("models.safe")}</span></p></form>'
    )


def _line(field: str, suggestions: list[str], help_key: str) -> str:
    """A line of text with names to choose from."""
    options = "".join(f'<option value="{escape(one)}"></option>' for one in dict.fromkeys(suggestions))
    return (
        f'<label><span>{both(f"models.{field}")}</span><input name="{field}" type="text" list="gl-models-{field}" '
        'dir="auto"'
        f' maxlength="{model_names.MAX_NAME}" spellcheck="false" autocapitalize="off" '
        f'aria-describedby="gl-models-{field}-help">'
        f'<small id="gl-models-{field}-help">{both(help_key)}</small></label>'
        f'<datalist id="gl-models-{field}">{options}</datalist>'
    )


def _select(field: str) -> str:
    options = "".join(map(_option, CHOICES[field]))
    return f'<label><span>{both(f"models.{field}")}</span><select name="{field}">{options}</select></label>'


def _option(value: str) -> str:
    """An option holds plain text alone, so a script puts in the word of the language shown."""
    key = f"models.option.{value}"
    if key not in TEXT:
        return f'<option value="{value}">{value}</option>'
    words = " ".join(f'data-{lang}="{escape(text(key, lang))}"' for lang in LANGS)
    return f'<option value="{value}" {words}>{escape(text(key, "en"))}</option>'


def _change() -> str:
    """The place of a change; a script fills it, so that its buttons stay where they are."""
    return (
        '<div class="change" data-part="models-change" hidden><p class="title" role="status" data-slot="models-title">'
        "</p>"
        '<progress data-slot="models-bar"></progress><p class="far" data-slot="models-far"></p>'
        '<p class="while" data-slot="models-while"></p><p class="acts">'
        f'<button type="button" class="act" data-action="models-cancel">{both("models.cancel")}</button>'
        f'<button type="button" class="act" data-action="models-close">{both("models.close")}</button></p></div>'
    )


# ---- the pair in use


def in_use(facts: Facts) -> str:
    """All that is true of the pair in use, as a list of names and values."""
    cells = [
        ("target", f"<b>{escape(facts.target)}</b>"),
        ("drafter", _guesses(facts)),
        ("weights", escape(facts.weights)),
        ("kernel", escape(facts.kernel)),
        ("device", _device(facts)),
        ("memory", both("pair.memory.is", weights=size(facts.weights_mib), cache=size(facts.cache_mib))),
        ("context", both("pair.context.is", count=facts.context_len)),
        ("exact", _exact(facts)),
    ]
    rows = "".join(f"<div><dt>{both(f'pair.{cell}')}</dt><dd>{html}</dd></div>" for cell, html in cells)
    return f"<dl>{rows}</dl>"


def _device(facts: Facts) -> str:
    if facts.device == "cpu":
        return both("pair.device.cpu", device=facts.device, threads=facts.threads)
    return escape(facts.device)


def _guesses(facts: Facts) -> str:
    """The drafter model or head by its name, and all that can be chosen in the settings."""
    choices = " · ".join(name(drafter) for drafter in facts.drafters if drafter != "none")
    if not facts.drafter_name:
        return choices or name("none")
    who = both("pair.drafter.on", name=facts.drafter_name, device=facts.drafter_device or facts.device)
    return f"<b>{who}</b><small>{both('pair.choices')}: {choices}</small>"


def _exact(facts: Facts) -> str:
    if facts.exact:
        return both("pair.exact.yes")
    key = f"pair.exact.no.{facts.inexact}"
    return both(key if key in TEXT else "pair.exact.no", device=facts.device)


def pair_name(target: str, drafter: str) -> str:
    """A pair in a few words, as HTML. drafter: "" where no model or head of a name guesses."""
    if drafter and drafter not in DRAFTER_WORDS:
        return both("models.and", target=target, drafter=drafter)
    return escape(target)


def size(mib: float) -> str:
    """In three figures at most."""
    if mib < 1000:
        return f"{mib:.0f} MiB" if mib >= 9.95 else f"{mib:.1f} MiB"
    return f"{mib / 1024:.1f} GiB" if mib < 99.95 * 1024 else f"{mib / 1024:.0f} GiB"


# ---- what a check found


def checking() -> str:
    return (
        f'<div class="checking"><p><span class="busy">{both("models.checking")}</span></p><progress></progress>'
        f"<p>{both('models.checking.only')}</p></div>"
    )


def card(report: Report) -> str:
    """The verdict, who would go together, why, what to try, and the memory."""
    return (
        f'<div class="report {report.verdict.value}"><p class="verdict">{icon(MARKS[report.verdict])}'
        f"{both(f'models.verdict.{report.verdict.value}')}</p>{_who(report)}"
        f"{_findings(report.diagnostics)}{_memory(report)}</div>"
    )


def _who(report: Report) -> str:
    if report.target is None:
        return ""
    lines = [_headers(headers) for headers in (report.target, report.drafter) if headers is not None]
    lines.append(both(f"models.drafting.{DRAFTING.get(report.drafting, 'none')}"))
    return f'<ul class="headers">{"".join(f"<li>{line}</li>" for line in lines)}</ul>'


def _headers(headers: ModelInfo) -> str:
    title = both("drafter.head") if headers.head is not None and headers.name == "head" else escape(headers.name)
    parts = [f"<b>{title}</b>", escape(headers.kind)]
    if headers.parameters:
        parts.append(both("models.parameters", count=parameter_count(headers.parameters)))
    if headers.formats:
        parts.append(escape(", ".join(form for form, _ in headers.formats[:2])))
    if headers.context_len:
        parts.append(both("models.reads", context=headers.context_len))
    return " · ".join(part for part in parts if part)


def parameter_count(count: int) -> str:
    """Parameters as people say them: 135M, 8.2B."""
    if count >= 10**9:
        return f"{count / 1e9:.1f}B"
    return f"{count / 1e6:.0f}M" if count >= 10**6 else str(count)


def _findings(diagnostics: tuple[Diagnostic, ...]) -> str:
    return f'<ul class="findings">{"".join(map(_finding, worst_first(diagnostics)))}</ul>' if diagnostics else ""


def _finding(diagnostic: Diagnostic) -> str:
    advice = _sentence(f"check.{diagnostic.code}.try", diagnostic.advice, diagnostic)
    suggestion = f'<p class="try"><b>{both("models.try")}</b> {advice}</p>' if advice else ""
    return (
        f'<li class="{diagnostic.level.value}">{icon(MARKS[diagnostic.level])}<div><p>'
        f'<span class="unseen">{both(f"models.level.{diagnostic.level.value}")}: </span>'
        f"{_sentence(f'check.{diagnostic.code}', diagnostic.message, diagnostic)}</p>{suggestion}</div></li>"
    )


def _sentence(key: str, english: str, diagnostic: Diagnostic) -> str:
    """In both languages where there are words for it, else as the engine put it."""
    if not english or key not in TEXT:
        return escape(english)
    texts = {lang: escape(text(key, lang, **_values(diagnostic, lang))) for lang in LANGS}
    return "".join(f'<span class="{lang}" lang="{lang}">{texts[lang]}</span>' for lang in LANGS)


def _values(diagnostic: Diagnostic, lang: Lang) -> dict[str, str]:
    """What a finding is filled in with; the few words among them in that language."""
    keys = {value: f"check.word.{value}" for _, value in diagnostic.values}
    return {name: text(keys[value], lang) if keys[value] in TEXT else value for name, value in diagnostic.values}


def _memory(report: Report) -> str:
    """A bar of the parts to one scale with what is free; the legend says the same in numbers."""
    if report.needs_mib <= 0:
        return ""
    has_free = report.free_mib is not None
    free = report.free_mib or 0.0
    whole = max(report.needs_mib, free)
    parts = [(part, mib) for part, mib in report.parts if mib > 0]
    bars = "".join(f'<i class="{escape(part)}" style="width: {mib / whole:.2%}"></i>' for part, mib in parts)
    limit = f'<u style="left: {free / whole:.2%}"></u>' if has_free and free < whole else ""
    legend = "".join(f'<li class="{escape(part)}">{_part(part)} <b>{size(mib)}</b></li>' for part, mib in parts)
    rest = f'<li class="free">{both("models.part.free")} <b>{size(free - report.needs_mib)}</b></li>'
    sentence = both(
        "models.needs" if has_free else "models.needs.alone",
        needs=size(report.needs_mib),
        **({"free": size(free)} if has_free else {}),
    )
    return (
        f'<div class="memory"><p>{sentence}</p><div class="parts" aria-hidden="true">{bars}{limit}</div>'
        f"<ul>{legend}{rest if has_free and free > report.needs_mib else ''}</ul></div>"
    )


def _part(part: str) -> str:
    return both(f"models.part.{part}") if f"models.part.{part}" in TEXT else escape(part)


# ---- a change


def going(status: SwapStatus, who: str, seconds: float, left_s: float | None, writing: int) -> dict[str, Any]:
    """How far a change is, for the places of the frame. who: the new pair, as HTML; writing: replies that it waits
    for."""
    waits = status.phase is SwapPhase.WAITING
    key = "models.phase.waiting.none" if waits and not writing else f"models.phase.{status.phase.value}"
    doing = both(key, **({"count": writing} if waits and writing else {}))
    if status.step and f"load.{status.step}" in TEXT and status.phase is SwapPhase.LOADING:
        doing = both(f"load.{status.step}")
    share = "" if status.fraction is None else f" {status.fraction * 100:.0f} %"
    rest = [both("models.so_far", seconds=f"{seconds:.0f}"), *([] if left_s is None else [time_left(left_s)])]
    queue = both("models.waits", count=writing) if writing and not waits and not status.made_room else ""
    meanwhile = both("models.instead" if status.made_room else "models.meanwhile")
    return {
        "going": True, "title": _sentence_about("models.changing", who), "bar": status.fraction,
        "far": " · ".join([f'<span class="busy">{doing}{share}</span>', *rest]),
        "while": f"{queue} {meanwhile}".strip(),
    }  # fmt: skip


def over(status: SwapStatus, who: str, seconds: float) -> dict[str, Any]:
    """What came of a change."""
    if status.phase is SwapPhase.DONE:
        title = _sentence_about("models.done", who, seconds=f"{seconds:.0f}")
    elif status.phase is SwapPhase.FAILED:
        title = f'<span class="error">{both("models.failed", message=status.message)}</span>'
    else:
        title = both("models.cancelled")
    return {"going": False, "title": title, "bar": None, "far": "", "while": ""}


def announcement(facts: Facts) -> str:
    """For every page that is open when a pair takes the place of another."""
    return (
        f'<span class="news">{_sentence_about("models.announced", pair_name(facts.target, facts.drafter_name))}</span>'
    )


PLACE = "\u0000"


def _sentence_about(key: str, who: str, **values: object) -> str:
    """A sentence about a pair whose name is HTML in both languages already; the style sheet shows one of each."""
    return both(key, name=PLACE, **values).replace(PLACE, f"<b>{who}</b>")


# ---- pairs that are known


def presets(machine: Machine | None) -> str:
    """The table of pairs. machine: what is free here, None until that is known."""
    heads = "".join(f"<th>{both(f'models.col.{column}')}</th>" for column in ("pair", "needs", "free"))
    rows = "".join(_preset(pair, machine) for pair in MODEL_PRESETS)
    return (
        f'<table class="known"><thead><tr>{heads}<th><span class="unseen">{both("models.use")}</span></th></tr>'
        f"</thead><tbody>{rows}</tbody></table>"
    )


def _preset(pair: ModelPreset, machine: Machine | None) -> str:
    key = f"pair.{pair.name}"
    title = both(key) if key in TEXT else escape(pair.name)
    chinese = f' <span class="tag">{both("models.chinese")}</span>' if pair.chinese else ""
    lines = [f"{escape(pair.target)}{_quant_suffix(pair.quant)}"]
    if pair.drafter not in DRAFTER_WORDS:
        lines.append(f"{escape(pair.drafter)}{_quant_suffix(pair.drafter_quant)}")
    free, short = _free(pair, machine)
    wish = {field: getattr(pair, field) for field in ("target", "drafter", "quant", "drafter_quant", "device")}
    data = " ".join(f'data-{field.replace("_", "-")}="{escape(value)}"' for field, value in wish.items())
    label = " · ".join(
        escape(text("models.use.this", lang, name=text(key, lang) if key in TEXT else pair.name)) for lang in LANGS
    )
    return (
        f'<tr><th scope="row">{title}{chinese}<small>{"<br>".join(lines)} · {escape(pair.parameters)}</small></th>'
        f'<td>{size(pair.needs_mib)}</td><td class="{"short" if short else "enough"}">{free}</td>'
        f'<td><button type="button" class="act" data-action="models-use" {data} '
        f'aria-label="{label}">{both("models.use")}</button></td></tr>'
    )


def _quant_suffix(quant: str) -> str:
    return "" if quant == "auto" else f", {escape(quant)}"


def _free(pair: ModelPreset, machine: Machine | None) -> tuple[str, bool]:
    """What is free for it here, and whether that is too little."""
    if machine is None:
        return "", False
    if pair.device == "cuda" and machine.gpu_free_mib is None:
        return both("models.free.no_gpu"), True
    on_gpu = pair.device == "cuda" or (pair.device == "auto" and machine.gpu_free_mib is not None)
    free = machine.free_on("cuda" if on_gpu else "cpu")
    if free is None:
        return both("models.free.unknown"), False
    short = free < pair.needs_mib
    sentence = both("models.free.gpu" if on_gpu else "models.free.memory", free=size(free))
    return (f"{sentence}<small>{both('models.short')}</small>" if short else sentence), short


def wish_of(config: EngineConfig, options: Options) -> Mapping[str, str] | None:
    """What somebody would fill in for that pair; None where they may not know its name."""
    target, drafter = (model_names.display_name(name, options) for name in (config.target, config.drafter))
    if target is None or drafter is None:
        return None
    return {"target": target, "drafter": drafter} | {field: getattr(config, field) for field in CHOICES}
