"""What all long work that is streamed to the page has in common: how often the page is told, and what an error says
there."""

from __future__ import annotations

from engine import Busy, ContextFull, EngineError
from ui.html.render import both

UPDATE_S = 1 / 12
"""At most so often is the page told. Only the page is paced; the engine runs freely and its queue is emptied each
time."""

BRISK_S = 2.0
CALM_UPDATE_S = 1 / 4
"""A reply longer than BRISK_S is told of less often: each update takes the processor from the engine for some
milliseconds, which a machine with few cores feels (`python -m ui.bench attached`)."""

GLANCE_S = 0.02
"""How soon the queue is looked at again when it was empty, so that the first token shows at once."""

HEARTBEAT_S = 1.0
"""A patch goes out at least so often: Gradio notices a closed page only when it sends, and the page a lost server."""


def pace_s(spent_s: float) -> float:
    """How long until the page is told again of something that has been written for so long."""
    return UPDATE_S if spent_s < BRISK_S else CALM_UPDATE_S


def refusal_notice(refusal: EngineError) -> str:
    """One sentence that says what to do, in both languages where we know the kind."""
    if isinstance(refusal, ContextFull):
        return both("notice.context", prompt=refusal.prompt_tokens, context=refusal.context_len)
    if isinstance(refusal, Busy):
        return both("notice.full")
    return both("notice.failed", message=str(refusal))
