"""The tables of a paper: LaTeX (booktabs) beside the CSV files, and the first screen's scores with their intervals."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path

from longflow.config import Config
from longflow.jsonio import write_text
from longflow.report.data import Run, gather
from longflow.report.overview import Score, overview
from longflow.report.published_beside import board
from longflow.tables import csv_text

_SPECIAL = {
    **{char: f"\\{char}" for char in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}
_NUMBER = re.compile(r"[+\-−]?[\d.,]+%?")

PREAMBLE = "% Needs \\usepackage{booktabs}; Chinese names also need a CJK font, as of XeLaTeX or LuaLaTeX with xeCJK."


def escape(text: str) -> str:
    """Text that LaTeX prints as it stands."""
    return "".join(_SPECIAL.get(char, char) for char in text)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], raw: Sequence[int] = ()) -> str:
    """A tabular environment of booktabs: numbers to the right, text to the left.

    Args:
        header: names of the columns.
        rows: cells as text.
        raw: columns whose cells are LaTeX already.
    """
    kinds = ["r" if all(_is_number(row[i], i in raw) for row in rows) else "l" for i in range(len(header))]
    lines = [" & ".join(value if i in raw else escape(value) for i, value in enumerate(row)) + r" \\" for row in rows]
    head = " & ".join(map(escape, header)) + r" \\"
    parts = [PREAMBLE, rf"\begin{{tabular}}{{{''.join(kinds)}}}", r"\toprule", head, r"\midrule", *lines]
    return "\n".join([*parts, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _is_number(value: str, raw: bool) -> bool:
    return raw or not value or _NUMBER.fullmatch(value) is not None


def of_csv(text: str) -> str:
    """A CSV table as LaTeX."""
    header, *rows = list(csv.reader(text.splitlines()))
    # A row may be shorter than the header, as in the benchmarks' own layouts.
    return table(header, [[*row, *[""] * (len(header) - len(row))] for row in rows])


def with_intervals(score: Score | None) -> str:
    """A score with its interval, as LaTeX in one decimal: 23.4 ± 2.1, or with both ends where they differ.

    A dagger marks a level beyond the prompt limit.
    """
    if score is None:
        return "--"
    mark = r"{}^{\dagger}" if score.beyond else ""
    ends = score.spread.replace("−", "-").split()
    if not ends:
        return f"${score.text}{mark}$"
    if len(ends) == 1:
        return f"${score.text} \\pm {ends[0].removeprefix('±')}{mark}$"
    return f"${score.text}^{{{ends[0]}}}_{{{ends[1]}}}{mark}$"


def leaderboard(run: Run) -> tuple[str, str]:
    """A benchmark's models with their intervals, then the published ones: LaTeX, and the same as CSV."""
    found = overview(run)
    header = ["model", "setting", "questions", *found.columns]
    rows = [
        [row.model, row.setting, row.scope, *(with_intervals(row.scores[name]) for name in found.columns)]
        for row in found.rows
    ]
    other = board(run)
    for row, own in zip(other.rows, other.own, strict=True):
        if not own:
            told = dict(zip(other.header, row, strict=True))
            values = [told.get(name) or "--" for name in found.columns]
            rows.append([told["model"], "published", "all", *values])
    wide = [
        "model",
        "setting",
        "questions",
        *(f"{name}{part}" for name in found.columns for part in ("", " low", " high")),
    ]
    plain: list[list[object]] = [
        [row.model, row.setting, row.scope, *(value for name in found.columns for value in _ends(row.scores[name]))]
        for row in found.rows
    ]
    return table(header, rows, raw=range(3, len(header))), csv_text(wide, plain)


def _ends(score: Score | None) -> tuple[float | None, float | None, float | None]:
    return (None, None, None) if score is None else (float(score.score), score.low, score.high)


def write(config: Config) -> list[Path]:
    """Write the LaTeX tables of a run, beside the CSV files that are there. Returns the files written.

    `tables/{benchmark}/{model}/{setting}/result.tex` has the benchmark's own layout, `leaderboard/{benchmark}.tex` the
    scores with their intervals, published rows below; `leaderboard/{benchmark}_intervals.csv` has its own rows.
    """
    gathered = gather(config)
    written = []
    for run in gathered.runs:
        if not run.summaries:
            continue
        for model, setting in run.names:
            source = Path(gathered.files.table(run.name, model, setting, "result.csv"))
            if source.is_file():
                written.append(source.with_suffix(".tex"))
                write_text(written[-1], of_csv(source.read_text(encoding="utf-8")))
        target = Path(gathered.files.leaderboard(run.name))
        text, rows = leaderboard(run)
        written += [target.with_suffix(".tex"), target.with_name(f"{run.name}_intervals.csv")]
        write_text(written[-2], text)
        write_text(written[-1], rows)
    return written
