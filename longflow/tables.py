"""Score summaries of cells in, the benchmark's own published tables and the protocol out."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from longflow import benchmarks
from longflow.errors import UserError
from longflow.jsonio import read_json, write_text

Summary = Mapping[str, Any]
"""The scores of one cell, as the score stage writes them.

`score` is in percent with two decimals over the `n` rows found (None: no row), `score_expected` over the `n_expected`
records there should be, with missing and failed ones as 0.
"""

COUNTS = (
    "truncated",
    "empty",
    "failed",
    "gated",
    "keywords_empty",
    "rouge_overflow",
    "truth_unreadable",
    "unparsed",
    "ran_out",
    "reasoning_open",
    "ungrouped",
    "duplicates",
)
"""What is counted in a cell's records, beside how many were expected and found."""

_NEEDED = {
    "benchmark": str,
    "model": str,
    "setting": str,
    "dataset": str,
    "length": str,
    "language": str,
    "category": str,
    "score": (int, float, type(None)),
    "score_expected": (int, float, type(None)),
    "n": int,
    "n_expected": int,
    "counts": dict,
}


def read_summaries(paths: Iterable[str | Path]) -> list[Summary]:
    """The score summaries in these files, in their order.

    Raises UserError naming the file and the key for a file that is not a summary, and both files for a cell that
    stands in two of them.
    """
    summaries: list[Summary] = []
    seen: dict[tuple[str, ...], str | Path] = {}
    for path in paths:
        value = read_json(path)
        if not isinstance(value, dict):
            raise UserError(f"{path}: not a score summary (a JSON object was expected); score the cell again")
        for key, kind in _NEEDED.items():
            if not isinstance(value.get(key, ...), kind):  # type: ignore[arg-type]
                raise UserError(f"{path}: not a score summary ({key!r} is missing or malformed); score the cell again")
        if not isinstance(value.get("groups", {}), dict):
            raise UserError(f"{path}: not a score summary ('groups' is malformed); score the cell again")
        cell = cell_of(value)
        if cell in seen:
            raise UserError(f"{path}: the cell {'/'.join(cell)} is also in {seen[cell]}; give each cell once")
        seen[cell] = path
        summaries.append(value)
    return summaries


def cell_of(summary: Summary) -> tuple[str, str, str, str, str]:
    """Benchmark, model, setting, data set and length of a summary."""
    benchmark, model, setting, dataset, length = (
        str(summary[key]) for key in ("benchmark", "model", "setting", "dataset", "length")
    )
    return benchmark, model, setting, dataset, length


def write_tables(summaries: Sequence[Summary], benchmark: str, out_json: str | Path, out_csv: str | Path) -> None:
    """Write result.json and result.csv of one model and setting in the benchmark's own published layout.

    The numbers are those that the reference evaluator prints for the rows found. A cell without a row has no score
    there and is left out; `protocol_json` names it.
    """
    module = benchmarks.load(benchmark).module
    scored = [summary for summary in summaries if summary["score"] is not None]
    write_text(out_json, module.result_json(scored))
    write_text(out_csv, module.result_csv(scored))


def protocol_json(summaries: Sequence[Summary], facts: Mapping[str, Any]) -> dict[str, Any]:
    """How the numbers of one model and setting came about: the facts of the run, then counts over its records.

    Args:
        summaries: the cells of the table.
        facts: what is known of the run from its configuration (prompt hashes, chat rule, limits, versions ...).

    Returns the facts with `records` (sums over all cells), `cells` (the same by "{dataset}/{length}"), `groups`
    (records expected and scored in each group of a cell; absent without groups), `answer_keywords` (with and without
    the field, by data set) and `cells_without_score`; and where there is any, by cell, `accuracy` (of multiple choice
    over the records expected: `plain`, `compensated` and `bounds`) and `spread` (of several answers to each record).
    """
    by_cell = {f"{s['dataset']}/{s['length']}": s for s in summaries}
    cells = {name: _record_counts(s) for name, s in by_cell.items()}
    optional = {
        "groups": {name: _group_counts(s) for name, s in by_cell.items() if s.get("groups")},
        "accuracy": {name: _accuracy(s) for name, s in by_cell.items() if "bounds" in s},
        "spread": {name: s["repeats"] for name, s in by_cell.items() if "repeats" in s},
    }
    total: Counter[str] = Counter()
    keywords: dict[str, Counter[str]] = {}
    for summary, counts in zip(summaries, cells.values(), strict=True):
        total.update(counts)
        found = summary.get("answer_keywords") or {}
        keywords.setdefault(str(summary["dataset"]), Counter()).update(
            {key: int(found.get(key, 0)) for key in ("present", "absent")}
        )
    return {
        **facts,
        "records": {key: total[key] for key in ("expected", "found", "scored", *COUNTS)},
        "answer_keywords": {dataset: dict(counts) for dataset, counts in keywords.items()},
        "cells_without_score": [f"{s['dataset']}/{s['length']}" for s in summaries if s["score"] is None],
        "cells": cells,
        **{name: found for name, found in optional.items() if found},
    }


def _record_counts(summary: Summary) -> dict[str, int]:
    """Records of a cell by what became of them.

    `found` are the rows of the predictions file, `scored` those of them with a `pred`, as the reference scores them. A
    failed record of an own run has an empty `pred` and is among both.
    """
    n = int(summary["n"])
    return {
        "expected": int(summary["n_expected"]),
        "found": int(summary.get("rows", n)),
        "scored": n,
        **{key: int(summary["counts"].get(key, 0)) for key in COUNTS},
    }


def _accuracy(summary: Summary) -> dict[str, Any]:
    """A cell's accuracy over the records expected, the three ways in which it is told."""
    return {
        "plain": summary["score_expected"],
        "compensated": summary.get("compensated_expected"),
        "bounds": summary["bounds"],
    }


def _group_counts(summary: Summary) -> dict[str, dict[str, int]]:
    """Records of each group of a cell; one without records has 0 scored."""
    return {
        name: {"expected": int(group["n_expected"]), "scored": int(group["n"])}
        for name, group in summary["groups"].items()
    }


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A CSV table: UTF-8, line feeds, floats with two decimals, None as an empty field."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([_field(value) for value in row] for row in rows)
    return stream.getvalue()


def _field(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else str(value)
