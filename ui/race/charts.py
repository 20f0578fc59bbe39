"""A recording in six charts: its rounds on a time line, tokens over time, what each pass wrote, which guesses were
right. Pure.

Each has a figure, a sentence that reads it and a table with its numbers, as those of `ui.charts.reply`. Every lane
stands on its own clock: the sum of its own compute times. Nothing is drawn that was not measured.

A pull costs a few milliseconds: the rounds are walked once, and figures hold a bounded number of points.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate
from statistics import fmean

from engine import Drafts, Outcome, Prefilled, Round, RoundKind, TokenDecision
from ui.charts import figures
from ui.charts.reply import (
    Chart,
    acceptance,
    chart_of,
    nothing,
    percent,
    right_of,
    section,
    table,
    thin,
    word,
)
from ui.html.render import DASH, ratio
from ui.recording.recordings import RACE, Lane, LaneName, Recording

NAMES = ("timeline", "cumulative", "lengths", "accepted", "acceptance", "scatter")

LATEST_ROUNDS = {LaneName.PLAIN: 16, LaneName.SPECULATIVE: 8, LaneName.REPLY: 8}
"""The time line shows no more rounds of a lane than that: so many can be told apart on a phone."""

MOST_ROWS = 6
"""Moments in the table of tokens over time."""

MOST_DOTS = 400
"""Guesses drawn in the scatter, whatever the reply's length."""

BINS = 5
"""Rows of the scatter's table: equal stretches of the drafter's probability."""

LOOKS_UP = "ngram"
"""The drafter that copies, and so has no probabilities."""

Dot = tuple[float, float, bool]
"""The drafter's probability of a guess, the target's, and whether it was accepted."""


def frame(where: str) -> str:
    """A section for these charts. where: unique on the page, since ids begin with it."""
    places = {chart: f'id="{escape(where)}-{chart}"' for chart in NAMES}
    return section(f'id="{escape(where)}-charts" class="plots recorded" data-part="charts"', "charts.race", places)


def charts(recording: Recording, counts: Mapping[str, int] | None = None) -> dict[str, dict[str, Chart]]:
    """{"charts": {name: {figure (None: nothing to draw), label by language, html}}} for NAMES.

    counts: how many blocks of each lane to count, as in `Recording.upto`, of which this is the cheaper way.
    """
    tracks = [track for lane in recording.lanes if (track := _track(lane, (counts or {}).get(lane.name))).rounds]
    guesses = _guesses(round_ for track in tracks for round_ in track.rounds)
    charts_by_name = {
        "timeline": _timeline(tracks),
        "cumulative": _cumulative(tracks),
        "lengths": _lengths(tracks),
        "accepted": _right_in_a_row(guesses),
        "acceptance": acceptance(guesses.by_drafter()),
        "scatter": _scatter(guesses.tests),
    }
    return {"charts": charts_by_name}


# ---- a lane by its own clock


@dataclass(frozen=True, slots=True)
class Track:
    """A lane's rounds. at, tokens: seconds and tokens before each of them, and at the end."""

    name: LaneName
    rounds: list[Round]
    at: list[float]
    tokens: list[int]

    def rounds_ended(self, at: float) -> int:
        """How many rounds had ended at that moment."""
        return max(0, bisect_right(self.at, at) - 1)


def _track(lane: Lane, count: int | None) -> Track:
    events = [block.event for block in lane.reply.blocks[: None if count is None else max(0, count)]]
    rounds = [event for event in events if isinstance(event, Round)]
    first = events[0] if events else None
    ttft_s, tokens = (first.ttft_s, int(first.token is not None)) if isinstance(first, Prefilled) else (0.0, 0)
    at = list(accumulate([round_.total_s for round_ in rounds], initial=ttft_s))
    return Track(lane.name, rounds, at, list(accumulate([len(r.tokens) for r in rounds], initial=tokens)))


def _pair(tracks: Sequence[Track]) -> tuple[Track, Track] | None:
    """The lane with guesses and the plain one, where both have something to show."""
    by_name = {track.name: track for track in tracks}
    return (by_name[LaneName.SPECULATIVE], by_name[LaneName.PLAIN]) if by_name.keys() >= RACE else None


