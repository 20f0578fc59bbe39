"""Losslessness of the acceptance rules: by exact enumeration, and by chi-square, each with a negative control."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pytest
import torch
from scipy import stats  # type: ignore[import-untyped]

from engine import verify as verify_module
from engine.config import Rule, SamplingParams
from engine.drafters.protocol import Proposal
from engine.rng import KeyedRng, Purpose
from engine.sampling import probabilities
from engine.verify import verify
from tests.engine.test_sampling import reference

Ids = tuple[int, ...]
Tree = dict[Ids, torch.Tensor]
Law = dict[Ids, float]


class ScriptedRng(KeyedRng):
    """Random numbers that the test chooses, {(position, purpose): u}, 0 where it does not. Rejection rule only."""

    __slots__ = ("numbers",)
    numbers: Mapping[tuple[int, Purpose], float]

    def __init__(self, numbers: Mapping[tuple[int, Purpose], float]) -> None:
        super().__init__(0, Rule.REJECTION)
        object.__setattr__(self, "numbers", numbers)

    def uniform(self, position: int, purpose: Purpose) -> float:
        return self.numbers.get((position, purpose), 0.0)


def measure_of(outcome: Callable[[float], int]) -> Iterator[tuple[int, float]]:
    """Every value that the step function `outcome` of u in [0, 1) takes, and for how much of it: its steps are found by
    bisection down to the last bit, so nothing is assumed about where they should be."""
    low, below = 0.0, float(np.nextafter(1.0, 0.0))
    while low < 1.0:
        value = outcome(low)
        if outcome(below) == value:
            yield value, 1.0 - low
            return
        left, right = low, below
        while np.nextafter(left, 1.0) < right:
            middle = (left + right) / 2
            left, right = (middle, right) if outcome(middle) == value else (left, middle)
        yield value, right - low
        low = right


def exact_law(proposal: Proposal, target: torch.Tensor) -> Law:
    """Probability of every emitted sequence, by walking all decisions with the true measure of the numbers behind
    each."""
    law: Law = {}

    def walk(numbers: dict[tuple[int, Purpose], float], i: int, weight: float, accepted: bool) -> None:
        purpose = Purpose.ACCEPT if accepted and i < len(proposal.token_ids) else Purpose.TARGET

        def outcome(u: float) -> int:
            verdict = verify(proposal, target, 0, ScriptedRng(numbers | {(i, purpose): u}))
            return int(verdict.num_accepted > i) if purpose is Purpose.ACCEPT else verdict.next_id

        begin = 0.0
        for value, share in measure_of(outcome):
            if purpose is Purpose.ACCEPT:
                walk(numbers | {(i, purpose): begin + share / 2}, i + value, weight * share, value == 1)
            else:
                ids = (*proposal.token_ids[:i], value)
                law[ids] = law.get(ids, 0.0) + weight * share
            begin += share

    walk({}, 0, 1.0, True)
    return law


def tree(rng: np.random.Generator, vocab: int, k: int, zeros: bool) -> Tree:
    """A conditional distribution for every prefix of up to k tokens, float64."""
    rows = {}
    for length in range(k + 1):
        for prefix in itertools.product(range(vocab), repeat=length):
            row = rng.dirichlet(np.full(vocab, 0.7))
            if zeros:
                row[rng.integers(vocab)] = 0.0
            rows[prefix] = torch.tensor(row / row.sum(), dtype=torch.float64)
    return rows


def plain_law(target: Tree, vocab: int, n: int, begin: Ids = ()) -> Law:
    """Of the first n tokens behind `begin`, which counts among them."""
    law = {begin: 1.0}
    for _ in range(n - len(begin)):
        law = {(*ids, token): p * float(target[ids][token]) for ids, p in law.items() for token in range(vocab)}
    return law


def furthest_from_plain(target: Tree, draft: Tree | None, proposals: Law, n: int) -> float:
    """How far the law of the first n tokens is from the target's: one round, then the target itself. proposals: with
    their probabilities; draft: what they were drawn from, None for point masses."""
    vocab, law = len(target[()]), dict.fromkeys(plain_law(target, len(target[()]), n), 0.0)
    for ids, weight in proposals.items():
        probs = torch.stack([draft[ids[:i]] for i in range(len(ids))]) if draft and ids else None
        rows = torch.stack([target[ids[:i]] for i in range(len(ids) + 1)])
        for emitted, share in exact_law(Proposal(ids, probs), rows).items():
            for whole, p in plain_law(target, vocab, n, emitted).items():
                law[whole] += weight * share * p
    return max(abs(law[ids] - p) for ids, p in plain_law(target, vocab, n).items())


@pytest.mark.parametrize(("vocab", "k"), [(2, 0), (4, 1), (3, 2), (2, 3)])
def test_rejection_emits_the_targets_law_exactly(vocab: int, k: int) -> None:
    for zeros in (False, True):
        rng = np.random.default_rng(vocab * 10 + k + zeros)
        target, draft = tree(rng, vocab, k, zeros), tree(rng, vocab, k, zeros)
        drawn = {ids: p for ids, p in plain_law(draft, vocab, k).items() if p}
        assert furthest_from_plain(target, draft, drawn, k + 1) < 1e-12
        for ids in drawn:
            assert furthest_from_plain(target, None, {ids: 1.0}, k + 1) < 1e-12


@pytest.mark.parametrize("k", [0, 1, 2, 3])
def test_shared_noise_emits_what_plain_decoding_draws(k: int) -> None:
    """Under shared noise the emitted tokens are the target's own draws, whatever the drafter did: an identity, token by
    token."""
    target = tree(np.random.default_rng(k), 3, k, True)
    for seed in range(100):
        rng = KeyedRng(seed, Rule.SHARED_NOISE)
        plain: Ids = ()
        for position in range(k + 1):
            plain += (rng.draw(target[plain], position, Purpose.TARGET),)
        for ids in itertools.product(range(3), repeat=k):
            verdict = verify(Proposal(ids), torch.stack([target[ids[:i]] for i in range(k + 1)]), 0, rng)
            emitted = (*ids[: verdict.num_accepted], verdict.next_id)
            assert emitted == plain[: len(emitted)]


ROUNDS = 6000
VOCAB = 16
FALSE_FAIL = 1e-9


def fit(params: SamplingParams, rule: Rule, looks_up: bool = False) -> float:
    """p value of the first emitted tokens of ROUNDS rounds, against an independent reference. looks_up: the draft has
    nothing to do with any drawn number."""
    logits = np.random.default_rng(11).normal(size=(3, VOCAB)).astype(np.float32) * 1.5
    *_, draft = rows = probabilities(torch.from_numpy(logits), [0] * 3, 0, params)
    target, counts = rows[:2], np.zeros(VOCAB)
    for seed in range(ROUNDS):
        rng = KeyedRng(11_000_033 + seed, rule)
        if looks_up:
            proposal = Proposal((int(target[0].topk(2).indices[1]),))
        else:
            proposal = Proposal((rng.draw(draft, 1, Purpose.DRAFT),), draft[None])
        verdict = verify(proposal, target, 1, rng)
        counts[proposal.token_ids[0] if verdict.num_accepted else verdict.next_id] += 1
    return p_value(counts, reference(logits[0], params))


def p_value(counts: np.ndarray, law: np.ndarray) -> float:
    assert counts[law == 0].sum() == 0, "a token was emitted that the filters exclude"
    likely = law * counts.sum() >= 5
    observed = np.append(counts[likely], counts[~likely].sum())
    expected = np.append(law[likely], law[~likely].sum()) * counts.sum()
    observed, expected = observed[expected > 0], expected[expected > 0]
    return float(stats.chisquare(observed, expected).pvalue) if len(expected) > 1 else 1.0


def test_chi_square_against_an_independent_reference() -> None:
    for params in (SamplingParams(1.0), SamplingParams(0.7, 12, 0.9, 0.02)):
        assert fit(params, Rule.REJECTION) > FALSE_FAIL
        assert fit(params, Rule.REJECTION, looks_up=True) > FALSE_FAIL
        assert fit(params, Rule.SHARED_NOISE) > FALSE_FAIL


UNIFORM, DRAW = KeyedRng.uniform, KeyedRng.draw
WRONG = {
    "the target in place of the residual": (verify_module, "residual", lambda proposal, row, i: row),
    "accepted if likelier than not": (
        KeyedRng,
        "uniform",
        lambda rng, position, purpose: 0.5 if purpose is Purpose.ACCEPT else UNIFORM(rng, position, purpose),
    ),
    "an argmax that claims to be drawn": (
        KeyedRng,
        "draw",
        lambda rng, row, *key: int(row.argmax()) if key[1] is Purpose.DRAFT else DRAW(rng, row, *key),
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_both_methods_notice_wrong_rules(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the tests above would fail with each of these."""
    monkeypatch.setattr(*WRONG[wrong])
    assert fit(SamplingParams(1.0), Rule.REJECTION) < FALSE_FAIL
    if "residual" in wrong:
        rng = np.random.default_rng(7)
        target, draft = tree(rng, 3, 1, False), tree(rng, 3, 1, False)
        assert furthest_from_plain(target, draft, plain_law(draft, 3, 1), 2) > 1e-3


