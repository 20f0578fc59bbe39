"""contexts: what a token costs as the text grows. Apart from attention it should stay the same."""

from __future__ import annotations

import argparse
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from engine.bench.drafts import draft_table
from engine.bench.options import (
    add_drafter_options,
    add_model_options,
    engine_of,
    params_of,
    prompts_of,
    settings_of,
)
from engine.bench.pairs import PairRun, drafts_of, figures, reply
from engine.bench.round_costs import PARTS, costs_of
from engine.cli.options import add_prompt_options, tell
from engine.cli.progress import Interruptible, TimeLeft, mark_partial
from engine.cli.prompts import BenchPrompt
from engine.config import DecodingParams, Message
from engine.errors import EngineError
from engine.serving.engine import Engine

CONTEXTS = (200, 1000, 4000, 7500)

TASK = "\n\nWrite a long essay about all of this."
"""Ends each prompt, so that the reply is long enough to time."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = f"plain and speculative decoding behind prompts of {', '.join(map(str, CONTEXTS))} tokens"
    command = commands.add_parser("contexts", help=text, description=text)
    add_prompt_options(command, max_new_tokens=64)
    add_drafter_options(command)
    command.add_argument("--samples", type=int, default=3, help="texts for each length (default: %(default)s)")
    add_model_options(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """See `report_of`. Raises EngineError."""
    if args.samples < 1:
        raise EngineError("--samples must be at least 1.")
    prompts = prompts_of(args)
    params = replace(params_of(args, args.k), probe_every=0)
    interruptible = Interruptible()
    with engine_of(args) as engine:
        report = report_of(measure(engine, prompts, params, args.samples, tell, interruptible))
        report["settings"] = settings_of(args, engine, samples=args.samples)
    print(table(report))
    return mark_partial(report, interruptible)


def measure(
    engine: Engine,
    prompts: Sequence[BenchPrompt],
    params: DecodingParams,
    samples: int,
    report: Callable[[str], None],
    interruptible: Interruptible | None = None,
) -> dict[int, list[PairRun]]:
    """Runs by context, `samples` each, all contexts in turn; which of plain and speculative goes first alternates.

    Both answer the same prompt under one conversation's name, so that its prompt is read once (by a head that reads
    along, once more). Contexts that leave the model no room for the reply are left out. Ctrl-C ends it with what there
    is, which `interruptible` then tells.
    """
    plain = replace(params, num_speculative_tokens=0)
    room = engine.facts().context_len - params.max_new_tokens
    fitting = [context for context in CONTEXTS if context <= room]
    for context in CONTEXTS[len(fitting) :]:
        report(f"a context of {context} is left out: this model reads {engine.facts().context_len} tokens")
    runs: dict[int, list[PairRun]] = {context: [] for context in fitting}
    pace = TimeLeft(samples * len(fitting), report)
    with interruptible or Interruptible():
        for i, (sample, context) in enumerate((sample, context) for sample in range(samples) for context in fitting):
            prompt = long_prompt(engine, prompts, context, sample * len(prompts) // samples)
            replies = {}
            for side in (plain, params) if (sample + fitting.index(context)) % 2 else (params, plain):
                replies[side is plain] = reply(engine, prompt, side, f"{context}/{sample}")
            runs[context].append(PairRun(prompt, replies[True], replies[False], params.num_speculative_tokens))
            pace(i + 1, f"context {context}: {len(replies[True].ids)} tokens")
    return runs


def long_prompt(engine: Engine, prompts: Sequence[BenchPrompt], tokens: int, first: int) -> BenchPrompt:
    """The prompts' own texts, from number `first` on and round again if need be, cut after a word to at
    most so many tokens."""
    words: list[str] = []
    while len(words) < tokens:  # no tokeniser of interest makes less than a token of a word
        words += [word for prompt in [*prompts[first:], *prompts[:first]] for word in prompt.text.split(" ")]
    words = words[:tokens]

    def prompt_text(count: int) -> str:
        return " ".join(words[:count]) + TASK

    fitting = bisect_right(
        range(len(words)), tokens, key=lambda n: engine.count_tokens([Message("user", prompt_text(n))])
    )
    return BenchPrompt("", prompt_text(max(0, fitting - 1)))


def report_of(runs: dict[int, list[PairRun]]) -> dict[str, Any]:
    """`contexts`: by length, speeds over all samples, `costs` of a round (see `costs_of`), `drafts` (see
    `draft_figures`)."""
    names = ("plain_tok_s", "spec_tok_s", "speedup", "alpha", "acceptance_length")
    return {
        "contexts": {
            str(context): {name: value for name, value in figures(context_runs).items() if name in names}
            | {
                "prompt_tokens": sum(run.plain.summary.prompt_tokens for run in context_runs) / len(context_runs),
                "tokens": sum(len(run.plain.ids) for run in context_runs),
                "costs": costs_of(context_runs),
                "drafts": drafts_of(context_runs),
            }
            for context, context_runs in runs.items()
            if context_runs  # an end before the end may leave the longest without
        }
    }


def table(report: dict[str, Any]) -> str:
    """For a terminal: speeds, then the parts of a plain round and of a speculative one, in
    milliseconds; then the drafts."""
    heads = ["plain tok/s", "spec tok/s", *(f"plain {part}" for part in PARTS[1:]), *(f"spec {part}" for part in PARTS)]
    lines = [f"{'context':>8}{'tokens':>8}" + "".join(f"{head:>14}" for head in heads)]
    for context, row in report["contexts"].items():
        plain, spec = row["costs"]["plain"], row["costs"]["speculative"]
        cells = [row["plain_tok_s"], row["spec_tok_s"]]
        cells += [plain and plain[f"{part}_ms"] for part in PARTS[1:]] + [spec and spec[f"{part}_ms"] for part in PARTS]
        cell_texts = "".join(f"{'-' if cell is None else f'{cell:.2f}':>14}" for cell in cells)
        lines.append(f"{context:>8}{row['tokens']:>8}{cell_texts}")
    drafts = draft_table({context: row["drafts"] for context, row in report["contexts"].items()})
    return "\n".join([*lines, "", drafts])
