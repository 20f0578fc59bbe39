"""GGUF files without transformers: their tokeniser, and where their own numbers are run, the whole model.

On the native kernels, or on torch's over the very same quants.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tokenizers
from jinja2.exceptions import TemplateError

from engine.errors import LoadError
from engine.hardware import pick_dtype
from engine.loading.gguf.rope import rope_speeds
from engine.loading.loaded import Loaded, build_loaded, choose_format
from engine.loading.source import ModelSource, first_line
from engine.text.chat_template import compile_template
from engine.text.tokenizer import Tokenizer, build_tokenizer

if TYPE_CHECKING:
    from engine.kernels.build import Kernels
    from engine.networks.linear import LinearFormat, Weight
    from engine.networks.llama import LeanLlama
    from engine.networks.llama_shape import LlamaShape


def load_gguf(
    source: ModelSource, kernels: Kernels | None, quant: str, device: Any, threads: int, compute: str = "auto"
) -> Loaded:
    """From a folder made by `gguf.convert` in the form TILES. kernels: None for torch's own. Raises LoadError."""
    tokenizer = read_tokenizer(source)
    try:
        config = _read_json(source, "config")
        if kernels is not None:
            return _load_native(source, config, tokenizer, kernels, threads)
        kind = choose_format(quant, source, device, (config["intermediate_size"], config["hidden_size"]), compute)
        network = _build_lean(source.folder, config, kind, device)
    except (OSError, ValueError, KeyError) as error:
        raise _damaged_error(source, error) from error
    network.vocab_size = tokenizer.vocab_size
    return build_loaded(network, tokenizer, source, kind, network.shape.context_len, threads)


def read_tokenizer(source: ModelSource) -> Tokenizer:
    """Of a folder made by `gguf.convert`. Raises LoadError."""
    try:
        config, tokenizer_config, generation = (
            _read_json(source, name) for name in ("config", "tokenizer_config", "generation_config")
        )
        template = tokenizer_config.get("chat_template")
        special_tokens = {
            name: tokenizer_config[name] for name in ("bos_token", "eos_token") if tokenizer_config.get(name)
        }
        render = compile_template(template, source.name, **special_tokens) if template else None
        backend = tokenizers.Tokenizer.from_file(str(source.folder / "tokenizer.json"))
        bos_id = backend.token_to_id(special_tokens["bos_token"]) if "bos_token" in special_tokens else None
        return build_tokenizer(backend, render, generation["eos_token_id"], bos_id, config["vocab_size"])
    except TemplateError as error:
        raise LoadError(
            f"The chat template of {source.name} cannot be read ({first_line(error)}): choose another file."
        ) from error
    except Exception as error:  # the library of tokenisers has no error of its own
        raise _damaged_error(source, error) from error


def runs_natively(source: ModelSource) -> bool:
    """Whether the native kernels know this model's kind and sizes. source: with tiles. Raises LoadError."""
    from engine.kernels.packing import GROUP, LANES

    try:
        config = _read_json(source, "config")
        heads, dim = config["num_attention_heads"], config["head_dim"]
    except (OSError, ValueError, KeyError) as error:
        raise _damaged_error(source, error) from error
    return bool(config["model_type"] == "llama" and dim % LANES == 0 and heads * dim % GROUP == 0)


def _read_json(source: ModelSource, name: str) -> Any:
    return json.loads((source.folder / f"{name}.json").read_text("utf-8"))


def _damaged_error(source: ModelSource, error: Exception) -> LoadError:
    return LoadError(f"{source.name} cannot be loaded ({first_line(error)}): delete the cache and start again.")


def _read_shape(config: dict[str, Any]) -> LlamaShape:
    from engine.networks.llama_shape import LlamaShape

    rope = config["rope_parameters"]
    is_default = rope["rope_type"] == "default"
    return LlamaShape.read(config, None if is_default else (rope_speeds(rope, config["head_dim"]), 1.0))


def _load_native(
    source: ModelSource, config: dict[str, Any], tokenizer: Tokenizer, kernels: Kernels, threads: int
) -> Loaded:
    from safetensors.torch import load_file

    from engine.loading.batch_invariance import PROMPT, is_exact_cached
    from engine.networks.native_llama import NativeLlama
    from engine.storage.cache_folder import cache_folder

    shape = _read_shape(config)
    proof_shape = replace(shape, context_len=max(shape.context_len, PROMPT))  # as long as what it is proved with
    network = NativeLlama(proof_shape, load_file(source.folder / "tiles.safetensors"), kernels, threads)
    network.vocab_size = tokenizer.vocab_size
    return Loaded(
        network=network,
        tokenizer=tokenizer,
        name=source.name,
        weights=source.origin,
        kernel=f"native integer kernel, {kernels.path}",
        context_len=shape.context_len,
        device="cpu",
        exact=is_exact_cached(network, cache_folder() / "native", f"{source.digest}-{kernels.key}-{threads}"),
    )


def _build_lean(folder: Path, config: dict[str, Any], kind: LinearFormat, device: Any) -> LeanLlama:
    """On torch's kernels. Where layers are quantised again the head is not: on a CPU it stays on its own grid."""
    import torch

    from engine.loading.gguf.convert import read_tiles
    from engine.networks.devices import move_to_device
    from engine.networks.linear import DTYPES, LINEAR_FORMATS, to_floats
    from engine.networks.llama import LeanLlama

    on_cpu = device.type == "cpu"
    dtype = DTYPES.get(kind.name, DTYPES[pick_dtype(device)])
    matrices, vectors = read_tiles(folder)
    weights: dict[str, Weight] = {
        name: move_to_device(torch.from_numpy(vector), device) for name, vector in vectors.items()
    }
    while matrices:  # one by one, so that no two copies of all are in memory
        name, blocks = matrices.popitem()
        weights[name] = blocks if on_cpu else move_to_device(to_floats(blocks), device, dtype)
    head_format = LINEAR_FORMATS["gguf" if on_cpu else pick_dtype(device)] if kind.requantises else kind
    hidden_dtype = torch.float32 if on_cpu else dtype
    return LeanLlama(_read_shape(config), weights, kind.build, head_format.build, dtype=hidden_dtype, device=device)
