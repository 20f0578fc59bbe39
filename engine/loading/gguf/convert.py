"""GGUF -> a folder from which a start is quick, made once: configuration, tokeniser, and the weights in one of two
forms.

TILES: the GGUF's own numbers, reordered for the native kernels (kernels/packing.py). BF16: as transformers keeps
models.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.errors import LoadError
from engine.loading.file_lock import hold_lock, readable_errors
from engine.loading.gguf.files import (
    LAYER_NAMES,
    OUTER_NAMES,
    QK_NORMS,
    ROTATION,
    Config,
    family_of,
    model_config,
    on_grid,
)
from engine.loading.gguf.header import GgufHeader, GgufTensor, read_gguf
from engine.loading.gguf.tokenizer import build_backend, stop_ids, tokenizer_config
from engine.loading.gguf.values import read_raw, read_values
from engine.loading.progress import Progress
from engine.storage.checksums import is_intact, write_checksums

if TYPE_CHECKING:
    from torch import Tensor

    from engine.kernels.packing import Blocks

TILES = "tiles"
BF16 = "bf16"

FORMAT = 3
"""Raised whenever the files written here change, so that older folders are not taken."""

SHARD = 2**30
"""Bytes of weights in a file, and in memory while they are written."""

ROWS = 2**22
"""Numbers that are dequantised at a time."""

MARGIN_MB = 100
"""Of the disk, beside the weights: a tokeniser can take 40."""


def fingerprint(path: Path) -> str:
    """Names a file as it is now without reading all of it: its name, size and time of change, its first and last MiB.

    Raises LoadError.
    """
    try:
        file_stat = path.stat()
        digest = hashlib.sha256(os.fsencode(f"{path.name} {file_stat.st_size} {file_stat.st_mtime_ns}"))
        with path.open("rb") as file:
            digest.update(file.read(2**20))
            file.seek(max(0, file_stat.st_size - 2**20))
            digest.update(file.read())
    except OSError as error:
        raise LoadError(f"{path.name} cannot be read ({error.strerror}): check its place and rights.") from error
    return digest.hexdigest()


def printable_name(name: str) -> str:
    """A file's name as it can be shown and written anywhere: file systems allow bytes that are no text."""
    return "".join(char if char.isprintable() else "_" for char in name)


def folder_prefix(stem: str) -> str:
    """How the names of folders made from a file begin; file systems bound their length."""
    return printable_name(stem)[:40]


def choose_form(header: GgufHeader, config: Config, tiles: bool) -> str:
    """TILES where they are wanted and the file's numbers lie on a grid that the kernels know."""
    return TILES if tiles and on_grid(header, config) else BF16


def convert_gguf(gguf: Path, digest: str, progress: Progress, form: str = BF16, home: Path | None = None) -> Path:
    """The folder made from `gguf`, made now if it is missing, damaged or outdated.

    digest: of the file; home: where to put the folder, beside the file by default; form: TILES or BF16. Raises
    LoadError for a file that cannot be read as GGUF, or of another architecture or tokeniser, or where there is no room
    for it.
    """
    folder = (home or gguf.parent) / f"{folder_prefix(gguf.stem)}-{digest[:16]}-{form}-v{FORMAT}"
    if is_intact(folder):
        return folder
    with readable_errors(folder.parent, free_mb=_estimate_mb(gguf)):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with hold_lock(folder.with_name(f"{folder.name}.lock"), progress, "convert"):
            if not is_intact(folder):  # another process may have made it while we waited
                _make_folder(gguf, folder, progress, form)
    return folder


def _estimate_mb(gguf: Path) -> int:
    """A guess at what a folder takes, for a sentence."""
    return (gguf.stat().st_size if gguf.exists() else 0) * 4 // 10**6 + MARGIN_MB


