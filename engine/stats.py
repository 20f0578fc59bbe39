"""Events -> figures. Pure: one fold over events, then ratios of sums.

alpha = accepted / tested, where discarded drafts count in neither (Leviathan et al., arXiv:2211.17192, section 3).
acceptance length tau = tokens emitted per speculative round (EAGLE-3, arXiv:2503.01840, section 4).
TPOT = (end - first token) / (n - 1), in compute time.

What counts where: tau and alpha are over speculative rounds alone. The speed-up is over all rounds of a reply that was
to be speculative except probes, and so over those too that the controller chose to play plain: with K left open it says
what the whole was worth, not what the lucky rounds were. Its other side, the live baseline, is every plain round.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace

from engine.events import Event, Finished, FinishReason, KReason, Outcome, Prefilled, Prefilling, Round, RoundKind

MIN_BASELINE_SAMPLES = 3
"""Below so many plain rounds the baseline says "measuring", not a figure."""

RECENT_ROUNDS = 16
"""Window of "tokens/s now", in speculative (or plain-only) rounds."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """Plain decoding as measured. tok_s and spread are None while n < MIN_BASELINE_SAMPLES.

    tok_s is a ratio of sums (tokens / seconds), the same statistic as the speculative side's.
    spread is half the interquartile range of the seconds per token over their median (0.03 means +-3 %).
    """

    n: int
    tok_s: float | None
    spread: float | None


@dataclass(frozen=True, slots=True)
class Drafts:
    """What became of one drafter's drafts, by position from 0 on: (tested, accepted)."""

    drafter: str
    by_position: tuple[tuple[int, int], ...] = ()

    @property
    def tested(self) -> int:
        return sum(tested for tested, _ in self.by_position)

    @property
    def accepted(self) -> int:
        return sum(accepted for _, accepted in self.by_position)


@dataclass(frozen=True, slots=True)
class Summary:
    """One reply (or one conversation) in figures; None where nothing was measured yet. tok_s: tokens per
    second of decode time.

    spec_tok_s: of all rounds but probes and those of replies that were asked to be plain; speedup: that over the
    baseline. mean_k: drafts a round, over the same rounds. predicted_speedup: of the latest round that has one.
    """

    tokens: int
    prompt_tokens: int
    cached_tokens: int
    drafted: int
    accepted: int
    rejected: int
    discarded: int
    rounds: int
    spec_rounds: int
    alpha: float | None
    draft_acceptance_rate: float | None
    acceptance_length: float | None
    now_tok_s: float | None
    overall_tok_s: float | None
    spec_tok_s: float | None
    baseline: Baseline
    speedup: float | None
    ttft_s: float | None
    tpot_s: float | None
    decode_s: float
    plain_s: float
    draft_s: float
    verify_s: float
    sample_s: float
    other_s: float
    acceptance_by_position: tuple[tuple[int, int], ...]
    finish_reason: FinishReason | None
    acceptance_by_drafter: tuple[Drafts, ...] = ()
    mean_k: float | None = None
    predicted_speedup: float | None = None


