"""Figures of what became of records: their fate by length, and where the evidence was.

Each takes the anatomy summaries of a benchmark's cells by model and setting, as names of panels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from longflow import style
from longflow.anatomy.fate import LABELS
from longflow.anatomy.slices import BINS, by_label, heat_map, histogram
from longflow.benchmarks import length_units
from longflow.plots.canvas import legend, new_figure, without_scores
from longflow.style import GREY, TEXT_GREY

Panels = Mapping[str, Sequence[Mapping[str, Any]]]
"""Anatomy summaries by the name of a model (and setting)."""

NO_RECORDS = "no record's fate is known yet"
NO_PLACES = "the place of no record's evidence is known"

# Right answers blue, half-right ones green, then what a reader can act on, from warm to grey. Hatches tell apart in
# black and white those that stand beside each other.
FATES: dict[str, tuple[str, str]] = {
    "right": ("#0072B2", ""),
    "right_known": ("#56B4E9", "..."),
    "right_wordy": ("#9fd3ef", ""),
    "partly_right": ("#009E73", "///"),
    "gated": ("#8fd0b8", ""),
    "bait": ("#D55E00", ""),
    "wrong_language": ("#CC79A7", "..."),
    "evidence_cut": ("#E69F00", "\\\\\\"),
    "unparsed": ("#8a5fbf", ""),
    "ran_out": ("#c3a4e6", "///"),
    "refused": ("#a8763e", ""),
    "reasoning_open": ("#e0bd94", "..."),
    "failed": ("#7a1f1f", ""),
    "wrong": ("#b5b5b5", ""),
}
"""Colour and hatch of each label."""


def fate_by_length(title: str, panels: Panels) -> Figure:
    """A panel a model: the labels' shares of the records at each length, stacked."""
    heading = f"{title}: fate of records"
    counted = {name: by_label(summaries) for name, summaries in panels.items() if summaries}
    if not counted:
        return without_scores(heading, NO_RECORDS)
    columns = min(len(counted), 2)
    levels = max(len(found) for found in counted.values())
    size = (4.6 * columns, (0.34 * levels + 0.55) * math.ceil(len(counted) / columns))
    figure, axes = new_figure(heading, len(counted), columns, size, "share of the records at each length")
    for place, (name, found) in zip(axes, counted.items(), strict=True):
        _stacks(place, name, found)
    occurring = [
        label for label in LABELS if any(counts[label] for found in counted.values() for counts in found.values())
    ]
    legend(figure, [_patch(label) for label in occurring], None)
    return figure


def _stacks(axes: Axes, name: str, found: Mapping[str, Mapping[str, int]]) -> None:
    lengths = sorted(found, key=length_units)
    axes.set_title(name)
    for y, length in enumerate(lengths):
        total, left = sum(found[length].values()), 0.0
        for label, n in found[length].items():
            share = 100 * n / total if total else 0.0
            if share:
                colour, hatch = FATES[label]
                axes.barh(y, share, 0.72, left, color=colour, hatch=hatch, edgecolor="white", linewidth=0.6)
                left += share
    axes.set_yticks(range(len(lengths)), [f"{length} (n {sum(found[length].values()):,})" for length in lengths])
    axes.set_ylim(len(lengths) - 0.5, -0.5)
    axes.set_xlim(0, 100)
    axes.set_xlabel("records (%)")
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False)


def _patch(label: str) -> Patch:
    colour, hatch = FATES[label]
    return Patch(facecolor=colour, hatch=hatch, edgecolor="white", linewidth=0.6, label=LABELS[label])


def evidence_map(title: str, panels: Panels) -> Figure:
    """A panel a model: the score by the evidence's place in the context and by length, with the number of records."""
    heading = f"{title}: score by place of the evidence"
    maps = {name: heat_map(summaries) for name, summaries in panels.items() if summaries}
    maps = {name: found for name, found in maps.items() if any(cell["n"] for row in found.values() for cell in row)}
    if not maps:
        return without_scores(heading, NO_PLACES)
    levels = max(len(found) for found in maps.values())
    size = (8.6, (0.44 * levels + 0.75) * len(maps))
    note = "place before truncation; in each cell the score (%) and, in brackets, the number of records"
    figure, axes = new_figure(heading, len(maps), 1, size, note)
    colours = matplotlib.colormaps["Blues"]
    for place, (name, found) in zip(axes, maps.items(), strict=True):
        lengths = sorted(found, key=length_units)
        place.set_title(name)
        for y, length in enumerate(lengths):
            for x, cell in enumerate(found[length]):
                _square(place, x, y, cell, colours)
        place.set_xlim(0, BINS)
        place.set_ylim(len(lengths), 0)
        place.set_xticks(range(BINS + 1), [f"{100 * i // BINS}" for i in range(BINS + 1)])
        place.set_yticks([y + 0.5 for y in range(len(lengths))], lengths)
        place.tick_params(axis="y", length=0)
        place.grid(visible=False)
    axes[-1].set_xlabel("place in the context (%)")
    return figure


def _square(axes: Axes, x: int, y: int, cell: Mapping[str, Any], colours: Any) -> None:
    if not cell["n"]:
        return
    colour = colours(0.05 + 0.8 * cell["score"] / 100)
    axes.fill([x, x + 1, x + 1, x], [y, y, y + 1, y + 1], color=colour, linewidth=0)
    ink = "white" if cell["score"] > 60 else "black"
    axes.text(x + 0.5, y + 0.5, f"{cell['score']:.0f} ({cell['n']})", ha="center", va="center", fontsize=7, color=ink)


def evidence_positions(title: str, panels: Panels) -> Figure:
    """A panel a data set: how many records have their evidence where, over all lengths; the first model that tells."""
    heading = f"{title}: places of the evidence"
    found = next((h for s in panels.values() if s and any(map(any, (h := histogram(s)).values()))), {})
    found = {dataset: counts for dataset, counts in found.items() if any(counts)}
    if not found:
        return without_scores(heading, NO_PLACES)
    columns = min(len(found), 4)
    size = (2.3 * columns, 1.7 * math.ceil(len(found) / columns))
    figure, axes = new_figure(heading, len(found), columns, size, "records by place in the context, before truncation")
    for place, (dataset, counts) in zip(axes, found.items(), strict=True):
        place.set_title(dataset, fontsize=8)
        middles = [100 * (i + 0.5) / BINS for i in range(BINS)]
        place.bar(middles, counts, width=90 / BINS, color=GREY, linewidth=0)
        place.set_xlim(0, 100)
        place.set_xticks([0, 50, 100])
        place.tick_params(labelsize=7, colors=TEXT_GREY)
    return figure


DRAWN = {"fate_by_length": fate_by_length, "evidence_map": evidence_map, "evidence_positions": evidence_positions}
"""The figures by name, in the order in which they are drawn."""


def plot_anatomy(title: str, panels: Panels, folder: str | Path) -> list[Path]:
    """Draw all of them into a folder, in the kinds that `style.save` writes. Returns the files written."""
    files = []
    names = {str(summary["dataset"]) for summaries in panels.values() for summary in summaries}
    with style.look([title, *panels, *names]):
        for name, draw in DRAWN.items():
            files += style.save(draw(title, panels), folder, name)
    return files
