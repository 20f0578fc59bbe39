"""Many dialogues at once from one target: each sequence goes its own way, and all share the passes over the weights."""

from __future__ import annotations

import random
from collections.abc import Collection, Generator, Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from engine.config import SamplingParams
from engine.networks.devices import fetch_to_cpu
from engine.networks.kv_cache import KVCache
from engine.networks.model import Model, Request
from engine.rng import inverse_cdf
from engine.sampling import probabilities
from engine.train.dialogues import Dialogue
from engine.train.features import Array


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """A turn to be sampled. ids: what comes before; limit: tokens at most; kept: whether a dialogue ends with it."""

    ids: Sequence[int]
    limit: int
    params: SamplingParams
    kept: bool = True


LOOP_WINDOW, LONGEST_PERIOD, LOOP_CHECK_EVERY = 96, 40, 16
"""A reply whose last LOOP_WINDOW tokens repeat at most LONGEST_PERIOD is ended: it would only go on so, and teach
nothing new. Looked for every so many tokens."""

DialogueTurns = Generator[TurnRequest, list[int], None]
"""A dialogue in the making: yields its turns one after the other, and is sent the tokens of each,
its stop token too."""


@dataclass(frozen=True, slots=True)
class GeneratedDialogue:
    """A dialogue up to the end of a turn. states: float32 [tokens, layers, hidden], the features of all its ids;
    None if not wanted."""

    dialogue: Dialogue
    states: Array | None


@dataclass(slots=True, eq=False)
class RunningSequence:
    """A dialogue that is being generated. The cache is its own from turn to turn, so only what is new is computed."""

    turns: DialogueTurns
    turn: TurnRequest
    ids: list[int]
    cache: KVCache
    ended: bool = False

    @property
    def reply(self) -> list[int]:
        return self.ids[len(self.turn.ids) :]


def generate_dialogues(
    model: Model,
    dialogues: Iterator[DialogueTurns],
    batch: int,
    stop_ids: Collection[int],
    *,
    rng: random.Random,
    layers: Sequence[int] = (),
) -> Iterator[GeneratedDialogue]:
    """Keeps `batch` dialogues running as long as there are more, and yields each kept turn as soon as it has ended.

    layers: whose hidden states to keep (as `KVCache.feature_layers`). The turns must leave room for a reply in the
    context. Raises NumericalError where the model's output is no number.
    """
    running: list[RunningSequence] = []
    while True:
        running += _start_sequences(dialogues, batch - len(running), layers)
        if not running:
            return
        logits = model.forward(
            [Request(sequence.ids, 0 if sequence.ended else 1, sequence.cache) for sequence in running]
        )
        _append_tokens([sequence for sequence in running if not sequence.ended], logits, stop_ids, model, rng)
        unfinished: list[RunningSequence] = []
        for sequence in running:
            if not sequence.ended or (layers and len(sequence.cache.ids) < len(sequence.ids)):
                unfinished.append(sequence)  # of the last token, too, the hidden states are wanted: one more pass
                continue
            if sequence.turn.kept:
                yield _to_generated(sequence, bool(layers))
            if _start_next_turn(sequence):
                unfinished.append(sequence)
        running = unfinished


def _start_sequences(
    dialogues: Iterator[DialogueTurns], count: int, layers: Sequence[int]
) -> Iterator[RunningSequence]:
    """Up to `count` new ones; dialogues without a turn are passed over."""
    while count > 0:
        turns = next(dialogues, None)
        if turns is None:
            return
        turn = next(turns, None)
        if turn is not None:
            count -= 1
            yield RunningSequence(turns, turn, list(turn.ids), KVCache(layers))


def _append_tokens(
    sequences: Sequence[RunningSequence],
    pass_logits: Sequence[Tensor],
    stop_ids: Collection[int],
    model: Model,
    rng: random.Random,
) -> None:
    """One more token for each. pass_logits: of every sequence of the pass; those of ended ones have no rows."""
    for sequence, logits in zip(sequences, (logits for logits in pass_logits if len(logits)), strict=True):
        turn, native = sequence.turn, model.native_sampler
        [probs] = probabilities(logits, sequence.ids, len(turn.ids), turn.params, native)
        sequence.ids.append(inverse_cdf(probs, rng.random(), native))
        full = len(sequence.reply) >= sequence.turn.limit or len(sequence.ids) >= model.context_len
        looping = len(sequence.ids) % LOOP_CHECK_EVERY == 0 and is_looping(sequence.reply)
        sequence.ended = full or sequence.ids[-1] in stop_ids or looping


def is_looping(ids: Sequence[int]) -> bool:
    """Whether the last LOOP_WINDOW of ids are one and the same run of at most LONGEST_PERIOD tokens, over and over."""
    last = list(ids[-LOOP_WINDOW:])
    return len(last) == LOOP_WINDOW and any(last[n:] == last[:-n] for n in range(1, LONGEST_PERIOD + 1))


def _to_generated(sequence: RunningSequence, with_states: bool) -> GeneratedDialogue:
    dialogue = Dialogue(tuple(sequence.ids), len(sequence.turn.ids), sequence.turn.params.temperature)
    states = fetch_to_cpu(sequence.cache.features(0, len(sequence.ids))).numpy().copy() if with_states else None
    return GeneratedDialogue(dialogue, states)


def _start_next_turn(sequence: RunningSequence) -> bool:
    """Whether the dialogue has another turn, which then is what this sequence runs."""
    try:
        sequence.turn = sequence.turns.send(sequence.reply)
    except StopIteration:
        return False
    sequence.ids, sequence.ended = list(sequence.turn.ids), False
    return True
