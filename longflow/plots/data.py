"""What the figures of a benchmark draw, brought together from score summaries, the table and the published rows."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from longflow import benchmarks
from longflow.benchmarks import Benchmark
from longflow.figures import Settings, rag_lines, without_context
from longflow.leaderboard import Entry, entries
from longflow.means import Means, columns, fixed_means, groups_in, ordered_datasets, ordered_lengths
from longflow.metrics import metric
from longflow.tables import Summary

LANGUAGES = {"en": "English", "zh": "Chinese"}


@dataclass(frozen=True)
class Kind:
    """What a data set asks, as figures call it."""

    title: str | None
    category: str
    language: str


@dataclass(frozen=True)
class Data:
    """What the figures of a benchmark draw.

    `datasets` and `lengths` are those of the own run, in order, scored or not; `kinds` has one item per data set.
    `means`, `columns` and `chance` (percent that guessing gives) are the benchmark's, where it names them. `rag_lines`
    are the settings of each retrieval by their number of chunks, `without_context` those that show no context.
    """

    title: str
    length_unit: str | None
    own: list[Entry]
    published: list[Entry]
    datasets: list[str]
    lengths: list[str]
    kinds: dict[str, Kind]
    of_datasets: int
    sample: bool
    means: Means
    columns: list[str]
    chance: float | None
    rag_lines: Mapping[str, Mapping[int, str]]
    without_context: list[str]

    @property
    def empty(self) -> bool:
        """Whether no own cell has a score."""
        return not any(entry.cells for entry in self.own)

    def label(self, entry: Entry) -> str:
        """An entry's name: the model, and its setting where the run has several."""
        several = len({e.setting for e in self.own}) > 1
        return f"{entry.model} ({entry.setting})" if entry.own and several else entry.model

    def texts(self) -> list[str]:
        """All names that figures may draw."""
        kinds = [text for kind in self.kinds.values() for text in (kind.title or "", kind.category, kind.language)]
        names = [name for entry in self.own for name in entry.groups]
        models = map(self.label, [*self.own, *self.published])
        return [self.title, *self.datasets, *self.lengths, *kinds, *self.means, *names, *models, *self.rag_lines]

    def mean(self, entry: Entry, length: str, datasets: Collection[str]) -> float | None:
        """An entry's mean at a length; a published one's only over all of these data sets."""
        if not entry.own and any((dataset, length) not in entry.cells for dataset in datasets):
            return None
        return entry.level_mean(length, datasets)

    def partial(self, entry: Entry, length: str, datasets: Collection[str]) -> bool:
        """Whether a mean stands on fewer than these data sets."""
        return any((dataset, length) not in entry.cells for dataset in datasets)

    def values(self, entry: Entry) -> dict[str, float]:
        """All that an entry has a score for, by name: cells, groups of their records, and means (percent)."""
        leaves = {name: cell.score for name, cell in entry.leaves().items()}
        return leaves | {name: mean.score for name, mean in entry.means(self.means).items()}

    def groups(self) -> list[str]:
        """The groups of records that the columns of the leaderboard are made of, in its order."""
        return groups_in(self.columns, self.means)

    def scope(self) -> str:
        """What means are over, in words."""
        count = len(self.datasets)
        of = f"{count} of {self.of_datasets}" if count < self.of_datasets else f"{count}"
        sample = ", on a sample of the records" if self.sample else ""
        return f"unweighted mean over {of} data set{'s' if count > 1 else ''}{sample}"


def gather(summaries: Sequence[Summary], benchmark: str, settings: Settings | None = None) -> Data:
    """Bring score summaries into the shape that figures draw; `settings` are those of the benchmark beside `full`."""
    table = benchmarks.load(benchmark)
    mine = [s for s in summaries if s["benchmark"] == benchmark]
    keys = {(str(s["dataset"]), str(s["length"])) for s in mine}
    rows = entries(mine, benchmark)
    kinds = {}
    for s in mine:
        task = table.tasks.get(str(s["dataset"]))
        title = str(task.extra["title"]) if task and task.extra.get("title") else None
        if title and _letters(title) == _letters(str(s["dataset"])):
            title = None
        language = str(s["language"])
        kinds[str(s["dataset"])] = Kind(title, str(s["category"]), LANGUAGES.get(language, language))
    return Data(
        title=table.title,
        length_unit=table.table.get("length_unit"),
        own=[entry for entry in rows if entry.own],
        published=[entry for entry in rows if not entry.own and (entry.given or keys & set(entry.cells))],
        datasets=ordered_datasets(keys, table),
        lengths=ordered_lengths(keys),
        kinds=kinds,
        of_datasets=max(len(table.tasks), len(kinds)),
        sample=any(
            cell.n_expected < table.tasks[dataset].records(length)
            for entry in rows
            if entry.own
            for (dataset, length), cell in entry.cells.items()
            if dataset in table.tasks
        ),
        means=fixed_means(table) or {},
        columns=columns(table),
        chance=_chance(table),
        rag_lines=rag_lines(settings or {}),
        without_context=without_context(settings or {}),
    )


def _chance(table: Benchmark) -> float | None:
    """What guessing gives in percent, where one metric that can be guessed at is all that a benchmark has."""
    chances = {metric(task.metric).chance for task in table.tasks.values()}
    chance = chances.pop() if len(chances) == 1 else None
    return None if chance is None else 100 * chance


def _letters(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).lower()
