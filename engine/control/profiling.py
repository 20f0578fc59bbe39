"""The first passes of each width are slow, so nobody's first reply should pay for them; and how long the next ones take
is what the controller wants to know before it has seen a round."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import perf_counter

from engine.config import MAX_K, Rule, SamplingParams
from engine.control.latency import Profile
from engine.drafters.protocol import DraftContext, Drafter
from engine.networks.kv_cache import KVCache
from engine.networks.model import Model, Request
from engine.rng import KeyedRng

CONTEXT, SHORT_CONTEXT = 256, 16
"""Tokens in the cache while passes are timed: as in a usual conversation, since each row of a pass looks back over
them; few where reading more would hold up the start."""

QUICK_S = 0.02
"""A plain pass that takes no longer can be had behind a usual context."""

WIDTHS = (4, 2, 3, 8, 5, 6, 7, 9, 12, MAX_K + 1)
"""Rows of the timed passes besides the plain one, the most telling first: on a slow machine the
last ones are left out."""

SWEEPS = 4
DRAFTS = 4
LIMIT_S = 1.0
"""For all timing; a plain round and each drafter are timed once however long they take."""

Key = int | str
"""Rows of a pass, or a drafter's name."""


def warm_up(model: Model) -> None:
    """One pass of each kind that replies make: a prompt's, a plain round's, a verification's."""
    cache = KVCache()
    for ids in ([0], [0] * 2, [0] * 7, [0] * 16, [0] * 17):
        model.forward([Request(ids, 1, cache)])


def measure(
    target: Model, drafters: Sequence[Drafter], draft_s: Sequence[tuple[str, float]] = (), limit_s: float = LIMIT_S
) -> Profile:
    """Times passes of the target and drafts of each drafter. draft_s: seconds per draft of those that need no timing.

    In several sweeps, of which the least time of each counts: whatever else the machine does only adds to some of them.
    """
    cache = KVCache()
    plain_pass = _pass(target, cache, SHORT_CONTEXT, 1)
    plain_pass()
    context_len = CONTEXT if _seconds(plain_pass) <= QUICK_S else SHORT_CONTEXT
    context_len = max(1, min(context_len, target.context_len - MAX_K - 1))
    required: dict[Key, Callable[[], None]] = {1: _pass(target, cache, context_len, 1)}
    required |= {drafter.name: _drafts(target, drafter) for drafter in drafters}
    runs = required | {rows: _pass(target, cache, context_len, rows) for rows in WIDTHS}
    for run in required.values():
        run()  # reads what comes before
    least: dict[Key, float] = {}
    deadline = perf_counter() + limit_s
    for _ in range(SWEEPS):
        for key, run in runs.items():
            if perf_counter() > deadline and (key in least or key not in required):
                continue
            least[key] = min(_seconds(run), least.get(key, math.inf))
    rows_s = sorted((key, seconds) for key, seconds in least.items() if isinstance(key, int))
    drafts_s = [(key, seconds / DRAFTS) for key, seconds in least.items() if isinstance(key, str)]
    return Profile(_rising(rows_s), (*draft_s, *drafts_s))


def _rising(rows_s: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """Fewer rows never cost more: where they seem to, something came between."""
    return tuple((rows, min(seconds for _, seconds in rows_s[i:])) for i, (rows, _) in enumerate(rows_s))


def _seconds(run: Callable[[], None]) -> float:
    begin_s = perf_counter()
    run()
    return perf_counter() - begin_s


def _pass(model: Model, cache: KVCache, context: int, rows: int) -> Callable[[], None]:
    """A pass of so many rows; what comes before them is computed by the first that needs it."""
    ids = [0] * (context + rows)

    def run() -> None:
        model.forward([Request(ids, rows, cache)])
        model.synchronize()

    return run


def _drafts(target: Model, drafter: Drafter) -> Callable[[], None]:
    """DRAFTS drafts of one round; the first round reads the prompt too."""
    cache, ids = KVCache(drafter.feature_layers), [0] * SHORT_CONTEXT
    target.forward([Request(ids, 1, cache)])
    [option, *_] = drafter.options(ids)
    features = cache.features(0, len(ids) - 1) if drafter.feature_layers else None
    context = DraftContext(ids, 1, features, SamplingParams(), KeyedRng(0, Rule.REJECTION))

    def run() -> None:
        drafter.propose(option, context, DRAFTS)
        target.synchronize()

    return run
