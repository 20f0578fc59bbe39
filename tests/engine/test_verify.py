"""Losslessness of the acceptance rules: by exact enumeration, and by chi-square with a negative control."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from scipy import stats

from engine import verify as verify_module
from engine.config import Rule, SamplingParams
from engine.drafters.protocol import Proposal
from engine.rng import KeyedRng, Purpose
from engine.sampling import probabilities
from engine.verify import Verdict, verify


class ScriptedRng(KeyedRng):
    """Random numbers that the test chooses: {(position, purpose): u}. Rejection rule only."""

    def __new__(cls, numbers: dict[tuple[int, Purpose], float]) -> ScriptedRng:
        return object.__new__(cls)

    def __init__(self, numbers: dict[tuple[int, Purpose], float]) -> None:
        object.__setattr__(self, "seed", 0)
        object.__setattr__(self, "rule", Rule.REJECTION)
        object.__setattr__(self, "native", None)
        object.__setattr__(self, "numbers", numbers)

    def uniform(self, position: int, purpose: Purpose) -> float:
        return self.numbers[position, purpose]  # type: ignore[attr-defined,no-any-return]


def measure_of(outcome: Callable[[float], int], low: float = 0.0, high: float = 1.0) -> Iterator[tuple[int, float]]:
    """Every value that the step function `outcome` of u in [low, high) takes, and for how much of it: its steps are
    found by bisection down to the last bit, so nothing is assumed about where they should be."""
    below = float(np.nextafter(high, 0.0))
    while low < high:
        value = outcome(low)
        if outcome(below) == value:
            yield value, high - low
            return
        left, right = low, below
        while np.nextafter(left, 1.0) < right:
            middle = (left + right) / 2
            left, right = (middle, right) if outcome(middle) == value else (left, middle)
        yield value, right - low
        low = right


def emitted(proposal: Proposal, target: torch.Tensor, numbers: dict[tuple[int, Purpose], float]) -> Verdict:
    return verify(proposal, target, 0, ScriptedRng(numbers))


def exact_law(proposal: Proposal, target: torch.Tensor) -> dict[tuple[int, ...], float]:
    """Probability of every emitted sequence, by walking all decisions with the true measure of the numbers behind
    each."""
    k = len(proposal.token_ids)
    law: dict[tuple[int, ...], float] = {}

    def walk(numbers: dict[tuple[int, Purpose], float], i: int, weight: float) -> None:
        rest = {(j, purpose): 0.0 for j in range(k + 1) for purpose in (Purpose.ACCEPT, Purpose.TARGET)}

        def passes(u: float) -> int:
            return int(emitted(proposal, target, {**rest, **numbers, (i, Purpose.ACCEPT): u}).num_accepted > i)

        def last(u: float) -> int:
            return emitted(proposal, target, {**rest, **numbers, (i, Purpose.TARGET): u}).next_id

        if i == k:
            for token, share in measure_of(last):
                sequence = (*proposal.token_ids, token)
                law[sequence] = law.get(sequence, 0.0) + weight * share
            return
        at = 0.0
        for verdict, share in list(measure_of(passes)):
            u = at + share / 2
            at += share
            if verdict:
                walk({**numbers, (i, Purpose.ACCEPT): u}, i + 1, weight * share)
            else:
                fixed = {**numbers, (i, Purpose.ACCEPT): u}
                for token, part in measure_of(
                    lambda v, fixed=fixed: emitted(proposal, target, {**rest, **fixed, (i, Purpose.TARGET): v}).next_id
                ):
                    sequence = (*proposal.token_ids[:i], token)
                    law[sequence] = law.get(sequence, 0.0) + weight * share * part

    walk({}, 0, 1.0)
    return law


def tree(rng: np.random.Generator, vocab: int, k: int, zeros: bool) -> dict[tuple[int, ...], torch.Tensor]:
    """A conditional distribution for every prefix of up to k tokens, float64."""
    rows = {}
    for length in range(k + 1):
        for prefix in itertools.product(range(vocab), repeat=length):
            row = rng.dirichlet(np.full(vocab, 0.7))
            if zeros:
                row[rng.integers(vocab)] = 0.0
            rows[prefix] = torch.tensor(row / row.sum(), dtype=torch.float64)
    return rows


def first_tokens_law(
    target: dict[tuple[int, ...], torch.Tensor],
    draft: dict[tuple[int, ...], torch.Tensor],
    vocab: int,
    k: int,
    onehot: bool,
) -> dict[tuple[int, ...], float]:
    """Law of the first emitted tokens, where each emitted sequence is completed to k + 1 tokens by the target
    itself."""
    total: dict[tuple[int, ...], float] = {}
    for ids in itertools.product(range(vocab), repeat=k):
        weight = 1.0
        for i in range(k):
            row = draft[ids[:i]]
            weight *= float(ids[i] == int(row.argmax())) if onehot else float(row[ids[i]])
        if weight == 0.0:
            continue
        probs = None if onehot or k == 0 else torch.stack([draft[ids[:i]] for i in range(k)])
        rows = torch.stack([target[ids[:i]] for i in range(k + 1)])
        for sequence, share in exact_law(Proposal(ids, probs), rows).items():
            for rest in itertools.product(range(vocab), repeat=k + 1 - len(sequence)):
                whole, p = sequence, 1.0
                for token in rest:
                    p *= float(target[whole][token])
                    whole = (*whole, token)
                total[whole] = total.get(whole, 0.0) + weight * share * p
    return total


def plain_law(target: dict[tuple[int, ...], torch.Tensor], vocab: int, n: int) -> dict[tuple[int, ...], float]:
    law = {}
    for ids in itertools.product(range(vocab), repeat=n):
        p = 1.0
        for i in range(n):
            p *= float(target[ids[:i]][ids[i]])
        law[ids] = p
    return law


@pytest.mark.parametrize("onehot", [False, True], ids=["drawn", "one-hot"])
@pytest.mark.parametrize(("vocab", "k"), [(2, 0), (4, 1), (3, 2), (2, 3)])
@pytest.mark.parametrize("zeros", [False, True], ids=["dense", "with-zeros"])
def test_rejection_emits_the_targets_law_exactly(vocab: int, k: int, onehot: bool, zeros: bool) -> None:
    rng = np.random.default_rng(vocab * 10 + k + zeros)
    target, draft = tree(rng, vocab, k, zeros), tree(rng, vocab, k, zeros)
    law = first_tokens_law(target, draft, vocab, k, onehot)
    for ids, p in plain_law(target, vocab, k + 1).items():
        assert law.get(ids, 0.0) == pytest.approx(p, abs=1e-12)


def test_the_enumeration_notices_a_wrong_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: drawing from the target instead of the residual after a rejection is a popular mistake."""
    monkeypatch.setattr(verify_module, "residual", lambda proposal, row, i: row)
    rng = np.random.default_rng(7)
    target, draft = tree(rng, 3, 1, False), tree(rng, 3, 1, False)
    law = first_tokens_law(target, draft, 3, 1, False)
    assert max(abs(law[ids] - p) for ids, p in plain_law(target, 3, 2).items()) > 1e-3


