"""fit: begins as the target's last layer, learns, stops at any time and goes on as if it had not; from files to a
head."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers

from engine.drafters.head import HeadDrafter
from engine.heads.eagle3 import HeadConfig
from engine.heads.format import HeadFile, read_head
from engine.heads.load import load_head
from engine.heads.torch_head import TorchHead
from engine.loading.load import load
from engine.loading.source import ModelSource
from engine.networks.kv_cache import KVCache
from engine.networks.model import Model, Request
from engine.train import training_run
from engine.train.__main__ import main
from engine.train.dialogues import Dialogue, append_dialogues
from engine.train.examples import HELD_OUT, is_held_out, make_example, thin_chains
from engine.train.features import FeatureStore, fill
from engine.train.initial_head import draft_ids, initial_weights
from engine.train.network import Example, loss
from engine.train.target import read_target
from engine.train.training_run import Recipe, TrainingRun
from tests.engine import tokenisers
from tests.engine.tiny_heads import proposed

pytestmark = pytest.mark.slow

LAYERS, HIDDEN = 4, 64
VOCABULARY = tokenisers.byte_level().get_vocab_size()
SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "intermediate_size": 96, "num_hidden_layers": LAYERS,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "eos_token_id": [2, 0], "initializer_range": 0.2,
}  # fmt: skip
FEATURES = (1, 2, LAYERS - 1, LAYERS)


def quiet(phase: str, fraction: float | None) -> None:
    pass


@pytest.fixture(autouse=True)
def _one_kind_of_weights(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No measuring of what is quickest here, and no self-check."""
    monkeypatch.setattr("engine.loading.autotune.quickest_format", lambda *_: "fp32")
    monkeypatch.setattr("engine.loading.loaded._is_exact", lambda *_: False)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target, as transformers keeps one."""
    made = tmp_path_factory.mktemp("target")
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(transformers.Qwen3Config(**SIZES, tie_word_embeddings=False))
    for name, parameter in model.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    model.save_pretrained(made)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenisers.byte_level(), eos_token="<|im_end|>")
    tokenizer.chat_template = tokenisers.CHATML
    tokenizer.save_pretrained(made)
    return Path(made)


def some_dialogues(many: int) -> list[Dialogue]:
    """Of a language that is easily learnt: each token names the next."""
    random, found = torch.Generator().manual_seed(1), []
    for i in range(many):
        ids = torch.randint(0, VOCABULARY, (5,), generator=random).tolist()
        while len(ids) < 14 + i % 7:
            ids.append((ids[-1] * 3 + 7) % 40)
        found.append(Dialogue(tuple(ids), 5, 0.0))
    return found


@pytest.fixture
def parts(folder: Path, tmp_path: Path) -> SimpleNamespace:
    """Everything that a run needs; some of the dialogues are held out."""
    loaded = load(str(folder), device="cpu", threads=1, offline=True, progress=quiet)
    dialogues = some_dialogues(200)
    dialogues = [d for d in dialogues if is_held_out(d)][:2] + [d for d in dialogues if not is_held_out(d)][:14]
    store = FeatureStore(tmp_path / "features", "tiny", FEATURES, HIDDEN)
    fill(store, Model(loaded.network, loaded.context_len), dialogues, lambda done, total: None)
    return SimpleNamespace(store=store, target=read_target(ModelSource(folder, "tiny", "safetensors")), loaded=loaded)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that every look moves on by half a second, so that an update costs as much."""
    looks = iter(range(10**9))
    monkeypatch.setattr(training_run, "perf_counter", lambda: next(looks) / 2)


def a_run(parts: SimpleNamespace, folder: Path, updates: int, **recipe: Any) -> TrainingRun:
    folder.mkdir(exist_ok=True)
    begin = recipe.pop("begin", None)
    settings = {"batch": 45, "draft_vocab": 64, "rate": 1e-2} | recipe
    return TrainingRun(
        folder, [parts.store], parts.target, Recipe(minutes=updates / 120, **settings), "tiny", [2], begin
    )


