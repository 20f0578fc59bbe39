"""Options that commands have in common, and where their progress goes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from engine.config import EngineConfig
from engine.errors import InvalidParams


def add_threads_option(command: argparse.ArgumentParser) -> None:
    command.add_argument("--threads", type=_threads, help="threads of the processor (default: as many as may be used)")


def add_prompt_options(command: argparse.ArgumentParser, max_new_tokens: int = 128) -> None:
    command.add_argument("--prompts", type=Path, required=True, help="JSON lines in Spec-Bench's format")
    command.add_argument("--limit", type=int, help="so many prompts, spread evenly over the categories (default: all)")
    command.add_argument("--max-new-tokens", type=int, default=max_new_tokens)


def _threads(text: str) -> int:
    """The same bounds as everywhere. Raises argparse.ArgumentTypeError."""
    try:
        return EngineConfig(threads=int(text)).threads or 1
    except InvalidParams as error:
        raise argparse.ArgumentTypeError(str(error)) from error


_threads.__name__ = "whole number"  # what argparse calls it


def silent(phase: str, fraction: float | None) -> None:
    """Takes the progress of loading, and keeps it to itself."""


def tell(line: str) -> None:
    """Progress, apart from the figures."""
    print(line, file=sys.stderr, flush=True)
