"""The page's benchmark runs, says what it measured, and its client receives what a page receives."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.cli.progress import Interruptible
from engine.errors import EngineError
from engine.events import FinishReason
from tests.fake_engine import FakeEngine, Script, play
from tests.ui.samples import VALUES
from ui.bench import client
from ui.bench import page_cost as bench


def test_an_update_and_what_is_pulled_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    assert bench.main(["updates", "--limit", "2", "--json", str(out)]) == 0
    report = json.loads(out.read_text(encoding="utf-8"))
    assert set(report) == {"update", "charts", "race", "prose"} and all(job["ratio"] > 0 for job in report.values())
    assert "update" in capsys.readouterr().out
    assert bench.main(["updates", "--limit", "0"]) == 1 and "at least 1" in capsys.readouterr().err


@pytest.mark.slow
def test_a_page_is_measured_against_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    engine = FakeEngine(tok_s=2000, answer=lambda _: Script(text=" w" * 900))
    report = bench.measure_attached(engine, 600, 2, None, Interruptible())
    assert report["tokens"] == [599, 599] and report["identical"] == 2
    assert report["decode_s"]["ratio"] == pytest.approx(1, abs=1e-5), "the scripted engine's clock does not move"
    assert all(updates > 2 for updates in report["updates"]) and "2 of 2 identical" in capsys.readouterr().out
    alone, page = (asked.params for asked in engine.asked[:2])
    assert page.sampling == alone.sampling and page.max_new_tokens == alone.max_new_tokens == 600
    engine.answer = lambda _: Script(reason=FinishReason.ERROR, message="The logits were not numbers.")
    with pytest.raises(EngineError, match="not numbers"):
        bench.measure_attached(engine, 500, 1, None, Interruptible())


def test_the_client_receives_every_event(engine: FakeEngine, launch_page: Callable[..., str]) -> None:
    engine.tok_s, engine.answer = 3000, lambda _: Script(text=" w" * 700)
    url = launch_page(engine)
    rows, updates, wall_s = client.listen(url, "hello", VALUES)
    assert len(rows) == len(play(engine.answer(""), engine.asked[0].params)) and updates > 2 and wall_s > 0
    with pytest.raises(EngineError, match="do not belong together"):
        client.listen(url, "hello", [1, 2, 3])
