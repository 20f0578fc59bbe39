"""The default model, without transformers: on the native kernels, or on torch's over the very same quants."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tokenizers

from engine.errors import LoadError
from engine.hardware import pick_dtype
from engine.loaded import Loaded, chosen, finished
from engine.places import Place, first_line
from engine.template import compiled_template
from engine.text import Tokenizer, build_tokenizer

if TYPE_CHECKING:
    from engine.linear import Kind, Weight
    from engine.llama import LeanLlama
    from engine.native import Kernels


def load_bundled(place: Place, kernels: Kernels | None, quant: str, where: Any, threads: int) -> Loaded:
    """From a folder made by `convert` in the form TILES. kernels: None for torch's own. Raises LoadError."""
    try:
        config, tokens, generation = (
            json.loads((place.folder / f"{name}.json").read_text("utf-8"))
            for name in ("config", "tokenizer_config", "generation_config")
        )
        template = compiled_template(
            tokens["chat_template"], place.name, bos_token=tokens["bos_token"], eos_token=tokens["eos_token"]
        )
        backend = tokenizers.Tokenizer.from_file(str(place.folder / "tokenizer.json"))
        tokenizer = build_tokenizer(
            backend, template, generation["eos_token_id"], config["bos_token_id"], config["vocab_size"]
        )
        if kernels is not None:
            return _native(place, config, tokenizer, kernels, threads)
        kind = chosen(quant, place, where, (config["intermediate_size"], config["hidden_size"]))
        network = _lean(place.folder, config, kind, where)
    except (OSError, ValueError, KeyError) as error:
        raise LoadError(
            f"{place.name} cannot be loaded ({first_line(error)}): delete the cache and start again."
        ) from error
    return finished(network, tokenizer, place, kind, network.shape.context_len, threads)


def _native(place: Place, config: dict[str, Any], tokenizer: Tokenizer, kernels: Kernels, threads: int) -> Loaded:
    from engine.exactness import remembered
    from engine.fetch import DEFAULT_MODEL, cache_folder
    from engine.native.llama import NativeLlama

    network = NativeLlama.load(place.folder, config, kernels, threads)
    key = f"{DEFAULT_MODEL.file_sha256}-{kernels.key}-{threads}"
    return Loaded(
        network=network,
        tokenizer=tokenizer,
        name=place.name,
        weights=place.origin,
        kernel=f"native integer kernel, {kernels.path}",
        context_len=network.shape.context_len,
        device="cpu",
        exact=remembered(network, cache_folder() / "native", key),
    )


def _lean(folder: Path, config: dict[str, Any], kind: Kind, where: Any) -> LeanLlama:
    """On torch's kernels. Where layers are quantised again the head is not: on a CPU it stays on its own grid."""
    import torch

    from engine.convert import read_tiles
    from engine.linear import DTYPES, KINDS, values
    from engine.llama import LeanLlama
    from engine.llama_shape import LlamaShape

    on_cpu = where.type == "cpu"
    plain = DTYPES.get(kind.name, DTYPES[pick_dtype(where)])
    matrices, vectors = read_tiles(folder)
    weights: dict[str, Weight] = {name: torch.from_numpy(vector).to(where) for name, vector in vectors.items()}
    while matrices:  # one by one, so that no two copies of all are in memory
        name, blocks = matrices.popitem()
        weights[name] = blocks if on_cpu else values(blocks).to(where, plain)
    head = KINDS["gguf" if on_cpu else pick_dtype(where)] if kind.requantises else kind
    hidden = torch.float32 if on_cpu else plain
    return LeanLlama(LlamaShape.read(config), weights, kind.build, head.build, dtype=hidden, device=where)
