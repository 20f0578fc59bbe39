"""A trained head made ready to run beside a loaded target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.config import DRAFTER_WORDS, EMBEDDED
from engine.errors import LoadError
from engine.loading.source import PICKLE, find, from_hub

if TYPE_CHECKING:
    from torch import Tensor

    from engine.heads.eagle3 import Head, HeadConfig, Weights
    from engine.loading.loaded import Loaded
    from engine.loading.progress import Progress
    from engine.networks.model import Network

BUNDLED = Path(__file__).parents[2] / "assets" / "head"
"""The head that was trained for the default model."""


@dataclass(frozen=True, slots=True)
class LoadedHead:
    """acceptance: by draft position, as measured when it was trained; () if unknown. note: for people, or ""."""

    head: Head
    vocab_size: int
    note: str = ""

    @property
    def feature_layers(self) -> tuple[int, ...]:
        return self.head.config.feature_layers

    @property
    def acceptance(self) -> tuple[float, ...]:
        return self.head.config.acceptance


def find_head(drafter: str, target: str, offline: bool, progress: Progress) -> Path | None:
    """The folder of the head that is asked for; None where something else is, or "auto" and none comes with the target.

    drafter: as `EngineConfig.drafter`. Raises LoadError for a name that leads nowhere.
    """
    from engine.heads.format import is_head

    if drafter in DRAFTER_WORDS:
        is_bundled = drafter == "auto" and target == EMBEDDED and is_head(BUNDLED)
        return BUNDLED if is_bundled else None
    folder = find(drafter, offline, progress).folder
    if not is_head(folder):
        return None
    if not Path(drafter).expanduser().is_dir() and not any(folder.glob("*.safetensors")):
        folder = from_hub(drafter, offline, progress, [PICKLE])  # as the first EAGLE-3 heads are kept
    return folder


def load_head(folder: Path, target: Loaded, threads: int) -> LoadedHead:
    """Raises LoadError where the head does not fit the target, or its files are not what they should be."""
    from engine.heads.format import read_head
    from engine.networks.devices import move_to_device

    network = target.network
    head_file = read_head(folder, *target_sizes(network, target.name))
    # Rows that only pad the target's vocabulary are no tokens: they must not be drafted.
    in_vocabulary = head_file.ids < network.vocab_size
    if not in_vocabulary.any():
        raise LoadError(f"The draft head {folder} drafts tokens that {target.name} does not have: choose another head.")
    if not in_vocabulary.all():
        trimmed_weights = {"lm_head.weight": head_file.weights["lm_head.weight"][in_vocabulary]}
        config = replace(head_file.config, draft_vocab_size=int(in_vocabulary.sum()))
        head_file = replace(
            head_file, config=config, weights=head_file.weights | trimmed_weights, ids=head_file.ids[in_vocabulary]
        )
    embed = network.embed
    if head_file.embedding is not None:
        # Where the ids are, or each draft would fetch them back.
        embedding = move_to_device(head_file.embedding, network.device)

        def embed(token_ids: Tensor) -> Tensor:
            return embedding[token_ids]

    head = _build_head(head_file.config, head_file.weights, head_file.ids, embed, network, threads)
    return LoadedHead(head, network.vocab_size, _other_target_note(head_file.config.target, target.name))


def _other_target_note(trained_for: str, target: str) -> str:
    """A sentence where a head of the right sizes was made for a model of another name; names are no proof."""
    if not trained_for or trained_for.rpartition("/")[2].lower() == target.rpartition("/")[2].lower():
        return ""
    return f"The draft head was trained for {trained_for}: if {target} is another model, its guesses are worth little."


def _build_head(
    config: HeadConfig, weights: Weights, ids: Tensor, embed: Callable[[Tensor], Tensor], network: Network, threads: int
) -> Head:
    import torch

    from engine.heads.torch_head import TorchHead
    from engine.networks.devices import move_to_device
    from engine.networks.native_llama import NativeLlama

    if isinstance(network, NativeLlama):
        from engine.heads.native_head import NativeHead

        try:
            return NativeHead(config, weights, ids, embed, network.kernels, threads)
        except LoadError:  # of a shape that the kernels do not run: torch does
            pass
    dtype = (
        torch.float32 if network.device.type == "cpu" else network.embed(move_to_device(ids[:1], network.device)).dtype
    )
    return TorchHead(config, weights, ids, embed, network.device, dtype)


def target_sizes(network: Network, name: str) -> tuple[int, int, int]:
    """Layers, hidden size and vocabulary of the target's weights. Raises LoadError where no head can be made."""
    shape = getattr(network, "shape", None)
    if shape is None:
        hf_config = getattr(getattr(network, "hf_model", None), "config", None)
        text_config = None if hf_config is None else hf_config.get_text_config()
        if text_config is None:
            raise LoadError(f"{name} cannot have a draft head: use --drafter ngram.")
        return int(text_config.num_hidden_layers), int(text_config.hidden_size), int(text_config.vocab_size)
    return shape.layers, shape.hidden, shape.vocab_size
