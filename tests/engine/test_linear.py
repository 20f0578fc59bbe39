"""Every kind of linear layer against its own exact definition, and how one of them is chosen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engine.config import QUANTS, EngineConfig
from engine.errors import InvalidParams, LoadError
from engine.kernels.packing import (
    Blocks,
    concatenate,
    deinterleave_tiles,
    interleave_tiles,
    pack_tiles,
    read_blocks,
    select_rows,
    unpack_tiles,
)
from engine.loading import autotune as quickest
from engine.networks import linear
from engine.networks.linear import LINEAR_FORMATS, Grid, Linear, refusal
from engine.storage.json_cache import read_record, remember, write_record

CPU = torch.device("cpu")
BYTES = {"Q4_0": 18, "Q4_1": 20, "Q8_0": 34}
BF16 = 2.0**-8
"""The largest relative error of rounding to bf16."""


def gguf_blocks(kind: str, outputs: int = 32, groups: int = 5, seed: int = 0) -> Blocks:
    """A matrix as a GGUF keeps it: any quants, and scales and minima as large as a model's."""
    rng = np.random.default_rng(seed)
    data = rng.integers(0, 256, (outputs, groups, BYTES[kind]), dtype=np.uint8)
    data[:, :, :2] = rng.uniform(0.003, 0.05, (outputs, groups, 1)).astype(np.float16).view(np.uint8)
    if kind == "Q4_1":
        data[:, :, 2:4] = rng.uniform(-0.4, 0.02, (outputs, groups, 1)).astype(np.float16).view(np.uint8)
    blocks = read_blocks(kind, data.reshape(outputs, -1))
    assert blocks is not None
    return blocks


def activations(rows_: int, inputs: int, seed: int = 1) -> Tensor:
    return torch.randn(rows_, inputs, generator=torch.Generator().manual_seed(seed))


def weights_of(layer: Linear) -> Tensor:
    """What a layer multiplies by, float64 [outputs, inputs]: it is given each unit vector."""
    return layer(torch.eye(layer.inputs)).double().T


def definition(name: str, weight: Tensor) -> Tensor:
    """The weights that each kind must multiply by, from the libraries' own dequantisation, float64."""
    import bitsandbytes.functional as bnb

    if name == "nf4":
        return bnb.dequantize_4bit(*bnb.quantize_4bit(weight, quant_type="nf4", blocksize=64)).double()
    if name == "int8":
        quants, largest, _ = bnb.int8_vectorwise_quant(weight.half())
        return quants.double() * largest.double()[:, None] / 127
    return weight.to({"bf16": torch.bfloat16, "fp32": torch.float32}[name]).double()


# ------------------------------------------------------------------------------------------------- the GGUF's grid


@pytest.mark.parametrize("kind", list(BYTES))
def test_the_grid_comes_back_as_exactly_as_is_said(kind: str) -> None:
    """The quants are exact; only scale and zero are rounded to bf16, and the result, which is bf16 as well."""
    blocks = gguf_blocks(kind)
    found, expected = weights_of(Grid(blocks, None)), torch.from_numpy(blocks.dequantise()).double()
    step = torch.from_numpy(blocks.scale).double().repeat_interleave(32, dim=1)
    if blocks.minimum is None:
        allowed = 2 * expected.abs() * BF16
    else:
        zero = torch.from_numpy(blocks.minimum).double().repeat_interleave(32, dim=1) + 8 * step
        allowed = ((expected - zero).abs() + zero.abs() + expected.abs()) * BF16
    assert ((found - expected).abs() <= allowed * 1.01).all()


@pytest.mark.parametrize("kind", list(BYTES))
def test_a_grid_that_bf16_holds_comes_back_to_the_bit(kind: str) -> None:
    blocks = gguf_blocks(kind)
    blocks.scale[:] = np.float16(2.0**-6)
    if blocks.minimum is not None:
        blocks.minimum[:] = np.float16(-(2.0**-3))
    assert np.array_equal(weights_of(Grid(blocks, None)).numpy(), blocks.dequantise().astype(np.float64))


