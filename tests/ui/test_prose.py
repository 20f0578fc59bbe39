"""Clean reading: pieces that stay while a reply grows, safe HTML, and nothing that the model wrote is lost."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.ui.samples import BIG_LIST, NAUGHTY
from ui.html.highlight import MAX_CODE, highlight
from ui.html.prose import MAX_CHUNK, answer, chunks, render

ALLOWED = """p class|h4|h5|h6|ul|ol start|li value|blockquote|hr|em|strong|s|code|a href title rel target|pre tabindex role aria-label
dir|div class tabindex role aria-label|span class lang|button type data-action|svg class viewbox aria-hidden|path d|table|thead|
tbody|tr|th class|td class"""
"""Every element that may appear, with its attributes."""

KNOWN = {words.split()[0]: set(words.split()[1:]) for words in ALLOWED.replace("\n", " ").split("|")}

MARKUP = [
    "*", "**", "_", "__", "~~", "`", "```", "~~~", "#", "## ", "> ", ">", "- ", "* ", "1. ", "7) ", "---", "===", "|", "|-|", "|--|:-:|\n",
    "[", "](", ")", "![", "](http://a.b/c?d=e&f)", "](javascript:alert(1))", "<http://x.y>", "<", ">", "&lt;", "&#65;", "\\", "\n", "\n\n",
    "    ", "  \n", "\t", " ", "[a]: http://b", '"t"', "python", "<think>", "List<int>", "`a|b`", "\r\n", "　", "重点", "：", "é", "\u00a0",
]  # fmt: skip
WRITTEN = st.lists(st.sampled_from(MARKUP) | st.text(st.characters(exclude_categories=["Cs"]), max_size=6), max_size=30).map("".join)  # fmt: skip


class Seen(HTMLParser):
    """What can be read: the text, without the page's own words, and where a link ends, its address as it was
    written."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.text = ""
        self.codes: list[str] = []
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self._titles: list[str] = []
        self._in: list[str] = []
        self.feed(html)
        self.close()
        assert not self._in, f"left open: {self._in}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = dict(attrs)
        assert tag in KNOWN and set(has) <= KNOWN[tag], (tag, attrs)
        self.tags.append(tag)
        if tag == "a":
            self.addresses.append(has["href"] or "")
            assert self.addresses[-1].lower().startswith(("http://", "https://", "mailto:"))
            assert has["rel"] == "noopener noreferrer nofollow" and has["target"] == "_blank"
            self._titles.append(has.get("title") or "")
        if tag == "pre":
            self.codes.append("")
        if tag == "li" and has.get("value"):
            self.text += f"{has['value']} "
        if tag not in ("hr", "path"):
            self._in.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == "path":
            return
        assert self._in.pop() == tag
        if tag == "a":
            title = self._titles.pop()
            self.text += "" if self.text.endswith(title) else f" {title} "

    def handle_data(self, data: str) -> None:
        if "button" not in self._in:
            self.text += data
            if "pre" in self._in:
                self.codes[-1] += data


def seen(source: str) -> Seen:
    return Seen("".join(map(render, chunks(source))))


def letters(text: str) -> str:
    """What is certainly no markup."""
    return "".join(char for char in text if char.isalnum() or (char > "\x7f" and not char.isspace()))


def counted(text: str) -> str:
    """Letters, with the zeros gone that a list's numbers may begin with."""
    return re.sub(r"[0-9]+", lambda number: str(int(number[0])), letters(text))


@given(WRITTEN, WRITTEN)
def test_all_pieces_but_the_last_stay_while_the_text_grows(before: str, after: str) -> None:
    first, later = chunks(before), chunks(before + after)
    assert "".join(first) == before and "".join(later) == before + after
    assert all(first) and later[: max(0, len(first) - 1)] == first[:-1]


@given(WRITTEN)
def test_however_it_is_cut_all_of_it_can_be_read_and_only_known_elements_appear(source: str) -> None:
    assert counted(seen(source).text) == counted(source.replace("\0", "\ufffd"))


def test_naughty_text_stays_text() -> None:
    for payload in (*NAUGHTY, *BIG_LIST):
        shown = payload.replace("\0", "\ufffd")
        for around in ("a {} b", "- {}", "|x|\n|-|\n|{}|", "```{}\n{}\n```", "[{}](http://x)"):
            assert letters(shown) in letters(seen(around.replace("{}", payload)).text), around
        code = seen(f"~~~\n{payload}\n~~~").codes[0]
        assert code.rstrip("\n") == shown.replace("\r", "\n").rstrip("\n")


PLAIN = r"""
List<int>
<think>hm</think>
a<b and c>d
&lt;b&gt; &amp; &#65;
  two\n   three\n      six
f(a, *b, **c)
2*3*4 and 2**3**4
__init__.py
snake_case_name
[a]: http://b
Such as:\n-
x  y   z
[1] and [x](y)
![alt](data:image/png;base64,AAAA)
[js](javascript:alert(1))
　　段落
<std::vector>
a\n===
5 ~ 6 ~ 7
"""
"""No markup; line breaks as \\n."""


