"""The first passes of each width are slow, so nobody's first reply should pay for them; and how long the next ones take
is what the controller wants to know before it has seen a round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from engine.config import MAX_K, Rule, SamplingParams
from engine.costs import Costs
from engine.drafters import Drafter
from engine.model import Cache, Model, Request
from engine.randomness import Dice

CONTEXT = 32
"""Tokens in the cache while passes are timed."""

WIDTHS = (1, 4, 2, 3, 8, 5, 6, 7, 9, 12, MAX_K + 1)
"""Rows of the timed passes, the most telling first: on a slow machine the last ones are left out."""

SAMPLES = 3
DRAFTS = 4
LIMIT_S = 0.5
"""For the timing of each model; the first width is always timed."""


def warm_up(model: Model) -> None:
    """One pass of each kind that replies make: a prompt's, a plain round's, a verification's."""
    cache = Cache()
    for ids in ([0], [0] * 2, [0] * 7, [0] * 16, [0] * 17):
        model.forward([Request(ids, 1, cache)])


def measure(
    target: Model, drafters: Sequence[Drafter], known_s: Sequence[tuple[str, float]] = (), limit_s: float = LIMIT_S
) -> Costs:
    """Times passes of the target and drafts of each drafter. known_s: seconds per draft of those that need no timing."""
    rows_s = _rows_s(target, limit_s)
    drafts_s = [(drafter.name, _draft_s(target, drafter, limit_s)) for drafter in drafters]
    return Costs(rows_s, (*known_s, *drafts_s))


def _rows_s(model: Model, limit_s: float) -> tuple[tuple[int, float], ...]:
    """(rows, seconds), by rows. Fewer rows never cost more: where they seem to, something came between."""
    cache, deadline = Cache(), perf_counter() + limit_s
    found: list[tuple[int, float]] = []
    for rows in WIDTHS:
        ids = [0] * (CONTEXT + rows)

        def run(ids: list[int] = ids, rows: int = rows) -> None:
            model.forward([Request(ids, rows, cache)])
            model.synchronize()

        found.append((rows, _least_s(run)))
        if perf_counter() > deadline:
            break
    found.sort()
    return tuple((rows, min(seconds for _, seconds in found[i:])) for i, (rows, _) in enumerate(found))


def _draft_s(target: Model, drafter: Drafter, limit_s: float) -> float:
    """Seconds per draft, after the prompt has been read."""
    cache, ids, dice = Cache(drafter.feature_layers), [0] * CONTEXT, Dice(0, Rule.REJECTION)
    target.forward([Request(ids, 1, cache)])
    [offer, *_] = drafter.offers(ids)
    features = cache.features(0, len(ids) - 1) if drafter.feature_layers else None

    def run(k: int = DRAFTS) -> None:
        drafter.propose(offer, ids, 1, features, k, SamplingParams(), dice)
        target.synchronize()

    begin_s = perf_counter()
    run(1)
    if perf_counter() - begin_s > limit_s / DRAFTS / SAMPLES:
        return perf_counter() - begin_s
    return _least_s(run) / DRAFTS


def _least_s(run: Callable[[], None]) -> float:
    """The least of SAMPLES runs, after one that is not counted: whatever else the machine does only adds to them."""
    run()
    taken: list[float] = []
    for _ in range(SAMPLES):
        begin_s = perf_counter()
        run()
        taken.append(perf_counter() - begin_s)
    return min(taken)
