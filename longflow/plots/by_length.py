"""Figures of a benchmark of length levels: lines over the levels, and bars for a single one."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from longflow import style
from longflow.leaderboard import Entry
from longflow.plots.canvas import (
    FEWER,
    NO_SCORES,
    curve,
    from_zero,
    hatched,
    legend,
    model_legend,
    names_right,
    new_figure,
    say,
    without_scores,
)
from longflow.plots.data import Data
from longflow.style import GREY, HATCH, TEXT_GREY


def score_by_length(data: Data) -> Figure:
    """All models in one figure: mean score over the data sets at each length, published models in grey.

    With a single level there is no line to draw, and the models are bars instead.
    """
    title = f"{data.title}: score by length"
    if data.empty:
        return without_scores(title)
    if len(data.lengths) == 1:
        return _bars_at_one_level(data)
    figure, (axes,) = new_figure(title, 1, 1, (8.6, 4.4), data.scope())
    for entry in data.published:
        _line(axes, data, entry, data.datasets, None)
    for index, entry in enumerate(data.own):
        _line(axes, data, entry, data.datasets, index)
    _length_axis(axes, data)
    axes.set_ylabel("mean score (%)")
    if data.length_unit:
        axes.set_xlabel(f"length in {data.length_unit}")
    from_zero(axes)
    _label_published(axes, data)
    model_legend(figure, data, published="published")
    return figure


def score_by_length_per_dataset(data: Data) -> Figure:
    """One panel per data set, a line per model, each with its own scale from 0.

    With a single level, all data sets share one panel, a row each.
    """
    title = f"{data.title}: score by length, per data set"
    if data.empty:
        return without_scores(title)
    if len(data.lengths) == 1:
        return _dots_at_one_level(data)
    count = len(data.datasets)
    columns = min(count, 4 if count > 6 else 3 if count > 4 else 2)
    rows = math.ceil(count / columns)
    figure, panels = new_figure(
        title, count, columns, (max(3.0 * columns, 5.0), 2.2 * rows), "each panel has its own scale"
    )
    for axes, dataset in zip(panels, data.datasets, strict=True):
        kind = data.kinds[dataset]
        axes.set_title(
            "\n".join([dataset, " · ".join(filter(None, [kind.title, kind.language, kind.category]))]), fontsize=8
        )
        for entry in data.published:
            _line(axes, data, entry, [dataset], None)
        for index, entry in enumerate(data.own):
            _line(axes, data, entry, [dataset], index)
        _length_axis(axes, data)
        from_zero(axes)
        if not any((dataset, length) in entry.cells for entry in data.own for length in data.lengths):
            say(axes, NO_SCORES)
    for axes in panels[::columns]:
        axes.set_ylabel("score (%)")
    model_legend(figure, data, published="published models")
    return figure


def bars_per_task_type(data: Data) -> Figure:
    """One panel per own model: for each kind of task and language, a bar per length level, darker as it gets longer.

    A wider grey bar behind each is the best published model on the same data sets at that length.
    """
    title = f"{data.title}: score by task type"
    if data.empty:
        return without_scores(title)
    groups: dict[tuple[str, str], list[str]] = {}
    for dataset in data.datasets:
        kind = data.kinds[dataset]
        groups.setdefault((kind.category, kind.language), []).append(dataset)
    languages = list(dict.fromkeys(language for _, language in groups))
    order = sorted(groups, key=lambda group: (languages.index(group[1]), group[0]))
    # Inches: a bar must hold its value, a group its name.
    width = max(3.4, len(order) * max(0.23 * (len(data.lengths) + 1), 1.15) + 0.6)
    columns = max(1, min(len(data.own), int(13 / width)))
    rows = math.ceil(len(data.own) / columns)
    note = "unweighted mean over the data sets of each type" + (", on a sample of the records" if data.sample else "")
    figure, panels = new_figure(title, len(data.own), columns, (max(width * columns, 5.0), 2.5 * rows + 0.2), note)
    shades = style.shades(len(data.lengths))
    partial = best_drawn = False
    for axes, entry in zip(panels, data.own, strict=True):
        axes.set_title(data.label(entry))
        for g, group in enumerate(order):
            for i, length in enumerate(data.lengths):
                datasets = groups[group]
                x = g + (i - (len(data.lengths) - 1) / 2) * _bar_width(data)
                means = [data.mean(published, length, datasets) for published in data.published]
                best = max((value for value in means if value is not None), default=None)
                if best is not None:
                    axes.bar(x, best, width=_bar_width(data) * 0.98, zorder=1.2, **style.PUBLISHED_BAR)
                    best_drawn = True
                value = data.mean(entry, length, datasets)
                if value is None:
                    continue
                fewer = data.partial(entry, length, datasets)
                partial |= fewer
                _bar(axes, x, value, shades[i], entry.beyond_window(length, datasets), data, "*" if fewer else "")
        axes.set_xticks(range(len(order)), [f"{category}\n{language}" for category, language in order])
        axes.tick_params(axis="x", length=0)
        axes.set_xlim(-0.55, len(order) - 0.45)
        if not entry.cells:
            say(axes, NO_SCORES)
    top = max((axes.dataLim.y1 for axes in panels), default=0.0)
    for axes in panels:
        from_zero(axes, top)
    for axes in panels[::columns]:
        axes.set_ylabel("mean score (%)")
    handles: list[Any] = [
        Patch(facecolor=shade, edgecolor="black", linewidth=0.6, label=length)
        for shade, length in zip(shades, data.lengths, strict=True)
    ]
    if any(entry.beyond_window(n, d) for entry in data.own for n in data.lengths for d in groups.values()):
        handles.append(hatched())
    if best_drawn:
        handles.append(Patch(label="behind: best published model", **style.PUBLISHED_BAR))
    legend(figure, handles, FEWER if partial else None)
    return figure


def score_per_dataset(data: Data) -> Figure:
    """A row per data set, a marker per model; published models are ticks."""
    return score_by_length_per_dataset(data)


def _bars_at_one_level(data: Data) -> Figure:
    """score_by_length of a single level: a horizontal bar per model, best first."""
    (length,) = data.lengths
    rows = [(data.mean(entry, length, data.datasets), i, entry) for i, entry in enumerate([*data.own, *data.published])]
    rows = [row for row in rows if row[0] is not None or row[2].own]
    rows.sort(key=lambda row: (row[0] is None, -(row[0] or 0.0), row[1]))
    title = f"{data.title}: score at length {length}" if length != "full" else f"{data.title}: score"
    figure, (axes,) = new_figure(title, 1, 1, (8.6, 0.27 * len(rows) + 0.8), data.scope())
    partial = False
    for y, (value, index, entry) in enumerate(rows):
        if value is None:
            axes.text(0, y, f" {NO_SCORES}", va="center", fontsize=8, color=TEXT_GREY)
            continue
        colour = style.line_look(index)["color"] if entry.own else style.PUBLISHED_BAR["facecolor"]
        beyond = entry.beyond_window(length, data.datasets)
        # Hatches are drawn in the edge colour: on a dark bar they would not be seen, so the bar is then white.
        axes.barh(
            y,
            value,
            height=0.72,
            facecolor="white" if beyond else colour,
            edgecolor=colour if entry.own else GREY,
            hatch=HATCH if beyond else None,
            linewidth=1.0,
        )
        fewer = data.partial(entry, length, data.datasets)
        partial |= fewer
        weight = "bold" if entry.own else "normal"
        axes.text(value, y, f" {value:.2f}{'*' if fewer else ''}", va="center", fontsize=8, fontweight=weight)
    axes.set_yticks(range(len(rows)), [data.label(entry) for _, _, entry in rows])
    for tick, (_, _, entry) in zip(axes.get_yticklabels(), rows, strict=True):
        tick.set_color("black" if entry.own else TEXT_GREY)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")
    axes.set_xlabel("mean score (%)")
    axes.set_xlim(0, max(1.1 * max((row[0] or 0.0 for row in rows), default=0.0), 1.0))
    handles: list[Any] = []
    if any(entry.beyond_window(length, data.datasets) for _, _, entry in rows):
        handles.append(hatched())
    if any(not entry.own for _, _, entry in rows):
        handles.append(Patch(label="published", **style.PUBLISHED_BAR))
    legend(figure, handles, FEWER if partial else None)
    return figure


def _dots_at_one_level(data: Data) -> Figure:
    """score_by_length_per_dataset of a single level: a row per data set, a marker per model."""
    (length,) = data.lengths
    count = len(data.datasets)
    title = (
        f"{data.title}: score at length {length}, per data set"
        if length != "full"
        else f"{data.title}: score per data set"
    )
    figure, (axes,) = new_figure(title, 1, 1, (8.6, 0.42 * count + 0.8), None)
    for entries_, published in ((data.published, True), (data.own, False)):
        for index, entry in enumerate(entries_):
            look = {"color": GREY, "marker": "|", "markersize": 9} if published else style.line_look(index)
            for y, dataset in enumerate(data.datasets):
                if (dataset, length) not in entry.cells:
                    continue
                hollow = entry.beyond_window(length, [dataset])
                axes.plot(
                    entry.cells[dataset, length].score,
                    y,
                    linestyle="none",
                    marker=look["marker"],
                    markersize=look["markersize"],
                    color=look["color"],
                    markerfacecolor="white" if hollow else look["color"],
                    markeredgewidth=1.3,
                    clip_on=False,
                    zorder=2 if published else 3,
                )
    for y, dataset in enumerate(data.datasets):
        if not any((dataset, length) in entry.cells for entry in data.own):
            axes.text(0, y, f" {NO_SCORES}", va="center", fontsize=8, color=TEXT_GREY)
    labels = [f"{d} · {data.kinds[d].language}" for d in data.datasets]
    axes.set_yticks(range(count), labels)
    axes.set_ylim(count - 0.5, -0.5)
    axes.grid(visible=True, axis="both")
    axes.set_xlabel("score (%)")
    axes.set_xlim(0, max(1.05 * axes.dataLim.x1 if math.isfinite(axes.dataLim.x1) else 0.0, 1.0))
    model_legend(figure, data, published="published models")
    return figure


def _line(axes: Axes, data: Data, entry: Entry, datasets: list[str], index: int | None) -> None:
    """An entry's means over the lengths, broken where one is missing; the published look if `index` is None."""
    values = [data.mean(entry, length, datasets) for length in data.lengths]
    hollow = [entry.beyond_window(length, datasets) for length in data.lengths]
    curve(axes, values, hollow, index)
    if index is not None and len(datasets) > 1:
        colour = style.line_look(index)["color"]
        for x, y in enumerate(values):
            if y is not None and data.partial(entry, data.lengths[x], datasets):
                axes.annotate("*", (x, y), (4, 1), textcoords="offset points", fontsize=11, color=colour)


