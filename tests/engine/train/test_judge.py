"""judge: what it counts, by hand and against the definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.train.judge import RANKS, STEPS, best_tree, chain_acceptance, ranks, tokens_of_chain
from engine.train.network import ChainStep

ROWS = st.lists(st.lists(st.integers(-1, RANKS), min_size=STEPS, max_size=STEPS), min_size=1, max_size=40)
HAND = np.array([[0, 0, 4, 0], [0, 1, 0, 0], [1, 0, 0, 0], [4, 0, 0, 0], [0, 0, 0, -1]])


def test_the_rank_of_what_came_in_the_heads_order() -> None:
    ids = torch.tensor([7, 9, 20, 31, 40, 50])
    logits = torch.tensor([[0.0, 5, 4, 3, 2, 1]]).expand(4, -1)
    step = ChainStep(logits, torch.zeros(4, 6), torch.tensor([True, True, True, False]), torch.tensor([9, 31, 50, 9]))
    assert ranks([step, step], ids).tolist() == [[0, 0], [2, 2], [RANKS, RANKS], [-1, -1]]


def test_a_chain_is_judged_as_drafting_goes() -> None:
    assert chain_acceptance(HAND) == pytest.approx([3 / 5, 2 / 3, 1 / 2, 0.0])
    assert tokens_of_chain(HAND, 3) == pytest.approx(1 + (3 + 2 + 1) / 5)


def test_the_best_tree_by_hand() -> None:
    assert best_tree(HAND, 1) == (((0,),), pytest.approx(1.6))
    assert best_tree(HAND, 2) == (((0,), (0, 0)), pytest.approx(2.0))
    tree, tokens = best_tree(HAND, 3)
    assert tree[:2] == ((0,), (0, 0)) and tokens == pytest.approx(2.2)


@given(ROWS, st.integers(1, 7))
def test_a_tree_is_whole_and_no_worse_than_the_chain(rows: list[list[int]], drafts: int) -> None:
    found = np.array(rows)
    tree, tokens = best_tree(found, drafts)
    assert len(tree) <= drafts and all(len(path) == 1 or path[:-1] in tree for path in tree)
    assert tokens >= tokens_of_chain(found, min(drafts, STEPS)) - 1e-9
    walked = 0
    for row in rows:  # as a round goes: from the root as far as the tree holds what came
        path: tuple[int, ...] = ()
        for rank in row:
            if (*path, rank) not in tree:
                break
            path = (*path, rank)
        walked += 1 + len(path)
    assert tokens == pytest.approx(walked / len(rows))
