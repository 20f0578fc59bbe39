"""People's own models, end to end: folders on the disk, through the real engine, at the edges where systems break."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from engine.config import DecodingParams, EngineConfig, Message, Rule, SamplingParams
from engine.drafters.draft_model import DraftModelDrafter
from engine.errors import ContextFull, InvalidParams
from engine.events import Event, FinishReason, KReason, Outcome, Prefilled, Round
from engine.networks.kv_cache import KVCache
from engine.networks.model import Model
from engine.serving.engine import Engine, State
from engine.verify import residual
from tests.engine import tokenisers
from tests.engine.tiny_folders import write_folder
from tests.fakes import FakeNetwork, finished, hashed_logits, noisy, run, say

ROWS = tokenisers.byte_level().get_vocab_size()
SAYS_SYSTEM = tokenisers.CHATML
KEPT = {"quant": "fp32", "drafter_quant": "fp32"}
"""So that nothing is measured first."""


@contextmanager
def engine_of(target: Path, drafter: object = "ngram") -> Iterator[Engine]:
    config = EngineConfig(str(target), str(drafter), device="cpu", threads=1, offline=True, cache_mib=64, **KEPT)
    engine = Engine(config)
    try:
        status = engine.wait_ready(300)
        assert status.state is State.READY, status.message
        yield engine
    finally:
        engine.close()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GREENLIGHT_CACHE", str(tmp_path / "cache"))


def params(k: int | None, n: int = 40, drafter: str = "auto", **sampling: Any) -> DecodingParams:
    return DecodingParams(
        SamplingParams(**{"seed": 3, **sampling}), drafter, k, max_new_tokens=n, probe_every=0, rule=Rule.SHARED_NOISE
    )


def ids_of(events: list[Event]) -> tuple[int, ...]:
    return finished(events).token_ids


def drafted(events: list[Event]) -> list[int]:
    return [d.id for event in events if isinstance(event, Round) for d in event.decisions]


def never_ending(folder: Path) -> Path:
    """The same model, but its stop token has no chance: replies are as long as they may be."""
    weights = load_file(folder / "model.safetensors")
    weights["model.embed_tokens.weight"][2] = 0.0
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


# -- the context's end
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drafts", ["ngram", "model"])
def test_at_the_contexts_end_drafts_shrink_then_it_is_plain_then_it_says_so(drafts: str, tmp_path: Path) -> None:
    limit = 96
    target = never_ending(write_folder(tmp_path / "t", max_position_embeddings=limit))
    drafter = target if drafts == "model" else "ngram"
    with engine_of(target, drafter) as engine:
        assert engine.facts().context_len == limit
        seen = set()
        empty = engine.count_tokens(say(""))
        for length in range(limit - 10, limit + 11):
            turns = say("z" * (length - empty))  # a character that is a token by itself
            assert engine.count_tokens(turns) == length
            if length >= limit:
                with pytest.raises(ContextFull) as full:
                    engine.stream(turns, params(5))
                assert (full.value.prompt_tokens, full.value.context_len) == (length, limit)
                continue
            plain, events = list(engine.stream(turns, params(0))), list(engine.stream(turns, params(5)))
            assert ids_of(events) == ids_of(plain) and len(ids_of(events)) == limit - length + 1 - 1
            assert finished(events).reason is FinishReason.CONTEXT
            rounds = [event for event in events if isinstance(event, Round)]
            assert all(r.context_len + r.num_drafted < limit for r in rounds)
            seen |= {r.k_reason for r in rounds}
        assert KReason.CONTEXT in seen


def test_behind_a_drafters_shorter_context_the_reply_goes_on_without_it(tmp_path: Path) -> None:
    target = never_ending(write_folder(tmp_path / "t", max_position_embeddings=256))
    drafter = never_ending(write_folder(tmp_path / "d", max_position_embeddings=96))
    with engine_of(target, drafter) as engine:
        plain = list(engine.stream(say("hello"), params(0, 160)))
        events = list(engine.stream(say("hello"), params(4, 160, "draft_model")))
        assert ids_of(events) == ids_of(plain) and len(ids_of(events)) == 160
        rounds = [event for event in events if isinstance(event, Round)]
        behind = [r for r in rounds if r.context_len >= 96]
        assert any(r.num_drafted for r in rounds) and behind
        assert not any(r.num_drafted for r in behind)
        assert {r.k_reason for r in behind[:-1]} == {KReason.DRAFTER_CONTEXT}  # the page shows why


# -- templates and strange prompts
# --------------------------------------------------------------------------------------


def test_a_model_without_a_chat_template_says_so_and_stops_at_the_next_turn(tmp_path: Path) -> None:
    with engine_of(write_folder(tmp_path / "t", template=None)) as engine:
        assert "no chat template" in engine.facts().note
        ids = engine.encode([Message("system", "Be kind."), *say("hello")])
        text = bytes(ids_as_bytes(ids)).decode()
        assert text.endswith("Be kind.\nUser: hello\nAssistant:")
        assert finished(list(engine.stream(say("hello"), params(3)))).reason in tuple(FinishReason)


def ids_as_bytes(ids: list[int]) -> bytes:
    """What a prompt of the byte-level test tokeniser spells, its control tokens left out."""
    from engine.text.tokenizer import build_tokenizer

    return build_tokenizer(tokenisers.byte_level(), None, [2]).decode(ids).encode()


@pytest.mark.parametrize(
    "template", [tokenisers.DROPS_SYSTEM, tokenisers.NO_SYSTEM.replace("raise(", "raise_exception(")]
)
def test_without_a_system_role_its_text_is_in_the_first_turn(template: str, tmp_path: Path) -> None:
    with engine_of(write_folder(tmp_path / "t", template=template)) as engine:
        assert "system" in engine.facts().note
        merged = engine.encode([Message("system", "Be kind."), *say("hello")])
        assert merged == engine.encode(say("Be kind.\n\nhello"))


def test_a_template_that_writes_the_first_token_as_the_tokeniser_does_gives_one(tmp_path: Path) -> None:
    doubled = "<|im_start|><|im_start|>" + "{% for m in messages %}{{ m.content }}{% endfor %}"
    with engine_of(write_folder(tmp_path / "t", template=doubled)) as engine:
        ids = engine.encode(say("hello"))
        assert ids[0] == 1 and ids[1] != 1


@pytest.mark.parametrize("typed", ["", " ", "\n", "\n\n\n", "\u200b", "\u00a0", "\ufeff", "\t \r\n"])
def test_what_cannot_be_seen_is_answered_or_refused_in_a_sentence(typed: str, tmp_path: Path) -> None:
    with engine_of(write_folder(tmp_path / "t")) as engine:
        events = list(engine.stream(say(typed), params(4, 8)))
        assert finished(events).reason is not FinishReason.ERROR
        with pytest.raises(InvalidParams, match="write one first"):
            engine.stream([], params(4, 8))


# -- much too much ------------------------------------------------------------------------------------------------------


def test_a_megabyte_that_is_pasted_is_refused_before_it_runs_and_disturbs_nobody(tmp_path: Path) -> None:
    with engine_of(never_ending(write_folder(tmp_path / "t", max_position_embeddings=2048))) as engine:
        running = engine.stream(say("hello"), params(4, 300))
        for much in ("x" * 2**20, "你" * 2**18, "word " * 100_000):
            with pytest.raises(ContextFull, match="shorten the message") as full:
                engine.stream(say(much), params(4))
            assert full.value.prompt_tokens >= 100_000
        assert len(ids_of(list(running))) == 300


def test_of_a_long_prompt_only_a_chunks_rows_are_in_memory_and_no_logits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """100,000 tokens would be read in the same passes: their number grows, not their size."""
    from engine.networks.model import PREFILL_CHUNK

    passes: list[tuple[int, int]] = []
    real = Model._pass

    def watched(self: Model, requests: Any) -> Any:
        network = self.network

        def call(
            token_ids: torch.Tensor, positions: torch.Tensor, spans: Any, logit_rows: torch.Tensor
        ) -> torch.Tensor:
            passes.append((len(token_ids), len(logit_rows)))
            return network(token_ids, positions, spans, logit_rows)

        monkeypatch.setattr(self, "network", _Instead(network, call))
        try:
            return real(self, requests)
        finally:
            monkeypatch.setattr(self, "network", network)

    with engine_of(never_ending(write_folder(tmp_path / "t", max_position_embeddings=8192))) as engine:
        monkeypatch.setattr(Model, "_pass", watched)
        events = list(engine.stream(say("z" * 4000), params(4, 4)))
        [prefilled] = [event for event in events if isinstance(event, Prefilled)]
        assert prefilled.prompt_tokens > 4000
    assert max(rows for rows, _ in passes) <= PREFILL_CHUNK
    assert max(logits for _, logits in passes) <= 6


class _Instead:
    """A network with another forward pass."""

    def __init__(self, network: Any, call: Any) -> None:
        self._network, self._call = network, call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    def __call__(self, *args: Any) -> Any:
        return self._call(*args)


# -- vocabularies -------------------------------------------------------------------------------------------------------


def padded(folder: Path, rows: int, seed: int = 0, **changes: Any) -> Path:
    """A model with `rows` rows, of which those that only pad the vocabulary shout: uncut they would be drawn at
    once."""
    write_folder(folder, vocab_size=rows, seed=seed, tie_word_embeddings=False, **changes)
    narrow = write_folder(folder.with_name("narrow"), seed=seed, tie_word_embeddings=False, **changes)
    weights = load_file(narrow / "model.safetensors")  # the real rows are the same, however many pad them
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        shout = np.float32(50.0) * np.sign(weights[name][5])
        weights[name] = np.concatenate([weights[name], np.tile(shout, (rows - ROWS, 1))])
    weights["lm_head.weight"][2] = -10 * np.abs(weights["lm_head.weight"][2])
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.mark.parametrize(
    ("target_rows", "drafter_rows"), [(ROWS + 128, ROWS + 6), (ROWS + 6, ROWS + 128), (ROWS, ROWS + 128)]
)
@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_padding_is_never_proposed_and_never_drawn(
    target_rows: int, drafter_rows: int, temperature: float, tmp_path: Path
) -> None:
    target, drafter = padded(tmp_path / "t", target_rows), padded(tmp_path / "d", drafter_rows)
    with engine_of(target, drafter) as engine:
        assert "draft_model" in engine.facts().drafters
        for seed in range(4):
            free = {"temperature": temperature, "seed": seed}
            plain = list(engine.stream(say(f"hello {seed}"), params(0, 40, **free)))
            events = list(engine.stream(say(f"hello {seed}"), params(4, 40, "draft_model", **free)))
            assert ids_of(events) == ids_of(plain)  # under shared noise also where it is drawn
            assert max((*ids_of(plain), *ids_of(events), *drafted(events))) < ROWS
            told = [d for e in events if isinstance(e, Round) for d in e.decisions]
            assert any(d.outcome is Outcome.ACCEPTED for d in told)


@pytest.mark.parametrize("larger", ["target", "drafter"])
def test_a_few_tokens_more_in_one_tokeniser_are_no_obstacle(larger: str, tmp_path: Path) -> None:
    """As in Qwen 2.5 and 3, or a base model and its chat model: one vocabulary begins as the other."""
    more = tokenisers.byte_level()
    more.add_tokens(["<tool>", "<answer>"])
    folders = {
        "target": write_folder(tmp_path / "t", more if larger == "target" else None, seed=1),
        "drafter": write_folder(tmp_path / "d", more if larger == "drafter" else None, seed=1, num_hidden_layers=1),
    }
    with engine_of(never_ending(folders["target"]), folders["drafter"]) as engine:
        sampling = {"temperature": 0.8}
        plain = list(engine.stream(say("hello"), params(0, 60, **sampling)))
        events = list(engine.stream(say("hello"), params(3, 60, "draft_model", **sampling)))
        assert ids_of(events) == ids_of(plain)
        assert drafted(events) and max(drafted(events)) < ROWS
        tested = replace(params(3, 60, "draft_model", **sampling), rule=Rule.REJECTION)  # compares whole rows of both
        assert finished(list(engine.stream(say("hello"), tested))).reason is FinishReason.LENGTH


def test_another_tokeniser_works_and_says_so(tmp_path: Path) -> None:
    target = never_ending(write_folder(tmp_path / "t"))
    other = write_folder(
        tmp_path / "d", tokenisers.byte_fallback(), "{% for m in messages %}{{ m.content }}{% endfor %}"
    )
    with engine_of(target, other) as engine:
        note = engine.facts().note
        assert "different tokenisers" in note and " t " in f" {note} " and note.split()[0] == "d"
        plain = list(engine.stream(say("hello 你好"), params(0, 60)))
        events = list(engine.stream(say("hello 你好"), params(4, 60, "draft_model")))
        assert ids_of(events) == ids_of(plain)


VOCAB = 257
LANGUAGE = hashed_logits(VOCAB, seed=21)


@given(st.integers(200, 300), st.integers(0, 2**31), st.sampled_from(list(Rule)), st.sampled_from([0.0, 1.0]))
def test_a_proposal_is_over_the_targets_ids_whatever_the_drafters(
    rows: int, seed: int, rule: Rule, temperature: float
) -> None:
    """The rows of both sides can be compared, nothing is drawn that the target lacks, and the sums are whole."""
    from engine.drafters.protocol import DraftContext, DraftOption
    from engine.rng import KeyedRng

    other = noisy(hashed_logits(rows, seed=5), rows, 0.3)
    drafter = DraftModelDrafter(Model(FakeNetwork(rows, other), 4096), KVCache(), VOCAB)
    made = drafter.propose(DraftOption("draft_model", "draft_model"), DraftContext([5, 6, 7], 2, None, SamplingParams(temperature=temperature, seed=seed), KeyedRng(seed, rule)), 3)  # fmt: skip
    assert made.probs is not None and max(made.token_ids) < min(rows, VOCAB)
    for i in range(3):
        row = made.probs[i]
        assert row.shape == (VOCAB,) and float(row.sum()) == pytest.approx(1.0, abs=1e-4)
        assert not row[rows:].any()
        assert residual(made, torch.full((VOCAB,), 1 / VOCAB), i).shape == (VOCAB,)


def test_a_drafter_that_lacks_an_id_of_the_text_falls_silent(tmp_path: Path) -> None:
    drafter = DraftModelDrafter(Model(FakeNetwork(250, hashed_logits(250, seed=5)), 4096), KVCache(), VOCAB)
    assert drafter.options([1, 2, 249])
    assert not drafter.options([1, 2, 249, 251]) and not drafter.options([1, 2, 249, 251, 3])
    same = DraftModelDrafter(Model(FakeNetwork(VOCAB, LANGUAGE), 4096), KVCache())
    assert same.options([1, 256])


@pytest.mark.parametrize("rows", [240, 275])
def test_with_another_number_of_rows_greedy_text_is_the_targets(rows: int) -> None:
    from tests.fakes import byte_tokenizer

    target = Model(FakeNetwork(VOCAB, LANGUAGE), 4096)
    half = Model(FakeNetwork(rows, lambda ids: np.resize(LANGUAGE(ids), rows)), 4096)
    greedy = DecodingParams(SamplingParams(seed=1), max_new_tokens=60, num_speculative_tokens=4, probe_every=0)
    prompt = [40, 41, 42]
    plain = run(prompt, greedy, target, byte_tokenizer(), None)
    events = run(prompt, greedy, target, byte_tokenizer(), DraftModelDrafter(half, KVCache(), VOCAB))
    assert ids_of(events) == ids_of(plain)
