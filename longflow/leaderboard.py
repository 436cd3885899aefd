"""Models side by side, one's own and the published ones.

Means are LV-Eval's: unweighted, over the data sets at each length, then over the lengths. Own scores are over the
number of records that were expected, so a run that lost records cannot gain by it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from longflow import benchmarks, published
from longflow.benchmarks import Benchmark, length_units
from longflow.jsonio import write_text
from longflow.tables import Summary, csv_text

COLUMNS = ("benchmark", "setting", "model", "source", "group", "score", "n", "n_expected")
OWN, PUBLISHED = "longflow", "published"
PUBLISHED_SETTING = "full"

CellKey = tuple[str, str]
"""Data set and length."""


@dataclass(frozen=True)
class Cell:
    """Score (percent) of an entry on one data set at one length; counts of records are None where not published."""

    score: float
    n: int | None
    n_expected: int
    truncated: int | None
    failed: int | None


@dataclass(frozen=True)
class Entry:
    """One line of a leaderboard: a model under a setting, with the cells it has a score for."""

    model: str
    setting: str
    source: str
    cells: dict[CellKey, Cell]
    window: str | None = None
    hub: str | None = None

    @property
    def own(self) -> bool:
        """Whether longflow computed it."""
        return self.source == OWN

    def level_mean(self, length: str, datasets: Collection[str]) -> float | None:
        """Unweighted mean (percent) at a length over those of `datasets` that the entry has; None without any."""
        return mean(self.cells[key].score for key in self._at(length, datasets))

    def beyond_window(self, length: str, datasets: Collection[str]) -> bool:
        """Whether a level is longer than the model's window.

        An own model's is if more than half of the records found there were truncated, a published one's if the
        level's name exceeds the window's.
        """
        if self.window is not None:
            return length_units(length) > length_units(self.window)
        cells = [self.cells[key] for key in self._at(length, datasets)]
        return 2 * sum(c.truncated or 0 for c in cells) > sum(c.n or 0 for c in cells)

    def _at(self, length: str, datasets: Collection[str]) -> list[CellKey]:
        return [key for key in self.cells if key[1] == length and key[0] in datasets]


def mean(values: Iterable[float]) -> float | None:
    """The unweighted mean, None of nothing."""
    found = list(values)
    return math.fsum(found) / len(found) if found else None


def entries(summaries: Sequence[Summary], benchmark: str) -> list[Entry]:
    """The entries of a benchmark: own ones by setting and model, then the published ones in their order."""
    table = benchmarks.load(benchmark)
    own: dict[tuple[str, str], dict[CellKey, Cell]] = {}
    for s in summaries:
        if s["benchmark"] != benchmark:
            continue
        cells = own.setdefault((str(s["setting"]), str(s["model"])), {})
        if s["score_expected"] is not None:
            cells[str(s["dataset"]), str(s["length"])] = Cell(
                score=float(s["score_expected"]),
                n=int(s["n"]),
                n_expected=int(s["n_expected"]),
                truncated=int(s["counts"].get("truncated", 0)),
                failed=int(s["counts"].get("failed", 0)),
            )
    rows = [Entry(model, setting, OWN, cells) for (setting, model), cells in sorted(own.items())]
    for model in published.load(benchmark):
        cells = {
            (dataset, length): Cell(score, None, table.task(dataset).n, None, None)
            for (dataset, length), score in model.scores.items()
        }
        rows.append(Entry(model.name, PUBLISHED_SETTING, PUBLISHED, cells, model.window, model.hub))
    return rows


def ordered_datasets(keys: Iterable[CellKey], table: Benchmark) -> list[str]:
    """The data sets that occur, in the benchmark's order; ones it does not name come last, by name."""
    order = {dataset: i for i, dataset in enumerate(table.tasks)}
    return sorted({dataset for dataset, _ in keys}, key=lambda d: (order.get(d, len(order)), d))


def ordered_lengths(keys: Iterable[CellKey]) -> list[str]:
    """The length levels that occur, shortest first."""
    return sorted({length for _, length in keys}, key=lambda name: (length_units(name), name))


def long_rows(summaries: Sequence[Summary]) -> list[tuple[object, ...]]:
    """The rows of leaderboard.csv, in the order of `COLUMNS`, each entry over all cells it has.

    Groups: "{dataset}/{length}" a cell; "{length}" the unweighted mean over data sets; "{dataset}" the unweighted mean
    over lengths; "overall" the unweighted mean of the length means. `n` and `n_expected` are sums over the cells
    behind a score; a published row's `n` is not known, its `n_expected` is what the benchmark has.
    """
    rows: list[tuple[object, ...]] = []
    for name in sorted({str(s["benchmark"]) for s in summaries}):
        table = benchmarks.load(name)
        for entry in entries(summaries, name):
            datasets, lengths = ordered_datasets(entry.cells, table), ordered_lengths(entry.cells)
            keys = [(d, n) for d in datasets for n in lengths if (d, n) in entry.cells]
            groups = [(f"{d}/{n}", entry.cells[d, n].score, [(d, n)]) for d, n in keys]
            levels = [(n, entry.level_mean(n, datasets), [k for k in keys if k[1] == n]) for n in lengths]
            by_dataset = [[k for k in keys if k[0] == d] for d in datasets]
            groups += [(group, score, behind) for group, score, behind in levels if score is not None]
            for behind in by_dataset:
                score = mean(entry.cells[k].score for k in behind)
                assert score is not None
                groups.append((behind[0][0], score, behind))
            overall = mean(score for _, score, _ in levels if score is not None)
            if overall is not None:
                groups.append(("overall", overall, keys))
            for group, score, behind in groups:
                n, n_expected = _sums(entry, behind)
                rows.append((name, entry.setting, entry.model, entry.source, group, round(score, 2), n, n_expected))
    return rows


