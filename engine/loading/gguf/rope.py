"""Rotations as GGUF files describe them: how fast each pair of dimensions turns.

Llama 3.1 and later turn slow pairs more slowly still; a GGUF keeps by how much, transformers the rule that it comes
from.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""The rule's other numbers in every model that Meta published with it (Llama 3.1, 3.2 and 3.3)."""

SPEEDS_KNOWN = ("default", "linear", "llama3")

TOLERANCE = 1e-3


def llama3_parameters(theta: float, dim: int, slowdown: np.ndarray[Any, Any]) -> dict[str, Any]:
    """transformers' description of a rotation whose pairs turn `slowdown` times as slowly, [dim / 2].

    Raises ValueError where no known rule gives these numbers.
    """
    parameters = {"rope_type": "llama3", "rope_theta": theta, "factor": float(np.max(slowdown, initial=0.0)), **LLAMA3}
    if len(slowdown) != dim // 2 or not np.allclose(slowdown, _slowdowns(parameters, dim), rtol=TOLERANCE):
        raise ValueError("its rotation follows no known rule")
    return parameters


def rope_speeds(parameters: dict[str, Any], dim: int) -> list[float]:
    """Radians a position of each pair. parameters: of a kind in SPEEDS_KNOWN."""
    plain_speeds = _plain_speeds(parameters, dim)
    if parameters["rope_type"] == "linear":
        return [speed / parameters["factor"] for speed in plain_speeds]
    if parameters["rope_type"] == "llama3":
        return [speed / slowdown for speed, slowdown in zip(plain_speeds, _slowdowns(parameters, dim), strict=True)]
    return plain_speeds


def _plain_speeds(parameters: dict[str, Any], dim: int) -> list[float]:
    return [float(parameters["rope_theta"] ** (-2 * i / dim)) for i in range(dim // 2)]


def _slowdowns(parameters: dict[str, Any], dim: int) -> list[float]:
    """As Meta's llama-models scale it: quick pairs as they are, slow ones by the factor, and smoothly in between."""
    factor, low, high = (parameters[name] for name in ("factor", "low_freq_factor", "high_freq_factor"))

    def slowdown_of(speed: float) -> float:
        turns = parameters["original_max_position_embeddings"] * speed / (2 * math.pi)  # over the first context
        smooth = min(1.0, max(0.0, (turns - low) / (high - low)))
        return float(1 / ((1 - smooth) / factor + smooth)) if factor else 0.0

    return [slowdown_of(speed) for speed in _plain_speeds(parameters, dim)]
