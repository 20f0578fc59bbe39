"""Every kind of linear layer against its own exact definition, how one of them is chosen, and that only one place moves a
tensor."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from torch import Tensor
from torch.nn.functional import linear as product

from engine import hardware
from engine.config import QUANTS, EngineConfig
from engine.errors import InvalidParams, LoadError
from engine.kernels import packing
from engine.kernels.packing import Blocks, pack_tiles, read_blocks, unpack_tiles
from engine.loading import autotune
from engine.networks import devices, linear
from engine.networks.linear import DTYPES, LINEAR_FORMATS, Grid, Linear, Nf4, refusal, with_compute
from engine.storage.json_cache import read_record, remember, write_record

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
GGUF_KINDS = ("Q4_0", "Q4_1", "Q8_0")
BF16 = 2.0**-8
"""The largest relative error of rounding to bf16."""
ROOT = Path(__file__).parents[2]


def gguf_blocks(kind: str = "Q4_1", outputs: int = 32, inputs: int = 64, seed: int = 0) -> Blocks:
    matrix = np.random.default_rng(seed).normal(0.1, size=(outputs, inputs)).astype(np.float32)
    blocks = read_blocks(kind, quantize(matrix, GGMLQuantizationType[kind]))
    assert blocks is not None
    return blocks


def activations(rows: int, inputs: int, seed: int = 1) -> Tensor:
    return torch.randn(rows, inputs, generator=torch.Generator().manual_seed(seed))


def weights_of(layer: Linear) -> Tensor:
    """What a layer multiplies by, float64 [outputs, inputs]: it is given each unit vector."""
    weights: Tensor = layer(torch.eye(layer.inputs)).double().T
    return weights


def definition(name: str, weight: Tensor) -> Any:
    """The weights that each kind must multiply by, from the libraries' own dequantisation, float64."""
    import bitsandbytes.functional as bnb

    if name == "nf4":
        return bnb.dequantize_4bit(*bnb.quantize_4bit(weight, quant_type="nf4", blocksize=64)).double()
    if name == "int8":
        quants, largest, _ = bnb.int8_vectorwise_quant(weight.half())
        return quants.double() * largest.double()[:, None] / 127
    return weight.to({"bf16": torch.bfloat16}.get(name, torch.float32)).double()


# ------------------------------------------------------------------------------------------------- the GGUF's grid


def test_blocks_and_the_grid_give_the_weights_as_exactly_as_is_said() -> None:
    """Against the gguf package's own dequantisation. Of torch's kernel the quants are exact; scale and zero are rounded
    to bf16, and the result, too."""

    def spread(numbers: np.ndarray | None) -> Tensor:
        return torch.zeros(()) if numbers is None else torch.from_numpy(numbers.repeat(32, 1)).double()

    for kind in GGUF_KINDS:
        data = quantize(activations(32, 288).numpy(), GGMLQuantizationType[kind])
        blocks = read_blocks(kind, data)
        assert blocks is not None
        exact = torch.from_numpy(blocks.dequantise()).double()
        np.testing.assert_allclose(exact, dequantize(data, GGMLQuantizationType[kind]), rtol=2e-3, atol=1e-6)
        zero = spread(blocks.minimum) + (8 * spread(blocks.scale) if blocks.bits == 4 else 0)
        allowed = 1.01 * BF16 * ((exact - zero).abs() + zero.abs() + exact.abs())
        assert ((weights_of(Grid(blocks, None)) - exact).abs() <= allowed).all()
        # With scales that bf16 holds nothing but float32 sums and a bf16 result can differ.
        blocks.scale[:] = 2.0**-6
        if blocks.minimum is not None:
            blocks.minimum[:] = -(2.0**-3)
        exact, layer = torch.from_numpy(blocks.dequantise()).double(), Grid(blocks, None)
        assert torch.equal(weights_of(layer), exact)
        for count in (1, 2, 4, 5, 17):
            x = activations(count, 288).bfloat16().float()
            torch.testing.assert_close(layer(x), (x.double() @ exact.T).float(), rtol=1.01 * BF16, atol=1e-4)
    assert read_blocks("Q6_K", data) is None


def test_sizes_that_the_int4_kernel_does_not_take_are_one_sentence() -> None:
    with pytest.raises(LoadError, match=r"^torch's int4 kernel does not run 24 x 32 weights: use --quant bf16\.$"):
        Grid(gguf_blocks("Q4_1", 24, 32), None)
    with pytest.raises(LoadError, match="leave out --quant gguf"):
        LINEAR_FORMATS["gguf"].build(torch.zeros(32, 32), None)


