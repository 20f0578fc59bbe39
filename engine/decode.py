"""The loop. Plain decoding is this same loop with K = 0; there is no other.

prefill -> first token -> rounds of: plan K, propose, one forward of k + 1 rows, probabilities, verify, cut, emit.
`Reply.round` is one of them: it stands still where it needs the target's pass, so that whoever drives it may run one
pass for many (`play_rounds`). Clocks sit around compute only. Between events too the generator stands still, and its
caller may run another request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter

from engine.config import DecodingParams, Detail
from engine.control.controller import Controller, Plan
from engine.control.latency import Profile
from engine.drafters.protocol import DraftContext, Drafter, Proposal
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
from engine.logprobs import Explainer
from engine.networks.kv_cache import KVCache, common_prefix
from engine.networks.model import PREFILL_CHUNK, Model, Request
from engine.rng import KeyedRng, Purpose
from engine.rounds import ForwardResult, RoundClock, play_rounds
from engine.sampling import LazyRows, probabilities
from engine.stopping import cut_at_stop_strings, cut_round
from engine.text.detokenizer import Detokenizer
from engine.text.tokenizer import Tokenizer
from engine.verify import Verdict, verify

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReplyContext:
    """What one reply works with. `cache` is its alone while it runs, and keeps the drafter's feature layers; drafter
    None: plain decoding only. profile: what the engine measured when it started."""

    model: Model
    cache: KVCache
    tokenizer: Tokenizer
    drafter: Drafter | None
    cancelled: Callable[[], bool]
    profile: Profile = field(default_factory=Profile)


def generate(
    ids: Sequence[int],
    params: DecodingParams,
    context: ReplyContext,
    prefilled: Prefilled | None = None,
    on_prefilled: Callable[[Prefilled], None] | None = None,
) -> Iterator[Event]:
    """The events of one reply to the prompt `ids`; always ends with `Finished`.

    on_prefilled: called with the prompt's end before a stop string may hold that event back, or cut it. prefilled: the
    same event of another reply of the same seed and settings, which has read the prompt into the cache of which this
    context has a copy: nothing is read or drawn again. params.sampling.seed must be set. Raises ContextFull at once
    (before the first event) when the prompt leaves no room.
    """
    if len(ids) >= context.model.context_len:
        raise ContextFull(len(ids), context.model.context_len)
    stops = (*params.stop, *context.tokenizer.stop_strings)
    reply = Reply(ids, params, context)
    prefill_events = reply.prefill(on_prefilled) if prefilled is None else reply.resume(prefilled)
    return cut_at_stop_strings(reply.events(prefill_events), stops)


class Reply:
    """The state of one reply in the making: ids so far, detokeniser, what was emitted.

    `events` plays it alone. Several can share the target's passes: after `prefill` of each, `play_rounds` for all whose
    `end` is None.
    """

    def __init__(self, prompt: Sequence[int], params: DecodingParams, context: ReplyContext) -> None:
        if context.drafter is None or params.drafter == "none":
            params = replace(params, num_speculative_tokens=0)
        if params.sampling.seed is None:
            raise ValueError("the caller picks the seed")
        self.params, self.sampling, self.context = params, params.sampling, context
        self.seed: int = params.sampling.seed
        self.rng = KeyedRng(self.seed, params.rule, native=context.model.native_sampler)
        self.prompt_len = len(prompt)
        self.ids = list(prompt)
        self.detokenizer = context.tokenizer.detokenizer()
        self.text: list[str] = []
        self.controller = Controller(params, context.profile)
        describe = partial(_describe, context.tokenizer)
        self.explainer = Explainer(params.detail, context.model.raw_probs, describe, self.sampling.greedy)
        self._overhead_s = 0.0  # seconds of bookkeeping that the next round has to pay for

    def events(self, prefill_events: Iterator[Event]) -> Iterator[Event]:
        """prefill_events: those up to the first token, by `prefill` or `resume`."""
        try:
            yield from prefill_events
            index = 1
            while (reason := self.end()) is None:
                [round_] = play_rounds(self.context.model, [self.round(index)])
                yield round_
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
        if replied and self.ids[-1] in self.context.tokenizer.stop_ids:
            return FinishReason.STOP
        if self.context.cancelled():
            return FinishReason.CANCELLED
        if self.params.max_new_tokens <= replied:
            return FinishReason.LENGTH
        if len(self.ids) >= self.context.model.context_len:
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

    def prefill(self, on_prefilled: Callable[[Prefilled], None] | None = None) -> Iterator[Event]:
        """Reads the prompt in pieces, so that others get their turn and a cancel is seen, then
        draws the first token."""
        model, cache = self.context.model, self.context.cache
        cached = min(common_prefix(cache.ids, self.ids), len(self.ids) - 1)
        elapsed_s = 0.0
        for end in range(cached + PREFILL_CHUNK, len(self.ids), PREFILL_CHUNK):
            if self.context.cancelled():
                return
            begin_s = perf_counter()
            model.forward([Request(self.ids[:end], 0, cache)])
            model.synchronize()
            elapsed_s += perf_counter() - begin_s
            yield Prefilling(end, self.prompt_len)
        if self.context.cancelled():
            return
        begin_s = perf_counter()
        [logits] = model.forward([Request(self.ids, 1, cache)])
        probs = probabilities(logits, self.ids, self.prompt_len, self.sampling, self.rng.native)
        token_id = self.rng.draw(probs[0], len(self.ids), Purpose.TARGET)
        [token] = self._emit([token_id], [Source.PLAIN])
        elapsed_s += perf_counter() - begin_s
        if self.params.detail != Detail.OFF:
            token = replace(token, raw_prob=model.raw_probs(logits, [0], [token_id])[0])
        prefilled = Prefilled(self.prompt_len, cached, token, self.seed, elapsed_s)
        if on_prefilled is not None:
            on_prefilled(prefilled)
        yield prefilled

    def round(self, index: int) -> Generator[Request, ForwardResult, Round]:
        """Round `index`, from 1: plan K, draft, verify in one pass of the target, emit (Leviathan et al., algorithm 1).

        Yields the request of that pass; whoever drives sends its logits and seconds back (see `play_rounds`).
        """
        clock, position = RoundClock(self._overhead_s), len(self.ids)
        plan = self._plan(index)
        # A probe is what plain decoding would be, which asks no drafter: the next round pays for having asked.
        self._overhead_s = clock.restart() if plan.kind is RoundKind.PROBE else 0.0
        proposal = self._propose(plan)
        ids, k = [*self.ids, *proposal.token_ids], len(proposal.token_ids)
        clock.lap("draft")
        forward = yield Request(ids, last=k + 1, cache=self.context.cache)
        clock.resume(verify_s=forward.seconds)  # other requests may have had their turn meanwhile
        target_probs = LazyRows(forward.logits, ids, self.prompt_len, self.sampling, self.rng.native)
        verdict = verify(proposal, target_probs, position, self.rng)
        clock.lap("sample")
        explanation = self.explainer.explain(proposal, verdict, forward.logits, target_probs)
        clock.lap("detail")
        decisions = self._decisions(proposal, verdict, explanation.details)
        tokens = self._emit(*_tokens_and_sources(proposal, verdict), explanation.raw_probs)
        clock.lap("rest")
        round_ = Round(
            index=index,
            kind=plan.kind,
            rule=self.params.rule,
            drafter=plan.option.drafter if plan.option else "none",
            k_requested=plan.k,
            k_reason=plan.reason,
            num_drafted=k,
            context_len=position,
            decisions=decisions,
            tokens=tokens,
            # A stop id among the accepted drafts: the verdict's last token was never emitted, so nothing is explained.
            recovery=explanation.recovery if len(tokens) == verdict.num_accepted + 1 else None,
            predicted_speedup=plan.predicted_speedup,
            **clock.seconds(),
        )
        if self.params.num_speculative_tokens != 0:
            self.controller.observe(round_, plan, proposal.confidences)
            self._overhead_s += clock.lap("observe")
        return cut_round(round_, len(self.ids) - self.prompt_len)

    def _plan(self, index: int) -> Plan:
        drafter, length = self.context.drafter, len(self.ids)
        options = drafter.options(self.ids) if drafter is not None and self.params.num_speculative_tokens != 0 else ()
        drafter_left = None if drafter is None or drafter.context_len is None else drafter.context_len - length
        budget_left = self.params.max_new_tokens - (length - self.prompt_len)
        return self.controller.plan(index, options, budget_left, self.context.model.context_len - length, drafter_left)

    def _propose(self, plan: Plan) -> Proposal:
        drafter, ids = self.context.drafter, self.ids
        if drafter is None or plan.option is None:
            return Proposal()
        features = self.context.cache.features(0, len(ids) - 1) if drafter.feature_layers else None
        rng = replace(self.rng, begin=len(ids))
        context = DraftContext(ids, self.prompt_len, features, self.sampling, rng)
        return drafter.propose(plan.option, context, plan.k, plan.should_continue)

    # -- from ids to what is shown -----------------------------------------------------------------------------------

    def _emit(
        self, token_ids: list[int], sources: list[Source], raw_probs: Sequence[float | None] = ()
    ) -> tuple[Token, ...]:
        """Append tokens to the reply, up to and with a stop id. At the reply's end an unfinished
        character is closed."""
        tokenizer = self.context.tokenizer
        tokens: list[Token] = []
        for token_id, source, raw_prob in zip(token_ids, sources, raw_probs or [None] * len(token_ids), strict=True):
            position = len(self.ids) - self.prompt_len
            text = self.detokenizer.push(token_id)
            special = tokenizer.special.get(token_id, "")
            tokens.append(Token(token_id, text, position, source, special, raw_prob))
            self.ids.append(token_id)
            if token_id in tokenizer.stop_ids:
                break
        if self.end() not in (None, FinishReason.CANCELLED):
            _add_text(tokens, self.detokenizer.flush())
        self.text.extend(token.text for token in tokens)
        return tuple(tokens)

    def _decisions(
        self, proposal: Proposal, verdict: Verdict, details: Sequence[TokenDetail]
    ) -> tuple[TokenDecision, ...]:
        """The fate of every draft, each described as it would read behind the drafts before it.
        details: of those tested."""
        reader: Detokenizer = self.detokenizer.copy()
        decisions: list[TokenDecision] = []
        first = len(self.ids) - self.prompt_len
        for i, token_id in enumerate(proposal.token_ids):
            text, special = self.context.tokenizer.describe(token_id, reader)
            reader.push(token_id)
            if i < len(verdict.tests):
                test = verdict.tests[i]
                outcome = Outcome.ACCEPTED if test.accepted else Outcome.REJECTED
                numbers = (test.draft_prob, test.target_prob, test.accept_prob, test.uniform)
                detail = details[i] if details else None
                decisions.append(TokenDecision(token_id, text, first + i, outcome, *numbers, special, detail))
            else:
                prob = proposal.prob(i)
                decisions.append(TokenDecision(token_id, text, first + i, Outcome.DISCARDED, prob, special=special))
        return tuple(decisions)


def _describe(tokenizer: Tokenizer, token_id: int) -> str:
    """A token as an entry of a list."""
    text, special = tokenizer.describe(token_id, None)
    return text or special


def _tokens_and_sources(proposal: Proposal, verdict: Verdict) -> tuple[list[int], list[Source]]:
    """The tokens that a verdict brings, and what each is called: the accepted drafts, and the one
    that ends the round."""
    k, n = len(proposal.token_ids), verdict.num_accepted
    last = Source.PLAIN if k == 0 else Source.BONUS if n == k else Source.RECOVERED
    return [*proposal.token_ids[:n], verdict.next_id], [Source.DRAFT] * n + [last]


def _add_text(tokens: list[Token], text: str) -> None:
    """Give text to the last token that can carry some: not a control token, if there is another."""
    if text and tokens:
        i = max((i for i, token in enumerate(tokens) if not token.special), default=len(tokens) - 1)
        tokens[i] = replace(tokens[i], text=tokens[i].text + text)
