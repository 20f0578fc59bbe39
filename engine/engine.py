"""Owns the models, the cache pool and the one thread that computes. Everything else talks to it through queues.

torch is imported by that thread, not by this module, so that a page can be up before the model is.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from engine.config import DRAFTER_WORDS, DecodingParams, EngineConfig, Message
from engine.errors import Busy, ContextFull, EngineError, InvalidParams, LoadError, NotReady, PairMismatch
from engine.events import Finished, FinishReason, Prefilled
from engine.lab.asked import Asked
from engine.lab.machine import processor_name
from engine.lab.reports import Reports
from engine.lab.specs import MOST_REPEATS, checked_xs, specs
from engine.lab.values import Failed, Name, Result, Spec
from engine.race import Race, events_of
from engine.stream import Channel, Stream, attempt

if TYPE_CHECKING:
    from engine.costs import Costs
    from engine.drafters import Drafter
    from engine.heads import ReadyHead
    from engine.loading import Loaded
    from engine.model import Cache, CachePool, Model

log = logging.getLogger(__name__)

MAX_ACTIVE = 4
"""Replies that take turns; further ones wait. Bounds the memory of running caches."""

Progress = Callable[[str, float | None], None]


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


@dataclass(frozen=True, slots=True)
class Facts:
    """The truth about the loaded engine, for a chip in the page. exact says whether speculative text is proven bit-equal."""

    target: str
    weights: str  # e.g. "GGUF Q4_1, run as bf16"
    kernel: str  # e.g. "torch bf16 linear"
    device: str
    threads: int
    context_len: int
    exact: bool
    drafters: tuple[str, ...]  # names valid for DecodingParams.drafter, besides "auto"
    max_new_tokens: int
    note: str = ""  # what a person should know of this model, e.g. that it has no chat template; a line each


@dataclass(frozen=True, slots=True)
class Pair:
    """What a loader returns: the target, and a drafter model or a trained head where there is one.

    note: what a person should know of the drafter, or "".
    """

    target: Loaded
    drafter: Loaded | None = None
    threads: int = 1
    head: ReadyHead | None = None
    note: str = ""


Loader = Callable[[EngineConfig, Progress], Pair]

_Made = tuple[Channel[Any], Any] | None
"""What a step brought, and whose it is; None where it was only work."""


@dataclass(slots=True)
class _Job:
    """One request on the engine thread: a reply, or the two of a race. `events` is made when its first turn comes.

    streams: those that have not ended yet.
    """

    ids: list[int]
    params: DecodingParams
    conversation: str
    streams: list[Channel[Any]]
    submitted_s: float
    race: Race | None = None
    events: Iterator[_Made] | None = None
    queued_s: float = 0.0
    leases: tuple[tuple[str, Cache], ...] = ()

    @property
    def cancelled(self) -> bool:
        return self.race.cancelled if self.race else self.streams[0].cancelled


@dataclass(slots=True)
class _Trial:
    """An experiment on the engine thread; the fields as of `_Job`. disturbed: replies were written meanwhile."""

    asked: Asked
    machine: tuple[tuple[str, str], ...]
    streams: list[Channel[Any]]
    events: Iterator[_Made] | None = None
    leases: tuple[tuple[str, Cache], ...] = ()
    disturbed: bool = False

    @property
    def cancelled(self) -> bool:
        return any(reports.cancelled for reports in self.streams)


class Engine:
    """`Engine(config)` returns at once and loads in the background; see `status`. `load` is there for tests."""

    def __init__(self, config: EngineConfig, load: Loader | None = None) -> None:
        self.config = config
        self._load = load or _load_pair
        self._changed = threading.Condition()
        self._status = Status(State.LOADING, "start")
        self._waiting: deque[_Job | _Trial] = deque()
        self._active: list[_Job | _Trial] = []
        self._pair: Pair | None = None
        self._model: Model
        self._draft_model: Model | None = None
        self._costs: Costs
        self._pool: CachePool
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
        pair = self._ready()
        drafters = ("none", "ngram") + (("head", "both") if pair.head else ())
        drafters += ("draft_model",) if pair.drafter else ()
        loaded = pair.target
        return Facts(
            target=loaded.name,
            weights=loaded.weights,
            kernel=loaded.kernel,
            device=loaded.device,
            threads=pair.threads,
            context_len=loaded.context_len,
            exact=loaded.exact,
            drafters=drafters,
            max_new_tokens=self.config.max_new_tokens,
            note="\n".join(filter(None, (loaded.note, loaded.tokenizer.fallback_note, pair.note))),
        )

    def count_tokens(self, messages: Sequence[Message]) -> int:
        """Tokens of the templated prompt. Raises NotReady."""
        return len(self.encode(messages))

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Ids of the templated prompt, as `stream` would read them. Raises NotReady."""
        return self._ready().target.tokenizer.encode_chat(messages)

    def stream(self, messages: Sequence[Message], params: DecodingParams, conversation: str = "") -> Stream:
        """Queue one reply. `conversation` names the KV cache to reuse ("" = a fresh one).

        Raises NotReady, InvalidParams (unknown drafter, too many tokens asked for), ContextFull, and Busy when too many wait.
        """
        stream = Stream()
        self._submit(self._job(messages, params, conversation, [stream]))
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
        self._submit(job)
        return race

    def experiments(self) -> tuple[Spec, ...]:
        """What `experiment` can measure, by default, and about how long it takes here. Raises NotReady."""
        self._ready()
        return specs(self._costs)

    def experiment(
        self,
        name: Name,
        xs: Sequence[float] = (),
        prompts: Sequence[str] = (),
        drafter: str = "auto",
        repeats: int = 3,
    ) -> Reports:
        """Queue an experiment: each measurement `repeats` times, plain and speculative in turn, in turn with replies.

        xs: where to measure, () for the experiment's own (of TEXT, indices of `Spec.series`). prompts: in place of its own;
        in K and TEXT they are then the one series "own"; ROWS reads none. drafter: as in `DecodingParams`.
        Raises NotReady, InvalidParams, ContextFull, and Busy when too many wait or another experiment runs.
        """
        pair, facts = self._ready(), self.facts()
        if drafter == "auto":
            drafter = self._best_drafter(pair)
        if drafter not in facts.drafters:
            raise InvalidParams("drafter", f"drafter must be one of {', '.join(facts.drafters)}, not {drafter!r}.")
        if drafter == "none" and name is not Name.ROWS:
            raise InvalidParams(
                "drafter", "This experiment needs somebody who drafts: choose a drafter other than none."
            )
        if not 1 <= repeats <= MOST_REPEATS:
            raise InvalidParams("repeats", f"repeats must be between 1 and {MOST_REPEATS}, not {repeats}.")
        read = tuple(tuple(self.encode([Message("user", prompt)])) for prompt in prompts)
        if read and (longest := max(map(len, read))) >= facts.context_len:
            raise ContextFull(longest, facts.context_len)
        places = checked_xs(name, xs, facts.max_new_tokens)
        reports = Reports()
        asked = Asked(name, places, read, drafter, repeats, facts.max_new_tokens)
        machine = (
            ("target", facts.target), ("weights", facts.weights), ("kernel", facts.kernel), ("device", facts.device),
            ("threads", str(facts.threads)), ("processor", processor_name()),
        )  # fmt: skip
        self._submit(_Trial(asked, machine, [reports]))
        return reports

    def _job(
        self, messages: Sequence[Message], params: DecodingParams, conversation: str, streams: list[Channel[Any]]
    ) -> _Job:
        """The request, checked and complete. Raises what `stream` raises but Busy."""
        pair, facts = self._ready(), self.facts()
        if params.drafter == "auto":
            params = replace(params, drafter=self._best_drafter(pair))
        if params.drafter not in facts.drafters:
            raise InvalidParams(
                "drafter", f"drafter must be one of {', '.join(facts.drafters)}, not {params.drafter!r}."
            )
        if params.max_new_tokens > facts.max_new_tokens:
            raise InvalidParams("max_new_tokens", f"max_new_tokens must be at most {facts.max_new_tokens} here.")
        if any(token_id >= pair.target.tokenizer.vocab_size for token_id, _ in params.sampling.logit_bias):
            raise InvalidParams("logit_bias", "logit_bias names a token id that this model does not have.")
        ids = pair.target.tokenizer.encode_chat(messages)
        if len(ids) >= facts.context_len:
            raise ContextFull(len(ids), facts.context_len)
        if params.sampling.seed is None:
            params = replace(params, sampling=replace(params.sampling, seed=secrets.randbits(31)))
        return _Job(ids, params, conversation, streams, perf_counter())

    def _submit(self, job: _Job | _Trial) -> None:
        """Raises NotReady, Busy."""
        with self._changed:
            self._ready()  # it may have been closed while the prompt was read
            others = [*self._active, *self._waiting] if isinstance(job, _Trial) else []
            if any(isinstance(other, _Trial) and other.streams for other in others):
                raise Busy("An experiment is running already, and two would disturb each other: wait for its end.")
            if len(self._waiting) >= self.config.max_waiting:
                raise Busy(f"{len(self._waiting)} requests are waiting already: please try again in a minute.")
            self._waiting.append(job)
            self._changed.notify_all()

    def close(self) -> None:
        """Ends all replies (CANCELLED, what was written is kept) and the thread. Safe to call twice.

        A load in progress cannot be interrupted: its thread is left behind and ends by itself.
        """
        was_loading = self._status.state is State.LOADING
        self._set_status(Status(State.CLOSED, "ready"))
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=0.5 if was_loading else 60.0)

    def _best_drafter(self, pair: Pair) -> str:
        """What "auto" means here."""
        if self.config.drafter == "none":
            return "none"
        return "both" if pair.head else "draft_model" if pair.drafter else "ngram"

    def _ready(self) -> Pair:
        status = self._status
        if status.state is State.READY and self._pair is not None:
            return self._pair
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

    # -- the engine thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._start()
        except EngineError as error:
            self._set_status(Status(State.FAILED, "load", message=str(error)))
            return
        except Exception as error:
            log.exception("loading failed")
            message = f"The model could not be loaded ({type(error).__name__}: {error}); the log has the details."
            self._set_status(Status(State.FAILED, "load", message=message))
            return
        while self._status.state is State.READY:
            self._turn()
        with self._changed:
            left, self._active, self._waiting = [*self._active, *self._waiting], [], deque()
        for job in left:
            for stream in job.streams:
                stream.cancel()
            while self._step(job):
                pass

    def _start(self) -> None:
        def progress(phase: str, fraction: float | None = None) -> None:
            self._set_status(Status(State.LOADING, phase, fraction))

        progress("load")
        from engine.model import CachePool, Model
        from engine.warm_up import warm_up

        pair = self._load(self.config, progress)
        self._pool = CachePool(self.config.cache_mib * 2**20)
        self._model = Model(pair.target.network, pair.target.context_len)
        models = [self._model]
        if pair.drafter is not None:
            self._draft_model = Model(pair.drafter.network, pair.drafter.context_len)
            models.append(self._draft_model)
        progress("warm_up")
        for model in models:
            warm_up(model)
        self._costs = self._measure(pair)
        self._pair = pair
        self._set_status(Status(State.READY, "ready", 1.0))

    def _measure(self, pair: Pair) -> Costs:
        """What the controller should know before the first round."""
        from engine.drafters.draft_model import DraftModelDrafter
        from engine.drafters.ngram import ACCEPTANCE, DRAFT_S
        from engine.model import Cache
        from engine.warm_up import measure

        drafters: list[Drafter] = [pair.head.drafter(Cache())] if pair.head else []
        if self._draft_model is not None:
            drafters.append(DraftModelDrafter(self._draft_model, Cache()))
        costs = measure(self._model, drafters, (("ngram", DRAFT_S),))
        own = (("head", pair.head.acceptance),) if pair.head else ()
        return replace(costs, acceptance=ACCEPTANCE + own)

    def _turn(self) -> None:
        """One step of each running reply, in turn."""
        with self._changed:
            self._changed.wait_for(lambda: self._active or self._waiting or self._status.state is not State.READY)
            while self._waiting and len(self._active) < MAX_ACTIVE:
                self._active.append(self._waiting.popleft())
            # Nobody should wait for a place in order to leave the queue.
            gone = [job for job in self._waiting if job.cancelled]
            for job in gone:
                self._waiting.remove(job)
        for job in gone:
            if isinstance(job, _Trial):
                while self._step(job):
                    pass
            else:
                self._give(job, job.streams, Finished(FinishReason.CANCELLED, "", ()))
        for job in list(self._active):
            if isinstance(job, _Trial):
                job.disturbed |= len(self._active) > 1
            if not self._step(job):
                self._active.remove(job)

    def _step(self, job: _Job | _Trial) -> bool:
        """Run a request up to its next event; False when it is over. Whatever happens in it, the thread lives on."""

        def step() -> _Made:
            if job.events is None:
                job.events = self._begin_trial(job) if isinstance(job, _Trial) else self._begin(job)
            return next(job.events)

        made = attempt(step)
        if isinstance(made, Finished):  # it broke
            self._give(job, job.streams, Failed(made.message) if isinstance(job, _Trial) else made)
        elif made is not None:
            self._give(job, [made[0]], made[1])
        return bool(job.streams)

    def _give(self, job: _Job | _Trial, streams: Sequence[Channel[Any]], event: Any) -> None:
        """Put an event of a request into its streams. Before its last one, all that it holds goes back."""
        if isinstance(event, Prefilled) and isinstance(job, _Job):
            event = replace(event, queued_s=job.queued_s)
        if isinstance(event, (Finished, Result, Failed)):
            job.streams = [stream for stream in job.streams if stream not in streams]
        if not job.streams:
            for key, cache in job.leases:
                self._pool.release(key, cache)
            # The generators know the job through their lanes: left alone, the caches would wait for a garbage collection.
            job.events, job.leases = iter(()), ()
        for stream in streams:
            stream.put(event)

    def _begin_trial(self, trial: _Trial) -> Iterator[_Made]:
        from engine.lab.conduct import Watch, conduct
        from engine.lab.experiments import EXPERIMENTS
        from engine.lab.rig import Rig
        from engine.model import Cache

        assert self._pair is not None
        drafter = partial(self._new_drafter, self._pair, lambda _: Cache())
        rig = Rig(self._model, self._pair.target.tokenizer, self._costs, drafter)
        [reports] = trial.streams
        watch = Watch(lambda: reports.cancelled, lambda: trial.disturbed, trial.machine)
        experiment = EXPERIMENTS[trial.asked.name](rig, trial.asked)
        for report in conduct(trial.asked, experiment, watch):
            yield None if report is None else (reports, report)

    def _begin(self, job: _Job) -> Iterator[_Made]:
        from engine.decode import Lane, generate

        assert self._pair is not None
        job.queued_s = perf_counter() - job.submitted_s
        drafter = self._drafter(job, self._pair)
        cache = self._pool.acquire(job.conversation, drafter.feature_layers if drafter else ())
        job.leases += ((job.conversation, cache),)
        lane = Lane(self._model, cache, self._pair.target.tokenizer, drafter, lambda: job.cancelled, self._costs)
        if job.race is not None:
            return events_of(job.race, job.ids, job.params, lane)
        [stream] = job.streams
        return ((stream, event) for event in generate(job.ids, job.params, lane))

    def _drafter(self, job: _Job, pair: Pair) -> Drafter | None:
        """Who drafts this reply; nobody for plain decoding. Caches that it leases go back when the reply is over."""
        if job.params.num_speculative_tokens == 0:
            return None
        return self._new_drafter(pair, partial(self._own_cache, job), job.params.drafter)

    def _new_drafter(self, pair: Pair, own_cache: Callable[[str], Cache], name: str) -> Drafter | None:
        """own_cache: gives a cache to "head" or "draft"."""
        from engine.drafters.both import Both
        from engine.drafters.draft_model import DraftModelDrafter
        from engine.drafters.ngram import NgramDrafter

        if name == "none":
            return None
        if name in ("head", "both") and pair.head is not None:
            head = pair.head.drafter(own_cache("head"))
            return head if name == "head" else Both(NgramDrafter(), head)
        if name == "draft_model" and self._draft_model is not None:
            return DraftModelDrafter(self._draft_model, own_cache("draft"))
        return NgramDrafter()

    def _own_cache(self, job: _Job, whose: str) -> Cache:
        """A drafter's cache of the job's conversation, leased until the reply is over."""
        key = job.conversation and f"{job.conversation}/{whose}"
        cache = self._pool.acquire(key)
        job.leases += ((key, cache),)
        return cache


