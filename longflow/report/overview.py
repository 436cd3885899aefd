"""The first screen: scores by level with their intervals, and what stands behind them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from longflow.leaderboard import Entry
from longflow.means import columns, fixed_means, mean
from longflow.report.data import LANGUAGES, Name, Run

ALL = "all"


@dataclass(frozen=True)
class Score:
    """A score (percent) with its 95 % interval, where one is known, and the number of records behind it.

    `beyond` says that more than half of the prompts were cut, `fewer` that data sets are missing which others have.
    """

    score: float
    low: float | None = None
    high: float | None = None
    n: int | None = None
    beyond: bool = False
    fewer: bool = False
    method: str | None = None
    notes: Sequence[str] = ()

    @property
    def text(self) -> str:
        """The score with one decimal."""
        return f"{self.score:.1f}"

    @property
    def spread(self) -> str:
        """What stands behind the score: ±2.1, or +5.1 −0.0 where the interval is not even; empty without one."""
        if self.low is None or self.high is None:
            return ""
        up, down = max(0.0, self.high - self.score), max(0.0, self.score - self.low)
        if abs(up - down) <= max(0.3, 0.2 * (up + down) / 2):
            return f"±{(up + down) / 2:.1f}"
        return f"+{up:.1f} −{down:.1f}"

    @property
    def words(self) -> str:
        """All of it in words."""
        parts = [f"{self.score:.2f} percent"]
        if self.low is not None and self.high is not None:
            parts.append(f"95 % interval {self.low:.1f} to {self.high:.1f}")
        if self.n is not None:
            parts.append(f"{self.n:,} records")
        if self.beyond:
            parts.append("beyond the prompt limit: more than half of the prompts were cut")
        if self.fewer:
            parts.append("over fewer data sets than others")
        return "; ".join([*parts, *self.notes])


@dataclass(frozen=True)
class Row:
    """A model in a setting, over all data sets or those of one language."""

    model: str
    setting: str
    scope: str
    first: bool
    rank: int | None
    scores: dict[str, Score | None]
    effective: str | None
    effective_kept: str | None
    evidence_cut: str | None
    evidence_words: str
    no_context: Score | None
    unparsed: int
    failed: int
    empty: int
    truncated: int
    n: int
    n_expected: int
    missing: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Overview:
    """The rows of a benchmark under its columns, which are length levels or the benchmark's own means.

    `lacking` says that a mean of the benchmark is not told, since a data set of it is missing.
    """

    columns: list[str]
    rows: list[Row]
    intervals: bool
    fewer: bool
    lacking: bool
    beyond: bool
    no_context: bool
    evidence: bool
    effective: bool


def overview(run: Run) -> Overview:
    """The first screen of a benchmark."""
    names = [*run.lengths, *(["overall"] if len(run.lengths) > 1 else [])] if run.by_levels else columns(run.table)
    found = run.entries()
    blind = {n: e for n, e in found.items() if n[1] in run.no_context}
    scopes: list[str | None] = [None]
    if run.by_levels and len(run.languages()) > 1:
        scopes += run.languages()
    blocks: list[list[Row]] = []
    for name in run.names:
        entry = found.get(name)
        if entry is not None:
            made = [_row(run, name, entry, scope, names, blind) for scope in scopes]
            blocks.append([row for row in made if row is not None])
    blocks = [block for block in blocks if block]
    blocks.sort(key=lambda rows: -_decides(rows[0], names))
    scores = [_decides(rows[0], names) for rows in blocks]
    rows = [
        _ranked(row, scores.index(_decides(block[0], names)) + 1 if len(blocks) > 1 else None)
        for block in blocks
        for row in block
    ]
    told = [score for row in rows for score in row.scores.values() if score is not None]
    return Overview(
        columns=[name for name in names if any(row.scores[name] is not None for row in rows)] or names,
        rows=rows,
        intervals=any(score.low is not None for score in told),
        fewer=any(score.fewer for score in told),
        lacking=not run.by_levels and any(score is None for row in rows for score in row.scores.values()),
        beyond=any(score.beyond for score in told),
        no_context=any(row.no_context is not None for row in rows),
        evidence=any(row.evidence_cut is not None for row in rows),
        effective=any(row.effective is not None for row in rows),
    )


def _decides(row: Row, names: Sequence[str]) -> float:
    """What rows stand in order of: the last column that the row has."""
    return next((score.score for name in reversed(names) if (score := row.scores.get(name)) is not None), -1.0)


def _ranked(row: Row, rank: int | None) -> Row:
    return Row(**{**row.__dict__, "rank": rank})


def _row(
    run: Run, name: Name, entry: Entry, language: str | None, names: Sequence[str], blind: Mapping[Name, Entry]
) -> Row | None:
    datasets = run.in_language(language)
    summaries = [s for s in run.of(name) if s["dataset"] in datasets]
    if not summaries:
        return None
    scope = language or ALL
    counts = {key: sum(int(s["counts"].get(key, 0)) for s in summaries) for key in ("unparsed", "failed", "empty")}
    effective = (run.analysis_of(name).get("effective_length") or {}).get(scope) or {}
    cut, words = evidence_cut([a for a in run.anatomy_of(name) if a["dataset"] in datasets])
    lacking = [cell for cell in run.missing.get(name, []) if language is None or cell.split("/")[0] in datasets]
    return Row(
        model=name[0],
        setting=name[1],
        scope="all" if language is None else LANGUAGES.get(language, language),
        first=language is None,
        rank=None,
        scores=scores_of(run, name, entry, language, names),
        effective=effective.get("words"),
        effective_kept=(effective.get("evidence_kept") or {}).get("words"),
        evidence_cut=cut,
        evidence_words=words,
        no_context=_no_context(run, name, language, blind),
        truncated=sum(int(s["counts"].get("truncated", 0)) for s in summaries),
        n=sum(int(s["n"]) for s in summaries),
        n_expected=sum(int(s["n_expected"]) for s in summaries),
        missing=lacking,
        **counts,
    )


def scores_of(
    run: Run, name: Name, entry: Entry, language: str | None, names: Iterable[str]
) -> dict[str, Score | None]:
    """The scores of an entry under these columns; None where it has none."""
    told = run.analysis_of(name).get("means", [])
    intervals = {mean["name"]: mean for mean in told if mean["scope"] == (language or ALL)}
    values: dict[str, Score | None] = {}
    if run.by_levels:
        datasets = run.in_language(language)
        for level in run.lengths:
            value = entry.level_mean(level, datasets)
            if value is not None:
                fewer = any((dataset, level) not in entry.cells for dataset in datasets)
                beyond = entry.beyond_window(level, datasets)
                values[level] = score_with(value, intervals.get(level), beyond=beyond, fewer=fewer)
        overall = mean(value.score for value in values.values() if value is not None)
        if overall is not None and len(values) == len(run.lengths):
            values["overall"] = score_with(overall, intervals.get("overall"))
    else:
        means = entry.means(fixed_means(run.table) or {})
        values = {key: score_with(value.score, intervals.get(key)) for key, value in means.items()}
    return {key: values.get(key) for key in names}


def score_with(score: float, found: Mapping[str, Any] | None, beyond: bool = False, fewer: bool = False) -> Score:
    """A score with what the analysis says of it, if that is of the same scores."""
    if found is None or abs(float(found["score"]) - score) > 0.01:
        return Score(score, beyond=beyond, fewer=fewer)
    return Score(
        score,
        float(found["low"]),
        float(found["high"]),
        int(found["n_expected"]),
        beyond,
        fewer,
        str(found["method"]),
        list(found.get("notes") or []),
    )


def evidence_cut(summaries: Sequence[Mapping[str, Any]]) -> tuple[str | None, str]:
    """The share of records whose evidence was cut away, of those of which it can be told, and that in words."""
    states: dict[str, int] = {}
    for summary in summaries:
        for state, n in summary["flags"]["evidence_cut"].items():
            states[state] = states.get(state, 0) + int(n)
    told = sum(n for state, n in states.items() if state != "unknown")
    if not told:
        return None, "cannot be told"
    words = (
        f"of {told:,} records of which it can be told, {states.get('yes', 0):,} lost all of their evidence and "
        f"{states.get('partly', 0):,} a part; of {states.get('unknown', 0):,} it cannot be told"
    )
    return f"{100 * (states.get('yes', 0) + states.get('partly', 0)) / told:.1f} %", words


def _no_context(run: Run, name: Name, language: str | None, blind: Mapping[Name, Entry]) -> Score | None:
    """The mean score of the same model without any context."""
    if name[1] in run.no_context:
        return None
    for setting in run.no_context:
        entry = blind.get((name[0], setting))
        if entry is None:
            continue
        if not run.by_levels:
            return next(
                (
                    s
                    for s in reversed(
                        list(scores_of(run, (name[0], setting), entry, None, columns(run.table)).values())
                    )
                    if s
                ),
                None,
            )
        datasets = run.in_language(language)
        found = [entry.level_mean(level, datasets) for level in run.lengths]
        value = mean(score for score in found if score is not None)
        told = run.analysis_of((name[0], setting)).get("means", [])
        fitting = [m for m in told if m["scope"] == (language or ALL) and m["name"] == "overall"]
        return None if value is None else score_with(value, fitting[0] if fitting else None)
    return None
