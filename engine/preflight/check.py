"""Whether a pair can be loaded here, how well it will run, and what to try instead: from headers, before anything
changes.

`python -m engine.check --target X --drafter Y` prints it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from glob import escape

from engine.config import DRAFTER_WORDS, EMBEDDED, EngineConfig
from engine.errors import InvalidParams, LoadError
from engine.heads.load import BUNDLED
from engine.loading.gguf.convert import folder_prefix
from engine.loading.model_presets import resolve_preset
from engine.loading.progress import Progress
from engine.preflight import memory
from engine.preflight.check_pair import check_model, choose_drafting
from engine.preflight.diagnostics import Diagnostic, FitLevel, ModelRefused, diagnose, worst, worst_first
from engine.preflight.headers import read_headers
from engine.preflight.memory import MIB, Machine, this_machine
from engine.preflight.memory_plan import PARTS, MemoryPlan, count_text, memory_parts, plan, size_text
from engine.preflight.model_info import ModelInfo
from engine.storage.cache_folder import cache_folder

TIGHT = 0.9
"""Share of the free memory from which on it is tight."""

ALIKE = 0.6
"""A drafter that reads more than this share of what the target reads saves nothing."""

PATIENCE = 5.0
"""Tokens per second below which a model is slow to read along with."""

MOST_ROWS_MIB = 1024
"""Weights up to this size run well on any processor, and its speed is not measured for them."""


@dataclass(frozen=True, slots=True)
class Report:
    """parts: MiB of "target", "drafter", "cache", "features", "working" memory and of what is there only while
    "loading", of which needs_mib is the sum; of all devices, but "loading" of the target's. free_mib: there, None where
    unknown.

    drafting: "same ids", "re-encoded", "head", "ngram", "none".
    """

    verdict: FitLevel
    diagnostics: tuple[Diagnostic, ...]
    target: ModelInfo | None
    drafter: ModelInfo | None
    needs_mib: float
    free_mib: float | None
    parts: tuple[tuple[str, float], ...]
    drafting: str


def check_config(
    config: EngineConfig,
    *,
    progress: Progress = lambda *_: None,
    machine: Machine | None = None,
    beside_mib: float = 0,
) -> Report:
    """Never raises for a bad name: that is a diagnostic. beside_mib: held by the pair in use, which stays meanwhile."""
    config = resolve_preset(config)
    machine = machine or this_machine()
    diagnostics: list[Diagnostic] = []
    model_drafts = config.drafter not in DRAFTER_WORDS
    target = _read_model(config.target, config, progress, diagnostics, model_drafts)
    drafter = (
        _read_model(config.drafter, config, progress, diagnostics, True) if model_drafts else _read_bundled_head(config)
    )
    if target is not None and target.head is not None:
        diagnostics.append(diagnose("head_alone", name=target.name))
    device = _device(config.device, machine, diagnostics)
    plans = _plan_models(config, target, drafter, device, machine, diagnostics)
    drafting = choose_drafting(config, target, drafter, diagnostics)
    diagnostics += _check_disk(plans, machine)
    mib_by_part: dict[str, float] = {}
    if target is not None and target.head is None:
        parts = memory_parts(plans)
        diagnostics += [*_check_memory(parts, machine, beside_mib), *_check_speed(plans, config, machine)]
        mib_by_part = _sum_parts(parts, device)
    return Report(
        worst(diagnostics),
        worst_first(diagnostics),
        target,
        drafter,
        sum(mib_by_part.values(), 0.0),
        machine.free_on(device),
        tuple((name, mib) for name, mib in mib_by_part.items() if mib),
        drafting,
    )


def _plan_models(
    config: EngineConfig,
    target: ModelInfo | None,
    drafter: ModelInfo | None,
    device: str,
    machine: Machine,
    diagnostics: list[Diagnostic],
) -> list[MemoryPlan]:
    """How each would be kept, the target first; what there is to say of each goes to `diagnostics`."""
    drafter_device = device if config.drafter_device == "auto" else _device(config.drafter_device, machine, diagnostics)
    plans: list[MemoryPlan] = []
    if target is not None and target.head is None:
        diagnostics += check_model(target, is_target=True)
        plans.append(plan(target, device, config.quant, config.kernel, machine, diagnostics))
    if drafter is not None:
        diagnostics += check_model(drafter, is_target=False)
        plan_device = device if drafter.head is not None else drafter_device
        plans.append(plan(drafter, plan_device, config.drafter_quant, "auto", machine, diagnostics))
    return plans


def _sum_parts(parts: dict[str, dict[str, float]], target_device: str) -> dict[str, float]:
    """MiB by part on all devices together; "loading" of the target's alone, elsewhere it is only passing through."""
    mib_by_part = {name: sum(by_name.get(name, 0.0) for by_name in parts.values()) for name in PARTS[:-1]}
    mib_by_part[PARTS[-1]] = parts[target_device].get(PARTS[-1], 0.0)
    return mib_by_part


def _read_model(
    name: str, config: EngineConfig, progress: Progress, diagnostics: list[Diagnostic], with_tokens: bool
) -> ModelInfo | None:
    try:
        return read_headers(name, offline=config.offline, progress=progress, with_tokens=with_tokens)
    except ModelRefused as refused:
        if refused.diagnostic not in diagnostics:
            diagnostics.append(refused.diagnostic)
        return None


def _read_bundled_head(config: EngineConfig) -> ModelInfo | None:
    """The head that comes with the default model."""
    if config.drafter != "auto" or config.target != EMBEDDED or not BUNDLED.is_dir():
        return None
    return read_headers(str(BUNDLED))


