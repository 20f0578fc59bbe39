"""How the drafts did: whose they were, where in the reply they stood, and whether the controller foresaw the speed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from engine.events import KReason, Outcome, Round, RoundKind, TokenDecision
from engine.stats import ratio

PLACES = (0, 64, 128, 256, 512)
"""Where the stretches of a reply begin whose acceptance is told apart, in tokens."""


def draft_figures(rounds: Sequence[Round], plain_tok_s: float | None) -> dict[str, Any]:
    """The rounds of speculative replies; plain_tok_s: plain decoding's speed on the same prompts.

    mean_k: drafts a speculative round, over the same rounds as tau. plain_by_choice: the share of all rounds that were
    played plain because that was chosen (or asked for). drafters: by name. positions: by place in the reply. Both hold
    rounds, drafted, tested, accepted and acceptance = accepted / tested. predicted_speedup, measured_speedup: see
    `auto_speedups`.
    """
    speculative = [r for r in rounds if r.kind is RoundKind.SPECULATIVE]
    names = sorted({r.drafter for r in speculative if r.num_drafted})
    predicted, measured = auto_speedups(rounds, plain_tok_s)
    return {
        "mean_k": ratio(sum(r.num_drafted for r in speculative), len(speculative)),
        "plain_by_choice": ratio(sum(r.kind is RoundKind.PLAIN for r in rounds), len(rounds)),
        "predicted_speedup": predicted,
        "measured_speedup": measured,
        "drafters": {
            name: _count_drafts([r for r in speculative if r.drafter == name], lambda _: True) for name in names
        },
        "positions": {
            place(first): figures for first in PLACES if (figures := _drafts_at(speculative, first))["tested"]
        },
    }


def auto_speedups(rounds: Iterable[Round], plain_tok_s: float | None) -> tuple[float | None, float | None]:
    """Speed-up over plain decoding of the rounds that were chosen for it: (predicted, measured).

    The prediction is its mean over the time that these rounds took, which is what a ratio of sums measures. Rounds that
    were played to explore are left out: what was predicted is the best choice's speed-up, not theirs.
    """
    auto_rounds = [r for r in rounds if r.predicted_speedup is not None and r.num_drafted]
    auto_rounds = [r for r in auto_rounds if r.k_reason is not KReason.EXPLORE]
    total_s = sum(r.total_s for r in auto_rounds)
    predicted = ratio(sum((r.predicted_speedup or 0.0) * r.total_s for r in auto_rounds), total_s)
    tok_s = ratio(sum(len(r.tokens) for r in auto_rounds), total_s)
    return predicted, None if tok_s is None or not plain_tok_s else tok_s / plain_tok_s


def place(first: int) -> str:
    """The name of the stretch that begins at `first`: "0-63", the last one "512-"."""
    later = [begin for begin in PLACES if begin > first]
    return f"{first}-{later[0] - 1}" if later else f"{first}-"


def _drafts_at(rounds: Sequence[Round], first: int) -> dict[str, Any]:
    return _count_drafts(rounds, lambda decision: PLACES[bisect_right(PLACES, decision.position) - 1] == first)


def _count_drafts(rounds: Sequence[Round], is_counted: Callable[[TokenDecision], bool]) -> dict[str, Any]:
    """Of the drafts that count."""
    drafts = [[d.outcome for d in r.decisions if is_counted(d)] for r in rounds]
    outcomes = [outcome for round_outcomes in drafts for outcome in round_outcomes]
    accepted = outcomes.count(Outcome.ACCEPTED)
    tested = accepted + outcomes.count(Outcome.REJECTED)
    return {
        "rounds": sum(bool(round_outcomes) for round_outcomes in drafts), "drafted": len(outcomes), "tested": tested,
        "accepted": accepted, "acceptance": ratio(accepted, tested),
    }  # fmt: skip


def draft_table(groups: Mapping[str, dict[str, Any]]) -> str:
    """For a terminal: `draft_figures` by name; acceptance as accepted/tested and their ratio."""
    drafters = sorted({name for row in groups.values() for name in row["drafters"]})
    heads = ("mean K", "plain, chosen", "predicted", "measured", *drafters)
    lines = [f"{'drafts':16}" + "".join(f"{head:>18}" for head in heads)]
    for name, row in groups.items():
        cells = [_number(row["mean_k"]), _percent(row["plain_by_choice"])]
        cells += [_number(row["predicted_speedup"]), _number(row["measured_speedup"])]
        cells += [acceptance(row["drafters"].get(drafter)) for drafter in drafters]
        lines.append(f"{name:16}" + "".join(f"{cell:>18}" for cell in cells))
    places = [place(first) for first in PLACES if any(place(first) in row["positions"] for row in groups.values())]
    if places:
        lines.append(f"\n{'accepted at':16}" + "".join(f"{head:>18}" for head in places))
        for name, row in groups.items():
            cells = [acceptance(row["positions"].get(head)) for head in places]
            lines.append(f"{name:16}" + "".join(f"{cell:>18}" for cell in cells))
    return "\n".join(lines)


def acceptance(figures: Mapping[str, Any] | None) -> str:
    """ "41/50 0.82", "-" where nothing was tested."""
    return (
        "-"
        if not figures or not figures["tested"]
        else f"{figures['accepted']}/{figures['tested']} {figures['acceptance']:.2f}"
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"
