"""The two ends of one experiment."""

from __future__ import annotations

from engine.lab.results import Failed, Report, Result
from engine.serving.stream import Channel


class Reports(Channel[Report]):
    """Any number of `Step`, then one `Result`, or `Failed`. After `cancel` it is a Result of what
    was measured so far."""

    ends = (Result, Failed)
