"""Plots for the page: matplotlib's SVG, with colours that follow light and dark, and names of its own for its parts."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass

from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

THEMED = {
    "#000000": "ink",
    "#ffffff": "paper",
    "#e0e0e0": "rule",
    "#e2e2e2": "rule",
    "#8c8c8c": "grey",
    "#606060": "soft",
}
"""Neutral colours of the style, and the page's variables that stand for them; others are kept."""

_COLOUR = re.compile(r"#[0-9a-f]{6}\b", re.IGNORECASE)
_ID = re.compile(r'(\bid="|href="#|url\(#)')


@dataclass(frozen=True)
class Picture:
    """A figure on the page: its caption, what it shows in words, and its SVG."""

    caption: str
    words: str
    svg: str


def inline(figure: Figure, name: str, caption: str, words: str) -> Picture:
    """A figure as SVG that may stand in the page; `name` tells its parts from those of other figures.

    Args:
        figure: drawn in the project's style; see `longflow.style.look`.
        name: letters, digits and dashes.
        caption: stands under it.
        words: what it shows, for those who do not see it.
    """
    FigureCanvasSVG(figure)
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = _ID.sub(lambda match: match[1] + name + "-", svg)
    svg = _COLOUR.sub(lambda match: _themed(match[0]), svg)
    head = re.match(r"<svg[^>]*>", svg)
    assert head is not None
    box = re.search(r'viewBox="([^"]*)"', head[0])
    assert box is not None
    width = float(box[1].split()[2])
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{box[1]}" '
        f'style="max-width:{width * 1.33:.0f}px" aria-hidden="true" focusable="false">'
    )
    return Picture(caption, words, opening + svg[head.end() :])


def _themed(colour: str) -> str:
    name = THEMED.get(colour.lower())
    return f"var(--{name})" if name else colour
