"""What the report is made of: a run's files, read as far as they are there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from longflow import benchmarks
from longflow.benchmarks import Benchmark
from longflow.cells import Cell, Files, absent, cells
from longflow.config import Config
from longflow.jsonio import read_json
from longflow.leaderboard import Entry, entries
from longflow.means import fixed_means, ordered_datasets, ordered_lengths
from longflow.tables import Summary, read_summaries

LANGUAGES = {"en": "English", "zh": "Chinese"}
"""Names of the languages in which benchmarks ask."""

Name = tuple[str, str]
"""Model and setting."""


@dataclass(frozen=True)
class Run:
    """A run of one benchmark.

    `cells` are those of the configuration, `summaries` the scores of those that were scored, `anatomy` the anatomy
    summaries by cell, `analysis` the intervals and differences (None where they were not computed), `protocols` by
    model and setting, `usage` what the predictions of a cell cost. `missing` names cells without scores.
    """

    table: Benchmark
    cells: list[Cell]
    summaries: list[Summary]
    anatomy: dict[Cell, dict[str, Any]]
    analysis: dict[str, Any] | None
    protocols: dict[Name, dict[str, Any]]
    usage: dict[Cell, dict[str, Any]]
    missing: dict[Name, list[str]]
    no_context: list[str]

    @property
    def name(self) -> str:
        """The benchmark's name."""
        return self.table.name

    @property
    def by_levels(self) -> bool:
        """Whether its means are those of length levels, not named by the benchmark."""
        return fixed_means(self.table) is None

    @property
    def lengths(self) -> list[str]:
        """The length levels of the run, shortest first."""
        return ordered_lengths((cell.dataset, cell.length) for cell in self.cells)

    @property
    def datasets(self) -> list[str]:
        """The data sets of the run, in the benchmark's order."""
        return ordered_datasets(((cell.dataset, cell.length) for cell in self.cells), self.table)

    @property
    def names(self) -> list[Name]:
        """Models and settings, in the configuration's order."""
        return list(dict.fromkeys((cell.model, cell.setting) for cell in self.cells))

    def entries(self) -> dict[Name, Entry]:
        """The own entries of the leaderboard."""
        return {(e.model, e.setting): e for e in entries(self.summaries, self.name) if e.own}

    def of(self, name: Name) -> list[Summary]:
        """The scores of a model in a setting."""
        return [s for s in self.summaries if (s["model"], s["setting"]) == name]

    def anatomy_of(self, name: Name) -> list[dict[str, Any]]:
        """The anatomy of a model in a setting, a summary a cell."""
        return [found for cell, found in self.anatomy.items() if (cell.model, cell.setting) == name]

    def analysis_of(self, name: Name) -> dict[str, Any]:
        """The part of the analysis that is about a model in a setting; empty without one."""
        for entry in (self.analysis or {}).get("entries", []):
            if (entry["model"], entry["setting"]) == name:
                return dict(entry)
        return {}

    def languages(self) -> list[str]:
        """The languages of the data sets that were scored."""
        return sorted({str(s["language"]) for s in self.summaries})

    def in_language(self, language: str | None) -> list[str]:
        """The data sets of a language, or all."""
        asked = {str(s["dataset"]): str(s["language"]) for s in self.summaries}
        return [name for name in self.datasets if name in asked and language in (None, asked[name])]


@dataclass(frozen=True)
class Gathered:
    """All that is known of a run. `absent` says in words what is not there and so not shown."""

    config: Config
    files: Files
    runs: list[Run]
    provenance: dict[str, Any] | None
    plan: dict[str, Any] | None
    absent: list[str] = field(default_factory=list)


def gather(config: Config) -> Gathered:
    """Read a run's files. Raises UserError for one that is there and cannot be read."""
    files = Files(config)
    chosen = list(cells(config))
    runs = [_run(config, files, name, [c for c in chosen if c.benchmark == name]) for name in config.run.benchmarks]
    runs = [run for run in runs if run.cells]
    provenance = _optional(files.provenance)
    plan = _optional(files.plan)
    lacking = []
    for run in runs:
        if not run.summaries:
            lacking.append(f"{run.table.title}: no scores yet")
            continue
        if run.analysis is None:
            lacking.append(f"{run.table.title}: no intervals, differences and effective lengths (results/analysis)")
        if not run.anatomy:
            lacking.append(f"{run.table.title}: no fate of records and evidence map (results/anatomy)")
    if provenance is None:
        lacking.append("no provenance (results/provenance.json)")
    return Gathered(config, files, runs, provenance, plan, lacking)


def _run(config: Config, files: Files, benchmark: str, chosen: list[Cell]) -> Run:
    scored = [cell for cell in chosen if Path(files.score(cell)).is_file()]
    missing: dict[Name, list[str]] = {}
    for cell in sorted(set(chosen) - set(scored), key=chosen.index):
        missing.setdefault((cell.model, cell.setting), []).append(f"{cell.dataset}/{cell.length}")
    for (name, model), lost in absent(config).items():
        if name == benchmark:
            missing.setdefault((model, "full"), []).extend(lost)
    names = dict.fromkeys((cell.model, cell.setting) for cell in chosen)
    protocols = {(m, s): _optional(files.table(benchmark, m, s, "protocol.json")) for m, s in names}
    return Run(
        table=benchmarks.load(benchmark),
        cells=chosen,
        summaries=read_summaries([files.score(cell) for cell in scored]),
        anatomy=_by_cell(scored, [files.anatomy_summary(cell) for cell in scored]),
        analysis=_optional(files.analysis(benchmark)),
        protocols={name: found for name, found in protocols.items() if found is not None},
        usage=_by_cell(scored, [files.usage(cell) for cell in scored]),
        missing=missing,
        no_context=[n for n, setting in config.settings.items() if getattr(setting, "kind", None) == "no_context"],
    )


def _by_cell(chosen: Sequence[Cell], paths: Sequence[str]) -> dict[Cell, dict[str, Any]]:
    found = {cell: _optional(path) for cell, path in zip(chosen, paths, strict=True)}
    return {cell: value for cell, value in found.items() if value is not None}


def _optional(path: str) -> dict[str, Any] | None:
    if not Path(path).is_file():
        return None
    value = read_json(path)
    return value if isinstance(value, dict) else None
