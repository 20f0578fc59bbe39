"""The command line: everything that can be wrong is one sentence, a non-zero exit status and no traceback."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import app
from tests.fake_engine import FakeEngine

ROOT = Path(__file__).parents[2]


def start(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in environment or environment[name]}
    return subprocess.run(
        [sys.executable, str(ROOT / "app.py"), *arguments],
        capture_output=True, text=True, timeout=300, cwd=ROOT, env=kept | {n: v for n, v in environment.items() if v},
    )  # fmt: skip


def assert_one_sentence(ended: subprocess.CompletedProcess[str], words: str) -> None:
    assert ended.returncode not in (0, None)
    assert "Traceback" not in ended.stderr and ended.stdout == ""
    assert len(ended.stderr.strip().splitlines()) == 1, ended.stderr
    assert words in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--device", "tpu"], "--device"),
        (["--port", "0"], "whole number from 1 to 65535"),
        (["--port", "http"], "--port"),
        (["--k", "17"], "auto or a whole number from 0 to 16, not '17'"),
        (["--k", "automatic"], "auto or a whole number from 0 to 16"),
        (["--drafter", " "], "drafter must be auto, ngram, none"),
        (["--threads", "none"], "--threads"),
        (["--lang", "fr"], "--lang"),
        (["--nonsense"], "--nonsense"),
        (["--target", ""], "target must name a model"),
        (["--host", "no.such.host.invalid"], "--host 127.0.0.1"),
        (["--models-folder", "/no/such/folder"], "there is no folder /no/such/folder"),
        (["--drafter-device", "tpu"], "--drafter-device"),
        (["--compute", "int4"], "--compute"),
    ],
)
def test_a_wrong_option_is_one_sentence(arguments: list[str], words: str) -> None:
    assert_one_sentence(start(*arguments), words)


@pytest.mark.parametrize(
    ("host", "share", "space", "served"),
    [
        ("127.0.0.1", False, "", False), ("localhost", False, "", False), ("::1", False, "", False),
        ("127.0.0.1", True, "", True), ("0.0.0.0", False, "", True), ("192.168.1.5", False, "", True),
        ("my-machine", False, "", True), ("127.0.0.1", False, "owner/space", True),
    ],
)  # fmt: skip
def test_who_can_reach_the_page_decides_what_may_be_loaded_from_it(
    host: str, share: bool, space: str, served: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPACE_ID", space)
    assert app.is_served(host, share) is served


def test_a_busy_port_is_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert_one_sentence(start("--port", str(port)), f"port {port} is in use")


def test_help_explains_every_option() -> None:
    ended = start("--help")
    assert ended.returncode == 0
    for option in ("host", "port", "share", "queue-size", "max-new-tokens", "target", "drafter", "k", "device", "threads",
                   "lang", "offline", "version"):  # fmt: skip
        assert re.search(rf"--{option}\b.*\S", ended.stdout)


def test_k_and_drafter_are_automatic_unless_asked_for() -> None:
    assert (app.parse([]).k, app.parse([]).drafter) == (None, "auto")
    assert app.parse(["--k", "auto"]).k is None and app.parse(["--k", "0"]).k == 0


def test_the_version_is_the_projects() -> None:
    assert f'version = "{app.__version__}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert start("--version").stdout.strip() == f"Greenlight {app.__version__}"


def test_no_model_and_no_network_is_one_sentence(tmp_path: Path) -> None:
    empty = {name: str(tmp_path) for name in ("HOME", "XDG_CACHE_HOME", "GREENLIGHT_CACHE", "LOCALAPPDATA")}
    ended = start("--offline", "--port", str(free_port()), **empty)
    assert ended.returncode == 1 and "Traceback" not in ended.stderr
    assert "Greenlight cannot start" in ended.stderr and "--offline" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--target", "no/such/model.gguf"], "There is no model no/such/model.gguf"),
        (["--target", "README.md"], "Name a .gguf file"),
        (["--target", "smal-zh"], "smal-zh is not on this machine"),
        (["--drafter", "no-one/no-head"], "no-one/no-head is not on this machine"),
        (["--target", str(ROOT / "engine")], "config.json"),
    ],
)
def test_a_pair_that_its_headers_refuse_is_refused_before_anything_is_loaded(arguments: list[str], words: str) -> None:
    ended = start("--offline", "--port", str(free_port()), *arguments)
    assert ended.returncode == 1 and "Traceback" not in ended.stderr and ended.stdout == ""
    first, last = ended.stderr.strip().splitlines()
    assert first == "Starting Greenlight ..." and last.startswith("Greenlight cannot start: ") and words in last


def test_a_temporary_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    assert_one_sentence(start("--port", str(free_port()), GRADIO_TEMP_DIR=str(blocked / "x")), "set GRADIO_TEMP_DIR")


def test_proxies_do_not_stand_between_gradio_and_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "example.org,localhost")
    monkeypatch.setenv("no_proxy", "")
    app.prepare_environment()
    hosts = os.environ["NO_PROXY"].split(",")
    assert hosts[0] == "example.org" and {"localhost", "127.0.0.1"} <= set(hosts)
    assert len(hosts) == len(set(hosts)) and os.environ["no_proxy"] == os.environ["NO_PROXY"]


@pytest.mark.parametrize("asked", [False, True])
def test_nothing_is_published_unless_asked_for(asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradio publishes by itself in a notebook or where GRADIO_SHARE is set, but not against an explicit no."""
    import gradio as gr

    seen: list[object] = []

    def launch(self: gr.Blocks, **where: object) -> tuple[None, str, None]:
        seen.append(where["share"])
        return None, "http://127.0.0.1:7860/", None

    monkeypatch.setenv("GRADIO_SHARE", "True")
    monkeypatch.setattr(gr.Blocks, "launch", launch)
    app.serve(FakeEngine(), app.parse(["--share"] if asked else []), "127.0.0.1")
    assert seen == [asked]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
