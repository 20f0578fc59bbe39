"""What each command says of itself, and of options that it does not take."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.golden.items import Item

ROOT = Path(__file__).parents[2]

HELP: dict[str, tuple[str, ...]] = {
    "app": ("app.py",),
    "check": ("-m", "engine.check"),
    "fetch": ("-m", "engine.fetch"),
    "bench": ("-m", "engine.bench"),
    **{f"bench {name}": ("-m", "engine.bench", name) for name in
       ("speed", "lossless", "baseline", "race", "rows", "contexts", "load", "peers", "quality")},
    "train": ("-m", "engine.train"),
    **{f"train {name}": ("-m", "engine.train", name) for name in ("collect", "fit", "judge")},
    "page bench": ("-m", "ui.bench"),
    **{f"page bench {name}": ("-m", "ui.bench", name) for name in ("updates", "attached")},
    "record": ("-m", "ui.record"),
}  # fmt: skip

WRONG: dict[str, tuple[str, ...]] = {
    name: (*HELP[command], *options)
    for name, command, options in (
        ("version", "app", ("--version",)),
        ("k too large", "app", ("--k", "99")),
        ("k a word", "app", ("--k", "many")),
        ("port", "app", ("--port", "0")),
        ("unknown option", "app", ("--fast",)),
        ("drafter nobody has", "app", ("--drafter", "head")),
        ("kernel and quant", "app", ("--kernel", "native", "--quant", "bf16")),
        ("no such folder", "app", ("--models-folder", "/nowhere/at/all")),
        ("no such model", "app", ("--target", "/nowhere/at/all", "--offline", "--port", "7999")),
        ("check, no such model", "check", ("--target", "/nowhere/at/all", "--offline")),
        ("check, drafter nobody has", "check", ("--drafter", "draft_model")),
        ("check, threads", "check", ("--threads", "0")),
        ("bench, nothing asked", "bench", ()),
        ("bench, no such prompts", "bench speed", ("--prompts", "/nowhere/at/all", "--offline")),
        ("bench, k", "bench speed", ("--prompts", "x", "--k", "many")),
        ("train, nothing asked", "train", ()),
        ("record, unknown", "record", ("--only", "nothing")),
    )
}


def items() -> Iterator[Item]:
    asked = {f"help/{name}": (*command, "--help") for name, command in HELP.items()}
    asked |= {f"wrong/{name}": command for name, command in WRONG.items()}
    with ThreadPoolExecutor(os.cpu_count()) as together:
        yield from zip(asked, together.map(_said, asked.values()), strict=True)


def _said(command: tuple[str, ...]) -> list[str]:
    """Its status, output and errors."""
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=os.environ | {"COLUMNS": "100"}, capture_output=True, text=True,
        check=False, timeout=300,
    )  # fmt: skip
    return [str(done.returncode), done.stdout, done.stderr]
