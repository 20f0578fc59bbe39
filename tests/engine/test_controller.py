"""The controller in made-up worlds (`simulate`): it finds what pays, stays out of what does not, and notices change."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import MAX_K, DecodingParams, SamplingParams
from engine.control.acceptance import ByConfidence, ByPosition
from engine.control.controller import EXPLORATIONS_APART, FIRST_EXPLORATION, LAST_EXPLORATION, Controller
from engine.control.latency import OUTLIER, Profile, RoundLatency
from engine.drafters.protocol import DraftOption
from engine.events import KReason, RoundKind
from tests.engine.simulate import COPY, HEAD, Played, World, play, simulate

PRIOR = (("head", (0.65, 0.6, 0.55)), ("ngram 3-4", (0.4, 0.7)))


def flat(rows: int) -> float:
    return 1.0 + 0.05 * (rows - 1)


def stepped(rows: int) -> float:
    """A kernel that takes four rows at a time."""
    return 1.0 + 0.05 * (rows - 1) + 0.5 * ((rows - 1) // 4)


def saturated(rows: int) -> float:
    """Every row costs as much as the first."""
    return float(rows)


def params(k: int | None = None, **more: object) -> DecodingParams:
    return DecodingParams(SamplingParams(temperature=1.0), "any", k, **more)  # type: ignore[arg-type]


def replies(make: object, k: int | None, n: int, seeds: int = 6, measured: bool = True) -> list[Played]:
    """The same reply's length played with several seeds, each in a fresh world."""
    played = []
    for seed in range(seeds):
        world: World = make()  # type: ignore[operator]
        played.append(simulate(world, params(k), world.profile(acceptance=PRIOR) if measured else Profile(), n, seed))
    return played


def speed(played: list[Played]) -> float:
    """Over plain decoding, as a ratio of sums."""
    return sum(p.tokens for p in played) / sum(p.seconds for p in played) * World().plain_s


PROFILES = {
    "a good head": lambda: World(flat, accept={"head": (0.7, 0.65, 0.6)}),
    "a good head, rows by fours": lambda: World(stepped, accept={"head": (0.7, 0.65, 0.6)}),
    "a fair head": lambda: World(flat, accept={"head": (0.5, 0.45, 0.4)}),
    "a weak head": lambda: World(flat, accept={"head": (0.3, 0.25, 0.2)}),
    "long copies": lambda: World(flat, accept={"ngram 3-4": (0.9, 0.95)}, copies=1.0),
    "long copies, rows by fours": lambda: World(stepped, accept={"ngram 3-4": (0.9, 0.95)}, copies=1.0),
    "copies that often fail at once": lambda: World(flat, accept={"ngram 3-4": (0.4, 0.8)}, copies=1.0),
    "both": lambda: World(flat, accept={"ngram 3-4": (0.8, 0.9), "head": (0.6, 0.55)}),
}


@pytest.mark.parametrize("profile", PROFILES)
def test_it_comes_within_a_few_percent_of_the_best_fixed_k(profile: str) -> None:
    """Also where nothing was measured beforehand, though it learns what that costs."""
    best = max(speed(replies(PROFILES[profile], k, 400)) for k in (1, 2, 3, 5, 8, 16))
    assert speed(replies(PROFILES[profile], None, 400)) > 0.94 * best
    assert speed(replies(PROFILES[profile], None, 400, measured=False)) > 0.9 * best


USELESS = {
    "a useless head": lambda: World(flat, accept={"head": (0.0,)}),
    "one that thinks much of itself": lambda: World(flat, accept={"head": (0.0,)}, boast=0.9),
    "a useless head that says nothing": lambda: World(flat, accept={"head": (0.0,)}, confident=()),
    "a useless head on a saturated machine": lambda: World(saturated, accept={"head": (0.0,)}),
    "useless copies": lambda: World(flat, accept={"ngram 3-4": (0.0,)}, copies=1.0),
    "useless both": lambda: World(flat, accept={"ngram 3-4": (0.0,), "head": (0.0,)}),
    "a good head on a saturated machine": lambda: World(saturated, accept={"head": (0.7, 0.65)}),
}


