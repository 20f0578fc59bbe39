"""Which models may be named on the page, and what each is for the engine. A page that is served to others names only
pairs that are known and what lies in the models folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from engine import DRAFTER_WORDS, MODEL_PRESETS
from ui.controls import Options

MOST_LISTED = 100
DEPTH = 3
"""How far down the models folder is looked through for names to offer."""

MAX_NAME = 400

PRESETS = frozenset(name for pair in MODEL_PRESETS for name in (pair.name, pair.target, pair.drafter))
"""Names that stand in the table of pairs, which anybody may load."""


class NotAllowed(Exception):
    """A name that may not be loaded from this page; its text is that name."""


def locate(name: str, options: Options) -> str:
    """What the engine calls it: of a name in the models folder its path, others as they are. Raises NotAllowed."""
    if name in PRESETS or name in DRAFTER_WORDS:
        return name
    if (inside := _inside(name, options)) is not None:
        return str(inside)
    if options.served or len(name) > MAX_NAME:
        raise NotAllowed(name[:MAX_NAME])
    return name


def display_name(name: str, options: Options) -> str | None:
    """The opposite: what a person writes for what the engine calls `name`; None where they may not know."""
    root = _root(options)
    if root is not None and Path(name).is_absolute() and Path(name).is_relative_to(root):
        return Path(name).relative_to(root).as_posix()
    is_public = name in PRESETS or name in DRAFTER_WORDS
    return name if is_public or not options.served else None


def offered_names(options: Options) -> tuple[str, ...]:
    """Names of the models folder: GGUF files, and folders with a config.json."""
    root = _root(options)
    names = [] if root is None else [name for name in _walk(root, root, DEPTH) if _inside(name, options)]
    return tuple(sorted(names)[:MOST_LISTED])


def hide_folder(value: Any, options: Options) -> Any:
    """Whatever is to be said (texts, also HTML, in dicts) without the path of the models folder, which is nobody's
    business."""
    root = _root(options)
    if root is None or not isinstance(value, (str, dict)):
        return value
    if isinstance(value, dict):
        return {name: hide_folder(part, options) for name, part in value.items()}
    path = f"{root}{os.sep}"
    return value.replace(path, "").replace(escape(path), "")


def _root(options: Options) -> Path | None:
    return Path(options.models_folder).expanduser().resolve() if options.models_folder else None


def _inside(name: str, options: Options) -> Path | None:
    """The place of that name in the models folder, if it and all that lies in it are really there: links that lead out
    of the folder are as good as missing."""
    root = _root(options)
    if root is None or not name.strip() or len(name) > MAX_NAME:
        return None
    try:
        place = (root / name).resolve(strict=True)
        parts = [place, *(child.resolve(strict=True) for child in (place.iterdir() if place.is_dir() else ()))]
    except (OSError, ValueError, RuntimeError):  # missing, a NUL in it, a link to itself
        return None
    within = place != root and all(part.is_relative_to(root) for part in parts)
    return place if within else None


def _walk(folder: Path, root: Path, depth: int) -> Iterator[str]:
    try:
        children = sorted(folder.iterdir())
    except OSError:
        return
    for child in children:
        if child.name.startswith(".") or not child.name.isprintable():  # of no characters, or ones that turn the text
            continue
        if child.suffix == ".gguf" or (child / "config.json").is_file():
            yield child.relative_to(root).as_posix()
        elif depth > 1 and child.is_dir() and not child.is_symlink():
            yield from _walk(child, root, depth - 1)
