"""What is exact, or a textbook's: the interval of a share, Holm's correction, the band of repeated runs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev

import numpy as np
from numpy.typing import NDArray

from longflow.errors import UserError

ROUNDING = 0.005
"""Half a step of the last printed digit of a percentage with two decimals."""


def clopper_pearson(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """The interval (shares, 0 to 1) of a share of successes among `n` independent yes-or-no trials.

    It never covers less than it says: none of n successes gives [0, upper], all of them [lower, 1].
    """
    from scipy.stats import binomtest

    found = binomtest(successes, n).proportion_ci(confidence, method="exact")
    return float(found.low), float(found.high)


def holm(p: Sequence[float]) -> NDArray[np.float64]:
    """p values corrected by Holm's step-down rule for the family they make up, in their order.

    The smallest of m is multiplied by m, the next by m - 1 and so on; none falls below one before it. (statsmodels has
    it, and calls the garbage collector each time.)
    """
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    corrected = np.empty_like(values)
    corrected[order] = np.minimum(np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1)), 1.0)
    return corrected


def rerun_band(means: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """Where the score of one more run of the same model on the same questions would lie; None for fewer than two runs.

    `means` are the scores (percent) of runs that differ in what should not matter: repeats, another dtype, another
    batch. The band is the prediction interval of one further run, widened by half a step of the last printed digit: the
    question set is the same, so only what differs between runs can part two scores. Raises UserError for a mean that is
    no percentage.
    """
    if any(not 0 <= mean <= 100 for mean in means):
        raise UserError(f"re-run band: scores in percent were expected, found {list(means)}")
    if len(means) < 2:
        return None
    from scipy.stats import t

    n = len(means)
    reach = float(t.ppf((1 + confidence) / 2, n - 1)) * stdev(means) * (1 + 1 / n) ** 0.5 + ROUNDING
    return max(0.0, fmean(means) - reach), min(100.0, fmean(means) + reach)


def against_band(published: float, means: Sequence[float]) -> str | None:
    """Whether a published score lies `within` or `outside` the band of re-runs; None, no verdict, without a band."""
    band = rerun_band(means)
    if band is None:
        return None
    return "within" if band[0] <= published <= band[1] else "outside"
