"""Weights are shared and stateless (`Model`); what a conversation has already computed is its own (`KVCache`).

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
from engine.networks.devices import fetch_to_cpu, send_ids, synchronize
from engine.networks.kv_cache import KVCache, common_prefix

PREFILL_CHUNK = 256
"""Rows per pass over the weights; bounds the memory of a long prefill and the wait for a cancel."""


class Network(Protocol):
    """The forward pass of a causal language model over packed rows of several requests."""

    vocab_size: int
    device: torch.device
    sampler: NativeSampler | None  # where the native kernels are at hand
    weight_bytes: int  # what one forward reads of the weights: each matrix once, of a separate embedding nothing

    def __call__(self, token_ids: Tensor, positions: Tensor, spans: Sequence[Span], logit_rows: Tensor) -> Tensor:
        """token_ids, positions: int64 [rows]; logit_rows: int64 [n]. Returns logits [n, vocabulary or more].

        Writes each span's keys, values and, where its cache asks for them, features.
        """
        ...

    def embed(self, token_ids: Tensor) -> Tensor:
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

    vocab_size: ids at or beyond it are padding rows of the weights; their logits are cut off here, so that they can be
    neither proposed nor drawn. native_sampler: the network's `sampler`.
    """

    def __init__(self, network: Network, context_len: int) -> None:
        self.network = network
        self.native_sampler: NativeSampler | None = network.sampler
        self.raw_probs: RawProbs = self.native_sampler.raw_probs if self.native_sampler else sampling.raw_probs
        self.vocab_size = network.vocab_size
        self.context_len = context_len

    @torch.inference_mode()
    def forward(self, requests: Sequence[Request]) -> list[Tensor]:
        """Logits float32 [last, vocab_size] on the CPU for each request; only ids that its cache lacks are computed.

        last = 0 only fills the cache. Rows of several requests share one pass over the weights. A cache whose logits
        are no numbers is cleared, so that another try does not meet them again.
        """
        begins = [min(common_prefix(r.cache.ids, r.ids), len(r.ids) - r.last) for r in requests]
        for request, begin in zip(requests, begins, strict=True):
            del request.cache.ids[begin:]
        logit_parts: list[list[Tensor]] = [[] for _ in requests]
        while any(len(r.cache.ids) < len(r.ids) for r in requests):
            for index, logits in self._pass(requests):
                logit_parts[index].append(logits)
        logits_per_request = [
            part[0] if len(part) == 1 else torch.cat([torch.empty(0, self.vocab_size), *part]) for part in logit_parts
        ]
        for request, logits in zip(requests, logits_per_request, strict=True):
            if len(logits) and not np.isfinite(logits.numpy().max()):  # in numpy: torch would wake its threads for it
                request.cache.clear()
        return logits_per_request

    def _pass(self, requests: Sequence[Request]) -> list[tuple[int, Tensor]]:
        """One pass over the weights, at most PREFILL_CHUNK rows of what is missing, requests in order."""
        spans: list[Span] = []
        owners: list[int] = []
        rows: list[int] = []
        logit_ranges: list[range] = []
        for index, request in enumerate(requests):
            begin = len(request.cache.ids)
            count = min(len(request.ids) - begin, PREFILL_CHUNK - len(rows))
            if count <= 0:
                continue
            first_logit_row = max(0, len(request.ids) - request.last - begin)
            spans.append(Span(request.cache, len(rows), begin, count))
            owners.append(index)
            logit_ranges.append(range(len(rows) + min(first_logit_row, count), len(rows) + count))
            rows.extend(request.ids[begin : begin + count])
        flat_positions = [position for span in spans for position in range(span.begin, span.begin + span.count)]
        token_ids, positions, logit_rows = send_ids(
            [rows, flat_positions, [row for part in logit_ranges for row in part]], self.network.device
        )
        logits = fetch_to_cpu(self.network(token_ids, positions, spans, logit_rows)[:, : self.vocab_size])
        for owner, span in zip(owners, spans, strict=True):
            span.cache.ids.extend(requests[owner].ids[span.begin : span.begin + span.count])
        logits_per_span = torch.split(logits, [len(part) for part in logit_ranges])
        return [(owner, part) for owner, part in zip(owners, logits_per_span, strict=True) if len(part)]

    def synchronize(self) -> None:
        """Wait for the device, so that a clock read next means something. Nothing to do on a CPU."""
        synchronize(self.network.device)
