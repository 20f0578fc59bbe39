"""Chooses what the next round does: whose drafts, how many, or none. K = 0 is one of its choices.

Left to itself (K open) it plays what promises the most tokens per second, from what rounds cost (`profile`) and how many
drafts stand (`acceptance`). A reply needs a given number of tokens, so a round of E expected tokens in T seconds is worth
E - rate * T, where rate is the tokens per second that this reply makes on the whole (the marginal value theorem;
for fixed K the best such round is Leviathan et al., arXiv:2211.17192, theorem 3.8). Plain decoding is the round with E = 1.

Deterministic given what it is told: no clock, no dice. One reply has one Controller, so nothing leaks into the next.
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

FIRST_LOOK, LAST_LOOK = 8, 32
"""What is not played gets a try after so many chances that it had, doubling from the first number to the last."""

LOOK_APART = 4
"""Rounds between two such tries: a useless drafter with many kinds of offers must stay cheap."""

LOOK_BUDGET = 16
"""Tokens that must be left for a try: what it teaches could not pay any more."""

RECENT = 0.95
"""What a round counts for against the next one in the reply's own rate and in what a kind of offer brought."""

TRUST = 4.0
"""Rounds' worth of belief in the estimate by position, for drafters that stop by confidence."""


@dataclass(frozen=True, slots=True)
class Plan:
    """k drafts at most in the coming round, and why.

    offer: what to propose, None where nothing is to be. go_on: whether one more draft pays, given the confidences so far.
    predicted_speedup: with K open, tokens per second expected of the best k above 0 over plain decoding's.
    """

    kind: RoundKind
    k: int
    reason: KReason
    option: DraftOption | None = None
    should_continue: ShouldContinue = always
    predicted_speedup: float | None = None


@dataclass(frozen=True, slots=True)
class _Outlook:
    """What a round of at most k drafts of this offer would bring; by position the chances of its drafts, and the seconds
    of a round with 0, 1, ... of them."""

    option: DraftOption
    k: int
    tokens: float
    seconds: float
    rates: list[float]
    times: list[float]

    def worth(self, rate: float) -> float:
        return self.tokens - rate * self.seconds


@dataclass(slots=True)
class _Tries:
    """Of a kind of offer: chances that passed it by since its last round, and how many may until it gets a try."""

    passed: int = 0
    until: int = FIRST_LOOK


@dataclass(slots=True)
class _Brought:
    """Of a kind whose drafter stops by confidence: its rounds so far, faded, by number of drafts, and their tokens."""

    tokens: float = 0.0
    rounds: dict[int, float] = field(default_factory=dict)


