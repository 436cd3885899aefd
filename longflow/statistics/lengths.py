"""Effective lengths of an entry: which differences of levels are needed, and what they tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from longflow.benchmarks import length_units
from longflow.means import CellKey, ordered_lengths
from longflow.statistics import bootstrap, effective_length, families
from longflow.statistics.bootstrap import Stratum
from longflow.statistics.clusters import CellScores, LeafKey
from longflow.statistics.combined import Combined, percent
from longflow.statistics.effective_length import SHARE, Kept, LevelTest
from longflow.statistics.families import of_entry
from longflow.statistics.paired import paired

ONE_SIDED = 0.90
"""Confidence of a two-sided interval whose ends are one-sided 95 % bounds."""

KEPT_RESAMPLES = 2000
"""Resamples, at most, where evidence was kept: each pair of levels has records of its own to draw from."""


@dataclass(frozen=True)
class Curve:
    """The cells of a model in a setting, all or those of a language (`scope`), that are to be read as one curve."""

    model: str
    setting: str
    scope: str
    keys: Sequence[CellKey]
    cells: Mapping[LeafKey, CellScores]
    combined: Combined
    no_context: Sequence[str]

    @property
    def levels(self) -> list[str]:
        """From short to long."""
        return ordered_lengths(self.keys)

    @property
    def can_be_told(self) -> bool:
        """Whether there are lengths to compare."""
        return len(self.levels) > 1 and length_units(self.levels[0]) > 0

    def plan(self) -> None:
        """Name the differences that are needed, before all are computed at once."""
        for level in self.levels[1:]:
            if weights := families.level_difference(self.keys, level, self.levels[0], SHARE):
                self.combined.add(self._name(level), of_entry(self.model, self.setting, weights), ONE_SIDED)
        baseline, common = self._baseline()
        weights = {leaf: 1 / len(common) for leaf in common}
        against = of_entry(self.model, baseline, families.negated(weights)) if baseline else {}
        self.combined.add(self._name("start"), of_entry(self.model, self.setting, weights) | against, ONE_SIDED)

    def told(self, kept: Kept | None, resamples: int, seed: int) -> dict[str, Any]:
        """The effective length, and once more on the records whose evidence was kept if `kept` tells."""
        baseline, common = self._baseline()
        tests = [self._test(level) for level in self.levels[1:] if self._name(level) in self.combined]
        estimate, lower, _ = self.combined.ends(self._name("start"))
        why = None
        if lower <= 0:
            over = f"the score without context ({baseline})" if baseline else "zero"
            why = f"the shortest level does not clearly beat {over}"
        elif not self._in_pairs([self._name(test.length) for test in tests]):
            why = "the levels ask different questions"
        elif [test.length for test in tests] != self.levels[1:]:
            why = "a level shares no data set with the shortest one"
        sent = {level: self._tokens_sent(level) for level in self.levels}
        found: dict[str, Any] = {
            "share": SHARE,
            "shortest": self.levels[0],
            "start": {
                "against": baseline or "zero",
                "difference": percent(estimate),
                "lower": percent(lower),
                "datasets": len(common),
            },
            **_result(self.levels, tests, sent, why),
            "tokens_sent": sent,
            "beyond_prompt_limit": [level for level in self.levels if self._beyond_limit(level)],
        }
        if kept is not None:
            found["evidence_kept"] = self._kept(kept, sent, why, min(resamples, KEPT_RESAMPLES), seed)
        return found

    def _name(self, level: str) -> tuple[str, ...]:
        return "length", self.model, self.setting, self.scope, level

    def _baseline(self) -> tuple[str | None, list[str]]:
        """The setting without context that the model was run in, and the cells of the shortest level to compare."""
        start = [f"{dataset}/{length}" for dataset, length in self.keys if length == self.levels[0]]
        for setting in self.no_context:
            common = [leaf for leaf in start if (self.model, setting, leaf) in self.combined.data.leaves]
            if common:
                return setting, common
        return None, start

    def _in_pairs(self, names: Sequence[tuple[str, ...]]) -> bool:
        return bool(paired(self.combined.data.strata, self.combined.columns(names)).all())

    def _test(self, level: str) -> LevelTest:
        estimate, lower, upper = self.combined.ends(self._name(level))
        leaves = self.combined.behind(self._name(level), positive=True)
        return LevelTest(level, estimate, lower, upper, sum(leaf.n_expected for leaf in leaves), len(leaves))

    def _cells_at(self, level: str) -> list[CellScores]:
        return [self.cells[self.model, self.setting, f"{d}/{n}"] for d, n in self.keys if n == level]

    def _tokens_sent(self, level: str) -> float | None:
        """Mean tokens sent at a level, a mean over data sets; None if one does not tell."""
        means = [(cell.summary.get("sent_tokens") or {}).get("mean") for cell in self._cells_at(level)]
        known = [float(mean) for mean in means if mean is not None]
        return round(sum(known) / len(known), 2) if known and len(known) == len(means) else None

    def _beyond_limit(self, level: str) -> bool:
        """Whether more than half of a level's records had to be cut."""
        found = [cell.summary for cell in self._cells_at(level)]
        cut = sum(int((summary.get("counts") or {}).get("truncated", 0)) for summary in found)
        return 2 * cut > sum(int(summary["n"]) for summary in found)

    def _kept(
        self, kept: Kept, sent: Mapping[str, float | None], why: str | None, resamples: int, seed: int
    ) -> dict[str, Any]:
        """The effective length on the pairs of records whose evidence was kept at both levels.

        A level without any such pair, and those after it, cannot be told.
        """
        strata: list[Stratum] = []
        parts: list[tuple[str, list[int], int]] = []
        for level in self.levels[1:]:
            here, pairs = [], 0
            for long in self._cells_at(level):
                short = self.cells.get((self.model, self.setting, f"{long.dataset}/{self.levels[0]}"))
                clustering = self.combined.data.clusterings[self.model, self.setting, long.dataset]
                found = effective_length.kept_pairs(long, short, clustering, kept) if short else None
                if found is not None:
                    here.append(len(strata))
                    strata.append(found[0])
                    pairs += found[1]
            if not here:
                break
            parts.append((level, here, pairs))
        tests: list[LevelTest] = []
        if parts:
            contrasts = [np.zeros((2, len(parts))) for _ in strata]
            for column, (_, here, _) in enumerate(parts):
                for index in here:
                    contrasts[index][:, column] = np.array([1.0, -SHARE]) / len(here)
            ends = bootstrap.intervals(strata, contrasts, confidence=ONE_SIDED, resamples=resamples, seed=seed)
            tests = [
                LevelTest(level, float(ends.estimate[i]), float(ends.low[i]), float(ends.high[i]), pairs, len(here))
                for i, (level, here, pairs) in enumerate(parts)
            ]
        levels = [self.levels[0], *(test.length for test in tests)]
        result = _result(levels, tests, sent, why or (None if tests else "no pair of records kept its evidence"))
        return {**result, "not_told": [level for level in self.levels if level not in levels]}


def _result(
    levels: Sequence[str], tests: Sequence[LevelTest], sent: Mapping[str, float | None], why: str | None
) -> dict[str, Any]:
    """An effective length with its tests; undefined if there is a reason why."""
    rows = [
        {
            "length": test.length,
            "difference": percent(test.difference),
            "lower": percent(test.lower),
            "upper": percent(test.upper),
            "verdict": test.verdict,
            "pairs": test.n,
            "datasets": test.datasets,
        }
        for test in tests
    ]
    if why is not None:
        return {"held_to": None, "lost_by": None, "unresolved": [], "words": f"undefined: {why}", "tests": rows}
    found = effective_length.effective_length(levels[0], tests)
    return {
        "held_to": found.held_to,
        "lost_by": found.lost_by,
        "unresolved": list(found.unresolved),
        "words": effective_length.in_words(found, levels[-1], sent),
        "tests": rows,
    }
