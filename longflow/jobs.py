"""Which cells make a job, and what the job needs to know of each."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from longflow import models
from longflow.benchmarks import length_units
from longflow.cell_run import Job
from longflow.cells import Cell, Files, cells, expected_records, predict_spec
from longflow.config import Config
from longflow.errors import UserError
from longflow.predict import Place


def job(
    config: Config, cell: Cell, records: str, model_file: str, spec: dict[str, Any], threads: int | None = None
) -> Job:
    """The job of a cell. Raises UserError if the model's file cannot be read."""
    model = config.runnable(cell.model)
    return Job(
        name=cell.name,
        records=records,
        model=models.load(model_file),
        entry={**model.entry(), "threads": threads or model.job_threads},
        spec=spec,
        journal=Files(config).journal_of(cell),
        max_failures=config.run.max_failures,
    )


def batch(
    config: Config, model: str, number: int, model_file: str, threads: int | None = None
) -> tuple[list[Job], list[Place]]:
    """The jobs of a batch, and where their files go. Raises UserError if the model has no such batch."""
    found = batches(config, model)
    if not 0 <= number < len(found):
        raise UserError(f"models.{model}.batch: there is no batch {number}; the cells are dealt into {len(found)}")
    files = Files(config)
    jobs, places = [], []
    for cell in found[number]:
        spec = predict_spec(config, cell)
        jobs.append(job(config, cell, files.records_of(cell), model_file, json.loads(spec), threads))
        places.append(Place(files.from_batch(cell), files.usage(cell), spec))
    return jobs, places


def batches(config: Config, model: str) -> list[list[Cell]]:
    """The cells of a model dealt into as many jobs as its entry's `batch` says, about equal in tokens.

    Cells that ask about the same records, in several settings, stay together: what their prompts begin with is computed
    once. Each batch has its cells in the order of the run; no batch is empty.
    """
    entry = config.runnable(model)
    number = int(entry.entry().get("batch") or 1)
    groups: dict[tuple[str, str, str], list[Cell]] = {}
    order: dict[Cell, int] = {}
    for index, cell in enumerate(cells(config)):
        if cell.model == model:
            groups.setdefault((cell.benchmark, cell.dataset, cell.length), []).append(cell)
            order[cell] = index
    sizes = sorted(((_tokens(config, group), group) for group in groups.values()), key=lambda pair: -pair[0])
    dealt: list[tuple[int, list[Cell]]] = [(0, []) for _ in range(min(number, len(groups)))]
    for size, group in sizes:
        least = min(range(len(dealt)), key=lambda index: dealt[index][0])
        dealt[least] = (dealt[least][0] + size, dealt[least][1] + group)
    return [sorted(group, key=order.__getitem__) for _, group in dealt]


def _tokens(config: Config, group: Sequence[Cell]) -> int:
    """About how many tokens these cells send; a level's words count as tokens, up to the prompt limit."""
    total = 0
    for cell in group:
        limit, _ = config.prompt_limit(cell.model, cell.benchmark, cell.setting)
        words = length_units(cell.length) or limit or 1
        records = expected_records(config, cell.benchmark, cell.dataset, cell.length, cell.setting)
        total += records * min(words, limit or words)
    return total


def shard_of(text: str) -> tuple[int, int]:
    """Shard and number of shards of a text such as 0/4. Raises UserError."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise UserError(f"--shard {text!r}: a shard and their number were expected, such as 0/4 for the first of four")
    return int(match[1]), int(match[2])
