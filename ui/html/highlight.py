"""Code -> HTML with five kinds of words marked by class names (Pygments); the colours are the style sheet's.

Whatever the language, the text of the HTML is the code, character for character.
"""

from __future__ import annotations

import re
import time
from html import escape
from itertools import groupby

from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Literal, Name, Operator, _TokenType
from pygments.util import ClassNotFound

MAX_CODE = 20_000
"""Characters. Longer code stays plain: while it is being written it is coloured anew twice a second."""

MAX_CPU_S = 0.25
"""CPU time of this thread. Some lexers need time by the square of what they read, if that is made up for it."""

_LANGUAGES = re.compile(
    "asm|awk|bash|batch|c|clojure|cmake|common-lisp|cpp|csharp|css|dart|diff|docker|elixir|erlang|fortran|fsharp|go|"
    "graphql|groovy|haskell|html|ini|java|javascript|js|json|jsx|julia|kotlin|latex|lua|make|markdown|matlab|mysql|"
    "nginx|objective-c|ocaml|perl|php|postgresql|powershell|protobuf|py|python|r|rb|rs|ruby|rust|scala|scss|sh|sql|"
    "swift|toml|ts|tsx|typescript|vb.net|verilog|xml|yaml|yml|zig|c[+][+]|cs|c#|dockerfile|makefile|md|tex|zsh|shell|"
    "objc|hs|pl|ps1|jl|golang|python3|py3|vue|lisp"
)
"""Names of languages that are coloured. What a model writes behind ``` chooses the lexer, and some of the rarer ones
take forever over the wrong text."""

_ROLES: dict[_TokenType, str] = {
    Comment: "comment",
    Comment.Preproc: "keyword",
    Keyword: "keyword",
    Keyword.Constant: "number",
    Operator.Word: "keyword",
    Name.Tag: "keyword",
    Name.Function: "name",
    Name.Class: "name",
    Name.Decorator: "name",
    Literal.String: "string",
    Literal.Number: "number",
}
"""What is shown how; a kind of token that is not here takes the role of the kind that it belongs to."""


def highlight(code: str, language: str) -> str:
    """Safe HTML of `code`. A language that is not known, or "", is plain text."""
    runs = _runs(code, language.lower()) if len(code) <= MAX_CODE else []
    if (
        "".join(text for _, text in runs) != code
    ):  # nothing was coloured, or not all: a lexer may drop a byte order mark
        return escape(code, quote=False)
    return "".join(_span(role, text) for role, text in runs)


def _runs(code: str, language: str) -> list[tuple[str, str]]:
    """(role, text) of neighbours that are shown alike; cut short where it takes too long."""
    if not _LANGUAGES.fullmatch(language):
        return []
    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return []
    tokens: list[tuple[str, str]] = []
    latest = time.thread_time() + MAX_CPU_S
    for kind, text in lexer.get_tokens(code):
        tokens.append((_role(kind), text))
        if time.thread_time() > latest:
            return []
    return [(role, "".join(text for _, text in run)) for role, run in groupby(tokens, lambda one: one[0])]


def _role(kind: _TokenType | None) -> str:
    while kind is not None:
        if kind in _ROLES:
            return _ROLES[kind]
        kind = kind.parent
    return ""


def _span(role: str, text: str) -> str:
    html = escape(text, quote=False)
    return f'<span class="{role}">{html}</span>' if role and not text.isspace() else html
