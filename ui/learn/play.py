"""The parts of the tab "Learn" that are tried out in the browser alone: rejection sampling, a round's tokens, the
arithmetic.

Here they are filled with their first numbers, so that they read without scripts; assets/page/play.js goes on from
there, with the functions of assets/page/chances.js, which are these in JavaScript. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from engine import USUAL_K
from engine.lab import best_k, expected_tokens, speedup
from ui.html.render import both, named
from ui.strings.glossary import link

WORDS = ("yellow", "orange", "white", "red")
DRAFT, TARGET = (20, 60, 10, 10), (60, 15, 20, 5)
"""Weights that the sliders begin with; shares of their sum are the probabilities."""

RULES = ("right", "always", "redraw")

ALPHA, K, COST = 0.7, USUAL_K, 0.15
"""What the arithmetic begins with."""

MOST_K = 12
"""Rows of the table of the arithmetic."""


# -- rejection sampling ------------------------------------------------------------------------------------------------


def shares(weights: Sequence[float]) -> list[float]:
    total = sum(weights)
    return [weight / total if total else 1 / len(weights) for weight in weights]


def acceptance(draft: Sequence[float], target: Sequence[float]) -> list[float]:
    """Chance that a guess of each word is kept: min(1, target / draft); 1 for what is never guessed."""
    return [min(1.0, t / d) if d > 0 else 1.0 for d, t in zip(draft, target, strict=True)]


def residual(draft: Sequence[float], target: Sequence[float]) -> list[float]:
    """max(target - draft, 0) scaled up to 1; all 0 where both agree, so that nothing is ever rejected."""
    rest = [max(0.0, t - d) for d, t in zip(draft, target, strict=True)]
    return [one / sum(rest) for one in rest] if sum(rest) > 0 else rest


def rule() -> str:
    """The playground."""
    text = f"<p>{both('learn.step.rule.text')}</p><p>{both('learn.step.rule.more')}</p>"
    return f'{text}<form class="play" data-play="rule">{_weights()}{_chances()}{_trials()}</form>'


def _weights() -> str:
    draft, target = shares(DRAFT), shares(TARGET)
    sliders = "".join(
        f'<fieldset><legend lang="en">{word}</legend>'
        f"{_slider('draft', i, word, DRAFT[i], draft[i])}{_slider('target', i, word, TARGET[i], target[i])}</fieldset>"
        for i, word in enumerate(WORDS)
    )
    return f'<div class="weights">{sliders}</div>'


def _slider(side: str, i: int, word: str, weight: int, share: float) -> str:
    label = f"{word}: {named(f'learn.rule.weight.{side}')}"
    return (
        f'<label class="{side}"><span>{both(f"learn.rule.{side}")}</span>'
        f'<input type="range" name="{side}" min="0" max="100" '
        f'value="{weight}" data-i="{i}" aria-label="{label}"><output>{share:.2f}</output></label>'
    )


def _chances() -> str:
    draft, target = shares(DRAFT), shares(TARGET)
    columns = {
        "draft": draft, "target": target, "accept": acceptance(draft, target), "residual": residual(draft, target),
        "emitted": target,
    }  # fmt: skip
    terms = {"accept": "accept_prob", "residual": "residual"}
    heads = "".join(
        '<th scope="col">'
        f"{link(terms[name], both(f'learn.rule.{name}')) if name in terms else both(f'learn.rule.{name}')}</th>"
        for name in columns
    )
    rows = "".join(
        f'<tr><th scope="row" lang="en">{word}</th>'
        + "".join(f'<td data-cell="{name}">{values[i]:.2f}</td>' for name, values in columns.items())
        + "</tr>"
        for i, word in enumerate(WORDS)
    )
    kept_share = sum(map(min, draft, target))
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{named("learn.rule.table")}"><table>'
        f"<caption>{both('learn.rule.table')}</caption>"
        f'<thead><tr><th scope="col">{both("learn.rule.word")}</th>{heads}</tr></thead><tbody>{rows}</tbody></table>'
        "</div>"
        f'<p class="kept">{both("learn.rule.kept", kept=f"{kept_share * 100:.0f} %")}</p>'
    )


def _trials() -> str:
    rules = "".join(
        f'<label><input type="radio" name="rule" value="{name}"{" checked" if name == "right" else ""}>'
        f" {both(f'learn.rule.{name}')}</label>"
        for name in RULES
    )
    bars = "".join(
        f'<li><span class="which" lang="en">{word}</span><span class="track" aria-hidden="true"><span></span>'
        f'<i style="left:{share:.1%}"></i></span>'
        f'<span class="prob">–</span></li>'
        for word, share in zip(WORDS, shares(TARGET), strict=True)
    )
    return (
        f'<fieldset class="rules"><legend>{both("learn.rule.which")}</legend>{rules}</fieldset>'
        f'<p class="fields"><button type="submit" class="act go">{both("learn.rule.go")}</button></p>'
        f'<p class="name">{both("learn.rule.trials")} ({both("learn.rule.legend")})</p><ul class="histogram">{bars}'
        "</ul>"
        '<p class="result" role="status"></p>'
    )


# -- at least one token ------------------------------------------------------------------------------------------------

GUESSES = ("is", "yellow", "today")
OWN = ("was", "orange", "because", ".")
"""The target's own token after so many right guesses."""


