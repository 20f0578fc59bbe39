"""python -m engine.bench COMMAND: every figure that the README quotes comes from here."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from engine.bench import contexts, load, quality, race, replies, rows
from engine.bench.peers import compare as peers
from engine.errors import EngineError

INTERRUPTED = 130
"""The exit status after Ctrl-C, also where the figures so far were written."""


def parser() -> argparse.ArgumentParser:
    """Each command's `run(args)` measures, prints, and returns what --json writes."""
    root = argparse.ArgumentParser(prog="python -m engine.bench", description=__doc__)
    commands = root.add_subparsers(dest="command", required=True)
    replies.add_commands(commands)
    race.add_commands(commands)
    rows.add_commands(commands)
    contexts.add_commands(commands)
    load.add_commands(commands)
    peers.add_commands(commands)
    quality.add_commands(commands)
    return root


def _check_writable(path: Path) -> None:
    """Before anything is measured: hours of figures shall not be lost on a folder that is not there.
    Raises EngineError."""
    existed = path.exists()
    try:
        path.open("a", encoding="utf-8").close()
        if not existed:
            path.unlink()
    except OSError as error:
        raise EngineError(f"The figures cannot be written ({error}): name another file with --json.") from error


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    try:
        if args.json:
            _check_writable(args.json)
        report = args.run(args)
    except EngineError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench: interrupted.", file=sys.stderr)
        return INTERRUPTED
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return INTERRUPTED if report.get("partial") else 0


if __name__ == "__main__":
    sys.exit(main())
