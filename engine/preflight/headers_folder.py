"""What a model as safetensors says of itself, in a folder or on the hub."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from engine.errors import LoadError
from engine.heads.config import is_head_config
from engine.loading.source import first_line
from engine.networks.llama_shape import LLAMA_FAMILY, refusal
from engine.preflight import tokenizer_info
from engine.preflight.diagnostics import Diagnostic, ModelRefused, diagnose
from engine.preflight.model_files import Files, read_json
from engine.preflight.model_info import HeadInfo, ModelInfo, window_of
from engine.preflight.supported import obstacle
from engine.preflight.tokenizer_info import TokenizerInfo

ALIASES = {
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "hidden_size": ("n_embd", "d_model"),
    "num_attention_heads": ("n_head", "n_heads"),
    "intermediate_size": ("n_inner", "ffn_dim"),
    "max_position_embeddings": ("n_positions", "n_ctx", "seq_length"),
}
"""What older kinds call the same sizes."""

NUMBERED = re.compile(r"(?:language_model\.)?(?:model\.)?(?:language_model\.)?layers\.(\d{1,6})\.")

CONTEXTS = {"gemma3": 131072, "gemma3_text": 131072, "gemma": 8192, "gemma2": 8192}
"""Where a config.json leaves out what is the kind's usual."""


