"""Cells with records that failed, and the files to make again so that only those are tried."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from longflow.cells import Cell, Files, cells
from longflow.config import Config, ModelOptions
from longflow.jsonio import read_jsonl


@dataclass(frozen=True)
class Failed:
    """A cell with failed records: how many of how many, the first reason, and the files to make again."""

    cell: Cell
    failed: int
    records: int
    reason: str
    again: tuple[str, ...]


def find(config: Config) -> list[Failed]:
    """The cells of a run that have failed records in their predictions, in the run's order."""
    files = Files(config)
    found = []
    for cell in cells(config):
        model, path = config.models[cell.model], files.predictions(cell)
        if not isinstance(model, ModelOptions) or not Path(path).exists():
            continue
        records, reasons = 0, []
        for row in read_jsonl(path):
            records += 1
            if row.get("error"):
                reasons.append(str(row["error"]))
        if reasons:
            # What the predictions are put together of has to be made again itself.
            again = [path]
            if model.shards > 1:
                again = files.shards(cell, model.shards)
            elif model.entry().get("batch"):
                again = [files.from_batch(cell)]
            found.append(Failed(cell, len(reasons), records, reasons[0], tuple(again)))
    return found


def describe(found: Iterable[Failed]) -> list[str]:
    """A line for each cell, for people."""
    return [f"{each.cell.name}: {each.failed} of {each.records} records failed: {each.reason}" for each in found]