def test_tiles_give_back_what_they_were_made_of() -> None:
    for kind, outputs, groups in itertools.product(GGUF_KINDS, (1, 4), (1, 5)):
        parts = [gguf_blocks(kind, 16 * outputs, 32 * groups, seed) for seed in range(2)]
        tiles = packing.deinterleave_tiles(packing.interleave_tiles(*map(pack_tiles, parts)))
        for back, blocks in zip(map(unpack_tiles, tiles), parts, strict=True):
            assert back.bits == blocks.bits and back.quants.dtype == blocks.quants.dtype
            assert np.array_equal(back.dequantise(), blocks.dequantise())
    with pytest.raises(ValueError, match="no tiles"):
        unpack_tiles(np.zeros((2, 3, 7), dtype=np.uint8))


# ----------------------------------------------------------------------------------------------------- every kind


ON_CPU = [name for name, kind in LINEAR_FORMATS.items() if "cpu" in kind.devices]


@pytest.mark.parametrize("name", [name for name in ON_CPU if name != "gguf"])
def test_a_layer_multiplies_by_the_weights_that_its_kind_defines(name: str) -> None:
    for shape in ((48, 64), (128, 192), (7, 40), (10, 33)):
        weight, x = activations(*shape) * 0.1, activations(5, shape[1])
        weight[3] = 0  # a row of zeros has no scale of its own
        layer, expected = LINEAR_FORMATS[name].build(weight, None), definition(name, weight)
        assert (layer.outputs, layer.inputs) == shape
        assert (weights_of(layer) - expected).abs().max() <= BF16 * expected.abs().max()
        found, exact = layer(x), x.double() @ expected.T
        assert found.dtype == torch.float32
        assert (found - exact).norm() <= (1e-5 if name == "fp32" else 2 * BF16) * exact.norm()


@pytest.mark.gpu
@pytest.mark.parametrize("name", [name for name, kind in LINEAR_FORMATS.items() if "cuda" in kind.devices])
def test_a_layer_on_a_gpu_multiplies_by_the_same_weights(name: str) -> None:
    """int8 rounds the activations of each row to bytes there, hence its tolerance; and no row depends on another."""
    assert refusal(name, CUDA) == ""
    weight, x = (activations(128, 192) * 0.1).bfloat16(), activations(5, 192).bfloat16()
    x[2] *= 100  # outliers
    layer = LINEAR_FORMATS[name].build(weight.to(CUDA), None)
    found, expected = layer(x.to(CUDA)), x.double() @ definition(name, weight.float()).T
    assert found.dtype == torch.bfloat16 and found.device.type == "cuda"
    allowed = {"int8": 6, "nf4": 4}.get(name, 2) * BF16
    assert ((found.cpu() - expected).norm(dim=1) <= allowed * expected.norm(dim=1)).all()
    assert name != "int8" or torch.equal(layer(x[:2].to(CUDA)), found[:2])


@pytest.mark.parametrize("name", LINEAR_FORMATS)
def test_biases_formats_sizes_and_rows_are_as_promised(name: str) -> None:
    """Rows are the same up to rounding: to the bit or not is a matter of the machine, and asked at each start."""
    kind, bias, x = LINEAR_FORMATS[name], torch.arange(512.0) % 7 * 3, activations(9, 512)
    plain, biased = (kind.build(gguf_blocks("Q4_1", 512, 512), each) for each in (None, bias))
    whole = plain(x)
    assert torch.allclose(biased(x), whole + bias, rtol=1e-2, atol=0.5)
    for dtype in (torch.float32, torch.bfloat16):
        assert biased(x.to(dtype)).dtype == dtype
    bits = {"gguf": 5, "bf16": 16, "fp16": 16, "fp32": 32, "nf4": 4.5, "int8": 8}[name]  # with the scales
    assert plain.weight_bytes == pytest.approx(512 * 512 * bits / 8, rel=0.02)
    assert (torch.cat([plain(x[:1]), plain(x[1:5]), plain(x[5:])]) - whole).norm() <= BF16 * whole.norm()
    sentence = refusal(name, CPU)
    assert (sentence == "") == (name in ON_CPU) and re.fullmatch(rf"(--quant {name} .*\.)?", sentence)


