"""Which figures a benchmark has: told without drawing any, so that planning needs no matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from longflow import benchmarks
from longflow.jsonio import canonical
from longflow.means import fixed_means
from longflow.retrieval.options import RagOptions

BY_LEVEL = ("score_by_length", "score_by_length_per_dataset", "bars_per_task_type")
"""Of a benchmark of length levels."""

BY_CATEGORY = ("bars_per_category", "score_per_dataset")
"""Of a benchmark that names its means (`MEANS`)."""

BY_GROUP = ("score_by_group_per_category", "score_by_group_per_dataset")
"""Of one whose several data sets have groups of records (`groups_of`) as well."""

ONE_DATASET = ("bars_per_group", "bars_per_domain")
"""Of one that is a single data set with groups."""

BY_CHUNKS = ("rag",)
"""Of any that is run in settings with different numbers of retrieved chunks."""

OF_RECORDS = ("fate_by_length", "evidence_map", "evidence_positions")
"""Of any: what became of its records. They are made of anatomies and not of scores."""

Settings = Mapping[str, BaseModel]
"""The settings that a benchmark is run in, by name, without `full`."""


def figures(benchmark: str, settings: Settings | None = None) -> tuple[str, ...]:
    """The names of a benchmark's figures; each is drawn by the function of that name in `longflow.plots`.

    `settings` are those that the benchmark has cells in: two that differ in their number of chunks alone add a figure.
    """
    return (*_by_kind(benchmark), *(BY_CHUNKS if rag_lines(settings or {}) else ()))


def _by_kind(benchmark: str) -> tuple[str, ...]:
    table = benchmarks.load(benchmark)
    if fixed_means(table) is None:
        return BY_LEVEL
    if not hasattr(table.module, "groups_of"):
        return BY_CATEGORY
    return BY_GROUP if len(table.tasks) > 1 else ONE_DATASET


def rag_lines(settings: Settings) -> dict[str, dict[int, str]]:
    """The lines of score against the number of chunks, by what retrieves: number of chunks -> name of a setting.

    Settings stand on one line if they differ in `top_n` alone; of two that are equal the first counts. A line is named
    by its retriever, and by what else it has of its own where several have that retriever. Nothing without a line of
    two points; then those of a single point are there too.
    """
    found: dict[str, dict[int, str]] = {}
    options: dict[str, dict[str, Any]] = {}
    for name, setting in settings.items():
        if isinstance(setting, RagOptions):
            others = {key: value for key, value in setting.spec().items() if key not in ("kind", "top_n")}
            line = canonical(others)
            options[line] = others
            found.setdefault(line, {}).setdefault(setting.top_n, name)
    if all(len(points) < 2 for points in found.values()):
        return {}
    labels = _labels(list(options.values()))
    return {label: dict(sorted(points.items())) for label, points in zip(labels, found.values(), strict=True)}


def _labels(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """A name for each retrieval: its retriever, then the options in which it differs from others with the same."""
    labels = []
    for line in lines:
        alike = [other for other in lines if other["retriever"] == line["retriever"]]
        own = [key for key in line if any(other[key] != line[key] for other in alike)]
        labels.append(", ".join([line["retriever"], *(f"{key} {line[key]}" for key in own)]))
    return labels


def without_context(settings: Settings) -> list[str]:
    """The names of the settings that show no context at all."""
    return [name for name, setting in settings.items() if getattr(setting, "kind", None) == "no_context"]
