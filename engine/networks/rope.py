"""Rotary position embeddings (Su et al., arXiv:2104.09864)."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.networks.llama_shape import LlamaShape


def rope_tables(shape: LlamaShape, begin: int = 0, end: int | None = None) -> tuple[Tensor, Tensor]:
    """Cosines and sines of positions begin..end (the whole context by default), [positions, dim / 2] each.

    float32 from float64 angles (Su et al., arXiv:2104.09864).
    """
    speeds = torch.tensor(shape.rope_speeds, dtype=torch.float64)
    angles = torch.arange(begin, shape.context_len if end is None else end, dtype=torch.float64)[:, None] * speeds
    return (angles.cos() * shape.rope_scale).float(), (angles.sin() * shape.rope_scale).float()
