"""Linear combinations of the means of cells and groups, with their intervals."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from longflow.statistics import bootstrap, exact
from longflow.statistics.bootstrap import Array, Intervals
from longflow.statistics.clusters import Data, Leaf
from longflow.statistics.families import Weights

CONFIDENCE = 0.95


class Combined:
    """Linear combinations of leaves, computed all at once so that they share their resamples.

    First `add` each, then `compute`, then read.
    """

    def __init__(self, data: Data) -> None:
        self.data = data
        self._index: dict[Hashable, int] = {}
        self._weights: list[Weights] = []
        self._confidence: list[float] = []
        self.intervals: Intervals | None = None
        self.contrasts: list[Array] = []

    def add(self, name: Hashable, weights: Weights, confidence: float = CONFIDENCE) -> None:
        """Have a combination computed under a name."""
        self._index[name] = len(self._weights)
        self._weights.append(weights)
        self._confidence.append(confidence)

    def compute(self, resamples: int, seed: int) -> None:
        """Contrasts of every stratum, and the intervals. Nothing happens without a statistic."""
        if not self._weights:
            return
        shapes = [stratum.sums.shape[1] for stratum in self.data.strata]
        self.contrasts = [np.zeros((columns, len(self._weights))) for columns in shapes]
        for index, weights in enumerate(self._weights):
            for key, weight in weights.items():
                leaf = self.data.leaves[key]
                self.contrasts[leaf.stratum][leaf.column, index] += weight
        confidence = np.array(self._confidence)
        self.intervals = bootstrap.intervals(
            self.data.strata, self.contrasts, confidence=confidence, resamples=resamples, seed=seed
        )

    def __contains__(self, name: Hashable) -> bool:
        return name in self._index

    def columns(self, names: Sequence[Hashable]) -> list[Array]:
        """The contrasts of these statistics alone."""
        return [contrast[:, [self._index[name] for name in names]] for contrast in self.contrasts]

    def behind(self, name: Hashable, positive: bool = False) -> list[Leaf]:
        """The leaves that a statistic stands on; `positive`: those of a difference's first side, its pairs."""
        weights = self._weights[self._index[name]]
        return [self.data.leaves[key] for key, weight in weights.items() if weight > 0 or not positive]

    def ends(self, name: Hashable) -> tuple[float, float, float]:
        """Estimate, low and high, as shares."""
        assert self.intervals is not None
        i, found = self._index[name], self.intervals
        return float(found.estimate[i]), float(found.low[i]), float(found.high[i])

    def method(self, name: Hashable) -> str:
        """How the interval of a statistic was made."""
        assert self.intervals is not None
        return self.intervals.method(self._index[name])

    def figures(self, name: Hashable) -> dict[str, Any]:
        """A mean with its interval in percent, how that was made, and the counts behind it."""
        leaves = self.behind(name)
        estimate, low, high = self.ends(name)
        method = self.method(name)
        if len(leaves) == 1 and leaves[0].binary:
            low, high = exact.clopper_pearson(leaves[0].successes, leaves[0].clusters, CONFIDENCE)
            method = "clopper-pearson"
        return {
            "score": percent(estimate),
            "low": percent(low),
            "high": percent(high),
            "method": method,
            **counts(leaves),
        }


def counts(leaves: Sequence[Leaf]) -> dict[str, int]:
    """Records scored and expected, summed over leaves, and the clusters behind them, each once."""
    clusters: dict[int, int] = {}
    for leaf in leaves:
        clusters[leaf.stratum] = max(clusters.get(leaf.stratum, 0), leaf.clusters)
    return {
        "n": sum(leaf.n for leaf in leaves),
        "n_expected": sum(leaf.n_expected for leaf in leaves),
        "clusters": sum(clusters.values()),
    }


def percent(share: float) -> float:
    """A share in percent with four decimals; never -0."""
    return round(100 * share, 4) + 0.0
