"""The controller in made-up worlds (`simulate`): it finds what pays, stays out of what does not, and notices change."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import MAX_K, DecodingParams, SamplingParams
from engine.control.acceptance import ByConfidence, ByPosition
from engine.control.controller import EXPLORATIONS_APART, FIRST_EXPLORATION, LAST_EXPLORATION, Controller
from engine.control.latency import OUTLIER, Profile, RoundLatency
from engine.events import KReason, RoundKind
from tests.engine.simulate import COPY, HEAD, Played, World, flat, play, simulate

PRIOR = (("head", (0.65, 0.6, 0.55)), ("ngram 3-4", (0.4, 0.7)))


def stepped(rows: int) -> float:
    """A kernel that takes four rows at a time."""
    return flat(rows) + 0.5 * ((rows - 1) // 4)


def saturated(rows: int) -> float:
    """Every row costs as much as the first."""
    return float(rows)


def params(k: int | None = None, **more: object) -> DecodingParams:
    return DecodingParams(SamplingParams(temperature=1.0), "any", k, **more)  # type: ignore[arg-type]


def head(*accept: float, **more: object) -> Callable[[], World]:
    return lambda: World(accept={"head": accept}, **more)  # type: ignore[arg-type]


def copies(*accept: float, copies: float = 1.0, **other: tuple[float, ...]) -> Callable[[], World]:
    return lambda: World(accept={"ngram 3-4": accept, **other}, copies=copies)


def replies(make: Callable[[], World], k: int | None, n: int, seeds: int = 6, measured: bool = True) -> list[Played]:
    """The same reply's length played with several seeds, each in a fresh world."""
    played = []
    for seed in range(seeds):
        world = make()
        played.append(simulate(world, params(k), world.profile(acceptance=PRIOR) if measured else Profile(), n, seed))
    return played


def speed(played: list[Played]) -> float:
    """Over plain decoding, as a ratio of sums."""
    return sum(p.tokens for p in played) / sum(p.seconds for p in played) * World().plain_s


BOTH = copies(0.8, 0.9, copies=0.3, head=(0.6, 0.55))
PAYS = {
    "a good head, rows by fours": head(0.7, 0.65, 0.6, rows=stepped),
    "a weak head": head(0.3, 0.25, 0.2),
    "copies that often fail at once": copies(0.4, 0.8),
    "both": BOTH,
}


@pytest.mark.parametrize("what", PAYS)
def test_it_comes_within_a_few_percent_of_the_best_fixed_k(what: str) -> None:
    """Also where nothing was measured beforehand, though it learns what that costs."""
    best = max(speed(replies(PAYS[what], k, 400)) for k in (1, 2, 3, 5, 8, 16))
    assert speed(replies(PAYS[what], None, 400)) > 0.94 * best
    assert speed(replies(PAYS[what], None, 400, measured=False)) > 0.9 * best


PAYS_NOT = {
    "a useless head that thinks much of itself": head(0.0, boast=0.9),
    "a useless head that says nothing": head(0.0, confident=()),
    "useless both": copies(0.0, head=(0.0,)),
    "a good head on a saturated machine": head(0.7, 0.65, rows=saturated),
}


@pytest.mark.parametrize("what", PAYS_NOT)
def test_what_does_not_pay_costs_less_than_a_twentieth(what: str) -> None:
    """Over replies of 128 tokens, by the clock of the whole reply but its probes, which are plain rounds themselves. A
    fixed K has no such protection: the negative control."""
    assert speed(replies(PAYS_NOT[what], None, 128)) >= 0.95
    assert speed(replies(PAYS_NOT[what], 3, 128)) < 0.8


