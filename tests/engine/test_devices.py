"""Tensors move in one place, quantised weights in none; other processors and formats give the right answer."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from engine import hardware
from engine.networks import devices
from engine.networks.linear import DTYPES, LINEAR_FORMATS, Int8, Nf4, with_compute

ROOT = Path(__file__).parent.parent.parent
MODULES = [path.relative_to(ROOT) for path in sorted((ROOT / "engine").rglob("*.py")) if path.stem != "devices"]
CAST = re.compile(r"(.*\.)?_?dtype|torch\.\w+(\d|half|float)")
"""What `.to` may be given elsewhere, alone: a number format."""
CPU = torch.device("cpu")


def moves(source: str) -> list[str]:
    """Calls that move a tensor between devices, or wait for one."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [ast.unparse(call) for call in calls if isinstance(call.func, ast.Attribute) and _is_move(call, call.func)]


def _is_move(call: ast.Call, function: ast.Attribute) -> bool:
    name, whole, named = function.attr, ast.unparse(function), {keyword.arg for keyword in call.keywords}
    if name == "to":
        return len(call.args) != 1 or bool(named) or not CAST.fullmatch(ast.unparse(call.args[0]))
    if name in ("cpu", "cuda", "mps", "xpu", "pin_memory"):
        return True
    if whole.startswith("torch."):
        return name == "synchronize" or (name in ("tensor", "as_tensor", "asarray") and "device" in named)
    return False


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_nothing_but_devices_moves_a_tensor_or_waits(path: Path) -> None:
    assert moves((ROOT / path).read_text("utf-8")) == []


@pytest.mark.parametrize(
    ("call", "moving"),
    [("x.to(device)", True), ("x.to(where, "
                              "plain)", True), ("x.to(device=d)", True), ("x.to(y)", True), ("x.cpu()", True),
     ("x.float().cuda()", True), ("torch.cuda.synchronize(d)", True), ("torch.tensor([1], device=d)", True),
     ("x.to('cuda')", True), ("torch.mps.synchronize()", True), ("x.to(x.dtype)", False), ("x.to(self._dtype)", False),
     ("x.to(torch.bfloat16)", False), ("model.synchronize()", False), ("torch.zeros(2, device=d)", False),
     ("x.to(dtype, copy=True)", True)],
)  # fmt: skip
def test_the_reading_of_the_code_tells_moves_from_casts(call: str, moving: bool) -> None:
    assert bool(moves(call)) is moving


def test_ids_arrive_as_they_were_sent() -> None:
    rows = [[3, 1, 2], range(5), [], [2**40]]
    found = devices.send_ids(rows, CPU)
    assert [part.tolist() for part in found] == [list(row) for row in rows]
    assert all(part.dtype == torch.int64 for part in found)
    assert [part.tolist() for part in devices.send_ids([[], []], CPU)] == [[], []]


def test_what_is_there_already_is_not_copied() -> None:
    x = torch.randn(3)
    assert devices.move_to_device(x, CPU) is x and devices.fetch_to_cpu(x) is x
    half = devices.move_to_device(x, CPU, torch.bfloat16)
    assert half.dtype == torch.bfloat16 and devices.fetch_to_cpu(half).dtype == torch.float32
    devices.synchronize(CPU)