@pytest.mark.parametrize("k", [0, 1, 2, 3])
def test_shared_noise_emits_what_plain_decoding_draws(k: int) -> None:
    """Under shared noise the emitted tokens are the target's own draws, whatever the drafter did: an identity, token by
    token."""
    rng = np.random.default_rng(k)
    vocab = 3
    target, draft = tree(rng, vocab, k, True), tree(rng, vocab, k, False)
    for seed in range(300):
        rng = KeyedRng(seed, Rule.SHARED_NOISE)
        plain: tuple[int, ...] = ()
        for position in range(k + 1):
            plain += (rng.draw(target[plain], position, Purpose.TARGET),)
        for ids in itertools.product(range(vocab), repeat=k):
            probs = torch.stack([draft[ids[:i]] for i in range(k)]) if k else None
            verdict = verify(Proposal(ids, probs), torch.stack([target[ids[:i]] for i in range(k + 1)]), 0, rng)
            sequence = (*ids[: verdict.num_accepted], verdict.next_id)
            assert sequence == plain[: len(sequence)]


ROUNDS = 20_000
VOCAB = 16
FALSE_FAIL = 1e-9

SETTINGS = [
    {"temperature": 1.0},
    {"temperature": 1.0, "top_k": 2},
    {"temperature": 1.0, "top_k": 5},
    {"temperature": 1.0, "top_p": 0.5},
    {"temperature": 1.0, "top_p": 0.9},
    {"temperature": 0.3},
    {"temperature": 1.5},
    {"temperature": 1.0, "min_p": 0.2},
]


