"""People's own models, end to end: folders on the disk, through the real engine, at the edges where systems break."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from engine.config import DecodingParams, EngineConfig, Message, Rule, SamplingParams
from engine.drafters.draft_model import DraftModelDrafter
from engine.drafters.protocol import DraftContext, DraftOption
from engine.errors import ContextFull, InvalidParams
from engine.events import Event, FinishReason, KReason, Outcome, Round
from engine.networks.kv_cache import KVCache
from engine.networks.model import Model
from engine.rng import KeyedRng
from engine.serving.engine import Engine, State
from engine.verify import residual
from tests.engine import tokenisers
from tests.engine.tiny_folders import write_folder
from tests.fakes import FakeNetwork, finished, hashed_logits, say

ROWS = tokenisers.byte_level().get_vocab_size()


@contextmanager
def engine_of(target: Path, drafter: object = "ngram") -> Iterator[Engine]:
    """In float32, so that nothing is measured first."""
    config = EngineConfig(
        str(target),
        str(drafter),
        quant="fp32",
        drafter_quant="fp32",
        device="cpu",
        threads=1,
        offline=True,
        cache_mib=64,
    )
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


def same(
    engine: Engine, drafter: str = "draft_model", text: str = "hello", k: int = 4, n: int = 60, temperature: float = 0.0
) -> list[Event]:
    """A reply with drafts, word for word the plain one: under shared noise also where it is drawn."""
    sampling = SamplingParams(temperature=temperature, seed=3)
    params = DecodingParams(sampling, drafter, k, Rule.SHARED_NOISE, max_new_tokens=n, probe_every=0)
    plain = finished(list(engine.stream(say(text), replace(params, num_speculative_tokens=0))))
    events = list(engine.stream(say(text), params))
    assert finished(events).token_ids == plain.token_ids
    return events


def rounds(events: list[Event]) -> list[Round]:
    return [event for event in events if isinstance(event, Round)]


def drafted(events: list[Event]) -> list[int]:
    return [decision.id for round_ in rounds(events) for decision in round_.decisions]


def never_ending(folder: Path) -> Path:
    """The same model, but its stop token has no chance: replies are as long as they may be."""
    weights = load_file(folder / "model.safetensors")
    weights["model.embed_tokens.weight"][2] = 0.0
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def test_at_the_contexts_end_drafts_shrink_then_it_is_plain_then_it_says_so(tmp_path: Path) -> None:
    limit = 96
    target = never_ending(write_folder(tmp_path / "t", max_position_embeddings=limit))
    with engine_of(target, target) as engine:
        assert engine.facts().context_len == limit
        empty = engine.count_tokens(say(""))
        for drafter in ("ngram", "draft_model"):
            reasons = set()
            for length in (limit - 10, limit - 6, *range(limit - 3, limit + 2)):
                text = "z" * (length - empty)  # a character that is a token by itself
                assert engine.count_tokens(say(text)) == length
                if length >= limit:
                    with pytest.raises(ContextFull) as full:
                        engine.stream(say(text), DecodingParams())
                    assert (full.value.prompt_tokens, full.value.context_len) == (length, limit)
                    continue
                events = same(engine, drafter, text, k=5)
                end = finished(events)
                assert len(end.token_ids) == limit - length and end.reason is FinishReason.CONTEXT
                assert all(r.context_len + r.num_drafted < limit for r in rounds(events))
                reasons |= {r.k_reason for r in rounds(events)}
            assert KReason.CONTEXT in reasons
        with pytest.raises(ContextFull, match="shorten the message") as full:
            engine.stream(say("x" * 2**18), DecodingParams())
        assert full.value.prompt_tokens >= 2**18


def test_behind_a_drafters_shorter_context_the_reply_goes_on_without_it(tmp_path: Path) -> None:
    target = never_ending(write_folder(tmp_path / "t", max_position_embeddings=256))
    drafter = never_ending(write_folder(tmp_path / "d", max_position_embeddings=96))
    with engine_of(target, drafter) as engine:
        events = same(engine, n=120)
        assert len(finished(events).token_ids) == 120
        behind = [r for r in rounds(events) if r.context_len >= 96]
        assert drafted(events) and behind and not any(r.num_drafted for r in behind)
        assert {r.k_reason for r in behind[:-1]} == {KReason.DRAFTER_CONTEXT}  # the page shows why


def test_without_a_template_and_for_what_cannot_be_seen_there_is_an_answer_or_a_sentence(tmp_path: Path) -> None:
    with engine_of(write_folder(tmp_path / "t", template=None)) as engine:
        assert "no chat template" in engine.facts().note
        ids = engine.encode([Message("system", "Be kind."), *say("hello")])
        spelt = engine.served_pair().pair.target.tokenizer.decode(ids)
        assert spelt.endswith("Be kind.\nUser: hello\nAssistant:")
        for typed in ("", " ", "\n\n\n", "\u200b", "\ufeff", "\t \r\n"):
            events = list(engine.stream(say(typed), DecodingParams(max_new_tokens=8)))
            assert finished(events).reason is not FinishReason.ERROR, typed
        with pytest.raises(InvalidParams, match="write one first"):
            engine.stream([], DecodingParams())


# -- vocabularies ------------------------------------------------------------------------------------------------------


def padded(folder: Path, rows: int) -> Path:
    """A model with `rows` rows, of which those that only pad the vocabulary shout: uncut they would be drawn at
    once."""
    write_folder(folder, vocab_size=rows, tie_word_embeddings=False)
    narrow = write_folder(folder.with_name("narrow"), tie_word_embeddings=False)
    weights = load_file(narrow / "model.safetensors")  # the real rows are the same, however many pad them
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        shout = np.float32(50.0) * np.sign(weights[name][5])
        weights[name] = np.concatenate([weights[name], np.tile(shout, (rows - ROWS, 1))])
    weights["lm_head.weight"][2] = -10 * np.abs(weights["lm_head.weight"][2])
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def test_padding_is_never_proposed_and_never_drawn(tmp_path: Path) -> None:
    for target, drafter in ((ROWS + 128, ROWS + 6), (ROWS, ROWS + 128)):
        with engine_of(padded(tmp_path / "t", target), padded(tmp_path / "d", drafter)) as engine:
            for temperature in (0.0, 1.5):
                for text in ("hello 0", "hello 1"):
                    events = same(engine, text=text, n=40, temperature=temperature)
                    assert max((*finished(events).token_ids, *drafted(events))) < ROWS
                    assert Outcome.ACCEPTED in {d.outcome for r in rounds(events) for d in r.decisions}


def test_a_few_tokens_more_in_one_tokeniser_are_no_obstacle_and_another_one_is_none_either(tmp_path: Path) -> None:
    """As in Qwen 2.5 and 3, or a base model and its chat model: one vocabulary begins as the other."""
    more = tokenisers.byte_level()
    more.add_tokens(["<tool>", "<answer>"])
    usual = never_ending(write_folder(tmp_path / "t", seed=1))
    larger = never_ending(write_folder(tmp_path / "more", more, seed=1, num_hidden_layers=1))
    for target, drafter in ((usual, larger), (larger, usual)):
        with engine_of(target, drafter) as engine:
            events = same(engine, temperature=0.8)
            assert drafted(events) and max(drafted(events)) < ROWS
            tested = DecodingParams(drafter="draft_model", rule=Rule.REJECTION, max_new_tokens=20)
            assert finished(list(engine.stream(say("hello"), tested))).reason is FinishReason.LENGTH
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    with engine_of(usual, write_folder(tmp_path / "d", tokenisers.byte_fallback(), template)) as engine:
        note = engine.facts().note
        assert note.startswith("d and t have different tokenisers")
        same(engine, text="hello 你好")


VOCAB = 257


@given(st.integers(200, 300), st.integers(0, 2**31), st.sampled_from(list(Rule)), st.sampled_from([0.0, 1.0]))
@settings(max_examples=40)
def test_a_proposal_is_over_the_targets_ids_whatever_the_drafters(
    rows: int, seed: int, rule: Rule, temperature: float
) -> None:
    """The rows of both sides can be compared, nothing is drawn that the target lacks, and the sums are whole."""
    network = FakeNetwork(rows, hashed_logits(rows, seed=5))
    drafter = DraftModelDrafter(Model(network, 4096), KVCache(), VOCAB)
    sampling = SamplingParams(temperature=temperature, seed=seed)
    context = DraftContext([5, 6, 7], 2, None, sampling, KeyedRng(seed, rule))
    made = drafter.propose(DraftOption("draft_model", "draft_model"), context, 3)
    assert made.probs is not None and max(made.token_ids) < min(rows, VOCAB)
    for i in range(3):
        row = made.probs[i]
        assert row.shape == (VOCAB,) and float(row.sum()) == pytest.approx(1.0, abs=1e-4)
        assert not row[rows:].any()
        assert residual(made, torch.full((VOCAB,), 1 / VOCAB), i).shape == (VOCAB,)
    assert drafter.options([1, 199]) and bool(drafter.options([1, 199, 256, 3])) == (rows > 256), "it lacks the id"