def _lane(track: Track) -> str:
    return word(f"charts.lane.{track.name.value}")


# ---- over time


def _timeline(tracks: Sequence[Track]) -> Chart:
    """The latest stretch that all lanes have, as long as its rounds can be told apart."""
    end_s = min((track.at[-1] for track in tracks), default=0.0)
    begins = [track.at[max(0, track.rounds_ended(end_s) - LATEST_ROUNDS[track.name])] for track in tracks]
    start_s = max((begin for begin in begins if begin < end_s), default=end_s)
    if start_s >= end_s:
        return nothing("timeline", "panel.idle")
    steps = {track.name.value: _steps(track, start_s, end_s) for track in tracks}
    figure = figures.timeline(steps, round(start_s, 5), round(end_s, 5))
    whole = {track.name: _within(track, start_s, end_s) for track in tracks}
    window = {"start": f"{start_s:.2f}", "end": f"{end_s:.2f}"}
    html = table("charts.timeline.table", ("charts.part",), _parts(tracks, whole), [_lane(track) for track in tracks])
    if pair := _pair(tracks):
        (spec_n, spec), (plain_n, plain) = ((len(whole[track.name]), _tokens(whole[track.name])) for track in pair)
        return chart_of("timeline", figure, html, "charts.timeline.both", spec_n=spec_n, spec=spec, plain_n=plain_n,
                        plain=plain, **window)  # fmt: skip
    rounds = whole[tracks[0].name]
    return chart_of("timeline", figure, html, "charts.timeline.one", n=len(rounds), tokens=_tokens(rounds), **window)


def _steps(track: Track, start_s: float, end_s: float) -> list[figures.Step]:
    """Rounds of which a part is in that stretch."""
    first, last = max(0, bisect_right(track.at, start_s) - 1), bisect_left(track.at, end_s)
    return [
        (at, (r.draft_s, r.verify_s, max(0.0, r.total_s - r.draft_s - r.verify_s)), len(r.tokens))
        for at, r in zip(track.at[first:last], track.rounds[first:last], strict=False)
    ]


def _within(track: Track, start_s: float, end_s: float) -> list[Round]:
    """Rounds that are in that stretch as a whole."""
    return track.rounds[bisect_left(track.at, start_s) : track.rounds_ended(end_s)]


def _tokens(rounds: Iterable[Round]) -> int:
    return sum(len(round_.tokens) for round_ in rounds)


def _parts(tracks: Sequence[Track], whole: Mapping[LaneName, Sequence[Round]]) -> list[tuple[str, ...]]:
    """What a round of that stretch took on average, and wrote."""
    columns = [whole[track.name] for track in tracks]
    draft = [_mean_ms([r.draft_s for r in rounds]) for rounds in columns]
    verify = [_mean_ms([r.verify_s for r in rounds]) for rounds in columns]
    rest = [_mean_ms([max(0.0, r.total_s - r.draft_s - r.verify_s) for r in rounds]) for rounds in columns]
    every = [_mean_ms([r.total_s for r in rounds]) for rounds in columns]
    tokens = [ratio(_tokens(rounds) / len(rounds)) if rounds else DASH for rounds in columns]
    rows = {"charts.draft": draft, "charts.verify": verify, "charts.other": rest, "charts.round": every}
    return [*((word(key), *cells) for key, cells in rows.items()), (word("charts.lengths"), *tokens)]


def _mean_ms(seconds: Sequence[float]) -> str:
    return f"{fmean(seconds) * 1e3:.1f} ms" if seconds else DASH