def least() -> str:
    """Every way in which a round with three guesses can end; one of them is chosen."""
    choices = "".join(
        f'<label><input type="radio" name="right" value="{right}"{" checked" if right == 1 else ""}> {right}</label>'
        for right in range(len(GUESSES) + 1)
    )
    rows = "".join(_ending(right) for right in range(len(GUESSES) + 1))
    heads = "".join(f'<th scope="col">{both(f"learn.least.{name}")}</th>' for name in ("right", "written", "tokens"))
    return (
        f'<form class="play" data-play="least"><fieldset class="rules"><legend>{both("learn.least.choose")}'
        f"</legend>{choices}</fieldset>"
        f'<table class="least"><caption>{both("learn.least.table")}</caption><thead><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></form>"
    )


def _ending(right: int) -> str:
    losses = [("rejected", GUESSES[right])] if right < len(GUESSES) else []
    losses += [("discarded", guess) for guess in GUESSES[right + 1 :]]
    own = ("bonus" if right == len(GUESSES) else "recovered", OWN[right])
    pieces = [("draft", guess) for guess in GUESSES[:right]] + losses + [own]
    html = " ".join(f'<bdi class="t {kind}">{escape(token)}</bdi>' for kind, token in pieces)
    current = ' aria-current="true"' if right == 1 else ""
    return (
        f'<tr data-right="{right}"{current}><th scope="row">{right}</th><td>{html}</td><td><b>{right + 1}</b></td></tr>'
    )


# -- the arithmetic ----------------------------------------------------------------------------------------------------


def sums() -> str:
    """Three sliders, what follows from them, and the speed-up for each K, as bars with their numbers."""
    text = f"<p>{both('learn.step.sums.text')}</p><p>{both('learn.step.sums.more')}</p>"
    sliders = "".join(
        f'<label><span>{link(term, both(f"learn.sums.{name}"))}</span><input type="range" name="{name}" min="{low}" '
        f'max="{high}" step="{step}" '
        f'value="{value}" aria-label="{named(f"learn.sums.{name}")}"><output>{value:g}</output></label>'
        for name, term, low, high, step, value in (
            ("alpha", "alpha", 0, 1, 0.01, ALPHA), ("k", "k", 1, MOST_K, 1, K), ("c", "cost_ratio", 0, 1, 0.01, COST),
        )
    )  # fmt: skip
    best = best_k(ALPHA, COST, MOST_K)
    result = both("learn.sums.result", tokens=f"{expected_tokens(ALPHA, K):.2f}", cost=f"{1 + K * COST:.2f}",
                  speedup=f"{speedup(ALPHA, K, COST):.2f}")  # fmt: skip
    best_sentence = both("learn.sums.best", k=best, speedup=f"{speedup(ALPHA, best, COST):.2f}")
    own = (
        f'<p class="fields"><button type="button" class="act" data-action="own-point">{both("learn.sums.own")}'
        "</button></p>"
    )
    return (
        f'{text}<form class="play" data-play="sums"><div class="weights sliders">{sliders}</div>'
        f'<p class="result"><span class="now">{result}</span> <span class="best">{best_sentence}</span>'
        f"</p>{_table(best)}{own}"
        '<p class="point" role="status"></p></form>'
    )


def _table(best: int) -> str:
    longest = max(speedup(ALPHA, k, COST) for k in range(MOST_K + 1))
    rows = "".join(
        f'<tr data-k="{k}"{" aria-current=true" if k == K else ""}{" class=best" if k == best else ""}>'
        f'<th scope="row">{k}</th>'
        f"<td>{expected_tokens(ALPHA, k):.2f}</td>"
        f'<td><span class="track" aria-hidden="true"><span style="width:{gain / longest:.1%}"></span>'
        f'<i style="left:{1 / longest:.1%}"></i></span>'
        f"<b>{gain:.2f}×</b></td></tr>"
        for k in range(MOST_K + 1)
        for gain in [speedup(ALPHA, k, COST)]
    )
    heads = "".join(
        f'<th scope="col">{head}</th>' for head in ("K", both("learn.sums.tokens"), both("learn.sums.speedup"))
    )
    return (
        f'<table class="sums"><caption>{both("learn.sums.table")}</caption><thead><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def ready() -> str:
    """Sentences with places that the script fills in."""
    fields = ("kept", "most", "chi", "limit", "word", "got", "want", "tokens", "cost", "speedup", "k", "alpha", "c",
              "predicted", "measured")  # fmt: skip
    open_ = {name: f"{{{name}}}" for name in fields}
    names = ("rule.kept", "rule.lands", "rule.misses", "rule.equal", "sums.result", "sums.best", "sums.never",
             "sums.own.none", "sums.point", "sums.point.why")  # fmt: skip
    return "".join(f'<span data-text="learn-{name}">{both(f"learn.{name}", **open_)}</span>' for name in names)
