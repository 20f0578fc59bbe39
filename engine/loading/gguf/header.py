"""The head of a GGUF file: what it says of its model, and where its tensors are. The weights are not read.

Format: ggml's docs/gguf.md, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from engine.errors import LoadError

MAGIC = b"GGUF"
BLOCK = 2**20
"""Bytes to read at a time."""

LONGEST_HEAD = 2**26
"""Bytes that no head exceeds, the largest vocabularies take half as many: a wrong number, or a file made to do harm,
must not fill the memory before it is found out."""

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
"""Types of a value, by their numbers in the file."""

TYPES = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 40), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
}  # fmt: skip
"""Of tensors, by their numbers in the file: name, numbers in a block, bytes of a block."""


class Truncated(LoadError):
    """The file ends before its head or its weights do."""


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """shape: as numpy has it, outputs first. offset: bytes from the file's beginning; nbytes 0: of an unknown type."""

    name: str
    type: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int

    @property
    def numbers(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """facts: the file's key-values, arrays as lists."""

    facts: Mapping[str, Any]
    tensors: tuple[GgufTensor, ...]
    file_bytes: int

    @property
    def architecture(self) -> str:
        return str(self.facts.get("general.architecture", ""))

    def fact(self, name: str, default: Any = None) -> Any:
        """A fact of the architecture, such as "block_count"."""
        return self.facts.get(f"{self.architecture}.{name}", default)


def read_gguf(path: Path) -> GgufHeader:
    """Raises Truncated, and LoadError for what is no GGUF; each is one sentence that names the file."""
    try:
        with path.open("rb") as file:
            return _Reader(file, path.stat().st_size).read_header()
    except OSError as error:
        raise LoadError(
            f"{path.name} cannot be read ({error.strerror or error}): check its place and rights."
        ) from error
    except EOFError:
        raise Truncated(f"{path.name} is cut short: fetch it again.") from None
    except (ValueError, TypeError, OverflowError, RecursionError, struct.error) as error:
        raise LoadError(
            f"{path.name} is no GGUF file ({error}): name a whole .gguf file, or fetch it again."
        ) from error


class _Reader:
    """Goes through the head once, a block of the file at a time."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._size = file, size
        self._bytes, self._offset = b"", 0
        self._begin = 0  # of _bytes, in the file

    def read_header(self) -> GgufHeader:
        if self._take(4) != MAGIC:
            raise ValueError("it does not begin as one")
        version = self._read_number("I")
        if version not in (2, 3):
            raise ValueError(f"its version is {version}, and only 2 and 3 are known")
        tensor_count, pair_count = self._read_number("Q"), self._read_number("Q")
        if max(tensor_count, pair_count) > 10**6:
            raise ValueError("its head cannot be right")
        facts = {self._read_string(): self._read_value(self._read_number("I")) for _ in range(pair_count)}
        relative_tensors = [self._read_tensor() for _ in range(tensor_count)]
        align = int(facts.get("general.alignment", 32)) or 32
        if align < 0:
            raise ValueError(f"its alignment is {align}")
        start = -(-(self._begin + self._offset) // align) * align
        tensors = tuple(GgufTensor(t.name, t.type, t.shape, start + t.offset, t.nbytes) for t in relative_tensors)
        if any(tensor.offset + tensor.nbytes > self._size for tensor in tensors):
            raise EOFError
        return GgufHeader(facts, tensors, self._size)

    def _read_tensor(self) -> GgufTensor:
        name, dims = self._read_string(), self._read_number("I")
        if dims > 8:
            raise ValueError(f"{name} has {dims} dimensions")
        shape = tuple(reversed([self._read_number("Q") for _ in range(dims)]))
        kind, block, size = TYPES.get(number := self._read_number("I"), (f"type {number}", 1, 0))
        return GgufTensor(name, kind, shape, self._read_number("Q"), math.prod(shape) // block * size)

    def _read_value(self, kind: int) -> Any:
        if kind == STRING:
            return self._read_string()
        if kind != ARRAY:
            return self._read_number(SCALARS[kind]) if kind in SCALARS else self._refuse_type(kind)
        inner, count = self._read_number("I"), self._read_number("Q")
        if inner in SCALARS:
            code = f"<{count}{SCALARS[inner]}"
            return list(struct.unpack(code, self._take(self._check_size(struct.calcsize(code)))))
        self._check_size(8 * count)
        return self._read_strings(count) if inner == STRING else [self._read_value(inner) for _ in range(count)]

    def _read_strings(self, count: int) -> list[str]:
        """A vocabulary has hundreds of thousands: those that lie wholly in the block at hand are taken without a
        call."""
        strings: list[str] = []
        buffer, offset = self._bytes, self._offset
        for _ in range(count):
            begin = offset + 8
            end = begin + int.from_bytes(buffer[offset:begin], "little")
            if begin > len(buffer) or end > len(buffer):
                self._offset = offset
                strings.append(self._read_string())
                buffer, offset = self._bytes, self._offset
            else:
                strings.append(buffer[begin:end].decode("utf-8", "replace"))
                offset = end
        self._offset = offset
        return strings

    def _refuse_type(self, kind: int) -> Any:
        raise ValueError(f"it holds a value of type {kind}")

    def _read_string(self) -> str:
        return self._take(self._check_size(self._read_number("Q"))).decode("utf-8", "replace")

    def _read_number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self._take(struct.calcsize(code)))[0]

    def _check_size(self, count: int) -> int:
        if count > LONGEST_HEAD:
            raise ValueError("its head cannot be right")
        return count

    def _take(self, count: int) -> bytes:
        end = self._offset + count
        self._check_size(self._begin + end)
        if end > len(self._bytes):
            rest = self._bytes[self._offset :]
            self._begin += self._offset
            self._bytes, self._offset, end = rest + self._file.read(max(BLOCK, count - len(rest))), 0, count
            if count > len(self._bytes):
                raise EOFError
        result, self._offset = self._bytes[self._offset : end], end
        return result
