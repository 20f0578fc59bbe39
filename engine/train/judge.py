"""judge: how often heads are right on prompts of one's own, without playing a single round.

The target answers the prompts once, greedily, and its hidden states are kept; a head is then judged by one pass over them.
Only chains count that begin where n-gram would not draft, which is where a head plays. What a draft tree would bring follows
from the same pass: the best tree of n drafts holds the n likeliest paths of ranks (Chen et al., Sequoia, arXiv:2402.12374).
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.cli.options import add_prompt_options, add_threads_option, silent, tell
from engine.cli.prompts import CATEGORIES, BenchPrompt, read_prompts
from engine.config import Message, SamplingParams
from engine.errors import EngineError
from engine.heads.format import HeadFile, read_head
from engine.train.batch import BatchTurn, Talk, play
from engine.train.features import Array, Entry, FeatureStore
from engine.train.fit import example, thinned
from engine.train.network import ChainStep, Trainee
from engine.train.target import TargetTensors, read_target

STEPS, RANKS = 4, 4
"""How far chains and how deep the head's own order of likeliest tokens are looked at."""

BATCH = 32
MOST_DRAFTS = 7

Route = tuple[int, ...]
"""A node of a draft tree: the rank of each draft on the way to it, 0 for the head's likeliest."""


@dataclass(frozen=True, slots=True)
class Judged:
    """Of one reply. ranks int [chains, STEPS]: the place of the token that came in the head's order, RANKS where it is further
    down, -1 behind the end. overlap [chains]: what rejection sampling at temperature 1 accepts of first drafts. covered: share
    of the tokens that came that the head can draft at all."""

    category: str
    ranks: Array
    overlap: Array
    covered: float


def ranks(steps: Sequence[ChainStep], ids: Tensor) -> Array:
    """See `Judged.ranks`; each step is judged as if the drafts before it had been right. ids: the target's of each draft id."""
    found = []
    for step in steps:
        best = ids[step.logits.topk(min(RANKS, step.logits.shape[1])).indices]
        same = best == step.actual[:, None]
        rank = torch.where(same.any(1), same.int().argmax(1), RANKS)
        found.append(torch.where(step.valid, rank, -1))
    return torch.stack(found, 1).numpy()


def chain_acceptance(found: Array) -> list[float]:
    """By step: the share of likeliest drafts that are right among those behind right ones."""
    alive, shares = np.ones(len(found), bool), []
    for column in found.T:
        alive = alive & (column >= 0)
        right = alive & (column == 0)
        shares.append(float(right.sum() / max(1, alive.sum())))
        alive = right
    return shares


def tokens_of_chain(found: Array, drafts: int) -> float:
    """Mean tokens of a round that drafts a chain of so many."""
    return 1.0 + float(np.cumprod(found[:, :drafts] == 0, axis=1).sum() / max(1, len(found)))


def best_tree(found: Array, drafts: int) -> tuple[tuple[Route, ...], float]:
    """The tree of so many drafts that most tokens are expected of, and how many those are in the mean."""
    counts: Counter[Route] = Counter()
    for row in found.tolist():
        for end in range(1, len(row) + 1):
            if not 0 <= row[end - 1] < RANKS:
                break
            counts[tuple(row[:end])] += 1
    chosen = sorted(counts, key=lambda path: (-counts[path], len(path), path))[:drafts]  # no node before its parent
    return tuple(chosen), 1.0 + sum(counts[path] for path in chosen) / max(1, len(found))


@torch.no_grad()
def judged(
    head: HeadFile, target: TargetTensors, store: FeatureStore, entries: Sequence[tuple[str, Entry]]
) -> Iterator[Judged]:
    """Replies of fewer than four tokens are left out."""
    trainee = Trainee(head.config, head.weights, target.embedding, target.norm)
    can = torch.zeros(target.shape.vocab_size, dtype=torch.bool)
    can[head.ids] = True
    for category, entry in entries:
        if entry.dialogue.reply_len < 4:
            continue
        steps = trainee.chains([thinned(example(store, entry), 0.0)], STEPS)
        shared = torch.minimum(steps[0].target, steps[0].logits.softmax(-1)).sum(-1)[steps[0].valid]
        covered = float(can[steps[0].actual].float().mean()) if len(steps[0].actual) else 1.0
        yield Judged(category, ranks(steps, head.ids), shared.numpy(), covered)


