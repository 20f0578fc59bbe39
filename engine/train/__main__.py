"""python -m engine.train COMMAND: makes a draft head for a target, from what the target itself writes."""

from __future__ import annotations

import argparse
import signal
import sys

from engine.errors import EngineError
from engine.train import collect, fit, judge

COMMANDS = (collect, fit, judge)
"""In the order in which they are used. Each has `add_command(commands)`, which sets `run(args)`."""


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(prog="python -m engine.train", description=__doc__)
    commands = root.add_subparsers(dest="command", required=True)
    for command in COMMANDS:
        command.add_command(commands)
    return root


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    try:
        args.run(args)
    except EngineError as error:
        print(f"train: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("train: interrupted.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    for sign in (signal.SIGINT, signal.SIGTERM):  # a shell that put us in the background had it ignored
        signal.signal(sign, signal.default_int_handler)
    sys.exit(main())
