"""What answers of a hosted model cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PER = 1_000_000
"""Tokens that a price is for."""


def cost(
    price: Mapping[str, Any], prompt_tokens: int | None, cached_tokens: int | None, answer_tokens: int | None
) -> float:
    """Money for these tokens, in the currency of the prices.

    Args:
        price: the `price` of a model's entry: `input`, `output` and, at will, `cached_input`, per million tokens.
        prompt_tokens: tokens of prompts, those that the server had cached among them, as OpenAI's usage counts them.
        cached_tokens: how many of the prompts' tokens the server had cached; they cost `cached_input`, where that is
            given.
        answer_tokens: tokens of answers, reasoning included.

    Counts that are not known (None) are taken for zero.
    """
    prompt = prompt_tokens or 0
    cached = min(cached_tokens or 0, prompt)
    cached_price = price.get("cached_input")
    if cached_price is None:
        cached_price = price["input"]
    money = (prompt - cached) * price["input"] + cached * cached_price + (answer_tokens or 0) * price["output"]
    return float(money) / PER
