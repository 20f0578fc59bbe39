"""Losslessness with everything that adapts: K by the controller, drafts that stop by confidence, two drafters in
turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.config import DecodingParams, Rule, SamplingParams
from engine.control.controller import Controller
from engine.control.latency import Profile
from engine.drafters.combined import CombinedDrafter
from engine.drafters.protocol import DraftContext, DraftOption, Proposal, ShouldContinue, always
from engine.events import KReason, Outcome, Round, RoundKind
from engine.rng import KeyedRng, Purpose
from engine.verify import verify
from tests.engine.simulate import NO_DECISION
from tests.engine.test_verify import FALSE_FAIL, Ids, Law, Tree, furthest_from_plain, p_value, plain_law, tree

VOCAB = 3
LENGTH = 4

# -- one round, by exact enumeration -----------------------------------------------------------------------------------


def drafts_of(draft: Tree, k: int, should_continue: ShouldContinue) -> Law:
    """Every proposal that a drafter may make when should_continue is asked after each draft, and its probability."""
    open_: Law = {(): 1.0}
    done: Law = {}
    while open_:
        ids, weight = open_.popitem()
        confidences = tuple(float(draft[ids[:i]].max()) for i in range(len(ids)))
        if len(ids) == k or (ids and not should_continue(confidences)):
            done[ids] = weight
        else:
            open_ |= {(*ids, token): weight * float(draft[ids][token]) for token in range(VOCAB)}
    return done


def test_stopping_by_confidence_leaves_the_targets_law_and_taking_a_draft_back_does_not() -> None:
    """The latter is the negative control: a drawn draft that is dropped because of its value bends the distribution."""
    lengths = set()
    for seed in range(2):
        rng = np.random.default_rng(seed)
        target, draft = tree(rng, VOCAB, 3, True), tree(rng, VOCAB, 3, False)
        for least in (0.5, 0.7, 0.9):
            proposals = drafts_of(draft, 3, lambda confidences, least=least: min(confidences) > least)  # type: ignore[misc]
            lengths |= {len(ids) for ids in proposals}
            assert furthest_from_plain(target, draft, proposals, 4) < 1e-12
        bent: Law = {}
        for ids, weight in drafts_of(draft, 3, always).items():
            shorter = ids[:-1] if ids[-1] == 0 else ids
            bent[shorter] = bent.get(shorter, 0.0) + weight
        assert furthest_from_plain(target, draft, bent, 4) > 1e-4
    assert lengths == {1, 2, 3}


# -- whole replies, by chi-square --------------------------------------------------------------------------------------


class Drawn:
    """Draws from the rows of a tree, by the protocol of drafters. drop: takes back its last draft if it is this
    token."""

    name, context_len, feature_layers = "head", None, ()

    def __init__(self, draft: Tree, drop: int | None = None) -> None:
        self._draft, self._drop = draft, drop

    def options(self, ids: Sequence[int]) -> tuple[DraftOption, ...]:
        return (DraftOption("head", "head"),)

    def propose(self, option, context, k, should_continue=always) -> Proposal:  # type: ignore[no-untyped-def]
        ids, rows, confidences = context.ids, list[torch.Tensor](), tuple[float, ...]()
        while len(rows) < k and (not rows or should_continue(confidences)):
            rows.append(self._draft[ids])
            confidences += (float(rows[-1].max()),)
            ids += (context.rng.draw(rows[-1], len(ids), Purpose.DRAFT),)
        n = len(rows) - (ids[-1] == self._drop)
        return (
            Proposal(ids[len(context.ids) :][:n], torch.stack(rows), confidences=confidences[:n]) if n else Proposal()
        )


class Copied(Drawn):
    """Says what it has to say, whatever the target thinks."""

    name = "ngram"

    def options(self, ids: Sequence[int]) -> tuple[DraftOption, ...]:
        return (DraftOption("ngram", "ngram 3-4"),) if len(ids) % 2 else ()

    def propose(self, option, context, k, should_continue=always) -> Proposal:  # type: ignore[no-untyped-def]
        return Proposal((len(context.ids) % VOCAB,) * k)


def counts_of(target: Tree, drafter: object, replies: int, seen: set[object]) -> np.ndarray:
    """How often each reply of LENGTH tokens came. One controller for all of them, so that it learns, changes its mind
    and tries; the times that it is told depend on what was accepted, as times might."""
    params = DecodingParams(SamplingParams(temperature=1.0), "any", probe_every=7)
    profile = Profile(((1, 1.0), (8, 1.3)), (("head", 0.04), ("ngram", 0.001)))
    controller, index = Controller(params, profile), 0
    counts = np.zeros([VOCAB] * LENGTH)
    for seed in range(replies):
        ids: Ids = ()
        rng = KeyedRng(seed, Rule.REJECTION)
        while len(ids) < LENGTH:
            index += 1
            left = LENGTH - len(ids)
            plan = controller.plan(index, drafter.options(ids), left + 16 * (left > 1), 99, left - 1)  # type: ignore[attr-defined]
            proposal = Proposal()
            if plan.option is not None:
                context = DraftContext(ids, 0, None, params.sampling, replace(rng, begin=len(ids)))
                proposal = drafter.propose(plan.option, context, plan.k, plan.should_continue)  # type: ignore[attr-defined]
            k = len(proposal.token_ids)
            rows = torch.stack([target[ids + proposal.token_ids[:i]] for i in range(k + 1)])
            verdict = verify(proposal, rows, len(ids), rng)
            seen |= {plan.reason, ("drafts", k), plan.option, ("stopped", k < plan.k)}
            accepted, tested = verdict.num_accepted, len(verdict.tests)
            controller.observe(_round(plan.kind, accepted, k, tested), plan, proposal.confidences)
            ids += (*proposal.token_ids[:accepted], verdict.next_id)
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


@pytest.mark.parametrize("drop", [None, 0])
def test_whole_replies_have_the_targets_law_unless_drafts_are_taken_back(drop: int | None) -> None:
    """The latter is the negative control, in the same world."""
    rng = np.random.default_rng(5)
    target = tree(rng, VOCAB, LENGTH, False)
    draft = {ids: 0.6 * row + 0.4 * tree(rng, VOCAB, 0, False)[()] for ids, row in target.items()}
    seen: set[object] = set()
    counts = counts_of(target, CombinedDrafter(Copied(draft), Drawn(draft, drop)), 4000, seen)  # type: ignore[arg-type]
    fit = p_value(counts, np.array(list(plain_law(target, VOCAB, LENGTH).values())))
    assert fit > FALSE_FAIL if drop is None else fit < FALSE_FAIL
    # Otherwise this would not test what it is meant to test.
    assert {DraftOption("head", "head"), DraftOption("ngram", "ngram 3-4"), ("stopped", True), KReason.EXPLORE} <= seen
    assert {("drafts", k) for k in range(3)} <= seen


def test_a_number_that_drew_a_discarded_draft_is_not_used_again() -> None:
    """What the controller learns of a round must not tell it what the next round's drafts are going to be."""
    one, other = (KeyedRng(3, Rule.REJECTION, begin=begin) for begin in (10, 11))
    assert one.uniform(12, Purpose.DRAFT) != other.uniform(12, Purpose.DRAFT)
    for purpose in (Purpose.ACCEPT, Purpose.TARGET):
        assert one.uniform(12, purpose) == other.uniform(12, purpose)
