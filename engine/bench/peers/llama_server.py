"""llama.cpp's own server as a child process: the same GGUF, prompts as token ids, its own clock.

Written for the server of late 2026 (build 11434); `/health`, `/completion` and `timings` have long been as they are.
"""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.bench.peers.peer import Peer, PeerJob, PeerTurn
from engine.cli.options import silent
from engine.config import EMBEDDED
from engine.errors import EngineError

NGRAM = ("--spec-type", "ngram-simple")
"""Its simplest self-speculation (docs/speculative.md), with its own defaults: 12 tokens that match,
drafts of up to 48."""

NAMES = {"llama_cpp": (), "llama_cpp_ngram": NGRAM}

START_LIMIT_S = 120.0
REPLY_LIMIT_S = 600.0
STOP_LIMIT_S = 10.0


def peers(
    stack: ExitStack, program: Path | None, target: str, device: str, threads: int
) -> tuple[list[Peer], dict[str, str]]:
    """A server for each of NAMES, until the stack closes; for those that are not there a sentence."""
    from engine.loading.default_model import default_model

    server_program = program or (Path(path) if (path := shutil.which("llama-server")) else None)
    if server_program is None:
        return [], dict.fromkeys(NAMES, "There is no llama-server on PATH: name it with --llama-server.")
    if target != EMBEDDED or device != "cpu":
        return [], dict.fromkeys(NAMES, "llama.cpp is compared on the default model and a CPU only.")
    gguf = default_model(offline=True, progress=silent)
    ready: list[Peer] = []
    missing: dict[str, str] = {}
    for name, options in NAMES.items():
        try:
            server = stack.enter_context(run_server(server_program, gguf, threads, options))
            note = " ".join([f"llama.cpp {version(server_program)}, --threads {threads}", *options])
            ready.append(Peer(name, note, server.play))
        except EngineError as error:
            missing[name] = str(error)
    return ready, missing


def version(program: Path) -> str:
    """What it says of itself, e.g. "11434 (a1b2c3d)"; "" if nothing."""
    try:
        process = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = [line for line in (process.stderr + process.stdout).splitlines() if line.startswith("version:")]
    return lines[0].removeprefix("version:").strip() if lines else ""


@contextmanager
def run_server(program: Path, gguf: Path, threads: int, options: Sequence[str] = ()) -> Iterator[Server]:
    """The server, answering; ended on leaving, whatever happens. Raises EngineError when it does not come up."""
    port = _free_port()
    command = [
        str(program), "--model", str(gguf), "--host", "127.0.0.1", "--port", str(port), "--threads", str(threads),
        "--parallel", "1", "--ctx-size", "0", "--device", "none", "--no-webui", *options,
    ]  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="greenlight-") as folder:
        log = Path(folder) / "log.txt"
        try:
            with log.open("wb") as log_file:
                # A session of its own: Ctrl-C is for us, and we end it.
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log_file, stderr=log_file, start_new_session=True
                )
        except OSError as error:
            raise EngineError(f"{program} cannot be started ({error.strerror or error}).") from error
        try:
            server = Server(process, port, log)
            server.wait()
            yield server
        finally:
            _end(process)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@dataclass(frozen=True, slots=True)
class Server:
    """A running server. log: what it writes."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def wait(self) -> None:
        """Until it has loaded its model. Raises EngineError."""
        end_s = time.monotonic() + START_LIMIT_S
        while time.monotonic() < end_s:
            if self.process.poll() is not None:
                raise EngineError(f"llama-server ended at once: {self._last_words()}")
            try:
                status, _ = self._ask("GET", "/health", None, 5.0)
            except OSError:
                status = 0
            if status == 200:
                return
            time.sleep(0.1)
        raise EngineError(f"llama-server was not ready after {START_LIMIT_S:.0f} s: {self._last_words()}")

    def play(self, job: PeerJob) -> PeerTurn:
        """One greedy reply of exactly job.tokens tokens, its prompt read afresh. Raises EngineError.

        Its clock: predicted_ms begins when the first token is there, so it is the time of all but the first.
        """
        completion_request = {
            "prompt": job.ids, "n_predict": job.tokens, "temperature": 0.0, "ignore_eos": True, "cache_prompt": False,
            "seed": 0,
        }  # fmt: skip
        try:
            status, answer = self._ask("POST", "/completion", completion_request, REPLY_LIMIT_S)
        except (OSError, http.client.HTTPException) as error:
            raise EngineError(f"llama-server did not answer ({type(error).__name__}{self._exit_reason()}).") from error
        try:
            if status != 200:
                raise EngineError(f"llama-server refused a prompt: {answer['error']['message']}")
            timings = answer["timings"]
            tokens, seconds = int(timings["predicted_n"]), float(timings["predicted_ms"]) / 1e3
        except (LookupError, TypeError, ValueError) as error:
            raise EngineError("llama-server's answer has no timings that we can read: try another version.") from error
        return PeerTurn(tokens, tokens - 1, seconds)

    def _ask(self, method: str, path: str, content: Any, limit_s: float) -> tuple[int, Any]:
        """(status, JSON answer or None). No proxy stands between us and our own child."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=limit_s)
        try:
            body = None if content is None else json.dumps(content)
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            raw = response.read()
        finally:
            connection.close()
        try:
            return response.status, json.loads(raw)
        except ValueError:
            return response.status, None

    def _exit_reason(self) -> str:
        """Why it has ended, if it has: its connections break a moment before."""
        try:
            self.process.wait(1.0)
        except subprocess.TimeoutExpired:
            return ""
        return f"; it has ended: {self._last_words()}"

    def _last_words(self) -> str:
        """The last line of its log."""
        lines = self.log.read_text("utf-8", "replace").strip().splitlines()
        return lines[-1][:300] if lines else "it said nothing."