def _label_published(axes: Axes, data: Data) -> None:
    """The names of the published models right of their last points, moved apart where they would overlap."""
    last = len(data.lengths) - 1
    ends: list[tuple[float, str]] = []
    for entry in data.published:
        means = [data.mean(entry, length, data.datasets) for length in data.lengths]
        reached = max((x for x, y in enumerate(means) if y is not None), default=None)
        if reached is None:
            continue
        y = means[reached]
        assert y is not None
        if reached == last:
            ends.append((y, entry.model))
        else:  # its line stops early: the name stands at its last point
            axes.annotate(
                entry.model,
                (reached, y),
                (6, 0),
                textcoords="offset points",
                va="center",
                fontsize=7,
                color=TEXT_GREY,
                zorder=2.2,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.5},
            )
    names_right(axes, ends, last, 0.16 * max(1.0, last / 4))


def _length_axis(axes: Axes, data: Data) -> None:
    axes.set_xticks(range(len(data.lengths)), data.lengths)
    axes.set_xlim(-0.15, len(data.lengths) - 0.85)


def _bar_width(data: Data) -> float:
    return 0.82 / max(len(data.lengths), 2)


def _bar(axes: Axes, x: float, value: float, colour: str, beyond: bool, data: Data, mark: str) -> None:
    """A bar with its value on top, which also makes a zero visible. Hatched where beyond the window."""
    axes.bar(
        x,
        value,
        width=_bar_width(data) * 0.7,
        facecolor=colour,
        edgecolor="black",
        linewidth=0.6,
        hatch=HATCH if beyond else None,
        zorder=1.5,
    )
    text = "0" if value == 0 else f"{value:.1f}" if value < 10 else f"{value:.0f}"
    axes.annotate(text + mark, (x, value), (0, 1.5), textcoords="offset points", ha="center", va="bottom", fontsize=6.5)
