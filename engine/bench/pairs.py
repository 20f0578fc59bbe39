"""Each prompt twice through the engine, plain and speculative in turn, and what comes of the comparison."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.bench.drafts import draft_figures
from engine.cli.progress import Interruptible, TimeLeft
from engine.cli.prompts import CATEGORIES, BenchPrompt
from engine.config import DecodingParams, Detail, Message, Rule, format_k
from engine.errors import ContextFull, EngineError
from engine.events import Event, Finished, FinishReason, Round
from engine.serving.engine import Engine
from engine.stats import Summary, ratio, summarise


@dataclass(frozen=True, slots=True)
class BenchReply:
    """One reply's ids and figures. request_s: seconds with the prompt."""

    ids: tuple[int, ...]
    text: str
    summary: Summary
    rounds: tuple[Round, ...] = ()

    @property
    def decoded(self) -> int:
        return len(self.ids) - 1

    @property
    def request_s(self) -> float:
        return self.summary.decode_s + (self.summary.ttft_s or 0.0)


@dataclass(frozen=True, slots=True)
class PairRun:
    """The same prompt, seed and limits, plain and speculative with K = k (None: auto).

    same_text: whether both are meant to be the same text, see `promises_same_text`.
    """

    prompt: BenchPrompt
    plain: BenchReply
    spec: BenchReply
    k: int | None = 0
    same_text: bool = True

    @property
    def first_difference(self) -> int | None:
        """Index of the first reply token that differs, None if the replies are the same."""
        if self.plain.ids == self.spec.ids:
            return None
        both = zip(self.plain.ids, self.spec.ids, strict=False)
        return next((i for i, (a, b) in enumerate(both) if a != b), min(len(self.plain.ids), len(self.spec.ids)))


def promises_same_text(params: DecodingParams) -> bool:
    """Whether speculation leaves the text as it is. Else it leaves the distribution that the text is drawn from."""
    return params.sampling.temperature == 0.0 or params.rule is Rule.SHARED_NOISE


def reply(engine: Engine, prompt: BenchPrompt, params: DecodingParams, conversation: str = "") -> BenchReply:
    """Runs one request alone; conversation "" means a cold cache. Raises EngineError when it ends in an error."""
    with engine.stream([Message("user", prompt.text)], params, conversation) as stream:
        return reply_of(list(stream))


def reply_of(events: Sequence[Event]) -> BenchReply:
    """A whole reply's. Raises EngineError when it ended in an error."""
    last = events[-1]
    assert isinstance(last, Finished)
    if last.reason in (FinishReason.ERROR, FinishReason.CANCELLED):
        raise EngineError(last.message or "A reply ended early.")
    rounds = tuple(event for event in events if isinstance(event, Round))
    return BenchReply(last.token_ids, last.text, summarise(events), rounds)


def run_pairs(
    engine: Engine,
    prompts: Sequence[BenchPrompt],
    params: DecodingParams,
    report: Callable[[str], None],
    ks: Sequence[int | None] = (),
    interruptible: Interruptible | None = None,
) -> list[PairRun]:
    """All prompts, each once plain and once with each K of `ks` (the params' own if there are
    none); one run for each K.

    Which goes first alternates, and one prompt is played beforehand to warm up. All sides run without probes: the plain
    side is the whole baseline here. Prompts longer than the context are left out. Ctrl-C ends it with the runs so far,
    which `interruptible` then tells.
    """
    ks = ks or (params.num_speculative_tokens,)
    sides = [replace(params, probe_every=0, num_speculative_tokens=k) for k in (0, *ks)]
    for side in sides:
        warm_up = replace(side, max_new_tokens=min(16, side.max_new_tokens))
        reply(engine, BenchPrompt("", "Say hello, hello, hello."), warm_up)
    same_text = promises_same_text(params)

    def runs_of(prompt: BenchPrompt, replies: Sequence[BenchReply]) -> list[PairRun]:
        plain, *others = replies
        return [PairRun(prompt, plain, spec, k, same_text) for k, spec in zip(ks, others, strict=True)]

    results = _play(engine, prompts, sides, lambda *result: _progress(runs_of(*result)), report, interruptible)
    return [run for result in results for run in runs_of(*result)]


