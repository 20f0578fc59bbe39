"""Quantised weights on their own grid: from GGUF blocks to the tiles that the native kernels read, and what they
compute.

A tile holds one group of 32 inputs for 16 neighbouring outputs, so that one instruction meets 16 (or 8) outputs at once
(see kernels/kernels.cpp). Nothing is rounded a second time: every tile is the GGUF's numbers in another order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

GROUP = 32
"""Inputs that share a scale."""

LANES = 16
"""Outputs packed side by side."""

TILE_BYTES = {4: 256 + 64, 8: 512 + 32}
"""Size of a tile by the bits of its quants: quants, then 16 scales and, with 4 bits, 16 minima, as float16."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """A weight matrix [outputs, inputs] as GGUF quantises it: weight = scale * quant + minimum.

    quants: uint8 0..15 (bits 4) or int8 (bits 8), [outputs, inputs]; scale, minimum: float16 [outputs, inputs / 32],
    minimum None with 8 bits.
    """

    bits: int
    quants: Array
    scale: Array
    minimum: Array | None

    def dequantise(self) -> Array:
        """float32 [outputs, inputs]."""
        groups = self.quants.reshape(*self.scale.shape, GROUP).astype(np.float32)
        weights = groups * self.scale[..., None].astype(np.float32)
        if self.minimum is not None:
            weights += self.minimum[..., None].astype(np.float32)
        return weights.reshape(self.quants.shape)


def read_blocks(kind: str, data: Array) -> Blocks | None:
    """GGUF's bytes [outputs, bytes of a row] of type `kind`; None for a type that has no tiles.

    Layouts: Q4_0 is scale, 16 bytes (offset 8); Q4_1 scale, minimum, 16 bytes; Q8_0 scale, 32 signed bytes. In the 16
    bytes the low halves are the first 16 quants of the group.
    """
    if kind not in ("Q4_0", "Q4_1", "Q8_0"):
        return None
    rows = len(data)
    size = {"Q4_0": 18, "Q4_1": 20, "Q8_0": 34}[kind]
    blocks = np.ascontiguousarray(data).reshape(rows, -1, size)
    scale = _view_float16(blocks[:, :, :2])
    if kind == "Q8_0":
        return Blocks(8, blocks[:, :, 2:].view(np.int8).reshape(rows, -1), scale, None)
    nibbles = blocks[:, :, size - 16 :]
    quants = np.concatenate([nibbles & 15, nibbles >> 4], axis=-1).reshape(rows, -1)
    minimum = _view_float16(blocks[:, :, 2:4]) if kind == "Q4_1" else (scale * np.float16(-8)).astype(np.float16)
    return Blocks(4, quants, scale, minimum)


def quantise(weight: Array, bits: int) -> Blocks:
    """float32 [outputs, inputs] rounded as GGUF's Q4_1 (bits 4) or Q8_0 (bits 8) round."""
    from gguf import GGMLQuantizationType as Kind
    from gguf.quants import quantize

    name = {4: "Q4_1", 8: "Q8_0"}[bits]
    blocks = read_blocks(name, quantize(np.ascontiguousarray(weight, dtype=np.float32), Kind[name]))
    assert blocks is not None
    return blocks


def _view_float16(data: Array) -> Array:
    return np.ascontiguousarray(data).view(np.float16)[..., 0]


def concatenate(parts: list[Blocks]) -> Blocks:
    """Several matrices over the same inputs as one, their outputs one after the other."""
    minima = [part.minimum for part in parts if part.minimum is not None]
    return Blocks(
        parts[0].bits,
        np.concatenate([part.quants for part in parts]),
        np.concatenate([part.scale for part in parts]),
        np.concatenate(minima) if minima else None,
    )


def select_rows(blocks: Blocks, indices: Array | slice) -> Blocks:
    """Some outputs of a matrix, in the order asked for."""
    minimum = None if blocks.minimum is None else blocks.minimum[indices]
    return Blocks(blocks.bits, blocks.quants[indices], blocks.scale[indices], minimum)


