"""python -m engine.bench speed | lossless | baseline: every figure that the README quotes comes from here."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from engine.bench.pairs import PairRun, differing, margin, report_of, run_baselines, run_pairs, table
from engine.bench.prompts import Prompt, read_prompts
from engine.config import MAX_K, DecodingParams, EngineConfig, Rule, SamplingParams
from engine.engine import Engine, State
from engine.errors import EngineError


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m engine.bench", description=__doc__)
    commands = made.add_subparsers(dest="command", required=True)
    for name, text in (
        ("speed", "each prompt plain and speculative in turn: tokens per second, speed-up, alpha, tau, by category"),
        (
            "lossless",
            "the same runs: how many token sequences are identical, and for each difference where and how close",
        ),
        ("baseline", "the live baseline, from probes, against plain-only runs of the same replies"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("--prompts", type=Path, required=True, help="JSON lines in Spec-Bench's format")
        command.add_argument(
            "--limit", type=int, help="so many prompts, spread evenly over the categories (default: all)"
        )
        command.add_argument("--max-new-tokens", type=int, default=128)
        command.add_argument("--drafter", default="ngram", help="none, ngram, or a model (default: %(default)s)")
        command.add_argument(
            "--k", type=int, default=3, help=f"draft tokens a round, 0 to {MAX_K} (default: %(default)s)"
        )
        command.add_argument("--temperature", type=float, default=0.0)
        command.add_argument("--top-p", type=float, default=1.0)
        command.add_argument("--seed", type=int, default=0)
        command.add_argument("--rule", choices=list(Rule), default=Rule.REJECTION, type=Rule)
        command.add_argument("--target", default="embedded")
        command.add_argument("--device", default="auto")
        command.add_argument("--threads", type=int)
        command.add_argument("--offline", action="store_true", help="never use the network")
        command.add_argument("--kernel", choices=("auto", "native", "torch"), default="auto")
        command.add_argument("--json", type=Path, metavar="OUT", help="also write the figures to this file")
    return made


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    try:
        report = measure(args)
    except EngineError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Runs and prints; returns what --json writes. Raises EngineError."""
    if args.limit is not None and args.limit < 1:
        raise EngineError("--limit must be at least 1.")
    prompts = read_prompts(args.prompts, args.limit)
    config = EngineConfig(
        args.target,
        args.drafter,
        args.device,
        args.threads,
        args.offline,
        max_new_tokens=max(args.max_new_tokens, 16),
        kernel=args.kernel,
    )
    name = args.drafter if args.drafter in ("none", "ngram") else "draft_model"
    sampling = SamplingParams(temperature=args.temperature, top_p=args.top_p, seed=args.seed)
    params = DecodingParams(sampling, name, args.k, args.rule, args.max_new_tokens)
    engine = Engine(config)
    status = engine.wait_ready()
    if status.state is not State.READY:
        raise EngineError(status.message)
    facts = engine.facts()
    print(f"{facts.target}, {facts.weights}, {facts.kernel}, {facts.threads} threads, drafter {name}, K = {args.k}")
    try:
        report = _run(args.command, engine, prompts, params)
    finally:
        engine.close()
    report["settings"] = {
        "target": facts.target, "weights": facts.weights, "kernel": facts.kernel, "threads": facts.threads,
        "drafter": name, "k": args.k, "temperature": args.temperature, "top_p": args.top_p, "rule": str(args.rule),
        "max_new_tokens": args.max_new_tokens, "seed": args.seed,
    }  # fmt: skip
    return report


def _run(command: str, engine: Engine, prompts: list[Prompt], params: DecodingParams) -> dict[str, Any]:
    def progress(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    if command == "baseline":
        report = run_baselines(engine, prompts, params, progress)
        live, plain, ratio = (report[key] or 0.0 for key in ("live_tok_s", "plain_tok_s", "ratio"))
        print(f"live {live:.2f} tok/s ({report['probes']} probes), plain-only {plain:.2f} tok/s, ratio {ratio:.3f}")
        return report
    runs = run_pairs(engine, prompts, params, progress)
    report = report_of(runs)
    print(table(report))
    if command == "lossless":
        report["differences"] = [_difference(engine, run, params) for run in differing(runs)]
        print(f"identical: {report['overall']['identical']} of {report['overall']['prompts']}")
    return report


def _difference(engine: Engine, run: PairRun, params: DecodingParams) -> dict[str, Any]:
    index, gap = run.first_difference, margin(engine, run, params)
    close = "unknown" if gap is None else f"{gap:.4f} logits"
    print(f"differs: {run.prompt.category} {run.prompt.text[:60]!r} at token {index}, margin {close}")
    return {"category": run.prompt.category, "prompt": run.prompt.text[:200], "index": index, "margin": gap}


if __name__ == "__main__":
    sys.exit(main())
