"""What a check can say, in one table: how bad each is, what is said of it, and what to try instead."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from string import Formatter

from engine.errors import LoadError


class FitLevel(StrEnum):
    """What comes of loading it; of several diagnostics the worst counts."""

    FITS = "fits"
    SLOW = "slow"
    CANNOT = "cannot"


@dataclass(frozen=True, slots=True)
class Sentence:
    """message, advice: English, with the names of the values in braces. advice "": nothing need be done."""

    level: FitLevel
    message: str
    advice: str = ""

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the values that message and advice have between them, each once."""
        parts = Formatter().parse(self.message + self.advice)
        return tuple(dict.fromkeys(name for _, name, _, _ in parts if name))


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """code: a key of DIAGNOSTIC_TEXTS. message, advice: English sentences. values: what fills them in, by name."""

    code: str
    level: FitLevel
    message: str
    advice: str
    values: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        """All of it, as an error says it."""
        return f"{self.message} {self.advice}".strip()


FITS, SLOW, CANNOT = FitLevel

DIAGNOSTIC_TEXTS: dict[str, Sentence] = {
    # -- where it is
    "not_found": Sentence(
        CANNOT,
        "There is no model {name}.",
        "Check its spelling: a folder, a .gguf file, a hub id such as owner/model, the name of a pair, or embedded.",
    ),
    "not_a_model": Sentence(
        CANNOT, "{name} is a file of another kind.", "Name a .gguf file, or the folder of a model as safetensors."
    ),
    "offline": Sentence(
        CANNOT,
        "{name} is not on this machine, and no network may be used.",
        "Start without --offline, or choose a model that is here already.",
    ),
    "no_network": Sentence(
        CANNOT,
        "{name} is not on this machine, and the hub cannot be reached.",
        "Connect and check again, check its spelling, or choose a model that is here already.",
    ),
    "gated": Sentence(
        CANNOT,
        "{name} wants its licence to be accepted first.",
        "Accept it on the model's hub page, set HF_TOKEN, and start again.",
    ),
    "download": Sentence(FITS, "{name} is fetched first: {size}."),
    "disk_short": Sentence(
        CANNOT,
        "{folder} has {free} free, and {needs} must be written there.",
        "Make room, or set GREENLIGHT_CACHE (for models of the hub HF_HOME) to a folder with more.",
    ),
    # -- whether it can be read
    "no_config": Sentence(CANNOT, "{name} has no config.json.", "Name the folder of a model as safetensors."),
    "no_weights": Sentence(
        CANNOT, "{name} has no *.safetensors weights.", "Choose a copy of the model with safetensors, or a GGUF file."
    ),
    "pickle_only": Sentence(
        CANNOT,
        "The weights of {name} are pickles, which could run programs of their own and are not opened.",
        "Choose a copy of the model with safetensors, or a GGUF file.",
    ),
    "no_tokenizer": Sentence(
        CANNOT, "{name} has no tokeniser.", "Fetch the model again, with tokenizer.json or tokenizer.model."
    ),
    "damaged": Sentence(CANNOT, "{name} cannot be read: {reason}.", "Fetch its files again."),
    "truncated": Sentence(
        CANNOT, "{name} is cut short: {file} ends before its weights do.", "Fetch that file again."
    ),
    "unsupported_type": Sentence(
        CANNOT,
        "The weights of {name} are {type}, which cannot be read.",
        "Choose a GGUF of Q4_0, Q4_1, Q8_0, Q4_K_M, Q5_K_M, Q6_K or F16, or the model as safetensors.",
    ),
    "gguf_refused": Sentence(CANNOT, "{reason}.", "Choose another file, or the model as safetensors."),
    "prequantised": Sentence(
        CANNOT,
        "The weights of {name} were quantised by {method}, which is not read.",
        "Choose the original model, and have it quantised here: --quant nf4 or --quant int8.",
    ),
    # -- whether it can run
    "unknown_architecture": Sentence(
        CANNOT,
        "{name} is of the kind {kind}, which cannot run here.",
        "Choose a model of the Llama, Qwen, Mistral, Gemma or SmolLM kind.",
    ),
    "stateful_cache": Sentence(
        CANNOT,
        "{name} ({kind}) keeps a state that cannot be taken back to before a rejected draft.",
        "Choose a model whose every layer is attention, such as the Llama, Qwen, Mistral, Gemma or SmolLM kind.",
    ),
    "attention_sinks": Sentence(
        CANNOT, "{name} ({kind}) uses attention sinks, which are not run here.", "Choose a model of another kind."
    ),
    "encoder_decoder": Sentence(
        CANNOT,
        "{name} ({kind}) reads with one half and writes with the other, and drafts are tested on models of one piece.",
        "Choose a model that only decodes, such as the Llama, Qwen, Mistral, Gemma or SmolLM kind.",
    ),
    "head_alone": Sentence(
        CANNOT,
        "{name} is a draft head, which writes nothing by itself.",
        "Name it as the drafter, beside the target that it was trained for.",
    ),
    "no_device": Sentence(
        CANNOT, "There is no {device} device here that PyTorch can use.", "Choose auto, or one of {usable}."
    ),
    "no_native": Sentence(
        CANNOT, "The native kernels do not run {name} on {device}.", "Leave out --kernel native."
    ),
    "quant_refused": Sentence(CANNOT, "{name} cannot be kept as {quant} on {device}.", "Choose auto, or {usable}."),
    "bitsandbytes": Sentence(
        CANNOT, "{quant} needs the package bitsandbytes, which is not here.", "Install it, or choose auto."
    ),
    # -- how well it runs
    "memory_short": Sentence(
        CANNOT,
        "The pair needs about {needs}, and {free} of {where} is free.",
        "Choose a smaller pair, a closer quantisation (nf4), or close other programs.",
    ),
    "memory_beside": Sentence(
        SLOW,
        "The pair needs about {needs}, and {free} of {where} is free while the pair in use is still loaded.",
        "It can be loaded: the pair in use makes room first, and messages wait meanwhile.",
    ),
    "memory_tight": Sentence(
        SLOW,
        "The pair needs about {needs}, and {free} of {where} is free: that is tight.",
        "Close other programs, or choose a smaller pair.",
    ),
    "memory_unknown": Sentence(
        FITS, "How much of {where} is free could not be found out; the pair needs about {needs}."
    ),
    "gpu_better": Sentence(
        SLOW,
        "{name} is large for this processor: about {rate} tokens per second without drafts.",
        "Choose a model of at most {parameters} parameters, a closer quantisation, or a machine with a GPU.",
    ),
    "nf4_on_cpu": Sentence(
        SLOW,
        "This processor writes NF4 weights out in full for every product: that saves memory and no time.",
        "Choose auto where memory allows.",
    ),
    "dequantised": Sentence(
        FITS,
        "The numbers of {name} ({types}) cannot be multiplied as they are: dequantised they take {mib} instead of "
        "{file_mib}.",
    ),
    "own_grid": Sentence(FITS, "{name} runs on the GGUF's own numbers ({types})."),
    "requantised": Sentence(
        FITS,
        "{quant} rounds the weights of {name}: answers may be a little worse, drafts stay lossless.",
        "Choose auto where memory allows.",
    ),
    "requantised_again": Sentence(
        FITS,
        "{quant} rounds the weights of {name} a second time, which costs a small model much of its quality.",
        "Choose auto for its best answers.",
    ),
    "context_short": Sentence(FITS, "{name} reads at most {context} tokens, prompt and reply together."),
    "no_chat_template": Sentence(
        FITS,
        "{name} has no chat template: it sees a conversation as plain User: and Assistant: lines.",
        "Choose its instruct or chat version for conversations.",
    ),
    # -- how target and drafter go together
    "tokenisers_differ": Sentence(
        SLOW,
        "{drafter} and {target} cut text into different tokens: drafts are written as text and cut anew.",
        "A drafter of the target's own family costs less; ngram works with every model.",
    ),
    "tokenisers_unread": Sentence(
        FITS, "Whether {drafter} and {target} share a tokeniser shows when they are loaded."
    ),
    "tokenisers_cut_otherwise": Sentence(
        FITS,
        "{drafter} and {target} share their tokens and cut some text differently: a few more drafts may be rejected.",
    ),
    "padded_vocabulary": Sentence(
        FITS,
        "{target} and {drafter} share {size} tokens; their weights have {target_rows} and {drafter_rows} rows. "
        "The rows beyond are padding, and never written.",
    ),
    "head_of_another_target": Sentence(
        SLOW,
        "The head {head} was trained for {made_for}: for {target} its guesses may be worth little.",
        "Choose a head that was trained for this target.",
    ),
    "head_size": Sentence(
        CANNOT,
        "The head {head} does not fit {target}: its {what} is {theirs}, the target's {ours}.",
        "Choose a head that was trained for this target, or ngram.",
    ),
    "drafter_larger": Sentence(
        SLOW,
        "{drafter} is no quicker than {target}, so its drafts cost more time than they save.",
        "Choose a drafter of a tenth of the target's size, or ngram.",
    ),
    "drafter_context_shorter": Sentence(
        FITS, "{drafter} reads {short} tokens and {target} {long}: beyond its end a reply goes on without its drafts."
    ),
}  # fmt: skip


def diagnose(code: str, /, **values: str) -> Diagnostic:
    """A diagnostic with its sentences filled in. Raises KeyError for an unknown code or a value that is missing."""
    sentence = DIAGNOSTIC_TEXTS[code]
    message, advice = (text.format(**values) for text in (sentence.message, sentence.advice))
    return Diagnostic(code, sentence.level, message, advice, tuple(values.items()))


def worst(diagnostics: Iterable[Diagnostic]) -> FitLevel:
    """FITS where there are none."""
    order = list(FitLevel)
    return max((diagnostic.level for diagnostic in diagnostics), key=order.index, default=FitLevel.FITS)


def worst_first(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Of one level as they were."""
    order = list(FitLevel)
    return tuple(sorted(diagnostics, key=lambda diagnostic: -order.index(diagnostic.level)))


class ModelRefused(LoadError):
    """A model that cannot be loaded, found out from what it says of itself. diagnostic: why, and what to try."""

    def __init__(self, code: str, /, **values: str) -> None:
        self.diagnostic = diagnose(code, **values)
        super().__init__(self.diagnostic.text)
