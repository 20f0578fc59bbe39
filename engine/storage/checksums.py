"""A record beside files of what they were when they were checked, so that 98 MB need not be hashed at every start."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from engine.storage.json_cache import read_record, write_record

CHECKSUM_FILE = "seal.json"
CHUNK = 1 << 20


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_checksums(folder: Path, names: Iterable[str]) -> None:
    """Record the files as they are now. Written last and at once, so the record means that the folder is complete."""
    record = {name: {"sha256": sha256(folder / name), **_stat(folder / name)} for name in names}
    write_record(folder / CHECKSUM_FILE, record)


def is_intact(folder: Path, expected: Mapping[str, str] | None = None) -> bool:
    """Whether every file of the record is what it was. expected: the SHA-256 that files must have had by name.

    A file of the same size and time of change is trusted; one of another time (a copied cache) is hashed.
    """
    try:
        record: dict[str, dict[str, Any]] = read_record(folder / CHECKSUM_FILE)
        if any(record[name]["sha256"] != digest for name, digest in (expected or {}).items()):
            return False
        stats = {name: _stat(folder / name) for name in record}
        if any(stats[name]["size"] != entry["size"] for name, entry in record.items()):
            return False
        modified_names = [name for name, entry in record.items() if stats[name]["mtime_ns"] != entry["mtime_ns"]]
        if any(sha256(folder / name) != record[name]["sha256"] for name in modified_names):
            return False
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    if modified_names:
        with contextlib.suppress(OSError):  # a read-only cache is hashed at every start, and works
            write_record(folder / CHECKSUM_FILE, {name: entry | stats[name] for name, entry in record.items()})
    return bool(record)


def _stat(path: Path) -> dict[str, int]:
    stat = path.stat()
    return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
