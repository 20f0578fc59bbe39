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
    """A model and how it would be kept. kept: the format of its matrices, dense: of everything else (see `memory`)."""

    model: ModelInfo
    device: str
    kept: str
    dense: str

    @property
    def weights_mib(self) -> float:
        if self.model.head is not None:
            return memory.head_mib(self.model, self.dense)
        return memory.weights_mib(self.model, self.kept, self.device, self.dense)

    @property
    def read_mib(self) -> float:
        """What one token reads: of a separate embedding only a row."""
        apart = 0 if self.model.tied or self.model.head is not None else self.model.embedding
        return self.weights_mib - apart * memory.NUMBER_BYTES[self.dense] / MIB


def plan(
    model: ModelInfo, device: str, quant: str, kernel: str, machine: Machine, diagnostics: list[Diagnostic]
) -> MemoryPlan:
    """How it would be kept; what there is to say of that goes to `diagnostics`."""
    dense = memory.dense_on(device, machine)
    on_grid = model.grid and device == "cpu"
    if kernel == "native" and not (on_grid and quant in ON_GRID):
        diagnostics.append(diagnose("no_native", name=model.name, device=device))
    if quant == "auto" or model.head is not None:
        kept = "gguf" if on_grid else dense if model.head or device != "cpu" else _quickest(model) or dense
    elif (quant == "gguf" and not on_grid) or (quant in memory.REQUANTISED and device == "mps"):
        usable = dense if device == "cpu" else "bf16"
        diagnostics.append(diagnose("quant_refused", name=model.name, quant=quant, device=device, usable=usable))
        kept = dense
    else:
        kept = quant
        diagnostics += _requantised(model, quant, device, machine)
    if kept == "gguf":  # its keys and values are kept in 16 bits
        dense = "fp16"
    made = MemoryPlan(model, device, kept, dense)
    if model.source == "gguf" and model.reason is None and quant in ON_GRID:
        types = ", ".join(name for name, _ in model.formats if name != "F32") or "F32"
        sizes = {"mib": size_text(made.weights_mib), "file_mib": size_text(model.file_bytes / MIB)}
        same = kept == "gguf"
        diagnostics.append(
            diagnose("own_grid" if same else "dequantised", name=model.name, types=types, **({} if same else sizes))
        )
    return made


def _requantised(model: ModelInfo, quant: str, device: str, machine: Machine) -> Iterator[Diagnostic]:
    if quant not in memory.REQUANTISED:
        return
    again = model.source in (EMBEDDED, "gguf")
    yield diagnose("requantised_again" if again else "requantised", name=model.name, quant=quant)
    if not machine.bitsandbytes:
        yield diagnose("bitsandbytes", quant=quant)
    if quant == "nf4" and device == "cpu" and not machine.bf16:
        yield diagnose("nf4_on_cpu")


def _quickest(model: ModelInfo) -> str | None:
    """What `quickest` found out for layers of this shape, when such a model was loaded here before."""
    key = linear_key(("bf16", "fp32"), (model.mlp, model.hidden), version("torch"))
    try:
        kept = read_record(cache_folder() / "native" / "linear.json").get(key)
    except LoadError:
        return None
    return kept if kept in ("bf16", "fp32") else None


PARTS = ("target", "drafter", "cache", "features", "working", "loading")


def parts(plans: list[MemoryPlan]) -> dict[str, dict[str, float]]:
    """MiB by device and part (of PARTS). plans: the target's, then the drafter's, in which order they are loaded."""
    made: dict[str, dict[str, float]] = {}
    target = plans[0]
    for one in plans:
        tokens = min(one.model.context_len, target.model.context_len, memory.CONVERSATION)
        part = "target" if one is target else "drafter"
        room = {part: one.weights_mib, "cache": memory.cache_mib(one.model, tokens, one.dense)}
        if one.model.head is not None:
            layers = len(one.model.head.layers_of(target.model.layers))
            room["features"] = memory.features_mib(target.model, layers, tokens, one.dense)
        if one is target:
            room["working"] = memory.working_mib(one.model, one.device, one.dense)
        on_device = made.setdefault(one.device, {})
        for name, mib in room.items():
            on_device[name] = on_device.get(name, 0.0) + mib
    if any(one.kept in memory.REQUANTISED for one in plans):
        made.setdefault("cpu", {})
    for device, on_device in made.items():
        on_device["loading"] = max(0.0, _loading(plans, device) - sum(on_device.values()))
    return made


def _loading(plans: list[MemoryPlan], device: str) -> float:
    """The most that is there at once while they are loaded, MiB. What is quantised, for whatever device, comes in whole."""
    loaded, most = 0.0, 0.0
    for one in plans:
        on_way = loaded
        if one.device == device:
            loaded += one.weights_mib
            on_way = loaded + memory.loading_mib(one.model, one.kept, device, one.dense)
        elif device == "cpu" and one.kept in memory.REQUANTISED:
            on_way = loaded + memory.weights_mib(one.model, one.dense, device, one.dense)
        most = max(most, on_way)
    return most


def size_text(mib: float) -> str:
    return f"{mib / 1024:.1f} GiB" if mib >= 1000 else f"{mib:.0f} MiB"


def count_text(numbers: float) -> str:
    return f"{numbers / 1e9:.1f} billion" if numbers >= 1e9 else f"{numbers / 1e6:.0f} million"