def _play(
    engine: Engine,
    prompts: Sequence[BenchPrompt],
    sides: Sequence[DecodingParams],
    describe: Callable[[BenchPrompt, Sequence[BenchReply]], str],
    report: Callable[[str], None],
    interruptible: Interruptible | None,
) -> list[tuple[BenchPrompt, list[BenchReply]]]:
    """Each prompt through each side, whose order is turned round from prompt to prompt; replies in the sides' order.

    sides: parameters to play it with. describe: what is reported of a prompt that has been played. Prompts longer than
    the context are left out, and Ctrl-C ends it with those so far.
    """
    results: list[tuple[BenchPrompt, list[BenchReply]]] = []
    pace = TimeLeft(len(prompts), report)
    with interruptible or Interruptible() as end:
        for n, prompt in enumerate(prompts, 1):
            order = range(len(sides)) if n % 2 else reversed(range(len(sides)))
            try:
                replies = {i: reply(engine, prompt, sides[i]) for i in order}
            except ContextFull as error:
                pace(n, f"left out: {error}")
                continue
            results.append((prompt, [replies[i] for i in range(len(sides))]))
            pace(n, f"{prompt.category}: {describe(*results[-1])}")
    if end.partial:
        report(f"interrupted: the figures are about {len(results)} of {len(prompts)} prompts")
    return results


def run_baselines(
    engine: Engine,
    prompts: Sequence[BenchPrompt],
    params: DecodingParams,
    report: Callable[[str], None],
    interruptible: Interruptible | None = None,
) -> dict[str, Any]:
    """The live baseline (probes in the midst of speculation) against plain-only runs of the same replies.

    Both are ratios of sums over all prompts; which of the two runs goes first alternates. Prompts longer than the
    context are left out, and Ctrl-C ends it with those so far. Keys: live_tok_s, plain_tok_s, ratio (live over
    plain-only), probes (with K = auto also the rounds played plain by choice), prompts.
    """
    plain = replace(params, num_speculative_tokens=0)
    reply(engine, BenchPrompt("", "Say hello, hello, hello."), replace(params, max_new_tokens=16))

    def describe_probes(prompt: BenchPrompt, replies: Sequence[BenchReply]) -> str:
        return f"{replies[0].summary.baseline.n} probes"

    results = _play(engine, prompts, (params, plain), describe_probes, report, interruptible)
    summaries = {live: [replies[i].summary for _, replies in results] for i, live in enumerate((True, False))}
    plain_rounds = {
        live: sum(s.rounds - s.spec_rounds for s in side_summaries) for live, side_summaries in summaries.items()
    }
    plain_s = {live: sum(s.plain_s for s in side_summaries) for live, side_summaries in summaries.items()}
    live_tok_s, plain_tok_s = (ratio(plain_rounds[live], plain_s[live]) for live in (True, False))
    return {
        "live_tok_s": live_tok_s,
        "plain_tok_s": plain_tok_s,
        "ratio": ratio(live_tok_s or 0.0, plain_tok_s or 0.0),
        "probes": plain_rounds[True],
        "prompts": len(summaries[True]),
    }


def _progress(runs: Sequence[PairRun]) -> str:
    plain = runs[0].plain
    sides = [
        f"K = {format_k(run.k)} {run.spec.summary.overall_tok_s or 0:.1f} tok/s{_text_comparison(run)}" for run in runs
    ]
    return f"{len(plain.ids)} tokens, plain {plain.summary.overall_tok_s or 0:.1f} tok/s, {', '.join(sides)}"


def _text_comparison(run: PairRun) -> str:
    if not run.same_text:
        return ""
    return " same text" if run.first_difference is None else f" differs at token {run.first_difference}"


