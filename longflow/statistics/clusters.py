"""Score lines of cells in, strata of clusters out: who is resampled with whom.

A cluster is a question: all records of a cell that ask it, at all lengths and of all models, so that comparisons are in
pairs. Where score lines name the document (`document`) and a question has one document throughout, the document is the
cluster. A data set that asks one and the same question of many texts (factrecall) has its records as clusters.

Records that are missing count 0, as in the tables: first those that other cells have, then made-up ones.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from longflow.errors import UserError
from longflow.statistics.bootstrap import Stratum
from longflow.tables import Summary

Key = tuple[str, ...]
"""Names a cluster, the same in all cells of a data set."""

Column = tuple[str, str, str]
"""Model, setting and length."""


@dataclass(frozen=True)
class CellScores:
    """A cell: its summary and its score lines, as the score stage writes them."""

    summary: Summary
    lines: Sequence[Mapping[str, Any]]

    @property
    def column(self) -> Column:
        """The cell among those of its data set."""
        return str(self.summary["model"]), str(self.summary["setting"]), str(self.summary["length"])

    @property
    def dataset(self) -> str:
        """The data set."""
        return str(self.summary["dataset"])

    @property
    def name(self) -> str:
        """The cell in messages."""
        return "/".join(str(self.summary[key]) for key in ("benchmark", "model", "setting", "dataset", "length"))

    @property
    def can_pair(self) -> bool:
        """Whether every record says which question it asks."""
        return all(line.get("question_id") is not None for line in self.lines)

    @cached_property
    def records(self) -> list[Unit]:
        """The records that count: all that were scored, and failed ones up to the number expected."""
        expected = int(self.summary["n_expected"])
        units = self.units
        scored = sum(unit.score is not None for unit in units)
        if scored > expected:  # a file that was appended to twice: equal rows count once
            units = [unit for unit in units if not unit.again]
            scored = sum(unit.score is not None for unit in units)
        return _counted(units, max(scored, expected))

    @cached_property
    def units(self) -> list[Unit]:
        """Every line, checked. Raises UserError naming the cell and the line."""
        units: list[Unit] = []
        order: dict[str, dict[str, int]] = defaultdict(dict)
        for number, line in enumerate(self.lines, 1):
            score = line.get("score", ...)
            good = score is None or (isinstance(score, int | float) and not isinstance(score, bool) and 0 <= score <= 1)
            if "id" not in line or not good:
                raise UserError(
                    f"scores of {self.name}, line {number}: an id and a score from 0 to 1 (or null) were expected, "
                    f"found {score if 'id' in line else 'no id'!r}; score the cell again"
                )
            name = str(line["id"])
            question = str(line["question_id"]) if line.get("question_id") is not None else f"\0{name}"
            # Repeats of a record share its id, and so their place among the records that ask the question.
            place = order[question].setdefault(name, len(order[question]))
            document = line.get("document")
            groups = tuple(map(str, line.get("groups") or ()))
            about = None if document is None else str(document)
            units.append(Unit(name, question, place, about, score, groups, bool(line.get("again"))))
        return units


@dataclass(frozen=True)
class Unit:
    """A line of scores: its record, its question, its place among the records that ask it, and its score or None."""

    id: str
    question: str
    place: int
    document: str | None
    score: float | None
    groups: tuple[str, ...]
    again: bool = False
    """Whether its row equals an earlier one."""


def _counted(units: Sequence[Unit], expected: int) -> list[Unit]:
    """Records that count towards `expected`: those with a score, and as many without one as there is room for."""
    room = expected - sum(unit.score is not None for unit in units)
    kept = []
    for unit in units:
        if unit.score is None:
            room -= 1
            if room < 0:
                continue
        kept.append(unit)
    return kept


@dataclass
class Clustering:
    """Which cluster a record of a data set belongs to, and what is worth saying about it."""

    single: bool = False
    """Whether the whole data set asks one question."""
    documents: Mapping[str, str] = field(default_factory=dict)
    """The document of each question, where clusters are documents."""

    @classmethod
    def of(cls, cells: Iterable[CellScores]) -> Clustering:
        """What these cells of one data set have in common."""
        places: Counter[str] = Counter()
        found: dict[str, set[str | None]] = defaultdict(set)
        for cell in cells:
            for unit in cell.units:
                places[unit.question] = max(places[unit.question], unit.place + 1)
                found[unit.question].add(unit.document)
        if len(places) == 1 and max(places.values()) > 1:
            return cls(single=True)
        one = all(len(documents) == 1 and None not in documents for documents in found.values())
        return cls(documents={question: str(next(iter(d))) for question, d in found.items()} if one else {})

    def key(self, unit: Unit) -> Key:
        """The cluster of a record."""
        if self.single:
            return unit.question, f"{unit.place:09d}"
        if self.documents:
            return ("document", self.documents[unit.question])
        return (unit.question,)

    def notes(self) -> list[str]:
        """What a reader of the interval has to know."""
        if self.single:
            return ["one question throughout: the interval is over its haystacks only, not over questions"]
        return ["clusters are documents"] if self.documents else []


@dataclass(frozen=True)
class Leaf:
    """A column of a stratum with what is told of it: records, records expected, clusters."""

    stratum: int
    column: int
    n: int
    n_expected: int
    clusters: int
    binary: bool
    """Whether every cluster is one record of score 0 or 1."""
    successes: int


LeafKey = tuple[str, str, str]
"""Model, setting, and "dataset/length" or "dataset/length/group"."""


@dataclass
class Data:
    """All cells of a benchmark as strata, and where in them each cell and group is.

    `clusterings` are by model, setting and data set.
    """

    strata: list[Stratum] = field(default_factory=list)
    leaves: dict[LeafKey, Leaf] = field(default_factory=dict)
    clusterings: dict[tuple[str, str, str], Clustering] = field(default_factory=dict)


def gather(cells: Sequence[CellScores]) -> Data:
    """Strata of all cells and of their groups of records: one a data set (and group).

    Entries whose records do not say which question they ask stand in strata of their own: they cannot be paired.
    """
    data = Data()
    by_dataset: dict[str, list[CellScores]] = defaultdict(list)
    for cell in cells:
        if max(int(cell.summary["n"]), int(cell.summary["n_expected"])) > 0:
            by_dataset[cell.dataset].append(cell)
    for dataset in by_dataset:
        pools: dict[str, list[CellScores]] = defaultdict(list)
        apart = {cell.column[:2] for cell in by_dataset[dataset] if not cell.can_pair}
        for cell in by_dataset[dataset]:
            pools["/".join(cell.column[:2]) if cell.column[:2] in apart else ""].append(cell)
        for pool, members in pools.items():
            clustering = Clustering.of(members)
            for cell in members:
                data.clusterings[(*cell.column[:2], dataset)] = clustering
            _add(data, dataset, pool, None, members, clustering)
            for group in dict.fromkeys(name for cell in members for name in cell.summary.get("groups") or {}):
                _add(data, dataset, pool, group, members, clustering)
    return data


def _add(
    data: Data, dataset: str, pool: str, group: str | None, cells: Sequence[CellScores], clustering: Clustering
) -> None:
    columns = []
    for cell in cells:
        part = cell.summary if group is None else (cell.summary.get("groups") or {}).get(group)
        if part is None:
            continue
        expected = max(int(part["n"]), int(part["n_expected"]))
        units = cell.records if group is None else _counted([u for u in cell.units if group in u.groups], expected)
        if expected:
            columns.append((cell, part, units, expected))
    if not columns:
        return
    sizes: list[Counter[Key]] = [Counter(map(clustering.key, units)) for _, _, units, _ in columns]
    _fill(sizes, [expected for *_, expected in columns])
    keys = sorted(set().union(*sizes))
    row = {key: index for index, key in enumerate(keys)}
    sums, records = np.zeros((len(keys), len(columns))), np.zeros((len(keys), len(columns)))
    for index, ((cell, part, units, expected), size) in enumerate(zip(columns, sizes, strict=True)):
        for key, number in size.items():
            records[row[key], index] = number
        for unit in units:
            sums[row[clustering.key(unit)], index] += unit.score or 0.0
        model, setting, length = cell.column
        name = f"{dataset}/{length}" + ("" if group is None else f"/{group}")
        scores = [unit.score or 0.0 for unit in units]
        data.leaves[model, setting, name] = Leaf(
            stratum=len(data.strata),
            column=index,
            n=int(part["n"]),
            n_expected=int(part["n_expected"]),
            clusters=len(size),
            binary=set(scores) <= {0.0, 1.0} and max(size.values()) == 1 and len(size) == expected,
            successes=round(sum(scores)),
        )
    data.strata.append(Stratum("/".join((dataset, group or "", pool)), sums, records))


def _fill(sizes: Sequence[Counter[Key]], expected: Sequence[int]) -> None:
    """Add the records that a cell should have and has not: in the clusters that other cells have, then in new ones."""
    largest: Counter[Key] = Counter()
    for size in sizes:
        largest |= size
    for size, total in zip(sizes, expected, strict=True):
        lacking = total - sum(size.values())
        for key in sorted(largest) if lacking > 0 else ():
            added = min(largest[key] - size[key], lacking)
            if added > 0:
                size[key] += added
                lacking -= added
        for number in range(lacking):
            size["\0missing", f"{number:09d}"] += 1


def repeat_means(cell: CellScores) -> list[float]:
    """The mean (percent) of each repeat of a cell whose records were each answered several times.

    The k-th line of a record is its repeat k. One mean for a cell without repeats; none where records differ in their
    number of lines, or where lines stand twice in the predictions file, which is no repeat.
    """
    if (cell.summary.get("counts") or {}).get("duplicates"):
        return []
    repeats: dict[str, list[float]] = defaultdict(list)
    for unit in cell.records:
        repeats[unit.id].append(unit.score or 0.0)
    counts = {len(scores) for scores in repeats.values()}
    if len(counts) != 1:
        return []
    # Records that are missing would be missing in every repeat.
    times = counts.pop()
    n = max(len(repeats), -(-int(cell.summary["n_expected"]) // times))
    return [100 * sum(scores[k] for scores in repeats.values()) / n for k in range(times)]
