"""Losslessness with everything that adapts: K by the controller, drafts that stop by confidence, two drafters in
turn."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.config import DecodingParams, Rule, SamplingParams
from engine.control.controller import Controller
from engine.control.latency import Profile
from engine.drafters.combined import CombinedDrafter
from engine.drafters.draft_model import DraftModelDrafter
from engine.drafters.ngram import NgramDrafter
from engine.drafters.protocol import DraftContext, DraftOption, Proposal, ShouldContinue, always
from engine.events import Finished, KReason, Outcome, Prefilled, Round, RoundKind
from engine.networks.kv_cache import KVCache
from engine.networks.model import Model
from engine.rng import KeyedRng, Purpose
from engine.verify import verify
from tests.engine.simulate import NO_DECISION
from tests.engine.test_verify import FALSE_FAIL, exact_law, p_value, plain_law, tree
from tests.fakes import FakeNetwork, byte_tokenizer, finished, hashed_logits, noisy, run

Tree = dict[tuple[int, ...], Tensor]

VOCAB = 3
LENGTH = 4


# -- one round, by exact enumeration
# -------------------------------------------------------------------------------------


def confidences_of(draft: Tree, ids: tuple[int, ...]) -> tuple[float, ...]:
    return tuple(float(draft[ids[:i]].max()) for i in range(len(ids)))


def drafts_of(draft: Tree, k: int, should_continue: ShouldContinue) -> dict[tuple[int, ...], float]:
    """Every proposal that a drafter may make when go_on is asked after each draft, and its probability."""
    open_, done = {(): 1.0}, {}
    while open_:
        ids, weight = open_.popitem()
        if len(ids) == k or (ids and not should_continue(confidences_of(draft, ids))):
            done[ids] = weight
            continue
        for token in range(VOCAB):
            open_[(*ids, token)] = weight * float(draft[ids][token])
    return done


def law_of(target: Tree, draft: Tree, proposals: dict[tuple[int, ...], float], k: int) -> dict[tuple[int, ...], float]:
    """Law of the first k + 1 tokens: one round, then the target itself."""
    total: dict[tuple[int, ...], float] = {}
    for ids, weight in proposals.items():
        probs = torch.stack([draft[ids[:i]] for i in range(len(ids))]) if ids else None
        rows = torch.stack([target[ids[:i]] for i in range(len(ids) + 1)])
        for sequence, share in exact_law(Proposal(ids, probs), rows).items():
            for rest in itertools.product(range(VOCAB), repeat=k + 1 - len(sequence)):
                whole, p = sequence, weight * share
                for token in rest:
                    p *= float(target[whole][token])
                    whole = (*whole, token)
                total[whole] = total.get(whole, 0.0) + p
    return total


def furthest(law: dict[tuple[int, ...], float], target: Tree, n: int) -> float:
    return max(abs(law.get(ids, 0.0) - p) for ids, p in plain_law(target, VOCAB, n).items())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("least", [0.4, 0.55, 0.7])
def test_stopping_by_confidence_leaves_the_targets_law(seed: int, least: float) -> None:
    rng = np.random.default_rng(seed)
    target, draft = tree(rng, VOCAB, 2, False), tree(rng, VOCAB, 2, True)
    proposals = drafts_of(draft, 2, lambda confidences: min(confidences) > least)
    assert sum(proposals.values()) == pytest.approx(1.0)
    assert furthest(law_of(target, draft, proposals, 2), target, 3) < 1e-12


def test_the_enumeration_notices_a_draft_that_was_taken_back() -> None:
    """Negative control: a drawn draft that is dropped because of its value bends the distribution."""
    rng = np.random.default_rng(1)
    target, draft = tree(rng, VOCAB, 2, False), tree(rng, VOCAB, 2, True)
    kept: dict[tuple[int, ...], float] = {}
    for ids, weight in drafts_of(draft, 2, always).items():
        shorter = ids[:-1] if ids[-1] == 0 else ids
        kept[shorter] = kept.get(shorter, 0.0) + weight
    assert furthest(law_of(target, draft, kept, 2), target, 3) > 1e-3


# -- whole replies, by chi-square
# ----------------------------------------------------------------------------------------


class Drawn:
    """Draws from the rows of a tree, by the protocol of drafters. drop: takes back its last draft if it is this
    token."""

    name, context_len, feature_layers = "head", None, ()

    def __init__(self, draft: Tree, drop: int | None = None) -> None:
        self._draft, self._drop = draft, drop

    def options(self, ids: Sequence[int]) -> tuple[DraftOption, ...]:
        return (DraftOption("head", "head"),)

    def propose(  # type: ignore[no-untyped-def]
        self, option, context, k, should_continue=always
    ) -> Proposal:
        ids, rng = context.ids, context.rng
        text, rows, confidences = tuple(ids), [], ()
        while len(rows) < k and (not rows or should_continue(confidences)):
            rows.append(self._draft[text])
            text += (rng.draw(rows[-1], len(text), Purpose.DRAFT),)
            confidences += (float(rows[-1].max()),)
        drafts = text[len(ids) :]
        if drafts and drafts[-1] == self._drop:
            drafts, rows, confidences = drafts[:-1], rows[:-1], confidences[:-1]
        return Proposal(drafts, torch.stack(rows), confidences=confidences) if rows else Proposal()


class Copied:
    """Says what it has to say, whatever the target thinks."""

    name, context_len, feature_layers = "ngram", None, ()

    def options(self, ids: Sequence[int]) -> tuple[DraftOption, ...]:
        return (DraftOption("ngram", "ngram 3-4"),) if len(ids) % 2 else ()

    def propose(self, option, context, k, should_continue=always) -> Proposal:  # type: ignore[no-untyped-def]
        return Proposal(tuple(len(context.ids) % VOCAB for _ in range(k)))


def counts_of(target: Tree, drafter: object, replies: int, seen: set[object]) -> np.ndarray:
    """How often each reply of LENGTH tokens came. One controller for all of them, so that it learns, changes its mind
    and tries; the times that it is told depend on what was accepted, as times might."""
    params = DecodingParams(SamplingParams(temperature=1.0), "any", probe_every=7)
    profile = Profile(((1, 1.0), (8, 1.3)), (("head", 0.04), ("ngram", 0.001)))
    controller, index = Controller(params, profile), 0
    counts = np.zeros([VOCAB] * LENGTH)
    for seed in range(replies):
        ids: tuple[int, ...] = ()
        rng = KeyedRng(seed, Rule.REJECTION)
        while len(ids) < LENGTH:
            index += 1
            left = LENGTH - len(ids)
            plan = controller.plan(index, drafter.options(ids), left + 16 * (left > 1), 99, left - 1)  # type: ignore[attr-defined]
            proposal = Proposal()
            if plan.option is not None:
                own = replace(rng, begin=len(ids))
                proposal = drafter.propose(
                    plan.option, DraftContext(ids, 0, None, params.sampling, own), plan.k, plan.should_continue
                )  # type: ignore[attr-defined]
            k = len(proposal.token_ids)
            rows = torch.stack([target[ids + proposal.token_ids[:i]] for i in range(k + 1)])
            verdict = verify(proposal, rows, len(ids), rng)
            seen |= {plan.reason, ("drafts", k), plan.option, ("stopped", k < plan.k)}
            controller.observe(
                _round(plan.kind, verdict.num_accepted, k, len(verdict.tests)), plan, proposal.confidences
            )
            ids += (*proposal.token_ids[: verdict.num_accepted], verdict.next_id)
        counts[ids[:LENGTH]] += 1
    return counts.reshape(-1)


def _round(kind: RoundKind, accepted: int, drafted: int, tested: int) -> Round:
    fates = [Outcome.ACCEPTED] * accepted + [Outcome.REJECTED] * (tested - accepted)
    fates += [Outcome.DISCARDED] * (drafted - tested)
    decisions = tuple(replace(NO_DECISION, outcome=fate) for fate in fates)
    rest_s = 1.0 + 0.04 * drafted + 0.1 * accepted
    return Round(
        1, kind, Rule.REJECTION, "head", 0, KReason.AUTO, drafted, 9, decisions, (), 0.04 * drafted, rest_s, 0.0,
        rest_s + 0.04 * drafted,
    )  # fmt: skip


def world(seed: int) -> tuple[Tree, Tree, np.ndarray]:
    rng = np.random.default_rng(seed)
    target = tree(rng, VOCAB, LENGTH, False)
    draft = {ids: 0.6 * row + 0.4 * tree(rng, VOCAB, 0, False)[()] for ids, row in target.items()}
    return target, draft, np.array(list(plain_law(target, VOCAB, LENGTH).values()))


def test_whole_replies_with_an_adaptive_controller_have_the_targets_law() -> None:
    target, draft, law = world(5)
    seen: set[object] = set()
    counts = counts_of(target, CombinedDrafter(Copied(), Drawn(draft)), 5000, seen)  # type: ignore[arg-type]
    assert p_value(counts, law) > FALSE_FAIL
    # Otherwise this would not test what it is meant to test.
    assert {DraftOption("head", "head"), DraftOption("ngram", "ngram 3-4"), ("stopped", True), KReason.EXPLORE} <= seen
    assert {("drafts", k) for k in range(3)} <= seen


def test_the_chi_square_notices_a_draft_that_was_taken_back() -> None:
    """Negative control, in the same world."""
    target, draft, law = world(5)
    counts = counts_of(target, CombinedDrafter(Copied(), Drawn(draft, drop=0)), 5000, set())  # type: ignore[arg-type]
    assert p_value(counts, law) < FALSE_FAIL


def test_a_number_that_drew_a_discarded_draft_is_not_used_again() -> None:
    """What the controller learns of a round must not tell it what the next round's drafts are going to be."""
    one, other = (KeyedRng(3, Rule.REJECTION, begin=begin) for begin in (10, 11))
    assert one.uniform(12, Purpose.DRAFT) != other.uniform(12, Purpose.DRAFT)
    for purpose in (Purpose.ACCEPT, Purpose.TARGET):
        assert one.uniform(12, purpose) == other.uniform(12, purpose)


