"""Whether to speculate, from six answers and what was measured: the article's table as a pure function.

Measurements lead; what the article says fills in where nothing was measured. One reason against is enough, because each
of them alone takes the gain away: a saturated machine gets slower, a short reply has nothing to gain, and for
throughput plain decoding writes more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from math import exp, log

from engine import USUAL_K
from engine.lab import ExperimentName, Point, Result, TextKind
from ui.html.render import speed
from ui.when import conclusions
from ui.when.conclusions import Gain, Sentence, Word, times

WORTH = 1.1
"""A whole reply that is not sped up by as much is not worth a drafter's memory and one more thing that can break."""

SHORT, LONG = 4, 256
"""Tokens of a reply that answers by a letter or a word, and of one that explains."""

FEW, MANY = 4, 16
"""Users at once up to which the article's "low request rate" holds, and from which its "high" one does, where nothing
was measured."""

CHEAP = 2.0
"""A forward that checks three guesses and takes at most so many times as long as one without leaves something to
gain."""

MODEL = "Qwen/Qwen3-8B"
HEAD = "RedHatAI/Qwen3-8B-speculator.eagle3"
"""The example of vLLM's documentation (Speculators, "Serve in vLLM"); the reader puts in their own."""


class Goal(StrEnum):
    LATENCY = "latency"
    THROUGHPUT = "throughput"


_SERIES_OF_K = {
    TextKind.CODE: TextKind.CODE,
    TextKind.COPY: TextKind.SUMMARY,
    TextKind.SUMMARY: TextKind.SUMMARY,
    TextKind.RAG: TextKind.SUMMARY,
}
"""Of the experiment on K, which has fewer kinds of text; all others are nearest to a chat."""

KINDS = (TextKind.CHAT, TextKind.RAG, TextKind.SUMMARY, TextKind.CODE, TextKind.COPY, TextKind.POEM)
"""What a reader may answer. A choice among letters is a matter of length."""


COPIES = (TextKind.COPY, TextKind.SUMMARY, TextKind.RAG)
"""Text that repeats its prompt, which an n-gram drafter finds there."""


class Stance(StrEnum):
    FOR = "for"
    AGAINST = "against"
    UNCLEAR = "unclear"
    NOTE = "note"


class Verdict(StrEnum):
    YES = "yes"
    NO = "no"
    EVEN = "even"


@dataclass(frozen=True, slots=True)
class Answers:
    """What the form says. tokens: of a usual reply; users: replies written at once; memory: is some left for a
    drafter."""

    tokens: int = LONG
    users: int = 1
    goal: Goal = Goal.LATENCY
    busy: bool = False
    memory: bool = True
    kind: TextKind = TextKind.CHAT


@dataclass(frozen=True, slots=True)
class Evidence:
    """The latest result of each experiment, and which of them are the reader's own."""

    results: Mapping[ExperimentName, Result]
    own: frozenset[ExperimentName] = frozenset()

    def points(self, name: ExperimentName) -> Sequence[Point]:
        return self.results[name].points if name in self.results else ()


@dataclass(frozen=True, slots=True)
class Reason:
    """own: whether the figure is the reader's, None where there is none and the article speaks. experiment: where it
    comes from."""

    stance: Stance
    sentence: Sentence
    experiment: ExperimentName | None = None
    own: bool | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """A drafter, and how vLLM is started with it; the first of several fits best."""

    drafter: str
    line: str


@dataclass(frozen=True, slots=True)
class Advice:
    verdict: Verdict
    reasons: tuple[Reason, ...]
    commands: tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """A row of the article's table: the situation, what the article says, what was measured; does it apply to the
    answers."""

    name: str
    speculate: bool
    reason: Reason
    applies: bool


def advise(answers: Answers, evidence: Evidence) -> Advice:
    """Reasons against come first, then those for, then what could not be told apart."""
    all_reasons = [
        by_length(answers, evidence),
        by_load(answers, evidence),
        by_goal(answers, evidence),
        by_text(answers, evidence),
    ]
    if not answers.busy:
        all_reasons.append(by_memory_movement(answers, evidence))
    if not answers.memory:
        all_reasons.append(Reason(Stance.NOTE, Sentence("advise.why.no_memory")))
    order = (Stance.AGAINST, Stance.FOR, Stance.UNCLEAR, Stance.NOTE)
    reasons = tuple(sorted((reason for reason in all_reasons if reason), key=lambda reason: order.index(reason.stance)))
    verdict = _verdict([reason.stance for reason in reasons], all_reasons[1])
    return Advice(verdict, reasons, commands(answers, evidence, verdict))


