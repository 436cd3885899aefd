"""Whether a paired difference could be chance: the sign-flip permutation test of cluster sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from longflow.statistics.bootstrap import Array, Stratum

PERMUTATIONS = 9999
"""Sign flips of a test that stands alone or in a small family."""

PER_TEST = 200
"""Sign flips for each test of a family, so that the smallest p, corrected for all, is a tenth of 5 %."""

_BLOCK = 1000


def flips_for(tests: int) -> int:
    """How many sign flips a family of so many tests needs."""
    return max(PERMUTATIONS, PER_TEST * tests - 1)


def paired(strata: Sequence[Stratum], contrasts: Sequence[Array]) -> NDArray[np.bool_]:
    """Which statistics are differences in pairs: every cluster that has one side has the other, in every stratum."""
    found = np.ones(contrasts[0].shape[1], dtype=bool)
    for stratum, contrast in zip(strata, contrasts, strict=True):
        plus, minus = (stratum.sizes @ np.maximum(sign * contrast, 0.0) > 0 for sign in (1, -1))
        found &= (plus == minus).all(axis=0)
    return found


def sign_flip(strata: Sequence[Stratum], contrasts: Sequence[Array], flips: int, seed: int = 0) -> Array:
    """Two-sided p values of differences of means, (b + 1) / (B + 1), one a statistic.

    If the two sides of a pair could as well be exchanged, the difference of each cluster is as likely to have the other
    sign. All records of a cluster change sign together. `b` of `B` random flips give a difference as far from 0 as the
    one found. For `contrasts` see `intervals`.
    """
    parts = [stratum.sums / stratum.totals @ contrast for stratum, contrast in zip(strata, contrasts, strict=True)]
    found = np.abs(sum((part.sum(axis=0) for part in parts), np.zeros(contrasts[0].shape[1])))
    slack = 1e-9 * np.maximum(sum((np.abs(part).sum(axis=0) for part in parts), np.zeros(len(found))), 1e-3)
    generators = [stratum.generator(seed, "signs") for stratum in strata]
    as_far = np.zeros(len(found), dtype=np.int64)
    for start in range(0, flips, _BLOCK):
        block = min(_BLOCK, flips - start)
        sums = np.zeros((block, len(found)))
        for part, generator in zip(parts, generators, strict=True):
            if part.any():
                signs = generator.integers(0, 2, size=(len(part), block), dtype=np.int8)
                sums += (2.0 * signs.T - 1.0) @ part
        as_far += (np.abs(sums) >= found - slack).sum(axis=0)
    return (as_far + 1) / (flips + 1)
