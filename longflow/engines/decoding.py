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
    """

    def __init__(
        self, model: Any, chunk: int = 0, lookup: int = 0, offload: bool = False, penalty: float = 1.0
    ) -> None:
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
        if not self._chunk:
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
        if self._cache is None:
            self._cache = make_cache(self._model.config, self._offload)
        start = self.reusable(ids)
        # Whatever happens from here on: no token is said to be there that may not be.
        self._cached = ids[:0]
        cut_to(self._cache, start)
        reserve(self._cache, len(ids) + max_new_tokens)
        step = (self._chunk if own else chunk) or len(ids)
        last = start + (len(ids) - 1 - start) // step * step
        for begin in range(start, last, step):
            self._fill(ids[begin : begin + step])
        scores = self._forward(ids[last:], keep=1)
        if own and self._chunk:
            self._cached = ids[: len(ids) // self._chunk * self._chunk]
        written = self._follow(ids, scores, max_new_tokens, ends, min_new_tokens)
        if not own:
            self.forget()
        return written

    def _follow(
        self, ids: Ids, scores: Tensor, max_new_tokens: int, ends: frozenset[int], min_new_tokens: int
    ) -> list[int]:
        """Generate after the prompt; `scores` (1, vocabulary) are those of the first new token."""
        text = np.concatenate([ids, np.empty(max_new_tokens, np.int32)])
        length, first = len(ids), len(ids)
        guesses: Ids = ids[:0]
        seen = self._seen(ids, scores)
        while True:
            for place in range(len(scores)):
                suppressed = ends if length - first < min_new_tokens else frozenset()
                token = self._choose(scores[place], seen, suppressed)
                text[length] = token
                length += 1
                if seen is not None:
                    seen[token] = True
                if token in ends or length - first == max_new_tokens:
                    return [int(token) for token in text[first:length]]
                if place == len(guesses) or guesses[place] != token:
                    break
            # The last token is not in the cache yet; guesses that were wrong are.
            cut_to(self._cache, length - 1)
            most = min(self._lookup, max_new_tokens - (length - first) - 1)
            guesses = guess(text[:length], most)
            scores = self._forward(np.concatenate([text[length - 1 : length], guesses]), keep=1 + len(guesses))

    def _fill(self, ids: Ids) -> None:
        """Add tokens to the cache; what the model would say after them is not asked."""
        if not isinstance(self._cache, InPlaceCache):
            self._forward(ids, keep=1)
            return
        self._cache.only_fill = True
        try:
            self._forward(ids, keep=1)
        except Filled:
            pass
        finally:
            self._cache.only_fill = False

    def _forward(self, ids: Ids, keep: int) -> Tensor:
        """One pass of the model over the next tokens; returns the scores after the last `keep`, (keep, vocabulary)."""
        tokens = torch.from_numpy(ids.astype(np.int64))[None].to(self._model.device)
        output = self._model(input_ids=tokens, cache=self._cache, use_cache=True, logits_to_keep=keep)
        scores: Tensor = output.logits[0]
        return scores

    def _seen(self, ids: Ids, scores: Tensor) -> Tensor | None:
        """Which tokens of the vocabulary a prompt has, where a penalty asks for it."""
        if self._penalty == 1.0:
            return None
        seen = torch.zeros(scores.shape[-1], dtype=torch.bool, device=scores.device)
        seen[torch.from_numpy(np.unique(ids).astype(np.int64)).to(scores.device)] = True
        return seen

    def _choose(self, scores: Tensor, seen: Tensor | None, suppressed: frozenset[int]) -> int:
        """The token of the highest score, after what the model's settings make of the scores (vocabulary)."""
        scores = scores.to(torch.float32, copy=True)
        if seen is not None:
            lowered = torch.where(scores < 0, scores * self._penalty, scores / self._penalty)
            scores = torch.where(seen, lowered, scores)
        if suppressed:
            scores[sorted(suppressed)] = -torch.inf
        return int(scores.argmax())


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
