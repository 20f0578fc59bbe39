"""What every drafter is: something that proposes tokens and says truthfully what it drew them from."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from engine.config import SamplingParams
from engine.rng import KeyedRng


class ProbRows(Protocol):
    """Distributions by row: a tensor [n, V], or whatever makes a row [V] when it is asked for one."""

    def __getitem__(self, i: int, /) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a drafter proposes: k token ids and the very distributions that they were drawn from.

    probs: k rows over the drafter's own vocabulary; None: point masses on the ids (a drafter that looks up instead of
    predicting). confidences: for each draft the largest probability of its row at temperature 1 without filters, which
    does not depend on what was drawn; none for a drafter that looks up. raw_logits, for showing only: what a drafter
    with confidences made the draft from, one row over its own vocabulary for each. vocabulary [entries of a row]: what
    the target calls each of them, no two the same; None: its own ids. raw_ids: which entry each draft is, where there
    are raw_logits.
    """

    token_ids: tuple[int, ...] = ()
    probs: ProbRows | None = None
    raw_logits: Sequence[Tensor] | None = None
    confidences: tuple[float, ...] = ()
    raw_ids: tuple[int, ...] = ()
    vocabulary: Tensor | None = None

    def prob(self, i: int) -> float:
        """Draft probability of the i-th token."""
        if self.probs is None:
            return 1.0
        return float(self.probs[i][self.token_ids[i] if self.vocabulary is None else self.raw_ids[i]])

    def raw_prob(self, i: int) -> float | None:
        """The drafter's probability of the i-th token at temperature 1 without filters; None where it looks up."""
        if self.raw_logits is None:
            return None
        if self.probs is None:  # drafted because it is the likeliest
            return self.confidences[i]
        row = self.raw_logits[i].numpy()
        return self.confidences[i] * math.exp(float(row[self.raw_ids[i]]) - float(row.max()))


ShouldContinue = Callable[[tuple[float, ...]], bool]
"""Asked after each draft with the confidences so far: is one more draft worth its time?

Each is the drafter's largest probability at temperature 1, so no answer can depend on the value of the latest draft;
and a drawn draft is never taken back, which would bend the distribution.
"""


def always(confidences: tuple[float, ...]) -> bool:
    """Goes on to the k drafts that were asked for."""
    return True


@dataclass(frozen=True, slots=True)
class DraftContext:
    """What a drafter sees. ids: prompt and reply so far; the reply begins at prompt_len.

    features: [len(ids) - 1, feature layers, hidden], the target's hidden states at all positions but the last, for
    drafters with feature_layers, else None. sampling, rng: the target's own settings, and the random numbers of this
    round.
    """

    ids: Sequence[int]
    prompt_len: int
    features: Tensor | None
    sampling: SamplingParams
    rng: KeyedRng


@dataclass(frozen=True, slots=True)
class DraftOption:
    """Something that a drafter could propose now.

    drafter: whose it is, "ngram", "head" or "draft_model" (`Round.drafter`). kind: guesses that are about equally good
    share one, such as "ngram 3-4" (by length of the match); what is learnt of their acceptance is kept by kind.
    """

    drafter: str
    kind: str


class Drafter(Protocol):
    """One instance serves one reply; it may keep what it learns of the reply's ids, which only ever grow.

    context_len: longest ids + drafts it can read, None if it does not matter. feature_layers: whose hidden states of
    the target it reads, numbered as `KVCache.feature_layers`; () for none.
    """

    name: str
    context_len: int | None
    feature_layers: tuple[int, ...]

    def options(self, ids: Sequence[int]) -> tuple[DraftOption, ...]:
        """What it could propose to follow `ids`, at little cost; () if nothing."""
        ...

    def propose(
        self, option: DraftOption, context: DraftContext, k: int, should_continue: ShouldContinue = always
    ) -> Proposal:
        """At most k tokens to follow `context.ids`. option: one of `options(context.ids)`.

        Tokens must be drawn through `context.rng` from `sampling.probabilities`, and the Proposal must hold those very
        distributions. A drafter that predicts gives confidences and asks should_continue after each draft but the k-th;
        one that looks up gives point masses and does not ask.
        """
        ...
