"""Several answers at a time: what is decoded rides along with the prompt that is being computed.

A step of decoding reads all weights for one token. Here one pass of the model goes over the tokens of several prompts
laid one after another: a chunk of the newest one, and the next token (with guesses, if any) of each whose answer is on
its way. Nothing is padded, and each prompt attends to its own keys in its own cache. The linear layers see all these
tokens in one matrix, which may round otherwise than for a prompt alone: in float32 texts have been the same, in
bfloat16 they may differ.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from longflow.engines.decoding import Ids, Writing, common_prefix, fill
from longflow.engines.kvcache import InPlaceCache, SideBySide, beginning_of, cut_to, make_cache, reserve

Item = TypeVar("Item")


@dataclass
class Answering(Generic[Item]):
    """A prompt whose answer is on its way. `seconds` are its share of the passes, by tokens."""

    item: Item
    writing: Writing
    cache: InPlaceCache
    size: int
    guesses: Ids
    seconds: float = 0.0


class Together(Generic[Item]):
    """Answers prompts with one model, some at a time.

    Args:
        model: a causal language model whose attention is `attention.NAME`.
        room: tokens of prompts and answers that are on their way at a time. The last prompt's cache may be there beside
            them, for the next to begin with.
        most: answers at a time.
        chunk: tokens of a prompt computed at once; 0 is the whole prompt.
        lookup: tokens guessed for each answer at each step.
        penalty: the model's repetition penalty.
        share: whether what a prompt begins with in common with the last one is taken from its cache.

    The model has to place tokens by `position_ids` and to build no mask: what it is told of the caches is no length
    that a mask could be made of.
    """

    def __init__(
        self, model: Any, room: int, most: int, chunk: int, lookup: int, penalty: float, share: bool = True
    ) -> None:
        self._share = share
        self._model = model
        self.room = room
        self._most = most
        self._chunk = chunk
        self._lookup = lookup
        self._penalty = penalty
        self._active: list[Answering[Item]] = []
        """Those whose prompt is computed; one that is not rides in no pass but its own."""
        self._last: Ids = np.empty(0, np.int32)
        self._last_cache: InPlaceCache | None = None

    def reusable(self, ids: Ids) -> int:
        """How many tokens of a prompt stand in the cache of the last one, in whole chunks."""
        if not self._chunk or not self._share:
            return 0
        return min(common_prefix(self._last, ids), len(ids) - 1) // self._chunk * self._chunk

    def add(
        self, item: Item, ids: Ids, max_new_tokens: int, ends: frozenset[int], min_new_tokens: int = 0
    ) -> Iterator[Answering[Item]]:
        """Compute a prompt, with the answers on their way riding along; yields those that are done.

        Arguments are those of `Decoder.answer`. Where there is no room answers are written until there is.
        """
        size = len(ids) + max_new_tokens
        while self._active and (len(self._active) == self._most or self._used() + size > self.room):
            yield from self._step()
        start = self.reusable(ids)
        if start and self._last_cache is not None:
            cache = beginning_of(self._last_cache, start, size)
        else:
            cache = make_cache(self._model.config, offload=False)
            reserve(cache, size)
        self._last, self._last_cache = ids[:0], None
        writing = Writing(ids, max_new_tokens, ends, min_new_tokens, self._penalty)
        new = Answering(item, writing, cache, size, ids[:0])
        step = self._chunk or len(ids)
        for begin in range(start, len(ids), step):
            yield from self._step(new, ids[begin : begin + step])
        if self._chunk:
            self._last, self._last_cache = ids[: len(ids) // self._chunk * self._chunk], cache

    def finish(self) -> Iterator[Answering[Item]]:
        """Write what is on its way to its end."""
        while self._active:
            yield from self._step()

    def abandon(self) -> list[Item]:
        """Give all memory back; returns what had no answer yet."""
        items = [each.item for each in self._active]
        self._active = []
        self._last, self._last_cache = self._last[:0], None
        return items

    def _used(self) -> int:
        return sum(each.size for each in self._active)

    @torch.inference_mode()
    def _step(self, new: Answering[Item] | None = None, part: Ids | None = None) -> list[Answering[Item]]:
        """One pass over the next part of a new prompt, if any, and the next token of each answer; returns the done."""
        began = time.perf_counter()
        passing = list(self._active)
        tokens = [np.append(np.int32(each.writing.last), each.guesses) for each in passing]
        asked = [len(own) for own in tokens]  # rows of scores that are wanted, from the end of each one's tokens
        if new is not None and part is not None:
            complete = new.cache.get_seq_length() + len(part) == new.writing.length
            if not passing and not complete:
                fill(self._model, new.cache, part)
                new.seconds += time.perf_counter() - began
                return []
            passing.append(new)
            tokens.append(part)
            asked.append(int(complete))
        scores = self._forward([each.cache for each in passing], tokens, asked)
        for each, own in zip(passing, scores, strict=True):
            if len(own):
                each.writing.accept(own, each.guesses)
                cut_to(each.cache, each.writing.length - 1)
                each.guesses = each.writing.guesses(self._lookup)
        spent = (time.perf_counter() - began) / sum(map(len, tokens))
        for each, ids in zip(passing, tokens, strict=True):
            each.seconds += spent * len(ids)
        if new is not None and asked[-1]:
            self._active.append(new)
        done = [each for each in self._active if each.writing.done]
        self._active = [each for each in self._active if not each.writing.done]
        return done

    def _forward(self, caches: Sequence[InPlaceCache], tokens: Sequence[Ids], asked: Sequence[int]) -> Sequence[Tensor]:
        """One pass; returns for each prompt the scores after the last tokens that are asked for."""
        device = self._model.device
        lengths = [len(ids) for ids in tokens]
        starts = [cache.get_seq_length() for cache in caches]
        places = [np.arange(start, start + length) for start, length in zip(starts, lengths, strict=True)]
        ends = np.cumsum(lengths)
        rows = np.concatenate([np.arange(end - count, end) for end, count in zip(ends, asked, strict=True)])
        output = self._model(
            input_ids=torch.from_numpy(np.concatenate(tokens).astype(np.int64))[None].to(device),
            position_ids=torch.from_numpy(np.concatenate(places))[None].to(device),
            cache=SideBySide(caches, lengths),
            use_cache=True,
            logits_to_keep=torch.from_numpy(rows).to(device),
        )
        found: Sequence[Tensor] = output.logits[0].split(list(asked))
        return found
