"""Pairs that are known to go together, by name, for machines of different sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.config import EMBEDDED, EngineConfig


@dataclass(frozen=True, slots=True)
class ModelPreset:
    """target .. device: as in `EngineConfig`. needs_mib: as `memory` reckons it. chinese: whether both speak it well.

    parameters: for people, target first, such as "8.2B + 0.6B".
    """

    name: str
    target: str
    drafter: str
    quant: str
    drafter_quant: str
    device: str
    needs_mib: float
    chinese: bool
    parameters: str


MODEL_PRESETS: tuple[ModelPreset, ...] = (
    ModelPreset("embedded", "embedded", "auto", "auto", "auto", "auto", 350, False, "0.13B + head"),
    ModelPreset(
        "small", "HuggingFaceTB/SmolLM2-360M-Instruct", "embedded", "auto", "auto", "cpu", 2030, False, "0.36B + 0.13B"
    ),
    ModelPreset(
        "small-zh", "Qwen/Qwen2.5-1.5B-Instruct", "Qwen/Qwen2.5-0.5B-Instruct", "int8", "int8", "cpu", 5890, True,
        "1.5B + 0.5B",
    ),
    ModelPreset(
        "gpu8", "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-0.5B-Instruct", "nf4", "bf16", "cuda", 7070, True,
        "7.6B + 0.5B",
    ),
    ModelPreset("gpu24", "Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B", "bf16", "bf16", "cuda", 18360, True, "8.2B + 0.6B"),
    ModelPreset(
        "eagle3", "Qwen/Qwen3-8B", "RedHatAI/Qwen3-8B-speculator.eagle3", "bf16", "auto", "cuda", 17650, True,
        "8.2B + head",
    ),
)  # fmt: skip
"""needs_mib on a CPU: as float32 where the processor does not multiply bfloat16."""

BY_NAME = {pair.name: pair for pair in MODEL_PRESETS}


def resolve_preset(config: EngineConfig) -> EngineConfig:
    """The configuration with a pair's name as its target replaced by what it stands for, where nothing else was set.

    As the drafter a pair's name stands for that pair's drafter; "embedded" is in both places the default model.
    """
    if config.drafter in BY_NAME and config.drafter != EMBEDDED:
        config = replace(config, drafter=BY_NAME[config.drafter].drafter)
    pair = BY_NAME.get(config.target)
    if pair is None or config.target == EMBEDDED:
        return config
    unset = EngineConfig()
    settings = {
        name: getattr(pair, name)
        for name in ("drafter", "quant", "drafter_quant", "device")
        if getattr(config, name) == getattr(unset, name)
    }
    return replace(config, target=pair.target, **settings)
