"""Intervals for means of cluster means, and for differences of such means.

Scores lie in 0 to 1. Their clusters (questions) are drawn anew within each stratum (data set), all columns (models,
lengths) of a cluster together, and every statistic, a linear combination of column means, is computed again. So two
columns that ask the same questions are compared in pairs, and a macro mean keeps its data sets.

Two methods, chosen for each statistic by what its clusters tell (`trusted`):

- `bca`: the bias-corrected and accelerated bootstrap (Efron 1987), for several strata with the acceleration of
  Davison and Hinkley 1997 (5.3.2), and widened for few clusters as Hesterberg 2015 widens percentile intervals:
  Student's t in place of the normal and n / (n - 1) for the variance.
- `bounded`: for too few or too uniform clusters, where every bootstrap covers too little: Gaffke 2005's bounds for the
  mean of values in a known range. Random weights (uniform on the simplex) are given to the clusters and to one made-up
  cluster at the end of the range. For values of 0 and 1 it is Clopper and Pearson's interval, and where all scores are
  0 it ends at their upper bound. Over several strata the bounds are melded (Fay, Proschan and Brittain 2015), and a
  stratum that tells enough goes without the made-up cluster.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

RESAMPLES = 5000
CLUSTERS, TELLING, TELLING_EACH = 50, 30, 3
"""What the bootstrap is trusted with: clusters in each stratum, and clusters that tell, in all and in each stratum."""

_TINY = 1e-60
_EQUAL = 1e-12
_BLOCK = 128


@dataclass(frozen=True)
class Stratum:
    """Clusters that are drawn together: `sums` of the scores (0 to 1) and `sizes` (records), both clusters x columns.

    A cluster that a column does not have is of size 0 there. The random numbers of a stratum depend on its name and on
    its number of clusters alone.
    """

    name: str
    sums: Array
    sizes: Array

    @property
    def totals(self) -> Array:
        """Records of each column; 1 for a column without any, so that its mean is 0."""
        total: Array = self.sizes.sum(axis=0)
        return np.where(total > 0, total, 1.0)

    @property
    def means(self) -> Array:
        """The mean of each column."""
        mean: Array = self.sums.sum(axis=0) / self.totals
        return mean

    def generator(self, seed: int, purpose: str) -> np.random.Generator:
        """The random numbers for a purpose."""
        words = hashlib.sha256(f"{seed}/{purpose}/{self.name}".encode("utf-8", "surrogatepass")).digest()
        return np.random.default_rng(np.frombuffer(words, dtype=np.uint32))


@dataclass(frozen=True)
class Intervals:
    """Estimates with their intervals, one of each a statistic, on the scale of the scores."""

    estimate: Array
    low: Array
    high: Array
    bca: NDArray[np.bool_]

    def method(self, index: int) -> str:
        """How the interval of a statistic was made: `bca` or `bounded`."""
        return "bca" if self.bca[index] else "bounded"


def intervals(
    strata: Sequence[Stratum],
    contrasts: Sequence[Array],
    *,
    confidence: float | Array = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
    method: str = "chosen",
    widened: bool = True,
) -> Intervals:
    """Two-sided intervals of linear combinations of column means.

    `contrasts` has for each stratum an array columns x statistics: statistic j is the sum over all strata of
    `means @ contrasts[:, j]`. `confidence` may differ by statistic; the ends of a 90 % interval are one-sided 95 %
    bounds. `method` is `chosen` by the data, or `bca` or `bounded` for all; `widened=False` is the plain BCa.
    """
    statistics = contrasts[0].shape[1]
    estimate = sum((s.means @ c for s, c in zip(strata, contrasts, strict=True)), np.zeros(statistics))
    level = np.broadcast_to(np.asarray(confidence, dtype=np.float64), (statistics,))
    influences = [(s.sums - s.means * s.sizes) / s.totals @ c for s, c in zip(strata, contrasts, strict=True)]
    trust, thin = trusted(strata, contrasts, influences)
    if method != "chosen":
        trust = np.full(statistics, method == "bca")
    low, high = estimate.copy(), estimate.copy()
    if trust.any():
        some = [c[:, trust] for c in contrasts]
        draws = _bootstrap(strata, some, resamples, seed)
        parts = [i[:, trust] for i in influences]
        low[trust], high[trust] = _bca(draws, estimate[trust], parts, strata, some, level[trust], widened)
    if not trust.all():
        rest = ~trust
        some = [c[:, rest] for c in contrasts]
        low[rest], high[rest] = _bounded(strata, some, [t[rest] for t in thin], level[rest], resamples, seed)
    return Intervals(estimate, low, high, trust)


def telling(influences: Array) -> Array:
    """How many clusters a statistic (column) effectively rests on: (sum of squares)² / sum of fourth powers.

    n for values that deviate alike; about the number of successes where these are rare; 0 where all are equal.
    """
    # What rounding leaves of equal values is no deviation.
    clean = np.where(np.abs(influences) > _EQUAL, influences, 0.0)
    scale = np.abs(clean).max(axis=0, initial=0.0)
    squares = (clean / np.where(scale > 0, scale, 1.0)) ** 2
    fourth = (squares**2).sum(axis=0)
    found: Array = squares.sum(axis=0) ** 2 / np.where(fourth > 0, fourth, 1.0)
    return found


def trusted(
    strata: Sequence[Stratum], contrasts: Sequence[Array], influences: Sequence[Array]
) -> tuple[NDArray[np.bool_], list[NDArray[np.bool_]]]:
    """For which statistics the bootstrap is trusted, and for each stratum which of them it tells too little about.

    Trusted are statistics with `TELLING` clusters that tell in all and, in each stratum that they concern, `CLUSTERS`
    clusters of which `TELLING_EACH` tell: a stratum without a single success looks certain to a bootstrap. The numbers
    were chosen by simulation (perf/coverage.py).
    """
    trust = telling(np.concatenate(influences)) >= TELLING
    thin = []
    for stratum, contrast, influence in zip(strata, contrasts, influences, strict=True):
        concerned = (contrast != 0).any(axis=0)
        here = telling(influence)
        clusters = ((stratum.sizes > 0).astype(np.float64) @ np.abs(contrast) > 0).sum(axis=0)
        trust &= ~concerned | ((clusters >= CLUSTERS) & (here >= TELLING_EACH))
        thin.append((here < TELLING) | (clusters < CLUSTERS))
    return trust, thin


def _bootstrap(strata: Sequence[Stratum], contrasts: Sequence[Array], resamples: int, seed: int) -> Array:
    """Statistics of resampled clusters, resamples x statistics."""
    draws = np.zeros((resamples, contrasts[0].shape[1]))
    for stratum, contrast in zip(strata, contrasts, strict=True):
        if not contrast.any():
            continue
        clusters = len(stratum.sums)
        picks = stratum.generator(seed, "bootstrap").integers(0, clusters, size=(resamples, clusters))
        picks += clusters * np.arange(resamples)[:, None]
        counts = np.bincount(picks.ravel(), minlength=resamples * clusters).reshape(resamples, clusters)
        used = np.flatnonzero(contrast.any(axis=1))
        draws += _means(counts.astype(np.float64), stratum, used) @ contrast[used]
    return draws


def _means(weights: Array, stratum: Stratum, used: NDArray[np.intp], extra: Array | None = None) -> Array:
    """Column means under weights (draws x clusters), draws x columns; `extra` are records at 0 added to each."""
    sizes, where = np.unique(stratum.sizes[:, used], axis=1, return_inverse=True)
    below = (weights @ sizes)[:, where.reshape(-1)]
    if extra is not None:
        below = below + extra
    above = weights @ stratum.sums[:, used]
    # A draw without any record of a column says nothing new about it.
    return np.divide(above, below, out=np.broadcast_to(stratum.means[used], above.shape).copy(), where=below > 0)


def _bca(
    draws: Array,
    estimate: Array,
    influences: Sequence[Array],
    strata: Sequence[Stratum],
    contrasts: Sequence[Array],
    level: Array,
    widened: bool,
) -> tuple[Array, Array]:
    from scipy.stats import norm, t

    resamples, statistics = draws.shape
    variances = [(i**2).sum(axis=0) for i in influences]
    variance = np.maximum(sum(variances, np.zeros(statistics)), _TINY)
    skewness = sum(((i**3).sum(axis=0) for i in influences), np.zeros(statistics)) / variance**1.5
    acceleration = skewness / 6
    below = ((draws < estimate - _EQUAL).mean(axis=0) + (draws <= estimate + _EQUAL).mean(axis=0)) / 2
    bias = norm.ppf(np.clip(below, 1 / (resamples + 1), resamples / (resamples + 1)))
    reach = norm.ppf((1 + level) / 2)
    if widened:
        sizes = [np.maximum(((s.sizes @ np.abs(c)) > 0).sum(axis=0), 2) for s, c in zip(strata, contrasts, strict=True)]
        degrees = variance**2 / np.maximum(sum(v**2 / (n - 1) for v, n in zip(variances, sizes, strict=True)), _TINY)
        unbiased = sum((v * n / (n - 1) for v, n in zip(variances, sizes, strict=True)), np.zeros(statistics))
        reach = t.ppf((1 + level) / 2, np.maximum(degrees, 1.0)) * np.sqrt(np.maximum(unbiased / variance, 1.0))
    ends = []
    for z in (bias - reach, bias + reach):
        ends.append(norm.cdf(bias + z / np.maximum(1 - acceleration * z, 1e-3)))
    return _quantiles(draws, ends[0]), _quantiles(draws, ends[1])


def _bounded(
    strata: Sequence[Stratum],
    contrasts: Sequence[Array],
    thin: Sequence[NDArray[np.bool_]],
    level: Array,
    resamples: int,
    seed: int,
) -> tuple[Array, Array]:
    lower = np.zeros((resamples, contrasts[0].shape[1]))
    upper = np.zeros_like(lower)
    for stratum, contrast, few in zip(strata, contrasts, thin, strict=True):
        if not contrast.any():
            continue
        used = np.flatnonzero(contrast.any(axis=1))
        clusters = len(stratum.sums)
        weights = stratum.generator(seed, "bounded").standard_exponential(size=(resamples, clusters + 1))
        present = np.maximum((stratum.sizes[:, used] > 0).sum(axis=0), 1)
        made_up = weights[:, -1:] * (stratum.totals[used] / present)  # one cluster of average size
        total = (weights[:, :-1] @ stratum.sizes[:, used]) + made_up
        bottom = _means(weights[:, :-1], stratum, used, made_up)
        top = bottom + made_up / np.where(total > 0, total, 1.0)
        coefficients = contrast[used]
        padded = np.where(few, coefficients, 0.0)
        plus, minus = np.maximum(padded, 0.0), np.minimum(padded, 0.0)
        lower += bottom @ plus + top @ minus
        upper += top @ plus + bottom @ minus
        if not few.all():
            plain = _means(weights[:, :-1], stratum, used) @ np.where(few, 0.0, coefficients)
            lower += plain
            upper += plain
    return _quantiles(lower, (1 - level) / 2), _quantiles(upper, (1 + level) / 2)


def _quantiles(draws: Array, shares: Array) -> Array:
    """The quantile of each column at a share of its own, interpolated between draws."""
    found = np.empty(draws.shape[1])
    last = len(draws) - 1
    for start in range(0, draws.shape[1], _BLOCK):
        block = np.sort(draws[:, start : start + _BLOCK], axis=0)
        place = np.clip(shares[start : start + _BLOCK], 0.0, 1.0) * last
        left = np.floor(place).astype(int)
        part = place - left
        columns = np.arange(block.shape[1])
        right = np.minimum(left + 1, last)
        found[start : start + _BLOCK] = block[left, columns] * (1 - part) + block[right, columns] * part
    return found
