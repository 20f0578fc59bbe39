"""The settings a person can change: one table. What is shown, what is allowed and what is sent all come from it."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Literal

from engine import (
    BOUNDS,
    MAX_K,
    MAX_STOP,
    MAX_STOPS,
    USUAL_K,
    Bounds,
    DecodingParams,
    Detail,
    EngineConfig,
    Rule,
    SamplingParams,
    format_k,
    parse_k,
)
from ui.strings import TEXT, Lang, text

USUAL, SAMPLING, LOADED = DecodingParams(), SamplingParams(), EngineConfig()
"""Whose values are the defaults: of a request, of how its tokens are drawn, of what is loaded."""

DRAFTERS = ("auto", "none", "ngram", "head", "both", "draft_model")
"""All that the page knows, in the order in which it offers them."""

DRAFTERS_AT_START = ("none", "ngram")
"""What there is in any case, until the engine is ready and says what it has."""

Value = float | int | str | bool
"""What a control holds."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line fixes for the page. k None: automatic.

    models_folder: whose models may be loaded by their name in it. served: others than who started the app may use the
    page, so nothing else on this machine may be loaded from it.
    """

    lang: Lang | None = None
    drafter: str = "auto"
    k: int | None = None
    max_new_tokens: int = LOADED.max_new_tokens
    queue_size: int = LOADED.max_waiting
    models_folder: str | None = None
    served: bool = False


@dataclass(frozen=True, slots=True)
class Narrowed:
    """Less than the engine allows, and why the page offers no more."""

    low: float
    high: float
    why: str


@dataclass(frozen=True, slots=True)
class Control:
    """One setting. `name` is its name in the engine, whose bounds are its range unless it is narrowed.

    step: of sliders and numbers. A "list" is a choice whose entries explain themselves, a line each; "lines" is text of
    which each line counts.
    """

    name: str
    group: str
    kind: Literal["slider", "number", "choice", "list", "line", "lines", "text", "switch"]
    default: Value
    label: str
    help: str
    step: float = 1
    choices: tuple[str, ...] = ()
    narrowed: Narrowed | None = None

    @property
    def low(self) -> float:
        return self._range.low

    @property
    def high(self) -> float:
        return self._range.high

    @property
    def _range(self) -> Bounds | Narrowed:
        return self.narrowed or BOUNDS.get(self.name, NO_NUMBER)

    @property
    def whole(self) -> bool:
        return self.kind in ("slider", "number") and self.step == int(self.step)


NO_NUMBER = Bounds(0, 0)

GROUPS = ("decoding", "sampling", "limits", "system")
"""In the order in which they are shown; the table is sorted by it."""

K_CHOICES = ("auto", *map(str, range(MAX_K + 1)))


def _longest(most: int) -> Narrowed:
    return Narrowed(BOUNDS["max_new_tokens"].low, most, "the engine was started with this as the longest reply")


TABLE: tuple[Control, ...] = (
    Control("drafter", "decoding", "list", USUAL.drafter, "drafter.label", "drafter.help",
            choices=("auto", *DRAFTERS_AT_START)),
    Control("num_speculative_tokens", "decoding", "choice", str(format_k(USUAL.num_speculative_tokens)),
            "k.label", "k.help", choices=K_CHOICES),
    Control("rule", "decoding", "choice", USUAL.rule.value, "rule.label", "rule.help",
            choices=tuple(r.value for r in Rule)),
    Control("probe_every", "decoding", "number", USUAL.probe_every, "probe_every.label", "probe_every.help",
            narrowed=Narrowed(0, 64, "a plain round that comes more seldom tells nothing in a reply of usual length")),
    Control("record", "decoding", "switch", False, "record.label", "record.help"),
    Control("temperature", "sampling", "slider", SAMPLING.temperature, "temperature.label", "temperature.help", 0.05,
            narrowed=Narrowed(0, 2, "beyond this a small model writes noise")),
    Control("top_p", "sampling", "slider", SAMPLING.top_p, "top_p.label", "top_p.help", 0.05,
            narrowed=Narrowed(0.05, 1, "0 would leave no token, so the slider begins one step above")),
    Control("min_p", "sampling", "slider", SAMPLING.min_p, "min_p.label", "min_p.help", 0.01),
    Control("top_k", "sampling", "number", SAMPLING.top_k, "top_k.label", "top_k.help",
            narrowed=Narrowed(0, 1000, "what comes after the thousand likeliest is hardly ever drawn")),
    Control("repetition_penalty", "sampling", "number", SAMPLING.repetition_penalty,
            "repetition_penalty.label", "repetition_penalty.help", 0.05,
            narrowed=Narrowed(0.5, 2, "beyond this a reply falls apart")),
    Control("frequency_penalty", "sampling", "number", SAMPLING.frequency_penalty,
            "frequency_penalty.label", "frequency_penalty.help", 0.1),
    Control("presence_penalty", "sampling", "number", SAMPLING.presence_penalty,
            "presence_penalty.label", "presence_penalty.help", 0.1),
    Control("seed", "sampling", "line", "", "seed.label", "seed.help"),
    Control("max_new_tokens", "limits", "number", USUAL.max_new_tokens, "max_new_tokens.label", "max_new_tokens.help",
            narrowed=_longest(LOADED.max_new_tokens)),
    Control("stop", "limits", "lines", "", "stop.label", "stop.help"),
    Control("system", "system", "text", "", "system.label", "system.help"),
)  # fmt: skip


def control_of(name: str, controls: Sequence[Control] = TABLE) -> Control:
    return next(control for control in controls if control.name == name)


@dataclass(frozen=True, slots=True)
class Settings:
    """The table's values, checked."""

    system: str
    params: DecodingParams


