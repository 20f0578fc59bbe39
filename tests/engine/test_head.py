"""A head's proposals do not depend on what its cache went through, its reduced vocabulary bends no distribution, and the
native head computes what torch does."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import engine.drafters.head as drafter_module
import engine.heads.native_head as native_module
from engine.config import Rule, SamplingParams
from engine.drafters.head import HeadDrafter
from engine.drafters.protocol import DraftContext, DraftOption, Proposal
from engine.errors import LoadError
from engine.heads.eagle3 import Head, HeadConfig
from engine.heads.native_head import NativeHead
from engine.kernels.build import kernels
from engine.kernels.packing import quantise
from engine.networks.kv_cache import KVCache
from engine.rng import KeyedRng, Purpose
from engine.sampling import probabilities
from engine.verify import verify
from tests.engine.test_verify import FALSE_FAIL, p_value
from tests.engine.tiny_heads import (
    VARIANTS,
    VOCAB,
    draft_ids,
    embedding,
    features_of,
    head_config,
    prob_rows,
    proposed,
    random_weights,
    raw_rows,
    slowly,
    torch_head,
)  # fmt: skip

OPTION = DraftOption("head", "head")
IDS = torch.randint(0, VOCAB, (290,), generator=torch.Generator().manual_seed(0)).tolist()
TOKENS = st.integers(0, VOCAB - 1)
STEPS = ("accept", "reject", "edit", "other", "cut", "again")
ROUNDS = st.lists(
    st.tuples(st.sampled_from(STEPS), st.lists(TOKENS, min_size=1, max_size=30), st.integers(1, 4)),
    min_size=1,
    max_size=7,
)


def native_head(config: HeadConfig, threads: int = 1) -> NativeHead:
    library, table = kernels(), embedding()
    if isinstance(library, str):
        pytest.skip(library)
    return NativeHead(config, random_weights(config), draft_ids(), lambda ids: table[ids], library, threads)


def drafter_of(head: Head | None = None, cache: KVCache | None = None) -> HeadDrafter:
    return HeadDrafter(head or torch_head(head_config()), cache or KVCache(), VOCAB)


def following(ids: list[int], what: str, tokens: list[int], drafts: tuple[int, ...]) -> list[int]:
    """The ids of the next round."""
    at = min(len(ids) - 1, tokens[0] % 40 + 1)
    return {
        "accept": [*ids, *drafts, tokens[0]],
        "reject": [*ids, *drafts[:-1], (drafts[-1] + 1) % VOCAB],
        "edit": [*ids[:at], *tokens],
        "other": [1, *tokens],
        "cut": ids[: max(2, at)],
        "again": ids,
    }[what]


@pytest.mark.parametrize("variant", ["as it is trained here", "all of it", "in torch"])
def test_whatever_came_before_a_proposal_is_that_of_a_fresh_cache(variant: str) -> None:
    """To the bit on the kernels."""
    exact = variant != "in torch"
    head = native_head(head_config(**VARIANTS[variant])) if exact else torch_head(head_config())

    @given(st.lists(TOKENS, min_size=2, max_size=40), ROUNDS)
    @settings(max_examples=12)
    def check(ids: list[int], rounds: list[tuple[str, list[int], int]]) -> None:
        cache = KVCache()
        drafter = drafter_of(head, cache)
        for what, tokens, k in rounds:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(drafter_module, "TOGETHER", 3)
                patch.setattr(drafter_module, "PREFILL_CHUNK", 5)
                patch.setattr(native_module, "PREFILL_CHUNK", 4)
                found = proposed(drafter, ids, k)
            assert cache.ids == ids, "entries of drafts are scratch"
            fresh = proposed(drafter_of(head), ids, k)
            same = found.token_ids == fresh.token_ids
            rows = slice(None) if same else slice(1)  # a number fell between two rows that differ by rounding
            limit = 0.0 if exact else 2e-4
            torch.testing.assert_close(raw_rows(found)[rows], raw_rows(fresh)[rows], atol=limit, rtol=limit)
            assert same or not exact
            ids = following(ids, what, tokens, found.token_ids)

    check()


def test_a_drafter_that_kept_its_own_entries_would_be_caught() -> None:
    """Negative control: entries of accepted drafts, valid by their ids alone."""
    cache, ids = KVCache(), IDS[:8]
    drafter = drafter_of(None, cache)
    drafts = proposed(drafter, ids, 4).token_ids
    cache.ids[:] = [*ids, *drafts[:-1]]
    found, fresh = (raw_rows(proposed(each, [*ids, *drafts, 7], 1)) for each in (drafter, drafter_of()))
    assert float((found - fresh)[0, draft_ids()].abs().max()) > 0.02


def test_a_proposal_is_what_entries_one_by_one_give() -> None:
    """Also with a head of two layers, and past the first block and pass of a prompt."""
    for layers, length in itertools.product((1, 2), (2, 9, 10, 270)):
        head, ids = torch_head(head_config(layers=layers)), IDS[:length]
        found = proposed(drafter_of(head), ids, 3)
        whole = [*ids, *found.token_ids]
        expected = torch.stack(slowly(head, whole, features_of(whole), length - 2, 3))
        torch.testing.assert_close(raw_rows(found)[:, draft_ids()], expected, atol=2e-4, rtol=2e-4)


def test_it_drafts_only_behind_a_feature_and_only_as_long_as_it_is_told_to() -> None:
    drafter, rng, ids, features = drafter_of(), KeyedRng(1, Rule.REJECTION), IDS[:4], features_of(IDS[:3])
    assert drafter.options([5]) == () and drafter.options([5, 6]) == (OPTION,)
    params, asked = SamplingParams(temperature=0.7, top_k=3), list[tuple[float, ...]]()

    def twice(confidences: tuple[float, ...]) -> bool:
        asked.append(confidences)
        return len(confidences) < 2

    for context, k in ((DraftContext(ids, 1, features, params, rng), 0), (DraftContext(ids, 1, None, params, rng), 3)):
        assert drafter.propose(OPTION, context, k) == Proposal()
    found = drafter.propose(OPTION, DraftContext(ids, 1, features, params, rng), 5, twice)
    assert len(found.token_ids) == 2 and asked == [found.confidences[:1], found.confidences]
    assert list(found.confidences) == pytest.approx(raw_rows(found).softmax(-1).amax(-1).tolist(), rel=1e-5)


SETTINGS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0}, {"temperature": 1.3, "top_k": 5}, {"temperature": 0.8, "top_p": 0.7}, {"min_p": 0.1},
    {"repetition_penalty": 1.7}, {"frequency_penalty": 0.8, "presence_penalty": 0.5, "top_k": 6},
    {"top_p": 0.9, "logit_bias": tuple((i, -100.0 if i % 2 else 3.0) for i in range(0, VOCAB, 3))},
)  # fmt: skip


@pytest.mark.parametrize("params", SETTINGS, ids=str)
def test_probabilities_are_those_of_the_logits_scattered_over_the_targets_vocabulary(params: dict[str, Any]) -> None:
    sampling = SamplingParams(**{"temperature": 1.0} | params)
    ids = [int(draft_ids()[0]), 2, 3, int(draft_ids()[0]), 50, int(draft_ids()[5])]
    found = proposed(drafter_of(), ids, 4, sampling)
    probs, raw = prob_rows(found), raw_rows(found)
    for token_id, row, logits, i in zip(found.token_ids, probs, raw, range(4), strict=True):
        expected = probabilities(logits[None], ids, 1, sampling)[0]
        torch.testing.assert_close(row, expected, atol=1e-6, rtol=1e-5)
        assert float(row[token_id]) > 0 and not row[logits == -torch.inf].any()
        assert found.raw_prob(i) == pytest.approx(float(logits.softmax(-1)[token_id]), rel=1e-5)
        ids.append(token_id)


def drafting(**params: Any) -> tuple[HeadDrafter, SamplingParams, torch.Tensor]:
    """A drafter, and what the target says behind six ids and behind one more token."""
    sampling = SamplingParams(temperature=1.0, **params)
    logits = torch.randn(2, VOCAB, generator=torch.Generator().manual_seed(3)) * 1.5
    logits[0, draft_ids()[:6]] += 2.0
    return drafter_of(), sampling, torch.cat([probabilities(row[None], IDS[:6], 1, sampling) for row in logits])


def draft(drafter: HeadDrafter, params: SamplingParams, rng: KeyedRng) -> Proposal:
    return drafter.propose(OPTION, DraftContext(IDS[:6], 1, features_of(IDS[:5]), params, rng), 1)


def test_chi_square_of_what_the_rejection_rule_emits_and_of_a_drafter_that_lies() -> None:
    """The one that lies plays its likeliest token and claims to have drawn it."""
    drafter, params, target = drafting(top_k=12)
    counts = np.zeros((2, VOCAB))
    for rng in (KeyedRng(seed, Rule.REJECTION) for seed in range(1500)):
        found = draft(drafter, params, rng)
        rows = prob_rows(found)
        for who, proposal in enumerate((found, Proposal((int(rows[0].argmax()),), rows))):
            verdict = verify(proposal, target, 6, rng)
            counts[who, proposal.token_ids[0] if verdict.num_accepted else verdict.next_id] += 1
    law = target[0].double().numpy()
    honest, lying = (p_value(each, law / law.sum()) for each in counts)
    assert honest > FALSE_FAIL > lying


def test_under_shared_noise_it_draws_what_the_target_would_draw_of_its_distribution() -> None:
    drafter, params, _ = drafting(top_p=0.9)
    for rng in (KeyedRng(seed, Rule.SHARED_NOISE) for seed in range(50)):
        found = draft(drafter, params, rng)
        assert found.token_ids == (rng.draw(prob_rows(found)[0], 6, Purpose.TARGET),)


# ------------------------------------------------------------------------------------------------ on the kernels


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_native_head_computes_what_torch_computes_over_the_same_weights(variant: str) -> None:
    """Up to the rounding of activations to 8 bits and of keys to 16: a wrong rope, norm or mask would differ by all of
    it."""
    config, ids, features = head_config(**VARIANTS[variant]), IDS[:40], features_of(IDS[:40])
    rounded = {
        name: torch.from_numpy(quantise(tensor.numpy(), 4).dequantise()) if tensor.ndim == 2 else tensor
        for name, tensor in random_weights(config).items()
    }
    expected = torch.stack(slowly(torch_head(config, rounded), ids, features, 36, 3))
    found = torch.stack(slowly(native_head(config), ids, features, 36, 3))
    error = (found - expected).norm(dim=-1) / (expected - expected.mean(-1, keepdim=True)).norm(dim=-1)
    assert float(error.max()) < 0.06
    for option in VARIANTS[variant].keys() - {"model_type"}:  # without any of its parts it is another head
        other = head_config(**{name: value for name, value in VARIANTS[variant].items() if name != option})
        apart = slowly(torch_head(other, rounded), ids, features, 36, 3)[-1] - expected[-1]
        assert float(apart.norm() / expected[-1].norm()) > 0.1, option


@pytest.mark.parametrize("variant", ["as it is trained here", "one norm over the features", "all of it"])
def test_an_entry_is_the_same_to_the_bit_whatever_is_run_beside_it(variant: str) -> None:
    config, features, tokens = head_config(**VARIANTS[variant]), features_of(IDS), torch.tensor(IDS)
    one, alone, count = native_head(config), KVCache(), len(IDS) - 1  # past the first block of keys
    joined = torch.cat([one.join(row[None]) for row in features[:count]])
    states = torch.cat([one.run(tokens[t + 1 : t + 2], joined[t : t + 1], t, alone) for t in range(count)])
    rows = torch.cat([one.logits(state[None]) for state in states])
    for row in rows[:20]:
        token, share = one.choice(row[None])
        assert token == int(row.argmax()) and share == pytest.approx(float(row.softmax(0).max()), rel=1e-4)
    for bad in (torch.nan, torch.inf):
        assert np.isnan(one.choice(torch.cat([row[1:], torch.tensor([bad])])[None])[1])
    for threads in (1, 2, 3):
        head, cache = native_head(config, threads), KVCache()
        state = head.join(features[:count])
        head.run(tokens[1:252], state[:251], 0, cache, keys_only=True)  # only their keys are needed
        assert torch.equal(head.run(tokens[252:], state[251:], 251, cache), states[251:])
        assert torch.equal(head.run(tokens[1:], state, 0, KVCache()), states)
        assert torch.equal(head.logits(states), rows)
        assert torch.equal(state, joined), "what it is given is left as it was"


def test_a_shape_that_the_kernels_do_not_run_is_one_sentence() -> None:
    config = head_config()
    changes: list[dict[str, Any]] = [{"layers": 2}, {"dim": 24}, {"heads": 3, "kv_heads": 1}, {"mlp": 80}]
    for change in changes:
        spoilt = replace(config, shape=replace(config.shape, **change))
        with pytest.raises(LoadError, match="use --kernel torch"):
            native_head(spoilt)
