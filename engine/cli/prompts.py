"""The benchmark's prompts: Spec-Bench's format (Xia et al., arXiv:2401.07851), first turn only, six categories."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.errors import EngineError

CATEGORIES = ("mt_bench", "translation", "summarization", "qa", "math_reasoning", "rag")


@dataclass(frozen=True, slots=True)
class BenchPrompt:
    category: str
    text: str


def read_prompts(path: Path, limit: int | None) -> list[BenchPrompt]:
    """At most `limit` prompts, spread evenly over the categories. Raises EngineError."""
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        prompts = [_prompt(json.loads(line)) for line in lines]
    except OSError as error:
        raise EngineError(f"The prompts cannot be read ({error}): name a JSON lines file with --prompts.") from error
    except (ValueError, LookupError, TypeError) as error:
        raise EngineError(
            f'{path} is not a file of prompts: each line must be like {{"category": "qa", "turns": ["..."]}}.'
        ) from error
    return spread(prompts, limit)


def _prompt(entry: dict[str, object]) -> BenchPrompt:
    turns = entry["turns"]
    if not isinstance(turns, list) or not isinstance(turns[0], str):
        raise ValueError("turns")
    category = str(entry.get("category", ""))
    return BenchPrompt(category if category in CATEGORIES else "mt_bench", turns[0])


def spread(prompts: Sequence[BenchPrompt], limit: int | None) -> list[BenchPrompt]:
    """One of each category in turn, until `limit` or the end; within a category evenly over its length."""
    if limit is None or limit >= len(prompts):
        return list(prompts)
    groups = [[p for p in prompts if p.category == category] for category in CATEGORIES]
    groups = [group for group in groups if group]
    quotas = [0] * len(groups)
    while sum(quotas) < limit:
        open_groups = [i for i, group in enumerate(groups) if quotas[i] < len(group)]
        quotas[min(open_groups, key=lambda i: quotas[i])] += 1
    return [group[j * len(group) // quota] for group, quota in zip(groups, quotas, strict=True) for j in range(quota)]
