"""What a model says of itself before any of its weights is read: sizes, number formats, tokeniser, and what can run
it."""

from __future__ import annotations

import functools
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.config import EMBEDDED
from engine.errors import LoadError
from engine.loading.gguf.convert import printable_name
from engine.loading.gguf.files import FAMILIES, READ, model_config, on_grid
from engine.loading.gguf.header import GgufHeader, Truncated, read_gguf
from engine.loading.gguf.tokenizer import build_backend, check_roles
from engine.loading.progress import Progress
from engine.loading.source import EMBEDDED_NAME, HUB_ID, first_line
from engine.networks.llama_shape import LLAMA_FAMILY
from engine.preflight import tokenizer_info
from engine.preflight.diagnostics import Diagnostic, ModelRefused, diagnose
from engine.preflight.headers_folder import read_model_files
from engine.preflight.model_files import Folder, find_on_hub
from engine.preflight.model_info import ModelInfo, window_of
from engine.preflight.supported import obstacle
from engine.preflight.tokenizer_info import TokenizerInfo


def read_headers(
    name: str, *, offline: bool = False, progress: Progress = lambda *_: None, with_tokens: bool = True
) -> ModelInfo:
    """name: "embedded", a folder, a .gguf file or a hub id; of the latter only headers are fetched.

    with_tokens False: the default model's tokeniser, which is known to be whole, is not read.

    Raises ModelRefused, a LoadError of one sentence and what to do; a model that is whole but cannot run is no error
    (`runs`).
    """
    if name == EMBEDDED:
        return _read_default_model(offline, with_tokens)
    try:
        return _read_model(name, offline, progress)
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        OSError,
        TypeError,
        ValueError,
    ) as error:  # wrong kinds of value
        raise ModelRefused(
            "damaged", name=name, reason=f"what it says of itself makes no sense ({first_line(error)})"
        ) from error


def _read_model(name: str, offline: bool, progress: Progress) -> ModelInfo:
    path = Path(name).expanduser()
    if path.is_dir():
        return read_model_files(Folder(path.resolve().name, path))
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise ModelRefused("not_a_model", name=name)
        file_stat = path.stat()
        return _read_gguf_info(path, file_stat.st_size, file_stat.st_mtime_ns)
    if path.suffix.lower() == ".gguf" or name.startswith((".", "~", os.sep)) or not HUB_ID.fullmatch(name):
        raise ModelRefused("not_found", name=name)
    return read_model_files(find_on_hub(name, offline, progress))


# -- the default model -------------------------------------------------------------------------------------------------

DEFAULT_MODEL_INFO = ModelInfo(
    name=EMBEDDED_NAME, source=EMBEDDED, kind="llama", runs="native", reason=None, layers=30, hidden=576, heads=9,
    kv_heads=3, head_dim=64, mlp=1536, vocab_rows=49152, context_len=8192, window=None, parameters=134_515_008,
    file_bytes=98_362_432, formats=(("Q4_1", 66_355_200), ("Q8_0", 30_081_024), ("F32", 140_544)), here=False,
    embedding=49152 * 576, tied=True, grid=True,
)  # fmt: skip
"""Of the default model, where it has not been fetched yet."""


def _read_default_model(offline: bool, with_tokens: bool) -> ModelInfo:
    from engine.loading.default_model import DEFAULT_MODEL
    from engine.storage.cache_folder import cache_folder

    folder = cache_folder() / DEFAULT_MODEL.file_name.removesuffix(".gguf")
    gguf = folder / DEFAULT_MODEL.file_name
    if not gguf.is_file():
        if offline:
            raise ModelRefused("offline", name=EMBEDDED_NAME)
        return DEFAULT_MODEL_INFO
    if not with_tokens:
        return replace(DEFAULT_MODEL_INFO, here=True)
    tokenizer_files = sorted(folder.glob("*-tiles-*/tokenizer.json"), key=lambda path: path.stat().st_mtime)
    tokens = (
        tokenizer_info.from_file(tokenizer_files[-1])
        if tokenizer_files
        else tokenizer_info.from_gguf(_read_gguf_header(gguf, EMBEDDED_NAME).facts)
    )
    return replace(DEFAULT_MODEL_INFO, here=True, tokens=tokens)


