"""What an experiment came to, in sentences that are worked out from its points. Pure; nothing is claimed that scatter
may be.

A figure is "clear" where the scatter of its repeats lies wholly on one side of 1. Every sentence exists for the case
that it is not: then it says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from math import exp, isfinite, log
from statistics import fmean, median

from engine import USUAL_K
from engine.lab import MEASURED, PLAIN, PREDICTED, SPECULATIVE, ExperimentName, Point, Result
from ui.html.render import speed
from ui.strings import LANGS, TEXT, Lang, text

SAME_TTFT = 0.05
"""Times to the first token that differ by less are the same to a reader; repeats scatter by about as much."""


@dataclass(frozen=True, slots=True)
class Word:
    """A value that has words of its own in each language."""

    key: str


@dataclass(frozen=True, slots=True)
class Sentence:
    """A key of `ui.strings` and its values: plain ones, words, or sentences, of which several are listed."""

    key: str
    values: Mapping[str, object] = field(default_factory=dict)

    def text(self, lang: Lang) -> str:
        return text(self.key, lang, **{name: _in(value, lang) for name, value in self.values.items()})

    def html(self) -> str:
        """In both languages, as `ui.html.render.both`."""
        return "".join(f'<span class="{lang}" lang="{lang}">{escape(self.text(lang))}</span>' for lang in LANGS)


def _in(value: object, lang: Lang) -> object:
    if isinstance(value, Word):
        return text(value.key, lang)
    if isinstance(value, Sentence):
        return value.text(lang)
    if isinstance(value, tuple):
        return text("lab.and", lang).join(str(_in(one, lang)) for one in value)
    return value


@dataclass(frozen=True, slots=True)
class Gain:
    """How many times as fast as plain decoding, with what its repeats scatter between, at x."""

    x: float
    y: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        return self.low > 1 or self.high < 1

    @property
    def pays(self) -> bool:
        return self.low > 1


def conclusion(result: Result) -> tuple[Sentence, ...]:
    """Two sentences, or one where there are too few points for them."""
    return _CONCLUSIONS[result.name](result.points) or (Sentence("lab.none"),)


def series(points: Sequence[Point], name: str) -> list[Point]:
    """Those of one series, by x. Points without a finite value are left out."""
    return sorted((p for p in points if p.series == name and isfinite(p.y)), key=lambda p: p.x)


def names(points: Sequence[Point]) -> list[str]:
    """The series in the order in which they were measured."""
    return list(dict.fromkeys(point.series for point in points))


def extra(point: Point, name: str) -> float | None:
    value = dict(point.extra).get(name)
    return value if value is not None and isfinite(value) else None


def word(name: str) -> Word | str:
    """A series' name in words, where it has some."""
    return Word(key) if (key := f"lab.series.{name}") in TEXT else name


def times(value: float) -> str:
    return f"{value:.2f}"


def percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def whole(value: float) -> int | float:
    """A count of users, tokens or rows as it is written: without decimals where it has none."""
    return round(value) if value == round(value) else round(value, 1)


def ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms" if seconds >= 0.00995 else f"{seconds * 1e3:.1f} ms"


def gain(point: Point) -> Gain:
    """Of a point that is a speed-up itself."""
    return Gain(
        point.x, point.y, point.y if point.low is None else point.low, point.y if point.high is None else point.high
    )


# ---- how many at once


def gains(points: Sequence[Point], name: str) -> list[Gain]:
    """That series against the plain one, wherever both were measured; the worst of one against the best of the
    other."""
    plain = {point.x: point for point in series(points, PLAIN) if point.y > 0}
    curve = []
    for point in series(points, name):
        if (base := plain.get(point.x)) is not None:
            low = (point.y if point.low is None else point.low) / (base.y if base.high is None else base.high)
            high = (point.y if point.high is None else point.high) / (base.y if base.low is None else base.low)
            curve.append(Gain(point.x, point.y / base.y, low, high))
    return curve


def users(count: float) -> str:
    """As many digits as it takes to tell one user from two."""
    return f"{count:.1f}".removesuffix(".0") if count < 10 else f"{count:.0f}"


def crossover(curve: Sequence[Gain]) -> float | None:
    """Where the gain falls through 1 for good, between two measured x; None where it does not. On logarithmic axes a
    straight line."""
    for before, after in reversed(list(pairwise(curve))):
        if before.y > 1 >= after.y:
            share = log(before.y) / (log(before.y) - log(after.y)) if after.y > 0 else 1.0
            return exp(log(before.x) + share * (log(after.x) - log(before.x)))
    return None


def guessing(points: Sequence[Point]) -> str:
    """The series with a fixed number of guesses, or the first that is not plain."""
    others = [name for name in names(points) if name != PLAIN]
    return SPECULATIVE if SPECULATIVE in others else next(iter(others), "")


