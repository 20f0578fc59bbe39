"""The article's table as a pure function: its seven rows, and measurements that lead where there are any."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from itertools import product, starmap

from engine.lab import ExperimentName, Point, Result, TextKind
from tests.fake_engine import measured
from ui.strings import LANGS
from ui.when import advisor
from ui.when import page as when
from ui.when.advisor import Advice, Answers, Evidence, Goal, Reason, Stance, Verdict


def points(name: ExperimentName, ys: Mapping[int, Mapping[str, float]], **extra: float) -> Result:
    made = [Point(x, series, y, 3, y * 0.98, y * 1.02, tuple(extra.items())) for x, row in ys.items() for series, y in row.items()]  # fmt: skip
    return Result(name, tuple(made), (), "2025-01-02T03:04:05+00:00", 1.0)


def rates(ys: Mapping[int, tuple[float, float]]) -> Result:
    return points(ExperimentName.RATE, {x: {"plain": plain, "speculative": spec} for x, (plain, spec) in ys.items()})


def rows(dear: float) -> Result:
    return points(ExperimentName.ROWS, {1: {"measured": 10}, 4: {"measured": dear}})


def lengths(*ys: float) -> Result:
    by_tokens = {x: {"speculative": y} for x, y in zip((1, 4, 16, 256), ys, strict=True)}
    return points(ExperimentName.LENGTH, by_tokens, ttft_plain=0.1, ttft_spec=0.1, decode_speedup=ys[-1])


def evidence(*results: Result) -> Evidence:
    return Evidence({result.name: result for result in results}, frozenset({ExperimentName.RATE}))


RATE = rates({1: (100, 180), 8: (300, 330), 32: (500, 350)})
TEXT = points(ExperimentName.TEXT, {0: {"copy": 2.5}, 1: {"chat": 1.7}, 2: {"poem": 0.8}})
NOTHING, AS_SAID = evidence(), evidence(RATE, lengths(1.0, 1.02, 1.3, 1.8), rows(11), TEXT)
"""The latter: measurements that the article would have expected."""


def advise(known: Evidence = AS_SAID, **answers: object) -> Advice:
    return advisor.advise(replace(Answers(), **answers), known)  # type: ignore[arg-type]


def reason(advice: Advice, name: ExperimentName = ExperimentName.RATE) -> Reason:
    return next(one for one in advice.reasons if one.experiment is name)


def test_the_seven_rows() -> None:
    long, short = ("long", "idle", "latency", "memory"), ("short", "busy", "throughput")
    saturated = Answers(tokens=4, users=32, goal=Goal.THROUGHPUT, busy=True)
    for known in (NOTHING, AS_SAID):
        assert advise(known).verdict is Verdict.YES
        for field in ("tokens", "busy", "goal"):
            assert advise(known, **{field: getattr(saturated, field)}).verdict is Verdict.NO
        table = advisor.rules(Answers(), known)
        assert [(row.name, row.speculate) for row in table] == [*((name, True) for name in long), *((name, False) for name in short)]  # fmt: skip
        assert [row.name for row in table if row.applies] == list(long)
        assert all((row.reason.stance is Stance.FOR) == row.speculate for row in table), "such measurements bear it out"
        assert [row.name for row in advisor.rules(saturated, known) if row.applies] == list(short)


def test_the_measured_crossover_decides() -> None:
    for users in (1, 4, 8, 16, 32):
        advice = advise(users=users)
        assert advice.verdict is (Verdict.YES if users <= 8 else Verdict.NO)
        assert reason(advice).sentence.values["users"] == users
    gains = [
        float(str(advisor.by_load(Answers(users=users), AS_SAID).sentence.values["gain"])) for users in (1, 2, 4, 8)
    ]
    assert gains == sorted(gains, reverse=True) and (gains[0], gains[-1]) == (1.8, 1.1), (
        "between two loads, between theirs"
    )
    assert advisor.by_load(Answers(users=32), evidence(rates({2: (1, 2)}))).stance is Stance.FOR


def test_measurements_lead_where_they_contradict_the_article() -> None:
    gains = evidence(rates({1: (100, 200), 32: (300, 500)}))
    assert advise(gains, goal=Goal.THROUGHPUT).verdict is not Verdict.NO
    assert advise(gains, busy=True).verdict is Verdict.EVEN, "busier than what was measured, so nobody knows"
    assert advise(evidence(lengths(0.7, 0.65, 0.65, 0.6))).verdict is Verdict.NO
    blurred = replace(RATE, points=tuple(replace(p, low=p.y * 0.5, high=p.y * 1.5) for p in RATE.points))
    unclear = advise(Evidence({**AS_SAID.results, ExperimentName.RATE: blurred}))
    assert unclear.verdict is Verdict.EVEN and reason(unclear).stance is Stance.UNCLEAR
    assert advise(kind=TextKind.POEM).verdict is Verdict.NO and advise(kind=TextKind.COPY).verdict is Verdict.YES
    for dear, stance in ((9, Stance.FOR), (35, Stance.UNCLEAR)):
        assert advisor.by_memory_movement(Answers(), evidence(rows(dear))).stance is stance


def test_it_says_whose_figures_they_are_and_reasons_against_come_first() -> None:
    assert (reason(advise()).own, reason(advise(), ExperimentName.LENGTH).own) == (True, False)
    assert {one.own for one in advise(NOTHING).reasons} == {None}
    stances = [one.stance for one in advise(users=32, memory=False).reasons]
    assert stances[0] is Stance.AGAINST and stances[-1] is Stance.NOTE


def config(line: str) -> dict[str, object]:
    """What a shell would hand to vLLM."""
    words = shlex.split(line.replace("\\\n", ""))
    assert words[:3] == ["vllm", "serve", advisor.MODEL] and words[3:4] in ([], ["--speculative-config"])
    made: dict[str, object] = json.loads(words[4]) if words[3:] else {}
    return made


def test_the_command_lines_are_vllms() -> None:
    head, ngram = (config(command.line) for command in advise().commands)
    assert head == {"method": "eagle3", "model": advisor.HEAD, "num_speculative_tokens": 3}
    lookup = {"prompt_lookup_min": 2, "prompt_lookup_max": 4}
    assert ngram == {"method": "ngram", "num_speculative_tokens": 3} | lookup
    for answers, drafters in (({"kind": TextKind.COPY}, ["ngram", "head"]), ({"memory": False}, ["ngram"]), ({"tokens": 4}, ["none"])):  # fmt: skip
        assert [command.drafter for command in advise(**answers).commands] == drafters
    assert config(advise(tokens=4).commands[0].line) == {}
    ks = points(ExperimentName.K, {1: {"chat": 1.2, "code": 1.3}, 2: {"chat": 1.4, "code": 1.5}, 5: {"chat": 1.1, "code": 1.9}})  # fmt: skip
    for kind, k in ((TextKind.CHAT, 2), (TextKind.CODE, 5)):
        [first, *_] = advise(Evidence({**AS_SAID.results, ExperimentName.K: ks}), kind=kind).commands
        assert config(first.line)["num_speculative_tokens"] == k, "the best that was measured"


def test_every_answer_gets_advice_in_both_languages() -> None:
    whole = evidence(*map(measured, ExperimentName))
    form = (when.TOKENS, when.USERS, Goal, (True, False), (True, False), advisor.KINDS)
    for answers, known in product(starmap(Answers, product(*form)), (NOTHING, AS_SAID, whole)):
        advice = advisor.advise(answers, known)
        assert advice.reasons and advice.commands
        assert (advice.verdict is Verdict.NO) == any(one.stance is Stance.AGAINST for one in advice.reasons)
        for one in (*advice.reasons, *(row.reason for row in advisor.rules(answers, known))):
            assert not any("{" in one.sentence.text(lang) for lang in LANGS)


def test_what_the_form_says_is_read_with_care() -> None:
    form = {"tokens": "4", "users": "16", "goal": "throughput", "busy": "yes", "memory": "no", "kind": "code"}
    assert when.answers(form) == Answers(4, 16, Goal.THROUGHPUT, True, False, TextKind.CODE)
    for wrong in ({}, {"tokens": "5", "users": [], "goal": 7, "kind": "choice"}, {"tokens": None, "memory": 1}):
        assert when.answers(wrong) == Answers()
