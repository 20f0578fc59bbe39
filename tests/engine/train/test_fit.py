"""fit: begins as the target's last layer, learns, stops at any time and goes on as if it had not; from files to a
head."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers

from engine.drafters.head import HeadDrafter
from engine.errors import EngineError
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
from engine.train.features import FeatureStore, batches, default_layers, fill
from engine.train.initial_head import draft_ids, initial_weights
from engine.train.network import Example, loss
from engine.train.target import read_target
from engine.train.training_run import Recipe, TrainingRun
from tests.engine import tokenisers
from tests.engine.tiny_heads import proposed

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


@pytest.fixture(scope="module", params=["llama", "qwen3, not tied"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target, as transformers keeps one."""
    made = tmp_path_factory.mktemp("target")
    torch.manual_seed(0)
    tied = request.param == "llama"
    kind = transformers.LlamaConfig if tied else transformers.Qwen3Config
    model = transformers.AutoModelForCausalLM.from_config(kind(**SIZES, tie_word_embeddings=tied))
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


def only_llama(folder: Path) -> None:
    if json.loads((folder / "config.json").read_text())["model_type"] != "llama":
        pytest.skip("one target is enough")


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


def test_batches_hold_everything_once_and_about_so_much() -> None:
    lengths = [5, 9, 30, 2, 2, 2, 8, 1]
    order = [7, 2, 0, 1, 3, 6, 5, 4]
    found = list(batches(lengths, order, 12))
    assert [i for batch in found for i in batch] == order
    assert all(len(batch) == 1 or sum(lengths[i] for i in batch) <= 12 for batch in found)


@pytest.mark.parametrize("layers", range(4, 65))
def test_default_layers_end_with_what_enters_the_last(layers: int) -> None:
    found = default_layers(layers)
    assert len(found) == 3 and list(found) == sorted(found) and found[0] >= 1 and found[-1] == layers - 1


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


def test_the_first_weights_belong_to_nobody_else(parts: SimpleNamespace, tmp_path: Path) -> None:
    before = {name: tensor.clone() for name, tensor in parts.target.last_layer.items()}
    run = a_run(parts, tmp_path / "run", 3)
    run.train(lambda line: None)
    assert all(torch.equal(before[name], tensor) for name, tensor in parts.target.last_layer.items())
    assert torch.equal(run.trainee.weights["lm_head.weight"], parts.target.output[run.ids]), "frozen"
    assert 2 in run.ids.tolist()


def evaluated(run: TrainingRun) -> float:
    with torch.no_grad():
        return float(loss(run.trainee.chains([make_example(*pair) for pair in run.training_set], 3), 0.8))


def test_the_loss_falls(parts: SimpleNamespace, folder: Path, tmp_path: Path, clock: None) -> None:
    only_llama(folder)
    run = a_run(parts, tmp_path / "run", 60)
    before, said = evaluated(run), []
    run.train(said.append)
    assert run.progress.updates == 60 and run.fraction >= 1
    assert evaluated(run) < before - 0.1
    assert said[-1].startswith("held out, by step: chain acceptance 0.")
    assert run.rate() == pytest.approx(0.0, abs=1e-9), "the schedule ends with the budget"


