"""Settings that go well together, a press away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ui.controls import TABLE, Control, Value, check

LONG_REPLY = 1024
"""Tokens: how long a reply may be where speculation is to be shown off."""


@dataclass(frozen=True, slots=True)
class Preset:
    """Values by the names of their controls; all others stay as they are. Never the seed, system prompt or stop
    strings."""

    name: str
    values: Mapping[str, Value]


GREEDY: Mapping[str, Value] = {c.name: c.default for c in TABLE if c.group == "sampling" and c.name != "seed"}
"""The likeliest token each time, nothing else; which is what the table begins with."""

PRESETS = (
    Preset("precise", GREEDY),
    Preset("balanced", {**GREEDY, "temperature": 0.7, "top_p": 0.9}),
    Preset("creative", {**GREEDY, "temperature": 1.0, "min_p": 0.05}),
    Preset(
        "show_off",
        {**GREEDY, "drafter": "auto", "num_speculative_tokens": "auto", "max_new_tokens": LONG_REPLY},
    ),
)


def presets(controls: Sequence[Control]) -> tuple[Preset, ...]:
    """The presets, within what this table allows."""
    named = {control.name: control for control in controls}
    return tuple(
        Preset(preset.name, {name: check(named[name], value)[0] for name, value in preset.values.items()})
        for preset in PRESETS
    )
