"""From what a person calls a model to a folder on this machine: the default model, a local folder or GGUF, or a hub
id."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.config import EMBEDDED
from engine.errors import LoadError
from engine.loading.default_model import DEFAULT_MODEL, default_model
from engine.loading.gguf.convert import BF16, TILES, choose_form, convert_gguf, fingerprint, printable_name
from engine.loading.gguf.files import gguf_origin, model_config
from engine.loading.gguf.header import read_gguf
from engine.loading.progress import Progress
from engine.storage.cache_folder import cache_folder

EMBEDDED_NAME = "SmolLM2-135M-Instruct"
GGUF_ORIGIN = "GGUF Q4_1"
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
PICKLE = "pytorch_model.bin"
"""Of the first EAGLE-3 heads, which have no safetensors."""

FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A folder with a model as transformers keeps them, or with tiles of a GGUF's own quants (see `gguf.convert`).

    origin: what the weights were before, e.g. "GGUF Q4_1". file_bytes: what they take in the GGUF; digest: names the
    file.
    """

    folder: Path
    name: str
    origin: str
    tiles: bool = False
    file_bytes: int = 0
    digest: str = ""

    @property
    def is_gguf(self) -> bool:
        return self.origin.startswith("GGUF")


def find(target: str, offline: bool, progress: Progress, tiles: bool = False) -> ModelSource:
    """Fetches or converts whatever is missing. tiles: a GGUF as quantised where that can be, not as bf16. Raises
    LoadError."""
    if target == EMBEDDED:
        gguf = default_model(offline=offline, progress=progress)
        folder = convert_gguf(gguf, DEFAULT_MODEL.file_sha256, progress, TILES if tiles else BF16)
        size, digest = gguf.stat().st_size, DEFAULT_MODEL.file_sha256
        return ModelSource(folder, EMBEDDED_NAME, GGUF_ORIGIN, tiles, size, digest)
    path = Path(target).expanduser()
    if path.is_dir():
        return ModelSource(path, path.resolve().name, "safetensors")
    if path.suffix.lower() == ".gguf":
        return from_gguf(path, progress, tiles)
    if path.is_file():
        raise LoadError(
            f"{target} is a file: name the folder of a model (with config.json and *.safetensors), a .gguf or a hub id."
        )
    if target.startswith((".", "~", os.sep)) or not HUB_ID.fullmatch(target):
        raise LoadError(
            f"There is no folder {target}: name the folder of a model, a .gguf, a hub id such as "
            f"owner/model, or {EMBEDDED}."
        )
    return ModelSource(from_hub(target, offline, progress), target, "safetensors")


def from_gguf(file: Path, progress: Progress, tiles: bool) -> ModelSource:
    """The folder made of it in the cache, where the same file is found again. Raises LoadError."""
    if not file.exists():
        raise LoadError(f"There is no file {file}: check its spelling and its folder.")
    header = read_gguf(file)
    form = choose_form(header, model_config(header, file), tiles)
    digest = fingerprint(file)
    folder = convert_gguf(file, digest, progress, form, cache_folder() / "gguf")
    size = sum(tensor.nbytes for tensor in header.tensors)
    return ModelSource(folder, printable_name(file.stem), gguf_origin(header), form == TILES, size, digest)


def from_hub(repo_id: str, offline: bool, progress: Progress, files: Sequence[str] = FILES) -> Path:
    """The hub's own cache holds the files; only what is missing is fetched."""
    import huggingface_hub
    from huggingface_hub import errors

    progress("fetch", None)
    try:
        # Files in sub-folders and consolidated.* are the same weights once more, for other programs.
        return Path(
            huggingface_hub.snapshot_download(
                repo_id, allow_patterns=list(files), ignore_patterns=["*/*", "consolidated*"], local_files_only=offline
            )
        )
    except errors.GatedRepoError as error:
        raise LoadError(f"{repo_id} asks for its licence to be accepted on its hub page; then set HF_TOKEN.") from error
    except errors.RepositoryNotFoundError as error:
        raise LoadError(
            f"The hub has no model {repo_id}, or it is private: check its spelling, or set HF_TOKEN."
        ) from error
    except errors.LocalEntryNotFoundError as error:
        raise LoadError(_missing_message(repo_id, offline)) from error
    except (errors.HfHubHTTPError, errors.HFValidationError, OSError) as error:
        raise LoadError(f"The hub did not give {repo_id} ({first_line(error)}): try again later.") from error
    except Exception as error:  # the HTTP library's own errors have no common base here
        raise LoadError(_missing_message(repo_id, offline)) from error


def _missing_message(repo_id: str, offline: bool) -> str:
    if offline:
        return f"{repo_id} is not on this machine and --offline forbids fetching it: start once without --offline."
    return f"No network, and {repo_id} is not on this machine yet: connect and start again, or choose {EMBEDDED}."


def first_line(error: Exception) -> str:
    """An exception as part of a sentence."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__).rstrip(".:")