def read_model_files(files: Files) -> ModelInfo:
    config = read_json(files, "config.json")
    if config is None:
        raise ModelRefused("no_config", name=files.name)
    is_head = is_head_config(config)
    shapes, formats, file_bytes = _read_weights(files, is_head)
    if is_head:
        return _head_model_info(files, config, shapes, formats, file_bytes)
    text_config = {**config, **(config.get("text_config") or {})} | {"model_type": config.get("model_type")}
    reason = _find_refusal(files.name, config, text_config)
    hidden, heads = _read_size(text_config, "hidden_size"), _read_size(text_config, "num_attention_heads")
    embedding = _embedding_numbers(shapes, _read_size(text_config, "vocab_size") * hidden)
    _check_layers(files.name, shapes, text_config)
    layers = text_config.get("layer_types") or ()
    has_window = "sliding_attention" in layers if layers else text_config.get("use_sliding_window", True)
    return ModelInfo(
        name=files.name,
        source=files.source,
        kind=str(text_config["model_type"]),
        runs="no" if reason else "lean" if refusal(_as_transformers_dict(text_config)) is None else "transformers",
        reason=reason,
        layers=_read_size(text_config, "num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=int(text_config.get("num_key_value_heads") or heads),
        head_dim=int(text_config.get("head_dim") or hidden // max(1, heads)),
        mlp=_read_size(text_config, "intermediate_size") or 4 * hidden,
        vocab_rows=_read_size(text_config, "vocab_size"),
        context_len=_read_size(text_config, "max_position_embeddings")
        or CONTEXTS.get(str(text_config["model_type"]), 2048),
        window=window_of(text_config.get("sliding_window")) if has_window else None,
        parameters=sum(map(math.prod, shapes.values())),
        file_bytes=file_bytes,
        formats=formats,
        tokens=_read_tokens(files),
        chat=_has_template(files),
        here=files.here,
        embedding=embedding,
        tied=not any(name.endswith(("lm_head.weight", "embed_out.weight")) for name in shapes),
    )


def _find_refusal(name: str, config: Mapping[str, Any], text_config: dict[str, Any]) -> Diagnostic | None:
    if code := obstacle(text_config):
        return diagnose(code, name=name, kind=str(config.get("model_type")))
    quantisation = config.get("quantization_config") or text_config.get("quantization_config")
    if isinstance(quantisation, dict):
        method = quantisation.get("quant_method") or "another program"
        return diagnose("prequantised", name=name, method=str(method))
    return None


def _read_weights(files: Files, is_head: bool) -> tuple[dict[str, tuple[int, ...]], tuple[tuple[str, int], ...], int]:
    """Shapes by name, bytes by number format, and bytes of all files. Raises ModelRefused."""
    sizes = files.sizes
    names = [name for name in sizes if name.endswith(".safetensors") and not name.startswith("consolidated")]
    pickle_names = [name for name in sizes if name.endswith((".bin", ".pt", ".pth"))]
    if not names:
        if is_head and pickle_names:  # the first heads came so, and are read as tensors alone
            return {}, (), sum(sizes[name] for name in pickle_names)
        raise ModelRefused("pickle_only" if pickle_names else "no_weights", name=files.name)
    index = read_json(files, "model.safetensors.index.json") or {}
    missing_files = sorted({str(name) for name in dict(index.get("weight_map") or {}).values()} - set(names))
    if missing_files:
        raise ModelRefused("damaged", name=files.name, reason=f"{missing_files[0]} is missing")
    if not (is_head or index or "model.safetensors" in names):  # as transformers looks for them
        raise ModelRefused("damaged", name=files.name, reason="model.safetensors.index.json is missing")
    shapes: dict[str, tuple[int, ...]] = {}
    formats: Counter[str] = Counter()
    for name in names:
        for key, tensor in files.tensors(name).items():
            shapes[key] = tensor.shape
            formats[tensor.dtype] += tensor.end - tensor.begin
    return shapes, tuple(formats.most_common()), sum(sizes[name] for name in names)


def _head_model_info(
    files: Files,
    config: dict[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
    formats: tuple[tuple[str, int], ...],
    file_bytes: int,
) -> ModelInfo:
    shape = dict(config.get("transformer_layer_config") or config)
    verifier = dict(dict(config.get("speculators_config") or {}).get("verifier") or {})
    vocabulary = _read_size(shape, "vocab_size")
    head_info = HeadInfo(
        target=str(verifier.get("name_or_path") or ""),
        hidden=_read_size(shape, "hidden_size"),
        layers=tuple(map(int, config.get("eagle_aux_hidden_state_layer_ids") or ())),
        draft_vocabulary=int(config.get("draft_vocab_size") or vocabulary),
        vocabulary=vocabulary,
    )
    heads = _read_size(shape, "num_attention_heads")
    has_own_embedding = any(name.endswith("embed_tokens.weight") for name in shapes)
    weight_counts = [math.prod(s) for name, s in shapes.items() if not name.endswith(("d2t", "t2d"))]
    return ModelInfo(
        name=files.name,
        source=files.source,
        kind="eagle3",
        runs="lean",
        reason=None,
        layers=_read_size(shape, "num_hidden_layers") or 1,
        hidden=head_info.hidden,
        heads=heads,
        kv_heads=int(shape.get("num_key_value_heads") or heads),
        head_dim=int(shape.get("head_dim") or head_info.hidden // max(1, heads)),
        mlp=_read_size(shape, "intermediate_size"),
        vocab_rows=vocabulary,
        context_len=_read_size(shape, "max_position_embeddings") or 2048,
        window=None,
        parameters=sum(weight_counts) or file_bytes // 2,
        file_bytes=file_bytes,
        formats=formats,
        head=head_info,
        here=files.here,
        embedding=vocabulary * head_info.hidden if has_own_embedding else 0,
        tied=not has_own_embedding,
    )


def _read_size(config: Mapping[str, Any], name: str) -> int:
    """0 where it is not told. Raises ValueError for what is no size."""
    value = next((config[key] for key in (name, *ALIASES.get(name, ())) if config.get(key)), 0)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} is {str(value)[:40]!r}")
    return value


def _as_transformers_dict(text_config: dict[str, Any]) -> dict[str, Any]:
    """As transformers' `to_dict` would have it, as far as `refusal` looks."""
    rope = text_config.get("rope_parameters") or dict(text_config.get("rope_scaling") or {})
    rope = {"rope_type": rope.get("rope_type") or rope.get("type") or "default", **rope}
    heads = text_config.get("num_attention_heads")
    return {"hidden_act": "silu", "num_key_value_heads": heads, **text_config, "rope_parameters": rope}


def _check_layers(name: str, shapes: Mapping[str, tuple[int, ...]], text_config: Mapping[str, Any]) -> None:
    """Raises ModelRefused where weights of a layer are missing, of models that number them as most do, or, of the kinds
    that are known by heart, are not as large as config.json says."""
    layer_ids = {int(match[1]) for shape in shapes if (match := NUMBERED.match(shape))}
    if not layer_ids:
        return
    matrices = _expected_matrices(text_config) if text_config["model_type"] in LLAMA_FAMILY else {}
    for n in range(_read_size(text_config, "num_hidden_layers")):
        if n not in layer_ids:
            raise ModelRefused("damaged", name=name, reason=f"the weights of layer {n} are missing")
        if f"model.layers.{n}.input_layernorm.weight" not in shapes:
            continue
        for name_in_layer, shape in matrices.items():
            if shapes.get(key := f"model.layers.{n}.{name_in_layer}.weight") != shape:
                raise ModelRefused(
                    "damaged", name=name, reason=f"{key} is missing, or not as large as config.json says"
                )


def _expected_matrices(text_config: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Outputs and inputs of a layer's matrices in the Llama family."""
    hidden, mlp, heads = (
        _read_size(text_config, key) for key in ("hidden_size", "intermediate_size", "num_attention_heads")
    )
    dim = _read_size(text_config, "head_dim") or hidden // heads
    query, key = heads * dim, (_read_size(text_config, "num_key_value_heads") or heads) * dim
    return {
        "self_attn.q_proj": (query, hidden), "self_attn.k_proj": (key, hidden), "self_attn.v_proj": (key, hidden),
        "self_attn.o_proj": (hidden, query), "mlp.gate_proj": (mlp, hidden), "mlp.up_proj": (mlp, hidden),
        "mlp.down_proj": (hidden, mlp),
    }  # fmt: skip


def _embedding_numbers(shapes: Mapping[str, tuple[int, ...]], default: int) -> int:
    embedding_names = ("embed_tokens.weight", "wte.weight", "embed_in.weight", "word_embeddings.weight")
    return next((math.prod(shape) for name, shape in shapes.items() if name.endswith(embedding_names)), default)


def _read_tokens(files: Files) -> TokenizerInfo | None:
    if "tokenizer.json" in files.sizes:
        try:
            return tokenizer_info.from_file(files.path("tokenizer.json"))
        except (LoadError, OSError) as error:
            if isinstance(error, ModelRefused):
                raise
            raise ModelRefused("damaged", name=files.name, reason=first_line(error).split(": ")[0]) from error
    if not _has_any(files.sizes, ("tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json")):
        raise ModelRefused("no_tokenizer", name=files.name)
    return None


def _has_template(files: Files) -> bool:
    if _has_any(files.sizes, ("chat_template.jinja", "chat_template.json")):
        return True
    return bool((read_json(files, "tokenizer_config.json") or {}).get("chat_template"))


def _has_any(names: Iterable[str], candidates: tuple[str, ...]) -> bool:
    return any(name in candidates for name in names)
