"""One process at a time makes a folder of the cache; what the file system refuses is a LoadError that says what to
set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from engine.errors import LoadError
from engine.loading.progress import Progress


@contextmanager
def hold_lock(lock: Path, progress: Progress, phase: str = "fetch") -> Iterator[None]:
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
