"""Weights are shared and stateless (`Model`); what a conversation has already computed is its own (`Cache`).

Align on read: `Model.forward` is given *all* ids of a request, keeps the longest prefix that its cache has already
computed, and runs only the rest. Nobody ever rewinds a cache, so none can be rewound by one too many or too few.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from engine import sampling
from engine.devices import fetched, sent, synchronize
from engine.errors import EngineError

BLOCK = 256
"""Caches grow in multiples of so many positions."""

PREFILL_CHUNK = 256
"""Rows per pass over the weights; bounds the memory of a long prefill and the wait for a cancel."""


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    n = min(len(left), len(right))
    if list(left[:n]) == list(right[:n]):  # the usual case, at C speed
        return n
    return next(i for i in range(n) if left[i] != right[i])


class Cache:
    """Keys and values of one conversation or lane, one [kv heads, capacity, head dim] pair a layer, and its features.

    `ids` are the tokens whose entries are valid; whatever lies behind them is scratch, but always finite.
    Features are hidden states kept for a drafter. feature_layers: whose; layer i stands for the hidden state that *enters*
    layer i, the number of layers for the last layer's output before the final norm (as vLLM's EAGLE-3 numbers them).
    """

    def __init__(self, feature_layers: Sequence[int] = ()) -> None:
        self.ids: list[int] = []
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}
        self._feature_layers = tuple(feature_layers)
        self._features: Tensor | None = None  # [capacity, feature layers, hidden]

    @property
    def feature_layers(self) -> tuple[int, ...]:
        return self._feature_layers

    @property
    def nbytes(self) -> int:
        features = 0 if self._features is None else self._features.nbytes
        return features + sum(keys.nbytes + values.nbytes for keys, values in self._layers.values())

    def room(
        self, layer: int, begin: int, end: int, like: tuple[int, int], dtype: torch.dtype, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Storage for at least `end` positions, [heads, capacity, dim] each, of which the first `begin` are kept.

        like: (heads, dim). The capacity is a multiple of BLOCK and may grow by half at a time, so that growing stays cheap.
        Fresh storage is zero: a kernel may read beyond the end, as long as it gives no weight to what it finds there.
        """
        stored = self._layers.get(layer)
        if stored is not None and stored[0].shape[1] >= end:
            return stored
        shape = (like[0], _capacity(begin, end), like[1])
        grown = tuple(torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))
        if stored is not None:
            whole = min(-(-begin // BLOCK) * BLOCK, stored[0].shape[1])  # a network may order a block as it likes
            for old, new in zip(stored, grown, strict=True):
                new[:, :whole] = old[:, :whole]
        self._layers[layer] = grown[0], grown[1]
        return self._layers[layer]

    def write(self, layer: int, begin: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store rows [kv heads, n, head dim] at positions begin.. and return everything up to their end."""
        end = begin + keys.shape[1]
        stored = self.room(layer, begin, end, (keys.shape[0], keys.shape[2]), keys.dtype, keys.device)
        stored[0][:, begin:end] = keys
        stored[1][:, begin:end] = values
        return stored[0][:, :end], stored[1][:, :end]

    def write_features(self, layer: int, begin: int, hidden: Tensor) -> None:
        """Keep hidden states [n, hidden] as layer's features of positions begin.., if this cache keeps that layer's."""
        end = begin + len(hidden)
        for index, kept in enumerate(self._feature_layers):
            if kept != layer:
                continue
            if self._features is None or len(self._features) < end:
                grown = hidden.new_zeros(_capacity(begin, end), len(self._feature_layers), hidden.shape[1])
                if self._features is not None:
                    grown[: len(self._features)] = self._features
                self._features = grown
            self._features[begin:end, index] = hidden

    def features(self, begin: int, end: int) -> Tensor:
        """Features of positions begin..end, [end - begin, feature layers, hidden] in the network's number format; a view.

        Raises EngineError for positions that are not computed, and where the network keeps no features.
        """
        if not 0 <= begin <= end <= len(self.ids) or self._features is None:
            raise EngineError(f"This cache holds no features for positions {begin} to {end}: run a forward over them.")
        return self._features[begin:end]

    @torch.inference_mode()
    def copy(self) -> Cache:
        """The same tokens with storage of its own, and no features: what plain decoding needs to go on from here."""
        copy = Cache()
        copy.ids = list(self.ids)
        copy._layers = {layer: (keys.clone(), values.clone()) for layer, (keys, values) in self._layers.items()}
        return copy

    def clear(self) -> None:
        """Forget everything, storage and all: a bad number in it would spoil what only a mask keeps from being seen."""
        self.ids.clear()
        self._layers.clear()
        self._features = None

    def drop_features(self) -> None:
        """Keep none any more. Entries that were computed without them could not be given any, so there is no way back."""
        self._feature_layers, self._features = (), None


def _capacity(begin: int, end: int) -> int:
    """Positions to make room for when `begin` are kept and `end` needed."""
    return -(-(end + begin // 2) // BLOCK) * BLOCK


@dataclass(slots=True)
class Span:
    """Rows row..row+count of a packed pass: positions begin..begin+count of one cache."""

    cache: Cache
    row: int
    begin: int
    count: int
    masks: dict[tuple[int, int | None], Tensor | None] = field(default_factory=dict)

    def mask(self, groups: int, window: int | None, device: torch.device) -> Tensor | None:
        """True where a row may look, [groups * count, begin + count]; None where it may look everywhere.

        Made once a pass and shared by all layers. `window`: sliding window in positions.
        """
        end = self.begin + self.count
        if self.count == 1 and (window is None or end <= window):
            return None
        if (groups, window) not in self.masks:
            row = torch.arange(self.begin, end, device=device)[:, None]
            column = torch.arange(end, device=device)[None, :]
            seen = column <= row
            if window is not None:
                seen &= column > row - window
            self.masks[groups, window] = seen.repeat(groups, 1)
        return self.masks[groups, window]


def feature_layers(spans: Sequence[Span], layers: int) -> frozenset[int]:
    """All layers whose features some cache of this pass keeps. Raises EngineError where a model of `layers` has none such."""
    wanted = frozenset(layer for span in spans for layer in span.cache.feature_layers)
    if any(not 0 <= layer <= layers for layer in wanted):
        raise EngineError(f"The model has layers 0 to {layers}, and features of {sorted(wanted)} were asked for.")
    return wanted


def keep_features(layer: int, hidden: Tensor, spans: Sequence[Span]) -> None:
    """Give each cache that keeps this layer's features its rows of `hidden`, [rows of the pass, hidden]."""
    for span in spans:
        span.cache.write_features(layer, span.begin, hidden[span.row : span.row + span.count])


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
    cache: Cache


RawProbs = Callable[[Tensor, Sequence[int], Sequence[int]], list[float]]
"""See `sampling.raw_probs`."""


class Model:
    """A network behind the align-on-read rule. Stateless: every call names its caches.

    vocab_size: ids at or beyond it are padding rows of the weights; their logits are cut off here, so that they can
    be neither proposed nor drawn. raw_probs: `sampling.raw_probs`, or the network's own, if it has a faster one.
    """

    def __init__(self, network: Network, context_len: int) -> None:
        self.network = network
        self.raw_probs: RawProbs = getattr(network, "raw_probs", sampling.raw_probs)
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


class CachePool:
    """Caches of conversations that are not running, newest last, within a memory budget."""

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self._idle: OrderedDict[str, Cache] = OrderedDict()

    @property
    def nbytes(self) -> int:
        return sum(cache.nbytes for cache in self._idle.values())

    def acquire(self, key: str, feature_layers: Sequence[int] = ()) -> Cache:
        """The conversation's cache, now the caller's alone; an empty one if there is none or it is in use.

        It keeps the features of just these layers: a prefix computed without them is of no use to who needs them, and
        who asks for none does not go on paying for them.
        """
        found = self._idle.pop(key, None)
        if found is not None and not feature_layers:
            found.drop_features()
        if found is None or found.feature_layers != tuple(feature_layers):
            return Cache(feature_layers)
        return found

    def release(self, key: str, cache: Cache) -> None:
        """Give a cache back for the next turn; the least recently used go when memory is short.

        Key "", or nothing in it: dropped.
        """
        if not key or not cache.nbytes:
            return
        self._idle[key] = cache
        self._idle.move_to_end(key)
        while self._idle and self.nbytes > self.budget_bytes:
            self._idle.popitem(last=False)


def attend_spans(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    spans: Sequence[Span] = (),
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention over pooled caches, in the shape that transformers' AttentionInterface expects.

    query [1, heads, rows, dim], key and value [1, kv heads, rows, dim], positions already rotated in.
    Each span writes its rows to its own cache and looks only there. The query heads that share a key head are
    folded into rows: on a CPU that is several times faster than repeating the keys. Returns [1, rows, heads, dim].
    """
    if s_aux is not None:
        raise EngineError("This model uses attention sinks, which Greenlight does not run: choose another model.")
    heads, kv_heads, dim = query.shape[1], key.shape[1], query.shape[3]
    groups = heads // kv_heads
    out = query.new_empty(1, query.shape[2], heads, value.shape[3])
    for span in spans:
        rows = slice(span.row, span.row + span.count)
        keys, values = span.cache.write(module.layer_idx, span.begin, key[0, :, rows], value[0, :, rows])
        mask = span.mask(groups, sliding_window, query.device)
        if softcap is None:
            out[0, rows] = attend(query[0, :, rows], keys, values, mask, scaling)
        else:
            folded = query[0, :, rows].reshape(kv_heads, groups * span.count, dim)
            scores = folded @ keys.transpose(1, 2) * (scaling if scaling is not None else dim**-0.5)
            scores = softcap * torch.tanh(scores / softcap)
            if mask is not None:
                scores = scores.masked_fill(~mask, float("-inf"))
            seen = torch.softmax(scores.float(), dim=-1).to(values.dtype) @ values
            out[0, rows] = seen.reshape(heads, span.count, -1).transpose(0, 1)
    return out, None


def attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scaling: float | None = None) -> Tensor:
    """query [heads, n, dim], keys and values [kv heads, positions, dim], mask as `Span.mask`. Returns [n, heads, dim]."""
    heads, n, dim = query.shape
    folded = query.reshape(len(keys), heads // len(keys) * n, dim)
    seen = F.scaled_dot_product_attention(folded[None], keys[None], values[None], mask, scale=scaling)[0]
    return seen.reshape(heads, n, -1).transpose(0, 1)


class TransformersNetwork:
    """A transformers causal model, whose attention implementation must be `attend_spans`."""

    def __init__(self, hf_model: Any, vocab_size: int) -> None:
        self.hf_model = hf_model.eval()
        self.vocab_size = vocab_size
        self.device = next(hf_model.parameters()).device
        embedding, head = hf_model.get_input_embeddings().weight, hf_model.get_output_embeddings().weight
        read = [parameter for parameter in hf_model.parameters() if parameter is not embedding or parameter is head]
        self.weight_bytes = sum(parameter.nbytes for parameter in read)

    def __call__(self, token_ids: Tensor, positions: Tensor, spans: Sequence[Span], logit_rows: Tensor) -> Tensor:
        layers = getattr(self.hf_model.base_model, "layers", ())
        with contextlib.ExitStack() as hooks:
            for layer in feature_layers(spans, len(layers)):
                hooks.callback(_when_reached(layers, layer, spans).remove)
            logits: Tensor = self.hf_model(
                input_ids=token_ids[None],
                position_ids=positions[None],
                use_cache=False,
                logits_to_keep=logit_rows,
                spans=spans,
            ).logits
        return logits[0]

    def embedded(self, token_ids: Tensor) -> Tensor:
        found: Tensor = self.hf_model.get_input_embeddings()(token_ids)
        return found


def _when_reached(layers: Any, layer: int, spans: Sequence[Span]) -> Any:
    """Hooks into a transformers model: keeps the features of `layer` on the way. Returns the handle that undoes it."""

    def entering(module: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        hidden = args[0] if args else named["hidden_states"]
        keep_features(layer, hidden[0], spans)

    def leaving(module: Any, args: tuple[Any, ...], output: Any) -> None:
        hidden = output[0] if isinstance(output, tuple) else output
        keep_features(layer, hidden[0], spans)

    if layer == len(layers):
        return layers[-1].register_forward_hook(leaving)
    return layers[layer].register_forward_pre_hook(entering, with_kwargs=True)
