"""How far a model reads: the longest level to which it keeps most of what it scores at the shortest one.

The effective length is the largest level L such that at every level up to L the one-sided 95 % lower bound of the macro
mean of (score at L - 0.85 x score at the shortest level), in pairs, is above 0. Levels are tested from short to long
and testing stops at the first failure, so no correction for many tests is needed.

It is undefined unless the shortest level clearly beats what is known without any context, or zero: a share of nothing
says nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from longflow import benchmarks, published
from longflow.benchmarks import length_units
from longflow.statistics.bootstrap import Stratum
from longflow.statistics.clusters import CellScores, Clustering, Key

SHARE = 0.85
"""What share of the score at the shortest level has to be kept."""

FLOOR = 5.0
"""Of published curves, which are points without records: the score (percent) at the shortest level below which nothing
can be said."""

HELD, LOST, UNRESOLVED = "held", "lost", "unresolved"

Kept = Callable[[CellScores, str], bool | None]
"""Whether the evidence of a record (its id) was in what was sent; None where it cannot be told."""


@dataclass(frozen=True)
class LevelTest:
    """A level against the shortest one.

    `difference` is the macro mean of score - 0.85 x score at the shortest level, with one-sided 95 % bounds; `n` are
    the pairs behind it.
    """

    length: str
    difference: float
    lower: float
    upper: float
    n: int
    datasets: int

    @property
    def verdict(self) -> str:
        """`held` if the lower bound is above 0, `lost` if the upper one is below 0, `unresolved` between."""
        return HELD if self.lower > 0 else LOST if self.upper < 0 else UNRESOLVED


@dataclass(frozen=True)
class EffectiveLength:
    """Held to a level; lost by one, or by none; the levels in between are unresolved."""

    held_to: str
    lost_by: str | None
    unresolved: tuple[str, ...]


def effective_length(shortest: str, tests: Sequence[LevelTest]) -> EffectiveLength:
    """The effective length told by the tests of all longer levels, given from short to long.

    At the first level that does not hold testing ends: it is lost, or unresolved. In the second case `lost_by` is the
    shortest of the levels that are lost one after the other from the longest down, which is tested in that order.
    """
    held = shortest
    for index, test in enumerate(tests):
        if test.verdict == HELD:
            held = test.length
            continue
        if test.verdict == LOST:
            return EffectiveLength(held, test.length, ())
        first_lost = len(tests)
        while tests[first_lost - 1].verdict == LOST:
            first_lost -= 1
        lost_by = tests[first_lost].length if first_lost < len(tests) else None
        return EffectiveLength(held, lost_by, tuple(t.length for t in tests[index:first_lost]))
    return EffectiveLength(held, None, ())


def in_words(found: EffectiveLength, longest: str, tokens: Mapping[str, float | None]) -> str:
    """The effective length as a phrase, with the tokens sent at each level where they are known.

    The longest level run is no limit: a model that holds it may hold more.
    """

    def level(name: str) -> str:
        sent = tokens.get(name)
        return name if sent is None else f"{name} ({round(sent):,} tokens sent)"

    if found.held_to == longest:
        return f"held to {level(longest)}, the longest level run"
    parts = [f"held to {level(found.held_to)}"]
    if found.unresolved:
        first, last = found.unresolved[0], found.unresolved[-1]
        parts.append(f"unresolved at {level(first)}" + (f" to {level(last)}" if last != first else ""))
    if found.lost_by:
        parts.append(f"lost by {level(found.lost_by)}")
    return ", ".join(parts)


def kept_pairs(long: CellScores, short: CellScores, clustering: Clustering, kept: Kept) -> tuple[Stratum, int] | None:
    """Two columns, a level and the shortest one, of those pairs of records whose evidence was kept in both.

    Pairs whose evidence was cut away, or of which it cannot be told, are left out. Returns the stratum and the number
    of pairs; None without any.
    """
    sides = []
    for cell in (long, short):
        units = {(unit.question, unit.place): unit for unit in cell.records if kept(cell, unit.id)}
        sides.append(units)
    common = sorted(set(sides[0]) & set(sides[1]))
    if not common:
        return None
    clusters: dict[Key, list[float]] = {}
    size: Counter[Key] = Counter()
    for name in common:
        key = clustering.key(sides[0][name])
        sums = clusters.setdefault(key, [0.0, 0.0])
        size[key] += 1
        for side in (0, 1):
            sums[side] += sides[side][name].score or 0.0
    keys = sorted(clusters)
    sizes = np.array([[size[key]] * 2 for key in keys], dtype=np.float64)
    return Stratum("kept/" + long.name, np.array([clusters[key] for key in keys]), sizes), len(common)


@dataclass(frozen=True)
class PublishedLength:
    """The effective length of a published curve, by points only.

    `held_to` is None where it is undefined: the curve starts below `FLOOR`. `loss_is_clear` says whether the loss is
    more than records drawn by chance could explain. `recovers` says whether a level after the loss would hold again.
    """

    held_to: str | None
    lost_by: str | None
    loss_is_clear: bool | None
    recovers: bool

    @property
    def text(self) -> str:
        """As it stands in a table: `64k`, `64k?` if the loss after it may be chance, `>= 256k` without one, or `-`."""
        if self.held_to is None:
            return "-"
        if self.lost_by is None:
            return f">= {self.held_to}"
        return self.held_to if self.loss_is_clear else f"{self.held_to}?"


def published_length(curves: Sequence[Mapping[str, float]], n: Sequence[int]) -> PublishedLength:
    """The effective length of one published curve, or of the macro mean of several, without the records behind them.

    `curves` are scores (percent) by level, two levels at least, `n` the records behind each. A level holds if its score
    is above 0.85 of that at the shortest. There are no pairs to resample, so there is no interval: instead the loss is
    called clear if it is beyond the one-sided 95 % bound of independent means of `n` scores that vary as much as scores
    in 0 to 1 with these means can (those of coin tosses). Pairs would tell more, never less.
    """
    levels = sorted(set(curves[0]).intersection(*curves), key=length_units)
    means = {level: sum(curve[level] for curve in curves) / len(curves) for level in levels}
    if means[levels[0]] < FLOOR:
        return PublishedLength(None, None, None, False)
    held = levels[0]
    for index, level in enumerate(levels[1:], 1):
        if means[level] > SHARE * means[levels[0]]:
            held = level
            continue
        recovers = any(means[later] > SHARE * means[levels[0]] for later in levels[index + 1 :])
        pairs = [(curve[level] / 100, curve[levels[0]] / 100) for curve in curves]
        return PublishedLength(held, level, _clear(pairs, n), recovers)
    return PublishedLength(held, None, None, False)


def _clear(pairs: Sequence[tuple[float, float]], n: Sequence[int]) -> bool:
    difference = sum(score - SHARE * first for score, first in pairs)
    worst = sum(
        (score * (1 - score) + SHARE**2 * first * (1 - first)) / records
        for (score, first), records in zip(pairs, n, strict=True)
    )
    return difference + NormalDist().inv_cdf(0.95) * math.sqrt(worst) < 0


def published_lengths(benchmark: str) -> dict[str, dict[str, PublishedLength]]:
    """The effective lengths of all curves published for a benchmark of length levels, by model and data set.

    `macro mean` is that of all data sets of a model. A model published at a single level has no curve and is left out.
    """
    table = benchmarks.load(benchmark)
    found: dict[str, dict[str, PublishedLength]] = {}
    for model in published.load(benchmark):
        curves: dict[str, dict[str, float]] = {}
        for (dataset, length), score in model.scores.items():
            if length_units(length):
                curves.setdefault(dataset, {})[length] = score
        curves = {dataset: curve for dataset, curve in curves.items() if len(curve) > 1}
        if curves:
            n = {dataset: table.task(dataset).n for dataset in curves}
            found[model.name] = {d: published_length([curve], [n[d]]) for d, curve in curves.items()}
            found[model.name]["macro mean"] = published_length(list(curves.values()), list(n.values()))
    return found
