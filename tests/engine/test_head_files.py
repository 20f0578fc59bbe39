"""A head's files say what was written, in both layouts; whatever else they hold is one sentence."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.errors import LoadError
from engine.heads.config import default_feature_layers
from engine.heads.format import HeadFile, is_head, read_head, write_head
from engine.heads.load import BUNDLED
from engine.heads.torch_head import TorchHead
from tests.engine.tiny_heads import (
    CONFIG,
    DRAFT_VOCAB,
    HIDDEN,
    VARIANTS,
    VOCAB,
    draft_ids,
    embedding,
    features_of,
    head_config,
    random_weights,
    slowly,
)  # fmt: skip

OFFSETS = draft_ids() - torch.arange(DRAFT_VOCAB)


def written(folder: Path, variant: str = "as it is trained here", **more: Any) -> Path:
    config = head_config(**VARIANTS[variant])
    write_head(folder, config, random_weights(config), draft_ids(), CONFIG, **more)
    return folder


def running(made: HeadFile, table: Tensor) -> TorchHead:
    return TorchHead(made.config, made.weights, made.ids, lambda i: table[i], torch.device("cpu"), torch.float32)


def read(folder: Path) -> HeadFile:
    return read_head(folder, 8, HIDDEN, VOCAB)


def facts(thing: Any, but: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(thing, name) for name in thing.__slots__ if name not in but}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    for variant in [name for name in VARIANTS if "model_type" not in VARIANTS[name]]:
        config = head_config(**VARIANTS[variant])
        folder = written(tmp_path / variant, variant, greenlight={"acceptance": [0.6, 0.5]})
        assert is_head(folder)
        made = read(folder)
        assert made.config.acceptance == (0.6, 0.5) and made.embedding is None and torch.equal(made.ids, draft_ids())
        assert facts(made.config, ("acceptance", "shape")) == facts(config, ("acceptance", "shape"))
        assert facts(made.config.shape, ()) == facts(config.shape, ())
        expected = {name: tensor.half().float() for name, tensor in random_weights(config).items()}
        assert made.weights.keys() == expected.keys()
        assert all(torch.equal(made.weights[name], tensor) for name, tensor in expected.items())
    tensors = load_file(folder / "model.safetensors")
    assert torch.equal(tensors["d2t"], OFFSETS)
    assert tensors["t2d"].dtype == torch.bool and torch.equal(torch.nonzero(tensors["t2d"])[:, 0], draft_ids())


def test_the_layout_of_the_first_heads_is_read(tmp_path: Path) -> None:
    """As SafeAILab/EAGLE keeps a head: one `midlayer`, a plain config, an embedding of its own; without a map the draft
    vocabulary is the target's."""
    config = head_config()
    usual = {name.replace("layers.0.", "midlayer."): tensor for name, tensor in random_weights(config).items()}
    mapped = {"d2t": OFFSETS, "t2d": torch.isin(torch.arange(VOCAB), draft_ids())}
    whole = {"embed_tokens.weight": embedding(4), "lm_head.weight": torch.zeros(VOCAB, HIDDEN)}
    about = {key: value for key, value in CONFIG.items() if key not in ("rope_parameters", "head_dim")}
    about |= {"architectures": ["LlamaForCausalLMEagle3"], "rope_theta": 1e4}
    pickle = tmp_path / "pytorch_model.bin"
    for tensors, more in ((usual | whole, {}), (whole | usual | mapped, {"draft_vocab_size": DRAFT_VOCAB})):
        if more:
            pickle.unlink()
            save_file(tensors, tmp_path / "model.safetensors")
        else:
            torch.save(tensors, pickle)
        (tmp_path / "config.json").write_text(json.dumps(about | more))
        assert is_head(tmp_path)
        made = read(tmp_path)
        assert torch.equal(made.ids, draft_ids() if more else torch.arange(VOCAB))
        assert made.config.shape == config.shape and made.config.draft_vocab_size == len(made.ids)
        assert made.config.feature_layers == default_feature_layers(8) == (2, 4, 5)
        assert not made.config.normed_residual
        assert made.embedding is not None and torch.equal(made.embedding, embedding(4))
        renamed = {name.replace("midlayer.", "layers.0."): tensor for name, tensor in tensors.items()}
        assert all(torch.equal(made.weights[name], renamed[name]) for name in random_weights(config))


