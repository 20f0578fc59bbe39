"""What drives rounds: one pass of the target for those of one or several replies, and the clock of each."""

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


class RoundClock:
    """Seconds of one round by part. It stands still while the round waits for the target's pass."""

    def __init__(self, overhead_s: float) -> None:
        """overhead_s: seconds before now that this round pays for."""
        self._since_s = perf_counter() - overhead_s
        self._parts: dict[str, float] = {}

    def lap(self, part: str) -> float:
        """What was done since the last lap was this part; returns its seconds."""
        now_s = perf_counter()
        self._parts[part], self._since_s = now_s - self._since_s, now_s
        return self._parts[part]

    def restart(self) -> float:
        """What was done so far is not this round's; returns its seconds."""
        now_s = perf_counter()
        elapsed_s, self._since_s = now_s - self._since_s, now_s
        return elapsed_s

    def resume(self, verify_s: float) -> None:
        self._parts["verify"], self._since_s = verify_s, perf_counter()

    def seconds(self) -> dict[str, float]:
        """As the fields of `Round`. detail_s is apart, and not in total_s."""
        draft_s, verify_s, sample_s, detail_s, rest_s = (
            self._parts[part] for part in ("draft", "verify", "sample", "detail", "rest")
        )
        return {
            "draft_s": draft_s,
            "verify_s": verify_s,
            "sample_s": sample_s,
            "detail_s": detail_s,
            "total_s": draft_s + verify_s + sample_s + rest_s,
        }


def play_rounds(model: Model, rounds: Sequence[Generator[Request, ForwardResult, Round]]) -> list[Round]:
    """One round each of one or several replies, with one pass of the target for all.

    verify_s of each is all that it waited for: the joint pass, and the drafting of the others. An exception of the
    pass, or of somebody's drafting, goes to all of them.
    """
    begin_s = perf_counter()
    requests: list[Request] = []
    drafting_s: list[float] = []
    try:
        for round_ in rounds:
            round_begin_s = perf_counter()
            requests.append(next(round_))
            drafting_s.append(perf_counter() - round_begin_s)
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
