"""judge: how often heads are right on prompts of one's own, without playing a single round.

The target answers the prompts once, greedily, and its hidden states are kept; a head is then judged by one pass over
them. Only chains count that begin where n-gram would not draft, which is where a head plays. What a draft tree would
bring follows from the same pass: the best tree of n drafts holds the n likeliest paths of ranks (Chen et al., Sequoia,
arXiv:2402.12374).
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
from engine.train.batch import DialogueTurns, TurnRequest, generate_dialogues
from engine.train.examples import make_example, thin_chains
from engine.train.features import Array, Entry, FeatureStore
from engine.train.network import ChainStep, Trainee
from engine.train.target import TargetTensors, read_target

STEPS, RANKS = 4, 4
"""How far chains and how deep the head's own order of likeliest tokens are looked at."""

BATCH = 32
MOST_DRAFTS = 7

Route = tuple[int, ...]
"""A node of a draft tree: the rank of each draft on the way to it, 0 for the head's likeliest."""


@dataclass(frozen=True, slots=True)
class ReplyScore:
    """Of one reply. ranks int [chains, STEPS]: the place of the token that came in the head's order, RANKS where it is
    further down, -1 behind the end. overlap [chains]: what rejection sampling at temperature 1 accepts of first drafts.
    covered: share of the tokens that came that the head can draft at all."""

    category: str
    ranks: Array
    overlap: Array
    covered: float


def ranks(steps: Sequence[ChainStep], ids: Tensor) -> Array:
    """See `ReplyScore.ranks`; each step is judged as if the drafts before it had been right. ids: the target's
    of each draft id."""
    columns = []
    for step in steps:
        top = ids[step.logits.topk(min(RANKS, step.logits.shape[1])).indices]
        same = top == step.actual[:, None]
        rank = torch.where(same.any(1), same.int().argmax(1), RANKS)
        columns.append(torch.where(step.valid, rank, -1))
    return torch.stack(columns, 1).numpy()


def chain_acceptance(rank_rows: Array) -> list[float]:
    """By step: the share of likeliest drafts that are right among those behind right ones."""
    alive, shares = np.ones(len(rank_rows), bool), []
    for column in rank_rows.T:
        alive = alive & (column >= 0)
        right = alive & (column == 0)
        shares.append(float(right.sum() / max(1, alive.sum())))
        alive = right
    return shares


def tokens_of_chain(rank_rows: Array, drafts: int) -> float:
    """Mean tokens of a round that drafts a chain of so many."""
    return 1.0 + float(np.cumprod(rank_rows[:, :drafts] == 0, axis=1).sum() / max(1, len(rank_rows)))


def best_tree(rank_rows: Array, drafts: int) -> tuple[tuple[Route, ...], float]:
    """The tree of so many drafts that most tokens are expected of, and how many those are in the mean."""
    counts: Counter[Route] = Counter()
    for row in rank_rows.tolist():
        for end in range(1, len(row) + 1):
            if not 0 <= row[end - 1] < RANKS:
                break
            counts[tuple(row[:end])] += 1
    nodes = sorted(counts, key=lambda path: (-counts[path], len(path), path))[:drafts]  # no node before its parent
    return tuple(nodes), 1.0 + sum(counts[path] for path in nodes) / max(1, len(rank_rows))


@torch.no_grad()
def score_replies(
    head: HeadFile, target: TargetTensors, store: FeatureStore, entries: Sequence[tuple[str, Entry]]
) -> Iterator[ReplyScore]:
    """Replies of fewer than four tokens are left out."""
    trainee = Trainee(head.config, head.weights, target.embedding, target.norm)
    draftable = torch.zeros(target.shape.vocab_size, dtype=torch.bool)
    draftable[head.ids] = True
    for category, entry in entries:
        if entry.dialogue.reply_len < 4:
            continue
        steps = trainee.chains([thin_chains(make_example(store, entry), 0.0)], STEPS)
        overlap = torch.minimum(steps[0].target, steps[0].logits.softmax(-1)).sum(-1)[steps[0].valid]
        covered = float(draftable[steps[0].actual].float().mean()) if len(steps[0].actual) else 1.0
        yield ReplyScore(category, ranks(steps, head.ids), overlap.numpy(), covered)


