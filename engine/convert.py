"""GGUF -> a folder from which a start is quick, made once: configuration, tokeniser, and the weights in one of two forms.

TILES: the GGUF's own numbers, reordered for the native kernels (native/tiles.py). BF16: as transformers keeps models.
Only what the default model needs: the Llama family with SmolLM's tokeniser. Other files are refused by name.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from filelock import FileLock

from engine.errors import LoadError
from engine.sealed import is_intact, seal

if TYPE_CHECKING:
    from engine.native.tiles import Blocks

Progress = Callable[[str, float | None], None]

TILES = "tiles"
BF16 = "bf16"

FORMAT = 2
"""Raised whenever the files written here change, so that older folders are not taken."""

CONTROL = 3
"""GGUF's token type for control tokens."""

LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OUTER_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def converted(gguf: Path, digest: str, progress: Progress, form: str = BF16) -> Path:
    """The folder made from `gguf` (SHA-256 `digest`), beside it; made now if it is missing, damaged or outdated.

    form: TILES or BF16. Raises LoadError for a file that cannot be read as GGUF, or of another architecture or tokeniser.
    """
    folder = gguf.parent / f"{gguf.stem}-{digest[:16]}-{form}-v{FORMAT}"
    if is_intact(folder):
        return folder
    with FileLock(folder.with_name(f"{folder.name}.lock")):
        if not is_intact(folder):  # another process may have made it while we waited
            partial = folder.with_name(f"{folder.name}.partial")
            for leftover in (partial, folder):
                shutil.rmtree(leftover, ignore_errors=True)
            partial.mkdir(parents=True)
            _convert(gguf, partial, progress, form)
            os.replace(partial, folder)
    return folder


def _convert(gguf: Path, folder: Path, progress: Progress, form: str) -> None:
    from gguf import GGUFReader

    progress("convert", None)
    try:
        reader = GGUFReader(gguf)
        facts = {name: field.contents() for name, field in reader.fields.items() if not _is_long(name)}
        vocabulary = {
            name: reader.fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "token_type", "merges")
        }
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise LoadError(f"{gguf.name} is not a whole GGUF file ({error}): delete it and start again.") from error
    _refuse_others(gguf.name, facts)
    write = _write_tiles if form == TILES else _write_weights
    write(reader, facts, folder, progress)
    for name, content in _plain_files(facts, vocabulary).items():
        (folder / name).write_text(json.dumps(content, ensure_ascii=False, indent=1), "utf-8")
    _tokenizer(vocabulary).save(str(folder / "tokenizer.json"))
    seal(folder, sorted(path.name for path in folder.iterdir()))


def _is_long(name: str) -> bool:
    return name.startswith("tokenizer.ggml.") and name.rsplit(".", 1)[1] in ("tokens", "token_type", "merges", "scores")


def _refuse_others(name: str, facts: dict[str, Any]) -> None:
    wanted = {"general.architecture": "llama", "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm"}
    for key, value in wanted.items():
        if facts.get(key) != value:
            raise LoadError(
                f"{name} has {key} = {facts.get(key)!r}, and only {value!r} can be read: "
                "choose the default model, or a model as safetensors."
            )


def _write_weights(reader: Any, facts: dict[str, Any], folder: Path, progress: Progress) -> None:
    import torch
    from safetensors.torch import save_file

    weights = {}
    for index, (name, array) in enumerate(_arrays(reader, facts)):
        weights[name] = torch.from_numpy(array).to(torch.bfloat16)
        progress("convert", (index + 1) / len(reader.tensors))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def _write_tiles(reader: Any, facts: dict[str, Any], folder: Path, progress: Progress) -> None:
    """One entry a packed matrix, queries, keys and values joined, gate and up interleaved; norms as they are."""
    from safetensors.numpy import save_file

    from engine.native.tiles import interleaved, joined, tiles

    blocks, arrays = _blocks(reader)
    layers = int(facts["llama.block_count"])
    for n in range(layers):
        at = f"blk.{n}."
        arrays[f"{at}qkv"] = tiles(joined([blocks.pop(f"{at}attn_{kind}.weight") for kind in "qkv"]))
        arrays[f"{at}out"] = tiles(blocks.pop(f"{at}attn_output.weight"))
        gate, up = (tiles(blocks.pop(f"{at}ffn_{kind}.weight")) for kind in ("gate", "up"))
        arrays[f"{at}gate_up"] = interleaved(gate, up)
        arrays[f"{at}down"] = tiles(blocks.pop(f"{at}ffn_down.weight"))
        progress("convert", (n + 1) / (layers + 1))
    arrays |= {name.removesuffix(".weight"): tiles(matrix) for name, matrix in blocks.items()}
    save_file(arrays, folder / "tiles.safetensors")


def _blocks(reader: Any) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    """(quantised matrices, float32 vectors) by GGUF name. Raises LoadError for a type without tiles."""
    from engine.native.tiles import read_blocks

    matrices, vectors = {}, {}
    for tensor in reader.tensors:
        if tensor.tensor_type.name == "F32":
            vectors[tensor.name] = np.array(tensor.data, dtype=np.float32)
        elif (found := read_blocks(tensor.tensor_type.name, np.asarray(tensor.data))) is not None:
            matrices[tensor.name] = found
        else:
            raise LoadError(f"{tensor.name} is {tensor.tensor_type.name}, and only Q4_0, Q4_1 and Q8_0 can be read.")
    return matrices, vectors


