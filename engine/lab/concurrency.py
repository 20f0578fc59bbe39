"""RATE: users who are served at once, in real passes over the weights that they share.

Each user is a `decode.Reply`, in the very rounds that a reply alone goes through; only the pass in the midst of them is one
for all. Plain decoding is the same with K = 0.
"""

from __future__ import annotations

import statistics
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from time import perf_counter

from engine.config import USUAL_K, DecodingParams, SamplingParams
from engine.decode import Reply, ReplyContext, play_rounds
from engine.drafters.protocol import Drafter
from engine.events import Round
from engine.hardware import free_bytes
from engine.lab.bootstrap import bootstrap
from engine.lab.catalog import RATE_TOKENS
from engine.lab.comparisons import encoded
from engine.lab.context import ExperimentContext, Measurement, Pairs
from engine.lab.prompts import users
from engine.lab.request import ExperimentRequest
from engine.lab.results import AUTO, PLAIN, SPECULATIVE, Point
from engine.networks.kv_cache import KVCache
from engine.networks.model import Model
from engine.stats import Summary, ratio, summarise

SERIES: dict[str, int | None] = {PLAIN: 0, SPECULATIVE: USUAL_K, AUTO: None}
"""K of each side."""

WARM_UP_ROUNDS = 3

SHARE = 0.5
"""Of the free memory, what the users' caches may take."""


def together(model: Model, replies: Sequence[Reply]) -> Iterator[tuple[float, list[Round]]]:
    """Rounds of all replies whose prompts were read, until the last has ended; one pass for all who go on.

    Yields the seconds of each joint round and what it was to each. For a user the round lasts until everybody's drafts have
    been made and checked, so that is what its controller is told.
    """
    index = 0
    while running := [reply for reply in replies if reply.end() is None]:
        index += 1
        begin_s = perf_counter()
        rounds = play_rounds(model, [reply.round(index) for reply in running])
        yield perf_counter() - begin_s, rounds


@dataclass(frozen=True, slots=True)
class User:
    """A prompt, and the caches that have read it: with the drafter's features, and without for plain decoding."""

    ids: tuple[int, ...]
    cache: KVCache
    bare: KVCache


@dataclass(frozen=True, slots=True)
class ConcurrencyRun:
    """What one group of users wrote while all of them were served."""

    tokens: int
    seconds: float
    summary: Summary


class Concurrency:
    """Each number of users in each way in turn; whose turn comes first changes from one to the next."""

    def __init__(self, context: ExperimentContext, request: ExperimentRequest) -> None:
        self._context, self._request = context, request
        self._tokens = min(RATE_TOKENS, request.most_tokens)
        self._most = int(max(request.xs))
        own = request.prompts
        self._prompts = [own[i % len(own)] for i in range(self._most)] if own else encoded(context, users(self._most))
        self._users: list[User] = []
        self._runs: dict[tuple[str, int], list[ConcurrencyRun]] = {(s, int(x)): [] for s in SERIES for x in request.xs}
        read = Measurement(1.5 * self._most, self._read)
        self.measurements: Sequence[Measurement] = [
            read, *(one for repeat in range(request.repeats) for one in self._sweep(repeat))
        ]  # fmt: skip

    def _sweep(self, repeat: int) -> list[Measurement]:
        found: list[Measurement] = []
        for i, x in enumerate(self._request.xs):
            sides = [*SERIES][:: 1 if (repeat + i) % 2 else -1]
            found += [Measurement(8 + x, partial(self._run, side, int(x))) for side in sides]
        return found

    def _read(self) -> Iterator[None]:
        """Each user's prompt, once for all runs, as far as there is memory for the caches; then a few rounds to warm up."""
        free = free_bytes()
        drafter = self._context.new_drafter(self._request.drafter)
        layers = drafter.feature_layers if drafter else ()
        for ids in self._prompts:
            cache = KVCache(layers)
            reply = Reply(ids, self._params(0), self._lane(cache, None))
            for _ in reply.read():
                yield
            self._users.append(User(ids, cache, cache.copy()))
            taken = sum(user.cache.nbytes + user.bare.nbytes for user in self._users)
            if free is not None and taken + taken / len(self._users) > SHARE * free:
                break
        for side in SERIES:
            replies = yield from self._begin(side, 1)
            for _ in islice(together(self._context.model, replies), WARM_UP_ROUNDS):
                yield

    def _run(self, side: str, count: int) -> Iterator[None]:
        """While all of them are served, and until they have the tokens between them: then it was this many users all along."""
        if count > len(self._users):
            return
        replies = yield from self._begin(side, count)
        tokens, seconds, rounds = 0, 0.0, list[Round]()
        served = together(self._context.model, replies)
        while tokens < count * self._tokens and all(reply.end() is None for reply in replies):
            spent_s, made = next(served)
            rounds += made
            tokens, seconds = tokens + sum(len(one.tokens) for one in made), seconds + spent_s
            yield
        if seconds:
            self._runs[side, count].append(ConcurrencyRun(tokens, seconds, summarise(rounds)))

    def _begin(self, side: str, count: int) -> Generator[None, None, list[Reply]]:
        """Replies of the first `count` users up to their first token, each with a drafter that has read nothing yet."""
        params = self._params(SERIES[side])
        replies = []
        for user in self._users[:count]:
            drafter = self._context.new_drafter(self._request.drafter) if side != PLAIN else None
            lane = self._lane(user.bare if side == PLAIN else user.cache, drafter)
            replies.append(Reply(user.ids, params, lane))
            for _ in replies[-1].read():
                yield
        return replies

    def _lane(self, cache: KVCache, drafter: Drafter | None) -> ReplyContext:
        return ReplyContext(
            self._context.model, cache, self._context.tokenizer, drafter, lambda: False, self._context.profile
        )

    def _params(self, k: int | None) -> DecodingParams:
        """With room for those who are quicker than the others."""
        most = min(4 * self._tokens, self._request.most_tokens)
        return DecodingParams(SamplingParams(seed=0), self._request.drafter, k, max_new_tokens=most, probe_every=0)

    def points(self) -> tuple[Point, ...]:
        found: list[Point] = []
        for (side, count), runs in self._runs.items():
            known = bootstrap(runs, tokens_per_second)
            if known is None:
                continue
            extra = {"per_user": known.y / count} | _drafts(runs)
            found.append(Point(float(count), side, known.y, known.n, known.low, known.high, tuple(extra.items())))
        return tuple(found)

    def settings(self) -> Pairs:
        told = (("k", str(USUAL_K)), ("tokens", str(self._tokens)), ("temperature", "0"))
        if self._users and len(self._users) < self._most:
            return (*told, ("cut", f"there is memory for {len(self._users)} users at once"))
        return told


def tokens_per_second(runs: Sequence[ConcurrencyRun]) -> float:
    """Of all users together; the median of the runs."""
    return statistics.median(run.tokens / run.seconds for run in runs)


def _drafts(runs: Sequence[ConcurrencyRun]) -> dict[str, float]:
    """alpha, tau and k, drafts a round, over all runs; what there is of them."""
    every = [run.summary for run in runs]
    accepted = sum(one.accepted for one in every)
    rounds = sum(one.spec_rounds for one in every)
    emitted = sum((one.acceptance_length or 0.0) * one.spec_rounds for one in every)
    found = {
        "alpha": ratio(accepted, accepted + sum(one.rejected for one in every)),
        "tau": ratio(emitted, rounds),
        "k": ratio(sum(one.drafted for one in every), sum(one.rounds for one in every)),
    }
    return {name: value for name, value in found.items() if value is not None}
