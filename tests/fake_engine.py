"""A scripted engine with the interface of `engine.serving.engine`, for tests of the page: no model, the same every
time.

What it is: everything that the page hears of an engine, in the right order and of the right types. Each reply plays a
script of tokens in rounds that take turns through every kind of outcome: accepted whole with a bonus, rejected at each
place with the rest discarded, plain, probe. What the real engine refuses is refused, a race is two lanes with the same
text, a change of the pair goes through its phases, an experiment through its steps. `hold_after` and `gate` stop any of
these half-way, `tok_s` and `pace_s` slow them down.

What it is not: nothing is computed. Text, probabilities and times are made up and fixed; guesses are right by turns and
not because anything is likely; a setting changes what is written only where it says how rounds look (K, the drafter,
probes, the length). So it proves nothing of losslessness, speed or sampling: that is for tests of the engine, whose
fakes of networks (`tests.fakes`) do compute.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from engine.config import DecodingParams, Detail, EngineConfig, Message
from engine.errors import Busy, ContextFull, InvalidParams, NotReady
from engine.events import (
    Choice,
    Event,
    Finished,
    FinishReason,
    KReason,
    Outcome,
    Prefilled,
    RecoveryDetail,
    Round,
    RoundKind,
    Source,
    Token,
    TokenDecision,
    TokenDetail,
)
from engine.lab.catalog import DEFAULTS
from engine.lab.load_lab import Reports
from engine.lab.results import ExperimentName, ExperimentSpec, Failed, Point, Result, Step
from engine.serving.engine import Engine, State, Status
from engine.serving.race import Race
from engine.serving.served_pair import Facts
from engine.serving.stream import Channel, Stream
from engine.serving.swap import Swap, SwapCancelled, SwapPhase

ROUND_S = 0.01
"""Made-up compute time of every round, so that a round of three tokens is three times as fast as a plain one."""

DEFAULT_TEXT = "The quick brown fox jumps over the lazy dog, and then it rests in the warm sun for a while. " * 3


Entry = tuple[int, str, str]
"""A token as scripted: id, text, special."""


def split(text: str) -> list[str]:
    """Text cut into pieces like tokens: words with the space before them, punctuation, line breaks."""
    return re.findall(r"\s?\w+|[^\w]", text)


@dataclass
class Script:
    """What the engine answers. `wrong` is the text of every lost draft; `special_end` adds a stop token.

    rests: with K left open, from which round on to before which one guessing is off.
    """

    text: str = DEFAULT_TEXT
    pieces: list[str] | None = None
    wrong: tuple[str, ...] = (" never", " was", "\n")
    special_end: bool = True
    reason: FinishReason = FinishReason.STOP
    message: str = ""
    rests: tuple[int, int] = (0, 0)

    def tokens(self) -> list[str]:
        return self.pieces if self.pieces is not None else split(self.text)


def play(script: Script, params: DecodingParams, seed: int = 7) -> list[Event]:
    """All events of a reply."""
    pieces = script.tokens()[: params.max_new_tokens]
    cut = len(pieces) < len(script.tokens())
    tokens = [(1000 + i, text, "") for i, text in enumerate(pieces)]
    if script.special_end and not cut and script.reason is FinishReason.STOP:
        tokens.append((2, "", "<|im_end|>"))
    events: list[Event] = [Prefilled(12, 0, _token(tokens[0], 0, Source.PLAIN), seed, ttft_s=0.05)]
    done, index = 1, 0
    wrong = itertools.cycle(script.wrong)
    while done < len(tokens):
        resting = params.num_speculative_tokens is None and script.rests[0] <= index < script.rests[1]
        round_ = _resting(index, tokens, done, params) if resting else _round(index, tokens, done, params, wrong)
        events.append(round_)
        done += len(round_.tokens)
        index += 1
    reason = FinishReason.LENGTH if cut else script.reason
    events.append(Finished(reason, "".join(t for _, t, _ in tokens), tuple(i for i, _, _ in tokens), script.message))
    return events if params.detail == Detail.OFF else [_detailed(event, params.detail) for event in events]


def _token(entry: Entry, position: int, source: Source) -> Token:
    return Token(entry[0], entry[1], position, source, entry[2])


def _round(index: int, tokens: list[Entry], done: int, params: DecodingParams, wrong: Iterator[str]) -> Round:
    """Round number `index`: accepts 0, 1, ... k drafts in turn, then all over again; probes as the engine does."""
    asked = 3 if params.num_speculative_tokens is None else params.num_speculative_tokens
    k = 0 if params.drafter == "none" else asked
    probing = params.probe_every and k and index >= 2 and (index - 2) % params.probe_every == 0
    kind = RoundKind.PLAIN if k == 0 else RoundKind.PROBE if probing else RoundKind.SPECULATIVE
    left = len(tokens) - done
    k = 0 if kind is not RoundKind.SPECULATIVE else min(k, left)
    accepted = min((index * 3 + 2) % (k + 1), left)
    decisions = [_decision(tokens[done + i], done + i, Outcome.ACCEPTED) for i in range(accepted)]
    emitted = [_token(tokens[done + i], done + i, Source.DRAFT) for i in range(accepted)]
    for i in range(accepted, k):
        outcome = Outcome.REJECTED if i == accepted and accepted < left else Outcome.DISCARDED
        decisions.append(_decision((9000 + i, next(wrong), ""), done + i, outcome))
    if accepted < left:
        source = Source.PLAIN if k == 0 else Source.BONUS if accepted == k else Source.RECOVERED
        emitted.append(_token(tokens[done + accepted], done + accepted, source))
    fixed = KReason.FIXED if params.num_speculative_tokens is not None else KReason.AUTO
    reason = KReason.PROBE if kind is RoundKind.PROBE else fixed
    drafter = _who(params.drafter, index) if kind is RoundKind.SPECULATIVE else "none"
    return Round(
        index, kind, params.rule, drafter, asked if k else 0, reason, k, 12 + done,
        tuple(decisions), tuple(emitted), 0.001 * bool(k), 0.008, 0.0005, ROUND_S,
        predicted_speedup=1.5 if reason is KReason.AUTO else None,
    )  # fmt: skip


def _resting(index: int, tokens: list[Entry], done: int, params: DecodingParams) -> Round:
    """A round that a controller plays without guesses, because they would not pay."""
    plain = _round(index, tokens, done, replace(params, drafter="none"), iter(()))
    return replace(plain, k_reason=KReason.OFF, predicted_speedup=0.8)


def _who(drafter: str, index: int) -> str:
    """Who proposes in a round: with two drafters they take turns."""
    if drafter == "both":
        return ("ngram", "head")[index % 2]
    return drafter if drafter in ("head", "draft_model") else "ngram"


def _decision(entry: Entry, position: int, outcome: Outcome) -> TokenDecision:
    tested = outcome is not Outcome.DISCARDED
    return TokenDecision(
        entry[0], entry[1], position, outcome, 0.5, 0.4 if tested else None, 0.8 if tested else None,
        0.3 if tested else None, entry[2],
    )  # fmt: skip


def _detailed(event: Event, level: Detail) -> Event:
    """The event as it is told with detail: made-up probabilities that depend on the token's id alone."""
    if isinstance(event, Prefilled) and event.token is not None:
        return replace(event, token=replace(event.token, raw_prob=_raw_prob(event.token.id)))
    if not isinstance(event, Round):
        return event
    full, looks_up = level == Detail.FULL, event.drafter == "ngram"
    decisions = tuple(_explained(decision, full, looks_up) for decision in event.decisions)
    tokens = tuple(replace(token, raw_prob=_raw_prob(token.id)) for token in event.tokens)
    last = next((token for token in tokens if token.source is not Source.DRAFT), None)
    recovery = RecoveryDetail(_top(last), 0.3, _top(last)) if full and last is not None else None
    return replace(event, decisions=decisions, tokens=tokens, recovery=recovery)


