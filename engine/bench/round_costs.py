"""Where the time of a round goes: drafting, the forward, sampling with the rule, and the rest (text, events)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.bench.pairs import PairRun
from engine.events import Round, RoundKind

PARTS = ("draft", "verify", "sample", "other")

KINDS = {"speculative": "speculative", "drafted": "of these with drafts", "plain": "plain"}
"""Groups of rounds, and what the table calls them. A drafter may have nothing to offer: that round is as
cheap as a plain one."""


def costs_of(runs: Sequence[PairRun]) -> dict[str, dict[str, float] | None]:
    """Keys of KINDS; see `costs`."""
    speculative = [r for run in runs for r in run.spec.rounds if r.kind is RoundKind.SPECULATIVE]
    plain = {id(run.plain): run.plain for run in runs}  # several K share one plain reply
    return {
        "speculative": costs(speculative),
        "drafted": costs(r for r in speculative if r.num_drafted),
        "plain": costs(r for reply in plain.values() for r in reply.rounds if r.kind is RoundKind.PLAIN),
    }


def costs(rounds: Iterable[Round]) -> dict[str, float] | None:
    """Means over rounds: rows of the forward, tokens emitted, total_ms, and for each part PART_ms
    and PART_share (of 1).

    A share is a ratio of sums. None without rounds.
    """
    all_rounds = list(rounds)
    total_s = sum(r.total_s for r in all_rounds)
    if not total_s:
        return None
    parts = {part: sum(getattr(r, f"{part}_s") for r in all_rounds) for part in PARTS[:-1]}
    parts["other"] = max(0.0, total_s - sum(parts.values()))
    n = len(all_rounds)
    means = {
        "rounds": n,
        "rows": 1 + sum(r.num_drafted for r in all_rounds) / n,
        "tokens": sum(len(r.tokens) for r in all_rounds) / n,
    }
    return (
        means
        | {"total_ms": total_s / n * 1e3}
        | {f"{part}_ms": part_s / n * 1e3 for part, part_s in parts.items()}
        | {f"{part}_share": part_s / total_s for part, part_s in parts.items()}
    )


def cost_table(costs_by_kind: dict[str, dict[str, float] | None]) -> str:
    """For a terminal: milliseconds a round, and each part's share."""
    lines = [f"{'ms a round':22}{'rounds':>8}{'rows':>7}{'total':>9}" + "".join(f"{part:>16}" for part in PARTS)]
    for kind, name in KINDS.items():
        if (row := costs_by_kind[kind]) is not None:
            cells = "".join(f"{row[f'{part}_ms']:9.3f} {row[f'{part}_share']:5.1%}" for part in PARTS)
            lines.append(f"{name:22}{row['rounds']:8.0f}{row['rows']:7.2f}{row['total_ms']:9.3f}{cells}")
    return "\n".join(lines)


def sampling_share(costs_by_kind: dict[str, dict[str, float] | None]) -> str:
    shares = [f"{row['sample_share']:.1%} ({name})" for kind, name in KINDS.items() if (row := costs_by_kind[kind])]
    return f"sampling's share of a round: {', '.join(shares)}"
