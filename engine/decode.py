"""The loop. Plain decoding is this same loop with K = 0; there is no other.

prefill -> first token -> rounds of: plan K, propose, one forward of k + 1 rows, probabilities, verify, cut, emit.
Clocks sit around compute only. Between events the generator stands still, and its caller may run another request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

from torch import Tensor

from engine import logprobs as detail
from engine.config import DecodingParams, Detail
from engine.control.controller import Controller, Plan
from engine.control.latency import Profile
from engine.drafters.protocol import Drafter, Proposal
from engine.errors import BROKEN, ContextFull, EngineError
from engine.events import (
    Event,
    Finished,
    FinishReason,
    Outcome,
    Prefilled,
    Prefilling,
    Round,
    RoundKind,
    Source,
    Token,
    TokenDecision,
    TokenDetail,
)
from engine.networks.kv_cache import KVCache, common_prefix
from engine.networks.model import PREFILL_CHUNK, Model, Request
from engine.rng import KeyedRng, Purpose
from engine.sampling import LazyRows, probabilities
from engine.stopping import cut_at_stop_strings, cut_round
from engine.text.detokenizer import Detokenizer
from engine.text.tokenizer import Tokenizer
from engine.verify import Verdict, verify

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReplyContext:
    """What one reply works with. `cache` is its alone while it runs, and keeps the drafter's feature layers; drafter None:
    plain decoding only. costs: what the engine measured when it started."""

    model: Model
    cache: KVCache
    tokenizer: Tokenizer
    drafter: Drafter | None
    cancelled: Callable[[], bool]
    profile: Profile = field(default_factory=Profile)


def generate(
    ids: Sequence[int],
    params: DecodingParams,
    lane: ReplyContext,
    prefilled: Prefilled | None = None,
    when_read: Callable[[Prefilled], None] | None = None,
) -> Iterator[Event]:
    """The events of one reply to the prompt `ids`; always ends with `Finished`.

    when_read is told of the prompt's end before a stop string may hold that event back, or cut it. prefilled: what it was
    told by another reply of the same seed and settings, which has read the prompt into the cache of which this lane has a
    copy: nothing is read or drawn again.
    params.sampling.seed must be set. Raises ContextFull at once (before the first event) when the prompt leaves no room.
    """
    if len(ids) >= lane.model.context_len:
        raise ContextFull(len(ids), lane.model.context_len)
    stops = (*params.stop, *lane.tokenizer.stop_strings)
    reply = Reply(ids, params, lane)
    first = reply.read(when_read) if prefilled is None else reply.resume(prefilled)
    return cut_at_stop_strings(reply.events(first), stops)


@dataclass(frozen=True, slots=True)
class Pending:
    """A round that waits for the target's pass over `request`. draft_s: seconds of planning and drafting."""

    index: int
    plan: Plan
    proposal: Proposal
    request: Request
    draft_s: float


