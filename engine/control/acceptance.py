"""How likely a draft is to stand: learnt from the drafts of this reply, from a prior on. Pure.

By draft position: the chance that draft i stands *if it is tested*, that is, if all before it stood. By confidence: the
same for a draft that its drafter gave so much probability, for drafters that say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import mul

MEMORY = 0.96
"""What a test counts for against the next one of its kind: text changes, and about the last 25 decide."""

BELIEF = 2.0
LEAST_BELIEF = 0.5
"""How many tests the prior counts for, at first and in the long run."""

UNKNOWN = 0.5
"""The prior of a kind of which nothing is known."""

BINS = 5
HIGHEST = 0.98
"""No draft is certain."""

FAR = 0.005
"""Positions that are reached less often than this are not looked at."""


class ByPosition:
    """Faded counts of tested and accepted drafts, by kind of option and draft position."""

    def __init__(self, priors: Mapping[str, Sequence[float]]) -> None:
        self._priors = {kind: tuple(prior) for kind, prior in priors.items() if prior}
        self._counts: dict[str, list[tuple[float, float]]] = {}

    def rates(self, kind: str, k: int) -> list[float]:
        """For the first of k drafts, at least one: up to where it is not likely that all stand.

        A position's own prior is what the one before it has come to, by the ratio of their first priors: so what is
        learnt at the tested positions carries over to those that are not.
        """
        priors = self._priors.get(kind, (UNKNOWN,))
        counts = self._counts.get(kind, [])
        rates: list[float] = []
        rate = before = chance = 1.0
        for i in range(k):
            first_prior = priors[i] if i < len(priors) else before
            prior = rate * first_prior / max(before, 1e-3) if i else first_prior
            tested, accepted = counts[i] if i < len(counts) else (0.0, 0.0)
            belief = max(BELIEF * (1.0 - (1.0 - MEMORY) * tested), LEAST_BELIEF)  # it fades as an early test would
            rate, before = min((accepted + belief * min(prior, HIGHEST)) / (tested + belief), HIGHEST), first_prior
            rates.append(rate)
            chance *= rate
            if chance < FAR:
                break
        return rates

    def add(self, kind: str, outcomes: Sequence[bool]) -> None:
        """The tested drafts of one round, in order."""
        counts = self._counts.setdefault(kind, [])
        counts += [(0.0, 0.0)] * (len(outcomes) - len(counts))
        for i, accepts in enumerate(outcomes):
            tested, accepted = counts[i]
            counts[i] = (MEMORY * tested + 1.0, MEMORY * accepted + accepts)


class ByConfidence:
    """Faded counts of expected and accepted drafts, by kind of option and a bin of confidence.

    A head trained on soft targets is right about as often as it says, at temperature 0 too: that is where this starts.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int], tuple[float, float]] = {}

    def rate(self, kind: str, confidence: float) -> float:
        """A draft's chance, given its drafter's largest probability at temperature 1."""
        expected, accepted = self._counts.get((kind, _bin(confidence)), (0.0, 0.0))
        return min(confidence * (accepted + BELIEF) / (expected + BELIEF), HIGHEST)

    def add(self, kind: str, confidences: Sequence[float], outcomes: Sequence[bool]) -> None:
        """The tested drafts of one round, and what their drafter thought of them."""
        for confidence, accepts in zip(confidences, outcomes, strict=False):
            key = (kind, _bin(confidence))
            expected, accepted = self._counts.get(key, (0.0, 0.0))
            self._counts[key] = (MEMORY * expected + confidence, MEMORY * accepted + accepts)


def _bin(confidence: float) -> int:
    return min(int(confidence * BINS), BINS - 1)


def reach(rates: Sequence[float]) -> list[float]:
    """Chances that the first, the first two, ... drafts all stand; their sum is the expected number
    of accepted ones."""
    return list(accumulate(rates, mul))
