"""The fixed frame of the tab "Learn": eight short steps and the glossary. All of it reads without scripts.

What a step shows at first was recorded elsewhere and says so; `ui.learn.handlers` replaces it by what the reader
measures.
"""

from __future__ import annotations

from html import escape

from engine import EngineError
from engine.lab import ExperimentName, Result, records
from ui.examples import EXAMPLES
from ui.html.render import both, named
from ui.inspect import inspector
from ui.learn import glossary_page, play, tables
from ui.recording import trace_file
from ui.recording.recordings import LaneName, Recording
from ui.state import Kind
from ui.strings.glossary import link

STEPS = ("token", "bound", "draft", "verify", "rule", "least", "sums", "drafters")
"""In the order in which they are read."""

GUESSES = ("is", "orange", ".")
"""What is drafted for QUESTION in the article's example."""

QUESTION = "What color is the sun?"

RECORDING_ID = "chat"
"""The recording that the steps show until the reader has measured."""


def learn() -> str:
    """The whole view."""
    parts = {
        "token": _token, "bound": _bound, "draft": _draft, "verify": _verify, "rule": play.rule,
        "least": _least, "sums": play.sums, "drafters": _drafters,
    }  # fmt: skip
    steps = "".join(_step(number, name, parts[name]()) for number, name in enumerate(STEPS, 1))
    return (
        '<section class="view learn" data-tab-view="learn" aria-labelledby="gl-learn-name">'
        f'<h2 id="gl-learn-name">{both("learn.title")}</h2><p class="lead">{both("learn.lead")}</p>{_path()}{steps}'
        '<section class="step" id="glossary" aria-labelledby="glossary-name">'
        f'<h3 id="glossary-name">{both("learn.glossary")}</h3>'
        f"<p>{both('learn.glossary.lead')}</p>{glossary_page.glossary()}</section></section>{_ready()}"
    )


def _path() -> str:
    """Links to the steps. They name the view too, so that they can be passed on."""
    links = "".join(f'<li><a href="?tab=learn#learn-{name}">{both(f"learn.step.{name}")}</a></li>' for name in STEPS)
    more = f'<p><a href="?tab=learn#glossary">{both("learn.glossary")}</a></p>'
    return f'<nav class="path" aria-label="{named("learn.path")}"><ol>{links}</ol>{more}</nav>'


def _step(number: int, name: str, live: str) -> str:
    return (
        f'<section class="step" id="learn-{name}" aria-labelledby="learn-{name}-name" tabindex="-1">'
        f'<h3 id="learn-{name}-name"><span class="number">{number}</span> {both(f"learn.step.{name}")}</h3>{live}'
        "</section>"
    )


def _says(key: str) -> str:
    return f"<p>{both(key)}</p>"


def lesson(name: str, go: str, content: str, fields: str = "", about: str = "") -> str:
    """Something to measure: a form with a button, and what is shown until something comes of it; about: its
    attributes."""
    return (
        f'<form class="lesson" data-lesson="{name}">{fields}<p class="fields">'
        f'<button type="submit" class="act go">{both(go)}</button>'
        f'<button type="button" class="act" data-action="lesson-stop" hidden>{both("learn.stop")}</button>'
        f'<progress max="1" value="0" hidden aria-label="{named("learn.working")}"></progress><span class="left">'
        "</span></p>"
        f'<div class="notice" role="alert"></div><div class="shown" data-shown="{name}"{about}>{content}</div></form>'
    )


def recording() -> Recording | None:
    """The one that the steps show; None where the copy of the app is incomplete, which its own tests tell."""
    try:
        return trace_file.load_shipped(RECORDING_ID, RECORDING_ID)
    except trace_file.Unreadable:
        return None


# -- the steps ---------------------------------------------------------------------------------------------------------


def _token() -> str:
    race = recording()
    plain = race.lane(LaneName.PLAIN) if race else None
    content = tables.tokens(plain.reply.blocks) + tables.recording_origin(race) if race and plain else ""
    live = lesson("token", "learn.token.go", content)
    return f"{_says('learn.step.token.text')}{_says('learn.step.token.more')}{live}"


def _bound() -> str:
    reference = reference_of(ExperimentName.ROWS)
    content = bound(reference, reference=True) if reference else f'<p class="result">{both("learn.bound.none")}</p>'
    live = lesson("bound", "learn.bound.go", content)
    return f"{_says('learn.step.bound.text')}{_says('learn.step.bound.more')}{live}"


def bound(result: Result, reference: bool) -> str:
    return f"{tables.passes(result.points)}{tables.origin(result, reference)}"


def reference_of(name: ExperimentName) -> Result | None:
    """What the reference machine measured; None where that does not come with this copy."""
    try:
        return next((result for result in records.reference() if result.name is name), None)
    except EngineError:
        return None


def _draft() -> str:
    guesses = "".join(
        f'<li data-at="{number}"><span class="nr">{both("learn.draft.guess", number=number)}</span> '
        f'<bdi class="t guess">{escape(guess)}</bdi>'
        f" <span>{both('learn.draft.sure')}</span></li>"
        for number, guess in enumerate(GUESSES, 1)
    )
    story = (
        f'<p class="asked">{both("learn.draft.so_far")}</p><ol class="story">{guesses}</ol>'
        f'<p class="note">{both("learn.draft.note")}</p>'
    )
    return f"{_says('learn.step.draft.text')}{_story(story, len(GUESSES))}"