def reference(logits: np.ndarray, settings: dict[str, float]) -> np.ndarray:
    """Independent float64 distribution: textbook definitions with full sorts."""
    scaled = logits.astype(np.float64) / settings["temperature"]
    order = np.argsort(-scaled)
    kept = np.ones(len(logits), dtype=bool)
    if "top_k" in settings:
        kept[order[int(settings["top_k"]) :]] = False
    p = np.where(kept, np.exp(scaled - scaled.max()), 0.0)
    p /= p.sum()
    if "top_p" in settings:
        running, keep = 0.0, []
        for i in order:
            keep.append(i)
            running += p[i]
            if running >= settings["top_p"]:
                break
        p = np.where(np.isin(np.arange(len(p)), keep), p, 0.0)
        p /= p.sum()
    if "min_p" in settings:
        p = np.where(p >= settings["min_p"] * p.max(), p, 0.0)
    return np.asarray(p / p.sum())


def emitted_counts(
    settings: dict[str, float], rule: Rule, drafter: str, base_seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Counts of the first emitted token over ROUNDS seeds, and its reference law."""
    rng = np.random.default_rng(base_seed)
    target_logits, draft_logits = rng.normal(size=(2, VOCAB)) * 1.5, rng.normal(size=VOCAB) * 1.5
    params = SamplingParams(**settings)  # type: ignore[arg-type]
    target = probabilities(torch.tensor(target_logits, dtype=torch.float32), [0, 0], 0, params)
    draft = probabilities(torch.tensor(draft_logits, dtype=torch.float32)[None], [0], 0, params)
    counts = np.zeros(VOCAB)
    for seed in range(ROUNDS):
        rng = KeyedRng(base_seed * 1_000_003 + seed, rule)
        if drafter == "model":
            proposal = Proposal((rng.draw(draft[0], 1, Purpose.DRAFT),), draft)
        else:  # a look-up: its token has nothing to do with any drawn number
            proposal = Proposal((int(target[0].topk(2).indices[1]),))
        verdict = verify(proposal, target, 1, rng)
        counts[proposal.token_ids[0] if verdict.num_accepted else verdict.next_id] += 1
    return counts, reference(target_logits[0], settings)


def p_value(counts: np.ndarray, law: np.ndarray) -> float:
    assert counts[law == 0].sum() == 0, "a token was emitted that the filters exclude"
    likely = law * counts.sum() >= 5
    observed = np.append(counts[likely], counts[~likely].sum())
    expected = np.append(law[likely], law[~likely].sum()) * counts.sum()
    observed, expected = observed[expected > 0], expected[expected > 0]
    return float(stats.chisquare(observed, expected).pvalue) if len(expected) > 1 else 1.0


CASES = [(settings, Rule.REJECTION, "model") for settings in SETTINGS]
CASES += [
    (settings, Rule.REJECTION, "one-hot") for settings in ({"temperature": 1.0}, {"temperature": 1.0, "top_p": 0.9})
]
CASES += [
    (settings, Rule.SHARED_NOISE, "model") for settings in ({"temperature": 1.5}, {"temperature": 1.0, "top_k": 5})
]


@pytest.mark.parametrize(("settings", "rule", "drafter"), CASES)
def test_chi_square_against_an_independent_reference(settings: dict[str, float], rule: Rule, drafter: str) -> None:
    counts, law = emitted_counts(settings, rule, drafter, base_seed=11)
    assert p_value(counts, law) > FALSE_FAIL


@pytest.mark.parametrize("wrong", ["accept if likelier than not", "target instead of residual", "argmax draft"])
def test_chi_square_rejects_wrong_rules(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the test above would notice each of these."""
    if wrong == "target instead of residual":
        monkeypatch.setattr(verify_module, "residual", lambda proposal, row, i: row)
    elif wrong == "argmax draft":  # plays its argmax, but claims to have drawn from its softmax
        draw = KeyedRng.draw

        def argmax_draft(self: KeyedRng, probs: torch.Tensor, position: int, purpose: Purpose) -> int:
            return int(probs.argmax()) if purpose is Purpose.DRAFT else draw(self, probs, position, purpose)

        monkeypatch.setattr(KeyedRng, "draw", argmax_draft)
    else:
        uniform = KeyedRng.uniform

        def constant(self: KeyedRng, position: int, purpose: Purpose) -> float:
            return 0.5 if purpose is Purpose.ACCEPT else uniform(self, position, purpose)

        monkeypatch.setattr(KeyedRng, "uniform", constant)
    counts, law = emitted_counts({"temperature": 1.0}, Rule.REJECTION, "model", base_seed=11)
    assert p_value(counts, law) < FALSE_FAIL


def test_equal_distributions_are_always_accepted() -> None:
    """Draft and target equal to the last bit: nothing is ever rejected, so no residual of sum 0 is drawn from."""
    row = torch.softmax(torch.randn(1, 50, generator=torch.Generator().manual_seed(0)), dim=-1)
    for seed in range(500):
        rng = KeyedRng(seed, Rule.REJECTION)
        proposal = Proposal((rng.draw(row[0], 0, Purpose.DRAFT),), row)
        assert verify(proposal, torch.cat([row, row]), 0, rng).num_accepted == 1


@pytest.mark.parametrize("seed", range(5))
def test_rows_over_a_vocabulary_of_its_own_emit_the_same_law(seed: int) -> None:
    """As rows over the target's, which hold nothing for what the drafter cannot say."""
    rng = np.random.default_rng(seed)
    target, own = torch.from_numpy(rng.dirichlet(np.ones(6), 3)), torch.from_numpy(rng.dirichlet(np.ones(3), 2))
    names = torch.tensor([1, 2, 5])
    wide = torch.zeros(2, 6, dtype=torch.float64)
    wide[:, names] = own
    for entries in itertools.product(range(3), repeat=2):
        ids = tuple(names[list(entries)].tolist())
        narrow = Proposal(ids, own, raw_ids=entries, vocabulary=names)
        expected = exact_law(Proposal(ids, wide), target)
        found = exact_law(narrow, target)
        assert found.keys() == expected.keys() and found == pytest.approx(expected)
        assert [narrow.prob(i) for i in range(2)] == [float(own[i, entry]) for i, entry in enumerate(entries)]


def test_a_residual_of_zero_falls_back_to_the_target() -> None:
    row = torch.tensor([0.0, 1.0, 0.0])
    residual = verify_module.residual(Proposal((1,), torch.tensor([[0.0, 1.0, 0.0]])), row, 0)
    assert torch.equal(residual, row)


def test_a_draft_that_the_target_never_draws_is_never_accepted() -> None:
    target = torch.tensor([[0.0, 0.5, 0.5], [1.0, 0.0, 0.0]])
    for rule in Rule:
        for seed in range(200):
            verdict = verify(Proposal((0,), torch.tensor([[0.9, 0.05, 0.05]])), target, 0, KeyedRng(seed, rule))
            assert verdict.num_accepted == 0 and verdict.next_id in (1, 2)


def test_shared_noise_agrees_at_least_as_often_as_theory_promises() -> None:
    """Acceptance >= (1 - TV) / (1 + TV) (Daliri et al., arXiv:2408.07978, theorem 1)."""
    rng = np.random.default_rng(3)
    target = torch.tensor(rng.dirichlet(np.ones(8)), dtype=torch.float32)
    draft = torch.tensor(rng.dirichlet(np.ones(8)), dtype=torch.float32)
    tv = float((target - draft).abs().sum() / 2)
    n = 4000
    agreed = sum(
        (rng := KeyedRng(seed, Rule.SHARED_NOISE)).draw(target, 0, Purpose.TARGET) == rng.draw(draft, 0, Purpose.DRAFT)
        for seed in range(n)
    )
    promised = (1 - tv) / (1 + tv)
    assert agreed / n > promised - 6 * (promised * (1 - promised) / n) ** 0.5


def test_a_draft_that_the_target_excludes_is_rejected_even_by_the_smallest_number() -> None:
    """The test is strict: a drawn 0 must not let a token of probability 0 through."""
    target = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    numbers = {(i, purpose): 0.0 for i in range(2) for purpose in (Purpose.ACCEPT, Purpose.TARGET)}
    verdict = emitted(Proposal((0,), torch.tensor([[0.5, 0.5]])), target, numbers)
    assert (verdict.num_accepted, verdict.next_id) == (0, 1)