def _explained(decision: TokenDecision, full: bool, looks_up: bool) -> TokenDecision:
    if decision.outcome is Outcome.DISCARDED:
        return decision
    raw = (None if looks_up else _raw_prob(decision.id + 1), _raw_prob(decision.id))
    tops = (_top(decision), _top(decision)) if full else ((), ())
    return replace(decision, detail=TokenDetail(*raw, *tops))


def _raw_prob(token_id: int) -> float:
    """0.05 to 0.95, far apart for neighbours."""
    return 0.05 + token_id * 37 % 101 / 112


def _top(token: Token | TokenDecision) -> tuple[Choice, ...]:
    """The token itself and one other."""
    return Choice(token.id, token.text or token.special, 0.5), Choice(8000, " other", 0.25)


def tokens_of(event: Event) -> tuple[Token, ...]:
    if isinstance(event, Prefilled):
        return () if event.token is None else (event.token,)
    return event.tokens if isinstance(event, Round) else ()


Item = tuple[int, float, Any]
"""How much was played before it, how many seconds it takes, and what is put."""


class _Played(Channel[Any]):
    """Plays items from a thread; the engine's `gate` holds it once `hold_after` have been played.

    stop: what ends it, its own or that of all lanes of a race; then the last is what `stopped` makes of so much.
    """

    def __init__(
        self,
        engine: FakeEngine,
        items: Iterable[Item],
        stopped: Callable[[int], object],
        stop: threading.Event | None = None,
    ) -> None:
        super().__init__()
        self._stop = end = stop or threading.Event()
        most, gate = engine.hold_after, engine.gate

        def play() -> None:
            for played, pause_s, item in items:
                while most is not None and played >= most and not gate.is_set() and not end.wait(0.01):
                    pass
                end.wait(pause_s)
                cut = end.is_set() and not isinstance(item, self.ends)
                self.put(stopped(played) if cut else item)
                if cut or isinstance(item, self.ends):
                    return

        threading.Thread(target=play, daemon=True).start()

    def cancel(self) -> None:
        super().cancel()
        self._stop.set()


