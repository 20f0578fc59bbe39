"""Finds, checks and loads models; the only importer of transformers.

Whatever goes wrong on the way is one LoadError with one sentence; the traceback stays behind it as its cause.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.convert import converted
from engine.errors import InvalidParams, LoadError
from engine.fetch import DEFAULT_MODEL, default_model
from engine.hardware import default_threads, pick_device, pick_dtype
from engine.text import Tokenizer, build_tokenizer

if TYPE_CHECKING:
    from engine.model import TransformersNetwork

__all__ = ["Loaded", "default_threads", "load"]

Progress = Callable[[str, float | None], None]
"""progress(phase, fraction): phases "fetch", "unpack", "convert", "load"; fraction 0..1, None where unknown."""

EMBEDDED = "embedded"
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
ATTENTION = "greenlight"
KNOWN_LAYERS = {"full_attention", "sliding_attention"}


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model ready to run. weights and kernel are phrases for people."""

    network: TransformersNetwork
    tokenizer: Tokenizer
    name: str
    weights: str
    kernel: str
    context_len: int
    device: str


@dataclass(frozen=True, slots=True)
class Place:
    """A folder with a model as transformers keeps them. origin: what the weights were before, e.g. "GGUF Q4_1"."""

    folder: Path
    name: str
    origin: str


def load(target: str, *, device: str = "auto", threads: int | None = None, offline: bool, progress: Progress) -> Loaded:
    """target: "embedded" (the default model), a local folder, or a hub id. Raises LoadError.

    Sets the number of threads that torch uses in this process, when the model runs on the CPU.
    """
    place = _find(target, offline, progress)
    progress("load", None)
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    where = pick_device(device)
    if where.type == "cpu":
        torch.set_num_threads(threads or default_threads())
    dtype = pick_dtype(where)
    config = _config(place)
    _refuse_unsupported(place.name, config)
    hf_model = _network(place, dtype, where)
    tokenizer = _tokenizer(place, hf_model.generation_config, config.vocab_size)
    from engine.model import TransformersNetwork

    written = str(dtype).removeprefix("torch.").replace("bfloat16", "bf16")
    return Loaded(
        network=TransformersNetwork(hf_model, tokenizer.vocab_size),
        tokenizer=tokenizer,
        name=place.name,
        weights=f"{place.origin}, run as {written}",
        kernel=f"torch {written} linear",
        context_len=int(getattr(config, "max_position_embeddings", None) or 2048),
        device=str(where),
    )


def _find(target: str, offline: bool, progress: Progress) -> Place:
    if target == EMBEDDED:
        gguf = default_model(offline=offline, progress=progress)
        folder = converted(gguf, DEFAULT_MODEL.file_sha256, progress)
        return Place(folder, "SmolLM2-135M-Instruct", "GGUF Q4_1")
    folder = Path(target).expanduser()
    if folder.is_dir():
        return Place(folder, folder.resolve().name, "safetensors")
    if folder.suffix == ".gguf":
        raise LoadError(f"{target}: GGUF files other than the default model cannot be read; name a folder or a hub id.")
    if folder.is_file():
        raise LoadError(
            f"{target} is a file: name the folder of a model (with config.json and *.safetensors) or a hub id."
        )
    if target.startswith((".", "~", os.sep)) or not HUB_ID.fullmatch(target):
        raise LoadError(
            f"There is no folder {target}: name the folder of a model, a hub id such as owner/model, or {EMBEDDED}."
        )
    return Place(_from_hub(target, offline, progress), target, "safetensors")