def _make_folder(gguf: Path, folder: Path, progress: Progress, form: str) -> None:
    """Whole or not at all: in another folder first, which is removed however it ends."""
    partial = folder.with_name(f"{folder.name}.partial")
    for leftover in (partial, folder):
        shutil.rmtree(leftover, ignore_errors=True)
    partial.mkdir()
    try:
        _write_folder(gguf, partial, progress, form)
        os.replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write_folder(gguf: Path, folder: Path, progress: Progress, form: str) -> None:
    progress("convert", None)
    header = read_gguf(gguf)
    config = model_config(header, gguf)
    backend = build_backend(header.facts, gguf.name)
    _check_disk(header, folder, form)
    write = _write_tiles if form == TILES else _write_weights
    write(gguf, header, config, folder, progress)
    files = {
        "config.json": config,
        "generation_config.json": {"eos_token_id": stop_ids(header.facts)},
        "tokenizer_config.json": tokenizer_config(header.facts)
        | {"model_max_length": config["max_position_embeddings"]},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, ensure_ascii=False, indent=1), "utf-8")
    backend.save(str(folder / "tokenizer.json"))
    write_checksums(folder, sorted(path.name for path in folder.iterdir()))


def _check_disk(header: GgufHeader, folder: Path, form: str) -> None:
    weights = sum(tensor.nbytes if form == TILES else 2 * tensor.numbers for tensor in header.tensors)
    needed_mb, free_mb = weights // 10**6 + MARGIN_MB, shutil.disk_usage(folder).free // 10**6
    if free_mb < needed_mb:
        raise LoadError(
            f"Reading this file takes {needed_mb} MB in {folder.parent}, and {free_mb} MB are free: make room, or set "
            "GREENLIGHT_CACHE to a folder with more."
        )


def _write_weights(gguf: Path, header: GgufHeader, config: Config, folder: Path, progress: Progress) -> None:
    """In files of about SHARD bytes with the index that transformers expects, so that not all need be in memory."""
    from safetensors.torch import save_file

    shard: dict[str, Tensor] = {}
    files: dict[str, str] = {}  # of each weight

    def write_shard() -> None:
        name = f"model-{len(set(files.values())) + 1:05}.safetensors"
        save_file(shard, folder / name, metadata={"format": "pt"})
        files.update(dict.fromkeys(shard, name))
        shard.clear()

    done_numbers, total_numbers = 0, sum(tensor.numbers for tensor in header.tensors)
    for name, weight in _read_weights(gguf, header, config):
        if shard and sum(tensor.nbytes for tensor in shard.values()) + weight.nbytes > SHARD:
            write_shard()
        shard[name] = weight
        done_numbers += weight.numel()
        progress("convert", done_numbers / total_numbers)
    write_shard()
    if len(set(files.values())) == 1:
        os.replace(folder / "model-00001.safetensors", folder / "model.safetensors")
    else:
        index = {"metadata": {"total_size": 2 * done_numbers}, "weight_map": files}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1), "utf-8")


def _read_weights(gguf: Path, header: GgufHeader, config: Config) -> Iterator[tuple[str, Tensor]]:
    """(transformers' name, bf16) of every weight."""
    import torch

    family = family_of(header, gguf.name)
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for tensor in header.tensors:
        if tensor.name == ROTATION:
            continue
        *layer, kind, suffix = tensor.name.split(".")
        name = f"model.layers.{layer[1]}.{family.layer_names[kind]}" if layer else OUTER_NAMES[kind]
        weight = _read_bf16(gguf, tensor, family.norm_offset if kind.endswith("norm") else 0.0)
        if family.permuted and kind in heads:
            weight = weight[torch.from_numpy(unpermute(np.arange(len(weight)), heads[kind]))]
        yield f"{name}.{suffix}", weight