def _load_pair(config: EngineConfig, progress: Progress) -> Pair:
    """Loads what the configuration names. Raises LoadError, PairMismatch."""
    from engine import heads, loading

    threads = config.threads or loading.default_threads()

    def load(name: str) -> Loaded:
        return loading.load(
            name,
            device=config.device,
            threads=threads,
            kernel=config.kernel if name == config.target else "auto",
            quant=config.quant if name == config.target else "auto",
            offline=config.offline,
            progress=progress,
        )

    target = load(config.target)
    if (folder := heads.find_head(config.drafter, config.target, config.offline, progress)) is not None:
        try:
            head = heads.load_head(folder, target, threads)
            return Pair(target, threads=threads, head=head, note=head.note)
        except LoadError as error:
            if config.drafter != "auto":
                raise
            log.warning("The reply is drafted by n-gram alone. %s", error)  # nobody asked for just this head
            return Pair(target, threads=threads, note=str(error))
    if config.drafter in DRAFTER_WORDS:
        return Pair(target, threads=threads)
    drafter = load(config.drafter)
    if not drafter.tokenizer.same_ids(target.tokenizer):
        raise PairMismatch(
            f"{drafter.name} cannot draft for {target.name}: their tokenisers differ. "
            "Choose a drafter of the same model family, or ngram, which works with every model."
        )
    return Pair(target, drafter, threads)
