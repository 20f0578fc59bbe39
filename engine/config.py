"""What goes in: load-time and per-request settings. Frozen, plain, validated when they are made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from engine.errors import InvalidParams

MAX_K = 16
"""Largest number of draft tokens a round may have."""

USUAL_K = 3
"""Draft tokens a round where K is fixed and nothing says at what."""

MAX_STOPS, MAX_STOP = 16, 200
"""How many stop strings there may be, and how many characters each may have."""

EMBEDDED = "embedded"
"""The default model, as a target or a drafter."""

QUANTS = ("auto", "gguf", "nf4", "int8", "bf16", "fp32")
"""How weights may be kept."""

COMPUTE = ("auto", "bf16", "fp16", "fp32")
"""Number formats that quantised layers multiply in."""

DEVICES = ("auto", "cpu", "cuda", "mps")

KERNELS = ("auto", "native", "torch")

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


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and the most that a setting may be. whole: nothing between whole numbers."""

    low: float
    high: float
    whole: bool = False


BOUNDS: Mapping[str, Bounds] = {
    "temperature": Bounds(0.0, 5.0),
    "top_k": Bounds(0, 1_000_000, whole=True),
    "top_p": Bounds(0.0, 1.0),
    "min_p": Bounds(0.0, 1.0),
    "repetition_penalty": Bounds(0.1, 10.0),
    "frequency_penalty": Bounds(-2.0, 2.0),
    "presence_penalty": Bounds(-2.0, 2.0),
    "logit_bias": Bounds(-100.0, 100.0),
    "seed": Bounds(0, 2**63 - 1, whole=True),
    "num_speculative_tokens": Bounds(0, MAX_K, whole=True),
    "max_new_tokens": Bounds(1, 1_000_000, whole=True),
    "probe_every": Bounds(0, 10_000, whole=True),
    "threads": Bounds(1, 1024, whole=True),
    "max_waiting": Bounds(1, 10_000, whole=True),
    "cache_mib": Bounds(16, 1_000_000, whole=True),
}
"""Of every setting that is a number, for whoever offers or checks one. Its default is that of its class below."""

TOKEN_IDS = Bounds(0, 10_000_000, whole=True)
"""More than any vocabulary has."""


def parse_k(value: object) -> int | None:
    """K as it is asked for: "auto" or None is None; a whole number, also one that is written out, is itself. Whether it
    is in range is for DecodingParams to say. Raises InvalidParams."""
    if value is None or value == "auto":
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    digits = value.strip() if isinstance(value, str) else ""
    if digits.isdecimal() and len(digits) <= 4:
        return int(digits)
    name = "num_speculative_tokens"
    raise InvalidParams(name, f"{name} must be auto or a whole number between 0 and {MAX_K}, not {repr(value)[:60]}.")


def format_k(k: int | None) -> int | str:
    """As it is asked for: None is "auto"."""
    return "auto" if k is None else k


def _check(name: str, value: float, bounds: Bounds | None = None) -> None:
    """bounds: by default those of the setting of that name. Raises InvalidParams."""
    bounds = bounds or BOUNDS[name]
    if bounds.whole and (isinstance(value, bool) or not isinstance(value, int)):
        raise InvalidParams(
            name, f"{name} must be a whole number between {bounds.low} and {bounds.high}, not {value!r}."
        )
    _in_range(name, value, bounds.low, bounds.high)


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
    repetition_penalty sees prompt and reply, frequency and presence penalties the reply only. seed None: the engine
    picks one and reports it in `Prefilled.seed`. Raises InvalidParams.
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
        _check("temperature", self.temperature)
        _check("top_k", self.top_k)
        _check("top_p", self.top_p)
        if self.top_p == 0.0:
            raise InvalidParams("top_p", "top_p must be above 0 (1 turns it off).")
        _check("min_p", self.min_p)
        _check("repetition_penalty", self.repetition_penalty)
        _check("frequency_penalty", self.frequency_penalty)
        _check("presence_penalty", self.presence_penalty)
        for token_id, bias in self.logit_bias:
            _check("logit_bias", token_id, TOKEN_IDS)
            _check("logit_bias", bias)
        if self.seed is not None:
            _check("seed", self.seed)

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is always taken: temperature 0."""
        return self.temperature == 0.0


@dataclass(frozen=True, slots=True)
class DecodingParams:
    """One request. `num_speculative_tokens` is K: None lets the controller choose it for each round by what it
    measures; 0 is plain decoding by the very same loop.

    drafter: "auto", the best that the engine has, or one of `Facts.drafters`: "none", "ngram", "head", "both" (n-gram
    and head), "draft_model". probe_every: while speculating, every so many rounds one K = 0 round measures the plain
    baseline (the first at round 2); 0 turns probes off. detail: what else to report of each token. Raises
    InvalidParams.
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
            _check("num_speculative_tokens", self.num_speculative_tokens)
        if self.rule not in tuple(Rule):
            raise InvalidParams("rule", f"rule must be one of {', '.join(Rule)}, not {self.rule!r}.")
        _check("max_new_tokens", self.max_new_tokens)
        if len(self.stop) > MAX_STOPS or not all(isinstance(s, str) and 0 < len(s) <= MAX_STOP for s in self.stop):
            raise InvalidParams("stop", f"stop takes at most {MAX_STOPS} strings of 1 to {MAX_STOP} characters each.")
        _check("probe_every", self.probe_every)
        if self.detail not in tuple(Detail):
            raise InvalidParams("detail", f"detail must be one of {', '.join(Detail)}, not {self.detail!r}.")


ALLOWED: Mapping[str, tuple[str, ...]] = {
    "device": DEVICES,
    "drafter_device": DEVICES,
    "compute": COMPUTE,
    "kernel": KERNELS,
    "quant": QUANTS,
    "drafter_quant": QUANTS,
}
"""What the settings of `EngineConfig` that are words may be."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What is loaded, and where. target: "embedded" (the default model), a local folder, a GGUF file, a hub
    id, or a preset of `pairs`.

    drafter: "auto" (the head that was trained for the target, where there is one), "ngram" (neither head nor model),
    "none", or a head or a model (as target). threads None: from the CPU quota. drafter_device: of a drafter model,
    "auto" for the target's (a head is always with its target). kernel: "native" (compiled on this machine), "torch", or
    "auto", native where it can be had. quant, drafter_quant: how the weights are kept: one of QUANTS; "auto" never
    rounds them further than they were. compute: what layers quantised by bitsandbytes multiply in: one of COMPUTE.
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
        for name, allowed in ALLOWED.items():
            if (value := getattr(self, name)) not in allowed:
                names = ", ".join(allowed[:-1])
                raise InvalidParams(name, f"{name} must be {names} or {allowed[-1]}, not {value!r}.")
        if self.kernel == "native" and self.quant not in ON_GRID:
            raise InvalidParams(
                "quant",
                f"the native kernels run only the GGUF's own grid: leave out --kernel native or --quant {self.quant}.",
            )
        if self.threads is not None:
            _check("threads", self.threads)
        _check("max_new_tokens", self.max_new_tokens)
        _check("max_waiting", self.max_waiting)
        _check("cache_mib", self.cache_mib)
