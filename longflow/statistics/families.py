"""Which differences are tested, said before any score is looked at.

Tests that belong to one question are one family, and Holm's rule keeps the chance of any false alarm in a family at
5 %. The families of a benchmark are

- `models`: for each setting, all pairs of models run, on the benchmark's overall mean over what both have;
- `levels`: for each model and setting of a benchmark of length levels, each level against the shortest, over the data
  sets that both have; not of settings without any context, where all levels ask the same;
- `settings`: for each model, every other setting against `full`, on the overall mean over what both have;
- `groups`: for each model and setting, groups of records that hold different questions. These are not in pairs and not
  tested: only their interval is given.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from longflow.benchmarks import Benchmark
from longflow.means import CellKey, Means, averages, columns, fixed_means, level_means, ordered_lengths
from longflow.settings import FULL
from longflow.statistics.clusters import LeafKey

Weights = Mapping[LeafKey, float]
"""A linear combination of cells' (or groups') means."""

Entry = tuple[str, str]
"""Model and setting."""

GROUPS = "groups"

GROUP_CONTRASTS: Mapping[str, Sequence[tuple[str, str]]] = {
    "longbench_e": (("4-8k", "0-4k"), ("8k+", "0-4k")),
    "longbench_v2": (("hard", "easy"), ("medium", "short"), ("long", "short")),
}
"""Means of groups that are set against each other, by benchmark."""


@dataclass(frozen=True)
class Difference:
    """`a` minus `b` on a mean, as a linear combination of leaves."""

    family: str
    kind: str
    model: str | None
    setting: str | None
    a: str
    b: str
    on: str
    weights: Weights

    @property
    def name(self) -> tuple[str, str, str]:
        """What tells it from all others."""
        return self.family, self.a, self.b


def leaf_weights(name: str, members: Means, leaves: Sequence[str]) -> dict[str, float] | None:
    """The weight of each leaf in a mean of unweighted means; None if it lacks a leaf."""
    if name in leaves:
        return {name: 1.0}
    found: dict[str, float] = {}
    for member in members.get(name, ()):
        part = leaf_weights(member, members, leaves)
        if part is None:
            return None
        for leaf, weight in part.items():
            found[leaf] = found.get(leaf, 0.0) + weight / len(members[name])
    return found or None


def cells_of(leaves: Sequence[str]) -> list[str]:
    """Those leaves that are whole cells, not groups of one."""
    return [leaf for leaf in leaves if leaf.count("/") == 1]


def keys_of(leaves: Sequence[str]) -> list[CellKey]:
    """Data set and length of the whole cells among these leaves."""
    return [(dataset, length) for dataset, length in (leaf.split("/") for leaf in cells_of(leaves))]


def overall_of(table: Benchmark, leaves: Sequence[str]) -> tuple[str, dict[str, float]] | None:
    """The mean that sums up these leaves: by levels, else the last of the benchmark's columns that they give.

    Where they give none of these it is the plain mean over the cells.
    """
    members = fixed_means(table)
    if members is None:
        overall = leaf_weights("overall", level_means(keys_of(leaves), table), cells_of(leaves))
        return ("overall", overall) if overall else None
    candidates = [name for name in averages(members) if name in columns(table)] or list(columns(table))
    for name in reversed(candidates):
        if (weights := leaf_weights(name, members, leaves)) is not None:
            return name, weights
    whole = cells_of(leaves)
    return ("mean over data sets", {leaf: 1 / len(whole) for leaf in whole}) if whole else None


def negated(weights: Mapping[str, float], share: float = 1.0) -> dict[str, float]:
    """Weights times -share."""
    return {leaf: -share * weight for leaf, weight in weights.items()}


def of_entry(model: str, setting: str, weights: Mapping[str, float]) -> dict[LeafKey, float]:
    """Weights of an entry's own leaves."""
    return {(model, setting, leaf): weight for leaf, weight in weights.items()}


def declared(
    table: Benchmark, entries: Mapping[Entry, Sequence[str]], no_context: Collection[str] = ()
) -> Iterator[Difference]:
    """All differences of a benchmark's families; `entries` gives the leaves of each model and setting."""
    for setting in dict.fromkeys(setting for _, setting in entries):
        models = sorted(model for model, name in entries if name == setting)
        for a, b in combinations(models, 2):
            if found := _overall(table, entries, (a, setting), (b, setting)):
                yield Difference(f"models/{setting}", "models", None, setting, a, b, *found)
    for model, setting in entries:
        both = setting != FULL and (model, FULL) in entries
        if both and (found := _overall(table, entries, (model, setting), (model, FULL))):
            yield Difference(f"settings/{model}", "settings", model, None, setting, FULL, *found)
    members = fixed_means(table)
    for (model, setting), leaves in entries.items():
        if members is None and setting not in no_context:
            yield from _levels(model, setting, keys_of(leaves))
        for a, b in GROUP_CONTRASTS.get(table.name, ()):
            sides = [leaf_weights(name, members or {}, leaves) for name in (a, b)]
            if sides[0] is not None and sides[1] is not None:
                weights = of_entry(model, setting, sides[0] | negated(sides[1]))
                yield Difference(f"groups/{model}/{setting}", GROUPS, model, setting, a, b, "groups", weights)


def _overall(
    table: Benchmark, entries: Mapping[Entry, Sequence[str]], a: Entry, b: Entry
) -> tuple[str, Weights] | None:
    """The overall mean of the leaves that two entries have: its name and a minus b; None where they share none."""
    common = [leaf for leaf in entries[a] if leaf in entries[b]]
    overall = overall_of(table, common)
    return overall and (overall[0], of_entry(*a, overall[1]) | of_entry(*b, negated(overall[1])))


def _levels(model: str, setting: str, cells: Sequence[CellKey]) -> Iterator[Difference]:
    levels = ordered_lengths(cells)
    for level in levels[1:]:
        if weights := level_difference(cells, level, levels[0]):
            family, entry = f"levels/{model}/{setting}", of_entry(model, setting, weights)
            yield Difference(family, "levels", model, setting, level, levels[0], "level mean", entry)


def level_difference(cells: Sequence[CellKey], level: str, shortest: str, share: float = 1.0) -> dict[str, float]:
    """Weights of the level's mean minus `share` times the shortest level's, over the data sets that both have."""
    common = [dataset for dataset, length in cells if length == level and (dataset, shortest) in cells]
    return {f"{d}/{level}": 1 / len(common) for d in common} | {f"{d}/{shortest}": -share / len(common) for d in common}
