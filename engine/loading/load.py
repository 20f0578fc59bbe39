"""Loads models: finds the files, chooses the kernels, and leaves the rest to who reads that kind of file.

Whatever goes wrong on the way is one LoadError with one sentence; the traceback stays behind it as its cause.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from engine.config import EMBEDDED, ON_GRID
from engine.errors import LoadError
from engine.hardware import default_threads, pick_device
from engine.loading.gguf.load import load_gguf, runs_natively
from engine.loading.loaded import Loaded
from engine.loading.progress import Progress
from engine.loading.source import find
from engine.loading.transformers_load import load_transformers

if TYPE_CHECKING:
    from engine.kernels.build import Kernels

log = logging.getLogger(__name__)

__all__ = ["Loaded", "default_threads", "load"]


def load(
    target: str,
    *,
    device: str = "auto",
    threads: int | None = None,
    kernel: str = "auto",
    quant: str = "auto",
    compute: str = "auto",
    offline: bool,
    progress: Progress,
) -> Loaded:
    """target: "embedded" (the default model), a local folder, a GGUF file, or a hub id. Raises LoadError.

    kernel: "native" (compiled here; for the default model and GGUF files like it, on a CPU), "torch", or "auto", which
    takes native where it can. quant: a name of `linear.LINEAR_FORMATS`, or "auto": a GGUF's own grid on native kernels,
    and else the quickest here that rounds no weight again. compute: as `EngineConfig.compute`. Sets the number of
    threads that torch uses in this process, when the model runs on the CPU.
    """
    import torch

    threads = threads or default_threads()
    torch_device = pick_device(device)
    built_kernels = kernels = _load_kernels(target, kernel, quant, torch_device, progress)
    source = find(target, offline, progress, tiles=True)
    if kernels is not None and not (source.tiles and runs_natively(source)):
        if kernel == "native":
            raise LoadError(f"The native kernels do not run {source.name}: leave out --kernel native.")
        kernels = None
    if torch_device.type == "cpu":
        # Beside the native kernels torch does small things only, and threads take long to wake.
        torch.set_num_threads(threads if kernels is None else 1)
    progress("load", None)
    if source.tiles:
        loaded = load_gguf(source, kernels, quant, torch_device, threads, compute)
    else:
        loaded = load_transformers(source, torch_device, quant, threads, compute)
    if built_kernels is not None:  # tokens are sampled on them, whatever runs the layers
        from engine.kernels.native_sampler import NativeSampler

        loaded.network.sampler = NativeSampler(built_kernels.library)
    return loaded


def _load_kernels(target: str, kernel: str, quant: str, device: Any, progress: Progress) -> Kernels | None:
    """The native kernels if they are wanted and can be had. Raises LoadError if only they would do."""
    is_possible = (target == EMBEDDED or target.lower().endswith(".gguf")) and device.type == "cpu"
    if kernel == "native" and not is_possible:
        raise LoadError(
            "The native kernels run the default model and GGUF files like it, on a CPU: leave out --kernel native."
        )
    if kernel == "torch" or not is_possible or quant not in ON_GRID:
        return None
    from engine.kernels.build import Kernels, kernels

    progress("compile", None)
    kernels_or_reason = kernels()
    if isinstance(kernels_or_reason, Kernels):
        return kernels_or_reason
    if kernel == "native":
        raise LoadError(f"The native kernels cannot be used: {kernels_or_reason}.")
    log.warning("Running on torch's own kernels: %s.", kernels_or_reason)
    return None
