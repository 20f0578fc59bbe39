"""What happens in the tab "When to use": an experiment is run, its results are kept and saved, advice is asked for.

As in `ui.race.handlers` each handler returns or yields messages for the page; assets/page/when.js takes them. A message
is
    lab        of an experiment that runs, or could not: how far it is and what there is so far, and at last its result
    results    what this visitor has of each experiment
    advice     what the answers of the form come to
    file       results for the browser to save
Each says everything about what it is about, so that one that is lost is made up for by the next.
"""

from __future__ import annotations

import asyncio
import csv
import io
import logging
import time
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine import Busy, EngineError, InvalidParams, NotReady
from engine.lab import DEFAULTS, ExperimentName, Failed, Report, Reports, Result, Step, records
from ui.chat.handlers import Handlers
from ui.controls import readable
from ui.html import render
from ui.html.render import both
from ui.jobs import CALM_UPDATE_S, GLANCE_S, HEARTBEAT_S
from ui.sessions import Live, latest
from ui.updates import Patch, with_version
from ui.when import advisor, page
from ui.when.advisor import Evidence

log = logging.getLogger(__name__)

MAX_KEY = 100
CAPACITY = 200
"""Visitors whose results are kept; beyond it those of whoever came back last longest ago are forgotten."""


@dataclass(slots=True)
class VisitorResults:
    """What is kept for somebody: results, and the keys of the latest runs that have ended."""

    results: dict[ExperimentName, Result] = field(default_factory=dict)
    over: deque[str] = field(default_factory=lambda: deque(maxlen=8))


class Labs:
    """The events of this tab, bound to one engine and one set of results."""

    def __init__(self, handlers: Handlers) -> None:
        self.handlers = handlers
        self._visitors: OrderedDict[str, VisitorResults] = OrderedDict()
        self._live: dict[str, tuple[str, Live]] = {}

    # -- an experiment -----------------------------------------------------------------------------------------------

    async def lab(self, wish: Mapping[str, Any]) -> AsyncGenerator[Patch, None]:
        """wish: `session`, the visitor's secret name; `name` of the experiment; `key` of this run, made up by the page;
        `prompt`."""
        session, key, name = _text(wish.get("session")), _text(wish.get("key")), _name(wish.get("name"))
        if not session or name is None:
            return
        if session in self._live:
            yield _message(key, name, running=False, notice=both("lab.busy"))
            return
        live = Live()
        self._live[session] = key, live
        self.handlers.sessions.join(live)
        try:
            yield _message(key, name, running=True, **_going(None))
            async for status in self.handlers.until_loaded(live):
                yield _message(key, name, running=True, notice=render.loading_notice(status, pending=True))
            if live.stopped:
                yield _message(key, name, running=False, notice=both("lab.cancelled"))
                return
            try:
                reports = await self._ask(live, name, wish.get("prompt"))
            except EngineError as refusal:
                yield _message(key, name, running=False, notice=_refusal(refusal))
                return
            async for message in self._follow(live, reports, session, key, name):
                yield message
        except Exception:  # a mistake of ours must not leave the page waiting
            log.exception("an experiment failed")
            yield _message(key, name, running=False, notice=both("lab.bug"))
        finally:
            # Runs however the generator ends, also when Gradio closes it because the page has gone.
            self.handlers.sessions.end("", live)
            self._live.pop(session, None)
            self._visitor(session).over.append(key)

    async def _ask(self, live: Live, name: ExperimentName, prompt: object) -> Reports:
        own = readable(prompt)[: page.MAX_PROMPT] if name is page.WITH_PROMPT else ""
        lab = self.handlers.lab
        return await self.handlers.ask(live, lambda: lab.experiment(name, prompts=(own,) if own else ()))

    async def _follow(
        self, live: Live, reports: Reports, session: str, key: str, name: ExperimentName
    ) -> AsyncGenerator[Patch, None]:
        """Messages until it has ended; in between not too often, since each takes the processor from what is
        measured."""
        last_sent_s = 0.0
        latest: Report | None = None
        while not reports.done:
            fresh = reports.take(0)
            latest = fresh[-1] if fresh else latest
            waited_s = time.monotonic() - last_sent_s
            if reports.done or (fresh and waited_s > CALM_UPDATE_S) or waited_s > HEARTBEAT_S:
                live.started = live.started or latest is not None
                yield self._message_of(session, key, name, latest)
                last_sent_s = time.monotonic()
            await asyncio.sleep(GLANCE_S)

    def _message_of(self, session: str, key: str, name: ExperimentName, report: Report | None) -> Patch:
        if isinstance(report, Failed):
            return _message(key, name, running=False, notice=both("lab.failed", message=report.message))
        if not isinstance(report, Result):
            partial = {"shown": page.so_far(name, report)} if report is not None and report.points else {}
            return _message(key, name, running=True, notice="", **_going(report), **partial)
        if report.cancelled:
            return _message(key, name, running=False, notice=both("lab.cancelled"))
        self._visitor(session).results[name] = report
        return _message(key, name, running=False, notice="", shown=page.result_patch(report, own=True))

    def _visitor(self, session: str) -> VisitorResults:
        return latest(self._visitors, session, VisitorResults, CAPACITY)

    # -- results and advice ------------------------------------------------------------------------------------------

    def evidence(self, session: str) -> Evidence:
        """The visitor's own results, and the reference machine's where there are none."""
        own = self._visitors[session].results if session in self._visitors else {}
        return Evidence({**page.reference(), **own}, frozenset(own))

    async def ask(self, what: str, args: Mapping[str, Any]) -> Patch | None:
        """What the page asks; None where there is nothing to say."""
        session = _text(args.get("session"))
        number = {"number": args.get("number")}
        if what == "stop" and session in self._live:
            self._live[session][1].stop()
        if what == "results":
            return with_version({"results": number | await asyncio.to_thread(self._results, session)})
        if what == "advise":
            return with_version({"advice": number | self._advice(session, args)})
        name = _name(args.get("name"))
        if what == "file" and name is not None and (result := self.evidence(session).results.get(name)):
            return with_version({"file": number | file(result, _text(args.get("form")))})
        return None

    def _results(self, session: str) -> dict[str, Any]:
        evidence = self.evidence(session)
        experiments = {
            name.value: page.result_patch(result, name in evidence.own) for name, result in evidence.results.items()
        }
        running = self._live[session][0] if session in self._live else ""
        over = list(self._visitors[session].over) if session in self._visitors else []
        return {"experiments": experiments, "running": running, "over": over, "about": self._about()}

    def _about(self) -> dict[str, str]:
        """How long each experiment takes here, where the engine knows."""
        try:
            return {spec.name.value: page.about(spec.seconds) for spec in self.handlers.lab.experiments()}
        except NotReady:
            return {}

    def _advice(self, session: str, args: Mapping[str, Any]) -> dict[str, str]:
        form = args.get("answers")
        answers, evidence = page.answers(form if isinstance(form, dict) else {}), self.evidence(session)
        return {
            "html": page.advice(advisor.advise(answers, evidence)),
            "rules": page.rules(advisor.rules(answers, evidence)),
        }


