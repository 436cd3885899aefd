"""Specifications beside files: how results are found out of date when Snakemake has forgotten them.

Snakemake remembers in `.snakemake` with which parameters it made a file. Results that were moved, or whose
`.snakemake` is lost, would be taken for current whatever the configuration says. So each stage writes the digest of
its spec beside its file, and the workflow compares.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from longflow.errors import UserError
from longflow.jsonio import digest, write_text


def read_spec(text: str, *needed: str) -> dict[str, Any]:
    """A specification given on the command line. Raises UserError if it is not one or lacks one of these keys."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"--spec: not JSON ({getattr(error, 'msg', error)})") from error
    if not isinstance(value, dict):
        raise UserError("--spec: a JSON object was expected")
    if missing := sorted(set(needed) - set(value)):
        raise UserError(f"--spec: {missing[0]!r} is missing; the workflow prints the whole of it with -p")
    return value


def spec_digest(spec: str) -> str:
    """A short name for a spec (16 hex digits)."""
    return digest(spec)[:16]


def beside(path: str | Path) -> Path:
    """Where the digest of a file's spec is."""
    return Path(f"{path}.spec")


def write_spec(path: str | Path, spec: str) -> None:
    """Write the digest of the spec that a file was made with. The file itself has to be in place already."""
    write_text(beside(path), spec_digest(spec) + "\n")


def disown(path: str | Path) -> None:
    """Have a file count as made with another spec, whatever the spec: it is not what was asked for.

    The next workflow that plans finds the file out of date by that (`needs` in rules/common.smk), and makes it anew.
    """
    write_text(beside(path), "not what was asked for\n")


LONG_AGO = 1
"""The time stamp (seconds since 1970) of a file that is out of date."""


def is_stale(path: str | Path, spec: str) -> bool:
    """Whether a file is there and was made with another spec. A file without a digest beside it is not judged."""
    try:
        made_with = beside(path).read_bytes().decode("utf-8", "replace").strip()
    except OSError:
        return False
    return made_with != spec_digest(spec) and Path(path).exists()


def set_back(path: str | Path) -> None:
    """Make a file count as older than anything it depends on. Raises OSError where it cannot be changed."""
    os.utime(path, (LONG_AGO, LONG_AGO))


def restore_time(path: str | Path) -> None:
    """Undo `set_back`, for a file that is current after all: its digest was written when it was."""
    with contextlib.suppress(OSError):
        if os.stat(path).st_mtime == LONG_AGO:
            made = os.stat(beside(path)).st_mtime
            os.utime(path, (made, made))
