"""python -m tests.golden COMMAND: everything that the program answers, from fixed seeds and without times, written
down, so that a change that should change nothing can be shown to change nothing, to the bit.

Bits depend on the processor and the libraries: write both records on one machine, and keep none.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.golden import clock
from tests.golden.items import Item, differences, read, write

SECTIONS = ("replies", "traces", "api", "help", "check", "html")
SCREENS = "screens"
"""Pictures, for the eye alone."""


def _items(section: str) -> Iterator[Item]:
    """Imported here, since each has its own needs of what was imported before it, and nothing else."""
    match section:
        case "replies":
            clock.begin()
            from tests.golden import replies as found
        case "traces":
            from tests.golden import traces as found
        case "api":
            from tests.golden import api as found
        case "help":
            from tests.golden import commands as found
        case "check":
            from tests.golden import checks as found
        case _:
            from tests.golden import pages as found
    return found.items()


def main(arguments: list[str] | None = None) -> int:
    """0 where all went well and nothing differs."""
    args = _parser().parse_args(arguments)
    if args.command == "compare":
        return _compare(args.before, args.after, args.named, args.only)
    if args.only:
        return _write(args.folder, args.only)
    own = [sys.executable, "-m", __spec__.parent, "write", str(args.folder), "--only"]
    # Each in a process of its own, in which nothing else was imported or changed.
    return max([subprocess.run([*own, section], check=False).returncode for section in (*SECTIONS, SCREENS)])


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    commands = made.add_subparsers(dest="command", required=True)
    writing = commands.add_parser("write", help="write a record into a folder")
    writing.add_argument("folder", type=Path)
    writing.add_argument("--only", choices=(*SECTIONS, SCREENS), help="this section alone")
    comparing = commands.add_parser("compare", help="count and name what differs; the status is 1 if anything does")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--only", choices=SECTIONS, help="this section alone")
    comparing.add_argument(
        "--values",
        dest="named",
        action="store_false",
        help="leave out names of classes and fields, which may be renamed",
    )
    return made


def _write(folder: Path, section: str) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    logging.disable()  # some replies are meant to fail
    begin_s = time.monotonic()
    if section == SCREENS:
        from tests.golden import screens

        count = screens.write(folder / SCREENS)
    else:
        count = write(folder / f"{section}.txt", _items(section))
    print(f"{section}: {count} items in {time.monotonic() - begin_s:.0f} s", flush=True)
    return 0


def _compare(before: Path, after: Path, named: bool, only: str | None) -> int:
    found = 0
    for section in [only] if only else SECTIONS:
        left, right = (read(folder / f"{section}.txt") for folder in (before, after))
        different = list(differences(left, right, named))
        print(f"{section}: {len(left)} and {len(right)} items, {len(different)} different")
        for one in different:
            print(f"  {one}")
        found += len(different) + (not left or not right)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
