"""A drafter of another tokeniser: the target's text stays what it is, and what the drafter knows arrives."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import tokenizers
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend

from engine.config import DecodingParams, Message, Rule, SamplingParams
from engine.drafters.cross_tokenizer import (
    SETTLE_CHARS,
    CrossTokenizerDrafter,
    ReplyText,
    encode_continuation,
    encode_prompt,
    ending,
    ends_inside_character,
)
from engine.drafters.protocol import DraftContext, DraftOption, Proposal, always
from engine.events import Event, FinishReason, KReason, Outcome, Round
from engine.loading import load as loading
from engine.loading.default_model import GEMMA, fetch_model
from engine.networks.kv_cache import KVCache
from engine.networks.model import Model
from engine.rng import KeyedRng, Purpose
from engine.text.tokenizer import Tokenizer, build_tokenizer
from tests.engine import tokenisers
from tests.engine.test_lossless import LENGTH, VOCAB, Tree, counts_of
from tests.engine.test_verify import FALSE_FAIL, exact_law, p_value, plain_law, tree
from tests.engine.tokenisers import CHATML, renderer
from tests.fakes import FakeNetwork, LogitsOf, finished, hashed_logits, run

BYTE_LEVEL = build_tokenizer(tokenisers.byte_level(), renderer(CHATML), [2])
SPACES = {
    scheme: build_tokenizer(tokenisers.byte_fallback(scheme), renderer("{% for m in messages %}<s>{{ m.content "
                                                                       "}}</s>{% endfor %}"), [2], 1)
    for scheme in (None, "first", "always", "never")
}  # fmt: skip
ALL = {"byte-level": BYTE_LEVEL, **{f"space mark, {scheme}": made for scheme, made in SPACES.items()}}
PAIRS = [("byte-level", "space mark, None"), ("byte-level", "space mark, first"), ("space mark, first", "byte-level"),
         ("space mark, None", "byte-level"), ("space mark, never", "space mark, always")]  # fmt: skip
"""(target's, drafter's)."""

SCRIPT = "the quick 你好，世界。🙂 👩‍👩‍👧 \n    return a + b; hello 天气 很好 fox! 𠮷"
PROMPT = Message("user", "hello")


class Spoken:
    """A language that says one text, in the longest tokens of its tokeniser, whatever the prompt; then it ends its
    turn.

    amount: how strong other opinions are. Where the reply is not the beginning of the text it has only those.
    """

    def __init__(self, tokenizer: Tokenizer, script: str, prompt_len: int, amount: float = 0.0) -> None:
        assert tokenizer._table is not None
        self._pieces, self._script, self._prompt_len = tokenizer._table.pieces, script.encode(), prompt_len
        [self._stop] = tokenizer.stop_ids
        self._others, self._amount = hashed_logits(tokenizer.vocab_size, seed=7), amount

    def __call__(self, ids: tuple[int, ...]) -> np.ndarray:
        row = self._amount * self._others(ids)
        said = b"".join(self._pieces[i] for i in ids[self._prompt_len :])
        rest = self._script[len(said) :]
        if not self._script.startswith(said.removeprefix(b" ")):
            return row
        fitting = [i for i, piece in enumerate(self._pieces) if piece and rest.startswith(piece)]
        row[max(fitting, key=lambda i: (len(self._pieces[i]), i), default=self._stop)] += 20.0
        return row


def model(tokenizer: Tokenizer, language: LogitsOf, context_len: int = 4096) -> Model:
    return Model(FakeNetwork(tokenizer.vocab_size, language), context_len)


def drafter(own: Tokenizer, target: Tokenizer, language: LogitsOf, context_len: int = 4096) -> CrossTokenizerDrafter:
    return CrossTokenizerDrafter(model(own, language, context_len), own, target, KVCache(), own.encode_chat([PROMPT]))


def rounds_of(events: list[Event]) -> list[Round]:
    return [event for event in events if isinstance(event, Round)]


def primed(tokenizer: Tokenizer, ids: list[int]) -> str:
    """The text of ids in the midst of a text."""
    reader = tokenizer.detokenizer()
    for token_id in tokenizer.encode("a"):
        reader.push(token_id)
    return "".join([*map(reader.push, ids), reader.flush()])


def context(ids: list[int], prompt_len: int) -> DraftContext:
    return DraftContext(ids, prompt_len, None, SamplingParams(), KeyedRng(0, Rule.REJECTION))


ANY = DraftOption("", "")
TEXT = st.text(st.characters(exclude_characters="\u2581", exclude_categories=["Cs"]), max_size=30)

# -- text and ids


@settings(max_examples=40)
@given(TEXT)
@example("\nhe")
@example(" he")
@example("|a")
@example("aaa")
def test_what_goes_on_has_just_its_own_text(text: str) -> None:
    for name, tokenizer in ALL.items():
        assert primed(tokenizer, encode_continuation(tokenizer, text)) == text, name


@settings(max_examples=30)
@given(st.sampled_from(PAIRS), st.data())
def test_a_reply_is_read_in_other_tokens_as_the_same_text(pair: tuple[str, str], data: st.DataObject) -> None:
    """However it arrives, of whatever length; but for what is not complete yet."""
    target, own = (ALL[name] for name in pair)
    words = st.sampled_from([*SCRIPT.split(" "), "\n", "      x", "好" * 300, "a" * 700, "<s>", "<|im_end|>"])
    ids = encode_continuation(target, " ".join(data.draw(st.lists(words, max_size=12))))
    reading = ReplyText(target, own)
    for cut in [*sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=5))), len(ids)]:
        assert primed(own, reading.encode(ids[:cut])) == "".join(map(target.detokenizer().push, ids[:cut]))
    assert reading.encode(ids) == reading.encode(ids)


def test_reading_on_gives_the_ids_of_reading_at_once_and_another_reply_begins_anew() -> None:
    """Where words are apart; so the drafter meets its own tokens, and its cache stands."""
    text = SCRIPT.replace("\n", "") * (3 * SETTLE_CHARS // len(SCRIPT))
    ids = BYTE_LEVEL.encode(text)
    own = SPACES["never"]
    reading = ReplyText(BYTE_LEVEL, own)
    for cut in range(0, len(ids), 7):
        reading.encode(ids[:cut])
    assert reading.encode(ids) == encode_continuation(own, text)
    assert reading.encode(ids[5:]) == ReplyText(BYTE_LEVEL, own).encode(ids[5:])


@given(st.text(max_size=10), st.integers(0, 40))
def test_an_open_character_is_noticed_wherever_it_is_cut(text: str, cut: int) -> None:
    ids = BYTE_LEVEL.encode(text)[:cut]
    reader = BYTE_LEVEL.detokenizer()
    whole = "".join(map(reader.push, ids))
    assert ends_inside_character(BYTE_LEVEL, ids) == (reader.flush() != "")
    assert text.startswith(whole)


def test_a_turn_ends_as_the_chat_template_ends_it() -> None:
    cases = ((CHATML, [0, 2], ("", [2])), ("{{ raise('no') }}", [0], ("", [0])), ("{{ 1 }}", [], ("", [])),
             (None, [2], ("\nUser:", [])))  # fmt: skip
    for template, stops, expected in cases:
        render = None if template is None else renderer(template)
        assert ending(build_tokenizer(tokenisers.byte_level(), render, stops)) == expected, template


# -- the target's distribution


def _tiny(vocab: dict[str, int], merges: list[tuple[str, str]]) -> Tokenizer:
    backend = Backend(tokenizers.models.BPE(vocab, merges))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    return build_tokenizer(backend, None, [])


TARGETS = _tiny({"a": 0, "b": 1, "ab": 2}, [("a", "b")])
DRAFTERS = _tiny({"b": 0, "a": 1, "ba": 2, "bb": 3}, [("b", "a"), ("b", "b")])


class Peeking(CrossTokenizerDrafter):
    """Keeps silent where the number that would test its draft is large."""

    def propose(self, option, context, k, should_continue=always) -> Proposal:  # type: ignore[no-untyped-def]
        if context.rng.uniform(len(context.ids), Purpose.ACCEPT) > 0.6:
            return Proposal()
        return super().propose(option, context, k, should_continue)


def tiny_drafter(seed: int, kind: type[CrossTokenizerDrafter] = CrossTokenizerDrafter) -> CrossTokenizerDrafter:
    return kind(model(DRAFTERS, hashed_logits(4, seed)), DRAFTERS, TARGETS, KVCache(), [0])


def law_of(target: Tree, drafter: CrossTokenizerDrafter, k: int) -> tuple[dict[tuple[int, ...], float], set[int]]:
    """Law of the first LENGTH tokens, round after round with whatever is proposed; and how many drafts there were."""
    law: dict[tuple[int, ...], float] = {}
    open_, counts = {(): 1.0}, set()
    while open_:
        ids, weight = open_.popitem()
        if len(ids) >= LENGTH:
            law[ids[:LENGTH]] = law.get(ids[:LENGTH], 0.0) + weight
            continue
        drafts = drafter.propose(ANY, context(list(ids), 0), min(k, LENGTH - len(ids)))
        assert drafts.probs is None and not drafts.confidences
        counts.add(len(drafts.token_ids))
        rows = torch.stack([target[ids + drafts.token_ids[:i]] for i in range(len(drafts.token_ids) + 1)])
        for more, share in exact_law(drafts, rows).items():
            open_[ids + more] = open_.get(ids + more, 0.0) + weight * share
    return law, counts


@pytest.mark.parametrize("seed", range(3))
def test_whole_replies_have_the_targets_law_exactly(seed: int) -> None:
    target = tree(np.random.default_rng(seed), VOCAB, LENGTH, True)
    law, counts = law_of(target, tiny_drafter(seed), 3)
    expected = plain_law(target, VOCAB, LENGTH)
    assert {2, 3} <= counts
    assert max(abs(law.get(ids, 0.0) - p) for ids, p in expected.items()) < 1e-12


@pytest.mark.parametrize(("kind", "same"), [(CrossTokenizerDrafter, True), (Peeking, False)])
def test_replies_with_an_adaptive_controller_have_the_targets_law(
    kind: type[CrossTokenizerDrafter], same: bool
) -> None:
    """And, as a negative control, the chi-square notices a drafter that looks at the target's randomness."""
    target = tree(np.random.default_rng(5), VOCAB, LENGTH, False)
    law = np.array(list(plain_law(target, VOCAB, LENGTH).values()))
    seen: set[object] = set()
    counts = counts_of(target, tiny_drafter(1, kind), 2000, seen)
    assert {("drafts", 0), ("drafts", 1), ("drafts", 2)} <= seen
    assert (p_value(counts, law) > FALSE_FAIL) is same


