"""Tiny models as folders, made by tests: real configurations, tokenisers and weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from tests.engine import tokenisers

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 32,
    "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def write_folder(
    folder: Path,
    backend: Tokenizer | None = None,
    template: str | None = tokenisers.CHATML,
    seed: int = 0,
    **changes: Any,
) -> Path:
    """A Llama of random weights. changes: of its config.json; vocab_size: rows of its weights, as many as tokens by
    default."""
    backend = backend or tokenisers.byte_level()
    config = {**CONFIG, "vocab_size": backend.get_vocab_size(), **changes}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights(config, seed), folder / "model.safetensors", {"format": "pt"})
    names = {i: token.content for i, token in backend.get_added_tokens_decoder().items()}
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False,
        "eos_token": names.get(2, names.get(0, "")), "bos_token": names.get(1, ""),
    } | ({} if template is None else {"chat_template": template})  # fmt: skip
    for name, content in {"config": config, "tokenizer_config": about}.items():
        (folder / f"{name}.json").write_text(json.dumps(content), "utf-8")
    backend.save(str(folder / "tokenizer.json"))
    return folder


def weights(config: dict[str, Any], seed: int) -> dict[str, np.ndarray]:
    """Under transformers' names, float32."""
    rng = np.random.default_rng(seed)
    hidden, mlp, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    query, key = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    matrices = {"model.embed_tokens": (config["vocab_size"], hidden)}
    if not config["tie_word_embeddings"]:
        matrices["lm_head"] = (config["vocab_size"], hidden)
    norms = ["model.norm"]
    for n in range(config["num_hidden_layers"]):
        at = f"model.layers.{n}"
        matrices |= {
            f"{at}.self_attn.q_proj": (query, hidden), f"{at}.self_attn.k_proj": (key, hidden),
            f"{at}.self_attn.v_proj": (key, hidden), f"{at}.self_attn.o_proj": (hidden, query),
            f"{at}.mlp.gate_proj": (mlp, hidden), f"{at}.mlp.up_proj": (mlp, hidden), f"{at}.mlp.down_proj": (hidden, mlp),
        }  # fmt: skip
        norms += [f"{at}.{kind}_layernorm" for kind in ("input", "post_attention")]
    made = {f"{name}.weight": rng.normal(0, 0.25, shape).astype(np.float32) for name, shape in matrices.items()}
    return made | {f"{name}.weight": np.ones(hidden, np.float32) for name in norms}
