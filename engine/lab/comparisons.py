"""LENGTH, K, TEMPERATURE and TEXT: which replies each compares, and the points that come of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from engine.config import USUAL_K, DecodingParams, Message, Rule, SamplingParams
from engine.control.latency import RoundLatency
from engine.lab import figures
from engine.lab.bootstrap import bootstrap
from engine.lab.catalog import K_KINDS, SHORT, SHORT_TIMES, TEXT_KINDS, TEXT_TOKENS, TOKENS
from engine.lab.context import ExperimentContext
from engine.lab.figures import Figure
from engine.lab.formulas import expected_tokens, speedup_from_costs
from engine.lab.prompts import LONG, PROMPTS
from engine.lab.replies import Block, Cell, Comparison, ReplyPair
from engine.lab.results import OWN, PREDICTED, SPECULATIVE, ExperimentRequest, Point, TextKind

Prompt = tuple[int, ...]


def length(context: ExperimentContext, request: ExperimentRequest) -> Comparison:
    """K open, as a reader's replies have it. Short replies are measured more often, since they take so little."""
    blocks = [
        Block(prompt, params, {(SPECULATIVE, x): _params(request, n, seed=repeat, k=None)})
        for repeat in range(request.repeats)
        for x in request.xs
        for _ in range(SHORT_TIMES if x <= SHORT else 1)
        for prompt in request.prompts or encode_prompts(context, LONG)
        for n in [int(x)]
        for params in [_params(request, n, seed=repeat, k=0)]
    ]
    extras: dict[str, Figure] = {
        "ttft_plain": figures.plain(lambda summary: summary.ttft_s),
        "ttft_spec": figures.spec(lambda summary: summary.ttft_s),
        "plain_s": figures.plain(figures.request_s),
        "spec_s": figures.spec(figures.request_s),
        "decode_speedup": figures.decode_speedup,
        "tokens": figures.spec(lambda summary: summary.tokens),
    }
    return Comparison(context, blocks, _points(figures.request_speedup, extras), (("k", "auto"), ("temperature", "0")))


def k(context: ExperimentContext, request: ExperimentRequest) -> Comparison:
    """Fixed K, greedy; and what the formula makes of the acceptance and the costs that were measured, by the same K."""
    blocks = [
        Block(prompts[repeat % len(prompts)], _params(request, TOKENS, repeat, 0),
              {(kind, x): _params(request, TOKENS, repeat, int(x)) for x in request.xs})
        for repeat in range(request.repeats)
        for kind, prompts in _by_kind(context, request, K_KINDS)
    ]  # fmt: skip
    extras: dict[str, Figure] = {"alpha": figures.alpha, "tau": figures.tau, "drafted": figures.drafted}
    measured_points = _points(figures.decode_speedup, extras)
    settings = (("tokens", str(_cap(request, TOKENS))), ("temperature", "0"))
    return Comparison(
        context, blocks, lambda pairs: (*measured_points(pairs), *predict(context, request, pairs)), settings
    )


def predict(
    context: ExperimentContext, request: ExperimentRequest, pairs: Mapping[Cell, Sequence[ReplyPair]]
) -> tuple[Point, ...]:
    """One alpha for all K, over all kinds; drafts against plain rounds as they took here, and how much longer a pass of
    more rows takes as the engine timed it when it started."""
    all_pairs = [pair for cell_pairs in pairs.values() for pair in cell_pairs]
    alpha, draft_s, plain_s = (
        figures.alpha(all_pairs),
        figures.draft_s(all_pairs),
        figures.plain(lambda summary: summary.tpot_s)(all_pairs),
    )
    if alpha is None or draft_s is None or not plain_s or not context.profile.rows_s:
        return ()
    relative_draft_s = draft_s * context.profile.rows_s[0][1] / plain_s
    rounds_s = RoundLatency(replace(context.profile, draft_s=(("here", relative_draft_s),))).rounds(
        "here", int(max(request.xs))
    )
    return tuple(
        Point(x, PREDICTED, speedup_from_costs(alpha, rounds_s[: int(x) + 1]), 0,
              extra=(("alpha", alpha), ("tau", expected_tokens(alpha, int(x)))))
        for x in request.xs
    )  # fmt: skip


