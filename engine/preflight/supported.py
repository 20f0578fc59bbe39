"""Which kinds of models can run here, by what their config.json says: without torch, and before anything is loaded."""

from __future__ import annotations

from typing import Any

KNOWN_LAYERS = {"full_attention", "sliding_attention"}


TRANSFORMERS = frozenset(
    [
        "afmoe",
        "apertus",
        "apertus1p5_text",
        "arcee",
        "aria_text",
        "axk1",
        "axk2",
        "beam",
        "bert",
        "bert-generation",
        "bitnet",
        "camembert",
        "codegen",
        "cohere",
        "cohere2",
        "cohere2_moe",
        "cohere_compass_text",
        "ctrl",
        "cwm",
        "data2vec-text",
        "dbrx",
        "deepseek_v2",
        "deepseek_v3",
        "deepseek_v32",
        "diffllama",
        "doge",
        "dory",
        "dots1",
        "dots3_note",
        "dots3_note_text",
        "electra",
        "emu3",
        "ernie",
        "ernie4_5",
        "ernie4_5_moe",
        "exaone",
        "exaone4",
        "exaone_moe",
        "flex_olmo",
        "fuyu",
        "gemma",
        "gemma2",
        "gemma3",
        "gemma3_text",
        "gemma3n",
        "gemma3n_text",
        "gemma4",
        "gemma4_assistant",
        "gemma4_text",
        "gemma4_unified",
        "gemma4_unified_assistant",
        "gemma4_unified_text",
        "glm",
        "glm4",
        "glm4_moe",
        "glm4_moe_lite",
        "glm_moe_dsa",
        "got_ocr2",
        "gpt-sw3",
        "gpt2",
        "gpt_bigcode",
        "gpt_neox",
        "gptj",
        "granite",
        "granitemoe",
        "granitemoeshared",
        "helium",
        "hrm_text",
        "hunyuan_v1_dense",
        "hunyuan_v1_moe",
        "hy_v3",
        "hyperclovax",
        "internlm3",
        "iquestcoder",
        "jais2",
        "jetmoe",
        "kolibri1",
        "laguna",
        "lfm2",
        "lfm2_moe",
        "lfm3",
        "llama",
        "llama4",
        "llama4_text",
        "longcat_flash",
        "mellum",
        "minicpm3",
        "minimax",
        "minimax_m2",
        "minimax_m3_vl_text",
        "ministral",
        "ministral3",
        "mistral",
        "mixtral",
        "mllama",
        "modernbert-decoder",
        "moshi",
        "moss_transcribe_diarize",
        "nanochat",
        "nemotron",
        "olmo",
        "olmo2",
        "olmo3",
        "olmoe",
        "opt",
        "persimmon",
        "phi",
        "phi3",
        "phi4_multimodal",
        "phimoe",
        "qwen2",
        "qwen2_moe",
        "qwen3",
        "qwen3_moe",
        "roberta",
        "roberta-prelayernorm",
        "roc_bert",
        "sarvam_mla",
        "sarvam_moe",
        "seed_oss",
        "smollm3",
        "solar_open",
        "starcoder2",
        "vaultgemma",
        "xlm-roberta",
        "xlm-roberta-xl",
        "xmod",
        "youtu",
    ]
)
"""Causal models of transformers that take their attention from outside; each still has to prove itself when loaded."""

STATEFUL = frozenset(
    [
        "bailing_hybrid",
        "bamba",
        "deepseek_v4",
        "falcon_h1",
        "falcon_mamba",
        "granitemoehybrid",
        "jamba",
        "kimi_linear",
        "lara_mini",
        "mamba",
        "mamba2",
        "nemotron_h",
        "olmo_hybrid",
        "qwen3_5",
        "qwen3_5_moe",
        "qwen3_5_moe_text",
        "qwen3_5_text",
        "qwen3_next",
        "qwen4_exp",
        "qwen4_exp_text",
        "recurrent_gemma",
        "rwkv",
        "xlstm",
        "zamba",
        "zamba2",
        "zaya",
    ]
)
"""Those with a running state: what a rejected draft has changed in it cannot be taken back."""

SINKS = frozenset(["flint", "gpt_oss", "granite_swa", "granitemoe_swa", "hy_v4", "mimo_v2_flash"])
"""Those whose attention has a learnt sink beside the keys."""

TWO_HALVES = frozenset(
    [
        "bart",
        "blenderbot",
        "blenderbot-small",
        "m2m_100",
        "marian",
        "mbart",
        "mt5",
        "mvp",
        "pegasus",
        "plbart",
        "prophetnet",
        "t5",
        "umt5",
    ]
)
"""Encoder-decoders, where their config does not say so itself."""


def obstacle(config: dict[str, Any]) -> str:
    """Why transformers' model of this config.json cannot run here, as a code of `diagnostics`; "" where it may.

    config: that of the text model, with the kind of the whole.
    """
    kind, layers = str(config.get("model_type")), set(config.get("layer_types") or ())
    if config.get("is_encoder_decoder") or kind in TWO_HALVES:
        return "encoder_decoder"
    if kind in STATEFUL or layers & {"linear_attention", "mamba", "mamba2", "conv", "recurrent"}:
        return "stateful_cache"
    if kind in SINKS:
        return "attention_sinks"
    return "" if kind in TRANSFORMERS and layers <= KNOWN_LAYERS else "unknown_architecture"