def _text(value: object) -> str:
    return value[:MAX_KEY] if isinstance(value, str) else ""


def _name(value: object) -> ExperimentName | None:
    return next((name for name in ExperimentName if name.value == value), None)


def _message(key: str, name: ExperimentName, **fields: object) -> Patch:
    return with_version({"lab": {"key": key, "name": name.value} | fields})


def _going(report: Step | None) -> dict[str, Any]:
    how_far = {} if report is None else {"done": report.done, "total": report.total}
    return how_far | {"progress": page.progress(report)}


def _refusal(refusal: EngineError) -> str:
    if isinstance(refusal, InvalidParams) and refusal.field == "drafter":
        return both("lab.nobody")
    return both("lab.full") if isinstance(refusal, Busy) else both("lab.failed", message=str(refusal))


# -- files ------------------------------------------------------------------------------------------------------------


def file(result: Result, form: str) -> dict[str, str]:
    """A result for the browser to save: name, mime, text. form: "json" (read back by `engine.lab.records`), or CSV."""
    name = f"greenlight {result.name.value} {result.made[:10]}"
    if form == "json":
        return {"name": f"{name}.json", "mime": "application/json", "text": records.dumps([result])}
    return {"name": f"{name}.csv", "mime": "text/csv;charset=utf-8", "text": table(result)}


def table(result: Result) -> str:
    """A line for each point; every extra has a column, the machine and the date are on each line (CSV as in RFC
    4180)."""
    extras = list(dict.fromkeys(name for point in result.points for name, _ in point.extra))
    spec = next(spec for spec in DEFAULTS if spec.name is result.name)
    machine = "; ".join(value for _, value in result.machine)
    head = ["experiment", "series", "x", "x_unit", "y", "y_unit", "n", "low", "high", *extras, "made", "machine"]
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(head)
    for point in result.points:
        extra = dict(point.extra)
        low, high = ("" if side is None else side for side in (point.low, point.high))
        values = [
            point.x,
            spec.x_unit,
            point.y,
            spec.y_unit,
            point.n,
            low,
            high,
            *(extra.get(name, "") for name in extras),
        ]
        writer.writerow([result.name.value, str(point.series), *values, result.made, machine])
    return buffer.getvalue()
