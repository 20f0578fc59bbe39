"""Two drafters at once: one that copies where it can, and one that always has a guess. The controller
chooses between them."""

from __future__ import annotations

from collections.abc import Sequence

from engine.config import MAX_K
from engine.drafters.protocol import DraftContext, Drafter, DraftOption, Proposal, ShouldContinue, always


class CombinedDrafter:
    """The options of both; a proposal by the drafter whose option it is."""

    name = "both"
    context_len: int | None = None

    def __init__(self, ngram: Drafter, head: Drafter) -> None:
        self._ngram, self._head = ngram, head
        self.feature_layers = head.feature_layers

    def options(self, ids: Sequence[int]) -> tuple[DraftOption, ...]:
        """The copy first. Where the head's context might not hold another round, the copies go on alone."""
        room = self._head.context_len is None or len(ids) + MAX_K <= self._head.context_len
        return self._ngram.options(ids) + (self._head.options(ids) if room else ())

    def propose(
        self, option: DraftOption, context: DraftContext, k: int, should_continue: ShouldContinue = always
    ) -> Proposal:
        """`ngram.propose` for its options, `head.propose` for all others."""
        drafter = self._ngram if option.drafter == self._ngram.name else self._head
        return drafter.propose(option, context, k, should_continue)
