"""The experiments' defaults, and about how long each takes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.config import MAX_K, Rule
from engine.control.latency import Costs, Times
from engine.errors import InvalidParams
from engine.lab.results import AUTO, MEASURED, PLAIN, PREDICTED, SPECULATIVE, Kind, Name, Spec

K_KINDS = (Kind.CHAT, Kind.CODE, Kind.SUMMARY)
TEXT_KINDS = tuple(Kind)

FIXED_K = 3
"""Drafts a round where K is not what the experiment is about, and must not be chosen."""

TOKENS, TEXT_TOKENS, RATE_TOKENS = 48, 64, 32
"""Tokens of a reply, as far as the experiment is not about that; of RATE, for each of many users."""

SHORT, SHORT_TIMES = 16, 3
"""Replies of so few tokens are measured so many times as often as long ones."""

DEFAULTS = (
    Spec(Name.RATE, (1, 2, 4, 8, 16, 32), (PLAIN, SPECULATIVE, AUTO), "users", "tokens/s"),
    Spec(Name.LENGTH, (1, 4, 16, 64, 256), (SPECULATIVE,), "tokens", "times"),
    Spec(Name.K, tuple(range(1, 9)), (*K_KINDS, PREDICTED), "drafts", "times"),
    Spec(Name.TEMPERATURE, (0.0, 0.3, 0.6, 0.9, 1.2), tuple(Rule), "temperature", "alpha"),
    Spec(Name.TEXT, tuple(range(len(TEXT_KINDS))), TEXT_KINDS, "kind", "times"),
    Spec(Name.ROWS, (1, 2, 4, 8, 16, 32, 64, 128, 256), (MEASURED,), "rows", "ms"),
)

LIMITS: dict[Name, tuple[float, float]] = {
    Name.RATE: (1, 64), Name.K: (1, MAX_K), Name.TEMPERATURE: (0.0, 5.0), Name.TEXT: (0, len(TEXT_KINDS) - 1),
    Name.ROWS: (1, 256),
}  # fmt: skip
"""Least and most x, besides LENGTH, whose most is the engine's."""

MOST_REPEATS = 50

PLAIN_ROUNDS = {
    Name.RATE: 7600, Name.LENGTH: 4700, Name.K: 4000, Name.TEMPERATURE: 6900, Name.TEXT: 6000, Name.ROWS: 1500,
}  # fmt: skip
"""Plain rounds that take about as long as the whole experiment with three repeats."""


def specs(costs: Costs) -> tuple[Spec, ...]:
    """All experiments, with a guess of how long each takes where the engine has measured a round."""
    plain_s = Times(costs).plain if costs.rows_s else None
    return tuple(
        replace(spec, seconds=None if plain_s is None else PLAIN_ROUNDS[spec.name] * plain_s) for spec in DEFAULTS
    )


def spec_of(name: Name) -> Spec:
    return next(spec for spec in DEFAULTS if spec.name is name)


def checked_xs(name: Name, xs: Sequence[float], most_tokens: int) -> tuple[float, ...]:
    """Where to measure, ascending and each once; by default as far as the engine's limit allows. Raises InvalidParams."""
    least, most = LIMITS.get(name, (1, most_tokens))
    if not xs:
        return tuple(float(x) for x in spec_of(name).xs if x <= most)
    for x in xs:
        if not least <= x <= most:
            raise InvalidParams("xs", f"The experiment {name} measures from {least:g} to {most:g}, not at {x:g}.")
        if name is not Name.TEMPERATURE and x != int(x):
            raise InvalidParams("xs", f"The experiment {name} measures at whole numbers, not at {x:g}.")
    return tuple(sorted({float(x) for x in xs}))
