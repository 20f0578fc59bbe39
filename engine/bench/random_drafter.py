"""A drafter that is useless on purpose, so that anyone can measure that speculation left to itself does not lose."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.config import EngineConfig
from engine.drafters.ngram import MATCH_KINDS
from engine.drafters.protocol import DraftContext, Drafter, DraftOption, Proposal, ShouldContinue, always
from engine.serving.engine import Engine
from engine.serving.load_pair import Loader

if TYPE_CHECKING:
    from engine.serving.jobs import ReplyJob

PROMISING = DraftOption("ngram", MATCH_KINDS[0][1])
"""What it says where the real drafter has nothing: the most promising thing there is."""


class RandomDrafter:
    """A real drafter whose every option is kept and whose every draft is replaced by a random token.

    It costs what the real one costs, and is taken for it until the target has tested some drafts. The tokens depend on
    nothing but the seed and the place, so they are point masses and the text stays what it would be without.
    """

    def __init__(self, real: Drafter, vocab_size: int, seed: int) -> None:
        self._real, self._vocab_size, self._seed = real, vocab_size, seed
        self.name, self.context_len, self.feature_layers = real.name, real.context_len, real.feature_layers

    def options(self, ids: Sequence[int]) -> tuple[DraftOption, ...]:
        """The real ones; where there are none, one that promises most: the worst case is to be tried at every place."""
        return self._real.options(ids) or (PROMISING,)

    def propose(
        self, option: DraftOption, context: DraftContext, k: int, should_continue: ShouldContinue = always
    ) -> Proposal:
        """As many as the real drafter proposes, k where it has nothing, with its confidences."""
        real = self._real.propose(option, context, k, should_continue)
        rng = random.Random(self._seed * 1_000_003 + len(context.ids))
        count = len(real.token_ids) or k
        token_ids = tuple(rng.randrange(self._vocab_size) for _ in range(count))
        return Proposal(token_ids, confidences=real.confidences)


class RandomDraftsEngine(Engine):
    """An engine like any other but for its drafters."""

    def __init__(self, config: EngineConfig, seed: int, load: Loader | None = None) -> None:
        self._seed = seed
        super().__init__(config, load)

    def _drafter(self, job: ReplyJob) -> Drafter | None:
        real = super()._drafter(job)
        return real and RandomDrafter(real, self._pair_in_use().pair.target.tokenizer.vocab_size, self._seed)
