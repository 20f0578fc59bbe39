"""Linear layers of one interface over several ways to keep weights and multiply by them: a table, and a class each.

Two kinds of number loss, never mixed up: GRID, BF16 and FP32 keep the values that the model came with (up to the
rounding of a number format); NF4 and INT8 quantise them, which for weights that were quantised before is a second time.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.errors import LoadError
from engine.kernels.packing import GROUP, Blocks

OPS = torch.ops.aten

log = logging.getLogger(__name__)


class Linear(Protocol):
    """x [n, inputs] -> [n, outputs], in x's dtype."""

    inputs: int
    outputs: int

    weight_bytes: int  # what one product reads of the weights

    def __call__(self, x: Tensor) -> Tensor: ...


class Dense:
    """Weights and products in one number format."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        self.outputs, self.inputs = weight.shape
        self.weight = weight.to(dtype)
        self._bias = None if bias is None else bias.to(dtype)
        self.weight_bytes = self.weight.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x.to(self.weight.dtype), self.weight, self._bias).to(x.dtype)


class Grid:
    """A GGUF's own quants through torch's int4 CPU kernel: bf16 activations, float32 sums, a bf16 result.

    The kernel knows weight = (quant - 8) * scale + zero, a group of 32 inputs to a scale. Q4_0 and Q4_1 are that, with
    zero = minimum + 8 * scale. A signed byte of Q8_0 is two such quants, byte = 16 * (high - 8) + low, over the same
    input: one product over twice the inputs. The quants stay exact; scale and zero become bf16, which moves a weight
    by at most 2**-8 of its distance from the grid's middle and 2**-8 of the zero; with Q8_0, 2**-8 of the weight.
    """

    def __init__(self, blocks: Blocks, bias: Tensor | None) -> None:
        """Raises LoadError for sizes that the kernel does not take."""
        self.outputs, self.inputs = blocks.quants.shape
        if self.outputs % 16 or self.inputs % GROUP:
            raise LoadError(
                f"torch's int4 kernel does not run {self.outputs} x {self.inputs} weights: use --quant bf16."
            )
        self._is_two_halves = blocks.minimum is None
        quants, scale = torch.from_numpy(blocks.quants).int(), torch.from_numpy(blocks.scale).float()
        if blocks.minimum is None:
            quants = torch.cat([(quants >> 4) + 8, quants & 15], dim=1)
            scale = scale.bfloat16().float()  # now, so that both halves have the same
            scales, zeros = torch.cat([16 * scale, scale], 1), torch.cat([torch.zeros_like(scale), 8 * scale], 1)
        else:
            scales, zeros = scale, torch.from_numpy(blocks.minimum).float() + 8 * scale
        self._packed_weight = OPS._convert_weight_to_int4pack_for_cpu(quants.contiguous(), 1)
        self._scales = torch.stack([scales.T, zeros.T], dim=-1).bfloat16().contiguous()  # [groups, outputs, 2]
        self._bias = bias
        self.weight_bytes = self._packed_weight.nbytes + self._scales.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        bf16_input = x.bfloat16()
        if self._is_two_halves:
            bf16_input = torch.cat([bf16_input, bf16_input], dim=-1)
        out: Tensor = OPS._weight_int4pack_mm_for_cpu(bf16_input, self._packed_weight, GROUP, self._scales).to(x.dtype)
        return out if self._bias is None else out + self._bias.to(x.dtype)


NF4_GROUP = 64
"""Weights that share a scale, counted through the whole matrix."""


class Nf4:
    """bitsandbytes' 4-bit normal float (Dettmers et al., QLoRA, arXiv:2305.14314).

    On a GPU the scales are quantised too, to 8 bits in groups of 256 (double quantisation, section 3). On a CPU they
    are not, and each product first writes the weights out in full: it works, and saves no time. With AVX-512 BF16 there
    is a kernel that does not, for some sizes (see `_packable`); its weights are repacked by the first product.
    Quantised where `weight` is, and never moved from there. compute: what the product is made in; None for the weight's
    own format, or on a CPU the quickest: bf16 in that kernel, which knows no other format, else float32.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, compute: torch.dtype | None = None) -> None:
        bnb = _bitsandbytes()
        self.outputs, self.inputs = weight.shape
        on_cpu = weight.device.type == "cpu"
        packed_weight, state = bnb.functional.quantize_4bit(
            weight.float() if on_cpu else weight, blocksize=NF4_GROUP, quant_type="nf4", compress_statistics=not on_cpu
        )
        layer = bnb.nn.Linear4bit(
            self.inputs, self.outputs, bias=False, quant_type="nf4", device="meta",
            compute_dtype=compute or (torch.float32 if on_cpu else weight.dtype),
        )  # fmt: skip
        layer.support_avx512bf16_for_cpu &= compute in (None, torch.bfloat16) and _packable(self.outputs, self.inputs)
        layer.weight = bnb.nn.Params4bit(
            packed_weight, quant_state=state, quant_type="nf4", module=layer, bnb_quantized=True
        )
        layer.quant_state = state
        self._layer = layer.eval()
        self._bias = bias
        scales = state.absmax.nbytes + (state.state2.absmax.nbytes if state.nested else 0)
        self.weight_bytes = packed_weight.nbytes + scales

    def __call__(self, x: Tensor) -> Tensor:
        out: Tensor = self._layer(x.contiguous())  # the AVX-512 BF16 kernel takes a row's numbers for neighbours
        return out if self._bias is None else out + self._bias.to(x.dtype)