def _verdict(stances: Sequence[Stance], load: Reason | None) -> Verdict:
    if Stance.AGAINST in stances:
        return Verdict.NO
    return Verdict.EVEN if load is None or load.stance is Stance.UNCLEAR or Stance.FOR not in stances else Verdict.YES


def rules(answers: Answers, evidence: Evidence) -> tuple[Rule, ...]:
    """The article's seven rows in its order."""
    rows: tuple[tuple[str, bool, Callable[[Answers, Evidence], Reason], Answers, bool], ...] = (
        ("long", True, by_length, Answers(tokens=LONG), answers.tokens > MANY),
        ("idle", True, by_load, Answers(users=1), not answers.busy and answers.users <= FEW),
        ("latency", True, by_goal, Answers(goal=Goal.LATENCY), answers.goal is Goal.LATENCY),
        ("memory", True, by_memory_movement, Answers(), not answers.busy),
        ("short", False, by_length, Answers(tokens=SHORT), answers.tokens <= MANY),
        ("busy", False, by_load, Answers(busy=True), answers.busy or answers.users >= MANY),
        ("throughput", False, by_goal, Answers(goal=Goal.THROUGHPUT), answers.goal is Goal.THROUGHPUT),
    )
    return tuple(
        Rule(name, speculate, reason(case, evidence), applies) for name, speculate, reason, case, applies in rows
    )


# ---- one question each


def by_length(answers: Answers, evidence: Evidence) -> Reason:
    """The speed-up of whole requests of about that length: their first token is not sooner, so the rest must make up
    for it."""
    points = evidence.points(ExperimentName.LENGTH)
    curve = [conclusions.gain(p) for name in conclusions.names(points) for p in conclusions.series(points, name)]
    values: dict[str, object] = {"tokens": answers.tokens}
    if (here := _between(curve, answers.tokens)) is None:
        short = answers.tokens <= MANY
        return Reason(
            Stance.AGAINST if short else Stance.FOR,
            Sentence(f"advise.said.{'short' if short else 'long'}"),
            ExperimentName.LENGTH,
        )
    values["gain"] = times(here.y)
    stance = Stance.AGAINST if here.y < WORTH else Stance.FOR if here.pays else Stance.UNCLEAR
    return Reason(
        stance,
        Sentence(f"advise.why.length.{stance.value}", values),
        ExperimentName.LENGTH,
        ExperimentName.LENGTH in evidence.own,
    )


def by_load(answers: Answers, evidence: Evidence) -> Reason:
    """Tokens a second with so many at once; of a saturated machine what the largest load that was measured shows."""
    points = evidence.points(ExperimentName.RATE)
    curve = conclusions.gains(points, conclusions.guessing(points))
    here = (curve[-1] if curve else None) if answers.busy else _between(curve, answers.users)
    if here is None:
        many = answers.busy or answers.users >= MANY
        stance = Stance.AGAINST if many else Stance.FOR if answers.users <= FEW else Stance.UNCLEAR
        return Reason(
            stance, Sentence(f"advise.said.load.{stance.value}", {"users": answers.users}), ExperimentName.RATE
        )
    stance = Stance.FOR if here.pays else Stance.AGAINST if here.clear else Stance.UNCLEAR
    if answers.busy and stance is Stance.FOR:
        stance = Stance.UNCLEAR  # a machine that is full is busier than anything that was measured
    crossing = conclusions.crossover(curve)
    values = {"users": conclusions.whole(here.x), "gain": times(here.y)} | (
        {} if crossing is None else {"crossover": conclusions.users(crossing)}
    )
    key = f"advise.why.{'busy' if answers.busy else 'load'}.{stance.value}"
    reason = (
        Sentence(key if crossing is None else f"{key}.crossover", values)
        if stance is Stance.AGAINST
        else Sentence(key, values)
    )
    return Reason(stance, reason, ExperimentName.RATE, ExperimentName.RATE in evidence.own)


def by_goal(answers: Answers, evidence: Evidence) -> Reason:
    return _throughput(evidence) if answers.goal is Goal.THROUGHPUT else _latency(evidence)


def _latency(evidence: Evidence) -> Reason:
    """What a reader waits for: the time between tokens."""
    points = evidence.points(ExperimentName.LENGTH)
    speedups = [(p.x, value) for p in points if (value := conclusions.extra(p, "decode_speedup")) and p.x > 1]
    if not speedups:
        return Reason(Stance.FOR, Sentence("advise.said.latency"), ExperimentName.LENGTH)
    gain = max(speedups)[1]
    first = conclusions.ttft_s(points)
    values = {"gain": times(gain)} | (
        {} if first is None else {"plain": conclusions.ms(first[0]), "spec": conclusions.ms(first[1])}
    )
    stance = Stance.FOR if gain >= WORTH else Stance.AGAINST if gain < 1 else Stance.UNCLEAR
    key = (
        f"advise.why.latency.{stance.value}"
        if stance is not Stance.FOR or first is None
        else "advise.why.latency.for.ttft"
    )
    return Reason(stance, Sentence(key, values), ExperimentName.LENGTH, ExperimentName.LENGTH in evidence.own)


