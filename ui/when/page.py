"""The tab "When to use": its fixed frame, and what is put into it: results with their conclusions, advice, the seven
rules.

Everything is there without a script too: the frame holds the reference machine's results and the advice for the usual
answers.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from html import escape
from math import ceil
from typing import Any

from engine import EngineError
from engine.lab import ExperimentName, Result, Step, records
from ui.charts.reply import table
from ui.eta import time_left
from ui.html.render import both, copy_button, named, translate
from ui.when import advisor, charts, conclusions
from ui.when.advisor import KINDS, Advice, Answers, Evidence, Goal, Reason, Rule

log = logging.getLogger(__name__)

ORDER = (
    ExperimentName.RATE,
    ExperimentName.LENGTH,
    ExperimentName.K,
    ExperimentName.TEXT,
    ExperimentName.TEMPERATURE,
    ExperimentName.ROWS,
)

TOKENS = (advisor.SHORT, 16, 64, advisor.LONG)
USERS = (1, 2, 4, 8, 16, 32)

WITH_PROMPT = ExperimentName.K
"""The experiment that takes a prompt of the reader's own."""

MAX_PROMPT = 20_000


@cache
def reference() -> Mapping[ExperimentName, Result]:
    """What the reference machine measured; nothing where the file is missing or damaged, which is logged and said in
    the page."""
    try:
        return {result.name: result for result in records.reference()}
    except EngineError:
        log.warning("the reference machine's results could not be read", exc_info=True)
        return {}


def when() -> str:
    evidence = Evidence(reference())
    return (
        '<section class="view when" data-tab-view="when" aria-labelledby="gl-when-name">'
        f'<h2 id="gl-when-name">{both("when.title")}</h2><p class="lead">{both("when.lead")}</p>'
        f'<div class="notice" role="alert" data-slot="when-notice"></div>{_advisor(evidence)}'
        f'<h3>{both("lab.title")}</h3><p class="lead">{both("lab.lead")}</p>'
        f'<p class="picks">{"".join(map(_jump, ORDER))}</p>'
        f"{''.join(_experiment(name, evidence.results.get(name)) for name in ORDER)}{_ready()}</section>"
    )


def _ready() -> str:
    """Sentences that a script copies when it comes to that."""
    return (
        f'<div hidden><span data-text="when-unanswered">{both("when.unanswered")}</span>'
        f'<span data-text="lab-busy">{both("lab.busy")}</span></div>'
    )


# ---- the advisor


def _advisor(evidence: Evidence) -> str:
    answers = Answers()
    return (
        f'<section class="advisor" aria-labelledby="gl-advise"><h3 id="gl-advise">{both("advise.title")}'
        f"</h3>{_form(answers)}"
        f'<div class="advice" data-slot="advice" role="status">{advice(advisor.advise(answers, evidence))}</div>'
        f'<h4>{both("advise.rules")}</h4><p class="lead">{both("advise.rules.lead")}</p>'
        f'<div class="rules numbers" data-slot="rules">{rules(advisor.rules(answers, evidence))}</div></section>'
    )


def _form(answers: Answers) -> str:
    tokens = [(str(n), both(f"advise.tokens.{n}")) for n in TOKENS]
    yes_no = [("yes", both("advise.yes")), ("no", both("advise.no"))]
    fields = (
        _choice("tokens", tokens, str(answers.tokens)),
        _choice("users", [(str(n), str(n)) for n in USERS], str(answers.users)),
        _choice("goal", [(goal.value, both(f"advise.goal.{goal.value}")) for goal in Goal], answers.goal.value),
        _choice("busy", yes_no, "yes" if answers.busy else "no"),
        _choice("memory", yes_no, "yes" if answers.memory else "no"),
        _choice("kind", [(kind.value, both(f"advise.kind.{kind.value}")) for kind in KINDS], answers.kind.value),
    )
    return f'<form class="advise-form" data-part="advise-form">{"".join(fields)}</form>'


