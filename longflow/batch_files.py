"""What a batch gives for each of its cells: the cell's predictions, or a line that says why there are none.

A job whose outputs are the predictions themselves would have to fail for one cell of many, and Snakemake removes all
that a failed job made. So a batch gives files of its own, and a short job per cell takes its predictions from there, or
fails for this cell alone.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from longflow.errors import UserError
from longflow.jsonio import parse_jsonl, write_jsonl
from longflow.specs import beside, disown, write_spec

FAULT = "fault"


def write_fault(path: str | Path, fault: str) -> None:
    """Write why a cell has no predictions, disowned so that the next run has its batch try again.

    The batch's job ends well all the same; it is `take` that fails.
    """
    write_jsonl(path, [{FAULT: fault}])
    disown(path)


def take(given: str | Path, predictions: str | Path, spec: str) -> None:
    """Put a batch's file where the cell's predictions belong, with the digest beside it (of `spec`, if it lacks one).

    Raises UserError with the fault that it may hold.
    """
    with open(given, "rb") as file:
        first = next(parse_jsonl([file.readline()], str(given)), {})
    if FAULT in first:
        raise UserError(str(first[FAULT]))
    _link(Path(given), Path(predictions))
    if beside(given).exists():
        _link(beside(given), beside(predictions))
    else:
        write_spec(predictions, spec)


def _link(source: Path, target: Path) -> None:
    """Give a file a second name, which takes no room; where that cannot be, copy it."""
    unfinished = Path(f"{target}.part")
    unfinished.unlink(missing_ok=True)
    try:
        os.link(source, unfinished)
    except OSError:
        shutil.copy2(source, unfinished)
    unfinished.replace(target)
