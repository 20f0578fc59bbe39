"""What the page tells of the controller: rounds in figures, rests that last, and what was expected."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import DecodingParams
from engine.events import KReason, Outcome, Round
from tests.fake_engine import Script, play
from ui.controller_history import RESTING, RESTING_AFTER, Course, RoundFigures, round_figures

IDLE = frozenset({KReason.OFF, KReason.NO_OFFER})
ASIDE = frozenset({KReason.PROBE, KReason.EXPLORE})


def one(reason: KReason, predicted: float | None = None, drafted: int = 0, seconds: float = 0.01) -> RoundFigures:
    return RoundFigures(1, drafted, reason, "ngram" if drafted else "none", drafted, 0, predicted, seconds)


def course(rounds: list[RoundFigures]) -> Course:
    return reduce(Course.add, rounds, Course())


rounds_of = st.lists(
    st.builds(
        one,
        st.sampled_from(KReason),
        st.none() | st.floats(0.1, 5.0),
        st.integers(0, 4),
        st.floats(1e-4, 1.0),
    ),
    max_size=30,
)


@given(rounds_of)
def test_a_rest_is_several_rounds_in_a_row_without_guesses(rounds: list[RoundFigures]) -> None:
    told = [now for now in rounds if now.reason not in ASIDE]
    end = told[-RESTING_AFTER:]
    resting = len(end) == RESTING_AFTER and all(now.reason in IDLE for now in end)
    assert course(rounds).rest == (end[-1] if resting else None)
    assert IDLE == RESTING


@given(rounds_of)
def test_the_latest_round_is_never_one_that_only_measures(rounds: list[RoundFigures]) -> None:
    told = [now for now in rounds if now.reason is not KReason.PROBE]
    assert course(rounds).latest == (told[-1] if told else None)


@given(rounds_of)
def test_what_was_expected_lies_between_the_rounds_own(rounds: list[RoundFigures]) -> None:
    counted = [now for now in rounds if now.reason is not KReason.PROBE and now.predicted_speedup is not None]
    worth = [now.predicted_speedup if now.drafted else 1.0 for now in counted]
    expected = course(rounds).expected_speedup
    if not counted:
        assert expected is None
    else:
        assert expected is not None
        assert min(filter(None, worth)) - 1e-9 <= expected <= max(filter(None, worth)) + 1e-9


def test_a_round_counts_for_the_time_that_it_took() -> None:
    quick, slow = one(KReason.AUTO, 2.0, 3, 0.01), one(KReason.AUTO, 1.0, 3, 0.03)
    assert course([quick, slow]).expected_speedup == pytest.approx((2.0 * 0.01 + 1.0 * 0.03) / 0.04)


def test_a_round_without_guesses_is_plain_decoding_whatever_guesses_promised() -> None:
    assert course([one(KReason.OFF, 0.5)]).expected_speedup == 1.0


def test_a_round_in_figures() -> None:
    rounds = [event for event in play(Script(), DecodingParams(drafter="head")) if isinstance(event, Round)]
    for round_ in rounds:
        now = round_figures(round_)
        accepted = [decision for decision in round_.decisions if decision.outcome is Outcome.ACCEPTED]
        assert (now.index, now.k, now.drafted, now.accepted) == (
            round_.index, round_.k_requested, round_.num_drafted, len(accepted),
        )  # fmt: skip
        assert (now.reason, now.drafter, now.predicted_speedup) == (
            round_.k_reason, round_.drafter, round_.predicted_speedup,
        )  # fmt: skip
