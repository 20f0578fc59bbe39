"""The numbers of a GGUF file's tensors: as they are kept, and as float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from engine.loading.gguf.header import GgufTensor

Array = np.ndarray[Any, Any]


def read_raw(path: Path, tensor: GgufTensor) -> Array:
    """A tensor's bytes, uint8 [rows, bytes of a row], mapped and not read."""
    rows = tensor.shape[0] if len(tensor.shape) > 1 else 1
    return np.memmap(path, np.uint8, "r", tensor.offset, (tensor.nbytes,)).reshape(rows, -1)


def read_values(path: Path, tensor: GgufTensor, begin: int = 0, end: int | None = None) -> Array:
    """float32 rows begin..end of a matrix; of a vector, [1, n]."""
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    part = np.ascontiguousarray(read_raw(path, tensor)[begin:end])
    return np.array(dequantize(part, GGMLQuantizationType[tensor.type]), dtype=np.float32)  # a copy, writable
