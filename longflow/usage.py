"""What the predictions of cells cost and were made with, read back from results/usage."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable
from pathlib import Path

from longflow.jsonio import read_json


def libraries(folder: str | Path, cells: Iterable[str]) -> list[str]:
    """The library versions that made the answers of these cells; more than one line where they were mixed."""
    found: set[str] = set()
    for cell in cells:
        path = Path(folder) / f"{cell}.json"
        if path.exists():
            value = read_json(path)
            found.update(map(str, value.get("libraries", []) if isinstance(value, dict) else []))
    return sorted(found - {""})


def metric_libraries() -> list[str]:
    """The versions of what the metrics are computed with here."""
    return [f"jieba {importlib.metadata.version('jieba')}"]