@dataclass(frozen=True, slots=True)
class Correction:
    """A value that was not allowed: which setting, what is used instead, the key of the sentence, what was there."""

    control: Control
    value: Value
    key: str
    given: str = ""

    def sentence(self, lang: Lang) -> str:
        """Plain text, in which `given` may hold anything: escape it before it becomes HTML."""
        return text(
            self.key,
            lang,
            label=text(self.control.label, lang),
            low=_shown(self.control, self.control.low, lang),
            high=_shown(self.control, self.control.high, lang),
            used=_shown(self.control, self.value, lang),
            given=_shown(self.control, self.given, lang),
        )


def table(options: Options, drafters: Sequence[str] | None = None) -> tuple[Control, ...]:
    """The table with what the command line and the loaded engine (None: not yet) say about defaults and limits."""
    offered = sorted({"auto", *(drafters or DRAFTERS_AT_START)}, key=_place)

    def adapted(control: Control) -> Control:
        if control.name == "num_speculative_tokens":
            return replace(control, default=str(format_k(options.k)))
        if control.name == "drafter":
            return replace(control, default=default_drafter(options.drafter), choices=tuple(offered))
        if control.name == "max_new_tokens":
            most = options.max_new_tokens
            return replace(control, default=min(USUAL.max_new_tokens, most), narrowed=_longest(most))
        return control

    return tuple(adapted(control) for control in TABLE)


def _place(drafter: str) -> tuple[int, str]:
    return (DRAFTERS.index(drafter) if drafter in DRAFTERS else len(DRAFTERS), drafter)


def default_drafter(option: str) -> str:
    """The drafter named on the command line. A head or a model given there is what "auto" then takes."""
    return option if option in ("none", "ngram") else "auto"


def choice_label(setting: str, choice: str, lang: Lang) -> str:
    """The words for what can be chosen of a setting; what has none stands for itself, as most numbers do."""
    key = f"{_WORDS[setting]}.{choice}"
    return text(key, lang) if choice in _WORDED and key in TEXT else choice


_WORDS = {"drafter": "drafter", "num_speculative_tokens": "k", "rule": "rule"}
"""How the keys of the words for the choices of each begin."""

