"""Tiny models as folders and GGUF files, made by tests: real configurations, tokenisers and weights."""

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
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    backend.save(str(folder / "tokenizer.json"))
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    names = {i: token.content for i, token in backend.get_added_tokens_decoder().items()}
    about |= {"eos_token": names.get(2, names.get(0, "")), "bos_token": names.get(1, "")}
    if template is not None:
        about["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(about), "utf-8")
    return folder


def weights(config: dict[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Under transformers' names, float32."""
    rng = np.random.default_rng(seed)
    hidden, mlp, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    query, key = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config["vocab_size"], hidden)}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    for n in range(config["num_hidden_layers"]):
        at = f"model.layers.{n}."
        shapes |= {
            f"{at}self_attn.q_proj.weight": (query, hidden), f"{at}self_attn.k_proj.weight": (key, hidden),
            f"{at}self_attn.v_proj.weight": (key, hidden), f"{at}self_attn.o_proj.weight": (hidden, query),
            f"{at}mlp.gate_proj.weight": (mlp, hidden), f"{at}mlp.up_proj.weight": (mlp, hidden),
            f"{at}mlp.down_proj.weight": (hidden, mlp),
        }  # fmt: skip
    made = {name: rng.normal(0, 0.25, shape).astype(np.float32) for name, shape in shapes.items()}
    ones = np.ones(hidden, np.float32)
    for n in range(config["num_hidden_layers"]):
        made |= {f"model.layers.{n}.{kind}_layernorm.weight": ones.copy() for kind in ("input", "post_attention")}
    return made | {"model.norm.weight": ones.copy()}


def write_head(
    folder: Path, hidden: int, vocabulary: int, target: str = "", layers: tuple[int, ...] = (0, 1, 2)
) -> Path:
    """What a draft head says of itself, in the speculators format; its weights are of one matrix."""
    layer = {**CONFIG, "hidden_size": hidden, "vocab_size": vocabulary, "num_hidden_layers": 1}
    about = {
        "speculators_model_type": "eagle3", "draft_vocab_size": 16, "eagle_aux_hidden_state_layer_ids": list(layers),
        "transformer_layer_config": layer, "speculators_config": {"verifier": {"name_or_path": target}},
    }  # fmt: skip
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(about), "utf-8")
    save_file({"lm_head.weight": np.zeros((16, hidden), np.float16)}, folder / "model.safetensors")
    return folder


def write_gguf(path: Path, kind: str = "Q4_0", architecture: str = "llama") -> Path:
    """A Llama of one layer whose weights are zeros, all matrices of one kind; its vocabulary is padded to whole
    tiles."""
    import gguf

    backend = tokenisers.byte_level()
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(1)
    writer.add_context_length(4096)
    writer.add_embedding_length(256)
    writer.add_feed_forward_length(256)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(64)
    named = sorted(backend.get_vocab(with_added_tokens=True).items(), key=lambda item: item[1])
    rows = -(-len(named) // 16) * 16
    padding = [f"[PAD{i}]" for i in range(len(named), rows)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt2")
    writer.add_token_list([token for token, _ in named] + padding)
    kinds = {"<think>": 4, "中…": 4, **dict.fromkeys(tokenisers.CONTROL, 3)}
    writer.add_token_types([kinds.get(token, 1) for token, _ in named] + [5] * len(padding))
    writer.add_token_merges([" ".join(merge) for merge in json.loads(backend.to_str())["model"]["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(tokenisers.CHATML)
    number = gguf.GGMLQuantizationType[kind]
    block, size = gguf.GGML_QUANT_SIZES[number]
    outputs = {"attn_q": 256, "attn_k": 128, "attn_v": 128, "attn_output": 256}
    outputs |= dict.fromkeys(("ffn_gate", "ffn_up", "ffn_down"), 256)
    for name, count in {"token_embd": rows, **{f"blk.0.{name}": count for name, count in outputs.items()}}.items():
        zeros = np.zeros((count, 256 // block * size), np.uint8)
        writer.add_tensor(f"{name}.weight", zeros, raw_dtype=number)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(256, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
