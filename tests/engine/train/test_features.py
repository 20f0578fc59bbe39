"""Features are computed once, stay with their dialogue whatever a stop cut short, and are never mixed up."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from torch import Tensor

from engine.errors import EngineError
from engine.networks.attention import Span, keep_features
from engine.networks.model import Model
from engine.train.dialogues import Dialogue
from engine.train.features import FeatureStore, fill
from tests.fakes import FakeNetwork, hashed_logits

LAYERS, HIDDEN = (0, 2), 2
DIALOGUES = [Dialogue(tuple(range(i, i + 4 + i % 3)), 2, 0.0) for i in range(12)]


class Network(FakeNetwork):
    """Hidden states are position and token, and each layer adds its number."""

    def __call__(self, token_ids: Tensor, positions: Tensor, spans: Sequence[Span], logit_rows: Tensor) -> Tensor:
        for layer in LAYERS:
            states = token_ids.new_tensor([positions.tolist(), token_ids.tolist()]).T.float() + layer
            keep_features(layer, states, spans)
        self.rows.append(len(token_ids))
        return logit_rows.new_zeros(len(logit_rows), self.vocab_size).float()


def opened(folder: Path) -> FeatureStore:
    return FeatureStore(folder, "fake", LAYERS, HIDDEN)


def filled(
    store: FeatureStore, dialogues: Sequence[Dialogue], context_len: int = 64
) -> tuple[int, list[tuple[int, int]]]:
    """Rows that were computed, and what was reported."""
    network, said = Network(64, hashed_logits(64)), []
    fill(store, Model(network, context_len), dialogues, lambda done, total: said.append((done, total)))
    return sum(network.rows), said


def check(store: FeatureStore, dialogues: Sequence[Dialogue]) -> None:
    assert [entry.dialogue for entry in store.entries] == list(dialogues)
    for entry in store.entries:
        states = store.states(entry)
        assert states.shape == (len(entry.dialogue.ids), len(LAYERS), HIDDEN)
        for index, layer in enumerate(LAYERS):
            assert (states[:, index, 0] - layer).tolist() == list(range(len(entry.dialogue.ids)))
            assert (states[:, index, 1] - layer).tolist() == list(entry.dialogue.ids)


def test_each_dialogue_is_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.train.features.PASS_TOKENS", 14)
    tokens = sum(len(d.ids) for d in DIALOGUES)
    rows, said = filled(opened(tmp_path), [*DIALOGUES[:5], *DIALOGUES[2:4]])
    assert rows == sum(len(d.ids) for d in DIALOGUES[:5]) == said[-1][0] == said[-1][1] and len(said) > 1
    check(opened(tmp_path), DIALOGUES[:5])
    again, _ = filled(opened(tmp_path), DIALOGUES)
    assert rows + again == tokens
    check(opened(tmp_path), DIALOGUES)
    assert filled(opened(tmp_path), DIALOGUES) == (0, [])


@pytest.mark.parametrize("cut", [1, 31])
@pytest.mark.parametrize("file", ["index.jsonl", "states.f16"])
def test_what_a_stop_cut_short_is_computed_again(tmp_path: Path, file: str, cut: int) -> None:
    filled(opened(tmp_path), DIALOGUES[:6])
    os.truncate(tmp_path / file, (tmp_path / file).stat().st_size - cut)
    store = opened(tmp_path)
    assert 0 < len(store.entries) < 6
    check(store, DIALOGUES[: len(store.entries)])
    filled(store, list(reversed(DIALOGUES[:9])))  # others come where the lost ones were
    found = opened(tmp_path)
    assert {entry.dialogue for entry in found.entries} == set(DIALOGUES[:9]) and len(found.entries) == 9
    check(found, [entry.dialogue for entry in found.entries])


@pytest.mark.parametrize("facts", [("other", LAYERS, HIDDEN), ("fake", (0, 1), HIDDEN), ("fake", LAYERS, 3)])
def test_a_folder_of_another_target_is_refused(tmp_path: Path, facts: tuple[str, Sequence[int], int]) -> None:
    filled(opened(tmp_path), DIALOGUES[:2])
    with pytest.raises(EngineError, match="name another folder"):
        FeatureStore(tmp_path, *facts)
    (tmp_path / "features.json").write_text("{damaged")
    with pytest.raises(EngineError, match="name another folder"):
        opened(tmp_path)
