"""Tokenisers out of GGUF files: against transformers', a plain SentencePiece, and what goes in must come out."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import Qwen2Tokenizer

from engine.loading.gguf.tokenizer import BY_WORDS, STOPS, build_backend, stop_ids, tokenizer_config
from engine.text.tokenizer import Tokenizer, build_tokenizer
from tests.engine.tiny_ggufs import byte_level_facts

FACTS = byte_level_facts()
LLAMA3 = {"tokenizer.ggml.pre": "llama-bpe"}
TOKENS, TYPES = FACTS["tokenizer.ggml.tokens"], FACTS["tokenizer.ggml.token_type"]


def ggml(**facts: Any) -> dict[str, Any]:
    return FACTS | {f"tokenizer.ggml.{name}": value for name, value in facts.items()}


def built(facts: dict[str, Any], bos_id: int | None = None) -> Tokenizer:
    return build_tokenizer(build_backend(facts, "x"), None, {2}, bos_id)


BYTES = {pre: built(ggml(pre=pre)) for pre in ("smollm", "gpt-2", "qwen2", "llama-bpe")}
QWEN = Qwen2Tokenizer(
    vocab={token: i for i, token in enumerate(TOKENS)},
    merges=[tuple(merge.split(" ", 1)) for merge in FACTS["tokenizer.ggml.merges"]],
).backend_tokenizer
QWEN.add_tokens(["<think>", "中…"])
PIECES = ["the ", " fox", "12345", "\n\n", "   ", "I'LL", "don't", "你好", "🙂", "e\u0301", "_x"]


@given(st.text(max_size=60) | st.lists(st.sampled_from(PIECES)).map("".join))
@settings(max_examples=40)
def test_byte_level_ids_are_the_originals_and_their_text_comes_back(text: str) -> None:
    assert BYTES["qwen2"].encode(text) == QWEN.encode(text).ids
    for pre, made in BYTES.items():
        wanted = QWEN.normalizer.normalize_str(text) if pre == "qwen2" else text
        assert made.decode(made.encode(text)) == wanted, pre


def test_words_are_cut_as_each_kind_cuts_them() -> None:
    """A word that is a token needs no merges in Llama 3's kind."""
    expected = {
        "llama-bpe": ["x", "123", "45", "ĠI", "'LL", "!!Ċ"],
        "qwen2": ["x", *"12345", "ĠI", "'LL", "!!Ċ"],
        "smollm": ["x", *"12345", "ĠI", "'", "LL", "!!", "Ċ"],
        "gpt-2": ["x", "12345", "ĠI", "'", "LL", "!!", "Ċ"],
    }
    for pre in {*expected, *BY_WORDS}:
        alike = next((known for known in expected if BY_WORDS.get(known) == BY_WORDS.get(pre, pre)), pre)
        cut = build_backend(ggml(pre=pre), "x").pre_tokenizer.pre_tokenize_str("x12345 I'LL!!\n")
        assert [word for word, _ in cut] == expected[alike], pre
    for pre, count in (("llama-bpe", 1), ("qwen2", 3)):
        more = ggml(tokens=[*TOKENS, "zyx"], token_type=[*TYPES, 1], pre=pre)
        assert len(build_backend(more, "x").encode("zyx").ids) == count


NORMAL = ["\u2581", *"abcdehlot", "he", "el", "ll", "lo", "hel", "llo", "hello", "\u2581h", "\u2581hello", "ot", "tt"]
OTHERS = ["<unk>", "<s>", "</s>", "  ", "<b>", *(f"<0x{byte:02X}>" for byte in range(256))]
FIRST_BYTE, FIRST = OTHERS.index("<0x00>"), len(OTHERS)


def spm(prefix: bool) -> dict[str, Any]:
    """Scores fall with the order of NORMAL; a run of two spaces is a name of its own, as in Gemma."""
    facts = ggml(
        model="llama", tokens=OTHERS + NORMAL, token_type=[2, 3, 3, 4, 4, *[6] * 256, *[1] * len(NORMAL)],
        scores=[0.0] * FIRST + [-float(i) for i in range(len(NORMAL))], unknown_token_id=0, add_space_prefix=prefix,
    )  # fmt: skip
    del facts["tokenizer.ggml.add_bos_token"]
    return facts


def plain_sentence_piece(text: str) -> list[int]:
    """By the book: join the neighbours whose piece has the best score, the leftmost first, until none can be joined."""
    parts = list(text.replace(" ", "\u2581"))
    while joined := [(NORMAL.index(a + b), n) for n, (a, b) in enumerate(pairwise(parts)) if a + b in NORMAL]:
        at = min(joined)[1]
        parts[at : at + 2] = ["".join(parts[at : at + 2])]
    known = {piece: FIRST + i for i, piece in enumerate(NORMAL)}
    return [i for part in parts for i in ([known[part]] if part in known else [FIRST_BYTE + b for b in part.encode()])]


SPM = {prefix: built(spm(prefix), 1) for prefix in (True, False)}
PLAIN = build_backend(spm(False), "x")


@given(st.text(st.sampled_from("helot 中\n")) | st.lists(st.sampled_from(NORMAL)).map("".join) | st.text(max_size=40))
@settings(max_examples=60)
def test_sentence_piece_joins_by_score_and_its_text_comes_back(text: str) -> None:
    if not any(name in text for name in OTHERS):
        assert PLAIN.encode(text).ids == plain_sentence_piece(text)
        assert SPM[True].decode(SPM[True].encode(f"x{text}")) == f"x{text}".replace("\u2581", " ")
    assert SPM[False].decode(SPM[False].encode(text)) == text.replace("\u2581", " ")


def test_names_in_a_text_are_found_whole_and_control_tokens_never() -> None:
    assert [OTHERS.index("  "), OTHERS.index("<b>")] == SPM[False].encode("he  <b>lo")[1:3]
    assert not SPM[False].special.keys() & set(SPM[False].encode("<s></s>"))


def test_what_ends_a_turn_begins_a_text_or_only_pads() -> None:
    for name in STOPS:
        tokens = [*TOKENS, name]
        ends = stop_ids(ggml(tokens=tokens, token_type=[*TYPES, 3]))
        assert {tokens.index(name), len(TOKENS)} & {*ends} and ends[0] == 2
        plain = stop_ids(ggml(tokens=tokens, token_type=[*TYPES, 1]))
        assert len(TOKENS) not in plain, "a piece of that name is text like any other"
    assert stop_ids(ggml(eot_token_id=7, eom_token_id=9999)) == [2, 7, 0], "the file's own ends come first"
    silent = {name: value for name, value in FACTS.items() if "add_bos" not in name}
    for facts, bos in [(FACTS, None), (silent, None), (silent | LLAMA3, "<|im_start|>"), (spm(True), "<s>")]:
        assert tokenizer_config(facts).get("bos_token") == bos
    assert built(ggml(tokens=[*TOKENS, "[PAD1]"], token_type=[*TYPES, 5])).vocab_size == len(TOKENS)