# -- whole replies


def played(
    target: str, own: str, sampling: SamplingParams, k: int | None, amount: float, script: str = SCRIPT
) -> tuple[list[Event], list[Event]]:
    """One reply with the drafter, which says the same script with opinions of its own; and without."""
    writes, reads = ALL[target], ALL[own]
    prompt = writes.encode_chat([PROMPT])
    rule = Rule.REJECTION if sampling.temperature == 0.0 else Rule.SHARED_NOISE
    params = DecodingParams(sampling, "any", k, rule, 150, probe_every=7)
    speaks = Spoken(reads, script, len(reads.encode_chat([PROMPT])), amount)
    language = Spoken(writes, script, len(prompt), 1.0)
    spec = run(prompt, params, model(writes, language), writes, drafter(reads, writes, speaks))
    plain = run(prompt, replace(params, num_speculative_tokens=0), model(writes, language), writes)
    return spec, plain


def test_what_the_drafter_knows_arrives() -> None:
    """Of a text with hanzi, emoji and code nearly every draft stands, and the end of the turn is drafted as well."""
    for target, own in PAIRS:
        spec, plain = played(target, own, SamplingParams(seed=3), 4, 0.0)
        assert finished(spec).reason is FinishReason.STOP and finished(spec).text == SCRIPT
        rounds = rounds_of(spec)
        fates = [decision.outcome for one in rounds for decision in one.decisions]
        assert fates.count(Outcome.ACCEPTED) > 0.6 * len(fates), (target, own)
        assert len(rounds) < 0.7 * len(finished(plain).token_ids), (target, own)
        if rounds[-1].decisions:
            last = rounds[-1].decisions[-1]
            assert last.outcome is Outcome.ACCEPTED and last.id in ALL[target].stop_ids


