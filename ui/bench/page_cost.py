"""python -m ui.bench COMMAND: what the page costs. `updates` needs no model; `attached` is the promise that a page does
not slow the engine down, with a client that receives every update in a process of its own, as a browser would."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter
from typing import Any

from engine import (
    DecodingParams,
    Engine,
    EngineError,
    Event,
    Finished,
    FinishReason,
    Message,
    Prefilled,
    Round,
    ratio,
    summarise,
)
from engine.bench.options import add_drafter_options, add_model_options, engine_of, settings_of
from engine.cli.options import tell
from engine.cli.progress import Interruptible, TimeLeft, mark_partial
from ui import controls, updates
from ui.bench import fixtures
from ui.bench.client import Receipt, in_a_process
from ui.charts import reply as reply_charts
from ui.html import prose
from ui.race import charts as race_charts
from ui.recording.recordings import Lane, LaneName, Recording
from ui.state import Conversation, Reply, advance, begin, progress

LENGTHS = (400, 4000)
"""Tokens of the two replies whose updates are compared."""

PROMPTS = (
    "Write a very long story about a lighthouse keeper, in many chapters. Do not stop.",
    "Explain everything that you know about the history of the sea, in as much detail as you can.",
)
"""The default model's greedy replies to these go on until they are cut. They come to repeat themselves, so that nearly
every guess is right; `--k 0` has the same text in as many rounds as tokens."""


def parser() -> argparse.ArgumentParser:
    """Each command's `run(args)` measures, prints, and returns what --json writes."""
    root = argparse.ArgumentParser(prog="python -m ui.bench", description=__doc__)
    commands = root.add_subparsers(dest="command", required=True)
    updates_parser = commands.add_parser(
        "updates", help="the time of making one update, and each thing that the page pulls"
    )
    updates_parser.add_argument("--limit", type=int, default=200, help="so many of each (default: %(default)s)")
    updates_parser.add_argument("--json", metavar="OUT", help="also write the figures to this file")
    updates_parser.set_defaults(run=run_updates)
    attached_parser = commands.add_parser(
        "attached", help="the engine's speed with a page that receives every update, and without"
    )
    attached_parser.add_argument(
        "--limit", type=int, default=len(PROMPTS), help="so many pairs of replies (default: %(default)s)"
    )
    attached_parser.add_argument(
        "--max-new-tokens", type=int, default=LENGTHS[-1], help="of each reply (default: %(default)s)"
    )
    add_drafter_options(attached_parser)
    add_model_options(attached_parser)
    attached_parser.set_defaults(run=run_attached)
    return root


# ---- updates


