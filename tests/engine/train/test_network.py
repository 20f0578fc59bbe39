"""What a head is trained on is what it meets when it drafts: every step of every chain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from engine.heads.eagle3 import HeadConfig
from engine.networks.kv_cache import KVCache
from engine.train.network import ChainStep, Example, Trainee, loss
from tests.engine.tiny_heads import (
    HIDDEN,
    VARIANTS,
    VOCAB,
    embedding,
    features_of,
    head_config,
    random_weights,
    slowly,
    torch_head,
)  # fmt: skip

STEPS = 3


def some_ids(n: int, seed: int = 0) -> list[int]:
    return torch.randint(0, VOCAB, (n,), generator=torch.Generator().manual_seed(seed)).tolist()


def an_example(ids: Sequence[int], first: int) -> Example:
    last = torch.randn(len(ids), HIDDEN, generator=torch.Generator().manual_seed(len(ids)))
    return Example(torch.tensor(ids), features_of(ids), last, first)


def trainee(config: HeadConfig) -> Trainee:
    return Trainee(config, random_weights(config), embedding(), torch.full((HIDDEN,), 1.5))


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_step_of_every_chain_is_what_drafting_computes(variant: str) -> None:
    config = head_config(**VARIANTS[variant])
    texts, firsts = [some_ids(9), some_ids(5, 1)], [4, 0]
    steps = trainee(config).chains([an_example(ids, first) for ids, first in zip(texts, firsts, strict=True)], STEPS)
    head, chain = torch_head(config), 0
    for ids, first in zip(texts, firsts, strict=True):
        features = features_of(ids)
        for t in range(first, len(ids) - 1):
            for j, logits in enumerate(slowly(head, ids, features, t, min(STEPS, len(ids) - 1 - t))):
                close(steps[j].logits[chain], logits)
            chain += 1
    assert all(len(step.logits) == chain for step in steps)


def test_chains_that_begin_at_some_entries_are_the_same_ones() -> None:
    config, example = head_config(), an_example(some_ids(9), 2)
    other = an_example(some_ids(6, 1), 0)
    whole = trainee(config).chains([example, other], STEPS)
    some = trainee(config).chains(
        [replace(example, starts=torch.tensor([3, 6])), replace(other, starts=torch.arange(0))], STEPS
    )
    for one, all_of_them in zip(some, whole, strict=True):
        assert len(one.logits) == 2
        for name in ("logits", "target", "valid", "actual"):
            close(getattr(one, name).float(), getattr(all_of_them, name)[[1, 4]].float())


def test_an_entry_kept_from_a_draft_step_shows() -> None:
    """Negative control: the ids agree, and yet an entry that the head made from its own output is another one."""
    config, ids = head_config(), some_ids(13)
    features, head, cache = features_of(ids), torch_head(config), KVCache()
    state = head.run(torch.tensor(ids[1:7]), head.join(features[:6]), 0, cache)[-1:]
    head.run(torch.tensor(ids[7:8]), head.next_input(state), 6, cache)  # a draft that was accepted, and kept
    stale = head.logits(head.run(torch.tensor(ids[8:9]), head.join(features[7:8]), 7, cache))[0]
    steps = trainee(config).chains([an_example(ids, 7)], 1)
    assert float((steps[0].logits[0] - stale).abs().max()) > 0.02
    [fresh] = slowly(head, ids, features, 7, 1)
    close(steps[0].logits[0], fresh)


def test_a_step_is_compared_with_the_target_where_the_token_stands() -> None:
    config, ids = head_config(), some_ids(9)
    example, made = an_example(ids, 2), trainee(config)
    steps = made.chains([example], STEPS)
    normed = torch.nn.functional.rms_norm(example.last, (HIDDEN,), torch.full((HIDDEN,), 1.5), config.shape.epsilon)
    probs = (normed @ made.weights["lm_head.weight"].T).softmax(-1)
    for j, step in enumerate(steps):
        for chain, t in enumerate(range(2, len(ids) - 1)):
            there = t + 2 + j < len(ids)  # what this step predicts
            assert bool(step.valid[chain]) is there
            if there:
                assert int(step.actual[chain]) == ids[t + 2 + j]
                close(step.target[chain], probs[t + 1 + j])


def test_the_chains_that_go_on_are_drawn_by_the_dice_alone() -> None:
    config = head_config()
    examples, made = [an_example(some_ids(30), 3), an_example(some_ids(20, 1), 2)], trainee(config)
    whole = made.chains(examples, STEPS)
    a, b = (made.chains(examples, STEPS, 0.5, torch.Generator().manual_seed(4)) for _ in range(2))
    assert torch.equal(a[0].logits, whole[0].logits)
    assert all(torch.equal(x.logits, y.logits) for x, y in zip(a, b, strict=True))
    kept = torch.rand(len(whole[0].logits), generator=torch.Generator().manual_seed(4)) < 0.5
    assert 0 < int(kept.sum()) < len(kept)
    for j in (1, 2):
        close(a[j].logits, whole[j].logits[kept])
        assert torch.equal(a[j].actual, whole[j].actual[kept]) and torch.equal(a[j].valid, whole[j].valid[kept])


def test_the_loss_is_the_cross_entropy_of_valid_chains() -> None:
    logits = torch.tensor([[1.0, 0.0], [0.0, 3.0], [9.0, 9.0]])
    target = torch.tensor([[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]])
    one = ChainStep(logits, target, torch.tensor([True, True, False]), torch.zeros(3, dtype=torch.long))
    entropy = -(target * logits.log_softmax(-1)).sum(-1)
    expected = (entropy[0] + entropy[1]) / 2
    close(loss([one], 0.5), expected)
    close(loss([one, one], 0.5), 1.5 * expected)
    nothing = replace(one, valid=torch.zeros(3, dtype=torch.bool))
    assert float(loss([nothing], 0.5)) == 0.0
