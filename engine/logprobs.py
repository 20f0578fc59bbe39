"""The numbers behind a token that decoding itself does not need. Timed apart from decoding."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from engine.config import Detail
from engine.drafters.protocol import ProbRows, Proposal
from engine.events import Choice, RecoveryDetail, TokenDetail
from engine.networks.model import RawProbs
from engine.verify import Verdict

TOP = 5

GROUP = 64
"""Numbers that `largest` takes together."""

RARE = 1e-6
"""A probability below is too coarse a number for others to be told from it."""

Array = np.ndarray[Any, Any]

Describe = Callable[[int], str]
"""How a token of a top list is written."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is behind a round. raw_probs: the target's of each token that the verdict emits; details: of
    each tested draft."""

    raw_probs: tuple[float, ...] = ()
    details: tuple[TokenDetail, ...] = ()
    recovery: RecoveryDetail | None = None


@dataclass(frozen=True, slots=True)
class Explainer:
    """Explains the rounds of one reply, as far as the level asks for.

    greedy: the rows after temperature and filters are 1 and 0 only, so the drafts' top lists are those before.
    """

    level: Detail
    raw_probs: RawProbs
    describe: Describe
    greedy: bool = False

    def explain(self, proposal: Proposal, verdict: Verdict, logits: Tensor, target_probs: ProbRows) -> Explanation:
        """logits [k + 1, V]: the target's raw rows, of which only those that were needed are read."""
        if self.level == Detail.OFF:
            return Explanation()
        n, num_tested = verdict.num_accepted, len(verdict.tests)
        probs = self.raw_probs(logits, (*range(num_tested), n), (*proposal.token_ids[:num_tested], verdict.next_id))
        details = tuple(TokenDetail(proposal.raw_prob(i), probs[i]) for i in range(num_tested))
        emitted_probs = (*probs[:n], probs[-1])
        if self.level == Detail.PROBS:
            return Explanation(emitted_probs, details)
        if self.greedy:
            tops = [
                (_raw_draft_top(i, proposal, self.describe), self._raw_top(logits, i, proposal.token_ids[i], probs[i]))
                for i in range(num_tested)
            ]
        else:
            tops = [
                (_draft_top(i, proposal, self.describe), top_choices(target_probs[i], self.describe))
                for i in range(num_tested)
            ]
        full_details = tuple(
            replace(detail, draft_top=draft_top, target_top=target_top)
            for detail, (draft_top, target_top) in zip(details, tops, strict=True)
        )
        raw_top = self._raw_top(logits, n, verdict.next_id, probs[-1])
        recovery = RecoveryDetail(top_choices(verdict.last_probs, self.describe), verdict.last_uniform, raw_top)
        return Explanation(emitted_probs, full_details, recovery)

    def _raw_top(self, logits: Tensor, i: int, token_id: int, prob: float) -> tuple[Choice, ...]:
        """The likeliest of softmax(logits[i]), those of probability 0 left out. prob: the share of token_id in it.

        From one share all others follow by their logits' distance, so the row need not be summed again.
        """
        row = logits[i].numpy()
        ids = largest(row, TOP)
        if prob < RARE:
            token_id = ids[0]
            [prob] = self.raw_probs(logits, (i,), (token_id,))
        shares = _shares(row, ids, token_id, prob)
        return tuple(Choice(n, self.describe(n), share) for n, share in zip(ids, shares, strict=True) if share > 0)


def _draft_top(i: int, proposal: Proposal, describe: Describe) -> tuple[Choice, ...]:
    if proposal.probs is not None:
        return top_choices(proposal.probs[i], describe, vocabulary=proposal.vocabulary)
    token_id = proposal.token_ids[i]
    return (Choice(token_id, describe(token_id), 1.0),)


def _raw_draft_top(i: int, proposal: Proposal, describe: Describe) -> tuple[Choice, ...]:
    """The drafter's likeliest tokens at temperature 1 without filters; the draft alone where it looks up."""
    if proposal.raw_logits is None:
        return _draft_top(i, proposal, describe)
    row = proposal.raw_logits[i].numpy()
    entries = largest(row, TOP)
    shares = _shares(row, entries, entries[0], proposal.confidences[i])
    ids = entries if proposal.vocabulary is None else proposal.vocabulary[entries].tolist()
    return tuple(Choice(n, describe(n), share) for n, share in zip(ids, shares, strict=True) if share > 0)


def top_choices(
    probs: Tensor, describe: Describe, n: int = TOP, vocabulary: Tensor | None = None
) -> tuple[Choice, ...]:
    """The n likeliest of a row [V] of any positive total, normalised; those with probability 0 left out. vocabulary:
    as in `Proposal`."""
    row = probs.numpy()
    entries = [i for i in largest(row, n) if row[i] > 0]
    ids = entries if vocabulary is None else vocabulary[entries].tolist()
    total = float(row.sum())
    return tuple(Choice(n, describe(n), float(row[i]) / total) for i, n in zip(entries, ids, strict=True))


def _shares(row: Array, places: list[int], reference: int, prob: float) -> list[float]:
    """Of the softmax of a row, at each place, where that of one place is known."""
    return [min(1.0, prob * math.exp(float(row[place]) - float(row[reference]))) for place in places]


def largest(row: Array, n: int) -> list[int]:
    """Indices of the n largest numbers of a row [V], the largest first.

    They lie in the n groups whose largest numbers are largest, and only those are sorted: the row is read once, at full
    width, since a group is a column of the row laid out as a table.
    """
    width = min(len(row), max(n, len(row) // GROUP))
    table_len = len(row) // width * width
    maxima = row[:table_len].reshape(-1, width).max(axis=0)
    columns = np.argpartition(maxima, -n)[-n:] if width > n else np.arange(width)
    candidates = np.concatenate(
        [np.add.outer(np.arange(0, table_len, width), columns).ravel(), np.arange(table_len, len(row))]
    )
    indices: list[int] = candidates[np.argsort(-row[candidates], kind="stable")[:n]].tolist()
    return indices
