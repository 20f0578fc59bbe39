"""A model that is ready to run: how its weights are kept, as asked for or as this machine likes it best, and what is
true of it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import LoadError
from engine.hardware import pick_dtype, processor
from engine.loading.source import ModelSource
from engine.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from engine.networks.linear import LinearFormat
    from engine.networks.model import Network

NF4_NOTE = (
    "NF4 rounds this model's own 4-bit weights a second time, which costs so small a model much of its quality: "
    "start without --quant for its best answers."
)
DEQUANTISED = (
    "The numbers of {name} ({origin}) are dequantised: its weights take {here} GiB of memory instead of {there}."
)
EXACT_LIMIT_S = 30.0
"""How long a first start may be held up to find out whether a network is exact."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model ready to run. weights and kernel are phrases for people."""

    network: Network
    tokenizer: Tokenizer
    name: str
    weights: str
    kernel: str
    context_len: int
    device: str
    exact: bool = False
    """Whether a row's logits are proven not to depend, by a single bit, on what is computed beside it."""
    note: str = ""
    """A sentence that a person should read about how the weights are kept, or ""."""


def choose_format(
    quant: str, source: ModelSource, device: Any, shape: tuple[int, int], compute: str = "auto"
) -> LinearFormat:
    """What --quant names, or the quickest here that rounds no weight again. Raises LoadError.

    shape: of a typical layer. compute: what NF4 multiplies in, as `EngineConfig.compute`.
    """
    from engine.loading.autotune import quickest_format
    from engine.networks.linear import LINEAR_FORMATS, refusal, with_compute

    if quant == "gguf" and not source.tiles:
        raise LoadError(
            "--quant gguf is for the default model and GGUF files of Q4_0, Q4_1 or Q8_0 throughout: leave it out."
        )
    if quant == "auto" and device.type == "cpu":
        names = ["gguf", "bf16", "fp32"] if source.tiles else ["bf16", "fp32"]
        quant = quickest_format(names, _machine_folder(), shape)
    elif quant == "auto":
        quant = pick_dtype(device)
    if reason := refusal(quant, device):
        raise LoadError(reason)
    return with_compute(LINEAR_FORMATS[quant], compute)


def build_loaded(
    network: Network,
    tokenizer: Tokenizer,
    source: ModelSource,
    linear_format: LinearFormat,
    context_len: int,
    threads: int,
) -> Loaded:
    """With everything that is to be said of a network whose linear layers are of one kind."""
    is_second_time = source.is_gguf
    weights = f"{source.origin}, run as {linear_format.name}"
    if linear_format.requantises:
        weights = f"{source.origin}, quantised {'again ' if is_second_time else ''}as {linear_format.name}"
    return Loaded(
        network=network,
        tokenizer=tokenizer,
        name=source.name,
        weights=source.origin if linear_format.name == "gguf" else weights,
        kernel=linear_format.phrase,
        context_len=context_len,
        device=str(network.device),
        exact=_is_exact(network, source, linear_format, threads),
        note=NF4_NOTE if is_second_time and linear_format.name == "nf4" else "",
    )


def _is_exact(network: Network, source: ModelSource, linear_format: LinearFormat, threads: int) -> bool:
    """Measured once for all models of one shape on a CPU; not claimed where measuring takes too long."""
    import torch

    from engine.loading.batch_invariance import is_exact_cached
    from engine.networks.llama import LeanLlama

    folder = _machine_folder()
    if not isinstance(network, LeanLlama) or folder is None or network.device.type != "cpu":
        return False
    facts = f"{network.shape} {network.vocab_size} {source.origin} {torch.__version__} {threads} {linear_format.name}"
    key = f"{processor()}-{hashlib.sha256(facts.encode()).hexdigest()[:16]}"
    return is_exact_cached(network, folder, key, EXACT_LIMIT_S)


def _machine_folder() -> Path | None:
    """Where answers about this machine are kept; None where there is no place for them."""
    from engine.storage.cache_folder import cache_folder

    try:
        return cache_folder() / "native"
    except LoadError:
        return None
