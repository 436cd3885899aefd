"""Attention for one prompt after another: causal, without padding, and so without a mask.

transformers' own "sdpa" builds a mask of chunk x length as soon as a chunk of a prompt follows earlier ones, which
turns off the causal flash kernels and repeats keys and values once for each group of query heads; and for a single
query token in bfloat16 on a CPU its grouped attention is seven times slower than the same numbers packed. What is here
computes the same attention, each part of it with the kernel that is quick at it.

Tensors are (1, heads, tokens, size of a head); there may be fewer key heads than query heads (grouped-query attention).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from longflow.engines.kvcache import Ragged

NAME = "longflow"
"""Under this name transformers knows `attention_forward`."""

_HALF_OR_SINGLE = (torch.float32, torch.bfloat16, torch.float16)


def register() -> None:
    """Make `attention_forward` known to transformers. It gets no mask, since none is registered with it."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, attention_forward)


def attention_forward(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention in the form that transformers' models call. Returns (1, tokens, heads, size) and no weights.

    The keys of several prompts side by side are `Ragged`: each prompt attends to its own, by itself.
    What is not plain causal attention (a mask, a position bias, capped scores) goes to transformers' own function.
    """
    if attention_mask is not None or kwargs.get("position_bias") is not None or kwargs.get("softcap") is not None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
    if isinstance(key, Ragged):
        queries = torch.split(query, list(key.added), 2)
        found = torch.cat([causal_attention(*own, scaling) for own in zip(queries, key, value, strict=True)], 2)
        return found.transpose(1, 2).contiguous(), None
    return causal_attention(query, key, value, scaling).transpose(1, 2).contiguous(), None


def causal_attention(query: Tensor, key: Tensor, value: Tensor, scale: float | None = None) -> Tensor:
    """Each query token attends to the keys up to its own position; the queries are the last tokens of the keys.

    Args:
        query: (1, heads, q, size).
        key: (1, key heads, n, size), n >= q; `heads` is a multiple of `key heads`.
        value: (1, key heads, n, size of a value).
        scale: factor of the scores; None is 1 / sqrt(size).

    Returns (1, heads, q, size of a value).
    """
    _, heads, tokens, _ = query.shape
    length, grouped = key.shape[2], key.shape[1] != heads
    if tokens == 1:
        # The heads of a group become the query tokens of their key head: every key is read once.
        found = scaled_dot_product_attention(_packed(query, key), key, value, scale=scale)
        return found.reshape(1, heads, 1, value.shape[3])
    if tokens == length:
        return scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale, enable_gqa=grouped)
    if query.device.type == "cpu" and query.dtype in _HALF_OR_SINGLE and key.shape[3] == value.shape[3]:
        return _past_and_present(query, key, value, scale)
    # On a GPU the flash kernels align a causal mask to the last key; this bias asks for that. Elsewhere it becomes a
    # mask. With an older kernel, or for float32, too.
    from torch.nn.attention.bias import causal_lower_right

    bias: Any = causal_lower_right(tokens, length)
    return scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=scale, enable_gqa=grouped)


def _past_and_present(query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> Tensor:
    """Attention to the keys before this chunk, which all may be seen, and to the chunk's own, which is causal.

    Both are done by the CPU's flash kernel, which gives the logarithm of the sum of weights with the result: with them
    the two results are weighed to what one softmax over all keys gives.
    """
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    _, heads, tokens, size = query.shape
    past = key.shape[2] - tokens
    present, present_weight = flash(query, key[:, :, past:], value[:, :, past:], 0.0, True, scale=scale)
    before, before_weight = flash(_packed(query, key), key[:, :, :past], value[:, :, :past], 0.0, False, scale=scale)
    before = before.reshape(1, heads, tokens, size)
    before_weight = before_weight.reshape(1, heads, tokens)
    share = torch.sigmoid(present_weight - before_weight).unsqueeze(-1)
    return torch.lerp(before.float(), present.float(), share).to(query.dtype)


def _packed(query: Tensor, key: Tensor) -> Tensor:
    """The query heads that share a key head laid out as further query tokens of it: (1, key heads, group * q, size)."""
    _, heads, tokens, size = query.shape
    return query.reshape(1, key.shape[1], heads // key.shape[1] * tokens, size)
