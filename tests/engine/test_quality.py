"""The arithmetic of `engine.bench quality`, on logits and networks whose distances are known."""

from __future__ import annotations

import json
import math
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.bench import quality
from engine.bench.__main__ import main, parser
from engine.bench.quality import Score, compare, table
from engine.errors import EngineError, LoadError
from engine.loading.load import Loaded
from tests.fakes import FakeNetwork, byte_tokenizer, hashed_logits


def logits_of(*rows: tuple[float, ...]) -> torch.Tensor:
    """Logits, up to a constant, of rows of probabilities."""
    return torch.log(torch.tensor(rows)) + 3.0


def test_divergence_agreement_and_perplexity_are_those_of_the_textbook() -> None:
    reference = logits_of((0.5, 0.25, 0.25), (0.2, 0.7, 0.1))
    path = logits_of((0.25, 0.5, 0.25), (0.1, 0.8, 0.1))
    figures = compare(reference, path, [0, 1]).figures()
    kl = [0.5 * math.log(2) + 0.25 * math.log(0.5), 0.2 * math.log(2) + 0.7 * math.log(0.7 / 0.8)]
    assert figures["tokens"] == 2 and figures["agreement"] == 0.5
    assert figures["kl"] == pytest.approx(sum(kl) / 2, rel=1e-5)
    assert figures["perplexity"] == pytest.approx((0.25 * 0.8) ** -0.5, rel=1e-5)


@given(st.integers(1, 200), st.integers(0, 2**31))
def test_scores_of_parts_add_up_and_divergence_is_never_negative(rows: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    reference, path = (torch.randn(rows, 7, generator=generator) for _ in range(2))
    following = torch.randint(0, 7, (rows,), generator=generator).tolist()
    whole, cut = compare(reference, path, following), rows // 3
    parts = compare(reference[:cut], path[:cut], following[:cut]) + compare(
        reference[cut:], path[cut:], following[cut:]
    )
    assert (whole.tokens, whole.agreeing) == (parts.tokens, parts.agreeing)
    assert whole.kl == pytest.approx(parts.kl) and whole.loss == pytest.approx(parts.loss)
    assert whole.kl >= 0 and compare(reference, reference, following).kl == pytest.approx(0, abs=1e-9)


def loaded(network: FakeNetwork, kernel: str) -> Loaded:
    return Loaded(network, byte_tokenizer(), "fake", "none", kernel, 4096, "cpu")


class Shifted(FakeNetwork):
    """Adds the same number to every logit, which changes no probability, or doubles them."""

    factor = 1.0

    def __call__(self, *args: Any) -> torch.Tensor:
        return super().__call__(*args) * self.factor + 5.0


class Sharper(Shifted):
    factor = 2.0


def fakes(**paths: type[FakeNetwork] | str) -> Any:
    def load(args: Namespace, kernel: str, quant: str) -> Loaded:
        name = next((n for n, way in quality.PATHS.items() if way == (kernel, quant)), "native")
        kind = paths[name]
        if isinstance(kind, str):
            raise LoadError(kind)
        return loaded(kind(257, hashed_logits(257)), name)

    return load


ALL = {"gguf": Shifted, "bf16": Sharper, "int8": FakeNetwork, "nf4": "NF4 is not here.", "fp32": FakeNetwork}


def test_each_path_is_scored_and_what_is_missing_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(quality, "_load", fakes(native=Shifted, **ALL))
    out = tmp_path / "out.json"
    assert main(["quality", "--limit", "3", "--tokens", "300", "--json", str(out)]) == 0
    report = json.loads(out.read_text())
    paths = report["paths"]
    assert set(paths) == {"native", "gguf", "bf16", "int8", "fp32"}
    assert report["unavailable"] == {"nf4": "NF4 is not here."} and report["default"] == "native"
    assert 100 <= paths["fp32"]["tokens"] <= 300 and len({row["tokens"] for row in paths.values()}) == 1
    assert paths["fp32"]["kl"] == 0 and paths["native"]["kl"] == pytest.approx(0, abs=1e-6)
    assert paths["bf16"]["kl"] > 0.1 and paths["bf16"]["agreement"] == 1
    assert paths["native"]["perplexity"] == pytest.approx(paths["fp32"]["perplexity"], rel=1e-4)
    printed = capsys.readouterr().out
    assert "NF4 is not here." in printed and "(the reference)" in printed
    assert printed.rstrip().endswith("are kept")


def test_a_default_that_loses_too_much_is_called_so() -> None:
    row = {"kernel": "k", **Score(100, 3.0, 96, 200.0).figures()}
    report = {"paths": {"native": row}, "unavailable": {}, "default": "native"}
    assert "are NOT kept" in table(report)
    row["kl"] = 0.019
    assert "are kept" in table(report)
    row["agreement"] = 0.95
    assert "are NOT kept" in table(report)


def test_a_file_without_prompts_is_one_sentence_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quality, "_loaded", lambda args: pytest.fail("loaded in vain"))
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(EngineError, match="has no prompts"):
        quality.run(parser().parse_args(["quality", "--prompts", str(tmp_path / "empty.jsonl")]))


def test_without_a_reference_there_is_nothing_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality, "_load", fakes(native=Shifted, **ALL | {"fp32": "No room."}))
    with pytest.raises(EngineError, match="nothing to compare with: No room"):
        quality.run(parser().parse_args(["quality"]))


@pytest.mark.parametrize("options", [["--limit", "0"], ["--limit", "10", "--tokens", "19"]])
def test_numbers_that_make_no_sense_are_one_sentence(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quality", *options]) == 1
    assert capsys.readouterr().err.startswith("bench: --limit must be at least 1")