def test_one_dialogue_in_so_many_is_held_out_and_it_is_the_same_one_in_every_run() -> None:
    found = [Dialogue((i % 256, i // 256, 5, 6), 2) for i in range(8000)]
    out = [d for d in found if is_held_out(d)]
    share = 1 / HELD_OUT
    assert abs(len(out) / len(found) - share) < 6 * (share * (1 - share) / len(found)) ** 0.5
    assert [d.ids[:2] for d in out[:3]] == [(67, 0), (105, 0), (146, 0)]
    for d in out[:50]:
        assert is_held_out(Dialogue((*d.ids[:2], 9, 9, 9), 2, 0.8)), "all replies to one prompt are on one side"


def test_draft_ids_are_the_most_frequent_of_the_replies() -> None:
    replies = [Dialogue((9, 9, 9, 9, 3, 3, 3, 5, 5), 4), Dialogue((9, 5, 7, 3), 1)]
    found = draft_ids(replies, 3, 12, always=(11,))
    assert found.tolist() == [3, 5, 11], "what prompts say does not count"
    assert draft_ids(replies, 6, 12, (11, 3)).tolist() == [0, 1, 3, 5, 7, 11], "filled up where replies have too few"
    assert draft_ids(replies, 99, 12).tolist() == list(range(12))


def test_the_head_begins_as_the_targets_last_layer(parts: SimpleNamespace) -> None:
    """Over the same rows: the half that reads the embedding is zero, and so is what reads the other features."""
    target = parts.target
    ids = [int(i) for i in torch.randint(0, VOCABULARY, (30,), generator=torch.Generator().manual_seed(5))]
    cache = KVCache(FEATURES)
    [logits] = Model(parts.loaded.network, 256).forward([Request(ids, 30, cache)])
    features = cache.features(0, 30)
    config = HeadConfig(replace(target.shape, layers=1), VOCABULARY, FEATURES[:-1])
    weights = initial_weights(target, config, torch.arange(VOCABULARY))
    head = TorchHead(
        config, weights, torch.arange(VOCABULARY), lambda i: target.embedding[i], torch.device("cpu"), torch.float32
    )
    with torch.inference_mode():
        state = head.run(torch.tensor(ids[1:]), head.join(features[:-1, :-1]), 0, KVCache())
        torch.testing.assert_close(state, features[:-1, -1], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(head.logits(state), logits[:-1], atol=1e-3, rtol=1e-3)
        assert not torch.allclose(state, features[:-1, -2], atol=0.1), "the layer does something"


def evaluated(run: TrainingRun) -> float:
    with torch.no_grad():
        return float(loss(run.trainee.chains([make_example(*pair) for pair in run.training_set], 3), 0.8))


def test_the_loss_falls(parts: SimpleNamespace, tmp_path: Path, clock: None) -> None:
    run = a_run(parts, tmp_path / "run", 60)
    before, said = evaluated(run), []
    run.train(said.append)
    assert run.progress.updates == 60 and run.fraction >= 1
    assert evaluated(run) < before - 0.1
    assert said[-1].startswith("held out, by step: chain acceptance 0.")
    assert run.rate() == pytest.approx(0.0, abs=1e-9), "the schedule ends with the budget"


@pytest.mark.parametrize("at", [3, 9, 10])
def test_a_run_that_was_stopped_ends_as_one_that_was_not(
    parts: SimpleNamespace, tmp_path: Path, clock: None, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted before or behind an update, at whatever place in an epoch."""
    whole = a_run(parts, tmp_path / "whole", 14)
    assert 2 * len(list(whole.epoch())) < 14, "more than one epoch"
    whole.progress.epoch = whole.progress.place = 0
    whole.train(lambda line: None)
    update, run = TrainingRun.update, a_run(parts, tmp_path / "run", 14)

    def interrupted(self: TrainingRun, batch: Any) -> float:
        if self.progress.updates == at and at % 2:
            raise KeyboardInterrupt
        value = update(self, batch)
        if self.progress.updates == at:
            raise KeyboardInterrupt
        return value

    with monkeypatch.context() as patch:
        patch.setattr(TrainingRun, "update", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run.train(lambda line: None)
    assert (tmp_path / "run" / "head" / "config.json").exists()
    again = a_run(parts, tmp_path / "run", 14)
    assert again.progress == run.progress and again.progress.updates == at
    again.train(lambda line: None)
    assert again.progress == whole.progress
    for name, tensor in whole.trainee.weights.items():
        assert torch.equal(again.trainee.weights[name], tensor), name


def the_head_of(run: TrainingRun) -> HeadFile:
    return read_head(run.folder / "head", LAYERS, HIDDEN, VOCABULARY)


def test_a_run_begins_with_a_head_that_was_trained_before(parts: SimpleNamespace, tmp_path: Path, clock: None) -> None:
    first = a_run(parts, tmp_path / "first", 20)
    first.train(lambda line: None)
    head = the_head_of(first)
    second = a_run(parts, tmp_path / "second", 20, begin=head, draft_vocab=None)
    assert second.ids.tolist() == first.ids.tolist(), "its draft vocabulary, where no other is asked for"
    assert evaluated(second) == pytest.approx(evaluated(first), abs=0.01), "to the float16 of the file"
    second.train(lambda line: None)
    assert evaluated(second) < evaluated(first) - 0.02
    wider = a_run(parts, tmp_path / "wider", 20, begin=head, draft_vocab=80)
    assert len(wider.ids) == 80 and set(first.ids.tolist()) <= set(wider.ids.tolist())
    assert torch.equal(wider.trainee.weights["lm_head.weight"], parts.target.output[wider.ids])
    for name in set(head.weights) - {"lm_head.weight"}:
        assert torch.equal(wider.trainee.weights[name], head.weights[name]), name


def test_chains_are_thinned_only_where_three_tokens_come_again() -> None:
    ids = [9, 1, 2, 3, 4, *([5, 6, 7, 8] * 200), 1, 2, 3, 9, 8, 1]
    whole = Example(torch.tensor(ids), torch.zeros(len(ids), 1, 2), torch.zeros(len(ids), 2), 2)
    trigrams = {t: tuple(ids[t - 1 : t + 2]) for t in range(2, len(ids) - 1)}  # a chain at entry t knows token t + 1
    new = {t for t in trigrams if trigrams[t] not in {tuple(ids[i - 2 : i + 1]) for i in range(2, t + 1)}}
    easy = len(trigrams) - len(new)
    for share in (0.0, 0.3, 1.0):
        starts = thin_chains(whole, share, torch.Generator().manual_seed(0)).starts
        assert starts is not None and new <= set(starts.tolist()) <= set(trigrams)
        assert len(set(starts.tolist()) - new) == pytest.approx(share * easy, abs=60 if 0 < share < 1 else 0)


def test_acceptance_is_counted_as_drafts_are(parts: SimpleNamespace, tmp_path: Path) -> None:
    """Chain by chain, by hand: a draft is tested where all before it are right, and where n-gram would not draft."""
    run = a_run(parts, tmp_path / "run", 1)
    run.test_set = run.training_set[:4]
    counts = torch.zeros(3, 2)
    with torch.no_grad():
        for pair in run.test_set:
            e = make_example(*pair)
            steps = run.trainee.chains([e], 3)
            for chain, t in enumerate(range(e.first, len(e.ids) - 1)):
                known = e.ids[: t + 2].tolist()
                if any(known[i - 3 : i] == known[-3:] for i in range(3, len(known))):
                    continue
                for j in range(min(3, len(e.ids) - 2 - t)):
                    counts[j, 1] += 1
                    if int(run.ids[steps[j].logits[chain].argmax()]) != int(e.ids[t + 2 + j]):
                        break
                    counts[j, 0] += 1
    expected = [float(n / of) for n, of in counts.tolist() if of]
    assert run.acceptance()[0] == pytest.approx(expected)


def test_from_dialogues_to_a_head_that_drafts(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    append_dialogues(tmp_path / "some.jsonl", some_dialogues(12))
    command = ["fit", tmp_path / "some.jsonl", "--features", tmp_path / "features", "--out", tmp_path / "out"]
    command += ["--model", folder, "--minutes", "0.01", "--threads", "1", "--offline", "--draft-vocab", "64"]
    command += ["--layers", "1,2,3", "--name", "somebody/tiny", "--steps", "2", "--batch", "100", "--repeated", "0.5"]
    for _ in range(2):  # the second time nothing is left to do
        assert main([str(part) for part in command]) == 0, capsys.readouterr().err
    assert "held out" in capsys.readouterr().out
    lines = [json.dumps({"category": c, "turns": [f"Say {c} {n}"]}) for c in ("qa", "rag") for n in range(3)]
    (tmp_path / "prompts.jsonl").write_text("\n".join(lines))
    judging = ["judge", tmp_path / "out" / "head", "--model", folder, "--threads", "1", "--offline"]
    judging += ["--features", tmp_path / "judged", "--prompts", tmp_path / "prompts.jsonl", "--max-new-tokens", "12"]
    said = []
    for _ in range(2):  # the second time the replies are there
        capsys.readouterr()
        assert main([str(part) for part in judging]) == 0, capsys.readouterr().err
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] and "overall" in said[0] and "qa" in said[0] and "best tree" in said[0]
    loaded = load(str(folder), device="cpu", threads=1, offline=True, progress=quiet)
    ready = load_head(tmp_path / "out" / "head", loaded, 1)
    assert ready.feature_layers == (1, 2, 3) and ready.head.config.target == "somebody/tiny"
    assert {0, 2} <= set(ready.head.ids.tolist()), "what ends a reply can be drafted"
    ids, cache = [5, 9, 17, 33], KVCache(ready.feature_layers)
    Model(loaded.network, 256).forward([Request(ids, 1, cache)])
    drafter = HeadDrafter(ready.head, KVCache(), ready.vocab_size)
    found = proposed(drafter, ids, 3, features=cache.features(0, 3))
    assert len(found.token_ids) == 3 and set(found.token_ids) <= set(ready.head.ids.tolist())
