"""fit: trains the head on cached features; can be stopped at any time and goes on where it was.

Soft targets, a few steps of the training-time test, small batches, AdamW with a warm-up and a cosine to zero over a budget
of computing time, so that a run ends when it was said to. A part of the dialogues is held out and never trained on.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.cli.options import add_threads_option, silent
from engine.cli.progress import written
from engine.errors import EngineError
from engine.heads.eagle3 import FIRST, HeadConfig, Weights
from engine.heads.format import HeadFile, read_head, write_head
from engine.train.dialogues import Dialogue, digest, read_dialogues, repeated
from engine.train.features import Entry, FeatureStore, all_layers, batches, fill, layers_option
from engine.train.network import ChainStep, Example, Trainee, loss
from engine.train.target import TargetTensors, read_target

HELD_OUT = 40
"""One dialogue in so many is held out, chosen by its ids, so that it is the same one in every run."""

DRAFT_VOCAB = 8192
"""Tokens that a head can draft if nobody says how many."""

FROZEN = ("lm_head.weight",)
"""The vocabulary rows stay the target's own: a step is cheaper and the head needs less text."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """minutes: of computing; steps: of the training-time test, each weighing `decay` of the one before it; rate: of learning,
    at its highest; batch: reply tokens an update, about; later: share of the chains that go on behind their first draft,
    which a long text needs no more of, and which costs as much as the first; repeated: share of the chains that are trained
    of those that begin where n-gram would draft, which takes those from the head; draft_vocab: tokens that the head can draft,
    the most frequent of the replies, or None for those of the head that a run begins with."""

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


def held_out(dialogue: Dialogue) -> bool:
    return int.from_bytes(digest(dialogue.ids[: dialogue.prompt_len])[:4]) % HELD_OUT == 0


def draft_ids(dialogues: Sequence[Dialogue], size: int, vocab_size: int, always: Sequence[int] = ()) -> Tensor:
    """The target's ids that the head may draft, rising: `always` and the most frequent of the replies."""
    counts = Counter(token_id for d in dialogues for token_id in d.ids[d.prompt_len :])
    ranked = [*always, *(token_id for token_id, _ in counts.most_common()), *range(vocab_size)]
    return torch.tensor(sorted(list(dict.fromkeys(ranked))[: min(size, vocab_size)]))


def first_weights(target: TargetTensors, config: HeadConfig, ids: Tensor) -> Weights:
    """The head begins as the target's last layer over what enters it, which is the last feature; the rest is zero."""
    shape, layer = target.shape, target.last_layer
    count = len(config.feature_layers)
    fc = torch.zeros(shape.hidden, count * shape.hidden)
    fc[:, -shape.hidden :] = torch.eye(shape.hidden)
    weights = {"fc.weight": fc, "norm.weight": target.norm.clone(), "lm_head.weight": target.output[ids].clone()}
    for name, tensor in layer.items():
        if name.startswith("self_attn.") and name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
            tensor = torch.cat([torch.zeros_like(tensor), tensor], dim=1)  # noqa: PLW2901
        weights[FIRST + name] = tensor.clone()
    weights[f"{FIRST}hidden_norm.weight"] = layer["input_layernorm.weight"].clone()
    weights[f"{FIRST}input_layernorm.weight"] = torch.ones(shape.hidden)
    return weights


def _check_begin(head: HeadFile, wanted: HeadConfig, weights: Weights) -> None:
    """Raises EngineError for a head that is of another make than those that are trained here."""
    own = head.config
    like = replace(
        wanted, shape=own.shape, draft_vocab_size=own.draft_vocab_size, target=own.target, acceptance=own.acceptance
    )
    turns = (own.shape.rope_speeds, own.shape.rope_scale) == (wanted.shape.rope_speeds, wanted.shape.rope_scale)
    names, others = (
        {name: w.shape for name, w in one.items() if name not in FROZEN} for one in (head.weights, weights)
    )
    if head.embedding is not None or own != like or not turns or names != others:
        layers = ",".join(map(str, head.config.feature_layers))
        raise EngineError(
            f"A run cannot begin with that head: its layers, norms or sizes are others (it reads the layers {layers}). "
            "Name a head that fit made for this model, with the same --layers."
        )


