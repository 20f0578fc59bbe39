"""A head's files say what was written, in both layouts; whatever else they hold is one sentence."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.errors import LoadError
from engine.heads.format import HeadFile, default_feature_layers, is_head, read_head, write_head
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

TARGET_LAYERS = 8


def written(folder: Path, variant: str = "as it is trained here", **more: Any) -> Path:
    config = head_config(**VARIANTS[variant])
    write_head(folder, config, random_weights(config), draft_ids(), CONFIG, **more)
    return folder


def read(folder: Path, layers: int = TARGET_LAYERS, hidden: int = HIDDEN, vocab_size: int = VOCAB) -> HeadFile:
    return read_head(folder, layers, hidden, vocab_size)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    for variant in [name for name in VARIANTS if "model_type" not in VARIANTS[name]]:
        config = head_config(**VARIANTS[variant])
        folder = written(tmp_path / variant, variant, greenlight={"acceptance": [0.6, 0.5]})
        assert is_head(folder)
        found = read(folder)
        assert found.config.acceptance == (0.6, 0.5) and found.embedding is None
        for name in config.__slots__:
            if name not in ("acceptance", "shape"):
                assert getattr(found.config, name) == getattr(config, name), name
        for name in (
            "heads",
            "kv_heads",
            "dim",
            "mlp",
            "hidden",
            "vocab_size",
            "context_len",
            "epsilon",
            "rope_speeds",
        ):
            assert getattr(found.config.shape, name) == getattr(config.shape, name), name
        assert torch.equal(found.ids, draft_ids())
        weights = random_weights(config)
        assert found.weights.keys() == weights.keys()
        for name, tensor in weights.items():
            assert torch.equal(found.weights[name], tensor.half().float()), name


def test_the_file_holds_offsets_and_a_mask(tmp_path: Path) -> None:
    tensors = load_file(written(tmp_path) / "model.safetensors")
    assert torch.equal(torch.arange(DRAFT_VOCAB) + tensors["d2t"], draft_ids())
    assert tensors["t2d"].dtype == torch.bool and torch.equal(torch.nonzero(tensors["t2d"])[:, 0], draft_ids())


def original(folder: Path, kind: str) -> Path:
    """As SafeAILab/EAGLE keeps a head: one `midlayer`, a plain config, an embedding of its own."""
    config = head_config()
    tensors = {name.replace("layers.0.", "midlayer."): tensor for name, tensor in random_weights(config).items()}
    offsets = draft_ids() - torch.arange(DRAFT_VOCAB)
    tensors |= {
        "d2t": offsets,
        "embed_tokens.weight": embedding(4),
        "t2d": torch.isin(torch.arange(VOCAB), draft_ids()),
    }
    folder.mkdir()
    if kind == "pickle":
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        save_file(tensors, folder / "model.safetensors")
    about = {key: value for key, value in CONFIG.items() if key not in ("rope_parameters", "head_dim")}
    about |= {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": DRAFT_VOCAB, "rope_theta": 1e4}
    (folder / "config.json").write_text(json.dumps(about))
    return folder


@pytest.mark.parametrize("kind", ["pickle", "safetensors"])
def test_the_layout_of_the_first_heads_is_read(tmp_path: Path, kind: str) -> None:
    folder = original(tmp_path / "head", kind)
    assert is_head(folder)
    found, config = read(folder), head_config()
    assert found.config.shape == config.shape and found.config.draft_vocab_size == DRAFT_VOCAB
    assert found.config.feature_layers == default_feature_layers(TARGET_LAYERS) == (2, 4, 5)
    assert not found.config.normed_residual and torch.equal(found.ids, draft_ids())
    assert found.embedding is not None and torch.equal(found.embedding, embedding(4))
    weights = random_weights(config)
    assert all(torch.equal(found.weights[name], tensor) for name, tensor in weights.items())


def test_without_a_map_the_draft_vocabulary_is_the_targets(tmp_path: Path) -> None:
    folder = original(tmp_path / "head", "pickle")
    tensors = torch.load(folder / "pytorch_model.bin", weights_only=True)
    del tensors["d2t"], tensors["t2d"]
    tensors["lm_head.weight"] = torch.zeros(VOCAB, HIDDEN)
    torch.save(tensors, folder / "pytorch_model.bin")
    about = json.loads((folder / "config.json").read_text())
    del about["draft_vocab_size"]
    (folder / "config.json").write_text(json.dumps(about))
    assert torch.equal(read(folder).ids, torch.arange(VOCAB))


def change_config(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    about = json.loads((folder / "config.json").read_text())
    change(about)
    (folder / "config.json").write_text(json.dumps(about))


def change_tensors(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def layer(about: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = about["transformer_layer_config"]
    return found


def cut_short(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def a_pickle_instead(made: Any) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        torch.save(made, folder / "pytorch_model.bin")

    return spoil


def bytes_instead(made: bytes) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        (folder / "pytorch_model.bin").write_bytes(made)

    return spoil


def tensors(change: Callable[[dict[str, Tensor]], object]) -> Callable[[Path], None]:
    return lambda folder: change_tensors(folder, change)


def config(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    return lambda folder: change_config(folder, change)


SPOILED: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda folder: (folder / "config.json").unlink(), "cannot be read"),
    "half a config": (lambda folder: (folder / "config.json").write_text('{"a": ['), "cannot be read"),
    "another thing than a config": (lambda folder: (folder / "config.json").write_text("[1]"), "cannot be read"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "cannot be read"),
    "half of the weights": (cut_short, "cannot be read"),
    "no bytes": (lambda folder: (folder / "model.safetensors").write_bytes(b""), "cannot be read"),
    "a pickle of a list": (a_pickle_instead([torch.zeros(2)]), "cannot be read"),
    "a pickle of numbers": (a_pickle_instead({"fc.weight": 3}), "cannot be read"),
    "a pickle that would run code": (a_pickle_instead({"fc.weight": Path("/")}), "cannot be read"),
    "no pickle at all": (bytes_instead(b"<html>not found</html>"), "cannot be read"),
    "an empty pickle": (bytes_instead(b""), "cannot be read"),
    "no draft vocabulary": (tensors(lambda found: found.pop("lm_head.weight")), "cannot be read"),
    "a map of another length": (tensors(lambda found: found.update(d2t=torch.zeros(3, dtype=torch.long))), "cannot be"),
    "ids twice": (tensors(lambda found: found["d2t"].__setitem__(1, int(found["d2t"][0]) - 1)), "none or the same"),
    "ids beyond the vocabulary": (tensors(lambda found: found["d2t"].__setitem__(-1, VOCAB)), "none or the same"),
    "ids below zero": (tensors(lambda found: found["d2t"].__setitem__(0, -1)), "none or the same"),
    "no number": (tensors(lambda found: found["fc.weight"].view(-1).__setitem__(0, float("nan"))), "fc.weight holds "
                                                                                                   "what"),
    "a tensor that is missing": (tensors(lambda found: found.pop("fc.weight")), "fc.weight is missing"),
    "a tensor of another size": (
        tensors(lambda found: found.update({"norm.weight": torch.ones(HIDDEN + 1)})), r"norm.weight is \(65,\) and "
                                                                                      r"should be"
    ),
    "a bias of another size": (
        tensors(lambda found: found.update({"layers.0.self_attn.q_proj.bias": torch.ones(3)})), "q_proj.bias is"
    ),
    "an embedding of another size": (
        tensors(lambda found: found.update({"embed_tokens.weight": torch.ones(3, HIDDEN)})), "embed_tokens.weight is"
    ),
    "biases that are missing": (config(lambda a: layer(a).update(attention_bias=True)), "q_proj.bias is missing"),
    "another draft vocabulary": (config(lambda a: a.update(draft_vocab_size=16)), "lm_head.weight is"),
    "norms that are missing": (config(lambda a: a.update(fc_norm=True)), "fc_norm.0.weight is missing"),
    "another hidden "
    "size": (config(lambda a: layer(a).update(hidden_size=128)), "its hidden size is 128, the target's 64"),
    "another vocabulary": (config(lambda a: layer(a).update(vocab_size=50)), "its vocabulary is 50, the target's 96"),
    "layers that there are not": (
        config(lambda a: a.update(eagle_aux_hidden_state_layer_ids=[1, 2, 30])), r"layers \(1, 2, 30\) and the target "
                                                                                 r"has 8"
    ),
    "another kind": (config(lambda a: layer(a).update(model_type="gemma")), "its kind is gemma"),
    "another rotation": (
        config(lambda a: layer(a).update(rope_parameters={"rope_type": "llama3", "rope_theta": 1e4})), "rotation llama3"
    ),
    "more layers than "
    "memory": (config(lambda a: layer(a).update(num_hidden_layers=4e9)), "num_hidden_layers is 4000000000"),
    "more positions than memory": (
        config(lambda a: layer(a).update(max_position_embeddings=2**50)), "max_position_embeddings is"
    ),
    "biases that it would leave out": (config(lambda a: layer(a).update(mlp_bias=True)), "MLP has biases"),
}  # fmt: skip


@pytest.mark.parametrize("spoil", SPOILED)
def test_files_that_do_not_fit_are_one_sentence(tmp_path: Path, spoil: str) -> None:
    folder = written(tmp_path / "head")
    damage, sentence = SPOILED[spoil]
    damage(folder)
    with pytest.raises(LoadError, match=sentence) as caught:
        read(folder)
    assert str(folder) in str(caught.value) and "\n" not in str(caught.value).split("(")[0]


@pytest.mark.parametrize(
    "about", ["[]", "3", "{", "{}", '{"architectures": 3}', '{"architectures": ["LlamaForCausalLM"]}']
)
def test_other_folders_are_no_heads(tmp_path: Path, about: str) -> None:
    assert not is_head(tmp_path)
    (tmp_path / "config.json").write_text(about)
    assert not is_head(tmp_path)


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 9), st.sampled_from([16, 64, 4000, -(2**40)]), st.floats(), st.text(max_size=4),
    st.lists(st.none() | st.integers(-2, 3) | st.text(max_size=2), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(0, 2), max_size=2),
)  # fmt: skip
WHOLE: dict[str, Any] = {}


def whole_head() -> dict[str, Any]:
    if not WHOLE:
        folder = written(Path(tempfile.mkdtemp(prefix="greenlight-test-")))
        WHOLE.update(folder=folder, about=json.loads((folder / "config.json").read_text()))
    return WHOLE


def places(about: dict[str, Any], at: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for key, value in about.items():
        found += [(*at, key), *(places(value, (*at, key)) if isinstance(value, dict) else [])]
    return found


@given(st.data())
@hypothesis_settings(max_examples=80)
def test_whatever_a_config_holds_it_is_read_or_one_error(data: st.DataObject) -> None:
    """And what is read can be run."""
    about = copy.deepcopy(whole_head()["about"]) | {"greenlight": {"acceptance": [0.5]}}
    for place in data.draw(st.lists(st.sampled_from(places(about)), min_size=1, max_size=3)):
        within: Any = about
        for key in place[:-1]:
            within = within.get(key) if isinstance(within, dict) else None
        if isinstance(within, dict):
            within[place[-1]] = data.draw(VALUES)
    folder = whole_head()["folder"]
    (folder / "config.json").write_text(json.dumps(about))
    try:
        found = read(folder)
    except LoadError:
        return
    table, ids = embedding(), [1, 2, 3]
    head = TorchHead(found.config, found.weights, found.ids, lambda i: table[i], torch.device("cpu"), torch.float32)
    if found.config.shape.context_len > 1:
        features = features_of(ids, len(found.config.feature_layers))
        assert slowly(head, ids, features, 0, 1)[0].shape == (DRAFT_VOCAB,)


@pytest.mark.speculators
@pytest.mark.parametrize("which", ["normed residual", "one norm over the features", "feeds on the normed state",
                                   "as it is trained here", "bundled"])  # fmt: skip
def test_the_speculators_package_computes_the_same(tmp_path: Path, which: str) -> None:
    """Its training-time test, step by step, over the files as they are written."""
    pytest.importorskip("speculators")
    from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig

    if which == "bundled" and not is_head(BUNDLED):
        pytest.skip("no head comes with this version")
    folder = BUNDLED if which == "bundled" else written(tmp_path / "head", which)
    about = json.loads((folder / "config.json").read_text())
    inner, layers = about["transformer_layer_config"], 1 + max(about["eagle_aux_hidden_state_layer_ids"])
    found = read_head(folder, layers, inner["hidden_size"], inner["vocab_size"])
    config = Eagle3SpeculatorConfig(**about)
    config.transformer_layer_config._attn_implementation = "eager"
    theirs = Eagle3DraftModel(config).float().eval()
    table = torch.randn(inner["vocab_size"], inner["hidden_size"], generator=torch.Generator().manual_seed(1))
    left = theirs.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
    assert not left.unexpected_keys
    assert set(left.missing_keys) <= {"embed_tokens.weight", "verifier_norm.weight", "verifier_lm_head.weight"}
    theirs.embed_tokens.weight.data[:] = table
    assert torch.equal(torch.arange(len(found.ids)) + theirs.d2t, found.ids)
    n, steps = 12, 3
    ids = torch.randint(0, inner["vocab_size"], (n,), generator=torch.Generator().manual_seed(2))
    features = torch.randn(n, len(found.config.feature_layers), inner["hidden_size"])
    seen: list[Tensor] = []
    theirs.lm_head.register_forward_hook(lambda module, given, logits: seen.append(logits[0]))
    with torch.no_grad():
        theirs(features[:-1].flatten(1)[None], ids[None, 1:], torch.zeros(1, n - 1, dtype=torch.long), ttt_steps=steps)
        ours = TorchHead(found.config, found.weights, found.ids, lambda i: table[i], torch.device("cpu"), torch.float32)
        for t in range(n - 1):
            for j, logits in enumerate(slowly(ours, ids.tolist(), features, t, min(steps, n - 1 - t))):
                torch.testing.assert_close(logits, seen[j][t], atol=1e-3, rtol=1e-3)
