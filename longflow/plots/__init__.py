"""Figures of a benchmark's scores: by length, by group of records, by data set, by kind of task, by retrieval.

Which ones a benchmark has stands in `longflow.figures`; each is drawn by the function of its name. Every score is over
the expected number of records, as in the leaderboard, and every mean is unweighted over data sets. Own models stand
beside the published ones (grey) over the same data sets and lengths. A level beyond a model's window has a hollow
marker or a hatched bar. What has no score is a gap, never a zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from longflow import style
from longflow.figures import Settings, figures
from longflow.plots.by_length import bars_per_task_type, score_by_length, score_by_length_per_dataset, score_per_dataset
from longflow.plots.by_means import (
    bars_per_category,
    bars_per_domain,
    bars_per_group,
    score_by_group_per_category,
    score_by_group_per_dataset,
)
from longflow.plots.canvas import NO_MEANS, NO_SCORES
from longflow.plots.data import Data, gather
from longflow.plots.rag import rag
from longflow.tables import Summary

__all__ = [
    "NO_MEANS",
    "NO_SCORES",
    "Data",
    "bars_per_category",
    "bars_per_domain",
    "bars_per_group",
    "bars_per_task_type",
    "gather",
    "plot_benchmark",
    "rag",
    "score_by_group_per_category",
    "score_by_group_per_dataset",
    "score_by_length",
    "score_by_length_per_dataset",
    "score_per_dataset",
]


def plot_benchmark(
    summaries: Sequence[Summary], benchmark: str, out_dir: str | Path, settings: Settings | None = None
) -> list[Path]:
    """Draw every figure of a benchmark into a folder, as {figure}.svg and {figure}.png for each of its `figures`.

    `settings` are those that it was run in, beside `full`.
    Returns the files written. The same summaries give the same bytes with the same matplotlib and fonts.
    """
    data = gather(summaries, benchmark, settings)
    files = []
    with style.look(data.texts()):
        for name in figures(benchmark, settings):
            files += style.save(globals()[name](data), out_dir, name)
    return files
