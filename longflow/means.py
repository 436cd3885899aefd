"""Unweighted means, told by their members: cells, groups within cells, other means."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from longflow.benchmarks import Benchmark, length_units

COMPENSATED = "compensated"
"""A score in which an answer that cannot be parsed counts as a guess."""

CellKey = tuple[str, str]
"""Data set and length."""

Means = Mapping[str, Sequence[str]]
"""The members of each mean, by its name: "dataset/length", "dataset/length/group", or the name of another mean."""


@dataclass(frozen=True)
class Mean:
    """An unweighted mean (percent), and the leaves (cells, groups of cells) that it stands on, each once."""

    score: float
    behind: tuple[str, ...]


def mean(values: Iterable[float]) -> float | None:
    """The unweighted mean, None of nothing."""
    found = list(values)
    return math.fsum(found) / len(found) if found else None


def means(members: Means, leaves: Mapping[str, float], given: Mapping[str, float] | None = None) -> dict[str, Mean]:
    """The means that can be told from these leaves (percent), in the order of `members`.

    A mean that lacks a member is left out: one over fewer members would be another quantity. A mean in `given` has
    that score, whatever its members have.
    """
    found: dict[str, Mean | None] = {name: Mean(score, (name,)) for name, score in leaves.items()}

    def tell(name: str) -> Mean | None:
        if name not in found:
            found[name] = None  # a mean among its own members has no value
            parts = [tell(member) for member in members.get(name, ())]
            whole = [part for part in parts if part is not None]
            score = mean(part.score for part in whole) if len(whole) == len(parts) else None
            score = (given or {}).get(name, score)
            if score is not None:
                found[name] = Mean(score, tuple(dict.fromkeys(leaf for part in whole for leaf in part.behind)))
        return found[name]

    told = {name: tell(name) for name in members}
    return {name: value for name, value in told.items() if value is not None}


def fixed_means(table: Benchmark) -> Means | None:
    """The means that a benchmark names itself; None for one whose means are those of its length levels."""
    return getattr(table.module, "MEANS", None)


def columns(table: Benchmark) -> list[str]:
    """The columns of a benchmark's wide table, of one that names its means: as it says, or all means there are."""
    return list(getattr(table.module, "COLUMNS", fixed_means(table) or ()))


def averages(members: Means) -> list[str]:
    """The means that are not part of another one: what a benchmark sums itself up in."""
    parts = {member for names in members.values() for member in names}
    return [name for name in members if name not in parts]


def level_means(keys: Iterable[CellKey], table: Benchmark) -> Means:
    """The means of length levels over these cells: "{length}", "{dataset}", and "overall" over the lengths."""
    keys = list(keys)
    lengths = ordered_lengths(keys)
    datasets = ordered_datasets(keys, table)
    return {
        **{length: [f"{d}/{length}" for d in datasets if (d, length) in keys] for length in lengths},
        **{dataset: [f"{dataset}/{n}" for n in lengths if (dataset, n) in keys] for dataset in datasets},
        "overall": lengths,
    }


def ordered_datasets(keys: Iterable[CellKey], table: Benchmark) -> list[str]:
    """The data sets that occur, in the benchmark's order; ones it does not name come last, by name."""
    order = {dataset: i for i, dataset in enumerate(table.tasks)}
    return sorted({dataset for dataset, _ in keys}, key=lambda d: (order.get(d, len(order)), d))


def ordered_lengths(keys: Iterable[CellKey]) -> list[str]:
    """The length levels that occur, shortest first."""
    return sorted({length for _, length in keys}, key=lambda name: (length_units(name), name))


def leaves_of(name: str, members: Means) -> list[str]:
    """The leaves that a mean stands on by the benchmark, each once; a leaf's own name for a leaf."""
    if name not in members:
        return [name]
    return list(dict.fromkeys(leaf for member in members[name] for leaf in leaves_of(member, members)))


def groups_in(names: Iterable[str], members: Means) -> list[str]:
    """The groups of records that these means are made of, each once, in their order."""
    leaves = (leaf.split("/", 2) for name in names for leaf in leaves_of(name, members))
    return list(dict.fromkeys(parts[2] for parts in leaves if len(parts) == 3 and parts[2] != COMPENSATED))
