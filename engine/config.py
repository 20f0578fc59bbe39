"""What goes in: load-time and per-request settings. Frozen, plain, validated when they are made."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

from engine.errors import InvalidParams

MAX_K = 16
"""Largest number of draft tokens a round may have."""

EMBEDDED = "embedded"
"""The default model, as a target or a drafter."""

QUANTS = ("auto", "gguf", "nf4", "int8", "bf16", "fp32")
"""How weights may be kept."""

COMPUTE = ("auto", "bf16", "fp16", "fp32")
"""Number formats that quantised layers multiply in."""

DEVICES = ("auto", "cpu", "cuda", "mps")

ON_GRID = ("auto", "gguf")
"""Those that leave a GGUF's weights as they are, as the native kernels do."""

DRAFTER_WORDS = ("auto", "ngram", "none")
"""Drafters that are no folder and no model of the hub."""

NO_DRAFTER_WORDS = ("head", "both", "draft_model", "off", "n-gram")
"""What is easily taken for one of DRAFTER_WORDS; nobody means a model of the hub by it."""


class Rule(StrEnum):
    """How drafts are tested; both rules leave the target's distribution unchanged (see `verify`)."""

    REJECTION = "rejection"
    SHARED_NOISE = "shared_noise"


class Detail(StrEnum):
    """How much of what is behind each token the events tell. Nothing of it changes the reply."""

    OFF = "off"
    PROBS = "probs"  # what both models made of it, at temperature 1 without filters: nearly free
    FULL = "full"  # and the top lists of both, for a closer look: several percent of a round


def _in_range(name: str, value: float, low: float, high: float) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or (isinstance(value, float) and not math.isfinite(value)):
        raise InvalidParams(name, f"{name} must be a number between {low:g} and {high:g}, not {value!r}.")
    if not low <= value <= high:
        raise InvalidParams(
            name, f"{name} must be between {_written(low)} and {_written(high)}, not {_written(value)}."
        )


def _written(value: float) -> str:
    """Whole numbers in full, so that 2**63 does not read like 2**63 - 1; but a hundred digits help nobody."""
    if isinstance(value, int):
        return str(value) if abs(value) < 10**20 else "a number that long"
    return f"{value:g}"


