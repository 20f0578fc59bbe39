"""What a hurried person types or leaves lying about is one sentence, not a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.config import DRAFTER_WORDS, EngineConfig
from engine.errors import EngineError, InvalidParams
from engine.train.features import FeatureStore


@pytest.mark.parametrize("word", ["head", "both", "off", "draft_model", "n-gram", "Auto", "NGRAM", " none"])
def test_words_for_drafters_that_are_no_names_are_told_apart_from_models(word: str) -> None:
    with pytest.raises(InvalidParams, match=f"not {word.strip()!r}: for a folder"):
        EngineConfig(drafter=word)


@pytest.mark.parametrize("name", [*DRAFTER_WORDS, "./head", "out/head", "owner/both"])
def test_words_and_places_are_taken(name: str) -> None:
    assert EngineConfig(drafter=name).drafter == name


def open_store(folder: Path) -> FeatureStore:
    return FeatureStore(folder, "tiny", (1, 2), 4)


def test_a_folder_that_cannot_keep_features_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(EngineError, match="name another folder"):
            open_store(folder)


@pytest.mark.parametrize("name", ["features.json", "index.jsonl"])
@pytest.mark.parametrize("rubbish", [b"\xff\xfe\n", b'{"ids": [1, 2, 3], "prompt_len": 1}\n'])
def test_rubbish_among_features_is_one_sentence(tmp_path: Path, name: str, rubbish: bytes) -> None:
    open_store(tmp_path)
    (tmp_path / name).write_bytes(rubbish)
    with pytest.raises(EngineError, match="name another folder"):
        open_store(tmp_path)
