"""Figures of pairs of replies. Each is None where nothing was measured of it; tokens and seconds as in
`engine.stats`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from engine.lab.replies import ReplyPair
from engine.stats import Summary, ratio

Figure = Callable[[Sequence[ReplyPair]], float | None]


def decode_speedup(pairs: Sequence[ReplyPair]) -> float | None:
    """Median of the ratios of tokens per second after the first token."""
    return _median(
        [
            pair.spec.overall_tok_s / pair.plain.overall_tok_s
            for pair in pairs
            if pair.spec.overall_tok_s and pair.plain.overall_tok_s
        ]
    )


def request_speedup(pairs: Sequence[ReplyPair]) -> float | None:
    """Median of the ratios of tokens per second of whole requests, from the prompt on."""
    ratios = [
        ratio(pair.spec.tokens * request_s(pair.plain), pair.plain.tokens * request_s(pair.spec)) for pair in pairs
    ]
    return _median([value for value in ratios if value])


def request_s(summary: Summary) -> float:
    return summary.decode_s + (summary.ttft_s or 0.0)


def alpha(pairs: Sequence[ReplyPair]) -> float | None:
    """Accepted over tested drafts, all pairs together."""
    accepted = sum(pair.spec.accepted for pair in pairs)
    return ratio(accepted, accepted + sum(pair.spec.rejected for pair in pairs))


def tau(pairs: Sequence[ReplyPair]) -> float | None:
    """Tokens a speculative round, all pairs together."""
    emitted = sum((pair.spec.acceptance_length or 0.0) * pair.spec.spec_rounds for pair in pairs)
    return ratio(emitted, sum(pair.spec.spec_rounds for pair in pairs))


def drafted(pairs: Sequence[ReplyPair]) -> float | None:
    """Drafts a speculative round."""
    return ratio(sum(pair.spec.drafted for pair in pairs), sum(pair.spec.spec_rounds for pair in pairs))


def draft_s(pairs: Sequence[ReplyPair]) -> float | None:
    """Seconds of one draft."""
    return ratio(sum(pair.spec.draft_s for pair in pairs), sum(pair.spec.drafted for pair in pairs))


def plain(of: Callable[[Summary], float | None]) -> Figure:
    """The median of a figure over the plain replies."""
    return lambda pairs: _median([value for pair in pairs if (value := of(pair.plain)) is not None])


def spec(of: Callable[[Summary], float | None]) -> Figure:
    """The same over the speculative ones."""
    return lambda pairs: _median([value for pair in pairs if (value := of(pair.spec)) is not None])


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
