"""What happens in the tab "Models": a pair is checked, another is loaded in place of the one in use, and every page
hears of it.

Unlike the other views this one pulls: a page asks time and again what there is ("news"), and is answered where that is
not what it has seen. So nothing can get lost, a page that is loaded again finds all as it was, and one that knows
nothing of a change learns of it. assets/page/models.js takes the answers. Each has
    token    what it says, in a few characters; the page sends it back as what it has seen
    pair     the pair in use, `number` of it, `wish`: what would have to be filled in for it; None while there is none
    change   the change under way, or what came of this visitor's latest; None where there is nothing to say
    check    this visitor's latest check, under the `number` that the page gave it
    presets  the known pairs, and what is free for them now
    notice   a refusal, in words
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from engine import (
    DRAFTER_WORDS,
    Busy,
    EngineConfig,
    EngineError,
    FitLevel,
    Report,
    State,
    Status,
    Swap,
    check_config,
    resolve_preset,
    this_machine,
)
from ui.chat.handlers import Handlers
from ui.eta import Pace
from ui.html.render import both
from ui.models import names as model_names
from ui.models import page
from ui.models.names import NotAllowed
from ui.sessions import latest
from ui.updates import Patch, with_version

log = logging.getLogger(__name__)

CAPACITY = 200
"""Visitors whose latest check is kept; beyond it that of whoever asked last longest ago is forgotten."""

MAX_KEY = 100


@dataclass(slots=True)
class LatestCheck:
    """What was said to somebody last. number: of the check or load that they asked for last; checking: it is under
    way."""

    number: int = 0
    checking: bool = False
    card: str = ""
    notice: str = ""
    closed_swap: Swap | None = None


@dataclass(slots=True)
class Change:
    """A change that was asked for here: by whom, and when it began and ended (seconds of one clock)."""

    swap: Swap
    session: str
    who: str
    began_s: float
    ended_s: float | None = None


class Models:
    """The events of this tab, bound to one engine."""

    def __init__(self, handlers: Handlers) -> None:
        self.handlers = handlers
        self._visitors: OrderedDict[str, LatestCheck] = OrderedDict()
        self._latest_change: Change | None = None
        self._pace = Pace()
        self._start = secrets.token_hex(4)  # numbers of pairs begin anew with the server

    async def ask(self, what: str, args: Mapping[str, Any]) -> Patch | None:
        """What the page asks; None where it has seen all that there is to say.

        args: `session`, the visitor's secret name; `seen`; of "check" and "load" `number`, which grows, and `wish`, the
        form.
        """
        visitor = self._visitor(_text(args.get("session")))
        number = args.get("number")
        if what in ("check", "load") and isinstance(number, int) and number > visitor.number:
            visitor.number = number
            await self._check(visitor, number, args, load=what == "load")
        elif what == "cancel":
            self._cancel(visitor, _text(args.get("session")))
        elif what == "close":
            visitor.closed_swap = self._latest_change.swap if self._latest_change else None
            visitor.notice = ""
        message = self._message(visitor, _text(args.get("session")))
        token = hashlib.sha256(json.dumps(message).encode()).hexdigest()[:16]
        if token == args.get("seen"):
            return None
        machine = await asyncio.to_thread(this_machine)
        return with_version({"models": {"token": token} | message | {"presets": page.presets(machine)}})

    # -- a check, and a load -----------------------------------------------------------------------------------------

    async def _check(self, visitor: LatestCheck, number: int, args: Mapping[str, Any], load: bool) -> None:
        """Checks what the form says; where that may run and it was asked for, it is loaded."""
        visitor.card = visitor.notice = ""
        visitor.closed_swap = (
            self._latest_change.swap
            if self._latest_change and self._latest_change.ended_s is not None
            else visitor.closed_swap
        )
        try:
            config = self._config(args.get("wish"))
        except NotAllowed as name:
            visitor.notice = both("models.forbidden" if str(name) else "models.empty", **_name_values(name))
            return
        except EngineError as error:
            visitor.notice = both("models.refusal", message=str(error))
            return
        visitor.checking = True
        try:
            report = await asyncio.to_thread(partial(check_config, config, beside_mib=self._weights_mib()))
            if visitor.number != number or not visitor.checking:
                return  # called off, or another one was asked for
            visitor.card = page.card(report)
            if load:
                visitor.notice = await self._load(config, report, _text(args.get("session")))
        except Exception:  # a mistake of ours must not leave the page waiting
            log.exception("a check failed")
            if visitor.number == number:
                visitor.notice = both("models.bug")
        finally:
            if visitor.number == number:
                visitor.checking = False

    async def _load(self, config: EngineConfig, report: Report, session: str) -> str:
        """Begins the change. Returns why not, in words, or ""."""
        if report.verdict is FitLevel.CANNOT:
            return both("models.refused")
        try:
            swap = await asyncio.to_thread(self.handlers.engine.swap, config)
        except Busy:
            return both("models.busy")
        except EngineError as error:
            return both("models.refusal", message=str(error))
        target = report.target.name if report.target else config.target
        has_name = report.drafter is not None and resolve_preset(config).drafter not in DRAFTER_WORDS
        who = page.pair_name(target, report.drafter.name if report.drafter and has_name else "")
        self._latest_change = change = Change(swap, session, who, time.monotonic())
        self._pace = Pace()
        threading.Thread(target=_time, args=(change,), name="greenlight-change", daemon=True).start()
        return ""

    def _config(self, wish: object) -> EngineConfig:
        """The form as the engine takes it. Raises NotAllowed (with nothing in it where no target is named),
        InvalidParams."""
        form = wish if isinstance(wish, dict) else {}
        options, config = self.handlers.options, self.handlers.engine.config
        target, drafter = (_field_of(form.get(field)) for field in ("target", "drafter"))
        if not target:
            raise NotAllowed("")
        fields: dict[str, Any] = {field: _field_of(form.get(field)) or "auto" for field in page.CHOICES}
        # Kernels that were asked for when the app was started were asked for that model.
        kernel = "auto" if config.kernel == "native" else config.kernel
        fields["target"] = model_names.locate(target, options)
        fields["drafter"] = model_names.locate(drafter or "auto", options)
        return replace(config, kernel=kernel, **fields)

    def _weights_mib(self) -> float:
        facts = self.handlers.facts()
        return facts.weights_mib if facts else 0.0

    def _cancel(self, visitor: LatestCheck, session: str) -> None:
        """Calls off what this visitor sees under way: the check, or else the change, if it is theirs to call off."""
        if visitor.checking:
            visitor.checking = False
        elif self._latest_change and self._may_cancel(self._latest_change, session):
            self._latest_change.swap.cancel()

    def _may_cancel(self, change: Change, session: str) -> bool:
        return change.session == session or not self.handlers.options.served

    # -- what there is to say ----------------------------------------------------------------------------------------

    def _message(self, visitor: LatestCheck, session: str) -> dict[str, Any]:
        check = {"number": visitor.number, "going": visitor.checking}
        card = page.checking() if visitor.checking else visitor.card
        message = {
            "start": self._start, "pair": self._pair(), "change": self._change(visitor, session),
            "check": check | {"html": card}, "notice": visitor.notice,
        }  # fmt: skip
        return dict(model_names.hide_folder(message, self.handlers.options))

    def _pair(self) -> dict[str, Any] | None:
        facts, options = self.handlers.facts(), self.handlers.options
        if facts is None:
            return None
        wish = page.wish_of(self.handlers.engine.config, options)
        return {
            "number": facts.pair, "html": page.in_use(facts), "announced": page.announcement(facts), "wish": wish,
            "embedded": self.handlers.engine.config.target == "embedded",
            "title": " + ".join(filter(None, (facts.target, facts.drafter_name))),
        }  # fmt: skip

    def _change(self, visitor: LatestCheck, session: str) -> dict[str, Any] | None:
        change = self._latest_change
        if change is None:
            return None
        status = change.swap.status()
        now_s = time.monotonic()
        seconds = (change.ended_s or now_s) - change.began_s
        if status.over:
            mine = change.session == session and visitor.closed_swap is not change.swap
            return page.over(status, change.who, seconds) | {"mine": True} if mine else None
        step = Status(State.LOADING, f"{status.phase} {status.step}", status.fraction)
        left_s = self._pace.left_s(step, now_s)
        message = page.going(status, change.who, seconds, left_s, self.handlers.sessions.writing())
        return message | {"mine": self._may_cancel(change, session)}

    def _visitor(self, session: str) -> LatestCheck:
        return latest(self._visitors, session, LatestCheck, CAPACITY)


def _time(change: Change) -> None:
    """Waits for a change's end and notes when that was."""
    change.swap.wait()
    change.ended_s = time.monotonic()


def _text(value: object) -> str:
    return value[:MAX_KEY] if isinstance(value, str) else ""


def _field_of(value: object) -> str:
    """A field of the form. One letter more than a name may have, so that a longer one is not taken for another."""
    return value.strip()[: model_names.MAX_NAME + 1] if isinstance(value, str) else ""


def _name_values(name: NotAllowed) -> dict[str, str]:
    return {"name": str(name)} if str(name) else {}
