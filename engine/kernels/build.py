"""The native kernels: one C++ file, compiled once on the user's machine, called through ctypes.

No step here may break or hang a start: whatever fails, `kernels()` says why and the engine runs on torch's own kernels.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from engine.errors import LoadError
from engine.hardware import processor
from engine.storage.cache_folder import cache_folder
from engine.storage.checksums import sha256

log = logging.getLogger(__name__)

SOURCE = Path(__file__).parent / "kernels.cpp"
COMPILERS = ("g++", "clang++", "c++")
FLAGS = (
    "-O3", "-march=native", "-std=c++17", "-fopenmp", "-shared", "-fPIC",
    "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math",
)  # fmt: skip
"""No fast-math and no contraction behind our back: one order of rounding, whatever the number of rows. The last two
only give up error flags that nobody reads, so that rounding can be vectorised; they change no result."""

COMPILE_LIMIT_S = 180
LOCK_LIMIT_S = 240

P, I32, I64, F32, F64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_float, ctypes.c_double


class NativeLinear(ctypes.Structure):
    """A packed weight matrix; see kernels.cpp."""

    _fields_ = (("tiles", P), ("bias", P), ("bits", I32), ("inputs", I32), ("outputs", I32))


class NativeLayer(ctypes.Structure):
    _fields_ = (
        ("attention_norm", P), ("mlp_norm", P), ("query_norm", P), ("key_norm", P), ("state_norm", P),
        ("qkv", NativeLinear), ("out", NativeLinear), ("gate_up", NativeLinear), ("down", NativeLinear),
    )  # fmt: skip


class NativeShape(ctypes.Structure):
    _fields_ = (
        ("layers", I32), ("hidden", I32), ("heads", I32), ("kv_heads", I32), ("dim", I32), ("mlp", I32),
        ("interleaved", I32), ("epsilon", F32), ("scale", F32), ("normed_residual", I32),
    )  # fmt: skip


class NativeRow(ctypes.Structure):
    """Where a row of a pass stands, and its conversation's keys and values."""

    _fields_ = (("keys", P), ("values", P), ("capacity", I64), ("position", I64))


SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "gl_scratch_bytes": (I64, (P, I32, I64, I32)),
    "gl_layers": (None, (P, P, P, I32, P, P, P, P, I32, P, P, I64, I32)),
    "gl_head": (None, (P, P, F32, P, I32, P, P, I32)),
    "gl_choice": (I32, (P, I32, P)),
    "gl_raw_probs": (None, (P, I32, I32, P, P, P)),
    "gl_distribution": (I32, (P, I32, F32, I32, F64, F32, P)),
    "gl_draw": (I32, (P, I32, F64)),
    "gl_rows": (None, (P, P, I32, P)),
    "gl_round": (None, (P, I32, P, P, P)),
    "gl_multiply": (None, (P, P, I32, P, P, I32)),
    "gl_path": (ctypes.c_char_p, ()),
}


@dataclass(frozen=True, slots=True)
class Kernels:
    """The loaded library. path: which instructions this build uses, for people; key: names source, compiler and CPU."""

    library: Any
    path: str
    key: str


class KernelsUnavailable(Exception):
    """Why there are no native kernels here, as the end of a sentence."""


@functools.cache
def kernels() -> Kernels | str:
    """The kernels, built if need be; or why there are none, as the end of a sentence."""
    try:
        compiler = _find_compiler()
        key = _cache_key(compiler)
        return _load_library(_build_library(compiler, key), key)
    except KernelsUnavailable as reason:
        return str(reason)
    except OSError as error:
        return f"the compiled kernels could not be loaded ({error})"


def _find_compiler() -> str:
    setting = os.environ.get("CXX")
    compiler = next(filter(None, map(shutil.which, [setting] if setting else COMPILERS)), None)
    if compiler is None:
        raise KernelsUnavailable("there is no C++ compiler here (install g++ for about four times the speed)")
    return compiler


def _cache_key(compiler: str) -> str:
    """Changes with the source, the flags, the compiler and the processor, for which -march=native builds."""
    try:
        version = subprocess.run([compiler, "--version"], capture_output=True, timeout=30, check=False).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KernelsUnavailable(f"the compiler {compiler} does not answer ({error})") from error
    parts = [SOURCE.read_bytes(), repr(_flags()).encode(), version, processor().encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _flags() -> tuple[str, ...]:
    """torch brings an OpenMP of its own; two of them would spin against each other, so we link to that one."""
    import torch

    torch_folder = Path(torch.__file__).parent
    openmp_libraries = sorted(
        [*(torch_folder / "lib").glob("libgomp*.so*"), *torch_folder.with_name("torch.libs").glob("libgomp*.so*")]
    )
    return (*FLAGS, "-Wl,--as-needed", str(openmp_libraries[0])) if openmp_libraries else FLAGS


def _build_library(compiler: str, key: str) -> Path:
    """The compiled file in the cache folder; in a temporary folder where the cache cannot be written to."""
    try:
        folder = cache_folder() / "native"
        folder.mkdir(parents=True, exist_ok=True)
        if (library := _find_intact(folder, key)) is not None:
            return library
        with FileLock(folder / f"kernels-{key}.lock", timeout=LOCK_LIMIT_S):  # another may build it while we wait
            return _find_intact(folder, key) or _compile_into(compiler, folder, key)
    except Timeout as error:
        raise KernelsUnavailable("another process has been compiling the kernels for minutes") from error
    except (LoadError, OSError) as error:
        log.info("kernels are compiled in a temporary folder, since the cache cannot be used: %s", error)
        return _compile_into(compiler, Path(tempfile.mkdtemp(prefix="greenlight-")), key)


def _find_intact(folder: Path, key: str) -> Path | None:
    """A file built before, if it is still what its name says: loading one that was cut short would end this process."""
    return next((path for path in folder.glob(f"kernels-{key}-*.so") if path.stem.endswith(sha256(path)[:16])), None)


def _compile_into(compiler: str, folder: Path, key: str) -> Path:
    """Compiled under another name; the last one ends in the beginning of the file's own SHA-256."""
    partial = folder / f"kernels-{key}.{os.getpid()}"
    try:
        _compile(compiler, partial)
        return partial.replace(folder / f"kernels-{key}-{sha256(partial)[:16]}.so")
    finally:
        partial.unlink(missing_ok=True)


def _compile(compiler: str, target: Path) -> None:
    command = [compiler, *FLAGS, "-o", str(target), str(SOURCE), *_flags()[len(FLAGS) :]]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KernelsUnavailable(f"the kernels could not be compiled ({error})") from error
    if process.returncode != 0:
        log.warning("compiling the kernels failed:\n%s", process.stderr)
        last_line = (process.stderr.strip().splitlines() or ["no message"])[-1]
        raise KernelsUnavailable(f"the kernels could not be compiled ({last_line})")


def _load_library(path: Path, key: str) -> Kernels:
    library = ctypes.CDLL(str(path))
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return Kernels(library, str(library.gl_path().decode()), key)