def test_tries_of_what_is_off_come_at_growing_distances_and_never_die_out() -> None:
    [played] = replies(head(0.0, confident=()), None, 400, seeds=1)
    tries = [i for i, plan in enumerate(played.plans) if plan.reason is KReason.EXPLORE]
    gaps = [after - before for before, after in pairwise(tries)]
    assert min(gaps) >= FIRST_EXPLORATION and max(gaps) <= LAST_EXPLORATION + EXPLORATIONS_APART
    assert gaps.count(LAST_EXPLORATION) > len(gaps) / 3
    late = played.plans[60:-1]
    assert {plan.reason for plan in late} <= {KReason.OFF, KReason.EXPLORE, KReason.BUDGET}
    assert all(plan.predicted_speedup is not None and plan.predicted_speedup < 1 for plan in late)


GOOD = {"head": (0.75, 0.7)}
USELESS = {"head": (0.02,)}


@pytest.mark.parametrize(
    ("field", "steps", "shares"),
    [
        ("rows", [(0, flat), (200, saturated)], [(50, 200, 0.9, 1), (260, 500, 0, 0.25)]),
        ("rows", [(0, saturated), (200, flat)], [(50, 200, 0, 0.25), (400, 700, 0.75, 1)]),
        (
            "accept",
            [(0, USELESS), (200, GOOD), (500, USELESS)],
            [(100, 200, 0, 0.2), (350, 500, 0.75, 1), (580, 700, 0, 0.4)],
        ),
        ("plain_s", [(0, 0.01), (150, 1.0), (152, 0.01)], [(156, 300, 0.85, 1)]),  # a hiccup changes nothing
    ],
)
def test_it_notices_what_becomes_dear_or_cheap_easy_or_hard(
    field: str, steps: list[tuple[int, object]], shares: list[tuple[int, int, float, float]]
) -> None:
    """shares: of the rounds that begin between two tokens of the reply, how many have drafts, from and to."""

    def change(world: World, tokens: int) -> None:
        setattr(world, field, [value for begin, value in steps if begin <= tokens][-1])

    played = replies(lambda: World(accept=GOOD, change=change), None, shares[-1][1])
    rounds = [
        (at, p) for one in played for at, p in zip(one.begins, one.plans, strict=True) if p.kind is not RoundKind.PROBE
    ]
    for begin, end, low, high in shares:
        drafts = [p.k > 0 for at, p in rounds if begin <= at < end]
        assert low <= sum(drafts) / len(drafts) <= high


def test_tiny_replies_end_on_time_and_explore_nothing() -> None:
    for n in (1, 2, 3, 5, 9):
        for one in replies(head(0.0), None, n, seeds=20):
            assert sum(len(r.tokens) for r in one.rounds) == n
            assert KReason.EXPLORE not in {plan.reason for plan in one.plans}


@pytest.mark.parametrize(("copy", "guess"), [(0.9, 0.5), (0.1, 0.8)])
def test_of_both_the_one_that_is_measured_to_be_better_plays(copy: float, guess: float) -> None:
    for k in (None, 3):
        [played] = replies(copies(copy, copies=0.5, head=(guess,)), k, 400, seeds=1)
        late = [p.option for p in played.plans[40:] if p.option]
        assert (late.count(COPY) > 0.3 * len(late)) == (copy > guess)


def test_a_fixed_k_stays_and_never_stops_early_and_a_free_one_stops_behind_a_doubtful_draft() -> None:
    [played] = replies(BOTH, 5, 200, seeds=1)
    for plan, round_ in zip(played.plans, played.rounds, strict=True):
        assert plan.predicted_speedup is None
        if plan.kind is RoundKind.SPECULATIVE and plan.reason in (KReason.FIXED, KReason.EXPLORE):
            assert plan.k == round_.num_drafted == 5 and plan.should_continue((0.0,) * 4)
    plan = Controller(params(), World().profile(acceptance=PRIOR)).plan(1, (HEAD,), 400, 400, None)
    assert plan.should_continue((0.97,)) and not plan.should_continue((0.02,))
    assert not plan.should_continue((0.97, 0.02))  # what is behind a doubtful draft is reached as seldom