def test_what_is_no_markup_is_shown_character_for_character() -> None:
    sources = [row.replace("\\n", "\n") for row in PLAIN.strip("\n").split("\n")]
    assert [source for source in (*sources, "> " * 200 + "x") if seen(source).text != source] == []


def test_markdown() -> None:
    for source, html in (
        ("**b** *i* ~~s~~ `c`", "<p><strong>b</strong> <em>i</em> <s>s</s> <code>c</code></p>"),
        ("**注意：**请看**重点**。", "<p><strong>注意：</strong>请看<strong>重点</strong>。</p>"),
        ("# a\n### b", "<h4>a</h4><h6>b</h6>"),
        ("a\n---\nb", "<p>a</p><hr>\n<p>b</p>"),
        ("a  \nb\\\nc\nd", "<p>a\nb\nc\nd</p>"),
    ):
        assert render(source) == html
    assert re.findall(r'value="(\d+)"', render("3. a\n4. b\n9. c")) == ["3", "4", "9"]
    html = render("|a|b|\n|:-:|--:|\n|1|2|3|\n|x|")
    assert "1 2 | 3 x" in " ".join(Seen(html).text.split())
    assert '<th class="center">' in html and 'role="region"' in html and 'tabindex="0"' in html
    read = seen('[here](https://a.b/ü "why") [](http://c) <m@n.o> ![cat](http://d)')
    assert [address[:14] for address in read.addresses] == ["https://a.b/%C", "http://c", "mailto:m@n.o", "http://d"]
    assert 'here https://a.b/ü "why"' in read.text and "http://c" in read.text and "!cat" in read.text


def test_code_is_coloured_and_verbatim() -> None:
    source = 'def f(x):  # why\n\treturn "<b>" * 2\n\n  class  A: pass'
    html = render(f"```python\n{source}\n```")
    assert Seen(html).codes == [source] and 'data-action="copy-code"' in html
    for role in ("keyword", "comment", "string", "number", "name", "language"):
        assert f'<span class="{role}">' in html
    for language in ("", "klingon", "../../x", 'py"><b>', "PYTHON"):
        assert Seen(render(f"```{language}\na < b\n```")).codes == ["a < b"]
        assert ("<span" in highlight("class A: pass", language)) == (language == "PYTHON")
    assert "<span" not in highlight("class A: pass\n" * (MAX_CODE // 10), "python"), "too long"
    for end in ("", "\n```", "\n```\n\nafter"):
        assert seen(f"before\n\n```py\na = 1\n\nb = 2{end}").codes == ["a = 1\n\nb = 2"], "not finished"


@given(st.sampled_from(["python", "js", "html", "c", "bash", "yaml"]), st.text(max_size=200))
def test_colouring_changes_no_character(language: str, code: str) -> None:
    code = code.replace("\0", "")
    assert Seen(f"<pre>{highlight(code, language)}</pre>").codes == [code]


CUTS = r"""
a|b|c
- a\n\n- b\n\n  more|after
1. a\n\n2. b\n\n10
1. a\n\n2. b|10 apples
~~~~\na\n\n~~~\n\nb\n~~~~|c
- ```py\n  a\n\n  b\n  ```|c
a\n\n    code|b
\n\na\n\n\n\n
"""
"""Replies, set apart by | where they are cut; line breaks as \\n."""


def test_where_a_reply_is_cut() -> None:
    for row in CUTS.strip("\n").split("\n"):
        pieces = row.replace("\\n", "\n").split("|")
        assert len(chunks("\n\n".join(pieces))) == len(pieces), row
    assert not chunks("")


def test_no_depth_is_too_deep() -> None:
    for part in (">", "[", "*", "`", "- ", "1. ", "[a](", "<", "> a\n", "|", "**a*", "\\", "[[a](http://b)"):
        read = seen(part * 3_000)
        assert letters(read.text) == letters(part * 3_000) and (read.text.strip() or {"hr", "pre"} & set(read.tags))
    assert seen("*a* " * MAX_CHUNK).text.startswith("*a* *a*"), "too long"


def test_answer_gives_what_the_page_lacks() -> None:
    pieces = ["<p>a</p>", "<p>b</p>", "<h4>c</h4>"]
    for have, begins in ((0, 0), (2, 2), (99, 3), (-5, 0)):
        assert answer("a\n\nb\n\n# c", have) == {"from": begins, "chunks": pieces[begins:], "total": 3}


def colours(sheet: str, theme: str) -> dict[str, str]:
    text = (Path("assets/style") / f"{sheet}.css").read_text()
    block = re.search(rf"{re.escape(theme)} \{{(.*?)\}}", text, re.DOTALL)
    assert block
    return dict(re.findall(r"(--gl-[a-z-]+): (#[0-9a-f]{6})", block[1]))


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def test_words_of_code_can_be_read_on_their_ground() -> None:
    for theme in (":root", ".dark"):
        ground, roles = luminance(colours("colours", theme)["--gl-raised"]), colours("prose", theme)
        assert len(roles) == 5
        for name, colour in roles.items():
            darker, lighter = sorted((ground, luminance(colour)))
            assert (lighter + 0.05) / (darker + 0.05) >= 4.5, name