def _throughput(evidence: Evidence) -> Reason:
    """The most tokens a second at any load, plain against guessing."""
    points = evidence.points(ExperimentName.RATE)
    plain = conclusions.series(points, "plain")
    others = conclusions.series(points, conclusions.guessing(points))
    if not plain or not others:
        return Reason(Stance.AGAINST, Sentence("advise.said.throughput"), ExperimentName.RATE)
    best, rival = (max(some, key=lambda p: p.y) for some in (plain, others))
    values = {
        "plain": speed(best.y),
        "plain_users": conclusions.whole(best.x),
        "spec": speed(rival.y),
        "spec_users": conclusions.whole(rival.x),
    }
    most, least = (best.y if best.high is None else best.high), (rival.y if rival.low is None else rival.low)
    stance = Stance.FOR if least > most else Stance.AGAINST
    return Reason(
        stance,
        Sentence(f"advise.why.throughput.{stance.value}", values),
        ExperimentName.RATE,
        ExperimentName.RATE in evidence.own,
    )


def by_memory_movement(_: Answers, evidence: Evidence) -> Reason:
    """Whether checking is nearly free, since the weights are moved once either way."""
    cost = conclusions.row_cost(evidence.points(ExperimentName.ROWS))
    if cost is None:
        return Reason(Stance.FOR, Sentence("advise.said.memory"), ExperimentName.ROWS)
    one, more, rows, clear = cost
    stance = Stance.FOR if more <= CHEAP * one else Stance.UNCLEAR
    values = {"guesses": rows - 1, "cost": times(more / one)}
    key = f"advise.why.memory.{stance.value}" if clear else "advise.why.memory.for.same"
    return Reason(
        stance if clear else Stance.FOR, Sentence(key, values), ExperimentName.ROWS, ExperimentName.ROWS in evidence.own
    )


def by_text(answers: Answers, evidence: Evidence) -> Reason | None:
    """How well such text can be guessed; None where that was not measured, for then nobody knows."""
    here = conclusions.kinds(evidence.points(ExperimentName.TEXT)).get(answers.kind.value)
    if here is None:
        return None
    stance = Stance.FOR if here.pays else Stance.AGAINST if here.clear else Stance.UNCLEAR
    values = {"kind": Word(f"lab.series.{answers.kind.value}"), "gain": times(here.y)}
    return Reason(
        stance,
        Sentence(f"advise.why.text.{stance.value}", values),
        ExperimentName.TEXT,
        ExperimentName.TEXT in evidence.own,
    )


def _between(curve: Sequence[Gain], x: float) -> Gain | None:
    """The gain at x: measured there, or on a straight line between its neighbours by the logarithm of x; the nearest
    beyond the ends."""
    if not curve:
        return None
    if x <= curve[0].x or len(curve) == 1:
        return curve[0]
    for before, after in pairwise(curve):
        if x <= after.x:
            share = log(x / before.x) / log(after.x / before.x)
            y, low, high = (
                exp(log(a) + share * (log(b) - log(a)))
                for a, b in ((before.y, after.y), (before.low, after.low), (before.high, after.high))
            )
            return Gain(x, y, low, high)
    return curve[-1]


# ---- the same on a server


def commands(answers: Answers, evidence: Evidence, verdict: Verdict) -> tuple[Command, ...]:
    """vLLM's command lines: plain where nothing is to be gained, else with the drafters that there is memory for."""
    if verdict is Verdict.NO:
        return (Command("none", f"vllm serve {MODEL}"),)
    best = conclusions.best_k(evidence.points(ExperimentName.K), _SERIES_OF_K.get(answers.kind, TextKind.CHAT))
    k = best[0] if best else USUAL_K
    ngram = Command("ngram", _serve(method="ngram", num_speculative_tokens=k, prompt_lookup_min=2, prompt_lookup_max=4))
    head = Command("head", _serve(method="eagle3", model=HEAD, num_speculative_tokens=k))
    if not answers.memory:
        return (ngram,)
    return (ngram, head) if answers.kind in COPIES else (head, ngram)


def _serve(**config: object) -> str:
    """Keys as in vLLM's documentation, features/speculative_decoding, "--speculative-config schema"; a line for
    each."""
    laid_out = json.dumps(config, indent=4).replace("\n}", "\n  }")
    return f"vllm serve {MODEL} \\\n  --speculative-config '{laid_out}'"
