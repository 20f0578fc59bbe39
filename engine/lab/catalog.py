"""The experiments' defaults, and about how long each takes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from engine.config import BOUNDS, MAX_K, Bounds, Rule
from engine.control.latency import Profile, RoundLatency
from engine.errors import InvalidParams
from engine.lab.results import AUTO, MEASURED, PLAIN, PREDICTED, SPECULATIVE, ExperimentName, ExperimentSpec, TextKind

K_KINDS = (TextKind.CHAT, TextKind.CODE, TextKind.SUMMARY)
TEXT_KINDS = tuple(TextKind)

TOKENS, TEXT_TOKENS, RATE_TOKENS = 48, 64, 32
"""Tokens of a reply, as far as the experiment is not about that; of RATE, for each of many users."""

SHORT, SHORT_TIMES = 16, 3
"""Replies of so few tokens are measured so many times as often as long ones."""

DEFAULTS = (
    ExperimentSpec(ExperimentName.RATE, (1, 2, 4, 8, 16, 32), (PLAIN, SPECULATIVE, AUTO), "users", "tokens/s"),
    ExperimentSpec(ExperimentName.LENGTH, (1, 4, 16, 64, 256), (SPECULATIVE,), "tokens", "times"),
    ExperimentSpec(ExperimentName.K, tuple(range(1, 9)), (*K_KINDS, PREDICTED), "drafts", "times"),
    ExperimentSpec(ExperimentName.TEMPERATURE, (0.0, 0.3, 0.6, 0.9, 1.2), tuple(Rule), "temperature", "alpha"),
    ExperimentSpec(ExperimentName.TEXT, tuple(range(len(TEXT_KINDS))), TEXT_KINDS, "kind", "times"),
    ExperimentSpec(ExperimentName.ROWS, (1, 2, 4, 8, 16, 32, 64, 128, 256), (MEASURED,), "rows", "ms"),
)

LIMITS: Mapping[ExperimentName, Bounds] = {
    ExperimentName.RATE: Bounds(1, 64),
    ExperimentName.K: Bounds(1, MAX_K),
    ExperimentName.TEMPERATURE: BOUNDS["temperature"],
    ExperimentName.TEXT: Bounds(0, len(TEXT_KINDS) - 1),
    ExperimentName.ROWS: Bounds(1, 256),
}
"""Least and most x, besides LENGTH, whose most is the engine's."""

MOST_REPEATS = 50

PLAIN_ROUNDS = {
    ExperimentName.RATE: 7600, ExperimentName.LENGTH: 4700, ExperimentName.K: 4000, ExperimentName.TEMPERATURE: 6900,
    ExperimentName.TEXT: 6000, ExperimentName.ROWS: 1500,
}  # fmt: skip
"""Plain rounds that take about as long as the whole experiment with three repeats."""


def specs(profile: Profile) -> tuple[ExperimentSpec, ...]:
    """All experiments, with a guess of how long each takes where the engine has measured a round."""
    plain_s = RoundLatency(profile).plain if profile.rows_s else None
    return tuple(
        replace(spec, seconds=None if plain_s is None else PLAIN_ROUNDS[spec.name] * plain_s) for spec in DEFAULTS
    )


def spec_of(name: ExperimentName) -> ExperimentSpec:
    return next(spec for spec in DEFAULTS if spec.name is name)


def checked_xs(name: ExperimentName, xs: Sequence[float], most_tokens: int) -> tuple[float, ...]:
    """Where to measure, ascending and each once; by default as far as the engine's limit allows. Raises
    InvalidParams."""
    limits = LIMITS.get(name, Bounds(1, most_tokens))
    if not xs:
        return tuple(float(x) for x in spec_of(name).xs if x <= limits.high)
    for x in xs:
        if not limits.low <= x <= limits.high:
            raise InvalidParams(
                "xs", f"The experiment {name} measures from {limits.low:g} to {limits.high:g}, not at {x:g}."
            )
        if name is not ExperimentName.TEMPERATURE and x != int(x):
            raise InvalidParams("xs", f"The experiment {name} measures at whole numbers, not at {x:g}.")
    return tuple(sorted({float(x) for x in xs}))
