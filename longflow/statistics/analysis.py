"""The analysis of a benchmark: its cells' score lines in, intervals, differences and effective lengths out, as JSON.

Percentages have four decimals, scores are over the records expected (missing and failed ones count 0), and the same
input gives the same bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from longflow import benchmarks
from longflow.benchmarks import Benchmark, length_units
from longflow.errors import UserError
from longflow.jsonio import read_jsonl
from longflow.means import CellKey, fixed_means, level_means, ordered_lengths
from longflow.statistics import bootstrap, exact, families
from longflow.statistics.clusters import CellScores, Data, LeafKey, gather, repeat_means
from longflow.statistics.combined import CONFIDENCE, Combined, counts, percent
from longflow.statistics.effective_length import Kept
from longflow.statistics.families import Difference, leaf_weights, of_entry
from longflow.statistics.lengths import Curve
from longflow.statistics.paired import flips_for, paired, sign_flip
from longflow.tables import read_summaries

ALL = "all"
"""The scope of means over all languages."""


def read_cells(paths: Sequence[str | Path]) -> list[CellScores]:
    """Cells by the paths of their summaries (.json); score lines stand beside them (.jsonl). Raises UserError."""
    summaries = read_summaries(paths)
    return [
        CellScores(summary, list(read_jsonl(Path(path).with_suffix(".jsonl"))))
        for path, summary in zip(paths, summaries, strict=True)
    ]


def analyse(
    benchmark: str,
    cells: Sequence[CellScores],
    *,
    no_context: Collection[str] = (),
    evidence_kept: Kept | None = None,
    resamples: int = bootstrap.RESAMPLES,
    seed: int = 0,
) -> dict[str, Any]:
    """The analysis of a benchmark's cells as a value for JSON; docs/statistics.md says what each part means.

    Args:
        benchmark: its name.
        cells: all cells that were scored, of all models and settings; those of other benchmarks are left out.
        no_context: names of the settings that ask without any context; they are the baseline of effective lengths.
        evidence_kept: whether a record's evidence was in what was sent, by cell and record id (None: cannot be told).
        resamples: of the bootstrap.
        seed: of all random numbers.

    Raises UserError for score lines that are malformed, and where no cell has a record.
    """
    table = benchmarks.load(benchmark)
    here = {_name(cell): cell for cell in cells if cell.summary["benchmark"] == benchmark}
    data = gather(list(here.values()))
    if not data.leaves:
        raise UserError(f"{benchmark}: no cell with a record was scored, so there is nothing to analyse")
    combined = Combined(data)
    entries = [_Entry(table, name, leaves, here, combined) for name, leaves in _entries(data, table).items()]
    curves = {
        entry.name: [] if fixed_means(table) or entry.name[1] in no_context else entry.curves(sorted(no_context))
        for entry in entries
    }
    for entry in entries:
        entry.plan()
        for curve in curves[entry.name]:
            curve.plan()
    differences = list(families.declared(table, {entry.name: entry.leaves for entry in entries}, no_context))
    for difference in differences:
        combined.add(difference.name, difference.weights)
    combined.compute(resamples, seed)
    return {
        "benchmark": benchmark,
        "confidence": CONFIDENCE,
        "resamples": resamples,
        "seed": seed,
        "scores": "percent of the records expected; missing and failed ones count 0",
        "entries": [
            {
                "model": entry.name[0],
                "setting": entry.name[1],
                **entry.told(),
                "effective_length": {
                    curve.scope: curve.told(evidence_kept, resamples, seed) for curve in curves[entry.name]
                },
            }
            for entry in entries
        ],
        "families": _families(combined, differences, seed),
    }


def _name(cell: CellScores) -> LeafKey:
    model, setting, length = cell.column
    return model, setting, f"{cell.dataset}/{length}"


def _entries(data: Data, table: Benchmark) -> dict[tuple[str, str], list[str]]:
    """The leaves of each model and setting, in the benchmark's order."""
    order = {dataset: place for place, dataset in enumerate(table.tasks)}

    def place(leaf: str) -> tuple[int, str, int, str]:
        dataset, length, *group = leaf.split("/", 2)
        return order.get(dataset, len(order)), dataset, length_units(length), "/".join(group)

    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for model, setting, leaf in sorted(data.leaves, key=lambda key: (key[1], key[0], place(key[2]))):
        found[model, setting].append(leaf)
    return found


