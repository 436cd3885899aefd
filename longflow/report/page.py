"""The page: what was gathered, rendered by templates into one file that needs nothing else."""

from __future__ import annotations

import base64
import gzip
import importlib.metadata
import importlib.util
import json
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from longflow import __version__, plots, style
from longflow.anatomy.fate import LABELS
from longflow.anatomy.slices import by_label, by_slice, heat_map, two_by_two
from longflow.benchmarks import length_units
from longflow.config import Config
from longflow.errors import UserError
from longflow.jsonio import write_text
from longflow.means import mean
from longflow.plots.anatomy import FATES, evidence_positions, fate_by_length
from longflow.report import cost
from longflow.report.data import LANGUAGES, Gathered, Run, gather
from longflow.report.figures import Picture, inline
from longflow.report.overview import Overview, Score, overview, score_with
from longflow.report.protocol import badge, departures, facts
from longflow.report.published_beside import Board, SameModel, board, same_models
from longflow.report.records import MOST, Records, records

TEMPLATES = Path(__file__).parent / "templates"

LIBRARY = "itables"
"""The PyPI package whose wheel brings DataTables, the table of the records."""

MIXED_UP = ("table: language", "table: category")
"""Slices that have a place of their own on the page."""


@dataclass(frozen=True)
class Section:
    """A benchmark's part of the page."""

    run: Run
    overview: Overview
    pictures: list[Picture]
    datasets: list[dict[str, Any]]
    slices: list[dict[str, Any]]
    fates: list[dict[str, Any]]
    fate_picture: Picture | None
    maps: list[dict[str, Any]]
    positions: Picture | None
    pairs: list[dict[str, Any]]
    families: list[dict[str, Any]]
    board: Board
    same: list[SameModel]
    costs: list[cost.Cost]
    costs_by_cell: list[cost.Cost]
    protocols: list[dict[str, Any]]
    licences: list[tuple[str, str]]

    @property
    def id(self) -> str:
        """The start of the ids of its headings."""
        return self.run.name.replace("_", "-")


def write(config: Config, output: str | Path, most: int = MOST, stamp: bool = True) -> None:
    """Write the report of a run into one HTML file, out of whatever of its results is there.

    Args:
        config: the configuration of the run.
        output: the file.
        most: single records that the report holds; of larger runs, one question in so many.
        stamp: whether it says when and where it was made; everything else depends on the results alone.

    Raises UserError if nothing was scored yet, or a file that is there cannot be read.
    """
    gathered = gather(config)
    scored = [run for run in gathered.runs if run.summaries]
    if not scored:
        raise UserError(f"{config.run.results}/scores: no cell of this run was scored yet; run it first")
    write_text(output, render(gathered, [section(gathered, run) for run in scored], records(gathered, most), stamp))


def render(gathered: Gathered, sections: Sequence[Section], found: Records, stamp: bool) -> str:
    """The text of the page."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = cost.number
    environment.filters["pretty"] = pretty
    index, parts = found.pack()
    made = f"{time.strftime('%Y-%m-%d %H:%M %Z')} on {socket.gethostname()}" if stamp else None
    return environment.get_template("page.html.j2").render(
        gathered=gathered,
        sections=sections,
        found=found,
        index=index,
        parts=parts,
        library=_library(),
        library_version=_version(),
        css=(TEMPLATES / "report.css").read_text(encoding="utf-8"),
        js=(TEMPLATES / "report.js").read_text(encoding="utf-8"),
        version=__version__,
        made=made,
        labels=LABELS,
        colours={label: colour for label, (colour, _) in FATES.items()},
        cost_names=cost.HEADER,
        planned=cost.planned(gathered),
        badge=badge,
    )


def pretty(value: Any) -> str:
    """JSON for people to read, keys in the order given."""
    return json.dumps(value, ensure_ascii=False, indent=2)


def _library() -> str:
    """DataTables, compressed; it is unpacked in the browser. Raises UserError where the package is not installed."""
    spec = importlib.util.find_spec(LIBRARY)
    path = Path(spec.origin).parent / "html" / "dt_bundle.js" if spec and spec.origin else None
    if path is None or not path.is_file():
        raise UserError(
            f"the Python package {LIBRARY} is missing, which brings the report's table; pip install {LIBRARY}"
        )
    return base64.b64encode(gzip.compress(path.read_bytes(), 9, mtime=0)).decode("ascii")


def _version() -> str:
    return importlib.metadata.version(LIBRARY)


def section(gathered: Gathered, run: Run) -> Section:
    """A benchmark's part of the page."""
    panels = _panels(run)
    return Section(
        run=run,
        overview=overview(run),
        pictures=_pictures(gathered, run),
        datasets=_datasets(run),
        slices=_slices(run),
        fates=_fates(run),
        fate_picture=_fate_picture(run, panels),
        maps=_maps(run),
        positions=_positions(run, panels),
        pairs=_pairs(run),
        families=_families(run),
        board=board(run),
        same=same_models(run),
        costs=cost.costs(gathered, run),
        costs_by_cell=cost.by_cell(gathered, run),
        protocols=[
            {"model": m, "setting": s, "facts": facts(found), "departures": departures(found), "all": found}
            for (m, s), found in run.protocols.items()
        ],
        licences=_licences(run),
    )


