"""Checks and loads models; the only importer of transformers.

Whatever goes wrong on the way is one LoadError with one sentence; the traceback stays behind it as its cause.
"""

from __future__ import annotations

import gc
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine.config import EMBEDDED, ON_GRID
from engine.errors import EngineError, InvalidParams, LoadError
from engine.hardware import default_threads, pick_device, pick_dtype
from engine.loading.gguf_load import load_bundled, read_tokenizer, runs_natively
from engine.loading.loaded import DEQUANTISED, Loaded, chosen, finished
from engine.loading.progress import Progress
from engine.loading.source import ModelSource, find, first_line
from engine.text.tokenizer import Tokenizer, build_tokenizer

if TYPE_CHECKING:
    from engine.kernels.build import Kernels
    from engine.networks.linear import Linear, LinearFormat
    from engine.networks.model import Network

log = logging.getLogger(__name__)

__all__ = ["Loaded", "default_threads", "load"]

ATTENTION = "greenlight"
TOLERANCE = 0.1
"""Share of the logits' spread by which 16-bit kernels may differ; a wrong attention differs by about all of it."""
KNOWN_LAYERS = {"full_attention", "sliding_attention"}


def load(
    target: str,
    *,
    device: str = "auto",
    threads: int | None = None,
    kernel: str = "auto",
    quant: str = "auto",
    compute: str = "auto",
    offline: bool,
    progress: Progress,
) -> Loaded:
    """target: "embedded" (the default model), a local folder, a GGUF file, or a hub id. Raises LoadError.

    kernel: "native" (compiled here; for the default model and GGUF files like it, on a CPU), "torch", or "auto", which
    takes native where it can. quant: a name of `linear.KINDS`, or "auto": a GGUF's own grid on native kernels, and else
    the quickest here that rounds no weight again. compute: as `EngineConfig.compute`. Sets the number of threads that torch uses in this process, when the
    model runs on the CPU.
    """
    import torch

    threads = threads or default_threads()
    where = pick_device(device)
    kernels = _kernels(target, kernel, quant, where, progress)
    source = find(target, offline, progress, tiles=True)
    if kernels is not None and not (source.tiles and runs_natively(source)):
        if kernel == "native":
            raise LoadError(f"The native kernels do not run {source.name}: leave out --kernel native.")
        kernels = None
    if where.type == "cpu":  # beside the native kernels torch does small things only, and threads take long to wake
        torch.set_num_threads(threads if kernels is None else 1)
    progress("load", None)
    if source.tiles:
        return load_bundled(source, kernels, quant, where, threads, compute)
    return _load_transformers(source, where, quant, threads, compute)


def _kernels(target: str, wanted: str, quant: str, where: Any, progress: Progress) -> Kernels | None:
    """The native kernels if they are wanted and can be had. Raises LoadError if only they would do."""
    possible = (target == EMBEDDED or target.lower().endswith(".gguf")) and where.type == "cpu"
    if wanted == "native" and not possible:
        raise LoadError(
            "The native kernels run the default model and GGUF files like it, on a CPU: leave out --kernel native."
        )
    if wanted == "torch" or not possible or quant not in ON_GRID:
        return None
    from engine.kernels.build import Kernels, kernels

    progress("compile", None)
    found = kernels()
    if isinstance(found, Kernels):
        return found
    if wanted == "native":
        raise LoadError(f"The native kernels cannot be used: {found}.")
    log.warning("Running on torch's own kernels: %s.", found)
    return None


def _load_transformers(source: ModelSource, where: Any, quant: str, threads: int, compute: str) -> Loaded:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    config = _config(source)
    _refuse_unsupported(source.name, config)
    text_config = config.get_text_config()
    shape = (getattr(text_config, "intermediate_size", None) or text_config.hidden_size, text_config.hidden_size)
    kind = chosen(quant, source, where, shape, compute)
    network, generation = _network(source, kind, where)
    tokenizer = read_tokenizer(source) if source.is_gguf else _tokenizer(source, generation, text_config.vocab_size)
    network.vocab_size = tokenizer.vocab_size
    context_len = int(getattr(text_config, "max_position_embeddings", None) or 2048)
    loaded = finished(network, tokenizer, source, kind, context_len, threads)
    return replace(loaded, note="\n".join(filter(None, [_of_size(source, network), loaded.note])))


def _of_size(source: ModelSource, network: Network) -> str:
    """What to say of a GGUF whose weights take clearly more memory than in the file, or ""."""
    if not source.is_gguf or network.weight_bytes < 1.2 * source.file_bytes:
        return ""
    here, there = (f"{size / 2**30:.2f}" for size in (network.weight_bytes, source.file_bytes))
    return DEQUANTISED.format(name=source.name, origin=source.origin, here=here, there=there)


