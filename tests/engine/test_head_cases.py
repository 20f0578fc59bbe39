"""A head in whole replies: wherever a conversation stops, turns or ends, text and drafts are those of a fresh start."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.config import DecodingParams, Rule, SamplingParams
from engine.drafters.combined import CombinedDrafter
from engine.drafters.head import HeadDrafter
from engine.drafters.ngram import NgramDrafter
from engine.drafters.protocol import Drafter
from engine.events import Event, FinishReason, KReason, Round
from engine.heads.format import read_head, write_head
from engine.heads.load import load_head
from engine.heads.torch_head import TorchHead
from engine.loading.source import ModelSource
from engine.networks.attention import Span
from engine.networks.kv_cache import KVCache, KVCachePool
from engine.networks.model import Model
from engine.train.target import read_target
from tests.engine.tiny_heads import (
    CONFIG,
    HIDDEN,
    LAYERS,
    VOCAB,
    draft_ids,
    embedding,
    features_of,
    head_config,
    proposed,
    random_weights,
    torch_head,
)  # fmt: skip
from tests.fakes import FakeNetwork, byte_tokenizer, finished, hashed_logits, run

LANGUAGE = hashed_logits(VOCAB, seed=1)
FEATURES = functools.cache(features_of)


class FeatureNetwork(FakeNetwork):
    """As FakeNetwork; its features of a position depend on all ids up to it, as its own cache holds them."""

    writes_features = False

    def __call__(self, token_ids: Tensor, positions: Tensor, spans: Sequence[Span], logit_rows: Tensor) -> Tensor:
        logits = super().__call__(token_ids, positions, spans, logit_rows)
        for span in spans:
            ids = span.cache._layers[0][0][0, : span.begin + span.count, 0].long().tolist()
            features = FEATURES(tuple(ids))[span.begin :].unbind(1)
            for layer, rows in zip(span.cache.feature_layers, features, strict=False):  # none, where none are kept
                span.cache.write_features(layer, span.begin, rows)
        return logits


def head_of(context_len: int = 700) -> TorchHead:
    config = head_config(features=LAYERS)
    return torch_head(replace(config, shape=replace(config.shape, context_len=context_len)))


HEAD = head_of()


class Talk:
    """One conversation: what stays from reply to reply are the two caches. copies: the prompt is searched for drafts,
    too."""

    def __init__(self, copies: bool = False, head: TorchHead = HEAD, context_len: int = 4096) -> None:
        self.pool, self.own, self.copies, self.head = KVCachePool(2**28), KVCache(), copies, head
        self.model = Model(FeatureNetwork(VOCAB, LANGUAGE), context_len)

    def reply(self, prompt: Sequence[int], params: DecodingParams, stop: int = 256, rounds: int = 10**6) -> list[Event]:
        head = HeadDrafter(self.head, self.own, VOCAB) if params.num_speculative_tokens != 0 else None
        drafter: Drafter | None = CombinedDrafter(NgramDrafter(1), head) if self.copies and head else head
        cache = self.pool.acquire("talk", drafter.feature_layers if drafter else ())
        tokenizer, counter = byte_tokenizer(), itertools.count()
        object.__setattr__(tokenizer, "stop_ids", frozenset({stop}))
        events = run(prompt, params, self.model, tokenizer, drafter, cache, lambda: next(counter) >= rounds)
        self.pool.release("talk", cache)
        return events


def rounds_of(events: Iterable[Event]) -> list[Round]:
    return [event for event in events if isinstance(event, Round)]


def summary(events: Sequence[Event]) -> Any:
    """The reply's ids and what became of every draft: this depends on every entry of the head's cache."""
    return finished(events).token_ids, [[(d.id, d.outcome) for d in r.decisions] for r in rounds_of(events)]


def settings(k: int | None = 4, n: int = 24, **sampling: Any) -> DecodingParams:
    return DecodingParams(SamplingParams(**{"seed": 5} | sampling), "any", k, Rule.REJECTION, n, probe_every=5)


@pytest.mark.parametrize(("copies", "temperature"), [(False, 0.0), (True, 1.0)])
def test_stop_edit_retry_and_the_next_turn_equal_a_fresh_start(copies: bool, temperature: float) -> None:
    params, talk, first = settings(temperature=temperature), Talk(copies), [1, 2, 3, 4]

    def check(*prompt: int) -> tuple[int, ...]:
        found: tuple[tuple[int, ...], Any] = summary(talk.reply(prompt, params))
        assert found == summary(Talk(copies).reply(prompt, params))
        return found[0]

    talk.reply(first, params, rounds=4)
    answer = check(*first)
    check(*first, *answer, 10, 11)
    check(1, 2, 9, 4, 5)
    talk.reply([1, 2, 9, 4, 5], settings(0))  # its cache keeps no features: the next turn has to read all of it again
    check(1, 2, 9, 4, 5, 6)
    check(*first)
    check(1)


def test_the_turn_after_a_stop_in_mid_block_equals_a_fresh_start() -> None:
    text = finished(Talk().reply([3, 4], settings(0))).token_ids
    for k, stop in itertools.product((1, 3, 8), list(dict.fromkeys(text))[:4]):
        talk, params = Talk(), settings(k)
        first = finished(talk.reply([3, 4], params, stop)).token_ids
        assert first == text[: text.index(stop) + 1]
        turn = [3, 4, *first, 10, 60]
        assert summary(talk.reply(turn, params, stop)) == summary(Talk().reply(turn, params, stop))


@pytest.mark.parametrize("copies", [False, True])
def test_the_end_of_the_context_and_of_the_heads_own_is_no_exception(copies: bool) -> None:
    """Behind the head's own context the reply goes on without it."""
    for k, left in itertools.product((None, 5), (1, 2, 5, 6, 9)):
        end = finished(Talk(copies, head_of(40), 40).reply([9] * (40 - left), settings(k, 500)))
        assert end.reason is FinishReason.CONTEXT and len(end.token_ids) == left
    for k, length in itertools.product((None, 5), (2, 19, 20, 21, 30)):
        prompt = list(range(1, length + 1))
        events = Talk(copies, head_of(20)).reply(prompt, settings(k, 40))
        assert finished(events).token_ids == finished(Talk().reply(prompt, settings(0, 40))).token_ids
        rounds = rounds_of(events)
        assert all(r.context_len + r.num_drafted <= 20 for r in rounds if r.drafter == "head")
        reasons = {r.k_reason for r in rounds if r.context_len >= 20}
        assert copies or not k or KReason.DRAFTER_CONTEXT in reasons


