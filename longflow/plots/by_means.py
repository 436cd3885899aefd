"""Figures of a benchmark that names its means: bars of means and groups of records, and lines over groups."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from longflow import style
from longflow.means import COMPENSATED, Means, averages
from longflow.plots.canvas import (
    NO_MEANS,
    NO_SCORES,
    curve,
    from_zero,
    legend,
    names_right,
    new_figure,
    say,
    without_scores,
)
from longflow.plots.data import Data
from longflow.style import GREY

DOMAIN = "domain: "
"""How groups by domain begin."""


def bars_per_category(data: Data) -> Figure:
    """A panel per average of the benchmark: for each of its members and for itself, a bar per own model.

    Published models are ticks across the bars, named beside the average.
    """
    panels = []
    for average in reversed(averages(data.means)):
        bars = [(_short(name, data.means), name) for name in data.means[average]] + [("average", average)]
        panels.append((average, bars))
    return _grouped_bars(data, "score by category", panels, "a category is the unweighted mean of all its data sets")


def bars_per_group(data: Data) -> Figure:
    """For each column of the leaderboard a bar per own model, the one that ranks first; published models are ticks."""
    bars = [(name, name) for name in [*data.columns[-1:], *data.columns[:-1]] if name != COMPENSATED]
    return _grouped_bars(data, "score by difficulty and length", [("", bars)], None)


def bars_per_domain(data: Data) -> Figure:
    """For each domain of the questions a bar per own model, with the number of questions."""
    expected: dict[str, int] = {}
    for entry in data.own:
        for name, cell in entry.groups.items():
            if name.split("/", 2)[2].startswith(DOMAIN):
                expected[name] = max(expected.get(name, 0), cell.n_expected)
    bars = []
    for name in sorted(expected):
        domain = textwrap.fill(name.split("/", 2)[2].removeprefix(DOMAIN), 18)
        bars.append((f"{domain}\nn = {expected[name]}", name))
    return _grouped_bars(data, "score by domain", [("", bars)], None)


def score_by_group_per_category(data: Data) -> Figure:
    """A panel per category and one for the average: a line per own model over the groups of records."""
    groups = data.groups()
    names = [name.split("/", 1) for name in data.means]
    categories = list(dict.fromkeys(name[1] for name in names if len(name) == 2 and name[0] in groups))
    panels = [(category, [f"{group}/{category}" for group in groups]) for category in categories]
    panels += [("average of the categories", groups)] if all(group in data.means for group in groups) else []
    note = "unweighted mean over all data sets of a category; each panel has its own scale"
    return _curves(data, "score by length of the context, per category", panels, note)


def score_by_group_per_dataset(data: Data) -> Figure:
    """A panel per data set: a line per own model over the groups of records."""
    panels = []
    for dataset in data.datasets:
        title = f"{dataset}\n{data.kinds[dataset].language} · {data.kinds[dataset].category}"
        for length in data.lengths:
            panels.append((title, [f"{dataset}/{length}/{group}" for group in data.groups()]))
    return _curves(data, "score by length of the context, per data set", panels, "each panel has its own scale")


def _short(name: str, means: Means) -> str:
    """A member's name on an axis: a mean without the part of the table it belongs to, a cell's data set."""
    return name.split("/", 1)[-1] if name in means else name.split("/")[0]


def _grouped_bars(
    data: Data, what: str, panels: Sequence[tuple[str, Sequence[tuple[str, str]]]], note: str | None
) -> Figure:
    """Panels (title, bars) with a group of bars for each (label, name of a score): one for each own model.

    A panel without any own score is left out.
    """
    title = f"{data.title}: {what}"
    if data.empty:
        return without_scores(title)
    values = [data.values(entry) for entry in data.own]
    panels = [(name, bars) for name, bars in panels if any(node in found for found in values for _, node in bars)]
    if not panels:
        return without_scores(title, NO_MEANS)
    most = max(len(bars) for _, bars in panels)
    width = min(0.26, 0.84 / len(data.own))
    inches = max(6.0, most * max(1.2, 0.2 * len(data.own) + 0.3) + 0.8)
    named = inches + (1.3 if data.published else 0.0)
    note = ", ".join(filter(None, [note, "on a sample of the records" if data.sample else None])) or None
    figure, axes_list = new_figure(title, len(panels), 1, (named, 2.7 * len(panels)), note)
    reach = max(0.42, width * len(data.own) / 2 + 0.04)
    published_drawn = False
    for axes, (name, bars) in zip(axes_list, panels, strict=True):
        axes.set_title(name)
        for index, found in enumerate(values):
            look = style.line_look(index)
            for g, (_, node) in enumerate(bars):
                if node not in found:
                    continue
                x = g + (index - (len(values) - 1) / 2) * width
                axes.bar(x, found[node], width=width * 0.9, color=look["color"], alpha=0.55, linewidth=0, zorder=1.5)
                # The marker tells models apart without colour, and shows a zero.
                axes.plot(
                    x,
                    found[node],
                    marker=look["marker"],
                    markersize=0.7 * look["markersize"],
                    zorder=3,
                    color=look["color"],
                    linestyle="none",
                    clip_on=False,
                )
                if len(values) <= 3:
                    axes.annotate(
                        f"{found[node]:.1f}",
                        (x, found[node]),
                        (0, 4),
                        textcoords="offset points",
                        ha="center",
                        va="bottom",
                        fontsize=6.5,
                        zorder=4,
                        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.3},
                    )
        for entry in data.published:
            found = data.values(entry)
            for g, (_, node) in enumerate(bars):
                if node in found:
                    axes.plot([g - reach, g + reach], [found[node]] * 2, color=GREY, linewidth=0.7, zorder=2)
                    published_drawn = True
        axes.set_xticks(
            range(len(bars)), [textwrap.fill(label, 20) if "\n" not in label else label for label, _ in bars]
        )
        axes.tick_params(axis="x", length=0)
        axes.set_xlim(-0.6, len(bars) - 0.4)
        axes.set_ylabel("score (%)")
        if data.chance is not None:
            axes.axhline(data.chance, color="black", linewidth=0.8, linestyle=(0, (4, 3)), zorder=2.5)
    top = max(max(axes.dataLim.y1 for axes in axes_list), data.chance or 0.0)
    for axes, (_, bars) in zip(axes_list, panels, strict=True):
        from_zero(axes, top)
        last = bars[-1][1]
        ends = [(found[last], e.model) for e in data.published if last in (found := data.values(e))]
        names_right(axes, ends, len(bars) - 1 + reach, 0.12, 0.056)  # a panel is lower than score_by_length's
    handles: list[Any] = []
    for index, entry in enumerate(data.own):
        look = style.line_look(index)
        look["linestyle"] = "none"
        handles.append(Line2D([], [], label=data.label(entry), **look))
    if published_drawn:
        handles.append(Line2D([], [], color=GREY, linewidth=0.8, label="published models"))
    if data.chance is not None:
        label = f"chance: {data.chance:g} %"
        handles.append(Line2D([], [], color="black", linewidth=0.8, linestyle=(0, (4, 3)), label=label))
    legend(figure, handles, None)
    return figure


def _curves(data: Data, what: str, panels: Sequence[tuple[str, Sequence[str]]], note: str) -> Figure:
    """Panels (title, names of scores): a line per own model over the groups of records."""
    title = f"{data.title}: {what}"
    if data.empty:
        return without_scores(title)
    values = [data.values(entry) for entry in data.own]
    count = max(len(panels), 1)
    wide = min(count, 4 if count > 6 else 3 if count > 4 else 2)
    note = note + (", on a sample of the records" if data.sample else "")
    size = (max(3.0 * wide, 5.0), 2.2 * math.ceil(count / wide))
    figure, axes_list = new_figure(title, len(panels), wide, size, note)
    groups = data.groups()
    for axes, (name, nodes) in zip(axes_list, panels, strict=True):
        axes.set_title(name, fontsize=8)
        for index, found in enumerate(values):
            curve(axes, [found.get(node) for node in nodes], [False] * len(nodes), index)
        axes.set_xticks(range(len(groups)), groups)
        axes.set_xlim(-0.15, len(groups) - 0.85)
        from_zero(axes)
        if not any(node in found for node in nodes for found in values):
            say(axes, NO_SCORES if "/" in nodes[0] and nodes[0] not in data.means else NO_MEANS)
    for axes in axes_list[::wide]:
        axes.set_ylabel("score (%)")
    handles: list[Any] = [
        Line2D([], [], linewidth=1.8, label=data.label(entry), **style.line_look(index))
        for index, entry in enumerate(data.own)
    ]
    legend(figure, handles, None)
    return figure
