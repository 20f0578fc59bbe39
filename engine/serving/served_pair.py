"""A pair in use: its models, caches and profile, until another pair takes its place.

torch is imported when a pair is started, on the engine thread, and not by this module.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from engine.config import DecodingParams, EngineConfig, Message
from engine.errors import ContextFull, InvalidParams
from engine.preflight.memory import MIB

if TYPE_CHECKING:
    from engine.control.latency import Profile
    from engine.drafters.protocol import Drafter
    from engine.networks.kv_cache import KVCache, KVCachePool
    from engine.networks.model import Model
    from engine.serving.load_pair import ModelPair

Inexact = Literal["", "device", "transformers", "kernel"]


@dataclass(frozen=True, slots=True)
class Facts:
    """The truth about the loaded engine, for a chip in the page. exact says whether speculative text
    is proven bit-equal.

    inexact: what stands against it: "device" (another number of rows may end in other last bits there), "transformers"
    (its layers give no such promise), "kernel" (asked of this machine, or it took too long to ask); "" where it is
    exact. pair: counts the pairs that have been in use. weights_mib: what a pass of each model reads. cache_mib: the
    keys and values of one conversation of full length.
    """

    target: str
    weights: str  # e.g. "GGUF Q4_1, run as bf16"
    kernel: str  # e.g. "torch bf16 linear"
    device: str
    threads: int
    context_len: int
    exact: bool
    drafters: tuple[str, ...]  # names valid for DecodingParams.drafter, besides "auto"
    max_new_tokens: int
    note: str = ""  # what a person should know of this model, e.g. that it has no chat template; a line each
    inexact: Inexact = ""
    pair: int = 1
    drafter_name: str = ""  # of a drafter model; "" where there is none, or a head
    drafter_device: str = ""  # of a model or a head
    weights_mib: float = 0.0
    cache_mib: float = 0.0


@dataclass(slots=True, eq=False)
class ServedPair:
    """Only the engine thread runs its models; what a request asks is read on any thread."""

    config: EngineConfig
    pair: ModelPair
    model: Model
    draft_model: Model | None
    profile: Profile
    pool: KVCachePool
    facts: Facts

    def drafter_of(self, name: str) -> str:
        """Who drafts for a request that names `name` (as `DecodingParams.drafter`). Raises InvalidParams for one
        that is not here."""
        if name == "auto":
            name = self._best_drafter()
        if name not in self.facts.drafters:
            raise InvalidParams("drafter", f"drafter must be one of {', '.join(self.facts.drafters)}, not {name!r}.")
        return name

    def _best_drafter(self) -> str:
        if self.config.drafter == "none":
            return "none"
        return "both" if self.pair.head else "draft_model" if self.pair.drafter else "ngram"

    def request(self, messages: Sequence[Message], params: DecodingParams) -> tuple[list[int], DecodingParams]:
        """Ids of the prompt, and the parameters with nothing left open. Raises InvalidParams, ContextFull."""
        facts, tokenizer = self.facts, self.pair.target.tokenizer
        params = replace(params, drafter=self.drafter_of(params.drafter))
        if params.max_new_tokens > facts.max_new_tokens:
            raise InvalidParams("max_new_tokens", f"max_new_tokens must be at most {facts.max_new_tokens} here.")
        if any(token_id >= tokenizer.vocab_size for token_id, _ in params.sampling.logit_bias):
            raise InvalidParams("logit_bias", "logit_bias names a token id that this model does not have.")
        ids = tokenizer.encode_chat(messages)
        if len(ids) >= facts.context_len:
            raise ContextFull(len(ids), facts.context_len)
        if params.sampling.seed is None:
            params = replace(params, sampling=replace(params.sampling, seed=secrets.randbits(31)))
        return ids, params

    def drafter(
        self, name: str, new_cache: Callable[[str], KVCache], messages: Sequence[Message] = ()
    ) -> Drafter | None:
        """new_cache: gives a cache to "head" or "draft". messages: the conversation, for a drafter with a chat format
        of its own; without them it reads the text of the target's prompt. Raises ValueError for a name that is not in
        `facts.drafters`."""
        from engine.drafters.combined import CombinedDrafter
        from engine.drafters.ngram import NgramDrafter

        if name == "none":
            return None
        if name in ("head", "both") and self.pair.head is not None:
            head = self.pair.head_drafter(new_cache("head"))
            return head if name == "head" else CombinedDrafter(NgramDrafter(), head)
        if name == "draft_model" and self.draft_model is not None:
            return _model_drafter(self.pair, self.draft_model, new_cache("draft"), messages)
        if name == "ngram":
            return NgramDrafter()
        raise ValueError(f"this pair has no drafter {name}")


def _model_drafter(pair: ModelPair, model: Model, cache: KVCache, messages: Sequence[Message] = ()) -> Drafter:
    from engine.drafters.cross_tokenizer import CrossTokenizerDrafter, encode_prompt
    from engine.drafters.draft_model import DraftModelDrafter

    if not pair.cross_tokenizer:
        return DraftModelDrafter(model, cache, pair.target.network.vocab_size)
    assert pair.drafter is not None
    drafter_tokenizer = pair.drafter.tokenizer
    return CrossTokenizerDrafter(
        model, drafter_tokenizer, pair.target.tokenizer, cache, encode_prompt(drafter_tokenizer, messages)
    )


def start_pair(config: EngineConfig, pair: ModelPair, number: int) -> ServedPair:
    """Makes the first passes, which are slow, and times the next ones. On the engine thread, while
    nothing else computes."""
    from engine.control.profiling import warm_up
    from engine.networks.kv_cache import BLOCK, KVCache, KVCachePool
    from engine.networks.model import Model, Request

    set_threads(pair)
    model = Model(pair.target.network, pair.target.context_len)
    draft_model = None if pair.drafter is None else Model(pair.drafter.network, pair.drafter.context_len)
    for network_model in filter(None, (model, draft_model)):
        warm_up(network_model)
    cache = KVCache()
    model.forward([Request([0], 1, cache)])
    cache_mib = cache.nbytes / BLOCK * pair.target.context_len / MIB
    return ServedPair(
        config=config,
        pair=pair,
        model=model,
        draft_model=draft_model,
        profile=_measure_profile(pair, model, draft_model),
        pool=KVCachePool(config.cache_mib * MIB),
        facts=_facts(config, pair, number, cache_mib),
    )


def set_threads(pair: ModelPair) -> None:
    """As many for torch as this pair wants; on the thread that computes."""
    import torch

    if pair.torch_threads is not None:
        torch.set_num_threads(pair.torch_threads)


def _measure_profile(pair: ModelPair, model: Model, draft_model: Model | None) -> Profile:
    """What the controller should know before the first round."""
    from engine.control.profiling import measure
    from engine.drafters.ngram import ACCEPTANCE, DRAFT_S
    from engine.networks.kv_cache import KVCache

    drafters: list[Drafter] = [pair.head_drafter(KVCache())] if pair.head else []
    if draft_model is not None:
        drafters.append(_model_drafter(pair, draft_model, KVCache()))
    profile = measure(model, drafters, (("ngram", DRAFT_S),))
    head_acceptance = (("head", pair.head.acceptance),) if pair.head else ()
    return replace(profile, acceptance=ACCEPTANCE + head_acceptance)


def _facts(config: EngineConfig, pair: ModelPair, number: int, cache_mib: float) -> Facts:
    target, drafter = pair.target, pair.drafter
    drafters = ("none", "ngram") + (("head", "both") if pair.head else ())
    drafters += ("draft_model",) if drafter else ()
    weight_bytes = [target.network.weight_bytes, drafter.network.weight_bytes if drafter else 0]
    return Facts(
        target=target.name,
        weights=target.weights,
        kernel=target.kernel,
        device=target.device,
        threads=pair.threads,
        context_len=target.context_len,
        exact=target.exact,
        drafters=drafters,
        max_new_tokens=config.max_new_tokens,
        note="\n".join(filter(None, (target.note, target.tokenizer.fallback_note, pair.note))),
        inexact=_inexact(pair),
        pair=number,
        drafter_name=drafter.name if drafter else "",
        drafter_device=drafter.device if drafter else target.device if pair.head else "",
        weights_mib=sum(weight_bytes) / MIB,
        cache_mib=cache_mib,
    )


def _inexact(pair: ModelPair) -> Inexact:
    if pair.target.exact:
        return ""
    if not pair.target.device.startswith("cpu"):
        return "device"
    return "transformers" if hasattr(pair.target.network, "hf_model") else "kernel"
