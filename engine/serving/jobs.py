"""What the engine thread works at, in turns: a reply, the two replies of a race, or whatever else is submitted to it.

torch is imported when a job begins, on the engine thread, and not by this module.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

from engine.config import DecodingParams, Message
from engine.events import Event, Finished, FinishReason, Prefilled
from engine.serving.race import Race, race_events
from engine.serving.served_pair import ServedPair
from engine.serving.stream import Channel, attempt

if TYPE_CHECKING:
    from engine.drafters.protocol import Drafter
    from engine.networks.kv_cache import KVCache

Output = tuple[Channel[Any], Any] | None
"""What a step brought, and whose it is; None where it was only work."""

NewDrafter = Callable[["ReplyJob"], "Drafter | None"]


@dataclass(slots=True, kw_only=True)
class Job(ABC):
    """One request on the engine thread. `outputs` is made when its first turn comes.

    pair: the number of the pair that it was made for, which may be swapped meanwhile. streams: those that have not
    ended yet. leases: caches that go back to the pool when it is over. shared: other jobs had their turns meanwhile.
    """

    busy_message: ClassVar[str] = ""
    """What is said where another job of its kind runs or waits already; "" where several may."""

    pair: int
    streams: list[Channel[Any]]
    outputs: Iterator[Output] | None = None
    leases: tuple[tuple[str, KVCache], ...] = ()
    shared: bool = False

    @property
    def cancelled(self) -> bool:
        return any(stream.cancelled for stream in self.streams)

    def step(self, pair_in_use: Callable[[], ServedPair], new_drafter: NewDrafter) -> bool:
        """Run it up to its next event; False when it is over. Whatever happens in it, the thread lives on."""

        def next_output() -> Output:
            if self.outputs is None:
                served_pair = pair_in_use()
                if self.pair != served_pair.facts.pair:
                    self.renew(served_pair)
                self.outputs = self.begin(served_pair, new_drafter)
            return next(self.outputs)

        output = attempt(next_output)
        if isinstance(output, Finished):  # it broke
            self.emit(self.streams, self.error_event(output.message), pair_in_use)
        elif output is not None:
            self.emit([output[0]], output[1], pair_in_use)
        return bool(self.streams)

    def emit(self, streams: Sequence[Channel[Any]], event: Any, pair_in_use: Callable[[], ServedPair]) -> None:
        """Put an event into its streams. Before its last one, all that it holds goes back."""
        self.streams = [s for s in self.streams if s not in streams or not isinstance(event, s.ends)]
        if not self.streams:
            for key, cache in self.leases:
                pair_in_use().pool.release(key, cache)
            # The generators know the job through their context: left alone, caches would wait for a garbage collection.
            self.outputs, self.leases = iter(()), ()
        for stream in streams:
            stream.put(event)

    @abstractmethod
    def renew(self, served_pair: ServedPair) -> None:
        """Read again what was read for a pair that is in use no more. Raises EngineError where that cannot be."""

    @abstractmethod
    def begin(self, served_pair: ServedPair, new_drafter: NewDrafter) -> Iterator[Output]:
        """Its steps, on the engine thread; each ends where another job may have its turn."""

    @abstractmethod
    def error_event(self, message: str) -> Any:
        """What ends its streams when a step raised an error."""

    @abstractmethod
    def cancelled_event(self) -> Any:
        """What ends its streams when it was cancelled before it began; None: it is run to its own end."""


@dataclass(slots=True, kw_only=True)
class ReplyJob(Job):
    """A reply, or the two of a race. ids and params: of the request (messages, requested) as this pair reads it."""

    messages: Sequence[Message]
    requested: DecodingParams
    ids: list[int]
    params: DecodingParams
    conversation: str
    race: Race | None = None
    submitted_s: float = field(default_factory=perf_counter)

    @classmethod
    def create(
        cls,
        served_pair: ServedPair,
        messages: Sequence[Message],
        params: DecodingParams,
        conversation: str,
        streams: list[Channel[Any]],
    ) -> ReplyJob:
        """The request, checked and complete. Raises InvalidParams, ContextFull."""
        ids, complete_params = served_pair.request(messages, params)
        return cls(
            pair=served_pair.facts.pair,
            streams=streams,
            messages=list(messages),
            requested=params,
            ids=ids,
            params=complete_params,
            conversation=conversation,
        )

    @property
    def cancelled(self) -> bool:
        return self.race.cancelled if self.race else self.streams[0].cancelled

    def renew(self, served_pair: ServedPair) -> None:
        has_drafter = self.requested.drafter in served_pair.facts.drafters
        requested = self.requested if has_drafter else replace(self.requested, drafter="auto")
        self.ids, self.params = served_pair.request(self.messages, requested)
        self.pair = served_pair.facts.pair

    def begin(self, served_pair: ServedPair, new_drafter: NewDrafter) -> Iterator[Output]:
        from engine.decode import ReplyContext, generate

        queued_s = perf_counter() - self.submitted_s
        drafter = new_drafter(self)
        cache = self.lease(served_pair, self.conversation, drafter.feature_layers if drafter else ())
        tokenizer = served_pair.pair.target.tokenizer
        context = ReplyContext(
            served_pair.model, cache, tokenizer, drafter, lambda: self.cancelled, served_pair.profile
        )
        outputs: Iterator[tuple[Channel[Any], Event]]
        if self.race is not None:
            outputs = iter(race_events(self.race, self.ids, self.params, context))
        else:
            [reply_stream] = self.streams
            outputs = ((reply_stream, event) for event in generate(self.ids, self.params, context))
        for stream, event in outputs:
            yield stream, replace(event, queued_s=queued_s) if isinstance(event, Prefilled) else event

    def error_event(self, message: str) -> Finished:
        return Finished(FinishReason.ERROR, "", (), message)

    def cancelled_event(self) -> Finished:
        return Finished(FinishReason.CANCELLED, "", ())

    def drafter(self, served_pair: ServedPair) -> Drafter | None:
        """Who drafts; nobody for plain decoding. Caches that it leases go back when the reply is over."""
        if self.params.num_speculative_tokens == 0:
            return None
        return served_pair.drafter(self.params.drafter, partial(self._drafter_cache, served_pair), self.messages)

    def _drafter_cache(self, served_pair: ServedPair, whose: str) -> KVCache:
        """A drafter's cache of the conversation."""
        return self.lease(served_pair, self.conversation and f"{self.conversation}/{whose}")

    def lease(self, served_pair: ServedPair, key: str, feature_layers: Sequence[int] = ()) -> KVCache:
        cache = served_pair.pool.acquire(key, feature_layers)
        self.leases += ((key, cache),)
        return cache
