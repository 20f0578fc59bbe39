"""What experiments are and what comes out of them: plain, frozen values, as `engine.events`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ExperimentName(StrEnum):
    """The experiments."""

    RATE = "rate"  # users who are served at once
    LENGTH = "length"  # tokens of a reply
    K = "k"  # drafts a round
    TEMPERATURE = "temperature"
    TEXT = "text"  # kinds of text
    ROWS = "rows"  # rows of a forward pass


class TextKind(StrEnum):
    """Kinds of text that prompts ask for, from what copies most to what is free."""

    COPY = "copy"  # a given text again, slightly changed
    CODE = "code"
    SUMMARY = "summary"
    RAG = "rag"  # a question about a given passage
    CHAT = "chat"  # an assistant's long answer
    CHOICE = "choice"  # multiple choice: the reply is a letter
    POEM = "poem"


PLAIN, SPECULATIVE, AUTO, PREDICTED, MEASURED, OWN = "plain", "speculative", "auto", "predicted", "measured", "own"
"""Names of series besides kinds and rules. OWN: the prompts that were handed in, in place of the kinds."""


@dataclass(frozen=True, slots=True)
class ExperimentSpec:
    """An experiment before it runs, by default. seconds: a rough guess for this machine, None where
    nothing is known of it.

    x_unit: "users", "tokens", "drafts", "temperature", "kind", "rows". y_unit: "tokens/s", "times" (plain is 1),
    "alpha", "ms".
    """

    name: ExperimentName
    xs: tuple[float, ...]
    series: tuple[str, ...]
    x_unit: str
    y_unit: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ExperimentRequest:
    """A request, checked and complete. xs: in ascending order. prompts: ids, () for the experiment's own.

    drafter: a name of `Facts.drafters`. most_tokens: of a reply.
    """

    name: ExperimentName
    xs: tuple[float, ...]
    prompts: tuple[tuple[int, ...], ...]
    drafter: str
    repeats: int
    most_tokens: int


@dataclass(frozen=True, slots=True)
class Point:
    """One figure of a series. n: measurements behind it; low, high: 10 % and 90 % of what y is when these are drawn
    anew (bootstrap), None where there are too few of them, or nothing was measured.

    extra, by experiment (what could not be measured is left out): rate: per_user, tokens/s of one user; alpha, tau; k,
    drafts a round. length: ttft_plain, ttft_spec, seconds to the first token; plain_s, spec_s, of the whole request;
    decode_speedup; tokens. k: alpha, tau, drafted (drafts a round, fewer than K where the drafter had no more). Series
    "predicted": alpha, tau. temperature: speedup, tau. text: alpha, tau, plain_tok_s, spec_tok_s, request_speedup,
    tokens (of a reply). rows: floor_ms, to read the weights; compute_ms, what the rows take once reading does not
    matter; least_ms, the quickest.
    """

    x: float
    series: str
    y: float
    n: int
    low: float | None = None
    high: float | None = None
    extra: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """How far an experiment is, in measurements. left_s: as long as so far for as much work, None at first."""

    done: int
    total: int
    left_s: float | None
    points: tuple[Point, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """The end of an experiment. seconds: how long it took. disturbed: other replies were written meanwhile.

    machine: "target", "weights", "kernel", "device", "threads", "processor", in words. made: date and time, ISO 8601,
    UTC. settings: what was asked for, such as "drafter", "tokens", "repeats"; "cut": why less was measured than was
    asked for.
    """

    name: ExperimentName
    points: tuple[Point, ...]
    machine: tuple[tuple[str, str], ...]
    made: str
    seconds: float
    cancelled: bool = False
    disturbed: bool = False
    settings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """An experiment that broke; one sentence that says what to do."""

    message: str


Report = Step | Result | Failed
"""What comes out of a running experiment."""
