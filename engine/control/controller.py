"""Chooses what the next round does: whose drafts, how many, or none. K = 0 is one of its choices.

Left to itself (K open) it plays what promises the most tokens per second, from what rounds cost (`latency`) and how
many drafts stand (`acceptance`). A reply needs a given number of tokens, so a round of E expected tokens in T seconds
is worth E - rate * T, where rate is the tokens per second that this reply makes on the whole (the marginal value
theorem; for fixed K the best such round is Leviathan et al., arXiv:2211.17192, theorem 3.8). Plain decoding is the
round with E = 1.

Deterministic given its arguments: no clock, no random numbers. One reply has one Controller, so nothing leaks into the
next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from engine.config import MAX_K, DecodingParams
from engine.control.acceptance import ByConfidence, ByPosition, reach
from engine.control.latency import Profile, RoundLatency
from engine.drafters.protocol import DraftOption, ShouldContinue, always
from engine.events import KReason, Outcome, Round, RoundKind

FIRST_PROBE = 2
"""The first live baseline sample is round 2: early, but not the first round, which is cold."""

FIRST_EXPLORATION, LAST_EXPLORATION = 8, 32
"""What is not played is explored after so many chances that it had, doubling from the first number to the last."""

EXPLORATIONS_APART = 4
"""Rounds between two explorations: a useless drafter with many kinds of options must stay cheap."""

EXPLORATION_BUDGET = 16
"""Tokens that must be left for an exploration: with fewer, what it teaches could not pay any more."""

RECENT = 0.95
"""What a round counts for against the next one in the reply's own rate and in what a kind of option yielded."""

TRUST = 4.0
"""Rounds' worth of belief in the estimate by position, for drafters that stop by confidence."""


@dataclass(frozen=True, slots=True)
class Plan:
    """k drafts at most in the coming round, and why.

    option: what to propose, None where nothing is to be. should_continue: whether one more draft pays, given the
    confidences so far. predicted_speedup: with K open, tokens per second expected of the best k above 0 over plain
    decoding's.
    """

    kind: RoundKind
    k: int
    reason: KReason
    option: DraftOption | None = None
    should_continue: ShouldContinue = always
    predicted_speedup: float | None = None


@dataclass(frozen=True, slots=True)
class _Outlook:
    """What a round of at most k drafts of this option would bring; by position the chances of its drafts, and the
    seconds of a round with 0, 1, ... of them."""

    option: DraftOption
    k: int
    tokens: float
    seconds: float
    rates: list[float]
    times: list[float]

    def worth(self, rate: float) -> float:
        return self.tokens - rate * self.seconds


@dataclass(slots=True)
class _Exploration:
    """When a kind of option is explored. chances: rounds since its last one; due_after: how many make it due."""

    chances: int = 0
    due_after: int = FIRST_EXPLORATION


@dataclass(slots=True)
class _Yield:
    """Tokens of a kind whose drafter stops by confidence, and its rounds so far by number of drafts, both faded."""

    tokens: float = 0.0
    rounds: dict[int, float] = field(default_factory=dict)


