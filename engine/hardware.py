"""What this machine offers: processors within the quota, a device, and number formats that it computes quickly."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import LoadError

if TYPE_CHECKING:
    import torch


def default_threads(root: Path = Path("/")) -> int:
    """Processors that this process may really use: a container's quota counts, not the host's size."""
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        allowed = os.cpu_count() or 1
    quotas = [quota for quota in _cgroup_quotas(root) if quota > 0]
    return max(1, min([allowed, *(int(quota) for quota in quotas)]))


def _cgroup_quotas(root: Path) -> list[float]:
    """Limits, in processors, of this process's control groups (version 1 and 2) and of all that enclose them."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    quotas: list[float] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        # Inside a container the path is often the host's and not to be found here; the top is then the container's own.
        for mount in ("sys/fs/cgroup", "sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"):
            folder = Path(path.lstrip("/"))
            quotas += [_quota(root / mount / part) for part in (folder, *folder.parents)]
    return quotas


def _quota(folder: Path) -> float:
    """Processors that one control group allows, 0 where it sets no limit."""
    try:
        if (folder / "cpu.max").exists():
            limit, period = (folder / "cpu.max").read_text().split()
        else:
            limit = (folder / "cpu.cfs_quota_us").read_text()
            period = (folder / "cpu.cfs_period_us").read_text()
        return max(0.0, float(limit) / float(period)) if limit.strip() != "max" else 0.0
    except (OSError, ValueError, ZeroDivisionError):
        return 0.0


def processor() -> str:
    """Names the kind of processor, and what it can do, in a few characters: the same on every start of one machine."""
    prefixes = ("model name", "flags", "Features", "CPU part")
    try:
        lines = {line for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines() if line.startswith(prefixes)}
    except OSError:
        lines = {platform.processor()}
    return f"{platform.machine()}-{hashlib.sha256(chr(10).join(sorted(lines)).encode()).hexdigest()[:12]}"


def linear_key(names: Sequence[str], shape: tuple[int, int], torch_version: str) -> str:
    """Under which `autotune.quickest_format` keeps what it found of layers of `shape` on this machine. 2: raised when
    it asks otherwise."""
    return "|".join([processor(), torch_version, f"{shape}", ",".join(names), "2"])


def pick_device(name: str) -> torch.device:
    """ "auto" takes a CUDA device if there is one, else the CPU. Raises LoadError for a device that is not there."""
    import torch

    present = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        name = "cuda" if present["cuda"] else "cpu"
    if not present.get(name, False):
        usable = ", ".join(kind for kind, is_present in present.items() if is_present)
        raise LoadError(f"There is no {name} device that this PyTorch can use: choose auto or one of {usable}.")
    return torch.device(name)


def pick_dtype(device: torch.device) -> str:
    """ "bf16" where the hardware multiplies it, else a format that it does: "fp16" or "fp32".

    A CPU without bf16 instructions takes it piece by piece: a single row is then quick, since fewer bytes are read, but
    the several rows of a verification, and every prompt, cost several times as much.
    """
    import torch

    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
    if device.type == "mps":
        return "fp16"
    quick = any(getattr(torch.cpu, probe, bool)() for probe in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return "bf16" if quick else "fp32"


BUFFER_BYTES = 512 * 2**20
"""Least size of the buffer that is read for the bandwidth; it grows with the last cache, see `buffer_bytes`."""


def processor_name(root: Path = Path("/")) -> str:
    """As its maker calls it, or at least its architecture."""
    try:
        lines = (root / "proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name") and ":" in line]
    return next(filter(None, names), "") or platform.processor() or platform.machine()


def free_bytes(root: Path = Path("/")) -> int | None:
    """Memory that could still be had, within a container's limit; None where nothing is told of it."""
    limits: list[int] = []
    try:
        for line in (root / "proc/meminfo").read_text("utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                limits.append(int(line.split()[1]) * 1024)
        limit = (root / "sys/fs/cgroup/memory.max").read_text("utf-8").strip()
        if limit != "max":
            limits.append(max(0, int(limit) - int((root / "sys/fs/cgroup/memory.current").read_text("utf-8"))))
    except (OSError, ValueError, IndexError):
        pass
    return min(limits, default=None)


def buffer_bytes(root: Path = Path("/")) -> int:
    """At least four times the last cache, so that reading it means reading memory. Where the cache is not
    told: BUFFER_BYTES."""
    sizes = [0]
    for path in (root / "sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        sizes.append(int(text.rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}.get(text[-1], 0))
    return max(BUFFER_BYTES, 4 * max(sizes))
