"""fit: trains the head on cached features; can be stopped at any time and goes on where it was.

Soft targets, a few steps of the training-time test, small batches, AdamW with a warm-up and a cosine to zero over a
budget of computing time, so that a run ends when it was said to. A part of the dialogues is held out and never trained
on.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from engine.cli.options import add_threads_option, silent
from engine.cli.progress import format_duration
from engine.heads.format import read_head
from engine.train.dialogues import read_dialogues
from engine.train.features import FeatureStore, all_layers, fill, layers_option
from engine.train.initial_head import DRAFT_VOCAB
from engine.train.target import read_target
from engine.train.training_run import Recipe, TrainingRun


def add_command(commands: Any) -> None:
    text = "train a head on dialogues, whose features are computed first"
    command = commands.add_parser("fit", help=text, description=text)
    command.add_argument("dialogues", type=Path, nargs="*", help="files that collect wrote")
    command.add_argument(
        "--features",
        type=Path,
        nargs="+",
        required=True,
        help="folders to keep features in; those of the files go to the first",
    )
    command.add_argument("--out", type=Path, required=True, help="folder for checkpoints, and the head in head/")
    command.add_argument(
        "--minutes",
        type=_above(float),
        default=Recipe().minutes,
        help="of computing, over all starts (default: %(default)g)",
    )
    command.add_argument("--model", default="embedded", help="the target: embedded, a folder, or a hub id")
    command.add_argument("--name", default="", help="the target's name to write into the head (default: the model's)")
    command.add_argument(
        "--layers", type=layers_option, help="three layers whose input states the head reads, such as 3,16,29"
    )
    command.add_argument("--begin", type=Path, help="a head to train on from: its folder")
    command.add_argument(
        "--draft-vocab",
        type=_draft_vocab,
        help=f"tokens that it can draft, in sixteens (default: those of --begin, or {DRAFT_VOCAB:,})",
    )
    default = Recipe()
    for name, kind, text in (
        ("steps", int, "of a draft chain that are trained"),
        ("decay", float, "weight of each step of a chain to the one before it"),
        ("later", float, "share of the chains that are trained beyond their first step"),
        ("repeated", float, "share of the chains that are trained where n-gram would draft"),
        ("rate", float, "of learning, at its highest"),
        ("batch", int, "reply tokens an update, about"),
    ):
        command.add_argument(
            f"--{name}", type=_above(kind), default=getattr(default, name), help=f"{text} (default: %(default)g)"
        )
    add_threads_option(command)
    command.add_argument("--offline", action="store_true", help="never use the network")
    command.set_defaults(run=run)


def _above(kind: type[int] | type[float]) -> Callable[[str], float]:
    def number(text: str) -> float:
        if not 0 < (value := kind(text)) < math.inf:
            raise argparse.ArgumentTypeError("must be above 0")
        return value

    number.__name__ = "number" if kind is float else "whole number"  # what argparse calls it
    return number


def _draft_vocab(text: str) -> int:
    """The native kernels take outputs by sixteens."""
    if (size := int(text)) < 16:
        raise argparse.ArgumentTypeError("must be at least 16")
    return size // 16 * 16


_draft_vocab.__name__ = "whole number"


def run(args: argparse.Namespace) -> None:
    """Raises EngineError."""
    from engine.hardware import default_threads
    from engine.loading.load import load
    from engine.loading.source import find
    from engine.networks.model import Model

    def report(line: str) -> None:
        print(line, flush=True)

    target = read_target(find(args.model, args.offline, silent, tiles=True))
    layers = all_layers(args.layers, target.shape.layers)
    stores = [FeatureStore(folder, args.model, layers, target.shape.hidden) for folder in args.features]
    if args.dialogues:
        loaded = load(args.model, threads=args.threads, offline=args.offline, progress=silent)
        dialogues = [d for path in args.dialogues for d in read_dialogues(path)]
        begin_s = perf_counter()

        def report_pass(tokens: int, total: int) -> None:
            left_s = (perf_counter() - begin_s) / tokens * (total - tokens)
            report(f"features: {tokens}/{total} tokens, {format_duration(left_s)} left")

        fill(stores[0], Model(loaded.network, loaded.context_len), dialogues, report_pass)
        del loaded
    torch.set_num_threads(args.threads or default_threads())
    recipe = Recipe(**{name: getattr(args, name) for name in Recipe.__slots__ if name != "seed"})
    args.out.mkdir(parents=True, exist_ok=True)
    eos = target.config.get("eos_token_id")
    stop_ids = [eos] if isinstance(eos, int) else eos or []
    sizes = (target.shape.layers, target.shape.hidden, target.shape.vocab_size)
    initial_head = read_head(args.begin, *sizes) if args.begin else None
    training = TrainingRun(args.out, stores, target, recipe, args.name or args.model, stop_ids, initial_head)
    report(f"{len(training.training_set)} dialogues to train on, {len(training.test_set)} held out")
    training.train(report)