@given(st.data())
@settings(max_examples=40)
def test_a_plan_never_exceeds_any_limit_whatever_it_has_seen(data: st.DataObject) -> None:
    draw, chance = data.draw, st.floats(0, 1)
    k = draw(st.none() | st.integers(0, MAX_K))
    accept = {"head": (draw(chance),), "ngram 3-4": (draw(chance),)}
    world = World(draw(st.sampled_from([flat, stepped, saturated])), accept=accept)
    profile = draw(st.sampled_from([Profile(), world.profile()]))
    controller, rng = Controller(params(k, probe_every=draw(st.integers(0, 12))), profile), Random(0)
    for index in range(1, draw(st.integers(2, 25))):
        budget, context, room = (draw(st.integers(low, 30)) for low in (1, 1, -3))
        options = tuple(draw(st.sets(st.sampled_from([HEAD, COPY]))))
        made = controller.plan(index, options, budget, context, room if room < 20 else None)
        assert (
            0
            <= made.k
            < min(budget, context, (max(room, 0) if room < 20 else MAX_K) + 1, (MAX_K if k is None else k) + 1)
        )
        assert made.option in options if made.k else made.option is None
        assert k is None or (made.kind is RoundKind.PLAIN) == (k == 0)
        assert made.k == 0 or made.kind is RoundKind.SPECULATIVE
        round_, confidences = play(world, made, rng, index)
        controller.observe(round_, made, confidences)


def test_nothing_to_offer_is_no_choice_and_of_equals_the_cheaper_is_chosen() -> None:
    """The drafter was asked, so the round counts in tau; PLAIN is only what was asked for or chosen."""
    for k in (None, 3):
        plan = Controller(params(k), Profile()).plan(1, (), 50, 50, None)
        assert (plan.kind, plan.k, plan.reason) == (RoundKind.SPECULATIVE, 0, KReason.NO_OFFER)
    assert Controller(params(), World().profile()).plan(1, (HEAD, COPY), 100, 100, None).option == COPY


# -- its parts ---------------------------------------------------------------------------------------------------------


def test_times_are_believed_as_far_as_they_can_be() -> None:
    """An outlier counts as three times the estimate at most. A time far below the estimate is believed at once: the
    machine was busy while the engine measured, which must not keep speculation off. A drafter's first round reads the
    prompt, and is no sample. What slows all alike is believed also where nothing was seen."""
    one, other, first, slow = (RoundLatency(World().profile()) for _ in range(4))
    one.add("", 0, 0.0, 0.01 * OUTLIER)
    other.add("", 0, 0.0, 100.0)
    assert one.plain == pytest.approx(other.plain)
    busy = RoundLatency(Profile(((1, 0.01), (8, 0.0135)), (("head", 0.5),)))
    for _ in range(3):
        busy.add("head", 3, 0.003, 0.0115)
    assert busy.rounds("head", 3)[3] == pytest.approx(0.0145, rel=0.1)
    before = first.rounds("head", 4)
    first.add("head", 4, 5.0, 0.01 * flat(5))
    assert first.rounds("head", 4) == pytest.approx(before, rel=0.05)
    for i in range(40):
        slow.add("head", i % 4, 0.002 * (i % 4), 0.02 * flat(i % 4 + 1))
    assert slow.rounds("ngram", 7) == pytest.approx([0.02 * flat(rows) for rows in range(1, 9)], rel=0.05)


def test_acceptance_is_learnt_by_kind_position_and_confidence() -> None:
    """It carries over to positions that were not tested."""
    by_position = ByPosition({"head": (0.6, 0.6, 0.6)})
    for _ in range(50):
        by_position.add("head", (True,))
    assert by_position.rates("head", 3)[2] > 0.7
    for _ in range(60):
        by_position.add("head", (False,))
    assert by_position.rates("head", 3)[0] < 0.2 and by_position.rates("other", 1) == [0.5]
    by_confidence = ByConfidence()
    assert by_confidence.rate("head", 0.9) == pytest.approx(0.9)
    for _ in range(60):
        by_confidence.add("head", (0.9,), (False,))
    assert by_confidence.rate("head", 0.9) < 0.2 and by_confidence.rate("head", 0.3) == pytest.approx(0.3)
