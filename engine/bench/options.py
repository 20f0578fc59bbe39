"""What the benchmarks have in common: their options, an engine that is ready, and the settings that a report
repeats."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engine.cli.options import add_threads_option
from engine.cli.prompts import BenchPrompt, read_prompts
from engine.config import (
    COMPUTE,
    DEVICES,
    EMBEDDED,
    KERNELS,
    MAX_K,
    QUANTS,
    DecodingParams,
    EngineConfig,
    Rule,
    SamplingParams,
    format_k,
    parse_k,
)
from engine.errors import EngineError, InvalidParams
from engine.serving.engine import Engine, State

WARM_UP_TOKENS = 16
"""An engine of the benchmark allows at least so many, whatever --max-new-tokens says."""

USELESS = "useless"
"""The drafter of `engine.bench.random_drafter`."""


def add_model_options(command: argparse.ArgumentParser) -> None:
    """What is loaded, where it runs, and where the figures go."""
    command.add_argument("--target", default=EMBEDDED)
    command.add_argument("--device", default="auto")
    add_threads_option(command)
    command.add_argument("--offline", action="store_true", help="never use the network")
    command.add_argument("--kernel", choices=KERNELS, default="auto")
    command.add_argument("--quant", choices=QUANTS, default="auto")
    command.add_argument("--compute", choices=COMPUTE, default="auto", help="what nf4 multiplies in")
    command.add_argument("--json", type=Path, metavar="OUT", help="also write the figures to this file")


def add_drafter_options(command: argparse.ArgumentParser, several: bool = False) -> None:
    """--drafter, --head, and --k: a number or None for auto, or with `several` a list of these."""
    command.add_argument(
        "--drafter", default="auto",
        help="auto (the best there is), none, ngram, head, both, the name or folder of a head or a model, or useless "
        "(random guesses in place of the real ones) (default: %(default)s)",
    )  # fmt: skip
    command.add_argument(
        "--head", metavar="FOLDER", help="the head for auto, head, both and useless (default: the target's own)"
    )
    command.add_argument(
        "--drafter-device", choices=DEVICES, default="auto", help="of a drafter model (default: the target's)"
    )
    command.add_argument("--drafter-quant", choices=QUANTS, default="auto", help="of a drafter model")
    more = ", or several such as 3,7,auto" if several else ""
    text = f"draft tokens a round, 0 to {MAX_K}, or auto, as many as pay{more} (default: %(default)s)"
    command.add_argument("--k", type=_ks if several else _k, default="auto", help=text)


def add_sampling_options(command: argparse.ArgumentParser) -> None:
    usual = SamplingParams()
    command.add_argument("--temperature", type=float, default=usual.temperature)
    command.add_argument("--top-p", type=float, default=usual.top_p)
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--rule", choices=list(Rule), default=Rule.REJECTION, type=Rule)


def _k(text: str) -> int | None:
    """ "3" -> 3, "auto" -> None; for argparse, which turns the ValueError into its sentence."""
    try:
        return parse_k(text.strip())
    except InvalidParams as error:
        raise ValueError from error


def _ks(text: str) -> list[int | None]:
    """ "3,7,auto" -> [3, 7, None]."""
    return list(dict.fromkeys(_k(part) for part in text.split(",")))


_k.__name__, _ks.__name__ = "whole number or auto", "list of whole numbers or auto"  # what argparse calls them there


def prompts_of(args: argparse.Namespace) -> list[BenchPrompt]:
    """Raises EngineError."""
    if args.limit is not None and args.limit < 1:
        raise EngineError("--limit must be at least 1.")
    prompts = read_prompts(args.prompts, args.limit)
    if not prompts:
        raise EngineError(f"{args.prompts} has no prompts: name another file.")
    return prompts


def params_of(args: argparse.Namespace, k: int | None) -> DecodingParams:
    """Greedy with seed 0 where the command has no sampling options. Raises InvalidParams."""
    options = {name: getattr(args, name) for name in ("temperature", "top_p", "seed") if hasattr(args, name)}
    sampling = SamplingParams(**{"seed": 0} | options)
    rule = getattr(args, "rule", Rule.REJECTION)
    return DecodingParams(sampling, drafters_of(args)[1], k, rule, args.max_new_tokens)


def drafters_of(args: argparse.Namespace) -> tuple[str, str]:
    """What the engine loads, and which of it a request names: `EngineConfig.drafter`, `DecodingParams.drafter`."""
    if args.drafter in ("none", "ngram"):
        return args.drafter, args.drafter
    if args.drafter in ("auto", "head", "both", USELESS):
        return args.head or "auto", "auto" if args.drafter == USELESS else args.drafter
    return args.drafter, "auto"  # the engine finds out whether that is a head or a model


@contextmanager
def engine_of(args: argparse.Namespace) -> Iterator[Engine]:
    """An engine that is ready, closed on leaving. Raises EngineError."""
    config = EngineConfig(
        args.target, drafters_of(args)[0], args.device, args.threads, args.offline,
        max_new_tokens=max(args.max_new_tokens, WARM_UP_TOKENS), kernel=args.kernel, quant=args.quant,
        compute=args.compute, drafter_device=args.drafter_device, drafter_quant=args.drafter_quant,
    )  # fmt: skip
    engine = _engine(args, config)
    try:
        status = engine.wait_ready()
        if status.state is not State.READY:
            raise EngineError(status.message)
        facts = engine.facts()
        print(f"{facts.target}, {facts.weights}, {facts.kernel}, {facts.threads} threads")
        yield engine
    finally:
        engine.close()


def _engine(args: argparse.Namespace, config: EngineConfig) -> Engine:
    if args.drafter != USELESS:
        return Engine(config)
    from engine.bench.random_drafter import RandomDraftsEngine

    return RandomDraftsEngine(config, params_of(args, None).sampling.seed or 0)


def settings_of(args: argparse.Namespace, engine: Engine, **more: Any) -> dict[str, Any]:
    """What ran, where, and every option that shaped the figures."""
    facts = engine.facts()
    names = ("drafter", "head", "temperature", "top_p", "rule", "max_new_tokens", "seed")
    settings = {name: value for name in names if (value := getattr(args, name, None)) is not None}
    if hasattr(args, "k"):
        ks = [format_k(k) for k in args.k] if isinstance(args.k, list) else [format_k(args.k)]
        settings["k"] = ks if len(ks) > 1 else ks[0]
    fixed = {"target": facts.target, "weights": facts.weights, "kernel": facts.kernel, "threads": facts.threads}
    if facts.drafter_name:
        fixed |= {"drafter_model": facts.drafter_name, "drafter_device": facts.drafter_device}
    return fixed | settings | more