def _choice(field: str, options: list[tuple[str, str]], choice: str) -> str:
    labels = "".join(
        f'<label class="pick"><input type="radio" name="{field}" '
        f'value="{value}"{" checked" if value == choice else ""}>'
        f"<span>{words}</span></label>"
        for value, words in options
    )
    return f'<fieldset><legend>{both(f"advise.{field}")}</legend><div class="picks">{labels}</div></fieldset>'


def answers(form: Mapping[str, Any]) -> Answers:
    """What the form says; what it cannot have said is as usual."""
    usual = Answers()
    tokens, users = (_one_of(form.get(field), some) for field, some in (("tokens", TOKENS), ("users", USERS)))
    return Answers(
        tokens or usual.tokens,
        users or usual.users,
        next((goal for goal in Goal if goal.value == form.get("goal")), usual.goal),
        form.get("busy") == "yes",
        form.get("memory") != "no",
        next((kind for kind in KINDS if kind.value == form.get("kind")), usual.kind),
    )


def _one_of(value: object, numbers: tuple[int, ...]) -> int | None:
    return next((number for number in numbers if str(number) == value), None)


def advice(result: Advice) -> str:
    """The verdict, why, and the command lines."""
    reasons = "".join(
        f'<li class="{reason.stance.value}"><b>{both(f"advise.side.{reason.stance.value}")}</b> '
        f"<span>{reason.sentence.html()} {_from(reason)}</span></li>"
        for reason in result.reasons
    )
    lines = "".join(
        f'<p class="acts which"><span>{both(f"advise.command.{command.drafter}")}</span>{copy_button("copy-command")}'
        "</p>"
        f'<pre tabindex="0"><code>{escape(command.line)}</code></pre>'
        for command in result.commands
    )
    return (
        f'<h4 class="unseen">{both("advise.verdict")}</h4>'
        f'<p class="decision {result.verdict.value}">{both(f"advise.verdict.{result.verdict.value}")}</p>'
        f'<ul class="reasons">{reasons}</ul><h4>{both("advise.command")}</h4>{lines}'
        f'<p class="lead">{both("advise.command.note")}</p>'
    )


def _from(reason: Reason) -> str:
    """Where the figure comes from, and the way to the experiment."""
    if reason.experiment is None:
        return ""
    source = "none" if reason.own is None else "own" if reason.own else "reference"
    return f'<span class="from">{both(f"advise.from.{source}")} · {_link(reason.experiment)}</span>'


def _link(name: ExperimentName) -> str:
    return (
        f'<a href="#gl-lab-{name.value}" data-lab-link="{name.value}">{both("advise.measure")}<span class="unseen">'
        f": {both(f'lab.{name.value}.name')}</span></a>"
    )


def _jump(name: ExperimentName) -> str:
    return (
        f'<a class="pick" href="#gl-lab-{name.value}" data-lab-link="{name.value}">{both(f"lab.{name.value}.name")}</a>'
    )


def rules(table_rules: tuple[Rule, ...]) -> str:
    """The article's table with what was measured beside each row."""
    rows = []
    for rule in table_rules:
        situation = both(f"advise.rule.{rule.name}")
        if rule.applies:
            situation = f'<b>{situation}</b><span class="unseen"> ({both("advise.rule.applies")})</span>'
        verdict = (
            f'<span class="{"yes" if rule.speculate else "no"}">'
            f"{both('advise.yes' if rule.speculate else 'advise.no')}</span>"
        )
        rows.append((situation, verdict, f"{rule.reason.sentence.html()} {_from(rule.reason)}"))
    heads = [both("advise.rules.said"), both("advise.rules.here")]
    return table("advise.rules.table", ("advise.rules.situation",), rows, heads)


# ---- the lab


