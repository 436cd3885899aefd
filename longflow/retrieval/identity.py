"""Which embedding model or tokenizer is in a folder: a digest of its files, for the specification of a setting.

Hub ids have no digest: only a pinned revision stays what it is. Sizes and time stamps alone decide nothing, since they
differ between copies; they only spare reading the same files twice in one process.
"""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path

from longflow.errors import UserError
from longflow.jsonio import digest, read_json
from longflow.models import folder_digest

_OWN_FILES = ("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json")
"""What sentence-transformers reads beside a transformers model."""

_TOKENIZER_KINDS = (".json", ".jinja", ".model", ".tiktoken", ".txt")

_WEIGHTS = (".bin", ".pt", ".safetensors")

Stamp = tuple[tuple[str, int, int], ...]


def embedding_model_digest(name: str) -> str | None:
    """A digest of the embedding model in a folder, or None if `name` is no folder.

    It covers what `longflow.models.folder_digest` does (configuration, tokenizer, headers, sizes and samples of the
    weights) and the modules that sentence-transformers puts after the model. Raises UserError for a folder that holds
    no model, or a torn one.
    """
    root = Path(os.path.expanduser(name))
    return _model(str(root), _stamp(root)) if root.is_dir() else None


def tokenizer_digest(name: str) -> str | None:
    """A digest of the tokenizer in a folder, or None if `name` is no folder."""
    root = Path(os.path.expanduser(name))
    return _tokenizer(str(root), _stamp(root)) if root.is_dir() else None


def _stamp(root: Path) -> Stamp:
    states = ((str(file), file.stat()) for file in sorted(root.rglob("*")) if file.is_file())
    return tuple((name, state.st_size, state.st_mtime_ns) for name, state in states)


@functools.lru_cache(maxsize=16)
def _model(folder: str, stamp: Stamp) -> str:
    root = Path(folder)
    if not (root / "config.json").is_file():
        return folder_digest(root)  # of all that is in it, so also of the folder that the transformers model is in
    parts = {"": folder_digest(root)}
    parts |= {name: _bytes(root / name) for name in _OWN_FILES if (root / name).is_file()}
    modules = read_json(root / "modules.json") if "modules.json" in parts else []
    try:
        places = sorted({str(module["path"]) for module in modules} - {""})
    except (TypeError, KeyError) as error:
        raise UserError(f"{root / 'modules.json'}: not a list of modules, each with its path") from error
    for place in places:
        files = sorted(file for file in (root / place).glob("*") if file.is_file())
        if any(file.suffix in _WEIGHTS for file in files):
            parts[place] = folder_digest(root / place)
        else:
            parts |= {f"{place}/{file.name}": _bytes(file) for file in files}
    return digest(parts)


@functools.lru_cache(maxsize=16)
def _tokenizer(folder: str, stamp: Stamp) -> str:
    files = sorted(file for file in Path(folder).glob("*") if file.is_file() and file.suffix in _TOKENIZER_KINDS)
    return digest({file.name: _bytes(file) for file in files if not file.name.endswith(".index.json")})


def _bytes(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
