"""The article's table as a pure function: its seven rows, and measurements that lead where there are any."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import pytest

from engine.lab import ExperimentName, Point, Result, TextKind
from tests.fake_engine import measured
from ui.strings import LANGS
from ui.when import advisor
from ui.when import page as when
from ui.when.advisor import Advice, Answers, Evidence, Goal, Stance, Verdict

NOTHING = Evidence({})


def points(name: ExperimentName, ys: Mapping[float, Mapping[str, float]], **extra: float) -> Result:
    made = [
        Point(x, series, y, 3, y * 0.98, y * 1.02, tuple(extra.items()))
        for x, row in ys.items()
        for series, y in row.items()
    ]
    return Result(name, tuple(made), (), "2025-01-02T03:04:05+00:00", 1.0)


RATE = points(
    ExperimentName.RATE,
    {
        1: {"plain": 100, "speculative": 180},
        8: {"plain": 300, "speculative": 330},
        32: {"plain": 500, "speculative": 350},
    },
)
LENGTH = points(ExperimentName.LENGTH, {1: {"speculative": 1.0}, 4: {"speculative": 1.02}, 16: {"speculative": 1.3}, 256: {"speculative": 1.8}},
                ttft_plain=0.1, ttft_spec=0.1, decode_speedup=1.9)  # fmt: skip
ROWS = points(ExperimentName.ROWS, {1: {"measured": 10}, 4: {"measured": 11}})
TEXT = points(ExperimentName.TEXT, {0: {"copy": 2.5}, 1: {"chat": 1.7}, 2: {"poem": 0.8}})
AS_SAID = Evidence({result.name: result for result in (RATE, LENGTH, ROWS, TEXT)})
"""Measurements that the article would have expected."""


def advise(evidence: Evidence = AS_SAID, **said: object) -> Advice:
    return advisor.advise(replace(Answers(), **said), evidence)  # type: ignore[arg-type]


SEVEN = [
    ({"tokens": 256}, Verdict.YES),
    ({"busy": False, "users": 1}, Verdict.YES),
    ({"goal": Goal.LATENCY}, Verdict.YES),
    ({"busy": False}, Verdict.YES),  # memory movement is the limit as long as requests do not saturate the device
    ({"tokens": 4}, Verdict.NO),
    ({"busy": True}, Verdict.NO),
    ({"goal": Goal.THROUGHPUT}, Verdict.NO),
]


@pytest.mark.parametrize("evidence", [NOTHING, AS_SAID], ids=["unmeasured", "measured"])
@pytest.mark.parametrize(("said", "verdict"), SEVEN)
def test_the_seven_rows(said: dict[str, object], verdict: Verdict, evidence: Evidence) -> None:
    assert advise(evidence, **said).verdict is verdict


@pytest.mark.parametrize("evidence", [NOTHING, AS_SAID], ids=["unmeasured", "measured"])
def test_the_table_says_what_the_article_says_in_its_order(evidence: Evidence) -> None:
    rows = advisor.rules(Answers(), evidence)
    assert [(row.name, row.speculate) for row in rows] == [
        ("long", True), ("idle", True), ("latency", True), ("memory", True), ("short", False), ("busy", False), ("throughput", False),
    ]  # fmt: skip
    stances = [Stance.FOR if row.speculate else Stance.AGAINST for row in rows]
    assert [row.reason.stance for row in rows] == stances  # such measurements bear it out
    assert [row.name for row in rows if row.applies] == ["long", "idle", "latency", "memory"]


def test_the_rows_that_fit_follow_the_answers() -> None:
    answers = Answers(tokens=4, users=32, goal=Goal.THROUGHPUT, busy=True)
    assert [row.name for row in advisor.rules(answers, AS_SAID) if row.applies] == ["short", "busy", "throughput"]


@pytest.mark.parametrize(
    ("users", "verdict"), [(1, Verdict.YES), (4, Verdict.YES), (8, Verdict.YES), (16, Verdict.NO), (32, Verdict.NO)]
)
def test_the_measured_crossover_decides(users: int, verdict: Verdict) -> None:
    found = advise(users=users)
    assert found.verdict is verdict
    load = next(reason for reason in found.reasons if reason.experiment is ExperimentName.RATE)
    assert load.sentence.values["users"] == users


def test_measurements_lead_where_they_contradict_the_article() -> None:
    better = points(
        ExperimentName.RATE, {1: {"plain": 100, "speculative": 200}, 32: {"plain": 300, "speculative": 500}}
    )
    gains = Evidence({ExperimentName.RATE: better})
    assert advise(gains, goal=Goal.THROUGHPUT).verdict is not Verdict.NO
    worse = Evidence(
        {
            ExperimentName.LENGTH: points(
                ExperimentName.LENGTH, {1: {"speculative": 0.7}, 256: {"speculative": 0.6}}, decode_speedup=0.6
            )
        }
    )
    assert advise(worse).verdict is Verdict.NO
    full = advise(gains, busy=True)
    assert full.verdict is Verdict.EVEN  # busier than what was measured, so nobody knows


def test_what_cannot_be_told_apart_is_no_reason() -> None:
    blurred = Result(
        ExperimentName.RATE, tuple(replace(p, low=p.y * 0.5, high=p.y * 1.5) for p in RATE.points), (), RATE.made, 1.0
    )
    found = advise(Evidence({**AS_SAID.results, ExperimentName.RATE: blurred}))
    assert found.verdict is Verdict.EVEN
    assert next(reason for reason in found.reasons if reason.experiment is ExperimentName.RATE).stance is Stance.UNCLEAR


def test_between_two_measured_loads_the_gain_lies_between_theirs() -> None:
    found = [advisor.by_load(Answers(users=users), AS_SAID).sentence.values["gain"] for users in (1, 2, 4, 8)]
    assert found == sorted(found, key=lambda gain: -float(str(gain))) and found[0] == "1.80" and found[-1] == "1.10"
    assert (
        advisor.by_load(
            Answers(users=32),
            Evidence({ExperimentName.RATE: points(ExperimentName.RATE, {2: {"plain": 1, "speculative": 2}})}),
        ).stance
        is Stance.FOR
    )


def test_it_says_whose_figures_they_are() -> None:
    own = Evidence(AS_SAID.results, frozenset({ExperimentName.RATE}))
    sources = {reason.experiment: reason.own for reason in advise(own).reasons}
    assert sources[ExperimentName.RATE] is True and sources[ExperimentName.LENGTH] is False
    assert {reason.own for reason in advise(NOTHING).reasons} == {None}


def test_reasons_against_come_first() -> None:
    stances = [reason.stance for reason in advise(users=32, memory=False).reasons]
    assert stances[0] is Stance.AGAINST and stances[-1] is Stance.NOTE
    assert stances == sorted(stances, key=(Stance.AGAINST, Stance.FOR, Stance.UNCLEAR, Stance.NOTE).index)


def test_checking_is_nearly_free_where_its_cost_drowns_in_scatter() -> None:
    noisy = points(ExperimentName.ROWS, {1: {"measured": 40}, 4: {"measured": 36}})
    reason = advisor.by_memory_movement(Answers(), Evidence({ExperimentName.ROWS: noisy}))
    assert reason.stance is Stance.FOR and "as far as repeats can tell" in reason.sentence.text("en")
    dear = points(ExperimentName.ROWS, {1: {"measured": 10}, 4: {"measured": 35}})
    assert advisor.by_memory_movement(Answers(), Evidence({ExperimentName.ROWS: dear})).stance is Stance.UNCLEAR


def test_text_that_is_hard_to_guess_is_a_reason_against() -> None:
    assert advise(kind=TextKind.POEM).verdict is Verdict.NO and advise(kind=TextKind.COPY).verdict is Verdict.YES


def config(line: str) -> dict[str, object]:
    """What a shell would hand to vLLM."""
    said = subprocess.run(
        ["sh", "-c", f"vllm() {{ printf '%s\\0' \"$@\"; }}\n{line}"], capture_output=True, check=True, text=True
    )
    words = said.stdout.split("\0")[:-1]
    assert words[:2] == ["serve", advisor.MODEL]
    if len(words) == 2:
        return {}
    assert words[2] == "--speculative-config" and len(words) == 4
    made: dict[str, object] = json.loads(words[3])
    return made


def test_the_command_lines_are_vllms() -> None:
    head, ngram = advise().commands
    assert config(head.line) == {"method": "eagle3", "model": advisor.HEAD, "num_speculative_tokens": 3}
    assert config(ngram.line) == {
        "method": "ngram",
        "num_speculative_tokens": 3,
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 4,
    }
    assert [command.drafter for command in advise(kind=TextKind.COPY).commands] == ["ngram", "head"]
    assert [command.drafter for command in advise(memory=False).commands] == ["ngram"]
    [plain] = advise(tokens=4).commands
    assert plain.drafter == "none" and config(plain.line) == {}


def test_k_is_the_best_that_was_measured_for_such_text() -> None:
    ks = points(
        ExperimentName.K, {1: {"chat": 1.2, "code": 1.3}, 2: {"chat": 1.4, "code": 1.5}, 5: {"chat": 1.1, "code": 1.9}}
    )
    evidence = Evidence({**AS_SAID.results, ExperimentName.K: ks})
    assert config(advise(evidence).commands[0].line)["num_speculative_tokens"] == 2
    assert config(advise(evidence, kind=TextKind.CODE).commands[0].line)["num_speculative_tokens"] == 5


@pytest.mark.parametrize(
    "evidence",
    [NOTHING, AS_SAID, Evidence({name: measured(name) for name in ExperimentName}, frozenset(ExperimentName))],
)
def test_every_answer_gets_advice_in_both_languages(evidence: Evidence) -> None:
    for tokens, users, goal, busy, memory, kind in product(
        when.TOKENS, when.USERS, Goal, (True, False), (True, False), advisor.KINDS
    ):
        answers = Answers(tokens, users, goal, busy, memory, kind)
        found = advisor.advise(answers, evidence)
        assert found.reasons and found.commands
        assert (found.verdict is Verdict.NO) == any(reason.stance is Stance.AGAINST for reason in found.reasons)
        for reason in (*found.reasons, *(row.reason for row in advisor.rules(answers, evidence))):
            assert all("{" not in reason.sentence.text(lang) for lang in LANGS)


def test_what_the_form_says_is_read_with_care() -> None:
    said = {"tokens": "4", "users": "16", "goal": "throughput", "busy": "yes", "memory": "no", "kind": "code"}
    assert when.answers(said) == Answers(4, 16, Goal.THROUGHPUT, True, False, TextKind.CODE)
    for wrong in ({}, {"tokens": "5", "users": [], "goal": 7, "kind": "choice"}, {"tokens": None, "memory": 1}):
        assert when.answers(wrong) == Answers()