def _device(name: str, machine: Machine, diagnostics: list[Diagnostic]) -> str:
    if name == "auto":
        return "cuda" if "cuda" in machine.devices else "cpu"
    if name not in machine.devices:
        diagnostic = diagnose("no_device", device=name, usable=", ".join(machine.devices))
        if diagnostic not in diagnostics:
            diagnostics.append(diagnostic)
    return name


# -- memory and speed --------------------------------------------------------------------------------------------------


def _check_memory(parts: dict[str, dict[str, float]], machine: Machine, beside_mib: float) -> Iterator[Diagnostic]:
    for device, by_name in parts.items():
        if device not in machine.devices:
            continue
        needed_mib, free_mib = sum(by_name.values()), machine.free_on(device)
        memory_name = machine.gpu_name or "the GPU's memory" if device == "cuda" else "memory"
        if free_mib is None:
            yield diagnose("memory_unknown", where=memory_name, needs=size_text(needed_mib))
        elif needed_mib > free_mib:
            code = "memory_beside" if needed_mib <= TIGHT * (free_mib + beside_mib) else "memory_short"
            yield diagnose(code, needs=size_text(needed_mib), free=size_text(free_mib), where=memory_name)
        elif needed_mib > TIGHT * free_mib:
            yield diagnose("memory_tight", needs=size_text(needed_mib), free=size_text(free_mib), where=memory_name)


def _check_disk(plans: list[MemoryPlan], machine: Machine) -> Iterator[Diagnostic]:
    """What must be written before it can be loaded: downloads, and GGUFs in bf16."""
    models = [plan.model for plan in plans]
    needed_mib = sum(model.file_bytes for model in models if not model.here) / MIB
    needed_mib += (
        sum(2 * m.parameters for m in models if m.source == "gguf" and not m.grid and not _is_converted(m)) / MIB
    )
    if machine.disk_free_mib is None or needed_mib <= machine.disk_free_mib:
        return
    try:
        folder = str(cache_folder())
    except LoadError:
        folder = "the cache"
    yield diagnose("disk_short", folder=folder, free=size_text(machine.disk_free_mib), needs=size_text(needed_mib))


def _is_converted(model: ModelInfo) -> bool:
    """Whether a GGUF has been written out before, or never will be."""
    try:
        return model.reason is not None or any(
            (cache_folder() / "gguf").glob(f"{escape(folder_prefix(model.name))}-*-bf16-*/config.json")
        )
    except LoadError:
        return False


def _check_speed(plans: list[MemoryPlan], config: EngineConfig, machine: Machine) -> Iterator[Diagnostic]:
    target = plans[0]
    drafters = [p for p in plans[1:] if p.model.head is None and p.device == target.device]
    for drafter in drafters:
        if drafter.read_mib > ALIKE * target.read_mib:
            yield diagnose("drafter_larger", drafter=drafter.model.name, target=target.model.name)
    if target.device != "cpu" or target.read_mib < MOST_ROWS_MIB or target.model.reason is not None:
        return
    from engine.hardware import default_threads

    mib_per_s = 1024 * (machine.read_gib_s or memory.read_gib_s(config.threads or default_threads()))
    tokens_per_s = mib_per_s / target.read_mib
    if tokens_per_s < PATIENCE:
        possible_parameters = mib_per_s / PATIENCE / (target.read_mib / target.model.parameters)
        yield diagnose(
            "gpu_better", name=target.model.name, rate=f"{tokens_per_s:.1f}", parameters=count_text(possible_parameters)
        )


# -- as text -----------------------------------------------------------------------------------------------------------

WORDS = {FitLevel.FITS: "fits", FitLevel.SLOW: "will be slow", FitLevel.CANNOT: "cannot be loaded"}


def card(report: Report) -> str:
    """The report for a terminal."""
    lines = [f"This pair {WORDS[report.verdict]}.", ""]
    for role, model in (("target", report.target), ("drafter", report.drafter)):
        if model is not None:
            about = f"{model.kind}, {count_text(model.parameters)} parameters, {model.context_len} tokens of context"
            lines.append(f"  {role:8} {model.name} ({about})")
    lines.append(f"  drafting {report.drafting}")
    if report.parts:
        free = "" if report.free_mib is None else f", {size_text(report.free_mib)} free"
        parts = ", ".join(f"{name} {size_text(mib)}" for name, mib in report.parts)
        lines.append(f"  memory   about {size_text(report.needs_mib)}{free} ({parts})")
    for diagnostic in report.diagnostics:
        lines += ["", f"- {diagnostic.message}", *([f"  {diagnostic.advice}"] if diagnostic.advice else [])]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """0 where the pair can be loaded, 1 where it cannot, 2 for settings that make no sense."""
    import argparse

    from engine.config import COMPUTE, DEVICES, QUANTS

    unset = EngineConfig()
    parser = argparse.ArgumentParser(prog="python -m engine.check", description="Check a pair by its headers alone.")
    parser.add_argument("--target", default=unset.target, help="embedded, a folder, a .gguf file, a hub id, or a pair")
    parser.add_argument("--drafter", default=unset.drafter, help="auto, ngram, none, or a head or model as above")
    for name in ("device", "drafter-device"):
        parser.add_argument(f"--{name}", default="auto", choices=DEVICES)
    for name in ("quant", "drafter-quant"):
        parser.add_argument(f"--{name}", default="auto", choices=QUANTS)
    parser.add_argument("--compute", default="auto", choices=COMPUTE)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--offline", action="store_true", help="ask no hub")
    try:
        config = replace(unset, **vars(parser.parse_args(arguments)))
    except InvalidParams as error:
        print(error, file=sys.stderr)
        return 2
    report = check_config(config)
    print(card(report))
    return 1 if report.verdict is FitLevel.CANNOT else 0