class Controller:
    """`plan` before a round, `observe` after it."""

    def __init__(self, params: DecodingParams, profile: Profile) -> None:
        self._params = params
        self._times = RoundLatency(profile)
        self._by_position = ByPosition(dict(profile.acceptance))
        self._by_confidence = ByConfidence()
        self._explorations: dict[str, _Exploration] = {}
        self._yields: dict[str, _Yield] = {}
        self._since_exploration = EXPLORATIONS_APART
        self._tokens, self._plain_rounds = 2.0, 2.0  # as if two plain rounds had been played

    def plan(
        self,
        index: int,
        options: Sequence[DraftOption],
        budget_left: int,
        context_left: int,
        drafter_left: int | None,
    ) -> Plan:
        """The coming round's plan.

        index: the round's number, from 1. budget_left, context_left: tokens that may still be emitted, at least 1; a
        round of k drafts emits up to k + 1. drafter_left: drafts that the drafter's own context has room for, None if
        unlimited. A round without drafts because there is nothing to offer, or no room for any, is SPECULATIVE all the
        same: its token counts in tau. PLAIN is one that was asked for or chosen.
        """
        fixed_k, probe_every = self._params.num_speculative_tokens, self._params.probe_every
        if fixed_k == 0:
            return Plan(RoundKind.PLAIN, 0, KReason.FIXED)
        probe_due = probe_every > 0 and index >= FIRST_PROBE and (index - FIRST_PROBE) % probe_every == 0
        if probe_due and fixed_k is not None:
            return Plan(RoundKind.PROBE, 0, KReason.PROBE)
        limits = [
            (MAX_K, KReason.AUTO) if fixed_k is None else (fixed_k, KReason.FIXED),
            (budget_left - 1, KReason.BUDGET),
            (context_left - 1, KReason.CONTEXT),
        ]
        if drafter_left is not None:
            limits.append((max(0, drafter_left), KReason.DRAFTER_CONTEXT))
        limit, reason = min(limits, key=lambda pair: pair[0])
        if limit == 0 or not options:
            if probe_due:
                return Plan(RoundKind.PROBE, 0, KReason.PROBE)
            return Plan(RoundKind.SPECULATIVE, 0, reason if limit == 0 else KReason.NO_OFFER)
        if fixed_k is not None:
            return self._fixed(options, limit, reason, budget_left)
        return self._auto(options, limit, reason, budget_left, probe_due)

    def observe(self, round_: Round, plan: Plan, confidences: Sequence[float]) -> None:
        """Learn from a round that was played by `plan`. confidences: `Proposal.confidences`."""
        drafted = round_.num_drafted
        drafter = plan.option.drafter if plan.option else ""
        self._times.add(drafter, drafted, round_.draft_s, round_.total_s - round_.draft_s)
        tested = [d.outcome is Outcome.ACCEPTED for d in round_.decisions if d.outcome is not Outcome.DISCARDED]
        tokens = 1 + sum(tested)
        if round_.kind is not RoundKind.PROBE:
            self._tokens = RECENT * self._tokens + tokens
            plain_rounds = self._times.rounds(drafter, drafted)[drafted] / self._times.plain
            self._plain_rounds = RECENT * self._plain_rounds + plain_rounds
        if plan.option is None:
            return
        kind = plan.option.kind
        if not drafted and plan.k:
            tested = [False]  # it kept silent: no better than a draft that is wrong
        self._by_position.add(kind, tested)
        if confidences:
            self._by_confidence.add(kind, confidences, tested)
            yield_ = self._yields.setdefault(kind, _Yield())
            yield_.tokens = RECENT * yield_.tokens + tokens
            yield_.rounds = {n: RECENT * weight for n, weight in yield_.rounds.items()}
            yield_.rounds[drafted] = yield_.rounds.get(drafted, 0.0) + 1.0

    # -- choosing ----------------------------------------------------------------------------------------------------

    def _rate(self) -> float:
        """Tokens per second of this reply on the whole; at least plain decoding's, which can always be had."""
        return max(1.0, self._tokens / self._plain_rounds) / self._times.plain

    def _auto(
        self, options: Sequence[DraftOption], limit: int, reason: KReason, budget_left: int, probe_due: bool
    ) -> Plan:
        plain_s, rate = self._times.plain, self._rate()
        outlooks = {option: self._outlook(option, limit, rate) for option in options}
        best = max(outlooks.values(), key=lambda outlook: outlook.worth(rate))
        predicted = max(outlook.tokens / outlook.seconds for outlook in outlooks.values()) * plain_s
        choice = best if best.worth(rate) > 1.0 - rate * plain_s else None
        if choice is not None and probe_due:  # a plain round by choice measures the baseline as well
            return Plan(RoundKind.PROBE, 0, KReason.PROBE, predicted_speedup=predicted)
        exploration = self._explore(options, choice.option if choice else None, budget_left)
        if exploration is not None:
            should_continue = self._should_continue(outlooks[exploration], rate)
            return Plan(
                RoundKind.SPECULATIVE, outlooks[exploration].k, KReason.EXPLORE, exploration, should_continue, predicted
            )
        if choice is None:
            return Plan(RoundKind.PLAIN, 0, KReason.OFF, predicted_speedup=predicted)
        k_reason = reason if choice.k == limit else KReason.AUTO
        return Plan(
            RoundKind.SPECULATIVE, choice.k, k_reason, choice.option, self._should_continue(choice, rate), predicted
        )

    def _fixed(self, options: Sequence[DraftOption], limit: int, reason: KReason, budget_left: int) -> Plan:
        """K is given: the option of which the most drafts should stand."""
        best = max(options, key=lambda option: sum(reach(self._by_position.rates(option.kind, limit))))
        exploration = self._explore(options, best, budget_left)
        return Plan(RoundKind.SPECULATIVE, limit, KReason.EXPLORE if exploration else reason, exploration or best)

    def _outlook(self, option: DraftOption, limit: int, rate: float) -> _Outlook:
        """The best that can be expected of this option, with k from 1 to limit."""
        rates = self._by_position.rates(option.kind, limit)
        times = self._times.rounds(option.drafter, len(rates))
        expected = [1.0 + accepted for accepted in accumulate(reach(rates))]
        _, k = max(
            (tokens - rate * seconds, k) for k, (tokens, seconds) in enumerate(zip(expected, times[1:], strict=True), 1)
        )
        yield_ = self._yields.get(option.kind)
        if yield_ is None:
            return _Outlook(option, k, expected[k - 1], times[k], rates, times)
        # It stops by itself, so it may have all the room there is, and its rounds so far say best what they bring.
        rounds = TRUST + sum(yield_.rounds.values())
        tokens = TRUST * expected[k - 1] + yield_.tokens
        seconds = TRUST * times[k] + sum(w * times[min(n, len(rates))] for n, w in yield_.rounds.items())
        return _Outlook(option, len(rates), tokens / rounds, seconds / rounds, rates, times)

    def _should_continue(self, outlook: _Outlook, rate: float) -> ShouldContinue:
        """One more draft, or several, must bring more tokens than their time is worth."""
        kind, rates, times, by_confidence = outlook.option.kind, outlook.rates, outlook.times, self._by_confidence

        def should_continue(confidences: tuple[float, ...]) -> bool:
            chance, drafted, gain = 1.0, len(confidences), 0.0
            for confidence in confidences:
                chance *= by_confidence.rate(kind, confidence)
            for k in range(drafted + 1, len(times)):
                chance *= rates[k - 1]
                gain += chance
                if gain > rate * (times[k] - times[drafted]):
                    return True
            return False

        return should_continue

    def _explore(
        self, options: Sequence[DraftOption], choice: DraftOption | None, budget_left: int
    ) -> DraftOption | None:
        """An option that is due to be explored; keeps count of the chances that passed the others by."""
        self._since_exploration += 1
        due: DraftOption | None = None
        for option in options:
            exploration = self._explorations.setdefault(option.kind, _Exploration())
            if option == choice:
                exploration.chances, exploration.due_after = 0, FIRST_EXPLORATION
                continue
            exploration.chances += 1
            if exploration.chances >= exploration.due_after and due is None:
                due = option
        if due is None or self._since_exploration < EXPLORATIONS_APART or budget_left < EXPLORATION_BUDGET:
            return None
        exploration = self._explorations[due.kind]
        exploration.chances, exploration.due_after = 0, min(2 * exploration.due_after, LAST_EXPLORATION)
        self._since_exploration = 0
        return due
