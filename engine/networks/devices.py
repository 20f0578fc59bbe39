"""Where tensors are and how they get there. Nothing else moves a tensor, or waits for a device; a test reads the code.

Weights go to a device once, when they are loaded. Those that bitsandbytes quantises are quantised where they stay:
moving them would spoil what it repacks for a CPU. In a reply only ids go out, in one transfer a pass that nobody waits
for, and only logits come back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

TensorOrModule = TypeVar("TensorOrModule", Tensor, torch.nn.Module)


def move_to_device(
    value: TensorOrModule, device: torch.device | str, dtype: torch.dtype | None = None
) -> TensorOrModule:
    """A tensor there, in that number format (None: its own), the same one if it is already; or a module, changed."""
    return value.to(device=device, dtype=dtype)


def send_ids(rows: Sequence[Sequence[int]], device: torch.device | str) -> list[Tensor]:
    """An int64 tensor of each row of whole numbers, on the device. All go in one transfer, which is not waited for."""
    flat_ids = torch.tensor([token_id for row in rows for token_id in row], dtype=torch.long)
    return list(torch.split(flat_ids.to(device, non_blocking=True), [len(row) for row in rows]))


def fetch_to_cpu(tensor: Tensor) -> Tensor:
    """As float32 on the CPU; waits until it is computed."""
    return tensor.float().cpu()


def synchronize(device: torch.device) -> None:
    """Wait for all that was asked of the device, so that a clock read next means something. Nothing to do on a CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