@pytest.mark.parametrize("profile", USELESS)
def test_what_does_not_pay_costs_less_than_a_twentieth(profile: str) -> None:
    """Over replies of 128 tokens, by the clock of the whole reply but its probes, which are plain rounds themselves."""
    assert speed(replies(USELESS[profile], None, 128)) >= 0.95


def test_a_fixed_k_has_no_such_protection() -> None:
    """Negative control: the world does punish."""
    assert speed(replies(USELESS["a useless head"], 3, 128)) < 0.8


def test_long_before_the_end_it_is_off_and_says_what_it_would_be() -> None:
    for played in replies(USELESS["a useless head"], None, 200):
        late = played.plans[60:]
        assert sum(plan.kind is RoundKind.PLAIN for plan in late) > 0.9 * len(late)
        assert {plan.reason for plan in late} <= {KReason.OFF, KReason.EXPLORE, KReason.BUDGET}
        assert all(plan.predicted_speedup is not None and plan.predicted_speedup < 1 for plan in late[:-1])


def test_tries_come_at_growing_distances_and_never_die_out() -> None:
    [played] = replies(USELESS["a useless head that says nothing"], None, 400, seeds=1)
    tries = [i for i, plan in enumerate(played.plans) if plan.reason is KReason.EXPLORE]
    gaps = [after - before for before, after in pairwise(tries)]
    assert min(gaps) >= FIRST_EXPLORATION and max(gaps) <= LAST_EXPLORATION + EXPLORATIONS_APART
    assert gaps.count(LAST_EXPLORATION) > len(gaps) / 3


def changing(before: object, after: object, at: int = 200) -> World:
    world = World(before, accept={"head": (0.75, 0.7)})  # type: ignore[arg-type]
    world.change = lambda world, tokens: setattr(world, "rows", after if tokens >= at else before)
    return world


def share_of_drafting(played: list[Played], begin: int, end: int) -> float:
    """Of the rounds that begin at these tokens of the reply."""
    chosen = []
    for one in played:
        at = 0
        for plan, round_ in zip(one.plans, one.rounds, strict=True):
            if begin <= at < end and round_.kind is not RoundKind.PROBE:
                chosen.append(plan.k > 0)
            at += len(round_.tokens)
    return sum(chosen) / len(chosen)


def test_it_goes_off_when_rows_become_dear_and_on_again_when_they_get_cheap() -> None:
    dear = replies(lambda: changing(flat, saturated), None, 500)
    assert share_of_drafting(dear, 50, 200) > 0.9 and share_of_drafting(dear, 260, 500) < 0.25
    cheap = replies(lambda: changing(saturated, flat), None, 700)
    assert share_of_drafting(cheap, 50, 200) < 0.25 and share_of_drafting(cheap, 400, 700) > 0.75


def test_it_notices_text_that_turns_easy_or_hard() -> None:
    def turns(world: World, tokens: int) -> None:
        world.accept = {"head": (0.75, 0.7) if 200 <= tokens < 500 else (0.02,)}

    played = replies(lambda: World(flat, accept={"head": (0.02,)}, change=turns), None, 700)
    assert share_of_drafting(played, 100, 200) < 0.2
    assert share_of_drafting(played, 350, 500) > 0.75
    assert share_of_drafting(played, 580, 700) < 0.4


@pytest.mark.parametrize("n", [1, 2, 3, 5, 9])
def test_tiny_replies_end_on_time_and_lose_little(n: int) -> None:
    played = replies(USELESS["a useless head"], None, n, seeds=40)
    assert all(sum(len(r.tokens) for r in one.rounds) == n for one in played)
    assert not any(plan.reason is KReason.EXPLORE for one in played for plan in one.plans)


