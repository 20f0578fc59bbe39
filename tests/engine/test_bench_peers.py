"""peers: the race on made-up engines, the client against a made-up llama-server, transformers on a tiny random
model."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from engine.bench import __main__ as bench
from engine.bench.peers import compare as peers
from engine.bench.peers import llama_server, transformers_peer
from engine.bench.peers.llama_server import run_server
from engine.bench.peers.peer import Peer, PeerJob, PeerTurn
from engine.cli.prompts import BenchPrompt
from engine.config import DecodingParams, SamplingParams
from engine.errors import EngineError
from engine.serving.engine import Engine
from tests.fakes import fake_engine, hashed_logits

pytestmark = pytest.mark.slow

ANY = hashed_logits(257, seed=21)
PARAMS = DecodingParams(SamplingParams(seed=0), "ngram", 3, max_new_tokens=9, probe_every=0)
PROMPTS = [BenchPrompt("qa", f"prompt {i}") for i in range(4)]
JOB = PeerJob(BenchPrompt("qa", "p"), [5, 6, 7, 5, 6, 7, 5, 6], 10)


def LANGUAGE(ids: tuple[int, ...]) -> np.ndarray:
    row = ANY(ids).copy()
    row[256] = -50.0
    return row


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = fake_engine(LANGUAGE)
    yield made
    made.close()


# -- the race ----------------------------------------------------------------------------------------------------------


def steady(name: str, log: list[str], seconds: float, extra: int = 0) -> Peer:
    """Takes so many seconds for each token after the first."""

    def play(job: PeerJob) -> PeerTurn:
        log.append(f"{name} {job.prompt.text}")
        tokens = job.tokens + (extra if job.prompt.text == "prompt 1" else 0)
        return PeerTurn(tokens, tokens - 1, (tokens - 1) * seconds)

    return Peer(name, f"how {name} runs", play)


def test_all_engines_get_the_same_jobs_in_turn_and_rates_are_ratios_of_sums(engine: Engine) -> None:
    log: list[str] = []
    ours = peers.own_peers(engine, PARAMS)
    racing = [*ours, steady("transformers_fp32", log, 0.5), steady("llama_cpp", log, 0.25)]
    race = peers.run_race(engine, racing, PROMPTS, PARAMS, lambda line: None, rest_s=0.0)
    assert log[:2] == [f"transformers_fp32 {peers.WARM_UP.text}", f"llama_cpp {peers.WARM_UP.text}"]
    told = [line for line in log if "prompt" in line]
    assert [line.split()[-1] for line in told] == ["0", "0", "1", "1", "2", "2", "3", "3"], "one prompt after the other"
    assert {line.split()[0] for line in told[::2]} == {"transformers_fp32", "llama_cpp"}, "who goes first changes"
    report = peers.report_of(race, racing, {"llama_cpp_ngram": "It is not here."})
    rows = {row["name"]: row for row in report["rows"]}
    assert tuple(rows) == peers.NAMES
    assert rows["transformers_fp32"]["tok_s"] == pytest.approx(2) and rows["llama_cpp"]["tok_s"] == pytest.approx(4)
    present = [rows[peer.name] for peer in racing]
    assert {row["tokens"] for row in present} == {4 * 9} and {row["decoded"] for row in present} == {4 * 8}
    assert all(row["tok_s"] == pytest.approx(row["decoded"] / row["seconds"]) for row in present)
    assert rows["llama_cpp_ngram"] == {"name": "llama_cpp_ngram", "tok_s": None, "missing": "It is not here."}
    shown = peers.table(report)
    assert "It is not here." in shown and "how llama_cpp runs" in shown


def test_a_peer_that_fails_leaves_and_the_others_go_on(engine: Engine) -> None:
    def play(job: PeerJob) -> PeerTurn:
        if job.prompt.text == "prompt 2":
            raise EngineError("It broke.")
        return PeerTurn(job.tokens, job.tokens - 1, 1.0)

    racing = [Peer("llama_cpp", "", play), steady("transformers_fp32", [], 0.5)]
    lines: list[str] = []
    race = peers.run_race(engine, racing, PROMPTS, PARAMS, lines.append, rest_s=0.0)
    assert race.failed == {"llama_cpp": "It broke."} and any("It broke." in line for line in lines)
    rows = {row["name"]: row for row in peers.report_of(race, racing, {})["rows"]}
    assert rows["llama_cpp"] == {"name": "llama_cpp", "tok_s": None, "missing": "It broke."}
    assert rows["transformers_fp32"]["prompts"] == 4 and rows["transformers_fp32"]["tok_s"] == pytest.approx(2)


def test_a_reply_ends_where_it_would_by_itself() -> None:
    """What all are asked for is the natural length, not the limit."""
    stopping = fake_engine(lambda ids: LANGUAGE(ids) + 100.0 * (len(ids) > 40) * (np.arange(257) == 256))
    job = peers.natural_job(stopping, PROMPTS[0], PARAMS)
    long = peers.natural_job(stopping, PROMPTS[0], DecodingParams(PARAMS.sampling, "ngram", 3, max_new_tokens=300))
    assert job is not None and job.tokens == 9 and bytes(job.ids) == b"<user>prompt 0\n<assistant>"
    assert long is not None and long.tokens == 41 - len(job.ids) + 1
    assert peers.natural_job(stopping, BenchPrompt("qa", "x" * 60), PARAMS) is None, (
        "an end at once leaves nothing to time"
    )
    assert peers.natural_job(stopping, BenchPrompt("qa", "x" * 6000), PARAMS) is None, "too long for the context"
    stopping.close()


# -- llama.cpp ---------------------------------------------------------------------------------------------------------

SERVER = """#!{python}
import json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
if "--version" in sys.argv:
    print("version: 11434 (abc)", file=sys.stderr); sys.exit(0)
