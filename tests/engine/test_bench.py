"""The benchmark: prompts spread evenly, runs paired, figures from sums; over a fake engine, so nothing here is
timed."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from engine.bench import __main__ as bench
from engine.bench import pairs
from engine.bench.pairs import margin, report_of, run_pairs, table
from engine.cli.prompts import CATEGORIES, BenchPrompt, read_prompts, spread
from engine.config import DecodingParams, Message, Rule, SamplingParams
from engine.errors import EngineError
from engine.serving.stream import Stream
from tests.fakes import fake_engine, hashed_logits, noisy

ANY = hashed_logits(257, seed=21)


def LANGUAGE(ids: tuple[int, ...]) -> np.ndarray:
    row = ANY(ids).copy()
    row[256] = -50.0  # never ends a reply, so that each has tokens to time
    return row


def prompt_file(folder: Path) -> Path:
    path = folder / "prompts.jsonl"
    names = ["writing", "coding", "translation", "summarization", "qa", "math_reasoning", "rag"]
    lines = [{"question_id": i, "category": names[i % 7], "turns": [f"prompt {i}", "second"]} for i in range(70)]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n\n", encoding="utf-8")
    return path


def test_a_limit_is_spread_evenly_over_the_six_categories(tmp_path: Path) -> None:
    path = prompt_file(tmp_path)
    for limit in (1, 6, 7, 40, 70, 500):
        chosen = read_prompts(path, limit)
        assert len(chosen) == min(limit, 70) == len({p.text for p in chosen})
        counts = [sum(p.category == category for p in chosen) for category in CATEGORIES]
        assert sum(counts) == len(chosen) and (limit >= 60 or max(counts) - min(counts) <= 1), limit
    assert (
        sum(
            p.category == "rag"
            for p in spread([BenchPrompt("qa", f"q{i}") for i in range(10)] + [BenchPrompt("rag", "r")], 9)
        )
        == 1
    )


def test_a_file_that_is_not_prompts_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    for content in ("not json", '{"turns": "text"}', '{"category": "qa"}', "[1]"):
        path.write_text(content)
        with pytest.raises(EngineError, match="turns"):
            read_prompts(path, None)
    with pytest.raises(EngineError, match="--prompts"):
        read_prompts(tmp_path / "missing.jsonl", None)


@pytest.mark.parametrize(("rule", "temperature"), [(Rule.REJECTION, 0.0), (Rule.SHARED_NOISE, 1.0)])
def test_pairs_are_identical_and_the_figures_add_up(rule: Rule, temperature: float) -> None:
    engine = fake_engine(LANGUAGE, noisy(LANGUAGE, 257, 0.4))
    params = DecodingParams(SamplingParams(temperature=temperature, seed=3), "draft_model", 3, rule, 40)
    prompts = [BenchPrompt(category, f"{category} {i}") for i in range(2) for category in CATEGORIES]
    runs = run_pairs(engine, prompts, params, lambda line: None)
    report = report_of(runs)
    assert report["overall"]["identical"] == report["overall"]["prompts"] == 12
    assert set(report["categories"]) == set(CATEGORIES)
    for row in [report["overall"], *report["categories"].values()]:
        assert row["speedup"] == pytest.approx(row["spec_tok_s"] / row["plain_tok_s"])
        assert 0 < row["alpha"] < 1 < row["acceptance_length"] <= 4
        assert row["draft_acceptance_rate"] <= row["alpha"]
    tokens = sum(len(run.spec.ids) - 1 for run in runs)
    assert report["overall"]["spec_tok_s"] == pytest.approx(tokens / sum(run.spec.summary.decode_s for run in runs))
    assert "overall" in table(report)
    engine.close()


def test_the_margin_is_the_distance_of_the_two_best_logits_where_texts_part() -> None:
    engine = fake_engine(LANGUAGE)
    params = DecodingParams(SamplingParams(seed=3), "ngram", 3, max_new_tokens=30)
    [run] = run_pairs(engine, [BenchPrompt("qa", "hello")], params, lambda line: None)
    ids = run.plain.ids
    altered = type(run)(run.prompt, run.plain, type(run.spec)((*ids[:7], 999), "", run.spec.summary))
    assert altered.first_difference == 7
    prompt = b"<user>hello\n<assistant>"
    logits = sorted(LANGUAGE((*prompt, *ids[:7])))
    found = margin(engine, altered, params)
    assert found is not None and math.isclose(found, logits[-1] - logits[-2], rel_tol=1e-4)
    engine.close()


def test_bad_options_are_one_sentence_and_a_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(prompt_file(tmp_path))
    for options in (["--limit", "0"], ["--k", "99"], ["--temperature", "-1"], ["--max-new-tokens", "0"]):
        assert bench.main(["speed", "--prompts", path, *options]) == 1
        message = capsys.readouterr().err
        assert message.startswith("bench: ") and message.count("\n") == 1


def test_the_order_alternates_and_the_first_run_is_not_counted() -> None:
    engine = fake_engine(LANGUAGE)
    asked: list[tuple[str, int]] = []
    stream = engine.stream

    def listening(messages: list[Message], params: DecodingParams, conversation: str = "") -> Stream:
        asked.append((messages[-1].content, params.num_speculative_tokens))
        assert params.probe_every == 0 and conversation == "", "nobody finds a warm cache"
        return stream(messages, params, conversation)

    engine.stream = listening  # type: ignore[method-assign,assignment]
    prompts = [BenchPrompt("qa", f"p{i}") for i in range(4)]
    params = DecodingParams(SamplingParams(seed=3), "ngram", 3, max_new_tokens=5)
    assert len(run_pairs(engine, prompts, params, lambda line: None)) == 4
    assert {text for text, _ in asked[:2]}.isdisjoint(p.text for p in prompts)
    assert [k for _, k in asked[:2]] in ([3, 0], [0, 3])
    assert asked[2:] == [("p0", 0), ("p0", 3), ("p1", 3), ("p1", 0), ("p2", 0), ("p2", 3), ("p3", 3), ("p3", 0)]
    engine.close()


def test_replies_of_one_token_give_no_figure_and_no_infinity() -> None:
    engine = fake_engine(LANGUAGE)
    params = DecodingParams(SamplingParams(seed=3), "ngram", 3, max_new_tokens=1)
    report = report_of(run_pairs(engine, [BenchPrompt("qa", "a"), BenchPrompt("rag", "b")], params, lambda line: None))
    assert report["overall"]["speedup"] is None and report["overall"]["plain_tok_s"] is None
    assert all(math.isfinite(value) for value in report["overall"].values() if value is not None)
    assert "overall" in table(report) and "inf" not in table(report)
    engine.close()


def test_the_baseline_report_compares_probes_with_plain_rounds() -> None:
    engine = fake_engine(LANGUAGE)
    params = DecodingParams(SamplingParams(seed=3), "ngram", 3, max_new_tokens=60)
    report = pairs.run_baselines(engine, [BenchPrompt("qa", f"hello {i}") for i in range(2)], params, lambda line: None)
    assert report["prompts"] == 2 and 4 <= report["probes"] <= 2 * 59
    assert report["ratio"] == pytest.approx(report["live_tok_s"] / report["plain_tok_s"])
    engine.close()


def test_a_place_where_figures_cannot_be_written_is_told_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.replies, "run", lambda args: pytest.fail("measured in vain"))
    for out in (tmp_path / "nowhere" / "out.json", tmp_path):
        assert bench.main(["speed", "--prompts", str(prompt_file(tmp_path)), "--json", str(out)]) == 1
        assert "--json" in capsys.readouterr().err
