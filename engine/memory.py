"""How much memory a pair needs, by its sizes alone, and how much this machine has free."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """free_mib: of main memory that this process may use; None where that is not known, as the others.

    gpu_free_mib: of the CUDA device, None without one. mps: Apple's, which shares main memory. disk_free_mib: where the
    cache is. read_gib_s: how fast weights are read from main memory. bitsandbytes: whether that package is here.
    """

    free_mib: float | None
    total_mib: float | None
    gpu_name: str = ""
    gpu_free_mib: float | None = None
    mps: bool = False
    disk_free_mib: float | None = None
    read_gib_s: float | None = None
    bitsandbytes: bool = True
