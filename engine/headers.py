"""What a model says of itself before any of its weights is read: sizes, number formats, tokeniser, and what can run it."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine import tokens as tokens_of
from engine.errors import LoadError
from engine.findings import Finding, Refused, found
from engine.gguf_header import GgufHeader, Truncated, read_gguf
from engine.headers_folder import of_files
from engine.kinds import GGUF_KINDS, GGUF_TYPES, GRID_TYPES, KINDS, obstacle
from engine.model_facts import Headers, HeadFacts, window_of
from engine.model_files import Folder, Progress, on_hub
from engine.places import EMBEDDED, HUB_ID, first_line
from engine.tokens import Tokens

__all__ = ["HeadFacts", "Headers", "Progress", "Tokens", "read_headers"]

EMBEDDED_NAME = "SmolLM2-135M-Instruct"


def read_headers(
    name: str, *, offline: bool = False, progress: Progress = lambda *_: None, with_tokens: bool = True
) -> Headers:
    """name: "embedded", a folder, a .gguf file or a hub id; of the latter only headers are fetched.

    with_tokens False: the default model's tokeniser, which is known to be whole, is not read.

    Raises Refused, a LoadError of one sentence and what to do; a model that is whole but cannot run is no error (`runs`).
    """
    if name == EMBEDDED:
        return _embedded(offline, with_tokens)
    try:
        return _read(name, offline, progress)
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        OSError,
        TypeError,
        ValueError,
    ) as error:  # wrong kinds of value
        raise Refused(
            "damaged", name=name, reason=f"what it says of itself makes no sense ({first_line(error)})"
        ) from error


def _read(name: str, offline: bool, progress: Progress) -> Headers:
    path = Path(name).expanduser()
    if path.is_dir():
        return of_files(Folder(path.resolve().name, path))
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise Refused("not_a_model", name=name)
        return _of_gguf(path)
    if path.suffix.lower() == ".gguf" or name.startswith((".", "~", os.sep)) or not HUB_ID.fullmatch(name):
        raise Refused("not_found", name=name)
    return of_files(on_hub(name, offline, progress))


# -- the default model -------------------------------------------------------------------------------------------------

FACTS = Headers(
    name=EMBEDDED_NAME, source=EMBEDDED, kind="llama", runs="native", reason=None, layers=30, hidden=576, heads=9,
    kv_heads=3, head_dim=64, mlp=1536, vocab_rows=49152, context_len=8192, window=None, parameters=134_515_008,
    file_bytes=98_362_432, formats=(("Q4_1", 66_355_200), ("Q8_0", 30_081_024), ("F32", 140_544)), here=False,
    embedding=49152 * 576, tied=True, grid=True,
)  # fmt: skip
"""Of the default model, where it has not been fetched yet."""


def _embedded(offline: bool, with_tokens: bool) -> Headers:
    from engine.fetch import DEFAULT_MODEL, cache_folder

    folder = cache_folder() / DEFAULT_MODEL.file_name.removesuffix(".gguf")
    gguf = folder / DEFAULT_MODEL.file_name
    if not gguf.is_file():
        if offline:
            raise Refused("offline", name=EMBEDDED_NAME)
        return FACTS
    if not with_tokens:
        return replace(FACTS, here=True)
    made = sorted(folder.glob("*-tiles-*/tokenizer.json"), key=lambda path: path.stat().st_mtime)
    found_tokens = tokens_of.of_file(made[-1]) if made else tokens_of.of_gguf(_gguf(gguf, EMBEDDED_NAME).facts)
    return replace(FACTS, here=True, tokens=found_tokens)


# -- a GGUF file -------------------------------------------------------------------------------------------------------


def _of_gguf(path: Path) -> Headers:
    gguf = _gguf(path, path.name)
    kind = GGUF_KINDS.get(gguf.architecture, gguf.architecture)
    formats: Counter[str] = Counter()
    for tensor in gguf.tensors:
        formats[tensor.type] += tensor.nbytes
    reason = _gguf_reason(path.name, gguf)
    by_name = {tensor.name: tensor for tensor in gguf.tensors}
    if reason is None and not {"token_embd.weight", "output_norm.weight"} <= by_name.keys():
        raise Refused("damaged", name=path.name, reason="it has no embedding, as if it were a part of a model")
    embedding = by_name.get("token_embd.weight")
    grid = kind in KINDS and {t.type for t in gguf.tensors if len(t.shape) > 1} <= GRID_TYPES
    heads = _first(gguf.fact("attention.head_count", 0))
    hidden = int(gguf.fact("embedding_length", 0))
    return Headers(
        name=path.stem,
        source="gguf",
        kind=kind,
        runs="no" if reason else "native" if grid else "lean" if kind in KINDS else "transformers",
        reason=reason,
        layers=int(gguf.fact("block_count", 0)),
        hidden=hidden,
        heads=heads,
        kv_heads=_first(gguf.fact("attention.head_count_kv", heads)),
        head_dim=int(gguf.fact("attention.key_length", 0) or hidden // max(1, heads)),
        mlp=_first(gguf.fact("feed_forward_length", 0)),
        vocab_rows=embedding.shape[0] if embedding else 0,
        context_len=int(gguf.fact("context_length", 2048)),
        window=window_of(gguf.fact("attention.sliding_window")),
        parameters=sum(tensor.numbers for tensor in gguf.tensors),
        file_bytes=gguf.file_bytes,
        formats=tuple(formats.most_common()),
        tokens=tokens_of.of_gguf(gguf.facts) if gguf.facts.get("tokenizer.ggml.tokens") else None,
        chat="tokenizer.chat_template" in gguf.facts,
        embedding=embedding.numbers if embedding else 0,
        tied="output.weight" not in by_name,
        grid=grid and reason is None,
    )


def _gguf(path: Path, name: str) -> GgufHeader:
    try:
        return read_gguf(path)
    except Truncated as error:
        raise Refused("truncated", name=name, file=path.name) from error
    except LoadError as error:
        raise Refused("damaged", name=name, reason=first_line(error).split(": ")[0]) from error


def _gguf_reason(name: str, gguf: GgufHeader) -> Finding | None:
    if gguf.architecture not in GGUF_KINDS:
        code = obstacle({"model_type": gguf.architecture}) or "unknown_architecture"
        return found(code, name=name, kind=gguf.architecture or "?")
    others = sorted({tensor.type for tensor in gguf.tensors} - GGUF_TYPES)
    return found("unsupported_type", name=name, type=", ".join(others)) if others else None


def _first(value: Any) -> int:
    """A size, of the first layer where it is told layer by layer."""
    return int(value[0] if isinstance(value, list) and value else value or 0)