def test_what_cannot_be_used_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(QUANTS) - {"auto"} <= set(LINEAR_FORMATS) and EngineConfig(quant="nf4").quant == "nf4"
    with pytest.raises(InvalidParams, match=r"^quant must be auto, gguf, nf4, int8, bf16 or fp32, not 'q5'\.$"):
        EngineConfig(quant="q5")
    for name, device in (("gguf", "cuda"), ("nf4", "mps")):
        assert refusal(name, torch.device(device)).startswith(f"--quant {name} does not run on {device}:")

    def broken() -> Any:
        raise OSError("undefined symbol: cgemm\nand more")

    monkeypatch.setattr(linear, "_bitsandbytes", broken)
    for name in ("nf4", "int8"):
        assert refusal(name, CPU) == f"--quant {name} cannot be used here, bitsandbytes says OSError: leave it out."


def test_nf4_multiplies_in_the_format_that_is_asked_for_and_others_as_they_are() -> None:
    """64: a processor with AVX-512 BF16 has a kernel for that, which multiplies in bf16 whatever it is asked for."""
    for name, kind in LINEAR_FORMATS.items():
        assert with_compute(kind, "auto") is kind and (with_compute(kind, "fp16") is kind) == (name != "nf4")
    for outputs, compute in ((outputs, compute) for outputs in (48, 64) for compute in DTYPES):
        weight, x = activations(outputs, 64), activations(5, 64)
        kind, exact = with_compute(LINEAR_FORMATS["nf4"], compute), product(x, definition("nf4", weight).float())
        found = kind.build(weight, None)(x)
        assert found.dtype == torch.float32 and kind.phrase.endswith(f" in {compute}")
        error = float((found - exact).norm() / exact.norm())
        assert error <= 2 * torch.finfo(DTYPES[compute]).eps
        assert (error == 0.0) == (compute == "fp32"), "or the format makes no difference"


def test_nf4_of_sizes_that_bitsandbytes_cannot_pack_is_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """On whatever processor: bitsandbytes is told that this one has AVX-512 BF16, for which it packs weights."""
    monkeypatch.setattr("bitsandbytes.nn.modules.has_avx512bf16", lambda: True)
    for outputs, inputs in ((48, 64), (64, 96), (7, 40), (10, 33)):
        weight, x = activations(outputs, inputs), activations(inputs, 5).T  # rows that do not lie in one piece
        layer, expected = Nf4(weight, None), product(x, definition("nf4", weight).float())
        for _ in range(2):  # the first product would pack
            assert (layer(x) - expected).norm() <= 1e-5 * expected.norm()


@pytest.mark.slow
def test_a_processor_without_vector_instructions_gives_the_same_answers() -> None:
    """torch is told to use none of AVX2 and AVX-512; other kernels then do what those would have done."""
    command = [sys.executable, "-m", "pytest", "-q", __file__, "-k", "weights or promised or nf4"]
    assert subprocess.run(command, cwd=ROOT, env=os.environ | {"ATEN_CPU_CAPABILITY": "default"}).returncode == 0


# ---------------------------------------------------------------------------------------------------- the choice


def test_the_quickest_is_measured_once_and_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds, measured = {"gguf": 2.0, "bf16": 1.0, "fp32": 2.0}, []

    def measure(names: list[str], shape: tuple[int, int]) -> dict[str, float]:
        measured.append(shape)
        return {name: seconds[name] for name in names}

    def choose(*names: str, folder: Path | None = tmp_path, columns: int = 64) -> str:
        return autotune.quickest_format(names or list(seconds), folder, (64, columns))

    monkeypatch.setattr(autotune, "measure_seconds", measure)
    memory = tmp_path / "linear.json"
    for count, text in enumerate(("{half", "[]", '"text"', "\x00", "{}"), 1):  # a damaged memory is no obstacle
        memory.write_text(text)
        assert [choose(), choose()] == ["bf16", "bf16"] and len(measured) == count, text
    for remembered, choice in (("fp32", "fp32"), ("nf4", "bf16")):  # the latter is not on offer
        write_record(memory, dict.fromkeys(read_record(memory), remembered))
        assert choose() == choice
    measured.clear()
    assert choose("fp32") == "fp32" and not measured, "there is no choice"
    assert choose(columns=96) == choose("bf16", "fp32") == "bf16" and len(measured) == 2, "another question"
    assert choose(folder=memory) == choose(folder=memory) == "bf16" and len(measured) == 4, "it cannot be written"
    for seconds["fp32"], choice in ((1.9, "gguf"), (1.7, "fp32")):  # hardly quicker is not worth it
        assert choose("gguf", "fp32", folder=None) == choice


