"""The command line: everything that can be wrong is one sentence, a non-zero exit status and no traceback."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import app
import engine
from engine.serving.engine import State, Status
from tests.fake_engine import FakeEngine
from tests.ui.conftest import free_port

ROOT = Path(__file__).parents[2]


WRONG = """
--device_tpu > --device
--port_0 > whole number from 1 to 65535
--port_http > --port
--port_BUSY > port BUSY is in use
--port_FREE > set GRADIO_TEMP_DIR
--k_17 > auto or a whole number from 0 to 16, not '17'
--drafter_  > drafter must be auto, ngram, none
--threads_none > --threads
--nonsense > --nonsense
--target_ > target must name a model
--host_no.such.host.invalid > --host 127.0.0.1
--port_FREE_--models-folder_/no/such/folder > there is no folder /no/such/folder
--compute_int4 > --compute
"""
"""Arguments, set apart by underscores, and what is said."""

REFUSED = f"""
--target no/such/model.gguf > There is no model no/such/model.gguf
--target README.md > Name a .gguf file
--target smal-zh > smal-zh is not on this machine
--drafter no-one/no-head > no-one/no-head is not on this machine
--target {ROOT}/engine > config.json
"""


def ended(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit status and what stands on stderr, where nothing may stand on stdout."""
    try:
        status = app.main(arguments)
    except SystemExit as end:  # a mistake that argparse finds
        status = int(end.code or 0)
    out, err = capsys.readouterr()
    assert out == ""
    return status, err


def test_a_wrong_option_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path / "file" / "x"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy = str(taken.getsockname()[1])
        for row in WRONG.strip().splitlines():
            arguments, words = row.replace("BUSY", busy).replace("FREE", str(free_port())).split(" > ")
            status, err = ended(capsys, *arguments.split("_"))
            assert status and words in err and err.count("\n") == 1, (row, err)


def test_a_pair_that_its_headers_refuse_is_refused_before_anything_is_loaded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "Engine", None)
    for row in REFUSED.strip().splitlines():
        arguments, words = row.split(" > ")
        status, err = ended(capsys, "--offline", "--port", str(free_port()), *arguments.split(" "))
        first, last = err.strip().splitlines()
        assert status == 1 and first == "Starting Greenlight ..."
        assert last.startswith("Greenlight cannot start: ") and words in last


def test_an_engine_that_cannot_load_ends_the_app_in_its_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = FakeEngine(state=Status(State.FAILED, "load", message="No model was found."))
    closed: list[bool] = []
    page = SimpleNamespace(close=lambda **_: closed.append(True))
    monkeypatch.setattr(engine, "Engine", lambda config: failed)
    monkeypatch.setattr(app, "serve", lambda *_: (page, ""))
    status, err = ended(capsys, "--port", str(free_port()))
    assert status == 1 and err.endswith("Greenlight cannot start: No model was found.\n")
    assert closed and failed.state.state is State.CLOSED


def test_who_can_reach_the_page_decides_what_may_be_loaded_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPACE_ID", "")
    hosts = ("127.0.0.1", "localhost", "::1", "0.0.0.0", "192.168.1.5", "my-machine")
    assert [app.is_served(host, False) for host in hosts] == [False] * 3 + [True] * 3
    assert app.is_served("127.0.0.1", True)
    monkeypatch.setenv("SPACE_ID", "owner/space")
    assert app.is_served("127.0.0.1", False)


def test_defaults_and_version() -> None:
    assert (app.parse([]).k, app.parse([]).drafter) == (None, "auto")
    assert app.parse(["--k", "auto"]).k is None and app.parse(["--k", "0"]).k == 0
    shown = subprocess.run([sys.executable, str(ROOT / "app.py"), "--version"], capture_output=True, text=True, check=True)  # fmt: skip
    assert re.fullmatch(rf"Greenlight {re.escape(engine.__version__)}\n", shown.stdout)
    assert f'version = "{engine.__version__}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_proxies_do_not_stand_between_gradio_and_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "example.org,localhost")
    monkeypatch.setenv("no_proxy", "")
    app.prepare_environment()
    hosts = os.environ["NO_PROXY"].split(",")
    assert hosts[0] == "example.org" and {"localhost", "127.0.0.1"} <= set(hosts)
    assert len(hosts) == len(set(hosts)) and os.environ["no_proxy"] == os.environ["NO_PROXY"]


def test_nothing_is_published_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradio publishes by itself in a notebook or where GRADIO_SHARE is set, but not against an explicit no."""
    from ui import layout

    shares: list[object] = []

    def launch(**where: object) -> tuple[None, str, None]:
        shares.append(where["share"])
        return None, "", None

    monkeypatch.setenv("GRADIO_SHARE", "True")
    monkeypatch.setattr(layout, "build_app", lambda *_: SimpleNamespace(queue=lambda **_: None, launch=launch))
    for arguments in ([], ["--share"]):
        app.serve(FakeEngine(), app.parse(arguments), "127.0.0.1")
    assert shares == [False, True]
