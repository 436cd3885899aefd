"""What prompts have in common at their beginnings, kept as a few numbers a prompt so that thousands fit into memory."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Sequence
from typing import TypeAlias

BLOCK_TOKENS = 64
"""Beginnings are compared in blocks of so many tokens, or of about as many in text."""

Blocks: TypeAlias = "array[int]"
"""The digests of a prompt's blocks, in order."""


def of_ids(ids: Sequence[int]) -> Blocks:
    """The blocks of a prompt's token ids. The last token is left out, which is computed in any case."""
    whole = (len(ids) - 1) // BLOCK_TOKENS * BLOCK_TOKENS
    return array("q", (hash(tuple(ids[at : at + BLOCK_TOKENS])) for at in range(0, whole, BLOCK_TOKENS)))


def of_text(text: str, characters: int, most: int) -> Blocks:
    """The blocks of the first `most` characters of a text, `characters` each."""
    whole = min(len(text), most) // characters * characters
    return array("q", (hash(text[at : at + characters]) for at in range(0, whole, characters)))


def common(prompts: Iterable[Blocks]) -> list[int]:
    """How many blocks each prompt but the first has in common with one that was computed before it, in the best order.

    That is the order of a walk through the tree of beginnings: sorted, neighbours share the most.
    """
    row = sorted(prompts)
    return [_length(one, other) for one, other in itertools.pairwise(row)]


def _length(one: Blocks, other: Blocks) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count