if "{mode}" == "dies":
    print("noise"); print("error: no such model", file=sys.stderr); sys.exit(1)
open("{log}", "a").write(json.dumps([os.getpid(), sys.argv[1:]]) + "\\n")
asked = []
class Handler(BaseHTTPRequestHandler):
    def answer(self, status, content):
        body = json.dumps(content).encode()
        self.send_response(status); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        asked.append(self.path)
        self.answer(503 if len(asked) < 3 else 200, {{"status": "loading"}})
    def do_POST(self):
        wanted = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        open("{log}", "a").write(json.dumps(wanted) + "\\n")
        if "{mode}" == "breaks":
            print("terminate called"); sys.stdout.flush(); os._exit(3)
        if "{mode}" == "refuses":
            return self.answer(400, {{"error": {{"message": "too long"}}}})
        n = wanted["n_predict"]
        timings = {{"predicted_n": n, "predicted_ms": 20.0 * (n - 1)}}
        self.answer(200, {{"content": "", "timings": timings if "{mode}" == "answers" else {{}}}})
    def log_message(self, *_): pass
HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


def program(folder: Path, mode: str = "answers") -> Path:
    path = folder / f"llama-server-{mode}"
    path.write_text(SERVER.format(python=sys.executable, mode=mode, log=folder / "log.txt"))
    path.chmod(0o755)
    return path


def written(folder: Path) -> list[object]:
    return [json.loads(line) for line in (folder / "log.txt").read_text().splitlines()]


def test_the_servers_own_clock_counts_and_the_server_is_ended(tmp_path: Path) -> None:
    with run_server(program(tmp_path), Path("model.gguf"), 2, llama_server.NGRAM) as server:
        assert server.play(JOB) == PeerTurn(10, 9, pytest.approx(0.18))  # type: ignore[arg-type]
        assert server.process.poll() is None
    assert server.process.poll() is not None
    (pid, options), wanted = written(tmp_path)  # type: ignore[misc]
    assert options[options.index("--model") + 1] == "model.gguf" and options[options.index("--threads") + 1] == "2"
    assert options[-2:] == ["--spec-type", "ngram-simple"] and "--no-webui" in options
    assert wanted["prompt"] == JOB.ids and wanted["n_predict"] == 10  # type: ignore[index]
    assert wanted["temperature"] == 0 and wanted["cache_prompt"] is False and wanted["ignore_eos"] is True  # type: ignore[index]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_server_that_fails_or_never_comes_up_is_one_sentence(tmp_path: Path) -> None:
    for mode, sentence in (("breaks", "terminate called"), ("refuses", "too long"), ("odd", "timings")):
        with run_server(program(tmp_path, mode), Path("m"), 1) as server, pytest.raises(EngineError, match=sentence):
            server.play(JOB)
    with pytest.raises(EngineError, match="no such model"), run_server(program(tmp_path, "dies"), Path("m"), 1):
        pass
    with pytest.raises(EngineError, match="cannot be started"), run_server(tmp_path / "nothing", Path("m"), 1):
        pass


