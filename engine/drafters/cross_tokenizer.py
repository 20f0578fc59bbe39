"""A drafter model whose tokeniser is not the target's: it drafts text, and the text is encoded anew in
the target's tokens.

Universal assisted generation; string-level exact match of Timor et al., "Accelerating LLM inference with lossless
speculative decoding algorithms for heterogeneous vocabularies", arXiv:2502.05202, algorithm 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from engine.config import Message
from engine.drafters.protocol import DraftContext, DraftOption, Proposal, ShouldContinue, always
from engine.errors import InvalidParams
from engine.networks.kv_cache import KVCache, common_prefix
from engine.networks.model import Model, Request
from engine.text.detokenizer import LONGEST_CHARACTER
from engine.text.tokenizer import Tokenizer

ANCHORS = ("\n", ".", "|", "a")
"""What text is put behind to be encoded as what follows, the first with which it does not grow together."""

DRAFTER_TOKENS_PER_DRAFT = 4
"""The drafter's own tokens that one draft may take at most: a character of three bytes, say, and a word to spare."""

SETTLE_CHARS, UNSETTLED_CHARS = 512, 128
"""Reply text of so many characters is encoded once and for all but for its last so many, which new text may change."""


class CrossTokenizerDrafter:
    """Drafts greedily in its own tokens, over its own cache; proposes what the target's tokeniser makes of that text.

    The proposals are point masses, as those of a look-up. They leave the target's distribution as it is under both
    rules, because they depend on nothing but the text so far: no number that is drawn for a token, nor for any
    later one, has gone into a draft of it. For a draft d the rejection rule accepts with the target's p(d) and else
    draws from p without d, which together is p; under shared noise d stands only where the target draws it by
    itself. So neither the re-encoding, nor where a draft stops, nor how well the two vocabularies fit can do more
    than cost acceptance.

    prompt_ids: the conversation in the drafter's own chat format and tokens, None for the text of the target's prompt.
    Where the drafter ends its turn it proposes that the target does. It keeps silent while the reply ends inside a
    character.
    """

    name = "draft_model"
    feature_layers: tuple[int, ...] = ()

    def __init__(
        self,
        model: Model,
        drafter_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        cache: KVCache,
        prompt_ids: Sequence[int] | None,
    ) -> None:
        self._model, self._cache = model, cache
        self._drafter_tokenizer, self._target_tokenizer = drafter_tokenizer, target_tokenizer
        self._prompt_ids = None if prompt_ids is None else list(prompt_ids)
        self._ending = ending(target_tokenizer)
        self._reply = ReplyText(target_tokenizer, drafter_tokenizer)
        self._broken = False  # its model has given what is no number
        self.context_len: int | None = None
        """In the target's tokens, and so not known before the drafter's own context is full."""

    def options(self, ids: Sequence[int]) -> tuple[DraftOption, ...]:
        if self._broken or ends_inside_character(self._target_tokenizer, ids):
            return ()
        return (DraftOption(self.name, self.name),)

    def propose(
        self, option: DraftOption, context: DraftContext, k: int, should_continue: ShouldContinue = always
    ) -> Proposal:
        """Fewer than k where the drafter has nothing more to say, at the end of its context, and where its
        text makes fewer."""
        ids, prompt_len = context.ids, context.prompt_len
        if self._prompt_ids is None:
            self._prompt_ids = _encode_as_text(ids[:prompt_len], self._target_tokenizer, self._drafter_tokenizer)
        drafter_ids = self._prompt_ids + self._reply.encode(ids[prompt_len:]) or [0]  # control tokens alone say nothing
        room = self._model.context_len - len(drafter_ids)
        if room <= 0:
            self.context_len = len(ids)
            return Proposal()
        if max(drafter_ids) >= self._model.vocab_size:  # a name in the tokeniser that the model has no row for
            self._broken = True
            return Proposal()
        drafts = self._draft(drafter_ids, k, min(room, DRAFTER_TOKENS_PER_DRAFT * k))
        # Nor may a draft be one that the target's tokeniser has a name for, but the target no row.
        num_valid = next(
            (i for i, token_id in enumerate(drafts) if token_id >= self._target_tokenizer.vocab_size), len(drafts)
        )
        return Proposal(tuple(drafts[: min(k, num_valid)]))

    def _draft(self, drafter_ids: Sequence[int], k: int, room: int) -> list[int]:
        """About k of the target's tokens, from at most `room` of the drafter's own."""
        ids, draft_text, drafts = list(drafter_ids), "", list[int]()
        detokenizer = self._drafter_tokenizer.detokenizer()
        for token_id in ids[-2 * LONGEST_CHARACTER :]:  # the drafts stand behind something
            detokenizer.push(token_id)
        while len(drafts) < k and len(ids) < len(drafter_ids) + room:
            [logits] = self._model.forward([Request(ids, 1, self._cache)])
            row = logits[0].numpy()
            token_id = int(row.argmax())
            if not math.isfinite(row[token_id]):
                self._broken = True
                break
            if token_id in self._drafter_tokenizer.stop_ids:
                end_text, stop_ids = self._ending
                return (
                    encode_continuation(self._target_tokenizer, draft_text + end_text) if draft_text or end_text else []
                ) + stop_ids
            if token_id in self._drafter_tokenizer.special:
                break  # no text, so nothing that the target could say
            ids.append(token_id)
            if piece := detokenizer.push(token_id):
                draft_text += piece
                drafts = encode_continuation(self._target_tokenizer, draft_text)
        return drafts


