"""RATE: users who are served at once, in real passes over the weights that they share.

Each user is a `decode.Reply`, in the very rounds that a reply alone goes through; only the pass in their midst is one
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
from engine.decode import Reply, ReplyContext
from engine.drafters.protocol import Drafter
from engine.events import Round
from engine.hardware import free_bytes
from engine.lab.bootstrap import bootstrap
from engine.lab.catalog import RATE_TOKENS
from engine.lab.comparisons import encode_prompts
from engine.lab.context import ExperimentContext, Measurement, Pairs
from engine.lab.prompts import users
from engine.lab.results import AUTO, PLAIN, SPECULATIVE, ExperimentRequest, Point
from engine.networks.kv_cache import KVCache
from engine.networks.model import Model
from engine.rounds import play_rounds
from engine.stats import Summary, ratio, summarise

SERIES: dict[str, int | None] = {PLAIN: 0, SPECULATIVE: USUAL_K, AUTO: None}
"""K of each series."""

WARM_UP_ROUNDS = 3

SHARE = 0.5
"""Of the free memory, what the users' caches may take."""


def play_joint_rounds(model: Model, replies: Sequence[Reply]) -> Iterator[tuple[float, list[Round]]]:
    """Rounds of all replies whose prompts were read, until the last has ended; one pass for all who go on.

    Yields the seconds of each joint round, and the round of each user. For a user the round lasts until everybody's
    drafts have been made and checked, so those are the seconds that its controller observes.
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
        prompts = request.prompts
        self._prompts = (
            [prompts[i % len(prompts)] for i in range(self._most)]
            if prompts
            else encode_prompts(context, users(self._most))
        )
        self._users: list[User] = []
        self._runs: dict[tuple[str, int], list[ConcurrencyRun]] = {(s, int(x)): [] for s in SERIES for x in request.xs}
        reading = Measurement(1.5 * self._most, self._read_prompts)
        self.measurements: Sequence[Measurement] = [
            reading, *(measurement for repeat in range(request.repeats) for measurement in self._sweep(repeat))
        ]  # fmt: skip

    def _sweep(self, repeat: int) -> list[Measurement]:
        measurements: list[Measurement] = []
        for i, x in enumerate(self._request.xs):
            order = [*SERIES][:: 1 if (repeat + i) % 2 else -1]
            measurements += [Measurement(8 + x, partial(self._run, series, int(x))) for series in order]
        return measurements

    def _read_prompts(self) -> Iterator[None]:
        """Each user's prompt, once for all runs, as far as there is memory for the caches; then a
        few rounds to warm up."""
        free = free_bytes()
        drafter = self._context.new_drafter(self._request.drafter)
        layers = drafter.feature_layers if drafter else ()
        for ids in self._prompts:
            cache = KVCache(layers)
            reply = Reply(ids, self._params(0), self._reply_context(cache, None))
            for _ in reply.prefill():
                yield
            self._users.append(User(ids, cache, cache.copy()))
            cache_bytes = sum(user.cache.nbytes + user.bare.nbytes for user in self._users)
            if free is not None and cache_bytes + cache_bytes / len(self._users) > SHARE * free:
                break
        for series in SERIES:
            replies = yield from self._start_replies(series, 1)
            for _ in islice(play_joint_rounds(self._context.model, replies), WARM_UP_ROUNDS):
                yield

    def _run(self, series: str, count: int) -> Iterator[None]:
        """While all of them are served, and until they have the tokens between them: then it was this
        many users all along."""
        if count > len(self._users):
            return
        replies = yield from self._start_replies(series, count)
        tokens, seconds, rounds = 0, 0.0, list[Round]()
        joint_rounds = play_joint_rounds(self._context.model, replies)
        while tokens < count * self._tokens and all(reply.end() is None for reply in replies):
            joint_s, user_rounds = next(joint_rounds)
            rounds += user_rounds
            tokens, seconds = tokens + sum(len(round_.tokens) for round_ in user_rounds), seconds + joint_s
            yield
        if seconds:
            self._runs[series, count].append(ConcurrencyRun(tokens, seconds, summarise(rounds)))

    def _start_replies(self, series: str, count: int) -> Generator[None, None, list[Reply]]:
        """Replies of the first `count` users up to their first token, each with a drafter that has read nothing yet."""
        params = self._params(SERIES[series])
        replies = []
        for user in self._users[:count]:
            drafter = self._context.new_drafter(self._request.drafter) if series != PLAIN else None
            context = self._reply_context(user.bare if series == PLAIN else user.cache, drafter)
            replies.append(Reply(user.ids, params, context))
            for _ in replies[-1].prefill():
                yield
        return replies

    def _reply_context(self, cache: KVCache, drafter: Drafter | None) -> ReplyContext:
        return ReplyContext(
            self._context.model, cache, self._context.tokenizer, drafter, lambda: False, self._context.profile
        )

    def _params(self, k: int | None) -> DecodingParams:
        """With room for those who are quicker than the others."""
        most = min(4 * self._tokens, self._request.most_tokens)
        return DecodingParams(SamplingParams(seed=0), self._request.drafter, k, max_new_tokens=most, probe_every=0)

    def points(self) -> tuple[Point, ...]:
        points: list[Point] = []
        for (series, count), runs in self._runs.items():
            estimate = bootstrap(runs, tokens_per_second)
            if estimate is None:
                continue
            extra = {"per_user": estimate.y / count} | _drafts(runs)
            points.append(
                Point(float(count), series, estimate.y, estimate.n, estimate.low, estimate.high, tuple(extra.items()))
            )
        return tuple(points)

    def settings(self) -> Pairs:
        settings = (("k", str(USUAL_K)), ("tokens", str(self._tokens)), ("temperature", "0"))
        if self._users and len(self._users) < self._most:
            return (*settings, ("cut", f"there is memory for {len(self._users)} users at once"))
        return settings


def tokens_per_second(runs: Sequence[ConcurrencyRun]) -> float:
    """Of all users together; the median of the runs."""
    return statistics.median(run.tokens / run.seconds for run in runs)


def _drafts(runs: Sequence[ConcurrencyRun]) -> dict[str, float]:
    """alpha, tau and k, drafts a round, over all runs; what there is of them."""
    summaries = [run.summary for run in runs]
    accepted = sum(summary.accepted for summary in summaries)
    rounds = sum(summary.spec_rounds for summary in summaries)
    emitted = sum((summary.acceptance_length or 0.0) * summary.spec_rounds for summary in summaries)
    figures = {
        "alpha": ratio(accepted, accepted + sum(summary.rejected for summary in summaries)),
        "tau": ratio(emitted, rounds),
        "k": ratio(sum(summary.drafted for summary in summaries), sum(summary.rounds for summary in summaries)),
    }
    return {name: value for name, value in figures.items() if value is not None}