# -- a GGUF file -------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4)
def _read_gguf_info(path: Path, size: int, mtime_ns: int) -> ModelInfo:
    """Read once while the file stays what it is: a page checks a pair before it loads it."""
    gguf = _read_gguf_header(path, path.name)
    family = FAMILIES.get(gguf.architecture)
    reason, config = _find_gguf_refusal(path, gguf)
    formats: Counter[str] = Counter()
    for tensor in gguf.tensors:
        formats[tensor.type] += tensor.nbytes
    tensors_by_name = {tensor.name: tensor for tensor in gguf.tensors}
    embedding = tensors_by_name.get("token_embd.weight")
    kind = family.kind if family else gguf.architecture
    grid = reason is None and on_grid(gguf, config)
    return ModelInfo(
        name=printable_name(path.stem),
        source="gguf",
        kind=kind,
        runs="no" if reason else "native" if grid else "lean" if kind in LLAMA_FAMILY else "transformers",
        reason=reason,
        layers=config.get("num_hidden_layers", 0),
        hidden=config.get("hidden_size", 0),
        heads=config.get("num_attention_heads", 0),
        kv_heads=config.get("num_key_value_heads", 0),
        head_dim=config.get("head_dim", 0),
        mlp=config.get("intermediate_size", 0),
        vocab_rows=embedding.shape[0] if embedding else 0,
        context_len=int(config.get("max_position_embeddings") or gguf.fact("context_length") or 2048),
        window=window_of(config.get("sliding_window")),
        parameters=sum(tensor.numbers for tensor in gguf.tensors),
        file_bytes=gguf.file_bytes,
        formats=tuple(formats.most_common()),
        tokens=None if reason else _read_gguf_tokens(path.name, gguf),
        chat="tokenizer.chat_template" in gguf.facts,
        embedding=embedding.numbers if embedding else 0,
        tied="output.weight" not in tensors_by_name,
        grid=grid,
    )


def _read_gguf_tokens(name: str, gguf: GgufHeader) -> TokenizerInfo:
    if gguf.facts.get("tokenizer.ggml.model") == "llama":  # its merges take seconds to find
        check_roles(gguf.facts, name)
        return tokenizer_info.from_gguf(gguf.facts)
    try:
        return tokenizer_info.from_backend(build_backend(gguf.facts, name))
    except LoadError as error:
        raise ModelRefused("gguf_refused", reason=first_line(error).split(": ")[0]) from error


def _find_gguf_refusal(path: Path, gguf: GgufHeader) -> tuple[Diagnostic | None, dict[str, Any]]:
    """Why it is not read, and its config.json where it is."""
    if gguf.architecture not in FAMILIES:
        code = obstacle({"model_type": gguf.architecture}) or "unknown_architecture"
        return diagnose(code, name=path.name, kind=gguf.architecture or "?"), {}
    unreadable_types = sorted({tensor.type for tensor in gguf.tensors} - set(READ))
    if unreadable_types:
        return diagnose("unsupported_type", name=path.name, type=", ".join(unreadable_types)), {}
    try:
        return None, model_config(gguf, path)
    except LoadError as error:
        return diagnose("gguf_refused", reason=first_line(error).split(": ")[0]), {}


def _read_gguf_header(path: Path, name: str) -> GgufHeader:
    try:
        return read_gguf(path)
    except Truncated as error:
        raise ModelRefused("truncated", name=name, file=path.name) from error
    except LoadError as error:
        raise ModelRefused("damaged", name=name, reason=first_line(error).split(": ")[0]) from error
