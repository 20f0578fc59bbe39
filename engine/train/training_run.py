"""One training run: its recipe, its updates and checkpoints, and how good the head has become."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.cli.progress import format_duration
from engine.errors import EngineError
from engine.heads.eagle3 import HeadConfig, Weights
from engine.heads.format import HeadFile, write_head
from engine.train.examples import is_held_out, make_example, thin_chains
from engine.train.features import Entry, FeatureStore, batches
from engine.train.initial_head import DRAFT_VOCAB, FROZEN, check_initial_head, draft_ids, initial_weights
from engine.train.network import ChainStep, Trainee, loss
from engine.train.target import TargetTensors


@dataclass(frozen=True, slots=True)
class Recipe:
    """minutes: of computing; steps: of the training-time test, each weighing `decay` of the one before it; rate: of
    learning, at its highest; batch: reply tokens an update, about; later: share of the chains that go on behind their
    first draft, which a long text needs no more of, and which costs as much as the first; repeated: share of the chains
    that are trained of those that begin where n-gram would draft, which takes those from the head; draft_vocab: tokens
    that the head can draft, the most frequent of the replies, or None for those of the head that a run begins with."""

    minutes: float = 60.0
    steps: int = 3
    decay: float = 0.8
    later: float = 0.35
    repeated: float = 0.2
    rate: float = 1e-3
    batch: int = 400
    draft_vocab: int | None = None
    seed: int = 0


@dataclass(slots=True)
class Progress:
    """What a checkpoint holds beside tensors."""

    spent_s: float = 0.0
    updates: int = 0
    tokens: int = 0
    epoch: int = 0
    place: int = 0  # batches of the epoch that have been trained on


Sample = tuple[FeatureStore, Entry]


def split_entries(stores: Sequence[FeatureStore]) -> tuple[list[Sample], list[Sample]]:
    """What is trained on and what is held out, without replies of fewer than four tokens. Raises EngineError."""
    samples = [(store, entry) for store in stores for entry in store.entries]
    samples = [sample for sample in samples if sample[1].dialogue.reply_len >= 4]
    training_set = [sample for sample in samples if not is_held_out(sample[1].dialogue)]
    if not training_set:
        raise EngineError("There is nothing to train on: collect dialogues first.")
    return training_set, [sample for sample in samples if is_held_out(sample[1].dialogue)]


class TrainingRun:
    """One training run in a folder: checkpoint.pt, and head/ in the speculators format after every checkpoint."""

    def __init__(
        self,
        folder: Path,
        stores: Sequence[FeatureStore],
        target: TargetTensors,
        recipe: Recipe,
        name: str,
        stop_ids: Sequence[int] = (),
        initial_head: HeadFile | None = None,
    ) -> None:
        """initial_head: one to train on from; without it the head begins as `initial_weights`. Raises EngineError."""
        self.folder, self.target, self.recipe = folder, target, recipe
        self.training_set, self.test_set = split_entries(stores)
        self.progress = Progress()
        self._path = folder / "checkpoint.pt"
        checkpoint = torch.load(self._path, weights_only=True) if self._path.exists() else None
        self.ids: Tensor
        if checkpoint:
            self.ids = checkpoint["ids"]
        elif initial_head and recipe.draft_vocab is None:
            self.ids = initial_head.ids
        else:
            replies, size = [entry.dialogue for _, entry in self.training_set], recipe.draft_vocab or DRAFT_VOCAB
            self.ids = draft_ids(replies, size, target.shape.vocab_size, stop_ids)
        shape = replace(target.shape, layers=1, windows=(None,), tied=False)
        config = HeadConfig(shape, len(self.ids), tuple(stores[0].layers[:-1]), name)
        weights = self._initial_weights(config, initial_head)
        if checkpoint:
            weights = checkpoint["weights"]
        self.trainable = {name: w.requires_grad_() for name, w in weights.items() if name not in FROZEN}
        self.trainee = Trainee(config, weights, target.embedding, target.norm)
        self.optimiser = torch.optim.AdamW(
            list(self.trainable.values()), lr=recipe.rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True
        )
        if checkpoint:
            self.optimiser.load_state_dict(checkpoint["optimiser"])
            self.progress = Progress(**checkpoint["progress"])

    def _initial_weights(self, config: HeadConfig, initial_head: HeadFile | None) -> Weights:
        weights = initial_weights(self.target, config, self.ids)
        if initial_head:
            check_initial_head(initial_head, config, weights)
            rows = FROZEN if self.recipe.draft_vocab else ()
            weights |= {name: w for name, w in initial_head.weights.items() if name not in rows}
        return weights

    @property
    def fraction(self) -> float:
        return self.progress.spent_s / (60 * self.recipe.minutes)

    def rate(self) -> float:
        warm = min(1.0, (self.progress.updates + 1) / 100)
        return self.recipe.rate * warm * 0.5 * (1 + math.cos(math.pi * min(1.0, self.fraction)))

    def update(self, batch: Sequence[Sample]) -> float:
        """One step of the optimiser. Returns the loss."""
        begin_s = perf_counter()
        rng = torch.Generator().manual_seed(self.recipe.seed << 32 | self.progress.updates)  # of this step alone
        examples = [thin_chains(make_example(store, entry), self.recipe.repeated, rng) for store, entry in batch]
        for group in self.optimiser.param_groups:
            group["lr"] = self.rate()
        batch_loss = loss(self.trainee.chains(examples, self.recipe.steps, self.recipe.later, rng), self.recipe.decay)
        self.optimiser.zero_grad(set_to_none=True)
        batch_loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(list(self.trainable.values()), 1.0)
        self.optimiser.step()
        self.progress.spent_s += perf_counter() - begin_s
        self.progress.updates += 1
        self.progress.place += 1
        self.progress.tokens += sum(entry.dialogue.reply_len for _, entry in batch)
        return batch_loss.item()

    def epoch(self) -> Iterator[list[Sample]]:
        """The batches of the current epoch that have not been trained on yet; each is, before the next is asked for."""
        order = list(range(len(self.training_set)))
        random.Random(f"{self.recipe.seed} {self.progress.epoch}").shuffle(order)
        lengths = [entry.dialogue.reply_len for _, entry in self.training_set]
        for number, batch in enumerate(batches(lengths, order, self.recipe.batch)):
            if number >= self.progress.place:
                yield [self.training_set[i] for i in batch]
        self.progress.epoch, self.progress.place = self.progress.epoch + 1, 0

    def train(self, report: Callable[[str], None], save_every_s: float = 480.0) -> None:
        """Train until the budget is spent, with a checkpoint now and then, and one at the end or when interrupted."""
        saved_s, recent = self.progress.spent_s, RecentProgress(self.progress)
        try:
            while self.fraction < 1.0:
                for batch in self.epoch():
                    recent.add(self.update(batch))
                    if recent.due(self.progress):
                        report(recent.line(self.progress, self.fraction, self.recipe.minutes))
                        recent = RecentProgress(self.progress)
                    if self.progress.spent_s - saved_s > save_every_s:
                        saved_s = self.progress.spent_s
                        self.save()
                        report(self.verdict())
                    if self.fraction >= 1.0:
                        break
        finally:
            self.save()
            report(self.verdict())

    def verdict(self) -> str:
        """Writes the head as it is now; one line on how good it is on text that it was not trained on."""
        greedy, overlap = self.acceptance()
        self.export(tuple(greedy))
        chain, shared = ("  ".join(f"{share:.3f}" for share in shares) for shares in (greedy, overlap))
        return f"held out, by step: chain acceptance {chain}; overlap {shared}"

    def export(self, acceptance: tuple[float, ...] = ()) -> None:
        extra = {"acceptance": [round(share, 4) for share in acceptance]}
        write_head(
            self.folder / "head",
            self.trainee.config,
            self.trainee.weights,
            self.ids,
            self.target.config,
            greenlight=extra,
        )

    def save(self) -> None:
        state = {
            "ids": self.ids,
            "weights": {name: w.detach() for name, w in self.trainee.weights.items()},
            "optimiser": self.optimiser.state_dict(),
            "progress": {name: getattr(self.progress, name) for name in Progress.__slots__},
        }
        partial = self._path.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(self._path)

    @torch.no_grad()
    def acceptance(self, limit: int = 48) -> tuple[list[float], list[float]]:
        """On held-out dialogues, by step: (greedy chain acceptance, mean overlap with the target's distribution), of
        the chains that begin where n-gram would not draft.

        Greedy: over dialogues at temperature 0, whose tokens are the target's choices: the share of drafts that are
        right among those behind right drafts. Overlap: the sum of min(p, q), what the rejection rule accepts at
        temperature 1.
        """
        right = np.zeros((self.recipe.steps, 2))
        overlap = np.zeros((self.recipe.steps, 2))
        for pair in self.test_set[:limit]:
            steps = self.trainee.chains([thin_chains(make_example(*pair), 0.0)], self.recipe.steps)
            if pair[1].dialogue.temperature == 0:
                right += _chain(steps, self.ids)
            for j, step in enumerate(steps):
                shared = torch.minimum(step.target, step.logits.softmax(-1)).sum(-1)
                overlap[j] += float(shared[step.valid].sum()), int(step.valid.sum())
        return _shares(right), _shares(overlap)


class RecentProgress:
    """What happened since the last line of progress."""

    def __init__(self, progress: Progress) -> None:
        self._losses: list[float] = []
        self._spent_s, self._tokens = progress.spent_s, progress.tokens

    def add(self, value: float) -> None:
        self._losses.append(value)

    def due(self, progress: Progress) -> bool:
        return progress.spent_s - self._spent_s > 30

    def line(self, progress: Progress, fraction: float, minutes: float) -> str:
        speed = (progress.tokens - self._tokens) / (progress.spent_s - self._spent_s)
        mean = sum(self._losses) / len(self._losses)
        time_left = format_duration((1 - fraction) * minutes * 60)
        return (
            f"{fraction:4.0%} epoch {progress.epoch + 1}, {progress.updates} updates, loss {mean:.3f}, "
            f"{speed:.0f} tokens/s, {time_left} left"
        )


def _shares(counts: Any) -> list[float]:
    """As far as there was anything to count."""
    return [float(n / of) for n, of in counts if of]


def _chain(steps: Sequence[ChainStep], ids: Tensor) -> Any:
    """For each step (drafts that are right, drafts tested), a draft being tested where all before it are right."""
    alive = torch.ones(len(steps[0].valid), dtype=torch.bool)
    counts = np.zeros((len(steps), 2))
    for j, step in enumerate(steps):
        alive = alive & step.valid
        same = ids[step.logits.argmax(-1)] == step.actual
        counts[j] = int((alive & same).sum()), int(alive.sum())
        alive = alive & same
    return counts
