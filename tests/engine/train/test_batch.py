"""Many talks at once: each is what it would be alone, lanes are refilled, and every token's hidden states are kept."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engine.config import SamplingParams
from engine.networks.attention import Span, keep_features
from engine.networks.model import Model
from engine.train.batch import (
    LONGEST_PERIOD,
    LOOP_WINDOW,
    DialogueTurns,
    GeneratedDialogue,
    TurnRequest,
    generate_dialogues,
    is_looping,
)
from tests.fakes import FakeNetwork, hashed_logits

VOCAB, STOP = 40, 39
LAYERS, HIDDEN = (1, 3), 4
GREEDY = SamplingParams(temperature=0.0)
LOGITS = hashed_logits(VOCAB)


class FeaturedNetwork(FakeNetwork):
    """Its hidden states say layer, position and token, so that a wrong or missing one shows."""

    writes_features = False

    def __call__(self, token_ids: Tensor, positions: Tensor, spans: Sequence[Span], logit_rows: Tensor) -> Tensor:
        for layer in LAYERS:
            keep_features(layer, hidden_of(layer, token_ids, positions), spans)
        return super().__call__(token_ids, positions, spans, logit_rows)


def hidden_of(layer: int, token_ids: Tensor, positions: Tensor) -> Tensor:
    return torch.stack([torch.full_like(positions, layer), positions, token_ids, token_ids * layer], dim=1).float()


def single(ids: Sequence[int], limit: int = 20, params: SamplingParams = GREEDY) -> DialogueTurns:
    yield TurnRequest(tuple(ids), limit, params)


def played(
    talks: Sequence[DialogueTurns], batch: int = 4, layers: Sequence[int] = (), context: int = 512
) -> list[GeneratedDialogue]:
    network = FeaturedNetwork(VOCAB, LOGITS)
    return list(
        generate_dialogues(Model(network, context), iter(talks), batch, {STOP}, rng=random.Random(0), layers=layers)
    )


def alone(ids: Sequence[int], limit: int) -> list[int]:
    """Greedy decoding, as simply as can be."""
    said = list(ids)
    while len(said) - len(ids) < limit and said[-1:] != [STOP]:
        said.append(int(LOGITS(tuple(said)).argmax()))
    return said


PROMPTS = [[n % 30, 3, n // 30, *range(n % 5)] for n in range(25)]


@pytest.mark.parametrize("batch", [1, 3, 40])
@pytest.mark.parametrize("layers", [(), LAYERS])
def test_greedy_talks_say_what_each_would_say_alone(batch: int, layers: tuple[int, ...]) -> None:
    found = played([single(ids) for ids in PROMPTS], batch, layers)
    assert {s.dialogue.ids for s in found} == {tuple(alone(ids, 20)) for ids in PROMPTS}
    assert len(found) == len(PROMPTS)
    assert all(list(s.dialogue.ids[: s.dialogue.prompt_len]) in PROMPTS for s in found)


def test_hidden_states_of_every_token_are_kept_the_last_included() -> None:
    for spoken in played([single(ids) for ids in PROMPTS], 4, LAYERS):
        ids = torch.tensor(spoken.dialogue.ids)
        wanted = torch.stack([hidden_of(layer, ids, torch.arange(len(ids))) for layer in LAYERS], dim=1)
        assert spoken.states is not None
        np.testing.assert_array_equal(spoken.states, wanted.numpy())


def test_a_talk_goes_on_with_what_was_said_and_only_kept_turns_come_out() -> None:
    heard: list[list[int]] = []

    def two_turns() -> DialogueTurns:
        first = yield TurnRequest((1, 2), 5, GREEDY, kept=False)
        heard.append(first)
        second = yield TurnRequest((1, 2, *first, 7), 9, GREEDY)
        heard.append(second)

    found = played([two_turns()], layers=LAYERS)
    assert len(found) == 1 and found[0].dialogue.prompt_len == 3 + len(heard[0])
    assert heard[0] == alone([1, 2], 5)[2:]
    assert list(found[0].dialogue.ids) == [1, 2, *heard[0], 7, *heard[1]]
    assert found[0].states is not None and found[0].states[:, 0, 2].tolist() == list(found[0].dialogue.ids)


def test_lanes_are_refilled_at_once_and_never_more_than_there_are() -> None:
    network = FakeNetwork(VOCAB, LOGITS)
    started, ended = 0, 0

    def talks() -> Iterator[DialogueTurns]:
        nonlocal started
        for ids in PROMPTS:
            started += 1
            assert started - ended <= 4
            yield single(ids)

    for _ in generate_dialogues(Model(network, 512), talks(), 4, {STOP}, rng=random.Random(0)):
        ended += 1
    assert started == ended == len(PROMPTS)
    least = sum(len(alone(ids, 20)) - len(ids) for ids in PROMPTS) / 4
    assert len(network.rows) < 1.5 * least + 20


def test_a_reply_ends_at_its_limit_and_at_the_end_of_the_context() -> None:
    found = played([single(ids, limit=6) for ids in PROMPTS])
    assert all(s.dialogue.reply_len == 6 or s.dialogue.ids[-1] == STOP for s in found)
    assert any(s.dialogue.reply_len == 6 for s in found)
    assert all(len(s.dialogue.ids) <= 9 for s in played([single([1, 2, 3], limit=50)], context=9))


@given(st.lists(st.integers(0, 9), max_size=30), st.lists(st.integers(0, 9), min_size=1, max_size=LONGEST_PERIOD))
def test_circles_are_seen_whatever_came_before(before: list[int], period: list[int]) -> None:
    assert is_looping(before + (period * LOOP_WINDOW)[:LOOP_WINDOW])
    assert not is_looping((period * LOOP_WINDOW)[: LOOP_WINDOW - 1])
    assert not is_looping([*range(100, 100 + LOOP_WINDOW - 1 - len(period)), *period, 50])


def test_a_reply_that_turns_in_circles_is_ended() -> None:
    def stuck(ids: tuple[int, ...]) -> np.ndarray:
        return np.eye(VOCAB)[len(ids) % 3]

    model = Model(FakeNetwork(VOCAB, stuck), 4096)
    [spoken] = generate_dialogues(model, iter([single([1], limit=1000)]), 1, {STOP}, rng=random.Random(0))
    assert LOOP_WINDOW <= spoken.dialogue.reply_len < LOOP_WINDOW + 20
