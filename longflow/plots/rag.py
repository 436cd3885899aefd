"""Score against the number of retrieved chunks."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter, NullLocator

from longflow import style
from longflow.leaderboard import Entry
from longflow.plots.canvas import NO_SCORES, curve, from_zero, legend, new_figure, say, without_scores
from longflow.plots.data import Data
from longflow.settings import FULL
from longflow.style import GREY

WHOLE: dict[str, Any] = {"color": "black", "linewidth": 1.2, "linestyle": "-"}
WITHOUT: dict[str, Any] = {"color": "black", "linewidth": 1.2, "linestyle": ":"}
CHANCE: dict[str, Any] = {"color": GREY, "linewidth": 0.8, "linestyle": (0, (4, 3))}


def rag(data: Data) -> Figure:
    """Score against the number of chunks: a panel per own model and length level, a line per retrieval.

    The scores with the whole context and with none are horizontal lines. All are means over the data sets that are run
    with retrieval, so that they are of the same questions; one that lacks a data set is a gap.
    """
    title = f"{data.title}: score by number of retrieved chunks"
    if data.empty:
        return without_scores(title)
    settings = {name for points in data.rag_lines.values() for name in points.values()}
    datasets = [d for d in data.datasets if any(d in _datasets(e) for e in data.own if e.setting in settings)]
    entries = {(entry.model, entry.setting): entry for entry in data.own}
    models = list(dict.fromkeys(entry.model for entry in data.own if entry.setting in settings))
    if not datasets:
        return without_scores(title)
    # One level: models beside each other. Several: a row of levels for each model.
    wide = len(data.lengths) if len(data.lengths) > 1 else min(len(models), 3)
    panels = [(model, length) for model in models for length in data.lengths]
    rows = math.ceil(len(panels) / wide)
    count = len(datasets)
    notes = [f"unweighted mean over {count} data sets"] if count > 1 else []
    notes += ["on a sample of the records"] if data.sample else []
    size = (max(3.2 * wide, 6.4), 2.5 * rows)
    figure, axes_list = new_figure(title, len(panels), wide, size, ", ".join(notes))
    numbers = sorted({n for points in data.rag_lines.values() for n in points})
    for axes, (model, length) in zip(axes_list, panels, strict=True):
        axes.set_title(model if len(data.lengths) == 1 else f"{model} · {length}")

        def score(setting: str, model: str = model, length: str = length) -> float | None:
            entry = entries.get((model, setting))
            return None if entry is None else _mean(entry, length, datasets)

        drawn = []
        for index, points in enumerate(data.rag_lines.values()):
            values = [score(points[n]) for n in points]
            curve(axes, values, [False] * len(values), index, list(points))
            drawn += values
        for look, names in ((WHOLE, [FULL]), (WITHOUT, data.without_context)):
            for value in map(score, names):
                drawn.append(value)
                if value is not None:
                    axes.axhline(value, zorder=2, **look)
        if data.chance is not None:
            axes.axhline(data.chance, zorder=1.5, **CHANCE)
        if all(value is None for value in drawn):
            say(axes, NO_SCORES)
        _chunks_axis(axes, numbers)
    top = max(axes.dataLim.y1 for axes in axes_list)
    for index, axes in enumerate(axes_list):
        from_zero(axes, top)
        if index % wide == 0:
            axes.set_ylabel("score (%)" if count == 1 else "mean score (%)")
        if index >= len(panels) - wide:
            axes.set_xlabel("chunks")
    legend(figure, _handles(data, {entry.setting for entry in data.own}), None)
    return figure


def _datasets(entry: Entry) -> set[str]:
    return {dataset for dataset, _ in entry.cells}


def _mean(entry: Entry, length: str, datasets: list[str]) -> float | None:
    """The mean over these data sets, None if one has no score."""
    if any((dataset, length) not in entry.cells for dataset in datasets):
        return None
    return entry.level_mean(length, datasets)


def _chunks_axis(axes: Axes, numbers: list[int]) -> None:
    """Numbers of chunks on a logarithmic axis, as they are usually doubled."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(numbers, [str(n) for n in numbers])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(numbers[0] / 1.15, numbers[-1] * 1.15)


def _handles(data: Data, settings: set[str]) -> list[Any]:
    handles: list[Any] = [
        Line2D([], [], linewidth=1.8, label=name, **style.line_look(index)) for index, name in enumerate(data.rag_lines)
    ]
    if FULL in settings:
        handles.append(Line2D([], [], label="the whole context", **WHOLE))
    if settings & set(data.without_context):
        handles.append(Line2D([], [], label="no context", **WITHOUT))
    if data.chance is not None:
        handles.append(Line2D([], [], label=f"chance: {data.chance:g} %", **CHANCE))
    return handles
