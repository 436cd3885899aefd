"""Models side by side, one's own and the published ones.

A benchmark's means are all unweighted and told by their members: cells, groups within cells, other means. A benchmark
names them itself (`MEANS`) or has those of its length levels, which are LV-Eval's: over the data sets at each length,
then over the lengths. Own scores are over the number of records that were expected, so a run that lost records cannot
gain by it.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from longflow import benchmarks, published
from longflow.benchmarks import Benchmark, length_units
from longflow.jsonio import write_text
from longflow.means import (
    COMPENSATED,
    CellKey,
    Mean,
    Means,
    averages,
    columns,
    fixed_means,
    leaves_of,
    level_means,
    mean,
    means,
    ordered_datasets,
    ordered_lengths,
)
from longflow.tables import Summary, csv_text

COLUMNS = ("benchmark", "setting", "model", "source", "group", "score", "n", "n_expected")
OWN, PUBLISHED = "longflow", "published"
PUBLISHED_SETTING = "full"

BOUNDS = ("bound_low", "bound_high")
"""A score with every missing answer wrong, and with all of them right."""

SPREAD = ("repeat_low", "repeat_high", "repeat_sd")
"""The lowest and the highest score among several answers to each record, and their sample standard deviation."""


@dataclass(frozen=True)
class Cell:
    """Score (percent) of an entry on one data set at one length, or on a group of its records.

    Counts of records are None where they are not known: published ones, and what befell the records of a group.
    """

    score: float
    n: int | None
    n_expected: int
    truncated: int | None
    failed: int | None


@dataclass(frozen=True)
class Entry:
    """One line of a leaderboard: a model under a setting, with the cells it has a score for.

    `groups` are the groups within cells by their names "dataset/length/group", `given` published means. `repeats` are
    the scores (percent) of each answer to all records of a cell, by "dataset/length", where there are several.
    """

    model: str
    setting: str
    source: str
    cells: dict[CellKey, Cell]
    window: str | None = None
    hub: str | None = None
    groups: dict[str, Cell] = field(default_factory=dict)
    repeats: dict[str, list[float]] = field(default_factory=dict)
    given: Mapping[str, float] = field(default_factory=dict)

    @property
    def own(self) -> bool:
        """Whether longflow computed it."""
        return self.source == OWN

    def leaves(self) -> dict[str, Cell]:
        """Everything that means are made of: cells as "dataset/length", each with its groups after it."""
        found: dict[str, Cell] = {}
        for (dataset, length), cell in self.cells.items():
            found[f"{dataset}/{length}"] = cell
            found |= {name: group for name, group in self.groups.items() if name.startswith(f"{dataset}/{length}/")}
        return found

    def means(self, members: Means) -> dict[str, Mean]:
        """Those of the means that the entry has; a published mean is the published number."""
        return means(members, {name: leaf.score for name, leaf in self.leaves().items()}, self.given)

    def spread(self, members: Means) -> dict[str, dict[str, float]]:
        """How the scores of several answers to each record differ: `SPREAD` of each cell and each mean that has them.

        A mean has one where each of its members does, in the same number.
        """
        times = min(map(len, self.repeats.values()), default=0)
        whole = {name: scores for name, scores in self.repeats.items() if len(scores) == times}
        told = [{name: scores[i] for name, scores in whole.items()} for i in range(times)]
        told = [leaves | {name: found.score for name, found in means(members, leaves).items()} for leaves in told]
        scores = {name: [found[name] for found in told] for name in (told[0] if times > 1 else ())}
        return {
            name: dict(zip(SPREAD, (min(values), max(values), statistics.stdev(values)), strict=True))
            for name, values in scores.items()
        }

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


def entries(summaries: Sequence[Summary], benchmark: str) -> list[Entry]:
    """The entries of a benchmark: own ones by setting and model, then the published ones in their order."""
    table = benchmarks.load(benchmark)
    own: dict[tuple[str, str], dict[CellKey, Cell]] = {}
    groups: dict[tuple[str, str], dict[str, Cell]] = {}
    repeats: dict[tuple[str, str], dict[str, list[float]]] = {}
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
        groups.setdefault((str(s["setting"]), str(s["model"])), {}).update(_groups(s))
        repeats.setdefault((str(s["setting"]), str(s["model"])), {}).update(_repeats(s))
    rows = [
        Entry(model, setting, OWN, cells, groups=groups[setting, model], repeats=repeats[setting, model])
        for (setting, model), cells in own.items()
    ]
    rows.sort(key=lambda entry: (entry.setting, entry.model))
    for model in published.load(benchmark):
        cells = {
            (dataset, length): Cell(score, None, table.task(dataset).n, None, None)
            for (dataset, length), score in model.scores.items()
        }
        # The means of levels are taken over the data sets that were run; those that are always over all of them are
        # best as they were published, from scores not yet rounded.
        given = model.means if fixed_means(table) else {}
        rows.append(Entry(model.name, PUBLISHED_SETTING, PUBLISHED, cells, model.window, model.hub, given=given))
    return rows


def _groups(summary: Summary) -> dict[str, Cell]:
    """The groups of a cell that have a score, by name.

    A cell's compensated score, another count of the same records, stands among them as "compensated", as do its bounds
    as "bound_low" and "bound_high". Like all own scores these are over the records expected.
    """
    cell = f"{summary['dataset']}/{summary['length']}"
    found = {
        f"{cell}/{name}": Cell(float(group["score_expected"]), int(group["n"]), int(group["n_expected"]), None, None)
        for name, group in (summary.get("groups") or {}).items()
        if group["score_expected"] is not None
    }
    others = [(COMPENSATED, summary.get("compensated_expected")), *zip(BOUNDS, summary.get("bounds", ()), strict=False)]
    for name, score in others:
        if score is not None:
            found[f"{cell}/{name}"] = Cell(float(score), int(summary["n"]), int(summary["n_expected"]), None, None)
    return found


def _repeats(summary: Summary) -> dict[str, list[float]]:
    """The scores of each answer to all records of a cell over the records expected; nothing with one answer."""
    scores = (summary.get("repeats") or {}).get("scores_expected", [])
    whole = [float(score) for score in scores if score is not None]
    return {f"{summary['dataset']}/{summary['length']}": whole} if len(whole) > 1 else {}


def long_rows(summaries: Sequence[Summary]) -> list[tuple[object, ...]]:
    """The rows of leaderboard.csv, in the order of `COLUMNS`, each entry over all cells it has.

    Groups: "{dataset}/{length}" a cell; "{dataset}/{length}/{group}" a group of its records; then the benchmark's means
    by name. Of a benchmark of length levels these are "{length}", the unweighted mean over data sets; "{dataset}", over
    lengths; "overall", of the length means. Behind a score of several answers to each record stand those of `SPREAD`,
    as "{group}/repeat_low" and so on. `n` and `n_expected` are sums over what is behind a score; a published
    row's `n` is not known, its `n_expected` is what the benchmark has.
    """
    rows: list[tuple[object, ...]] = []
    for name in sorted({str(s["benchmark"]) for s in summaries}):
        table = benchmarks.load(name)
        for entry in entries(summaries, name):
            leaves = _ordered_leaves(entry, table)
            fixed = fixed_means(table)
            members = level_means(entry.cells, table) if fixed is None else fixed
            found = {leaf: Mean(cell.score, (leaf,)) for leaf, cell in leaves.items()}
            found |= entry.means(members)
            spread = entry.spread(members)
            for group, value in found.items():
                who = (name, entry.setting, entry.model, entry.source)
                n, n_expected = _sums(entry, table, value.behind or leaves_of(group, members))
                told = {group: value.score} | {f"{group}/{key}": v for key, v in spread.get(group, {}).items()}
                rows += [(*who, key, round(score, 2), n, n_expected) for key, score in told.items()]
    return rows


def _ordered_leaves(entry: Entry, table: Benchmark) -> dict[str, Cell]:
    """An entry's leaves in the benchmark's order."""
    leaves = entry.leaves()
    cells = [
        f"{d}/{n}"
        for d in ordered_datasets(entry.cells, table)
        for n in ordered_lengths(entry.cells)
        if (d, n) in entry.cells
    ]
    return {
        name: leaf for cell in cells for name, leaf in leaves.items() if name == cell or name.startswith(f"{cell}/")
    }


def _sums(entry: Entry, table: Benchmark, names: Iterable[str]) -> tuple[int | None, int | None]:
    """Records found (None if not published) and expected (None if not known) in these cells or groups."""
    leaves = entry.leaves()
    if entry.own:
        cells = [leaves[name] for name in names]
        return sum(cell.n or 0 for cell in cells), sum(cell.n_expected for cell in cells)
    expected = [leaves[name].n_expected if name in leaves else _records(table, name) for name in names]
    known = [n for n in expected if n is not None]
    return None, sum(known) if len(known) == len(expected) else None


def _records(table: Benchmark, leaf: str) -> int | None:
    """How many records a cell or group has by the benchmark's table; None if the table does not say."""
    dataset, _, group = (*leaf.split("/", 2), "")[:3]
    task = table.tasks.get(dataset)
    if task is None or not group:
        return task.n if task else None
    sizes = task.extra.get("groups")
    return sizes.get(group) if isinstance(sizes, Mapping) else None