def _rate(points: Sequence[Point]) -> tuple[Sentence, ...]:
    name = guessing(points)
    curve = gains(points, name)
    if not curve:
        return ()
    first, last = curve[0], curve[-1]
    values = {"first": whole(first.x), "last": whole(last.x), "gain": times(first.y), "loss": times(last.y)}
    at = {x: {point.series: point for point in points if point.x == x} for x in (first.x, last.x)}
    totals = Sentence(
        "lab.rate.totals",
        {"first": whole(first.x), "last": whole(last.x)}
        | {f"plain_{place}": speed(at[x][PLAIN].y) for place, x in (("first", first.x), ("last", last.x))}
        | {f"spec_{place}": speed(at[x][name].y) for place, x in (("first", first.x), ("last", last.x))}
        | {"each_plain": speed(at[last.x][PLAIN].y / last.x), "each_spec": speed(at[last.x][name].y / last.x)},
    )
    return Sentence(_rate_key(curve), values | _rate_where(curve)), totals


def _rate_key(curve: Sequence[Gain]) -> str:
    if not any(one.clear for one in curve):
        return "lab.rate.unclear"
    if not any(one.pays for one in curve):
        return "lab.rate.never"
    if curve[-1].pays:
        return "lab.rate.always"
    return "lab.rate.crossover" if curve[-1].clear and crossover(curve) is not None else "lab.rate.fades"


def _rate_where(curve: Sequence[Gain]) -> dict[str, object]:
    key = _rate_key(curve)
    if key == "lab.rate.crossover":
        return {"users": users(crossover(curve) or 0.0)}
    return {"users": whole(max(one.x for one in curve if one.pays))} if key == "lab.rate.fades" else {}


# ---- how long the reply


def ttft_s(points: Sequence[Point]) -> tuple[float, float] | None:
    """Seconds to the first token, plain and with guesses: medians over the lengths, of which it does not depend."""
    pairs = [(plain, spec) for p in points if (plain := extra(p, "ttft_plain")) and (spec := extra(p, "ttft_spec"))]
    return (median(plain for plain, _ in pairs), median(spec for _, spec in pairs)) if pairs else None


def _length(points: Sequence[Point]) -> tuple[Sentence, ...]:
    curve = [gain(point) for name in names(points) for point in series(points, name)]
    if not curve:
        return ()
    first, last = curve[0], curve[-1]
    at = {"first": whole(first.x), "last": whole(last.x), "few": times(first.y), "many": times(last.y)}
    key = (
        "grows" if last.pays and last.y > first.high else "pays" if last.pays else "slower" if last.clear else "unclear"
    )
    sentence = Sentence(f"lab.length.{key}", at)
    if (both := ttft_s(points)) is None:
        return (sentence,)
    change = both[1] / both[0] - 1
    same = abs(change) <= SAME_TTFT
    values = {"plain": ms(both[0]), "spec": ms(both[1]), "change": f"{change * 100:+.1f} %"}
    return Sentence("lab.length.ttft.same" if same else "lab.length.ttft.other", values), sentence


# ---- how many guesses


def measured_series(points: Sequence[Point]) -> list[str]:
    """The series that are not worked out."""
    return [name for name in names(points) if name != PREDICTED]


def best_k(points: Sequence[Point], name: str) -> tuple[int, float, tuple[int, ...]] | None:
    """(K, speed-up, other K that repeats cannot tell from it) of the fastest that was measured."""
    curve = [gain(point) for point in series(points, name)]
    if not curve:
        return None
    best = max(curve, key=lambda one: one.y)
    return round(best.x), best.y, tuple(round(one.x) for one in curve if one is not best and one.high >= best.low)


def _k(points: Sequence[Point]) -> tuple[Sentence, ...]:
    parts = []
    for name in measured_series(points):
        if (best := best_k(points, name)) is not None:
            k, y, others = best
            values = {"kind": word(name), "k": k, "gain": times(y), "others": ", ".join(map(str, others))}
            parts.append(Sentence("lab.k.part.others" if others else "lab.k.part", values))
    if not parts:
        return ()
    sentence = Sentence("lab.k.best", {"parts": tuple(parts)})
    return (sentence, *_formula(points))


def _best(by_x: Mapping[float, float]) -> float:
    return max(by_x, key=lambda x: by_x[x])


def _formula(points: Sequence[Point]) -> tuple[Sentence, ...]:
    """What was predicted against the mean of what was measured."""
    prediction = {point.x: point.y for point in series(points, PREDICTED) if point.y > 0}
    means = {
        x: fmean(some) for x in prediction if (some := [p.y for p in points if p.x == x and p.series != PREDICTED])
    }
    if not means:
        return ()
    error = fmean(abs(means[x] / prediction[x] - 1) for x in means)
    values = {"k": round(_best(prediction)), "mean": round(_best(means)),
              "error": percent(error)}  # fmt: skip
    return (Sentence("lab.k.formula", values),)


# ---- how random, what kind of text


