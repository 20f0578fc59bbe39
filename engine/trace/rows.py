"""Rows of a trace back into events, one at a time. Nothing in them is believed (see
`engine.trace.reply` for the format)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from engine.config import MAX_K, Rule
from engine.events import (
    Choice,
    Event,
    Finished,
    FinishReason,
    KReason,
    Outcome,
    Prefilled,
    Prefilling,
    RecoveryDetail,
    Round,
    RoundKind,
    Source,
    Token,
    TokenDecision,
    TokenDetail,
)
from engine.trace import untrusted as read

MAX_TOP = 20
"""Entries of a top list."""

MAX_SPEEDUP = 1e6
MAX_MESSAGE = 10_000

DRAFTERS = ("none", "ngram", "head", "draft_model")

Row = Mapping[str, Any]


def _prefilling(row: Row) -> Prefilling:
    read.check_keys(row, ("done", "of"))
    return Prefilling(read.whole(row["done"]), read.whole(row["of"]))


def _prefilled(row: Row) -> Prefilled:
    read.check_keys(row, ("tokens", "cached", "seed", "s"), ("tok",))
    ttft_s, queued_s = map(read.seconds, read.items(row["s"], 2, 2))
    token = _token(row["tok"], 0, Source.PLAIN) if "tok" in row else None
    prompt_tokens, cached_tokens = read.whole(row["tokens"]), read.whole(row["cached"])
    return Prefilled(prompt_tokens, cached_tokens, token, read.seed(row["seed"]), ttft_s, queued_s)


def _finished(row: Row) -> Finished:
    read.check_keys(row, ("reason",), ("message",))
    return Finished(read.one_of(FinishReason, row["reason"]), "", (), read.text(row.get("message", ""), MAX_MESSAGE))


def _round(row: Row) -> Round:
    optional = ("kind", "rule", "why", "by", "at", "d", "ok", "last", "est", "rec")
    read.check_keys(row, ("n", "k", "ctx", "s"), optional)
    drafts = read.items(row.get("d", []), 0, MAX_K)
    accepted = read.whole(row.get("ok", 0), len(drafts))
    begin = read.whole(row.get("at", 0))
    if ("at" in row) != bool(drafts or "last" in row):
        read.fail("a round does not say where it begins")
    decisions = tuple(_decision(draft, begin, i, accepted) for i, draft in enumerate(drafts))
    tokens = tuple(_accepted(d, draft[-1]) for d, draft in zip(decisions[:accepted], drafts, strict=False))
    if "last" in row:
        source = Source.PLAIN if not drafts else Source.BONUS if accepted == len(drafts) else Source.RECOVERED
        tokens += (_token(row["last"], begin + accepted, source),)
    draft_s, verify_s, sample_s, total_s, detail_s = map(read.seconds, read.items(row["s"], 5, 5))
    return Round(
        index=read.whole(row["n"]),
        kind=read.one_of(RoundKind, row.get("kind", "speculative")),
        rule=read.one_of(Rule, row.get("rule", "rejection")),
        drafter=read.word(row.get("by", "none"), DRAFTERS),
        k_requested=read.whole(row["k"], MAX_K),
        k_reason=read.one_of(KReason, row.get("why", "auto")),
        num_drafted=len(drafts),
        context_len=read.whole(row["ctx"]),
        decisions=decisions,
        tokens=tokens,
        draft_s=draft_s,
        verify_s=verify_s,
        sample_s=sample_s,
        total_s=total_s,
        detail_s=detail_s,
        recovery=_recovery(row["rec"]) if "rec" in row else None,
        predicted_speedup=read.number(row["est"], MAX_SPEEDUP) if "est" in row else None,
    )


def _decision(row: object, begin: int, i: int, accepted: int) -> TokenDecision:
    """The i-th draft of a round that begins at position `begin` and had `accepted` of them accepted."""
    values = list(read.items(row, 3, 9))
    more = _more(values.pop()) if isinstance(values[-1], dict) else {}
    if len(values) not in (3, 6, 8) or (len(values) == 3 and i < accepted) or (len(values) > 3 and i > accepted):
        read.fail("a draft's numbers do not fit its fate")
    token_id, text, draft_prob = read.token_id(values[0]), read.text(values[1]), read.prob(values[2])
    special = read.text(more.get("special", ""))
    if len(values) == 3:
        return TokenDecision(token_id, text, begin + i, Outcome.DISCARDED, draft_prob, special=special)
    outcome = Outcome.ACCEPTED if i < accepted else Outcome.REJECTED
    numbers = (read.prob(values[3]), read.prob(values[4]), read.maybe_prob(values[5]))
    detail = None
    if len(values) == 8:
        tops = (_top(more.get("draft", [])), _top(more.get("target", [])))
        detail = TokenDetail(read.maybe_prob(values[7]), read.prob(values[6]), *tops)
    return TokenDecision(token_id, text, begin + i, outcome, draft_prob, *numbers, special, detail)


def _more(more: Row) -> Row:
    read.check_keys(more, (), ("special", "shown", "draft", "target"))
    return more


def _accepted(decision: TokenDecision, more: object) -> Token:
    """The token that an accepted draft became. more: the last entry of its row."""
    text, special = decision.text, decision.special
    if isinstance(more, dict) and "shown" in more:
        text, special = map(read.text, read.items(more["shown"], 2, 2))
    raw_prob = None if decision.detail is None else decision.detail.raw_target_prob
    return Token(decision.id, text, decision.position, Source.DRAFT, special, raw_prob)


def _token(row: object, position: int, source: Source) -> Token:
    values = read.items(row, 2, 4)
    raw_prob = read.maybe_prob(values[2]) if len(values) > 2 else None
    special = read.text(values[3]) if len(values) > 3 else ""
    return Token(read.token_id(values[0]), read.text(values[1]), position, source, special, raw_prob)


def _recovery(row: object) -> RecoveryDetail:
    uniform, top, raw_top = read.items(row, 3, 3)
    return RecoveryDetail(_top(top), read.maybe_prob(uniform), _top(raw_top))


def _top(row: object) -> tuple[Choice, ...]:
    choices = (read.items(choice, 3, 3) for choice in read.items(row, 0, MAX_TOP))
    return tuple(Choice(read.token_id(i), read.text(text), read.prob(prob)) for i, text, prob in choices)


READERS: dict[str, Callable[[Row], Event]] = {
    "reading": _prefilling,
    "prompt": _prefilled,
    "round": _round,
    "end": _finished,
}
"""By kind of event. Each takes the row without "v" and "e", and raises TraceError."""
