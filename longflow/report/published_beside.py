"""Own rows among the published ones, and the difference from the published scores of the same model."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from longflow import published
from longflow.leaderboard import Entry, wide_table
from longflow.published import PublishedModel
from longflow.report.data import Name, Run
from longflow.report.protocol import badge

HERE = Path(__file__).parent

DROPPED = ("n", "n_expected", "truncated", "failed", "window", "hub")
"""Columns of the leaderboard that the first screen has already, or that the list of rows tells in its own way."""


@dataclass(frozen=True)
class Board:
    """The leaderboard with, for each row, what its protocol is. `own` says which rows are this run's."""

    header: list[str]
    rows: list[list[str]]
    own: list[bool]
    protocols: list[str]

    @property
    def published(self) -> bool:
        """Whether there is a published row."""
        return not all(self.own)


@dataclass(frozen=True)
class SameModel:
    """A model of this run that was published as well: the difference in each cell, and a verdict where one can be had.

    Rows are data set, length, own score, published score, difference and verdict (None: no re-run was measured).
    """

    model: str
    setting: str
    published: str
    source: str
    rows: list[tuple[str, str, float, float, float, str | None]]

    @property
    def judged(self) -> bool:
        """Whether any cell has a band of re-runs to be judged against."""
        return any(row[-1] is not None for row in self.rows)

    @property
    def largest(self) -> float:
        """The largest difference, without its sign."""
        return max(abs(row[4]) for row in self.rows)


@functools.cache
def _differences() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = yaml.safe_load((HERE / "differences.yaml").read_text(encoding="utf-8"))
    return found


def difference(benchmark: str, model: PublishedModel) -> str:
    """What is known of how a published row was made otherwise."""
    known = _differences().get(benchmark, {})
    return known.get("api" if model.hub is None else "hub", "nothing is known")


def board(run: Run) -> Board:
    """The benchmark's leaderboard, published rows and their protocols included."""
    header, rows = wide_table(run.summaries, run.name)
    kept = [index for index, name in enumerate(header) if name not in DROPPED]
    rows_published = {model.name: model for model in published.load(run.name)}
    model, setting, source = (header.index(name) for name in ("model", "setting", "source"))
    own = [row[source] != "published" for row in rows]
    protocols = [
        badge(run.protocols.get((str(row[model]), str(row[setting]))))[0]
        if mine
        else difference(run.name, rows_published[str(row[model])])
        for row, mine in zip(rows, own, strict=True)
    ]
    return Board([header[i] for i in kept], [[_text(row[i]) for i in kept] for row in rows], own, protocols)


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def same_models(run: Run) -> list[SameModel]:
    """The models of this run that are among the published ones, told by their place on the hub or by their name."""
    found = []
    for name, entry in run.entries().items():
        if name[1] != "full":
            continue
        names = _names(run, name)
        for model in published.load(run.name):
            if names & {_letters(model.name), *([_letters(model.hub)] if model.hub else [])}:
                rows = _rows(run, name, entry, model)
                if rows:
                    found.append(SameModel(*name, model.name, model.source, rows))
    return found


def _names(run: Run, name: Name) -> set[str]:
    """What a model is called, letters and digits only: by the configuration, and by what it was loaded from."""
    protocol = run.protocols.get(name) or {}
    identity = protocol.get("model_identity")
    told = [name[0], (protocol.get("compute") or {}).get("model")]
    if isinstance(identity, Mapping):
        told += [identity.get(key) for key in ("hub", "repo", "repository", "model")]
    return {_letters(each) for each in told if isinstance(each, str)}


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9/]", "", name.lower())


def _rows(
    run: Run, name: Name, entry: Entry, model: PublishedModel
) -> list[tuple[str, str, float, float, float, str | None]]:
    bands = {
        (str(cell["dataset"]), str(cell["length"])): cell.get("rerun_band")
        for cell in run.analysis_of(name).get("cells", [])
    }
    rows = []
    for (dataset, length), cell in entry.cells.items():
        other = model.scores.get((dataset, length))
        if other is not None:
            verdict = _verdict(other, bands.get((dataset, length)))
            rows.append((dataset, length, cell.score, other, cell.score - other, verdict))
    return rows


def _verdict(score: float, band: Sequence[Any] | None) -> str | None:
    if band is None:
        return None
    inside = float(band[0]) <= score <= float(band[1])
    return f"{'within' if inside else 'outside'} the band of re-runs, {band[0]:.1f} to {band[1]:.1f}"