def _counts(entry: Entry, keys: Iterable[CellKey]) -> tuple[int | None, int | None]:
    """Records truncated and failed in these cells, None if not published."""
    if not entry.own:
        return None, None
    cells = [entry.cells[key] for key in keys]
    return sum(cell.truncated or 0 for cell in cells), sum(cell.failed or 0 for cell in cells)


def wide_table(summaries: Sequence[Summary], benchmark: str) -> tuple[list[str], list[list[object]]]:
    """Header and rows of leaderboard/{benchmark}.csv: models ranked over the same cells.

    Of a benchmark that names its means, the columns are those it says, and rows are ranked by the last of them. If not
    all own entries (with any score) have it, the last average that they all have decides.

    Of a benchmark of length levels, the columns are the levels and their mean, by which rows are ranked. The cells
    compared are those that every own entry (with any score) has a score for. Published rows are taken over
    the same cells, so their means are the published ones only if all data sets were run; `datasets` and `lengths` say
    how many of the benchmark's stand behind a row. A level that only some own entries have is shown and does not
    count.

    A row that lacks what decides has no rank and stands last; equal scores share a rank. Where records were answered
    several times `sd` is the standard deviation of the score that decides.
    """
    table = benchmarks.load(benchmark)
    rows = entries(summaries, benchmark)
    fixed = fixed_means(table)
    if fixed is None:
        own = [set(entry.cells) for entry in rows if entry.own and entry.cells]
        run = set().union(*own)
        compared = set.intersection(*own) if own else set()
        shown = [*ordered_lengths(run), "overall"]
        by = "overall"
        lines = [_level_line(entry, table, run, compared) for entry in rows]
    else:
        shown = columns(table)
        lines = [_line(entry, table, fixed) for entry in rows]
        by = _decides([line.means for line in lines if line.entry.own and line.entry.cells], shown, fixed)
    lines = [line for line in lines if line.entry.own or any(name in line.means for name in shown)]
    lines.sort(key=lambda line: (by not in line.means, -line.means.get(by, 0.0), not line.entry.own, line.order))
    header = ["rank", "model", "setting", "source", "datasets", *(["lengths"] if fixed is None else []), *shown]
    repeated = any(line.entry.repeats for line in lines)
    header += [*(["sd"] if repeated else []), "n", "n_expected", "truncated", "failed", "window", "hub"]
    scores = [line.means.get(by) for line in lines]
    return header, [
        [
            scores.index(line.means[by]) + 1 if by in line.means else None,
            line.entry.model,
            line.entry.setting,
            line.entry.source,
            *line.extent,
            *(line.means.get(name) for name in shown),
            *([line.spread.get(by)] if repeated else []),
            *_sums(line.entry, table, line.behind),
            *_counts(line.entry, line.cells),
            line.entry.window,
            line.entry.hub,
        ]
        for line in lines
    ]


