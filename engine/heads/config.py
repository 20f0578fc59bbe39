"""Which config.json describes a draft head, and what it leaves out. Without torch."""

from __future__ import annotations

from typing import Any

HEAD_FORMAT = "eagle3"


ORIGINAL_HEAD = "LlamaForCausalLMEagle3"
"""What the architecture is called in the layout of the first EAGLE-3 heads."""


def is_head_config(config: Any) -> bool:
    """Whether a config.json describes a draft head."""
    return isinstance(config, dict) and (
        config.get("speculators_model_type") == HEAD_FORMAT or ORIGINAL_HEAD in str(config.get("architectures"))
    )


def default_feature_layers(layers: int) -> tuple[int, ...]:
    """Which layers a head reads that does not say so (EAGLE-3's own code, and vLLM)."""
    return 2, layers // 2, layers - 3