@pytest.mark.parametrize("kind", list(BYTES))
@pytest.mark.parametrize("count", [1, 2, 4, 5, 17])
def test_products_on_the_grid_are_those_of_float64(kind: str, count: int) -> None:
    """With the same rounded scales and activations nothing but float32 sums and a bf16 result can differ."""
    blocks = gguf_blocks(kind, groups=9)
    blocks.scale[:] = np.float16(2.0**-6)
    if blocks.minimum is not None:
        blocks.minimum[:] = np.float16(-(2.0**-3))
    x = activations(count, 9 * 32).bfloat16().float()
    expected = x.double() @ torch.from_numpy(blocks.dequantise()).double().T
    found = Grid(blocks, None)(x)
    assert found.dtype == torch.float32
    assert ((found - expected).abs() <= 1.01 * BF16 * expected.abs() + 1e-5 * expected.abs().max()).all()


def test_sizes_that_the_int4_kernel_does_not_take_are_one_sentence() -> None:
    with pytest.raises(LoadError, match=r"^torch's int4 kernel does not run 24 x 32 weights: use --quant bf16\.$"):
        Grid(select_rows(gguf_blocks("Q4_1", groups=1), slice(24)), None)
    with pytest.raises(LoadError, match="leave out --quant gguf"):
        LINEAR_FORMATS["gguf"].build(torch.zeros(32, 32), None)