def pickled(made: object) -> dict[str, bytes | None]:
    buffer = io.BytesIO()
    torch.save(made, buffer)
    return {"model.safetensors": None, "pytorch_model.bin": buffer.getvalue()}


def offsets(at: int, value: int) -> dict[str, Tensor]:
    made = OFFSETS.clone()
    made[at] = value
    return {"d2t": made}


ONLY = {"pytorch_model.bin": b"", "model.safetensors": None}
ROPE = {"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4}}
SPOILED: dict[str, list[tuple[dict[str, Any], str]]] = {
    "files": [
        ({"config.json": None}, "cannot be read"), ({"config.json": b'{"a": ['}, "cannot be read"),
        ({"config.json": b"[1]"}, "cannot be read"), ({"model.safetensors": None}, "cannot be read"),
        ({"model.safetensors": b""}, "cannot be read"), ({"model.safetensors": b"\x50" * 5000}, "cannot be read"),
        (pickled([torch.zeros(2)]), "cannot be read"), (pickled({"fc.weight": 3}), "cannot be read"),
        (pickled({"fc.weight": Path("/")}), "cannot be read"),  # it would run code
        (ONLY, "cannot be read"), (ONLY | {"pytorch_model.bin": b"<html>"}, "cannot be read"),
    ],
    "tensors": [
        ({"lm_head.weight": None}, "cannot be read"),
        ({"d2t": torch.zeros(3, dtype=torch.long)}, "cannot be read"),
        (offsets(1, int(OFFSETS[0]) - 1), "none or the same"), (offsets(-1, VOCAB), "none or the same"),
        (offsets(0, -1), "none or the same"),
        ({"fc.weight": torch.full((HIDDEN, 3 * HIDDEN), torch.nan)}, "fc.weight holds what"),
        ({"fc.weight": None}, "fc.weight is missing"),
        ({"norm.weight": torch.ones(HIDDEN + 1)}, "norm.weight is (65,) and should be"),
        ({"layers.0.self_attn.q_proj.bias": torch.ones(3)}, "q_proj.bias is"),
        ({"embed_tokens.weight": torch.ones(3, HIDDEN)}, "embed_tokens.weight is"),
    ],
    "config": [
        ({"draft_vocab_size": 16}, "lm_head.weight is"), ({"fc_norm": True}, "fc_norm.0.weight is missing"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2, 30]}, "layers (1, 2, 30) and the target has 8"),
    ],
    "layer": [
        ({"attention_bias": True}, "q_proj.bias is missing"), ({"mlp_bias": True}, "MLP has biases"),
        ({"hidden_size": 128}, "its hidden size is 128, the target's 64"),
        ({"vocab_size": 50}, "its vocabulary is 50, the target's 96"), ({"model_type": "gemma"}, "its kind is gemma"),
        (ROPE, "rotation llama3"), ({"num_hidden_layers": 4e9}, "num_hidden_layers is 4000000000"),
        ({"max_position_embeddings": 2**50}, "max_position_embeddings is"),
    ],
}  # fmt: skip
"""What is put in place of a file, a tensor or a value that is right, None for what is missing, and what is said."""


def present(changed: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in changed.items() if value is not None}


def test_files_that_do_not_fit_are_one_sentence(tmp_path: Path) -> None:
    whole = written(tmp_path)
    about, tensors = json.loads((whole / "config.json").read_text()), load_file(whole / "model.safetensors")
    wrong = []
    for where, changes, sentence in [(where, *case) for where, cases in SPOILED.items() for case in cases]:
        config, layer = about | (changes if where == "config" else {}), about["transformer_layer_config"]
        config["transformer_layer_config"] = layer | (changes if where == "layer" else {})
        (whole / "config.json").write_text(json.dumps(config))
        save_file(present(tensors | (changes if where == "tensors" else {})), whole / "model.safetensors")
        for name, content in changes.items() if where == "files" else ():
            (whole / name).write_bytes(content or b"")
            if content is None:
                (whole / name).unlink()
        with pytest.raises(LoadError) as caught:
            read(whole)
        (whole / "pytorch_model.bin").unlink(missing_ok=True)
        said = str(caught.value)
        if sentence not in said or str(whole) not in said or "\n" in said.split("(", maxsplit=1)[0]:
            wrong.append((where, changes.keys(), said))
    assert wrong == []


