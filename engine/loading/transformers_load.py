"""Models as safetensors; the only importer of transformers. On the lean network where their family is known.

Whatever goes wrong on the way is one LoadError with one sentence; the traceback stays behind it as its cause.
"""

from __future__ import annotations

import gc
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine.errors import InvalidParams, LoadError
from engine.hardware import pick_dtype
from engine.loading.gguf.load import read_tokenizer
from engine.loading.loaded import DEQUANTISED, Loaded, build_loaded, choose_format
from engine.loading.reference_logits import matches_reference, reference_logits
from engine.loading.source import ModelSource, first_line
from engine.text.tokenizer import Tokenizer, build_tokenizer

if TYPE_CHECKING:
    from engine.networks.linear import Linear, LinearFormat
    from engine.networks.model import Network

log = logging.getLogger(__name__)

ATTENTION = "greenlight"
KNOWN_LAYERS = {"full_attention", "sliding_attention"}


def load_transformers(source: ModelSource, device: Any, quant: str, threads: int, compute: str) -> Loaded:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    config = _read_config(source)
    _refuse_unsupported(source.name, config)
    text_config = config.get_text_config()
    shape = (getattr(text_config, "intermediate_size", None) or text_config.hidden_size, text_config.hidden_size)
    kind = choose_format(quant, source, device, shape, compute)
    network, generation = _build_network(source, kind, device)
    tokenizer = (
        read_tokenizer(source) if source.is_gguf else _read_tokenizer(source, generation, text_config.vocab_size)
    )
    network.vocab_size = tokenizer.vocab_size
    context_len = int(getattr(text_config, "max_position_embeddings", None) or 2048)
    loaded = build_loaded(network, tokenizer, source, kind, context_len, threads)
    return replace(loaded, note="\n".join(filter(None, [_size_note(source, network), loaded.note])))


def _size_note(source: ModelSource, network: Network) -> str:
    """What to say of a GGUF whose weights take clearly more memory than in the file, or ""."""
    if not source.is_gguf or network.weight_bytes < 1.2 * source.file_bytes:
        return ""
    gib_here, gib_in_file = (f"{size / 2**30:.2f}" for size in (network.weight_bytes, source.file_bytes))
    return DEQUANTISED.format(name=source.name, origin=source.origin, here=gib_here, there=gib_in_file)


def _read_config(source: ModelSource) -> Any:
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
        raise LoadError(_unsupported_message(name, config))


def _unsupported_message(name: str, config: Any) -> str:
    architecture = (getattr(config, "architectures", None) or [type(config).__name__])[0]
    return (
        f"{name} is a {architecture}, which Greenlight cannot run: choose a model of the Llama, Qwen, Mistral, Gemma "
        "or SmolLM kind."
    )


def _build_network(source: ModelSource, kind: LinearFormat, device: Any) -> tuple[Network, Any]:
    """A network, lean where its family is known, and the model's generation config. Raises LoadError."""
    import torch

    from engine.networks.devices import move_to_device
    from engine.networks.llama_shape import refusal
    from engine.networks.transformers_network import TransformersNetwork

    # What is quantised comes in whole, and need not fit the device whole: it proves itself on the CPU, and goes layer
    # by layer.
    load_device = torch.device("cpu") if kind.requantises else device
    model = _read_model(source, kind, device, load_device)
    reason = refusal(model.config.to_dict())
    if reason is None:
        reference = reference_logits(model)
        config, generation_config, weights = model.config, model.generation_config, dict(model.state_dict())
        del model  # before its weights are joined: they need not be in memory twice
        gc.collect()
        network = _build_lean(config, weights, kind, device, load_device, reference)
        if network is not None:
            return network, generation_config
        reason = "it is not quite of the Llama family"
        model = _read_model(source, kind, device, load_device)
    log.info("%s runs on transformers: %s.", source.name, reason)
    if not _switch_attention(model):
        raise LoadError(_unsupported_message(source.name, model.config))
    byte_change = _requantise(model, kind, device) if kind.requantises else 0
    network = TransformersNetwork(move_to_device(model, device), model.config.get_text_config().vocab_size)
    network.weight_bytes += byte_change
    return network, model.generation_config


