"""A trained head made ready to run beside a loaded target."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import LoadError
from engine.places import EMBEDDED

if TYPE_CHECKING:
    from torch import Tensor

    from engine.drafters.head import Head, HeadDrafter
    from engine.loaded import Loaded
    from engine.model import Cache, Network

BUNDLED = Path(__file__).parent.parent / "assets" / "head"
"""The head that was trained for the default model."""


@dataclass(frozen=True, slots=True)
class ReadyHead:
    """acceptance: by draft position, as measured when it was trained; () if unknown."""

    head: Head
    vocab_size: int

    @property
    def feature_layers(self) -> tuple[int, ...]:
        return self.head.config.feature_layers

    @property
    def acceptance(self) -> tuple[float, ...]:
        return self.head.config.acceptance

    def drafter(self, cache: Cache) -> HeadDrafter:
        """A fresh one for each reply. cache: the head's own, of the conversation."""
        from engine.drafters.head import HeadDrafter

        return HeadDrafter(self.head, cache, self.vocab_size)


def bundled_head(target: str) -> Path | None:
    """The folder of the head that comes with a target, if there is one."""
    return BUNDLED if target == EMBEDDED and (BUNDLED / "config.json").is_file() else None


def load_head(folder: Path, target: Loaded, threads: int) -> ReadyHead:
    """Raises LoadError where the head does not fit the target, or its files are not what they should be."""
    from engine.head_files import read_head

    network = target.network
    file = read_head(folder, *_sizes(network, target.name))
    if int(file.ids.max()) >= network.vocab_size:
        raise LoadError(f"The draft head {folder} drafts tokens that {target.name} does not have: choose another head.")
    embed = network.embedded
    if (table := file.embedding) is not None:

        def embed(token_ids: Tensor) -> Tensor:
            return table[token_ids.cpu()]

    return ReadyHead(_head(file.config, file.weights, file.ids, embed, network, threads), network.vocab_size)


def _head(config, weights, ids, embed, network: Network, threads: int) -> Head:  # type: ignore[no-untyped-def]
    import torch

    from engine.head import TorchHead
    from engine.native.llama import NativeLlama

    if isinstance(network, NativeLlama):
        from engine.native.head import NativeHead

        try:
            return NativeHead(config, weights, ids, embed, network.kernels, threads)
        except LoadError:  # of a shape that the kernels do not run: torch does
            pass
    dtype = torch.float32 if network.device.type == "cpu" else network.embedded(ids[:1].to(network.device)).dtype
    return TorchHead(config, weights, ids, embed, network.device, dtype)


def _sizes(network: Network, name: str) -> tuple[int, int, int]:
    """Layers, hidden size and vocabulary of the target's weights. Raises LoadError for one that no head can be made for."""
    shape = getattr(network, "shape", None)
    if shape is None:
        hf_config = getattr(getattr(network, "hf_model", None), "config", None)
        shape_of = None if hf_config is None else hf_config.get_text_config()
        if shape_of is None:
            raise LoadError(f"{name} cannot have a draft head: use --drafter ngram.")
        return int(shape_of.num_hidden_layers), int(shape_of.hidden_size), int(shape_of.vocab_size)
    return shape.layers, shape.hidden, shape.vocab_size
