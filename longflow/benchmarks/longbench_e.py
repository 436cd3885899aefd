"""LongBench-E: 13 of LongBench's data sets, their records spread over three buckets of length.

Source as LongBench's; the buckets and their means are those of eval.py's `scorer_e`. The records are the `_e` files of
the same archive, the prompts the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from longflow import benchmarks
from longflow.benchmarks import CellSummary, files
from longflow.benchmarks.longbench import Options, download, ordered, prepare, prompt_limit, sources

__all__ = [
    "COLUMNS",
    "GROUPS",
    "MEANS",
    "Options",
    "download",
    "groups_of",
    "prepare",
    "prompt_limit",
    "result_csv",
    "result_json",
    "sources",
]

TABLE = benchmarks.table("longbench_e")
BUCKETS = ("0-4k", "4-8k", "8k+")
GROUPS: Mapping[str, Mapping[str, int]] = {name: entry["groups"] for name, entry in TABLE["datasets"].items()}


def groups_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The bucket of a row by its `length`: below 4000, below 8000, or more. A row without a length is in none."""
    length = row.get("length")
    if not isinstance(length, int | float) or isinstance(length, bool):
        return ()
    return (BUCKETS[0] if length < 4000 else BUCKETS[1] if length < 8000 else BUCKETS[2],)


def _scores(summaries: Sequence[CellSummary]) -> list[tuple[str, list[float | None]]]:
    """The buckets' scores of each data set, in the benchmark's order."""
    return [
        (str(s["dataset"]), [(s.get("groups") or {}).get(bucket, {}).get("score") for bucket in BUCKETS])
        for s in ordered(summaries, TABLE)
    ]


def result_json(summaries: Sequence[CellSummary]) -> str:
    """result.json as LongBench's eval.py --e writes it: {data set: {bucket: score}}, indented by 4, no final line end.

    An empty bucket is null; the reference writes a bare NaN, which is not JSON. The order is the benchmark's.
    """
    scores = {dataset: dict(zip(BUCKETS, row, strict=True)) for dataset, row in _scores(summaries)}
    return json.dumps(scores, ensure_ascii=False, indent=4, allow_nan=False)


def result_csv(summaries: Sequence[CellSummary]) -> str:
    """The numbers of result.json as a table; an empty bucket is an empty field."""
    return files.csv_table(("dataset_name", *BUCKETS), [(dataset, *row) for dataset, row in _scores(summaries)])


def _means() -> dict[str, list[str]]:
    """For each bucket the means of the data sets of a category and of the six categories, and the mean of the buckets.

    The last is ours, to rank by; LongBench publishes none.
    """
    means: dict[str, list[str]] = {}
    for bucket in BUCKETS:
        for category in TABLE["categories"]:
            means[f"{bucket}/{category}"] = [
                f"{dataset}/full/{bucket}"
                for dataset, entry in TABLE["datasets"].items()
                if entry["category"] == category
            ]
        means[bucket] = [f"{bucket}/{category}" for category in TABLE["categories"]]
    return {**means, "overall": list(BUCKETS)}


MEANS: Mapping[str, Sequence[str]] = _means()
COLUMNS: Sequence[str] = (*BUCKETS, "overall")
