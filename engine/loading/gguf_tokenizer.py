"""The tokeniser that a GGUF file describes, as the tokenizers library runs it: byte-level BPE, or SentencePiece's BPE.

A GGUF names the kind and lists tokens, their types, and merges or scores; how text is split before is known by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2.exceptions import TemplateError
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from engine.errors import LoadError, is_panic
from engine.text.chat_template import compile_template

Facts = Mapping[str, Any]

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5
"""GGUF's types of tokens: pieces, control tokens, names that are found whole in any text, and mere padding."""

STOPS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<end_of_turn>", "</s>", "<eos>")
"""Control tokens that end a turn in some chat format."""

LONGEST_TOKEN = 1024
"""Characters; finding the merges of a piece takes the square of its length."""

LLAMA3_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN_WORDS = LLAMA3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")
DIGITS_APART = ("smollm", "starcoder", "refact", "command-r", "codeshell")
PLAIN = ("gpt-2", "gpt2", "mpt", "olmo", "exaone", "granite-docling")
BY_WORDS = {
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"), LLAMA3_WORDS),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2"), QWEN_WORDS),
}
"""How text is cut into words before byte-level BPE, by `tokenizer.ggml.pre`."""


def tokeniser(facts: Facts, name: str) -> Tokenizer:
    """Raises LoadError, one sentence that begins with the file's `name`."""
    try:
        tokens, types = _get(facts, "tokens"), _get(facts, "token_type")
        model = _get(facts, "model")
        if len(types) != len(tokens):
            raise ValueError(f"{len(types)} types of {len(tokens)} tokens")
        check_roles(facts, name)
        if max(map(len, tokens), default=0) > LONGEST_TOKEN:
            raise ValueError(f"a token of more than {LONGEST_TOKEN} characters")
        kinds = {"gpt2": _byte_level, "llama": _sentence_piece}
        if model not in kinds:
            raise LoadError(_unknown(name, f"{model!r}"))
        vocabulary = {token: i for i, (token, kind) in enumerate(zip(tokens, types, strict=True)) if kind != UNUSED}
        backend = kinds[model](facts, vocabulary, name)
        control = [token for token, kind in zip(tokens, types, strict=True) if kind == CONTROL]
        backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
        whole = [token for token, kind in zip(tokens, types, strict=True) if kind == USER_DEFINED and token]
        backend.add_tokens([AddedToken(token, special=False, normalized=False) for token in whole])
    except KeyError as error:
        raise LoadError(f"{name} has no {error}: choose a file with its tokeniser inside.") from error
    except LoadError:
        raise
    except BaseException as error:  # the library's own errors have no common base, and its panics are no Exception
        if not (isinstance(error, Exception) or is_panic(error)):
            raise
        raise LoadError(f"{name} describes its tokeniser wrongly ({error}): choose another file.") from error
    return backend


def check_roles(facts: Facts, name: str) -> None:
    """What is not needed before a reply begins or ends. Raises LoadError, and whatever wrong kinds of values raise."""
    stop_ids(facts)
    if "chat_template" not in (about := tokenizer_config(facts)):
        return
    try:
        compile_template(about["chat_template"], name)
    except (TemplateError, TypeError) as error:
        raise LoadError(f"The chat template of {name} cannot be read ({error}): choose another file.") from error


def _get(facts: Facts, key: str) -> Any:
    return facts[f"tokenizer.ggml.{key}"]


def _unknown(name: str, kind: str) -> str:
    return f"{name} has a tokeniser of a kind that is not known here ({kind}): choose the model as safetensors."


