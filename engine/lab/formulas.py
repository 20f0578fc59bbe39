"""The arithmetic of speculative decoding, for drafts of which each is accepted with the same chance, independently.

Leviathan, Kalman, Matias, "Fast Inference from Transformers via Speculative Decoding", arXiv:2211.17192. Its gamma is K
here.
"""

from __future__ import annotations

from collections.abc import Sequence


def expected_tokens(alpha: float, k: int) -> float:
    """Tokens that a round of k drafts brings: (1 - alpha^(k + 1)) / (1 - alpha), from 1 to k + 1 (equation 1).

    Summed up as 1 + alpha + ... + alpha^k, which also holds at alpha = 1. alpha: 0..1, chance that a tested draft
    stands. Raises ValueError.
    """
    if not 0.0 <= alpha <= 1.0:
        raise ValueError(f"alpha must be between 0 and 1, not {alpha}")
    if k < 0:
        raise ValueError(f"k must not be negative, but is {k}")
    total = 1.0
    for _ in range(k):
        total = 1.0 + alpha * total
    return total


def speedup(alpha: float, k: int, c: float) -> float:
    """How many times as fast as plain decoding: expected_tokens / (k c + 1) (theorem 3.8).

    c: seconds of one draft over those of a plain round, at least 0. The theorem takes the pass that checks k + 1 rows
    to cost what a pass of one row does; `speedup_from_costs` does not. Raises ValueError.
    """
    if c < 0.0:
        raise ValueError(f"c must not be negative, but is {c}")
    return expected_tokens(alpha, k) / (k * c + 1.0)


def speedup_from_costs(alpha: float, rounds_s: Sequence[float]) -> float:
    """The same with measured times: rounds_s are seconds of rounds with 0, 1, ... K drafts, all of a round included.

    Raises ValueError.
    """
    if not rounds_s or min(rounds_s) <= 0.0:
        raise ValueError("a round takes some time")
    return expected_tokens(alpha, len(rounds_s) - 1) * rounds_s[0] / rounds_s[-1]


def best_k(alpha: float, c: float, most: int = 16) -> int:
    """The K from 0 to most with the largest speed-up, the smallest of equals; 0 where speculation does not pay.

    By corollary 3.9 some K pays if and only if K = 1 does, that is if alpha > c. Raises ValueError.
    """
    return max(range(most + 1), key=lambda k: speedup(alpha, k, c))
