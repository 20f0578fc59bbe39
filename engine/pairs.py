"""Pairs that are known to go together, by name, for machines of different sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.config import EngineConfig


@dataclass(frozen=True, slots=True)
class Pairing:
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


PAIRS: tuple[Pairing, ...] = (
    Pairing("embedded", "embedded", "auto", "auto", "auto", "auto", 300, False, "0.13B"),
    Pairing("small", "HuggingFaceTB/SmolLM2-360M-Instruct", "HuggingFaceTB/SmolLM2-135M-Instruct",
            "auto", "auto", "cpu", 2800, False, "0.36B + 0.13B"),
    Pairing("small-zh", "Qwen/Qwen3-1.7B", "Qwen/Qwen3-0.6B", "auto", "auto", "cpu", 11000, True, "1.7B + 0.6B"),
    Pairing("gpu8", "Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B", "nf4", "bf16", "cuda", 7600, True, "8.2B + 0.6B"),
    Pairing("gpu24", "Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B", "bf16", "bf16", "cuda", 18500, True, "8.2B + 0.6B"),
    Pairing("eagle3", "meta-llama/Llama-3.1-8B-Instruct", "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
            "bf16", "auto", "cuda", 18500, False, "8.0B + head"),
)  # fmt: skip

BY_NAME = {pair.name: pair for pair in PAIRS}


def resolved(config: EngineConfig) -> EngineConfig:
    """The configuration with a pair's name as its target replaced by what it stands for, where nothing else was set."""
    pair = BY_NAME.get(config.target)
    if pair is None:
        return config
    unset = EngineConfig()
    settings = {
        name: getattr(pair, name)
        for name in ("drafter", "quant", "drafter_quant", "device")
        if getattr(config, name) == getattr(unset, name)
    }
    return replace(config, target=pair.target, **settings)