def figures(runs: Sequence[PairRun]) -> dict[str, Any]:
    """The figures of a group of runs. speedup: ratio of the speeds of decoding, whatever rounds the
    speculative side played.

    identical: replies of the same text, None where that is not promised.
    """
    plain_tok_s = ratio(sum(r.plain.decoded for r in runs), sum(r.plain.summary.decode_s for r in runs))
    spec_tok_s = ratio(sum(r.spec.decoded for r in runs), sum(r.spec.summary.decode_s for r in runs))
    plain_request = ratio(sum(len(r.plain.ids) for r in runs), sum(r.plain.request_s for r in runs))
    spec_request = ratio(sum(len(r.spec.ids) for r in runs), sum(r.spec.request_s for r in runs))
    specs = [r.spec.summary for r in runs]
    accepted, drafted = sum(s.accepted for s in specs), sum(s.drafted for s in specs)
    rounds = sum(s.spec_rounds for s in specs)
    emitted = sum((s.acceptance_length or 0.0) * s.spec_rounds for s in specs)
    return {
        "plain_tok_s": plain_tok_s,
        "spec_tok_s": spec_tok_s,
        "speedup": ratio(spec_tok_s or 0.0, plain_tok_s or 0.0),
        "request_speedup": ratio(spec_request or 0.0, plain_request or 0.0),
        "alpha": ratio(accepted, accepted + sum(s.rejected for s in specs)),
        "acceptance_length": ratio(emitted, rounds),
        "draft_acceptance_rate": ratio(accepted, drafted),
        "identical": sum(r.first_difference is None for r in runs) if all(r.same_text for r in runs) else None,
        "prompts": len(runs),
        "ttft_s": statistics.median(s.ttft_s or 0.0 for s in specs) if specs else None,
        "plain_ttft_s": statistics.median(r.plain.summary.ttft_s or 0.0 for r in runs) if runs else None,
        "draft_s": sum(s.draft_s for s in specs),
        "verify_s": sum(s.verify_s for s in specs),
        "sample_s": sum(s.sample_s for s in specs),
        "other_s": sum(s.other_s for s in specs),
    }


def report_of(runs: Sequence[PairRun]) -> dict[str, Any]:
    """`overall` and `categories` (see `figures`) and `drafts` by the same names, in the form that --json writes."""
    groups = {c: group for c in CATEGORIES if (group := [run for run in runs if run.prompt.category == c])}
    categories = {category: figures(group) for category, group in groups.items()}
    return {
        "overall": figures(runs),
        "categories": categories,
        "drafts": {name: drafts_of(group) for name, group in [*groups.items(), ("overall", runs)]},
    }


def drafts_of(runs: Sequence[PairRun]) -> dict[str, Any]:
    """See `draft_figures`."""
    return draft_figures([r for run in runs for r in run.spec.rounds], figures(runs)["plain_tok_s"])


def table(report: dict[str, Any]) -> str:
    """The report for a terminal."""
    columns = (
        "plain_tok_s",
        "spec_tok_s",
        "speedup",
        "request_speedup",
        "alpha",
        "acceptance_length",
        "identical",
        "prompts",
    )
    heads = ("plain tok/s", "spec tok/s", "speed-up", "whole request", "alpha", "tau", "identical", "prompts")
    lines = [f"{'':16}" + "".join(f"{head:>14}" for head in heads)]
    for name, row in [*report["categories"].items(), ("overall", report["overall"])]:
        lines.append(f"{name:16}" + "".join(f"{_cell(row[column]):>14}" for column in columns))
    return "\n".join(lines)


def _cell(value: float | int | None) -> str:
    return "-" if value is None else str(value) if isinstance(value, int) else f"{value:.2f}"


def margin(engine: Engine, run: PairRun, params: DecodingParams) -> float | None:
    """Distance of the two best logits, plain, where the two replies part: how close the call was. None
    at the first token."""
    if not run.first_difference:
        return None
    plain = replace(params, num_speculative_tokens=0, max_new_tokens=run.first_difference + 1, detail=Detail.FULL)
    events = list(engine.stream([Message("user", run.prompt.text)], plain))
    rounds = [event for event in events if isinstance(event, Round)]
    top = rounds[-1].recovery.raw_top if rounds and rounds[-1].recovery else ()
    return math.log(top[0].prob / top[1].prob) if len(top) > 1 else None


def runs_that_differ(runs: Iterable[PairRun]) -> list[PairRun]:
    return [run for run in runs if run.first_difference is not None]