def test_other_folders_are_no_heads(tmp_path: Path) -> None:
    assert not is_head(tmp_path)
    for about in ("[]", "3", "{", "{}", '{"architectures": 3}', '{"architectures": ["LlamaForCausalLM"]}'):
        (tmp_path / "config.json").write_text(about)
        assert not is_head(tmp_path), about


WHOLE: dict[str, str] = {}
VALUES: st.SearchStrategy[object] = (
    st.none() | st.integers(-3, 2**40) | st.floats() | st.text(max_size=4) | st.just({"a": 1})
)
VALUES |= st.lists(st.none() | st.integers(-2, 3), max_size=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("head"), greenlight={"acceptance": [0.5]})


@given(st.data())
@settings(max_examples=50)
def test_whatever_a_config_holds_it_is_read_or_one_error(folder: Path, data: st.DataObject) -> None:
    """And what is read can be run."""
    about = json.loads(WHOLE.setdefault("config", (folder / "config.json").read_text()))
    parts = [about, about["transformer_layer_config"], about["speculators_config"], about["greenlight"]]
    for _ in range(data.draw(st.integers(1, 3))):
        within = data.draw(st.sampled_from(parts))
        within[data.draw(st.sampled_from(sorted(within)))] = data.draw(VALUES)
    (folder / "config.json").write_text(json.dumps(about))
    try:
        made = read(folder)
    except LoadError:
        return
    if made.config.shape.context_len > 1:
        features = features_of([1, 2, 3], len(made.config.feature_layers))
        assert slowly(running(made, embedding()), [1, 2, 3], features, 0, 1)[0].shape == (DRAFT_VOCAB,)


@pytest.mark.speculators
def test_the_speculators_package_computes_the_same(tmp_path: Path) -> None:
    """Its training-time test, step by step, over the files as they are written."""
    pytest.importorskip("speculators")
    from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig

    names = ("normed residual", "one norm over the features", "feeds on the normed state", "as it is trained here")
    for folder in [*(written(tmp_path / name, name) for name in names), *([BUNDLED] if is_head(BUNDLED) else [])]:
        about = json.loads((folder / "config.json").read_text())
        inner, layers = about["transformer_layer_config"], 1 + max(about["eagle_aux_hidden_state_layer_ids"])
        hidden, rows = inner["hidden_size"], inner["vocab_size"]
        made = read_head(folder, layers, hidden, rows)
        config = Eagle3SpeculatorConfig(**about)
        config.transformer_layer_config._attn_implementation = "eager"
        theirs = Eagle3DraftModel(config).float().eval()
        left = theirs.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
        assert not left.unexpected_keys
        assert set(left.missing_keys) <= {"embed_tokens.weight", "verifier_norm.weight", "verifier_lm_head.weight"}
        torch.manual_seed(1)
        n, steps, table = 12, 3, torch.randn(rows, hidden)
        ids, features = torch.randint(0, rows, (n,)), torch.randn(n, len(made.config.feature_layers), hidden)
        theirs.embed_tokens.weight.data[:] = table
        assert torch.equal(torch.arange(len(made.ids)) + theirs.d2t, made.ids)
        seen: list[Tensor] = []
        theirs.lm_head.register_forward_hook(lambda module, given, logits, seen=seen: seen.append(logits[0]))
        with torch.no_grad():
            theirs(features[:-1].flatten(1)[None], ids[None, 1:], torch.zeros(1, n - 1).long(), ttt_steps=steps)
            ours = running(made, table)
            for t in range(n - 1):
                for j, logits in enumerate(slowly(ours, ids.tolist(), features, t, min(steps, n - 1 - t))):
                    torch.testing.assert_close(logits, seen[j][t], atol=1e-3, rtol=1e-3)
