"""How figures look, in colour and in black and white, and how they are written: the same bytes for the same data."""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from longflow import fonts
from longflow.jsonio import write_text

# Okabe and Ito's colours for all kinds of colour vision, without the yellow that white paper swallows.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
# Numbers without a common factor, so that colour, marker and line together stay distinct for many models.
# Each marker with the size (points) at which it looks as large as the others.
MARKERS = (("o", 6), ("s", 6), ("^", 7), ("D", 5.5), ("v", 7), ("P", 8), ("X", 8), ("<", 7), (">", 7), ("*", 10))
LINES = ("-", "--", "-.")

PUBLISHED_LINE: dict[str, Any] = {"color": "#8c8c8c", "marker": "o", "markersize": 2.6, "linestyle": "-"}
PUBLISHED_BAR: dict[str, Any] = {"facecolor": "#e2e2e2", "edgecolor": "#8c8c8c", "linewidth": 0.6}
GREY = "#8c8c8c"
TEXT_GREY = "#606060"
HATCH = "/////"
PNG_DPI = 150

_RC: dict[Any, Any] = {
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "figure.titlesize": 11,
    "font.size": 9,
    "grid.color": "#e0e0e0",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.7,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # fonts that a paper's publisher takes, and text that can be searched
    "svg.fonttype": "path",  # glyphs travel with the file: it looks the same where the fonts are missing
    "svg.hashsalt": "longflow",
    "text.parse_math": False,  # a name with a dollar sign is a name
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}


@contextlib.contextmanager
def look(texts: Iterable[str]) -> Iterator[None]:
    """Draw in longflow's style, whatever a person's matplotlibrc says, with a font that has the texts' characters."""
    texts = list(texts)
    families = fonts.families(texts)
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({**_RC, "font.family": families})
        if len(families) == 1 and fonts.cjk_characters(texts):
            # The log has one line about it; matplotlib would add one for each character.
            warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font")
        yield


def line_look(index: int) -> dict[str, Any]:
    """Colour, marker and line style of the model of this number, as arguments of a Line2D."""
    marker, size = MARKERS[index % len(MARKERS)]
    return {
        "color": COLOURS[index % len(COLOURS)],
        "marker": marker,
        "markersize": size,
        "linestyle": LINES[index % len(LINES)],
    }


def shades(count: int) -> list[str]:
    """Blues from light to darker, told apart by lightness alone, for ordered levels; black hatches show on all."""
    colours = matplotlib.colormaps["Blues"]
    steps = [0.08 + 0.72 * i / (count - 1) for i in range(count)] if count > 1 else [0.5]
    return [matplotlib.colors.to_hex(colours(step)) for step in steps]


KINDS = ("svg", "png", "pdf")
"""How a figure is written; PDF is for papers."""


def save(figure: Figure, folder: str | Path, name: str) -> list[Path]:
    """Write {name}.svg, .png and .pdf into a folder, each whole or not at all. No dates or versions go in."""
    FigureCanvasAgg(figure)
    folder = Path(folder)
    paths = [folder / f"{name}.{kind}" for kind in KINDS]
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    write_text(paths[0], text.getvalue())
    _replace(figure, paths[1], dpi=PNG_DPI, metadata={"Software": None})
    _replace(figure, paths[2], metadata={"Creator": None, "Producer": None, "CreationDate": None})
    return paths


def _replace(figure: Figure, path: Path, **options: Any) -> None:
    draft = path.with_name(f".{path.name}.tmp")
    figure.savefig(draft, format=path.suffix.removeprefix("."), **options)
    os.replace(draft, path)
