"""Do the intervals cover what they say, and do the tests keep their level? Simulated, with the truth known.

For each kind of score (successes that are rare or not, in whole or in part; failures that are rare; small scores; no
interval is told which) and each number of questions it prints how often the interval of a mean holds the true mean, in
percent, how wide it is on average (points), how often it was the bootstrap's, and what the plain BCa bootstrap covers
for comparison. Then macro means over data sets, shared questions, paired differences, one-sided bounds of an effective
length, and the sign-flip test with Holm's correction.

A 95 % interval is right at 95 or above; the simulation's own error is printed with it. Ends with status 1 if one lies
below by more than three times that.

Run from the project's root: python -m perf.coverage [REPLICATES]     (default 10,000; minutes)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from longflow.statistics.bootstrap import Array, Stratum, intervals
from longflow.statistics.effective_length import SHARE
from longflow.statistics.exact import holm
from longflow.statistics.paired import sign_flip

BATCH = 250
"""Replicates that share their resamples; each batch has a seed of its own."""

Draw = Callable[[np.random.Generator, int, int], Array]
"""Scores of n questions (rows) in so many replicates (columns)."""


@dataclass(frozen=True)
class Scores:
    """A distribution of scores and its mean."""

    name: str
    draw: Draw
    mean: float


def yes_or_no(p: float) -> Scores:
    """1 with probability p, else 0."""
    return Scores(f"0/1, p = {p:g}", lambda rng, n, r: (rng.random((n, r)) < p).astype(float), p)


def in_parts(p: float) -> Scores:
    """0, or with probability p a success: 1, or as often any number from 0 to 1."""

    def draw(rng: np.random.Generator, n: int, r: int) -> Array:
        value = np.where(rng.random((n, r)) < 0.5, 1.0, rng.random((n, r)))
        return value * (rng.random((n, r)) < p)

    return Scores(f"F1-like, p = {p:g}", draw, 0.75 * p)


def mostly_right(p: float) -> Scores:
    """1 but for rare failures."""
    other = in_parts(p)
    return Scores(f"mostly 1, p = {p:g}", lambda rng, n, r: 1 - other.draw(rng, n, r), 1 - other.mean)


SMALL = Scores("small F1", lambda rng, n, r: rng.beta(0.5, 5, (n, r)), 0.5 / 5.5)

KINDS = (
    *(yes_or_no(p) for p in (0.02, 0.1, 0.5)),
    *(in_parts(p) for p in (0.02, 0.05, 0.1, 0.2, 0.5, 0.8)),
    *(mostly_right(p) for p in (0.02, 0.1)),
    SMALL,
)
SIZES = (13, 100, 200)


@dataclass
class Tally:
    """What happened in all replicates."""

    replicates: int = 0
    covered: int = 0
    plain: int = 0
    width: float = 0.0
    trusted: int = 0

    def add(self, strata: list[Stratum], contrasts: list[Array], truth: float, seed: int, with_plain: bool) -> None:
        """Intervals of a batch: one statistic a replicate."""
        found = intervals(strata, contrasts, seed=seed, resamples=2000)
        self.replicates += len(found.low)
        self.covered += int(holds(found.low, truth, found.high).sum())
        self.width += float((found.high - found.low).sum())
        self.trusted += int(found.bca.sum())
        if with_plain:
            plain = intervals(strata, contrasts, seed=seed, resamples=2000, method="bca", widened=False)
            self.plain += int(holds(plain.low, truth, plain.high).sum())

    @property
    def coverage(self) -> float:
        """The share of intervals that held the truth."""
        return self.covered / self.replicates

    @property
    def error(self) -> float:
        """One standard error of a coverage of 95 % in so many replicates."""
        return (0.95 * 0.05 / self.replicates) ** 0.5


def holds(low: Array, truth: float, high: Array) -> np.ndarray:
    """Whether intervals hold the truth, but for rounding."""
    found: np.ndarray = (low <= truth + 1e-12) & (truth - 1e-12 <= high)
    return found


def batches(replicates: int, seed: int) -> Iterator[tuple[int, np.random.Generator]]:
    """A seed and random numbers for each batch."""
    for index in range(max(1, replicates // BATCH)):
        yield index, np.random.default_rng([seed, index])


def single_cluster_each(scores: list[Array]) -> list[Stratum]:
    """Data sets in which every record asks a question of its own."""
    return [Stratum(str(index), values, np.ones_like(values)) for index, values in enumerate(scores)]


def means(parts: list[tuple[Scores, int]], replicates: int, seed: int = 0, with_plain: bool = False) -> Tally:
    """The macro mean of data sets of these kinds of scores and numbers of questions."""
    truth = sum(scores.mean for scores, _ in parts) / len(parts)
    tally = Tally()
    for batch, rng in batches(replicates, seed):
        strata = single_cluster_each([scores.draw(rng, n, BATCH) for scores, n in parts])
        tally.add(strata, [np.eye(BATCH) / len(parts)] * len(parts), truth, batch, with_plain)
    return tally


def shared_questions(scores: Scores, questions: int, replicates: int, seed: int = 0) -> Tally:
    """A data set in which each question is asked one to four times, and answered alike each time."""
    tally = Tally()
    for batch, rng in batches(replicates, seed):
        values = scores.draw(rng, questions, BATCH)
        sizes = rng.integers(1, 5, size=(questions, BATCH)).astype(float)
        tally.add([Stratum("shared", values * sizes, sizes)], [np.eye(BATCH)], scores.mean, batch, False)
    return tally


def pairs_of(rng: np.random.Generator, n: int, p: float, ratio: float) -> tuple[Array, Array]:
    """Scores of n questions in pairs: p at the first side and ratio x p at the second, by how hard the question is."""
    hard = rng.random((n, BATCH))
    noise = rng.random((2, n, BATCH)) < 0.3
    redraw = rng.random((2, n, BATCH))
    first = np.where(noise[0], redraw[0], hard) < p
    second = np.where(noise[1], redraw[1], hard) < ratio * p
    return first.astype(float), second.astype(float)


def differences(n: int, p: float, replicates: int, ratio: float = 0.7, seed: int = 0) -> Tally:
    """The difference of two models on the same n questions."""
    tally = Tally()
    contrast = np.vstack([np.eye(BATCH), -np.eye(BATCH)])
    for batch, rng in batches(replicates, seed):
        both = np.hstack(pairs_of(rng, n, p, ratio))
        tally.add(single_cluster_each([both]), [contrast], (1 - ratio) * p, batch, False)
    return tally


def wrongly_held(sizes: list[int], p: float, replicates: int, seed: int = 0) -> tuple[float, float]:
    """How often a level that keeps exactly 85 % is called held, and how often lost: both should be 5 % at most."""
    contrast = np.vstack([-SHARE * np.eye(BATCH), np.eye(BATCH)]) / len(sizes)
    held = lost = total = 0
    for batch, rng in batches(replicates, seed):
        strata = single_cluster_each([np.hstack(pairs_of(rng, n, p, SHARE)) for n in sizes])
        found = intervals(strata, [contrast] * len(sizes), confidence=0.90, seed=batch, resamples=2000)
        held += int((found.low > 0).sum())
        lost += int((found.high < 0).sum())
        total += BATCH
    return held / total, lost / total


def false_alarms(n: int, p: float, models: int, replicates: int, seed: int = 0) -> float:
    """How often a family of all pairs of equal models has a single p value of 5 % or less after Holm's correction."""
    pairs = [(i, j) for i in range(models) for j in range(i)]
    contrast = np.zeros((models, len(pairs)))
    for column, (i, j) in enumerate(pairs):
        contrast[i, column], contrast[j, column] = 1.0, -1.0
    alarms = 0
    rng = np.random.default_rng([seed, n])
    for replicate in range(replicates):
        hard = rng.random((n, 1))
        scores = (np.where(rng.random((n, models)) < 0.5, rng.random((n, models)), hard) < p).astype(float)
        found = sign_flip(single_cluster_each([scores]), [contrast], 999, seed=replicate)
        alarms += bool((holm(list(found)) <= 0.05).any())
    return alarms / replicates


