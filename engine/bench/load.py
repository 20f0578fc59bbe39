"""load: the experiments of the page's load lab, one after the other, as `LoadLab` runs them.

What --json writes is what the page shows as the reference machine's, assets/lab/reference.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from engine.bench.conclusions import conclusion
from engine.bench.options import (
    USELESS,
    add_drafter_options,
    add_model_options,
    drafters_of,
    engine_of,
)
from engine.cli.options import tell
from engine.cli.progress import Interruptible, format_duration, mark_partial
from engine.config import EngineConfig
from engine.errors import EngineError
from engine.lab.load_lab import LoadLab
from engine.lab.records import VERSION, to_json
from engine.lab.results import ExperimentName, Failed, Point, Result, Step
from engine.serving.engine import Engine

TEXT = "when speculation helps: users at once, length of the reply, K, temperature, kind of text, rows of a pass"


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("load", help=TEXT, description=TEXT)
    names = [name.value for name in ExperimentName]
    command.add_argument(
        "--only", nargs="+", choices=names, default=names, metavar="NAME",
        help=f"some of {', '.join(names)} (default: all)",
    )  # fmt: skip
    command.add_argument("--repeats", type=int, default=3, help="times that each is measured (default: %(default)s)")
    add_drafter_options(command)
    add_model_options(command)
    command.set_defaults(run=run, max_new_tokens=EngineConfig().max_new_tokens)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """A file of `engine.lab.records`; `partial` as in the other commands. Raises EngineError."""
    if args.drafter == USELESS:
        raise EngineError("The experiments draft in earnest: choose another --drafter than useless.")
    results: list[Result] = []
    interruptible = Interruptible()
    with engine_of(args) as engine, interruptible:
        for name in dict.fromkeys(args.only):
            result = measure(engine, ExperimentName(name), args.repeats, drafters_of(args)[1], tell)
            results.append(result)
            print(f"\n{name}\n{table(result.points)}\n{conclusion(result)}")
            for what, text in result.settings:
                if what == "cut":
                    print(f"cut short: {text}")
    return mark_partial({"version": VERSION, "results": [to_json(result) for result in results]}, interruptible)


def measure(engine: Engine, name: ExperimentName, repeats: int, drafter: str, report: Callable[[str], None]) -> Result:
    """One experiment to its end. Raises EngineError."""
    with LoadLab(engine).experiment(name, drafter=drafter, repeats=repeats) as reports:
        for event in reports:
            if isinstance(event, Step):
                time_left = "" if event.left_s is None else f", {format_duration(event.left_s)} left"
                report(f"{name}: {event.done}/{event.total}{time_left}")
            elif isinstance(event, Failed):
                raise EngineError(event.message)
            else:
                return event
    raise EngineError(f"The experiment {name} ended without a result: please try again.")


def table(points: Sequence[Point]) -> str:
    """For a terminal: a line for each point."""
    names = list(dict.fromkeys(name for point in points for name, _ in point.extra))
    lines = [f"{'':12}{'x':>8}{'y':>10}{'low':>10}{'high':>10}{'n':>4}" + "".join(f"{name:>16}" for name in names)]
    for point in points:
        extra = dict(point.extra)
        cells = "".join(f"{_cell(extra.get(name)):>16}" for name in names)
        low, high = _cell(point.low), _cell(point.high)
        lines.append(f"{point.series:12}{point.x:8g}{point.y:10.3f}{low:>10}{high:>10}{point.n:4}{cells}")
    return "\n".join(lines)


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}" if value >= 0.001 or value == 0.0 else f"{value:.2g}"
