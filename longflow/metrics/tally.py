"""Sums of scores, of a cell, of a group of its records, or of one of several answers to each record."""

from __future__ import annotations

import copy
import statistics
from typing import Any

from longflow.metrics.rows import Row, RowError, wrong

MOST_REPEATS = 1000
"""How many answers to a record there may be: the configuration's limit of `repeats`."""


class Tally:
    """The scores of a cell or of one of its groups."""

    def __init__(self) -> None:
        self.rows = 0
        self.scores: list[float] = []
        self.total = 0.0
        self.compensated = 0.0
        self._once: Tally | None = None
        """The same without rows that equal earlier ones, from the first such row on."""

    def add(self, score: float, compensated: float, again: bool = False) -> None:
        """Add a record's score, and its score where an unparsed answer is taken as a guess.

        `again` tells that the row equals an earlier one.
        """
        if again and self._once is None:
            self._once = copy.copy(self)
            self._once.scores = list(self.scores)
        if self._once is not None and not again:
            self._once.add(score, compensated)
        self.scores.append(score)
        self.total += score
        self.compensated += compensated

    def held_against(self, expected: int) -> Tally:
        """What counts over the records expected: of more rows than there should be, equal ones once.

        Of no more rows, equal ones may well be answers to two records.
        """
        return self if self._once is None or self.n <= expected else self._once

    @property
    def n(self) -> int:
        """The number of records that were scored."""
        return len(self.scores)

    def mean(self, n: int, rounding: str) -> float | None:
        """The mean over `n` records in percent, rounded to two decimals; None without records."""
        if not n:
            return None
        if rounding == "python":
            return round(100 * self.total / n, 2)
        import numpy

        # numpy adds in pairs, and rounds by scaling where Python rounds correctly; a mean is such a sum over n.
        return float(round(100 * (numpy.sum(self.scores) / n), 2))

    def figures(self, expected: int, rounding: str, chance: float | None) -> dict[str, Any]:
        """The figures that a cell and its groups share; see `CellScorer.summary`."""
        counted = self.held_against(expected)
        whole = max(counted.n, expected)
        guessable = {
            "compensated": percentage(self.compensated, self.n),
            "compensated_expected": percentage(counted.compensated, whole),
            "bounds": [percentage(counted.total, whole), percentage(counted.total + whole - counted.n, whole)],
        }
        return {
            "score": self.mean(self.n, rounding),
            "score_expected": counted.mean(whole, rounding),
            **({} if chance is None else guessable),
            "total": self.total,
        }


class Repeats:
    """The scores of a cell whose records were answered several times, answer by answer.

    `expected` is how often each record should be answered; rows that tell of more are expected to be whole as well.
    """

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._tallies: dict[int, Tally] = {}

    @property
    def times(self) -> int:
        """How often each record is answered: as expected, or as the rows found tell."""
        return max(self._expected, len(self._tallies))

    def of(self, row: Row) -> Tally:
        """The tally of the repeat that a row is of, the first where it does not say. Raises RowError."""
        repeat = row.get("repeat")
        if repeat is None:
            repeat = 0
        if not isinstance(repeat, int) or isinstance(repeat, bool):
            raise wrong("repeat", "a whole number, 0 for a record's first answer", repeat)
        if not 0 <= repeat < MOST_REPEATS:
            raise RowError(f"'repeat' must be a whole number from 0 to {MOST_REPEATS - 1}, found {repeat}")
        return self._tallies.setdefault(repeat, Tally())

    def scaled(self, rows: int) -> int:
        """A number of rows that is right for as many repeats as were expected, for as many as there are."""
        return rows // self._expected * self.times

    def spread(self, rows: int, rounding: str) -> dict[str, Any]:
        """How the repeats' scores differ, of `rows` expected over all of them; see `CellScorer.summary`."""
        absent = (number for number in range(self.times) if number not in self._tallies)
        missing = [next(absent) for _ in range(self.times - len(self._tallies))]
        tallies = [self._tallies.get(number, Tally()) for number in sorted([*self._tallies, *missing])]
        each = rows // self.times
        counted = [tally.held_against(each) for tally in tallies]
        over = [tally.mean(max(tally.n, each), rounding) for tally in counted]
        known = [score for score in over if score is not None]
        several = len(known) > 1
        return {
            "n": self.times,
            "scores": [tally.mean(tally.n, rounding) for tally in tallies],
            "scores_expected": over,
            "sd": round(statistics.stdev(known), 2) if several else None,
            "low": min(known) if several else None,
            "high": max(known) if several else None,
        }


def percentage(total: float, n: int) -> float | None:
    """A mean in percent with two decimals, None of nothing."""
    return round(100 * total / n, 2) if n else None