def _packable(outputs: int, inputs: int) -> bool:
    """Whether bitsandbytes' AVX-512 BF16 kernel takes NF4 weights of these sizes: blocks of 32 outputs, and no group
    that goes over the end of a row. By itself it tries with others as well, and fails."""
    return outputs % 32 == 0 and inputs % NF4_GROUP == 0


class Int8:
    """A signed byte a weight and a scale a row, as bitsandbytes makes them (LLM.int8(), Dettmers et al.,
    arXiv:2208.07339).

    On a GPU activations are rounded to bytes as well, each row by itself. The paper's outlier threshold is off: it
    takes whole columns out of the byte product as soon as one row needs it, so that a row would depend on those beside
    it. On a CPU torch's int8 kernel multiplies the same bytes by bf16 activations: bitsandbytes would write the weights
    out in float32 for each product there, many times slower and less precise.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        bnb = _bitsandbytes()
        self.outputs, self.inputs = weight.shape
        self._bytes, row_maxima, _ = bnb.functional.int8_vectorwise_quant(weight.half())
        self._bytes[row_maxima == 0] = 0  # a row of zeros has no scale
        self._row_maxima = row_maxima.float()
        self._bias = bias
        self._on_cpu = weight.device.type == "cpu"
        if self._on_cpu:
            self._padding = -self.inputs % GROUP  # the kernel reads whole groups, and beyond the end of others
            self._bytes = F.pad(self._bytes, (0, self._padding))
            self._scales = self._row_maxima / 127
            self._ones = torch.ones(self.outputs, dtype=torch.bfloat16)
        self.weight_bytes = self._bytes.nbytes + self._row_maxima.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        if self._on_cpu:
            bf16_input = F.pad(x.bfloat16(), (0, self._padding)) if self._padding else x.bfloat16()
            sums = OPS._weight_int8pack_mm(bf16_input, self._bytes, self._ones)
            out: Tensor = (sums * self._scales).to(x.dtype)
        else:
            quants, row_scales, _ = _bitsandbytes().functional.int8_vectorwise_quant(x.half())
            out = torch.ops.bitsandbytes.int8_scaled_mm(
                quants, self._bytes, row_scales, self._row_maxima, dtype=x.dtype
            )
        return out if self._bias is None else out + self._bias.to(x.dtype)


DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
"""Of the dense kinds."""

Weight = Tensor | Blocks
"""A matrix [outputs, inputs] of floats, on the device where it shall be multiplied, or as a GGUF quantises it."""

Builder = Callable[[Weight, Tensor | None], Linear]


def to_floats(weight: Weight) -> Tensor:
    """The matrix in floats: float32 from a GGUF's quants."""
    return torch.from_numpy(weight.dequantise()) if isinstance(weight, Blocks) else weight


def _dense(name: str) -> Builder:
    return lambda weight, bias: Dense(to_floats(weight), bias, DTYPES[name])


def _grid(weight: Weight, bias: Tensor | None) -> Linear:
    if not isinstance(weight, Blocks):
        raise LoadError("Only the default model's weights lie on a GGUF's grid: leave out --quant gguf.")
    return Grid(weight, bias)


@dataclass(frozen=True, slots=True)
class LinearFormat:
    """One way to keep and multiply weights. phrase: for people; devices: where it runs.

    requantises: whether it rounds weights to fewer values than they came with, so that it is never chosen unasked.
    """

    name: str
    phrase: str
    build: Builder
    devices: tuple[str, ...]
    requantises: bool = False


NF4_PHRASE = "bitsandbytes NF4 linear"

LINEAR_FORMATS = {
    kind.name: kind
    for kind in (
        LinearFormat("gguf", "torch int4 linear, the GGUF's own grid", _grid, ("cpu",)),
        LinearFormat("bf16", "torch bf16 linear", _dense("bf16"), ("cpu", "cuda", "mps")),
        LinearFormat("fp16", "torch fp16 linear", _dense("fp16"), ("cuda", "mps")),
        LinearFormat("fp32", "torch fp32 linear", _dense("fp32"), ("cpu", "cuda", "mps")),
        LinearFormat("nf4", NF4_PHRASE, lambda w, b: Nf4(to_floats(w), b), ("cpu", "cuda"), True),
        LinearFormat(
            "int8", "int8 linear, bitsandbytes weights", lambda w, b: Int8(to_floats(w), b), ("cpu", "cuda"), True
        ),
    )
}


def with_compute(kind: LinearFormat, compute: str) -> LinearFormat:
    """The same with products made in a format of DTYPES. "auto", and all kinds but NF4: as they are by themselves (int8
    multiplies bytes, and the others are a format)."""
    if kind.name != "nf4" or compute == "auto":
        return kind
    dtype = DTYPES[compute]
    return replace(kind, phrase=f"{NF4_PHRASE} in {compute}", build=lambda w, b: Nf4(to_floats(w), b, dtype))


def refusal(name: str, device: torch.device) -> str:
    """Why this kind cannot be used on this device, in one sentence; "" where it can."""
    kind = LINEAR_FORMATS[name]
    if device.type not in kind.devices:
        return f"--quant {name} does not run on {device.type}: leave it out, or choose --device {kind.devices[0]}."
    try:
        if kind.requantises:  # bitsandbytes is compiled code of its own, and may not fit this machine
            kind.build(torch.eye(64, device=device), None)(torch.eye(64, device=device))
    except Exception as error:  # whatever a package raises that does not fit
        log.info("--quant %s cannot be used", name, exc_info=True)
        return f"--quant {name} cannot be used here, bitsandbytes says {type(error).__name__}: leave it out."
    return ""


@functools.cache
def _bitsandbytes() -> Any:
    """The package, with its remarks on every cast and every kernel that it looked for elsewhere kept quiet."""
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    import bitsandbytes

    return bitsandbytes
