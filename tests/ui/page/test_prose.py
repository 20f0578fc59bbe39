"""Clean reading in a real browser: all of a reply, set as Markdown, and nothing moves under the reader."""

from __future__ import annotations

import pytest

from tests.fake_engine import FakeEngine, Script
from tests.ui.page.conftest import BOX, Visit
from tests.ui.page.test_chat import LANGUAGE

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
PARTS = {"ul > li > p": ["one", "two"], "ol > li": ["deep"], "th": ["a", "b"], "td": ["x", "1"], "pre code": [CODE],
         ".language": ["python"], "strong": ["The end."]}  # fmt: skip
TEXT = "".join(f"Paragraph {i} has some words in it, **bold** and plain.\n\n" for i in range(24)) + "The end."
LINES = [f"line_{i} = {'1234567890 + ' * 12}{i}\n" for i in range(20)]
COLOURS = "[data-switch=colours]"
LAST = ".turn:last-child .gl-prose"


@pytest.mark.browser
def test_clean_reading(page: Visit, engine: FakeEngine) -> None:
    engine.answer = lambda _: Script(REPLY)
    page.talk("hello")
    tokens = "getComputedStyle(document.querySelector('.turn .reply'))"
    display = page.evaluate(f"() => {{ document.querySelector('{COLOURS}').click(); return {tokens}.display; }}")
    assert display != "none", "tokens are shown until there is prose"
    page.says(LAST, "The end.")
    page.hidden(".turn .reply")
    first = "A List<int>, or List<int>, is what <think> makes of a<b and c>d &lt;.\n  two spaces\n      six spaces"
    assert page.inner_text(f"{LAST} p >> nth=0") == first
    assert {place: page.texts(f"{LAST} {place}") for place in PARTS} == PARTS
    colours = "(all) => new Set(all.map((one) => getComputedStyle(one).color)).size"
    assert page.eval_on_selector_all(f"{LAST} pre span", colours) >= 4
    cell = f"getComputedStyle(document.querySelector('{LAST} td:last-child'))"
    assert page.evaluate(f"[{cell}.textAlign, {cell}.borderTopWidth]") == ["right", "1px"], "no other rule wins"
    prose = page.inner_html(LAST)
    page.click(COLOURS)
    page.hidden(LAST)
    assert page.reply() == REPLY and page.evaluate(f"{tokens}.whiteSpace") == "pre-wrap"
    page.click(COLOURS)
    page.visible(LAST)
    assert page.inner_html(LAST) == prose
    page.reload()
    page.says(LAST, "The end.")
    assert page.inner_html(LAST) == prose, "the choice and the reply outlive a reload"

    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.evaluate(f"document.getSelection().selectAllChildren(document.querySelector('{LAST}'))")
    page.keys("Control+C")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert CODE in copied and "      six spaces" in copied and "Copy" not in copied
    button = "[data-action=copy-code]"
    for spoil in ("navigator.clipboard.writeText('x')", "Object.defineProperty(navigator, 'clipboard', {value: null})"):
        page.evaluate(f"() => {{ {spoil}; }}")
        page.click(f"{button}:not([data-done])")
        page.says(f"{button}[data-done]", "Copied")
        page.fill(BOX, "")
        page.press(BOX, "Control+V")
        page.holds(BOX, CODE)
    page.click(LANGUAGE)
    page.says(button, "复制")

    # A reply that grows moves nothing that is read or selected
    engine.answer, engine.hold_after = lambda _: Script(TEXT), 250
    page.set_viewport_size({"width": 1280, "height": 500})  # so that it can be read far from its end
    page.send("text")
    page.until(f"{LAST} p", "(all) => all.length > 12")
    page.evaluate(
        """(place) => { const one = document.querySelectorAll(place)[2];
            one.scrollIntoView();
            document.getSelection().selectAllChildren(one);
            window.read = () => [one.isConnected, String(document.getSelection()), Math.round(one.getBoundingClientRect().top)];
            window.before = read(); }""",
        f"{LAST} p",
    )
    engine.gate.set()
    page.says(f"{LAST} p:last-of-type", "The end.")
    assert page.evaluate("() => read()") == page.evaluate("() => before")
    assert len(page.texts(f"{LAST} p")) == 25

    # nor within a piece of code
    engine.gate.clear()
    engine.answer, engine.hold_after = lambda _: Script(pieces=["```python\n", *LINES, "```\n\nThe end."]), 10
    page.send("code")
    page.says(f"{LAST} pre", "line_2")
    page.evaluate("(place) => { window.pre = document.querySelector(place); pre.scrollLeft = 40; }", f"{LAST} pre")
    engine.gate.set()
    page.says(f"{LAST} p", "The end.")
    assert page.evaluate("() => [pre.isConnected, pre.scrollLeft, pre.textContent]") == [
        True,
        40,
        "".join(LINES).rstrip(),
    ]
    log = "document.querySelector('[data-part=log]')"
    page.wait(f"() => {log}.scrollHeight - {log}.scrollTop - {log}.clientHeight < 48")  # the end is followed
