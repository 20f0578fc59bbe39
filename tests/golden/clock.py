"""A clock that only computing moves, so that what depends on times is the same each time, on a busy machine too.

It moves by whole ticks, each an exact binary fraction of a second: sums and differences of times are exact, however
often and where the clock is read in between. Nothing of the engine may be imported before `begin`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

TICK_S = 2.0**-20

PASS, ROW, POSITIONS = 4096, 200, 2
"""Ticks of a forward pass, of each row beyond the first, and for so many positions of context one more."""

SMALLER = 8
"""A drafter model's pass takes so many times less than the target's."""


class Clock:
    """Each thread that computes moves it by itself; held: it stands still, for whatever is loaded or measured
    meanwhile."""

    def __init__(self) -> None:
        self._ticks = 0
        self._held = False
        self._own = threading.local()

    def now_s(self) -> float:
        return self._ticks * TICK_S

    def move(self, ticks: int) -> None:
        self._ticks += 0 if self._held else ticks // (SMALLER if self.drafting else 1)

    @property
    def drafting(self) -> bool:
        return getattr(self._own, "drafting", False)

    @contextmanager
    def held(self) -> Iterator[None]:
        self._held = True
        try:
            yield
        finally:
            self._held = False

    @contextmanager
    def in_drafter(self) -> Iterator[None]:
        before, self._own.drafting = self.drafting, True
        try:
            yield
        finally:
            self._own.drafting = before


CLOCK = Clock()


def begin() -> None:
    """From here on `time.perf_counter` is this clock, and networks and drafters move it."""
    time.perf_counter = CLOCK.now_s

    from engine.drafters.cross_tokenizer import CrossTokenizerDrafter
    from engine.drafters.draft_model import DraftModelDrafter
    from engine.drafters.head import HeadDrafter
    from engine.drafters.ngram import NgramDrafter
    from engine.networks.llama import LeanLlama
    from engine.networks.native_llama import NativeLlama
    from engine.networks.transformers_network import TransformersNetwork
    from tests.fakes import FakeNetwork

    for network in (LeanLlama, NativeLlama, TransformersNetwork, FakeNetwork):
        network.__call__ = _passing(network.__call__)
    for drafter, ticks in ((NgramDrafter, 8), (HeadDrafter, 400), (DraftModelDrafter, 40), (CrossTokenizerDrafter, 80)):
        drafter.propose = _proposing(drafter.propose, ticks)


def _passing(call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def timed(network: Any, token_ids: Any, positions: Any, *more: Any, **named: Any) -> Any:
        context = int(positions.max()) + 1
        CLOCK.move(PASS + ROW * (len(token_ids) - 1) + context // POSITIONS)
        return call(network, token_ids, positions, *more, **named)

    return timed


def _proposing(propose: Callable[..., Any], ticks: int) -> Callable[..., Any]:
    """ticks: of one draft."""

    @wraps(propose)
    def timed(*arguments: Any, **named: Any) -> Any:
        with CLOCK.in_drafter():
            made = propose(*arguments, **named)
        drafts: Sequence[int] = made.token_ids
        CLOCK.move(ticks * len(drafts))
        return made

    return timed
