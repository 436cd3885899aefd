"""The anatomies of a model's cells, each written where it belongs, and only those that changed."""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

from longflow import anatomy
from longflow.cells import Cell, Files, anatomy_spec, cells, without_context
from longflow.config import Config, ImportedModel
from longflow.jsonio import canonical, read_json, write_json
from longflow.settings import FULL
from longflow.specs import beside, spec_digest, write_spec

log = logging.getLogger("longflow")


def write_all(config: Config, benchmark: str, model: str, setting: str, output: str | Path) -> int:
    """Write the anatomies of a model's cells and, in one file, their summaries. Returns how many were made anew.

    A cell whose anatomy was made of the same predictions, scores and specification is left as it is. Raises UserError
    for files that do not belong together.
    """
    files = Files(config)
    made = 0
    summaries = []
    for cell in cells(config):
        if (cell.benchmark, cell.model, cell.setting) != (benchmark, model, setting):
            continue
        rows, summary = files.anatomy(cell), files.anatomy_summary(cell)
        blind = without_context(config, cell)
        inputs = [files.predictions(cell), files.score_lines(cell), *([files.score_lines(blind)] if blind else [])]
        how = anatomy_spec(config, cell)
        spec = canonical([how, [_sha256(path) for path in inputs]])
        if not (_digest_beside(summary) == spec_digest(spec) and Path(rows).exists() and Path(summary).exists()):
            records = None if isinstance(config.models[model], ImportedModel) else files.records_of(cell)
            no_context = inputs[2] if blind else None
            anatomy.run(
                inputs[0], inputs[1], records, no_context, json.loads(anatomy_spec(config, cell)), rows, summary
            )
            write_spec(summary, spec)
            made += 1
            log.info("%s: its records are told apart", cell.name)
        summaries.append(read_json(summary))
    write_json(output, {"benchmark": benchmark, "model": model, "setting": setting, "cells": summaries})
    return made


def panels(config: Config, benchmark: str) -> dict[str, list[dict[str, Any]]]:
    """The summaries of a benchmark's cells by model, and setting where it is not `full`."""
    files = Files(config)
    found: dict[str, list[dict[str, Any]]] = {}
    for cell in cells(config):
        if cell.benchmark == benchmark:
            name = cell.model if cell.setting == FULL else f"{cell.model}, {cell.setting}"
            found.setdefault(name, []).append(read_json(files.anatomy_summary(cell)))
    return found


def evidence_kept(config: Config, chosen: list[Cell]) -> dict[tuple[str, ...], dict[str, bool | None]]:
    """Cell -> record id -> whether its evidence was in what was sent; None where that cannot be told."""
    from longflow.jsonio import read_jsonl

    state = {"no": True, "yes": False, "partly": False}
    files = Files(config)
    return {
        (cell.benchmark, cell.model, cell.setting, cell.dataset, cell.length): {
            str(row["id"]): state.get(row["flags"]["evidence_cut"]["state"]) for row in read_jsonl(files.anatomy(cell))
        }
        for cell in chosen
    }


def _sha256(path: str) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _digest_beside(path: str) -> str | None:
    try:
        return beside(path).read_text(encoding="utf-8").strip()
    except OSError:
        return None
