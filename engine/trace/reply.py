"""Events as JSON and back: how a reply is kept outside the engine. What comes back was in other hands, and is checked.

`rows` gives one object for each event, all with "v", this format's version, and "e", the kind of event. Numbers have
six significant digits; what is absent has its usual value. Nothing is said twice: positions are counted from a round's
first, sources follow from what was accepted, and the whole text from the tokens (see `events`).

    {"e": "reading", "done", "of"}                            Prefilling
    {"e": "prompt", "tokens", "cached", "seed", "s", "tok"}   Prefilled; seed is text, since JavaScript would round it
        s       [ttft_s, queued_s]
        tok     the first token; absent where a stop string left nothing of it
    {"e": "round", "n", "k", "ctx", "s", ...}                 Round: index, k_requested, context_len, and
        s       [draft_s, verify_s, sample_s, total_s, detail_s]
        kind, rule, why, by    absent: "speculative", "rejection", "auto", "none"; why is k_reason, by the drafter
        at      position of the first draft or token, absent where there is neither
        d, ok   decisions, and how many of them were accepted: these, in order, are the first tokens of the round
        last    the token behind them, absent where a stop cut it off
        est     predicted_speedup
        rec     recovery: [uniform, top, raw_top]
    {"e": "end", "reason", "message"}                         Finished

    token     [id, text], [id, text, raw_prob] or [id, text, raw_prob or null, special]
    decision  [id, text, draft_prob]                          discarded
              [..., target_prob, accept_prob, uniform]        tested
              [..., raw_target_prob, raw_draft_prob]          and with detail; what an accepted one's token has, too
              and at the end, where there is something to say, {"special", "shown": [text, special] of the token where
              the decision has others, "draft": draft_top, "target": target_top}
    choice    [id, text, prob]

Rows without the top lists (`tops=False`) are a fraction of the size and read back as replies of which these were not
recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from engine.config import Rule
from engine.events import (
    Choice,
    Event,
    Finished,
    KReason,
    Outcome,
    Prefilled,
    Prefilling,
    Round,
    RoundKind,
    Token,
    TokenDecision,
)
from engine.trace import rows as trace_rows
from engine.trace import untrusted

VERSION = 1

MAX_ROWS = 100_000
"""Longer replies are not read back."""

Row = dict[str, Any]


def rows(events: Iterable[Event], tops: bool = True) -> list[Row]:
    """The events of one reply, for `events` to read back."""
    return [row(event, tops) for event in events]


def row(event: Event, tops: bool = True) -> Row:
    """One event as a JSON object. tops: with the top lists of both sides and of the recovery, where there are some."""
    if isinstance(event, Prefilling):
        fields: Row = {"e": "reading", "done": event.done, "of": event.prompt_tokens}
    elif isinstance(event, Prefilled):
        fields = {"e": "prompt", "tokens": event.prompt_tokens, "cached": event.cached_tokens, "seed": str(event.seed)}
        fields |= {"s": [_short(event.ttft_s), _short(event.queued_s)]}
        fields |= {"tok": _token_row(event.token)} if event.token is not None else {}
    elif isinstance(event, Finished):
        fields = {"e": "end", "reason": event.reason.value} | ({"message": event.message} if event.message else {})
    else:
        fields = _round_row(event, tops)
    return {"v": VERSION} | fields


def event(row: object) -> Event:
    """The event of one row, which may be any JSON value. Of Finished the text and ids are missing.
    Raises TraceError."""
    if not isinstance(row, dict) or row.get("v") != VERSION:
        untrusted.fail("its format is unknown")
    fields = {key: value for key, value in row.items() if key not in ("v", "e")}
    return trace_rows.READERS[untrusted.word(row.get("e"), trace_rows.READERS)](fields)


def events(rows: object) -> tuple[Event, ...]:
    """The events of one reply, in their order and with all of their text; a reply that was broken off has no Finished.

    rows: any JSON value. Raises TraceError for one that `rows` cannot have made.
    """
    if not isinstance(rows, (list, tuple)) or len(rows) > MAX_ROWS:
        untrusted.fail("it is no list of events, or too long")
    result: list[Event] = []
    tokens: list[Token] = []
    prefilled: Prefilled | None = None
    for row_ in rows:
        event_ = event(row_)
        if result and isinstance(result[-1], Finished):
            untrusted.fail("something follows its end")
        if isinstance(event_, (Prefilling, Prefilled)) and prefilled is not None:
            untrusted.fail("its prompt is read twice")
        if isinstance(event_, Prefilled):
            prefilled = event_
            tokens += () if event_.token is None else (event_.token,)
        elif isinstance(event_, Round):
            _check_place(event_, result[-1] if result else None, prefilled, len(tokens))
            tokens += event_.tokens
        elif isinstance(event_, Finished):
            event_ = replace(event_, text="".join(t.text for t in tokens), token_ids=tuple(t.id for t in tokens))
        result.append(event_)
    return tuple(result)


def _check_place(round_: Round, before: Event | None, prefilled: Prefilled | None, replied: int) -> None:
    """That a round is the one that follows `replied` tokens of a reply, or was cut off whole by a stop
    string before it."""
    begin = round_.context_len - (prefilled.prompt_tokens if prefilled is not None else 0)
    in_order = (
        prefilled is not None
        and (not isinstance(before, Round) or round_.index == before.index + 1)
        and (begin == replied if round_.tokens else begin >= replied)
        and _begin(round_) in (None, begin)
    )
    if not in_order:
        untrusted.fail("its rounds are not in order")


def _begin(round_: Round) -> int | None:
    """The position of its first draft or token, None where it has neither."""
    if round_.decisions:
        return round_.decisions[0].position
    return round_.tokens[0].position if round_.tokens else None


def _round_row(round_: Round, tops: bool) -> Row:
    times = (round_.draft_s, round_.verify_s, round_.sample_s, round_.total_s, round_.detail_s)
    accepted = sum(decision.outcome is Outcome.ACCEPTED for decision in round_.decisions)
    fields: Row = {"e": "round", "n": round_.index, "k": round_.k_requested}
    fields |= {"kind": round_.kind.value} if round_.kind is not RoundKind.SPECULATIVE else {}
    fields |= {"rule": Rule(round_.rule).value} if round_.rule != Rule.REJECTION else {}
    fields |= {"why": round_.k_reason.value} if round_.k_reason is not KReason.AUTO else {}
    fields |= {"by": round_.drafter} if round_.drafter != "none" else {}
    fields |= {"ctx": round_.context_len, "s": [_short(time_s) for time_s in times]}
    fields |= {"at": begin} if (begin := _begin(round_)) is not None else {}
    if round_.decisions:
        pairs = zip_longest(round_.decisions, round_.tokens[:accepted])
        fields |= {"d": [_decision_row(decision, token, tops) for decision, token in pairs]}
    fields |= {"ok": accepted} if accepted else {}
    fields |= {"last": _token_row(round_.tokens[-1])} if len(round_.tokens) > accepted else {}
    fields |= {"est": _short(round_.predicted_speedup)} if round_.predicted_speedup is not None else {}
    if (recovery := round_.recovery) is not None:
        lists = (recovery.top, recovery.raw_top) if tops else ((), ())
        fields |= {"rec": [_maybe(recovery.uniform), *map(_top_row, lists)]}
    return fields


def _decision_row(decision: TokenDecision, token: Token | None, tops: bool) -> list[Any]:
    """token: the one that an accepted draft became."""
    fields: list[Any] = [decision.id, decision.text, _short(decision.draft_prob)]
    more: Row = {"special": decision.special} if decision.special else {}
    if decision.outcome is not Outcome.DISCARDED:
        fields += map(_maybe, (decision.target_prob, decision.accept_prob, decision.uniform))
    if token is not None and (token.text, token.special) != (decision.text, decision.special):
        more |= {"shown": [token.text, token.special]}
    if (detail := decision.detail) is not None:
        fields += [_short(detail.raw_target_prob), _maybe(detail.raw_draft_prob)]
        more |= {"draft": _top_row(detail.draft_top)} if tops and detail.draft_top else {}
        more |= {"target": _top_row(detail.target_top)} if tops and detail.target_top else {}
    return [*fields, more] if more else fields


def _token_row(token: Token) -> list[Any]:
    values: list[Any] = [token.id, token.text, _maybe(token.raw_prob), token.special]
    return values if token.special else values[:3] if token.raw_prob is not None else values[:2]


def _top_row(top: Sequence[Choice]) -> list[Any]:
    return [[choice.id, choice.text, _short(choice.prob)] for choice in top]


def _maybe(value: float | None) -> float | None:
    return None if value is None else _short(value)


def _short(value: float) -> float:
    """Six significant digits, and no ".0" to carry."""
    short = float(f"{value:.6g}")
    return int(short) if short.is_integer() else short