def pack_tiles(blocks: Blocks) -> Array:
    """uint8 [outputs / 16, inputs / 32, TILE_BYTES]: see kernels/kernels.cpp. Raises ValueError for other sizes."""
    outputs, inputs = blocks.quants.shape
    if outputs % LANES or inputs % GROUP:
        raise ValueError(f"{outputs} x {inputs} weights do not divide into tiles of {LANES} x {GROUP}")
    shape = (outputs // LANES, LANES, inputs // GROUP)
    if blocks.bits == 4:
        # [block, lane, group, pair, half, 4] -> [block, group, pair, lane, 4], both halves of a pair in one byte
        nibbles = blocks.quants.reshape(*shape, 4, 2, 4).transpose(0, 2, 3, 4, 1, 5)
        quants = nibbles[:, :, :, 0] | (nibbles[:, :, :, 1] << 4)
    else:
        quants = blocks.quants.reshape(*shape, 8, 4).transpose(0, 2, 3, 1, 4)
    sections = [np.ascontiguousarray(quants).reshape(shape[0], shape[2], -1).view(np.uint8)]
    for float16_values in (blocks.scale, blocks.minimum):
        if float16_values is not None:
            sections.append(np.ascontiguousarray(float16_values.reshape(shape).transpose(0, 2, 1)).view(np.uint8))
    return np.concatenate(sections, axis=-1)


def unpack_tiles(tiles: Array) -> Blocks:
    """What `pack_tiles` was given, to the number. Raises ValueError where `tiles` are none."""
    bits = next((bits for bits, size in TILE_BYTES.items() if tiles.ndim == 3 and tiles.shape[-1] == size), 0)
    if not bits:
        raise ValueError(f"an array of shape {tiles.shape} holds no tiles")
    blocks, groups = tiles.shape[:2]
    size = LANES * GROUP * bits // 8
    if bits == 4:
        pairs = tiles[:, :, :size].reshape(blocks, groups, 4, 1, LANES, 4)
        halves = np.concatenate([pairs & 15, pairs >> 4], axis=3)  # [block, group, pair, half, lane, 4]
        quants = halves.transpose(0, 4, 1, 2, 3, 5)
    else:
        quants = tiles[:, :, :size].view(np.int8).reshape(blocks, groups, 8, LANES, 4).transpose(0, 3, 1, 2, 4)
    float16_values = np.ascontiguousarray(tiles[:, :, size:]).view(np.float16).reshape(blocks, groups, -1, LANES)
    scale, *minimum = (
        float16_values[:, :, i].transpose(0, 2, 1).reshape(-1, groups) for i in range(float16_values.shape[2])
    )
    return Blocks(bits, quants.reshape(blocks * LANES, -1), scale, minimum[0] if minimum else None)


def interleave_tiles(first: Array, second: Array) -> Array:
    """Tiles of two matrices, a block of 16 outputs of each in turn: gate and up meet in one pass over a row."""
    return np.ascontiguousarray(np.stack([first, second], axis=1).reshape(-1, *first.shape[1:]))


def deinterleave_tiles(tiles: Array) -> tuple[Array, Array]:
    """The tiles that `interleave_tiles` was given."""
    pairs = tiles.reshape(-1, 2, *tiles.shape[1:])
    return pairs[:, 0], pairs[:, 1]


# The twin: what the kernels compute, in a few lines that can be read, and that tests compare with to the integer.


def quantise_activations(x: Array) -> tuple[Array, Array]:
    """Activations float32 [rows, inputs] -> (int8 quants [rows, inputs / 32, 32], float32 step [rows, inputs / 32])."""
    groups = np.ascontiguousarray(x, dtype=np.float32).reshape(len(x), -1, GROUP)
    step = np.abs(groups).max(-1) / np.float32(127)
    inverse_step = np.divide(np.float32(1), step, out=np.zeros_like(step), where=step > 0)
    return np.rint(groups * inverse_step[..., None]).astype(np.int8), step


def integer_sums(blocks: Blocks, quants: Array) -> Array:
    """The kernels' integers: sum over each group of weight quant * activation quant, int32 [rows, outputs, groups]."""
    weights = blocks.quants.reshape(*blocks.scale.shape, GROUP).astype(np.int32)
    return np.asarray(np.einsum("ogi,rgi->rog", weights, quants.astype(np.int32)))


def multiply(blocks: Blocks, x: Array) -> Array:
    """x [rows, inputs] times the weights, float64 [rows, outputs], activations rounded as the kernels do."""
    quants, step = quantise_activations(x)
    total = integer_sums(blocks, quants) * blocks.scale.astype(np.float64) * step[:, None, :]
    if blocks.minimum is not None:
        total += blocks.minimum.astype(np.float64) * (step * quants.sum(-1, dtype=np.int64))[:, None, :]
    return np.asarray(total.sum(-1))
