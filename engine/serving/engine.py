"""Owns the models, the cache pool and the one thread that computes. Everything else talks to it through queues.

torch is imported by that thread, not by this module, so that a page can be up before the model is.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.config import DecodingParams, EngineConfig, Message
from engine.errors import Busy, InvalidParams, NotReady
from engine.preflight.fits import makes_room
from engine.serving.job_queue import JobQueue
from engine.serving.jobs import Job, ReplyJob
from engine.serving.load_pair import Loader, ModelPair, load_failure, load_pair
from engine.serving.race import Race
from engine.serving.served_pair import Facts, ServedPair, set_threads, start_pair
from engine.serving.status import State, Status
from engine.serving.stream import Stream
from engine.serving.swap import Swap, SwapCancelled, SwapPhase

if TYPE_CHECKING:
    from engine.drafters.protocol import Drafter


__all__ = ["Engine", "State", "Status"]


class Engine:
    """`Engine(config)` returns at once and loads in the background; see `status`. `load` is there for tests."""

    def __init__(self, config: EngineConfig, load: Loader | None = None) -> None:
        self.config = config
        self._load = load or load_pair
        self._checks_memory = load is None
        self._changed = threading.Condition()
        self._status = Status(State.LOADING, "start")
        self._queue = JobQueue()
        self._served_pair: ServedPair | None = None
        self._latest_swap: Swap | None = None
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

        Raises NotReady, InvalidParams (unknown drafter, too many tokens asked for), ContextFull, and Busy when too many
        wait.
        """
        stream = Stream()
        self.submit(ReplyJob.create(self._ready(), messages, params, conversation, [stream]))
        return stream

    def race(self, messages: Sequence[Message], params: DecodingParams, conversation: str = "") -> Race:
        """Queue one prompt's reply twice, plain and as `params` say, with one seed and without probes; see `race.Race`.

        The prompt is read once; times that are told of it are the same in both. `conversation` is what the speculative
        reply reuses, as in `stream`; nothing is kept of the plain one. Raises as `stream`, and InvalidParams where
        there is nobody to draft (no drafter, or K = 0).
        """
        if params.num_speculative_tokens == 0:
            raise InvalidParams("num_speculative_tokens", "A race needs drafts: choose a K above 0, or automatic.")
        race = Race()
        params = replace(params, probe_every=0)
        job = ReplyJob.create(self._ready(), messages, params, conversation, [race.plain, race.speculative])
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
            self._queue.add(job, self.config.max_waiting)
            self._changed.notify_all()

    def close(self) -> None:
        """Ends all replies (CANCELLED, what was written is kept) and the thread. Safe to call twice.

        A load in progress cannot be interrupted: its thread is left behind and ends by itself.
        """
        was_loading = self._status.state is State.LOADING
        self._set_status(Status(State.CLOSED, "ready"))
        if self._latest_swap is not None:
            self._latest_swap.cancel()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=0.5 if was_loading else 60.0)

    def swap(self, config: EngineConfig) -> Swap:
        """Another pair in place of the one in use, which goes on answering while the other is loaded beside it.

        No reply is interrupted: the new pair waits for those that are being written; requests that wait then are read
        again by it. Only where there is not memory for both does the old one make room first, and the engine is
        LOADING. If anything fails, or it is called off, the old pair stays, or is loaded again. Raises NotReady, Busy.
        """
        with self._changed:
            self._ready()
            if self._latest_swap is not None and not self._latest_swap.status().over:
                raise Busy("Another pair is being loaded already: wait for it, or cancel that first.")
            swap = self._latest_swap = Swap(config, self._wake)
        threading.Thread(target=self._prepare, args=(swap,), name="greenlight-loader", daemon=True).start()
        return swap

    def latest_swap(self) -> Swap | None:
        """The swap that was asked for last; it may be over."""
        return self._latest_swap

    def _ready(self) -> ServedPair:
        status = self._status
        if status.state is State.READY and self._served_pair is not None:
            return self._served_pair
        raise NotReady(status.refusal)

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
                if self._checks_memory and makes_room(config, self.facts().weights_mib, swap.progress):
                    swap.make_room()
                else:
                    pair = self._load(config, swap.progress)
        except BaseException as error:  # noqa: BLE001 - told to whoever asked; a panic in Rust is no Exception
            swap.fail(error)
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
            self._load_and_start(self.config, 1)
        except BaseException as error:  # noqa: BLE001 - told to whoever asked; a panic in Rust is no Exception
            self._set_status(Status(State.FAILED, "load", message=load_failure(error)))
            return
        while self._status.state is State.READY:
            self._run_turn()
        with self._changed:
            unfinished = self._queue.remove_all()
            next_swap, self._next = self._next, None
        if next_swap:
            next_swap[0].tell(SwapPhase.CANCELLED)
        for job in unfinished:
            for stream in job.streams:
                stream.cancel()
            while job.step(self._pair_in_use, self._drafter):
                pass

    def _load_and_start(self, config: EngineConfig, number: int) -> None:
        def progress(phase: str, fraction: float | None = None) -> None:
            self._set_status(Status(State.LOADING, phase, fraction))

        progress("load")
        pair = self._load(config, progress)
        progress("warm_up")
        self._use_pair(start_pair(config, pair, number))

    def _use_pair(self, served_pair: ServedPair) -> None:
        with self._changed:
            self._served_pair, self.config = served_pair, served_pair.config
        self._set_status(Status(State.READY, "ready", 1.0))

    def _pair_in_use(self) -> ServedPair:
        if self._served_pair is None:
            raise NotReady(self._status.message or "The engine has been closed: start the app again.")
        return self._served_pair

    def _swap(self, swap: Swap, pair: ModelPair | None) -> None:
        """The next pair takes the place of the one in use; on failure that one is in use again."""
        number = self._pair_in_use().facts.pair + 1
        if swap.cancelled:
            swap.tell(SwapPhase.CANCELLED)
            return
        if pair is None:
            self._swap_for_room(swap, number)
            return
        try:
            served_pair = _start_for(swap, pair, number)
        except BaseException as error:  # noqa: BLE001 - told to whoever asked; a panic in Rust is no Exception
            set_threads(self._pair_in_use().pair)
            swap.fail(error)
            return
        self._use_pair(served_pair)
        swap.tell(SwapPhase.DONE)

    def _swap_for_room(self, swap: Swap, number: int) -> None:
        """Nobody else may hold the old pair: it goes before the other comes."""
        before = self._pair_in_use().config
        self._set_status(Status(State.LOADING, "load"))
        self._served_pair = None

        def progress(phase: str, fraction: float | None = None) -> None:
            swap.progress(phase, fraction)
            self._set_status(Status(State.LOADING, phase, fraction))

        try:
            served_pair = _start_for(swap, self._load(swap.status().config, progress), number)
        except BaseException as error:  # noqa: BLE001 - told to whoever asked; a panic in Rust is no Exception
            failure = error.with_traceback(None)  # its frames hold what was loaded
        else:
            self._use_pair(served_pair)
            swap.tell(SwapPhase.DONE)
            return
        try:
            if self._status.state is not State.CLOSED:
                self._load_and_start(before, number)
        except BaseException as error:  # noqa: BLE001 - told to whoever asked; a panic in Rust is no Exception
            self._set_status(Status(State.FAILED, "load", message=load_failure(error)))
        swap.fail(failure)

    def _run_turn(self) -> None:
        """One step of each running reply, in turn. While another pair is ready to take its place, no other begins."""
        queue = self._queue
        with self._changed:
            self._changed.wait_for(
                lambda: queue.active or queue.waiting or self._next or self._status.state is not State.READY
            )
            if self._next and self._next[0].cancelled:
                self._next[0].tell(SwapPhase.CANCELLED)
                self._next = None
            if not self._next:
                queue.admit()
            cancelled_jobs = queue.remove_cancelled()
        for job in cancelled_jobs:
            if (event := job.cancelled_event()) is not None:
                job.emit(job.streams, event, self._pair_in_use)
            while job.streams:
                job.step(self._pair_in_use, self._drafter)
        for job in list(queue.active):
            job.shared |= len(queue.active) > 1
            if not job.step(self._pair_in_use, self._drafter):
                queue.active.remove(job)
        if self._next and not queue.active and self._status.state is State.READY:
            next_swap, self._next = self._next, None
            self._swap(*next_swap)

    def _drafter(self, job: ReplyJob) -> Drafter | None:
        return job.drafter(self._pair_in_use())


def _start_for(swap: Swap, pair: ModelPair, number: int) -> ServedPair:
    """Raises SwapCancelled where it was called off meanwhile."""
    swap.tell(SwapPhase.STARTING)
    served_pair = start_pair(swap.status().config, pair, number)
    if swap.cancelled:
        raise SwapCancelled
    return served_pair
