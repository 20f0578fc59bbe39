"""Whole replies, plain and speculative in turn: what LENGTH, K, TEMPERATURE and TEXT are made of."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

from engine.config import DecodingParams
from engine.decode import ReplyContext, generate
from engine.errors import EngineError
from engine.events import Event, Finished, FinishReason
from engine.lab.context import ExperimentContext, Measurement, Pairs
from engine.lab.results import Point
from engine.networks.kv_cache import KVCache
from engine.stats import Summary, summarise

WARM_UP_TOKENS = 12


@dataclass(frozen=True, slots=True)
class ReplyPair:
    """The same prompt, seed and limit, plain and speculative, one soon after the other."""

    plain: Summary
    spec: Summary


Cell = tuple[str, float]
"""A series and an x."""


@dataclass(frozen=True, slots=True)
class Block:
    """One prompt's replies that are measured next to each other: one plain, and one for each cell."""

    ids: tuple[int, ...]
    plain: DecodingParams
    others: Mapping[Cell, DecodingParams]


def play_reply(
    context: ExperimentContext, ids: Sequence[int], params: DecodingParams
) -> Generator[None, None, Summary]:
    """One reply alone, on cold caches; stands still after each event. Raises EngineError when it ends in an error."""
    drafter = context.new_drafter(params.drafter) if params.num_speculative_tokens != 0 else None
    cache = KVCache(drafter.feature_layers if drafter else ())
    # Who runs this sees to cancelling, between two events.
    reply_context = ReplyContext(context.model, cache, context.tokenizer, drafter, lambda: False, context.profile)
    events: list[Event] = []
    for event in generate(ids, params, reply_context):
        events.append(event)
        yield
    last = events[-1]
    if isinstance(last, Finished) and last.reason is FinishReason.ERROR:
        raise EngineError(last.message)
    return summarise(events)


class Comparison:
    """Blocks in their order. Whose reply goes first within a block changes from one to the next.

    points_of: the points of the pairs so far, by cell.
    """

    def __init__(
        self,
        context: ExperimentContext,
        blocks: Sequence[Block],
        points_of: Callable[[Mapping[Cell, Sequence[ReplyPair]]], tuple[Point, ...]],
        settings: Pairs,
    ) -> None:
        self._context, self._blocks, self._points_of, self._settings = context, blocks, points_of, settings
        self._plain: dict[int, Summary] = {}
        self._others: list[dict[Cell, Summary]] = [{} for _ in blocks]
        self.measurements: Sequence[Measurement] = [
            Measurement(2 * WARM_UP_TOKENS, self._warm_up),
            *(measurement for n in range(len(blocks)) for measurement in self._block_measurements(n)),
        ]

    def _warm_up(self) -> Iterator[None]:
        if not self._blocks:
            return
        block = self._blocks[0]
        for params in (block.plain, *list(block.others.values())[:1]):
            yield from play_reply(self._context, block.ids, replace(params, max_new_tokens=WARM_UP_TOKENS))

    def _block_measurements(self, n: int) -> list[Measurement]:
        block = self._blocks[n]
        weight = block.plain.max_new_tokens + len(block.ids) / 8  # a prompt's tokens are read many at once
        measurements = [Measurement(weight, partial(self._reply, n, None, block.plain))]
        for cell, params in block.others.items():
            measurements.append(Measurement(0.7 * weight, partial(self._reply, n, cell, params)))
        turn = n // 2 % len(measurements)
        measurements = measurements[turn:] + measurements[:turn]
        return measurements[::-1] if n % 2 else measurements

    def _reply(self, n: int, cell: Cell | None, params: DecodingParams) -> Iterator[None]:
        summary = yield from play_reply(self._context, self._blocks[n].ids, params)
        if cell is None:
            self._plain[n] = summary
        else:
            self._others[n][cell] = summary

    def pairs(self) -> dict[Cell, list[ReplyPair]]:
        """Those of which both replies are there, by cell in the order of the first block that has it."""
        pairs: dict[Cell, list[ReplyPair]] = {cell: [] for block in self._blocks for cell in block.others}
        for n, others in zip(count(), self._others):
            for cell, spec in others.items():
                if n in self._plain:
                    pairs[cell].append(ReplyPair(self._plain[n], spec))
        return pairs

    def points(self) -> tuple[Point, ...]:
        return self._points_of({cell: pairs for cell, pairs in self.pairs().items() if pairs})

    def settings(self) -> Pairs:
        return self._settings
