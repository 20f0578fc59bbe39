"""The table of pairs: their memory from published sizes by `memory`'s formula, and what a pair's name stands for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.config import EngineConfig
from engine.loading.model_presets import BY_NAME, MODEL_PRESETS, ModelPreset, resolve_preset
from engine.preflight.headers import DEFAULT_MODEL_INFO
from engine.preflight.memory import Machine
from engine.preflight.memory_plan import memory_parts, plan
from engine.preflight.model_info import HeadInfo, ModelInfo


def published(
    name: str, kind: str, layers: int, hidden: int, heads: int, kv_heads: int, dim: int, mlp: int, rows: int,
    context: int, tied: bool,
) -> ModelInfo:  # fmt: skip
    """From a published config.json; numbers counted as the kind has them, biases and norms left out."""
    matrices = hidden * dim * (2 * heads + 2 * kv_heads) + 3 * hidden * mlp
    embedding = rows * hidden
    parameters = layers * matrices + embedding * (1 if tied else 2)
    return replace(
        DEFAULT_MODEL_INFO, name=name, source="hub", kind=kind, runs="lean", layers=layers, hidden=hidden, heads=heads,
        kv_heads=kv_heads, head_dim=dim, mlp=mlp, vocab_rows=rows, context_len=context, parameters=parameters,
        file_bytes=2 * parameters, formats=(("BF16", 2 * parameters),), embedding=embedding, tied=tied, grid=False,
    )  # fmt: skip


def published_head(name: str, target: ModelInfo, draft_vocabulary: int, context: int) -> ModelInfo:
    """EAGLE-3's one layer: it reads an embedding beside its state, and three of the target's hidden states."""
    h, dim = target.hidden, target.head_dim
    parameters = 3 * h * h + 2 * h * dim * (target.heads + 2 * target.kv_heads) + h * dim * target.heads
    parameters += 3 * h * target.mlp + draft_vocabulary * h + target.embedding
    facts = HeadInfo(target.name, h, (), draft_vocabulary, target.vocab_rows)
    return replace(
        target, name=name, kind="eagle3", layers=1, parameters=parameters, head=facts, tied=False, context_len=context
    )


QWEN3_8B = published("Qwen/Qwen3-8B", "qwen3", 36, 4096, 32, 8, 128, 12288, 151936, 40960, False)
MODELS = {
    model.name: model
    for model in (
        replace(DEFAULT_MODEL_INFO, name="embedded"),
        published("HuggingFaceTB/SmolLM2-360M-Instruct", "llama", 32, 960, 15, 5, 64, 2560, 49152, 8192, True),
        published("Qwen/Qwen2.5-0.5B-Instruct", "qwen2", 24, 896, 14, 2, 64, 4864, 151936, 32768, True),
        published("Qwen/Qwen2.5-1.5B-Instruct", "qwen2", 28, 1536, 12, 2, 128, 8960, 151936, 32768, True),
        published("Qwen/Qwen2.5-7B-Instruct", "qwen2", 28, 3584, 28, 4, 128, 18944, 152064, 32768, False),
        published("Qwen/Qwen3-0.6B", "qwen3", 28, 1024, 16, 8, 128, 3072, 151936, 40960, True),
        QWEN3_8B,
        published_head("RedHatAI/Qwen3-8B-speculator.eagle3", QWEN3_8B, 32000, 40960),
    )
}
"""As their authors publish them on the hub."""

COUNTS = {
    "HuggingFaceTB/SmolLM2-360M-Instruct": 361_821_120,
    "Qwen/Qwen2.5-0.5B-Instruct": 494_032_768,
    "Qwen/Qwen2.5-1.5B-Instruct": 1_543_714_304,
    "Qwen/Qwen2.5-7B-Instruct": 7_615_616_512,
    "Qwen/Qwen3-0.6B": 596_049_920,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "RedHatAI/Qwen3-8B-speculator.eagle3": 2_044_116_968 // 2,
}
"""Parameters as published, norms and biases with them; of the head, from the bytes of its file."""


def test_the_published_sizes_make_the_published_counts() -> None:
    assert {name: MODELS[name].parameters for name in COUNTS} == pytest.approx(COUNTS, rel=2e-3)


def needs(pair: ModelPreset) -> float:
    """On a machine with every device; what is not on a GPU is on a processor without bf16."""
    machine = Machine(free_mib=2**20, gpu_free_mib=2**20, mps=True)
    device = "cuda" if pair.device == "cuda" else "cpu"
    kinds = [(pair.target, pair.quant), (pair.drafter, pair.drafter_quant)]
    plans = [plan(MODELS[name], device, quant, "auto", machine, []) for name, quant in kinds if name in MODELS]
    return sum(memory_parts(plans)[device].values())


def test_the_tables_memory_is_the_formulas_and_fits_its_gpu() -> None:
    table = {pair.name: pair.needs_mib for pair in MODEL_PRESETS[1:]}
    assert table == pytest.approx({pair.name: needs(pair) for pair in MODEL_PRESETS[1:]}, rel=0.02)
    assert table["gpu8"] < 0.95 * 8 * 1024 and max(table["gpu24"], table["eagle3"]) < 0.95 * 24 * 1024


def test_the_embedded_pairs_memory_is_what_the_check_says() -> None:
    from engine.preflight.check import check_config

    report = check_config(EngineConfig(device="cpu"), machine=Machine(free_mib=10_000))
    if report.target is not None:  # it may be neither here nor to be had
        assert BY_NAME["embedded"].needs_mib == pytest.approx(report.needs_mib, rel=0.05)


def test_there_is_a_pair_for_each_kind_of_machine_and_for_chinese() -> None:
    assert MODEL_PRESETS[0].name == "embedded" and len(BY_NAME) == len(MODEL_PRESETS)
    assert {pair.device for pair in MODEL_PRESETS if pair.chinese} >= {"cpu", "cuda"}
    for pair in MODEL_PRESETS:  # every value is one that a configuration takes
        EngineConfig(pair.target, pair.drafter, quant=pair.quant, drafter_quant=pair.drafter_quant, device=pair.device)


def test_a_pairs_name_stands_for_what_was_not_set() -> None:
    pair = BY_NAME["gpu8"]
    made = resolve_preset(EngineConfig(target="gpu8"))
    assert (made.target, made.drafter, made.quant, made.device) == (pair.target, pair.drafter, pair.quant, "cuda")
    kept = resolve_preset(EngineConfig(target="gpu8", drafter="ngram", quant="int8"))
    assert (kept.target, kept.drafter, kept.quant) == (pair.target, "ngram", "int8")
    assert resolve_preset(EngineConfig(target="gpu8", drafter="gpu24")).drafter == BY_NAME["gpu24"].drafter
    other = EngineConfig(target="some/model", threads=3)
    assert resolve_preset(other) == other
    assert resolve_preset(resolve_preset(made)) == made