def _config(source: ModelSource) -> Any:
    from transformers import AutoConfig

    if not (source.folder / "config.json").is_file():
        raise LoadError(f"{source.name} has no config.json: name the folder of a model as safetensors.")
    if not any(source.folder.glob("*.safetensors")):
        raise LoadError(
            f"{source.name} has no *.safetensors weights, and no other kind is loaded: choose another model."
        )
    try:
        return AutoConfig.from_pretrained(source.folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # its values are checked in many ways, by many kinds of errors
        raise LoadError(
            f"The config.json of {source.name} cannot be used ({first_line(error)}): choose another model."
        ) from error


def _refuse_unsupported(name: str, config: Any) -> None:
    """Only models whose every layer keeps plain keys and values, and takes its attention from outside."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    kind = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    layers = set(getattr(config.get_text_config(), "layer_types", None) or ())
    if (
        kind is None
        or not kind._supports_attention_backend
        or kind._is_stateful
        or getattr(config, "is_encoder_decoder", False)
        or not layers <= KNOWN_LAYERS
    ):
        raise LoadError(_unsupported(name, config))


def _unsupported(name: str, config: Any) -> str:
    architecture = (getattr(config, "architectures", None) or [type(config).__name__])[0]
    return (
        f"{name} is a {architecture}, which Greenlight cannot run: choose a model of the Llama, Qwen, Mistral, Gemma "
        "or SmolLM kind."
    )


def _network(source: ModelSource, kind: LinearFormat, where: Any) -> tuple[Network, Any]:
    """A network, lean where its family is known, and the model's generation config. Raises LoadError."""
    import torch

    from engine.networks.devices import move_to_device
    from engine.networks.llama_shape import refusal
    from engine.networks.transformers_network import TransformersNetwork

    # What is quantised comes in whole, and need not fit the device whole: it proves itself here, and goes layer by layer.
    here = torch.device("cpu") if kind.requantises else where
    model = _read(source, kind, where, here)
    reason = refusal(model.config.to_dict())
    if reason is None:
        usual = _usual(model)
        config, generation, weights = model.config, model.generation_config, dict(model.state_dict())
        del model  # before its weights are joined: they need not be in memory twice
        gc.collect()
        network = _lean(config, weights, kind, where, here, usual)
        if network is not None:
            return network, generation
        reason = "it is not quite of the Llama family"
        model = _read(source, kind, where, here)
    log.info("%s runs on transformers: %s.", source.name, reason)
    if not _attends_rightly(model):
        raise LoadError(_unsupported(source.name, model.config))
    change = _requantised(model, kind, where) if kind.requantises else 0
    transformed = TransformersNetwork(move_to_device(model, where), model.config.get_text_config().vocab_size)
    transformed.weight_bytes += change
    return transformed, model.generation_config


def _lean(
    config: Any, weights: dict[str, Any], kind: LinearFormat, where: Any, here: Any, usual: Any
) -> Network | None:
    """The lean network on the device `where`; None if the weights do not fit it, or its logits on `_probe` are not the
    `usual` ones.

    weights: on the device `here`, taken out as they are built in. Here linear layers get their kind: those that quantise
    when the network, still dense, has proved itself.
    """
    import torch

    from engine.networks.devices import move_to_device
    from engine.networks.linear import Dense
    from engine.networks.llama import LeanLlama
    from engine.networks.llama_shape import LlamaShape

    form = _dtype(kind, where)
    matrices: dict[int, tuple[Any, Any]] = {}

    def dense(weight: Any, bias: Any) -> Linear:
        made = Dense(weight, bias, form)
        matrices[id(made)] = weight, bias
        return made

    hidden = torch.float32 if here.type == "cpu" else form
    shape = LlamaShape.read(config.to_dict(), _rope(config))
    try:
        network = LeanLlama(shape, weights, dense, dtype=hidden, device=here)
    except LoadError:
        return None
    if not _gives(network, usual):
        return None
    if kind.requantises:

        def requantised(linear: Linear) -> Linear:
            weight, bias = matrices.pop(id(linear))
            return kind.build(move_to_device(weight, where), None if bias is None else move_to_device(bias, where))

        network.replace_linears(requantised)
        matrices.clear()
        if where != here:
            network.move_to(where, torch.float32 if where.type == "cpu" else form)
    return network


def _rope(config: Any) -> tuple[list[float], float] | None:
    """Speeds and scale of a rotation that transformers computes; None for the default one."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    kind = config.rope_parameters["rope_type"]
    if kind == "default":
        return None
    speeds, scale = ROPE_INIT_FUNCTIONS[kind](config)
    return speeds.tolist(), float(scale)


def _read(source: ModelSource, kind: LinearFormat, where: Any, here: Any) -> Any:
    """The transformers model on the device `here`, in the number format of the device `where`. Raises LoadError."""
    from transformers import AutoModelForCausalLM

    from engine.networks.devices import move_to_device

    try:
        model, about = AutoModelForCausalLM.from_pretrained(
            source.folder,
            output_loading_info=True,
            dtype=_dtype(kind, where),
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
        )
    except Exception as error:  # damaged files fail in many ways, and each of them is this sentence
        raise LoadError(f"{source.name} cannot be loaded ({first_line(error)}): its files may be damaged.") from error
    if about["missing_keys"]:  # transformers makes them up
        missing = min(about["missing_keys"])
        raise LoadError(f"{source.name} cannot be loaded (it lacks the weights {missing}): fetch its files again.")
    return move_to_device(model.requires_grad_(False).eval(), here)


def _dtype(kind: LinearFormat, where: Any) -> Any:
    """The number format of everything but the linear layers, which is theirs too where they are dense."""
    from engine.networks.linear import DTYPES

    return DTYPES.get(kind.name, DTYPES[pick_dtype(where)])


def _requantised(model: Any, kind: LinearFormat, where: Any) -> int:
    """Swaps every linear layer but the head for one on the device `where`, one at a time, so that no two copies of all
    weights are ever in memory.

    Returns by how many bytes the weights that a forward reads have changed.
    """
    import torch

    from engine.networks.devices import move_to_device

    class Swapped(torch.nn.Module):
        def __init__(self, linear: Linear) -> None:
            super().__init__()
            self.linear = linear

        def forward(self, x: Any) -> Any:
            return self.linear(x.reshape(-1, x.shape[-1])).reshape(*x.shape[:-1], self.linear.outputs)

    head, change = model.get_output_embeddings(), 0
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is torch.nn.Linear and child is not head:
                bias = None if child.bias is None else move_to_device(child.bias.data, where)
                made = kind.build(move_to_device(child.weight.data, where), bias)
                change += made.weight_bytes - child.weight.nbytes
                setattr(module, name, Swapped(made))
    return change


def _attends_rightly(model: Any) -> bool:
    """Switches to our attention; whether the output stays what it was. An architecture may want more than we do."""
    from transformers import AttentionInterface

    from engine.networks.attention import attend_spans
    from engine.networks.transformers_network import TransformersNetwork

    usual = _usual(model)
    AttentionInterface.register(ATTENTION, attend_spans)
    model.set_attn_implementation(ATTENTION)
    return _gives(TransformersNetwork(model, usual.shape[-1]), usual)


def _probe(vocab_size: int) -> list[int]:
    return [1 + 7 * i % (vocab_size - 1) for i in range(24)]


def _usual(model: Any) -> Any:
    """Logits of a transformers model, as it comes, on `_probe`."""
    import torch

    from engine.networks.devices import fetch_to_cpu, send_ids

    ids = _probe(model.config.get_text_config().vocab_size)
    with torch.inference_mode():
        return fetch_to_cpu(model(input_ids=send_ids([ids], model.device)[0][None], use_cache=False).logits[0])


def _gives(network: Network, usual: Any) -> bool:
    """Whether these are the network's logits on `_probe`, up to what 16-bit kernels may differ by."""
    from engine.networks.kv_cache import KVCache
    from engine.networks.model import Model, Request

    ids = _probe(network.vocab_size)
    try:
        ours = Model(network, len(ids)).forward([Request(ids, len(ids), KVCache())])[0]
    except (EngineError, RuntimeError, TypeError, ValueError, AttributeError):
        return False
    spread = (usual - usual.mean(dim=-1, keepdim=True)).norm()
    return bool((ours - usual).norm() <= TOLERANCE * spread)  # False for NaN as well


def _tokenizer(source: ModelSource, generation: Any, rows: int) -> Tokenizer:
    from transformers import AutoTokenizer

    try:
        hf = AutoTokenizer.from_pretrained(source.folder, trust_remote_code=False, local_files_only=True)
        backend = hf.backend_tokenizer
    except Exception as error:  # as above; a tokeniser without a fast form has no backend_tokenizer
        raise LoadError(f"The tokeniser of {source.name} cannot be loaded ({first_line(error)}).") from error
    stops = getattr(generation, "eos_token_id", None)
    stop_ids = {hf.eos_token_id, *(stops if isinstance(stops, list) else [stops])} - {None}

    def render(turns: list[dict[str, str]]) -> str:
        try:
            return str(hf.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))
        except Exception as error:  # the template is the model maker's program, and fails as it likes
            raise InvalidParams(
                "messages", f"The chat template of {source.name} refuses this conversation: {first_line(error)}."
            ) from error

    return build_tokenizer(backend, render if hf.chat_template else None, stop_ids, hf.bos_token_id, rows)