def main() -> int:
    """Run everything; 1 if an interval covers too little or a test alarms too often."""
    replicates = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    short = False

    def row(name: str, tally: Tally, with_plain: bool = False) -> None:
        nonlocal short
        low = tally.coverage < 0.95 - 3 * tally.error
        short |= low
        width, trusted = 100 * tally.width / tally.replicates, 100 * tally.trusted / tally.replicates
        plain = f"{100 * tally.plain / tally.replicates:10.2f}" if with_plain else " " * 10
        mark = "  TOO LOW" if low else ""
        print(f"{name:48} {100 * tally.coverage:8.2f} {width:8.2f} {trusted:8.1f} {plain}{mark}", flush=True)

    print(f"{'':48} {'covers %':>8} {'width':>8} {'BCa %':>8} {'plain BCa':>10}")
    for kind in KINDS:
        for n in SIZES:
            row(f"{kind.name}, n = {n}", means([(kind, n)], replicates, with_plain=True), True)
    for name, parts in {
        "macro of 3: F1-like, p = 0.02, n = 13": [(in_parts(0.02), 13)] * 3,
        "macro of 11: F1-like, p = 0.3, n = 13": [(in_parts(0.3), 13)] * 11,
        "macro of 6: p = 0.01 to 0.8, n = 100": [(in_parts(p), 100) for p in (0.01, 0.02, 0.05, 0.1, 0.5, 0.8)],
        "macro of 11: F1-like, p = 0.1, n = 100": [(in_parts(0.1), 100)] * 11,
        "macro: n = 200, p = 0.5; 10 of n = 13, p = 0.02": [(in_parts(0.5), 200)] + [(in_parts(0.02), 13)] * 10,
        "macro: n = 500, p = 0.5; 3 of n = 50, p = 0.01": [(in_parts(0.5), 500)] + [(in_parts(0.01), 50)] * 3,
        "macro: n = 200, small; n = 100, p = 0.01": [(SMALL, 200), (in_parts(0.01), 100)],
    }.items():
        row(name, means(parts, replicates, with_plain=True), True)
    for n in SIZES:
        for p in (0.02, 0.1, 0.5):
            row(f"shared questions, p = {p:g}, {n} questions", shared_questions(in_parts(p), n, replicates))
    for n in SIZES:
        for p in (0.02, 0.1, 0.5):
            row(f"paired difference, p = {p:g}, n = {n}", differences(n, p, replicates))
    allowed = 0.05 + 3 * (0.05 * 0.95 / replicates) ** 0.5
    for sizes, p in (([13], 0.5), ([100], 0.5), ([200] * 3, 0.3), ([13] * 5, 0.5), ([100, 150, 200], 0.05)):
        held, lost = wrongly_held(sizes, p, replicates)
        short |= max(held, lost) > allowed
        print(f"85 % kept, {sizes}, p = {p:g}: called held {100 * held:.2f} %, lost {100 * lost:.2f} %", flush=True)
    fewer = min(replicates, 2000)
    for n, p, models in ((13, 0.5, 2), (13, 0.5, 5), (100, 0.05, 5), (200, 0.3, 5)):
        alarms = false_alarms(n, p, models, fewer)
        short |= alarms > 0.05 + 3 * (0.05 * 0.95 / fewer) ** 0.5
        print(f"{models} equal models, n = {n}, p = {p:g}: a false alarm in {100 * alarms:.2f} %", flush=True)
    print(f"simulation's error (one standard error): {100 * (0.95 * 0.05 / replicates) ** 0.5:.2f} points")
    return int(short)


if __name__ == "__main__":
    sys.exit(main())
