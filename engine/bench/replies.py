"""speed, lossless, baseline: whole replies of the engine, plain and speculative in turn."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from engine.bench.drafts import draft_table
from engine.bench.options import (
    add_drafter_options,
    add_model_options,
    add_sampling_options,
    engine_of,
    params_of,
    prompts_of,
    settings_of,
)
from engine.bench.pairs import (
    PairRun,
    margin,
    promises_same_text,
    report_of,
    run_baselines,
    run_pairs,
    runs_that_differ,
    table,
)
from engine.bench.round_costs import cost_table, costs_of, sampling_share
from engine.cli.options import add_prompt_options, tell
from engine.cli.progress import Interruptible, mark_partial
from engine.config import DecodingParams, format_k
from engine.errors import EngineError
from engine.serving.engine import Engine

COMMANDS = {
    "speed": "each prompt plain and speculative in turn: tokens per second, speed-up, alpha, tau, by category",
    "lossless": "the same runs: how many token sequences are identical, and for each difference where and how close",
    "baseline": "the live baseline, from probes, against plain-only runs of the same replies",
}


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        add_prompt_options(command)
        add_drafter_options(command, several=name != "baseline")
        add_sampling_options(command)
        add_model_options(command)
        command.set_defaults(run=run_baseline if name == "baseline" else run, profile=False)
        if name == "speed":
            command.add_argument("--profile", action="store_true", help="also where the time of a round goes")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """`overall`, `categories` and `drafts` over all K; `by_k` with the same for each of several.

    `partial` is there and true after Ctrl-C. Raises EngineError.
    """
    prompts = prompts_of(args)
    sides = [params_of(args, k) for k in args.k]
    if args.command == "lossless" and not promises_same_text(sides[0]):
        raise EngineError(
            "Above temperature 0 the rejection rule promises the same distribution, not the same text: "
            "choose --rule shared_noise, or --temperature 0."
        )
    interruptible = Interruptible()
    with engine_of(args) as engine:
        runs = run_pairs(engine, prompts, sides[0], tell, args.k, interruptible)
        report = _report(runs, args.profile)
        report["settings"] = settings_of(args, engine, prompts=len(prompts))
        if len(args.k) > 1:
            report["by_k"] = {
                str(format_k(k)): _report([run for run in runs if run.k == k], args.profile) for k in args.k
            }
        _print(report, args)
        if args.command == "lossless":
            report["differences"] = _differences(report, engine, runs, sides[0], interruptible)
    return mark_partial(report, interruptible)


def _report(runs: Sequence[PairRun], profile: bool) -> dict[str, Any]:
    return report_of(runs) | ({"profile": costs_of(runs)} if profile else {})


def _print(report: dict[str, Any], args: argparse.Namespace) -> None:
    for k in args.k:
        part = report.get("by_k", {}).get(str(format_k(k)), report)
        print(f"\nK = {format_k(k)}\n{table(part)}")
        if args.command == "speed":
            print(f"\n{draft_table(part['drafts'])}")
        if "profile" in part:
            print(f"\n{cost_table(part['profile'])}\n{sampling_share(part['profile'])}")


def _differences(
    report: dict[str, Any],
    engine: Engine,
    runs: Sequence[PairRun],
    params: DecodingParams,
    interruptible: Interruptible,
) -> list[dict[str, Any]]:
    """Each difference and how close it was. Ctrl-C keeps those told so far."""
    for k, part in report.get("by_k", {}).items():
        print(f"K = {k}: identical: {part['overall']['identical']} of {part['overall']['prompts']}")
    print(f"identical: {report['overall']['identical']} of {report['overall']['prompts']}", flush=True)
    differences: list[dict[str, Any]] = []
    with interruptible:
        for run in runs_that_differ(runs):
            differences.append(_difference(engine, run, params))
    return differences


def _difference(engine: Engine, run: PairRun, params: DecodingParams) -> dict[str, Any]:
    index, gap, k = run.first_difference, margin(engine, run, params), format_k(run.k)
    close = "unknown" if gap is None else f"{gap:.4f} logits"
    print(f"differs: {run.prompt.category} {run.prompt.text[:60]!r}, K = {k}, at token {index}, margin {close}")
    return {
        "category": run.prompt.category, "prompt": run.prompt.text[:200], "k": k, "index": index, "margin": gap,
    }  # fmt: skip


def run_baseline(args: argparse.Namespace) -> dict[str, Any]:
    """See `run_baselines`; `partial` as in `run`. Raises EngineError."""
    prompts, params, interruptible = prompts_of(args), params_of(args, args.k), Interruptible()
    with engine_of(args) as engine:
        report = run_baselines(engine, prompts, params, tell, interruptible)
        report["settings"] = settings_of(args, engine)
    live, plain, ratio = (report[key] or 0.0 for key in ("live_tok_s", "plain_tok_s", "ratio"))
    print(f"live {live:.2f} tok/s ({report['probes']} probes), plain-only {plain:.2f} tok/s, ratio {ratio:.3f}")
    return mark_partial(report, interruptible)