def _sums(entry: Entry, keys: Iterable[CellKey]) -> tuple[int | None, int]:
    """Records found (None if not published) and expected in these cells."""
    cells = [entry.cells[key] for key in keys]
    found = [cell.n for cell in cells if cell.n is not None]
    return (sum(found) if entry.own else None), sum(cell.n_expected for cell in cells)


def _counts(entry: Entry, keys: Iterable[CellKey]) -> tuple[int | None, int | None]:
    """Records truncated and failed in these cells, None if not published."""
    if not entry.own:
        return None, None
    cells = [entry.cells[key] for key in keys]
    return sum(cell.truncated or 0 for cell in cells), sum(cell.failed or 0 for cell in cells)


def wide_table(summaries: Sequence[Summary], benchmark: str) -> tuple[list[str], list[list[object]]]:
    """Header and rows of leaderboard/{benchmark}.csv: models ranked over the same cells.

    The cells compared are those that every own entry (with any score) has a score for. Published rows are taken over
    the same cells, so their means are the published ones only if all data sets were run; `datasets` and `lengths` say
    how many of the benchmark's stand behind a row. A level that only some own entries have is shown and does not
    count. A row that lacks a cell compared has no overall score and no rank; equal scores share a rank.
    """
    table = benchmarks.load(benchmark)
    rows = entries(summaries, benchmark)
    own = [set(entry.cells) for entry in rows if entry.own and entry.cells]
    run = set().union(*own)
    compared = set.intersection(*own) if own else set()
    levels = ordered_lengths(run)
    lines = []
    for entry in rows:
        line = _Line(entry, table, run, compared)
        if entry.own or line.means:
            lines.append(line)
    lines.sort(key=lambda line: (line.overall is None, -(line.overall or 0.0), not line.entry.own, line.order))
    header = ["rank", "model", "setting", "source", "datasets", "lengths", *levels]
    header += ["overall", "n", "n_expected", "truncated", "failed", "window", "hub"]
    scores = [line.overall for line in lines]
    return header, [
        [
            None if line.overall is None else scores.index(line.overall) + 1,
            line.entry.model,
            line.entry.setting,
            line.entry.source,
            line.datasets,
            line.lengths,
            *(line.means.get(level) for level in levels),
            line.overall,
            *_sums(line.entry, line.behind),
            *_counts(line.entry, line.behind),
            line.entry.window,
            line.entry.hub,
        ]
        for line in lines
    ]


class _Line:
    """An entry as the wide table shows it: its means (rounded as printed) over the cells compared."""

    def __init__(self, entry: Entry, table: Benchmark, run: set[CellKey], compared: set[CellKey]) -> None:
        self.entry = entry
        self.order = (entry.model, entry.setting)
        complete = bool(compared) and compared <= set(entry.cells)
        self.behind = sorted(compared if complete else run & set(entry.cells))
        means: dict[str, float] = {}
        for level in ordered_lengths(run):
            at_level = {d for d, n in compared if n == level} or {d for d, n in run if n == level}
            value = entry.level_mean(level, at_level)
            # A published mean over fewer data sets than were compared would be another quantity.
            if value is not None and (entry.own or all((d, level) in entry.cells for d in at_level)):
                means[level] = value
        self.means = {level: round(value, 2) for level, value in means.items()}
        overall = mean(value for level, value in means.items() if level in {n for _, n in compared})
        self.overall = round(overall, 2) if complete and overall is not None else None
        per_level = [sum(1 for _, n in self.behind if n == level) for level in ordered_lengths(self.behind)]
        self.datasets = f"{_span(per_level)} of {len(table.tasks)}"
        # A benchmark built at any length has no number of lengths.
        self.lengths = str(len(per_level)) + ("" if table.any_length else f" of {len(table.lengths)}")


def _span(counts: Sequence[int]) -> str:
    low, high = min(counts, default=0), max(counts, default=0)
    return str(low) if low == high else f"{low} to {high}"


def write_leaderboard(summaries: Sequence[Summary], out_csv: str | Path, out_folder: str | Path) -> None:
    """Write leaderboard.csv (long form, all benchmarks) and one wide table {benchmark}.csv a benchmark."""
    write_text(out_csv, csv_text(COLUMNS, long_rows(summaries)))
    for name in sorted({str(s["benchmark"]) for s in summaries}):
        write_text(Path(out_folder) / f"{name}.csv", csv_text(*wide_table(summaries, name)))
