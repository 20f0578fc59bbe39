"""A model's files as safetensors, in a folder or on the hub: their names, their JSON, and the heads of their
weights."""

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

LONGEST_HEADER = 10**8
"""Bytes; as the safetensors library allows."""

ENDPOINT: str | None = None
"""Another hub than the usual one; None for what HF_ENDPOINT says."""


class TensorHeader(NamedTuple):
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
        """A small file, fetched if need be. Raises ModelRefused."""
        ...

    def tensors(self, file: str) -> dict[str, TensorHeader]:
        """The head of a safetensors file. Raises ModelRefused where it is damaged or cut short."""
        ...


def read_json(files: Files, file: str) -> dict[str, Any] | None:
    """What a JSON file holds; None where there is none. Raises ModelRefused where it is damaged."""
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

    def tensors(self, file: str) -> dict[str, TensorHeader]:
        path = self.folder / file
        try:
            with path.open("rb") as stream:
                [header_bytes] = struct.unpack("<Q", stream.read(8))
                if not 2 <= header_bytes <= min(LONGEST_HEADER, path.stat().st_size):
                    raise ValueError("its head is not as long as it says")
                return parse_header(self.name, file, stream.read(header_bytes), path.stat().st_size - 8 - header_bytes)
        except (OSError, ValueError, RecursionError, struct.error) as error:
            raise ModelRefused(
                "damaged", name=self.name, reason=f"{file} is no safetensors ({first_line(error)})"
            ) from error


def parse_header(name: str, file: str, header: bytes, weight_bytes: int) -> dict[str, TensorHeader]:
    """behind: bytes of the file behind its head. Raises ValueError; ModelRefused where weights are missing."""
    try:
        tensors = {
            key: TensorHeader(str(t["dtype"]), tuple(map(int, t["shape"])), *map(int, t["data_offsets"]))
            for key, t in json.loads(header).items()
            if key != "__metadata__"
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("its head cannot be read") from error
    if any(min(t.shape, default=0) < 0 for t in tensors.values()) or _weights_end(tensors) is None:
        raise ValueError("its weights do not lie one behind the other")
    if max((tensor.end for tensor in tensors.values()), default=0) > weight_bytes:
        raise ModelRefused("truncated", name=name, file=file)
    return tensors


def _weights_end(tensors: Mapping[str, TensorHeader]) -> int | None:
    """Where the last one ends; None where they overlap, or leave something between them."""
    end = 0
    for tensor in sorted(tensors.values(), key=lambda t: (t.begin, t.end)):
        if tensor.begin != end or tensor.end < end:
            return None
        end = tensor.end
    return end


@dataclass(frozen=True, slots=True)
class Hub:
    """A hub id: only the JSON files are fetched, and the heads of the weights by range requests."""

    name: str
    sizes: Mapping[str, int]
    source: str = "hub"
    here: bool = False

    def path(self, file: str) -> Path:
        import huggingface_hub

        with _hub_errors(self.name):
            return Path(huggingface_hub.hf_hub_download(self.name, file, endpoint=ENDPOINT))

    def tensors(self, file: str) -> dict[str, TensorHeader]:
        import huggingface_hub

        with _hub_errors(self.name):
            metadata = huggingface_hub.HfApi(endpoint=ENDPOINT).parse_safetensors_file_metadata(self.name, file)
        return {
            name: TensorHeader(str(t.dtype), tuple(t.shape), t.data_offsets[0], t.data_offsets[1])
            for name, t in metadata.tensors.items()
        }


def find_on_hub(repo_id: str, offline: bool, progress: Progress) -> Files:
    """From the hub's own cache where all of it is there. Raises ModelRefused."""
    cached_folder = _find_cached(repo_id)
    if cached_folder is not None and is_whole(cached_folder):
        return Folder(repo_id, cached_folder, "hub")
    if offline:
        raise ModelRefused("offline", name=repo_id)
    import huggingface_hub

    progress("fetch", None)
    with _hub_errors(repo_id):
        model_info = huggingface_hub.HfApi(endpoint=ENDPOINT).model_info(repo_id, files_metadata=True, timeout=10)
    return Hub(repo_id, {f.rfilename: f.size or 0 for f in model_info.siblings or () if "/" not in f.rfilename})


def _find_cached(repo_id: str) -> Path | None:
    import huggingface_hub

    try:
        return Path(huggingface_hub.snapshot_download(repo_id, allow_patterns=FILES, local_files_only=True))
    except (OSError, ValueError):
        return None


def is_whole(folder: Path) -> bool:
    """Whether config.json and all weights that the index names are there."""
    weight_files = {path.name for path in folder.glob("*.safetensors")}
    try:
        index = json.loads((folder / "model.safetensors.index.json").read_text("utf-8"))
        indexed_files = set(index["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        indexed_files = set()
    return (folder / "config.json").is_file() and bool(weight_files) and indexed_files <= weight_files


class _hub_errors:
    """Turns what the hub's library raises into ModelRefused."""

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
