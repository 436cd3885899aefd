"""Figures of a benchmark's scores: by length, by group of records, by data set, by kind of task.

Which ones a benchmark has stands in `longflow.figures`; each is drawn by the function of its name. Every score is over
the expected number of records, as in the leaderboard, and every mean is unweighted over data sets. Own models stand
beside the published ones (grey) over the same data sets and lengths. A level beyond a model's window has a hollow
marker or a hatched bar. What has no score is a gap, never a zero.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from longflow import benchmarks, style
from longflow.benchmarks import Benchmark
from longflow.figures import figures
from longflow.leaderboard import (
    COMPENSATED,
    Entry,
    Means,
    averages,
    columns,
    entries,
    fixed_means,
    groups_in,
    ordered_datasets,
    ordered_lengths,
)
from longflow.metrics import metric
from longflow.style import GREY, HATCH, TEXT_GREY
from longflow.tables import Summary

LANGUAGES = {"en": "English", "zh": "Chinese"}
NO_SCORES = "no scores yet"
NO_MEANS = "no mean has all its data sets yet"
DOMAIN = "domain: "
"""How groups by domain begin."""
BEYOND = "level beyond the model's window"
FEWER = "* mean over fewer data sets, the others have no score"


@dataclass(frozen=True)
class Kind:
    """What a data set asks, as figures call it."""

    title: str | None
    category: str
    language: str


@dataclass(frozen=True)
class Data:
    """What the figures of a benchmark draw.

    `datasets` and `lengths` are those of the own run, in order, scored or not; `kinds` has one item per data set.
    `means`, `columns` and `chance` (percent that guessing gives) are the benchmark's, where it names them.
    """

    title: str
    length_unit: str | None
    own: list[Entry]
    published: list[Entry]
    datasets: list[str]
    lengths: list[str]
    kinds: dict[str, Kind]
    of_datasets: int
    sample: bool
    means: Means
    columns: list[str]
    chance: float | None

    @property
    def empty(self) -> bool:
        """Whether no own cell has a score."""
        return not any(entry.cells for entry in self.own)

    def label(self, entry: Entry) -> str:
        """An entry's name: the model, and its setting where the run has several."""
        several = len({e.setting for e in self.own}) > 1
        return f"{entry.model} ({entry.setting})" if entry.own and several else entry.model

    def texts(self) -> list[str]:
        """All names that figures may draw."""
        kinds = [text for kind in self.kinds.values() for text in (kind.title or "", kind.category, kind.language)]
        names = [name for entry in self.own for name in entry.groups]
        models = map(self.label, [*self.own, *self.published])
        return [self.title, *self.datasets, *self.lengths, *kinds, *self.means, *names, *models]

    def mean(self, entry: Entry, length: str, datasets: Collection[str]) -> float | None:
        """An entry's mean at a length; a published one's only over all of these data sets."""
        if not entry.own and any((dataset, length) not in entry.cells for dataset in datasets):
            return None
        return entry.level_mean(length, datasets)

    def partial(self, entry: Entry, length: str, datasets: Collection[str]) -> bool:
        """Whether a mean stands on fewer than these data sets."""
        return any((dataset, length) not in entry.cells for dataset in datasets)

    def values(self, entry: Entry) -> dict[str, float]:
        """All that an entry has a score for, by name: cells, groups of their records, and means (percent)."""
        leaves = {name: cell.score for name, cell in entry.leaves().items()}
        return leaves | {name: mean.score for name, mean in entry.means(self.means).items()}

    def groups(self) -> list[str]:
        """The groups of records that the columns of the leaderboard are made of, in its order."""
        return groups_in(self.columns, self.means)

    def scope(self) -> str:
        """What means are over, in words."""
        count = len(self.datasets)
        of = f"{count} of {self.of_datasets}" if count < self.of_datasets else f"{count}"
        sample = ", on a sample of the records" if self.sample else ""
        return f"unweighted mean over {of} data set{'s' if count > 1 else ''}{sample}"


