"""The arithmetic of `engine.bench quality`, on logits and networks whose distances are known."""

from __future__ import annotations

import json
import math
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.bench import quality
from engine.bench.__main__ import main, parser
from engine.bench.quality import Score, compare, table
from engine.errors import EngineError, LoadError
from engine.loading.load import Loaded
from tests.fakes import FakeNetwork, byte_tokenizer, hashed_logits


def logits_of(*rows: tuple[float, ...]) -> torch.Tensor:
    """Logits, up to a constant, of rows of probabilities; more of them than are compared at once."""
    return (torch.log(torch.tensor(rows)) + 3.0).repeat(50, 1)


def test_divergence_agreement_and_perplexity_are_those_of_the_textbook() -> None:
    reference = logits_of((0.5, 0.25, 0.25), (0.2, 0.7, 0.1))
    path = logits_of((0.25, 0.5, 0.25), (0.1, 0.8, 0.1))
    figures = (
        compare(reference[:70], path[:70], [0, 1] * 35) + compare(reference[70:], path[70:], [0, 1] * 15)
    ).figures()
    kl = 0.5 * math.log(2) + 0.25 * math.log(0.5) + 0.2 * math.log(2) + 0.7 * math.log(0.7 / 0.8)
    assert figures == pytest.approx(
        {"tokens": 100, "agreement": 0.5, "kl": kl / 2, "perplexity": (0.25 * 0.8) ** -0.5}, rel=1e-5
    )


class Changed(FakeNetwork):
    """Doubles every logit, or adds the same number to all, which changes no probability."""

    factor, summand = 1.0, 0.0

    def __call__(self, *args: Any) -> torch.Tensor:
        return super().__call__(*args) * self.factor + self.summand


def load(args: Namespace, kernel: str, quant: str) -> Loaded:
    name = next((name for name, path in quality.PATHS.items() if path == (kernel, quant)), "native")
    if name == "nf4":
        raise LoadError("NF4 is not here.")
    network = Changed(257, hashed_logits(257))
    network.factor, network.summand = 1.0 + (name == "bf16"), 5.0 * (name == "native")
    return Loaded(network, byte_tokenizer(), "fake", "none", name, 4096, "cpu")


def test_each_path_is_scored_and_what_is_missing_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(quality, "_load", load)
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
    assert "NF4 is not here." in printed and "(the reference)" in printed and "are kept" in printed


def test_a_default_that_loses_too_much_is_called_so() -> None:
    for kl, agreeing, verdict in ((3.0, 96, "are NOT kept"), (1.9, 96, "are kept"), (1.9, 95, "are NOT kept")):
        row = {"kernel": "k", **Score(100, kl, agreeing, 200.0).figures()}
        assert verdict in table({"paths": {"native": row}, "unavailable": {}, "default": "native"})


def test_what_cannot_be_compared_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    monkeypatch.setattr(quality, "_load", lambda *_: pytest.fail("loaded in vain"))
    numbers = "--limit must be at least 1"
    for options, sentence in (
        (["--prompts", str(tmp_path / "empty.jsonl")], "has no prompts"),
        (["--limit", "0"], numbers),
        (["--limit", "10", "--tokens", "19"], numbers),
        ([], "nothing to compare with: NF4 is not here"),
    ):
        if not options:
            monkeypatch.setattr(quality, "_load", lambda args, kernel, quant: load(args, "torch", "nf4"))
        with pytest.raises(EngineError, match=sentence):
            quality.run(parser().parse_args(["quality", *options]))
