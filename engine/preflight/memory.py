"""How much memory a pair needs, by its sizes alone, and how much this machine has free.

What is reckoned is what the engine allocates: weights as they are kept, keys and values of one conversation, hidden
states that a head reads, and the activations of a prompt's pass.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from engine.errors import LoadError

if TYPE_CHECKING:
    from engine.preflight.model_info import ModelInfo

MIB = 2**20
CONVERSATION = 4096
"""Tokens of the conversation whose cache is reckoned; caches grow as they are needed."""

CHUNK = 256
"""Rows of a prompt that pass at once."""

NUMBER_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "int8": 1.0, "nf4": 0.5 + 4 / 64}
"""Of a number in a matrix. NF4: half a byte, and a float32 for each 64."""

NF4_DOUBLE = 0.5 + 1 / 64 + 4 / (64 * 256)
"""On CUDA the scales are quantised as well: a byte for each 64, and a float32 for each 256 of those (arXiv:2305.14314,
section 3)."""

REQUANTISED = ("int8", "nf4")
BASE_MIB = {"cpu": 64.0, "cuda": 450.0, "mps": 200.0}
"""What a device takes before any model: on CUDA its context and the libraries' kernels."""


@dataclass(frozen=True, slots=True)
class Machine:
    """free_mib: of main memory that this process may use; None where that is not known, as the others.

    gpu_free_mib: of the CUDA device, None without one. mps: Apple's, which shares main memory. disk_free_mib: where the
    cache is. read_gib_s: how fast weights are read from main memory, None to measure it where it matters. bf16: whether
    the processor multiplies it. bitsandbytes: whether that package is here.
    """

    free_mib: float | None
    total_mib: float | None = None
    gpu_name: str = ""
    gpu_free_mib: float | None = None
    mps: bool = False
    disk_free_mib: float | None = None
    read_gib_s: float | None = None
    bf16: bool = False
    bitsandbytes: bool = True

    @property
    def devices(self) -> tuple[str, ...]:
        return ("cpu", *(("cuda",) if self.gpu_free_mib is not None else ()), *(("mps",) if self.mps else ()))

    def free_on(self, device: str) -> float | None:
        return self.gpu_free_mib if device == "cuda" else self.free_mib


def weights_mib(model: ModelInfo, weight_format: str, device: str, dense_format: str) -> float:
    """weight_format: "gguf" or a key of NUMBER_BYTES. dense_format: of the embedding and the head."""
    if weight_format == "gguf":
        return sum(size for _, size in model.formats) / MIB
    if weight_format not in REQUANTISED:
        return model.parameters * NUMBER_BYTES[weight_format] / MIB
    number_bytes = NF4_DOUBLE if (weight_format, device) == ("nf4", "cuda") else NUMBER_BYTES[weight_format]
    outer_numbers = min(model.parameters, model.embedding * (1 if model.tied else 2))
    return (outer_numbers * NUMBER_BYTES[dense_format] + (model.parameters - outer_numbers) * number_bytes) / MIB


def head_mib(model: ModelInfo, dense_format: str) -> float:
    """Of a draft head; an embedding that it brings stays in main memory, and is not in this."""
    own_numbers = model.parameters - (0 if model.tied else model.embedding)
    return own_numbers * NUMBER_BYTES[dense_format] / MIB


def cache_mib(model: ModelInfo, tokens: int, dense_format: str) -> float:
    """Keys and values. A sliding window saves nothing here: drafts are taken back, so all positions are kept."""
    return 2 * model.layers * model.kv_heads * model.head_dim * tokens * NUMBER_BYTES[dense_format] / MIB


def features_mib(target: ModelInfo, layers: int, tokens: int, dense_format: str) -> float:
    """Hidden states that a head reads."""
    return layers * target.hidden * tokens * NUMBER_BYTES[dense_format] / MIB


