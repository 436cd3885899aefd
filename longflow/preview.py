"""Tables of an unfinished run for the terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

from longflow import benchmarks
from longflow.cells import Cell
from longflow.leaderboard import mean, ordered_datasets, ordered_lengths
from longflow.tables import Summary, cell_of

NOT_YET = "·"


def preview(summaries: Sequence[Summary], expected_cells: Iterable[Cell]) -> str:
    """The scores there are of the cells there will be: a table of data set x length a benchmark, model and setting.

    Scores are in percent over the rows found so far; one over fewer rows than expected is marked with ~. The last row
    is the unweighted mean over the data sets scored, marked with * while some are missing. A summary of a cell
    that is not expected is passed over.
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
    datasets, lengths = ordered_datasets(keys, benchmarks.load(benchmark)), ordered_lengths(keys)
    done = [scored[cell] for cell in cells if cell in scored]
    found, expected = sum(int(s["n"]) for s in done), sum(int(s["n_expected"]) for s in done)
    heading = f"{benchmark} / {model} / {setting}: {len(done)} of {len(cells)} cells scored"
    if done:
        heading += f", {found} of {expected} records found in them"
    failed = sum(int(s["counts"].get("failed", 0)) for s in done)
    if failed:
        heading += f", {failed} failed"
    rows = [["", *(f"{length} " for length in lengths)]]
    for dataset in datasets:
        rows.append([dataset, *(_score(keys.get((dataset, length)), scored) for length in lengths)])
    rows.append(["mean", *(_mean(keys, datasets, length, scored) for length in lengths)])
    return heading + "\n" + aligned(rows)


def _score(cell: Cell | None, scored: dict[Cell, Summary]) -> str:
    if cell is None:  # not part of the run
        return ""
    summary = scored.get(cell)
    if summary is None or summary["score"] is None:
        return f"{NOT_YET} "
    return f"{summary['score']:.2f}" + ("~" if summary["n"] < summary["n_expected"] else " ")


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
        "them again, run the same command with -R predict predict_api: what was answered comes from the journal"
    )
