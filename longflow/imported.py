"""Predictions made elsewhere: which of a person's files is which cell, and what is in it.

The references' own names are known: `{dataset}_{length}.jsonl` (LV-Eval), `{dataset}.jsonl` (LongBench, and LongBench-E
by the benchmark it is run under), one file for LongBench v2. The rows are taken as they are; what is found in the wild
(doubled files, missing lines, rows that failed) is counted and said, and scored as the references would.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from longflow.errors import UserError
from longflow.jsonio import canonical, read_jsonl, write_jsonl
from longflow.metrics.choice import extract_answer
from longflow.reasoning import Markers, take_apart

log = logging.getLogger("longflow")

CellKey = tuple[str, str]
"""Data set and length."""


def default_patterns(lengths: Sequence[str], benchmark: str, single: bool) -> list[str]:
    """The names that prediction files of a benchmark have.

    Args:
        lengths: the benchmark's length levels.
        benchmark: its name.
        single: whether it has one data set, whose file may have any name where there are no levels.
    """
    if single and list(lengths) == ["full"]:
        return ["{dataset}.jsonl", "*.jsonl"]
    if list(lengths) != ["full"]:
        return ["{dataset}_{length}.jsonl"]
    return ["{dataset}_e.jsonl", "{dataset}.jsonl"] if benchmark == "longbench_e" else ["{dataset}.jsonl"]


def find(path: str, patterns: Sequence[str], cells: Sequence[CellKey], key: str) -> dict[CellKey, str]:
    """The file of each cell that has one.

    Args:
        path: a folder, or a file, which then is the one cell's.
        patterns: names with {dataset}, {length} and *, of which the first that matches anything for a cell counts.
        cells: the cells there may be.
        key: the model's key in the configuration, for messages.

    Raises UserError if there is no such folder or file, two files for one cell, one for two, or none for any.
    """
    root = Path(path)
    if root.is_file():
        if len(cells) != 1:
            raise UserError(f"{key}.path: {path} is one file, and {len(cells)} cells are asked for; name a folder")
        return {cells[0]: path}
    if not root.is_dir():
        raise UserError(f"{key}.path: {path}: no such folder or file")
    try:
        names = sorted(file.name for file in root.iterdir() if file.is_file())
    except OSError as error:
        raise UserError(f"{key}.path: {path}: cannot be read ({error.strerror})") from error
    found: dict[CellKey, str] = {}
    taken: dict[str, CellKey] = {}
    for cell in cells:
        for pattern in patterns:
            matching = [name for name in names if _regex(pattern, cell).fullmatch(name)]
            if len(matching) > 1:
                raise UserError(
                    f"{key}.path: {path} has {len(matching)} files for {'/'.join(cell)} ({', '.join(matching[:3])}); "
                    "a pattern: has to match one"
                )
            if matching:
                other = taken.setdefault(matching[0], cell)
                if other != cell:
                    raise UserError(
                        f"{key}.path: {root / matching[0]} would be the file of {'/'.join(other)} and of "
                        f"{'/'.join(cell)}; a pattern: has to tell them apart, by {{dataset}} and {{length}}"
                    )
                found[cell] = str(root / matching[0])
                break
    if not found:
        looked = ", ".join(patterns)
        raise UserError(f"{key}.path: {path} has no predictions: no file is named {looked}; set pattern: if others are")
    return found


def _regex(pattern: str, cell: CellKey) -> re.Pattern[str]:
    named = re.escape(pattern).replace(r"\*", ".*")
    return re.compile(named.replace(r"\{dataset\}", re.escape(cell[0])).replace(r"\{length\}", re.escape(cell[1])))


def pattern_error(pattern: str, datasets: int) -> str | None:
    """What is wrong with a `pattern`, or None."""
    if "/" in pattern:
        return "names files, not folders; put the folder into path"
    if "{dataset}" not in pattern and datasets > 1:
        return "does not name {dataset}, so that every data set would have the same file"
    if unknown := set(re.findall(r"\{(\w*)\}", pattern)) - {"dataset", "length"}:
        return f"names {{{unknown.pop()}}}; only {{dataset}} and {{length}} are known"
    return None


def take(path: str, output: str, expected: int, name: str, markers: Markers | None = None) -> dict[str, int]:
    """Copy a file's rows as a cell's predictions, and say in one line what was found.

    With `markers` reasoning is taken out of the answers first, see `without_reasoning`.

    `expected` is the number of records; where rows tell of several answers to each (`repeat`), as many times more rows
    are expected.

    Returns the counts: rows expected, found, distinct, and without a `pred`; with markers also `reasoning` (rows in
    which some was found) and `reasoning_open` (those of them that end in it).
    Raises UserError naming file and line for what is not JSON.
    """
    counts = {"expected": expected, "found": 0, "distinct": 0, "without_pred": 0}
    if markers is not None:
        counts |= {"reasoning": 0, "reasoning_open": 0}
    seen: set[int] = set()
    repeats: set[int] = set()

    def rows() -> Iterator[dict[str, Any]]:
        for row in read_jsonl(path):
            counts["found"] += 1
            counts["without_pred"] += row.get("pred") is None and "judge" not in row
            seen.add(hash(canonical(row)))
            if isinstance(row.get("repeat"), int):
                repeats.add(row["repeat"])
            if markers is not None:
                row = without_reasoning(row, markers)
                counts["reasoning"] += "reasoning" in row
                counts["reasoning_open"] += row.get("reasoning_closed") is False
            yield row

    write_jsonl(output, rows())
    counts["distinct"] = len(seen)
    counts["expected"] *= max(1, len(repeats))
    said = f"expected {counts['expected']}, found {counts['found']}, {counts['distinct']} distinct"
    if counts["without_pred"]:
        said += f", {counts['without_pred']} without a prediction"
    if markers is not None:
        said += f", {counts['reasoning']} with reasoning, {counts['reasoning_open']} of them cut off in it"
    log.info("%s: %s: %s", name, path, said)
    return counts


def without_reasoning(row: dict[str, Any], markers: Markers) -> dict[str, Any]:
    """A row with the reasoning taken out of its `pred`, or out of the `response` that LongBench v2's rows have.

    What was taken out is kept as `reasoning`, and `reasoning_closed` says whether it came to its end; if it did not,
    there is no answer. The letter in `pred` was read from the whole response, reasoning and all, so it is read anew,
    and `judge` with it; a row without `answer` has nothing that a letter could be held against and keeps both. A row
    without reasoning, or from which it was taken before, stays as it is.
    """
    if "reasoning_closed" in row:
        return row
    key = "response" if isinstance(row.get("response"), str) and "answers" not in row else "pred"
    text = row.get(key)
    if not isinstance(text, str):
        return row
    thought = take_apart(text, str(row.get("finish_reason")), markers)
    if thought.closed and not thought.reasoning and thought.answer == text:
        return row
    taken = {**row, key: thought.answer, "reasoning": thought.reasoning, "reasoning_closed": thought.closed}
    if key == "response" and isinstance(row.get("answer"), str):
        taken["pred"] = extract_answer(thought.answer)
        if "judge" in row:
            taken["judge"] = taken["pred"] == row["answer"]
    return taken
