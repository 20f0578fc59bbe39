"""What every drafter is: something that proposes tokens and says truthfully what it drew them from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from engine.config import SamplingParams
from engine.randomness import Dice
from engine.verify import Proposal


class Drafter(Protocol):
    """One instance serves one reply; it may keep what it learns of the reply's ids, which only ever grow.

    context_len: longest ids + drafts it can read, None if it does not matter.
    """

    name: str
    context_len: int | None

    def propose(
        self, ids: Sequence[int], prompt_len: int, features: Tensor | None, k: int, params: SamplingParams, dice: Dice
    ) -> Proposal:
        """At most k tokens to follow `ids` (prompt and reply so far; the reply begins at prompt_len).

        `features`: hidden states of the target for drafters that ask for them, else None. Tokens must be drawn through
        `dice` from `sampling.probabilities`, and the Proposal must hold those very distributions.
        """
        ...
