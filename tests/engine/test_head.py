"""A head's proposals do not depend on what its cache went through, and its reduced vocabulary bends no distribution."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import engine.drafters.head as drafter_module
import engine.heads.native_head as native_module
import engine.kernels.build as native
from engine.config import Rule, SamplingParams
from engine.drafters.head import HeadDrafter
from engine.drafters.protocol import DraftContext, DraftOption, Proposal
from engine.errors import LoadError
from engine.heads.eagle3 import Head
from engine.heads.native_head import NativeHead
from engine.networks.kv_cache import KVCache
from engine.rng import KeyedRng, Purpose
from engine.sampling import probabilities
from engine.verify import verify
from tests.engine.test_verify import FALSE_FAIL, exact_law, p_value
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

TOKENS = st.integers(0, VOCAB - 1)
ROUNDS = st.lists(
    st.tuples(
        st.sampled_from(["accept", "reject", "edit", "other", "cut", "again"]),
        st.lists(TOKENS, min_size=1, max_size=30),
        st.integers(1, 4),
    ),
    min_size=1,
    max_size=7,
)


def native_head(variant: str) -> Head:
    kernels = native.kernels()
    if isinstance(kernels, str):
        pytest.skip(kernels)
    config, table = head_config(**VARIANTS[variant]), embedding()
    return NativeHead(config, random_weights(config), draft_ids(), lambda ids: table[ids], kernels, 1)


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


def check_rounds(head: Head, start: list[int], rounds: list[tuple[str, list[int], int]], exact: bool) -> None:
    cache = KVCache()
    drafter = HeadDrafter(head, cache, VOCAB)
    ids = start
    for what, tokens, k in rounds:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(drafter_module, "TOGETHER", 3)
            patch.setattr(drafter_module, "PREFILL_CHUNK", 5)
            patch.setattr(native_module, "PREFILL_CHUNK", 4)
            found = proposed(drafter, ids, k)
        assert cache.ids == ids, "entries of drafts are scratch"
        fresh = proposed(HeadDrafter(head, KVCache(), VOCAB), ids, k)
        ours, theirs = raw_rows(found), raw_rows(fresh)
        if exact:
            assert torch.equal(ours, theirs) and found.token_ids == fresh.token_ids
        else:
            torch.testing.assert_close(ours[0], theirs[0], atol=2e-4, rtol=2e-4)
            if found.token_ids == fresh.token_ids:  # else a number fell between two rows that differ by rounding
                torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=2e-4)
        ids = following(ids, what, tokens, found.token_ids)


@given(st.lists(TOKENS, min_size=2, max_size=40), ROUNDS)
@settings(max_examples=12)
def test_whatever_came_before_a_proposal_is_that_of_a_fresh_cache(
    start: list[int], rounds: list[tuple[str, list[int], int]]
) -> None:
    check_rounds(torch_head(head_config()), start, rounds, exact=False)


@pytest.mark.parametrize("variant", ["as it is trained here", "all of it"])
def test_on_the_kernels_it_is_so_to_the_bit(variant: str) -> None:
    head = native_head(variant)

    @given(st.lists(TOKENS, min_size=2, max_size=40), ROUNDS)
    @settings(max_examples=10)
    def check(start: list[int], rounds: list[tuple[str, list[int], int]]) -> None:
        check_rounds(head, start, rounds, exact=True)

    check()


def test_a_drafter_that_kept_its_own_entries_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: entries of accepted drafts, valid by their ids alone."""
    propose = HeadDrafter.propose

    def keeping(self: HeadDrafter, option: DraftOption, context: DraftContext, *rest: object) -> Proposal:
        found = propose(self, option, context, *rest)  # type: ignore[arg-type]
        self._cache.ids[:] = [*context.ids, *found.token_ids[:-1]]
        return found

    monkeypatch.setattr(HeadDrafter, "propose", keeping)
    head, cache, ids = torch_head(head_config()), KVCache(), [3, 1, 4, 1, 5, 9, 2, 6]
    drafter = HeadDrafter(head, cache, VOCAB)
    first = proposed(drafter, ids, 4)
    ids = [*ids, *first.token_ids, 7]
    found, fresh = proposed(drafter, ids, 1), proposed(HeadDrafter(head, KVCache(), VOCAB), ids, 1)
    apart = (raw_rows(found) - raw_rows(fresh))[0, draft_ids()]
    assert float(apart.abs().max()) > 0.02


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("length", [2, 9, 10, 270])
def test_a_proposal_is_what_entries_one_by_one_give(layers: int, length: int) -> None:
    """Also with a head of two layers, and past the first block and pass of a prompt."""
    head = torch_head(head_config(layers=layers))
    ids = [int(i) for i in np.random.default_rng(length).integers(0, VOCAB, length)]
    found = proposed(HeadDrafter(head, KVCache(), VOCAB), ids, 3)
    whole = [*ids, *found.token_ids]
    expected = slowly(head, whole, features_of(whole), length - 2, 3)
    torch.testing.assert_close(raw_rows(found)[:, draft_ids()], torch.stack(expected), atol=2e-4, rtol=2e-4)