def test_a_request_that_bans_all_that_the_head_can_draft_is_answered() -> None:
    for k in (None, 4):
        params = settings(k, 40, logit_bias=tuple((token_id, -100.0) for token_id in draft_ids().tolist()))
        end, plain = (finished(Talk().reply([5], each)) for each in (params, replace(params, num_speculative_tokens=0)))
        assert end.token_ids == plain.token_ids and end.reason is FinishReason.LENGTH


def test_numbers_that_broke_once_are_not_met_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries that are no numbers must not outlive the reply: another try in the same conversation is a fresh start."""
    cache, ids = KVCache(), [3, 1, 4, 1, 5]
    drafter = HeadDrafter(HEAD, cache, VOCAB)
    with monkeypatch.context() as patch:
        patch.setattr(HEAD, "join", lambda features: torch.full((len(features), HIDDEN), torch.nan))
        assert not proposed(drafter, ids, 2).token_ids and not drafter.options(ids), "the reply goes on without it"
    found, fresh = (proposed(HeadDrafter(HEAD, each, VOCAB), [*ids, 9], 2).token_ids for each in (cache, KVCache()))
    assert found == fresh


def test_a_head_in_several_files_never_drafts_rows_that_pad_the_targets_vocabulary(tmp_path: Path) -> None:
    """A head over all rows of the target's weights, of which the last ones are no tokens: it works without them."""
    config, state, table = head_config(), torch.randn(2, HIDDEN), embedding()
    write_head(tmp_path, config, random_weights(config), draft_ids(), CONFIG)
    whole, tokens = load_file(tmp_path / "model.safetensors"), int(draft_ids()[-4])
    (tmp_path / "model.safetensors").unlink()
    for part in range(2):
        save_file({name: whole[name] for name in sorted(whole)[part::2]}, tmp_path / f"model-{part}.safetensors")
    network = SimpleNamespace(
        shape=SimpleNamespace(layers=8, hidden=HIDDEN, vocab_size=VOCAB), vocab_size=tokens,
        device=torch.device("cpu"), embed=lambda ids: table[ids],
    )  # fmt: skip
    ready = load_head(tmp_path, SimpleNamespace(network=network, name="padded"), 1)  # type: ignore[arg-type]
    assert torch.equal(ready.head.ids, draft_ids()[:-4]) and ready.vocab_size == tokens
    ids = [i % tokens for i in range(7, 60, 5)]
    drafts = proposed(HeadDrafter(ready.head, KVCache(), tokens), ids, 4).token_ids
    assert len(drafts) == 4 and max(drafts) < tokens
    expected = torch_head(config, {name: tensor.float() for name, tensor in whole.items() if name != "d2t"}).logits(
        state
    )
    torch.testing.assert_close(ready.head.logits(state), expected[:, :-4])


def test_a_head_can_be_trained_for_a_target_of_any_rotation(tmp_path: Path) -> None:
    """Its own rotation is the plain one, and what is written for it can be read."""
    tensors = {"model.embed_tokens.weight": embedding(), "model.norm.weight": torch.ones(HIDDEN)}
    save_file(tensors, tmp_path / "model.safetensors")
    for rope in (
        {"rope_parameters": None, "rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}},  # older
        {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0}},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
    ):
        (tmp_path / "config.json").write_text(json.dumps(CONFIG | rope | {"tie_word_embeddings": True}))
        target = read_target(ModelSource(tmp_path, "target", "safetensors"))
        config = replace(head_config(), shape=replace(target.shape, layers=1, tied=False))
        write_head(tmp_path / "head", config, random_weights(config), draft_ids(), target.config)
        found = read_head(tmp_path / "head", 8, HIDDEN, VOCAB).config.shape.rope_speeds
        assert found == target.shape.rope_speeds and found[1] == pytest.approx(5e5 ** (-2 / 16))