@pytest.mark.parametrize("stops", [[1], [3, 4], [9], [2, 11]])
def test_a_run_that_was_stopped_ends_as_one_that_was_not(
    parts: SimpleNamespace, folder: Path, tmp_path: Path, clock: None, stops: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted before or behind an update, at whatever place in an epoch."""
    only_llama(folder)
    whole = a_run(parts, tmp_path / "whole", 14)
    assert 2 * len(list(whole.epoch())) < 14, "more than one epoch"
    whole.progress.epoch = whole.progress.place = 0
    whole.train(lambda line: None)
    update = TrainingRun.update
    for at in stops:
        run = a_run(parts, tmp_path / "run", 14)

        def interrupted(self: TrainingRun, batch: Any, at: int = at) -> float:
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
        assert (tmp_path / "run" / "checkpoint.pt").exists() and (tmp_path / "run" / "head" / "config.json").exists()
        assert a_run(parts, tmp_path / "run", 14).progress == run.progress and run.progress.updates == at
    run = a_run(parts, tmp_path / "run", 14)
    run.train(lambda line: None)
    assert run.progress == whole.progress
    for name, tensor in whole.trainee.weights.items():
        assert torch.equal(run.trainee.weights[name], tensor), name


def the_head_of(run: TrainingRun) -> HeadFile:
    return read_head(run.folder / "head", LAYERS, HIDDEN, VOCABULARY)


def test_a_run_begins_with_a_head_that_was_trained_before(
    parts: SimpleNamespace, folder: Path, tmp_path: Path, clock: None
) -> None:
    only_llama(folder)
    first = a_run(parts, tmp_path / "first", 20)
    first.train(lambda line: None)
    head = the_head_of(first)
    second = a_run(parts, tmp_path / "second", 20, begin=head, draft_vocab=None)
    assert second.ids.tolist() == first.ids.tolist(), "its draft vocabulary, where no other is asked for"
    assert evaluated(second) == pytest.approx(evaluated(first), abs=0.01), "to the float16 of the file"
    second.train(lambda line: None)
    assert evaluated(second) < evaluated(first) - 0.02
    stopped = a_run(parts, tmp_path / "second", 20, begin=head, draft_vocab=None)
    assert evaluated(stopped) == pytest.approx(evaluated(second)), "the checkpoint counts, not where it began"
    wider = a_run(parts, tmp_path / "wider", 20, begin=head, draft_vocab=80)
    assert len(wider.ids) == 80 and set(first.ids.tolist()) <= set(wider.ids.tolist())
    assert torch.equal(wider.trainee.weights["lm_head.weight"], parts.target.output[wider.ids])
    for name in set(head.weights) - {"lm_head.weight"}:
        assert torch.equal(wider.trainee.weights[name], head.weights[name]), name


@pytest.mark.parametrize("other", ["layers", "norms", "embedding"])
def test_a_run_begins_with_no_head_of_another_make(
    parts: SimpleNamespace, folder: Path, tmp_path: Path, other: str
) -> None:
    only_llama(folder)
    run = a_run(parts, tmp_path / "first", 20)
    run.export()
    head = the_head_of(run)
    spoilt = {
        "layers": replace(head, config=replace(head.config, feature_layers=(0, 2, 3))),
        "norms": replace(head, config=replace(head.config, feeds_normed=True)),
        "embedding": replace(head, embedding=parts.target.embedding),
    }[other]
    with pytest.raises(EngineError, match="cannot begin with that head"):
        a_run(parts, tmp_path / "second", 20, begin=spoilt)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_chains_are_thinned_only_where_three_tokens_come_again(share: float) -> None:
    ids = [9, 1, 2, 3, 4, *([5, 6, 7, 8] * 200), 1, 2, 3, 9, 8, 1]
    whole = Example(torch.tensor(ids), torch.zeros(len(ids), 1, 2), torch.zeros(len(ids), 2), 2)
    kept = thin_chains(whole, share, torch.Generator().manual_seed(0)).starts
    assert kept is not None and kept.tolist() == sorted(set(kept.tolist())) and kept.max() == len(ids) - 2
    known = {t: tuple(ids[t - 1 : t + 2]) for t in range(2, len(ids) - 1)}  # a chain at entry t knows token t + 1
    before = {t: {tuple(ids[i - 2 : i + 1]) for i in range(2, t + 1)} for t in known}
    new = {t for t in known if known[t] not in before[t]}
    assert new <= set(kept.tolist()) <= set(known)
    easy = len(known) - len(new)
    assert easy > 700 and len(set(kept.tolist()) - new) == pytest.approx(share * easy, abs=60 if 0 < share < 1 else 0)


def test_checkpoints_on_the_way_change_nothing_and_can_be_gone_on_from(
    parts: SimpleNamespace, folder: Path, tmp_path: Path, clock: None
) -> None:
    only_llama(folder)
    whole = a_run(parts, tmp_path / "whole", 10)
    whole.train(lambda line: None)
    said: list[str] = []

    def copied(line: str) -> None:
        """What a run that is killed now leaves behind."""
        said.append(line)
        if len(said) == 3:
            shutil.copytree(tmp_path / "run", tmp_path / "left")

    a_run(parts, tmp_path / "run", 10).train(copied, save_every_s=0.9)
    again = a_run(parts, tmp_path / "left", 10)
    assert 0 < again.progress.updates < 10
    again.train(lambda line: None)
    assert all(torch.equal(again.trainee.weights[name], tensor) for name, tensor in whole.trainee.weights.items())


def test_nothing_held_out_is_nothing_known(parts: SimpleNamespace, folder: Path, tmp_path: Path, clock: None) -> None:
    """A share of 0 would tell the controller that the head is never right."""
    only_llama(folder)
    run = a_run(parts, tmp_path / "run", 1)
    run.test_set = []
    run.train(lambda line: None)
    assert read_head(tmp_path / "run" / "head", LAYERS, HIDDEN, VOCABULARY).config.acceptance == ()


def test_acceptance_is_counted_as_drafts_are(parts: SimpleNamespace, folder: Path, tmp_path: Path) -> None:
    """Chain by chain, by hand: a draft is tested where all before it are right, and where n-gram would not draft."""
    only_llama(folder)
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


def test_without_dialogues_there_is_nothing_to_train_on(parts: SimpleNamespace, folder: Path, tmp_path: Path) -> None:
    only_llama(folder)
    parts.store.entries.clear()
    with pytest.raises(EngineError, match="collect dialogues first"):
        a_run(parts, tmp_path / "run", 1)


def test_from_dialogues_to_a_head_that_drafts(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    append_dialogues(tmp_path / "some.jsonl", some_dialogues(12))
    command = ["fit", tmp_path / "some.jsonl", "--features", tmp_path / "features", "--out", tmp_path / "out"]
    command += ["--model", folder, "--minutes", "0.01", "--threads", "1", "--offline", "--draft-vocab", "64"]
    command += ["--layers", "1,2,3", "--name", "somebody/tiny", "--steps", "2", "--batch", "100", "--repeated", "0.5"]
    for _ in range(2):  # the second time nothing is left to do
        assert main([str(part) for part in command]) == 0, capsys.readouterr().err
    assert "held out" in capsys.readouterr().out
    command[command.index("--draft-vocab") : command.index("--draft-vocab") + 2] = [
        "--begin",
        tmp_path / "out" / "head",
    ]
    command[command.index(tmp_path / "out")] = tmp_path / "further"
    assert main([str(part) for part in command]) == 0, capsys.readouterr().err
    lines = [json.dumps({"category": c, "turns": [f"Say {c} {n}"]}) for c in ("qa", "rag") for n in range(3)]
    (tmp_path / "prompts.jsonl").write_text("\n".join(lines))
    judging = ["judge", tmp_path / "out" / "head", tmp_path / "further" / "head", "--model", folder, "--threads", "1"]
    judging += [
        "--features",
        tmp_path / "judged",
        "--prompts",
        tmp_path / "prompts.jsonl",
        "--max-new-tokens",
        "12",
        "--offline",
    ]
    said = []
    for _ in range(2):  # the second time the replies are there
        capsys.readouterr()
        assert main([str(part) for part in judging]) == 0, capsys.readouterr().err
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] and said[0].count("overall") == 2 and "qa" in said[0] and "best tree" in said[0]
    loaded = load(str(folder), device="cpu", threads=1, offline=True, progress=quiet)
    ready = load_head(tmp_path / "further" / "head", loaded, 1)
    assert ready.feature_layers == (1, 2, 3) and ready.head.config.target == "somebody/tiny"
    assert {0, 2} <= set(ready.head.ids.tolist()), "what ends a reply can be drafted"
    ids, cache = [5, 9, 17, 33], KVCache(ready.feature_layers)
    Model(loaded.network, 256).forward([Request(ids, 1, cache)])
    drafter = HeadDrafter(ready.head, KVCache(), ready.vocab_size)
    found = proposed(drafter, ids, 3, features=cache.features(0, 3))
    assert len(found.token_ids) == 3 and set(found.token_ids) <= set(ready.head.ids.tolist())


@pytest.mark.parametrize("spoil", ["no head", "another target"])
def test_what_fit_cannot_do_is_one_line(
    spoil: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    only_llama(folder)
    command = ["fit", "--features", str(tmp_path / "features"), "--out", str(tmp_path / "out"), "--model", str(folder)]
    if spoil == "another target":
        FeatureStore(tmp_path / "features", "other", (1, 2, 3, 4), HIDDEN)
    assert main([*command, "--offline"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("train: ") and error.count("\n") == 1
