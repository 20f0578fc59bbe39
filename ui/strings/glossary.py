"""The glossary: every word of the field that the page uses, every figure on it, and links to their entries. Plain data.

The words are `term.NAME` (its name), `term.NAME.is` (what it means) and, where there is one, `term.NAME.formula`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LEVIATHAN = "Leviathan et al., arXiv:2211.17192"
CHEN = "Chen et al., arXiv:2302.01318"
EAGLE = "Li et al. (EAGLE-3), arXiv:2503.01840"
DALIRI = "Daliri et al., Coupling without Communication and Drafter-Invariant Speculative Decoding, arXiv:2408.07978"
ROOFLINE = "Williams et al., Roofline, CACM 52(4), 2009"
VLLM = "vLLM, benchmark metrics"
SAXENA = "Saxena, Prompt Lookup Decoding, 2023"


@dataclass(frozen=True, slots=True)
class Term:
    """name: also that of its words and of its place on the page. unit: a key `term.unit.UNIT`, "" for what is no figure.

    source: where the word, or its formula, comes from; "" where it is this program's own. seen: tabs that show it.
    """

    name: str
    unit: str = ""
    source: str = ""
    seen: tuple[str, ...] = ("chat", "race", "inspect")


TERMS = (
    Term("target", source=f"{LEVIATHAN}, section 2"),
    Term("drafter", source=f"{LEVIATHAN}, section 2"),
    Term("draft_token", "tokens", f"{LEVIATHAN}, section 2.1"),
    Term("k", "tokens", f"{LEVIATHAN}, section 2.1 (γ)", ("chat", "race", "inspect", "learn", "when")),
    Term("mean_k", "tokens", seen=("chat",)),
    Term("round", "tokens", f"{LEVIATHAN}, algorithm 1"),
    Term("forward", source=ROOFLINE, seen=("race", "learn")),
    Term("accepted", "tokens", f"{LEVIATHAN}, section 2.3"),
    Term("rejected", "tokens", f"{LEVIATHAN}, section 2.3"),
    Term("discarded", "tokens"),
    Term("recovered", "tokens", f"{CHEN}, algorithm 2"),
    Term("bonus", "tokens", f"{CHEN}, algorithm 2"),
    Term("plain_token", "tokens"),
    Term("accept_prob", "share", f"{LEVIATHAN}, section 2.3", ("chat", "inspect", "learn")),
    Term("residual", "share", f"{LEVIATHAN}, section 2.3", ("inspect", "learn")),
    Term("rejection_sampling", source=f"{LEVIATHAN}; {CHEN}", seen=("chat", "inspect", "learn")),
    Term("shared_noise", source=DALIRI, seen=("chat", "race", "inspect")),
    Term("alpha", "share", f"{LEVIATHAN}, section 3.1", ("chat", "race", "learn", "when")),
    Term("draft_rate", "share", VLLM, ("chat", "learn")),
    Term("tau", "tokens_round", EAGLE, ("chat", "race", "learn", "when")),
    Term("spec_speed", "tok_s", seen=("chat", "race", "when")),
    Term("baseline", "tok_s", seen=("chat", "race", "when")),
    Term("probe", "tokens", seen=("chat",)),
    Term("spread", "percent", seen=("chat",)),
    Term("now", "tok_s", seen=("chat",)),
    Term("overall", "tok_s", seen=("chat", "race")),
    Term("speedup", "times", f"{LEVIATHAN}, theorem 3.8", ("chat", "race", "learn", "when")),
    Term("request_speedup", "times", seen=("when",)),
    Term("expected", "times", seen=("chat", "learn")),
    Term("cost_ratio", "share", f"{LEVIATHAN}, definition 3.7 (c)", ("learn", "when")),
    Term("tokens", "tokens", seen=("chat", "race")),
    Term("prefill", "seconds", seen=("chat", "race", "when")),
    Term("ttft", "seconds", VLLM, ("chat", "race", "when")),
    Term("tpot", "seconds", VLLM, ("chat",)),
    Term("itl", "seconds", VLLM, ("chat",)),
    Term("own_time", "seconds", seen=("race", "inspect")),
    Term("time_parts", "percent", seen=("chat", "race", "inspect")),
    Term("margin", "logits", seen=("race",)),
    Term("draw", "share", f"{LEVIATHAN}, section 2.3", ("chat", "inspect")),
    Term("surprise", "share", seen=("chat",)),
    Term("memory_bound", "ms", ROOFLINE, ("learn",)),
    Term("compute_bound", "ms", ROOFLINE, ("learn",)),
    Term("throughput", "tok_s", VLLM, ("when",)),
    Term("per_user", "tok_s", seen=("when",)),
    Term("temperature", "number", seen=("chat", "race", "when")),
    Term("ngram", source=SAXENA, seen=("chat", "learn")),
    Term("head", source=EAGLE, seen=("chat", "learn")),
    Term("bit_exact", seen=("chat", "race")),
)

BY_NAME = {term.name: term for term in TERMS}

OF_FIGURE: Mapping[str, str] = {
    "spec": "spec_speed", "plain": "baseline", "speedup": "speedup", "expected": "expected", "now": "now",
    "overall": "overall", "alpha": "alpha", "tau": "tau", "k": "k", "mean_k": "mean_k", "drafted": "draft_token",
    "accepted": "accepted", "rejected": "rejected", "discarded": "discarded", "tokens": "tokens", "ttft": "ttft",
    "by": "alpha", "baseline": "spread", "line": "spec_speed",
    "foot.speed": "spec_speed", "foot.plain": "baseline", "foot.speedup": "speedup", "foot.alpha": "alpha",
    "foot.tau": "tau", "foot.ttft": "ttft",
    "lane.speed": "overall", "lane.tokens": "tokens", "lane.clock": "own_time",
    "verdict.time": "own_time", "verdict.first": "ttft", "verdict.speed": "overall", "verdict.tokens": "tokens",
    "verdict.passes": "forward", "verdict.alpha": "alpha", "verdict.tau": "tau", "verdict.margin": "margin",
    "charts.speed": "overall", "charts.acceptance": "alpha", "charts.lengths": "round", "charts.time": "time_parts",
    "charts.timeline": "round", "charts.cumulative": "tokens", "charts.accepted": "accepted",
    "charts.scatter": "accept_prob",
}  # fmt: skip
"""Which term explains a figure of the page; those of the live panel by their bare names, the others as in `ui.strings`."""


def link(term: str, html: str) -> str:
    """html as a link to its entry. Without scripts it leads to the glossary; with them the entry opens where one is."""
    if term not in BY_NAME:
        raise KeyError(term)
    return f'<a class="term" href="?tab=learn#glossary-{term}" data-term="{term}">{html}</a>'


def figure(name: str, html: str) -> str:
    """The name of a figure, linked to the term that explains it."""
    return link(OF_FIGURE[name], html)
