"""Whether a network gives the logits that transformers gives for the same weights, on a few ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.errors import EngineError

if TYPE_CHECKING:
    from engine.networks.model import Network

TOLERANCE = 0.1
"""Share of the logits' spread by which 16-bit kernels may differ; a wrong attention differs by about all of it."""


def _probe_ids(vocab_size: int) -> list[int]:
    return [1 + 7 * i % (vocab_size - 1) for i in range(24)]


def reference_logits(model: Any) -> Any:
    """Logits of a transformers model, as it comes, on `_probe_ids`."""
    import torch

    from engine.networks.devices import fetch_to_cpu, send_ids

    ids = _probe_ids(model.config.get_text_config().vocab_size)
    with torch.inference_mode():
        return fetch_to_cpu(model(input_ids=send_ids([ids], model.device)[0][None], use_cache=False).logits[0])


def matches_reference(network: Network, reference: Any) -> bool:
    """Whether these are the network's logits on `_probe_ids`, up to what 16-bit kernels may differ by."""
    from engine.networks.kv_cache import KVCache
    from engine.networks.model import Model, Request

    ids = _probe_ids(network.vocab_size)
    try:
        logits = Model(network, len(ids)).forward([Request(ids, len(ids), KVCache())])[0]
    except (EngineError, RuntimeError, TypeError, ValueError, AttributeError):
        return False
    spread = (reference - reference.mean(dim=-1, keepdim=True)).norm()
    return bool((logits - reference).norm() <= TOLERANCE * spread)  # False for NaN as well