class Controller:
    """`plan` before a round, `observe` after it."""

    def __init__(self, params: DecodingParams, profile: Profile) -> None:
        self._params = params
        self._times = RoundLatency(profile)
        self._by_position = ByPosition(dict(profile.acceptance))
        self._by_confidence = ByConfidence()
        self._tries: dict[str, _Tries] = {}
        self._brought: dict[str, _Brought] = {}
        self._since_look = LOOK_APART
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

        index: the round's number, from 1. budget_left, context_left: tokens that may still be emitted, at least 1; a round
        of k drafts emits up to k + 1. drafter_left: drafts that the drafter's own context has room for, None if unlimited.
        A round without drafts because there is nothing to offer, or no room for any, is SPECULATIVE all the same: its token
        counts in tau. PLAIN is one that was asked for or chosen.
        """
        wanted, every = self._params.num_speculative_tokens, self._params.probe_every
        if wanted == 0:
            return Plan(RoundKind.PLAIN, 0, KReason.FIXED)
        due = every > 0 and index >= FIRST_PROBE and (index - FIRST_PROBE) % every == 0
        if due and wanted is not None:
            return Plan(RoundKind.PROBE, 0, KReason.PROBE)
        limits = [
            (MAX_K, KReason.AUTO) if wanted is None else (wanted, KReason.FIXED),
            (budget_left - 1, KReason.BUDGET),
            (context_left - 1, KReason.CONTEXT),
        ]
        if drafter_left is not None:
            limits.append((max(0, drafter_left), KReason.DRAFTER_CONTEXT))
        limit, reason = min(limits, key=lambda one: one[0])
        if limit == 0 or not options:
            if due:
                return Plan(RoundKind.PROBE, 0, KReason.PROBE)
            return Plan(RoundKind.SPECULATIVE, 0, reason if limit == 0 else KReason.NO_OFFER)
        if wanted is not None:
            return self._fixed(options, limit, reason, budget_left)
        return self._auto(options, limit, reason, budget_left, due)

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
            brought = self._brought.setdefault(kind, _Brought())
            brought.tokens = RECENT * brought.tokens + tokens
            brought.rounds = {n: RECENT * weight for n, weight in brought.rounds.items()}
            brought.rounds[drafted] = brought.rounds.get(drafted, 0.0) + 1.0

    # -- choosing ----------------------------------------------------------------------------------------------------

    def _rate(self) -> float:
        """Tokens per second of this reply on the whole; at least plain decoding's, which can always be had."""
        return max(1.0, self._tokens / self._plain_rounds) / self._times.plain

    def _auto(
        self, options: Sequence[DraftOption], limit: int, reason: KReason, budget_left: int, probe_due: bool
    ) -> Plan:
        plain_s, rate = self._times.plain, self._rate()
        outlooks = {option: self._outlook(option, limit, rate) for option in options}
        best = max(outlooks.values(), key=lambda one: one.worth(rate))
        predicted = max(one.tokens / one.seconds for one in outlooks.values()) * plain_s
        chosen = best if best.worth(rate) > 1.0 - rate * plain_s else None
        if chosen is not None and probe_due:  # a plain round by choice measures the baseline as well
            return Plan(RoundKind.PROBE, 0, KReason.PROBE, predicted_speedup=predicted)
        look = self._look(options, chosen.option if chosen else None, budget_left)
        if look is not None:
            should_continue = self._should_continue(outlooks[look], rate)
            return Plan(RoundKind.SPECULATIVE, outlooks[look].k, KReason.EXPLORE, look, should_continue, predicted)
        if chosen is None:
            return Plan(RoundKind.PLAIN, 0, KReason.OFF, predicted_speedup=predicted)
        why = reason if chosen.k == limit else KReason.AUTO
        return Plan(RoundKind.SPECULATIVE, chosen.k, why, chosen.option, self._should_continue(chosen, rate), predicted)

    def _fixed(self, options: Sequence[DraftOption], limit: int, reason: KReason, budget_left: int) -> Plan:
        """K is given: the offer of which the most drafts should stand."""
        best = max(options, key=lambda option: sum(reach(self._by_position.rates(option.kind, limit))))
        look = self._look(options, best, budget_left)
        return Plan(RoundKind.SPECULATIVE, limit, KReason.EXPLORE if look else reason, look or best)

    def _outlook(self, option: DraftOption, limit: int, rate: float) -> _Outlook:
        """The best that can be expected of this offer, with k from 1 to limit."""
        rates = self._by_position.rates(option.kind, limit)
        times = self._times.rounds(option.drafter, len(rates))
        expected = [1.0 + accepted for accepted in accumulate(reach(rates))]
        _, k = max(
            (tokens - rate * seconds, k) for k, (tokens, seconds) in enumerate(zip(expected, times[1:], strict=True), 1)
        )
        brought = self._brought.get(option.kind)
        if brought is None:
            return _Outlook(option, k, expected[k - 1], times[k], rates, times)
        # It stops by itself, so it may have all the room there is, and its rounds so far say best what they bring.
        rounds = TRUST + sum(brought.rounds.values())
        tokens = TRUST * expected[k - 1] + brought.tokens
        seconds = TRUST * times[k] + sum(w * times[min(n, len(rates))] for n, w in brought.rounds.items())
        return _Outlook(option, len(rates), tokens / rounds, seconds / rounds, rates, times)

    def _should_continue(self, outlook: _Outlook, rate: float) -> ShouldContinue:
        """One more draft, or several, must bring more tokens than their time is worth."""
        kind, rates, times, by_confidence = outlook.option.kind, outlook.rates, outlook.times, self._by_confidence

        def should_continue(confidences: tuple[float, ...]) -> bool:
            chance, done, gain = 1.0, len(confidences), 0.0
            for confidence in confidences:
                chance *= by_confidence.rate(kind, confidence)
            for k in range(done + 1, len(times)):
                chance *= rates[k - 1]
                gain += chance
                if gain > rate * (times[k] - times[done]):
                    return True
            return False

        return should_continue

    def _look(self, options: Sequence[DraftOption], chosen: DraftOption | None, budget_left: int) -> DraftOption | None:
        """An offer that is due for a try; keeps count of the chances that passed the others by."""
        self._since_look += 1
        due: DraftOption | None = None
        for option in options:
            tries = self._tries.setdefault(option.kind, _Tries())
            if option == chosen:
                tries.passed, tries.until = 0, FIRST_LOOK
                continue
            tries.passed += 1
            if tries.passed >= tries.until and due is None:
                due = option
        if due is None or self._since_look < LOOK_APART or budget_left < LOOK_BUDGET:
            return None
        tries = self._tries[due.kind]
        tries.passed, tries.until = 0, min(2 * tries.until, LAST_LOOK)
        self._since_look = 0
        return due
