"""What a conversation has already computed is its own: keys, values and features by position, and the pool of those at
rest."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.errors import EngineError

BLOCK = 256
"""Caches grow in multiples of so many positions."""


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    n = min(len(left), len(right))
    if list(left[:n]) == list(right[:n]):  # the usual case, at C speed
        return n
    return next(i for i in range(n) if left[i] != right[i])


class KVCache:
    """Keys and values of one conversation, one [kv heads, capacity, head dim] pair a layer, and its features.

    `ids` are the tokens whose entries are valid; whatever lies behind them is scratch, but always finite. Features are
    hidden states kept for a drafter. feature_layers: whose; layer i stands for the hidden state that *enters* layer i,
    the number of layers for the last layer's output before the final norm (as vLLM's EAGLE-3 numbers them).
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

    def reserve(
        self, layer: int, begin: int, end: int, row_shape: tuple[int, int], dtype: torch.dtype, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Storage for at least `end` positions, [heads, capacity, dim] each, of which the first `begin` are kept.

        row_shape: (heads, dim). The capacity is a multiple of BLOCK and may grow by half at a time, so that growing
        stays cheap. Fresh storage is zero: a kernel may read beyond the end, as long as it gives no weight to what it
        finds there.
        """
        storage = self._layers.get(layer)
        if storage is not None and storage[0].shape[1] >= end:
            return storage
        shape = (row_shape[0], _capacity(begin, end), row_shape[1])
        new_storage = tuple(torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))
        if storage is not None:
            # Whole blocks, since a network may order a block as it likes.
            copied_length = min(-(-begin // BLOCK) * BLOCK, storage[0].shape[1])
            for old, new in zip(storage, new_storage, strict=True):
                new[:, :copied_length] = old[:, :copied_length]
        self._layers[layer] = new_storage[0], new_storage[1]
        return self._layers[layer]

    def write(self, layer: int, begin: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store rows [kv heads, n, head dim] at positions begin.. and return everything up to their end."""
        end = begin + keys.shape[1]
        storage = self.reserve(layer, begin, end, (keys.shape[0], keys.shape[2]), keys.dtype, keys.device)
        storage[0][:, begin:end] = keys
        storage[1][:, begin:end] = values
        return storage[0][:, :end], storage[1][:, :end]

    def write_features(self, layer: int, begin: int, hidden: Tensor) -> None:
        """Keep hidden states [n, hidden] as layer's features of positions begin.., if this cache keeps that layer's."""
        end = begin + len(hidden)
        for index, layer_id in enumerate(self._feature_layers):
            if layer_id != layer:
                continue
            if self._features is None or len(self._features) < end:
                new_storage = hidden.new_zeros(_capacity(begin, end), len(self._feature_layers), hidden.shape[1])
                if self._features is not None:
                    new_storage[: len(self._features)] = self._features
                self._features = new_storage
            self._features[begin:end, index] = hidden

    def features(self, begin: int, end: int) -> Tensor:
        """Features of positions begin..end, [end - begin, feature layers, hidden] in the network's number format; a
        view.

        Raises EngineError for positions that are not computed, and where the network keeps no features.
        """
        if not 0 <= begin <= end <= len(self.ids) or self._features is None:
            raise EngineError(f"This cache holds no features for positions {begin} to {end}: run a forward over them.")
        return self._features[begin:end]

    @torch.inference_mode()
    def copy(self) -> KVCache:
        """The same tokens with storage of its own, and no features: what plain decoding needs to go on from here."""
        copy = KVCache()
        copy.ids = list(self.ids)
        copy._layers = {layer: (keys.clone(), values.clone()) for layer, (keys, values) in self._layers.items()}
        return copy

    def clear(self) -> None:
        """Forget everything, storage and all: a bad number in it would spoil what only a mask keeps from being seen."""
        self.ids.clear()
        self._layers.clear()
        self._features = None

    def drop_features(self) -> None:
        """Keep none any more. Entries that were computed without them could not be given any, so there is no way
        back."""
        self._feature_layers, self._features = (), None


def _capacity(begin: int, end: int) -> int:
    """Positions to make room for when `begin` are kept and `end` needed."""
    return -(-(end + begin // 2) // BLOCK) * BLOCK


class KVCachePool:
    """Caches of conversations that are not running, newest last, within a memory budget."""

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self._idle: OrderedDict[str, KVCache] = OrderedDict()

    @property
    def nbytes(self) -> int:
        return sum(cache.nbytes for cache in self._idle.values())

    def acquire(self, key: str, feature_layers: Sequence[int] = ()) -> KVCache:
        """The conversation's cache, now the caller's alone; an empty one if there is none or it is in use.

        It keeps the features of just these layers: a prefix computed without them is of no use to who needs them, and
        who asks for none does not go on paying for them.
        """
        cache = self._idle.pop(key, None)
        if cache is not None and not feature_layers:
            cache.drop_features()
        if cache is None or cache.feature_layers != tuple(feature_layers):
            return KVCache(feature_layers)
        return cache

    def release(self, key: str, cache: KVCache) -> None:
        """Give a cache back for the next turn; the least recently used go when memory is short.

        Key "", or nothing in it: dropped.
        """
        if not key or not cache.nbytes:
            return
        self._idle[key] = cache
        self._idle.move_to_end(key)
        while self._idle and self.nbytes > self.budget_bytes:
            self._idle.popitem(last=False)