def _build_lean(
    config: Any, weights: dict[str, Any], kind: LinearFormat, device: Any, load_device: Any, reference: Any
) -> Network | None:
    """The lean network on `device`; None if the weights do not fit it, or its logits on `_probe_ids` are not
    `reference`.

    weights: on `load_device`, taken out as they are built in. Here linear layers get their kind: those that quantise
    when the network, still dense, has proved itself.
    """
    import torch

    from engine.networks.devices import move_to_device
    from engine.networks.linear import Dense
    from engine.networks.llama import LeanLlama
    from engine.networks.llama_shape import LlamaShape

    dtype = _pick_dtype(kind, device)
    matrices: dict[int, tuple[Any, Any]] = {}

    def build_dense(weight: Any, bias: Any) -> Linear:
        linear = Dense(weight, bias, dtype)
        matrices[id(linear)] = weight, bias
        return linear

    hidden_dtype = torch.float32 if load_device.type == "cpu" else dtype
    shape = LlamaShape.read(config.to_dict(), _rope_parameters(config))
    try:
        network = LeanLlama(shape, weights, build_dense, dtype=hidden_dtype, device=load_device)
    except LoadError:
        return None
    if not matches_reference(network, reference):
        return None
    if kind.requantises:

        def requantise(dense_linear: Linear) -> Linear:
            weight, bias = matrices.pop(id(dense_linear))
            return kind.build(move_to_device(weight, device), None if bias is None else move_to_device(bias, device))

        network.replace_linears(requantise)
        matrices.clear()
        if device != load_device:
            network.move_to(device, torch.float32 if device.type == "cpu" else dtype)
    return network


def _rope_parameters(config: Any) -> tuple[list[float], float] | None:
    """Speeds and scale of a rotation that transformers computes; None for the default one."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    kind = config.rope_parameters["rope_type"]
    if kind == "default":
        return None
    speeds, scale = ROPE_INIT_FUNCTIONS[kind](config)
    return speeds.tolist(), float(scale)


def _read_model(source: ModelSource, kind: LinearFormat, device: Any, load_device: Any) -> Any:
    """The transformers model on `load_device`, in the number format of `device`. Raises LoadError."""
    from transformers import AutoModelForCausalLM

    from engine.networks.devices import move_to_device

    try:
        model, loading_info = AutoModelForCausalLM.from_pretrained(
            source.folder,
            output_loading_info=True,
            dtype=_pick_dtype(kind, device),
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
        )
    except Exception as error:  # damaged files fail in many ways, and each of them is this sentence
        raise LoadError(f"{source.name} cannot be loaded ({first_line(error)}): its files may be damaged.") from error
    if loading_info["missing_keys"]:  # transformers makes them up
        missing_name = min(loading_info["missing_keys"])
        raise LoadError(f"{source.name} cannot be loaded (it lacks the weights {missing_name}): fetch its files again.")
    return move_to_device(model.requires_grad_(False).eval(), load_device)


def _pick_dtype(kind: LinearFormat, device: Any) -> Any:
    """The number format of everything but the linear layers, which is theirs too where they are dense."""
    from engine.networks.linear import DTYPES

    return DTYPES.get(kind.name, DTYPES[pick_dtype(device)])


def _requantise(model: Any, kind: LinearFormat, device: Any) -> int:
    """Swaps every linear layer but the head for one on `device`, one at a time, so that no two copies of all
    weights are ever in memory.

    Returns by how many bytes the weights that a forward reads have changed.
    """
    import torch

    from engine.networks.devices import move_to_device

    class LinearModule(torch.nn.Module):
        def __init__(self, linear: Linear) -> None:
            super().__init__()
            self.linear = linear

        def forward(self, x: Any) -> Any:
            return self.linear(x.reshape(-1, x.shape[-1])).reshape(*x.shape[:-1], self.linear.outputs)

    head, byte_change = model.get_output_embeddings(), 0
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is torch.nn.Linear and child is not head:
                bias = None if child.bias is None else move_to_device(child.bias.data, device)
                linear = kind.build(move_to_device(child.weight.data, device), bias)
                byte_change += linear.weight_bytes - child.weight.nbytes
                setattr(module, name, LinearModule(linear))
    return byte_change


def _switch_attention(model: Any) -> bool:
    """Switches to our attention; whether the output stays what it was. An architecture may want more than we do."""
    from transformers import AttentionInterface

    from engine.networks.attention import attend_spans
    from engine.networks.transformers_network import TransformersNetwork

    reference = reference_logits(model)
    AttentionInterface.register(ATTENTION, attend_spans)
    model.set_attn_implementation(ATTENTION)
    return matches_reference(TransformersNetwork(model, reference.shape[-1]), reference)


def _read_tokenizer(source: ModelSource, generation: Any, rows: int) -> Tokenizer:
    from transformers import AutoTokenizer

    try:
        hf = AutoTokenizer.from_pretrained(source.folder, trust_remote_code=False, local_files_only=True)
        backend = hf.backend_tokenizer
    except Exception as error:  # as above; a tokeniser without a fast form has no backend_tokenizer
        raise LoadError(f"The tokeniser of {source.name} cannot be loaded ({first_line(error)}).") from error
    eos_ids = getattr(generation, "eos_token_id", None)
    stop_ids = {hf.eos_token_id, *(eos_ids if isinstance(eos_ids, list) else [eos_ids])} - {None}

    def render(turns: list[dict[str, str]]) -> str:
        try:
            return str(hf.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))
        except Exception as error:  # the template is the model maker's program, and fails as it likes
            raise InvalidParams(
                "messages", f"The chat template of {source.name} refuses this conversation: {first_line(error)}."
            ) from error

    return build_tokenizer(backend, render if hf.chat_template else None, stop_ids, hf.bos_token_id, rows)
