"""Chat templates, rendered as transformers renders them."""

from __future__ import annotations

from datetime import datetime

import pytest

from engine.errors import InvalidParams
from engine.text.chat_template import compile_template

TURNS = [{"role": "system", "content": "Sei nett <b> & 你好"}, {"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages | tojson }}{{ messages | tojson(indent=2) }}",
        "{% for m in messages %}{% if m.role == 'user' %}{% continue %}{% endif %}{{ m.content }}{% endfor %}",
        "{% for m in messages %}{{ m.content }}{% break %}{% endfor %}",
        "{% for m in messages %}\n  {% generation %}{{ m.content }}{% endgeneration %}\n{% endfor %}",
        "{{ strftime_now('%Y') }}{{ bos_token }}{% if add_generation_prompt %}>{% endif %}",
    ],
)
def test_what_templates_may_use_means_what_it_means_to_transformers(source: str) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    [theirs], _ = render_jinja_template([TURNS], chat_template=source, add_generation_prompt=True, bos_token="<s>")
    assert compile_template(source, "m", bos_token="<s>")(TURNS) == theirs
    assert theirs.strip() not in ("", str(datetime.now().year))


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('no') }}",
        "{{ 1 / 0 }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ nobody.at.home }}",
        "{{ 1 + '' }}",
    ],
)
def test_a_template_that_fails_refuses_the_conversation(source: str) -> None:
    with pytest.raises(InvalidParams, match="The chat template of m refuses this conversation"):
        compile_template(source, "m")(TURNS)
