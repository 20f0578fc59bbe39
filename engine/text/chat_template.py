"""Chat templates without transformers, whose import alone takes seconds: Jinja in a sandbox, as transformers has it."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.errors import InvalidParams
from engine.text.tokenizer import Render


def compile_template(source: str, name: str, **tokens: str) -> Render:
    """A template's render function. tokens: the control tokens that it may name, such as bos_token.

    The function raises InvalidParams where the template refuses a conversation; `name` is the model's.
    """

    def refuse(message: str) -> NoReturn:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation], optimized=False
    )  # optimised, it would reckon out what is constant: 'a' * 10**10 while it is only read
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    template = environment.from_string(source)

    def render(turns: list[dict[str, str]]) -> str:
        try:
            text = template.render(messages=turns, add_generation_prompt=True, **tokens)
            text.encode()  # half of a surrogate pair is no text
            return text
        except Exception as error:  # the template is the model maker's program, and fails as it likes
            raise InvalidParams(
                "messages", f"The chat template of {name} refuses this conversation: {error}."
            ) from error

    return render


def _to_json(
    value: object, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Jinja's own would escape for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class _Generation(Extension):
    """{% generation %} marks what the assistant writes, for those who train; here it is what stands inside."""

    tags = {"generation"}  # noqa: RUF012 - as the base class has it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