def _from_hub(repo_id: str, offline: bool, progress: Progress) -> Path:
    """The hub's own cache holds the files; only what is missing is fetched."""
    import huggingface_hub
    from huggingface_hub import errors

    progress("fetch", None)
    try:
        # Files in sub-folders and consolidated.* are the same weights once more, for other programs.
        return Path(
            huggingface_hub.snapshot_download(
                repo_id, allow_patterns=FILES, ignore_patterns=["*/*", "consolidated*"], local_files_only=offline
            )
        )
    except errors.GatedRepoError as error:
        raise LoadError(f"{repo_id} asks for its licence to be accepted on its hub page; then set HF_TOKEN.") from error
    except errors.RepositoryNotFoundError as error:
        raise LoadError(
            f"The hub has no model {repo_id}, or it is private: check its spelling, or set HF_TOKEN."
        ) from error
    except errors.LocalEntryNotFoundError as error:
        raise LoadError(_not_here(repo_id, offline)) from error
    except (errors.HfHubHTTPError, errors.HFValidationError, OSError) as error:
        raise LoadError(f"The hub did not give {repo_id} ({_first_line(error)}): try again later.") from error
    except Exception as error:  # the HTTP library's own errors have no common base here
        raise LoadError(_not_here(repo_id, offline)) from error


def _not_here(repo_id: str, offline: bool) -> str:
    if offline:
        return f"{repo_id} is not on this machine and --offline forbids fetching it: start once without --offline."
    return f"No network, and {repo_id} is not on this machine yet: connect and start again, or choose {EMBEDDED}."


def _config(place: Place) -> Any:
    from transformers import AutoConfig

    if not (place.folder / "config.json").is_file():
        raise LoadError(f"{place.name} has no config.json: name the folder of a model as safetensors.")
    if not any(place.folder.glob("*.safetensors")):
        raise LoadError(
            f"{place.name} has no *.safetensors weights, and no other kind is loaded: choose another model."
        )
    try:
        return AutoConfig.from_pretrained(place.folder, trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LoadError(
            f"The config.json of {place.name} cannot be used ({_first_line(error)}): choose another model."
        ) from error


def _refuse_unsupported(name: str, config: Any) -> None:
    """Only models whose every layer keeps plain keys and values, and takes its attention from outside."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    architecture = (getattr(config, "architectures", None) or [type(config).__name__])[0]
    kind = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    layers = set(getattr(config, "layer_types", None) or ())
    if (
        kind is None
        or not kind._supports_attention_backend
        or kind._is_stateful
        or getattr(config, "is_encoder_decoder", False)
        or not layers <= KNOWN_LAYERS
    ):
        raise LoadError(
            f"{name} is a {architecture}, which Greenlight cannot run: choose a model of the Llama, Qwen, Mistral, "
            "Gemma or SmolLM kind."
        )


def _network(place: Place, dtype: Any, where: Any) -> Any:
    from transformers import AttentionInterface, AutoModelForCausalLM

    from engine.model import attend_spans

    AttentionInterface.register(ATTENTION, attend_spans)
    try:
        model = AutoModelForCausalLM.from_pretrained(
            place.folder,
            dtype=dtype,
            attn_implementation=ATTENTION,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
        )
    except Exception as error:  # damaged files fail in many ways, and each of them is this sentence
        raise LoadError(f"{place.name} cannot be loaded ({_first_line(error)}): its files may be damaged.") from error
    return model.requires_grad_(False).to(where)


def _tokenizer(place: Place, generation: Any, rows: int) -> Tokenizer:
    from transformers import AutoTokenizer

    try:
        hf = AutoTokenizer.from_pretrained(place.folder, trust_remote_code=False, local_files_only=True)
        backend = hf.backend_tokenizer
    except Exception as error:  # as above; a tokeniser without a fast form has no backend_tokenizer
        raise LoadError(f"The tokeniser of {place.name} cannot be loaded ({_first_line(error)}).") from error
    stops = getattr(generation, "eos_token_id", None)
    stop_ids = {hf.eos_token_id, *(stops if isinstance(stops, list) else [stops])} - {None}

    def render(turns: list[dict[str, str]]) -> str:
        try:
            return str(hf.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))
        except Exception as error:  # the template is the model maker's program, and fails as it likes
            raise InvalidParams(
                "messages", f"The chat template of {place.name} refuses this conversation: {_first_line(error)}."
            ) from error

    return build_tokenizer(backend, render if hf.chat_template else None, stop_ids, hf.bos_token_id, rows)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__).rstrip(".:")
