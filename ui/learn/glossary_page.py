"""The entries of the glossary as HTML, in both languages. Pure."""

from __future__ import annotations

from html import escape

from ui.html.render import both
from ui.strings import TEXT
from ui.strings.glossary import TERMS, Term


def glossary() -> str:
    """All entries, as a list of terms."""
    return f'<div class="glossary">{"".join(map(entry, TERMS))}</div>'


def entry(term: Term) -> str:
    """One entry: name, meaning, then formula, unit, source and where it is seen, each where there is one."""
    key = f"term.{term.name}"
    formula = f"<code>{both(f'{key}.formula')}</code>" if f"{key}.formula" in TEXT else ""
    unit = both(f"term.unit.{term.unit}") if term.unit else ""
    places = " · ".join(f'<a href="?tab={tab}" data-tab-link="{tab}">{both(f"tab.{tab}")}</a>' for tab in term.seen)
    facts = {"formula": formula, "unit": unit, "source": escape(term.source), "seen": places}
    rows = "".join(
        f"<div><dt>{both(f'learn.glossary.{name}')}</dt><dd>{html}</dd></div>" for name, html in facts.items() if html
    )
    return (
        f'<article id="glossary-{term.name}" tabindex="-1"><h4>{both(key)}</h4><p>{both(f"{key}.is")}</p>'
        f"<dl>{rows}</dl></article>"
    )