def gather(summaries: Sequence[Summary], benchmark: str) -> Data:
    """Bring score summaries into the shape that figures draw."""
    table = benchmarks.load(benchmark)
    mine = [s for s in summaries if s["benchmark"] == benchmark]
    keys = {(str(s["dataset"]), str(s["length"])) for s in mine}
    rows = entries(mine, benchmark)
    kinds = {}
    for s in mine:
        task = table.tasks.get(str(s["dataset"]))
        title = str(task.extra["title"]) if task and task.extra.get("title") else None
        if title and _letters(title) == _letters(str(s["dataset"])):
            title = None
        language = str(s["language"])
        kinds[str(s["dataset"])] = Kind(title, str(s["category"]), LANGUAGES.get(language, language))
    return Data(
        title=table.title,
        length_unit=table.table.get("length_unit"),
        own=[entry for entry in rows if entry.own],
        published=[entry for entry in rows if not entry.own and (entry.given or keys & set(entry.cells))],
        datasets=ordered_datasets(keys, table),
        lengths=ordered_lengths(keys),
        kinds=kinds,
        of_datasets=max(len(table.tasks), len(kinds)),
        sample=any(
            cell.n_expected < table.tasks[dataset].records(length)
            for entry in rows
            if entry.own
            for (dataset, length), cell in entry.cells.items()
            if dataset in table.tasks
        ),
        means=fixed_means(table) or {},
        columns=columns(table),
        chance=_chance(table),
    )


def _chance(table: Benchmark) -> float | None:
    """What guessing gives in percent, where one metric that can be guessed at is all that a benchmark has."""
    chances = {metric(task.metric).chance for task in table.tasks.values()}
    chance = chances.pop() if len(chances) == 1 else None
    return None if chance is None else 100 * chance


def plot_benchmark(summaries: Sequence[Summary], benchmark: str, out_dir: str | Path) -> list[Path]:
    """Draw every figure of a benchmark into a folder, as {figure}.svg and {figure}.png for each of its `figures`.

    Returns the files written. The same summaries give the same bytes with the same matplotlib and fonts.
    """
    data = gather(summaries, benchmark)
    files = []
    with style.look(data.texts()):
        for name in figures(benchmark):
            files += style.save(globals()[name](data), out_dir, name)
    return files


def score_by_length(data: Data) -> Figure:
    """All models in one figure: mean score over the data sets at each length, published models in grey.

    With a single level there is no line to draw, and the models are bars instead.
    """
    title = f"{data.title}: score by length"
    if data.empty:
        return _without_scores(title)
    if len(data.lengths) == 1:
        return _bars_at_one_level(data)
    figure, (axes,) = _figure(data, title, 1, 1, (8.6, 4.4), data.scope())
    for entry in data.published:
        _line(axes, data, entry, data.datasets, None)
    for index, entry in enumerate(data.own):
        _line(axes, data, entry, data.datasets, index)
    _length_axis(axes, data)
    axes.set_ylabel("mean score (%)")
    if data.length_unit:
        axes.set_xlabel(f"length in {data.length_unit}")
    _from_zero(axes)
    _label_published(axes, data)
    _model_legend(figure, data, published="published")
    return figure


