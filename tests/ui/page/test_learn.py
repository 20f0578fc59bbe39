"""The tab "Learn" in a real browser, over the scripted engine, in both languages."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


@pytest.fixture
def learn(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> Visit:
    """The tab, just opened."""
    return visit(launch_page(engine) + "?tab=learn")


@pytest.fixture
def read(engine: FakeEngine, launch_page: LAUNCH, keep: VISIT) -> Visit:
    """The tab after whatever the tests before this one did there."""
    page = keep(launch_page(engine) + "?tab=learn")
    page.page.set_viewport_size({"width": 1280, "height": 800})
    page.page.click(".tabs [data-tab-link=learn]")
    return page


@pytest.fixture(params=["en", "zh"])
def both_languages(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT, request: Any) -> Visit:
    return visit(launch_page(engine, Options(lang=request.param)) + "?tab=learn")


def teach(page: Visit, name: str) -> str:
    page.page.click(f"[data-lesson={name}] [type=submit]")
    page.page.wait_for_selector(f"[data-lesson={name}][data-running=no]")
    return str(page.page.inner_text(f"[data-lesson={name}]"))


def slide(page: Visit, selector: str, value: float) -> None:
    page.page.eval_on_selector(
        selector,
        "(input, value) => { input.value = value; input.dispatchEvent(new Event('input', {bubbles: true})); }",
        value,
    )


# -- the mathematics, function by function -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chances(chromium: Any) -> Any:
    """A page with nothing but these functions, which remember nothing."""
    page = chromium.new_page()
    page.add_script_tag(content=CHANCES)
    yield page
    page.close()


@pytest.mark.parametrize(
    ("draft", "target"),
    [([20, 60, 10, 10], [60, 15, 20, 5]), ([1, 0, 0, 0], [0, 0, 0, 1]), ([3, 3, 3, 3], [1, 1, 1, 1]), ([0, 0, 0, 0], [5, 0, 5, 0])],
)  # fmt: skip
def test_distributions_are_exact(chances: Any, draft: list[int], target: list[int]) -> None:
    q, p = learn_play.shares(draft), learn_play.shares(target)
    kept = sum(map(min, q, p))
    found = chances.evaluate(
        """([draft, target]) => {
             const q = sharesOf(draft), p = sharesOf(target);
             return {q, p, accept: acceptanceOf(q, p), residual: residualOf(q, p), kept: keptOf(q, p),
                     right: comesOutOf(q, p, "right"), always: comesOutOf(q, p, "always"), redraw: comesOutOf(q, p, "redraw")};
           }""",
        [draft, target],
    )
    exact = {
        "q": q, "p": p, "accept": learn_play.acceptance(q, p), "residual": learn_play.residual(q, p), "right": p, "always": q,
        "redraw": [min(one, other) + (1 - kept) * other for one, other in zip(q, p, strict=True)],
    }  # fmt: skip
    for name, values in exact.items():
        assert all(math.isclose(a, b, abs_tol=1e-12) for a, b in zip(found[name], values, strict=True)), name
    assert math.isclose(found["kept"], kept, abs_tol=1e-12)


def test_a_number_falls_on_the_share_that_holds_it_and_never_on_none(chances: Any) -> None:
    found = chances.evaluate(
        "[0, 0.2499, 0.25, 0.74, 0.75, 0.999999999999].map((u) => fallsOn([0.25, 0, 0.5, 0.25, 0], u))"
    )
    assert found == [0, 0, 2, 2, 3, 3]


def test_every_trial_ends_in_a_word_and_no_impossible_one(chances: Any) -> None:
    counts = chances.evaluate("trialsOf([0.5, 0.5, 0], [0.25, 0, 0.75], 'right', 10000, Math.random)")
    assert sum(counts) == 10000 and counts[1] == 0 and abs(counts[0] / 10000 - 0.25) < 0.03


def test_chi_square_is_pearsons(chances: Any) -> None:
    one, other, impossible = chances.evaluate(
        "[chiSquareOf([30, 70], [0.5, 0.5]), chiSquareOf([50, 50, 0], [0.5, 0.5, 0]), chiSquareOf([50, 49, 1], [0.5, "
        "0.5, 0])]"
    )
    assert one == {"chi": 16, "freedom": 1} and other == {"chi": 0, "freedom": 1} and impossible["chi"] == math.inf


@pytest.mark.parametrize("alpha", [0, 0.3, 0.7, 0.99, 1])
@pytest.mark.parametrize("c", [0, 0.1, 0.5, 1])
def test_the_arithmetic_is_that_of_the_engine(chances: Any, alpha: float, c: float) -> None:
    for k in (0, 1, 3, 12):
        tokens, gain = chances.evaluate("([a, k, c]) => [tokensOf(a, k), speedupOf(a, k, c)]", [alpha, k, c])
        assert math.isclose(tokens, expected_tokens(alpha, k), rel_tol=1e-9)
        assert math.isclose(gain, speedup(alpha, k, c), rel_tol=1e-9)
    best = chances.evaluate("([a, c]) => bestKOf(a, c, 12)", [alpha, c])
    assert math.isclose(speedup(alpha, best, c), speedup(alpha, best_k(alpha, c, 12), c), rel_tol=1e-9)


# -- the path ----------------------------------------------------------------------------------------------------------


def test_the_whole_path(both_languages: Visit, engine: FakeEngine) -> None:
    page, zh = both_languages, both_languages.page.evaluate("document.documentElement.dataset.lang") == "zh"
    for name in STEPS:
        page.page.click(f'.path a[href$="#learn-{name}"]')
        page.page.wait_for_function("(name) => document.activeElement.id === `learn-${name}`", arg=name)
        assert page.page.url.endswith(f"?tab=learn#learn-{name}")
        assert page.page.locator(f"#learn-{name}").is_visible()
    assert ("24 个 token" if zh else "24 tokens") in teach(page, "token")
    assert ("行数" if zh else "rows") in teach(page, "bound") and page.page.is_visible(
        "[data-shown=bound] svg.roofline"
    )
    page.page.fill("[data-lesson=verify] [name=prompt]", "hello")
    assert ("这一轮" if zh else "this round") in teach(page, "verify") and engine.asked[-1].messages[
        -1
    ].content == "hello"
    assert "n-gram" in teach(page, "drafters")
    page.page.click("[data-play=rule] [type=submit]")
    page.page.wait_for_selector("[data-lands=yes]")
    visible = page.page.inner_text("#gl-learn")
    unwanted = "Accepted" if zh else "接受"
    assert unwanted not in visible and "{" not in visible


def test_before_anything_runs_the_steps_show_recordings_that_answer(learn: Visit, engine: FakeEngine) -> None:
    for name in ("token", "verify"):
        assert "Recorded on" in learn.page.inner_text(f"[data-shown={name}]")
    learn.page.click("[data-shown=verify] .guesses button >> nth=0")
    learn.page.wait_for_selector("[data-shown=verify] .guesses li:first-child [aria-current]")
    assert not engine.asked


def test_a_story_is_stepped_through_and_whole_again(read: Visit) -> None:
    box = "#learn-verify [data-story]"
    assert read.page.locator(f"{box} .later").count() == 0
    later = []
    for _ in range(7):
        later.append(read.page.locator(f"{box} .later").count())
        read.page.click(f"{box} [data-action=story]")
    assert later[0] == 0 and later[1] == max(later) and later[1:6] == sorted(later[1:6], reverse=True) and later[6] == 0


def test_rounds_of_the_readers_sentence_can_be_walked_through(read: Visit, engine: FakeEngine) -> None:
    teach(read, "verify")
    place = read.page.locator("[data-shown=verify]")
    block = place.get_attribute("data-block")
    read.page.click("[data-shown=verify] [data-action=round-next]")
    read.page.wait_for_function(
        "(block) => document.querySelector('[data-shown=verify]').dataset.block !== block", arg=block
    )
    read.page.click("[data-shown=verify] .guesses button >> nth=0")
    read.page.wait_for_selector("[data-shown=verify] .guesses li:first-child [aria-current]")


def test_a_lesson_can_be_stopped(read: Visit, engine: FakeEngine) -> None:
    engine.hold_after = 8
    read.page.click("[data-lesson=token] [type=submit]")
    read.page.wait_for_selector("[data-lesson=token] [data-action=lesson-stop]:not([hidden])")
    until(lambda: engine.asked)
    read.page.click("[data-lesson=token] [data-action=lesson-stop]")
    read.page.wait_for_selector("[data-lesson=token][data-running=no]")
    assert "Stopped" in read.page.inner_text("[data-lesson=token] .notice") and engine.asked[0].stream.cancelled


# -- rejection sampling ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rule", "lands"), [("right", "yes"), ("always", "no"), ("redraw", "no")])
def test_the_right_rule_lands_and_a_broken_one_fails(read: Visit, rule: str, lands: str) -> None:
    read.page.check(f"[name=rule][value={rule}]")
    read.page.click("[data-play=rule] [type=submit]")
    read.page.wait_for_selector(f"[data-lands={lands}]")
    counts = [int(text.split(" ")[0]) for text in read.texts(".histogram .prob")]
    assert sum(counts) == 10000
    assert read.page.locator("tr.off").count() == (0 if rule == "right" else read.page.locator("tr.off").count())
    assert (read.page.locator("tr.off").count() > 0) is (rule != "right")


def test_sliders_change_the_table_and_clear_the_trials(read: Visit) -> None:
    read.page.check("[name=rule][value=right]")
    read.page.click("[data-play=rule] [type=submit]")
    read.page.wait_for_selector("[data-lands=yes]")
    read.page.focus("[name=draft][data-i='0']")
    before = read.texts("[data-cell=draft]")
    read.page.keyboard.press("ArrowRight")
    assert read.texts("[data-cell=draft]") != before
    assert read.texts(".histogram .prob") == ["–"] * 4 and not read.page.inner_text("[data-play=rule] .result")
    shares = [float(text) for text in read.texts("[data-cell=emitted]")]
    assert shares == [0.6, 0.15, 0.2, 0.05]  # the target's, whatever the drafter does
    read.page.keyboard.press("ArrowLeft")
    assert read.texts("[data-cell=draft]") == before


# -- the arithmetic ----------------------------------------------------------------------------------------------------


def test_sliders_of_the_arithmetic(read: Visit) -> None:
    for name, value in (("alpha", 0.8), ("k", 5), ("c", 0.2)):
        slide(read, f"[data-play=sums] [name={name}]", value)
    said = read.page.inner_text("[data-play=sums] .now")
    assert f"{expected_tokens(0.8, 5):.2f} tokens" in said and f"{speedup(0.8, 5, 0.2):.2f}×" in said
    best = best_k(0.8, 0.2, learn_play.MOST_K)
    assert f"K here is {best}" in read.page.inner_text("[data-play=sums] .best")
    assert read.page.get_attribute("table.sums tr.best", "data-k") == str(best)
    slide(read, "[data-play=sums] [name=alpha]", 0.1)
    assert "no K pays" in read.page.inner_text("[data-play=sums] .best")


def test_the_readers_own_point(learn: Visit, engine: FakeEngine) -> None:
    learn.page.click("[data-action=own-point]")
    learn.page.wait_for_function("() => document.querySelector('.point').textContent.includes('no measured figures')")
    learn.page.click(".tabs [data-tab-link=chat]")
    learn.send("hello")
    learn.wait_turns(1)
    learn.page.click(".tabs [data-tab-link=learn]")
    learn.page.click("[data-action=own-point]")
    learn.page.wait_for_selector("table.sums .own")
    own = learn.page.inner_text("[data-play=sums] .point")
    assert "measured were" in own and learn.page.locator("table.sums .own").count() == 1


# -- the glossary ------------------------------------------------------------------------------------------------------


def test_a_term_opens_where_it_is_and_leads_to_the_glossary(page: Visit) -> None:
    page.page.click("#gl-panel [data-term=alpha] >> nth=0")
    page.page.wait_for_selector("#gl-term[open]")
    assert "Acceptance rate" in page.page.inner_text("#gl-term") and "accepted ÷" in page.page.inner_text("#gl-term")
    assert page.page.evaluate("document.documentElement.dataset.tab") == "chat"
    page.page.keyboard.press("Escape")
    page.page.wait_for_selector("#gl-term:not([open])", state="attached")
    assert page.page.evaluate("document.activeElement.dataset.term") == "alpha"
    page.page.keyboard.press("Enter")
    page.page.wait_for_selector("#gl-term[open]")
    page.page.click("#gl-term [data-term-place]")
    page.page.wait_for_function("() => document.activeElement.id === 'glossary-alpha'")
    assert page.page.evaluate("document.documentElement.dataset.tab") == "learn" and "#glossary-alpha" in page.page.url


def test_an_address_leads_straight_to_an_entry(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    page = visit(launch_page(engine) + "?tab=learn#glossary-tau")
    page.page.wait_for_function("() => document.activeElement.id === 'glossary-tau'")
    assert page.page.locator("#glossary-tau h4").is_visible()


# -- narrow, and without scripts ---------------------------------------------------------------------------------------


def test_on_a_phone_nothing_is_wider_than_the_screen_and_all_tabs_can_be_reached(read: Visit) -> None:
    read.page.set_viewport_size({"width": 390, "height": 800})
    for name in ("token", "bound", "verify", "drafters"):
        teach(read, name)
    wide, shown = read.page.evaluate(
        "() => { const v = document.querySelector('#gl-learn'); return [v.scrollWidth, v.clientWidth]; }"
    )
    assert wide <= shown and read.page.evaluate("document.documentElement.scrollWidth") <= 390
    for name in ("chat", "race", "inspect", "learn", "when"):
        read.page.click(f".tabs [data-tab-link={name}]")
        assert read.page.evaluate("document.documentElement.dataset.tab") == name
        box = read.page.locator(f".tabs [data-tab-link={name}]").bounding_box()
        assert box and box["width"] > 20 and box["x"] >= -1 and box["x"] + box["width"] <= 391
    tabs = read.page.locator(".tabs").bounding_box()
    assert tabs and tabs["width"] > 150


def test_without_scripts_the_words_are_in_the_page(engine: FakeEngine, launch_page: LAUNCH) -> None:
    from urllib.request import urlopen

    with urlopen(launch_page(engine) + "config") as answer:
        sent = answer.read().decode("utf-8")
    assert "learn-rule" in sent and "glossary-alpha" in sent