def read_tiles(folder: Path) -> tuple[dict[str, Blocks], dict[str, np.ndarray[Any, Any]]]:
    """What a folder in the form TILES holds, under transformers' names: matrices as quantised, and float32 vectors.

    Rows of q and k are in transformers' order. Raises OSError, ValueError, KeyError for files that `converted` did not make.
    """
    from safetensors import safe_open

    config = json.loads((folder / "config.json").read_text("utf-8"))
    matrices: dict[str, Blocks] = {}
    vectors: dict[str, np.ndarray[Any, Any]] = {}
    with safe_open(folder / "tiles.safetensors", framework="numpy") as file:
        for name in file.keys():  # noqa: SIM118 - it is no dictionary
            *layer, kind = name.removesuffix(".weight").split(".")
            array = file.get_tensor(name)
            at = f"model.layers.{layer[1]}." if layer else ""
            names = LAYER_NAMES if layer else OUTER_NAMES
            if array.ndim == 1:
                vectors[f"{at}{names[kind]}.weight"] = array
            else:
                parts = _unpacked(kind, array, config)
                matrices |= {f"{at}{names[part]}.weight": blocks for part, blocks in parts.items()}
    return matrices, vectors


def _unpacked(kind: str, array: np.ndarray[Any, Any], config: dict[str, Any]) -> dict[str, Blocks]:
    """An entry that `_write_tiles` wrote, as the matrices that it was made of, by GGUF's name."""
    from engine.native.tiles import rows, separated, untiled

    if kind == "gate_up":
        return dict(zip(("ffn_gate", "ffn_up"), map(untiled, separated(array)), strict=True))
    if kind != "qkv":
        return {{"out": "attn_output", "down": "ffn_down"}.get(kind, kind): untiled(array)}
    heads, kv_heads, dim = (config[name] for name in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    both, where = untiled(array), np.arange((heads + 2 * kv_heads) * dim)
    query, key, value = np.split(where, [heads * dim, (heads + kv_heads) * dim])
    which = {"attn_q": unpermuted(query, heads), "attn_k": unpermuted(key, kv_heads), "attn_v": value}
    return {part: rows(both, order) for part, order in which.items()}


def _arrays(reader: Any, facts: dict[str, Any]) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """(transformers' name, float32 array) of every tensor."""
    from gguf.quants import dequantize

    heads = {"attn_q": facts["llama.attention.head_count"], "attn_k": facts["llama.attention.head_count_kv"]}
    for tensor in reader.tensors:
        array = np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        *layer, kind, suffix = tensor.name.split(".")
        name = f"model.layers.{layer[1]}.{LAYER_NAMES[kind]}" if layer else OUTER_NAMES[kind]
        yield f"{name}.{suffix}", unpermuted(array, heads[kind]) if kind in heads else array


def unpermuted(array: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Rows of q or k as transformers wants them.

    GGUF keeps the two coordinates that one rotation turns next to each other, transformers half a head apart.
    """
    pairs = array.reshape(heads, array.shape[0] // heads // 2, 2, *array.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(array.shape)


def _plain_files(facts: dict[str, Any], vocabulary: dict[str, list[Any]]) -> dict[str, dict[str, Any]]:
    """The folder's JSON files, by name."""
    tokens = vocabulary["tokens"]
    eos = facts["tokenizer.ggml.eos_token_id"]
    stops = [eos] + [i for i, token in enumerate(tokens) if token == "<|endoftext|>" and i != eos]
    names = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": facts["llama.embedding_length"],
        "intermediate_size": facts["llama.feed_forward_length"],
        "num_hidden_layers": facts["llama.block_count"],
        "num_attention_heads": facts["llama.attention.head_count"],
        "num_key_value_heads": facts["llama.attention.head_count_kv"],
        "head_dim": facts["llama.rope.dimension_count"],
        "max_position_embeddings": facts["llama.context_length"],
        "rms_norm_eps": facts["llama.attention.layer_norm_rms_epsilon"],
        "rope_parameters": {"rope_type": "default", "rope_theta": facts["llama.rope.freq_base"]},
        "vocab_size": len(tokens),
        "bos_token_id": facts["tokenizer.ggml.bos_token_id"],
        "eos_token_id": eos,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "dtype": "bfloat16",
    }
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": facts["llama.context_length"],
        "clean_up_tokenization_spaces": False,
        "chat_template": facts["tokenizer.chat_template"],
    } | {f"{name}_token": tokens[facts[f"tokenizer.ggml.{key}_token_id"]] for name, key in names.items()}
    return {
        "config.json": config,
        "generation_config.json": {"eos_token_id": stops},
        "tokenizer_config.json": tokenizer_config,
    }


def _tokenizer(vocabulary: dict[str, list[Any]]) -> Any:
    """SmolLM's tokeniser from its vocabulary: every digit by itself, then byte-level BPE."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens = vocabulary["tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in vocabulary["merges"]]
    backend = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, vocabulary["token_type"], strict=True) if kind == CONTROL]
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    return backend