def run_updates(args: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of each job by length, and the ratio of the longest to the shortest. Raises EngineError."""
    jobs = {tokens: _jobs(tokens) for tokens in LENGTHS}
    times: dict[tuple[str, int], list[float]] = {(name, tokens): [] for tokens in LENGTHS for name in jobs[tokens]}
    for turn in range(_positive(args.limit) + 1):
        for (name, tokens), durations in times.items():
            begin_s = perf_counter()
            jobs[tokens][name]()
            if turn:  # the first one fills caches
                durations.append(perf_counter() - begin_s)
    report: dict[str, Any] = {}
    for name in jobs[LENGTHS[0]]:
        short, long = (median(times[name, tokens]) * 1e3 for tokens in LENGTHS)
        report[name] = {str(LENGTHS[0]): short, str(LENGTHS[1]): long, "ratio": long / short}
        print(
            f"{name:7} {short:6.2f} ms at {LENGTHS[0]} tokens, {long:6.2f} ms at {LENGTHS[1]}, ratio {long / short:.2f}"
        )
    print(
        f"medians of {args.limit} each, in turn; an update holds {fixtures.ROUNDS_AN_UPDATE} rounds and repeats three "
        "times as many"
    )
    return report


def _jobs(tokens: int) -> dict[str, Callable[[], object]]:
    """What the server does for a page whose reply has that many tokens: one update, and what may be pulled."""
    events = fixtures.reply(tokens)
    fresh = fixtures.more(events)
    conversation = begin(Conversation("x" * 24), "hello")
    key = conversation.turns[-1].key
    conversation = progress(conversation, key, events)
    reply = conversation.turns[-1].reply
    start = len(reply.blocks) - 2 * len(fresh)
    chunk = len(prose.chunks(reply.text)) - 1

    race = _race(tokens)
    earlier_blocks = updates.block_patches(reply.blocks[start:])

    def update() -> str:
        after = progress(conversation, key, fresh)
        blocks = earlier_blocks + updates.block_patches(after.turns[-1].reply.blocks[len(reply.blocks) :])
        return updates.pack(updates.latest(after, start, blocks), "x" * 24)

    def pull(what: str, payload: object) -> str:
        return updates.pack(updates.answer(conversation, what, payload), "x" * 24)

    return {
        "update": update,
        "charts": lambda: pull("charts", reply_charts.charts(reply)),
        "race": lambda: pull("charts", race_charts.charts(race)),
        "prose": lambda: pull("prose", prose.answer(reply.text + str(perf_counter()), chunk)),
    }


def _race(tokens: int) -> Recording:
    """Both lanes of a race of that length, with the probabilities of a drafter that has some."""
    events_with_guesses = [
        replace(event, drafter="head") if isinstance(event, Round) else event for event in fixtures.reply(tokens)
    ]
    lanes = {LaneName.PLAIN: fixtures.plain(tokens), LaneName.SPECULATIVE: events_with_guesses}
    return Recording("", "hello", tuple(Lane(name, None, advance(Reply(), events)) for name, events in lanes.items()))


# ---- attached


@dataclass(frozen=True, slots=True)
class Measurement:
    """A reply, by the engine's own clock (decode_s) and by the reader's (wall_s), both after the first token."""

    token_ids: tuple[int, ...]
    tokens: int
    decode_s: float
    wall_s: float
    updates: int = 0


def run_attached(args: argparse.Namespace) -> dict[str, Any]:
    """See `measure_attached`; `partial` is there and true after Ctrl-C. Raises EngineError."""
    if args.target != "embedded":
        tell("The prompts were chosen for the default model; others may end their replies early.")
    interruptible = Interruptible()
    with engine_of(args) as engine:
        report = measure_attached(engine, args.max_new_tokens, _positive(args.limit), args.k, interruptible)
        report["settings"] = settings_of(args, engine)
    return mark_partial(report, interruptible)


def measure_attached(
    engine: Engine, max_new_tokens: int, pairs: int, k: int | None, interruptible: Interruptible
) -> dict[str, Any]:
    """Pairs of the same greedy reply, alone and with a page, in turn; which comes first changes from pair to pair.

    The page's side also asks for the probabilities that it shows, which the other does not. Raises EngineError.
    """
    from ui.layout import build_app, launch

    options = controls.Options(k=k, max_new_tokens=max_new_tokens)
    app = build_app(engine, options)
    _, url, _ = launch(app, options, server_name="127.0.0.1", prevent_thread_lock=True)
    measurements: list[tuple[Measurement, Measurement]] = []
    pace = TimeLeft(pairs, tell)
    try:
        with interruptible:
            for pair in range(pairs):
                measurements.append(
                    _pair(engine, url, options, PROMPTS[pair % len(PROMPTS)], with_page_first=bool(pair % 2))
                )
                alone, page = measurements[-1]
                pace(pair + 1, f"{page.tokens} tokens, {page.updates} updates, ratio {_ratio(page, alone):.3f}")
    finally:
        app.close(verbose=False)
    return _report(measurements)


def _pair(
    engine: Engine, url: str, options: controls.Options, prompt: str, with_page_first: bool
) -> tuple[Measurement, Measurement]:
    table = controls.table(options, engine.facts().drafters)
    overrides = {"temperature": 0, "seed": "0", "max_new_tokens": options.max_new_tokens}
    values = [overrides.get(control.name, control.default) for control in table]
    params = controls.settings(table, values)[0].params
    if with_page_first:
        page = _with_page(url, prompt, values)
        return _alone(engine, prompt, params), page
    return _alone(engine, prompt, params), _with_page(url, prompt, values)


def _alone(engine: Engine, prompt: str, params: DecodingParams) -> Measurement:
    """The reply with nobody there but a loop that takes the events as they come."""
    events: list[Event] = []
    begin_s = perf_counter()
    for event in engine.stream((Message("user", prompt),), params):
        if isinstance(event, Prefilled):
            begin_s = perf_counter()
        events.append(event)
    return _measurement(events, perf_counter() - begin_s)


def _with_page(url: str, prompt: str, values: Sequence[object]) -> Measurement:
    receipt: Receipt = in_a_process(url, prompt, values)
    return _measurement(receipt.events, receipt.wall_s, receipt.updates)


def _measurement(events: Sequence[Event], wall_s: float, updates: int = 0) -> Measurement:
    """Raises EngineError for a reply that failed, or had nothing behind its first token."""
    end = events[-1] if events else None
    if not isinstance(end, Finished) or end.reason in (FinishReason.ERROR, FinishReason.CANCELLED):
        raise EngineError(
            f"A reply was not finished{': ' + end.message if isinstance(end, Finished) and end.message else ''}."
        )
    tokens = sum(len(event.tokens) for event in events if isinstance(event, Round))
    if not tokens:
        raise EngineError(
            "A reply ended with its first token, so there is no speed to compare: raise --max-new-tokens."
        )
    return Measurement(end.token_ids, tokens, summarise(events).decode_s, wall_s, updates)


def _ratio(page: Measurement, alone: Measurement) -> float:
    return (page.tokens / page.decode_s) / (alone.tokens / alone.decode_s)


def _report(measurements: Sequence[tuple[Measurement, Measurement]]) -> dict[str, Any]:
    """Prints and returns sums over the pairs: tokens per second of both sides by both clocks, and their ratios."""
    report: dict[str, Any] = {"pairs": len(measurements)}
    for clock, name in (("decode_s", "engine's clock"), ("wall_s", "wall clock")):
        page, alone = (
            ratio(
                sum(pair[side].tokens for pair in measurements),
                sum(getattr(pair[side], clock) for pair in measurements),
            )
            or 0.0
            for side in (1, 0)
        )
        share = page / alone if alone else 0.0
        report[clock] = {"page_tok_s": page, "alone_tok_s": alone, "ratio": share}
        print(f"{name:14} {page:7.1f} tok/s with a page, {alone:7.1f} alone, ratio {share:.3f}")
    report["tokens"] = [page.tokens for _, page in measurements]
    report["updates"] = [page.updates for _, page in measurements]
    report["identical"] = sum(alone.token_ids == page.token_ids for alone, page in measurements)
    print(
        f"replies of {report['tokens']} tokens in {report['updates']} updates; {report['identical']} "
        f"of {len(measurements)} identical"
    )
    return report


def _positive(limit: int) -> int:
    if limit < 1:
        raise EngineError("--limit must be at least 1.")
    return limit


def main(argv: list[str] | None = None) -> int:
    # Gradio asks its own server whether it is up: no proxy between the two.
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"
    args = parser().parse_args(argv)
    try:
        report = args.run(args)
    except EngineError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench: interrupted.", file=sys.stderr)
        return 130
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            file.write(json.dumps(report, indent=1) + "\n")
    return 130 if report.get("partial") else 0
