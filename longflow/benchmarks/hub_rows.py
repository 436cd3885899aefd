"""Rows of a user's own hub data set, or of a folder of such files, read through the `datasets` library.

HF_ENDPOINT, HF_HUB_OFFLINE, HF_HOME and a token are honoured by the library. What was read once is in its cache, so
that it is found again without a network. Data sets that are loading scripts are not run by it any more.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from longflow.errors import UserError

Row = dict[str, Any]


def files_of(source: str) -> list[str]:
    """The files that a data set in a folder is made of, in a fixed order; none for one on the hub."""
    root = Path(os.path.expanduser(source))
    visible = (file for file in root.rglob("*") if not any(p.startswith(".") for p in file.relative_to(root).parts))
    return sorted(str(file) for file in visible if file.is_file()) if root.is_dir() else []


def read(source: str, subset: str | None, split: str, revision: str | None) -> Iterator[Row]:
    """Yield the rows of a split, in its order.

    Args:
        source: a hub id (org/name), or a folder with files that the library reads (JSONL, Parquet, CSV ...) or with
            what `save_to_disk` wrote.
        subset: the configuration's name, where a data set has several.
        split: the split's name.
        revision: a commit, tag or branch of the hub's repository; None is its main branch.

    Raises UserError naming the data set and what the library says.
    """
    import datasets

    datasets.disable_progress_bars()  # logs are made of lines
    folder = os.path.expanduser(source)
    saved = [name for name in ("dataset_dict.json", "state.json") if (Path(folder) / name).is_file()]
    try:
        if not saved:
            place = folder if Path(folder).is_dir() else source
            found = datasets.load_dataset(place, name=subset, split=split, revision=revision)
            if revision is not None and place == source:
                _check_revision(found.cache_files, source, revision)
        else:
            loaded = datasets.load_from_disk(folder)
            if isinstance(loaded, dict) and split not in loaded:
                raise ValueError(f"Unknown split {split!r}. Should be one of {list(loaded)}.")
            found = loaded[split] if isinstance(loaded, dict) else loaded
    except Exception as error:
        words = " ".join(str(error).split())[:300]
        raise UserError(
            f"data set {source}, split {split}: the datasets library cannot read it ({type(error).__name__}: {words})"
        ) from error
    yield from found


def _check_revision(cached: list[dict[str, Any]], source: str, revision: str) -> None:
    """See to it that rows are those of the revision that was asked for.

    Without a network the library takes whatever version it has in its cache. The folder there is named by the commit.
    Raises ValueError.
    """
    commit = revision
    if not re.fullmatch(r"[0-9a-f]{40}", revision):
        from huggingface_hub import resolve_revision

        commit = resolve_revision(source, repo_type="dataset", revision=revision).resolved
    if not all(commit in Path(file["filename"]).parts for file in cached):
        raise ValueError(f"what is in its cache is not revision {revision}, and the hub cannot be reached")


def renamed(row: Row, columns: Mapping[str, str], where: str) -> Row:
    """A row with fields taken from columns of other names; the columns stay, and so does all else that is JSON.

    Args:
        row: the row, as the library gives it.
        columns: for a field the column it is taken from; `answer.text` is `text` within the column `answer`.
        where: what to call the row in messages.

    An `answers` that is a text becomes a list of it. Raises UserError for a column that is not there.
    """
    made = {name: value for name, value in row.items() if _is_json(value)}
    for field, column in columns.items():
        try:
            made[field] = functools.reduce(lambda value, part: value[part], column.split("."), row)
        except (KeyError, TypeError) as error:
            raise UserError(f"{where}: no column {column!r} for {field!r}; there are {', '.join(row)}") from error
    if isinstance(made.get("answers"), str):
        made["answers"] = [made["answers"]]
    return made


def _is_json(value: Any) -> bool:
    """Whether a value can stand in a records file: dates, bytes and images cannot."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True