@settings(max_examples=40)
@given(
    script=TEXT.filter(bool) | st.just(SCRIPT),
    k=st.none() | st.integers(1, 9),
    pair=st.sampled_from(PAIRS),
    amount=st.sampled_from([0.0, 6.0, 500.0]),
    sampling=st.sampled_from([SamplingParams(seed=1), SamplingParams(1.5, top_p=0.95, seed=3)]),
)
def test_any_text_is_plain_decodings(
    script: str, k: int | None, pair: tuple[str, str], amount: float, sampling: SamplingParams
) -> None:
    spec, plain = played(*pair, sampling, k, amount, script)
    assert finished(spec).token_ids == finished(plain).token_ids
    assert finished(spec).text == finished(plain).text


def test_nothing_is_offered_inside_a_character() -> None:
    """And rounds there are plain ones, so that no draft is ever behind half a character."""
    own = SPACES["first"]
    made = drafter(own, BYTE_LEVEL, hashed_logits(own.vocab_size))
    prompt = BYTE_LEVEL.encode_chat([PROMPT])
    ids = BYTE_LEVEL.encode("𠮷")
    assert len(ids) > 1
    offers = [bool(made.options(prompt + ids[:n])) for n in range(len(ids) + 1)]
    assert offers == [True] + [False] * (len(ids) - 1) + [True]
    spec, _ = played("byte-level", "space mark, first", SamplingParams(seed=1), 2, 0.0, "𠮷𠮷𠮷𠮷")
    ids = [*prompt, spec[0].token.id]  # type: ignore[union-attr]
    for one in rounds_of(spec):
        if ends_inside_character(BYTE_LEVEL, ids):
            assert not one.decisions and one.k_reason in (KReason.NO_OFFER, KReason.PROBE)
        ids += [token.id for token in one.tokens]
    assert any(one.k_reason is KReason.NO_OFFER for one in rounds_of(spec))