def _story(inside: str, last: int) -> str:
    """Something that can be stepped through: a script hides what comes later. Without scripts all of it is there."""
    button = f'<button type="button" class="act" data-action="story">{both("learn.story.again")}</button>'
    return f'<div class="story-box" data-story="{last}">{inside}<p class="fields">{button}</p></div>'


def _verify() -> str:
    fates = (Kind.DRAFT, Kind.REJECTED, Kind.DISCARDED)
    cells = (("high", "high", "accepted"), ("high", "low", "rejected"), ("high", "medium", "discarded"))
    rows = "".join(
        f'<tr><th scope="row"><bdi class="t {kind.value}">{escape(guess)}</bdi></th><td>{both(f"learn.{draft}")}</td>'
        f'<td data-at="1">{both(f"learn.{target}")}</td><td data-at="{number + 1}">{both(f"learn.verify.{fate}")}</td>'
        "</tr>"
        for number, (guess, kind, (draft, target, fate)) in enumerate(zip(GUESSES, fates, cells, strict=True), 1)
    )
    own = (
        f'<tr data-at="5"><th scope="row"><bdi class="t recovered">yellow</bdi></th><td></td><td></td>'
        f"<td>{both('learn.verify.recovered')}</td></tr>"
    )
    heads = "".join(
        f'<th scope="col">{both(f"learn.verify.{name}")}</th>' for name in ("token", "draft", "target", "decision")
    )
    table = (
        f"<table><caption>{both('learn.verify.table')}</caption><thead><tr>{heads}</tr></thead><tbody>{rows}{own}"
        "</tbody></table>"
        f'<p class="result" data-at="5">{both("learn.verify.outcome")}</p>'
    )
    return f"{_says('learn.step.verify.text')}{_story(table, 5)}<h4>{both('learn.verify.real')}</h4>{_real()}"


def _real() -> str:
    """The reader's sentence; at first, a round of the recording in which something was rejected."""
    race = recording()
    content = about = ""
    if race and (place := first_rejection(race)):
        pane = inspector.pane(race, LaneName.SPECULATIVE, *place)
        content = f"{pane or ''}{tables.recording_origin(race)}"
        about = f' data-id="{RECORDING_ID}" data-block="{place[0]}" data-piece="{place[1]}"'
    field = (
        f'<label class="prompt"><span>{both("learn.verify.prompt")}</span>'
        f'<input name="prompt" type="text" dir="auto" maxlength="2000" value="{escape(QUESTION)}"></label>'
    )
    note = f'<p class="note">{both("learn.verify.settings")} {both("learn.verify.shown")}</p>'
    return lesson("verify", "learn.verify.go", content, field + note, about)


def first_rejection(race: Recording) -> tuple[int, int] | None:
    """Block and piece of the first rejected guess that stands behind an accepted one, or else of the first."""
    lane = race.lane(LaneName.SPECULATIVE) or race.lanes[0]
    places = [
        (b, p)
        for b, block in enumerate(lane.reply.blocks)
        for p, piece in enumerate(block.pieces)
        if piece.kind is Kind.REJECTED
    ]
    return next((place for place in places if place[1] > 0), places[0] if places else None)


def _least() -> str:
    race = recording()
    counts = tables.lengths(race, LaneName.SPECULATIVE) if race else ""
    return f"{_says('learn.step.least.text')}{play.least()}{counts}{_says('learn.step.least.more')}"


def _drafters() -> str:
    rows = [
        (link("ngram", both("drafter.ngram")), "ngram", "ngram"),
        (link("drafter", both("drafter.draft_model")), "draft_model", "model"),
        (link("head", both("drafter.head")), "head", "head"),
    ]
    recordings = [trace_file.load_shipped(name, name) for name in trace_file.SHIPPED]
    cells = [
        (
            name,
            *(both(f"learn.drafters.{word}.{part}") for part in ("how", "good", "weak")),
            tables.right(recordings, drafter),
        )
        for name, drafter, word in rows
    ]
    heads = [both(f"learn.drafters.{part}") for part in ("name", "how", "good", "weak", "recorded")]
    table = tables.table(both("learn.drafters.table"), heads, cells)
    options = "".join(f'<option value="{i}">{escape(e.en)} · {escape(e.zh)}</option>' for i, e in enumerate(EXAMPLES))
    field = (
        f'<p class="fields"><label>{both("learn.drafters.what")} <select name="example">{options}</select></label></p>'
    )
    live = lesson("drafters", "learn.drafters.go", "", field)
    onward = f'<p><a href="?tab=when" data-tab-link="when">{both("learn.next")}</a></p>'
    return f'{_says("learn.step.drafters.text")}<div class="wordy">{table}</div>{live}{onward}'


def _ready() -> str:
    """Sentences that a script copies; those in braces are filled in by it."""
    names = ("unanswered", "left", "stopped", "story.next", "story.again", "glossary.all", "glossary.close")
    words = "".join(f'<span data-text="learn-{name}">{both(f"learn.{name}", left="{left}")}</span>' for name in names)
    lost_note = f'<span data-text="learn-lost">{both("watch.lost")}</span>'
    return f"<div hidden>{words}{lost_note}{play.ready()}</div>"
