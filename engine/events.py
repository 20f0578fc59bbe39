"""What comes out: plain, frozen values. No tensor crosses this border.

One reply is any number of `Prefilling`, `Prefilled`, any number of `Round`, `Finished`. All times are seconds of
compute (`_s`), taken around compute only. Positions count reply tokens from 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.config import Rule


class Source(StrEnum):
    """Where an emitted token came from."""

    DRAFT = "draft"  # proposed by the drafter and accepted
    RECOVERED = "recovered"  # the target's own token in place of a rejected draft
    BONUS = "bonus"  # the target's extra token after a draft block accepted whole
    PLAIN = "plain"  # no draft was involved


class Outcome(StrEnum):
    """What became of one drafted token. DISCARDED ones were never tested and never count in alpha."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    DISCARDED = "discarded"  # behind a rejection, or behind a stop that cut the block


class RoundKind(StrEnum):
    SPECULATIVE = "speculative"  # the drafter was asked, even if it had nothing to offer
    PLAIN = "plain"  # K = 0 was asked for, or chosen
    PROBE = "probe"  # K = 0 in the midst of speculation, to measure the live baseline


class KReason(StrEnum):
    """Why the round had the K that it had."""

    FIXED = "fixed"  # as asked for (the drafter may still offer fewer)
    AUTO = "auto"  # chosen: the most tokens per second, as far as measured
    OFF = "off"  # 0 by choice: speculation does not pay now
    EXPLORE = "explore"  # a look whether things have changed
    NO_OFFER = "no_offer"  # the drafter has nothing to propose
    PROBE = "probe"
    BUDGET = "budget"  # cut to what max_new_tokens leaves
    CONTEXT = "context"  # cut to what the target's context leaves
    DRAFTER_CONTEXT = "drafter_context"  # cut to what the drafter's shorter context leaves


class FinishReason(StrEnum):
    STOP = "stop"  # the model ended its turn (a stop id)
    STOP_STRING = "stop_string"
    LENGTH = "length"  # max_new_tokens reached
    CONTEXT = "context"  # the model's context is full
    CANCELLED = "cancelled"
    ERROR = "error"  # `Finished.message` says what happened


@dataclass(frozen=True, slots=True)
class Token:
    """One emitted token. `text` is what it added to the reply: the texts joined are the reply.

    A character split over several tokens belongs to the token that completed it; the earlier ones have text "".
    `special` is the name of a control token such as "<|im_end|>" (its text is ""), else "". raw_prob: with detail, the
    target's probability of it at temperature 1 without filters.
    """

    id: int
    text: str
    position: int
    source: Source
    special: str = ""
    raw_prob: float | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """An entry of a top list: probability in [0, 1]."""

    id: int
    text: str
    prob: float


@dataclass(frozen=True, slots=True)
class TokenDetail:
    """With `DecodingParams.detail`: probabilities at temperature 1 without filters (raw_draft_prob None for a drafter
    that looks up), and under `Detail.FULL` the top 5 of both sides after temperature and filters (what the rule really
    compared); at temperature 0, where these are 1 and 0 only, before them."""

    raw_draft_prob: float | None
    raw_target_prob: float
    draft_top: tuple[Choice, ...] = ()
    target_top: tuple[Choice, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenDecision:
    """One drafted token and its fate.

    draft_prob, target_prob: after temperature and filters. accept_prob: min(1, target/draft) under rejection (drawn
    number `uniform` in [0, 1) decides), 0 or 1 under shared noise (uniform None). DISCARDED tokens have None in
    target_prob, accept_prob and uniform. `text` is how the token would read at its place; `special` also names
    fragments of a character ("0xE4"), which have no text of their own.
    """

    id: int
    text: str
    position: int
    outcome: Outcome
    draft_prob: float
    target_prob: float | None = None
    accept_prob: float | None = None
    uniform: float | None = None
    special: str = ""
    detail: TokenDetail | None = None


@dataclass(frozen=True, slots=True)
class RecoveryDetail:
    """Under `Detail.FULL`: what the token that ended the round was drawn from (residual, or the target's own).

    raw_top: the target's likeliest tokens there at temperature 1 without filters; the logarithm of the ratio of two is
    the distance of their logits.
    """

    top: tuple[Choice, ...]
    uniform: float | None
    raw_top: tuple[Choice, ...] = ()


@dataclass(frozen=True, slots=True)
class Prefilling:
    """A long prompt is being read: `done` of `prompt_tokens` tokens so far. Short prompts send none."""

    done: int
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Prefilled:
    """The prompt has been read and the first token drawn (source PLAIN). ttft_s is compute time; queued_s the wait.

    token is None when a stop string cut the reply at its very first character.
    """

    prompt_tokens: int
    cached_tokens: int
    token: Token | None
    seed: int
    ttft_s: float
    queued_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Round:
    """One draft - verify - emit step. total_s = draft_s + verify_s + sample_s + the rest (detail_s apart).

    drafter: who proposed ("ngram", "head", "draft_model"), "none" where nobody did. predicted_speedup: with K left to
    the controller, what it expected of the best K above 0 against plain decoding, also where it chose 0; else None.
    """

    index: int
    kind: RoundKind
    rule: Rule
    drafter: str
    k_requested: int
    k_reason: KReason
    num_drafted: int
    context_len: int
    decisions: tuple[TokenDecision, ...]
    tokens: tuple[Token, ...]
    draft_s: float
    verify_s: float
    sample_s: float
    total_s: float
    detail_s: float = 0.0
    recovery: RecoveryDetail | None = None
    predicted_speedup: float | None = None

    @property
    def text(self) -> str:
        """What this round added to the reply."""
        return "".join(token.text for token in self.tokens)


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of every reply, whatever happened. `text` and `token_ids` are the whole reply."""

    reason: FinishReason
    text: str
    token_ids: tuple[int, ...]
    message: str = ""


Event = Prefilling | Prefilled | Round | Finished
