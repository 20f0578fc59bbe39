"""The experiments' defaults, and about how long each takes. Pure."""

from __future__ import annotations

from dataclasses import replace

from engine.config import Rule
from engine.costs import Costs, Times
from engine.lab.values import AUTO, MEASURED, PLAIN, PREDICTED, SPECULATIVE, Kind, Name, Spec

K_KINDS = (Kind.CHAT, Kind.CODE, Kind.SUMMARY)
TEXT_KINDS = tuple(Kind)

DEFAULTS = (
    Spec(Name.RATE, (1, 2, 4, 8, 16, 32), (PLAIN, SPECULATIVE, AUTO), "users", "tokens/s"),
    Spec(Name.LENGTH, (1, 4, 16, 64, 256), (SPECULATIVE,), "tokens", "times"),
    Spec(Name.K, tuple(range(1, 9)), (*K_KINDS, PREDICTED), "drafts", "times"),
    Spec(Name.TEMPERATURE, (0.0, 0.3, 0.6, 0.9, 1.2), tuple(Rule), "temperature", "alpha"),
    Spec(Name.TEXT, tuple(range(len(TEXT_KINDS))), TEXT_KINDS, "kind", "times"),
    Spec(Name.ROWS, (1, 2, 4, 8, 16, 32, 64, 128, 256), (MEASURED,), "rows", "ms"),
)

PLAIN_ROUNDS = {
    Name.RATE: 4500, Name.LENGTH: 4000, Name.K: 4000, Name.TEMPERATURE: 4000, Name.TEXT: 4000, Name.ROWS: 1500,
}  # fmt: skip
"""Plain rounds that take about as long as the whole experiment."""


def specs(costs: Costs) -> tuple[Spec, ...]:
    """All experiments, with a guess of how long each takes where the engine has measured a round."""
    plain_s = Times(costs).plain if costs.rows_s else None
    return tuple(
        replace(spec, seconds=None if plain_s is None else PLAIN_ROUNDS[spec.name] * plain_s) for spec in DEFAULTS
    )
