"""Tables of an unfinished run for the terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

from longflow import benchmarks
from longflow.cells import Cell
from longflow.means import (
    Means,
    columns,
    fixed_means,
    groups_in,
    leaves_of,
    mean,
    means,
    ordered_datasets,
    ordered_lengths,
)
from longflow.tables import Summary, cell_of

NOT_YET = "·"


def _deviation(summary: Summary) -> str:
    """The standard deviation over several answers to each record; empty without."""
    value = (summary.get("repeats") or {}).get("sd")
    return "" if value is None else f"{value:.2f} "


def _bounds(summary: Summary) -> str:
    """The least and the highest accuracy there can be; empty without, or if nothing is missing."""
    low, high = summary.get("bounds") or (None, None)
    return "" if low is None or low == high else f"{low:.2f} to {high:.2f} "


EXTRA = {"sd": _deviation, "bounds": _bounds}
"""What may be told beside a cell's score, by the head of its column."""


def preview(summaries: Sequence[Summary], expected_cells: Iterable[Cell]) -> str:
    """The scores there are of the cells there will be: a table of data set x length a benchmark, model and setting.

    Scores are in percent over the rows found so far; one over fewer rows than expected is marked with ~. Groups of
    records have columns of their own, as have the standard deviation over several answers to each record (sd) and the
    bounds of an accuracy if all missing answers were wrong or right. The last row is the unweighted mean over the data
    sets scored, marked with * while some are missing; a benchmark that names its means has a line of its averages
    instead, those that are whole.
    A summary of a cell that is not expected is passed over.
    """
    scored = {Cell(*cell_of(summary)): summary for summary in summaries}
    runs: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in expected_cells:
        runs.setdefault((cell.benchmark, cell.model, cell.setting), []).append(cell)
    if not runs:
        return "no cells are expected: the run selects nothing"
    blocks = [_block(name, cells, scored) for name, cells in runs.items()]
    text = "\n\n".join(blocks)
    notes = [
        note
        for mark, note in (
            (NOT_YET, f"{NOT_YET} not yet"),
            ("~", "~ over the rows found so far, fewer than expected"),
            ("*", "* mean over the data sets scored so far"),
        )
        if mark in "".join(block.split("\n", 1)[1] for block in blocks)
    ]
    return text + ("\n\n" + "   ".join(notes) if notes else "")


def _block(name: tuple[str, str, str], cells: Sequence[Cell], scored: dict[Cell, Summary]) -> str:
    """The table of one benchmark, model and setting, under a line with what was found."""
    benchmark, model, setting = name
    keys = {(cell.dataset, cell.length): cell for cell in cells}
    table = benchmarks.load(benchmark)
    datasets, lengths = ordered_datasets(keys, table), ordered_lengths(keys)
    done = [scored[cell] for cell in cells if cell in scored]
    found, expected = sum(int(s["n"]) for s in done), sum(int(s["n_expected"]) for s in done)
    heading = f"{benchmark} / {model} / {setting}: {len(done)} of {len(cells)} cells scored"
    if done:
        heading += f", {found} of {expected} records found in them"
    failed = sum(int(s["counts"].get("failed", 0)) for s in done)
    if failed:
        heading += f", {failed} failed"
    members = fixed_means(table)
    groups = groups_in(columns(table), members or {})
    more = [name for name, of in EXTRA.items() if any(of(summary) for summary in done)]
    rows = [["", *(f"{name} " for length in lengths for name in (length, *more, *groups))]]
    for dataset in datasets:
        row = [dataset]
        for length in lengths:
            cell = keys.get((dataset, length))
            row.append(_score(cell, scored))
            row += [_extra(cell, scored, name) for name in more]
            row += [_score(cell, scored, group) for group in groups]
        rows.append(row)
    if members is None:
        blank = [""] * len(more)
        row = [text for length in lengths for text in (_mean(keys, datasets, length, scored), *blank)]
        rows.append(["mean", *row])
        return heading + "\n" + aligned(rows)
    return heading + "\n" + aligned(rows) + _averages(columns(table), members, done)


def _averages(names: Iterable[str], members: Means, done: Sequence[Summary]) -> str:
    """A line of a benchmark's averages over the rows found, if it has any; one that lacks a data set is not yet."""
    leaves: dict[str, float] = {}
    for s in done:
        cell = f"{s['dataset']}/{s['length']}"
        scores = {f"{cell}/{name}": group["score"] for name, group in (s.get("groups") or {}).items()}
        scores[cell] = s["score"]
        leaves |= {name: float(score) for name, score in scores.items() if score is not None}
    found = means(members, leaves)
    # A category's mean has a slash in its name; what is a cell or a group alone stands in the table.
    short = [name for name in names if "/" not in name and len(leaves_of(name, members)) > 1]
    texts = [f"{name} {found[name].score:.2f}" if name in found else f"{name} {NOT_YET}" for name in short]
    return "\naverages: " + "   ".join(texts) if texts else ""


def _score(cell: Cell | None, scored: dict[Cell, Summary], group: str | None = None) -> str:
    """The score of a cell, or of a group of its records."""
    if cell is None:  # not part of the run
        return ""
    summary = scored.get(cell)
    part = summary if summary is None or group is None else (summary.get("groups") or {}).get(group)
    if part is None or part["score"] is None:
        return f"{NOT_YET} "
    return f"{part['score']:.2f}" + ("~" if part["n"] < part["n_expected"] else " ")


def _extra(cell: Cell | None, scored: dict[Cell, Summary], name: str) -> str:
    """What is told beside a cell's score."""
    if cell is None:
        return ""
    return EXTRA[name](scored[cell]) if cell in scored else f"{NOT_YET} "


def _mean(keys: dict[tuple[str, str], Cell], datasets: Sequence[str], length: str, scored: dict[Cell, Summary]) -> str:
    expected = [keys[d, length] for d in datasets if (d, length) in keys]
    summaries = [scored[cell] for cell in expected if cell in scored]
    whole = [s for s in summaries if s["score"] is not None]
    value = mean(float(s["score"]) for s in whole)
    if value is None:
        return f"{NOT_YET} "
    complete = len(whole) == len(expected) and all(s["n"] >= s["n_expected"] for s in whole)
    return f"{value:.2f}" + (" " if complete else "*")


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows as columns of text, the first flush left and the others right; Chinese characters count as two wide."""
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *rest in rows:
        cells = [first + " " * (widths[0] - width(first))]
        cells += [" " * (w - width(cell)) + cell for cell, w in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def width(text: str) -> int:
    """Columns that a text takes in a terminal."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def failures(summaries: Iterable[Summary]) -> str:
    """One line on records that failed, and how to try them again; empty if none did."""
    failed = [int(s["counts"].get("failed", 0)) for s in summaries]
    cells = sum(count > 0 for count in failed)
    if not cells:
        return ""
    return (
        f"{sum(failed)} records in {cells} cells failed and count 0; the reasons stand in the predictions. To try only "
        "them again, add -R $(python -m scripts.failed) with the run's --configfile: what was answered comes from the "
        "journal"
    )