# -- the loop: whatever the controller does, greedy text and shared noise are plain decoding's
# ---------------------------------

LANGUAGE = hashed_logits(257, seed=1)
COSTS = {
    "cheap": Profile(((1, 1.0), (17, 1.01)), (("draft_model", 1e-4), ("ngram", 1e-5))),
    "dear": Profile(((1, 1e-6), (2, 1.0)), (("draft_model", 1.0),)),
    "unknown": Profile(),
}


def model(language: Callable[[tuple[int, ...]], np.ndarray] = LANGUAGE) -> Model:
    return Model(FakeNetwork(257, language), 4096)


@pytest.mark.parametrize("profile", COSTS)
@pytest.mark.parametrize("amount", [0.0, 0.3, 1.5, 50.0])
@pytest.mark.parametrize(
    "settings", [{"temperature": 0.0}, {"temperature": 0.8, "top_p": 0.9}], ids=["greedy", "noise"]
)
def test_the_text_is_plain_decodings_whatever_the_controller_does(
    profile: str, amount: float, settings: dict[str, float]
) -> None:
    sampling = SamplingParams(seed=5, **settings)  # type: ignore[arg-type]
    rule = Rule.REJECTION if sampling.temperature == 0.0 else Rule.SHARED_NOISE
    params = DecodingParams(sampling, "any", rule=rule, max_new_tokens=120, probe_every=5)
    drafter = CombinedDrafter(NgramDrafter(1), DraftModelDrafter(model(noisy(LANGUAGE, 257, amount)), KVCache()))
    played = run([1, 2, 1, 2], params, model(), byte_tokenizer(), drafter, profile=COSTS[profile])
    plain = run([1, 2, 1, 2], replace(params, num_speculative_tokens=0), model(), byte_tokenizer())
    assert finished(played).token_ids == finished(plain).token_ids
    assert [type(event) for event in played[:1] + played[-1:]] == [Prefilled, Finished]
    rounds = [event for event in played if isinstance(event, Round)]
    assert {r.drafter for r in rounds if r.num_drafted} <= {"ngram", "draft_model"}
    assert all((r.drafter == "none") == (r.k_requested == 0) for r in rounds)


def test_a_new_reply_knows_nothing_of_the_last() -> None:
    """State is the request's: the plan of the first round is the same after any reply."""
    params = DecodingParams(SamplingParams(seed=5), "any", max_new_tokens=40)
    drafter = DraftModelDrafter(model(noisy(LANGUAGE, 257, 50.0)), KVCache())
    firsts = []
    for _ in range(2):
        rounds = run([1, 2, 3], params, model(), byte_tokenizer(), drafter, profile=COSTS["cheap"])[1:-1]
        firsts.append((rounds[0].kind, rounds[0].k_requested, rounds[0].predicted_speedup))  # type: ignore[union-attr]
    assert firsts[0] == firsts[1] and firsts[0][1] > 0