_WORDED = {*DRAFTERS, *K_CHOICES, *Rule}
"""Anything else may be what somebody gave, and happen to be the end of a key."""


def drafter_line(drafter: str, lang: Lang) -> str:
    """The words for a drafter, with what it is good for on a second line, where there are words for that."""
    label = choice_label("drafter", drafter, lang)
    return f"{label}\n{text(f'drafter.{drafter}.help', lang)}" if drafter in DRAFTERS else label


# -- checks ------------------------------------------------------------------------------------------------------------


def settings(controls: Sequence[Control], values: Sequence[object]) -> tuple[Settings, tuple[Correction, ...]]:
    """Raw values, in the table's order, as the engine takes them, and what had to be corrected. Never refuses."""
    checked, corrections = check_all(controls, {c.name: v for c, v in zip(controls, values, strict=True)})
    seed = checked["seed"]
    sampling = SamplingParams(
        temperature=float(checked["temperature"]),
        top_k=int(checked["top_k"]),
        top_p=float(checked["top_p"]),
        min_p=float(checked["min_p"]),
        repetition_penalty=float(checked["repetition_penalty"]),
        frequency_penalty=float(checked["frequency_penalty"]),
        presence_penalty=float(checked["presence_penalty"]),
        seed=int(seed) if seed != "" else None,
    )
    params = DecodingParams(
        sampling=sampling,
        drafter=str(checked["drafter"]),
        num_speculative_tokens=parse_k(checked["num_speculative_tokens"]),
        rule=Rule(str(checked["rule"])),
        max_new_tokens=int(checked["max_new_tokens"]),
        stop=stops(str(checked["stop"])),
        probe_every=int(checked["probe_every"]),
        detail=Detail.FULL if checked["record"] else Detail.PROBS,
    )
    return Settings(str(checked["system"]), params), corrections


def check_all(
    controls: Sequence[Control], values: Mapping[str, object]
) -> tuple[dict[str, Value], tuple[Correction, ...]]:
    """Every value that the table knows, checked; names it does not know are left out."""
    pairs = {c.name: check(c, values[c.name]) for c in controls if c.name in values}
    return {name: value for name, (value, _) in pairs.items()}, tuple(c for _, c in pairs.values() if c)


def check(control: Control, value: object) -> tuple[Value, Correction | None]:
    """One value as its control may hold it, and what was corrected."""
    return _CHECKS[control.kind](control, value)


def _corrected(control: Control, used: Value, key: str, given: object = "") -> tuple[Value, Correction]:
    return used, Correction(control, used, key, _written(given))


def sendable(written: str) -> str:
    """Lone surrogates, which no encoding allows, become question marks."""
    return written.encode("utf-8", "replace").decode("utf-8")


def _number(control: Control, value: object) -> tuple[Value, Correction | None]:
    strange = isinstance(value, bool) or (isinstance(value, float) and math.isnan(value))
    if strange or not isinstance(value, (int, float)):
        return _corrected(control, control.default, "correct.number")
    near = min(max(value, control.low), control.high)
    used = round(near) if control.whole else float(near)
    if used == value:
        return used, None
    return _corrected(control, used, "correct.whole" if control.whole else "correct.range", value)


def _switch(control: Control, value: object) -> tuple[Value, Correction | None]:
    return (bool(value), None) if isinstance(value, int) else _corrected(control, control.default, "correct.unreadable")


def upgrade(stored: Mapping[str, object], k_at_start: int | None) -> dict[str, object]:
    """What a browser stored while K was three settings, of which it kept what was not the default, as one of today.

    k_at_start: as `Options.k`, which decided whether automatic was the default.
    """
    name = "num_speculative_tokens"
    k = stored.get(name)
    rest = {key: value for key, value in stored.items() if key not in (name, "auto_k", "plain_only")}
    if isinstance(k, str):
        return rest | {name: k}
    if stored.get("plain_only") is True:
        return rest | {name: "0"}
    if stored.get("auto_k", k_at_start is None):
        return rest | ({name: "auto"} if "auto_k" in stored else {})
    if isinstance(k, (int, float)) and not isinstance(k, bool) and math.isfinite(k):
        return rest | {name: str(round(k))}
    return rest | ({name: str(USUAL_K)} if "auto_k" in stored else {})