def test_both_beats_either_and_plays_whom_it_measures_to_be_better() -> None:
    def world(copy: float, head: float) -> World:
        return World(flat, accept={"ngram 3-4": (copy, copy), "head": (head, head)}, copies=0.5)

    for copy, head in ((0.9, 0.5), (0.1, 0.8)):
        together = speed(replies(lambda c=copy, h=head: world(c, h), None, 400))
        alone = []
        for kind in ("ngram 3-4", "head"):
            one = world(copy, head)
            alone.append(
                speed(replies(lambda o=one, k=kind: World(flat, accept={k: o.accept[k]}, copies=0.5), None, 400))
            )
        assert together > 0.93 * max(alone)  # what it takes to find out
        for k in (None, 3):
            [played] = replies(lambda c=copy, h=head: world(c, h), k, 400, seeds=1)
            late = [p.option for p in played.plans[40:] if p.option]
            assert (late.count(COPY) > 0.3 * len(late)) == (copy > head)


def test_a_fixed_k_is_kept_and_never_stops_early() -> None:
    [played] = replies(PROFILES["both"], 5, 200, seeds=1)
    for plan, round_ in zip(played.plans, played.rounds, strict=True):
        assert plan.predicted_speedup is None
        if plan.kind is RoundKind.SPECULATIVE and plan.reason in (KReason.FIXED, KReason.EXPLORE):
            assert plan.k == round_.num_drafted == 5 and plan.should_continue((0.0,) * 4)


def test_a_doubtful_draft_ends_a_round_and_a_sure_one_does_not() -> None:
    world = PROFILES["a good head"]()
    controller = Controller(params(), world.profile(acceptance=PRIOR))
    plan = controller.plan(1, (HEAD,), 400, 400, None)
    assert plan.should_continue((0.97,)) and not plan.should_continue((0.02,))
    assert not plan.should_continue((0.97, 0.02))  # what is behind a doubtful draft is reached as seldom


def test_one_hiccup_does_not_turn_it_over() -> None:
    class Hiccup(World):
        """One round takes a hundred times as long."""

    def strike(world: World, tokens: int) -> None:
        world.plain_s = 1.0 if 150 <= tokens < 152 else 0.01

    played = replies(lambda: Hiccup(flat, accept={"head": (0.75, 0.7)}, change=strike), None, 300)
    assert share_of_drafting(played, 156, 300) > 0.85


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_plan_never_exceeds_any_limit_whatever_it_has_seen(data: st.DataObject) -> None:
    k = data.draw(st.one_of(st.none(), st.integers(0, MAX_K)))
    every = data.draw(st.integers(0, 12))
    world = World(
        data.draw(st.sampled_from([flat, stepped, saturated])),
        accept={"head": (data.draw(st.floats(0, 1)),), "ngram 3-4": (data.draw(st.floats(0, 1)),)},
    )
    controller = Controller(params(k, probe_every=every), data.draw(st.sampled_from([Profile(), world.profile()])))
    rng = Random(data.draw(st.integers(0, 99)))
    for index in range(1, data.draw(st.integers(2, 25))):
        budget, context = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 30))
        room = data.draw(st.one_of(st.none(), st.integers(-3, 20)))
        options = tuple(data.draw(st.sets(st.sampled_from([HEAD, COPY]))))
        made = controller.plan(index, options, budget, context, room)
        assert 0 <= made.k <= (MAX_K if k is None else k) and made.k + 1 <= budget and made.k + 1 <= context
        assert room is None or made.k <= max(room, 0)
        assert (made.k > 0) == (made.option is not None) and (made.option is None or made.option in options)
        if k is not None:
            assert (made.kind is RoundKind.PLAIN) == (k == 0)
        if made.kind is not RoundKind.SPECULATIVE:
            assert made.k == 0
        round_, confidences = play(world, made, rng, index)
        controller.observe(round_, made, confidences)


def test_nothing_to_offer_is_no_choice() -> None:
    """The drafter was asked, so the round counts in tau; PLAIN is only what was asked for or chosen."""
    for k in (None, 3):
        plan = Controller(params(k), Profile()).plan(1, (), 50, 50, None)
        assert (plan.kind, plan.k, plan.reason) == (RoundKind.SPECULATIVE, 0, KReason.NO_OFFER)
    assert Controller(params(0), Profile()).plan(1, (), 50, 50, None).kind is RoundKind.PLAIN


def test_the_same_rounds_give_the_same_plans() -> None:
    first, second = (replies(PROFILES["both"], None, 200, seeds=1)[0] for _ in range(2))
    assert [(p.kind, p.k, p.reason, p.option) for p in first.plans] == [
        (p.kind, p.k, p.reason, p.option) for p in second.plans
    ]