def working_mib(model: ModelInfo, device: str, dense_format: str, rows: int = 17) -> float:
    """Activations of a prompt's pass (the MLP's two halves, and each head's scores over the conversation), and the
    logits of the most rows that are tested at once with the distributions made of them."""
    number_bytes = NUMBER_BYTES[dense_format]
    activations = CHUNK * (2 * model.mlp + 4 * model.hidden) * number_bytes
    scores = CHUNK * model.heads * min(CONVERSATION, model.context_len) * number_bytes
    return BASE_MIB[device] + (activations + scores + 4 * rows * model.vocab_rows * 4) / MIB


def loading_mib(model: ModelInfo, weight_format: str, device: str, dense_format: str) -> float:
    """How much more than in the end there is on the device while it is loaded: what is quantised comes in dense.

    That is always in main memory; another device is given one layer after the other.
    """
    if weight_format not in REQUANTISED or device != "cpu":
        return 0.0
    whole_mib = model.parameters * NUMBER_BYTES[dense_format] / MIB
    return max(0.0, whole_mib - weights_mib(model, weight_format, device, dense_format))


def dense_format_on(device: str, machine: Machine) -> str:
    """The format of whatever is not quantised, as `hardware.pick_dtype`."""
    if device == "cpu":
        return "bf16" if machine.bf16 else "fp32"
    return "fp16" if device == "mps" else "bf16"


# -- this machine ------------------------------------------------------------------------------------------------------


def this_machine() -> Machine:
    """As it is now. Imports torch only where there is an accelerator to be asked."""
    from engine.hardware import free_bytes

    available_bytes = free_bytes()
    gpu_name, gpu_free, mps = _accelerator()
    return Machine(
        free_mib=_available_mib() if available_bytes is None else available_bytes / MIB,
        total_mib=_total_mib(),
        gpu_name=gpu_name,
        gpu_free_mib=gpu_free,
        mps=mps,
        disk_free_mib=disk_free_mib(),
        bf16=_multiplies_bf16(),
        bitsandbytes=importlib.util.find_spec("bitsandbytes") is not None,
    )


def _accelerator() -> tuple[str, float | None, bool]:
    """Name and free MiB of the CUDA device, and whether there is Apple's."""
    apple = platform.system() == "Darwin" and platform.machine() == "arm64"
    nvidia = Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None
    if not (apple or nvidia or Path("/dev/kfd").exists()):
        return "", None, False
    import torch

    mps = torch.backends.mps.is_available()
    if not torch.cuda.is_available():
        return "", None, mps
    return torch.cuda.get_device_name(), torch.cuda.mem_get_info()[0] / MIB, mps


def _total_mib() -> float | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / MIB
    except (AttributeError, ValueError, OSError):  # not on Windows
        return None


def _available_mib() -> float | None:
    """Where the system does not say what could be had: half of all is a guess that is seldom too high."""
    total = _total_mib()
    return None if total is None or sys.platform != "darwin" else total / 2


def disk_free_mib(folder: Path | None = None) -> float | None:
    """Where models are kept, or will be."""
    from engine.storage.cache_folder import cache_folder

    try:
        existing_folder = folder or cache_folder()
        while not existing_folder.exists():
            existing_folder = existing_folder.parent
        return shutil.disk_usage(existing_folder).free / MIB
    except (OSError, LoadError):
        return None


def _multiplies_bf16() -> bool:
    """As `hardware.pick_dtype` asks torch."""
    try:
        flags = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_tile" in flags


@functools.cache
def read_gib_s(threads: int) -> float:
    """How fast this machine's processors read memory together, GiB/s; takes about a tenth of a second, once."""
    import numpy as np

    arrays = [np.ones(2**24, np.float32) for _ in range(max(1, threads))]  # 64 MiB each: more than a cache's share
    with ThreadPoolExecutor(len(arrays)) as pool:
        times = []
        for _ in range(3):
            start = perf_counter()
            list(pool.map(lambda array: float(array.max()), arrays))
            times.append(perf_counter() - start)
    return sum(array.nbytes for array in arrays) / min(times) / 2**30