class FakeStream(_Played, Stream):
    """A reply."""


class FakeReports(_Played, Reports):
    """An experiment."""


def _streamed(events: list[Event], engine: FakeEngine, stop: threading.Event | None = None) -> FakeStream:
    tokens = [token for event in events for token in tokens_of(event)]
    counts = [len(tokens_of(event)) for event in events]
    played = itertools.accumulate(counts, initial=0)
    items = (
        (done, n / engine.tok_s if engine.tok_s else 0.0, event)
        for done, n, event in zip(played, counts, events, strict=False)
    )

    def stopped(count: int) -> Finished:
        text = "".join(token.text for token in tokens[:count])
        return Finished(FinishReason.CANCELLED, text, tuple(token.id for token in tokens[:count]))

    return FakeStream(engine, items, stopped, stop)


def _reported(result: Result, engine: FakeEngine) -> FakeReports:
    """A Step for each point, then all."""
    points, fails = result.points, engine.experiment_fails
    most = len(points)
    steps = [
        Failed(fails) if fails and done == 1 else Step(done, most, 1.5 * (most - done) if done else None, points[:done])
        for done in range(most + 1)
    ]
    items = ((min(done, most), engine.pace_s, item) for done, item in enumerate([*steps, result]))
    return FakeReports(engine, items, lambda done: replace(result, points=points[:done], cancelled=True))


@dataclass
class Asked:
    """One call of `stream`, for tests to look at."""

    messages: tuple[Message, ...]
    params: DecodingParams
    conversation: str
    stream: FakeStream


@dataclass
class Raced:
    """One call of `race`, for tests to look at."""

    messages: tuple[Message, ...]
    params: DecodingParams
    conversation: str
    race: Race


def measured(name: ExperimentName, xs: Sequence[float] = ()) -> Result:
    """An experiment's end with made-up points: gentle curves, every series and x once; as many extras as the real one
    has."""
    [spec] = (spec for spec in DEFAULTS if spec.name is name)
    points = [_point(name, x, series, i) for i, series in enumerate(spec.series) for x in _xs_of(spec, series, xs)]
    machine = (("target", "FakeLM-1M"), ("weights", "GGUF Q4_1"), ("kernel", "test kernel"), ("device", "cpu"),
               ("threads", "2"), ("processor", "FakeCPU"))  # fmt: skip
    settings = (("drafter", "ngram"), ("repeats", "3"))
    return Result(name, tuple(points), machine, "2025-01-02T03:04:05+00:00", 12.5, settings=settings)


def _xs_of(spec: ExperimentSpec, series: str, xs: Sequence[float]) -> Sequence[float]:
    """A kind of text has one place on the axis, its own."""
    every = tuple(xs) or spec.xs
    return [every[spec.series.index(series)]] if spec.name is ExperimentName.TEXT else every


