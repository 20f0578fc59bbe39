"""What a head is trained on: dialogues as tensors, and which of them and of their chains take part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from engine.train.dialogues import Dialogue, digest, mark_repeats
from engine.train.features import Entry, FeatureStore
from engine.train.network import Example

HELD_OUT = 40
"""One dialogue in so many is held out, chosen by its ids, so that it is the same one in every run."""


def is_held_out(dialogue: Dialogue) -> bool:
    return int.from_bytes(digest(dialogue.ids[: dialogue.prompt_len])[:4]) % HELD_OUT == 0


def make_example(store: FeatureStore, entry: Entry) -> Example:
    d = entry.dialogue
    states = torch.from_numpy(np.array(store.states(entry))).float()
    return Example(torch.tensor(d.ids), states[:, :-1], states[:, -1], d.prompt_len - 1)


def thin_chains(example: Example, share: float, rng: torch.Generator | None = None) -> Example:
    """Only `share` of its chains begin where n-gram would draft; all others stay."""
    starts = torch.arange(example.first, len(example.ids) - 1)
    repeats = torch.tensor(mark_repeats(example.ids.tolist()))[starts + 1]
    keep = ~repeats | (torch.rand(len(starts), generator=rng) < share)
    return replace(example, starts=starts[keep])
