"""The experiments by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.lab.asked import Asked
from engine.lab.comparisons import k, length, temperature, text
from engine.lab.rate import Rate
from engine.lab.rig import Experiment, Rig
from engine.lab.rows import Rows
from engine.lab.values import Name

EXPERIMENTS: Mapping[Name, Callable[[Rig, Asked], Experiment]] = {
    Name.RATE: Rate,
    Name.LENGTH: length,
    Name.K: k,
    Name.TEMPERATURE: temperature,
    Name.TEXT: text,
    Name.ROWS: Rows,
}
