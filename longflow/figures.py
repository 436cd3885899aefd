"""Which figures a benchmark has: told without drawing any, so that planning needs no matplotlib."""

from __future__ import annotations

from longflow import benchmarks
from longflow.leaderboard import fixed_means

BY_LEVEL = ("score_by_length", "score_by_length_per_dataset", "bars_per_task_type")
"""Of a benchmark of length levels."""

BY_CATEGORY = ("bars_per_category", "score_per_dataset")
"""Of a benchmark that names its means (`MEANS`)."""

BY_GROUP = ("score_by_group_per_category", "score_by_group_per_dataset")
"""Of one whose several data sets have groups of records (`groups_of`) as well."""

ONE_DATASET = ("bars_per_group", "bars_per_domain")
"""Of one that is a single data set with groups."""


def figures(benchmark: str) -> tuple[str, ...]:
    """The names of a benchmark's figures; each is drawn by the function of that name in `longflow.plots`."""
    table = benchmarks.load(benchmark)
    if fixed_means(table) is None:
        return BY_LEVEL
    if not hasattr(table.module, "groups_of"):
        return BY_CATEGORY
    return BY_GROUP if len(table.tasks) > 1 else ONE_DATASET
