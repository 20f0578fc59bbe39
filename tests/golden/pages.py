"""What the page shows of fixed states: every HTML string, chart and patch that the server makes, both languages in
it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from app import prepare_environment
from engine.config import DecodingParams, Detail, EngineConfig, Rule, SamplingParams
from engine.events import FinishReason
from engine.lab.load_lab import Reports
from engine.lab.results import ExperimentName, TextKind
from engine.preflight.check import Report
from engine.preflight.diagnostics import DIAGNOSTIC_TEXTS, diagnose, worst
from engine.preflight.memory import Machine
from engine.serving.engine import State, Status
from engine.serving.swap import SwapPhase, SwapStatus
from tests.fake_engine import FakeEngine, Script, measured, play
from tests.golden.items import Item
from ui import bundle as page
from ui import controls, examples
from ui import updates as patches
from ui.charts import reply as charts
from ui.chat import sidebar as chats
from ui.chat.handlers import Handlers
from ui.html import panel, prose, render
from ui.inspect import inspector
from ui.inspect import token_card as card
from ui.learn import page as learn
from ui.learn.handlers import Lessons
from ui.models import page as models
from ui.race import charts as race_charts
from ui.race import handlers as races
from ui.race import verdict
from ui.race import viewer as watch
from ui.recording import trace_file
from ui.recording.recordings import Lane, LaneName, Recording, of_turn
from ui.state import Conversation, Reply, about_of, advance, begin, progress, redo, undo
from ui.strings import TEXT
from ui.when import advisor
from ui.when import handlers as labs
from ui.when import page as when
from ui.when.advisor import Answers, Evidence, Goal

MIXED = (
    "# Title\n\nSome *words* and `code`, <b>no tag</b> & more.\n\n```python\ndef add(a, b):\n    return a + b  # "
    "和\n```\n\n"
    "| a | b |\n|---|---|\n| 1 | 2 |\n\n- 你好，世界。\n- 🙂 [a link](https://example.org) $x^2$\n\n> quoted\n"
)
SCRIPTS = {
    "usual": Script(), "mixed": Script(MIXED * 2), "short": Script("Yes."), "rests": Script(rests=(3, 9)),
    "failed": Script(reason=FinishReason.ERROR, message="It <broke>.", special_end=False),
    "full": Script(reason=FinishReason.CONTEXT), "stopped": Script(reason=FinishReason.CANCELLED),
    "stop string": Script(reason=FinishReason.STOP_STRING),
}  # fmt: skip
PARAMS = {
    "k3": DecodingParams(drafter="ngram", num_speculative_tokens=3),
    "auto": DecodingParams(SamplingParams(0.8, top_p=0.9, seed=5), "both"),
    "plain": DecodingParams(drafter="none", num_speculative_tokens=0, max_new_tokens=20),
    "probs": DecodingParams(SamplingParams(1.2, top_k=30), "head", 4, Rule.SHARED_NOISE, detail=Detail.PROBS),
    "full": DecodingParams(drafter="draft_model", num_speculative_tokens=5, detail=Detail.FULL, probe_every=3),
}
ENGINE = FakeEngine(drafters=("none", "ngram", "head", "both", "draft_model"), note="A note <of> it.")
READY = Status(State.READY, "ready")
STATUSES = [READY, Status(State.FAILED, "load", message="It is <gone>."), Status(State.CLOSED, "ready"), *(
    Status(State.LOADING, phase, fraction)
    for phase, fraction in itertools.product(("start", "compile", "fetch", "unpack", "convert", "load", "warm_up"), (None, 0.4))
)]  # fmt: skip


def items() -> Iterator[Item]:
    prepare_environment()  # before gradio is imported
    yield from _frames()
    for (name, script), (how, params) in itertools.product(SCRIPTS.items(), PARAMS.items()):
        if name in ("usual", "mixed") or how in ("k3", "auto"):
            yield from _chat(f"chat/{name}/{how}", script, params)
    yield from _recordings()
    yield from _lab()
    yield from _models()
    yield from _lessons()
    yield from _settings()


def _unnumbered(patch: Any) -> Any:
    return {key: value for key, value in patch.items() if key != "v"}


def _frames() -> Iterator[Item]:
    """Everything that is there before anything happens."""
    from ui.layout import build_app

    yield "strings", TEXT
    yield "frame/script", page.script()
    yield "frame/style", page.style()
    yield "frame/early", page.early()
    options = {"usual": controls.Options(), "chinese": controls.Options(lang="zh", k=3, drafter="ngram"),
               "served": controls.Options(served=True, max_new_tokens=100)}  # fmt: skip
    for name, one in options.items():
        told = build_app(ENGINE, one).get_config_file()
        yield f"frame/app/{name}/components", [[part["type"], part["props"]] for part in told["components"]]
        yield f"frame/app/{name}/events", told["dependencies"]
        yield f"frame/models/{name}", models.models(one)
    yield "frame/learn", learn.learn()
    yield "frame/when", when.when()
    yield "frame/watch", [watch.tabs(), watch.small(), watch.watch()]
    yield "frame/rest", [chats.header(), chats.sidebar(), examples.buttons(), render.legend(), render.scale()]
    for number, status in enumerate(STATUSES):
        facts = ENGINE.facts() if status is READY else None
        empty = Conversation("empty")
        yield f"status/{number}", [render.engine_chip(status, facts), render.loading(status), render.loading_notice(status),
                                   render.loading_notice(status, True, 40.0), render.note(facts),
                                   _unnumbered(patches.everything(empty, status, facts, 70.0)),
                                   _unnumbered(patches.still_loading(empty, status, facts))]  # fmt: skip


def _chat(begins: str, script: Script, params: DecodingParams) -> Iterator[Item]:
    """A chat of two replies at several moments, and what can be asked of the second."""
    facts, events = ENGINE.facts(), play(script, params)
    about = about_of(facts, params, "Be <brief>.")
    told = begin(Conversation("chat-1"), "First & <b>?", about=about)
    told = progress(told, 1, play(Script("One. Two. Three."), params))
    told = begin(told, "再来一次 <script>", about=about)
    for count in (0, 1, 4, len(events)):
        seen = progress(told, 2, events[:count])
        turn = seen.turns[-1]
        yield f"{begins}/after {count}/all", _unnumbered(patches.everything(seen, READY, facts))
        latest = patches.latest(seen, 0, patches.block_patches(turn.reply.blocks), 1, note=render.both("notice.empty"))
        yield f"{begins}/after {count}/latest", _unnumbered(latest)
        yield f"{begins}/after {count}/charts", charts.charts(turn.reply)
    yield f"{begins}/panel", [panel.figures(turn.reply.tally, seen.tally), panel.bars(turn.reply.tally, seen.tally)]
    yield f"{begins}/prose", [prose.answer(turn.reply.text, 0), prose.answer(turn.reply.text, 40)]
    yield f"{begins}/meter", [render.meter(seen, 8192, 30), render.meter(seen, 100)]
    for change in (undo(seen), redo(undo(seen))):
        yield (
            f"{begins}/{'redone' if change.turns == seen.turns else 'undone'}",
            _unnumbered(patches.after_undo(change, "a", "b")),
        )
    recording = of_turn(turn, "r")
    for place, block in enumerate(turn.reply.blocks[:9]):
        for i in range(len(block.pieces)):
            yield f"{begins}/card/{place}/{i}", card.answer(turn, place, i)
            yield f"{begins}/inside/{place}/{i}", inspector.pane(recording, LaneName.REPLY, place, i)


def _recordings() -> Iterator[Item]:
    for name in trace_file.SHIPPED:
        yield from _race(f"race/{name}", trace_file.load_shipped(name, "r"))
    about = {how: about_of(ENGINE.facts(), params, "") for how, params in PARAMS.items()}
    for name, text in {"same": "One two three. " * 9, "other": "One two four. " * 5}.items():
        lanes = [
            Lane(
                LaneName.PLAIN, about["plain"], advance(Reply(), play(Script("One two three. " * 9), PARAMS["plain"]))
            ),
            Lane(LaneName.SPECULATIVE, about["full"], advance(Reply(), play(Script(text), PARAMS["full"]))),
        ]
        yield from _race(f"race/{name}", Recording("r", "Go & <go>", tuple(lanes)))


def _race(begins: str, recording: Recording) -> Iterator[Item]:
    counts = {lane.name: len(lane.reply.blocks) // 2 for lane in recording.lanes}
    yield f"{begins}/shown", races.recording_patch(recording)
    for name, one in (("whole", recording), ("half", recording.upto(counts))):
        yield f"{begins}/{name}/verdict", [verdict.verdict(one), verdict.verdict(one, again=False)]
        yield f"{begins}/{name}/compared", verdict.comparison(one)
        yield f"{begins}/{name}/charts", race_charts.charts(one)
    yield f"{begins}/half counted", race_charts.charts(recording, counts)
    for lane in recording.lanes:
        for place in range(0, len(lane.reply.blocks), 5):
            for i in range(len(lane.reply.blocks[place].pieces)):
                yield f"{begins}/inside/{lane.name}/{place}/{i}", inspector.pane(recording, lane.name, place, i)


def _lab() -> Iterator[Item]:
    own = {name: measured(name) for name in ExperimentName}
    for name, result in (own | {f"reference {name}": one for name, one in when.reference().items()}).items():
        yield (
            f"lab/{name}/shown",
            [when.result_patch(result, own=True), when.result_patch(replace(result, disturbed=True), own=False)],
        )
        yield f"lab/{name}/files", [labs.file(result, form) for form in ("csv", "json")]
        reports = list(_steps(result))
        yield f"lab/{name}/so far", [[when.so_far(result.name, step), when.progress(step)] for step in reports[1:-1:4]]
    yield "lab/about", [when.about(seconds) for seconds in (None, 3.0, 80.0, 1000.0)]
    evidence = {"reference": Evidence(when.reference()), "own": Evidence(own, frozenset(own)), "none": Evidence({})}
    asked = itertools.product((8, 512), (1, 4, 64), Goal, (False, True), (False, True), (TextKind.CHAT, TextKind.POEM))
    for answers in itertools.starmap(Answers, asked):
        for name, known in evidence.items():
            told = [advisor.advise(answers, known), advisor.rules(answers, known)]
            shown = [when.advice(told[0]), when.rules(told[1])]
            key = "/".join(
                map(str, (answers.tokens, answers.users, answers.goal, answers.busy, answers.memory, answers.kind))
            )
            yield f"advice/{name}/{key}", [told, shown]


def _steps(result: Any) -> Sequence[Any]:
    reports: Reports = FakeEngine().experiment(result.name)
    return list(reports)


def _models() -> Iterator[Item]:
    facts = ENGINE.facts()
    for name, one in {"usual": facts, "device": replace(facts, exact=False, inexact="device", device="cuda:0"),
                      "drafter": replace(facts, drafter_name="owner/small", drafter_device="cpu", note="")}.items():  # fmt: skip
        yield (
            f"models/in use/{name}",
            [models.in_use(one), models.announcement(one), models.pair_name(one.target, one.drafter_name)],
        )
    for number, machine in enumerate(
        (None, Machine(free_mib=4000), Machine(free_mib=64_000, gpu_free_mib=24_000, gpu_name="GPU"))
    ):
        yield f"models/presets/{number}", models.presets(machine)
    for code, sentence in DIAGNOSTIC_TEXTS.items():
        findings = (diagnose(code, **{name: f"<{name}>" for name in sentence.fields}),)
        report = Report(
            worst(findings), findings, None, None, 100.0, 150.0, (("target", 60.0), ("cache", 40.0)), "head"
        )
        yield f"models/card/{code}", models.card(report)
    for phase, step, fraction in itertools.product(SwapPhase, ("", "load", "fetch"), (None, 0.3)):
        status = SwapStatus(phase, EngineConfig(), step, fraction, "It <broke>." if phase is SwapPhase.FAILED else "")
        shown = models.over(status, "b", 9.0) if status.over else models.going(status, "<i>a</i>", 12.0, 30.0, 2)
        yield f"models/{phase.value}/{step}/{fraction}", shown


def _lessons() -> Iterator[Item]:
    """The last that each lesson says, but for the name of what it recorded."""
    lessons = Lessons(Handlers(ENGINE, controls.Options(), ENGINE))
    for name, example in (("token", 0), ("bound", 0), ("verify", 0), ("drafters", 0), ("drafters", 1)):
        wish = {"key": f"{name} {example}", "name": name, "prompt": "What color is the sun?", "example": example}
        told: dict[str, Any] = {}
        for patch in asyncio.run(_all(lessons, wish)):
            told |= patch["lesson"]
        yield f"lesson/{name}/{example}", {key: value for key, value in told.items() if key not in ("id", "left")}


async def _all(lessons: Lessons, wish: dict[str, Any]) -> list[Any]:
    return [patch async for patch in lessons.lesson(wish)]


def _settings() -> Iterator[Item]:
    """What becomes of good and bad values of every setting."""
    table = controls.table(controls.Options(), ENGINE.drafters)
    yield "settings/table", table
    values: list[object] = [control.default for control in table]
    for place, control in enumerate(table):
        for given in (
            None,
            "",
            "x",
            -1,
            0,
            1,
            0.5,
            3,
            1e9,
            float("nan"),
            True,
            False,
            [],
            "ngram",
            "shared_noise",
            "a\nb",
            "7",
        ):
            made, wrong = controls.settings(table, [*values[:place], given, *values[place + 1 :]])
            said = [one.sentence(lang) for one in wrong for lang in ("en", "zh")]
            yield f"settings/{control.name}/{given!r}", [made, said]