@given(st.sampled_from(["Q4_0", "Q4_1", "Q8_0"]), st.integers(1, 4), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_tiles_give_back_what_they_were_made_of(kind: str, blocks16: int, groups: int, seed: int) -> None:
    blocks = gguf_blocks(kind, 16 * blocks16, groups, seed)
    back = unpack_tiles(pack_tiles(blocks))
    assert (back.bits, back.quants.dtype) == (blocks.bits, blocks.quants.dtype)
    assert np.array_equal(back.quants, blocks.quants) and np.array_equal(back.scale, blocks.scale)
    assert (back.minimum is None) == (blocks.minimum is None)
    assert blocks.minimum is None or (back.minimum is not None and np.array_equal(back.minimum, blocks.minimum))


def test_joined_and_interleaved_matrices_come_apart_again() -> None:
    first, second = gguf_blocks("Q4_1", seed=1), gguf_blocks("Q4_1", seed=2)
    assert all(
        map(
            np.array_equal,
            deinterleave_tiles(interleave_tiles(pack_tiles(first), pack_tiles(second))),
            (pack_tiles(first), pack_tiles(second)),
        )
    )
    assert np.array_equal(select_rows(concatenate([first, second]), slice(32, 64)).quants, second.quants)
    with pytest.raises(ValueError, match="no tiles"):
        unpack_tiles(np.zeros((2, 3, 7), dtype=np.uint8))


def test_a_folder_of_tiles_gives_the_matrices_by_transformers_names(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    from engine.loading.gguf.convert import read_tiles
    from tests.engine.test_native import SHAPE as LLAMA
    from tests.engine.test_native import tiny_llama

    packed, hf = tiny_llama()
    save_file({name: tensor.contiguous() for name, tensor in packed.items()}, tmp_path / "tiles.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | {"model_type": "llama"}))
    matrices, vectors = read_tiles(tmp_path)
    found = {name: blocks.dequantise() for name, blocks in matrices.items()} | vectors
    expected = {name: tensor.numpy() for name, tensor in hf.state_dict().items() if name != "lm_head.weight"}
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


# ----------------------------------------------------------------------------------------------------- every kind


ON_CPU = [name for name, kind in LINEAR_FORMATS.items() if "cpu" in kind.devices and name != "gguf"]


@pytest.mark.parametrize("name", ON_CPU)
@pytest.mark.parametrize("shape", [(48, 64), (128, 192), (7, 40), (10, 33)], ids=str)
def test_a_layer_multiplies_by_the_weights_that_its_kind_defines(name: str, shape: tuple[int, int]) -> None:
    weight = activations(*shape) * 0.1
    weight[3] = 0  # a row of zeros has no scale of its own
    layer = LINEAR_FORMATS[name].build(weight, None)
    assert (layer.outputs, layer.inputs) == shape
    expected = definition(name, weight)
    assert (weights_of(layer) - expected).abs().max() <= BF16 * expected.abs().max()
    x = activations(5, shape[1])
    found, product = layer(x), x.double() @ expected.T
    assert found.dtype == torch.float32 and found.shape == (5, shape[0])
    assert (found - product).norm() <= (1e-5 if name == "fp32" else 2 * BF16) * product.norm()


@pytest.mark.gpu
@pytest.mark.parametrize("name", [name for name, kind in LINEAR_FORMATS.items() if "cuda" in kind.devices])
def test_a_layer_on_a_gpu_multiplies_by_the_same_weights(name: str) -> None:
    """int8 rounds the activations of each row to bytes there, hence its tolerance; and no row depends on another."""
    cuda = torch.device("cuda")
    assert refusal(name, cuda) == ""
    weight, x = (activations(128, 192) * 0.1).bfloat16(), activations(5, 192).bfloat16()
    x[2] *= 100  # outliers
    layer = LINEAR_FORMATS[name].build(weight.to(cuda), None)
    found = layer(x.to(cuda))
    expected = x.double() @ definition(name if name != "fp16" else "fp32", weight.float()).T
    assert found.dtype == torch.bfloat16 and found.device.type == "cuda"
    allowed = {"int8": 6, "nf4": 4}.get(name, 2) * BF16
    assert ((found.cpu() - expected).norm(dim=1) <= allowed * expected.norm(dim=1)).all()
    assert name != "int8" or torch.equal(layer(x[:2].to(cuda)), found[:2])


@pytest.mark.parametrize("name", LINEAR_FORMATS)
def test_a_bias_is_added_and_the_number_format_kept(name: str) -> None:
    kind = LINEAR_FORMATS[name]
    blocks, bias = gguf_blocks("Q4_1", groups=2), torch.arange(32.0)
    plain, biased = kind.build(blocks, None), kind.build(blocks, bias)
    x = activations(3, 64)
    assert torch.allclose(biased(x), plain(x) + bias, rtol=1e-2, atol=1e-2)
    for dtype in (torch.float32, torch.bfloat16):
        assert biased(x.to(dtype)).dtype == dtype


@pytest.mark.parametrize("name", LINEAR_FORMATS)
def test_what_a_product_reads_is_what_the_kind_promises(name: str) -> None:
    bits = {"gguf": 5, "bf16": 16, "fp16": 16, "fp32": 32, "nf4": 4.5, "int8": 8}[name]  # with the scales
    layer = LINEAR_FORMATS[name].build(gguf_blocks("Q4_1", 512, 16), None)
    assert layer.weight_bytes == pytest.approx(512 * 512 * bits / 8, rel=0.02)


@pytest.mark.parametrize("name", [*ON_CPU, "gguf"])
def test_rows_computed_together_are_the_same_up_to_rounding(name: str, record_property: Any) -> None:
    """To the bit or not is a matter of the machine: it is asked at each start (see `exactness`), not assumed here."""
    layer = LINEAR_FORMATS[name].build(gguf_blocks("Q4_1", 64, 8), None)
    x = activations(9, 256)
    whole = layer(x)
    pieces = torch.cat([layer(x[:1]), layer(x[1:5]), layer(x[5:])])
    record_property(f"{name} gives a row the same bits", torch.equal(pieces, whole))
    assert (pieces - whole).norm() <= BF16 * whole.norm()


def test_nothing_is_left_out_of_the_table_of_kinds() -> None:
    assert {name for name, kind in LINEAR_FORMATS.items() if kind.requantises} == {"nf4", "int8"}
    assert len({kind.phrase for kind in LINEAR_FORMATS.values()}) == len(LINEAR_FORMATS)


# ---------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("name", LINEAR_FORMATS)
def test_a_kind_runs_on_this_cpu_or_says_why_not(name: str) -> None:
    said = refusal(name, CPU)
    assert not said or (said.startswith(f"--quant {name} ") and said.endswith(".") and "\n" not in said)
    assert (said == "") == ("cpu" in LINEAR_FORMATS[name].devices)


def test_a_way_to_keep_weights_that_there_is_not_is_one_sentence() -> None:
    assert set(QUANTS) - {"auto"} <= set(LINEAR_FORMATS)
    assert EngineConfig(quant="nf4").quant == "nf4"
    with pytest.raises(InvalidParams, match=r"^quant must be auto, gguf, nf4, int8, bf16 or fp32, not 'q5'\.$"):
        EngineConfig(quant="q5")


def test_a_kind_that_is_not_for_a_device_says_so() -> None:
    assert refusal("gguf", torch.device("cuda")).startswith("--quant gguf does not run on cuda:")
    assert refusal("nf4", torch.device("mps")).startswith("--quant nf4 does not run on mps:")


@pytest.mark.parametrize("name", ["nf4", "int8"])
def test_a_package_that_does_not_fit_is_one_sentence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise OSError("undefined symbol: cgemm\nand more")

    monkeypatch.setattr(linear, "_bitsandbytes", broken)
    said = refusal(name, CPU)
    assert said == f"--quant {name} cannot be used here, bitsandbytes says OSError: leave it out."


# ---------------------------------------------------------------------------------------------------- the choice


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What was measured; by these figures bf16 is always the quickest."""
    calls: list[tuple[Any, ...]] = []

    def measured(names: Any, shape: Any) -> dict[str, float]:
        calls.append((*names, shape))
        return {name: 1.0 if name == "bf16" else 2.0 for name in names}

    monkeypatch.setattr(quickest, "measure_seconds", measured)
    return calls


NAMES, SHAPE = ["gguf", "bf16", "fp32"], (64, 64)


def test_the_quickest_is_measured_once_and_remembered(tmp_path: Path, asked: list[Any]) -> None:
    for _ in range(3):
        assert quickest.quickest_format(NAMES, tmp_path, SHAPE) == "bf16"
    assert len(asked) == 1
    for changed in [(NAMES, tmp_path, (64, 96)), (NAMES[1:], tmp_path, SHAPE)]:
        assert quickest.quickest_format(*changed) == "bf16"
    assert len(asked) == 3
    assert quickest.quickest_format(["fp32"], tmp_path, SHAPE) == "fp32" and len(asked) == 3, "there is no choice"


def test_a_remembered_choice_stands_and_one_that_is_not_on_offer_is_made_again(
    tmp_path: Path, asked: list[Any]
) -> None:
    quickest.quickest_format(NAMES, tmp_path, SHAPE)
    [key] = json.loads((tmp_path / "linear.json").read_text())
    write_record(tmp_path / "linear.json", {key: "fp32"})
    assert quickest.quickest_format(NAMES, tmp_path, SHAPE) == "fp32"
    write_record(tmp_path / "linear.json", {key: "nf4"})
    assert quickest.quickest_format(NAMES, tmp_path, SHAPE) == "bf16"


@pytest.mark.parametrize("damage", ["{half", "[]", '"text"', "\x00", '{"a": 1}'])
def test_a_damaged_memory_is_no_obstacle(tmp_path: Path, asked: list[Any], damage: str) -> None:
    (tmp_path / "linear.json").write_text(damage)
    assert quickest.quickest_format(NAMES, tmp_path, SHAPE) == "bf16"
    assert quickest.quickest_format(NAMES, tmp_path, SHAPE) == "bf16" and len(asked) == 1


def test_a_memory_that_cannot_be_written_is_no_obstacle(tmp_path: Path, asked: list[Any]) -> None:
    (tmp_path / "file").write_text("not a folder")
    assert quickest.quickest_format(NAMES, tmp_path / "file", SHAPE) == "bf16"
    assert quickest.quickest_format(NAMES, tmp_path / "file", SHAPE) == "bf16" and len(asked) == 2


@pytest.mark.parametrize(("other_s", "choice"), [(0.95, "gguf"), (0.85, "fp32")])
def test_what_is_hardly_quicker_is_not_worth_it(monkeypatch: pytest.MonkeyPatch, other_s: float, choice: str) -> None:
    monkeypatch.setattr(quickest, "measure_seconds", lambda names, shape: {"gguf": 1.0, "bf16": 2.0, "fp32": other_s})
    assert quickest.quickest_format(NAMES, None, SHAPE) == choice


def test_measuring_gives_every_kind_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quickest, "LIMIT_S", 0.02)
    threads = torch.get_num_threads()
    costs = quickest.measure_seconds(NAMES, (50, 70))  # sizes that no group divides are rounded up
    assert list(costs) == NAMES and all(0 < cost < float("inf") for cost in costs.values())
    assert torch.get_num_threads() == threads


def test_records_are_read_back_and_others_answers_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "answers.json"
    assert read_record(path) == {}

    def ask() -> bool:
        write_record(path, {"other": 1})  # another process, at the same time
        return True

    assert remember(path, "mine", ask, lambda kept: isinstance(kept, bool)) is True
    assert read_record(path) == {"other": 1, "mine": True}
    assert [p.name for p in path.parent.iterdir()] == ["answers.json"]
