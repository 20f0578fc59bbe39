"""Weights are shared and stateless (`Model`); what a conversation has already computed is its own (`kv_cache.Cache`).

Align on read: `Model.forward` is given *all* ids of a request, keeps the longest prefix that its cache has already
computed, and runs only the rest. Nobody ever rewinds a cache, so none can be rewound by one too many or too few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from engine import sampling
from engine.kernels.native_sampler import NativeSampler
from engine.networks.attention import Span
from engine.networks.devices import fetched, sent, synchronize
from engine.networks.kv_cache import KVCache, common_prefix

PREFILL_CHUNK = 256
"""Rows per pass over the weights; bounds the memory of a long prefill and the wait for a cancel."""


class Network(Protocol):
    """The forward pass of a causal language model over packed rows of several requests."""

    vocab_size: int
    device: torch.device
    weight_bytes: int  # what one forward reads of the weights: each matrix once, of a separate embedding nothing

    def __call__(self, token_ids: Tensor, positions: Tensor, spans: Sequence[Span], logit_rows: Tensor) -> Tensor:
        """token_ids, positions: int64 [rows]; logit_rows: int64 [n]. Returns logits [n, vocabulary or more].

        Writes each span's keys, values and, where its cache asks for them, features.
        """
        ...

    def embedded(self, token_ids: Tensor) -> Tensor:
        """Rows of the embedding, [n, hidden]."""
        ...


class Request(NamedTuple):
    """One entry of a forward: all ids so far, of which the logits of the last `last` rows are wanted."""

    ids: Sequence[int]
    last: int
    cache: KVCache


RawProbs = Callable[[Tensor, Sequence[int], Sequence[int]], list[float]]
"""See `sampling.raw_probs`."""


class Model:
    """A network behind the align-on-read rule. Stateless: every call names its caches.

    vocab_size: ids at or beyond it are padding rows of the weights; their logits are cut off here, so that they can
    be neither proposed nor drawn. native_sampler: for its logits, where the network runs on the native kernels.
    """

    def __init__(self, network: Network, context_len: int) -> None:
        self.network = network
        self.native_sampler: NativeSampler | None = getattr(network, "sampler", None)
        self.raw_probs: RawProbs = self.native_sampler.raw_probs if self.native_sampler else sampling.raw_probs
        self.vocab_size = network.vocab_size
        self.context_len = context_len

    @torch.inference_mode()
    def forward(self, requests: Sequence[Request]) -> list[Tensor]:
        """Logits float32 [last, vocab_size] on the CPU for each request; only ids that its cache lacks are computed.

        last = 0 only fills the cache. Rows of several requests share one pass over the weights. A cache whose logits are
        no numbers is cleared, so that another try does not meet them again.
        """
        begins = [min(common_prefix(r.cache.ids, r.ids), len(r.ids) - r.last) for r in requests]
        for request, begin in zip(requests, begins, strict=True):
            del request.cache.ids[begin:]
        parts: list[list[Tensor]] = [[] for _ in requests]
        while any(len(r.cache.ids) < len(r.ids) for r in requests):
            for index, logits in self._pass(requests):
                parts[index].append(logits)
        found = [part[0] if len(part) == 1 else torch.cat([torch.empty(0, self.vocab_size), *part]) for part in parts]
        for request, logits in zip(requests, found, strict=True):
            if len(logits) and not np.isfinite(logits.numpy().max()):  # in numpy: torch would wake its threads for it
                request.cache.clear()
        return found

    def _pass(self, requests: Sequence[Request]) -> list[tuple[int, Tensor]]:
        """One pass over the weights, at most PREFILL_CHUNK rows of what is missing, requests in order."""
        spans: list[Span] = []
        owners: list[int] = []
        rows: list[int] = []
        wanted: list[range] = []
        for index, request in enumerate(requests):
            begin = len(request.cache.ids)
            count = min(len(request.ids) - begin, PREFILL_CHUNK - len(rows))
            if count <= 0:
                continue
            first_wanted = max(0, len(request.ids) - request.last - begin)
            spans.append(Span(request.cache, len(rows), begin, count))
            owners.append(index)
            wanted.append(range(len(rows) + min(first_wanted, count), len(rows) + count))
            rows.extend(request.ids[begin : begin + count])
        at = [position for span in spans for position in range(span.begin, span.begin + span.count)]
        token_ids, positions, logit_rows = sent(
            [rows, at, [row for part in wanted for row in part]], self.network.device
        )
        logits = fetched(self.network(token_ids, positions, spans, logit_rows)[:, : self.vocab_size])
        for owner, span in zip(owners, spans, strict=True):
            span.cache.ids.extend(requests[owner].ids[span.begin : span.begin + span.count])
        split = torch.split(logits, [len(part) for part in wanted])
        return [(owner, part) for owner, part in zip(owners, split, strict=True) if len(part)]

    def synchronize(self) -> None:
        """Wait for the device, so that a clock read next means something. Nothing to do on a CPU."""
        synchronize(self.network.device)