def table(found: Sequence[Judged]) -> list[str]:
    """By category and overall; then chains against trees, over all of them."""
    lines = [f"{'':16}{'chains':>8}  {'right, by step':28}{'by rank of the first':26}{'overlap':>8}{'covered':>9}"]
    groups = [(c, [one for one in found if one.category == c]) for c in CATEGORIES]
    for name, group in [*groups, ("overall", list(found))]:
        if not group:
            continue
        all_ranks, overlap = (
            np.concatenate([one.ranks for one in group]),
            np.concatenate([one.overlap for one in group]),
        )
        first = all_ranks[:, 0][all_ranks[:, 0] >= 0]
        hits = [float((first == rank).sum() / max(1, len(first))) for rank in range(RANKS)]
        right, placed = (
            "  ".join(f"{share:.3f}" for share in shares) for shares in (chain_acceptance(all_ranks), hits)
        )
        covered = sum(one.covered for one in group) / len(group)
        lines.append(f"{name:16}{len(first):8}  {right:28}{placed:26}{overlap.mean():8.3f}{covered:9.3f}")
    whole = np.concatenate([one.ranks for one in found])
    lines.append(f"{'drafts':16}{'chain':>8}{'tree':>8}  best tree, ranks from 1")
    for drafts in range(1, MOST_DRAFTS + 1):
        tree, tokens = best_tree(whole, drafts)
        shape = " ".join("".join(str(rank + 1) for rank in path) for path in tree)
        lines.append(f"{drafts:<16}{tokens_of_chain(whole, drafts):8.3f}{tokens:8.3f}  {shape}")
    return lines


def add_command(commands: Any) -> None:
    text = "how often heads are right on prompts, by category, and what a tree of drafts would bring"
    command = commands.add_parser("judge", help=text, description=text)
    command.add_argument("heads", type=Path, nargs="+", help="their folders")
    command.add_argument("--features", type=Path, required=True, help="folder to keep the target's replies in")
    command.add_argument("--model", default="embedded", help="the target: embedded, a folder, or a hub id")
    add_prompt_options(command)
    add_threads_option(command)
    command.add_argument("--offline", action="store_true", help="never use the network")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Raises EngineError."""
    from engine.hardware import default_threads
    from engine.loading.source import find

    target = read_target(find(args.model, args.offline, silent, tiles=True))
    sizes = (target.shape.layers, target.shape.hidden, target.shape.vocab_size)
    heads = [read_head(folder, *sizes) for folder in args.heads]
    layers = heads[0].config.feature_layers
    for folder, head in zip(args.heads, heads, strict=True):
        if head.config.feature_layers != layers or head.config.shape.layers != 1 or head.embedding is not None:
            raise EngineError(
                f"{folder} reads other layers or has another make than the first head: judge it by itself."
            )
    store = FeatureStore(args.features, args.model, (*layers, target.shape.layers), target.shape.hidden)
    entries = _replies(args, store, read_prompts(args.prompts, args.limit))
    torch.set_num_threads(args.threads or default_threads())
    for folder, head in zip(args.heads, heads, strict=True):
        found = list(judged(head, target, store, entries))
        if not found:
            raise EngineError("All the replies are too short to be judged by: name other prompts.")
        print(
            "\n".join([f"{folder}, {len(head.ids):,} draft tokens, {len(found)} replies", *table(found), ""]),
            flush=True,
        )


def _replies(args: argparse.Namespace, store: FeatureStore, prompts: Sequence[BenchPrompt]) -> list[tuple[str, Entry]]:
    """The target's greedy replies with their categories, those that the store lacks written first."""
    from engine.loading.load import load
    from engine.networks.model import Model

    loaded = load(args.model, threads=args.threads, offline=args.offline, progress=silent)
    asked = {tuple(loaded.tokenizer.encode_chat([Message("user", p.text)])): p.category for p in prompts}
    asked = {ids: category for ids, category in asked.items() if len(ids) + args.max_new_tokens <= loaded.context_len}

    def kept() -> dict[tuple[int, ...], Entry]:
        return {e.dialogue.ids[: e.dialogue.prompt_len]: e for e in store.entries}

    def talk(ids: tuple[int, ...]) -> Talk:
        yield BatchTurn(ids, args.max_new_tokens, SamplingParams(temperature=0.0))

    missing = [ids for ids in asked if ids not in kept()]
    model = Model(loaded.network, loaded.context_len)
    talks = map(talk, sorted(missing, key=len))
    for done, spoken in enumerate(
        play(model, talks, BATCH, loaded.tokenizer.stop_ids, rng=random.Random(0), layers=store.layers), 1
    ):
        if spoken.states is not None:
            store.add([spoken.dialogue], [spoken.states])
        if done % BATCH == 0 or done == len(missing):
            tell(f"{done} of {len(missing)} replies")
    return [(category, kept()[ids]) for ids, category in asked.items() if ids in kept()]