def test_nothing_is_offered_or_drafted_before_there_is_a_feature() -> None:
    drafter = HeadDrafter(torch_head(head_config()), KVCache(), VOCAB)
    assert drafter.options([5]) == () and drafter.options([5, 6]) == (DraftOption("head", "head"),)
    rng, option = KeyedRng(1, Rule.REJECTION), DraftOption("head", "head")
    assert drafter.propose(option, DraftContext([5, 6], 1, features_of([5]), SamplingParams(), rng), 0) == Proposal()
    assert drafter.propose(option, DraftContext([5, 6], 1, None, SamplingParams(), rng), 3) == Proposal()


def test_it_goes_on_as_long_as_it_is_told_to_and_drops_nothing_drawn() -> None:
    asked: list[tuple[float, ...]] = []

    def twice(confidences: tuple[float, ...]) -> bool:
        asked.append(confidences)
        return len(confidences) < 2

    ids, params = [1, 2, 3, 4], SamplingParams(temperature=0.7, top_k=3)
    drafter = HeadDrafter(torch_head(head_config()), KVCache(), VOCAB)
    found = drafter.propose(
        DraftOption("head", "head"),
        DraftContext(ids, 1, features_of(ids)[:3], params, KeyedRng(1, Rule.REJECTION)),
        5,
        twice,
    )
    assert len(found.token_ids) == 2 and asked == [found.confidences[:1], found.confidences]
    best = raw_rows(found).softmax(-1).amax(-1)
    assert list(found.confidences) == pytest.approx(best.tolist(), rel=1e-5)


SETTINGS = [
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=1.0),
    SamplingParams(temperature=1.3, top_k=5),
    SamplingParams(temperature=0.8, top_p=0.7),
    SamplingParams(temperature=1.0, min_p=0.1),
    SamplingParams(temperature=1.0, repetition_penalty=1.7),
    SamplingParams(temperature=1.0, frequency_penalty=0.8, presence_penalty=0.5, top_k=6),
    SamplingParams(temperature=1.0, top_p=0.9, logit_bias=tuple((i, -100.0 if i % 2 else 3.0) for i in range(0, VOCAB, 3))),
]  # fmt: skip


@pytest.mark.parametrize("params", SETTINGS, ids=str)
def test_probabilities_are_those_of_the_logits_scattered_over_the_targets_vocabulary(params: SamplingParams) -> None:
    ids = [int(draft_ids()[0]), 2, 3, int(draft_ids()[0]), 50, int(draft_ids()[5])]
    found = proposed(HeadDrafter(torch_head(head_config()), KVCache(), VOCAB), ids, 4, params)
    probs, raw = prob_rows(found), raw_rows(found)
    outside = torch.ones(VOCAB, dtype=torch.bool)
    outside[draft_ids()] = False
    assert int(outside.sum()) == VOCAB - len(draft_ids())
    assert not probs[:, outside].any() and bool((raw[:, outside] == float("-inf")).all())
    whole = [*ids, *found.token_ids]
    for i, token_id in enumerate(found.token_ids):
        expected = probabilities(raw[i : i + 1], whole[: len(ids) + i], 1, params)[0]
        torch.testing.assert_close(probs[i], expected, atol=1e-6, rtol=1e-5)
        assert float(probs[i].sum()) == pytest.approx(1.0, abs=1e-5)
        assert float(probs[i, token_id]) > 0
        assert found.raw_prob(i) == pytest.approx(float(raw[i].softmax(-1)[token_id]), rel=1e-5)


