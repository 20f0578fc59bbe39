"""Tokenisers out of GGUF files: against transformers', a plain SentencePiece, and what goes in must come out."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import LoadError
from engine.loading.gguf.tokenizer import BY_WORDS, STOPS, build_backend, stop_ids, tokenizer_config
from engine.text.tokenizer import build_tokenizer
from tests.engine import tokenisers
from tests.engine.tiny_ggufs import byte_level_facts

TEXTS = st.one_of(
    st.text(max_size=60),
    st.lists(
        st.sampled_from(["the ", " fox", "12345", "\n\n", "   ", "I'LL", "don't", "你好", "🙂", "e\u0301", "_x"])
    ).map("".join),
)
BYTES = {pre: build_backend(byte_level_facts(pre), "x") for pre in ("smollm", "gpt-2", "qwen2", "llama-bpe")}


@given(TEXTS)
def test_qwens_ids_are_those_of_transformers(text: str) -> None:
    assert BYTES["qwen2"].encode(text).ids == QWEN.encode(text).ids


def _qwen() -> Any:
    from transformers import Qwen2Tokenizer

    facts = byte_level_facts("qwen2")
    merges = [tuple(merge.split(" ", 1)) for merge in facts["tokenizer.ggml.merges"]]
    vocab = {token: i for i, token in enumerate(facts["tokenizer.ggml.tokens"])}
    backend = Qwen2Tokenizer(vocab=vocab, merges=merges).backend_tokenizer
    backend.add_tokens(["<think>", "中…"])
    return backend


QWEN = _qwen()


@given(TEXTS)
def test_smollms_ids_are_the_originals_with_every_digit_by_itself(text: str) -> None:
    import tokenizers

    original = tokenisers.byte_level()
    original.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Digits(individual_digits=True),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    assert BYTES["smollm"].encode(text).ids == original.encode(text).ids


@pytest.mark.parametrize(
    ("pre", "words"),
    [
        ("llama-bpe", ["x", "123", "45", "ĠI", "'LL", "!!Ċ"]),
        ("qwen2", ["x", "1", "2", "3", "4", "5", "ĠI", "'LL", "!!Ċ"]),
        ("smollm", ["x", "1", "2", "3", "4", "5", "ĠI", "'", "LL", "!!", "Ċ"]),
        ("gpt-2", ["x", "12345", "ĠI", "'", "LL", "!!", "Ċ"]),
    ],
)
def test_words_are_cut_as_each_kind_cuts_them(pre: str, words: list[str]) -> None:
    assert [word for word, _ in BYTES[pre].pre_tokenizer.pre_tokenize_str("x12345 I'LL!!\n")] == words


@given(TEXTS)
@pytest.mark.parametrize("pre", BYTES)
def test_byte_level_text_comes_back(pre: str, text: str) -> None:
    made = build_tokenizer(build_backend(byte_level_facts(pre), "x"), None, {2}) if pre not in READY else READY[pre]
    READY[pre] = made
    wanted = text if pre != "qwen2" else BYTES["qwen2"].normalizer.normalize_str(text)
    assert made.decode(made.encode(text)) == wanted


READY: dict[str, Any] = {}


def test_a_word_that_is_a_token_needs_no_merges_in_llama_3s_kind() -> None:
    facts = byte_level_facts("llama-bpe")
    tokens = facts["tokenizer.ggml.tokens"]
    facts |= {"tokenizer.ggml.tokens": [*tokens, "zyx"], "tokenizer.ggml.token_type": [*_types(facts), 1]}
    assert build_backend(facts, "x").encode("zyx").ids == [len(tokens)]
    assert len(build_backend(facts | {"tokenizer.ggml.pre": "qwen2"}, "x").encode("zyx").ids) == 3


def _types(facts: Mapping[str, Any]) -> list[int]:
    return list(facts["tokenizer.ggml.token_type"])


# ------------------------------------------------------------------------------------------------ SentencePiece

PIECES = ["\u2581", *"abcdehlot", "he", "el", "ll", "lo", "hel", "llo", "hello", "\u2581h", "\u2581hello", "ot", "tt"]


def spm(prefix: bool) -> dict[str, Any]:
    """Scores fall with the order of PIECES; a run of two spaces is a name of its own, as in Gemma."""
    control, own = ["<unk>", "<s>", "</s>"], ["  ", "<b>"]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = [*control, *own, *bytes_, *PIECES]
    types = [2, 3, 3, 4, 4, *[6] * 256, *[1] * len(PIECES)]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.scores": [0.0] * (len(tokens) - len(PIECES)) + [-float(i) for i in range(len(PIECES))],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_space_prefix": prefix,
    }


def plain_sentence_piece(facts: Mapping[str, Any], text: str) -> list[int]:
    """By the book: join the neighbours whose piece has the best score, the leftmost first, until none can be joined."""
    tokens, scores = facts["tokenizer.ggml.tokens"], facts["tokenizer.ggml.scores"]
    normal = {t: i for i, t in enumerate(tokens) if facts["tokenizer.ggml.token_type"][i] == 1}
    parts = list(text.replace(" ", "\u2581"))
    while True:
        joined = [(scores[normal[a + b]], -n) for n, (a, b) in enumerate(pairwise(parts)) if a + b in normal]
        if not joined:
            break
        at = -max(joined)[1]
        parts[at : at + 2] = ["".join(parts[at : at + 2])]
    byte = tokens.index("<0x00>")
    return [i for part in parts for i in ([normal[part]] if part in normal else [byte + b for b in part.encode()])]


WITHOUT_PREFIX = build_backend(spm(False), "x")


@given(st.text(st.sampled_from("helo tabcd中🙂\n"), max_size=30).filter(lambda text: "  " not in text))
def test_sentence_piece_joins_by_score(text: str) -> None:
    assert WITHOUT_PREFIX.encode(text).ids == plain_sentence_piece(spm(False), text)


@given(st.text(max_size=40))
@pytest.mark.parametrize("prefix", [True, False])
def test_sentence_pieces_text_comes_back(prefix: bool, text: str) -> None:
    made = SPM[prefix]
    if prefix and text.startswith(" "):
        text = "x" + text  # of such a kind nobody can tell a leading space from its own
    assert made.decode(made.encode(text)) == text.replace("\u2581", " ")


SPM = {prefix: build_tokenizer(build_backend(spm(prefix), "x"), None, {2}, 1) for prefix in (True, False)}


def test_names_in_a_text_are_found_whole_and_control_tokens_never() -> None:
    tokens = spm(False)["tokenizer.ggml.tokens"]
    assert [tokens[i] for i in SPM[False].encode("he  <b>lo")] == ["he", "  ", "<b>", "lo"]
    assert not SPM[False].special.keys() & set(SPM[False].encode("<s></s>"))


# ------------------------------------------------------------------------------------------- ends and beginnings


@pytest.mark.parametrize("name", STOPS)
def test_control_tokens_known_to_end_a_turn_end_it(name: str) -> None:
    facts = byte_level_facts()
    tokens = [*facts["tokenizer.ggml.tokens"], name]
    found = stop_ids(facts | {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": [*_types(facts), 3]})
    assert (tokens.index(name) in found or len(tokens) - 1 in found) and found[0] == 2
    plain = stop_ids(facts | {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": [*_types(facts), 1]})
    assert len(tokens) - 1 not in plain, "a piece of that name is text like any other"


def test_the_files_own_ends_come_first() -> None:
    assert stop_ids(byte_level_facts() | {"tokenizer.ggml.eot_token_id": 7, "tokenizer.ggml.eom_token_id": 9999}) == [
        2,
        7,
        0,
    ]


@pytest.mark.parametrize(
    ("facts", "bos"),
    [
        (byte_level_facts(), None),
        ({k: v for k, v in byte_level_facts("llama-bpe").items() if "add_bos" not in k}, "<|im_start|>"),
        ({k: v for k, v in byte_level_facts("qwen2").items() if "add_bos" not in k}, None),
        (spm(True), "<s>"),
        (spm(True) | {"tokenizer.ggml.add_bos_token": False}, None),
    ],
)
def test_a_beginning_is_written_where_the_model_wants_one(facts: dict[str, Any], bos: str | None) -> None:
    assert tokenizer_config(facts).get("bos_token") == bos


def test_padding_is_no_token() -> None:
    facts = byte_level_facts()
    tokens = facts["tokenizer.ggml.tokens"]
    more = {"tokenizer.ggml.tokens": [*tokens, "[PAD1]"], "tokenizer.ggml.token_type": [*_types(facts), 5]}
    assert build_tokenizer(build_backend(facts | more, "x"), None, {2}).vocab_size == len(tokens)


@pytest.mark.parametrize("pre", BY_WORDS)
def test_every_known_way_to_cut_words_is_one_that_the_library_takes(pre: str) -> None:
    assert build_backend(byte_level_facts(pre), "x").encode("hello 123").ids


def test_types_and_tokens_must_agree() -> None:
    with pytest.raises(LoadError, match=r"^x describes its tokeniser wrongly \(1 types of \d+ tokens\)"):
        build_backend(byte_level_facts() | {"tokenizer.ggml.token_type": [1]}, "x")
