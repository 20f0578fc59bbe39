"""Owns the models, the cache pool and the one thread that computes. Everything else talks to it through queues.

torch is imported by that thread, not by this module, so that a page can be up before the model is.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from engine.config import DecodingParams, EngineConfig, Message
from engine.errors import Busy, EngineError, InvalidParams, NotReady
from engine.events import Finished
from engine.preflight.fits import makes_room
from engine.serving.jobs import Job, Output, ReplyJob
from engine.serving.load_pair import Loader, ModelPair, load_pair
from engine.serving.race import Race
from engine.serving.served_pair import Facts, ServedPair, begin, set_threads
from engine.serving.stream import Channel, Stream, attempt
from engine.serving.swap import Swap, SwapCancelled, SwapPhase

if TYPE_CHECKING:
    from engine.drafters.protocol import Drafter

log = logging.getLogger(__name__)

MAX_ACTIVE = 4
"""Replies that take turns; further ones wait. Bounds the memory of running caches."""


class State(StrEnum):
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Status:
    """Where loading stands. phase is one of "start", "compile", "fetch", "unpack", "convert", "load", "warm_up", "ready".

    fraction: 0..1 of this phase, None where unknown. message: one sentence when FAILED, else "".
    """

    state: State
    phase: str
    fraction: float | None = None
    message: str = ""


class Engine:
    """`Engine(config)` returns at once and loads in the background; see `status`. `load` is there for tests."""

    def __init__(self, config: EngineConfig, load: Loader | None = None) -> None:
        self.config = config
        self._load = load or load_pair
        self._real = load is None
        self._changed = threading.Condition()
        self._status = Status(State.LOADING, "start")
        self._waiting: deque[Job] = deque()
        self._active: list[Job] = []
        self._served: ServedPair | None = None
        self._swapping: Swap | None = None
        self._next: tuple[Swap, ModelPair | None] | None = None  # ready to take its turn; None: still to be loaded
        self._loading = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="greenlight-engine", daemon=True)
        self._thread.start()

    # -- for any thread ----------------------------------------------------------------------------------------------

    def status(self) -> Status:
        return self._status

    def wait_ready(self, timeout_s: float | None = None) -> Status:
        """Blocks until READY, FAILED or CLOSED, or the time-out; returns the status."""
        with self._changed:
            self._changed.wait_for(lambda: self._status.state is not State.LOADING, timeout_s)
            return self._status

    def facts(self) -> Facts:
        """Raises NotReady before READY."""
        return self._ready().facts

    def count_tokens(self, messages: Sequence[Message]) -> int:
        """Tokens of the templated prompt. Raises NotReady."""
        return len(self.encode(messages))

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Ids of the templated prompt, as `stream` would read them. Raises NotReady."""
        return self._ready().pair.target.tokenizer.encode_chat(messages)

    def stream(self, messages: Sequence[Message], params: DecodingParams, conversation: str = "") -> Stream:
        """Queue one reply. `conversation` names the KV cache to reuse ("" = a fresh one).

        Raises NotReady, InvalidParams (unknown drafter, too many tokens asked for), ContextFull, and Busy when too many wait.
        """
        stream = Stream()
        self.submit(self._job(messages, params, conversation, [stream]))
        return stream

    def race(self, messages: Sequence[Message], params: DecodingParams, conversation: str = "") -> Race:
        """Queue one prompt's reply twice, plain and as `params` say, with one seed and without probes; see `race.Race`.

        The prompt is read once; times that are told of it are the same in both. `conversation` is what the speculative reply
        reuses, as in `stream`; nothing is kept of the plain one.
        Raises as `stream`, and InvalidParams where there is nobody to draft (no drafter, or K = 0).
        """
        if params.num_speculative_tokens == 0:
            raise InvalidParams("num_speculative_tokens", "A race needs drafts: choose a K above 0, or automatic.")
        race = Race()
        job = self._job(messages, replace(params, probe_every=0), conversation, [race.plain, race.speculative])
        if job.params.drafter == "none":
            raise InvalidParams("drafter", "A race needs somebody who drafts: choose a drafter other than none.")
        job.race = race
        self.submit(job)
        return race

    def served_pair(self) -> ServedPair:
        """The pair in use: what a request asks of it may be read on any thread. Raises NotReady."""
        return self._ready()

    def submit(self, job: Job) -> None:
        """Queue a job, which takes turns with all others. Raises NotReady, Busy."""
        with self._changed:
            self._ready()  # it may have been closed while the prompt was read
            others = [other for other in (*self._active, *self._waiting) if type(other) is type(job)]
            if job.alone and any(other.streams for other in others):
                raise Busy("An experiment is running already, and two would disturb each other: wait for its end.")
            if len(self._waiting) >= self.config.max_waiting:
                raise Busy(f"{len(self._waiting)} requests are waiting already: please try again in a minute.")
            self._waiting.append(job)
            self._changed.notify_all()

    def _job(
        self, messages: Sequence[Message], params: DecodingParams, conversation: str, streams: list[Channel[Any]]
    ) -> ReplyJob:
        """The request, checked and complete. Raises what `stream` raises but Busy."""
        served = self._ready()
        ids, complete = served.request(messages, params)
        return ReplyJob(
            pair=served.facts.pair,
            streams=streams,
            messages=list(messages),
            requested=params,
            ids=ids,
            params=complete,
            conversation=conversation,
        )

    def close(self) -> None:
        """Ends all replies (CANCELLED, what was written is kept) and the thread. Safe to call twice.

        A load in progress cannot be interrupted: its thread is left behind and ends by itself.
        """
        was_loading = self._status.state is State.LOADING
        self._set_status(Status(State.CLOSED, "ready"))
        if self._swapping is not None:
            self._swapping.cancel()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=0.5 if was_loading else 60.0)

    def swap(self, config: EngineConfig) -> Swap:
        """Another pair in place of the one in use, which goes on answering while the other is loaded beside it.

        No reply is interrupted: the new pair waits for those that are being written; requests that wait then are read
        again by it. Only where there is not memory for both does the old one make room first, and the engine is LOADING.
        If anything fails, or it is called off, the old pair stays, or is loaded again. Raises NotReady, Busy.
        """
        with self._changed:
            self._ready()
            if self._swapping is not None and not self._swapping.status().over:
                raise Busy("Another pair is being loaded already: wait for it, or cancel that first.")
            swap = self._swapping = Swap(config, self._wake)
        threading.Thread(target=self._prepare, args=(swap,), name="greenlight-loader", daemon=True).start()
        return swap

    def current_swap(self) -> Swap | None:
        """The change that was asked for last; it may be over."""
        return self._swapping

    def _ready(self) -> ServedPair:
        status = self._status
        if status.state is State.READY and self._served is not None:
            return self._served
        raise NotReady(
            {
                State.LOADING: "The model is still loading: please wait a moment.",
                State.FAILED: status.message,
                State.CLOSED: "The engine has been closed: start the app again.",
            }.get(status.state, "The engine is not ready.")
        )

    def _set_status(self, status: Status) -> None:
        with self._changed:
            if self._status.state is not State.CLOSED:
                self._status = status
            self._changed.notify_all()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    # -- the loader's thread -----------------------------------------------------------------------------------------

    def _prepare(self, swap: Swap) -> None:
        """Loads beside the pair in use, or finds that it has to make room; the engine thread does the rest."""
        config, pair = swap.status().config, None
        try:
            with self._loading:  # one that was called off may still be at it
                if self._real and makes_room(config, self.facts().weights_mib, swap.progress):
                    swap.make_room()
                else:
                    pair = self._load(config, swap.progress)
        except BaseException as error:  # noqa: BLE001 - told to whoever asked, and logged; a panic in Rust is no Exception
            _give_up(swap, error)
            return
        swap.tell(SwapPhase.WAITING)
        with self._changed:
            if swap.cancelled or self._status.state is State.CLOSED:
                swap.tell(SwapPhase.CANCELLED)
                return
            self._next = swap, pair
            self._changed.notify_all()

    # -- the engine thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._start(self.config, 1)
        except BaseException as error:  # noqa: BLE001 - told to whoever asked, and logged; a panic in Rust is no Exception
            self._set_status(Status(State.FAILED, "load", message=_why(error)))
            return
        while self._status.state is State.READY:
            self._turn()
        with self._changed:
            left, self._active, self._waiting = [*self._active, *self._waiting], [], deque()
            coming, self._next = self._next, None
        if coming:
            coming[0].tell(SwapPhase.CANCELLED)
        for job in left:
            for stream in job.streams:
                stream.cancel()
            while self._step(job):
                pass

    def _start(self, config: EngineConfig, number: int) -> None:
        def progress(phase: str, fraction: float | None = None) -> None:
            self._set_status(Status(State.LOADING, phase, fraction))

        progress("load")
        pair = self._load(config, progress)
        progress("warm_up")
        self._serve(begin(config, pair, number))

    def _serve(self, served: ServedPair) -> None:
        with self._changed:
            self._served, self.config = served, served.config
        self._set_status(Status(State.READY, "ready", 1.0))

    def _in_use(self) -> ServedPair:
        if self._served is None:
            raise NotReady(self._status.message or "The engine has been closed: start the app again.")
        return self._served

    def _swap(self, swap: Swap, pair: ModelPair | None) -> None:
        """The next pair takes the place of the one in use; on failure that one is in use again."""
        number = self._in_use().facts.pair + 1
        if swap.cancelled:
            swap.tell(SwapPhase.CANCELLED)
            return
        if pair is None:
            self._swap_for_room(swap, number)
            return
        swap.tell(SwapPhase.STARTING)
        try:
            served = begin(swap.status().config, pair, number)
            if swap.cancelled:
                raise SwapCancelled
        except BaseException as error:  # noqa: BLE001 - told to whoever asked, and logged; a panic in Rust is no Exception
            set_threads(self._in_use().pair)
            _give_up(swap, error)
            return
        self._serve(served)
        swap.tell(SwapPhase.DONE)

    def _swap_for_room(self, swap: Swap, number: int) -> None:
        """Nobody else may hold the old pair: it goes before the other comes."""
        before = self._in_use().config
        self._set_status(Status(State.LOADING, "load"))
        self._served = None

        def progress(phase: str, fraction: float | None = None) -> None:
            swap.progress(phase, fraction)
            self._set_status(Status(State.LOADING, phase, fraction))

        config = swap.status().config
        try:
            pair = self._load(config, progress)
            swap.tell(SwapPhase.STARTING)
            served = begin(config, pair, number)
            if swap.cancelled:
                raise SwapCancelled
        except BaseException as error:  # noqa: BLE001 - told to whoever asked, and logged; a panic in Rust is no Exception
            failure = error.with_traceback(None)  # its frames hold what was loaded
        else:
            self._serve(served)
            swap.tell(SwapPhase.DONE)
            return
        try:
            if self._status.state is not State.CLOSED:
                self._start(before, number)
        except BaseException as error:  # noqa: BLE001 - told to whoever asked, and logged; a panic in Rust is no Exception
            self._set_status(Status(State.FAILED, "load", message=_why(error)))
        _give_up(swap, failure)

    def _turn(self) -> None:
        """One step of each running reply, in turn. While another pair is ready to take its place, no other begins."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._active or self._waiting or self._next or self._status.state is not State.READY
            )
            if self._next and self._next[0].cancelled:
                self._next[0].tell(SwapPhase.CANCELLED)
                self._next = None
            while self._waiting and len(self._active) < MAX_ACTIVE and not self._next:
                self._active.append(self._waiting.popleft())
            # Nobody should wait for a place in order to leave the queue.
            gone = [job for job in self._waiting if job.cancelled]
            for job in gone:
                self._waiting.remove(job)
        for job in gone:
            if (end := job.withdrawn()) is not None:
                self._give(job, job.streams, end)
            while job.streams:
                self._step(job)
        for job in list(self._active):
            job.shared |= len(self._active) > 1
            if not self._step(job):
                self._active.remove(job)
        if self._next and not self._active and self._status.state is State.READY:
            coming, self._next = self._next, None
            self._swap(*coming)

    def _step(self, job: Job) -> bool:
        """Run a request up to its next event; False when it is over. Whatever happens in it, the thread lives on."""

        def step() -> Output:
            if job.outputs is None:
                served = self._in_use()
                if job.pair != served.facts.pair:
                    job.renew(served)
                job.outputs = job.begin(served, self._drafter)
            return next(job.outputs)

        output = attempt(step)
        if isinstance(output, Finished):  # it broke
            self._give(job, job.streams, job.broken(output.message))
        elif output is not None:
            self._give(job, [output[0]], output[1])
        return bool(job.streams)

    def _give(self, job: Job, streams: Sequence[Channel[Any]], event: Any) -> None:
        """Put an event of a job into its streams. Before its last one, all that it holds goes back."""
        job.streams = [stream for stream in job.streams if stream not in streams or not isinstance(event, stream.ends)]
        if not job.streams:
            for key, cache in job.leases:
                self._in_use().pool.release(key, cache)
            # The generators know the job through their context: left alone, caches would wait for a garbage collection.
            job.outputs, job.leases = iter(()), ()
        for stream in streams:
            stream.put(event)

    def _drafter(self, job: ReplyJob) -> Drafter | None:
        return job.drafter(self._in_use())


def _why(error: BaseException) -> str:
    """What went wrong, for a person; what nobody expected is logged too."""
    if isinstance(error, EngineError):
        return str(error)
    log.error("loading failed", exc_info=error)
    return f"The model could not be loaded ({type(error).__name__}: {error}); the log has the details."


def _give_up(swap: Swap, error: BaseException) -> None:
    if isinstance(error, SwapCancelled):
        swap.tell(SwapPhase.CANCELLED)
    else:
        swap.tell(SwapPhase.FAILED, message=_why(error))