def drafting(params: SamplingParams) -> tuple[HeadDrafter, list[int], torch.Tensor]:
    """A drafter that has caught up, the ids, and what the target says behind them and behind one more token."""
    ids = [4, 8, 15, 16, 23, 42]
    drafter = HeadDrafter(torch_head(head_config()), KVCache(), VOCAB)
    logits = torch.randn(2, VOCAB, generator=torch.Generator().manual_seed(3)) * 1.5
    logits[0, draft_ids()[:6]] += 2.0
    return drafter, ids, torch.cat([probabilities(row[None], ids, 1, params) for row in logits])


def test_the_emitted_law_is_exactly_the_targets() -> None:
    """All that can be drafted and drawn, with its true measure."""
    params = SamplingParams(temperature=1.0, top_k=5)
    drafter, ids, target = drafting(params)
    draft = prob_rows(proposed(drafter, ids, 1, params))
    law = np.zeros(VOCAB)
    for token_id in torch.nonzero(draft[0])[:, 0].tolist():
        for emitted, share in exact_law(Proposal((token_id,), draft), target.double()).items():
            law[emitted[0]] += float(draft[0, token_id]) * share
    assert int(((target[0] > 0) & (draft[0] > 0)).sum()) > 0
    np.testing.assert_allclose(law, target[0].numpy(), atol=1e-6)


def emitted_counts(monkeypatch: pytest.MonkeyPatch, lying: bool) -> tuple[np.ndarray, np.ndarray]:
    """Counts of the first emitted token; lying: the drafter plays its likeliest token and claims to have drawn it."""
    params = SamplingParams(temperature=1.0, top_k=12)
    drafter, ids, target = drafting(params)
    counts = np.zeros(VOCAB)
    features, option = features_of(ids)[:-1], DraftOption("head", "head")
    state = drafter._catch_up(ids, features)
    monkeypatch.setattr(drafter, "_catch_up", lambda *_: state)  # the same for every seed
    for seed in range(2500):
        rng = KeyedRng(seed, Rule.REJECTION)
        found = drafter.propose(option, DraftContext(ids, 1, features, params, rng), 1)
        if lying:
            rows = prob_rows(found)
            found = Proposal((int(rows[0].argmax()),), rows)
        verdict = verify(found, target, len(ids), rng)
        counts[found.token_ids[0] if verdict.num_accepted else verdict.next_id] += 1
    law = target[0].double().numpy()
    return counts, law / law.sum()


def test_chi_square_of_what_the_rejection_rule_emits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert p_value(*emitted_counts(monkeypatch, lying=False)) > FALSE_FAIL


def test_chi_square_notices_a_drafter_that_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    assert p_value(*emitted_counts(monkeypatch, lying=True)) < FALSE_FAIL


def test_under_shared_noise_what_is_emitted_is_what_plain_decoding_draws() -> None:
    params = SamplingParams(temperature=1.0, top_p=0.9)
    drafter, ids, target = drafting(params)
    accepted = 0
    for seed in range(200):
        rng = KeyedRng(seed, Rule.SHARED_NOISE)
        found = drafter.propose(
            DraftOption("head", "head"), DraftContext(ids, 1, features_of(ids)[:-1], params, rng), 1
        )
        verdict = verify(found, target, len(ids), rng)
        plain = [rng.draw(target[i], len(ids) + i, Purpose.TARGET) for i in range(2)]
        emitted = [*found.token_ids[: verdict.num_accepted], verdict.next_id]
        assert emitted == plain[: len(emitted)]
        accepted += verdict.num_accepted
    assert 0 < accepted < 200


@pytest.mark.parametrize(
    "change", [{"layers": 2}, *({"sizes": {name: n}} for name, n in (("dim", 24), ("heads", 3), ("mlp", 80)))], ids=str
)
def test_a_shape_that_the_kernels_do_not_run_is_one_sentence(change: dict[str, object]) -> None:
    from dataclasses import replace

    kernels = native.kernels()
    if isinstance(kernels, str):
        pytest.skip(kernels)
    config = head_config(layers=2 if "layers" in change else 1)
    sizes = change.get("sizes", {}) | ({"kv_heads": 1} if "heads" in change.get("sizes", {}) else {})  # type: ignore[operator,arg-type]
    config = replace(config, shape=replace(config.shape, **sizes))
    with pytest.raises(LoadError, match="use --kernel torch"):
        NativeHead(config, random_weights(config), draft_ids(), lambda ids: ids, kernels, 1)