def _choice(control: Control, value: object) -> tuple[Value, Correction | None]:
    """A number means the choice that is written so."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    fitting = (one for one in control.choices if one == value or (number and one.isdecimal() and int(one) == value))
    choice = next(fitting, None)
    return (choice, None) if choice is not None else _corrected(control, control.default, "correct.choice", value)


def _seed(control: Control, value: object) -> tuple[Value, Correction | None]:
    """Blank stays blank: the engine then picks a seed and says which."""
    written = "" if value is None else value.strip() if isinstance(value, str) else _written(value)
    digits = written.isascii() and written.isdigit() and len(written) <= len(str(control.high))
    if written and (not digits or int(written) > control.high):
        return _corrected(control, "", "correct.seed", value)
    return (int(written) if written else ""), None


def _text(control: Control, value: object) -> tuple[str, Correction | None]:
    if value is None or isinstance(value, str):
        return sendable(value or ""), None
    return "", Correction(control, "", "correct.unreadable")


def stops(written: str) -> tuple[str, ...]:
    """The strings at which a reply ends, from a text with one a line, where a typed backslash and n breaks the line."""
    lines = (line.removesuffix("\r") for line in written.split("\n"))
    return tuple(line.replace("\\n", "\n") for line in lines if line.strip())


def _stop_lines(control: Control, value: object) -> tuple[Value, Correction | None]:
    written, correction = _text(control, value)
    strings = stops(written)
    if correction or (len(strings) <= MAX_STOPS and all(len(stop) <= MAX_STOP for stop in strings)):
        return written, correction
    fitting = [stop[:MAX_STOP].replace("\n", "\\n") for stop in strings[:MAX_STOPS]]
    return _corrected(control, "\n".join(fitting), "correct.stop")


_CHECKS: Mapping[str, Callable[[Control, object], tuple[Value, Correction | None]]] = {
    "slider": _number,
    "number": _number,
    "switch": _switch,
    "choice": _choice,
    "list": _choice,
    "line": _seed,
    "lines": _stop_lines,
    "text": _text,
}
"""By the kind of control."""


# -- words -------------------------------------------------------------------------------------------------------------


def _shown(control: Control, value: object, lang: Lang) -> str:
    if isinstance(value, str):
        return choice_label(control.name, value, lang) if control.choices else value
    return f"{value:g}" if isinstance(value, float) else str(value)


def _written(given: object, most: int = 24) -> str:
    """What somebody gave, short enough to be quoted. Python would not even write out the longest numbers."""
    if not isinstance(given, (str, int, float)) or (isinstance(given, int) and abs(given) > 10**most):
        return "…"
    whole = f"{given:g}" if isinstance(given, float) else sendable(str(given))
    return whole if len(whole) <= most else whole[: most - 1] + "…"


_BLANK = frozenset(
    map(chr, (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, *range(0x180B, 0x1810),
              *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)))
)  # fmt: skip
"""Characters that show nothing although Unicode counts them as letters, marks or symbols: fillers, variation
selectors."""


def readable(message: object) -> str:
    """The message as text that can be sent on, or "" if a person could not see anything in it."""
    written = sendable(message) if isinstance(message, str) else ""
    visible = any(
        not (char.isspace() or char in _BLANK or unicodedata.category(char) in ("Cf", "Cc")) for char in written
    )
    return written if visible else ""


def corrected(correction: Correction) -> str:
    """What was changed of a setting, in both languages."""
    en, zh = (escape(correction.sentence(lang)) for lang in ("en", "zh"))
    return f'<span class="en" lang="en">{en}</span><span class="zh" lang="zh">{zh}</span>'