def test_rows_over_a_vocabulary_of_its_own_emit_the_same_law() -> None:
    """As rows over the target's, which hold nothing for what the drafter cannot say."""
    rng, names = np.random.default_rng(0), torch.tensor([1, 2, 5])
    target, own = torch.from_numpy(rng.dirichlet(np.ones(6), 3)), torch.from_numpy(rng.dirichlet(np.ones(3), 2))
    wide = torch.zeros(2, 6, dtype=torch.float64)
    wide[:, names] = own
    for entries in itertools.product(range(3), repeat=2):
        ids = tuple(names[list(entries)].tolist())
        narrow = Proposal(ids, own, raw_ids=entries, vocabulary=names)
        assert exact_law(narrow, target) == pytest.approx(exact_law(Proposal(ids, wide), target))
        assert [narrow.prob(i) for i in range(2)] == [float(own[i, entry]) for i, entry in enumerate(entries)]


def test_the_smallest_and_the_largest_number_decide_as_all_others() -> None:
    """What the target excludes falls even to 0, and where both agree to the last bit nothing ever falls, so no residual
    of sum 0 is drawn from; if it were, the target's row would stand for it."""
    rows = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    verdict = verify(Proposal((0,), torch.tensor([[0.5, 0.5]])), rows, 0, ScriptedRng({}))
    assert (verdict.num_accepted, verdict.next_id) == (0, 1)
    row = torch.softmax(torch.randn(1, 50, generator=torch.Generator().manual_seed(0)), dim=-1)
    largest = ScriptedRng({(0, Purpose.ACCEPT): float(np.nextafter(1.0, 0.0))})
    assert all(verify(Proposal((i,), row), torch.cat([row, row]), 0, largest).num_accepted for i in range(50))
    assert torch.equal(verify_module.residual(Proposal((1,), row), row[0], 0), row[0])
