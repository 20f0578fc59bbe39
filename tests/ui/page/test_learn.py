"""The tab "Learn" in a real browser, over the scripted engine."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from engine.lab.formulas import best_k, expected_tokens, speedup
from tests.fake_engine import FakeEngine
from tests.ui.conftest import until
from tests.ui.page.conftest import Visit
from ui.controls import Options
from ui.learn import play as learn_play
from ui.learn.page import STEPS

pytestmark = pytest.mark.browser

LAUNCH = Callable[..., str]
VISIT = Callable[..., Visit]
CHANCES = Path("assets/page/chances.js").read_text(encoding="utf-8")
LESSONS = ("token", "bound", "verify", "drafters")


@pytest.fixture
def learn(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> Visit:
    return visit(launch_page(engine) + "?tab=learn")


def teach(page: Visit, name: str) -> str:
    page.page.click(f"[data-lesson={name}] [type=submit]")
    page.page.wait_for_selector(f"[data-lesson={name}][data-running=no]")
    return str(page.page.inner_text(f"[data-lesson={name}]"))


def slide(page: Visit, name: str, value: float) -> None:
    page.page.eval_on_selector(
        f"[data-play=sums] [name={name}]",
        "(input, value) => { input.value = value; input.dispatchEvent(new Event('input', {bubbles: true})); }",
        value,
    )


def walk_a_round(page: Visit) -> None:
    page.page.click("[data-shown=verify] .guesses button >> nth=0")
    page.page.wait_for_selector("[data-shown=verify] .guesses li:first-child [aria-current]")


DRAWS = (
    ([20, 60, 10, 10], [60, 15, 20, 5]),
    ([1, 0, 0, 0], [0, 0, 0, 1]),
    ([3, 3, 3, 3], [1, 1, 1, 1]),
    ([0, 0, 0, 0], [5, 0, 5, 0]),
)
"""Draft and target, each as four sliders stand."""


def test_the_mathematics_is_that_of_the_engine(chromium: Any) -> None:
    page = chromium.new_page()
    page.add_script_tag(content=CHANCES)
    for draft, target in DRAWS:
        q, p = learn_play.shares(draft), learn_play.shares(target)
        kept = sum(map(min, q, p))
        shown = page.evaluate(
            """([draft, target]) => {
                 const q = sharesOf(draft), p = sharesOf(target);
                 return [q, p, acceptanceOf(q, p), residualOf(q, p), comesOutOf(q, p, "right"),
                         comesOutOf(q, p, "always"), comesOutOf(q, p, "redraw"), [keptOf(q, p)]];
               }""",
            [draft, target],
        )
        redraw = [min(one, other) + (1 - kept) * other for one, other in zip(q, p, strict=True)]
        exact = [q, p, learn_play.acceptance(q, p), learn_play.residual(q, p), p, q, redraw, [kept]]
        for one, other in zip(shown, exact, strict=True):
            assert one == pytest.approx(other, abs=1e-12), (draft, target)
    assert page.evaluate(
        "[0, 0.2499, 0.25, 0.74, 0.75, 0.999999999999].map((u) => fallsOn([0.25, 0, 0.5, 0.25, 0], u))"
    ) == [0, 0, 2, 2, 3, 3], "a number falls on the share that holds it and never on none"
    counts = page.evaluate("trialsOf([0.5, 0.5, 0], [0.25, 0, 0.75], 'right', 10000, Math.random)")
    assert sum(counts) == 10000 and counts[1] == 0 and abs(counts[0] / 10000 - 0.25) < 0.03
    assert page.evaluate(
        "[chiSquareOf([30, 70], [0.5, 0.5]), chiSquareOf([50, 50, 0], [0.5, 0.5, 0]), "
        "chiSquareOf([50, 49, 1], [0.5, 0.5, 0])].map((one) => one.chi)"
    ) == [16, 0, math.inf]
    for alpha, c in product([0, 0.3, 0.7, 0.99, 1], [0, 0.1, 0.5, 1]):
        rows = page.evaluate(
            "([a, c]) => [bestKOf(a, c, 12), [0, 1, 3, 12].map((k) => [tokensOf(a, k), speedupOf(a, k, c)])]",
            [alpha, c],
        )
        exact = [[expected_tokens(alpha, k), speedup(alpha, k, c)] for k in (0, 1, 3, 12)]
        for one, other in zip(rows[1], exact, strict=True):
            assert one == pytest.approx(other, rel=1e-9), (alpha, c)
        assert speedup(alpha, rows[0], c) == pytest.approx(speedup(alpha, best_k(alpha, c, 12), c), rel=1e-9)
    page.close()


def test_the_whole_path(learn: Visit, engine: FakeEngine) -> None:
    for name in STEPS:
        learn.page.click(f'.path a[href$="#learn-{name}"]')
        learn.page.wait_for_function("(name) => document.activeElement.id === `learn-${name}`", arg=name)
        assert learn.page.url.endswith(f"?tab=learn#learn-{name}")
    for name in ("token", "verify"):
        assert "Recorded on" in learn.page.inner_text(f"[data-shown={name}]"), "before anything runs"
    walk_a_round(learn)
    story = "#learn-verify [data-story]"
    later = []
    for _ in range(7):
        later.append(learn.page.locator(f"{story} .later").count())
        learn.page.click(f"{story} [data-action=story]")
    assert later[0] == later[6] == 0 and later[1] == max(later) > 0 and later[1:6] == sorted(later[1:6], reverse=True)
    assert not engine.asked

    assert "24 tokens" in teach(learn, "token")
    assert "rows" in teach(learn, "bound") and learn.page.is_visible("[data-shown=bound] svg.roofline")
    learn.page.fill("[data-lesson=verify] [name=prompt]", "hello")
    assert "this round" in teach(learn, "verify") and engine.asked[-1].messages[-1].content == "hello"
    block = learn.page.get_attribute("[data-shown=verify]", "data-block")
    learn.page.click("[data-shown=verify] [data-action=round-next]")
    learn.page.wait_for_selector(f"[data-shown=verify]:not([data-block='{block}'])")
    walk_a_round(learn)
    assert "n-gram" in teach(learn, "drafters")

    for rule, lands in (("right", "yes"), ("always", "no"), ("redraw", "no")):
        learn.page.check(f"[name=rule][value={rule}]")
        learn.page.click("[data-play=rule] [type=submit]")
        learn.page.wait_for_selector(f"[data-lands={lands}]")
        assert sum(int(text.split(" ")[0]) for text in learn.texts(".histogram .prob")) == 10000
        assert (learn.page.locator("tr.off").count() > 0) is (rule != "right"), rule
    learn.page.check("[name=rule][value=right]")
    learn.page.focus("[name=draft][data-i='0']")
    before = learn.texts("[data-cell=draft]")
    learn.page.keyboard.press("ArrowRight")
    assert learn.texts("[data-cell=draft]") != before
    assert learn.texts(".histogram .prob") == ["–"] * 4 and not learn.page.inner_text("[data-play=rule] .result")
    emitted = [float(text) for text in learn.texts("[data-cell=emitted]")]
    assert emitted == [0.6, 0.15, 0.2, 0.05], "the target's, whatever the drafter does"

    for name, value in (("alpha", 0.8), ("k", 5), ("c", 0.2)):
        slide(learn, name, value)
    words, best = learn.page.inner_text("[data-play=sums] .now"), best_k(0.8, 0.2, learn_play.MOST_K)
    assert f"{expected_tokens(0.8, 5):.2f} tokens" in words and f"{speedup(0.8, 5, 0.2):.2f}×" in words
    assert f"K here is {best}" in learn.page.inner_text("[data-play=sums] .best")
    assert learn.page.get_attribute("table.sums tr.best", "data-k") == str(best)
    slide(learn, "alpha", 0.1)
    assert "no K pays" in learn.page.inner_text("[data-play=sums] .best")


@pytest.mark.slow
def test_ones_own_point_a_stop_and_the_glossary(learn: Visit, engine: FakeEngine) -> None:
    learn.page.click("[data-action=own-point]")
    learn.page.wait_for_selector(".point:has-text('no measured figures')")
    learn.page.click(".tabs [data-tab-link=chat]")
    learn.send("hello")
    learn.wait_turns(1)
    learn.page.click("#gl-panel [data-term=alpha] >> nth=0")
    learn.page.wait_for_selector("#gl-term[open]")
    assert "Acceptance rate" in learn.page.inner_text("#gl-term") and "accepted ÷" in learn.page.inner_text("#gl-term")
    learn.page.keyboard.press("Escape")
    learn.page.wait_for_selector("#gl-term:not([open])", state="attached")
    assert learn.page.evaluate("[document.documentElement.dataset.tab, document.activeElement.dataset.term]") == [
        "chat",
        "alpha",
    ]
    learn.page.keyboard.press("Enter")
    learn.page.wait_for_selector("#gl-term[open]")
    learn.page.click("#gl-term [data-term-place]")
    learn.page.wait_for_function("() => document.activeElement.id === 'glossary-alpha'")
    assert "?tab=learn#glossary-alpha" in learn.page.url
    learn.page.click("[data-action=own-point]")
    learn.page.wait_for_selector("table.sums .own")
    assert "measured were" in learn.page.inner_text("[data-play=sums] .point")
    engine.hold_after = 8
    before = len(engine.asked)
    learn.page.click("[data-lesson=token] [type=submit]")
    learn.page.wait_for_selector("[data-lesson=token] [data-action=lesson-stop]:not([hidden])")
    until(lambda: len(engine.asked) > before)
    learn.page.click("[data-lesson=token] [data-action=lesson-stop]")
    learn.page.wait_for_selector("[data-lesson=token][data-running=no]")
    assert "Stopped" in learn.page.inner_text("[data-lesson=token] .notice") and engine.asked[-1].stream.cancelled


@pytest.mark.slow
def test_in_chinese_on_a_phone(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    url = launch_page(engine, Options(lang="zh"))
    with urlopen(url + "config") as answer:
        sent = answer.read().decode("utf-8")
    assert "learn-rule" in sent and "glossary-alpha" in sent, "the words are there without scripts, too"
    page = visit(url + "?tab=learn#glossary-tau", viewport={"width": 390, "height": 800})
    page.page.wait_for_function("() => document.activeElement.id === 'glossary-tau'")
    words = [teach(page, name) for name in LESSONS]
    assert "24 个 token" in words[0] and "行数" in words[1] and "这一轮" in words[2]
    shown = page.page.inner_text("#gl-learn")
    assert "Accepted" not in shown and "{" not in shown
    wide = page.page.evaluate(
        "() => [document.documentElement, document.querySelector('#gl-learn')].map((n) => n.scrollWidth - n.clientWidth)"
    )
    assert max(wide) <= 0
    for name in ("chat", "race", "inspect", "learn", "when"):
        page.page.click(f".tabs [data-tab-link={name}]")
        assert page.page.evaluate("document.documentElement.dataset.tab") == name
        box = page.page.locator(f".tabs [data-tab-link={name}]").bounding_box()
        assert box and box["width"] > 20 and box["x"] >= -1 and box["x"] + box["width"] <= 391
