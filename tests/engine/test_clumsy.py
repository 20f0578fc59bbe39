"""What a hurried person types or leaves lying about is one sentence, not a traceback."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from engine.config import (
    BOUNDS,
    DRAFTER_WORDS,
    MAX_K,
    NO_DRAFTER_WORDS,
    DecodingParams,
    EngineConfig,
    SamplingParams,
    format_k,
    parse_k,
)
from engine.errors import EngineError, InvalidParams
from engine.train.features import FeatureStore

BAD: list[tuple[type, str, list[object]]] = [
    (SamplingParams, "temperature", [-0.1, math.nan, "hot", 10**400]),
    (SamplingParams, "top_p", [0.0]),
    (SamplingParams, "top_k", [1.5]),
    (SamplingParams, "min_p", [1.5]),
    (SamplingParams, "seed", [-1, True, 10**400, 2**63]),
    (SamplingParams, "logit_bias", [((-1, 1.0),), ((1, 101.0),)]),
    (DecodingParams, "num_speculative_tokens", [17]),
    (DecodingParams, "max_new_tokens", [0]),
    (DecodingParams, "rule", ["magic"]),
    (DecodingParams, "detail", [True, "more"]),
    (DecodingParams, "stop", [("",), ("x" * 201,), ("x",) * 17]),
    (DecodingParams, "drafter", [""]),
    (EngineConfig, "drafter", [" ", "Auto", "NGRAM", " none", *NO_DRAFTER_WORDS]),
    (EngineConfig, "target", [""]),
    (EngineConfig, "device", ["gpu"]),
]


def test_bad_settings_say_which_and_why() -> None:
    for kind, field, values in BAD:
        for value in values:
            with pytest.raises(InvalidParams, match=field) as caught:
                kind(**{field: value})
            assert caught.value.field == field
            if kind is EngineConfig and field == "drafter" and str(value).strip():
                assert f"not {str(value).strip()!r}: for a folder" in str(caught.value)
    with pytest.raises(InvalidParams, match=f"between 0 and {2**63 - 1}, not {2**63}"):  # in full: they look alike
        SamplingParams(seed=2**63)
    with pytest.raises(InvalidParams, match="leave out --kernel native or --quant nf4"):
        EngineConfig(kernel="native", quant="nf4")
    assert EngineConfig(kernel="native", quant="gguf").quant == "gguf"
    for name in (*DRAFTER_WORDS, "./head", "out/head", "owner/both"):
        assert EngineConfig(drafter=name).drafter == name


@pytest.mark.parametrize("kind", [SamplingParams, DecodingParams, EngineConfig])
def test_each_setting_takes_the_ends_of_its_bounds_and_nothing_beyond(kind: type) -> None:
    """Also its default lies within them; a bias is one of many, and top_p 0 leaves no token."""
    for name, bounds in BOUNDS.items():
        if name not in kind.__dataclass_fields__ or name == "logit_bias":  # type: ignore[attr-defined]
            continue
        default = getattr(kind(), name)
        assert default is None or bounds.low <= default <= bounds.high
        for taken in (bounds.high,) if name == "top_p" else (bounds.low, bounds.high):
            assert getattr(kind(**{name: taken}), name) == taken
        for beyond in (bounds.low - 1, bounds.high + 1):
            with pytest.raises(InvalidParams, match=f"^{name} must be between") as caught:
                kind(**{name: beyond})
            assert caught.value.field == name


def test_k_is_read_one_way_wherever_it_is_asked_for() -> None:
    """Its range is checked with all others, where the request is made."""
    for asked, k in ((None, None), ("auto", None), (0, 0), ("0", 0), (MAX_K, MAX_K), (" 7 ", 7), ("99", 99), (-1, -1)):
        assert parse_k(asked) == k == parse_k(format_k(k))
    words = f"^num_speculative_tokens must be auto or a whole number between 0 and {MAX_K}, not "
    for wrong in ("", "many", "2.5", 3.0, True, [3], "9" * 5000):
        with pytest.raises(InvalidParams, match=words):
            parse_k(wrong)


def test_a_folder_that_cannot_keep_features_or_has_rubbish_among_them_is_one_sentence(tmp_path: Path) -> None:
    def refused(folder: Path) -> None:
        with pytest.raises(EngineError, match="name another folder"):
            FeatureStore(folder, "tiny", (1, 2), 4)

    (tmp_path / "file").touch()
    refused(tmp_path / "file")
    refused(tmp_path / "file" / "below")
    for name in ("features.json", "index.jsonl"):
        for rubbish in (b"\xff\xfe\n", b'{"ids": [1, 2, 3], "prompt_len": 1}\n'):
            store = tmp_path / f"{name} {len(rubbish)}"
            FeatureStore(store, "tiny", (1, 2), 4)
            (store / name).write_bytes(rubbish)
            refused(store)
