"""Experiments on an engine over fake networks: what they measure, beside whom, and how they end. No times are
compared."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import DecodingParams, EngineConfig, Rule, SamplingParams
from engine.decode import Reply, ReplyContext
from engine.errors import Busy, ContextFull, EngineError, InvalidParams, NotReady
from engine.events import FinishReason, Round
from engine.lab.bootstrap import bootstrap
from engine.lab.catalog import DEFAULTS
from engine.lab.concurrency import play_joint_rounds
from engine.lab.context import Measurement
from engine.lab.formulas import best_k, expected_tokens, speedup, speedup_from_costs
from engine.lab.forward_cost import compute_slope
from engine.lab.load_lab import LoadLab
from engine.lab.prompts import PROMPTS, users
from engine.lab.results import (
    AUTO,
    OWN,
    PLAIN,
    PREDICTED,
    SPECULATIVE,
    ExperimentName,
    ExperimentRequest,
    Failed,
    Point,
    Report,
    Result,
    Step,
    TextKind,
)
from engine.lab.runner import RunControl, run_experiment
from engine.networks.kv_cache import KVCache
from engine.networks.model import Model
from engine.serving.engine import Engine, State
from tests.fakes import Gate, endless, fake_engine, finished, noisy, say

SMALL: dict[ExperimentName, tuple[float, ...]] = {
    ExperimentName.RATE: (1, 3), ExperimentName.LENGTH: (1, 20), ExperimentName.K: (1, 4), ExperimentName.TEMPERATURE: (0.0, 1.2), ExperimentName.TEXT: (0, 3),
    ExperimentName.ROWS: (1, 8, 16),
}  # fmt: skip


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    made = fake_engine(endless, head=noisy(endless, 257, 0.3))
    yield made
    made.close()


@pytest.fixture(autouse=True)
def little_memory_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.lab.forward_cost.buffer_bytes", lambda: 1 << 16)


def run(engine: Engine, name: ExperimentName, **request: Any) -> tuple[list[Step], Result]:
    *steps, last = LoadLab(engine).experiment(name, **{"xs": SMALL[name], "repeats": 1} | request)
    assert isinstance(last, Result), last
    assert all(isinstance(step, Step) for step in steps)
    return steps, last  # type: ignore[return-value]


# -- users who share a pass


def begun(engine: Engine, texts: Sequence[str], params: Sequence[DecodingParams]) -> list[Reply]:
    """Replies that have read their prompts."""
    pair, replies = engine._served_pair, []
    assert pair is not None
    for text, one in zip(texts, params, strict=True):
        drafter = None if one.drafter == "none" else pair.drafter(one.drafter, lambda _: KVCache())
        cache = KVCache(drafter.feature_layers if drafter else ())
        context = ReplyContext(pair.model, cache, pair.pair.target.tokenizer, drafter, lambda: False, pair.profile)
        replies.append(Reply(engine.encode(say(text)), one, context))
        list(replies[-1].prefill())
    return replies


@pytest.mark.parametrize("k", [0, 3, None])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_each_of_several_users_gets_what_a_reply_alone_says(engine: Engine, k: int | None, temperature: float) -> None:
    """Of different prompts and lengths, so that they end one after the other; a pass a round for all of them."""
    rule = Rule.SHARED_NOISE if temperature else Rule.REJECTION
    texts = ["hello, hello", "a", "hello again, and again", "once more"]
    sampling, drafter = SamplingParams(temperature, seed=4), "none" if k == 0 else "both"
    params = [DecodingParams(sampling, drafter, k, rule, 10 + 13 * i, probe_every=0) for i in range(len(texts))]
    replies = begun(engine, texts, params)
    rows = engine._served_pair.model.network.rows  # type: ignore[union-attr, attr-defined]
    rows.clear()
    joint = list(play_joint_rounds(engine._served_pair.model, replies))
    assert len(rows) == len(joint), "one pass a round"
    for reply, text, one in zip(replies, texts, params, strict=True):
        assert reply.finished(FinishReason.LENGTH) == finished(list(engine.stream(say(text), one)))
    assert [len(rounds) for _, rounds in joint] == sorted((len(rounds) for _, rounds in joint), reverse=True)
    assert len(joint[0][1]) == len(texts)
    assert k != 3 or any(round_.num_drafted for _, rounds in joint for round_ in rounds)


@pytest.mark.model
def test_the_default_model_says_to_each_of_eight_users_what_it_says_to_one(real_engine: Engine) -> None:
    if not real_engine.facts().exact:
        pytest.skip("this machine's kernel is not proven exact")
    params = DecodingParams(SamplingParams(seed=0), "both", 3, max_new_tokens=24, probe_every=0)
    replies = begun(real_engine, users(8), [params] * 8)
    for _ in play_joint_rounds(real_engine._served_pair.model, replies):
        pass
    for reply, text in zip(replies, users(8), strict=True):
        alone = finished(list(real_engine.stream(say(text), params)))
        assert reply.finished(FinishReason.LENGTH).token_ids == alone.token_ids


# -- the experiments

MORE = {
    ExperimentName.LENGTH: {"ttft_plain", "ttft_spec", "plain_s", "spec_s", "decode_speedup", "tokens"},
    ExperimentName.K: {"alpha", "tau", "drafted"},
    ExperimentName.TEMPERATURE: {"speedup", "tau"},
    ExperimentName.TEXT: {"alpha", "tau", "plain_tok_s", "spec_tok_s", "request_speedup", "tokens"},
    ExperimentName.RATE: {"per_user", "alpha", "tau", "k"},
    ExperimentName.ROWS: {"compute_ms", "least_ms", "floor_ms"},
}
"""What a point says besides, at most."""


@pytest.mark.parametrize("name", list(ExperimentName))
def test_each_experiment_measures_all_its_series_everywhere(engine: Engine, name: ExperimentName) -> None:
    steps, result = run(engine, name, repeats=3 if name in (ExperimentName.RATE, ExperimentName.ROWS) else 1)
    [spec] = (spec for spec in LoadLab(engine).experiments() if spec.name is name)
    cells = {(point.series, point.x) for point in result.points}
    if name is ExperimentName.TEXT:
        assert cells == {(spec.series[int(x)], x) for x in SMALL[name]}
    else:
        assert cells == {(series, x) for series in spec.series for x in SMALL[name]}
    assert (result.name, result.cancelled, result.disturbed) == (name, False, False)
    assert [step.done for step in steps] == list(range(steps[-1].total + 1))
    assert steps[-1].left_s == pytest.approx(0.0) and steps[-1].points == result.points
    assert all(point.y > 0 or name is ExperimentName.TEMPERATURE for point in result.points)
    assert all((point.n > 0) == (point.series != PREDICTED) for point in result.points)
    for point in result.points:
        assert point.low is None or (point.low <= point.y <= point.high)  # type: ignore[operator]
    assert dict(result.machine)["target"] == "fake" and dict(result.settings)["drafter"] == "both"
    assert spec.seconds is not None and spec.seconds > 0
    extras = [dict(point.extra).keys() for point in result.points if point.series not in (PLAIN, PREDICTED)]
    assert set().union(*extras) | {"floor_ms"} == MORE[name] | {"floor_ms"}


def test_what_was_asked_for_is_what_is_measured(engine: Engine) -> None:
    _, result = run(engine, ExperimentName.LENGTH)
    assert [(point.x, dict(point.extra)["tokens"]) for point in result.points] == [(1, 1), (20, 20)]
    short, long = result.points
    assert short.n == 3 * long.n  # two prompts; short ones more often
    assert "decode_speedup" not in dict(short.extra)  # one token: nothing was decoded

    _, result = run(engine, ExperimentName.K, drafter="head")
    for point in result.points:
        if point.series != PREDICTED:
            extra = dict(point.extra)
            assert point.x - 1 < extra["drafted"] <= point.x and extra["tau"] <= point.x + 1  # all but the last round

    _, result = run(engine, ExperimentName.RATE, drafter="head")
    ks = {(point.series, point.x): dict(point.extra)["k"] for point in result.points}
    assert ks[PLAIN, 1] == ks[PLAIN, 3] == 0 and 2.5 < ks[SPECULATIVE, 3] <= 3.0
    assert {series for series, _ in ks} == {PLAIN, SPECULATIVE, AUTO}
    for point in result.points:
        assert dict(point.extra)["per_user"] == pytest.approx(point.y / point.x)

    for name in (ExperimentName.K, ExperimentName.TEXT):
        _, result = run(engine, name, prompts=["hello", "a"], xs=())
        assert {point.series for point in result.points} - {PREDICTED} == {OWN}
    assert [point.x for point in result.points] == [0.0]


def test_fewer_users_where_memory_is_short(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.lab.concurrency.free_bytes", lambda: 1)
    _, result = run(engine, ExperimentName.RATE)
    assert {point.x for point in result.points} == {1.0}
    assert "memory for 1" in dict(result.settings)["cut"]


# -- beside others, and how it ends


def test_a_reply_goes_on_between_the_measurements_and_is_told_of(engine: Engine) -> None:
    request = DecodingParams(SamplingParams(seed=1), "none", 0, max_new_tokens=400)
    with LoadLab(engine).experiment(ExperimentName.K, repeats=3) as reports:
        reports.take(60)
        events = list(engine.stream(say("a"), request))
        assert not reports.done and sum(isinstance(event, Round) for event in events) == 399
        rest = list(reports)
    assert isinstance(rest[-1], Result) and rest[-1].disturbed and not rest[-1].cancelled


def test_one_experiment_at_a_time_and_the_next_one_right_after(engine: Engine) -> None:
    with LoadLab(engine).experiment(ExperimentName.K, repeats=50) as reports:
        with pytest.raises(Busy, match="running already"):
            LoadLab(engine).experiment(ExperimentName.ROWS)
        reports.cancel()
        last = list(reports)[-1]
        assert isinstance(last, Result) and last.cancelled
        for _ in range(20):  # as soon as its end was read
            *_, last = LoadLab(engine).experiment(ExperimentName.LENGTH, xs=[1], repeats=1)
            assert isinstance(last, Result) and not last.cancelled


def test_cancelling_keeps_what_was_measured(engine: Engine) -> None:
    reports, taken = LoadLab(engine).experiment(ExperimentName.LENGTH, xs=[1, 2], repeats=50), list[Report]()
    while not any(isinstance(report, Step) and report.points for report in taken):
        taken += reports.take(60)
    reports.cancel()
    taken += list(reports)
    last = taken[-1]
    assert isinstance(last, Result) and last.cancelled and last.points
    assert finished(list(engine.stream(say("a"), DecodingParams(max_new_tokens=3)))).reason is FinishReason.LENGTH


def test_closing_ends_an_experiment_and_one_that_waits_can_leave() -> None:
    gate = Gate(70)
    engine = fake_engine(gate)
    replies = [engine.stream(say("a"), DecodingParams(max_new_tokens=500)) for _ in range(4)]
    assert gate.reached.wait(60)  # four run, which is all that may, and the thread stands still
    waiting = LoadLab(engine).experiment(ExperimentName.RATE)
    waiting.cancel()
    gate.open.set()
    [last] = [report for report in waiting if isinstance(report, Result)]
    assert last.cancelled and not last.points
    for reply in replies:
        reply.cancel()
        list(reply)
    running = LoadLab(engine).experiment(ExperimentName.K, repeats=50)
    running.take(60)
    engine.close()
    last_one = list(running)[-1]
    assert isinstance(last_one, Result) and last_one.cancelled
    with pytest.raises(NotReady, match="closed"):
        LoadLab(engine).experiment(ExperimentName.K)


def test_a_model_that_breaks_fails_the_experiment_with_a_sentence_and_the_engine_lives_on(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(self: Model, requests: object) -> object:
        raise EngineError("The sky fell: look up.")

    with monkeypatch.context() as broken:
        broken.setattr(Model, "forward", breaks)
        for name in ExperimentName:
            last = list(LoadLab(engine).experiment(name, repeats=1))[-1]
            assert last == Failed("The sky fell: look up.")
    assert finished(list(engine.stream(say("a"), DecodingParams(max_new_tokens=3)))).reason is FinishReason.LENGTH


REFUSED = (
    (ExperimentName.K, {"xs": [0]}, "xs"),
    (ExperimentName.K, {"xs": [1.5]}, "xs"),
    (ExperimentName.RATE, {"xs": [65]}, "xs"),
    (ExperimentName.ROWS, {"xs": [257]}, "xs"),
    (ExperimentName.LENGTH, {"xs": [100_000]}, "xs"),
    (ExperimentName.TEXT, {"xs": [len(TextKind)]}, "xs"),
    (ExperimentName.TEMPERATURE, {"xs": [float("nan")]}, "xs"),
    (ExperimentName.K, {"repeats": 0}, "repeats"),
    (ExperimentName.K, {"drafter": "none"}, "drafter"),
    (ExperimentName.ROWS, {"drafter": "psychic"}, "drafter"),
)


def test_what_cannot_be_measured_is_refused_and_nothing_stays_in_the_pool(engine: Engine) -> None:
    before = engine._served_pair.pool.nbytes
    for name, request, field in REFUSED:
        with pytest.raises(InvalidParams, match=r"\.$") as refusal:
            LoadLab(engine).experiment(name, **request)
        assert refusal.value.field == field, (name, request)
    with pytest.raises(ContextFull):
        LoadLab(engine).experiment(ExperimentName.K, prompts=["x" * 10_000])
    run(engine, ExperimentName.RATE)
    assert engine._served_pair.pool.nbytes == before


# -- pure parts


class Counted:
    """An experiment that counts."""

    def __init__(self, count: int, yields: int = 2) -> None:
        self.made = 0
        self.measurements = [Measurement(1.0, lambda: self._one(yields)) for _ in range(count)]

    def _one(self, yields: int) -> Iterator[None]:
        for _ in range(yields):
            yield
        self.made += 1

    def points(self) -> tuple[Point, ...]:
        return tuple(Point(i, "measured", 1.0, 1) for i in range(self.made))

    def settings(self) -> tuple[tuple[str, str], ...]:
        return ()


ASKED = ExperimentRequest(ExperimentName.ROWS, (1.0,), (), "none", 1, 100)


def watch(
    clock: Callable[[], float], cancelled: Callable[[], bool] = lambda: False, limit_s: float = 1e9
) -> RunControl:
    return RunControl(cancelled, lambda: False, (), clock, limit_s)


@given(st.integers(1, 8), st.integers(0, 3))
def test_the_time_left_is_as_much_for_as_much(count: int, yields: int) -> None:
    experiment = Counted(count, yields)
    reports = list(run_experiment(ASKED, experiment, watch(lambda: 2.0 * experiment.made)))
    steps = [report for report in reports if isinstance(report, Step)]
    assert [step.left_s for step in steps] == [None, *(pytest.approx(2.0 * (count - n)) for n in range(1, count + 1))]
    assert reports.count(None) == count * yields
    assert isinstance(reports[-1], Result) and len(reports[-1].points) == count


@given(st.integers(0, 12))
def test_cancelling_is_seen_within_a_measurement(after: int) -> None:
    experiment, request = Counted(4), iter(range(1000))
    reports = list(run_experiment(ASKED, experiment, watch(lambda: 0.0, lambda: next(request) >= after)))
    assert isinstance(reports[-1], Result) and len(reports[-1].points) == experiment.made <= after


def test_what_takes_too_long_is_cut_and_says_so() -> None:
    experiment = Counted(10)
    last = list(run_experiment(ASKED, experiment, watch(lambda: 50.0 * experiment.made, limit_s=180.0)))[-1]
    assert isinstance(last, Result) and len(last.points) == 4 and "180 s" in dict(last.settings)["cut"]
    assert not last.cancelled


@given(st.lists(st.floats(0.1, 10.0), max_size=12))
def test_scatter_holds_the_figure_and_lies_within_what_was_measured(samples: Sequence[float]) -> None:
    known = bootstrap(samples, lambda values: sum(values) / len(values))
    if not samples:
        assert known is None
        return
    assert known is not None and known.n == len(samples)
    assert (known.low is None) == (known.high is None) == (len(samples) < 3)
    if known.low is not None and known.high is not None:
        assert min(samples) - 1e-9 <= known.low <= known.y <= known.high <= max(samples) + 1e-9
    assert known == bootstrap(samples, lambda values: sum(values) / len(values))


def test_the_compute_line_follows_the_wide_end() -> None:
    assert compute_slope({1: 10.0, 64: 40.0, 128: 80.0, 256: 160.0}) == pytest.approx(0.625)
    assert compute_slope({1: 10.0}) is None and compute_slope({}) is None
    assert compute_slope({128: 10.0, 256: 9.0}) is None and compute_slope({200: 1.0, 256: 9.0}) is None


def test_every_kind_has_prompts_and_no_two_users_the_same() -> None:
    assert PROMPTS.keys() == set(TextKind) and all(len(prompts) == 2 for prompts in PROMPTS.values())
    assert len(set(users(64))) == 64
    assert {spec.name for spec in DEFAULTS} == set(ExperimentName)


def test_nobody_measures_before_the_model_is_there() -> None:
    held = threading.Event()

    def load(config: EngineConfig, progress: object) -> Any:
        held.wait(60)
        raise EngineError("No model: give one.")

    engine = Engine(EngineConfig(), load)
    with pytest.raises(NotReady, match="loading"):
        LoadLab(engine).experiment(ExperimentName.K)
    with pytest.raises(NotReady):
        LoadLab(engine).experiments()
    held.set()
    assert engine.wait_ready(60).state is State.FAILED


# -- the arithmetic against what it stands for: every way in which the drafts of a round may fall

ALPHA = st.floats(0.0, 1.0)


@given(ALPHA, st.integers(0, 8))
def test_expected_tokens_are_the_mean_over_all_ways_in_which_the_drafts_may_fall(alpha: float, k: int) -> None:
    total = 0.0
    for fates in itertools.product([True, False], repeat=k):
        chance = math.prod(alpha if stands else 1.0 - alpha for stands in fates)
        accepted = next((i for i, stands in enumerate(fates) if not stands), k)
        total += chance * (accepted + 1)
    assert expected_tokens(alpha, k) == pytest.approx(total)


@given(ALPHA, st.integers(1, 16), st.floats(0.0, 2.0), st.floats(1e-4, 10.0))
def test_with_a_pass_that_costs_the_same_for_any_rows_both_formulas_agree(
    alpha: float, k: int, c: float, plain_s: float
) -> None:
    rounds_s = [plain_s * (1 + n * c) for n in range(k + 1)]
    assert speedup_from_costs(alpha, rounds_s) == pytest.approx(speedup(alpha, k, c))


@given(ALPHA, st.floats(0.0, 2.0))
def test_the_best_k_is_the_best_and_some_pays_only_where_one_draft_does(alpha: float, c: float) -> None:
    best = best_k(alpha, c, 12)
    assert all(speedup(alpha, best, c) >= speedup(alpha, k, c) for k in range(13))
    assert (best == 0) == (speedup(alpha, 1, c) <= 1.0)


def test_the_papers_examples() -> None:
    assert expected_tokens(0.8, 5) == pytest.approx(3.69, abs=0.005)  # table 1: alpha 0.8, gamma 5
    assert speedup(0.6, 2, 0.0) == pytest.approx(1.96)
    assert expected_tokens(1.0, 4) == 5.0
    assert expected_tokens(0.0, 4) == 1.0


def test_what_is_no_chance_no_number_of_drafts_or_no_time_is_refused() -> None:
    for alpha, k in ((-0.1, 1), (1.1, 1), (0.5, -1), (math.nan, 1)):
        with pytest.raises(ValueError, match="must"):
            expected_tokens(alpha, k)
    for times in ([], [0.0, 1.0]):
        with pytest.raises(ValueError, match="time"):
            speedup_from_costs(0.5, times)
    with pytest.raises(ValueError, match="c must"):
        speedup(0.5, 1, -1.0)
