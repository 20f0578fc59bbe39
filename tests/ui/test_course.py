"""What the page tells of the controller: rounds in figures, rests that last, and what was expected."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.events import KReason
from ui.controller_history import RESTING_AFTER, Course, RoundFigures

IDLE = (KReason.OFF, KReason.NO_OFFER)


def one(reason: KReason, predicted: float | None = None, drafted: int = 0, seconds: float = 0.01) -> RoundFigures:
    return RoundFigures(1, drafted, reason, "ngram" if drafted else "none", drafted, 0, predicted, seconds)


ONES = st.builds(
    one, st.sampled_from(KReason), st.none() | st.floats(0.1, 5.0), st.integers(0, 4), st.floats(1e-4, 1.0)
)


@given(st.lists(ONES, max_size=30))
@example([one(KReason.OFF, 0.5)])
@example([one(KReason.AUTO, 2.0, 3, 0.01), one(KReason.AUTO, 1.0, 3, 0.03)])
def test_rests_the_latest_round_and_what_was_expected_follow_from_the_rounds(rounds: list[RoundFigures]) -> None:
    course = reduce(Course.add, rounds, Course())
    steered = [now for now in rounds if now.reason not in (KReason.PROBE, KReason.EXPLORE)][-RESTING_AFTER:]
    resting = len(steered) == RESTING_AFTER and all(now.reason in IDLE for now in steered)
    assert course.rest == (steered[-1] if resting else None)
    own = [now for now in rounds if now.reason is not KReason.PROBE]
    assert course.latest == (own[-1] if own else None), "never one that only measures"
    counted = [now for now in own if now.predicted_speedup is not None]
    worth = sum((now.predicted_speedup or 0) * now.seconds if now.drafted else now.seconds for now in counted)
    whole = sum(now.seconds for now in counted)
    assert course.expected_speedup == (pytest.approx(worth / whole) if counted else None)