class ReplyText:
    """A reply in one tokeniser's ids, read in another's. The ids given to `encode` only ever grow, or begin anew.

    Encoding text in two pieces can give other ids than at once, never other text; pieces meet before a space if they
    can.
    """

    def __init__(self, from_tokenizer: Tokenizer, to_tokenizer: Tokenizer) -> None:
        self._from_tokenizer, self._to_tokenizer = from_tokenizer, to_tokenizer
        self._reset()

    def _reset(self) -> None:
        self._ids: list[int] = []
        self._detokenizer = self._from_tokenizer.detokenizer()
        self._settled_ids: list[int] = []  # ids of the other tokeniser
        self._unsettled_text = ""  # the text behind them

    def encode(self, ids: Sequence[int]) -> list[int]:
        """All of the text that is complete, as what follows a prompt."""
        if common_prefix(self._ids, ids) < len(self._ids):
            self._reset()
        for token_id in ids[len(self._ids) :]:
            self._unsettled_text += self._detokenizer.push(token_id)
            if len(self._unsettled_text) > SETTLE_CHARS:
                end = len(self._unsettled_text) - UNSETTLED_CHARS
                space = self._unsettled_text.rfind(" ", 1, end)
                end = space if space > 0 else end
                self._settled_ids += encode_continuation(self._to_tokenizer, self._unsettled_text[:end])
                self._unsettled_text = self._unsettled_text[end:]
        self._ids = list(ids)
        return self._settled_ids + (
            encode_continuation(self._to_tokenizer, self._unsettled_text) if self._unsettled_text else []
        )


def encode_continuation(tokenizer: Tokenizer, text: str) -> list[int]:
    """Ids of text in the midst of a text, where many tokenisers would put a space before it if it stood alone."""
    for anchor in ANCHORS:
        anchor_ids, anchored_ids = tokenizer.encode(anchor), tokenizer.encode(anchor + text)
        if anchored_ids[: len(anchor_ids)] == anchor_ids:
            return anchored_ids[len(anchor_ids) :]
    return tokenizer.encode(text)


def ends_inside_character(tokenizer: Tokenizer, ids: Sequence[int]) -> bool:
    """Whether the last token leaves a character open. UTF-8 tells by the last few bytes alone."""
    reader = tokenizer.detokenizer()
    for token_id in ids[-LONGEST_CHARACTER:]:
        reader.push(token_id)
    return reader.flush() != ""


def ending(tokenizer: Tokenizer) -> tuple[str, list[int]]:
    """How a turn of this model ends: text and ids. The stop id is the one that its chat template ends a turn with."""
    if tokenizer.stop_strings:
        return tokenizer.stop_strings[0], []
    try:
        turns = tokenizer.encode_chat([Message("user", "a"), Message("assistant", "b"), Message("user", "c")])
    except InvalidParams:
        turns = []
    stops = [token_id for token_id in turns if token_id in tokenizer.stop_ids] or sorted(tokenizer.stop_ids)
    return "", stops[-1:]


def encode_prompt(tokenizer: Tokenizer, messages: Sequence[Message]) -> list[int] | None:
    """The conversation as the drafter reads it; None where there are no messages, or its chat template refuses them:
    what the target answers to is no reason for the reply to fail."""
    try:
        return tokenizer.encode_chat(messages)
    except InvalidParams:
        return None


def _encode_as_text(prompt: Sequence[int], target: Tokenizer, drafter_tokenizer: Tokenizer) -> list[int]:
    """The prompt in the drafter's own tokens where nobody has its messages: its text, as what a user
    says if that can be."""
    text = target.decode(prompt)
    return encode_prompt(drafter_tokenizer, [Message("user", text)]) or drafter_tokenizer.encode(f"{text}\n")
