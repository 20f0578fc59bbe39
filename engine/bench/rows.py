"""rows: milliseconds of a forward by its number of rows, beside the time that reading the weights alone takes.

What speculation can gain is decided here: a round of K drafts is a forward of K + 1 rows.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from engine.bench.options import add_model_options
from engine.cli.options import silent, tell
from engine.cli.progress import TimeLeft
from engine.errors import EngineError
from engine.hardware import buffer_bytes

if TYPE_CHECKING:
    from engine.networks.model import Model

CONTEXTS = (200, 1000)
MAX_ROWS = 16


@dataclass(frozen=True, slots=True)
class Samples:
    """Seconds. forwards: by (context, rows); reads: of the whole buffer of `buffer_bytes`."""

    forwards: dict[tuple[int, int], list[float]]
    reads: list[float]
    buffer_bytes: int


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = f"milliseconds of a forward of 1 to {MAX_ROWS} rows, against the time to read the weights from memory"
    command = commands.add_parser("rows", help=text, description=text)
    command.add_argument("--repeats", type=int, default=40, help="times that each is measured (default: %(default)s)")
    add_model_options(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """See `report_of`. Raises EngineError."""
    if args.repeats < 1:
        raise EngineError("--repeats must be at least 1.")
    from engine.loading import load as loading
    from engine.networks.model import Model

    threads = args.threads or loading.default_threads()
    loaded = loading.load(
        args.target, device=args.device, threads=threads, kernel=args.kernel, quant=args.quant, offline=args.offline,
        progress=silent,
    )  # fmt: skip
    if loaded.context_len < max(CONTEXTS) + MAX_ROWS:
        raise EngineError(
            f"{loaded.name} reads at most {loaded.context_len} tokens: choose a model with a longer context."
        )
    print(f"{loaded.name}, {loaded.weights}, {loaded.kernel}, {threads} threads")
    samples = measure(Model(loaded.network, loaded.context_len), args.repeats, buffer_bytes(), tell)
    report = report_of(samples, loaded.network.weight_bytes)
    report["settings"] = {
        "target": loaded.name, "weights": loaded.weights, "kernel": loaded.kernel, "threads": threads,
        "repeats": args.repeats, "buffer_mib": samples.buffer_bytes >> 20,
    }  # fmt: skip
    print(table(report))
    return report


def measure(model: Model, repeats: int, buffer: int, report: Callable[[str], None]) -> Samples:
    """Cycles through contexts and row counts, up and down in turn, so that a busy moment hits all alike.

    A forward of r rows is asked for the last r ids behind a context that its cache knows: what a round of r - 1 drafts
    asks for. Between the cycles the buffer is read once, by torch's sum over float32 with the same number of threads
    (each takes its part; on two cores nothing that we tried read faster): that is the bandwidth.
    """
    import torch

    from engine.networks.kv_cache import KVCache
    from engine.networks.model import Request

    memory = torch.ones(buffer // 4, device=model.network.device)
    ids = [1 + 7 * i % (model.vocab_size - 1) for i in range(max(CONTEXTS) + MAX_ROWS)]
    caches = {context: KVCache() for context in CONTEXTS}
    cells = [(context, rows) for context in CONTEXTS for rows in range(1, MAX_ROWS + 1)]
    forwards: dict[tuple[int, int], list[float]] = {cell: [] for cell in cells}
    reads: list[float] = []
    pace = TimeLeft(repeats, report)
    for cycle in range(-1, repeats):  # the first one warms up
        for context, rows in cells if cycle % 2 else reversed(cells):
            request = Request(ids[: context + rows], rows, caches[context])
            begin_s = perf_counter()
            model.forward([request])
            model.synchronize()
            forwards[context, rows].append(perf_counter() - begin_s)
        begin_s = perf_counter()
        float(memory.sum())
        reads.append(perf_counter() - begin_s)
        model.forward(
            [Request(ids[: CONTEXTS[0] + 1], 1, caches[CONTEXTS[0]])]
        )  # the readers' threads settle meanwhile
        if cycle >= 0:
            pace(cycle + 1, "cycles")
    return Samples({cell: seconds[1:] for cell, seconds in forwards.items()}, reads[1:], buffer)


def report_of(samples: Samples, weight_bytes: int) -> dict[str, Any]:
    """`ms` and `ms_1000`: medians by rows at the two contexts; `min_ms` and `min_ms_1000`: the quickest of each.

    floor_ms = weight_bytes / bandwidth_gb_s, the median bandwidth; best_bandwidth_gb_s is the quickest read's.
    """
    bandwidth, best = (samples.buffer_bytes / over(samples.reads) / 1e9 for over in (statistics.median, min))
    return {
        "ms": _by_rows(samples, CONTEXTS[0], statistics.median),
        "ms_1000": _by_rows(samples, CONTEXTS[1], statistics.median),
        "min_ms": _by_rows(samples, CONTEXTS[0], min),
        "min_ms_1000": _by_rows(samples, CONTEXTS[1], min),
        "floor_ms": weight_bytes / bandwidth / 1e6,
        "bandwidth_gb_s": bandwidth,
        "best_bandwidth_gb_s": best,
        "weight_bytes": weight_bytes,
    }


def _by_rows(samples: Samples, context: int, over: Callable[[Sequence[float]], float]) -> dict[str, float]:
    return {str(rows): over(samples.forwards[context, rows]) * 1e3 for rows in range(1, MAX_ROWS + 1)}


def table(report: dict[str, Any]) -> str:
    """For a terminal: each row count's milliseconds, and as a multiple of one row's and of the floor."""
    heads = ("ms", "min", "to 1 row", "to floor")
    lines = [f"{'rows':>4}" + "".join(f"{f'{context}: {head}':>15}" for context in CONTEXTS for head in heads)]
    for rows in report["ms"]:
        cells = []
        for ms, least in ((report["ms"], report["min_ms"]), (report["ms_1000"], report["min_ms_1000"])):
            to_floor = ms[rows] / report["floor_ms"] if report["floor_ms"] else 0.0
            cells += [ms[rows], least[rows], ms[rows] / ms["1"], to_floor]
        lines.append(f"{rows:>4}" + "".join(f"{cell:15.2f}" for cell in cells))
    floor, speed = f"{report['floor_ms']:.2f} ms", f"{report['bandwidth_gb_s']:.1f} GB/s"
    lines.append(f"floor {floor}: {report['weight_bytes'] / 1e6:.1f} MB of weights at {speed}")
    return "\n".join(lines)