def test_measuring_gives_every_kind_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autotune, "LIMIT_S", 0.02)
    threads = torch.get_num_threads()
    costs = autotune.measure_seconds(ON_CPU, (50, 70))  # sizes that no group divides are rounded up
    assert list(costs) == ON_CPU and all(0 < cost < float("inf") for cost in costs.values())
    assert torch.get_num_threads() == threads


def test_records_are_read_back_and_others_answers_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "answers.json"
    assert read_record(path) == {}

    def ask() -> bool:
        write_record(path, {"other": 1})  # another process, at the same time
        return True

    assert remember(path, "mine", ask, lambda answer: isinstance(answer, bool)) is True
    assert read_record(path) == {"other": 1, "mine": True} and list(path.parent.iterdir()) == [path]


# -------------------------------------------------------------------------------------------------------- devices

MOVE = re.compile(
    r"\.(cpu|cuda|mps|xpu|pin_memory)\(|torch\.\w+\.synchronize\(|torch\.(tensor|as_tensor|asarray)\([^)]*device="
    r"|\.to\((?!([\w.]*\.)?_?dtype\)|torch\.\w+(\d|half|float)\))"
)
"""A call that moves a tensor between devices, or waits for one. Alone, a number format may be given to `.to`."""


def test_nothing_but_devices_moves_a_tensor_or_waits() -> None:
    paths = [path for path in (ROOT / "engine").rglob("*.py") if path.name != "devices.py"]
    assert paths and [str(path) for path in paths if MOVE.search(path.read_text("utf-8"))] == []
    moving = (
        "x.to(device)",
        "x.to(a, plain)",
        "x.to(device=d)",
        "x.cpu()",
        "torch.cuda.synchronize(d)",
        "x.to(dtype, True)",
    )
    assert all(map(MOVE.search, (*moving, "torch.tensor([1], device=d)", "x.float().cuda()")))
    assert not any(
        map(MOVE.search, ("x.to(x.dtype)", "x.to(self._dtype)", "x.to(torch.bfloat16)", "model.synchronize()"))
    )


def test_ids_arrive_as_they_were_sent_and_floats_come_back() -> None:
    rows: list[list[int]] = [[3, 1, 2], [], [2**40]]
    assert [part.tolist() for part in devices.send_ids(rows, CPU)] == rows
    half = devices.move_to_device(torch.ones(3), CPU, torch.bfloat16)
    assert half.dtype == torch.bfloat16 and devices.fetch_to_cpu(half).dtype == torch.float32


def test_a_clock_waits_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[str] = []
    for kind in ("cuda", "mps"):
        monkeypatch.setattr(f"torch.{kind}.synchronize", lambda *device, kind=kind: waits.append(kind))
    for kind in ("cpu", "cuda", "mps"):
        devices.synchronize(torch.device(kind))
    assert waits == ["cuda", "mps"]


def test_quantised_weights_are_never_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are quantised where they are; bitsandbytes is never asked to move anything, before a product or after it."""
    import bitsandbytes as bnb

    for owner in (bnb.nn.Params4bit, bnb.nn.Linear4bit):
        for name in ("to", "cpu", "cuda"):
            monkeypatch.setattr(owner, name, lambda *_, **__: pytest.fail("moved"))
    for kind in ("nf4", "int8"):
        layer, x = LINEAR_FORMATS[kind].build(activations(48, 64), None), activations(3, 64)
        assert torch.equal(layer(x), layer(x))


def test_a_device_gets_the_number_format_that_it_multiplies(monkeypatch: pytest.MonkeyPatch) -> None:
    for bf16, amx in ((False, False), (True, False), (False, True)):
        monkeypatch.setattr("torch.cpu._is_avx512_bf16_supported", lambda bf16=bf16: bf16)
        monkeypatch.setattr("torch.cpu._is_amx_tile_supported", lambda amx=amx: amx)
        assert hardware.pick_dtype(CPU) == ("bf16" if bf16 or amx else "fp32")
    for real in (True, False):  # the others emulate it
        monkeypatch.setattr(
            "torch.cuda.is_bf16_supported", lambda including_emulation=True, real=real: including_emulation or real
        )
        assert hardware.pick_dtype(CUDA) == ("bf16" if real else "fp16")
