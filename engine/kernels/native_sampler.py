"""Sampling on the native kernels, for models that run on them. Its twins in numpy and torch are in `sampling` and
`rng`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

Array = np.ndarray[Any, Any]


class NativeSampler:
    """Works on rows of the vocabulary's length. Rows are float32, one number behind the other."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def distribution(
        self, scores: Array, temperature: float, top_k: int, top_p: float, min_p: float, out: Array
    ) -> bool:
        """The distribution of one row of scores [V] into out [V], which holds zeros. temperature: above 0.

        False where the row holds NaN or +inf, or nothing above -inf.
        """
        filters = (temperature, top_k, top_p, min_p)
        return not self._library.gl_distribution(scores.ctypes.data, len(scores), *filters, out.ctypes.data)

    def draw(self, probs: Array, u: float) -> int:
        """The index at which the running sum of probs [V] passes u times its total."""
        return int(self._library.gl_draw(probs.ctypes.data, len(probs), u))

    def raw_probs(self, logits: Tensor, rows: Sequence[int], ids: Sequence[int]) -> list[float]:
        """See `sampling.raw_probs`; the rows must rise. To about six digits."""
        count, contiguous_logits = len(ids), logits.contiguous()
        index_array, out = (ctypes.c_int32 * count), (ctypes.c_double * count)()
        self._library.gl_raw_probs(
            contiguous_logits.data_ptr(), logits.shape[1], count, index_array(*rows), index_array(*ids), out
        )
        return list(out)
