"""Many replies at once from one target: each lane goes its own way, and all of them share the passes over the weights."""

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
class BatchTurn:
    """What a talk wants sampled next. ids: what comes before; limit: tokens at most; kept: whether it is a dialogue."""

    ids: Sequence[int]
    limit: int
    params: SamplingParams
    kept: bool = True


CIRCLE, LONGEST_PERIOD, EVERY = 96, 40, 16
"""A reply whose last CIRCLE tokens repeat at most LONGEST_PERIOD is ended: it would only go on so, and teach nothing new.
Looked for every so many tokens."""

Talk = Generator[BatchTurn, list[int], None]
"""One conversation: yields its turns one after the other, and is sent the tokens of each, its stop token included."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """A turn that has ended. states: float32 [tokens, layers, hidden], the features of all its ids; None if not wanted."""

    dialogue: Dialogue
    states: Array | None


@dataclass(slots=True, eq=False)
class BatchLane:
    """A talk that is running. The cache is its own from turn to turn, so only what is new is computed."""

    talk: Talk
    turn: BatchTurn
    ids: list[int]
    cache: KVCache
    ended: bool = False

    @property
    def reply(self) -> list[int]:
        return self.ids[len(self.turn.ids) :]


def play(
    model: Model,
    talks: Iterator[Talk],
    batch: int,
    stop_ids: Collection[int],
    *,
    rng: random.Random,
    layers: Sequence[int] = (),
) -> Iterator[Spoken]:
    """Keeps `batch` talks running as long as `talks` has more, and gives each kept turn as soon as it has ended.

    layers: whose hidden states to keep (as `KVCache.feature_layers`). The talks must leave room for a reply in the context.
    Raises NumericalError where the model's output is no number.
    """
    lanes: list[BatchLane] = []
    while True:
        lanes += _begun(talks, batch - len(lanes), layers)
        if not lanes:
            return
        found = model.forward([Request(lane.ids, 0 if lane.ended else 1, lane.cache) for lane in lanes])
        _speak([lane for lane in lanes if not lane.ended], found, stop_ids, model, rng)
        going: list[BatchLane] = []
        for lane in lanes:
            if not lane.ended or (layers and len(lane.cache.ids) < len(lane.ids)):
                going.append(lane)  # of the last token, too, the hidden states are wanted: one more pass
                continue
            if lane.turn.kept:
                yield _spoken(lane, bool(layers))
            if _goes_on(lane):
                going.append(lane)
        lanes = going


def _begun(talks: Iterator[Talk], many: int, layers: Sequence[int]) -> Iterator[BatchLane]:
    """Up to `many` new lanes; talks that have nothing to say are passed over."""
    while many > 0:
        talk = next(talks, None)
        if talk is None:
            return
        turn = next(talk, None)
        if turn is not None:
            many -= 1
            yield BatchLane(talk, turn, list(turn.ids), KVCache(layers))


def _speak(
    lanes: Sequence[BatchLane],
    found: Sequence[Tensor],
    stop_ids: Collection[int],
    model: Model,
    rng: random.Random,
) -> None:
    """One more token for each lane. found: of every lane of the pass; those of ended ones have no rows."""
    for lane, logits in zip(lanes, (rows for rows in found if len(rows)), strict=True):
        probs = probabilities(logits, lane.ids, len(lane.turn.ids), lane.turn.params, model.native_sampler)[0]
        lane.ids.append(inverse_cdf(probs, rng.random(), model.native_sampler))
        spent = len(lane.reply) >= lane.turn.limit or len(lane.ids) >= model.context_len
        lane.ended = spent or lane.ids[-1] in stop_ids or (len(lane.ids) % EVERY == 0 and turns_in_circles(lane.reply))


def turns_in_circles(ids: Sequence[int]) -> bool:
    """Whether the last CIRCLE of ids are one and the same run of at most LONGEST_PERIOD tokens, over and over."""
    last = list(ids[-CIRCLE:])
    return len(last) == CIRCLE and any(last[n:] == last[:-n] for n in range(1, LONGEST_PERIOD + 1))


def _spoken(lane: BatchLane, with_states: bool) -> Spoken:
    dialogue = Dialogue(tuple(lane.ids), len(lane.turn.ids), lane.turn.params.temperature)
    states = fetch_to_cpu(lane.cache.features(0, len(lane.ids))).numpy().copy() if with_states else None
    return Spoken(dialogue, states)


def _goes_on(lane: BatchLane) -> bool:
    """Whether the talk has another turn, which then runs in this lane."""
    try:
        lane.turn = lane.talk.send(lane.reply)
    except StopIteration:
        return False
    lane.ids, lane.ended = list(lane.turn.ids), False
    return True
