"""What the controller did, as far as the page tells of it: a round in a few figures, and whether guessing rests.
Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine import KReason, Outcome, Round

RESTING = frozenset({KReason.OFF, KReason.NO_OFFER})
"""Why a controller leaves a round without guesses."""

RESTING_AFTER = 3
"""Rounds in a row without guesses until the page calls it a rest: a single one comes and goes too fast to be read."""


@dataclass(frozen=True, slots=True)
class RoundFigures:
    """One round. k: most guesses that it might have; drafted: those made; predicted_speedup: see `Round`.

    seconds: of compute.
    """

    index: int
    k: int
    reason: KReason
    drafter: str
    drafted: int
    accepted: int
    predicted_speedup: float | None
    seconds: float


def round_figures(round_: Round) -> RoundFigures:
    accepted = sum(decision.outcome is Outcome.ACCEPTED for decision in round_.decisions)
    return RoundFigures(
        round_.index, round_.k_requested, round_.k_reason, round_.drafter, round_.num_drafted, accepted,
        round_.predicted_speedup, round_.total_s,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Course:
    """Rounds so far, without those that only measure plain speed.

    latest: the newest. idle: how many without guesses at the end, looks aside; idle_for: the newest of these.
    speedup_seconds, seconds: sums over rounds of which something was expected, the former of expected speed-up times
    seconds.
    """

    latest: RoundFigures | None = None
    idle: int = 0
    idle_for: RoundFigures | None = None
    speedup_seconds: float = 0.0
    seconds: float = 0.0

    def add(self, now: RoundFigures) -> Course:
        if now.reason is KReason.PROBE:
            return self
        course = replace(self, latest=now)
        if now.predicted_speedup is not None:
            # Without guesses it is plain decoding, whatever they promised.
            speedup = now.predicted_speedup if now.drafted else 1.0
            course = replace(
                course, speedup_seconds=self.speedup_seconds + speedup * now.seconds, seconds=self.seconds + now.seconds
            )
        if now.reason is KReason.EXPLORE:
            return course
        if now.reason in RESTING:
            return replace(course, idle=self.idle + 1, idle_for=now)
        return replace(course, idle=0, idle_for=None)

    @property
    def expected_speedup(self) -> float | None:
        """The speed-up over plain decoding that the controller expected of what it played: tokens expected over seconds
        taken, by plain decoding's own tokens per second."""
        return self.speedup_seconds / self.seconds if self.seconds > 0 else None

    @property
    def rest(self) -> RoundFigures | None:
        """Why no guesses are made now, while there are none."""
        return self.idle_for if self.idle >= RESTING_AFTER else None