@dataclass(frozen=True)
class _Line:
    """An entry as the wide table shows it.

    `means` are rounded as printed, `cells` and `behind` those that its counts are of, `extent` how much of the
    benchmark it has, `spread` the standard deviation of means over several answers to each record.
    """

    entry: Entry
    means: dict[str, float]
    spread: dict[str, float]
    cells: list[CellKey]
    behind: list[str]
    extent: list[str]

    @property
    def order(self) -> tuple[str, str]:
        return self.entry.model, self.entry.setting


def _line(entry: Entry, table: Benchmark, members: Means) -> _Line:
    """A row of a benchmark that names its means, over all cells that the entry has."""
    found = {name: round(value.score, 2) for name, value in entry.means(members).items()}
    behind = [f"{dataset}/{length}" for dataset, length in entry.cells]
    datasets = {dataset for dataset, _ in entry.cells}
    if not entry.own and entry.given:  # means may be published where their members are not
        leaves = [leaf for name in entry.given for leaf in leaves_of(name, members)]
        behind = list(dict.fromkeys("/".join(leaf.split("/")[:2]) for leaf in leaves))
        datasets |= {leaf.split("/")[0] for leaf in leaves}
    spread = {name: values["repeat_sd"] for name, values in entry.spread(members).items()}
    return _Line(entry, found, spread, list(entry.cells), behind, [f"{len(datasets)} of {len(table.tasks)}"])


