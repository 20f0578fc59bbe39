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

LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN_WORDS = LLAMA3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")
DIGITS_APART = ("smollm", "starcoder", "refact", "command-r", "codeshell")
PLAIN = ("gpt-2", "gpt2", "mpt", "olmo", "exaone", "granite-docling")
BY_WORDS = {
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"), LLAMA3_WORDS),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2"), QWEN_WORDS),
}
"""How text is cut into words before byte-level BPE, by `tokenizer.ggml.pre`."""


def build_backend(facts: Facts, name: str) -> Tokenizer:
    """Raises LoadError, one sentence that begins with the file's `name`."""
    try:
        tokens, types = _fact(facts, "tokens"), _fact(facts, "token_type")
        model = _fact(facts, "model")
        if len(types) != len(tokens):
            raise ValueError(f"{len(types)} types of {len(tokens)} tokens")
        check_roles(facts, name)
        if max(map(len, tokens), default=0) > LONGEST_TOKEN:
            raise ValueError(f"a token of more than {LONGEST_TOKEN} characters")
        builders = {"gpt2": _build_byte_level, "llama": _build_sentence_piece}
        if model not in builders:
            raise LoadError(_unknown_message(name, f"{model!r}"))
        vocabulary = {token: i for i, (token, kind) in enumerate(zip(tokens, types, strict=True)) if kind != UNUSED}
        backend = builders[model](facts, vocabulary, name)
        control_tokens = [token for token, kind in zip(tokens, types, strict=True) if kind == CONTROL]
        backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control_tokens])
        user_tokens = [token for token, kind in zip(tokens, types, strict=True) if kind == USER_DEFINED and token]
        backend.add_tokens([AddedToken(token, special=False, normalized=False) for token in user_tokens])
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
    if "chat_template" not in (config := tokenizer_config(facts)):
        return
    try:
        compile_template(config["chat_template"], name)
    except (TemplateError, TypeError) as error:
        raise LoadError(f"The chat template of {name} cannot be read ({error}): choose another file.") from error


def _fact(facts: Facts, key: str) -> Any:
    return facts[f"tokenizer.ggml.{key}"]


def _unknown_message(name: str, kind: str) -> str:
    return f"{name} has a tokeniser of a kind that is not known here ({kind}): choose the model as safetensors."


def _build_byte_level(facts: Facts, vocabulary: dict[str, int], name: str) -> Tokenizer:
    """GPT-2's kind (Radford et al. 2019, section 2.2)."""
    pre = facts.get("tokenizer.ggml.pre", "gpt-2")
    merges = [tuple(merge.split(" ", 1)) for merge in _fact(facts, "merges")]
    ignores_merges = BY_WORDS.get(pre) == LLAMA3_WORDS  # a word that is a token need not come about by merges
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=ignores_merges))
    if pre in DIGITS_APART:
        steps = [pre_tokenizers.Digits(individual_digits=True), _byte_level_step(use_regex=True)]
    elif pre in PLAIN:
        steps = [_byte_level_step(use_regex=True)]
    elif pre in BY_WORDS:
        steps = [pre_tokenizers.Split(Regex(BY_WORDS[pre]), "isolated"), _byte_level_step(use_regex=False)]
    else:
        raise LoadError(_unknown_message(name, f"{pre!r}"))
    if BY_WORDS.get(pre) == QWEN_WORDS:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)
    backend.decoder = decoders.ByteLevel()
    return backend


def _byte_level_step(use_regex: bool) -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def _build_sentence_piece(facts: Facts, vocabulary: dict[str, int], name: str) -> Tokenizer:
    """SentencePiece's BPE (Kudo and Richardson, arXiv:1808.06226): the pair with the best score is joined first."""
    tokens, types, scores = (_fact(facts, key) for key in ("tokens", "token_type", "scores"))
    pieces = {token: scores[i] for token, i in vocabulary.items() if types[i] == NORMAL}
    unknown_id = facts.get("tokenizer.ggml.unknown_token_id")
    backend = Tokenizer(
        models.BPE(
            vocab=vocabulary,
            merges=_merges(pieces),
            unk_token=None if unknown_id is None else tokens[unknown_id],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    space_mark = normalizers.Replace(" ", "\u2581")
    steps: list[Any] = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    if facts.get("tokenizer.ggml.add_space_prefix", True):
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), space_mark])
        steps.append(decoders.Strip(" ", 1, 0))
    else:
        backend.normalizer = space_mark
    backend.decoder = decoders.Sequence(steps)
    return backend


def _merges(pieces: Mapping[str, float]) -> list[tuple[str, str]]:
    """Every way to make each piece of two others, best scores first."""
    candidates: list[tuple[float, int, int, str]] = []
    for order, (piece, score) in enumerate(pieces.items()):
        for cut in range(1, len(piece)):
            if piece[:cut] in pieces and piece[cut:] in pieces:
                candidates.append((-score, order, cut, piece))
    candidates.sort(key=lambda merge: merge[:3])
    return [(piece[:cut], piece[cut:]) for _, _, cut, piece in candidates]


def stop_ids(facts: Facts) -> list[int]:
    """What ends a reply: the file's own ends of a text and of a turn, and control tokens that are known to end one."""
    tokens, types = _fact(facts, "tokens"), _fact(facts, "token_type")
    role_ids = [facts.get(f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot", "eom")]
    end_ids = [i for i, token in enumerate(tokens) if token in STOPS and types[i] == CONTROL]
    return [i for i in dict.fromkeys([*role_ids, *end_ids]) if i is not None and 0 <= i < len(tokens)]


def tokenizer_config(facts: Facts) -> dict[str, Any]:
    """A tokenizer_config.json: control tokens by their roles, and the chat template if the file has one."""
    tokens = _fact(facts, "tokens")
    adds_bos = facts.get("tokenizer.ggml.add_bos_token", _fact(facts, "model") == "llama" or _has_bos_by_default(facts))
    keys = {"bos": "bos" if adds_bos else "", "eos": "eos", "unk": "unknown", "pad": "padding"}
    ids = {role: facts.get(f"tokenizer.ggml.{key}_token_id") for role, key in keys.items()}
    role_tokens = {f"{role}_token": tokens[i] for role, i in ids.items() if i is not None and 0 <= i < len(tokens)}
    template = facts.get("tokenizer.chat_template")
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **role_tokens,
        **({"chat_template": template} if template else {}),
    }


def _has_bos_by_default(facts: Facts) -> bool:
    return BY_WORDS.get(facts.get("tokenizer.ggml.pre", "")) == LLAMA3_WORDS
