"""The race command: figures from pairs of replies, over a fake engine and made-up times, so nothing here is timed."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.bench import __main__ as bench
from engine.bench import race
from engine.bench.pairs import BenchReply, reply_of
from engine.bench.race import COLUMNS, Trio, figures, report_of, run_trios, table
from engine.cli.prompts import CATEGORIES, BenchPrompt
from engine.config import DecodingParams, Message, SamplingParams
from engine.events import Round
from engine.serving.engine import Engine
from engine.serving.race import Race
from engine.serving.stream import Stream
from tests.fake_engine import Script, play
from tests.fakes import fake_engine, hashed_logits

pytestmark = pytest.mark.slow

ANY = hashed_logits(257, seed=21)
PARAMS = DecodingParams(SamplingParams(seed=3), "ngram", 3, max_new_tokens=20)


def language(ids: tuple[int, ...]) -> np.ndarray:
    row = ANY(ids).copy()
    row[256] = -50.0
    row[ord("a") + len(ids) % 2] += 6.0
    return row


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    made = fake_engine(language)

    @contextmanager
    def engine_of(args: argparse.Namespace) -> Iterator[Engine]:
        yield made

    monkeypatch.setattr(race, "engine_of", engine_of)
    yield made
    made.close()


def made_up(k: int, slower: float = 1.0) -> BenchReply:
    """Plain rounds of 10 ms for k = 0, whose every time is stretched."""
    events = play(Script(), DecodingParams(SamplingParams(seed=1), "ngram", k, probe_every=0))
    return reply_of([replace(e, total_s=e.total_s * slower) if isinstance(e, Round) else e for e in events])


def trio(raced: tuple[float, float] = (1.0, 1.0), alone: tuple[float, float] = (1.0, 1.0)) -> Trio:
    lanes = [tuple(made_up(k, slower) for k, slower in zip((0, 3), both, strict=True)) for both in (raced, alone)]
    return Trio(BenchPrompt("qa", "p"), *lanes)  # type: ignore[arg-type]


@given(st.tuples(*[st.floats(0.5, 2.0)] * 4))
def test_figures_are_ratios_of_speeds(slower: tuple[float, float, float, float]) -> None:
    same, found = figures(trio()), figures(trio(slower[:2], slower[2:]))
    assert same["race_speedup"] == same["alone_speedup"] and same["speedup_ratio"] == same["plain_ratio"] == 1.0
    base = same["alone_speedup"]
    assert base and base > 1.5
    expected = {
        "race_speedup": base * slower[0] / slower[1],
        "alone_speedup": base * slower[2] / slower[3],
        "speedup_ratio": slower[0] / slower[1] / (slower[2] / slower[3]),
        "plain_ratio": slower[2] / slower[0],
        "spec_ratio": slower[3] / slower[1],
    }
    assert found == pytest.approx(expected) and list(found) == list(COLUMNS)


def test_a_report_has_geometric_means_and_counts_what_is_near() -> None:
    report = report_of([trio((2.0, 1.0)), trio((0.5, 1.0)), trio((1.02, 1.0)), trio((1.05, 1.0))])
    overall = report["overall"]
    assert overall["speedup_ratio"] == pytest.approx((2.0 * 0.5 * 1.02 * 1.05) ** 0.25)
    assert (overall["prompts"], overall["speedup_within_10"], overall["plain_within_3"]) == (4, 2, 1)
    assert "within 10 % on 2" in table(report) and "geometric mean" in table(report)


def test_each_prompt_is_raced_and_played_alone_and_the_order_changes(engine: Engine) -> None:
    asked: list[tuple[str, str | int | None]] = []
    stream, raced = engine.stream, engine.race

    def streaming(messages: list[Message], params: DecodingParams, conversation: str = "") -> Stream:
        asked.append((messages[-1].content, params.num_speculative_tokens))
        assert params.probe_every == 0
        return stream(messages, params, conversation)

    def racing(messages: list[Message], params: DecodingParams, conversation: str = "") -> Race:
        asked.append((messages[-1].content, "race"))
        return raced(messages, params, conversation)

    engine.stream, engine.race = streaming, racing  # type: ignore[method-assign,assignment]
    trios = run_trios(engine, [BenchPrompt("qa", f"p{i}") for i in range(3)], PARAMS, lambda line: None)
    assert asked[0][1] == "race" and [k for _, k in asked[1:]] == [0, 3, "race", 3, "race", 0, "race", 0, 3]
    for found in trios:
        assert len({found.in_race[0].ids, found.in_race[1].ids, found.alone[0].ids, found.alone[1].ids}) == 1
        assert not any(r.num_drafted for r in found.in_race[0].rounds)
        assert any(r.num_drafted for r in found.in_race[1].rounds)


def prompt_file(folder: Path, texts: list[str]) -> str:
    path = folder / "prompts.jsonl"
    lines = [{"category": CATEGORIES[i % 6], "turns": [text]} for i, text in enumerate(texts)]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return str(path)


def test_the_command_writes_what_it_shows(engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = prompt_file(tmp_path, ["a", "x" * 5000, "b", "c"]), tmp_path / "out.json"
    options = ["--k", "3", "--drafter", "ngram", "--max-new-tokens", "12", "--json", str(out)]
    assert bench.main(["race", "--prompts", path, *options]) == 0
    report, shown = json.loads(out.read_text()), capsys.readouterr()
    assert report["overall"]["prompts"] == len(report["prompts"]) == 3 and set(COLUMNS) < set(report["overall"])
    assert report["settings"]["k"] == 3 and report["settings"]["drafter"] == "ngram"
    assert "left out" in shown.err and "geometric mean" in shown.out
