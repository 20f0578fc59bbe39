"""Any smaller causal model with the target's tokeniser as the drafter (Leviathan et al., arXiv:2211.17192)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.config import SamplingParams
from engine.model import Cache, Model, Request
from engine.randomness import Dice, Purpose
from engine.sampling import probabilities
from engine.verify import Proposal


class DraftModelDrafter:
    """Draws token after token from its own model, over its own cache, aligned on read like the target's."""

    name = "draft_model"

    def __init__(self, model: Model, cache: Cache) -> None:
        self._model = model
        self._cache = cache
        self.context_len: int | None = model.context_len

    def propose(
        self, ids: Sequence[int], prompt_len: int, features: Tensor | None, k: int, params: SamplingParams, dice: Dice
    ) -> Proposal:
        text = list(ids)
        rows: list[Tensor] = []
        raw: list[Tensor] = []
        for _ in range(k):
            [logits] = self._model.forward([Request(text, 1, self._cache)])
            probs = probabilities(logits, text, prompt_len, params)
            text.append(dice.draw(probs[0], len(text), Purpose.DRAFT))
            rows.append(probs)
            raw.append(logits)
        if not rows:
            return Proposal()
        return Proposal(tuple(text[len(ids) :]), torch.cat(rows), torch.cat(raw))
