"""collect: what it writes is what the target says, it goes on where it stopped, and a stop costs only what was
running."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from torch import Tensor

from engine.config import Message
from engine.networks.attention import Span, keep_features
from engine.networks.model import Model
from engine.train import collect as module
from engine.train.__main__ import main
from engine.train.collect import TEMPERATURES, collect
from engine.train.dialogues import Dialogue, read_dialogues
from engine.train.features import FeatureStore
from tests.fakes import FakeLoaded, FakeNetwork, byte_tokenizer, hashed_logits

pytestmark = pytest.mark.slow

TOKENIZER = byte_tokenizer()
STOP = 256
HIDDEN = 2
_LANGUAGE = hashed_logits(257)


def logits_of(ids: tuple[int, ...]) -> np.ndarray:
    """Lower-case letters, and an end after some twenty of them."""
    row = _LANGUAGE(ids) - 9.0
    row[97:123] += 9.0
    row[STOP] += 10.5
    return row


class Network(FakeNetwork):
    """Hidden states are position and token. Interrupted in a pass, if it is told which."""

    writes_features = False

    def __init__(self, interrupted_at: int | None = None) -> None:
        super().__init__(257, logits_of)
        self.interrupted_at = interrupted_at
        self.shape = SimpleNamespace(layers=2, hidden=HIDDEN, vocab_size=257)

    def __call__(self, token_ids: Tensor, positions: Tensor, spans: Sequence[Span], logit_rows: Tensor) -> Tensor:
        if len(self.rows) == self.interrupted_at:
            raise KeyboardInterrupt
        for layer in (0, 2):
            keep_features(layer, np_stack(positions, token_ids), spans)
        return super().__call__(token_ids, positions, spans, logit_rows)


def np_stack(positions: Tensor, token_ids: Tensor) -> Tensor:
    return positions.new_tensor([positions.tolist(), token_ids.tolist()]).T.float()


def collected(out: Path, tokens: int, network: Network | None = None, **more: object) -> list[str]:
    """What it reported."""
    said: list[str] = []
    settings = {"batch": 6, "seed": 0} | more
    collect(Model(network or Network(), 8192), TOKENIZER, out, tokens=tokens, report=said.append, **settings)  # type: ignore[arg-type]
    return said


def texts(dialogue: Dialogue) -> tuple[str, str]:
    ids, at = dialogue.ids, dialogue.prompt_len
    return bytes(i for i in ids[:at] if i < 256).decode(), bytes(i for i in ids[at:] if i < 256).decode()


def test_dialogues_are_whole_and_say_what_the_target_says(tmp_path: Path) -> None:
    collected(out := tmp_path / "out.jsonl", 1200)
    found = list(read_dialogues(out))
    assert sum(d.reply_len for d in found) >= 1200
    for d in found:
        assert texts(d)[0].startswith("<user>") and texts(d)[0].endswith("<assistant>")
        assert d.ids[-1] == STOP or d.reply_len in (module.REPLY_TOKENS, module.LONG_REPLY_TOKENS)
        assert STOP not in d.ids[d.prompt_len : -1]
        if d.temperature == 0.0:
            said = [int(logits_of(d.ids[:n]).argmax()) for n in range(d.prompt_len, len(d.ids))]
            assert said == list(d.ids[d.prompt_len :])
    assert {d.temperature for d in found} == set(TEMPERATURES)
    assert len({d.ids[: d.prompt_len] for d in found}) == len(found)


def test_second_turns_come_behind_the_first_reply(tmp_path: Path) -> None:
    collected(out := tmp_path / "out.jsonl", 2500)
    found = [texts(d) for d in read_dialogues(out)]
    seconds = [prompt for prompt, _ in found if prompt.count("<user>") == 2]
    assert 0.05 * len(found) < len(seconds) < 0.4 * len(found)
    for second in seconds:
        assert any(second.startswith(f"{prompt}{reply}\n<user>") for prompt, reply in found)


def test_hidden_states_are_kept_in_the_same_order(tmp_path: Path) -> None:
    out, folder = tmp_path / "out.jsonl", tmp_path / "features"
    collected(out, 600, store=FeatureStore(folder, "fake", (0, 2), HIDDEN))
    store = FeatureStore(folder, "fake", (0, 2), HIDDEN)
    assert [entry.dialogue for entry in store.entries] == list(read_dialogues(out))
    for entry in store.entries:
        states = store.states(entry)
        assert states[:, 1, 0].tolist() == list(range(len(entry.dialogue.ids)))
        assert states[:, 0, 1].tolist() == list(entry.dialogue.ids)


def test_started_again_it_goes_on_with_new_prompts(tmp_path: Path) -> None:
    collected(out := tmp_path / "out.jsonl", 600)
    before = out.read_text()
    had = {d.ids[: d.prompt_len] for d in read_dialogues(out)}
    said = collected(out, 1500)
    assert out.read_text().startswith(before)
    found = list(read_dialogues(out))
    assert sum(d.reply_len for d in found) >= 1500
    assert len({d.ids[: d.prompt_len] for d in found}) == len(found) > len(had)
    assert f"{len(found):,} dialogues" in said[-1]
    content = out.read_text()
    collected(out, 1500)
    assert out.read_text() == content, "the goal was reached: nothing more to do"


def test_an_interrupt_costs_only_what_was_running(tmp_path: Path) -> None:
    out, folder = tmp_path / "out.jsonl", tmp_path / "features"
    said: list[str] = []
    store = FeatureStore(folder, "fake", (0, 2), HIDDEN)
    with pytest.raises(KeyboardInterrupt):
        collect(
            Model(Network(interrupted_at=120), 8192), TOKENIZER, out,
            tokens=10**6, batch=6, seed=0, store=store, report=said.append,
        )  # fmt: skip
    found = list(read_dialogues(out))
    assert found and [entry.dialogue for entry in store.entries] == found
    assert f"stopped: {len(found)} dialogues" in said[-1] and "the same command goes on from here" in said[-1]
    collected(out, sum(d.reply_len for d in found) + 300, store=FeatureStore(folder, "fake", (0, 2), HIDDEN))
    assert list(read_dialogues(out))[: len(found)] == found


def test_the_opening_ends_where_the_users_turn_begins() -> None:
    said = [Message("user", "Hello"), Message("assistant", "Hi.")]
    assert bytes(module._ids_before_user_text(TOKENIZER, [])) == b"<user>"
    assert bytes(module._ids_before_user_text(TOKENIZER, said)) == b"<user>Hello\n<assistant>Hi.\n<user>"


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    network = Network()
    monkeypatch.setattr(module, "load", lambda *args, **named: FakeLoaded(network, TOKENIZER, context_len=8192))
    folder, passages, out = tmp_path / "features", tmp_path / "texts.txt", tmp_path / "new" / "out.jsonl"
    passages.write_text("A quagga is an animal. Nobody has seen one for a long time, and nobody will again. " * 20)
    command = ["collect", "--out", str(out), "--tokens", "300", "--batch", "4", "--passages", str(passages)]
    assert main([*command, "--features", str(folder), "--layers", "0"]) == 0
    assert "done: " in capsys.readouterr().err
    assert len(FeatureStore(folder, "embedded", (0, 2), HIDDEN).entries) == len(list(read_dialogues(out)))
    with out.open("a") as file:
        file.write('{"prompt_len":3,"temperature":0.0,"ids":[1,2')
    network.interrupted_at = len(network.rows) + 20
    assert main([*command, "--tokens", "3000"]) == 130, "a line cut short is dropped before more is written"
    assert all(json.loads(line)["ids"] for line in out.read_text().splitlines())
    words = capsys.readouterr().err
    assert "stopped: " in words and "interrupted" in words and "Traceback" not in words
    monkeypatch.chdir(tmp_path)
    for arguments, message in (
        (["--out", "x.jsonl.gz"], "name a .jsonl file"),
        (["--out", str(tmp_path)], "name another file with --out"),
        (["--out", "x.jsonl", "--passages", "nowhere.txt"], "nowhere.txt cannot be read"),
    ):
        assert main(["collect", *arguments]) == 1
        assert message in capsys.readouterr().err
