"""What all figures are made of: panels under a heading, lines, axes and legends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from longflow import style
from longflow.plots.data import Data
from longflow.style import GREY, HATCH, TEXT_GREY

NO_SCORES = "no scores yet"
NO_MEANS = "no mean has all its data sets yet"
BEYOND = "level beyond the model's window"
FEWER = "* mean over fewer data sets, the others have no score"


def new_figure(
    title: str, count: int, columns: int, size: tuple[float, float], note: str | None
) -> tuple[Figure, list[Axes]]:
    """A figure with its heading and `count` panels; `size` is theirs in inches, the heading and `legend` add theirs."""
    figure = Figure(figsize=(size[0], size[1] + 0.5), layout="constrained")
    figure.suptitle(title + (f"\n{note}" if note else ""), x=0.01, ha="left", fontsize=10)
    grid = figure.add_gridspec(math.ceil(count / columns), columns)
    return figure, [figure.add_subplot(grid[divmod(i, columns)]) for i in range(count)]


def without_scores(title: str, text: str = NO_SCORES) -> Figure:
    figure = Figure(figsize=(5, 2), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    figure.text(0.5, 0.45, text, ha="center", va="center", fontsize=12, color=TEXT_GREY)
    return figure


def say(axes: Axes, text: str) -> None:
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", fontsize=9, color=TEXT_GREY)


def curve(
    axes: Axes,
    values: Sequence[float | None],
    hollow: Sequence[bool],
    index: int | None,
    places: Sequence[float] | None = None,
) -> None:
    """A line through values, broken where one is missing; the published look if `index` is None.

    `hollow` says of which the marker is hollow, `places` where they stand on the x axis: 0, 1, 2 ... unless told.
    """
    places = range(len(values)) if places is None else places
    points = [(x, y, kind) for x, y, kind in zip(places, values, hollow, strict=True) if y is not None]
    if not points:
        return
    look = style.PUBLISHED_LINE if index is None else style.line_look(index)
    own = index is not None
    zorder = 3 if own else 2
    axes.plot(
        places,
        [math.nan if y is None else y for y in values],
        color=look["color"],
        linestyle=look["linestyle"],
        linewidth=1.8 if own else 0.7,
        zorder=zorder,
        clip_on=False,
    )
    for kind in (False, True):
        some = [(x, y) for x, y, here in points if here == kind]
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


def names_right(axes: Axes, ends: Sequence[tuple[float, str]], x: float, away: float, gap: float = 0.033) -> None:
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


def from_zero(axes: Axes, top: float | None = None) -> None:
    """A y axis from 0 to a little above the data, 5 at the least: scores near zero shall look it."""
    top = axes.dataLim.y1 if top is None else top
    axes.set_ylim(0, max(1.12 * top if math.isfinite(top) else 0.0, 5.0))


def hatched() -> Patch:
    return Patch(facecolor="white", edgecolor="black", linewidth=0.6, hatch=HATCH, label=BEYOND)


def model_legend(figure: Figure, data: Data, published: str) -> None:
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
    legend(figure, handles, FEWER if fewer else None)


def legend(figure: Figure, handles: list[Any], footnote: str | None) -> None:
    """A legend below the panels, for which the figure grows; a footnote is its last line."""
    if footnote:
        handles = [*handles, Line2D([], [], linestyle="none", label=footnote)]
    if handles:
        longest = max(len(handle.get_label()) for handle in handles)
        side_by_side = _legend_columns(longest, figure.get_figwidth())
        figure.set_figheight(figure.get_figheight() + 0.2 * math.ceil(len(handles) / side_by_side) + 0.25)
        figure.legend(
            handles=handles,
            loc="outside lower left",
            ncols=side_by_side,
            handlelength=3.2,
        )


def _legend_columns(longest: int, width: float) -> int:
    """How many names of this many characters fit beside each other (8 points, a handle before each)."""
    return max(1, min(4, int(width / (0.075 * longest + 0.75))))