def _experiment(name: ExperimentName, result: Result | None) -> str:
    content = None if result is None else result_patch(result, own=False)
    numbers = {} if content is None else {chart: drawing["html"] for chart, drawing in content["charts"].items()}
    acts = "".join(
        f'<button type="button" class="act{more}" data-action="{action}"{state}>{both(key)}</button>'
        for action, key, more, state in (("lab-run", "lab.run", " go", ""), ("lab-stop", "lab.cancel", "", " hidden"))
    )
    prompt = (
        f'<label class="own"><span>{both("lab.prompt")}</span><textarea rows="2" maxlength="{MAX_PROMPT}" dir="auto" '
        'data-part="lab-prompt"></textarea></label>'
        if name is WITH_PROMPT
        else ""
    )
    return (
        f'<section class="experiment" id="gl-lab-{name.value}" data-experiment="{name.value}" '
        f'aria-labelledby="gl-lab-{name.value}-name" tabindex="-1">'
        f'<h4 id="gl-lab-{name.value}-name">{both(f"lab.{name.value}.name")}</h4>'
        f'<p class="asks">{both(f"lab.{name.value}.asks")}</p>{prompt}'
        f'<p class="runs">{acts}<span class="about" data-slot="seconds"></span></p>'
        f'<div class="going" data-slot="going" hidden><progress aria-label="{named("lab.running")}" data-slot="bar">'
        "</progress>"
        f'<p data-slot="left"></p></div><div class="notice" role="status" data-slot="notice"></div>'
        '<div class="found">'
        f'<p class="source" data-slot="source">{content["source"] if content else both("lab.missing")}</p>'
        f'<div class="says" role="status" data-slot="says">{content["says"] if content else ""}</div>'
        f'{charts.section(name, numbers)}<p class="acts saves" data-slot="saves"{"" if content else " hidden"}>'
        f'<button type="button" data-action="lab-save" data-form="csv">{both("lab.csv")}</button>'
        f'<button type="button" data-action="lab-save" data-form="json">{both("lab.json")}</button></p></div></section>'
    )


def result_patch(result: Result, own: bool) -> dict[str, Any]:
    """A result as the page takes it: where it is from, what it came to, its charts; version: which result it is."""
    sentences = "".join(f"<p>{sentence.html()}</p>" for sentence in conclusions.conclusion(result))
    label = f"<b>{both('lab.own' if own else 'lab.reference')}</b>"
    return {
        "version": f"{result.made} {own}", "own": own, "source": f"{label}: {_source(result)}", "says": sentences,
        "charts": charts.charts(result),
    }  # fmt: skip


def so_far(name: ExperimentName, step: Step) -> dict[str, Any]:
    """An experiment that runs: its points without a conclusion."""
    drawings = charts.charts(Result(name, step.points, (), "", 0.0))
    return {
        "version": f"so far {step.done}",
        "own": True,
        "source": both("lab.partial"),
        "says": "",
        "charts": drawings,
    }


def _source(result: Result) -> str:
    machine = dict(result.machine)
    parts = [escape(machine[key]) for key in ("processor", "device", "target", "weights", "kernel") if machine.get(key)]
    took = both("lab.took", threads=machine.get("threads", "?"), made=result.made[:10], seconds=f"{result.seconds:.0f}")
    notes = [both("lab.disturbed")] if result.disturbed else []
    if cut := dict(result.settings).get("cut"):
        notes.append(_cut(cut))
    return " · ".join([*parts, took]) + "".join(f"<br>{note}" for note in notes)


_CUTS = {
    "lab.cut.time": r"it took longer than (?P<seconds>\d+) s",
    "lab.cut.memory": r"there is memory for (?P<users>\d+) users at once",
}
"""What the engine says of a shortened experiment, where there are words for it."""


def _cut(why: str) -> str:
    """Why less was measured than planned; a reason that nobody knows here stands as the engine put it."""
    return translate(why, _CUTS) or both("lab.cut", why=why)


def progress(step: Step | None) -> str:
    if step is None:
        return both("lab.begins")
    how_far = both("lab.progress", done=step.done, total=step.total)
    return how_far if step.left_s is None else f"{how_far} · {time_left(step.left_s)}"


def about(seconds: float | None) -> str:
    """How long an experiment takes, where that is known."""
    if seconds is None:
        return ""
    if seconds > 90:
        return both("lab.about.minutes", count=ceil(seconds / 60))
    return both("lab.about.seconds", count=max(1, ceil(seconds / 5)) * 5)
