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
from engine.preflight import tokenizer_info as tokens_of
from engine.preflight.diagnostics import Diagnostic, ModelRefused, diagnose
from engine.preflight.model_files import Files, json_of
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


def of_files(files: Files) -> ModelInfo:
    config = json_of(files, "config.json")
    if config is None:
        raise ModelRefused("no_config", name=files.name)
    is_head = is_head_config(config)
    shapes, formats, file_bytes = _weights(files, is_head)
    if is_head:
        return _of_head(files, config, shapes, formats, file_bytes)
    text = {**config, **(config.get("text_config") or {})} | {"model_type": config.get("model_type")}
    reason = _reason(files.name, config, text)
    hidden, heads = _size(text, "hidden_size"), _size(text, "num_attention_heads")
    embedding = _embedding(shapes, _size(text, "vocab_size") * hidden)
    _check_layers(files.name, shapes, text)
    layers = text.get("layer_types") or ()
    windowed = "sliding_attention" in layers if layers else text.get("use_sliding_window", True)
    return ModelInfo(
        name=files.name,
        source=files.source,
        kind=str(text["model_type"]),
        runs="no" if reason else "lean" if refusal(_usual(text)) is None else "transformers",
        reason=reason,
        layers=_size(text, "num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=int(text.get("num_key_value_heads") or heads),
        head_dim=int(text.get("head_dim") or hidden // max(1, heads)),
        mlp=_size(text, "intermediate_size") or 4 * hidden,
        vocab_rows=_size(text, "vocab_size"),
        context_len=_size(text, "max_position_embeddings") or CONTEXTS.get(str(text["model_type"]), 2048),
        window=window_of(text.get("sliding_window")) if windowed else None,
        parameters=sum(map(math.prod, shapes.values())),
        file_bytes=file_bytes,
        formats=formats,
        tokens=_tokens(files),
        chat=_has_template(files),
        here=files.here,
        embedding=embedding,
        tied=not any(name.endswith(("lm_head.weight", "embed_out.weight")) for name in shapes),
    )


def _reason(name: str, config: Mapping[str, Any], text: dict[str, Any]) -> Diagnostic | None:
    if code := obstacle(text):
        return diagnose(code, name=name, kind=str(config.get("model_type")))
    quantised = config.get("quantization_config") or text.get("quantization_config")
    if isinstance(quantised, dict):
        method = quantised.get("quant_method") or "another program"
        return diagnose("prequantised", name=name, method=str(method))
    return None


def _weights(files: Files, is_head: bool) -> tuple[dict[str, tuple[int, ...]], tuple[tuple[str, int], ...], int]:
    """Shapes by name, bytes by number format, and bytes of all files. Raises Refused."""
    sizes = files.sizes
    names = [name for name in sizes if name.endswith(".safetensors") and not name.startswith("consolidated")]
    pickled = [name for name in sizes if name.endswith((".bin", ".pt", ".pth"))]
    if not names:
        if is_head and pickled:  # the first heads came so, and are read as tensors alone
            return {}, (), sum(sizes[name] for name in pickled)
        raise ModelRefused("pickle_only" if pickled else "no_weights", name=files.name)
    index = json_of(files, "model.safetensors.index.json") or {}
    missing = sorted({str(name) for name in dict(index.get("weight_map") or {}).values()} - set(names))
    if missing:
        raise ModelRefused("damaged", name=files.name, reason=f"{missing[0]} is missing")
    if not (is_head or index or "model.safetensors" in names):  # as transformers looks for them
        raise ModelRefused("damaged", name=files.name, reason="model.safetensors.index.json is missing")
    shapes: dict[str, tuple[int, ...]] = {}
    formats: Counter[str] = Counter()
    for name in names:
        for key, tensor in files.tensors(name).items():
            shapes[key] = tensor.shape
            formats[tensor.dtype] += tensor.end - tensor.begin
    return shapes, tuple(formats.most_common()), sum(sizes[name] for name in names)


def _of_head(
    files: Files,
    config: dict[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
    formats: tuple[tuple[str, int], ...],
    file_bytes: int,
) -> ModelInfo:
    shape = dict(config.get("transformer_layer_config") or config)
    verifier = dict(dict(config.get("speculators_config") or {}).get("verifier") or {})
    vocabulary = _size(shape, "vocab_size")
    facts = HeadInfo(
        target=str(verifier.get("name_or_path") or ""),
        hidden=_size(shape, "hidden_size"),
        layers=tuple(map(int, config.get("eagle_aux_hidden_state_layer_ids") or ())),
        draft_vocabulary=int(config.get("draft_vocab_size") or vocabulary),
        vocabulary=vocabulary,
    )
    heads = _size(shape, "num_attention_heads")
    own = any(name.endswith("embed_tokens.weight") for name in shapes)
    weights = [math.prod(s) for name, s in shapes.items() if not name.endswith(("d2t", "t2d"))]
    return ModelInfo(
        name=files.name,
        source=files.source,
        kind="eagle3",
        runs="lean",
        reason=None,
        layers=_size(shape, "num_hidden_layers") or 1,
        hidden=facts.hidden,
        heads=heads,
        kv_heads=int(shape.get("num_key_value_heads") or heads),
        head_dim=int(shape.get("head_dim") or facts.hidden // max(1, heads)),
        mlp=_size(shape, "intermediate_size"),
        vocab_rows=vocabulary,
        context_len=_size(shape, "max_position_embeddings") or 2048,
        window=None,
        parameters=sum(weights) or file_bytes // 2,
        file_bytes=file_bytes,
        formats=formats,
        head=facts,
        here=files.here,
        embedding=vocabulary * facts.hidden if own else 0,
        tied=not own,
    )


def _size(config: Mapping[str, Any], name: str) -> int:
    """0 where it is not told. Raises ValueError for what is no size."""
    value = next((config[key] for key in (name, *ALIASES.get(name, ())) if config.get(key)), 0)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} is {str(value)[:40]!r}")
    return value


def _usual(text: dict[str, Any]) -> dict[str, Any]:
    """As transformers' `to_dict` would have it, as far as `refusal` looks."""
    rope = text.get("rope_parameters") or dict(text.get("rope_scaling") or {})
    rope = {"rope_type": rope.get("rope_type") or rope.get("type") or "default", **rope}
    heads = text.get("num_attention_heads")
    return {"hidden_act": "silu", "num_key_value_heads": heads, **text, "rope_parameters": rope}


def _check_layers(name: str, shapes: Mapping[str, tuple[int, ...]], text: Mapping[str, Any]) -> None:
    """Raises Refused where weights of a layer are missing, of models that number them as most do, or, of the kinds that are
    known by heart, are not as large as config.json says."""
    there = {int(diagnose[1]) for shape in shapes if (diagnose := NUMBERED.match(shape))}
    if not there:
        return
    matrices = _matrices(text) if text["model_type"] in LLAMA_FAMILY else {}
    for n in range(_size(text, "num_hidden_layers")):
        if n not in there:
            raise ModelRefused("damaged", name=name, reason=f"the weights of layer {n} are missing")
        if f"model.layers.{n}.input_layernorm.weight" not in shapes:
            continue
        for part, shape in matrices.items():
            if shapes.get(key := f"model.layers.{n}.{part}.weight") != shape:
                raise ModelRefused(
                    "damaged", name=name, reason=f"{key} is missing, or not as large as config.json says"
                )


def _matrices(text: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Outputs and inputs of a layer's matrices in the Llama family."""
    hidden, mlp, heads = (_size(text, key) for key in ("hidden_size", "intermediate_size", "num_attention_heads"))
    dim = _size(text, "head_dim") or hidden // heads
    query, key = heads * dim, (_size(text, "num_key_value_heads") or heads) * dim
    return {
        "self_attn.q_proj": (query, hidden), "self_attn.k_proj": (key, hidden), "self_attn.v_proj": (key, hidden),
        "self_attn.o_proj": (hidden, query), "mlp.gate_proj": (mlp, hidden), "mlp.up_proj": (mlp, hidden),
        "mlp.down_proj": (hidden, mlp),
    }  # fmt: skip


def _embedding(shapes: Mapping[str, tuple[int, ...]], usual: int) -> int:
    wanted = ("embed_tokens.weight", "wte.weight", "embed_in.weight", "word_embeddings.weight")
    return next((math.prod(shape) for name, shape in shapes.items() if name.endswith(wanted)), usual)


def _tokens(files: Files) -> TokenizerInfo | None:
    if "tokenizer.json" in files.sizes:
        try:
            return tokens_of.of_file(files.path("tokenizer.json"))
        except (LoadError, OSError) as error:
            if isinstance(error, ModelRefused):
                raise
            raise ModelRefused("damaged", name=files.name, reason=first_line(error).split(": ")[0]) from error
    if not _any(files.sizes, ("tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json")):
        raise ModelRefused("no_tokenizer", name=files.name)
    return None


def _has_template(files: Files) -> bool:
    if _any(files.sizes, ("chat_template.jinja", "chat_template.json")):
        return True
    return bool((json_of(files, "tokenizer_config.json") or {}).get("chat_template"))


def _any(names: Iterable[str], wanted: tuple[str, ...]) -> bool:
    return any(name in wanted for name in names)