def _cumulative(tracks: Sequence[Track]) -> Chart:
    if not tracks:
        return nothing("cumulative", "panel.idle")
    lines = {t.name.value: [(t.at[i], t.tokens[i]) for i in thin(range(len(t.at)))] for t in tracks}
    figure = figures.cumulative(lines)
    until_s = min(track.at[-1] for track in tracks)
    pair = _pair(tracks)
    rows = []
    for at in _moments(until_s):
        tokens = [track.tokens[bisect_right(track.at, at) - 1] if track.at[0] <= at else 0 for track in tracks]
        rows.append((f"{at:g} s", *map(str, tokens)))
    ends = (f"{track.tokens[-1]} · {track.at[-1]:.2f} s" for track in tracks)
    rows.append((word("charts.end"), *ends))
    html = table("charts.cumulative.table", ("charts.seconds",), rows, [_lane(track) for track in tracks])
    if pair is None:
        track = tracks[0]
        return chart_of("cumulative", figure, html, "charts.cumulative.one", tokens=track.tokens[-1],
                        end=f"{track.at[-1]:.2f}")  # fmt: skip
    spec, plain = (track.tokens[track.rounds_ended(until_s)] for track in pair)
    return chart_of("cumulative", figure, html, "charts.cumulative.both", spec=spec, plain=plain, end=f"{until_s:.2f}")


def _moments(until_s: float) -> list[float]:
    """Round numbers of seconds up to that, at most MOST_ROWS; none below a millisecond."""
    steps = (width * 10.0**n for n in range(-3, 7) for width in (1, 2, 5))
    step = next((step for step in steps if until_s < step * (MOST_ROWS + 1)), 0.0)
    return [round(step * i, 6) for i in range(1, int(until_s / step) + 1)] if step else []


# ---- what a pass of the big model wrote


def _lengths(tracks: Sequence[Track]) -> Chart:
    """Of every pass but those that only measured plain decoding."""
    probe = RoundKind.PROBE
    all_counts = {t.name: Counter([len(r.tokens) for r in t.rounds if r.kind is not probe]) for t in tracks}
    lanes = {name: counts for name, counts in all_counts.items() if counts}
    if not lanes:
        return nothing("lengths", "panel.idle")
    figure = figures.passes({name.value: counts for name, counts in lanes.items()})
    rows = [
        (str(tokens), *(_share(counts[tokens], counts.total()) for counts in lanes.values()))
        for tokens in sorted(set().union(*lanes.values()))
    ]
    rows.append((word("charts.all"), *(str(counts.total()) for counts in lanes.values())))
    means = {name: sum(tokens * n for tokens, n in counts.items()) / counts.total() for name, counts in lanes.items()}
    rows.append((word("charts.mean"), *(f"<b>{ratio(mean)}</b>" for mean in means.values())))
    heads = [word(f"charts.lane.{name.value}") for name in lanes]
    html = table("charts.passes.table", ("charts.axis.length",), rows, heads)
    name = next((name for name in lanes if name is not LaneName.PLAIN), LaneName.PLAIN)
    values = {"n": lanes[name].total(), "tokens": round(means[name] * lanes[name].total()), "mean": ratio(means[name])}
    return chart_of("lengths", figure, html, "charts.passes.mean", **values)


def _share(count: int, total: int) -> str:
    return f"{count} <b>{percent(count / total)}</b>" if count else ""


# ---- which guesses were right


@dataclass(frozen=True, slots=True)
class Guesses:
    """blocks: how many rounds there were of (drafter, guesses right in a row, guesses tested, guesses made).
    tests: the guesses that were tested, of drafters with probabilities."""

    blocks: Counter[tuple[str, int, int, int]]
    tests: list[TokenDecision]

    def by_drafter(self) -> list[Drafts]:
        """As `Tally` counts them."""
        places_by_drafter: dict[str, list[tuple[int, int]]] = {}
        for (drafter, right, tested, _), n in self.blocks.items():
            places = places_by_drafter.setdefault(drafter, [])
            places += [(0, 0)] * (tested - len(places))
            for place in range(tested):
                places[place] = (places[place][0] + n, places[place][1] + n * (place < right))
        return [Drafts(drafter, tuple(places)) for drafter, places in places_by_drafter.items()]


def _guesses(rounds: Iterable[Round]) -> Guesses:
    accepted, rejected = Outcome.ACCEPTED, Outcome.REJECTED
    blocks: Counter[tuple[str, int, int, int]] = Counter()
    tests: list[TokenDecision] = []
    for round_ in rounds:
        if not (decisions := round_.decisions):
            continue
        right = 0
        for decision in decisions:
            if decision.outcome is not accepted:
                break
            right += 1
        n = right + (right < len(decisions) and decisions[right].outcome is rejected)
        blocks[round_.drafter, right, n, len(decisions)] += 1
        if round_.drafter != LOOKS_UP:
            tests += decisions[:n]
    return Guesses(blocks, tests)


