"""How a checked pair would be kept in memory, and how much of it that takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version

from engine.config import EMBEDDED, ON_GRID
from engine.errors import LoadError
from engine.hardware import linear_key
from engine.preflight import memory
from engine.preflight.diagnostics import Diagnostic, diagnose
from engine.preflight.memory import MIB, Machine
from engine.preflight.model_info import ModelInfo
from engine.storage.cache_folder import cache_folder
from engine.storage.json_cache import read_record


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """A model and how it would be kept.

    weight_format: of its matrices; dense_format: of everything else (see `memory`).
    """

    model: ModelInfo
    device: str
    weight_format: str
    dense_format: str

    @property
    def weights_mib(self) -> float:
        if self.model.head is not None:
            return memory.head_mib(self.model, self.dense_format)
        return memory.weights_mib(self.model, self.weight_format, self.device, self.dense_format)

    @property
    def read_mib(self) -> float:
        """What one token reads: of a separate embedding only a row."""
        unread_numbers = 0 if self.model.tied or self.model.head is not None else self.model.embedding
        return self.weights_mib - unread_numbers * memory.NUMBER_BYTES[self.dense_format] / MIB


def plan(
    model: ModelInfo, device: str, quant: str, kernel: str, machine: Machine, diagnostics: list[Diagnostic]
) -> MemoryPlan:
    """How it would be kept; what there is to say of that goes to `diagnostics`."""
    dense_format = memory.dense_format_on(device, machine)
    on_grid = model.grid and device == "cpu"
    if kernel == "native" and not (on_grid and quant in ON_GRID):
        diagnostics.append(diagnose("no_native", name=model.name, device=device))
    if quant == "auto" or model.head is not None:
        weight_format = "gguf" if on_grid else _auto_format(model, device, dense_format)
    elif (quant == "gguf" and not on_grid) or (quant in memory.REQUANTISED and device == "mps"):
        usable = dense_format if device == "cpu" else "bf16"
        diagnostics.append(diagnose("quant_refused", name=model.name, quant=quant, device=device, usable=usable))
        weight_format = dense_format
    else:
        weight_format = quant
        diagnostics += _diagnose_requantised(model, quant, device, machine)
    if weight_format == "gguf":  # its keys and values are kept in 16 bits
        dense_format = "fp16"
    memory_plan = MemoryPlan(model, device, weight_format, dense_format)
    diagnostics += _diagnose_grid(memory_plan, quant)
    return memory_plan


def _auto_format(model: ModelInfo, device: str, dense_format: str) -> str:
    """What matrices that lie on no grid are kept in unasked."""
    if model.head is not None or device != "cpu":
        return dense_format
    return _remembered_format(model) or dense_format


def _diagnose_grid(memory_plan: MemoryPlan, quant: str) -> Iterator[Diagnostic]:
    """Whether a GGUF's own numbers are multiplied as they are, or how much more they take dequantised."""
    model = memory_plan.model
    if model.source != "gguf" or model.reason is not None or quant not in ON_GRID:
        return
    types = ", ".join(name for name, _ in model.formats if name != "F32") or "F32"
    if memory_plan.weight_format == "gguf":
        yield diagnose("own_grid", name=model.name, types=types)
    else:
        mib, file_mib = size_text(memory_plan.weights_mib), size_text(model.file_bytes / MIB)
        yield diagnose("dequantised", name=model.name, types=types, mib=mib, file_mib=file_mib)


def _diagnose_requantised(model: ModelInfo, quant: str, device: str, machine: Machine) -> Iterator[Diagnostic]:
    if quant not in memory.REQUANTISED:
        return
    is_second_time = model.source in (EMBEDDED, "gguf")
    yield diagnose("requantised_again" if is_second_time else "requantised", name=model.name, quant=quant)
    if not machine.bitsandbytes:
        yield diagnose("bitsandbytes", quant=quant)
    if quant == "nf4" and device == "cpu" and not machine.bf16:
        yield diagnose("nf4_on_cpu")


def _remembered_format(model: ModelInfo) -> str | None:
    """What `autotune` found out for layers of this shape, when such a model was loaded here before."""
    key = linear_key(("bf16", "fp32"), (model.mlp, model.hidden), version("torch"))
    try:
        cached_format = read_record(cache_folder() / "native" / "linear.json").get(key)
    except LoadError:
        return None
    return cached_format if cached_format in ("bf16", "fp32") else None


PARTS = ("target", "drafter", "cache", "features", "working", "loading")


def memory_parts(plans: list[MemoryPlan]) -> dict[str, dict[str, float]]:
    """MiB by device and part (of PARTS). plans: the target's, then the drafter's, in which order they are loaded."""
    mib_by_device: dict[str, dict[str, float]] = {}
    target = plans[0]
    for model_plan in plans:
        tokens = min(model_plan.model.context_len, target.model.context_len, memory.CONVERSATION)
        part = "target" if model_plan is target else "drafter"
        mib_by_part = {
            part: model_plan.weights_mib,
            "cache": memory.cache_mib(model_plan.model, tokens, model_plan.dense_format),
        }
        if model_plan.model.head is not None:
            layers = len(model_plan.model.head.layers_of(target.model.layers))
            mib_by_part["features"] = memory.features_mib(target.model, layers, tokens, model_plan.dense_format)
        if model_plan is target:
            mib_by_part["working"] = memory.working_mib(model_plan.model, model_plan.device, model_plan.dense_format)
        device_parts = mib_by_device.setdefault(model_plan.device, {})
        for name, mib in mib_by_part.items():
            device_parts[name] = device_parts.get(name, 0.0) + mib
    if any(model_plan.weight_format in memory.REQUANTISED for model_plan in plans):
        mib_by_device.setdefault("cpu", {})
    for device, device_parts in mib_by_device.items():
        device_parts["loading"] = max(0.0, _loading_peak_mib(plans, device) - sum(device_parts.values()))
    return mib_by_device


def _loading_peak_mib(plans: list[MemoryPlan], device: str) -> float:
    """The most that is there at once while they are loaded, MiB. What is quantised comes in whole."""
    loaded_mib, highest = 0.0, 0.0
    for model_plan in plans:
        peak = loaded_mib
        if model_plan.device == device:
            loaded_mib += model_plan.weights_mib
            peak = loaded_mib + memory.loading_mib(
                model_plan.model, model_plan.weight_format, device, model_plan.dense_format
            )
        elif device == "cpu" and model_plan.weight_format in memory.REQUANTISED:
            peak = loaded_mib + memory.weights_mib(
                model_plan.model, model_plan.dense_format, device, model_plan.dense_format
            )
        highest = max(highest, peak)
    return highest


def size_text(mib: float) -> str:
    return f"{mib / 1024:.1f} GiB" if mib >= 1000 else f"{mib:.0f} MiB"


def count_text(numbers: float) -> str:
    return f"{numbers / 1e9:.1f} billion" if numbers >= 1e9 else f"{numbers / 1e6:.0f} million"
