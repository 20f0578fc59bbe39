"""rows and contexts: what is asked of the model, and the arithmetic of the reports. Nothing here is timed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from engine.bench import __main__ as bench
from engine.bench import contexts, rows
from engine.cli.prompts import BenchPrompt
from engine.config import DecodingParams, Message, SamplingParams
from engine.loading import load as loading
from engine.networks.model import Model
from engine.serving.stream import Stream
from tests.fakes import FakeLoaded, FakeNetwork, byte_tokenizer, fake_engine, hashed_logits

pytestmark = pytest.mark.slow

LANGUAGE = hashed_logits(257, seed=21)
COUNTS = [str(count) for count in range(1, 17)]


class Silent(FakeNetwork):
    """Answers zeros, so that long contexts cost a test nothing; its weights are 1 MB."""

    def __init__(self) -> None:
        super().__init__(257, lambda ids: LANGUAGE(ids[-1:]))
        self.weight_bytes = 1_000_000


def test_each_forward_is_asked_for_as_many_times_as_the_others() -> None:
    network, lines = Silent(), []
    samples = rows.measure(Model(network, 4096), 3, 1 << 20, lines.append)
    assert set(samples.forwards) == {(context, count) for context in (200, 1000) for count in range(1, 17)}
    assert {len(found) for found in samples.forwards.values()} == {3} and len(samples.reads) == 3
    for count in range(2, 17):  # once a context in each of 4 cycles: the rest of the prompt was in the cache
        assert network.rows.count(count) == 2 * 4
    assert len(lines) == 3


def test_the_floor_is_weights_over_bandwidth() -> None:
    cells = {(context, count): [0.003, 0.001 * count, 0.1] for context in (200, 1000) for count in range(1, 17)}
    report = rows.report_of(rows.Samples(cells, [0.05, 0.04, 0.5], 10**9), weight_bytes=10**8)
    assert report["bandwidth_gb_s"] == pytest.approx(20) and report["best_bandwidth_gb_s"] == pytest.approx(25)
    assert report["floor_ms"] == pytest.approx(5) and report["weight_bytes"] == 10**8
    assert list(report["ms"]) == list(report["ms_1000"]) == COUNTS
    assert report["ms"]["1"] == pytest.approx(3) and report["ms"]["16"] == pytest.approx(16)
    assert report["min_ms"]["16"] == pytest.approx(3) and report["min_ms_1000"]["2"] == pytest.approx(2)
    assert "floor 5.00 ms" in rows.table(report) and "100.0 MB" in rows.table(report)


def test_the_command_writes_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "load", lambda *args, **kwargs: FakeLoaded(Silent(), byte_tokenizer()))
    monkeypatch.setattr(rows, "buffer_bytes", lambda: 1 << 20)
    out = tmp_path / "rows.json"
    assert bench.main(["rows", "--repeats", "1", "--threads", "1", "--json", str(out)]) == 0
    report = json.loads(out.read_text())
    assert {"ms", "ms_1000", "min_ms", "floor_ms", "bandwidth_gb_s", "weight_bytes", "settings"} <= set(report)
    assert list(report["ms"]) == COUNTS and report["weight_bytes"] == 1_000_000
    assert report["settings"]["repeats"] == 1 and report["settings"]["threads"] == 1


# -- contexts ----------------------------------------------------------------------------------------------------------


def test_contexts_run_in_turn_and_read_each_prompt_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "CONTEXTS", (100, 300, 5000))
    engine = fake_engine(lambda ids: LANGUAGE(ids) - 50.0 * (torch.arange(257) == 256).numpy())
    asked: list[tuple[str, int]] = []
    stream = engine.stream

    def listening(messages: list[Message], params: DecodingParams, conversation: str = "") -> Stream:
        asked.append((conversation, params.num_speculative_tokens))
        assert params.probe_every == 0
        return stream(messages, params, conversation)

    engine.stream = listening  # type: ignore[method-assign,assignment]
    params = DecodingParams(SamplingParams(seed=0), "ngram", 3, max_new_tokens=8, probe_every=0)
    lines: list[str] = []
    prompts = [BenchPrompt("qa", "a b c d"), BenchPrompt("qa", "e f g h")]
    runs = contexts.measure(engine, prompts, params, 2, lines.append)
    assert [len(found) for found in runs.values()] == [2, 2] and list(runs) == [100, 300], "5,000 do not fit into 4,096"
    assert "5000 is left out" in lines[0]
    assert [k for _, k in asked] == [3, 0, 0, 3, 0, 3, 3, 0]
    assert len({conversation for conversation, _ in asked}) == 4
    for run in runs[300]:
        cached = [reply.summary.cached_tokens for reply in (run.plain, run.spec)]
        assert sorted(cached) == [0, run.plain.summary.prompt_tokens - 1], "the second finds the first one's cache"
        assert run.first_difference is None
    assert runs[100][0].prompt != runs[100][1].prompt
    report = contexts.report_of(runs)
    assert set(report["contexts"]) == {"100", "300"}
    row = report["contexts"]["300"]
    assert row["tokens"] == 16 and 290 < row["prompt_tokens"] <= 300
    assert row["speedup"] == pytest.approx(row["spec_tok_s"] / row["plain_tok_s"])
    assert row["costs"]["plain"]["rounds"] == 14
    assert "300" in contexts.table(report)
    engine.close()
