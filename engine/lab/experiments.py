"""The experiments by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.lab.comparisons import k, length, temperature, text
from engine.lab.concurrency import Rate
from engine.lab.context import Experiment, Rig
from engine.lab.forward_cost import Rows
from engine.lab.request import Asked
from engine.lab.results import Name

EXPERIMENTS: Mapping[Name, Callable[[Rig, Asked], Experiment]] = {
    Name.RATE: Rate,
    Name.LENGTH: length,
    Name.K: k,
    Name.TEMPERATURE: temperature,
    Name.TEXT: text,
    Name.ROWS: Rows,
}
