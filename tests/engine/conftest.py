"""What all tests of the engine share."""

from __future__ import annotations

import pytest

from engine.control import profiling as warm_up


@pytest.fixture(autouse=True)
def _short_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks made for a test may act on how long a text is, and must not take the warm-up's for a reply."""
    monkeypatch.setattr(warm_up, "CONTEXT", warm_up.SHORT_CONTEXT)
