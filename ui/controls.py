"""The settings a person can change: one table. What is shown, what is allowed and what is sent all come from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from engine.config import MAX_K, DecodingParams, Rule, SamplingParams
from engine.errors import InvalidParams
from ui.strings import TEXT, Lang, text

MAX_SEED = 2**63 - 1
MAX_TEMPERATURE = 2.0
"""The engine allows more; beyond this a small model writes noise."""

K_AT_FIRST = 3
"""Where the slider stands until somebody moves it."""

DRAFTERS = ("auto", "none", "ngram", "head", "both", "draft_model")
"""All that the page knows, in the order in which it offers them."""

DRAFTERS_AT_START = ("none", "ngram")
"""What there is in any case, until the engine is ready and says what it has."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line fixes for the page. k None: automatic."""

    lang: Lang | None = None
    drafter: str = "auto"
    k: int | None = None
    max_new_tokens: int = 2048
    queue_size: int = 32


@dataclass(frozen=True, slots=True)
class Control:
    """One setting. `name` is its name in the engine; `low` to `high` in steps of `step` for sliders.

    A "list" is a choice whose entries explain themselves, a line each.
    """

    name: str
    kind: Literal["slider", "choice", "list", "line", "text", "switch"]
    default: float | str | bool
    label: str
    help: str
    low: float = 0
    high: float = 0
    step: float = 1
    choices: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        return self.kind == "slider" and self.step == int(self.step)


TABLE: tuple[Control, ...] = (
    Control("auto_k", "switch", True, "auto_k.label", "auto_k.help"),
    Control("num_speculative_tokens", "slider", K_AT_FIRST, "k.label", "k.help", 0, MAX_K),
    Control("drafter", "list", "auto", "drafter.label", "drafter.help", choices=("auto", *DRAFTERS_AT_START)),
    Control("rule", "choice", Rule.REJECTION.value, "rule.label", "rule.help", choices=tuple(r.value for r in Rule)),
    Control("temperature", "slider", 0.0, "temperature.label", "temperature.help", 0, MAX_TEMPERATURE, 0.05),
    Control("top_p", "slider", 1.0, "top_p.label", "top_p.help", 0.05, 1, 0.05),
    Control("max_new_tokens", "slider", 512, "max_new_tokens.label", "max_new_tokens.help", 1, 2048),
    Control("seed", "line", "", "seed.label", "seed.help", 0, MAX_SEED),
    Control("system", "text", "", "system.label", "system.help"),
    Control("probe_every", "slider", 12, "probe_every.label", "probe_every.help", 0, 64),
    Control("plain_only", "switch", False, "plain_only.label", "plain_only.help"),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """The table's values, checked."""

    system: str
    params: DecodingParams


class Refusal(Exception):
    """A value that is not allowed: which setting, and the key of the sentence about it."""

    def __init__(self, control: Control, key: str) -> None:
        super().__init__(control.name)
        self.control = control
        self.key = key

    def sentence(self, lang: Lang) -> str:
        control = self.control
        choices = ", ".join(choice_label(choice, lang) for choice in control.choices)
        return text(
            self.key,
            lang,
            label=text(control.label, lang),
            low=f"{control.low:g}",
            high=f"{control.high:g}",
            choices=choices,
        )


def table(options: Options, drafters: Sequence[str] | None = None) -> tuple[Control, ...]:
    """The table with what the command line and the loaded engine (None: not yet) say about defaults and limits."""
    offered = sorted(("auto", *(drafters or DRAFTERS_AT_START)), key=_place)

    def adapted(control: Control) -> Control:
        if control.name == "auto_k":
            return replace(control, default=options.k is None)
        if control.name == "num_speculative_tokens":
            return replace(control, default=K_AT_FIRST if options.k is None else options.k)
        if control.name == "drafter":
            return replace(control, default=default_drafter(options.drafter), choices=tuple(offered))
        if control.name == "max_new_tokens":
            return replace(control, default=min(512, options.max_new_tokens), high=options.max_new_tokens)
        return control

    return tuple(adapted(control) for control in TABLE)


def _place(drafter: str) -> int:
    return DRAFTERS.index(drafter) if drafter in DRAFTERS else len(DRAFTERS)


def default_drafter(asked: str) -> str:
    """The drafter named on the command line. A head or a model given there is what "auto" then takes."""
    return asked if asked in ("none", "ngram") else "auto"


def choice_label(choice: str, lang: Lang) -> str:
    """The words for a rule or a drafter; a name that has none stands for itself."""
    for key in (f"drafter.{choice}", f"rule.{choice}"):
        if key in TEXT:
            return text(key, lang)
    return choice


def choice_line(choice: str, lang: Lang) -> str:
    """The same with what it is good for on a second line, where there are words for that."""
    key = f"drafter.{choice}.help"
    return f"{choice_label(choice, lang)}\n{text(key, lang)}" if key in TEXT else choice_label(choice, lang)


def settings(controls: Sequence[Control], values: Sequence[object]) -> Settings:
    """Check raw values in the table's order. Raises Refusal for the first that is not allowed."""
    checked = {c.name: check(c, value) for c, value in zip(controls, values, strict=True)}
    seed = checked["seed"]
    sampling = SamplingParams(
        temperature=float(checked["temperature"]), top_p=float(checked["top_p"]), seed=int(seed) if seed != "" else None
    )
    try:
        params = DecodingParams(
            sampling=sampling,
            drafter=str(checked["drafter"]),
            num_speculative_tokens=_k(checked),
            rule=Rule(str(checked["rule"])),
            max_new_tokens=int(checked["max_new_tokens"]),
            probe_every=int(checked["probe_every"]),
        )
    except InvalidParams as error:  # a test keeps the table within the engine's limits, so this should never be
        raise Refusal(next(c for c in controls if c.name == error.field), "notice.range") from error
    return Settings(str(checked["system"]), params)


def _k(checked: Mapping[str, float | int | str | bool]) -> int | None:
    if checked["plain_only"]:
        return 0
    return None if checked["auto_k"] else int(checked["num_speculative_tokens"])


def check(control: Control, value: object) -> float | int | str | bool:
    """One value, checked and converted. Raises Refusal."""
    if control.kind == "switch":
        return bool(value)
    if control.kind == "text":
        return sendable(value) if isinstance(value, str) else ""
    if control.kind in ("choice", "list"):
        if value not in control.choices:
            raise Refusal(control, "notice.choice")
        return str(value)
    if control.kind == "line":
        return _seed(control, value)
    return _number(control, value)


def sendable(written: str) -> str:
    """Lone surrogates, which no encoding allows, become question marks."""
    return written.encode("utf-8", "replace").decode("utf-8")


def _number(control: Control, value: object) -> float | int:
    key = "notice.whole" if control.whole else "notice.range"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Refusal(control, key)
    if not control.low <= value <= control.high or (control.whole and value != int(value)):
        raise Refusal(control, key)
    return int(value) if control.whole else float(value)


def _seed(control: Control, value: object) -> int | str:
    """Blank stays blank: the engine then picks a seed and says which."""
    written = "" if value is None else str(value).strip()
    if not written:
        return ""
    digits = written.isascii() and written.isdigit() and len(written) <= len(str(MAX_SEED))
    if not digits or int(written) > MAX_SEED:
        raise Refusal(control, "notice.seed")
    return int(written)