def _temperature(points: Sequence[Point]) -> tuple[Sentence, ...]:
    alphas, speeds = [], []
    for name in names(points):
        line = series(points, name)
        if len(line) < 2:
            continue
        first, last = line[0], line[-1]
        values = {
            "rule": word(name),
            "cold": f"{first.x:g}",
            "warm": f"{last.x:g}",
            "from": percent(first.y),
            "to": percent(last.y),
        }
        alphas.append(Sentence(f"lab.temperature.{_change(first, last)}", values))
        before, after = extra(first, "speedup"), extra(last, "speedup")
        if before and after:
            speeds.append(
                Sentence("lab.temperature.speed", {"rule": word(name), "from": times(before), "to": times(after)})
            )
    if not alphas:
        return ()
    sentence = Sentence("lab.temperature.all", {"parts": tuple(alphas)})
    return (sentence, Sentence("lab.temperature.speeds", {"parts": tuple(speeds)})) if speeds else (sentence,)


def _change(first: Point, last: Point) -> str:
    """Which way it goes, where the scatter of both leaves that beyond doubt."""
    ends = [(p.y if p.low is None else p.low, p.y if p.high is None else p.high) for p in (first, last)]
    if ends[1][1] < ends[0][0]:
        return "falls"
    return "rises" if ends[1][0] > ends[0][1] else "same"


def kinds(points: Sequence[Point]) -> dict[str, Gain]:
    """Each kind of text with its speed-up, the fastest first."""
    by_kind = {point.series: gain(point) for point in points if isfinite(point.y)}
    return dict(sorted(by_kind.items(), key=lambda entry: -entry[1].y))


def _text(points: Sequence[Point]) -> tuple[Sentence, ...]:
    by_kind = kinds(points)
    if not by_kind:
        return ()
    alphas = {point.series: extra(point, "alpha") for point in points}

    def part(name: str) -> Sentence:
        alpha, values = alphas[name], {"kind": word(name), "gain": times(by_kind[name].y)}
        if alpha is None:
            return Sentence("lab.text.part", values)
        return Sentence("lab.text.part.alpha", values | {"alpha": percent(alpha)})

    best, worst = next(iter(by_kind)), list(by_kind)[-1]
    if best == worst:
        return (Sentence("lab.text.one", {"part": part(best)}),)
    apart = by_kind[best].low > by_kind[worst].high
    sentence = Sentence("lab.text.best" if apart else "lab.text.alike", {"best": part(best), "worst": part(worst)})
    slower = tuple(word(name) for name, one in by_kind.items() if one.high < 1)
    unclear = tuple(word(name) for name, one in by_kind.items() if not one.clear)
    if slower:
        return sentence, Sentence("lab.text.slower", {"kinds": slower})
    if unclear:
        return sentence, Sentence("lab.text.unclear", {"kinds": unclear})
    return sentence, Sentence("lab.text.all", {"count": len(by_kind)})


# ---- what a forward costs


def knee(points: Sequence[Point]) -> float | None:
    """Rows from which arithmetic takes longer than reading the weights; None where that was not reached, or at once."""
    ratios = [(p.x, compute / floor) for p in series(points, MEASURED)
             if (floor := extra(p, "floor_ms")) and (compute := extra(p, "compute_ms"))]  # fmt: skip
    for (x, before), (next_x, after) in pairwise(ratios):
        if before < 1 <= after:
            return exp(log(x) + log(1 / before) / log(after / before) * log(next_x / x))
    return None


def row_cost(points: Sequence[Point], rows: int = USUAL_K + 1) -> tuple[float, float, int, bool] | None:
    """(ms over one row, ms over `rows` or the next number measured, that number, whether the latter is clearly longer).

    rows: by default those of a forward that checks the usual number of guesses, one more than they are.
    """
    passes = series(points, MEASURED)
    more = next((point for point in passes if point.x >= rows), None)
    if more is None or passes[0].x != 1 or passes[0].y <= 0:
        return None
    longest, shortest = passes[0].high or passes[0].y, more.low or more.y
    return passes[0].y, more.y, round(more.x), shortest > longest


def _rows(points: Sequence[Point]) -> tuple[Sentence, ...]:
    if (cost := row_cost(points)) is None:
        return ()
    one, more, rows, clear = cost
    values = {"rows": rows, "guesses": rows - 1, "one": f"{one:.1f}", "more": f"{more:.1f}", "cost": times(more / one)}
    sentence = Sentence("lab.rows.cost" if clear else "lab.rows.same", values)
    last = series(points, MEASURED)[-1]
    each = Sentence("lab.rows.each", {"rows": whole(last.x), "ms": f"{last.y / last.x:.2f}", "one": f"{one:.1f}"})
    if (at := knee(points)) is None:
        return sentence, each
    return sentence, Sentence("lab.rows.knee", {"rows": round(at), "floor": f"{extra(last, 'floor_ms') or 0:.1f}"})


_CONCLUSIONS: Mapping[ExperimentName, Callable[[Sequence[Point]], tuple[Sentence, ...]]] = {
    ExperimentName.RATE: _rate,
    ExperimentName.LENGTH: _length,
    ExperimentName.K: _k,
    ExperimentName.TEMPERATURE: _temperature,
    ExperimentName.TEXT: _text,
    ExperimentName.ROWS: _rows,
}