def _byte_level(facts: Facts, vocabulary: dict[str, int], name: str) -> Tokenizer:
    """GPT-2's kind (Radford et al. 2019, section 2.2)."""
    pre = facts.get("tokenizer.ggml.pre", "gpt-2")
    merges = [tuple(merge.split(" ", 1)) for merge in _get(facts, "merges")]
    whole_words = BY_WORDS.get(pre) == LLAMA3_WORDS  # a word that is a token need not come about by merges
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=whole_words))
    if pre in DIGITS_APART:
        words = [pre_tokenizers.Digits(individual_digits=True), _bytes(use_regex=True)]
    elif pre in PLAIN:
        words = [_bytes(use_regex=True)]
    elif pre in BY_WORDS:
        words = [pre_tokenizers.Split(Regex(BY_WORDS[pre]), "isolated"), _bytes(use_regex=False)]
    else:
        raise LoadError(_unknown(name, f"{pre!r}"))
    if BY_WORDS.get(pre) == QWEN_WORDS:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = words[0] if len(words) == 1 else pre_tokenizers.Sequence(words)
    backend.decoder = decoders.ByteLevel()
    return backend


def _bytes(use_regex: bool) -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def _sentence_piece(facts: Facts, vocabulary: dict[str, int], name: str) -> Tokenizer:
    """SentencePiece's BPE (Kudo and Richardson, arXiv:1808.06226): the pair whose piece has the best score is joined first."""
    tokens, types, scores = (_get(facts, key) for key in ("tokens", "token_type", "scores"))
    pieces = {token: scores[i] for token, i in vocabulary.items() if types[i] == NORMAL}
    unknown = facts.get("tokenizer.ggml.unknown_token_id")
    backend = Tokenizer(
        models.BPE(
            vocab=vocabulary,
            merges=_merges(pieces),
            unk_token=None if unknown is None else tokens[unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    mark = normalizers.Replace(" ", "\u2581")
    steps: list[Any] = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    if facts.get("tokenizer.ggml.add_space_prefix", True):
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), mark])
        steps.append(decoders.Strip(" ", 1, 0))
    else:
        backend.normalizer = mark
    backend.decoder = decoders.Sequence(steps)
    return backend


def _merges(pieces: Mapping[str, float]) -> list[tuple[str, str]]:
    """Every way to make each piece of two others, best scores first."""
    found: list[tuple[float, int, int, str]] = []
    for order, (piece, score) in enumerate(pieces.items()):
        for cut in range(1, len(piece)):
            if piece[:cut] in pieces and piece[cut:] in pieces:
                found.append((-score, order, cut, piece))
    found.sort(key=lambda merge: merge[:3])
    return [(piece[:cut], piece[cut:]) for _, _, cut, piece in found]


def stop_ids(facts: Facts) -> list[int]:
    """What ends a reply: the file's own ends of a text and of a turn, and control tokens that are known to end one."""
    tokens, types = _get(facts, "tokens"), _get(facts, "token_type")
    named = [facts.get(f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot", "eom")]
    known = [i for i, token in enumerate(tokens) if token in STOPS and types[i] == CONTROL]
    return [i for i in dict.fromkeys([*named, *known]) if i is not None and 0 <= i < len(tokens)]


def tokenizer_config(facts: Facts) -> dict[str, Any]:
    """A tokenizer_config.json: control tokens by their roles, and the chat template if the file has one."""
    tokens = _get(facts, "tokens")
    adds_bos = facts.get("tokenizer.ggml.add_bos_token", _get(facts, "model") == "llama" or _begins_with_bos(facts))
    keys = {"bos": "bos" if adds_bos else "", "eos": "eos", "unk": "unknown", "pad": "padding"}
    ids = {role: facts.get(f"tokenizer.ggml.{key}_token_id") for role, key in keys.items()}
    named = {f"{role}_token": tokens[i] for role, i in ids.items() if i is not None and 0 <= i < len(tokens)}
    template = facts.get("tokenizer.chat_template")
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **named,
        **({"chat_template": template} if template else {}),
    }


def _begins_with_bos(facts: Facts) -> bool:
    return BY_WORDS.get(facts.get("tokenizer.ggml.pre", "")) == LLAMA3_WORDS
