"""Shards: the records of one large cell, dealt over several jobs."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from longflow.records import read_records

BEGINNING = 2000
"""Characters of a context by which records are put beside those that begin like them."""

CHARACTERS = 4
"""Characters of a token, at most about: what a prompt limit leaves of a text is no more than this times the limit."""


def deal(records: str, spec: Mapping[str, Any], shards: int) -> list[set[int]]:
    """The indexes of the records of each shard.

    Records are put in the order of their contexts' beginnings, so that those with one document, or one haystack, are
    neighbours and can share its computation; that row is cut into parts of about equal length in characters. The same
    records are always dealt in the same way.

    Args:
        records: the records file.
        spec: the cell's specification, of which `limit` (first N records) and `max_prompt_tokens` are read.
        shards: how many parts; one may be empty if there are more of them than records.
    """
    longest = spec["max_prompt_tokens"] * CHARACTERS if spec.get("max_prompt_tokens") else None
    found = []
    for index, record in enumerate(read_records(records, spec.get("limit"))):
        context = str(record.fields.get("context", ""))
        weight = 1 + (len(context) if longest is None else min(len(context), longest))
        found.append((context[:BEGINNING], index, weight))
    found.sort()
    total = sum(weight for _, _, weight in found)
    parts: list[set[int]] = [set() for _ in range(shards)]
    for (_, index, weight), end in zip(found, accumulate(weight for _, _, weight in found), strict=True):
        # By the middle of a record, so that the last one of a part may reach over its end.
        parts[int((end - weight / 2) * shards / total)].add(index)
    return parts
