"""Logits -> probabilities. The only place where temperature, top-k, top-p, min-p, penalties and bias live.

Drafter and target both go through `probabilities`, so what a draft was drawn from is what it is tested against.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.config import SamplingParams
from engine.errors import NumericalError

_TOP_P_START = 256
"""top-p looks at so many best logits first and widens the look only where they do not hold enough mass."""

_COLDEST = 1e-30
"""Lower temperatures would be 0 in float32, and 0 / 0 is no probability. At this one nothing but the best is left already."""


def probabilities(logits: Tensor, history: Sequence[int], prompt_len: int, params: SamplingParams) -> Tensor:
    """Distribution of the next token for each row, float32 [n, V].

    logits [n, V]: row i follows all but the last n - 1 - i ids of `history` (prompt, reply and the drafts before
    that row), so penalties at row i see exactly the drafts before it. The reply begins at history[prompt_len].
    Order: penalties, bias, temperature, top-k, top-p, min-p. temperature 0 gives one-hot rows, made from an argmax.
    Raises NumericalError for NaN, +inf, or a row with nothing left to draw.
    """
    scores = _biased(_penalised(logits, history, prompt_len, params), params)
    best = scores.amax(dim=-1, keepdim=True)
    if not bool(torch.isfinite(best).all()):
        raise NumericalError(
            "The model's output is not a number; this reply ends here. Try again or choose another model."
        )
    if params.temperature == 0.0:
        likeliest = torch.from_numpy(scores.numpy().argmax(axis=-1))  # ten times as quick as torch's on a CPU
        return torch.zeros_like(scores).scatter_(-1, likeliest[:, None], 1.0)
    # Subtracting the row's best before the division keeps a tiny temperature from overflowing.
    scores = (scores - best) / max(params.temperature, _COLDEST)
    if 0 < params.top_k < scores.shape[-1]:
        kth = scores.topk(params.top_k, dim=-1).values[:, -1:]
        scores = scores.masked_fill(scores < kth, float("-inf"))
    probs = torch.softmax(scores, dim=-1)
    if params.top_p < 1.0:
        probs = probs.masked_fill(probs < _top_p_threshold(probs, params.top_p), 0.0)
    if params.min_p > 0.0:
        probs = probs.masked_fill(probs < params.min_p * probs.amax(dim=-1, keepdim=True), 0.0)
    if params.top_p < 1.0 or params.min_p > 0.0:
        probs = probs / probs.sum(dim=-1, keepdim=True)
    return probs


def _penalised(logits: Tensor, history: Sequence[int], prompt_len: int, params: SamplingParams) -> Tensor:
    """Repetition penalty (Keskar et al., arXiv:1909.05858, section 4.1) over prompt and reply; frequency and presence over the reply."""
    if params.repetition_penalty == 1.0 and params.frequency_penalty == 0.0 and params.presence_penalty == 0.0:
        return logits
    scores = logits.clone()
    n, vocab_size = scores.shape
    ids = torch.as_tensor(history, dtype=torch.long, device=scores.device)
    for i in range(n):
        row, seen = scores[i], ids[: len(ids) - (n - 1 - i)]
        if params.repetition_penalty != 1.0:
            present = torch.unique(seen)
            values = row[present]
            row[present] = torch.where(
                values > 0, values / params.repetition_penalty, values * params.repetition_penalty
            )
        if params.frequency_penalty or params.presence_penalty:
            counts = torch.bincount(seen[prompt_len:], minlength=vocab_size)
            row -= params.frequency_penalty * counts + params.presence_penalty * (counts > 0)
    return scores


def _biased(scores: Tensor, params: SamplingParams) -> Tensor:
    """Add the biases; -100 is a ban."""
    if not params.logit_bias:
        return scores
    ids = torch.tensor([token_id for token_id, _ in params.logit_bias], device=scores.device)
    biases = [float("-inf") if bias <= -100.0 else bias for _, bias in params.logit_bias]
    return scores.index_add(-1, ids, torch.tensor(biases, device=scores.device).expand(len(scores), -1))


def _top_p_threshold(probs: Tensor, top_p: float) -> Tensor:
    """For each row the probability of the last token of the smallest set of likeliest tokens whose mass reaches top_p, [n, 1].

    Tokens as likely as that one are all kept, so the set depends on the row alone.
    """
    width = min(_TOP_P_START, probs.shape[-1])
    while True:
        top = probs.topk(width, dim=-1).values
        running = top.cumsum(dim=-1)
        if width == probs.shape[-1] or bool((running[:, -1] >= top_p).all()):
            reached = (running < top_p).sum(dim=-1, keepdim=True).clamp_max(width - 1)
            return top.gather(-1, reached)
        width = min(width * 8, probs.shape[-1])