def temperature(context: ExperimentContext, request: ExperimentRequest) -> Comparison:
    """Fixed K, so that there are drafts even where they do not pay; both rules beside one plain
    reply of the same seed."""
    blocks = [
        Block(prompt, _params(request, TOKENS, repeat, 0, x),
              {(rule, x): _params(request, TOKENS, repeat, USUAL_K, x, rule) for rule in Rule})
        for repeat in range(request.repeats)
        for x in request.xs
        for prompt in request.prompts or [encode_prompts(context, PROMPTS[kind])[repeat % 2] for kind in K_KINDS]
    ]  # fmt: skip
    extras: dict[str, Figure] = {"speedup": figures.decode_speedup, "tau": figures.tau}
    settings = (("k", str(USUAL_K)), ("tokens", str(_cap(request, TOKENS))))
    return Comparison(context, blocks, _points(figures.alpha, extras), settings)


def text(context: ExperimentContext, request: ExperimentRequest) -> Comparison:
    """Greedy, K open. x is the place of the kind in the experiment's series."""
    kinds = [kind for i, kind in enumerate(TEXT_KINDS) if float(i) in request.xs]
    blocks = [
        Block(prompt, _params(request, TEXT_TOKENS, repeat, 0),
              {(kind, float(TEXT_KINDS.index(kind)) if kind in TEXT_KINDS else 0.0):
               _params(request, TEXT_TOKENS, repeat, None)})
        for repeat in range(request.repeats)
        for kind, prompts in _by_kind(context, request, kinds)
        for prompt in prompts
    ]  # fmt: skip
    extras: dict[str, Figure] = {
        "alpha": figures.alpha,
        "tau": figures.tau,
        "plain_tok_s": figures.plain(lambda summary: summary.overall_tok_s),
        "spec_tok_s": figures.spec(lambda summary: summary.overall_tok_s),
        "request_speedup": figures.request_speedup,
        "tokens": figures.spec(lambda summary: summary.tokens),
    }
    settings = (("k", "auto"), ("tokens", str(_cap(request, TEXT_TOKENS))), ("temperature", "0"))
    return Comparison(context, blocks, _points(figures.decode_speedup, extras), settings)


def encode_prompts(context: ExperimentContext, prompts: Iterable[str]) -> list[Prompt]:
    return [tuple(context.tokenizer.encode_chat([Message("user", prompt)])) for prompt in prompts]


def _by_kind(
    context: ExperimentContext, request: ExperimentRequest, kinds: Iterable[TextKind]
) -> list[tuple[str, list[Prompt]]]:
    if request.prompts:
        return [(OWN, list(request.prompts))]
    return [(kind, encode_prompts(context, PROMPTS[kind])) for kind in kinds]


def _params(
    request: ExperimentRequest,
    tokens: int,
    seed: int,
    k: int | None,
    temperature: float = 0.0,
    rule: Rule = Rule.REJECTION,
) -> DecodingParams:
    sampling = SamplingParams(temperature, seed=seed)
    return DecodingParams(sampling, request.drafter, k, rule, _cap(request, tokens), probe_every=0)


def _cap(request: ExperimentRequest, tokens: int) -> int:
    return min(tokens, request.most_tokens)


def _points(
    y: Figure, extras: Mapping[str, Figure]
) -> Callable[[Mapping[Cell, Sequence[ReplyPair]]], tuple[Point, ...]]:
    """A point for each cell whose y was measured, by series and then by x."""

    def points(pairs: Mapping[Cell, Sequence[ReplyPair]]) -> tuple[Point, ...]:
        order = list(dict.fromkeys(series for series, _ in pairs))
        result = []
        for series, x in sorted(pairs, key=lambda cell: (order.index(cell[0]), cell[1])):
            estimate = bootstrap(pairs[series, x], y)
            if estimate is None:
                continue
            figures_by_name = {name: figure(pairs[series, x]) for name, figure in extras.items()}
            extra = tuple((name, float(value)) for name, value in figures_by_name.items() if value is not None)
            result.append(Point(x, str(series), estimate.y, estimate.n, estimate.low, estimate.high, extra))
        return tuple(result)

    return points
