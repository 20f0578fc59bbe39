"""What an experiment's figures are about: this machine, in words, and what memory it has left."""

from __future__ import annotations

import platform
from pathlib import Path

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
    found: list[int] = []
    try:
        for line in (root / "proc/meminfo").read_text("utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) * 1024)
        limit = (root / "sys/fs/cgroup/memory.max").read_text("utf-8").strip()
        if limit != "max":
            found.append(max(0, int(limit) - int((root / "sys/fs/cgroup/memory.current").read_text("utf-8"))))
    except (OSError, ValueError, IndexError):
        pass
    return min(found, default=None)


def buffer_bytes(root: Path = Path("/")) -> int:
    """At least four times the last cache, so that reading it means reading memory. Where the cache is not told: BUFFER_BYTES."""
    sizes = [0]
    for path in (root / "sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        sizes.append(int(text.rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}.get(text[-1], 0))
    return max(BUFFER_BYTES, 4 * max(sizes))