def _decides(own: Sequence[Mapping[str, float]], shown: Sequence[str], members: Means) -> str:
    """The column that rows are ranked by."""
    candidates = [name for name in averages(members) if name in shown]
    common = [name for name in [*candidates, shown[-1]] if all(name in found for found in own)]
    return common[-1] if common else shown[-1]


def _level_line(entry: Entry, table: Benchmark, run: set[CellKey], compared: set[CellKey]) -> _Line:
    """A row of a benchmark of length levels, over the cells compared if the entry has them all."""
    complete = bool(compared) and compared <= set(entry.cells)
    cells = sorted(compared if complete else run & set(entry.cells))
    found: dict[str, float] = {}
    for level in ordered_lengths(run):
        at_level = {d for d, n in compared if n == level} or {d for d, n in run if n == level}
        value = entry.level_mean(level, at_level)
        # A published mean over fewer data sets than were compared would be another quantity.
        if value is not None and (entry.own or all((d, level) in entry.cells for d in at_level)):
            found[level] = value
    overall = mean(value for level, value in found.items() if level in {n for _, n in compared})
    if complete and overall is not None:
        found["overall"] = overall
    spread = entry.spread(level_means(cells, table)).get("overall") if "overall" in found else None
    per_level = [sum(1 for _, n in cells if n == level) for level in ordered_lengths(cells)]
    # A benchmark built at any length has no number of lengths.
    lengths = str(len(per_level)) + ("" if table.any_length else f" of {len(table.lengths)}")
    return _Line(
        entry,
        {name: round(value, 2) for name, value in found.items()},
        {} if spread is None else {"overall": spread["repeat_sd"]},
        cells,
        [f"{dataset}/{length}" for dataset, length in cells],
        [f"{_span(per_level)} of {len(table.tasks)}", lengths],
    )


def _span(counts: Sequence[int]) -> str:
    low, high = min(counts, default=0), max(counts, default=0)
    return str(low) if low == high else f"{low} to {high}"


def write_leaderboard(summaries: Sequence[Summary], out_csv: str | Path, out_folder: str | Path) -> None:
    """Write leaderboard.csv (long form, all benchmarks) and one wide table {benchmark}.csv a benchmark."""
    write_text(out_csv, csv_text(COLUMNS, long_rows(summaries)))
    for name in sorted({str(s["benchmark"]) for s in summaries}):
        write_text(Path(out_folder) / f"{name}.csv", csv_text(*wide_table(summaries, name)))
