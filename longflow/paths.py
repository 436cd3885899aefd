"""Paths that a person writes."""

from __future__ import annotations

import os
from typing import Annotated

from pydantic import AfterValidator

LONGEST_NAME, LONGEST_PATH = 255, 3000
"""Bytes of a name in a path, and of a path."""


def short_enough(value: str) -> str:
    """The path. Raises ValueError for one longer than file systems hold: even to ask whether it is there fails."""
    names = value.split("/")
    if len(os.fsencode(value)) > LONGEST_PATH or any(len(os.fsencode(name)) > LONGEST_NAME for name in names):
        raise ValueError(f"a path of at most {LONGEST_PATH} bytes, and {LONGEST_NAME} from / to /, was expected")
    return value


def folder(value: str) -> str:
    """A folder's name as given, but for ~, which is expanded. Raises ValueError for what cannot be one."""
    if not value.strip() or "\0" in value or "\n" in value:
        raise ValueError("a folder was expected")
    if "{" in value or "}" in value:
        raise ValueError("a folder without { and } was expected, which Snakemake takes for wildcards")
    return os.path.expanduser(short_enough(value))


PathText = Annotated[str, AfterValidator(short_enough)]
Folder = Annotated[str, AfterValidator(folder)]