# -- its parts -----------------------------------------------------------------------------------------------------------


def test_times_follow_what_slows_all_alike_also_where_nothing_was_seen() -> None:
    times = RoundLatency(World(flat).profile())
    for i in range(36):
        count = 0 if i % 12 == 2 else 3  # as probes come
        times.add("head", count, 0.006, 2 * 0.01 * flat(count + 1))
    assert times.rounds("ngram", 7)[7] == pytest.approx(2 * 0.01 * flat(8), rel=0.15)
    assert times.plain == pytest.approx(0.02, rel=0.15)


def test_times_tell_dear_rows_from_a_slow_machine() -> None:
    times = RoundLatency(World(flat).profile())
    for i in range(40):
        count = 0 if i % 4 == 0 else 3
        times.add("head", count, 0.003, 0.01 * saturated(count + 1))
    assert times.plain == pytest.approx(0.01, rel=0.15)
    assert times.rounds("ngram", 3)[3] == pytest.approx(0.04, rel=0.15)
    assert times.rounds("ngram", 7)[7] > 0.06


def test_an_outlier_counts_as_three_times_the_estimate_at_most() -> None:
    one, other = RoundLatency(World(flat).profile()), RoundLatency(World(flat).profile())
    one.add("", 0, 0.0, 0.01 * OUTLIER)
    other.add("", 0, 0.0, 100.0)
    assert one.plain == pytest.approx(other.plain)


def test_a_time_far_below_the_estimate_is_believed_at_once() -> None:
    """The machine was busy while the engine measured: that must not keep speculation off."""
    times = RoundLatency(Profile(((1, 0.01), (8, 0.0135)), (("head", 0.5),)))
    for _ in range(3):
        times.add("head", 3, 0.003, 0.0115)
    assert times.rounds("head", 3)[3] == pytest.approx(0.0145, rel=0.1)


def test_a_drafters_first_round_which_reads_the_prompt_is_no_sample() -> None:
    times = RoundLatency(World(flat).profile())
    before = times.rounds("head", 4)
    times.add("head", 4, 5.0, 0.01 * flat(5))
    assert times.rounds("head", 4) == pytest.approx(before, rel=0.05)


def test_acceptance_carries_over_to_positions_that_were_not_tested() -> None:
    acceptance = ByPosition({"head": (0.6, 0.6, 0.6)})
    before = acceptance.rates("head", 3)
    for _ in range(50):
        acceptance.add("head", (True,))
    assert acceptance.rates("head", 3)[2] > before[2] + 0.1
    for _ in range(60):
        acceptance.add("head", (False,))
    assert acceptance.rates("head", 3)[0] < 0.2
    assert acceptance.rates("other", 1) == [0.5]


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=5), max_size=40), st.floats(0, 1))
def test_rates_are_chances(rounds: list[list[bool]], confidence: float) -> None:
    by_position, by_confidence = ByPosition({"head": (0.9, 0.1)}), ByConfidence()
    for stood in rounds:
        by_position.add("head", stood)
        by_confidence.add("head", [confidence] * len(stood), stood)
    assert all(0 <= rate < 1 for rate in by_position.rates("head", MAX_K)) and by_position.rates("head", MAX_K)
    assert 0 <= by_confidence.rate("head", confidence) < 1


def test_confidence_is_calibrated_by_what_stands() -> None:
    acceptance = ByConfidence()
    assert acceptance.rate("head", 0.9) == pytest.approx(0.9)
    for _ in range(60):
        acceptance.add("head", (0.9,), (False,))
    assert acceptance.rate("head", 0.9) < 0.2 and acceptance.rate("head", 0.3) == pytest.approx(0.3)


def test_kinds_are_learnt_apart() -> None:
    controller = Controller(params(), World(flat).profile())
    assert DraftOption("ngram", "ngram 3-4") == COPY
    plan = controller.plan(1, (HEAD, COPY), 100, 100, None)
    assert plan.option == COPY  # as likely as the other, and cheaper
