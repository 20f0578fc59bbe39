"""JSON values that were in other hands, checked one at a time. Every function raises TraceError for what cannot be."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any, NoReturn, TypeVar

from engine.config import BOUNDS, TOKEN_IDS
from engine.errors import TraceError

MAX_TEXT = 4096
"""Characters of one token."""

MAX_ID = int(TOKEN_IDS.high)
MAX_WHOLE = 10**9
MAX_SEED = int(BOUNDS["seed"].high)
MAX_S = 1e9

Word = TypeVar("Word", bound=StrEnum)


def fail(why: str) -> NoReturn:
    raise TraceError(f"This saved reply cannot be read ({why}): it is damaged or of another version, so ask anew.")


def check_keys(row: Mapping[str, Any], required: Collection[str], optional: Collection[str] = ()) -> None:
    """That the object has all that must be given, and nothing unknown."""
    if not row.keys() >= set(required) or not row.keys() <= {*required, *optional}:
        fail("something is missing in it, or unknown")


def items(value: object, least: int, most: int) -> list[Any]:
    if not isinstance(value, list) or not least <= len(value) <= most:
        fail("a list is missing, or too short or too long")
    return value


def whole(value: object, most: int = MAX_WHOLE) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        fail("a number is not whole, or out of range")
    return value


def token_id(value: object) -> int:
    return whole(value, MAX_ID)


def seed(value: object) -> int:
    """A number that is written as text."""
    if not isinstance(value, str) or not (value.isascii() and value.isdigit()) or len(value) > len(str(MAX_SEED)):
        fail("its seed is no number")
    return whole(int(value), MAX_SEED)


def number(value: object, most: float) -> float:
    """0..most; NaN is not."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
        fail("a number is missing or out of range")
    return float(value)


def seconds(value: object) -> float:
    return number(value, MAX_S)


def prob(value: object) -> float:
    return number(value, 1.0)


def maybe_prob(value: object) -> float | None:
    return None if value is None else prob(value)


def text(value: object, most: int = MAX_TEXT) -> str:
    """Text that can be sent on: no half of a surrogate pair, which UTF-8 cannot write."""
    if not isinstance(value, str) or len(value) > most:
        fail("a text is missing or too long")
    if any("\ud800" <= char <= "\udfff" for char in value):
        fail("a text is no text")
    return value


def word(value: object, words: Collection[str]) -> str:
    if not isinstance(value, str) or value not in words:
        fail("a word in it is unknown")
    return value


def one_of(kind: type[Word], value: object) -> Word:
    return kind(word(value, [member.value for member in kind]))