def _label(run: Run, model: str, setting: str) -> str:
    several = len({setting for _, setting in run.names}) > 1
    return f"{model} ({setting})" if several else model


def _panels(run: Run) -> dict[str, list[dict[str, Any]]]:
    found = {_label(run, *name): run.anatomy_of(name) for name in run.names}
    return {name: summaries for name, summaries in found.items() if summaries}


TITLES = {
    "score_by_length": "Score by length.",
    "score_by_length_per_dataset": "Score by length in each data set.",
    "bars_per_task_type": "Score by kind of task, language and length.",
    "bars_per_category": "Score by category.",
    "score_per_dataset": "Score in each data set.",
    "score_by_group_per_category": "Score by length bucket in each category. The buckets hold different questions.",
    "score_by_group_per_dataset": "Score by length bucket in each data set. The buckets hold different questions.",
    "bars_per_group": "Score by difficulty and length class. The classes hold different questions.",
    "bars_per_domain": "Score by domain.",
    "rag": "Score by number of retrieved chunks.",
}
"""Captions of the figures that `longflow.plots` draws."""


def _pictures(gathered: Gathered, run: Run) -> list[Picture]:
    from longflow.cells import settings_of
    from longflow.figures import figures

    settings = settings_of(gathered.config, run.name)
    data = plots.gather(run.summaries, run.name, settings)
    pictures = []
    with style.look(data.texts()):
        for name in figures(run.name, settings):
            caption = TITLES.get(name, name) + (" Published models are grey." if data.published else "")
            words = f"{caption} The same numbers stand in the tables of this page."
            pictures.append(inline(getattr(plots, name)(data), f"{run.name}-{name}", caption, words))
    return pictures


def _fate_picture(run: Run, panels: Mapping[str, list[dict[str, Any]]]) -> Picture | None:
    if not panels:
        return None
    with style.look([run.table.title, *panels]):
        figure = fate_by_length(run.table.title, panels)
        caption = "What became of the records at each length, in percent; the counts are in the table below."
        return inline(figure, f"{run.name}-fate", caption, caption)


def _positions(run: Run, panels: Mapping[str, list[dict[str, Any]]]) -> Picture | None:
    if not panels:
        return None
    with style.look([run.table.title, *run.datasets]):
        figure = evidence_positions(run.table.title, panels)
        caption = "Where the evidence stands in the contexts of each data set, all lengths together."
        return inline(figure, f"{run.name}-positions", caption, caption)


def _datasets(run: Run) -> list[dict[str, Any]]:
    """Rows of the table by data set: model, setting, data set, its kind, and the score at each length."""
    rows = []
    found = run.entries()
    for dataset in run.datasets:
        task = run.table.tasks.get(dataset)
        for name in run.names:
            entry = found.get(name)
            mine = [s for s in run.of(name) if s["dataset"] == dataset]
            if entry is None or not mine:
                continue
            told = {
                cell["length"]: cell for cell in run.analysis_of(name).get("cells", []) if cell["dataset"] == dataset
            }
            scores: dict[str, Score | None] = {}
            for length in run.lengths:
                cell = entry.cells.get((dataset, length))
                beyond = cell is not None and entry.beyond_window(length, [dataset])
                scores[length] = None if cell is None else score_with(cell.score, told.get(length), beyond=beyond)
            values = [score.score for score in scores.values() if score is not None]
            rows.append(
                {
                    "dataset": dataset,
                    "title": (task.extra.get("title") if task else None) or dataset,
                    "language": LANGUAGES.get(str(mine[0]["language"]), str(mine[0]["language"])),
                    "category": mine[0]["category"],
                    "model": name[0],
                    "setting": name[1],
                    "scores": scores,
                    "mean": mean(values) if len(values) > 1 else None,
                    "n": sum(int(s["n_expected"]) for s in mine),
                }
            )
    return rows