def _read_bf16(gguf: Path, tensor: GgufTensor, norm_offset: float) -> Tensor:
    """bf16, a few rows at a time: in float32 a large vocabulary would take gigabytes. norm_offset: to be taken off."""
    import torch

    weight = torch.empty(tensor.shape, dtype=torch.bfloat16)
    rows = weight if len(tensor.shape) > 1 else weight[None]
    step = max(1, ROWS // rows.shape[1])
    for begin in range(0, len(rows), step):
        values = read_values(gguf, tensor, begin, begin + step)
        rows[begin : begin + step] = torch.from_numpy(values - np.float32(norm_offset) if norm_offset else values)
    return weight


def _write_tiles(gguf: Path, header: GgufHeader, config: Config, folder: Path, progress: Progress) -> None:
    """One entry a packed matrix, queries, keys and values joined, gate and up interleaved; vectors as they are."""
    from safetensors.numpy import save_file

    from engine.kernels.packing import concatenate, interleave_tiles, pack_tiles, read_blocks

    tensors = {tensor.name: tensor for tensor in header.tensors if tensor.name != ROTATION}
    arrays = {
        name: read_values(gguf, tensors.pop(name))[0]
        for name, tensor in list(tensors.items())
        if len(tensor.shape) == 1
    }

    def take_blocks(name: str) -> Blocks:
        tensor = tensors.pop(f"{name}.weight")
        matrix = read_blocks(tensor.type, read_raw(gguf, tensor))
        if matrix is None:
            raise LoadError(f"{name} is {tensor.type}, which the kernels do not multiply: use --quant bf16.")
        return matrix

    layers = config["num_hidden_layers"]
    for n in range(layers):
        prefix = f"blk.{n}."
        arrays[f"{prefix}qkv"] = pack_tiles(concatenate([take_blocks(f"{prefix}attn_{kind}") for kind in "qkv"]))
        arrays[f"{prefix}out"] = pack_tiles(take_blocks(f"{prefix}attn_output"))
        gate, up = (pack_tiles(take_blocks(f"{prefix}ffn_{kind}")) for kind in ("gate", "up"))
        arrays[f"{prefix}gate_up"] = interleave_tiles(gate, up)
        arrays[f"{prefix}down"] = pack_tiles(take_blocks(f"{prefix}ffn_down"))
        progress("convert", (n + 1) / (layers + 1))
    arrays |= {name: pack_tiles(take_blocks(name)) for name in [name.removesuffix(".weight") for name in tensors]}
    save_file(arrays, folder / "tiles.safetensors")


def read_tiles(folder: Path) -> tuple[dict[str, Blocks], dict[str, np.ndarray[Any, Any]]]:
    """What a folder in the form TILES holds, under transformers' names: matrices as quantised, and float32 vectors.

    Rows of q and k are in transformers' order. Raises OSError, ValueError, KeyError for files that `convert_gguf` did
    not make.
    """
    from safetensors import safe_open

    config = json.loads((folder / "config.json").read_text("utf-8"))
    matrices: dict[str, Blocks] = {}
    vectors: dict[str, np.ndarray[Any, Any]] = {}
    with safe_open(folder / "tiles.safetensors", framework="numpy") as file:
        for name in file.keys():  # noqa: SIM118 - it is no dictionary
            *layer, kind = name.removesuffix(".weight").removesuffix(".bias").split(".")
            array = file.get_tensor(name)
            prefix = f"model.layers.{layer[1]}." if layer else ""
            names = LAYER_NAMES | QK_NORMS if layer else OUTER_NAMES
            if array.ndim == 1:
                vectors[f"{prefix}{names[kind]}.{name.rsplit('.', 1)[1]}"] = array
            else:
                blocks_by_part = _unpack_matrices(kind, array, config)
                matrices |= {f"{prefix}{names[part]}.weight": blocks for part, blocks in blocks_by_part.items()}
    return matrices, vectors


def _unpack_matrices(kind: str, array: np.ndarray[Any, Any], config: dict[str, Any]) -> dict[str, Blocks]:
    """An entry that `_write_tiles` wrote, as the matrices that it was made of, by GGUF's name."""
    from engine.kernels.packing import deinterleave_tiles, select_rows, unpack_tiles

    if kind == "gate_up":
        return dict(zip(("ffn_gate", "ffn_up"), map(unpack_tiles, deinterleave_tiles(array)), strict=True))
    if kind != "qkv":
        return {{"out": "attn_output", "down": "ffn_down"}.get(kind, kind): unpack_tiles(array)}
    heads, kv_heads, dim = (config[name] for name in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    joint_blocks, row_ids = unpack_tiles(array), np.arange((heads + 2 * kv_heads) * dim)
    query, key, value = np.split(row_ids, [heads * dim, (heads + kv_heads) * dim])
    if config["model_type"] == "llama":
        query, key = unpermute(query, heads), unpermute(key, kv_heads)
    rows_of_part = {"attn_q": query, "attn_k": key, "attn_v": value}
    return {part: select_rows(joint_blocks, order) for part, order in rows_of_part.items()}


def unpermute(array: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Rows of q or k as transformers wants them.

    GGUF keeps the two coordinates that one rotation turns next to each other, transformers half a head apart.
    """
    pairs = array.reshape(heads, array.shape[0] // heads // 2, 2, *array.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(array.shape)
