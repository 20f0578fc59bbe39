"""Any smaller causal model with the target's tokeniser as the drafter (Leviathan et al., arXiv:2211.17192)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.config import SamplingParams
from engine.drafters import GoOn, Offer, always
from engine.model import Cache, Model, Request
from engine.randomness import Dice, Purpose
from engine.sampling import likeliest, probabilities
from engine.verify import Proposal


class DraftModelDrafter:
    """Draws token after token from its own model, over its own cache, aligned on read like the target's."""

    name = "draft_model"
    feature_layers: tuple[int, ...] = ()

    def __init__(self, model: Model, cache: Cache) -> None:
        self._model = model
        self._cache = cache
        self.context_len: int | None = model.context_len

    def offers(self, ids: Sequence[int]) -> tuple[Offer, ...]:
        return (Offer(self.name, self.name),)

    def propose(
        self,
        offer: Offer,
        ids: Sequence[int],
        prompt_len: int,
        features: Tensor | None,
        k: int,
        params: SamplingParams,
        dice: Dice,
        go_on: GoOn = always,
    ) -> Proposal:
        text = list(ids)
        rows: list[Tensor] = []
        raw: list[Tensor] = []
        confidences: tuple[float, ...] = ()
        while len(rows) < k and (not rows or go_on(confidences)):
            [logits] = self._model.forward([Request(text, 1, self._cache)])
            probs = probabilities(logits, text, prompt_len, params)
            text.append(dice.draw(probs[0], len(text), Purpose.DRAFT))
            rows.append(probs)
            raw.append(logits[0])
            confidences += (likeliest(logits[0])[1],)
        if not rows:
            return Proposal()
        drafts = tuple(text[len(ids) :])
        return Proposal(drafts, torch.cat(rows), raw, confidences, drafts)