@dataclass(frozen=True, slots=True)
class Tally:
    """Running sums over events; `tally = tally.add(event)`. Cost per event does not grow with the reply.

    plain_samples holds seconds per plain token, newest last, at most SAMPLES_KEPT. Add the events of several replies
    to one Tally for the figures of a conversation (ttft_s and finish_reason are then the latest reply's).
    """

    SAMPLES_KEPT = 256

    tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    decoded: int = 0  # tokens emitted by rounds, without each reply's first
    spec_rounds: int = 0
    spec_tokens: int = 0
    spec_s: float = 0.0
    rest_rounds: int = 0  # plain ones that the controller chose
    rest_tokens: int = 0
    rest_s: float = 0.0
    plain_rounds: int = 0
    plain_tokens: int = 0
    plain_s: float = 0.0
    plain_samples: tuple[float, ...] = ()
    recent: tuple[tuple[int, float], ...] = ()
    drafted: int = 0
    accepted: int = 0
    rejected: int = 0
    draft_s: float = 0.0
    verify_s: float = 0.0
    sample_s: float = 0.0
    by_position: tuple[tuple[int, int], ...] = ()
    by_drafter: tuple[Drafts, ...] = ()
    predicted_speedup: float | None = None
    ttft_s: float | None = None
    finish_reason: FinishReason | None = None

    def add(self, event: Event) -> Tally:
        if isinstance(event, Prefilling):
            return self
        if isinstance(event, Prefilled):
            return replace(
                self,
                tokens=self.tokens + (event.token is not None),
                prompt_tokens=event.prompt_tokens,
                cached_tokens=event.cached_tokens,
                ttft_s=event.ttft_s,
                finish_reason=None,
                recent=(),
            )
        if isinstance(event, Finished):
            return replace(self, finish_reason=event.reason)
        return self._add_round(event)

    def _add_round(self, round_: Round) -> Tally:
        emitted = len(round_.tokens)
        common = replace(
            self,
            tokens=self.tokens + emitted,
            decoded=self.decoded + emitted,
            draft_s=self.draft_s + round_.draft_s,
            verify_s=self.verify_s + round_.verify_s,
            sample_s=self.sample_s + round_.sample_s,
            predicted_speedup=self.predicted_speedup if round_.predicted_speedup is None else round_.predicted_speedup,
        )
        if round_.kind is not RoundKind.PROBE:
            common = replace(common, recent=(*self.recent, (emitted, round_.total_s))[-RECENT_ROUNDS:])
        if round_.kind is not RoundKind.SPECULATIVE:
            # A stop string may have left a round no token: its time would then stand for nothing.
            plain_s = round_.total_s if emitted else 0.0
            if round_.kind is RoundKind.PLAIN and round_.k_reason is not KReason.FIXED:
                common = replace(
                    common,
                    rest_rounds=self.rest_rounds + 1,
                    rest_tokens=self.rest_tokens + emitted,
                    rest_s=self.rest_s + plain_s,
                )
            return replace(
                common,
                plain_rounds=self.plain_rounds + 1,
                plain_tokens=self.plain_tokens + emitted,
                plain_s=self.plain_s + plain_s,
                plain_samples=(*self.plain_samples, plain_s)[-self.SAMPLES_KEPT :] if emitted else self.plain_samples,
            )
        outcomes = [decision.outcome for decision in round_.decisions]
        return replace(
            common,
            spec_rounds=self.spec_rounds + 1,
            spec_tokens=self.spec_tokens + emitted,
            spec_s=self.spec_s + round_.total_s,
            drafted=self.drafted + len(outcomes),
            accepted=self.accepted + outcomes.count(Outcome.ACCEPTED),
            rejected=self.rejected + outcomes.count(Outcome.REJECTED),
            by_position=_count_positions(self.by_position, outcomes),
            by_drafter=_count_drafter(self.by_drafter, round_.drafter, outcomes),
        )

    def baseline(self) -> Baseline:
        n = len(self.plain_samples)
        if n < MIN_BASELINE_SAMPLES:
            return Baseline(n, None, None)
        low, median, high = statistics.quantiles(self.plain_samples, n=4, method="inclusive")
        return Baseline(n, ratio(self.plain_tokens, self.plain_s), (high - low) / 2 / median if median > 0 else 0.0)

    def summary(self) -> Summary:
        baseline = self.baseline()
        decode_s = self.spec_s + self.plain_s
        spec_tok_s = ratio(self.spec_tokens + self.rest_tokens, self.spec_s + self.rest_s)
        tested = self.accepted + self.rejected
        speedup = spec_tok_s / baseline.tok_s if spec_tok_s is not None and baseline.tok_s else None
        return Summary(
            tokens=self.tokens,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            drafted=self.drafted,
            accepted=self.accepted,
            rejected=self.rejected,
            discarded=self.drafted - tested,
            rounds=self.spec_rounds + self.plain_rounds,
            spec_rounds=self.spec_rounds,
            alpha=ratio(self.accepted, tested),
            draft_acceptance_rate=ratio(self.accepted, self.drafted),
            acceptance_length=ratio(self.spec_tokens, self.spec_rounds),
            now_tok_s=ratio(sum(n for n, _ in self.recent), sum(s for _, s in self.recent)),
            overall_tok_s=ratio(self.decoded, decode_s),
            spec_tok_s=spec_tok_s,
            baseline=baseline,
            speedup=speedup,
            ttft_s=self.ttft_s,
            tpot_s=ratio(decode_s, self.decoded),
            decode_s=decode_s,
            plain_s=self.plain_s,
            draft_s=self.draft_s,
            verify_s=self.verify_s,
            sample_s=self.sample_s,
            other_s=max(0.0, decode_s - self.draft_s - self.verify_s - self.sample_s),
            acceptance_by_position=self.by_position,
            finish_reason=self.finish_reason,
            acceptance_by_drafter=self.by_drafter,
            mean_k=ratio(self.drafted, self.spec_rounds + self.rest_rounds),
            predicted_speedup=self.predicted_speedup,
        )


def summarise(events: Iterable[Event]) -> Summary:
    """The figures of a whole reply."""
    tally = Tally()
    for event in events:
        tally = tally.add(event)
    return tally.summary()


def ratio(amount: float, per: float) -> float | None:
    """None where there is nothing to divide by."""
    return amount / per if per > 0 else None


def _count_positions(counts: tuple[tuple[int, int], ...], outcomes: list[Outcome]) -> tuple[tuple[int, int], ...]:
    """Add one round to (tested, accepted) by draft position."""
    totals = list(counts) + [(0, 0)] * (len(outcomes) - len(counts))
    for i, outcome in enumerate(outcomes):
        if outcome is not Outcome.DISCARDED:
            tested, accepted = totals[i]
            totals[i] = (tested + 1, accepted + (outcome is Outcome.ACCEPTED))
    return tuple(totals)


def _count_drafter(drafters: tuple[Drafts, ...], drafter: str, outcomes: list[Outcome]) -> tuple[Drafts, ...]:
    """Add one round to the drafts of who made them; a round without drafts is nobody's."""
    if not outcomes:
        return drafters
    by_drafter = {drafts.drafter: drafts for drafts in drafters}
    before = by_drafter.get(drafter, Drafts(drafter))
    by_drafter[drafter] = Drafts(drafter, _count_positions(before.by_position, outcomes))
    return tuple(by_drafter.values())
