"""How loading tells how far it is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, float | None], None]
"""progress(phase, fraction): phase "fetch" or "unpack" here, elsewhere "compile", "convert" or "load"; fraction 0..1,
None where unknown."""
