"""The training-time test: every step of a draft chain for all positions at once (EAGLE-3,
arXiv:2503.01840, section 3.2).

A chain begins behind each token of a reply. Its first step reads the target's states; step j reads what step j - 1
gave, and the token that really came. It attends to the entries that were made from the target's states up to where the
chain began, and to the chain's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.heads import eagle3
from engine.heads.eagle3 import HeadConfig, Weights
from engine.networks.rope import rope_tables


@dataclass(frozen=True, slots=True)
class Example:
    """A dialogue of T tokens. ids int64 [T]; features float32 [T, layers, hidden]; last float32 [T, hidden], the
    target's last output before its final norm. Chains begin at entries `first`..T-2, where first >= 0, or at those of
    them that `starts` names, rising."""

    ids: Tensor
    features: Tensor
    last: Tensor
    first: int
    starts: Tensor | None = None


@dataclass(frozen=True, slots=True)
class ChainStep:
    """One step of all chains: logits [chains, draft vocabulary]; target, the same of the target
    (soft), as probabilities.

    valid [chains]: where there was still something to predict; actual [chains]: the token that came, an id of the
    target.
    """

    logits: Tensor
    target: Tensor
    valid: Tensor
    actual: Tensor


class Trainee:
    """The head with its target's frozen tables: embedding [V, hidden], norm [hidden], and the rows of the target's
    output matrix that the draft vocabulary keeps (`weights["lm_head.weight"]`, frozen)."""

    def __init__(self, config: HeadConfig, weights: Weights, embedding: Tensor, target_norm: Tensor) -> None:
        self.config, self.weights = config, weights
        self._embedding, self._target_norm = embedding, target_norm
        self._cosine, self._sine = rope_tables(config.shape)

    def chains(
        self, examples: Sequence[Example], steps: int, later_share: float = 1.0, rng: torch.Generator | None = None
    ) -> list[ChainStep]:
        """All steps of all chains of several dialogues; what is no attention runs over all of them together.

        later_share: so large a share of the chains, drawn with `rng`, goes on behind the first step.
        """
        config, weights = self.config, self.weights
        counts = [len(e.ids) - 1 for e in examples]
        state = eagle3.join(weights, config, torch.cat([e.features[:-1] for e in examples]))
        embedded = self._embedding[torch.cat([e.ids[1:] for e in examples])]
        x, residual = eagle3.attention_input(weights, config, embedded, state)
        positions = torch.cat([torch.arange(n) for n in counts])
        keys = torch.split(self._rotate(eagle3.project(weights, config, 0, x, "k"), positions), counts)
        values = torch.split(eagle3.project(weights, config, 0, x, "v"), counts)
        starts = [
            torch.arange(e.first, n) if e.starts is None else e.starts for e, n in zip(examples, counts, strict=True)
        ]
        rows = torch.cat([s + sum(counts[:i]) for i, s in enumerate(starts)])  # of the chains among all entries
        x, residual = x[rows], residual[rows]
        target = self._target(examples)
        step_entries: list[tuple[Tensor, Tensor]] = []
        chain_steps = []
        for j in range(steps):
            if j == 1 and later_share < 1.0:
                state, starts = _sample_chains(state, starts, later_share, rng)
            position = torch.cat(starts) + j
            if j:
                ids = torch.cat([_ahead(e.ids, s, 1 + j) for e, s in zip(examples, starts, strict=True)])
                x, residual = eagle3.attention_input(weights, config, self._embedding[ids], state)
                key = self._rotate(eagle3.project(weights, config, 0, x, "k"), position)
                step_entries.append((key, eagle3.project(weights, config, 0, x, "v")))
            queries = self._rotate(eagle3.project(weights, config, 0, x, "q"), position)
            state = eagle3.finish_layer(
                weights, config, 0, residual, _attend(queries, keys, values, step_entries, starts)
            )
            chain_steps.append(self._step(examples, starts, state, target, j))
            state = eagle3.next_input(weights, config, state)
        return chain_steps

    def _rotate(self, heads: Tensor, positions: Tensor) -> Tensor:
        return eagle3.rotate(heads, self._cosine[positions], self._sine[positions])

    @torch.no_grad()
    def _target(self, examples: Sequence[Example]) -> list[Tensor]:
        """For each dialogue, the target's distribution over the draft vocabulary at positions first + 1..T-1."""
        last = torch.cat([e.last[e.first + 1 :] for e in examples])
        normed = eagle3.rms_norm(last, self._target_norm, self.config.shape.epsilon)
        probs = F.linear(normed, self.weights["lm_head.weight"]).softmax(-1)
        return list(torch.split(probs, [len(e.ids) - e.first - 1 for e in examples]))

    def _step(
        self, examples: Sequence[Example], starts: Sequence[Tensor], state: Tensor, target: Sequence[Tensor], j: int
    ) -> ChainStep:
        """Behind entry t + j the head predicts token t + 2 + j, as the target does at position t + 1 + j."""
        valid, actual, probs = [], [], []
        for e, s, p in zip(examples, starts, target, strict=True):
            valid.append(s + 2 + j < len(e.ids))  # what would follow the last token is not known
            actual.append(_ahead(e.ids, s, 2 + j))
            probs.append(p[(s - e.first + j).clamp(max=len(p) - 1)])
        logits = eagle3.logits(self.weights, self.config, state)
        return ChainStep(logits, torch.cat(probs), torch.cat(valid), torch.cat(actual))


