"""speed and lossless as commands: several K, the cost of a round, progress, and an end in the midst of it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.bench import __main__ as bench
from engine.bench import options, replies
from engine.bench.pairs import run_pairs
from engine.bench.round_costs import PARTS, cost_table, costs, costs_of, sampling_share
from engine.cli.prompts import CATEGORIES, BenchPrompt
from engine.config import DecodingParams, Message, SamplingParams
from engine.events import Round, RoundKind
from engine.serving.engine import Engine
from engine.serving.stream import Stream
from tests.fake_engine import Script, play
from tests.fakes import fake_engine, hashed_logits

pytestmark = pytest.mark.slow

ANY = hashed_logits(257, seed=21)
PARAMS = DecodingParams(SamplingParams(seed=3), "ngram", 3, max_new_tokens=40)


def LANGUAGE(ids: tuple[int, ...]) -> Any:
    row = ANY(ids).copy()
    row[256] = -50.0
    row[ord("a") + len(ids) % 2] += 6.0  # repeats itself, so that the n-gram drafter has something to offer
    return row


def prompt_file(folder: Path, count: int = 6) -> Path:
    path = folder / "prompts.jsonl"
    lines = [{"category": CATEGORIES[i % 6], "turns": [f"prompt {i}"]} for i in range(count)]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    made = fake_engine(LANGUAGE)

    @contextmanager
    def engine_of(args: argparse.Namespace, drafter: str = "ngram") -> Iterator[Engine]:
        yield made

    monkeypatch.setattr(replies, "engine_of", engine_of)
    yield made
    made.close()


@pytest.mark.parametrize("command", ["speed", "lossless", "baseline"])
def test_an_end_before_the_end_is_marked_and_written(
    command: str, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = engine.stream

    def interrupted(messages: list[Message], params: DecodingParams, conversation: str = "") -> Stream:
        if messages[-1].content == "prompt 3":
            raise KeyboardInterrupt
        return stream(messages, params, conversation)

    out, path = tmp_path / "out.json", str(prompt_file(tmp_path))
    arguments = [command, "--prompts", path, "--max-new-tokens", "12", "--json", str(out)]
    assert bench.main(arguments) == 0
    assert "partial" not in json.loads(out.read_text()) and "partial" not in capsys.readouterr().out
    monkeypatch.setattr(engine, "stream", interrupted)
    assert bench.main(arguments) == bench.INTERRUPTED
    report, shown = json.loads(out.read_text()), capsys.readouterr()
    assert report["partial"] is True and "partial: interrupted" in shown.out and "3 of 6" in shown.err
    assert (report if command == "baseline" else report["overall"])["prompts"] == 3


def test_a_drawn_text_is_not_said_to_be_the_same(
    engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rejection sampling promises the distribution; greedy decoding and shared noise promise the text."""
    out, path = tmp_path / "out.json", str(prompt_file(tmp_path))
    drawn = ["--prompts", path, "--max-new-tokens", "12", "--temperature", "0.8", "--top-p", "0.9"]
    assert bench.main(["speed", *drawn, "--json", str(out)]) == 0
    report, shown = json.loads(out.read_text()), capsys.readouterr()
    assert report["settings"]["k"] == report["settings"]["drafter"] == "auto"
    assert report["overall"]["identical"] is None and report["overall"]["speedup"] > 0
    assert "same text" not in shown.err and "differs" not in shown.err
    assert bench.main(["speed", *drawn, "--rule", "shared_noise", "--json", str(out)]) == 0
    assert json.loads(out.read_text())["overall"]["identical"] == 6 and "same text" in capsys.readouterr().err
    assert bench.main(["lossless", *drawn]) == 1
    assert "--rule shared_noise" in capsys.readouterr().err


