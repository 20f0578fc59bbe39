"""race: whether the lanes of a race show what plain and speculative decoding show alone.

A race plays two replies by turns on one machine. Its speed-up should be the one that `speed` measures, and its plain
lane no slower than plain decoding that has the machine to itself.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.bench.options import (
    add_drafter_options,
    add_model_options,
    add_sampling_options,
    engine_of,
    params_of,
    prompts_of,
    settings_of,
)
from engine.bench.pairs import BenchReply, reply, reply_of
from engine.cli.options import add_prompt_options, tell
from engine.cli.progress import Interruptible, TimeLeft, mark_partial
from engine.cli.prompts import BenchPrompt
from engine.config import DecodingParams, Message
from engine.errors import ContextFull
from engine.serving.engine import Engine
from engine.stats import ratio

TEXT = "each prompt as a race, and plain and speculative alone: their speed-ups and speeds against each other"

COLUMNS = {
    "race_speedup": "race",
    "alone_speedup": "alone",
    "speedup_ratio": "race/alone",
    "plain_ratio": "plain lane",
    "spec_ratio": "spec. lane",
}
"""Figures of a prompt, and what a table calls them; the last two are a lane's tokens per second over
the reply's alone."""


@dataclass(frozen=True, slots=True)
class Trio:
    """The same prompt, seed and limits: as (plain, speculative) in a race, and so alone."""

    prompt: BenchPrompt
    in_race: tuple[BenchReply, BenchReply]
    alone: tuple[BenchReply, BenchReply]


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("race", help=TEXT, description=TEXT)
    add_prompt_options(command)
    add_drafter_options(command)
    add_sampling_options(command)
    add_model_options(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """See `report_of`; `partial` is there and true after Ctrl-C. Raises EngineError."""
    prompts, params, interruptible = prompts_of(args), params_of(args, args.k), Interruptible()
    with engine_of(args) as engine:
        report = report_of(run_trios(engine, prompts, params, tell, interruptible))
        report["settings"] = settings_of(args, engine, prompts=len(prompts))
    print(table(report))
    return mark_partial(report, interruptible)


def run_trios(
    engine: Engine,
    prompts: Sequence[BenchPrompt],
    params: DecodingParams,
    report: Callable[[str], None],
    interruptible: Interruptible | None = None,
) -> list[Trio]:
    """All prompts, each as a race and alone, after one to warm up; which of the three goes first changes.

    Prompts longer than the context are left out, and Ctrl-C ends it with those so far. Raises EngineError.
    """
    spec = replace(params, probe_every=0)
    plain = replace(spec, num_speculative_tokens=0)
    players: tuple[Callable[[BenchPrompt], tuple[BenchReply, ...]], ...] = (
        lambda prompt: race(engine, prompt, spec),
        lambda prompt: (reply(engine, prompt, plain),),
        lambda prompt: (reply(engine, prompt, spec),),
    )
    race(
        engine, BenchPrompt("", "Say hello, hello, hello."), replace(spec, max_new_tokens=min(16, spec.max_new_tokens))
    )
    trios: list[Trio] = []
    pace = TimeLeft(len(prompts), report)
    with interruptible or Interruptible() as end:
        for n, prompt in enumerate(prompts, 1):
            try:
                replies = {i % 3: players[i % 3](prompt) for i in range(n, n + 3)}
            except ContextFull as error:
                pace(n, f"left out: {error}")
                continue
            (race_plain, race_spec), [alone_plain], [alone_spec] = (replies[i] for i in range(3))
            trios.append(Trio(prompt, (race_plain, race_spec), (alone_plain, alone_spec)))
            cells = figures(trios[-1])
            cell_texts = ", ".join(f"{head} {_cell(cells[name])}" for name, head in COLUMNS.items())
            pace(n, f"{prompt.category}: {len(race_plain.ids)} tokens, {cell_texts}")
    if end.partial:
        report(f"interrupted: the figures are about {len(trios)} of {len(prompts)} prompts")
    return trios


def race(engine: Engine, prompt: BenchPrompt, params: DecodingParams) -> tuple[BenchReply, BenchReply]:
    """One race, plain and speculative. Raises EngineError when a lane ends in an error."""
    with engine.race([Message("user", prompt.text)], params) as lanes:
        return reply_of(list(lanes.plain)), reply_of(list(lanes.speculative))


def figures(trio: Trio) -> dict[str, float | None]:
    """One prompt's, by the names of COLUMNS; None where a reply has no second token, which leaves nothing to time."""
    race_plain, race_spec = (reply_.summary.overall_tok_s or 0.0 for reply_ in trio.in_race)
    alone_plain, alone_spec = (reply_.summary.overall_tok_s or 0.0 for reply_ in trio.alone)
    race_speedup, alone_speedup = ratio(race_spec, race_plain), ratio(alone_spec, alone_plain)
    return {
        "race_speedup": race_speedup,
        "alone_speedup": alone_speedup,
        "speedup_ratio": ratio(race_speedup or 0.0, alone_speedup or 0.0),
        "plain_ratio": ratio(race_plain, alone_plain),
        "spec_ratio": ratio(race_spec, alone_spec),
    }


def report_of(trios: Sequence[Trio]) -> dict[str, Any]:
    """`prompts`: the figures of each. `overall`: their geometric means over the prompts that have all of them, how many
    these are, on how many the speed-ups differ by at most 10 %, and the plain lane's speed by at most 3 %."""
    rows: list[dict[str, Any]] = [
        {"category": t.prompt.category, "prompt": t.prompt.text[:80], **figures(t)} for t in trios
    ]
    timed_rows = [row for row in rows if all(row[name] for name in COLUMNS)]
    means = {
        name: statistics.geometric_mean(row[name] for row in timed_rows) if timed_rows else None for name in COLUMNS
    }
    counts = {
        "speedup_within_10": sum(abs(row["speedup_ratio"] - 1.0) <= 0.1 for row in timed_rows),
        "plain_within_3": sum(abs(row["plain_ratio"] - 1.0) <= 0.03 for row in timed_rows),
    }
    return {"overall": {**means, "prompts": len(timed_rows), **counts}, "prompts": rows}


def table(report: dict[str, Any]) -> str:
    """The report for a terminal."""
    overall = report["overall"]
    rows = [(row["category"], row) for row in report["prompts"]] + [("geometric mean", overall)]
    lines = [f"{'':16}" + "".join(f"{head:>12}" for head in COLUMNS.values())]
    lines += [f"{name:16}" + "".join(f"{_cell(row[column]):>12}" for column in COLUMNS) for name, row in rows]
    lines.append(
        f"of {overall['prompts']} prompts: speed-ups within 10 % on {overall['speedup_within_10']}, "
        f"plain lane within 3 % on {overall['plain_within_3']}"
    )
    return "\n".join(lines)


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