def _sample_chains(
    state: Tensor, starts: Sequence[Tensor], share: float, rng: torch.Generator | None
) -> tuple[Tensor, list[Tensor]]:
    """State and starts of so large a share of the chains."""
    keep = torch.rand(len(state), generator=rng) < share
    masks = torch.split(keep, [len(s) for s in starts])
    return state[keep], [s[mask] for s, mask in zip(starts, masks, strict=True)]


def _ahead(ids: Tensor, starts: Tensor, distance: int) -> Tensor:
    """Token t + distance for each chain that begins at t; the last token where there is none."""
    return ids[(starts + distance).clamp(max=len(ids) - 1)]


def _attend(
    queries: Tensor,
    keys: Sequence[Tensor],
    values: Sequence[Tensor],
    step_entries: Sequence[tuple[Tensor, Tensor]],
    starts: Sequence[Tensor],
) -> Tensor:
    """queries [chains, heads, dim]. keys, values: [entries, kv heads, dim] of each dialogue, of which a chain that
    begins at t sees those up to t. step_entries: keys and values [chains, kv heads, dim] of each later step. Returns
    [chains, heads * dim]."""
    counts = [len(s) for s in starts]
    own_entries = [(torch.split(k, counts), torch.split(v, counts)) for k, v in step_entries]
    outputs = []
    for i, (query, start) in enumerate(zip(torch.split(queries, counts), starts, strict=True)):
        entries, kv, dim = keys[i].shape
        q = query.view(len(query), kv, query.shape[1] // kv, dim) * dim**-0.5  # [chains, kv heads, group, dim]
        scores = torch.einsum("ckgd,ekd->kgce", q, keys[i])
        scores = scores.masked_fill(torch.arange(entries) > start[:, None], float("-inf"))
        later = [torch.einsum("ckgd,ckd->kgc", q, k[i])[..., None] for k, _ in own_entries]
        weights = torch.cat([scores, *later], dim=-1).softmax(-1)
        out = torch.einsum("kgce,ekd->ckgd", weights[..., :entries], values[i])
        for j, (_, v) in enumerate(own_entries):
            out = out + weights[..., entries + j].permute(2, 0, 1)[..., None] * v[i][:, :, None]
        outputs.append(out.flatten(1))
    return torch.cat(outputs)


def loss(steps: Sequence[ChainStep], decay: float) -> Tensor:
    """Cross entropy to the target's distribution, over all valid chains; later steps count less."""
    total = torch.zeros(())
    for j, step in enumerate(steps):
        entropy = -(step.target * F.log_softmax(step.logits, dim=-1)).sum(-1)
        total = total + decay**j * (entropy * step.valid).sum() / step.valid.sum().clamp(min=1)
    return total
