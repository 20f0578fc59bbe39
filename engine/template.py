"""Chat templates without transformers, whose import alone takes seconds: Jinja in its sandbox, as transformers sets it up."""

from __future__ import annotations

from typing import NoReturn

from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.errors import InvalidParams
from engine.text import Render


def compiled_template(source: str, name: str, **tokens: str) -> Render:
    """A template's render function. tokens: the control tokens that it may name, such as bos_token.

    The function raises InvalidParams where the template refuses a conversation; `name` is the model's.
    """

    def refuse(message: str) -> NoReturn:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = refuse
    template = environment.from_string(source)

    def render(turns: list[dict[str, str]]) -> str:
        try:
            return template.render(messages=turns, add_generation_prompt=True, **tokens)
        except TemplateError as error:
            raise InvalidParams(
                "messages", f"The chat template of {name} refuses this conversation: {error}."
            ) from error

    return render
