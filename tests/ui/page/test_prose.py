"""Clean reading in a real browser: all of a reply, set as Markdown, and nothing moves under the reader."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fake_engine import FakeEngine, Script
from tests.ui.page.conftest import Visit
from tests.ui.samples import BIG_LIST, NAUGHTY

pytestmark = pytest.mark.browser

LAUNCH = Callable[..., str]
VISIT = Callable[..., Visit]

CODE = 'def f(x):\n    """Twice."""\n\n    return x * 2  # List<int>'
REPLY = f"""A `List<int>`, or List<int>, is what <think> makes of a<b and c>d &lt;.
  two spaces
      six spaces

- one
- two
  1. deep

| a | b |
|---|--:|
| x | 1 |

```python
{CODE}
```

**The end.**
"""
PARAGRAPHS = [f"Paragraph {i} has some words in it, **bold** and plain.\n\n" for i in range(60)]


@pytest.fixture
def page(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> Visit:
    engine.answer = lambda _: Script(text=REPLY)
    return visit(launch_page(engine), permissions=["clipboard-read", "clipboard-write"])


def read(page: Visit, on: bool = True) -> None:
    """Switch to clean reading, or back to colours."""
    page.page.evaluate(
        """(reading) => { const box = document.querySelector('[data-switch=colours]');
            if (box.checked === reading) box.click(); }""",
        on,
    )


def wait_prose(page: Visit, end: str) -> None:
    page.page.wait_for_function(
        "(end) => [...document.querySelectorAll('.turn')].at(-1)?.querySelector('.gl-prose')?.innerText.trim().endsWith(end)",
        arg=end,
    )


def written(page: Visit) -> Visit:
    read(page)
    page.send("hello")
    page.wait_turns(1)
    wait_prose(page, "The end.")
    return page


def test_a_reply_is_set_as_markdown(page: Visit) -> None:
    written(page)
    prose = page.page.locator(".gl-prose")
    assert prose.is_visible() and not page.page.is_visible(".turn .reply")
    first = prose.locator("p").first.inner_text()
    assert (
        first == "A List<int>, or List<int>, is what <think> makes of a<b and c>d &lt;.\n  two spaces\n      six spaces"
    )
    assert page.texts(".gl-prose ul > li > p") == ["one", "two"] and page.texts(".gl-prose ol > li") == ["deep"]
    assert page.texts(".gl-prose th") == ["a", "b"] and page.texts(".gl-prose td") == ["x", "1"]
    assert page.texts(".gl-prose pre code") == [CODE] and page.texts(".gl-prose .language") == ["python"]
    assert (
        len(
            set(
                page.page.eval_on_selector_all(
                    ".gl-prose pre span", "(all) => all.map((e) => getComputedStyle(e).color)"
                )
            )
        )
        >= 4
    )
    assert page.texts(".gl-prose strong") == ["The end."]
    last = "getComputedStyle(document.querySelector('.gl-prose td:last-child'))"
    assert page.page.evaluate(f"[{last}.textAlign, {last}.borderTopWidth]") == ["right", "1px"], "no other rule wins"


def test_both_views_hold_all_of_it(page: Visit) -> None:
    written(page)
    prose = page.page.inner_html(".gl-prose")
    for _ in range(2):
        read(page, False)
        assert page.page.is_visible(".turn .reply") and not page.page.is_visible(".gl-prose")
        assert page.reply() == REPLY
        assert page.page.evaluate("getComputedStyle(document.querySelector('.turn .reply')).whiteSpace") == "pre-wrap"
        read(page)
        assert page.page.is_visible(".gl-prose") and page.page.inner_html(".gl-prose") == prose
    page.page.reload()
    page.page.wait_for_selector(".gl-prose table")
    wait_prose(page, "The end.")
    assert page.page.inner_html(".gl-prose") == prose, "the choice and the reply outlive a reload"


def test_code_is_copied_as_it_was_written(page: Visit, subtests: pytest.Subtests) -> None:
    written(page)
    button = page.page.locator("[data-action=copy-code]")
    for clipboard in (True, False):
        with subtests.test(clipboard=clipboard):
            page.page.evaluate("navigator.clipboard.writeText('something else')")
            if not clipboard:
                page.page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
            page.page.fill("#gl-box textarea", "")
            assert button.inner_text() == "Copy"
            button.click()
            page.page.wait_for_selector("[data-action=copy-code][data-done]")
            assert button.inner_text() == "Copied"
            page.page.wait_for_selector("[data-action=copy-code]:not([data-done])")
            page.page.focus("#gl-box textarea")
            page.page.keyboard.press("Control+V")
            assert page.page.input_value("#gl-box textarea") == CODE
    page.page.click("[data-action=language]")
    assert button.inner_text() == "复制"


def test_selected_text_is_copied_plainly(page: Visit) -> None:
    written(page)
    page.page.evaluate("document.getSelection().selectAllChildren(document.querySelector('.gl-prose'))")
    page.page.keyboard.press("Control+C")
    copied = page.page.evaluate("navigator.clipboard.readText()")
    assert CODE in copied and "      six spaces" in copied and "a<b and c>d" in copied
    assert "Copy" not in copied and "复制" not in copied


def test_what_is_selected_and_scrolled_stays_while_the_reply_grows(page: Visit, engine: FakeEngine) -> None:
    engine.answer = lambda _: Script(pieces=[*PARAGRAPHS, "The end."])
    engine.hold_after = 30
    read(page)
    page.send("hello")
    page.page.wait_for_function("() => document.querySelectorAll('.gl-prose p').length > 25")
    page.page.evaluate(
        """() => { const log = document.querySelector('[data-part=log]'), one = document.querySelectorAll('.gl-prose p')[2];
            log.scrollTop = 0;
            document.getSelection().selectAllChildren(one);
            window.kept = {node: one, log, text: String(document.getSelection()), top: one.getBoundingClientRect().top}; }"""
    )
    engine.gate.set()
    page.wait_turns(1)
    wait_prose(page, "The end.")
    assert page.page.evaluate(
        """() => kept.node.isConnected && kept.log.scrollTop === 0 && String(document.getSelection()) === kept.text
            && kept.node.getBoundingClientRect().top === kept.top"""
    )
    assert len(page.texts(".gl-prose p")) == 61


def test_the_end_is_followed_only_from_the_end(page: Visit, engine: FakeEngine) -> None:
    engine.answer = lambda _: Script(pieces=[*PARAGRAPHS, "The end."])
    read(page)
    page.send("hello")
    page.wait_turns(1)
    wait_prose(page, "The end.")
    assert page.page.evaluate(
        "() => { const log = document.querySelector('[data-part=log]'); return log.scrollHeight - log.scrollTop - "
        "log.clientHeight; }"
    ) < 48  # fmt: skip


def test_within_the_piece_that_grows_only_what_differs_is_replaced(page: Visit, engine: FakeEngine) -> None:
    lines = [f"line_{i} = {'1234567890 + ' * 12}{i}\n" for i in range(40)]
    engine.answer = lambda _: Script(pieces=["```python\n", *lines, "```\n\nThe end."])
    engine.hold_after = 10
    read(page)
    page.send("hello")
    page.page.wait_for_function("() => document.querySelector('.gl-prose pre')?.innerText.includes('line_2')")
    page.page.evaluate("() => { window.pre = document.querySelector('.gl-prose pre'); pre.scrollLeft = 40; }")
    engine.gate.set()
    page.wait_turns(1)
    wait_prose(page, "The end.")
    assert page.page.evaluate("() => pre.isConnected && pre.scrollLeft === 40 && pre.textContent") == "".join(
        lines
    ).rstrip("\n")


def test_tokens_are_shown_until_there_is_prose(page: Visit, engine: FakeEngine) -> None:
    page.send("hello")
    page.wait_turns(1)
    page.page.evaluate(
        """() => { window.blank = false;
            const reply = document.querySelector('.reply'), seen = (one) => Boolean(one?.getClientRects().length);
            const look = () => { blank ||= !seen(reply) && !seen(document.querySelector('.gl-prose')); requestAnimationFrame(look); };
            look(); }"""
    )
    read(page)
    wait_prose(page, "The end.")
    assert page.page.evaluate("() => !blank")


def test_wide_code_and_tables_scroll_within_themselves(engine: FakeEngine, launch_page: LAUNCH, visit: VISIT) -> None:
    wide = "word_" * 60
    columns = 30
    rows = ("|" + "column|" * columns + "\n|" + "-|" * columns + "\n|" + "value|" * columns) + "\n"
    engine.answer = lambda _: Script(
        text=f"{wide}\n\n```\n{wide}\n```\n\n{rows}\n一段很长的中文，没有空格。" * 2 + "\n\nThe end."
    )
    page = visit(launch_page(engine), viewport={"width": 360, "height": 800})
    read(page)
    page.send("hello")
    page.wait_turns(1)
    wait_prose(page, "The end.")
    for width in (360, 1280):
        page.page.set_viewport_size({"width": width, "height": 800})
        assert page.page.evaluate(
            """() => ['.gl-prose pre', '.gl-prose .table'].every((name) => { const one = document.querySelector(name);
                return one.scrollWidth > one.clientWidth && one.tabIndex === 0; })
                && document.documentElement.scrollWidth <= innerWidth
                && document.querySelector('[data-part=log]').scrollWidth <= document.querySelector('[data-part=log]').clientWidth"""
        ), width


def test_nothing_that_a_model_says_runs(page: Visit, engine: FakeEngine) -> None:
    every = [one.replace("\0", "") for one in (*NAUGHTY, *BIG_LIST)]
    forms = ("{}", "- {}", "|x|\n|-|\n|{}|", "```{}\n{}\n```", "[{}](http://x)", "[x]({})", "![{}]({})", "<{}>")
    text = "\n\n".join(form.replace("{}", one) for one in every for form in forms) + "\n\n~~~\n~~~\n\nThe end."
    engine.answer = lambda _: Script(pieces=[text[:900], text[900:]])
    page.page.evaluate("() => { window.alert = () => { throw new Error('a script ran'); }; }")
    read(page)
    page.send("hello")
    page.wait_turns(1)
    page.page.wait_for_selector(".gl-prose code")
    assert page.page.evaluate(
        """() => [...document.querySelectorAll('.gl-prose *')].every((one) => !['SCRIPT', 'IMG', 'IFRAME', 'STYLE', 'LINK', 'OBJECT'].includes(one.tagName)
            && ![...one.attributes].some(({name}) => name.startsWith('on') || name === 'style' || name === 'src')
            && (one.tagName !== 'A' || ['http:', 'https:', 'mailto:'].includes(one.protocol)))"""
    )
    assert not page.outside