def table(scores: Sequence[ReplyScore]) -> list[str]:
    """By category and overall; then chains against trees, over all of them."""
    lines = [f"{'':16}{'chains':>8}  {'right, by step':28}{'by rank of the first':26}{'overlap':>8}{'covered':>9}"]
    groups = [(c, [score for score in scores if score.category == c]) for c in CATEGORIES]
    for name, group in [*groups, ("overall", list(scores))]:
        if not group:
            continue
        all_ranks, overlap = (
            np.concatenate([score.ranks for score in group]),
            np.concatenate([score.overlap for score in group]),
        )
        first = all_ranks[:, 0][all_ranks[:, 0] >= 0]
        hits = [float((first == rank).sum() / max(1, len(first))) for rank in range(RANKS)]
        right, placed = (
            "  ".join(f"{share:.3f}" for share in shares) for shares in (chain_acceptance(all_ranks), hits)
        )
        covered = sum(score.covered for score in group) / len(group)
        lines.append(f"{name:16}{len(first):8}  {right:28}{placed:26}{overlap.mean():8.3f}{covered:9.3f}")
    rank_rows = np.concatenate([score.ranks for score in scores])
    lines.append(f"{'drafts':16}{'chain':>8}{'tree':>8}  best tree, ranks from 1")
    for drafts in range(1, MOST_DRAFTS + 1):
        tree, tokens = best_tree(rank_rows, drafts)
        shape = " ".join("".join(str(rank + 1) for rank in path) for path in tree)
        lines.append(f"{drafts:<16}{tokens_of_chain(rank_rows, drafts):8.3f}{tokens:8.3f}  {shape}")
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
        scores = list(score_replies(head, target, store, entries))
        if not scores:
            raise EngineError("All the replies are too short to be judged by: name other prompts.")
        print(
            "\n".join([f"{folder}, {len(head.ids):,} draft tokens, {len(scores)} replies", *table(scores), ""]),
            flush=True,
        )


def _replies(args: argparse.Namespace, store: FeatureStore, prompts: Sequence[BenchPrompt]) -> list[tuple[str, Entry]]:
    """The target's greedy replies with their categories, those that the store lacks written first."""
    from engine.loading.load import load
    from engine.networks.model import Model

    loaded = load(args.model, threads=args.threads, offline=args.offline, progress=silent)
    categories = {tuple(loaded.tokenizer.encode_chat([Message("user", p.text)])): p.category for p in prompts}
    categories = {
        ids: category for ids, category in categories.items() if len(ids) + args.max_new_tokens <= loaded.context_len
    }

    def entries_by_prompt() -> dict[tuple[int, ...], Entry]:
        return {e.dialogue.ids[: e.dialogue.prompt_len]: e for e in store.entries}

    def single_turn(ids: tuple[int, ...]) -> DialogueTurns:
        yield TurnRequest(ids, args.max_new_tokens, SamplingParams(temperature=0.0))

    missing = [ids for ids in categories if ids not in entries_by_prompt()]
    model = Model(loaded.network, loaded.context_len)
    dialogues = map(single_turn, sorted(missing, key=len))
    for count, output in enumerate(
        generate_dialogues(
            model, dialogues, BATCH, loaded.tokenizer.stop_ids, rng=random.Random(0), layers=store.layers
        ),
        1,
    ):
        if output.states is not None:
            store.add([output.dialogue], [output.states])
        if count % BATCH == 0 or count == len(missing):
            tell(f"{count} of {len(missing)} replies")
    return [(category, entries_by_prompt()[ids]) for ids, category in categories.items() if ids in entries_by_prompt()]