class Reply:
    """The state of one reply in the making: ids so far, detokeniser, what was emitted.

    `events` plays it alone. Several can share the target's passes: after `read` of each, rounds of `draft` for all whose
    `end` is None, one forward of their requests, and `settle` for each.
    """

    def __init__(self, prompt: Sequence[int], params: DecodingParams, lane: ReplyContext) -> None:
        if lane.drafter is None or params.drafter == "none":
            params = replace(params, num_speculative_tokens=0)
        if params.sampling.seed is None:
            raise ValueError("the caller picks the seed")
        self.params, self.sampling, self.lane = params, params.sampling, lane
        self.seed: int = params.sampling.seed
        self.rng = KeyedRng(self.seed, params.rule)
        self.prompt_len = len(prompt)
        self.ids = list(prompt)
        self.detokeniser = lane.tokenizer.detokeniser()
        self.text: list[str] = []
        self.controller = Controller(params, lane.profile)
        self.owed_s = 0.0

    # -- the loop ---------------------------------------------------------------------------------------------------

    def events(self, first: Iterator[Event]) -> Iterator[Event]:
        """first: the events up to the first token, by `read` or `resume`."""
        try:
            yield from first
            index = 1
            while (reason := self.end()) is None:
                yield self._emit_round(index)
                index += 1
            yield self.finished(reason)
        except EngineError as error:
            yield self.finished(FinishReason.ERROR, str(error))
        except Exception:  # whatever broke ends this reply; the engine thread lives on
            log.exception("a reply failed")
            yield self.finished(FinishReason.ERROR, BROKEN)

    def end(self) -> FinishReason | None:
        """Why the reply is over, None while it is not."""
        replied = len(self.ids) - self.prompt_len
        if replied and self.ids[-1] in self.lane.tokenizer.stop_ids:
            return FinishReason.STOP
        if self.lane.cancelled():
            return FinishReason.CANCELLED
        if self.params.max_new_tokens <= replied:
            return FinishReason.LENGTH
        if len(self.ids) >= self.lane.model.context_len:
            return FinishReason.CONTEXT
        return None

    def finished(self, reason: FinishReason, message: str = "") -> Finished:
        """The reply as it stands, ended for this reason."""
        return Finished(reason, "".join(self.text), tuple(self.ids[self.prompt_len :]), message)

    def resume(self, prefilled: Prefilled) -> Iterator[Event]:
        """The prompt has been read by somebody else, who drew the first token as well."""
        if prefilled.token is not None:
            self._emit([prefilled.token.id], [prefilled.token.source])
        yield prefilled

    def read(self, when_read: Callable[[Prefilled], None] | None = None) -> Iterator[Event]:
        """Reads the prompt in pieces, so that others get their turn and a cancel is seen, then draws the first token."""
        model, cache = self.lane.model, self.lane.cache
        cached = min(common_prefix(cache.ids, self.ids), len(self.ids) - 1)
        spent_s = 0.0
        for end in range(cached + PREFILL_CHUNK, len(self.ids), PREFILL_CHUNK):
            if self.lane.cancelled():
                return
            begin_s = perf_counter()
            model.forward([Request(self.ids[:end], 0, cache)])
            model.synchronize()
            spent_s += perf_counter() - begin_s
            yield Prefilling(end, self.prompt_len)
        if self.lane.cancelled():
            return
        begin_s = perf_counter()
        [logits] = model.forward([Request(self.ids, 1, cache)])
        probs = probabilities(logits, self.ids, self.prompt_len, self.sampling)
        token_id = self.rng.draw(probs[0], len(self.ids), Purpose.TARGET)
        [token] = self._emit([token_id], [Source.PLAIN])
        spent_s += perf_counter() - begin_s
        if self.params.detail != Detail.OFF:
            token = replace(token, raw_prob=model.raw_probs(logits, [0], [token_id])[0])
        prefilled = Prefilled(self.prompt_len, cached, token, self.seed, spent_s)
        if when_read is not None:
            when_read(prefilled)
        yield prefilled

    def _emit_round(self, index: int) -> Round:
        """One draft - verify - emit step."""
        model = self.lane.model
        pending = self.draft(index)
        drafted_s = perf_counter()
        [logits] = model.forward([pending.request])
        model.synchronize()
        verified_s = perf_counter()
        return self.settle(pending, logits, verified_s - drafted_s, verified_s)

    def draft(self, index: int) -> Pending:
        """The first half of round `index` (from 1), up to the target's pass: K is planned and the drafts are there."""
        begin_s = perf_counter() - self.owed_s
        todo, self.owed_s = self._plan(index), 0.0
        if todo.kind is RoundKind.PROBE:
            # A probe is what plain decoding would be, which asks no drafter: the next round pays for having asked.
            now_s = perf_counter()
            begin_s, self.owed_s = now_s, now_s - begin_s
        proposal = self._propose(todo)
        history = self.ids + list(proposal.token_ids)
        request = Request(history, len(proposal.token_ids) + 1, self.lane.cache)
        return Pending(index, todo, proposal, request, perf_counter() - begin_s)

    def settle(self, pending: Pending, logits: Tensor, verify_s: float, since_s: float) -> Round:
        """The second half: tests the drafts by the logits of `pending.request`, and emits.

        verify_s: seconds of the target's pass. since_s: the clock when this half began.
        """
        model, params, position = self.lane.model, self.params, len(self.ids)
        todo, proposal, history = pending.plan, pending.proposal, pending.request.ids
        k = len(proposal.token_ids)
        target_probs = LazyRows(logits, history, self.prompt_len, self.sampling)
        verdict = verify(proposal, target_probs, position, self.rng)
        sampled_s = perf_counter()
        known = detail.explain(
            params.detail, proposal, verdict, logits, target_probs, model.raw_probs, self._describe,
            greedy=self.sampling.temperature == 0.0,
        )  # fmt: skip
        detail_s = perf_counter() - sampled_s
        decisions = self._decisions(proposal, verdict, known.details)
        tokens = self._emit(
            [*proposal.token_ids[: verdict.num_accepted], verdict.next_id],
            [Source.DRAFT] * verdict.num_accepted + [_last_source(k, verdict.num_accepted)],
            known.raw_probs,
        )
        end_s = perf_counter()
        round_ = Round(
            index=pending.index,
            kind=todo.kind,
            rule=params.rule,
            drafter=todo.option.drafter if todo.option else "none",
            k_requested=todo.k,
            k_reason=todo.reason,
            num_drafted=k,
            context_len=position,
            decisions=decisions,
            tokens=tokens,
            draft_s=pending.draft_s,
            verify_s=verify_s,
            sample_s=sampled_s - since_s,
            total_s=pending.draft_s + verify_s + end_s - since_s - detail_s,
            detail_s=detail_s,
            # A stop id among the accepted drafts: the verdict's last token was never emitted, so nothing is explained.
            recovery=known.recovery if len(tokens) == verdict.num_accepted + 1 else None,
            predicted_speedup=todo.predicted_speedup,
        )
        if params.num_speculative_tokens != 0:
            self.controller.observe(round_, todo, proposal.confidences)
            self.owed_s += perf_counter() - end_s
        return cut_round(round_, len(self.ids) - self.prompt_len)

    def _plan(self, index: int) -> Plan:
        drafter, length = self.lane.drafter, len(self.ids)
        options = drafter.options(self.ids) if drafter is not None and self.params.num_speculative_tokens != 0 else ()
        drafter_left = None if drafter is None or drafter.context_len is None else drafter.context_len - length
        budget_left = self.params.max_new_tokens - (length - self.prompt_len)
        return self.controller.plan(index, options, budget_left, self.lane.model.context_len - length, drafter_left)

    def _propose(self, todo: Plan) -> Proposal:
        drafter, ids = self.lane.drafter, self.ids
        if drafter is None or todo.option is None:
            return Proposal()
        features = self.lane.cache.features(0, len(ids) - 1) if drafter.feature_layers else None
        rng = replace(self.rng, begin=len(ids))
        return drafter.propose(
            todo.option, ids, self.prompt_len, features, todo.k, self.sampling, rng, todo.should_continue
        )

    # -- from ids to what is shown -----------------------------------------------------------------------------------

    def _emit(
        self, token_ids: list[int], sources: list[Source], raw_probs: Sequence[float | None] = ()
    ) -> tuple[Token, ...]:
        """Append tokens to the reply, up to and with a stop id. At the reply's end an unfinished character is closed."""
        tokenizer = self.lane.tokenizer
        tokens: list[Token] = []
        for token_id, source, raw_prob in zip(token_ids, sources, raw_probs or [None] * len(token_ids), strict=True):
            position = len(self.ids) - self.prompt_len
            text = self.detokeniser.push(token_id)
            special = tokenizer.special.get(token_id, "")
            tokens.append(Token(token_id, text, position, source, special, raw_prob))
            self.ids.append(token_id)
            if token_id in tokenizer.stop_ids:
                break
        if self.end() not in (None, FinishReason.CANCELLED):
            _add_text(tokens, self.detokeniser.flush())
        self.text.extend(token.text for token in tokens)
        return tuple(tokens)

    def _decisions(
        self, proposal: Proposal, verdict: Verdict, details: Sequence[TokenDetail]
    ) -> tuple[TokenDecision, ...]:
        """The fate of every draft, each described as it would read behind the drafts before it. details: of those tested."""
        reader: Detokenizer = self.detokeniser.copy()
        decisions: list[TokenDecision] = []
        first = len(self.ids) - self.prompt_len
        for i, token_id in enumerate(proposal.token_ids):
            text, special = self.lane.tokenizer.describe(token_id, reader)
            reader.push(token_id)
            if i < len(verdict.tests):
                test = verdict.tests[i]
                outcome = Outcome.ACCEPTED if test.accepted else Outcome.REJECTED
                numbers = (test.draft_prob, test.target_prob, test.accept_prob, test.uniform)
                known = details[i] if details else None
                decisions.append(TokenDecision(token_id, text, first + i, outcome, *numbers, special, known))
            else:
                prob = proposal.prob(i)
                decisions.append(TokenDecision(token_id, text, first + i, Outcome.DISCARDED, prob, special=special))
        return tuple(decisions)

    def _describe(self, token_id: int) -> str:
        """A token as an entry of a list."""
        text, special = self.lane.tokenizer.describe(token_id, None)
        return text or special


def _last_source(num_drafted: int, num_accepted: int) -> Source:
    """What the token that ends a round is called."""
    if num_drafted == 0:
        return Source.PLAIN
    return Source.BONUS if num_accepted == num_drafted else Source.RECOVERED


def _add_text(tokens: list[Token], text: str) -> None:
    """Give text to the last token that can carry some: not a control token, if there is another."""
    if text and tokens:
        i = max((i for i, token in enumerate(tokens) if not token.special), default=len(tokens) - 1)
        tokens[i] = replace(tokens[i], text=tokens[i].text + text)
