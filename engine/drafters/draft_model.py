"""Any smaller causal model with the target's tokeniser as the drafter (Leviathan et al., arXiv:2211.17192).

Both may have rows of weights that only pad their vocabularies, and not the same number of them. Each knows its own real
ids; drafts are drawn from those that both have, and their distribution is over the target's.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.drafters.protocol import DraftContext, DraftOption, Proposal, ShouldContinue, always
from engine.networks.kv_cache import KVCache
from engine.networks.model import Model, Request
from engine.rng import Purpose
from engine.sampling import likeliest, probabilities


class DraftModelDrafter:
    """Draws token after token from its own model, over its own cache, aligned on read like the target's.

    vocab_size: the target's real ids; None where they are as many as the model's own.
    """

    name = "draft_model"
    feature_layers: tuple[int, ...] = ()

    def __init__(self, model: Model, cache: KVCache, vocab_size: int | None = None) -> None:
        self._model = model
        self._cache = cache
        self._vocab_size = model.vocab_size if vocab_size is None else vocab_size
        self._num_checked = 0  # so many ids are known to be the model's own
        self.context_len: int | None = model.context_len

    def options(self, ids: Sequence[int]) -> tuple[DraftOption, ...]:
        """Nothing any more once the text holds an id that the model does not have."""
        if self._vocab_size > self._model.vocab_size:
            if max(ids[self._num_checked :], default=0) >= self._model.vocab_size:
                return ()
            self._num_checked = max(self._num_checked, len(ids))
        return (DraftOption(self.name, self.name),)

    def propose(
        self, option: DraftOption, context: DraftContext, k: int, should_continue: ShouldContinue = always
    ) -> Proposal:
        ids, rng = list(context.ids), context.rng
        prob_rows: list[Tensor] = []
        raw_logits: list[Tensor] = []
        confidences: tuple[float, ...] = ()
        while len(prob_rows) < k and (not prob_rows or should_continue(confidences)):
            [logits] = self._model.forward([Request(ids, 1, self._cache)])
            logits = _resize_vocab(logits, self._vocab_size)
            probs = probabilities(logits, ids, context.prompt_len, context.sampling, rng.native)
            ids.append(rng.draw(probs[0], len(ids), Purpose.DRAFT))
            prob_rows.append(probs)
            raw_logits.append(logits[0])
            confidences += (likeliest(logits[0])[1],)
        if not prob_rows:
            return Proposal()
        drafts = tuple(ids[len(context.ids) :])
        return Proposal(drafts, torch.cat(prob_rows), raw_logits, confidences, drafts)


def _resize_vocab(logits: Tensor, vocab_size: int) -> Tensor:
    """[n, the model's ids] -> [n, vocab_size]: what the target does not have is cut off, what the model does not
    have has no chance."""
    missing = vocab_size - logits.shape[1]
    return F.pad(logits, (0, missing), value=float("-inf")) if missing else logits  # pad by less than nothing cuts