class _Entry:
    """A model in a setting: its cells, their groups and their means."""

    def __init__(
        self,
        table: Benchmark,
        name: tuple[str, str],
        leaves: Sequence[str],
        cells: Mapping[LeafKey, CellScores],
        combined: Combined,
    ) -> None:
        self.table, self.name, self.leaves, self.cells, self.combined = table, name, leaves, cells, combined
        self.keys = families.keys_of(leaves)

    def curves(self, no_context: Sequence[str]) -> list[Curve]:
        """What effective lengths are told of."""
        made = [
            Curve(*self.name, scope, keys, self.cells, self.combined, no_context)
            for scope, keys in self._scopes().items()
        ]
        return [curve for curve in made if curve.can_be_told]

    def plan(self) -> None:
        """Name the means, before all are computed at once."""
        for leaf in self.leaves:
            self.combined.add(("leaf", *self.name, leaf), of_entry(*self.name, {leaf: 1.0}))
        for scope, mean, weights in self._means():
            self.combined.add(("mean", *self.name, scope, mean), of_entry(*self.name, weights))

    def told(self) -> dict[str, Any]:
        """Cells, groups of records and means, with their intervals."""
        cells, groups = [], []
        for leaf in self.leaves:
            dataset, length, *group = leaf.split("/", 2)
            figures = self.combined.figures(("leaf", *self.name, leaf))
            notes = self.combined.data.clusterings[(*self.name, dataset)].notes()
            if group:
                groups.append({"dataset": dataset, "length": length, "group": group[0], **figures, "notes": notes})
            else:
                band = exact.rerun_band(repeat_means(self.cells[(*self.name, leaf)]))
                rounded = None if band is None else [round(end, 4) for end in band]
                cells.append({"dataset": dataset, "length": length, **figures, "rerun_band": rounded, "notes": notes})
        means = [
            {
                "name": mean,
                "scope": scope,
                **self.combined.figures(("mean", *self.name, scope, mean)),
                "notes": self._notes(weights),
            }
            for scope, mean, weights in self._means()
        ]
        return {"cells": cells, "groups": groups, "means": means}

    def _scopes(self) -> dict[str, list[CellKey]]:
        """All cells, and those of each language where there are several."""
        languages: dict[str, list[CellKey]] = defaultdict(list)
        for dataset, length in self.keys:
            cell = self.cells[(*self.name, f"{dataset}/{length}")]
            languages[str(cell.summary.get("language"))].append((dataset, length))
        return {ALL: list(self.keys), **(dict(sorted(languages.items())) if len(languages) > 1 else {})}

    def _means(self) -> list[tuple[str, str, dict[str, float]]]:
        """Scope, name and leaves' weights of each mean that the entry has all of."""
        fixed = fixed_means(self.table)
        if fixed is not None:
            told = [(ALL, name, leaf_weights(name, fixed, self.leaves)) for name in fixed]
        else:
            told = []
            for scope, keys in self._scopes().items():
                members = level_means(keys, self.table)
                # A data set has one language: its mean over levels stands once.
                names = list(members) if scope == ALL else [*ordered_lengths(keys), "overall"]
                told += [(scope, name, leaf_weights(name, members, self.leaves)) for name in names]
        return [(scope, name, weights) for scope, name, weights in told if weights]

    def _notes(self, leaves: Collection[str]) -> list[str]:
        clusterings = self.combined.data.clusterings
        datasets = dict.fromkeys(leaf.split("/")[0] for leaf in leaves)
        single = [dataset for dataset in datasets if clusterings[(*self.name, dataset)].single]
        return [f"over haystacks only, not over questions, for {', '.join(single)}"] if single else []


def _families(combined: Combined, differences: Sequence[Difference], seed: int) -> list[dict[str, Any]]:
    """The declared families with their differences: intervals, and p values where they are in pairs."""
    by_family: dict[str, list[Difference]] = defaultdict(list)
    for difference in differences:
        by_family[difference.family].append(difference)
    return [_family(combined, name, members, seed) for name, members in by_family.items()]


def _family(combined: Combined, name: str, members: Sequence[Difference], seed: int) -> dict[str, Any]:
    strata, contrasts = combined.data.strata, combined.columns([member.name for member in members])
    in_pairs = [
        bool(pairs) and member.kind != families.GROUPS
        for pairs, member in zip(paired(strata, contrasts), members, strict=True)
    ]
    tested = [index for index, pairs in enumerate(in_pairs) if pairs]
    flips = flips_for(len(tested)) if tested else 0
    p = sign_flip(strata, [c[:, tested] for c in contrasts], flips, seed) if tested else np.empty(0)
    p_of = dict(zip(tested, zip(p, exact.holm(list(p)), strict=True), strict=True))
    rows = []
    for index, member in enumerate(members):
        estimate, low, high = combined.ends(member.name)
        rows.append(
            {
                "a": member.a,
                "b": member.b,
                "on": member.on,
                "difference": percent(estimate),
                "low": percent(low),
                "high": percent(high),
                "method": combined.method(member.name),
                "paired": in_pairs[index],
                "p": round(float(p_of[index][0]), 6) if index in p_of else None,
                "p_holm": round(float(p_of[index][1]), 6) if index in p_of else None,
                **counts(combined.behind(member.name, positive=True)),
            }
        )
    first = members[0]
    return {
        "family": name,
        "kind": first.kind,
        "model": first.model,
        "setting": first.setting,
        "tests": len(tested),
        "flips": flips,
        "differences": rows,
    }
