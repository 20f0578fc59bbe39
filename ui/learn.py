"""The fixed frame of the tab "Learn"."""

from __future__ import annotations

from ui.render import both


def learn() -> str:
    return (
        '<section class="view learn" data-tab-view="learn" aria-labelledby="gl-learn-name">'
        f'<h2 id="gl-learn-name">{both("learn.title")}</h2><p class="lead">{both("learn.lead")}</p></section>'
    )
