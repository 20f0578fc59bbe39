"""A model's files as safetensors, in a folder or on the hub: their names, their JSON, and the heads of their weights."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from engine.errors import LoadError
from engine.loading.progress import Progress
from engine.loading.source import FILES, first_line
from engine.preflight.diagnostics import ModelRefused

LONGEST_HEAD = 10**8
"""Bytes; as the safetensors library allows."""

ENDPOINT: str | None = None
"""Another hub than the usual one; None for what HF_ENDPOINT says."""


class TensorHead(NamedTuple):
    """dtype: safetensors' name, such as "BF16". begin, end: bytes behind the head."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class Files(Protocol):
    """sizes: bytes by name, of the files beside config.json. here: whether all of them are on this machine."""

    @property
    def name(self) -> str: ...

    @property
    def source(self) -> str: ...

    @property
    def sizes(self) -> Mapping[str, int]: ...

    @property
    def here(self) -> bool: ...

    def path(self, file: str) -> Path:
        """A small file, fetched if need be. Raises Refused."""
        ...

    def tensors(self, file: str) -> dict[str, TensorHead]:
        """The head of a safetensors file. Raises Refused where it is damaged or cut short."""
        ...


def json_of(files: Files, file: str) -> dict[str, Any] | None:
    """What a JSON file holds; None where there is none. Raises Refused where it is damaged."""
    if file not in files.sizes:
        return None
    try:
        value = json.loads(files.path(file).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelRefused("damaged", name=files.name, reason=f"{file} is no JSON ({first_line(error)})") from error
    if not isinstance(value, dict):
        raise ModelRefused("damaged", name=files.name, reason=f"{file} holds no object")
    return value


@dataclass(frozen=True, slots=True)
class Folder:
    """On this machine; source "hub": in the hub's own cache."""

    name: str
    folder: Path
    source: str = "folder"
    here: bool = True

    @property
    def sizes(self) -> Mapping[str, int]:
        try:
            return {path.name: path.stat().st_size for path in sorted(self.folder.iterdir()) if path.is_file()}
        except OSError as error:
            raise ModelRefused("damaged", name=self.name, reason=error.strerror or str(error)) from error

    def path(self, file: str) -> Path:
        return self.folder / file

    def tensors(self, file: str) -> dict[str, TensorHead]:
        path = self.folder / file
        try:
            with path.open("rb") as opened:
                [length] = struct.unpack("<Q", opened.read(8))
                if not 2 <= length <= min(LONGEST_HEAD, path.stat().st_size):
                    raise ValueError("its head is not as long as it says")
                return parsed_head(self.name, file, opened.read(length), path.stat().st_size - 8 - length)
        except (OSError, ValueError, RecursionError, struct.error) as error:
            raise ModelRefused(
                "damaged", name=self.name, reason=f"{file} is no safetensors ({first_line(error)})"
            ) from error


def parsed_head(name: str, file: str, head: bytes, behind: int) -> dict[str, TensorHead]:
    """behind: bytes of the file behind its head. Raises ValueError; Refused where weights are missing."""
    try:
        found = {
            key: TensorHead(str(t["dtype"]), tuple(map(int, t["shape"])), *map(int, t["data_offsets"]))
            for key, t in json.loads(head).items()
            if key != "__metadata__"
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("its head cannot be read") from error
    if any(min(t.shape, default=0) < 0 for t in found.values()) or _end(found) is None:
        raise ValueError("its weights do not lie one behind the other")
    if max((tensor.end for tensor in found.values()), default=0) > behind:
        raise ModelRefused("truncated", name=name, file=file)
    return found


def _end(tensors: Mapping[str, TensorHead]) -> int | None:
    """Where the last one ends; None where they overlap, or leave something between them."""
    at = 0
    for tensor in sorted(tensors.values(), key=lambda t: (t.begin, t.end)):
        if tensor.begin != at or tensor.end < at:
            return None
        at = tensor.end
    return at


@dataclass(frozen=True, slots=True)
class Hub:
    """A hub id: only the JSON files are fetched, and the heads of the weights by range requests."""

    name: str
    sizes: Mapping[str, int]
    source: str = "hub"
    here: bool = False

    def path(self, file: str) -> Path:
        import huggingface_hub

        with _readable(self.name):
            return Path(huggingface_hub.hf_hub_download(self.name, file, endpoint=ENDPOINT))

    def tensors(self, file: str) -> dict[str, TensorHead]:
        import huggingface_hub

        with _readable(self.name):
            head = huggingface_hub.HfApi(endpoint=ENDPOINT).parse_safetensors_file_metadata(self.name, file)
        return {
            name: TensorHead(str(t.dtype), tuple(t.shape), t.data_offsets[0], t.data_offsets[1])
            for name, t in head.tensors.items()
        }


def on_hub(repo_id: str, offline: bool, progress: Progress) -> Files:
    """From the hub's own cache where all of it is there. Raises Refused."""
    cached = _cached(repo_id)
    if cached is not None and is_whole(cached):
        return Folder(repo_id, cached, "hub")
    if offline:
        raise ModelRefused("offline", name=repo_id)
    import huggingface_hub

    progress("fetch", None)
    with _readable(repo_id):
        about = huggingface_hub.HfApi(endpoint=ENDPOINT).model_info(repo_id, files_metadata=True, timeout=10)
    return Hub(repo_id, {f.rfilename: f.size or 0 for f in about.siblings or () if "/" not in f.rfilename})


def _cached(repo_id: str) -> Path | None:
    import huggingface_hub

    try:
        return Path(huggingface_hub.snapshot_download(repo_id, allow_patterns=FILES, local_files_only=True))
    except (OSError, ValueError):
        return None


def is_whole(folder: Path) -> bool:
    """Whether config.json and all weights that the index names are there."""
    weights = {path.name for path in folder.glob("*.safetensors")}
    try:
        index = json.loads((folder / "model.safetensors.index.json").read_text("utf-8"))
        wanted = set(index["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        wanted = set()
    return (folder / "config.json").is_file() and bool(weights) and wanted <= weights


class _readable:
    """Turns what the hub's library raises into Refused."""

    def __init__(self, repo_id: str) -> None:
        self._repo_id = repo_id

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from huggingface_hub import errors

        if error is None or isinstance(error, LoadError) or not isinstance(error, Exception):
            return
        if isinstance(error, errors.GatedRepoError):
            raise ModelRefused("gated", name=self._repo_id) from error
        if isinstance(error, (errors.RepositoryNotFoundError, errors.HFValidationError)):
            raise ModelRefused("not_found", name=self._repo_id) from error
        if isinstance(error, errors.SafetensorsParsingError):
            raise ModelRefused("damaged", name=self._repo_id, reason="its safetensors have no head") from error
        raise ModelRefused(
            "no_network", name=self._repo_id
        ) from error  # the HTTP library's own errors have no common base