def _right_in_a_row(guesses: Guesses) -> Chart:
    counts: Counter[int] = Counter()
    whole = 0
    for (_, right, _, length), n in guesses.blocks.items():
        counts[right] += n
        whole += n * (right == length)
    if not counts:
        return nothing("accepted", "charts.acceptance.none")
    total = counts.total()
    rows = [(str(right), str(counts[right]), percent(counts[right] / total)) for right in sorted(counts)]
    rows.append((word("charts.all"), str(total), percent(1)))
    html = table("charts.accepted.table", ("charts.axis.row", "charts.axis.rounds", "charts.share"), rows)
    mean = ratio(sum(right * n for right, n in counts.items()) / total)
    return chart_of(
        "accepted", figures.right_in_a_row(counts), html, "charts.accepted.mean", mean=mean, whole=whole, n=total
    )


def _scatter(tests: Sequence[TokenDecision]) -> Chart:
    """What the rule compared; where temperature or filters left one token alone, both models' own probabilities."""
    if not tests:
        return nothing("scatter", "charts.scatter.none")
    own = all(decision.target_prob in (0.0, 1.0) for decision in tests)
    dots = _own_dots(tests) if own else _compared_dots(tests)
    if not dots:
        return nothing("scatter", "charts.scatter.undetailed")
    dots_in_figure = sample(dots)
    means = {
        "accepted": _mean_percent([target for _, target, right in dots if right]),
        "rejected": _mean_percent([target for _, target, right in dots if not right]),
    }
    html = table("charts.scatter.table", ("charts.axis.small", "charts.axis.right"), _bins(dots))
    reading = "charts.scatter.own" if own else "charts.scatter.compared"
    return chart_of(
        "scatter", figures.scatter(dots_in_figure), html, reading, n=len(dots), drawn=len(dots_in_figure), **means
    )


def _own_dots(tests: Iterable[TokenDecision]) -> list[Dot]:
    accepted = Outcome.ACCEPTED
    return [
        (detail.raw_draft_prob, detail.raw_target_prob, decision.outcome is accepted)
        for decision in tests
        if (detail := decision.detail) is not None and detail.raw_draft_prob is not None
    ]


def _compared_dots(tests: Iterable[TokenDecision]) -> list[Dot]:
    accepted = Outcome.ACCEPTED
    return [(d.draft_prob, d.target_prob, d.outcome is accepted) for d in tests if d.target_prob is not None]


def _mean_percent(probs: Sequence[float]) -> str:
    return percent(sum(probs) / len(probs)) if probs else DASH


def _bins(dots: Sequence[Dot]) -> list[tuple[str, str]]:
    """Accepted of tested by the drafter's probability; 1 itself belongs to the highest."""
    every = Counter([int(draft * BINS) for draft, _, _ in dots])
    right = Counter([int(draft * BINS) for draft, _, right in dots if right])
    for counts in (every, right):
        counts[BINS - 1] += counts.pop(BINS, 0)
    edges = [round(100 * edge / BINS) for edge in range(BINS + 1)]
    return [(f"{edges[i]}–{edges[i + 1]} %", right_of([(every[i], right[i])])) for i in range(BINS) if every[i]]


def sample(dots: Sequence[Dot]) -> list[Dot]:
    """At most MOST_DOTS, spread evenly and always the same; as a reply grows, what was left out stays out.

    Places are scattered by multiples of the golden ratio (Knuth, The Art of Computer Programming 3, section 6.4),
    because every n-th guess would often be the same place of its round.
    """
    below = 1 << 16
    while len(dots) * below > (2 * MOST_DOTS) << 16:
        below >>= 1
    while True:
        subset = [dot for i, dot in enumerate(dots) if i * 40503 & 0xFFFF < below]
        if len(subset) <= MOST_DOTS:
            return subset
        below >>= 1
