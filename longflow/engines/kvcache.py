"""The KV cache of one prompt: one buffer a layer, written in place, cut back to any length.

transformers' DynamicCache copies itself whole for every token that is added. Here a token is written into its place.
The buffer is laid out token by token, (1, tokens, heads, size), so that growing or cutting it changes no stride:
kernels see the same layout whatever was in the cache before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache

_STEP = 256
"""Buffers grow to multiples of this many tokens."""


class InPlaceLayer(CacheLayerMixin):
    """Keys and values of one layer. `reserve` tells how many tokens the buffer shall hold when it is next made."""

    is_croppable = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.keys: Any = None
        self.values: Any = None
        self.length = 0
        self.reserve = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Make the buffers."""
        self.keys, self.values = self._buffer(key_states), self._buffer(value_states)
        self.is_initialized = True

    def _buffer(self, states: Tensor) -> Tensor:
        _, heads, tokens, size = states.shape
        return states.new_empty((1, -(-max(self.reserve, tokens) // _STEP) * _STEP, heads, size))

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Add tokens; returns all keys and all values, (1, heads, tokens, size), as views of the buffers."""
        end = self.length + key_states.shape[2]
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        elif end > self.keys.shape[1]:
            self.reserve = max(self.reserve, end)
            # One after the other, so that only one old buffer is there beside its new one.
            self.keys = self._grown(self.keys, key_states)
            self.values = self._grown(self.values, value_states)
        self.keys[:, self.length : end] = key_states.transpose(1, 2)
        self.values[:, self.length : end] = value_states.transpose(1, 2)
        self.length = end
        return self.keys[:, :end].transpose(1, 2), self.values[:, :end].transpose(1, 2)

    def _grown(self, old: Tensor, states: Tensor) -> Tensor:
        new = self._buffer(states)
        new[:, : self.length] = old[:, : self.length]
        return new

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Number of keys that the next `query_length` tokens see, and where they begin."""
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        """Number of tokens in the layer."""
        return self.length

    def get_max_length(self) -> int:
        """No limit: the buffer grows."""
        return -1

    def reset(self) -> None:
        """Forget all tokens, keep the buffers."""
        self.length = 0

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last tokens; the count is negative, as in transformers."""
        self.length = max(0, self.length - abs(tokens_to_remove))


class Filled(Exception):
    """Raised out of a forward pass that was wanted only for the cache, once the last layer's part is in it."""


class InPlaceCache(Cache):
    """A KV cache of in-place layers.

    While `only_fill` is set a forward pass ends, by `Filled`, as soon as the last layer has added its tokens: for a
    chunk that is not a prompt's last one, that layer's attention and everything after it is work for nothing.
    """

    def __init__(self, layers: int) -> None:
        super().__init__(layers=[InPlaceLayer() for _ in range(layers)])
        self.only_fill = False

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Add tokens to one layer; see `InPlaceLayer.update`."""
        layer: Any = self.layers[layer_idx]
        keys, values = layer.update(key_states, value_states, *args, **kwargs)
        if self.only_fill and layer_idx == len(self.layers) - 1:
            raise Filled
        return keys, values


class Ragged(list[Tensor]):
    """Keys or values of several prompts, each (1, heads, tokens, size); `added` are the tokens that each got last."""

    def __init__(self, tensors: Iterable[Tensor], added: Sequence[int]) -> None:
        super().__init__(tensors)
        self.added = added


class SideBySide(Cache):
    """The caches of several prompts for one pass over tokens of all of them, laid one after another.

    Args:
        caches: one for each prompt; each is written in place.
        added: how many of the pass's tokens are each prompt's.
    """

    def __init__(self, caches: Sequence[InPlaceCache], added: Sequence[int]) -> None:
        by_layer = zip(*(cache.layers for cache in caches), strict=True)
        super().__init__(layers=[_SideBySideLayer(layers, added) for layers in by_layer])


class _SideBySideLayer(InPlaceLayer):  # type: ignore[no-untyped-call]
    """One layer of several prompts."""

    def __init__(self, parts: Sequence[Any], added: Sequence[int]) -> None:
        super().__init__()
        self.parts = parts
        self.added = added

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Add the tokens of each prompt, (1, heads, tokens of all, size), to its own buffers."""
        added = list(self.added)
        states = zip(torch.split(key_states, added, 2), torch.split(value_states, added, 2), strict=True)
        pairs = [part.update(*own) for part, own in zip(self.parts, states, strict=True)]
        return Ragged((keys for keys, _ in pairs), self.added), Ragged((values for _, values in pairs), self.added)


def beginning_of(cache: InPlaceCache, tokens: int, room: int) -> InPlaceCache:
    """A cache of its own with the first tokens of another, and room for so many in all."""
    copy = InPlaceCache(len(cache.layers))
    reserve(copy, room)
    layers: Any = zip(cache.layers, copy.layers, strict=True)
    for layer, own in layers:
        own.update(layer.keys[:, :tokens].transpose(1, 2), layer.values[:, :tokens].transpose(1, 2))
    return copy


def reserve(cache: Any, tokens: int) -> None:
    """Tell an in-place cache how many tokens are to come in all, so that it grows once; others take no notice."""
    for layer in cache.layers:
        if isinstance(layer, InPlaceLayer):
            layer.reserve = max(layer.reserve, tokens)


def cut_to(cache: Any, tokens: int) -> None:
    """Forget everything after the first `tokens` tokens, in each layer by itself.

    A forward pass that broke off leaves layers of different lengths.
    """
    for layer in cache.layers:
        surplus = layer.get_seq_length() - tokens
        if surplus > 0:
            layer.crop(-surplus)


def make_cache(config: Any, offload: bool) -> Any:
    """A cache for a model of full attention layers: in place, or transformers' own, kept in host memory."""
    if offload:
        return DynamicCache(config=config, offloading=True)
    return InPlaceCache(len(DynamicCache(config=config).layers))


def cache_bytes(cache: Any) -> int:
    """What the buffers of a cache take."""
    tensors = [t for layer in cache.layers for t in (layer.keys, layer.values) if t is not None]
    return sum(t.numel() * t.element_size() for t in tensors)


def is_plain(config: Any) -> bool:
    """Whether every layer of a model keeps the keys and values of all tokens: no sliding window, no other state."""
    from transformers.cache_utils import DynamicLayer

    try:
        layers = DynamicCache(config=config).layers
    except Exception:  # a configuration that the library makes no cache of
        return False
    return bool(layers) and all(type(layer) is DynamicLayer for layer in layers)