def _point(name: ExperimentName, x: float, series: str, index: int) -> Point:
    """speculative loses where many users are served, and gains with longer replies; the rest falls or rises gently."""
    y, extra = {
        ExperimentName.RATE: (
            {"plain": 400 * x / (x + 4), "speculative": 300 * x / (x + 1.5), "auto": 320 * x / (x + 1.6)}.get(series, 1.0),
            (("alpha", 0.6), ("tau", 2.2)),
        ),
        ExperimentName.LENGTH: (
            1 + 0.8 * x / (x + 20),
            (("ttft_plain", 0.1), ("ttft_spec", 0.101), ("plain_s", 0.1 + 0.01 * x), ("spec_s", 0.1 + 0.006 * x),
             ("decode_speedup", 1.8), ("tokens", x)),
        ),
        ExperimentName.K: (1 + 0.2 * x - 0.02 * x * x + 0.1 * index, (("alpha", 0.6), ("tau", 1 + x / 4), ("drafted", x))),
        ExperimentName.TEMPERATURE: (0.8 - 0.3 * x + 0.01 * index, (("speedup", 1.8 - 0.4 * x), ("tau", 2.0))),
        ExperimentName.TEXT: (2.4 - 0.2 * index, (("alpha", 0.9 - 0.1 * index), ("tau", 2.0), ("plain_tok_s", 90.0),
                                        ("spec_tok_s", 150.0), ("request_speedup", 1.5), ("tokens", 60.0))),
        ExperimentName.ROWS: (10 + 0.5 * x, (("floor_ms", 8.0), ("compute_ms", 0.5 * x), ("least_ms", 9 + 0.5 * x))),
    }[name]  # fmt: skip
    if name is ExperimentName.RATE:
        extra = (("per_user", y / x), *extra)
    if series == "predicted":
        return Point(x, series, y, 0, extra=extra[:2])
    return Point(x, series, y, 3, y * 0.95, y * 1.05, extra)


@dataclass
class Measured:
    """One call of `experiment`, for tests to look at."""

    name: ExperimentName
    xs: tuple[float, ...]
    prompts: tuple[str, ...]
    drafter: str
    repeats: int
    reports: Reports