# -- limits


def test_a_drafter_whose_context_is_full_falls_silent_visibly() -> None:
    writes, reads = BYTE_LEVEL, SPACES["never"]
    prompt, own = writes.encode_chat([PROMPT]), reads.encode_chat([PROMPT])
    params = DecodingParams(SamplingParams(seed=1), "any", 4, max_new_tokens=90, probe_every=0)
    language = Spoken(writes, SCRIPT * 3, len(prompt))
    plain = run(prompt, replace(params, num_speculative_tokens=0), model(writes, language), writes)
    for more in (-3, 0, 25, 900):
        read = []

        def speaks(ids: tuple[int, ...], read: list[int] = read) -> np.ndarray:
            read.append(len(ids))
            return Spoken(reads, SCRIPT * 3, len(own))(ids)

        made = drafter(reads, writes, speaks, len(own) + more)
        spec = run(prompt, params, model(writes, language), writes, made)
        assert finished(spec).token_ids == finished(plain).token_ids and len(finished(spec).token_ids) == 90
        reasons = [one.k_reason for one in rounds_of(spec)]
        assert (KReason.DRAFTER_CONTEXT in reasons) == (more < 900), more
        assert any(one.decisions for one in rounds_of(spec)) == (more >= 25), more
        assert max(read, default=0) < len(own) + more or not read, "a draft ends where the drafter's context does"


def test_a_drafter_that_gives_no_numbers_falls_silent() -> None:
    own = SPACES["never"]
    made = drafter(own, BYTE_LEVEL, lambda ids: np.full(own.vocab_size, np.nan))
    params = DecodingParams(SamplingParams(seed=1), "any", 4, max_new_tokens=30)
    prompt = BYTE_LEVEL.encode_chat([PROMPT])
    events = run(prompt, params, model(BYTE_LEVEL, hashed_logits(BYTE_LEVEL.vocab_size)), BYTE_LEVEL, made)
    assert finished(events).reason is FinishReason.LENGTH
    assert not any(one.decisions for one in rounds_of(events)) and made.options(prompt) == ()