def _slices(run: Run) -> list[dict[str, Any]]:
    """Slice -> value -> model: score and n at each length. Slices of one value are left out but for categories."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for name in run.names:
        summaries = run.anatomy_of(name)
        for part, values in (by_slice(summaries) if summaries else {}).items():
            for value, lengths in values.items():
                entry = {"model": name[0], "setting": name[1], "lengths": lengths}
                found.setdefault(part, {}).setdefault(value, []).append(entry)
    kept = [
        {"name": _slice_name(part), "values": values}
        for part, values in found.items()
        if part != "all" and (part in MIXED_UP or len(values) > 1)
    ]
    if not kept and not run.anatomy:
        kept = _categories(run)
    return sorted(kept, key=lambda each: (each["name"] != "category", each["name"] != "language"))


def _slice_name(part: str) -> str:
    if part in MIXED_UP:
        return part.removeprefix("table: ")
    return part.replace("table: ", "by data set: ").replace("_", " ")


def _categories(run: Run) -> list[dict[str, Any]]:
    """Scores by category alone, where no anatomy tells more: the mean of the data sets' scores."""
    values: dict[str, list[dict[str, Any]]] = {}
    for category in dict.fromkeys(str(s["category"]) for s in run.summaries):
        for name in run.names:
            lengths = {}
            for length in run.lengths:
                cells = [s for s in run.of(name) if s["category"] == category and s["length"] == length]
                score = mean(float(s["score_expected"]) for s in cells if s["score_expected"] is not None)
                if score is not None:
                    n = sum(int(s["n_expected"]) for s in cells)
                    lengths[length] = {"score": score, "n": n, "datasets": len(cells)}
            if lengths:
                values.setdefault(category, []).append({"model": name[0], "setting": name[1], "lengths": lengths})
    return [{"name": "category", "values": values}] if values else []


def _fates(run: Run) -> list[dict[str, Any]]:
    rows = []
    for model, setting in run.names:
        for length, counts in sorted(
            by_label(run.anatomy_of((model, setting))).items(), key=lambda x: length_units(x[0])
        ):
            rows.append(
                {"model": model, "setting": setting, "length": length, "counts": counts, "n": sum(counts.values())}
            )
    return rows


def _maps(run: Run) -> list[dict[str, Any]]:
    """The evidence map of each model, before and after truncation where they differ."""
    maps = []
    for model, setting in run.names:
        summaries = run.anatomy_of((model, setting))
        if not summaries or setting in run.no_context:
            continue
        before, after = heat_map(summaries, "before"), heat_map(summaries, "after")
        for when, found in (("before", before), ("after", after)):
            if when == "after" and after == before:
                continue
            rows = [(length, found[length]) for length in sorted(found, key=length_units)]
            if any(cell["n"] for _, row in rows for cell in row):
                maps.append({"model": model, "setting": setting, "when": when, "rows": rows})
    return maps


def _pairs(run: Run) -> list[dict[str, Any]]:
    """Right and wrong with and without context, by model and length."""
    rows = []
    for model, setting in run.names:
        found = two_by_two(run.anatomy_of((model, setting))) if run.anatomy_of((model, setting)) else {}
        for length in sorted(found, key=length_units):
            rows.append({"model": model, "setting": setting, "length": length, **found[length]})
    return rows


KINDS = {
    "models": "Between models, on the same questions",
    "settings": "Between settings of one model, on the same questions",
    "levels": "Between lengths of one model, on the same questions",
    "groups": "Between groups of records, which hold different questions",
}


def _families(run: Run) -> list[dict[str, Any]]:
    """The declared families of differences, those of a kind together."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for family in (run.analysis or {}).get("families", []):
        kinds.setdefault(str(family["kind"]), []).append(family)
    return [{"title": KINDS.get(kind, kind), "kind": kind, "families": found} for kind, found in kinds.items()]


def _licences(run: Run) -> list[tuple[str, str]]:
    """The licence of each data set's contexts, as the benchmark's table states it."""
    found: dict[str, list[str]] = {}
    whole = run.table.table.get("licence")
    for dataset in run.datasets:
        task = run.table.tasks.get(dataset)
        licence = (task.extra.get("licence") if task else None) or whole or "not stated by the benchmark's table"
        found.setdefault(str(licence), []).append(dataset)
    return [(licence, ", ".join(names)) for licence, names in found.items()]
