"""A trained head that drafts from the target's own hidden states (EAGLE-3, arXiv:2503.01840).

Entry t of the head is made of the target's features at position t and the token at t + 1. Entries behind those, which a
draft step makes from the head's own output, are scratch: the next round makes them anew from the target's features, or
acceptance would decay silently though every token id agrees.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from engine.config import SamplingParams
from engine.drafters.protocol import DraftContext, DraftOption, Proposal, ShouldContinue, always
from engine.heads.eagle3 import Head
from engine.networks.kv_cache import KVCache, common_prefix
from engine.networks.model import PREFILL_CHUNK
from engine.rng import Purpose
from engine.sampling import probabilities

TOGETHER = 8
"""So many entries at most are run in full together; of those before them only keys and values are needed."""


class HeadDrafter:
    """Drafts of one reply. cache: the conversation's entries; its ids are those whose entries came from features."""

    name = "head"

    def __init__(self, head: Head, cache: KVCache, vocab_size: int) -> None:
        self._head, self._cache, self._vocab_size = head, cache, vocab_size
        self.context_len: int | None = head.config.shape.context_len
        self.feature_layers = head.config.feature_layers
        self._ids = head.ids.numpy()
        self._broken = False  # it has given what is no number

    def options(self, ids: Sequence[int]) -> tuple[DraftOption, ...]:
        return (DraftOption(self.name, self.name),) if len(ids) > 1 and not self._broken else ()

    @torch.inference_mode()
    def propose(
        self, option: DraftOption, context: DraftContext, k: int, should_continue: ShouldContinue = always
    ) -> Proposal:
        params, features = context.sampling, context.features
        if k == 0 or features is None or (params.logit_bias and _all_banned(self._ids.tolist(), params)):
            return Proposal()
        head, ids = self._head, list(context.ids)
        state = self._catch_up(ids, features)
        prob_rows: list[Tensor] = []
        raw_logits: list[Tensor] = []
        confidences: list[float] = []
        entries: list[int] = []
        greedy = params.greedy and not _depends_on_ids(params)
        for i in range(k):
            logits = head.logits(state)
            likeliest, confidence = head.choice(logits)
            if not math.isfinite(confidence):
                self._broken = True  # the reply goes on without drafts of the head, and another try finds a clean cache
                self._cache.clear()
                break
            if greedy:  # a point mass on the likeliest: `probabilities` would say so, too
                entries.append(likeliest)
            else:
                prob_rows.append(self._row(logits, ids, context))
                entries.append(context.rng.draw(prob_rows[-1], len(ids), Purpose.DRAFT, self._ids))
            ids.append(int(self._ids[entries[-1]]))
            raw_logits.append(logits[0])
            confidences.append(confidence)
            if i + 1 == k or not should_continue(tuple(confidences)):
                break
            state = head.run(_ids_tensor(ids[-1:]), head.next_input(state), len(ids) - 2, self._cache)
        drafts = tuple(ids[len(context.ids) :])
        return Proposal(
            drafts, None if greedy else prob_rows, raw_logits, tuple(confidences), tuple(entries), self._head.ids
        )

    def _catch_up(self, ids: list[int], features: Tensor) -> Tensor:
        """Make the entries that are missing, all of them from features. Returns the last one's state, [1, hidden]."""
        cache, head, end = self._cache, self._head, len(ids) - 1
        begin = max(0, min(common_prefix(cache.ids, ids) - 1, end - 1))
        del cache.ids[begin + 1 :]
        tokens = _ids_tensor(ids[begin + 1 :])
        state = torch.empty(0)
        while begin < end:
            entries_left = end - begin
            count = entries_left if entries_left <= TOGETHER else min(PREFILL_CHUNK, entries_left - 1)
            inputs = head.join(features[begin : begin + count])
            state = head.run(tokens[:count], inputs, begin, cache, keys_only=count < entries_left)
            tokens, begin = tokens[count:], begin + count
        cache.ids[:] = ids
        return state[-1:]

    def _row(self, logits: Tensor, text: list[int], context: DraftContext) -> Tensor:
        """The distribution over the draft vocabulary, of what may be drafted under the request's settings."""
        settings = (context.prompt_len, context.sampling, context.rng.native)
        if _depends_on_ids(context.sampling):
            return probabilities(self._scatter(logits), text, *settings)[0][self._head.ids]
        return probabilities(logits, text, *settings)[0]

    def _scatter(self, logits: Tensor) -> Tensor:
        """[n, draft vocabulary] -> [n, V]; what the head cannot draft has no chance."""
        logits_over_target = torch.full((len(logits), self._vocab_size), float("-inf"))
        logits_over_target[:, self._head.ids] = logits
        return logits_over_target


def _ids_tensor(ids: Sequence[int]) -> Tensor:
    """int64 [n]; by way of numpy, which takes a list in a tenth of the time."""
    return torch.from_numpy(np.array(ids, np.int64))


def _depends_on_ids(params: SamplingParams) -> bool:
    """Whether penalties or biases name ids of the target's vocabulary."""
    penalties = (params.repetition_penalty != 1.0, params.frequency_penalty, params.presence_penalty, params.logit_bias)
    return any(penalties)


def _all_banned(ids: Sequence[int], params: SamplingParams) -> bool:
    """Whether the request forbids every token that the head could draft."""
    bans = {token_id for token_id, bias in params.logit_bias if bias <= -100.0}
    return len(bans) >= len(ids) and bans.issuperset(ids)
