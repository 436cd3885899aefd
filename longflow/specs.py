"""Specifications beside files: how results are found out of date when Snakemake has forgotten them.

Snakemake remembers in `.snakemake` with which parameters it made a file. Results that were moved, or whose
`.snakemake` is lost, would be taken for current whatever the configuration says. So each stage writes the digest of
its spec beside its file, and the workflow compares.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from longflow.cells import spec_digest
from longflow.errors import UserError
from longflow.jsonio import write_text


def read_spec(text: str) -> dict[str, Any]:
    """A specification given on the command line. Raises UserError if it is not one."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"--spec: not JSON ({error.msg})") from error
    if not isinstance(value, dict):
        raise UserError("--spec: a JSON object was expected")
    return value


def beside(path: str | Path) -> Path:
    """Where the digest of a file's spec is."""
    return Path(f"{path}.spec")


def write_spec(path: str | Path, spec: str) -> None:
    """Write the digest of the spec that a file was made with. The file itself has to be in place already."""
    write_text(beside(path), spec_digest(spec) + "\n")


def stale(files: Iterable[tuple[str, str]]) -> list[str]:
    """Those of the (file, spec) pairs whose file exists and was made with another spec.

    A file without a digest beside it is not judged here.
    """
    found = []
    for path, spec in files:
        try:
            made_with = beside(path).read_text(encoding="utf-8").strip()
        except OSError:
            continue
        if made_with != spec_digest(spec) and Path(path).exists():
            found.append(path)
    return found