def _integer(name: str, value: int, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidParams(name, f"{name} must be a whole number between {low} and {high}, not {value!r}.")
    _in_range(name, value, low, high)


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation; role is "system", "user" or "assistant"."""

    role: str
    content: str

    def __post_init__(self) -> None:
        if self.role not in ("system", "user", "assistant"):
            raise InvalidParams("role", f"role must be system, user or assistant, not {self.role!r}.")
        if not isinstance(self.content, str):
            raise InvalidParams("content", "a message's content must be text.")


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a token is drawn from logits. The same values serve the drafter and the target.

    temperature 0 is greedy; top_k 0, top_p 1, min_p 0, repetition_penalty 1, the other penalties 0: off.
    repetition_penalty sees prompt and reply, frequency and presence penalties the reply only.
    seed None: the engine picks one and reports it in `Prefilled.seed`. Raises InvalidParams.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int | None = None

    def __post_init__(self) -> None:
        _in_range("temperature", self.temperature, 0.0, 5.0)
        _integer("top_k", self.top_k, 0, 1_000_000)
        _in_range("top_p", self.top_p, 0.0, 1.0)
        if self.top_p == 0.0:
            raise InvalidParams("top_p", "top_p must be above 0 (1 turns it off).")
        _in_range("min_p", self.min_p, 0.0, 1.0)
        _in_range("repetition_penalty", self.repetition_penalty, 0.1, 10.0)
        _in_range("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _in_range("presence_penalty", self.presence_penalty, -2.0, 2.0)
        for token_id, bias in self.logit_bias:
            _integer("logit_bias", token_id, 0, 10_000_000)
            _in_range("logit_bias", bias, -100.0, 100.0)
        if self.seed is not None:
            _integer("seed", self.seed, 0, 2**63 - 1)

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is always taken: temperature 0."""
        return self.temperature == 0.0


@dataclass(frozen=True, slots=True)
class DecodingParams:
    """One request. `num_speculative_tokens` is K: None lets the controller choose it for each round by what it
    measures; 0 is plain decoding by the very same loop.

    drafter: "auto", the best that the engine has, or one of `Facts.drafters`: "none", "ngram", "head", "both" (n-gram and
    head), "draft_model".
    probe_every: while speculating, every so many rounds one K = 0 round measures the plain baseline
    (the first at round 2); 0 turns probes off. detail: what else to report of each token.
    Raises InvalidParams.
    """

    sampling: SamplingParams = field(default_factory=SamplingParams)
    drafter: str = "auto"
    num_speculative_tokens: int | None = None
    rule: Rule = Rule.REJECTION
    max_new_tokens: int = 512
    stop: tuple[str, ...] = ()
    probe_every: int = 12
    detail: Detail = Detail.OFF

    def __post_init__(self) -> None:
        if not isinstance(self.drafter, str) or not self.drafter:
            raise InvalidParams("drafter", f"drafter must be a name such as auto or ngram, not {self.drafter!r}.")
        if self.num_speculative_tokens is not None:
            _integer("num_speculative_tokens", self.num_speculative_tokens, 0, MAX_K)
        if self.rule not in tuple(Rule):
            raise InvalidParams("rule", f"rule must be one of {', '.join(Rule)}, not {self.rule!r}.")
        _integer("max_new_tokens", self.max_new_tokens, 1, 1_000_000)
        if len(self.stop) > 16 or not all(isinstance(s, str) and 0 < len(s) <= 200 for s in self.stop):
            raise InvalidParams("stop", "stop takes at most 16 strings of 1 to 200 characters each.")
        _integer("probe_every", self.probe_every, 0, 10_000)
        if self.detail not in tuple(Detail):
            raise InvalidParams("detail", f"detail must be one of {', '.join(Detail)}, not {self.detail!r}.")


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What is loaded, and where. target: "embedded" (the default model), a local folder, a GGUF file, a hub
    id, or a preset of `pairs`.

    drafter: "auto" (the head that was trained for the target, where there is one), "ngram" (neither head nor model),
    "none", or a head or a model (as target). threads None: from the CPU quota.
    drafter_device: of a drafter model, "auto" for the target's (a head is always with its target).
    kernel: "native" (compiled on this machine), "torch", or "auto", native where it can be had.
    quant, drafter_quant: how the weights are kept: one of QUANTS; "auto" never rounds them further than they were.
    compute: what layers quantised by bitsandbytes multiply in: one of COMPUTE.
    max_new_tokens caps every request. cache_mib bounds the pool of KV caches. Raises InvalidParams.
    """

    target: str = EMBEDDED
    drafter: str = "auto"
    device: str = "auto"
    threads: int | None = None
    offline: bool = False
    max_new_tokens: int = 2048
    max_waiting: int = 32
    cache_mib: int = 512
    kernel: str = "auto"
    quant: str = "auto"
    drafter_device: str = "auto"
    drafter_quant: str = "auto"
    compute: str = "auto"

    def __post_init__(self) -> None:
        if not self.target:
            raise InvalidParams("target", "target must name a model: embedded, a folder, or a hub id.")
        if not self.drafter.strip():
            raise InvalidParams("drafter", "drafter must be auto, ngram, none, or the name of a model.")
        if self.drafter not in DRAFTER_WORDS and self.drafter.strip().lower() in (*DRAFTER_WORDS, *NO_DRAFTER_WORDS):
            name = self.drafter.strip()
            raise InvalidParams(
                "drafter",
                f"drafter must be auto (the model's trained head and n-gram), ngram, none, or the name of a head or a "
                f"model, not {name!r}: for a folder of that name write ./{name}.",
            )
        for name in ("device", "drafter_device"):
            if getattr(self, name) not in DEVICES:
                raise InvalidParams(name, f"{name} must be auto, cpu, cuda or mps, not {getattr(self, name)!r}.")
        if self.compute not in COMPUTE:
            raise InvalidParams("compute", f"compute must be auto, bf16, fp16 or fp32, not {self.compute!r}.")
        if self.kernel not in ("auto", "native", "torch"):
            raise InvalidParams("kernel", f"kernel must be auto, native or torch, not {self.kernel!r}.")
        for name in ("quant", "drafter_quant"):
            if getattr(self, name) not in QUANTS:
                names = ", ".join(QUANTS[:-1])
                raise InvalidParams(name, f"{name} must be {names} or {QUANTS[-1]}, not {getattr(self, name)!r}.")
        if self.kernel == "native" and self.quant not in ON_GRID:
            raise InvalidParams(
                "quant",
                f"the native kernels run only the GGUF's own grid: leave out --kernel native or --quant {self.quant}.",
            )
        if self.threads is not None:
            _integer("threads", self.threads, 1, 1024)
        _integer("max_new_tokens", self.max_new_tokens, 1, 1_000_000)
        _integer("max_waiting", self.max_waiting, 1, 10_000)
        _integer("cache_mib", self.cache_mib, 16, 1_000_000)
