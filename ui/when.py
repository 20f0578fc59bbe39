"""The fixed frame of the tab "When to use"."""

from __future__ import annotations

from ui.render import both


def when() -> str:
    return (
        '<section class="view when" data-tab-view="when" aria-labelledby="gl-when-name">'
        f'<h2 id="gl-when-name">{both("tab.when")}</h2></section>'
    )
