"""speed, lossless, baseline: whole replies of the engine, plain and speculative in turn."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from engine.bench.costs import cost_table, costs_of, sampling_share
from engine.bench.options import (
    add_k_option,
    add_model_options,
    add_prompt_options,
    add_sampling_options,
    engine_of,
    params_of,
    prompts_of,
    settings_of,
    tell,
)
from engine.bench.pairs import PairRun, differing, margin, report_of, run_baselines, run_pairs, table
from engine.config import DecodingParams
from engine.engine import Engine

COMMANDS = {
    "speed": "each prompt plain and speculative in turn: tokens per second, speed-up, alpha, tau, by category",
    "lossless": "the same runs: how many token sequences are identical, and for each difference where and how close",
    "baseline": "the live baseline, from probes, against plain-only runs of the same replies",
}


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        add_prompt_options(command)
        add_k_option(command, several=name != "baseline")
        add_sampling_options(command)
        add_model_options(command)
        command.set_defaults(run=run_baseline if name == "baseline" else run, profile=False)
        if name == "speed":
            command.add_argument("--profile", action="store_true", help="also where the time of a round goes")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """`overall` and `categories` over all K; `by_k` with the same for each of several. Raises EngineError."""
    prompts = prompts_of(args)
    lanes = [params_of(args, k) for k in args.k]
    with engine_of(args, args.drafter) as engine:
        runs = run_pairs(engine, prompts, lanes[0], tell, args.k)
        report = _report(runs, args.profile)
        report["settings"] = settings_of(
            args, engine, k=args.k[0] if len(args.k) == 1 else args.k, prompts=len(prompts)
        )
        if len(args.k) > 1:
            report["by_k"] = {str(k): _report([run for run in runs if run.k == k], args.profile) for k in args.k}
        _print(report, args.k)
        if args.command == "lossless":
            _print_differences(report, engine, runs, lanes[0])
    return report


def _report(runs: Sequence[PairRun], profile: bool) -> dict[str, Any]:
    return report_of(runs) | ({"profile": costs_of(runs)} if profile else {})


def _print(report: dict[str, Any], ks: Sequence[int]) -> None:
    for k in ks:
        part = report.get("by_k", {}).get(str(k), report)
        print(f"\nK = {k}\n{table(part)}")
        if "profile" in part:
            print(f"\n{cost_table(part['profile'])}\n{sampling_share(part['profile'])}")


def _print_differences(report: dict[str, Any], engine: Engine, runs: Sequence[PairRun], params: DecodingParams) -> None:
    for k, part in report.get("by_k", {}).items():
        print(f"K = {k}: identical: {part['overall']['identical']} of {part['overall']['prompts']}")
    print(f"identical: {report['overall']['identical']} of {report['overall']['prompts']}", flush=True)
    report["differences"] = [_difference(engine, run, params) for run in differing(runs)]


def _difference(engine: Engine, run: PairRun, params: DecodingParams) -> dict[str, Any]:
    index, gap = run.first_difference, margin(engine, run, params)
    close = "unknown" if gap is None else f"{gap:.4f} logits"
    print(f"differs: {run.prompt.category} {run.prompt.text[:60]!r}, K = {run.k}, at token {index}, margin {close}")
    return {
        "category": run.prompt.category, "prompt": run.prompt.text[:200], "k": run.k, "index": index, "margin": gap,
    }  # fmt: skip


def run_baseline(args: argparse.Namespace) -> dict[str, Any]:
    """See `run_baselines`. Raises EngineError."""
    prompts, params = prompts_of(args), params_of(args, args.k)
    with engine_of(args, args.drafter) as engine:
        report = run_baselines(engine, prompts, params, tell)
        report["settings"] = settings_of(args, engine, k=args.k)
    live, plain, ratio = (report[key] or 0.0 for key in ("live_tok_s", "plain_tok_s", "ratio"))
    print(f"live {live:.2f} tok/s ({report['probes']} probes), plain-only {plain:.2f} tok/s, ratio {ratio:.3f}")
    return report