def test_tokens_that_a_model_has_no_row_for_are_neither_read_nor_proposed() -> None:
    own, ids = SPACES["never"], BYTE_LEVEL.encode_chat([PROMPT])
    prompt = own.encode_chat([PROMPT])
    short = CrossTokenizerDrafter(Model(FakeNetwork(50, hashed_logits(50)), 999), own, BYTE_LEVEL, KVCache(), prompt)
    assert short.propose(ANY, context([*ids, 5], len(ids)), 4) == Proposal() and short.options(ids) == ()

    few = build_tokenizer(tokenisers.byte_level(), renderer(CHATML), [2], rows=260)
    made = drafter(own, few, Spoken(own, "the quick brown fox", len(prompt)))
    proposal = made.propose(ANY, context([*ids, *few.encode("t")], len(ids)), 8)
    known = list(itertools.takewhile(lambda i: i < 260, encode_continuation(few, "he quick brown fox")))
    assert len(known) < 8 and list(proposal.token_ids) == known


def test_what_is_read_as_text_and_what_asks_nothing_of_the_model() -> None:
    own, prompt, seen = SPACES["first"], BYTE_LEVEL.encode_chat([PROMPT]), list[tuple[int, ...]]()
    language = hashed_logits(own.vocab_size)
    made = CrossTokenizerDrafter(
        model(own, lambda ids: (seen.append(ids), language(ids))[1]), own, BYTE_LEVEL, KVCache(), None
    )
    assert made.propose(ANY, context([*prompt, 70], len(prompt)), 0) == Proposal() and not seen
    made.propose(ANY, context([*prompt, *BYTE_LEVEL.encode("he")], len(prompt)), 2)
    assert "user\nhello" in own.decode(seen[0]) and own.decode(seen[0]).endswith("he"), "without the messages"
    refusing = build_tokenizer(tokenisers.byte_level(), renderer("{{ raise('no') }}"), [2])
    assert encode_prompt(refusing, [PROMPT]) is None and encode_prompt(BYTE_LEVEL, []) is None
    assert encode_prompt(BYTE_LEVEL, [PROMPT]) == prompt


def test_a_control_token_of_the_drafter_ends_the_draft() -> None:
    """It has no text, so the target cannot be asked to say it."""
    own, target = BYTE_LEVEL, SPACES["never"]
    ids = target.encode_chat([PROMPT])

    def language(seen: tuple[int, ...]) -> np.ndarray:
        row = np.zeros(own.vocab_size)
        row[1 if len(seen) % 3 == 0 else own.encode("h")[0]] = 9.0
        return row

    made = drafter(own, target, language)
    for n in range(1, 4):
        proposal = made.propose(ANY, context([*ids, *target.encode("h" * n)], len(ids)), 8)
        assert target.decode(proposal.token_ids) in ("", "h", "hh")
        assert not set(proposal.token_ids) & set(target.special)


# -- two real models


@pytest.mark.slow
@pytest.mark.model("gemma")
def test_smollm_drafts_for_gemma() -> None:
    """Two makers' models and tokenisers; of the drafts a good part stands, and the text is plain decoding's."""

    def load(name: str, **options: str) -> loading.Loaded:
        return loading.load(
            name, device="cpu", threads=1, offline=True, progress=lambda phase, fraction: None, **options
        )  # type: ignore[arg-type]

    writes, reads = (
        load(str(fetch_model(GEMMA, offline=True, progress=lambda *_: None)), quant="fp32"),
        load("embedded"),
    )
    assert not reads.tokenizer.same_ids(writes.tokenizer)
    target, drafts = Model(writes.network, writes.context_len), Model(reads.network, reads.context_len)
    accepted = drafted = 0
    for text in ("The capital of France is Paris. The capital of Italy is", "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11,"):
        message = [Message("user", text)]
        prompt, own = writes.tokenizer.encode_chat(message), reads.tokenizer.encode_chat(message)
        params = DecodingParams(SamplingParams(seed=0), "any", 3, max_new_tokens=12, probe_every=0)
        made = CrossTokenizerDrafter(drafts, reads.tokenizer, writes.tokenizer, KVCache(), own)
        spec = run(prompt, params, target, writes.tokenizer, made)
        plain = run(prompt, replace(params, num_speculative_tokens=0), target, writes.tokenizer)
        assert finished(spec).token_ids == finished(plain).token_ids
        fates = [decision.outcome for one in rounds_of(spec) for decision in one.decisions]
        accepted, drafted = accepted + fates.count(Outcome.ACCEPTED), drafted + len(fates)
    assert drafted and accepted > 0.15 * drafted
