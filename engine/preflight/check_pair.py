"""What there is to say of a checked model by itself, and of how a drafter goes with its target."""

from __future__ import annotations

from collections.abc import Iterator

from engine.config import EngineConfig
from engine.preflight.diagnostics import Diagnostic, diagnose
from engine.preflight.memory import MIB
from engine.preflight.memory_plan import size_text
from engine.preflight.model_info import ModelInfo

SHORT_CONTEXT = 2048


def check_model(model: ModelInfo, is_target: bool) -> Iterator[Diagnostic]:
    """What there is to say of a model by itself."""
    if model.reason is not None:
        yield model.reason
    if not model.here:
        yield diagnose("download", name=model.name, size=size_text(model.file_bytes / MIB))
    if is_target and not model.chat:
        yield diagnose("no_chat_template", name=model.name)
    if is_target and model.reason is None and model.context_len < SHORT_CONTEXT:
        yield diagnose("context_short", name=model.name, context=f"{model.context_len}")


def choose_drafting(
    config: EngineConfig, target: ModelInfo | None, drafter: ModelInfo | None, diagnostics: list[Diagnostic]
) -> str:
    """Who will draft and in which tokens, as `check.Report.drafting`; what speaks against it goes to `diagnostics`."""
    if config.drafter == "none":
        return "none"
    if drafter is None:
        return "ngram"
    if drafter.head is not None:
        diagnostics += _check_head(target, drafter) if target is not None else ()
        return "head"
    if target is None or target.head is not None:
        return "same ids"
    if drafter.context_len < target.context_len:
        diagnostics.append(
            diagnose(
                "drafter_context_shorter",
                drafter=drafter.name,
                target=target.name,
                short=f"{drafter.context_len}",
                long=f"{target.context_len}",
            )
        )
    return _compare_tokenizers(target, drafter, diagnostics)


def _compare_tokenizers(target: ModelInfo, drafter: ModelInfo, diagnostics: list[Diagnostic]) -> str:
    """As `Tokenizer.same_ids` will find when both are loaded, and what it means."""
    names = {"target": target.name, "drafter": drafter.name}
    if target.tokens is None or drafter.tokens is None:
        diagnostics.append(diagnose("tokenisers_unread", **names))
        return "same ids"
    shared_size = min(target.vocab_size or 0, drafter.vocab_size or 0)
    if not target.tokens.same_ids(drafter.tokens, shared_size):
        diagnostics.append(diagnose("tokenisers_differ", **names))
        return "re-encoded"
    behaviours = {tokens.behaviour for tokens in (target.tokens, drafter.tokens)} - {""}
    if len(behaviours) > 1:
        diagnostics.append(diagnose("tokenisers_cut_otherwise", **names))
    if target.vocab_rows != drafter.vocab_rows:
        rows = {"target_rows": f"{target.vocab_rows}", "drafter_rows": f"{drafter.vocab_rows}"}
        diagnostics.append(diagnose("padded_vocabulary", **names, size=f"{shared_size}", **rows))
    return "same ids"


def _check_head(target: ModelInfo, head: ModelInfo) -> Iterator[Diagnostic]:
    head_info = head.head
    assert head_info is not None
    sizes = (
        ("hidden size", head_info.hidden, target.hidden),
        ("vocabulary", head_info.vocabulary, target.vocab_rows),
        ("last layer", max(head_info.layers_of(target.layers)), target.layers),
    )
    for size_name, head_size, target_size in sizes:
        if head_size != target_size if size_name != "last layer" else head_size > target_size:
            yield diagnose(
                "head_size",
                head=head.name,
                target=target.name,
                what=size_name,
                theirs=f"{head_size}",
                ours=f"{target_size}",
            )
            return
    trained_for, name = (text.rpartition("/")[2].lower() for text in (head_info.target, target.name))
    if trained_for and not name.startswith(trained_for):
        yield diagnose("head_of_another_target", head=head.name, target=target.name, made_for=head_info.target)