def test_both_rows_have_a_server_that_ends_with_the_stack(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("engine.loading.default_model.default_model", lambda **_: tmp_path / "m.gguf")
    with ExitStack() as stack:
        found, missing = llama_server.peers(stack, program(tmp_path), "embedded", "cpu", 2)
        assert not missing and [peer.name for peer in found] == ["llama_cpp", "llama_cpp_ngram"]
        assert "11434 (abc)" in found[0].note and "ngram-simple" in found[1].note
        assert [peer.play(JOB).tokens for peer in found] == [10, 10]
        pids = [line[0] for line in written(tmp_path) if isinstance(line, list)]
        assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


# -- transformers ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model that soon repeats itself and knows an end token."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=300, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=4096, eos_token_id=0, bos_token_id=1,
    )  # fmt: skip
    made = tmp_path_factory.mktemp("model")
    transformers.LlamaForCausalLM(config).save_pretrained(made)
    return made


def test_transformers_answers_from_a_process_of_its_own(folder: Path, tmp_path: Path) -> None:
    with ExitStack() as stack:
        found, missing = transformers_peer.peers(stack, str(folder), "cpu", 1, 2, offline=True)
        assert not missing
        assert [peer.name for peer in found] == ["transformers_bf16", "transformers_fp32", "transformers_prompt_lookup"]
        assert transformers.__version__ in found[0].note and "prompt_lookup_num_tokens = 2" in found[2].note
        assert [peer.play(JOB).tokens for peer in found] == [10, 10, 10]
    with transformers_peer.run_library(tmp_path, "cpu", 1) as library:
        with pytest.raises(EngineError, match="cannot load"):
            library.ask("load", "float32")
        assert library.ask("version") == transformers.__version__, "it goes on after a failure"
    with pytest.raises(EngineError, match="has ended"):
        library.ask("version")


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_names_every_row(
    engine: Engine, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def engine_of(args: argparse.Namespace, drafter: str = "ngram") -> Iterator[Engine]:
        yield engine

    monkeypatch.setattr(peers, "engine_of", engine_of)
    monkeypatch.setattr(peers, "REST_S", 0.0)
    path, out = tmp_path / "prompts.jsonl", tmp_path / "peers.json"
    path.write_text(json.dumps({"category": "qa", "turns": ["hello"]}))
    options = ["--prompts", str(path), "--max-new-tokens", "5", "--target", str(folder), "--json", str(out)]
    assert bench.main(["peers", *options, "--llama-server", str(program(tmp_path))]) == 0
    report = json.loads(out.read_text())
    rows = {row["name"]: row for row in report["rows"]}
    assert list(rows) == [
        "greenlight_speculative", "greenlight_plain", "transformers_bf16", "transformers_fp32",
        "transformers_prompt_lookup", "llama_cpp", "llama_cpp_ngram",
    ]  # fmt: skip
    measured = [row for name, row in rows.items() if not name.startswith("llama")]
    assert all(row["tok_s"] > 0 and row["tokens"] == 5 and row["prompts"] == 1 for row in measured)
    assert rows["llama_cpp"]["missing"] and rows["llama_cpp"]["tok_s"] is None
    assert report["settings"]["max_new_tokens"] == 5 and report["settings"]["k"] == "auto"
    assert bench.main(["peers", *options, "--llama-server", str(tmp_path / "nothing")]) == 1
    assert "llama-server" in capsys.readouterr().err
