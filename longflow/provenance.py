"""What made a set of results: versions, models, data, configuration, code, machines."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from longflow import __version__
from longflow.cells import Cell, Files
from longflow.config import ROOT, Config, ImportedModel
from longflow.errors import UserError
from longflow.jsonio import read_json
from longflow.secrets import without_secrets

LIBRARIES = (
    *("snakemake", "pydantic", "PyYAML", "torch", "transformers", "tokenizers", "safetensors", "accelerate"),
    *("openai", "tiktoken", "datasets", "huggingface_hub", "numpy", "pandas", "scipy", "matplotlib"),
    *("jieba", "rouge", "Levenshtein", "snakemake-executor-plugin-slurm"),
)
"""What may take part in a run, of which the installed version is recorded."""


def collect(config: Config, cells: Iterable[Cell], files: Files) -> dict[str, Any]:
    """What made the results of these cells, as far as it can be told from the files that are there.

    Args:
        config: the configuration.
        cells: the cells of the run.
        files: where the run's files are.

    Returns a JSON value with `longflow` and `libraries` (versions here), `code` (the project's git state), `models`
    (identity by name), `data` (SHA-256 and size by path), `configuration` (as merged, without secrets), `made_on` (the
    hosts and devices of the predictions, with the libraries and the number of cells of each) and `missing` (files that
    are not there). Raises UserError for a file that is there and cannot be read.
    """
    chosen = list(cells)
    models: dict[str, Any] = {}
    data: dict[str, Any] = {}
    missing: set[str] = set()
    for cell in chosen:
        sources = {files.records(cell.benchmark, cell.dataset, cell.length), files.records_of(cell)}
        if isinstance(config.models[cell.model], ImportedModel):
            from longflow.cells import imported_files

            sources = {imported_files(config, cell.model, cell.benchmark)[cell.dataset, cell.length]}
            models.setdefault(cell.model, "predictions made elsewhere")
        elif cell.model not in models:
            path = files.model(cell.model)
            if os.path.exists(path):
                models[cell.model] = read_json(path).get("identity")
            else:
                missing.add(path)
        for path in sources:
            if path in data or path in missing:
                continue
            if os.path.exists(path):
                data[path] = {"sha256": sha256(path), "bytes": os.path.getsize(path)}
            else:
                missing.add(path)
    usage = []
    for cell in chosen:
        path = files.usage(cell)
        if os.path.exists(path):
            usage.append(read_json(path))
        elif not isinstance(config.models[cell.model], ImportedModel):
            missing.add(path)
    return {
        "longflow": __version__,
        "python": platform.python_version(),
        "libraries": versions(),
        "code": git_state(ROOT),
        "models": dict(sorted(models.items())),
        "data": dict(sorted(data.items())),
        "configuration": without_secrets(config.merged),
        "made_on": made_on(usage),
        "missing": sorted(missing),
    }


def versions() -> dict[str, str]:
    """The installed versions of the libraries that may take part; nothing is imported for it."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def sha256(path: str | Path) -> str:
    """The SHA-256 (hex) of a file, read piece by piece. Raises UserError naming the file."""
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error


def git_state(folder: str | Path) -> dict[str, Any] | None:
    """The commit of a folder that is a git checkout and whether tracked files were changed since; None if it is none.

    A folder inside another project's checkout is not one. Without git, or where git refuses, there is no telling.
    """
    top = _git(folder, "rev-parse", "--show-toplevel")
    if top is None or not os.path.samefile(top, folder):
        return None
    commit = _git(folder, "rev-parse", "HEAD")
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": None if changes is None else bool(changes)}


def _git(folder: str | Path, *arguments: str) -> str | None:
    # Settings in the environment may point git at another repository, as within its own hooks.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=environment,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def made_on(usage: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Hosts and devices that usage files name, each with the libraries of its answers and how many cells it wrote."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for each in usage:
        host, devices = each.get("host"), each.get("devices")
        entry = found.setdefault(
            (str(host), str(devices)), {"host": host, "devices": devices, "cells": 0, "libraries": set()}
        )
        entry["cells"] += 1
        entry["libraries"].update(map(str, each.get("libraries") or []))
    return [{**entry, "libraries": sorted(entry["libraries"] - {""})} for _, entry in sorted(found.items())]
