"""One pass of the target for the rounds of one or several replies."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import suppress
from time import perf_counter
from typing import NamedTuple

from torch import Tensor

from engine.events import Round
from engine.networks.model import Model, Request


class ForwardResult(NamedTuple):
    """What a pass of the target brings to one request. logits [last, V]; seconds: how long its
    round waited for them."""

    logits: Tensor
    seconds: float


def play_rounds(model: Model, rounds: Sequence[Generator[Request, ForwardResult, Round]]) -> list[Round]:
    """One round each of one or several replies, with one pass of the target for all.

    Each waits from the end of its own drafting until everybody's drafts are made and checked: that is its verify_s. An
    exception of the pass goes to all of them.
    """
    begin_s = perf_counter()
    requests: list[Request] = []
    drafting_s: list[float] = []
    for round_ in rounds:
        round_begin_s = perf_counter()
        requests.append(next(round_))
        drafting_s.append(perf_counter() - round_begin_s)
    try:
        logits = model.forward(requests)
        model.synchronize()
    except Exception as error:
        for round_ in rounds:
            with suppress(type(error)):
                round_.throw(error)
        raise
    joint_s = perf_counter() - begin_s
    return [
        _finish_round(round_, ForwardResult(rows, joint_s - own_drafting_s))
        for round_, rows, own_drafting_s in zip(rounds, logits, drafting_s, strict=True)
    ]


def _finish_round(round_: Generator[Request, ForwardResult, Round], forward: ForwardResult) -> Round:
    try:
        round_.send(forward)
    except StopIteration as stop:
        result: Round = stop.value
        return result
    raise AssertionError("a round asks for one pass")