def test_lossless_reports_each_k_and_every_difference(engine: Engine, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    arguments = ["lossless", "--prompts", str(prompt_file(tmp_path)), "--k", "3,7", "--max-new-tokens", "12"]
    assert bench.main([*arguments, "--rule", "shared_noise", "--temperature", "1", "--json", str(out)]) == 0
    report = json.loads(out.read_text())
    assert set(report["by_k"]) == {"3", "7"} and report["differences"] == []
    assert report["overall"]["identical"] == report["overall"]["prompts"] == 12
    assert all(part["overall"]["identical"] == 6 for part in report["by_k"].values())
    settings = report["settings"]
    assert settings["k"] == [3, 7] and settings["rule"] == "shared_noise" and settings["prompts"] == 6


def test_speed_with_one_k_and_a_profile(engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    path = str(prompt_file(tmp_path))
    options = ["--k", "3", "--max-new-tokens", "12", "--profile", "--json", str(out)]
    assert bench.main(["speed", "--prompts", path, *options]) == 0
    report = json.loads(out.read_text())
    assert report["settings"]["k"] == 3 and "by_k" not in report and "differences" not in report
    assert {"plain_tok_s", "spec_tok_s", "speedup"} <= set(report["overall"])
    assert set(report["profile"]) == {"speculative", "drafted", "plain"}
    assert "sampling's share" in capsys.readouterr().out


def rounds_of(k: int) -> list[Round]:
    """Made-up rounds of 10 ms: 1 ms of drafting with drafts, 8 of the forward, 0.5 of sampling, the rest for the
    rest."""
    params = DecodingParams(SamplingParams(seed=1), "ngram", k, probe_every=0)
    return [event for event in play(Script(), params) if isinstance(event, Round)]


def test_costs_are_means_and_their_shares_make_a_whole() -> None:
    spec = costs(rounds_of(4))
    assert spec is not None
    assert spec["total_ms"] == pytest.approx(10) and spec["verify_ms"] == pytest.approx(8)
    assert spec["draft_ms"] == pytest.approx(1) and spec["sample_share"] == pytest.approx(0.05)
    assert sum(spec[f"{part}_share"] for part in PARTS) == pytest.approx(1)
    assert sum(spec[f"{part}_ms"] for part in PARTS) == pytest.approx(spec["total_ms"])
    assert 4 < spec["rows"] <= 5 and 1 <= spec["tokens"] <= 5
    plain = costs(rounds_of(0))
    assert plain is not None and plain["draft_ms"] == 0 and plain["rows"] == plain["tokens"] == 1
    assert costs([]) is None


def test_costs_keep_speculative_and_plain_rounds_apart(engine: Engine) -> None:
    runs = run_pairs(engine, [BenchPrompt("qa", f"p{i}") for i in range(3)], PARAMS, lambda line: None, (3, 7))
    found = costs_of(runs)
    plain, spec, drafted = found["plain"], found["speculative"], found["drafted"]
    assert plain is not None and spec is not None and drafted is not None
    assert plain["rounds"] == 3 * 39, "the plain replies count once, not once for each K"
    assert spec["rounds"] == sum(r.kind is RoundKind.SPECULATIVE for run in runs for r in run.spec.rounds)
    assert drafted["rounds"] < spec["rounds"] and drafted["rows"] > spec["rows"] > plain["rows"] == 1
    assert "of these with drafts" in cost_table(found) and f"{plain['sample_share']:.1%} (plain)" in sampling_share(
        found
    )
    silent = replace(runs[0], spec=replace(runs[0].spec, rounds=()))
    assert costs_of([silent])["drafted"] is None and "with drafts" not in cost_table(costs_of([silent]))


def test_options_are_read_as_they_are_meant(capsys: pytest.CaptureFixture[str]) -> None:
    parse = bench.parser().parse_args
    for text, expected in (("3", [3]), ("3,7,auto", [3, 7, None]), ("0, 16,0", [0, 16])):
        assert parse(["lossless", "--prompts", "p", "--k", text]).k == expected
    for more, drafters in (
        ([], ("auto", "auto")),
        (["--drafter", "ngram"], ("ngram", "ngram")),
        (["--drafter", "head"], ("auto", "head")),
        (["--drafter", "both", "--head", "folder"], ("folder", "both")),
        (["--drafter", "useless"], ("auto", "auto")),
        (["--drafter", "folder"], ("folder", "auto")),
    ):
        args = parse(["speed", "--prompts", "p", *more])
        assert options.drafters_of(args) == drafters
        assert options.params_of(args, None).drafter == drafters[1]
    with pytest.raises(SystemExit):
        parse(["speed", "--prompts", "p", "--k", "3;7"])
    assert "--k" in capsys.readouterr().err
