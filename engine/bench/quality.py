"""quality: what each way to keep the weights costs in quality, against the same weights multiplied in float32."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.bench.options import prompts_of
from engine.cli.options import add_threads_option, silent, tell
from engine.cli.progress import TimeLeft
from engine.cli.prompts import BenchPrompt
from engine.config import EMBEDDED, Message
from engine.errors import EngineError, LoadError
from engine.loading.load import Loaded, load
from engine.networks.kv_cache import KVCache
from engine.networks.model import Model, Request

EXAMPLES = Path(__file__).parents[2] / "assets" / "examples.json"

PATHS = {
    "native": ("native", "auto"),
    "gguf": ("torch", "gguf"),
    "bf16": ("torch", "bf16"),
    "int8": ("torch", "int8"),
    "nf4": ("torch", "nf4"),
    "fp32": ("torch", "fp32"),
}
"""name -> (--kernel, --quant)."""

REFERENCE = "fp32"

LARGEST_KL = 0.02
LEAST_AGREEMENT = 0.95
"""What the default way must keep."""

ROWS = 64
"""Rows compared at once; bounds memory where the vocabulary is large."""


@dataclass(frozen=True, slots=True)
class Score:
    """Sums over tokens. kl: of the reference to the path, nats; loss: minus the log probability of the
    next token, nats."""

    tokens: int = 0
    kl: float = 0.0
    agreeing: int = 0
    loss: float = 0.0

    def __add__(self, other: Score) -> Score:
        return Score(
            self.tokens + other.tokens, self.kl + other.kl, self.agreeing + other.agreeing, self.loss + other.loss
        )

    def figures(self) -> dict[str, Any]:
        """kl and argmax agreement (0..1) a token, perplexity."""
        return {
            "tokens": self.tokens,
            "kl": self.kl / self.tokens,
            "agreement": self.agreeing / self.tokens,
            "perplexity": math.exp(self.loss / self.tokens),
        }


def compare(reference: Tensor, path: Tensor, following: Sequence[int]) -> Score:
    """Logits [n, vocabulary] of both, and the n tokens that follow in the text."""
    score = Score()
    for begin in range(0, len(following), ROWS):
        rows = slice(begin, begin + ROWS)
        reference_log_probs, log_probs = (F.log_softmax(logits[rows].double(), dim=-1) for logits in (reference, path))
        next_ids = torch.tensor(following[rows])
        score += Score(
            len(next_ids),
            float((reference_log_probs.exp() * (reference_log_probs - log_probs)).sum()),
            int((reference_log_probs.argmax(-1) == log_probs.argmax(-1)).sum()),
            -float(log_probs.gather(1, next_ids[:, None]).sum()),
        )
    return score


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "KL divergence, argmax agreement and perplexity of every way to keep the weights that runs here"
    command = commands.add_parser("quality", help=text, description=text)
    command.add_argument(
        "--prompts", type=Path, help="JSON lines in Spec-Bench's format (default: the page's examples)"
    )
    command.add_argument(
        "--limit", type=int, default=24, help="so many prompts, spread over the categories (%(default)s)"
    )
    command.add_argument("--tokens", type=int, default=4000, help="about so many tokens in all (default: %(default)s)")
    command.add_argument("--target", default=EMBEDDED)
    command.add_argument("--device", default="auto")
    add_threads_option(command)
    command.add_argument("--offline", action="store_true", help="never use the network")
    command.add_argument("--json", type=Path, metavar="OUT", help="also write the figures to this file")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """`paths`: figures by path, with kernel; `unavailable`: why not, by path; `default`: the path that runs unasked.

    Raises EngineError.
    """
    if args.limit < 1 or args.tokens < 2 * args.limit:
        raise EngineError("--limit must be at least 1, and --tokens at least two for each prompt.")
    prompts = _prompts(args)
    loaded, unavailable = _loaded(args)
    if REFERENCE not in loaded:
        raise EngineError(f"There is nothing to compare with: {unavailable[REFERENCE]}")
    default = _load(args, "auto", "auto").kernel
    names = [name for name, path in loaded.items() if path.kernel == default]
    texts = list(_texts(loaded[names[0] if names else REFERENCE], prompts, args.tokens))
    scores = _scores(loaded, texts)
    report = {
        "paths": {name: {"kernel": loaded[name].kernel, **score.figures()} for name, score in scores.items()},
        "unavailable": unavailable,
        "default": names[0] if names else None,
        "settings": {"target": args.target, "prompts": len(texts), "tokens": args.tokens, "device": args.device},
    }
    print(table(report))
    return report


def _prompts(args: argparse.Namespace) -> list[BenchPrompt]:
    if args.prompts is not None:
        return prompts_of(args)
    return [BenchPrompt("", entry["prompt"]) for entry in json.loads(EXAMPLES.read_text("utf-8"))][: args.limit]


def _load(args: argparse.Namespace, kernel: str, quant: str) -> Loaded:
    return load(
        args.target, device=args.device, threads=args.threads, kernel=kernel, quant=quant, offline=args.offline,
        progress=silent,
    )  # fmt: skip


def _loaded(args: argparse.Namespace) -> tuple[dict[str, Loaded], dict[str, str]]:
    """Every path that can be had here, and for each other one the sentence that says why not."""
    loaded: dict[str, Loaded] = {}
    unavailable: dict[str, str] = {}
    for name, (kernel, quant) in PATHS.items():
        tell(f"loading {name}")
        try:
            loaded[name] = _load(args, kernel, quant)
        except LoadError as error:
            unavailable[name] = str(error)
    return loaded, unavailable


def _texts(loaded: Loaded, prompts: Sequence[BenchPrompt], tokens: int) -> Iterator[list[int]]:
    """Each prompt in the chat template, cut to its share of the tokens, or filled up to it by the
    model's greedy reply."""
    model, tokenizer = Model(loaded.network, loaded.context_len), loaded.tokenizer
    share = min(-(-tokens // len(prompts)), loaded.context_len)
    for prompt in prompts:
        ids, cache = tokenizer.encode_chat([Message("user", prompt.text)])[:share], KVCache()
        while len(ids) < share and ids[-1] not in tokenizer.stop_ids:
            ids.append(int(model.forward([Request(ids, 1, cache)])[0].argmax()))
        yield ids


def _scores(loaded: dict[str, Loaded], texts: Sequence[list[int]]) -> dict[str, Score]:
    models = {name: Model(path.network, path.context_len) for name, path in loaded.items()}
    scores = dict.fromkeys(models, Score())
    pace = TimeLeft(len(texts), tell)
    for n, ids in enumerate(texts, 1):
        reference = models[REFERENCE].forward([Request(ids, len(ids), KVCache())])[0][:-1]
        for name, model in models.items():
            logits = reference if name == REFERENCE else model.forward([Request(ids, len(ids), KVCache())])[0][:-1]
            scores[name] += compare(reference, logits, ids[1:])
        pace(n, f"{len(ids)} tokens")
    return scores


def table(report: dict[str, Any]) -> str:
    """For a terminal: a line a path, then what is missing and why, then whether the default keeps what it must."""
    lines = [f"{'path':8}{'KL':>10}{'agreement':>12}{'perplexity':>12}{'tokens':>8}  kernel"]
    for name, row in report["paths"].items():
        kernel = row["kernel"] + (" (the reference)" if name == REFERENCE else "")
        figures = f"{row['kl']:>10.5f}{row['agreement']:>12.2%}{row['perplexity']:>12.3f}{row['tokens']:>8}"
        lines.append(f"{name:8}{figures}  {kernel}")
    lines += [f"{name:8}not here: {reason}" for name, reason in report["unavailable"].items()]
    if (row := report["paths"].get(report["default"])) is not None:
        passes = row["kl"] < LARGEST_KL and row["agreement"] > LEAST_AGREEMENT
        lines.append(
            f"{report['default']} is what runs unasked: KL below {LARGEST_KL} and agreement above "
            f"{LEAST_AGREEMENT:.0%} {'are kept' if passes else 'are NOT kept'}"
        )
    return "\n".join(lines)