@dataclass
class FakeEngine(Engine):
    """Set the fields, then use it as an Engine. `answer` chooses the script from the last message."""

    answer: Callable[[str], Script] = lambda _: Script()
    tok_s: float = 0.0
    hold_after: int | None = None
    context_len: int = 8192
    drafters: tuple[str, ...] = ("none", "ngram")
    busy: bool = False
    note: str = ""
    state: Status = field(default_factory=lambda: Status(State.READY, "ready"))
    config: EngineConfig = field(default_factory=EngineConfig)
    gate: threading.Event = field(default_factory=threading.Event)
    asked: list[Asked] = field(default_factory=list)
    raced: list[Raced] = field(default_factory=list)
    experimented: list[Measured] = field(default_factory=list)
    experiment_fails: str = ""
    pace_s: float = 0.0
    target: str = "FakeLM-1M"
    pair: int = 1
    changes: list[Swap] = field(default_factory=list)
    change_fails: str = ""
    hold_change: SwapPhase | None = None
    """In which phase a change waits for `gate`."""

    def status(self) -> Status:
        return self.state

    def wait_ready(self, timeout_s: float | None = None) -> Status:
        return self.state

    def facts(self) -> Facts:
        if self.state.state is not State.READY:
            raise NotReady("The engine is still loading: wait for it.")
        return Facts(
            self.target, "GGUF Q4_1", "test kernel", "cpu", 2, self.context_len, True, self.drafters,
            self.config.max_new_tokens, self.note, pair=self.pair, weights_mib=92.0, cache_mib=180.0,
        )  # fmt: skip

    def count_tokens(self, messages: Sequence[Message]) -> int:
        return sum(len(split(message.content)) + 4 for message in messages)

    def stream(self, messages: Sequence[Message], params: DecodingParams, conversation: str = "") -> Stream:
        playing = self._playing(messages, params)
        events = play(self.answer(messages[-1].content), playing, params.sampling.seed or 7)
        stream = _streamed(events, self)
        self.asked.append(Asked(tuple(messages), params, conversation, stream))
        return stream

    def race(self, messages: Sequence[Message], params: DecodingParams, conversation: str = "") -> Race:
        """The same script in both lanes, so the same text; each lane plays by itself, and cancelling one ends both."""
        playing = replace(self._playing(messages, params), probe_every=0)
        if playing.num_speculative_tokens == 0:
            raise InvalidParams("num_speculative_tokens", "A race needs drafts: choose a K above 0, or automatic.")
        if playing.drafter == "none":
            raise InvalidParams("drafter", "A race needs somebody to draft: choose a drafter other than none.")
        stop = threading.Event()

        def lane(params: DecodingParams) -> FakeStream:
            events = play(self.answer(messages[-1].content), params, params.sampling.seed or 7)
            return _streamed(events, self, stop)

        race = Race(lane(replace(playing, drafter="none", num_speculative_tokens=0)), lane(playing))
        self.raced.append(Raced(tuple(messages), params, conversation, race))
        return race

    def experiments(self) -> tuple[ExperimentSpec, ...]:
        self.facts()
        return tuple(replace(spec, seconds=12.0) for spec in DEFAULTS)

    def experiment(
        self,
        name: ExperimentName,
        xs: Sequence[float] = (),
        prompts: Sequence[str] = (),
        drafter: str = "auto",
        repeats: int = 3,
    ) -> Reports:
        """Made-up points (see `measured`), a Step each; `pace_s` seconds apart, held by `hold_after` and `gate` like
        replies."""
        self._playing([Message("user", "")], DecodingParams(drafter=drafter))
        reports = _reported(measured(name, xs), self)
        self.experimented.append(Measured(name, tuple(xs), tuple(prompts), drafter, repeats, reports))
        return reports

    def swap(self, config: EngineConfig) -> Swap:
        """Plays every phase from a thread; then the target is called as it was asked for. `hold_change`,
        `change_fails`."""
        self.facts()
        if self.changes and not self.changes[-1].status().over:
            raise Busy("Another pair is being loaded already: wait for it, or cancel that first.")
        swap = Swap(config, lambda: None)
        self.changes.append(swap)
        threading.Thread(target=self._play_change, args=(swap,), daemon=True).start()
        return swap

    def latest_swap(self) -> Swap | None:
        return self.changes[-1] if self.changes else None

    def _play_change(self, swap: Swap) -> None:
        config = swap.status().config
        try:
            for phase in (SwapPhase.CHECKING, SwapPhase.LOADING, SwapPhase.WAITING, SwapPhase.STARTING):
                swap.progress("load", 0.5)
                swap.tell(phase, "load" if phase is SwapPhase.LOADING else "", 0.5)
                while phase is self.hold_change and not self.gate.is_set() and not swap.cancelled:
                    self.gate.wait(0.01)
                if self.change_fails and phase is SwapPhase.LOADING:
                    swap.tell(SwapPhase.FAILED, message=self.change_fails)
                    return
            swap.progress("load", 1.0)
        except SwapCancelled:
            swap.tell(SwapPhase.CANCELLED)
            return
        self.config, self.pair = config, self.pair + 1
        self.target = "FakeLM-1M" if config.target == "embedded" else config.target
        swap.tell(SwapPhase.DONE)

    def _playing(self, messages: Sequence[Message], params: DecodingParams) -> DecodingParams:
        """With the drafter that "auto" means here. Raises what the engine would refuse it with."""
        if self.state.state is not State.READY:
            raise NotReady(self.state.message or "The engine is still loading: wait for it.")
        if params.drafter not in ("auto", *self.drafters):
            raise InvalidParams(
                "drafter", f"drafter must be one of {', '.join(self.drafters)}, not {params.drafter!r}."
            )
        if (count := self.count_tokens(messages)) >= self.context_len:
            raise ContextFull(count, self.context_len)
        if self.busy:
            raise Busy("Too many requests wait: try again in a moment.")
        best = next(name for name in ("both", "head", "draft_model", "ngram", "none") if name in self.drafters)
        return replace(params, drafter=best if params.drafter == "auto" else params.drafter)

    def close(self) -> None:
        self.state = Status(State.CLOSED, "ready")
