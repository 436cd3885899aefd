"""Scores that a benchmark's authors published, kept as data with their source, to stand beside one's own."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from longflow.benchmarks import length_units

FOLDER = Path(__file__).parent / "published"


@dataclass(frozen=True)
class PublishedModel:
    """One model's published scores.

    `window` is the name of its context window ("32k"; None: not told by the source), `hub` the model on the hub (None:
    an API model, or not told), `scores` are percent by data set and length, `means` the published means by their names
    in the benchmark (empty where none was published).
    """

    name: str
    source: str
    window: str | None
    hub: str | None
    scores: Mapping[tuple[str, str], float]
    means: Mapping[str, float]

    def beyond_window(self, length: str) -> bool:
        """Whether a length level exceeds the window, by their names: 64k exceeds 32k.

        Levels are counted in words or characters and windows in tokens, so this is the gentlest reading.
        """
        return self.window is not None and length_units(length) > length_units(self.window)


@functools.cache
def load(benchmark: str) -> tuple[PublishedModel, ...]:
    """The published scores of a benchmark, in the published order; none for a benchmark without any."""
    path = FOLDER / f"{benchmark}.yaml"
    if not path.exists():
        return ()
    table: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return tuple(
        PublishedModel(
            name=name,
            source=entry.get("source", table["source"]),
            window=entry["window"],
            hub=entry["hub"],
            scores={
                (dataset, length): float(score)
                for dataset, by_length in entry["scores"].items()
                for length, score in by_length.items()
            },
            means={mean: float(score) for mean, score in (entry["means"] or {}).items()},
        )
        for name, entry in table["models"].items()
    )
