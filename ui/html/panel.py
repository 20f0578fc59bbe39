"""What stands in each place of the live panel: tallies -> figures as HTML. Pure."""

from __future__ import annotations

import math

from engine import MIN_BASELINE_SAMPLES, Baseline, KReason, Summary, Tally
from ui.controller_history import Course
from ui.html.render import DASH, both, disturbed, name, ratio, seconds, speed, times
from ui.state import measured_window


def figures(
    reply: Tally, conversation: Tally, probing: bool = True, course: Course | None = None, writing: bool = True
) -> dict[str, str]:
    """What stands in each place of the live panel, as HTML. course: that of the reply; writing: it is not finished."""
    own = reply.summary()
    window, alone = measured_window(reply, conversation)
    speeds = {"spec": speed(window.spec_tok_s), "plain": speed(window.baseline.tok_s), "speedup": times(window.speedup)}
    course = course or Course()
    return {
        **speeds,
        "expected": times(course.expected_speedup),
        "rest": _rest(course) if writing else "",
        "k": str(course.latest.drafted) if course.latest else DASH,
        "mean_k": ratio(own.mean_k),
        "verdict": _verdict(window),
        "baseline": _baseline(window, alone, probing),
        "line": _line(speeds, window, writing and course.rest is not None),
        "now": speed(own.now_tok_s),
        "overall": speed(own.overall_tok_s),
        "alpha": ratio(own.alpha),
        "tau": ratio(own.acceptance_length),
        "by": _by_drafter(own),
        "drafted": str(own.drafted),
        "accepted": str(own.accepted),
        "rejected": str(own.rejected),
        "discarded": str(own.discarded),
        "ttft": seconds(own.ttft_s),
        "tokens": str(own.tokens),
    }


def _line(speeds: dict[str, str], window: Summary, resting: bool) -> str:
    """All of it in one line, for narrow screens."""
    line = both("panel.line", **speeds) if window.spec_tok_s is not None else both("panel.idle")
    return f"{line} · {both('panel.rest.short')}" if resting else line


def _by_drafter(own: Summary) -> str:
    """Acceptance of each, where there were several."""
    several = [drafts for drafts in own.acceptance_by_drafter if drafts.tested]
    if len(several) < 2:
        return ""
    each = [f"{name(d.drafter)} {ratio(d.accepted / d.tested)}" for d in several]
    return f"{both('panel.by')} {' · '.join(each)}"


def _rest(course: Course) -> str:
    """Why no guesses are made at the moment; "" while there are some."""
    rest = course.rest
    if rest is None:
        return ""
    if rest.reason is KReason.NO_OFFER:
        return both("panel.rest.no_offer")
    if rest.predicted_speedup is None:
        return both("panel.rest")
    return both("panel.rest.would", speedup=times(rest.predicted_speedup))


def bars(reply: Tally, conversation: Tally) -> dict[str, float]:
    """Lengths of the two bars to one scale: the faster side is 1."""
    window, _ = measured_window(reply, conversation)
    spec, plain = window.spec_tok_s or 0.0, window.baseline.tok_s or 0.0
    longest = max(spec, plain)
    return {"spec": spec / longest, "plain": plain / longest} if longest else {"spec": 0.0, "plain": 0.0}


def _verdict(window: Summary) -> str:
    """A slow-down is said as plainly as a speed-up; nothing is claimed within 2 %, nor within what the samples
    scatter."""
    speedup = window.speedup
    if speedup is None:
        return ""
    if disturbed(window):
        return both("panel.doubtful")
    if abs(speedup - 1) < max(0.02, uncertainty(window.baseline)):
        return both("panel.same" if abs(speedup - 1) <= 0.02 else "panel.unclear")
    return both("panel.faster" if speedup > 1 else "panel.slower")


def uncertainty(baseline: Baseline) -> float:
    """About two standard errors of the baseline, from its spread (half the interquartile range: 0.67 of a
    deviation)."""
    return 2 * (baseline.spread or 0.0) / 0.67 / math.sqrt(baseline.n) if baseline.n else 0.0


def _baseline(window: Summary, alone: bool, probing: bool) -> str:
    baseline = window.baseline
    if baseline.tok_s is None:
        if not probing and not baseline.n:
            return both("panel.unprobed")
        return both("panel.measuring", n=baseline.n, need=MIN_BASELINE_SAMPLES) if window.tokens else both("panel.idle")
    spread = f"{(baseline.spread or 0.0) * 100:.0f}"
    return both("panel.measured" if alone else "panel.measured.conversation", n=baseline.n, spread=spread)