def example(store: FeatureStore, entry: Entry) -> Example:
    d = entry.dialogue
    states = torch.from_numpy(np.array(store.states(entry))).float()
    return Example(torch.tensor(d.ids), states[:, :-1], states[:, -1], d.prompt_len - 1)


def thinned(whole: Example, share: float, dice: torch.Generator | None = None) -> Example:
    """Only `share` of its chains begin where n-gram would draft; all others stay."""
    starts = torch.arange(whole.first, len(whole.ids) - 1)
    easy = torch.tensor(repeated(whole.ids.tolist()))[starts + 1]
    kept = ~easy | (torch.rand(len(starts), generator=dice) < share)
    return replace(whole, starts=starts[kept])


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
        begin: HeadFile | None = None,
    ) -> None:
        """begin: a head to train on from; without one it begins as `first_weights`. Raises EngineError."""
        self.folder, self.stores, self.target, self.recipe = folder, list(stores), target, recipe
        pairs = [(store, entry) for store in stores for entry in store.entries]
        pairs = [pair for pair in pairs if pair[1].dialogue.reply_len >= 4]
        self.train = [pair for pair in pairs if not held_out(pair[1].dialogue)]
        self.test = [pair for pair in pairs if held_out(pair[1].dialogue)]
        if not self.train:
            raise EngineError("There is nothing to train on: collect dialogues first.")
        layers = stores[0].layers[:-1]
        self.progress = Progress()
        self._path = folder / "checkpoint.pt"
        saved = torch.load(self._path, weights_only=True) if self._path.exists() else None
        self.ids: Tensor
        if saved:
            self.ids = saved["ids"]
        elif begin and recipe.draft_vocab is None:
            self.ids = begin.ids
        else:
            replies, size = [entry.dialogue for _, entry in self.train], recipe.draft_vocab or DRAFT_VOCAB
            self.ids = draft_ids(replies, size, target.shape.vocab_size, stop_ids)
        shape = replace(target.shape, layers=1, windows=(None,), tied=False)
        config = HeadConfig(shape, len(self.ids), tuple(layers), name)
        weights = first_weights(target, config, self.ids)
        if begin:
            _check_begin(begin, config, weights)
            rows = FROZEN if recipe.draft_vocab else ()
            weights |= {name: w for name, w in begin.weights.items() if name not in rows}
        if saved:
            weights = saved["weights"]
        self.trained = {name: w.requires_grad_() for name, w in weights.items() if name not in FROZEN}
        self.trainee = Trainee(config, weights, target.embedding, target.norm)
        self.optimiser = torch.optim.AdamW(
            list(self.trained.values()), lr=recipe.rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True
        )
        if saved:
            self.optimiser.load_state_dict(saved["optimiser"])
            self.progress = Progress(**saved["progress"])

    @property
    def fraction(self) -> float:
        return self.progress.spent_s / (60 * self.recipe.minutes)

    def rate(self) -> float:
        warm = min(1.0, (self.progress.updates + 1) / 100)
        return self.recipe.rate * warm * 0.5 * (1 + math.cos(math.pi * min(1.0, self.fraction)))

    def update(self, batch: Sequence[tuple[FeatureStore, Entry]]) -> float:
        """One step of the optimiser. Returns the loss."""
        begin_s = perf_counter()
        dice = torch.Generator().manual_seed(self.recipe.seed << 32 | self.progress.updates)  # of this step alone
        examples = [thinned(example(store, entry), self.recipe.repeated, dice) for store, entry in batch]
        for group in self.optimiser.param_groups:
            group["lr"] = self.rate()
        value = loss(self.trainee.chains(examples, self.recipe.steps, self.recipe.later, dice), self.recipe.decay)
        self.optimiser.zero_grad(set_to_none=True)
        value.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(list(self.trained.values()), 1.0)
        self.optimiser.step()
        self.progress.spent_s += perf_counter() - begin_s
        self.progress.updates += 1
        self.progress.place += 1
        self.progress.tokens += sum(entry.dialogue.reply_len for _, entry in batch)
        return value.item()

    def epoch(self) -> Iterator[list[tuple[FeatureStore, Entry]]]:
        """The batches of the current epoch that have not been trained on yet; each is, before the next is asked for."""
        order = list(range(len(self.train)))
        random.Random(f"{self.recipe.seed} {self.progress.epoch}").shuffle(order)
        lengths = [entry.dialogue.reply_len for _, entry in self.train]
        for number, batch in enumerate(batches(lengths, order, self.recipe.batch)):
            if number >= self.progress.place:
                yield [self.train[i] for i in batch]
        self.progress.epoch, self.progress.place = self.progress.epoch + 1, 0

    def go(self, report: Callable[[str], None], every_s: float = 480.0) -> None:
        """Train until the budget is spent, with a checkpoint now and then, and one at the end or when interrupted."""
        saved_s, recent = self.progress.spent_s, Recent(self.progress)
        try:
            while self.fraction < 1.0:
                for batch in self.epoch():
                    recent.add(self.update(batch))
                    if recent.due(self.progress):
                        report(recent.line(self.progress, self.fraction, self.recipe.minutes))
                        recent = Recent(self.progress)
                    if self.progress.spent_s - saved_s > every_s:
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
        told = {"acceptance": [round(share, 4) for share in acceptance]}
        write_head(
            self.folder / "head",
            self.trainee.config,
            self.trainee.weights,
            self.ids,
            self.target.config,
            greenlight=told,
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
        """On held-out dialogues, by step: (greedy chain acceptance, mean overlap with the target's distribution), of the
        chains that begin where n-gram would not draft.

        Greedy: over dialogues at temperature 0, whose tokens are the target's choices: the share of drafts that are right
        among those behind right drafts. Overlap: the sum of min(p, q), what the rejection rule accepts at temperature 1.
        """
        right = np.zeros((self.recipe.steps, 2))
        overlap = np.zeros((self.recipe.steps, 2))
        for pair in self.test[:limit]:
            steps = self.trainee.chains([thinned(example(*pair), 0.0)], self.recipe.steps)
            if pair[1].dialogue.temperature == 0:
                right += _chain(steps, self.ids)
            for j, step in enumerate(steps):
                shared = torch.minimum(step.target, step.logits.softmax(-1)).sum(-1)
                overlap[j] += float(shared[step.valid].sum()), int(step.valid.sum())
        return _shares(right), _shares(overlap)


class Recent:
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
        left = written((1 - fraction) * minutes * 60)
        return f"{fraction:4.0%} epoch {progress.epoch + 1}, {progress.updates} updates, loss {mean:.3f}, {speed:.0f} tokens/s, {left} left"


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

        def done(tokens: int, total: int) -> None:
            left_s = (perf_counter() - begin_s) / tokens * (total - tokens)
            report(f"features: {tokens}/{total} tokens, {written(left_s)} left")

        fill(stores[0], Model(loaded.network, loaded.context_len), dialogues, done)
        del loaded
    torch.set_num_threads(args.threads or default_threads())
    recipe = Recipe(**{name: getattr(args, name) for name in Recipe.__slots__ if name != "seed"})
    args.out.mkdir(parents=True, exist_ok=True)
    ends = target.config.get("eos_token_id")
    stop = [ends] if isinstance(ends, int) else ends or []
    sizes = (target.shape.layers, target.shape.hidden, target.shape.vocab_size)
    begin = read_head(args.begin, *sizes) if args.begin else None
    training = TrainingRun(args.out, stores, target, recipe, args.name or args.model, stop, begin)
    report(f"{len(training.train)} dialogues to train on, {len(training.test)} held out")
    training.go(report)
