"""What the benchmarks have in common: their options, an engine that is ready, and the settings that a report repeats."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engine.bench.prompts import Prompt, read_prompts
from engine.config import MAX_K, QUANTS, DecodingParams, EngineConfig, Rule, SamplingParams
from engine.engine import Engine, State
from engine.errors import EngineError, InvalidParams

WARM_UP_TOKENS = 16
"""An engine of the benchmark allows at least so many, whatever --max-new-tokens says."""


def add_model_options(command: argparse.ArgumentParser) -> None:
    """What is loaded, where it runs, and where the figures go."""
    command.add_argument("--target", default="embedded")
    command.add_argument("--device", default="auto")
    add_threads_option(command)
    command.add_argument("--offline", action="store_true", help="never use the network")
    command.add_argument("--kernel", choices=("auto", "native", "torch"), default="auto")
    command.add_argument("--quant", choices=QUANTS, default="auto")
    command.add_argument("--json", type=Path, metavar="OUT", help="also write the figures to this file")


def add_threads_option(command: argparse.ArgumentParser) -> None:
    command.add_argument("--threads", type=_threads, help="threads of the processor (default: as many as may be used)")


def add_prompt_options(command: argparse.ArgumentParser, max_new_tokens: int = 128) -> None:
    command.add_argument("--prompts", type=Path, required=True, help="JSON lines in Spec-Bench's format")
    command.add_argument("--limit", type=int, help="so many prompts, spread evenly over the categories (default: all)")
    command.add_argument("--max-new-tokens", type=int, default=max_new_tokens)


def add_k_option(command: argparse.ArgumentParser, several: bool = False) -> None:
    text = f"draft tokens a round, 0 to {MAX_K}{', or several such as 3,7' if several else ''} (default: %(default)s)"
    command.add_argument("--k", type=_whole_numbers if several else int, default="3" if several else 3, help=text)


def add_sampling_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--drafter", default="ngram", help="none, ngram, or a model (default: %(default)s)")
    command.add_argument("--temperature", type=float, default=0.0)
    command.add_argument("--top-p", type=float, default=1.0)
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--rule", choices=list(Rule), default=Rule.REJECTION, type=Rule)


def _threads(text: str) -> int:
    """The same bounds as everywhere. Raises argparse.ArgumentTypeError."""
    try:
        return EngineConfig(threads=int(text)).threads or 1
    except InvalidParams as error:
        raise argparse.ArgumentTypeError(str(error)) from error


_threads.__name__ = "whole number"


def _whole_numbers(text: str) -> list[int]:
    """ "3,7" -> [3, 7]; for argparse, which turns the ValueError into its sentence."""
    return list(dict.fromkeys(int(part) for part in text.split(",")))


_whole_numbers.__name__ = "list of whole numbers"  # what argparse calls it there


def prompts_of(args: argparse.Namespace) -> list[Prompt]:
    """Raises EngineError."""
    if args.limit is not None and args.limit < 1:
        raise EngineError("--limit must be at least 1.")
    prompts = read_prompts(args.prompts, args.limit)
    if not prompts:
        raise EngineError(f"{args.prompts} has no prompts: name another file.")
    return prompts


def params_of(args: argparse.Namespace, k: int) -> DecodingParams:
    """Raises InvalidParams."""
    sampling = SamplingParams(temperature=args.temperature, top_p=args.top_p, seed=args.seed)
    name = args.drafter if args.drafter in ("none", "ngram") else "draft_model"
    return DecodingParams(sampling, name, k, args.rule, args.max_new_tokens)


@contextmanager
def engine_of(args: argparse.Namespace, drafter: str = "ngram") -> Iterator[Engine]:
    """An engine that is ready, closed on leaving. Raises EngineError."""
    config = EngineConfig(
        args.target, drafter, args.device, args.threads, args.offline,
        max_new_tokens=max(args.max_new_tokens, WARM_UP_TOKENS), kernel=args.kernel,
        quant=args.quant,
    )  # fmt: skip
    engine = Engine(config)
    try:
        status = engine.wait_ready()
        if status.state is not State.READY:
            raise EngineError(status.message)
        facts = engine.facts()
        print(f"{facts.target}, {facts.weights}, {facts.kernel}, {facts.threads} threads")
        yield engine
    finally:
        engine.close()


def settings_of(args: argparse.Namespace, engine: Engine, **more: Any) -> dict[str, Any]:
    """What ran, where, and every option that shaped the figures."""
    facts = engine.facts()
    names = ("drafter", "temperature", "top_p", "rule", "max_new_tokens", "seed")
    told = {name: getattr(args, name) for name in names if hasattr(args, name)}
    fixed = {"target": facts.target, "weights": facts.weights, "kernel": facts.kernel, "threads": facts.threads}
    return fixed | told | more


def silent(phase: str, fraction: float | None) -> None:
    """Takes the progress of loading, and keeps it to itself."""


def tell(line: str) -> None:
    """Progress, apart from the figures."""
    print(line, file=sys.stderr, flush=True)
