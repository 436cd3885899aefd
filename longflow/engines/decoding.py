"""Greedy generation for one prompt: prefill in chunks, then token by token, or several guessed tokens at once.

The text is that of `generate` with batch size 1 and do_sample=False. The prompt is computed in chunks that begin at
multiples of the chunk size. A later prompt that begins with the same whole chunks takes their keys and values as they
are: each number in the cache is then one that the later prompt alone would have got, from the same kernels over the
same shapes, so an answer is the same to the bit whatever was asked before, in every dtype.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longflow.engines.kvcache import Filled, InPlaceCache, cache_bytes, cut_to, make_cache, reserve

Ids = NDArray[np.int32]

HEEDED = frozenset({"repetition_penalty"})
"""What of a generation config changes greedy text and is heeded here; a model with more of it goes to `generate`."""

WITHOUT_EFFECT = frozenset(
    {
        "_from_model_config",
        "bos_token_id",
        "decoder_start_token_id",
        "do_sample",
        "eos_token_id",
        "max_length",
        "max_new_tokens",
        "output_attentions",
        "output_hidden_states",
        "pad_token_id",
        "return_dict_in_generate",
        "transformers_version",
        "use_cache",
    }
)
"""What of a generation config changes no greedy text, or is read elsewhere (the end tokens)."""


class Decoder:
    """Answers prompts with one model and one KV cache, which keeps the last prompt for the next.

    Args:
        model: a causal language model of transformers whose layers all have full attention (`kvcache.is_plain`).
        chunk: tokens of a prompt computed at once; 0 is the whole prompt.
        lookup: tokens guessed at each step from earlier occurrences of the last tokens (prompt lookup); 0 is off.
        offload: keep the KV cache in the host's memory.
        penalty: the model's repetition penalty; 1 is none.
        share: whether what a prompt begins with in common with the last one is taken from the cache.
    """

    def __init__(
        self,
        model: Any,
        chunk: int = 0,
        lookup: int = 0,
        offload: bool = False,
        penalty: float = 1.0,
        share: bool = True,
    ) -> None:
        self._share = share
        self._model = model
        self._chunk = chunk
        self._lookup = lookup
        self._offload = offload
        self._penalty = penalty
        self._cache: Any = None
        self._cached: Ids = np.empty(0, np.int32)

    @property
    def cached(self) -> Ids:
        """The ids whose keys and values are there for the next prompt: whole chunks of the last one."""
        return self._cached

    def reusable(self, ids: Ids) -> int:
        """How many tokens of a prompt need not be computed, since they stand in the cache: a multiple of the chunk.

        The last token is always computed: what follows it is asked for.
        """
        if not self._chunk or not self._share:
            return 0
        return min(common_prefix(self._cached, ids), len(ids) - 1) // self._chunk * self._chunk

    def cache_bytes(self) -> int:
        """What the KV cache takes now."""
        return cache_bytes(self._cache) if self._cache is not None else 0

    def forget(self) -> None:
        """Give the KV cache back."""
        self._cache = None
        self._cached = np.empty(0, np.int32)

    @torch.inference_mode()
    def answer(
        self, ids: Ids, max_new_tokens: int, ends: frozenset[int], min_new_tokens: int = 0, chunk: int | None = None
    ) -> list[int]:
        """The ids that follow a prompt: at most `max_new_tokens`, the last one of `ends` if it stopped there.

        Args:
            ids: the prompt, at least one token.
            ends: ids that end an answer.
            min_new_tokens: so many tokens are generated that are no end.
            chunk: another chunk size for this prompt only; nothing of it is kept then.
        """
        own = chunk is None or chunk == self._chunk
        if not own:
            self.forget()
        scores = self._prefill(ids, max_new_tokens, self._chunk if own else chunk, own)
        writing = Writing(ids, max_new_tokens, ends, min_new_tokens, self._penalty)
        self._follow(writing, scores)
        if not own:
            self.forget()
        return writing.answer

    def _prefill(self, ids: Ids, room: int, chunk: int | None, keep: bool) -> Tensor:
        """Compute a prompt; returns the scores (1, vocabulary) of what follows it. `keep` for the next prompt."""
        if self._cache is None:
            self._cache = make_cache(self._model.config, self._offload)
        start = self.reusable(ids)
        # Whatever happens from here on: no token is said to be there that may not be.
        self._cached = ids[:0]
        cut_to(self._cache, start)
        reserve(self._cache, len(ids) + room)
        step = chunk or len(ids)
        last = start + (len(ids) - 1 - start) // step * step
        for begin in range(start, last, step):
            fill(self._model, self._cache, ids[begin : begin + step])
        scores = self._forward(ids[last:], keep=1)
        if keep and self._chunk:
            self._cached = ids[: len(ids) // self._chunk * self._chunk]
        return scores

    def _follow(self, writing: Writing, scores: Tensor) -> None:
        """Generate after the prompt; `scores` (1, vocabulary) are those of the first new token."""
        guesses = writing.text[:0]
        while True:
            writing.accept(scores, guesses)
            if writing.done:
                return
            # The last token is not in the cache yet; guesses that were wrong are.
            cut_to(self._cache, writing.length - 1)
            guesses = writing.guesses(self._lookup)
            scores = self._forward(np.append(np.int32(writing.last), guesses), keep=1 + len(guesses))

    def _forward(self, ids: Ids, keep: int) -> Tensor:
        return forward(self._model, self._cache, ids, keep)


def forward(model: Any, cache: Any, ids: Ids, keep: int) -> Tensor:
    """One pass of a model over the next tokens; returns the scores after the last `keep`, (keep, vocabulary)."""
    tokens = torch.from_numpy(ids.astype(np.int64))[None].to(model.device)
    output = model(input_ids=tokens, cache=cache, use_cache=True, logits_to_keep=keep)
    scores: Tensor = output.logits[0]
    return scores


def fill(model: Any, cache: Any, ids: Ids) -> None:
    """Add tokens to a cache; what the model would say after them is not asked."""
    if not isinstance(cache, InPlaceCache):
        forward(model, cache, ids, keep=1)
        return
    cache.only_fill = True
    try:
        forward(model, cache, ids, keep=1)
    except Filled:
        pass
    finally:
        cache.only_fill = False


class Writing:
    """An answer on its way: a prompt, the tokens that were chosen after it, and what decides on the next.

    Args:
        ids: the prompt.
        most: tokens of the answer, at most.
        ends: ids that end it.
        least: so many tokens are chosen that are no end.
        penalty: the model's repetition penalty; 1 is none.
    """

    def __init__(self, ids: Ids, most: int, ends: frozenset[int], least: int, penalty: float) -> None:
        self.text = np.concatenate([ids, np.empty(most, np.int32)])
        self.length = self._first = len(ids)
        self.done = False
        self._ends = ends
        self._least = least
        self._penalty = penalty
        self._seen: Tensor | None = None

    @property
    def answer(self) -> list[int]:
        """The ids chosen so far."""
        return [int(token) for token in self.text[self._first : self.length]]

    @property
    def last(self) -> int:
        """The last id."""
        return int(self.text[self.length - 1])

    @property
    def left(self) -> int:
        """Tokens that may still come."""
        return len(self.text) - self.length

    def guesses(self, most: int) -> Ids:
        """Up to `most` tokens that may come next, beside the one that is chosen anyway."""
        return guess(self.text[: self.length], min(most, self.left - 1))

    def accept(self, scores: Tensor, guesses: Ids) -> None:
        """Choose the next tokens: of scores (1 + guesses, vocabulary) those after a guess count where it was right."""
        for place in range(len(scores)):
            token = self.add(scores[place])
            if self.done or place == len(guesses) or guesses[place] != token:
                return

    def add(self, scores: Tensor) -> int:
        """Choose the token of the highest score, after what the model's settings make of the scores (vocabulary)."""
        scores = scores.to(torch.float32, copy=True)
        if self._penalty != 1.0:
            if self._seen is None:
                ids = np.unique(self.text[: self._first]).astype(np.int64)
                self._seen = torch.zeros(scores.shape[-1], dtype=torch.bool, device=scores.device)
                self._seen[torch.from_numpy(ids).to(scores.device)] = True
            lowered = torch.where(scores < 0, scores * self._penalty, scores / self._penalty)
            scores = torch.where(self._seen, lowered, scores)
        if self._ends and self.length - self._first < self._least:
            scores[sorted(self._ends)] = -torch.inf
        token = int(scores.argmax())
        self.text[self.length] = token
        self.length += 1
        if self._seen is not None:
            self._seen[token] = True
        self.done = token in self._ends or not self.left
        return token


def common_prefix(one: Ids, other: Ids) -> int:
    """Number of leading ids that are equal, compared one by one."""
    length = min(len(one), len(other))
    different = np.flatnonzero(one[:length] != other[:length])
    return int(different[0]) if len(different) else length


def guess(text: Ids, most: int) -> Ids:
    """Up to `most` tokens that may come next: those that followed the last three tokens where they stood before.

    The latest earlier place is taken; where there is none, the latest of the last two tokens.
    """
    for count in (3, 2):
        if most <= 0 or len(text) <= count:
            continue
        same = text[count - 1 : -1] == text[-1]
        for back in range(1, count):
            same &= text[count - 1 - back : -1 - back] == text[-1 - back]
        places = np.flatnonzero(same)
        if len(places):
            after = int(places[-1]) + count
            return text[after : after + most]
    return text[:0]


def heeds(settings: dict[str, Any]) -> bool:
    """Whether greedy text under these settings of a generation config (those that are not the default) is made here."""
    return not set(settings) - HEEDED - WITHOUT_EFFECT