def score_by_length_per_dataset(data: Data) -> Figure:
    """One panel per data set, a line per model, each with its own scale from 0.

    With a single level, all data sets share one panel, a row each.
    """
    title = f"{data.title}: score by length, per data set"
    if data.empty:
        return _without_scores(title)
    if len(data.lengths) == 1:
        return _dots_at_one_level(data)
    count = len(data.datasets)
    columns = min(count, 4 if count > 6 else 3 if count > 4 else 2)
    rows = math.ceil(count / columns)
    figure, panels = _figure(
        data, title, count, columns, (max(3.0 * columns, 5.0), 2.2 * rows), "each panel has its own scale"
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
        _from_zero(axes)
        if not any((dataset, length) in entry.cells for entry in data.own for length in data.lengths):
            _say(axes, NO_SCORES)
    for axes in panels[::columns]:
        axes.set_ylabel("score (%)")
    _model_legend(figure, data, published="published models")
    return figure


def bars_per_task_type(data: Data) -> Figure:
    """One panel per own model: for each kind of task and language, a bar per length level, darker as it gets longer.

    A wider grey bar behind each is the best published model on the same data sets at that length.
    """
    title = f"{data.title}: score by task type"
    if data.empty:
        return _without_scores(title)
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
    figure, panels = _figure(data, title, len(data.own), columns, (max(width * columns, 5.0), 2.5 * rows + 0.2), note)
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
            _say(axes, NO_SCORES)
    top = max((axes.dataLim.y1 for axes in panels), default=0.0)
    for axes in panels:
        _from_zero(axes, top)
    for axes in panels[::columns]:
        axes.set_ylabel("mean score (%)")
    handles: list[Any] = [
        Patch(facecolor=shade, edgecolor="black", linewidth=0.6, label=length)
        for shade, length in zip(shades, data.lengths, strict=True)
    ]
    if any(entry.beyond_window(n, d) for entry in data.own for n in data.lengths for d in groups.values()):
        handles.append(_hatched())
    if best_drawn:
        handles.append(Patch(label="behind: best published model", **style.PUBLISHED_BAR))
    _legend(figure, handles, FEWER if partial else None)
    return figure


def score_per_dataset(data: Data) -> Figure:
    """A row per data set, a marker per model; published models are ticks."""
    return score_by_length_per_dataset(data)


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
        return _without_scores(title)
    values = [data.values(entry) for entry in data.own]
    panels = [(name, bars) for name, bars in panels if any(node in found for found in values for _, node in bars)]
    if not panels:
        return _without_scores(title, NO_MEANS)
    most = max(len(bars) for _, bars in panels)
    width = min(0.26, 0.84 / len(data.own))
    inches = max(6.0, most * max(1.2, 0.2 * len(data.own) + 0.3) + 0.8)
    named = inches + (1.3 if data.published else 0.0)
    note = ", ".join(filter(None, [note, "on a sample of the records" if data.sample else None])) or None
    figure, axes_list = _figure(data, title, len(panels), 1, (named, 2.7 * len(panels)), note)
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
        _from_zero(axes, top)
        last = bars[-1][1]
        ends = [(found[last], e.model) for e in data.published if last in (found := data.values(e))]
        _names_right(axes, ends, len(bars) - 1 + reach, 0.12, 0.056)  # a panel is lower than score_by_length's
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
    _legend(figure, handles, None)
    return figure


def _curves(data: Data, what: str, panels: Sequence[tuple[str, Sequence[str]]], note: str) -> Figure:
    """Panels (title, names of scores): a line per own model over the groups of records."""
    title = f"{data.title}: {what}"
    if data.empty:
        return _without_scores(title)
    values = [data.values(entry) for entry in data.own]
    count = max(len(panels), 1)
    wide = min(count, 4 if count > 6 else 3 if count > 4 else 2)
    note = note + (", on a sample of the records" if data.sample else "")
    size = (max(3.0 * wide, 5.0), 2.2 * math.ceil(count / wide))
    figure, axes_list = _figure(data, title, len(panels), wide, size, note)
    groups = data.groups()
    for axes, (name, nodes) in zip(axes_list, panels, strict=True):
        axes.set_title(name, fontsize=8)
        for index, found in enumerate(values):
            _curve(axes, [found.get(node) for node in nodes], [False] * len(nodes), index)
        axes.set_xticks(range(len(groups)), groups)
        axes.set_xlim(-0.15, len(groups) - 0.85)
        _from_zero(axes)
        if not any(node in found for node in nodes for found in values):
            _say(axes, NO_SCORES if "/" in nodes[0] and nodes[0] not in data.means else NO_MEANS)
    for axes in axes_list[::wide]:
        axes.set_ylabel("score (%)")
    handles: list[Any] = [
        Line2D([], [], linewidth=1.8, label=data.label(entry), **style.line_look(index))
        for index, entry in enumerate(data.own)
    ]
    _legend(figure, handles, None)
    return figure


def _bars_at_one_level(data: Data) -> Figure:
    """score_by_length of a single level: a horizontal bar per model, best first."""
    (length,) = data.lengths
    rows = [(data.mean(entry, length, data.datasets), i, entry) for i, entry in enumerate([*data.own, *data.published])]
    rows = [row for row in rows if row[0] is not None or row[2].own]
    rows.sort(key=lambda row: (row[0] is None, -(row[0] or 0.0), row[1]))
    title = f"{data.title}: score at length {length}" if length != "full" else f"{data.title}: score"
    figure, (axes,) = _figure(data, title, 1, 1, (8.6, 0.27 * len(rows) + 0.8), data.scope())
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
        handles.append(_hatched())
    if any(not entry.own for _, _, entry in rows):
        handles.append(Patch(label="published", **style.PUBLISHED_BAR))
    _legend(figure, handles, FEWER if partial else None)
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
    figure, (axes,) = _figure(data, title, 1, 1, (8.6, 0.42 * count + 0.8), None)
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
    _model_legend(figure, data, published="published models")
    return figure


def _figure(
    data: Data, title: str, count: int, columns: int, size: tuple[float, float], note: str | None
) -> tuple[Figure, list[Axes]]:
    """A figure with its heading and `count` panels; `size` is theirs in inches, heading and legend come on top."""
    heading = 0.5
    longest = max(map(len, map(data.label, data.own)), default=0)
    legend = 0.2 * math.ceil((len(data.own) + 3) / _legend_columns(longest, size[0])) + 0.25
    figure = Figure(figsize=(size[0], size[1] + heading + legend), layout="constrained")
    figure.suptitle(title + (f"\n{note}" if note else ""), x=0.01, ha="left", fontsize=10)
    grid = figure.add_gridspec(math.ceil(count / columns), columns)
    return figure, [figure.add_subplot(grid[divmod(i, columns)]) for i in range(count)]


def _without_scores(title: str, text: str = NO_SCORES) -> Figure:
    figure = Figure(figsize=(5, 2), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    figure.text(0.5, 0.45, text, ha="center", va="center", fontsize=12, color=TEXT_GREY)
    return figure


def _say(axes: Axes, text: str) -> None:
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", fontsize=9, color=TEXT_GREY)


def _line(axes: Axes, data: Data, entry: Entry, datasets: list[str], index: int | None) -> None:
    """An entry's means over the lengths, broken where one is missing; the published look if `index` is None."""
    values = [data.mean(entry, length, datasets) for length in data.lengths]
    hollow = [entry.beyond_window(length, datasets) for length in data.lengths]
    _curve(axes, values, hollow, index)
    if index is not None and len(datasets) > 1:
        colour = style.line_look(index)["color"]
        for x, y in enumerate(values):
            if y is not None and data.partial(entry, data.lengths[x], datasets):
                axes.annotate("*", (x, y), (4, 1), textcoords="offset points", fontsize=11, color=colour)


def _curve(axes: Axes, values: Sequence[float | None], hollow: Sequence[bool], index: int | None) -> None:
    """A line through values, broken where one is missing; the published look if `index` is None."""
    points = [(x, y) for x, y in enumerate(values) if y is not None]
    if not points:
        return
    look = style.PUBLISHED_LINE if index is None else style.line_look(index)
    own = index is not None
    zorder = 3 if own else 2
    axes.plot(
        range(len(values)),
        [math.nan if y is None else y for y in values],
        color=look["color"],
        linestyle=look["linestyle"],
        linewidth=1.8 if own else 0.7,
        zorder=zorder,
        clip_on=False,
    )
    for kind in (False, True):
        some = [(x, y) for x, y in points if hollow[x] == kind]
        if not some:
            continue
        axes.plot(
            [x for x, _ in some],
            [y for _, y in some],
            linestyle="none",
            marker=look["marker"],
            markersize=look["markersize"],
            markeredgecolor=look["color"],
            markeredgewidth=1.3 if own else 0.7,
            markerfacecolor="white" if kind else look["color"],
            zorder=zorder + 0.5,
            clip_on=False,
        )


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
    _names_right(axes, ends, last, 0.16 * max(1.0, last / 4))


def _names_right(axes: Axes, ends: Sequence[tuple[float, str]], x: float, away: float, gap: float = 0.033) -> None:
    """Names of published models right of their (score, name) ends at `x`; `gap` is a share of the axis."""
    top = axes.get_ylim()[1]
    for (y, name), place in zip(sorted(ends), _spread(sorted(y for y, _ in ends), top * gap, top), strict=True):
        axes.annotate(
            name,
            (x, y),
            (x + away, place),
            fontsize=7,
            color=TEXT_GREY,
            va="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": GREY,
                "linewidth": 0.4,
                "relpos": (0, 0.5),
                "shrinkA": 1,
                "shrinkB": 3,
            },
        )


def _spread(values: Sequence[float], gap: float, top: float) -> list[float]:
    """Sorted values moved up so that neighbours are at least `gap` apart, the last ones no higher than `top`."""
    places: list[float] = []
    for value in values:
        places.append(max(value, places[-1] + gap) if places else value)
    limit = top
    for i in reversed(range(len(places))):
        places[i] = min(places[i], limit)
        limit = places[i] - gap
    return places


def _length_axis(axes: Axes, data: Data) -> None:
    axes.set_xticks(range(len(data.lengths)), data.lengths)
    axes.set_xlim(-0.15, len(data.lengths) - 0.85)


def _from_zero(axes: Axes, top: float | None = None) -> None:
    """A y axis from 0 to a little above the data, 5 at the least: scores near zero shall look it."""
    top = axes.dataLim.y1 if top is None else top
    axes.set_ylim(0, max(1.12 * top if math.isfinite(top) else 0.0, 5.0))


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


def _hatched() -> Patch:
    return Patch(facecolor="white", edgecolor="black", linewidth=0.6, hatch=HATCH, label=BEYOND)


def _model_legend(figure: Figure, data: Data, published: str) -> None:
    """A legend of the own models, of what grey is, and of what hollow means where it occurs."""
    handles: list[Any] = [
        Line2D([], [], linewidth=1.8, label=data.label(entry), **style.line_look(index))
        for index, entry in enumerate(data.own)
    ]
    if data.published:
        handles.append(Line2D([], [], linewidth=0.7, label=published, **style.PUBLISHED_LINE))
    if len(data.lengths) == 1:  # markers without lines
        for handle in handles:
            handle.set_linestyle("none")
        if data.published:
            handles[-1].set(marker="|", markersize=9)
    if any(
        entry.beyond_window(length, [dataset])
        for entry in [*data.own, *(data.published if len(data.lengths) > 1 else [])]
        for dataset in data.datasets
        for length in data.lengths
    ):
        handles.append(
            Line2D(
                [], [], linestyle="none", marker="o", color="black", markerfacecolor="white", label=f"hollow: {BEYOND}"
            )
        )
    fewer = any(
        data.partial(e, n, data.datasets)
        for e in data.own
        for n in data.lengths
        if e.level_mean(n, data.datasets) is not None
    )
    _legend(figure, handles, FEWER if fewer else None)


def _legend(figure: Figure, handles: list[Any], footnote: str | None) -> None:
    """A legend below the panels; a footnote is its last line."""
    if footnote:
        handles = [*handles, Line2D([], [], linestyle="none", label=footnote)]
    if handles:
        longest = max(len(handle.get_label()) for handle in handles)
        figure.legend(
            handles=handles,
            loc="outside lower left",
            ncols=_legend_columns(longest, figure.get_figwidth()),
            handlelength=3.2,
        )


def _legend_columns(longest: int, width: float) -> int:
    """How many names of this many characters fit beside each other (8 points, a handle before each)."""
    return max(1, min(4, int(width / (0.075 * longest + 0.75))))


def _letters(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).lower()
