"""A target and whoever drafts for it: what a configuration names, loaded and fitted together."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.config import DRAFTER_WORDS, EngineConfig
from engine.errors import EngineError, LoadError
from engine.loading.progress import Progress

if TYPE_CHECKING:
    from engine.drafters.protocol import Drafter
    from engine.heads.load import LoadedHead
    from engine.loading.loaded import Loaded
    from engine.networks.kv_cache import KVCache

log = logging.getLogger(__name__)

CROSS_TOKENIZER = (
    "{drafter} and {target} have different tokenisers: what the drafter writes is read again in the target's tokens, "
    "which changes no text and costs some of the speed."
)


@dataclass(frozen=True, slots=True)
class ModelPair:
    """What a loader returns: the target, and a drafter model or a trained head where there is one.

    note: what a person should know of the drafter, or "". cross_tokenizer: the drafter's tokens are not the target's.
    torch_threads: how many torch should use while this pair is in use; None leaves that alone.
    """

    target: Loaded
    drafter: Loaded | None = None
    threads: int = 1
    head: LoadedHead | None = None
    note: str = ""
    cross_tokenizer: bool = False
    torch_threads: int | None = None

    def head_drafter(self, cache: KVCache) -> Drafter:
        """A fresh one for each reply. cache: the head's own, of the conversation. Raises ValueError where
        there is no head."""
        from engine.drafters.head import HeadDrafter

        if self.head is None:
            raise ValueError("this pair has no head")
        return HeadDrafter(self.head.head, cache, self.head.vocab_size)


Loader = Callable[[EngineConfig, Progress], ModelPair]


def load_pair(config: EngineConfig, progress: Progress) -> ModelPair:
    """Loads what the configuration names. Raises LoadError."""
    from engine.loading import load as loading
    from engine.loading.model_presets import resolve_preset

    config = resolve_preset(config)
    threads = config.threads or loading.default_threads()
    target = loading.load(
        config.target,
        device=config.device,
        threads=threads,
        kernel=config.kernel,
        quant=config.quant,
        compute=config.compute,
        offline=config.offline,
        progress=progress,
    )
    pair = _with_drafter(config, target, threads, progress)
    return replace(pair, torch_threads=_torch_threads([target, *([pair.drafter] if pair.drafter else [])], threads))


def load_failure(error: BaseException) -> str:
    """What went wrong, for a person; what nobody expected is logged too."""
    if isinstance(error, EngineError):
        return str(error)
    log.error("loading failed", exc_info=error)
    return f"The model could not be loaded ({type(error).__name__}: {error}); the log has the details."


def _with_drafter(config: EngineConfig, target: Loaded, threads: int, progress: Progress) -> ModelPair:
    from engine.heads import load as heads
    from engine.loading import load as loading

    if (folder := heads.find_head(config.drafter, config.target, config.offline, progress)) is not None:
        try:
            head = heads.load_head(folder, target, threads)
            return ModelPair(target, threads=threads, head=head, note=head.note)
        except LoadError as error:
            if config.drafter != "auto":
                raise
            log.warning("The reply is drafted by n-gram alone. %s", error)  # nobody asked for just this head
            return ModelPair(target, threads=threads, note=str(error))
    if config.drafter in DRAFTER_WORDS:
        return ModelPair(target, threads=threads)
    drafter = loading.load(
        config.drafter,
        device=config.device if config.drafter_device == "auto" else config.drafter_device,
        threads=threads,
        kernel="auto",
        quant=config.drafter_quant,
        compute=config.compute,
        offline=config.offline,
        progress=progress,
    )
    if drafter.tokenizer.same_ids(target.tokenizer):
        return ModelPair(target, drafter, threads)
    note = CROSS_TOKENIZER.format(drafter=drafter.name, target=target.name)
    return ModelPair(target, drafter, threads, note=note, cross_tokenizer=True)


def _torch_threads(models: list[Loaded], threads: int) -> int:
    """Beside the native kernels torch does small things only, and its threads take long to wake."""
    from engine.networks.native_llama import NativeLlama

    return 1 if all(isinstance(model.network, NativeLlama) for model in models) else threads