@pytest.mark.parametrize("kind", ["cuda", "mps"])
def test_a_clock_waits_for_the_device(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[object] = []
    monkeypatch.setattr(f"torch.{kind}.synchronize", lambda *which: waited.append(which))
    devices.synchronize(torch.device(kind))
    assert len(waited) == 1


# ------------------------------------------------------------------------------------------------- quantised weights


def test_quantised_weights_are_never_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are quantised where they are; bitsandbytes is never asked to move anything, before a product or after it."""
    import bitsandbytes as bnb

    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("moved")

    for owner in (bnb.nn.Params4bit, bnb.nn.Linear4bit):
        for name in ("to", "cpu", "cuda"):
            monkeypatch.setattr(owner, name, forbidden)
    weight, x = torch.randn(48, 64), torch.randn(3, 64)
    for kind in ("nf4", "int8"):
        layer = LINEAR_FORMATS[kind].build(weight, None)
        assert torch.equal(layer(x), layer(x))


@pytest.mark.parametrize("kind", [Nf4, Int8])
def test_a_model_that_is_moved_leaves_its_quantised_layers_where_they_are(kind: Any) -> None:
    """Layers are no modules and have no way to move: for another device a model is loaded afresh."""
    layer = kind(torch.randn(48, 64), None)
    x = torch.randn(3, 64)
    before = layer(x)
    assert not isinstance(layer, torch.nn.Module) and not any(hasattr(layer, name) for name in ("to", "cpu", "cuda"))

    class Holder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.other = layer, torch.nn.Linear(2, 2)

    holder = Holder().to("meta")
    assert holder.other.weight.device.type == "meta"
    assert torch.equal(layer(x), before)


@pytest.mark.parametrize("compute", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("outputs", [48, 64])
def test_nf4_multiplies_in_the_format_that_is_asked_for(compute: str, outputs: int) -> None:
    """64: a processor with AVX-512 BF16 has a kernel for that, which multiplies in bf16 whatever it is asked for."""
    weight, x = torch.randn(outputs, 64), torch.randn(5, 64)
    exact, kind = torch.nn.functional.linear(x, _dequantised(weight)), with_compute(LINEAR_FORMATS["nf4"], compute)
    found = kind.build(weight, None)(x)
    assert found.dtype == torch.float32 and kind.phrase.endswith(f" in {compute}")
    error = float((found - exact).norm() / exact.norm())
    assert error <= 2 * torch.finfo(DTYPES[compute]).eps
    assert (error == 0.0) == (compute == "fp32"), "or the format makes no difference"


@pytest.mark.parametrize("shape", [(48, 64), (64, 96), (7, 40), (10, 33)], ids=str)
def test_nf4_of_sizes_that_bitsandbytes_cannot_pack_is_not_packed(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On whatever processor: bitsandbytes is told that this one has AVX-512 BF16, for which it packs weights."""
    monkeypatch.setattr("bitsandbytes.nn.modules.has_avx512bf16", lambda: True)
    weight, x = torch.randn(shape), torch.randn(5, shape[1])
    layer = Nf4(weight, None)
    expected = torch.nn.functional.linear(x, _dequantised(weight))
    for _ in range(2):  # the first product would pack
        assert (layer(x) - expected).norm() <= 1e-5 * expected.norm()


def test_nf4_reads_rows_that_do_not_lie_in_one_piece() -> None:
    weight, x = torch.randn(64, 128), torch.randn(128, 5).T
    layer = Nf4(weight, None)
    assert not x.is_contiguous() and torch.equal(layer(x), layer(x.contiguous()))


def _dequantised(weight: torch.Tensor) -> torch.Tensor:
    """What NF4 makes of these weights, float32."""
    import bitsandbytes.functional as bnb

    return bnb.dequantize_4bit(*bnb.quantize_4bit(weight, quant_type="nf4", blocksize=64))


def test_other_kinds_multiply_as_they_are() -> None:
    assert all(with_compute(kind, "fp16") is kind for name, kind in LINEAR_FORMATS.items() if name != "nf4")
    assert with_compute(LINEAR_FORMATS["nf4"], "auto") is LINEAR_FORMATS["nf4"]


# ----------------------------------------------------------------------------------------------- other processors

PRODUCTS = """
import sys, numpy as np, torch
from engine.networks.linear import LINEAR_FORMATS
from tests.engine.test_linear import activations, gguf_blocks
torch.set_num_threads(1)
blocks, x = gguf_blocks("Q4_1", 64, 8), activations(5, 256)
print(torch.backends.cpu.get_cpu_capability())
np.savez(sys.argv[1], **{name: kind.build(blocks, None)(x).float().numpy() for name, kind in LINEAR_FORMATS.items() if "cpu" in kind.devices})
"""


def test_a_processor_without_vector_instructions_gives_the_same_answer(tmp_path: Path) -> None:
    """torch is told to use none of AVX2 and AVX-512; other kernels then do what those would have done. Of our own
    kernels each path is tested in test_native."""
    found = {}
    for capability in ("default", ""):
        path = tmp_path / f"{capability}.npz"
        env = {"ATEN_CPU_CAPABILITY": capability} if capability else {}
        ran = subprocess.run(
            [sys.executable, "-c", PRODUCTS, str(path)], cwd=ROOT, env=_environment(env), capture_output=True, text=True
        )
        assert ran.returncode == 0, ran.stderr
        assert (ran.stdout.strip() == "DEFAULT") or not capability
        found[capability] = np.load(path)
    assert set(found[""]) >= {"gguf", "bf16", "fp32", "nf4", "int8"}
    for name, expected in found[""].items():
        other = found["default"][name]
        assert np.linalg.norm(other - expected) <= 2.0**-7 * np.linalg.norm(expected), name


def _environment(more: dict[str, str]) -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k != "ATEN_CPU_CAPABILITY"} | {"PYTHONPATH": str(ROOT)} | more


@pytest.mark.parametrize(
    ("bf16", "amx", "name"), [(False, False, "fp32"), (True, False, "bf16"), (False, True, "bf16")]
)
def test_a_cpu_gets_the_number_format_that_it_multiplies(
    monkeypatch: pytest.MonkeyPatch, bf16: bool, amx: bool, name: str
) -> None:
    cpu = SimpleNamespace(_is_avx512_bf16_supported=lambda: bf16, _is_amx_tile_supported=lambda: amx)
    monkeypatch.setattr("torch.cpu", cpu)
    assert hardware.pick_dtype(CPU) == name


@pytest.mark.parametrize(("real", "name"), [(True, "bf16"), (False, "fp16")])
def test_a_gpu_that_only_emulates_bf16_gets_fp16(monkeypatch: pytest.MonkeyPatch, real: bool, name: str) -> None:
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation=True: including_emulation or real)
    assert hardware.pick_dtype(torch.device("cuda")) == name
